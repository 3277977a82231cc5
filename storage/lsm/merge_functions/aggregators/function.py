# SPDX-License-Identifier: Apache-2.0
"""What an aggregate function is, its two tiers, and the errors that all functions share.

Tier one reduces the values of all keys at once, as arrays. What it cannot decide goes to tier two:
the rows of such a key are applied one after the other, as SEMANTICS.md §B.3 specifies.
Rows whose merge is impossible are named by the segment they belong to (`segment=` in the context
of the error), because only the caller knows its key.
"""

import dataclasses
import functools
from collections.abc import Callable, Sequence
from typing import Any, ClassVar

import numpy as np
import pyarrow as pa

from storage.errors import InvalidOptionError, InvalidRequestError
from storage.format.types.types import DataField, type_name
from storage.lsm.merge_functions.segments import Op, Overlay, Segments


class AggregationRefused(ArithmeticError):
    """A step that has no result; the argument is the reason."""


@dataclasses.dataclass(frozen=True, slots=True)
class RowFold:
    """A function opened on the values of a column, for tier two.

    A total is a value of the column in a form chosen by the function: `add` takes either form
    as either argument, and may change the first one, unless it is an input.

    Attributes:
        inputs: value of each row; None for null.
        add: the total with a value added.
        close: totals as values of the column.
        retract: the total with a value retracted; None where the function only adds.
    """

    inputs: Sequence[Any]
    add: Callable[[Any, Any], Any]
    close: Callable[[list[Any]], pa.Array]
    retract: Callable[[Any, Any], Any] | None = None


@dataclasses.dataclass(frozen=True, slots=True)
class AggregateFunction:
    """One aggregate function of one column; stateless and picklable.

    Attributes:
        name: of the function, as in options and messages.
    """

    field: DataField
    name: str

    retractable: ClassVar[bool] = False
    """It can retract values."""
    keeps_lone: ClassVar[bool] = True
    """A value that is added to nothing is kept unchanged."""
    turns_late: ClassVar[bool] = True
    """The total is added to a late value; otherwise the late value to the total."""

    def reduce(
        self, values: pa.Array, segments: Segments
    ) -> tuple[pa.Array | None, np.ndarray | None]:
        """Tier one: merge the values of each segment, from nothing on.

        Args:
            values: of the column, at least one.
            segments: where segments begin, and what each row does.

        Returns:
            One value per segment, of the type of `values`; and a bool per segment: its value is
            left to tier two (None: none is). No values at all: all are left.
        """
        return None, None

    def open(self, values: pa.Array) -> RowFold:
        """Tier two: how these values are folded row by row."""
        raise NotImplementedError


@dataclasses.dataclass(frozen=True, slots=True)
class Aggregator:
    """An aggregate function as a column uses it.

    Attributes:
        ignore_retract: retractions leave the column unchanged.
    """

    function: AggregateFunction
    ignore_retract: bool = False

    @property
    def name(self) -> str:
        """Of the function."""
        return self.function.name

    @property
    def retractable(self) -> bool:
        """Whether retractions are no error."""
        return self.ignore_retract or self.function.retractable

    @property
    def keeps_lone(self) -> bool:
        """Whether a value that is added to nothing stays as it is."""
        return self.function.keeps_lone

    def require_retractable(self, segments: Segments) -> None:
        """Check that nothing is retracted from a function that only adds.

        Raises:
            InvalidRequestError: one does.
        """
        if self.retractable or segments.ops is None:
            return
        retract = segments.where(Op.RETRACT, Op.BASE_RETRACT)
        if retract.any():
            row = int(np.argmax(retract))
            raise InvalidRequestError(
                f"Aggregate function '{self.name}' does not support retraction",
                hint=f"set `fields.{self.function.field.name}.ignore-retract` to true to pass over "
                "-U and -D rows",
                field=self.function.field.name,
                segment=int(np.searchsorted(segments.starts, row, side="right")) - 1,
            )

    def reduce(self, values: pa.Array, segments: Segments) -> pa.Array:
        """Merge the values of each segment.

        Args:
            values: of the column, in the order in which they are to be applied.
            segments: where segments begin, and what each row does.

        Returns:
            One value per segment, of the type of `values`.

        Raises:
            InvalidRequestError: a retraction meets a function that has none, or a result does
                not fit; `segment=` in its context is the number of the first such segment.
        """
        if not segments.rows:
            return values
        self.require_retractable(segments)
        if self.ignore_retract and segments.ops is not None:
            ops = np.where(segments.where(Op.RETRACT), np.int8(Op.SKIP), segments.ops)
            ops[segments.where(Op.BASE_RETRACT)] = Op.BASE
            segments = dataclasses.replace(segments, ops=ops)
        reduced, deferred = self.function.reduce(values, segments)
        if reduced is None:
            return self._folded(values, segments, np.arange(len(segments.starts)))
        if deferred is None or not deferred.any():
            return reduced
        keys = np.flatnonzero(deferred)
        rows, part = segments.only(keys)
        folded = self._folded(values.take(pa.array(rows)), part, keys)
        count = len(reduced)
        return Overlay.of(np.arange(count), keys, count).column(reduced, folded)

    def _folded(self, values: pa.Array, segments: Segments, keys: np.ndarray) -> pa.Array:
        """Tier two; `keys` are the numbers of the segments for errors."""
        fold = self.function.open(values)
        ops = segments.ops
        # passing over retractions hides from Java that `collect` adds late values like others
        if ops is not None and not (
            self.function.turns_late or (self.ignore_retract and self.name == "collect")
        ):
            ops = np.where(ops == Op.LATE, np.int8(Op.ADD), ops)
        totals = []
        with np.errstate(all="ignore"):
            for number, (first, last) in enumerate(
                zip(segments.starts.tolist(), segments.lasts.tolist(), strict=True)
            ):
                inputs = fold.inputs[first : last + 1]
                try:
                    if ops is None:
                        totals.append(functools.reduce(fold.add, inputs, None))
                    else:
                        totals.append(_total(fold, ops[first : last + 1].tolist(), inputs))
                except AggregationRefused as error:
                    raise InvalidRequestError(
                        str(error),
                        hint="give the column a wider type",
                        function=self.name,
                        field=self.function.field.name,
                        segment=int(keys[number]),
                    ) from None
                except InvalidRequestError as error:
                    error.context["segment"] = int(keys[number])
                    raise
        return fold.close(totals)


def _total(fold: RowFold, ops: Sequence[int], inputs: Sequence[Any]) -> Any:
    """The rows of one key, one after the other, as specified."""
    total = None
    for op, value in zip(ops, inputs, strict=True):
        if op == Op.ADD:
            total = fold.add(total, value)
        elif op == Op.LATE:
            total = fold.add(value, total)
        elif op in (Op.BASE, Op.BASE_RETRACT):
            total = value
        if op in (Op.RETRACT, Op.BASE_RETRACT) and fold.retract is not None:
            total = fold.retract(total, value)
    return total


def objects_of(values: pa.Array) -> list[Any]:
    """Values as Python objects: of tier two only, and the one place where rows become objects."""
    objects: list[Any] = values.to_pylist()
    return objects


def option_refused(problem: str, field: DataField, suffix: str, hint: str) -> InvalidOptionError:
    """The error of an option `fields.<field>.<suffix>`."""
    return InvalidOptionError(
        problem, hint=hint, option=f"fields.{field.name}.{suffix}", field=field.name
    )


def wrong_type(name: str, expected: str, field: DataField) -> InvalidOptionError:
    """The error of a function on a column of a type that it does not take."""
    return InvalidOptionError(
        f"Data type for {name} column must be {expected} but was '{type_name(field.type)}'",
        hint="choose another function, or change the type of the column",
        option=f"fields.{field.name}.aggregate-function",
        value=name,
        field=field.name,
    )
