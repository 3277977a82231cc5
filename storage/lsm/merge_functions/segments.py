# SPDX-License-Identifier: Apache-2.0
"""Segments: the rows of one key each, and vectorised functions over all of them.

Rows are sorted by key, and those of a key in the order in which they are applied; a segment is the
rows of one key. Data plane: whole numpy and Arrow arrays, no Python object per row.
Source: STYLE.md §5.5.
"""

import dataclasses
import enum

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc


class Op(enum.IntEnum):
    """What a row does to a column of its key (SEMANTICS.md §B.2.3 to §B.3)."""

    ADD = 0
    """The value is added to the current one."""
    LATE = 1
    """The current value is added to this one: the row is out of order in a sequence group."""
    RETRACT = 2
    BASE = 3
    """The value replaces the current one, without a function."""
    BASE_RETRACT = 4
    """`BASE`, then `RETRACT` of the same value: a retraction that is the first row of its key."""
    SKIP = 5
    OBSOLETE = 6
    """It added to a value that a later `BASE` of the key replaces; only `first_value` uses it."""


@dataclasses.dataclass(frozen=True, slots=True)
class Segments:
    """The start of each segment, and the operation of each row.

    Attributes:
        starts: int64 position at which each segment begins, ascending from 0; every segment has
            at least one row.
        rows: rows of all segments together.
        ops: int8 `Op` per row; None when all rows add. Only rows that are skipped or obsolete
            come before a base.
    """

    starts: np.ndarray
    rows: int
    ops: np.ndarray | None = None

    @property
    def lasts(self) -> np.ndarray:
        """Position of the last row of each segment, int64."""
        return segment_lasts(self.starts, self.rows)

    @property
    def single(self) -> bool:
        """Whether every segment is one row that adds."""
        return self.ops is None and len(self.starts) == self.rows

    def where(self, *ops: Op) -> np.ndarray:
        """Which rows have one of these operations: bool per row."""
        if self.ops is None:
            return np.full(self.rows, Op.ADD in ops)
        table = np.zeros(len(Op), dtype=bool)
        table[list(ops)] = True
        mask: np.ndarray = table[self.ops]
        return mask

    def keys_with(self, *ops: Op) -> np.ndarray | None:
        """Which segments have a row with one of these: bool per segment; None = none has."""
        if self.ops is None:
            return None
        mask = self.where(*ops)
        return np.logical_or.reduceat(mask, self.starts) if mask.any() else None

    def present(self, values: pa.Array) -> np.ndarray | None:
        """Which values are not null, and take part: bool per row; None = all."""
        if self.ops is None and not values.null_count:
            return None
        valid = valid_mask(values)
        return valid if self.ops is None else valid & ~self.where(Op.SKIP, Op.OBSOLETE)

    def only(self, keys: np.ndarray) -> tuple[np.ndarray, "Segments"]:
        """The positions of the rows of some segments (numbers, ascending), and these segments."""
        sizes = self.lasts + 1 - self.starts
        mask = np.zeros(len(sizes), dtype=bool)
        mask[keys] = True
        rows = np.flatnonzero(np.repeat(mask, sizes))
        sizes = sizes[keys]
        ops = None if self.ops is None else self.ops[rows]
        return rows, Segments(np.cumsum(sizes) - sizes, len(rows), ops)


def segment_lasts(starts: np.ndarray, rows: int) -> np.ndarray:
    """Position of the last row of each segment: int64 per segment."""
    lasts = np.empty(len(starts), dtype=np.int64)
    if len(starts):
        lasts[:-1] = starts[1:] - 1
        lasts[-1] = rows - 1
    return lasts


def segment_ids(starts: np.ndarray, rows: int) -> np.ndarray:
    """Number of the segment of each row, from 0: int64 per row."""
    return np.repeat(
        np.arange(len(starts), dtype=np.int64), segment_lasts(starts, rows) + 1 - starts
    )


def last_where(mask: np.ndarray, starts: np.ndarray, rows: int) -> np.ndarray:
    """Position of the last row of each segment where the mask is true.

    Args:
        mask: bool per row.
        starts: positions at which segments begin, ascending from 0.
        rows: rows of all segments together.

    Returns:
        int64 per segment; -1 where no row of the segment is marked.
    """
    if not len(starts):
        return np.empty(0, dtype=np.int64)
    row_numbers = np.where(mask, np.arange(rows, dtype=np.int64), np.int64(-1))
    latest: np.ndarray = np.maximum.accumulate(row_numbers)[segment_lasts(starts, rows)]
    return np.where(latest >= starts, latest, np.int64(-1))


def first_where(mask: np.ndarray, starts: np.ndarray, rows: int) -> np.ndarray:
    """Position of the first row of each segment where the mask is true; otherwise `last_where`."""
    if not len(starts):
        return np.empty(0, dtype=np.int64)
    row_numbers = np.where(mask, np.arange(rows, dtype=np.int64), np.int64(rows))
    first: np.ndarray = np.minimum.reduceat(row_numbers, starts)
    return np.where(first < rows, first, np.int64(-1))


def take_or_null(column: pa.Array, positions: np.ndarray) -> pa.Array:
    """The values at the given positions, null where a position is -1."""
    absent = positions < 0
    if not absent.any():
        return column.take(pa.array(positions))
    return column.take(pa.array(positions, mask=absent))


def numbers_in(batch: pa.RecordBatch, name: str) -> np.ndarray:
    """The values of a numeric column without nulls."""
    numbers: np.ndarray = batch.column(name).to_numpy(zero_copy_only=False)
    return numbers


def valid_mask(column: pa.Array) -> np.ndarray:
    """Which values are not null: bool per row."""
    if column.null_count == 0:
        return np.ones(len(column), dtype=bool)
    mask: np.ndarray = pc.is_valid(column).to_numpy(zero_copy_only=False)
    return mask


@dataclasses.dataclass(frozen=True, slots=True)
class Overlay:
    """An update of the values of some keys in a column that keeps those of the others.

    Attributes:
        taken_rows: positions in the column that are copied first; None = all of it.
        place: position of each key, among these and the values behind them.
    """

    taken_rows: pa.Array | None
    place: pa.Array

    @staticmethod
    def of(rows: np.ndarray, keys: np.ndarray, length: int) -> "Overlay":
        """Plan the update of a column.

        `rows` is the position in the column for each key; `keys` are ascending.
        """
        place = rows.copy()
        positions = None
        if 2 * len(keys) > len(rows):
            mask = np.ones(len(rows), dtype=bool)
            mask[keys] = False
            positions = rows[mask]
            length = len(positions)
            place[mask] = np.arange(length, dtype=np.int64)
        place[keys] = np.arange(len(keys), dtype=np.int64) + length
        return Overlay(None if positions is None else pa.array(positions), pa.array(place))

    def column(self, column: pa.Array, values: pa.Array) -> pa.Array:
        """One value per key; `values` has those of the updated keys."""
        if len(values) == len(self.place):
            return values
        if self.taken_rows is not None:
            column = column.take(self.taken_rows)
        return pa.concat_arrays([column, values.cast(column.type)]).take(self.place)
