# SPDX-License-Identifier: Apache-2.0
"""How a planned expression runs: over whole columns, and with rows that fail.

A kernel that cannot give a value for some row gives null there and says which rows and why
(`Partial`); it never raises for data. Failures propagate up the expression, except through
what is only evaluated for some rows: branches of CASE, the right side of AND and OR, later
arguments of COALESCE. Kernels get Arrow arrays, or scalars for constants, and at least one array.
"""

import dataclasses
from collections.abc import Callable, Mapping, Sequence
from typing import TypeAlias

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from ingest.decode.bisection import failing_positions
from storage.format.types.cast_arrays import CastError
from storage.format.types.types import DataType

Mask = npt.NDArray[np.bool_]
Values: TypeAlias = pa.Array | pa.Scalar


@dataclasses.dataclass(frozen=True, slots=True, eq=False)
class Failure:
    """Rows that have no value.

    Attributes:
        rows: which ones, bool of shape (n,).
        reason: for the user.
    """

    rows: Mask
    reason: str


@dataclasses.dataclass(frozen=True, slots=True, eq=False)
class Cells:
    """What an expression gives for the rows of a frame: null where a row failed."""

    values: Values
    failures: tuple[Failure, ...] = ()


@dataclasses.dataclass(frozen=True, slots=True, eq=False)
class Partial:
    """What a kernel gives when it fails for some rows.

    Attributes:
        values: null where it failed.
        failed: bool of shape (n,).
        reason: a few words, the same for all of them.
    """

    values: pa.Array
    failed: Mask
    reason: str


Kernel = Callable[..., Values | Partial]
"""One value per row out of as many arguments as the function has."""


@dataclasses.dataclass(frozen=True, slots=True, eq=False)
class Planned:
    """An expression with its type.

    Attributes:
        type: of the result; None for a bare NULL.
        run: gives the cells of a frame.
        columns: names of the columns that must exist.
        constant: the value, where it depends on no row.
        text: as written.
        start: first character in the whole expression.
        typed: whether the type was stated; a text that was not may become a date.
    """

    type: DataType | None
    run: Callable[["Frame"], Cells]
    columns: frozenset[str]
    constant: pa.Scalar | None
    text: str
    start: int
    typed: bool = True


class Frame:
    """The rows that expressions are evaluated on; results of named expressions are cached.

    Args:
        columns: by name, all of one length.
        num_rows: length.
        now_ms: what `now()` gives [epoch ms].
        plans: expressions that may be used by name, such as computed columns.
    """

    def __init__(
        self,
        columns: Mapping[str, pa.Array],
        num_rows: int,
        now_ms: int = 0,
        plans: Mapping[str, Planned] | None = None,
    ) -> None:
        self.num_rows = num_rows
        self.now_ms = now_ms
        self._columns = columns
        self._plans = plans or {}
        self._computed: dict[str, Cells] = {}

    def column(self, name: str) -> Cells:
        """The cells of a column or a named expression."""
        if name not in self._plans:
            return Cells(self._columns[name])
        if name not in self._computed:
            cells = self._plans[name].run(self)
            self._computed[name] = Cells(as_array(cells.values, self.num_rows), cells.failures)
        return self._computed[name]


def runner(kernel: Kernel, parts: Sequence[Planned], text: str) -> Callable[[Frame], Cells]:
    """The run of a call whose arguments are all evaluated for every row."""
    reason = f" in `{text}`"

    def run(frame: Frame) -> Cells:
        arguments = [part.run(frame) for part in parts]
        failures = tuple(failure for argument in arguments for failure in argument.failures)
        result = _guarded(kernel, [argument.values for argument in arguments], frame.num_rows)
        return with_failures(result, failures, reason)

    return run


_RAISED = (pa.ArrowInvalid, pa.ArrowCapacityError, CastError, OverflowError)


def _guarded(kernel: Kernel, values: Sequence[Values], num_rows: int) -> Values | Partial:
    """Run a kernel; if it raises, locate the failing rows by bisection."""
    try:
        return kernel(*values)
    except _RAISED as error:
        reason = f"no result ({str(error).splitlines()[0]})"
    columns = [as_array(value, num_rows) for value in values]

    def attempt(low: int, high: int) -> None:
        kernel(*(pa.concat_arrays([column.slice(low, high - low)]) for column in columns))

    failed = np.zeros(num_rows, bool)
    failed[failing_positions(attempt, num_rows, _RAISED)] = True
    mask = pa.array(failed)
    cleared = [pc.if_else(mask, pa.scalar(None, column.type), column) for column in columns]
    result = kernel(*cleared)
    if isinstance(result, Partial):
        return Partial(result.values, result.failed | failed, f"{result.reason}, or {reason}")
    return Partial(result, failed, reason)


def with_failures(
    result: Values | Partial, failures: tuple[Failure, ...], suffix: str = ""
) -> Cells:
    """The result of a kernel, with what failed in its arguments before."""
    if not isinstance(result, Partial):
        return Cells(result, failures)
    failed = (*failures, Failure(result.failed, result.reason + suffix))
    return Cells(result.values, failed if result.failed.any() else failures)


def restricted(failures: tuple[Failure, ...], rows: Mask) -> tuple[Failure, ...]:
    """Only what failed among some rows."""
    within = (Failure(failure.rows & rows, failure.reason) for failure in failures)
    return tuple(failure for failure in within if failure.rows.any())


def combined(failures: Sequence[Failure], num_rows: int) -> tuple[npt.NDArray[np.int64], list[str]]:
    """The rows that failed, ascending, and the first reason of each."""
    if not failures:
        return np.zeros(0, np.int64), []
    first = np.full(num_rows, -1, np.int64)
    for number, failure in enumerate(failures):
        first[failure.rows & (first < 0)] = number
    rows = np.flatnonzero(first >= 0)
    return rows, [failures[number].reason for number in first[rows].tolist()]


def as_array(values: Values, length: int) -> pa.Array:
    """The values as an array."""
    return pa.repeat(values, length) if isinstance(values, pa.Scalar) else values


def mask_of(condition: Values, length: int = 1) -> Mask:
    """Where a condition is true; not where it is null."""
    flags = pc.fill_null(as_array(condition, length), False)
    return np.asarray(flags.to_numpy(zero_copy_only=False), bool)


def checked(values: pa.Array, failed: Mask, reason: str) -> Values | Partial:
    """The values, or null where they failed."""
    if not failed.any():
        return values
    remaining = pc.if_else(pa.array(failed), pa.scalar(None, values.type), values)
    return Partial(remaining, failed, reason)
