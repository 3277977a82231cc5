# SPDX-License-Identifier: Apache-2.0
"""A call while it is planned: its arguments with their types, checks of them, and its result.

Everything that can be wrong with a call is found here, before the first row: the number of
arguments, their types, constants that must be constants. Calls of constants are calculated at once.
"""

import dataclasses
from collections.abc import Callable, Sequence
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from ingest.transform.functions.arithmetic import (
    Cells,
    Frame,
    Kernel,
    Planned,
    as_array,
    common_type,
    is_temporal,
    is_text,
    nullable,
    runner,
    strict_cast,
)
from storage.errors import InvalidRequestError
from storage.format.files.orc.tail import Zone
from storage.format.types.types import AtomicType, DataType, TypeRoot, arrow_type, type_name
from storage.table.scan.expression_text import expression_error

_NANOS = 9
MAX_ARGUMENTS = 1_000
"""Most arguments of a function that takes any number."""


@dataclasses.dataclass(frozen=True, slots=True)
class Site:
    """One call.

    Attributes:
        expression: the whole expression, for messages.
        name: of the function, in lower case.
        arguments: planned.
        start: first character of the call.
        end: after its last character.
        zone: time zone; None for UTC.
    """

    expression: str
    name: str
    arguments: tuple[Planned, ...]
    start: int
    end: int
    zone: Zone | None

    @property
    def text(self) -> str:
        """The call as written."""
        return self.expression[self.start : self.end]

    def error(self, detail: str, hint: str = "", at: int | None = None) -> InvalidRequestError:
        """The error of this call, at its start or at one of its arguments."""
        position = self.start if at is None else self.arguments[at].start
        return expression_error(self.expression, position, detail, hint)

    def has(self, index: int) -> bool:
        """Whether there is such an argument."""
        return index < len(self.arguments)

    def need(
        self, index: int, fits: Callable[[DataType | None], bool], description: str
    ) -> AtomicType:
        """The type of an argument, which must be one of a family."""
        type_ = self.arguments[index].type
        if not fits(type_) or not isinstance(type_, AtomicType):
            raise self.error(
                f"`{self.name}` takes {description}, not {type_label(type_)}",
                f"write CAST({self.arguments[index].text} AS …)",
                index,
            )
        return type_

    def whole_number(self, index: int, least: int | None = None) -> int:
        """An argument that must be a whole number written in the expression."""
        value = self._constant(index, "a whole number")
        if not isinstance(value, int) or isinstance(value, bool):
            raise self.error(f"`{self.name}` takes a whole number here", at=index)
        if least is not None and value < least:
            raise self.error(f"this number must be at least {least}", at=index)
        return value

    def constant_text(self, index: int, example: str) -> str:
        """An argument that must be a text written in the expression."""
        value = self._constant(index, f"a string such as {example}")
        if not isinstance(value, str):
            raise self.error(f"`{self.name}` takes a string here", f"such as {example}", index)
        return value

    def _constant(self, index: int, description: str) -> Any:
        scalar = self.arguments[index].constant
        if scalar is None or not scalar.is_valid:
            raise self.error(
                f"`{self.name}` takes {description} here, not a value per row", at=index
            )
        return scalar.as_py()

    def result(
        self, type_: DataType, kernel: Kernel, parts: Sequence[Planned] | None = None
    ) -> Planned:
        """The planned call; constant when all its parts are."""
        parts = self.arguments if parts is None else parts
        self._try(kernel, parts)
        return self.lazy(type_, runner(kernel, parts, self.text), parts, fold=bool(parts))

    def _try(self, kernel: Kernel, parts: Sequence[Planned]) -> None:
        """Run the kernel on a null row, so that an unsupported type fails before the stream."""
        row = [
            part.constant
            if part.constant is not None
            else pa.nulls(1, pa.null() if part.type is None else arrow_type(part.type))
            for part in parts
        ]
        if not any(isinstance(value, pa.Array) for value in row):
            return
        try:
            kernel(*row)
        except (pa.ArrowNotImplementedError, pa.ArrowTypeError) as error:
            types = ", ".join(type_label(part.type) for part in parts)
            raise self.error(f"`{self.name}` does not support {types}") from error

    def try_choice(self, type_: DataType) -> None:
        """Check that values of a type can be chosen row by row."""
        nulls = pa.nulls(1, arrow_type(type_))
        try:
            pc.if_else(pa.array([True]), nulls, nulls)
            pc.coalesce(nulls, nulls)
        except pa.ArrowNotImplementedError as error:
            raise self.error(f"values of {type_label(type_)} cannot be selected per row") from error

    def lazy(
        self,
        type_: DataType | None,
        run: Callable[[Frame], Cells],
        parts: Sequence[Planned],
        *,
        fold: bool = False,
    ) -> Planned:
        """The planned call with its own run function, which evaluates parts only where needed."""
        result_type = None if type_ is None else nullable(type_)
        if fold and all(part.constant is not None for part in parts):
            return constant(self._folded(run), result_type, self.text, self.start)
        columns = frozenset[str]().union(*(part.columns for part in parts))
        return Planned(result_type, run, columns, None, self.text, self.start)

    def _folded(self, run: Callable[[Frame], Cells]) -> pa.Scalar:
        cells = run(_ConstantFrame({}, 1))
        if cells.failures:
            raise self.error(cells.failures[0].reason)
        return as_array(cells.values, 1)[0]

    def coerced(self, part: Planned, target_type: DataType) -> Planned:
        """An argument as another type that holds all its values, or a text as a date.

        Raises:
            InvalidRequestError: it is no such value.
        """
        if part.type is None:
            if part.constant is not None and part.constant.is_valid:
                detail = "an INTERVAL only goes with + and -"
                raise expression_error(self.expression, part.start, detail)
            return constant(
                pa.scalar(None, arrow_type(target_type)), target_type, part.text, part.start
            )
        if nullable(part.type) == nullable(target_type):
            return part
        loose = not part.typed and is_temporal(target_type)
        if not loose and common_type(part.type, target_type) is None:
            raise expression_error(
                self.expression,
                part.start,
                f"{type_label(part.type)} where {type_label(target_type)} is expected",
                f"write CAST({part.text} AS {type_label(target_type)})",
            )
        assert isinstance(target_type, AtomicType)
        kernel = strict_cast(part.type, target_type, self.zone)
        if kernel is None:
            raise expression_error(
                self.expression, part.start, f"no cast to {type_label(target_type)}"
            )
        site = dataclasses.replace(
            self, start=part.start, end=part.start + len(part.text), arguments=(part,)
        )
        return site.result(target_type, kernel)

    def aligned(self, parts: Sequence[Planned]) -> tuple[list[Planned], DataType | None]:
        """Arguments brought to the one type that holds all of them; None when all are NULL.

        Raises:
            InvalidRequestError: there is no such type.
        """
        target: DataType | None = None
        times = [part for part in parts if is_temporal(part.type)]
        for part in parts:
            if times and not part.typed and is_text(part.type):
                continue
            common = common_type(target, part.type)
            if common is None and target is not None and part.type is not None:
                raise expression_error(
                    self.expression,
                    part.start,
                    f"{type_label(part.type)} and {type_label(target)} cannot be combined",
                    self._zone_hint(target, part)
                    or f"write CAST({part.text} AS {type_label(target)})",
                )
            target = common if common is not None else target
        if target is None:
            return list(parts), None
        target = _precise(target, parts)
        return [self.coerced(part, target) for part in parts], target

    @staticmethod
    def _zone_hint(target_type: DataType, part: Planned) -> str:
        roots = {type_.root for type_ in (target_type, part.type) if isinstance(type_, AtomicType)}
        if TypeRoot.TIMESTAMP_LTZ not in roots or len(roots) == 1:
            return ""
        return "TIMESTAMP and TIMESTAMP_LTZ need a CAST(… AS TIMESTAMP_LTZ(6))"


def _precise(target_type: DataType, parts: Sequence[Planned]) -> DataType:
    """A timestamp type with as many digits as the texts that are converted to it."""
    if not isinstance(target_type, AtomicType) or target_type.root not in (
        TypeRoot.TIMESTAMP,
        TypeRoot.TIMESTAMP_LTZ,
    ):
        return target_type
    texts = (
        str(part.constant.as_py())
        for part in parts
        if not part.typed and part.constant is not None and part.constant.is_valid
    )
    digits = (min(len(text.partition(".")[2]), _NANOS) for text in texts)
    return dataclasses.replace(target_type, precision=max([target_type.precision, *digits]))


class _ConstantFrame(Frame):
    """The one row on which constants are calculated: scalars become arrays."""


@dataclasses.dataclass(frozen=True, slots=True)
class Function:
    """A row of the function table.

    Attributes:
        syntax: how it is written.
        meaning: one sentence.
        plan: checks a call and plans it.
        arity: least and greatest number of arguments.
    """

    syntax: str
    meaning: str
    plan: Callable[[Site], Planned]
    arity: tuple[int, int] = (2, 2)

    def planned(self, site: Site) -> Planned:
        """Check the number of arguments of a call, and plan it."""
        least, most = self.arity
        if not least <= len(site.arguments) <= most:
            raise site.error(
                f"`{site.name}` does not take {len(site.arguments)} arguments",
                f"write it like: {self.syntax}",
            )
        return self.plan(site)


def constant(value: pa.Scalar, type_: DataType | None, text: str, start: int) -> Planned:
    """A value that is the same in every row."""

    def run(frame: Frame) -> Cells:
        if isinstance(frame, _ConstantFrame):
            return Cells(pa.repeat(value, 1))
        return Cells(value)

    return Planned(type_, run, frozenset(), value, text, start)


def type_label(type_: DataType | None) -> str:
    """A type for messages."""
    return "NULL" if type_ is None else type_name(nullable(type_))
