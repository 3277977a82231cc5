# SPDX-License-Identifier: Apache-2.0
"""Walking two sorted states of a bucket side by side, key by key, in bounded memory.

The caller decides what is emitted for a key: `row_changes` for a changelog, `later_images` for an
incremental read. Data plane: whole columns, no Python object per row.
"""

import dataclasses
from collections.abc import Callable, Iterable, Iterator, Sequence

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from storage.format.types.types import SEQUENCE_NUMBER, VALUE_KIND, RowKind
from storage.lsm.changelog.row_changes import ChangeRule, row_changes
from storage.lsm.merge import MERGE_WINDOW_BYTES, merge_runs
from storage.lsm.merge_functions.pick_row import retractions
from storage.lsm.merge_functions.segments import numbers_in

Positions = npt.NDArray[np.int64]
EmitChanges = Callable[[pa.RecordBatch, Positions, pa.RecordBatch, Positions], pa.RecordBatch]
"""From rows before, their number per key (-1: none), rows after, and theirs, to changes."""

_OWN_SEQUENCE = "_OWN_SEQUENCE"
_STORED_KIND = "_STORED_KIND"


def side_by_side(
    before: Iterable[pa.RecordBatch],
    after: Iterable[pa.RecordBatch],
    key_names: Sequence[str],
    emit: EmitChanges,
    *,
    window_bytes: int = MERGE_WINDOW_BYTES,
) -> Iterator[pa.RecordBatch]:
    """The changes between two states, key by key.

    Args:
        before: KeyValueBatches strictly ascending by key across batches.
        after: the same of the later state, in the same Arrow schema.
        key_names: key columns in key order.
        emit: gets the rows of many keys at a time, in key order; may return any number of rows.
        window_bytes: Arrow memory held, as in `merge_runs` [bytes].

    Yields:
        The results of `emit`, in key order; without empty ones.

    Raises:
        CorruptDataError: a state has descending keys.
    """
    runs = [_on_side(before, 0), _on_side(after, 1)]
    return merge_runs(runs, key_names, _Compared(emit), window_bytes=window_bytes)


def later_images(
    before: pa.RecordBatch, before_at: Positions, after: pa.RecordBatch, after_at: Positions
) -> pa.RecordBatch:
    """New and changed rows with their stored kinds, removed ones as -D.

    Unchanged rows are left out; so are rows of kind -U and -D, which count as none.
    Source: SEMANTICS.md §C.9, scan mode `diff`.
    """
    rule = ChangeRule(row_deduplicate=True, ignore_fields=(_STORED_KIND,))
    changes = row_changes(_with_stored(before), before_at, _with_stored(after), after_at, rule=rule)
    kinds = numbers_in(changes, VALUE_KIND)
    stored_kinds = numbers_in(changes, _STORED_KIND)
    image_kinds = np.where(retractions(kinds), kinds, stored_kinds).astype(np.int8)
    images = changes.drop_columns([_STORED_KIND])
    position = images.schema.get_field_index(VALUE_KIND)
    images = images.set_column(position, images.schema.field(position), pa.array(image_kinds))
    return images.filter(pa.array(kinds != RowKind.UPDATE_BEFORE))


@dataclasses.dataclass(frozen=True, slots=True)
class _Compared:
    """A `MergeFunction` that sees at most one row of either side per key."""

    emit: EmitChanges
    sequence: None = None

    def reduce(self, batch: pa.RecordBatch, starts: np.ndarray) -> pa.RecordBatch:
        sides = numbers_in(batch, SEQUENCE_NUMBER)
        lasts = np.append(starts[1:], batch.num_rows) - 1
        before_at = np.where(sides[starts] == 0, starts, -1)
        after_at = np.where(sides[lasts] == 1, lasts, -1)
        position = batch.schema.get_field_index(SEQUENCE_NUMBER)
        seqnos = batch.column(_OWN_SEQUENCE)
        rows = batch.drop_columns([_OWN_SEQUENCE]).set_column(
            position, batch.schema.field(position), seqnos
        )
        return self.emit(rows, before_at, rows, after_at)


def _on_side(batches: Iterable[pa.RecordBatch], side: int) -> Iterator[pa.RecordBatch]:
    """Rows whose sequence number marks the state they come from."""
    for batch in batches:
        position = batch.schema.get_field_index(SEQUENCE_NUMBER)
        seqnos = batch.column(position)
        number = pa.array(np.full(batch.num_rows, side, dtype=np.int64))
        numbered = batch.set_column(position, batch.schema.field(position), number)
        yield numbered.append_column(_OWN_SEQUENCE, seqnos)


def _with_stored(batch: pa.RecordBatch) -> pa.RecordBatch:
    return batch.append_column(_STORED_KIND, batch.column(VALUE_KIND))
