# SPDX-License-Identifier: Apache-2.0
"""Rows of one window of a merge together with the level each of them lies on.

Owns which rows of a key count when a compaction considers levels: all of level 0 and the lowest of
the others. Pure. Data plane: no Python object per row. Source: SEMANTICS.md §C.2, §C.3.
"""

import dataclasses
from collections.abc import Iterable, Iterator, Sequence
from typing import Protocol

import numpy as np
import pyarrow as pa

from storage.lsm.key_order import sort_and_group
from storage.lsm.merge_functions.segments import segment_lasts

__all__ = ["LeveledRows", "Merged", "WindowMerge", "at_level"]

_LEVEL = "_LEVEL"
_NO_LEVEL = 127


@dataclasses.dataclass(frozen=True, slots=True)
class Merged:
    """The result of merging a window.

    Attributes:
        rows: KeyValueBatch to be written, strictly ascending by key.
        changes: KeyValueBatch for the changelog, ascending by key; None where there is none.
    """

    rows: pa.RecordBatch
    changes: pa.RecordBatch | None


class WindowMerge(Protocol):
    """Merges the rows of one window of complete keys."""

    def merge(self, batches: Sequence[pa.RecordBatch]) -> Merged:
        """Merge rows that `at_level` gave, at least one.

        Raises:
            InvalidRequestError: the merge engine cannot merge the rows of a key.
            StorageUnavailableError: older rows could not be looked up.
            CorruptDataError: a file with older rows violates the format.
        """


def at_level(batches: Iterable[pa.RecordBatch], level: int) -> Iterator[pa.RecordBatch]:
    """KeyValueBatches with their level as a last column."""
    for batch in batches:
        levels = pa.array(np.full(batch.num_rows, level, dtype=np.int8))
        yield batch.append_column(_LEVEL, levels)


@dataclasses.dataclass(slots=True)
class LeveledRows:
    """The rows of a window by key.

    Attributes:
        batch: KeyValueBatch in any order.
        order: int64 rows that count, by key, those of one key in arrival order.
        starts: int64 positions in `order` at which keys begin, ascending from 0.
        levels: int8 level of each row of `order`.
    """

    batch: pa.RecordBatch
    order: np.ndarray
    starts: np.ndarray
    levels: np.ndarray

    @staticmethod
    def of(batches: Sequence[pa.RecordBatch], key_names: Sequence[str]) -> "LeveledRows":
        """Sort the rows of a window."""
        batch = batches[0] if len(batches) == 1 else pa.concat_batches(batches)
        groups = sort_and_group(batch, key_names)
        levels = batch.column(_LEVEL).to_numpy()
        batch = batch.select(batch.schema.names[:-1])
        if groups.order is None:
            order = np.arange(batch.num_rows, dtype=np.int64)
            return LeveledRows(batch, order, groups.starts, levels)
        return LeveledRows(batch, groups.order, groups.starts, levels[groups.order])

    @property
    def sizes(self) -> np.ndarray:
        """Rows of each key, int64."""
        found: np.ndarray = segment_lasts(self.starts, len(self.order)) + 1 - self.starts
        return found

    @property
    def in_level_0(self) -> np.ndarray:
        """Which keys have rows of level 0: bool per key."""
        found: np.ndarray = np.logical_or.reduceat(self.levels == 0, self.starts)
        return found

    def rows_of_level(self, level: int) -> np.ndarray:
        """The row of each key that lies on a level above 0: int64 per key, -1 where none does."""
        return self._rows_where(self.levels == level)

    def keep_lowest(self) -> np.ndarray:
        """Leave out the rows above level 0 but the lowest one of each key.

        Returns:
            This row: int64 per key, -1 where there is none.
        """
        upper = np.where(self.levels == 0, np.int8(_NO_LEVEL), self.levels)
        lowest = np.minimum.reduceat(upper, self.starts)
        counts = (upper == _NO_LEVEL) | (upper == np.repeat(lowest, self.sizes))
        if not counts.all():
            sizes = np.add.reduceat(counts, self.starts, dtype=np.int64)
            self.order, self.levels = self.order[counts], self.levels[counts]
            self.starts = np.cumsum(sizes) - sizes
        return self._rows_where(self.levels > 0)

    def append(self, keys: np.ndarray, rows: pa.RecordBatch) -> np.ndarray:
        """Add one row to each of some keys, after their others.

        Keys are int64 numbers, ascending, with a row of a KeyValueBatch for each.

        Returns:
            Their row numbers in `batch`, int64.
        """
        added = np.arange(rows.num_rows, dtype=np.int64) + self.batch.num_rows
        self.batch = pa.concat_batches([self.batch, rows])
        sizes = self.sizes
        ends = self.starts + sizes
        self.order = np.insert(self.order, ends[keys], added)
        self.levels = np.insert(self.levels, ends[keys], np.int8(_NO_LEVEL))
        sizes[keys] += 1
        self.starts = np.cumsum(sizes) - sizes
        return added

    def keys(self, chosen: np.ndarray, names: Sequence[str]) -> pa.RecordBatch:
        """Some of the keys."""
        rows = self.order[self.starts[chosen]]
        return self.batch.select(list(names)).take(pa.array(rows))

    def _rows_where(self, wanted: np.ndarray) -> np.ndarray:
        """The row of each key that is wanted, at most one: int64 per key, -1 where none is."""
        positions = np.flatnonzero(wanted)
        found = np.full(len(self.starts), -1, dtype=np.int64)
        found[np.searchsorted(self.starts, positions, side="right") - 1] = self.order[positions]
        return found
