# SPDX-License-Identifier: Apache-2.0
"""Aggregate functions whose result is one of the values unchanged, or null.

Source: SEMANTICS.md §B.3. First and last values, of any type: one position per segment, one take.
`max`, `min`, `bool_and` and `bool_or` order as Java does: -0.0 below 0.0, NaN above all, texts and
bytes by unsigned byte. Numbers are reduced as integers that order alike; other types by their
order words (`key_words`), word after word among the rows that are still level.
"""

import dataclasses
from typing import ClassVar

import numpy as np
import pyarrow as pa

from storage.lsm.key_words import order_words
from storage.lsm.merge_functions.aggregators.function import AggregateFunction
from storage.lsm.merge_functions.segments import (
    Op,
    Segments,
    first_where,
    last_where,
    segment_ids,
    take_or_null,
    valid_mask,
)

_ALL_ONES = np.uint64(0xFFFF_FFFF_FFFF_FFFF)


@dataclasses.dataclass(frozen=True, slots=True)
class PrimaryKey(AggregateFunction):
    """Key columns: the value of the last row, of any kind."""

    retractable: ClassVar[bool] = True

    def reduce(self, values: pa.Array, segments: Segments) -> tuple[pa.Array, None]:
        """See `AggregateFunction`."""
        return take_or_null(values, segments.lasts), None


@dataclasses.dataclass(frozen=True, slots=True)
class LastValue(AggregateFunction):
    """`last_value` and `last_non_null_value`: null when the value was retracted."""

    retractable: ClassVar[bool] = True

    def reduce(self, values: pa.Array, segments: Segments) -> tuple[pa.Array, None]:
        """See `AggregateFunction`."""
        skips_null = self.name == "last_non_null_value" and values.null_count > 0
        if segments.ops is None:
            last = segments.lasts
            if skips_null:
                last = last_where(valid_mask(values), segments.starts, segments.rows)
            return take_or_null(values, last), None
        back = (Op.RETRACT, Op.BASE_RETRACT)
        decides = segments.where(Op.ADD, Op.BASE, *back)
        valid = valid_mask(values)
        if skips_null:
            decides &= valid
        last = last_where(decides, segments.starts, segments.rows)
        rows = np.where((last >= 0) & segments.where(*back)[last], -1, last)
        late = segments.where(Op.LATE)
        if self.name == "last_non_null_value" and late.any():
            # late values count as earlier ones, so the first of them fills what is null
            behind = np.arange(segments.rows) > np.repeat(
                last, segments.lasts + 1 - segments.starts
            )
            filler = first_where(valid & late & behind, segments.starts, segments.rows)
            rows = np.where(rows >= 0, rows, filler)
        return take_or_null(values, rows), None


@dataclasses.dataclass(frozen=True, slots=True)
class FirstValue(AggregateFunction):
    """`first_value` and `first_non_null_value`.

    Java keeps the value of the row that opens the function. A late row is applied the other way
    round: it opens the function with the current value, and replaces that once it is open.
    """

    def reduce(self, values: pa.Array, segments: Segments) -> tuple[pa.Array, None]:
        """See `AggregateFunction`."""
        starts, rows = segments.starts, segments.rows
        if segments.ops is None and (self.name == "first_value" or not values.null_count):
            return take_or_null(values, starts), None
        opens = valid_mask(values) if self.name != "first_value" else np.ones(rows, dtype=bool)
        positions = first_where(opens & segments.where(Op.ADD), starts, rows)
        special = segments.keys_with(Op.LATE, Op.BASE)
        if special is not None and segments.ops is not None:
            lasts = segments.lasts
            for key in np.flatnonzero(special).tolist():
                span = slice(int(starts[key]), int(lasts[key]) + 1)
                row = self._first(segments.ops[span].tolist(), opens[span].tolist())
                positions[key] = starts[key] + row if row >= 0 else -1
        return take_or_null(values, positions), None

    def _first(self, ops: list[int], opens: list[bool]) -> int:
        """The row whose value remains at the end (-1: none), row by row."""
        current, is_open = -1, False
        for row, op in enumerate(ops):
            if op == Op.BASE:
                current = row
            elif op == Op.ADD and opens[row] and not is_open:
                current, is_open = row, True
            elif op == Op.OBSOLETE:
                is_open = is_open or opens[row]
            elif op == Op.LATE:
                current_opens = opens[current] if current >= 0 else self.name == "first_value"
                if current_opens and not is_open:
                    is_open = True
                else:
                    current = row
        return current


@dataclasses.dataclass(frozen=True, slots=True)
class Extreme(AggregateFunction):
    """The largest or the smallest value that is not null; false is below true."""

    @property
    def _largest(self) -> bool:
        return self.name in ("max", "bool_or")

    def reduce(self, values: pa.Array, segments: Segments) -> tuple[pa.Array, None]:
        """See `AggregateFunction`."""
        if segments.single:
            return values, None
        present = segments.present(values)
        numbers = _as_integers(values)
        if numbers is None:
            candidates = valid_mask(values) if present is None else present
            return self._by_words(values, candidates, segments), None
        absent = None
        if present is not None:
            bounds = np.iinfo(numbers.dtype)
            worst = np.array(bounds.min if self._largest else bounds.max, numbers.dtype)
            numbers = np.where(present, numbers, worst)
            absent = ~np.logical_or.reduceat(present, segments.starts)
        reduce = np.maximum if self._largest else np.minimum
        return _as_values(reduce.reduceat(numbers, segments.starts), absent, values.type), None

    def _by_words(self, values: pa.Array, candidates: np.ndarray, segments: Segments) -> pa.Array:
        ids = segment_ids(segments.starts, segments.rows)
        for word, _ in order_words([values]):
            if self._largest:
                best = np.maximum.reduceat(
                    np.where(candidates, word, np.uint64(0)), segments.starts
                )
            else:
                best = np.minimum.reduceat(np.where(candidates, word, _ALL_ONES), segments.starts)
            candidates = candidates & (word == best[ids])
        return take_or_null(values, first_where(candidates, segments.starts, segments.rows))


def _as_integers(values: pa.Array) -> np.ndarray | None:
    """Integers that order like the values, garbage for nulls; None for texts and wide decimals."""
    kind = values.type
    if pa.types.is_boolean(kind):
        values = values.cast(pa.uint8())
    elif pa.types.is_date32(kind) or pa.types.is_time32(kind):
        values = values.view(pa.int32())
    elif pa.types.is_timestamp(kind):
        values = values.view(pa.int64())
    elif not (pa.types.is_integer(kind) or pa.types.is_floating(kind)):
        return None
    numbers: np.ndarray = values.fill_null(0).to_numpy(zero_copy_only=False)
    if pa.types.is_floating(kind):
        nan = np.isnan(numbers)
        if nan.any():
            numbers = np.where(nan, np.array(np.nan, numbers.dtype), numbers)
        return _flipped(numbers.view(np.int32 if numbers.dtype == np.float32 else np.int64))
    return numbers


def _as_values(numbers: np.ndarray, absent: np.ndarray | None, kind: pa.DataType) -> pa.Array:
    if pa.types.is_boolean(kind):
        return pa.array(numbers.astype(bool), mask=absent)
    if pa.types.is_floating(kind):
        dtype = np.float32 if pa.types.is_float32(kind) else np.float64
        return pa.array(_flipped(numbers).view(dtype), kind, mask=absent)
    array = pa.array(numbers, mask=absent)
    return array if array.type == kind else array.view(kind)


def _flipped(bits: np.ndarray) -> np.ndarray:
    """Sign and magnitude to two's complement, and back."""
    return np.where(bits < 0, bits ^ np.iinfo(bits.dtype).max, bits)
