# SPDX-License-Identifier: Apache-2.0
"""Segments: the rows of one key, and the vectorised tools that look at all of them at once.

Rows of all keys lie one behind the other in the order in which they are to be applied; a segment
is the rows of one key. Data plane: whole numpy and Arrow arrays, no Python object per row.
Source: STYLE.md §5.5.
"""

import dataclasses

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

__all__ = [
    "Segments",
    "first_where",
    "last_where",
    "rows_of",
    "segment_ids",
    "segment_lasts",
    "subset",
    "take_or_null",
    "valid_mask",
]


@dataclasses.dataclass(frozen=True, slots=True)
class Segments:
    """Where each segment begins, and which rows take something back.

    Attributes:
        starts: int64 position at which each segment begins, ascending from 0; every segment has
            at least one row.
        rows: rows of all segments together.
        retract: bool per row, true for -U and -D; None when there is none.
        opened: bool per segment: its first row is what was there before, taken as it is even
            where a function would cut it; None when no segment has such a row.
    """

    starts: np.ndarray
    rows: int
    retract: np.ndarray | None = None
    opened: np.ndarray | None = None

    @property
    def lasts(self) -> np.ndarray:
        """Position of the last row of each segment, int64."""
        return segment_lasts(self.starts, self.rows)

    @property
    def ids(self) -> np.ndarray:
        """Number of the segment of each row, int64 from 0."""
        return segment_ids(self.starts, self.rows)


def segment_lasts(starts: np.ndarray, rows: int) -> np.ndarray:
    """Position of the last row of each segment.

    Args:
        starts: positions at which segments begin, ascending.
        rows: rows of all segments together.

    Returns:
        int64 per segment.
    """
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
    marked = np.where(mask, np.arange(rows, dtype=np.int64), np.int64(-1))
    latest: np.ndarray = np.maximum.accumulate(marked)[segment_lasts(starts, rows)]
    return np.where(latest >= starts, latest, np.int64(-1))


def first_where(mask: np.ndarray, starts: np.ndarray, rows: int) -> np.ndarray:
    """Position of the first row of each segment where the mask is true.

    Args:
        mask: bool per row.
        starts: positions at which segments begin, ascending from 0.
        rows: rows of all segments together.

    Returns:
        int64 per segment; -1 where no row of the segment is marked.
    """
    if not len(starts):
        return np.empty(0, dtype=np.int64)
    marked = np.where(mask, np.arange(rows, dtype=np.int64), np.int64(rows))
    first: np.ndarray = np.minimum.reduceat(marked, starts)
    return np.where(first < rows, first, np.int64(-1))


def take_or_null(column: pa.Array, positions: np.ndarray) -> pa.Array:
    """The values at the given positions, null where a position is -1.

    Args:
        column: any Arrow type.
        positions: int64 positions of the column, or -1.

    Returns:
        As many values as positions, of the type of the column.
    """
    absent = positions < 0
    if not absent.any():
        return column.take(pa.array(positions))
    return column.take(pa.array(positions, mask=absent))


def valid_mask(column: pa.Array) -> np.ndarray:
    """Which values are not null: bool per row."""
    if column.null_count == 0:
        return np.ones(len(column), dtype=bool)
    mask: np.ndarray = pc.is_valid(column).to_numpy(zero_copy_only=False)
    return mask


def rows_of(groups: np.ndarray, starts: np.ndarray, rows: int) -> np.ndarray:
    """Positions of all rows of the given segments, ascending.

    Args:
        groups: segment numbers, ascending, each once.
        starts: positions at which segments begin, ascending from 0.
        rows: rows of all segments together.
    """
    chosen = np.zeros(len(starts), dtype=bool)
    chosen[groups] = True
    return np.flatnonzero(np.repeat(chosen, segment_lasts(starts, rows) + 1 - starts))


def subset(keep: np.ndarray, segments: Segments) -> tuple[np.ndarray, Segments]:
    """The segments that are left when only some rows take part.

    Args:
        keep: bool per row.
        segments: the rows as they are.

    Returns:
        The numbers of the segments that still have rows, ascending, and these segments with
        positions counted in the rows kept.
    """
    kept = np.flatnonzero(keep)
    retract = None if segments.retract is None else segments.retract[kept]
    if retract is not None and not retract.any():
        retract = None
    if not len(kept):
        empty = np.empty(0, dtype=np.int64)
        return empty, Segments(empty, 0, None)
    ids = segments.ids[kept]
    fresh = np.ones(len(kept), dtype=bool)
    np.not_equal(ids[1:], ids[:-1], out=fresh[1:])
    starts = np.flatnonzero(fresh).astype(np.int64)
    groups = ids[starts]
    opened = segments.opened
    if opened is not None:
        opened = opened[groups] & keep[segments.starts[groups]]
    return groups, Segments(starts, len(kept), retract, opened)
