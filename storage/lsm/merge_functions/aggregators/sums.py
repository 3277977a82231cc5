# SPDX-License-Identifier: Apache-2.0
"""`sum`: running totals that never leave the type of the column.

Source: SEMANTICS.md §B.3. Java adds row by row and refuses each total that does not fit, so all
totals on the way count. When the largest value times the longest segment fits, none can be too
large and one pass is enough; else all totals are made exactly and compared with the bounds.

DECIMAL of up to 18 digits is added in 64 bits without a check of the digits, as Java does; wider
totals, and those that leave 64 bits, become null when they need more digits than the type has.
"""

import dataclasses

import numpy as np
import pyarrow as pa

from storage.format.types.types import DataField, TypeRoot
from storage.lsm.merge_functions.aggregators.contract import (
    arithmetic_refused,
    renumbered,
    segment_of,
)
from storage.lsm.merge_functions.aggregators.ignore_retract import spread
from storage.lsm.merge_functions.aggregators.numbers import (
    FLOATS,
    INTEGERS,
    JAVA_WORDS,
    decimal_array,
    halves,
    narrow,
    numeric_root,
    split,
    unscaled,
)
from storage.lsm.merge_functions.aggregators.rounds import float_totals
from storage.lsm.merge_functions.aggregators.totals import joined, leaves, running_totals, signed
from storage.lsm.merge_functions.segments import Segments, subset, valid_mask

__all__ = ["Sum"]

_INT64 = np.iinfo(np.int64)
_COMPACT_DIGITS = 18


@dataclasses.dataclass(frozen=True, slots=True)
class Sum:
    """The sum of the values that are not null; null when there is none.

    Attributes:
        field: the column, of a numeric type.
        root: its type.
        name: `sum`.
    """

    field: DataField
    root: TypeRoot
    name: str = "sum"
    retractable: bool = True

    @staticmethod
    def of(field: DataField, name: str) -> "Sum":
        """The function for a column.

        Raises:
            InvalidOptionError: the column is not numeric.
        """
        root = numeric_root(field, name)
        return Sum(field, root, name)

    def reduce(self, values: pa.Array, segments: Segments) -> pa.Array:
        """See `Aggregator`."""
        if len(segments.starts) == segments.rows and segments.retract is None:
            return values
        if not values.null_count:
            return self._sums(values, segments)
        if self.root in INTEGERS:
            absent = ~np.logical_or.reduceat(valid_mask(values), segments.starts)
            sums = self._sums(values.fill_null(0), segments)
            return pa.array(sums.to_numpy(), values.type, mask=absent)
        groups, left = subset(valid_mask(values), segments)
        with renumbered(groups):
            made = self._sums(values.drop_null(), left)
        return spread(made, groups, len(segments.starts))

    def _sums(self, values: pa.Array, segments: Segments) -> pa.Array:
        if not segments.rows:
            return values
        if self.root is TypeRoot.DECIMAL:
            return self._decimals(values, segments)
        numbers = values.to_numpy(zero_copy_only=False)
        if self.root in FLOATS:
            return pa.array(float_totals(signed(numbers, segments), segments), values.type)
        bounds = np.iinfo(numbers.dtype)
        wide = numbers.astype(np.int64, copy=False)
        if not _fits(wide, bounds, segments):
            totals = running_totals([wide], segments)
            wrong = leaves(totals, int(bounds.min), int(bounds.max))
            if wrong.any():
                self._overflow(numbers, totals, int(np.argmax(wrong)), segments)
        sums = np.add.reduceat(signed(wide, segments), segments.starts)
        return pa.array(sums.astype(numbers.dtype, copy=False), values.type)

    def _overflow(
        self, numbers: np.ndarray, totals: list[np.ndarray], row: int, segments: Segments
    ) -> None:
        segment = segment_of(row, segments)
        sign = "+" if segments.retract is None or not segments.retract[row] else "-"
        sum_ = f"{sign}{numbers[row]}"
        if row > segments.starts[segment]:
            before = (int(totals[1][row - 1]) << 32) | int(totals[0][row - 1])
            sum_ = f"{before} {sign} {numbers[row]}"
        problem = f"{JAVA_WORDS[self.root]} overflow: {sum_}"
        arithmetic_refused(problem, self.name, self.field, segment)

    def _decimals(self, values: pa.Array, segments: Segments) -> pa.Array:
        small = narrow(values)
        if small is not None and _fits(small, _INT64, segments):
            sums = np.add.reduceat(signed(small, segments), segments.starts)
            return decimal_array(sums, None, values.type, None)
        digits = values.type.precision
        lasts = segments.lasts
        if small is not None and digits <= _COMPACT_DIGITS:
            totals = running_totals([small], segments)
            wrong = leaves(totals, int(_INT64.min), int(_INT64.max))
            low, high = joined(*(limb[lasts] for limb in totals)), None
        else:
            totals = running_totals(halves(values), segments)
            wrong = leaves(totals, 1 - 10**digits, 10**digits - 1)
            low = joined(*(limb[lasts] for limb in totals[:2]))
            high = joined(*(limb[lasts] for limb in totals[2:]))
        if not wrong.any():
            return decimal_array(low, high, values.type, None)
        high = low >> 63 if high is None else high
        bad = np.flatnonzero(np.logical_or.reduceat(wrong, segments.starts))
        return _with_nulls(low, high, bad, values, segments)


def _fits(numbers: np.ndarray, bounds: np.iinfo, segments: Segments) -> bool:
    """Whether no total, on the way or at the end, can leave the bounds."""
    largest = max(int(numbers.max()), -int(numbers.min()))
    longest = int((segments.lasts - segments.starts).max()) + 1
    return largest * longest <= int(bounds.max)


def _with_nulls(
    low: np.ndarray, high: np.ndarray, bad: np.ndarray, values: pa.Array, segments: Segments
) -> pa.Array:
    """The sums, with those of the few segments whose total became null on the way put right."""
    absent = np.zeros(len(low), dtype=bool)
    lasts = segments.lasts
    for segment in bad.tolist():
        first, last = int(segments.starts[segment]), int(lasts[segment])
        numbers = unscaled(values.slice(first, last - first + 1))
        taken = None if segments.retract is None else segments.retract[first : last + 1]
        total = _decimal_total(signed(numbers, Segments(segments.starts, 0, taken)), values.type)
        absent[segment] = total is None
        whole = np.array([total or 0], dtype=object)
        low[segment], high[segment] = (half[0] for half in split(whole))
    return decimal_array(low, high, values.type, absent)


def _decimal_total(numbers: np.ndarray, kind: pa.DataType) -> int | None:
    bound = 10**kind.precision - 1
    if kind.precision <= _COMPACT_DIGITS:
        bound = int(_INT64.max)
    total: int | None = None
    for number in numbers.tolist():
        total = number if total is None else total + number
        if not -bound <= total <= bound:
            total = None
    return total
