# SPDX-License-Identifier: Apache-2.0
"""What an aggregate function is, and the errors that all of them share.

Source: SEMANTICS.md §B.3. Rows whose merge is impossible are named by the segment they belong
to (`segment=` in the context of the error), because only the caller knows its key.
"""

import contextlib
from collections.abc import Iterator
from typing import NoReturn, Protocol

import numpy as np
import pyarrow as pa

from storage.errors import InvalidOptionError, InvalidRequestError
from storage.format.types.type_text import type_name
from storage.format.types.types import DataField
from storage.lsm.merge_functions.segments import Segments

__all__ = [
    "Aggregator",
    "arithmetic_refused",
    "option_refused",
    "renumbered",
    "require_no_retractions",
    "segment_of",
    "wrong_type",
]


class Aggregator(Protocol):
    """One aggregate function of one column; stateless and picklable."""

    @property
    def name(self) -> str:
        """Of the function, as in options and messages."""

    @property
    def retractable(self) -> bool:
        """Whether it can take rows back."""

    def reduce(self, values: pa.Array, segments: Segments) -> pa.Array:
        """Merge the values of each segment, from an empty accumulator on.

        Args:
            values: of the column, in the order in which they are to be applied.
            segments: where segments begin, and which rows are -U or -D.

        Returns:
            One value per segment, of the type of `values`.

        Raises:
            InvalidRequestError: a row takes back from a function that cannot, or a result does
                not fit; `segment=` in its context is the number of the first such segment.
        """


def require_no_retractions(name: str, field: DataField, segments: Segments) -> None:
    """Check that no row takes anything back, for functions that only add.

    Raises:
        InvalidRequestError: one does.
    """
    if segments.retract is None or not segments.retract.any():
        return
    row = int(np.argmax(segments.retract))
    raise InvalidRequestError(
        f"Aggregate function '{name}' does not support retraction",
        hint=f"set `fields.{field.name}.ignore-retract` to true to pass over -U and -D rows",
        field=field.name,
        segment=segment_of(row, segments),
    )


def segment_of(row: int, segments: Segments) -> int:
    """The number of the segment that holds a row."""
    return int(np.searchsorted(segments.starts, row, side="right")) - 1


def arithmetic_refused(problem: str, name: str, field: DataField, segment: int) -> NoReturn:
    """Report a number that the type of the column cannot hold, or a division by zero.

    Raises:
        InvalidRequestError: always.
    """
    raise InvalidRequestError(
        problem,
        hint="give the column a wider type",
        function=name,
        field=field.name,
        segment=segment,
    )


@contextlib.contextmanager
def renumbered(groups: np.ndarray) -> Iterator[None]:
    """Errors of a part of the segments get the numbers that these have in the whole.

    Args:
        groups: for each segment of the part its number in the whole.
    """
    try:
        yield
    except InvalidRequestError as error:
        if "segment" in error.context:
            error.context["segment"] = int(groups[error.context["segment"]])
        raise


def option_refused(problem: str, field: DataField, suffix: str, hint: str) -> InvalidOptionError:
    """The error of an option `fields.<field>.<suffix>`."""
    return InvalidOptionError(
        problem, hint=hint, option=f"fields.{field.name}.{suffix}", field=field.name
    )


def wrong_type(name: str, wanted: str, field: DataField) -> InvalidOptionError:
    """The error of a function on a column of a type that it does not take."""
    return InvalidOptionError(
        f"Data type for {name} column must be {wanted} but was '{type_name(field.type)}'",
        hint="choose another function, or change the type of the column",
        option=f"fields.{field.name}.aggregate-function",
        value=name,
        field=field.name,
    )
