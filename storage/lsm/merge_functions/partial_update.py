# SPDX-License-Identifier: Apache-2.0
"""The partial-update merge engine: later values that are not null replace earlier ones.

This module holds the engine without sequence groups and the choice between the two; groups are
in `group_update`. Data plane: per column the position of the value that stays. Source:
SEMANTICS.md §B.2.
"""

import dataclasses
from typing import NoReturn

import numpy as np
import pyarrow as pa

from storage.errors import InvalidRequestError
from storage.format.types.types import SEQUENCE_NUMBER, VALUE_KIND, RowKind
from storage.lsm.merge_functions.fold import naming_key
from storage.lsm.merge_functions.pick_row import retractions
from storage.lsm.merge_functions.segments import (
    first_where,
    last_where,
    segment_lasts,
    take_or_null,
    valid_mask,
)
from storage.lsm.merge_functions.sequence_order import SequenceOrder

__all__ = ["PartialUpdate", "refuse_retraction"]


@dataclasses.dataclass(frozen=True, slots=True)
class PartialUpdate:
    """Per column the last value that is not null, of the rows that add.

    Attributes:
        key_names: key columns.
        ignore_delete: pass over -U and -D rows; files of older writers may hold some.
        remove_on_delete: a -D row removes the row; -U rows do nothing.
        sequence: order of the rows of a key; None = arrival.
        lone_rows: a key with a single row is no exception.
    """

    key_names: tuple[str, ...]
    ignore_delete: bool = False
    remove_on_delete: bool = False
    sequence: SequenceOrder | None = None
    lone_rows: bool = False

    def reduce(self, batch: pa.RecordBatch, starts: np.ndarray) -> pa.RecordBatch:
        """See `MergeFunction`.

        Raises:
            InvalidRequestError: a key has a -U or -D row among others and no option says what
                that means.
        """
        rows = batch.num_rows
        if len(starts) == rows and not self.lone_rows:
            return batch
        kinds = batch.column(VALUE_KIND).to_numpy(zero_copy_only=False)
        lasts = segment_lasts(starts, rows)
        retract = retractions(kinds)
        if not retract.any():
            picked = self._columns(batch, starts, lasts, None)
            return _result(batch, picked, self._kinds(kinds, np.int8(0), starts, lasts), lasts)
        if not (self.ignore_delete or self.remove_on_delete):
            self._require_alone(batch, starts, lasts, retract)
        base = np.where(retract[starts], starts, -1)
        if self.remove_on_delete:
            removed = last_where(kinds == RowKind.DELETE, starts, rows)
            base = np.where(removed >= 0, removed, base)
        counts = ~retract & (np.arange(rows) >= np.repeat(base, lasts + 1 - starts))
        counts[base[base >= 0]] = True
        picked = self._columns(batch, starts, lasts, counts)
        gone = last_where(~retract, starts, rows) < 0
        if self.remove_on_delete:
            gone |= kinds[lasts] == RowKind.DELETE
        merged = np.where(gone, np.int8(RowKind.DELETE), np.int8(RowKind.INSERT))
        stamps = lasts
        if self.ignore_delete:
            adds = last_where(~retract, starts, rows)
            stamps = np.where(adds >= 0, adds, lasts)
        return _result(batch, picked, self._kinds(kinds, merged, starts, lasts), stamps)

    def _kinds(
        self,
        kinds: np.ndarray,
        merged: np.ndarray | np.int8,
        starts: np.ndarray,
        lasts: np.ndarray,
    ) -> np.ndarray:
        """The kind of each key: as merged, or of its only row."""
        if self.lone_rows:
            return np.broadcast_to(merged, lasts.shape)
        return np.where(starts == lasts, kinds[lasts], merged)

    def _columns(
        self,
        batch: pa.RecordBatch,
        starts: np.ndarray,
        lasts: np.ndarray,
        counts: np.ndarray | None,
    ) -> list[pa.Array]:
        """All columns, of the rows that count; None = all rows do."""
        everywhere = lasts if counts is None else last_where(counts, starts, batch.num_rows)
        found = []
        for name, column in zip(batch.schema.names, batch.columns, strict=True):
            picked = everywhere
            if column.null_count and name not in self.key_names:
                valid = valid_mask(column)
                if counts is not None:
                    valid = valid & counts
                picked = last_where(valid, starts, batch.num_rows)
            found.append(take_or_null(column, picked))
        return found

    def _require_alone(
        self,
        batch: pa.RecordBatch,
        starts: np.ndarray,
        lasts: np.ndarray,
        retract: np.ndarray,
    ) -> None:
        several = first_where(retract, starts, batch.num_rows) >= 0
        if not self.lone_rows:
            several &= starts < lasts
        if several.any():
            with naming_key(batch, self.key_names, starts):
                refuse_retraction(int(np.argmax(several)))


def refuse_retraction(segment: int) -> NoReturn:
    """Report a row that takes back where no option says what that means.

    Args:
        segment: number of its key.

    Raises:
        InvalidRequestError: always.
    """
    raise InvalidRequestError(
        "By default, Partial update can not accept delete records",
        hint="set `ignore-delete` to drop them, `partial-update.remove-record-on-delete` to remove "
        "the row, or sequence groups to take columns back",
        segment=segment,
    )


def _result(
    batch: pa.RecordBatch, columns: list[pa.Array], kinds: np.ndarray, stamps: np.ndarray
) -> pa.RecordBatch:
    names = batch.schema.names
    columns[names.index(VALUE_KIND)] = pa.array(kinds.astype(np.int8))
    sequence = batch.column(SEQUENCE_NUMBER)
    columns[names.index(SEQUENCE_NUMBER)] = sequence.take(pa.array(stamps))
    return pa.RecordBatch.from_arrays(columns, schema=batch.schema)
