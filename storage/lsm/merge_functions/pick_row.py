# SPDX-License-Identifier: Apache-2.0
"""Merge functions that keep one of the rows of a key as it is. Source: SEMANTICS.md §B.1."""

import dataclasses

import numpy as np
import pyarrow as pa

from storage.format.types.types import VALUE_KIND, RowKind
from storage.lsm.merge_functions.segments import segment_lasts
from storage.lsm.merge_functions.sequence_order import SequenceOrder

__all__ = ["Deduplicate", "retractions"]


def retractions(kinds: np.ndarray) -> np.ndarray:
    """Which row kinds (int8) take a row away: -U and -D."""
    mask: np.ndarray = (kinds == RowKind.DELETE) | (kinds == RowKind.UPDATE_BEFORE)
    return mask


@dataclasses.dataclass(frozen=True, slots=True)
class Deduplicate:
    """The last row of each key, with its kind.

    Attributes:
        ignore_delete: pass over -U and -D rows; files of older writers may hold some. A key with
            nothing else is left out, unless it has a single row.
        sequence: order of the rows of a key; None = arrival.
        lone_rows: a key with a single row is no exception.
    """

    ignore_delete: bool = False
    sequence: SequenceOrder | None = None
    lone_rows: bool = False

    def pick(self, kinds: np.ndarray, starts: np.ndarray) -> np.ndarray:
        """See `RowPicker`."""
        rows = len(kinds)
        if len(starts) == rows and not (self.lone_rows and self.ignore_delete):
            return starts
        lasts = segment_lasts(starts, rows)
        if not self.ignore_delete:
            return lasts
        # position of the latest row so far that adds: the last one of the group, or before it
        adds = np.where(retractions(kinds), -1, np.arange(rows, dtype=np.int64))
        latest = np.maximum.accumulate(adds)[lasts]
        alone = (starts == lasts) & (not self.lone_rows)
        return np.where(alone, lasts, latest)[alone | (latest >= starts)]

    def reduce(self, batch: pa.RecordBatch, starts: np.ndarray) -> pa.RecordBatch:
        """See `MergeFunction`."""
        kinds = batch.column(VALUE_KIND).to_numpy(zero_copy_only=False)
        picked = self.pick(kinds, starts)
        return batch if len(picked) == batch.num_rows else batch.take(pa.array(picked))
