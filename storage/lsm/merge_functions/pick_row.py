# SPDX-License-Identifier: Apache-2.0
"""Merge functions that keep one of the rows of a key as it is: deduplicate and first-row.

Source: SEMANTICS.md §B.1 and §B.4.
"""

import dataclasses

import numpy as np
import pyarrow as pa

from storage.errors import InvalidRequestError
from storage.format.types.types import VALUE_KIND, RowKind
from storage.lsm.merge_functions.fold import naming_key
from storage.lsm.merge_functions.segments import first_where, numbers_in, segment_lasts
from storage.lsm.merge_functions.sequence_order import SequenceOrder


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
        is_lone = (starts == lasts) & (not self.lone_rows)
        return np.where(is_lone, lasts, latest)[is_lone | (latest >= starts)]

    def reduce(self, batch: pa.RecordBatch, starts: np.ndarray) -> pa.RecordBatch:
        """See `MergeFunction`."""
        return _take(batch, self.pick(numbers_in(batch, VALUE_KIND), starts))


@dataclasses.dataclass(frozen=True, slots=True)
class FirstRow:
    """The first row of each key that adds, with its kind.

    Attributes:
        ignore_delete: pass over -U and -D rows. A key with nothing else is left out, unless it
            has a single row.
        lone_rows: a key with a single row is no exception.
    """

    key_names: tuple[str, ...]
    ignore_delete: bool = False
    lone_rows: bool = False

    @property
    def sequence(self) -> SequenceOrder | None:
        """Always arrival."""
        return None

    def pick(self, kinds: np.ndarray, starts: np.ndarray) -> np.ndarray:
        """See `RowPicker`.

        Raises:
            InvalidRequestError: a key has a -U or -D row among others, and is not to ignore it.
        """
        rows = len(kinds)
        if len(starts) == rows and not self.lone_rows:
            return starts
        retract = retractions(kinds)
        if not retract.any():
            return starts
        is_lone = (starts == segment_lasts(starts, rows)) & (not self.lone_rows)
        if not self.ignore_delete:
            wrong = (first_where(retract, starts, rows) >= 0) & ~is_lone
            if wrong.any():
                raise InvalidRequestError(
                    "By default, First row merge engine can not accept DELETE/UPDATE_BEFORE "
                    "records",
                    hint="set `ignore-delete` to drop them",
                    segment=int(np.argmax(wrong)),
                )
        first_rows = np.where(is_lone, starts, first_where(~retract, starts, rows))
        return first_rows[first_rows >= 0]

    def reduce(self, batch: pa.RecordBatch, starts: np.ndarray) -> pa.RecordBatch:
        """See `MergeFunction`.

        Raises:
            InvalidRequestError: a key has a -U or -D row among others, and is not to ignore it.
        """
        with naming_key(batch, self.key_names, starts):
            return _take(batch, self.pick(numbers_in(batch, VALUE_KIND), starts))


def _take(batch: pa.RecordBatch, rows: np.ndarray) -> pa.RecordBatch:
    return batch if len(rows) == batch.num_rows else batch.take(pa.array(rows))
