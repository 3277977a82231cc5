# SPDX-License-Identifier: Apache-2.0
"""Restores values that the source did not send because they did not change (TOAST).

Source: CDC.md §1.4. Such a value is in the row's older version: an earlier row of the key in this
batch, else the row that the table holds. Runs on the reduce side, where all rows of a key are in
one task.
"""

import dataclasses
from collections.abc import Sequence

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from ingest.decode.events import HELD_ONLY, MOVED, UNAVAILABLE_COLUMN
from ingest.decode.outcome import joined_rows
from storage.errors import InternalError
from storage.format.types.types import VALUE_KIND, RowKind
from storage.lsm.key_order import sort_and_group
from storage.lsm.merge_functions.sequence_order import SequenceOrder, dense_ranks
from storage.table.read.stored_rows import stored_rows
from storage.table.table import FileStoreTable

_Numbers = npt.NDArray[np.int64]
_RETRACTS = [kind.value for kind in RowKind if kind.retracts]


@dataclasses.dataclass(frozen=True, slots=True)
class Moves:
    """Rows that moved and the deletes of their old keys.

    Attributes:
        rows: numbers of the rows, in source order.
        deletes: of each the number of the delete.
        retracts: which rows of all delete.
    """

    rows: _Numbers
    deletes: _Numbers
    retracts: npt.NDArray[np.bool_]

    def ordered(self, order: _Numbers | None) -> "Moves":
        """Return the moves after a reordering of the rows."""
        if order is None or not len(self.rows):
            return self
        places = np.empty(len(order), np.int64)
        places[order] = np.arange(len(order))
        return Moves(places[self.rows], places[self.deletes], self.retracts[order])

    def redirected(
        self, source: _Numbers, group: _Numbers, lacking: _Numbers
    ) -> tuple[_Numbers, _Numbers]:
        """Return the row from which each row, and rows that depend on it, take a value.

        Args:
            source: per row the row of its key that has the value; -1: the stored one. A moved row
                counts as having it.
            group: number of each row's key.
            lacking: rows that do not have the value.

        Returns:
            (sources, the keys whose stored rows are meant where a source is -1)
        """
        groups = group.copy()
        lacks = set(lacking.tolist())
        for row, delete in zip(self.rows.tolist(), self.deletes.tolist(), strict=True):
            if row not in lacks:
                continue
            previous = delete - 1
            while previous >= 0 and group[previous] == group[delete] and self.retracts[previous]:
                previous -= 1
            if previous >= 0 and group[previous] == group[delete]:
                origin, key = source[previous], groups[previous]
            else:
                origin, key = -1, group[delete]
            takers = (source == row) & (group == group[row])
            source[takers], groups[takers] = origin, key
        return source, groups

    def needless(self, group: _Numbers) -> npt.NDArray[np.bool_]:
        """Return deletes of old keys that repeat the previous delete."""
        mask = np.zeros(len(group), bool)
        for delete in self.deletes.tolist():
            previous = delete - 1
            mask[delete] = (
                previous >= 0 and group[previous] == group[delete] and bool(self.retracts[previous])
            )
        return mask


def extract_moves(rows: pa.RecordBatch, marks: pa.Array) -> tuple[pa.Array, Moves]:
    """Extract the moves from the marks.

    Args:
        rows: in source order.
        marks: field ids per row, `MOVED` among them.
    """
    ids = pc.list_flatten(marks).to_numpy()
    parents = pc.list_parent_indices(marks).to_numpy()
    move_rows = parents[ids == MOVED].astype(np.int64)
    retracts = np.isin(rows.column(VALUE_KIND).to_numpy(), _RETRACTS)
    if not len(move_rows):
        return marks, Moves(move_rows, move_rows, retracts)
    if move_rows[0] == 0 or not retracts[move_rows - 1].all():
        raise InternalError("a moved row without the delete of its old key")
    mask = ids != MOVED
    counts = np.bincount(parents[mask], minlength=len(marks))
    offsets = pa.array(np.r_[0, np.cumsum(counts)].astype(np.int32))
    values = pa.array(ids[mask].astype(np.int32))
    return (
        pa.ListArray.from_arrays(offsets, values, mask=pa.array(counts == 0)),
        Moves(move_rows, move_rows - 1, retracts),
    )


@dataclasses.dataclass(frozen=True, slots=True)
class Restored:
    """Return rows with restored values.

    Attributes:
        rows: without `UNAVAILABLE_COLUMN`; each key's rows in their order.
        values: number of restored values.
        lost: number of values without an older row: what was sent remains, mostly null.
    """

    rows: list[pa.RecordBatch]
    values: int = 0
    lost: int = 0


def restored(
    batches: Sequence[pa.RecordBatch],
    table: FileStoreTable,
    partition: bytes | None,
    bucket: int | None,
) -> Restored:
    """Restore missing values, and drop rows that apply only to stored ones (`HELD_ONLY`).

    Args:
        batches: change rows of one bucket, of one partition or of one table, in source order.
        table: their table.
        partition: framed; None: any of the table.
        bucket: None: any of the partition.
    """
    if not any(batch.schema.get_field_index(UNAVAILABLE_COLUMN) >= 0 for batch in batches):
        return Restored(list(batches))
    rows = joined_rows(batches)
    marks = rows.column(UNAVAILABLE_COLUMN)
    rows = rows.drop_columns([UNAVAILABLE_COLUMN])
    if marks.null_count == len(marks):
        return Restored([rows])
    marks, moves = extract_moves(rows, marks)
    if table.options.merge_engine == "partial-update":  # null keeps what is there
        marks = _held_marks(marks)
        if marks is None:
            return Restored([rows])
    order = SequenceOrder.of(table.options)
    if order is not None and not order.descending:  # a late row is older nevertheless
        ranks = dense_ranks([rows.column(name) for name in order.fields])
        by_rank = pa.array(np.argsort(ranks, kind="stable"))
        rows, marks = rows.take(by_rank), marks.take(by_rank)
    keys = list(table.schema.trimmed_primary_keys)
    groups = sort_and_group(rows, keys)
    if groups.order is not None:
        by_key = pa.array(groups.order)
        rows, marks = rows.take(by_key), marks.take(by_key)
    moves = moves.ordered(groups.order)  # with a sequence there are none
    return _Restoring(rows, marks, groups.starts, keys, moves).run(table, partition, bucket)


def _held_marks(marks: pa.Array) -> pa.Array | None:
    """Return the marks without those of missing values; None if none are left."""
    mask = np.zeros(len(marks), bool)
    mask[pc.list_parent_indices(marks).to_numpy()[_ids(marks) == HELD_ONLY]] = True
    if not mask.any():
        return None
    offsets = np.r_[0, np.cumsum(mask)].astype(np.int32)
    ids = pa.array(np.full(mask.sum(), HELD_ONLY, np.int32))
    return pa.ListArray.from_arrays(pa.array(offsets), ids, mask=pa.array(~mask))


def _ids(marks: pa.Array) -> npt.NDArray[np.int32]:
    ids: npt.NDArray[np.int32] = pc.list_flatten(marks).to_numpy()
    return ids


class _Restoring:
    """Rows sorted by key."""

    def __init__(
        self,
        rows: pa.RecordBatch,
        marks: pa.Array,
        starts: _Numbers,
        keys: list[str],
        moves: Moves,
    ) -> None:
        self._moves = moves
        self._rows = rows
        self._keys = keys
        self._starts = starts
        counts = np.diff(np.r_[starts, rows.num_rows])
        self.group = np.repeat(np.arange(len(starts)), counts)
        self._marked_rows = pc.list_parent_indices(marks).to_numpy()
        self._ids = _ids(marks)

    def run(self, table: FileStoreTable, partition: bytes | None, bucket: int | None) -> Restored:
        fields = {field.id: field.name for field in table.schema.fields}
        sources = {
            fields[number]: self._moves.redirected(
                self._sources(number), self.group, self._marked_rows[self._ids == number]
            )
            for number in np.unique(self._ids).tolist()
            if number != HELD_ONLY
        }
        holders = self._holders()
        groups = [np.empty(0, np.int64)]
        groups += [group[source < 0] for source, group in sources.values()]
        if holders is not None:
            groups.append(self.group[holders < 0])
        older = _Older.of(self, np.unique(np.concatenate(groups)), table, partition, bucket)
        numbers = np.arange(self._rows.num_rows)
        live = np.ones(len(numbers), bool) if holders is None else self._applicable(holders, older)
        rows, values, misses = self._rows, 0, 0
        live &= ~self._moves.needless(self.group)
        for name, (source, group) in sources.items():
            indices, misses_mask = older.fill(source, group)
            at = rows.schema.get_field_index(name)
            column = older.appended_to(rows.column(at), name)
            indices = np.where(misses_mask, numbers, indices)
            rows = rows.set_column(at, rows.schema.field(at), column.take(pa.array(indices)))
            lacking = (source != numbers) & live
            misses += int((misses_mask & lacking).sum())
            values += int((~misses_mask & lacking).sum())
        if not live.all():
            rows = rows.filter(pa.array(live))
        return Restored([rows], values, misses)

    def _holders(self) -> _Numbers | None:
        """Return for each row the last row of its key up to it that is not `HELD_ONLY`.

        -1: none of this batch. None when no row is for held rows alone.
        """
        mask = self._ids == HELD_ONLY
        if not mask.any():
            return None
        candidates = np.arange(self._rows.num_rows)
        candidates[self._marked_rows[mask]] = -1
        last_holder = np.maximum.accumulate(candidates)
        return np.where(last_holder >= self._starts[self.group], last_holder, -1)

    def _applicable(self, holders: _Numbers, older: "_Older") -> npt.NDArray[np.bool_]:
        """Return rows that apply to any row, or whose key has a row at that point."""
        kinds = self._rows.column(VALUE_KIND).to_numpy()
        retracts = np.isin(kinds, [kind.value for kind in RowKind if kind.retracts])
        always = holders == np.arange(len(holders))
        in_batch = (holders >= 0) & ~retracts[holders]
        mask: npt.NDArray[np.bool_] = always | in_batch | ((holders < 0) & older.has(self.group))
        return mask

    def _sources(self, number: int) -> _Numbers:
        """Return for each row the row of its key with a value; -1: none in this batch."""
        count = self._rows.num_rows
        lacks_value = np.zeros(count, bool)
        lacks_value[self._marked_rows[self._ids == number]] = True
        lacks_value[self._moves.rows] = False  # they get the value
        candidates = np.where(lacks_value, -1, np.arange(count))
        last_source = np.maximum.accumulate(candidates)
        return np.where(last_source >= self._starts[self.group], last_source, -1)

    def keys_of(self, groups: _Numbers) -> pa.RecordBatch:
        """Return the key columns of groups."""
        return self._rows.select(self._keys).take(pa.array(self._starts[groups]))


@dataclasses.dataclass(frozen=True, slots=True)
class _Older:
    """Stored rows of the table for groups of keys.

    Attributes:
        groups: numbers, ascending.
        rows: one per group.
        batch_rows: number of rows of the batch; stored rows are numbered from there on.
    """

    groups: _Numbers
    rows: pa.RecordBatch | None
    batch_rows: int

    @staticmethod
    def of(
        batch: _Restoring,
        groups: _Numbers,
        table: FileStoreTable,
        partition: bytes | None,
        bucket: int | None,
    ) -> "_Older":
        row_count = len(batch.group)
        snapshot = table.latest_snapshot()
        if snapshot is None or not len(groups):
            return _Older(np.empty(0, np.int64), None, row_count)
        older_rows = stored_rows(table, snapshot, partition, bucket, batch.keys_of(groups))
        return _Older(groups[older_rows.keys], older_rows.rows, row_count)

    def fill(self, source: _Numbers, group: _Numbers) -> tuple[_Numbers, npt.NDArray[np.bool_]]:
        """Return the sources, with stored rows where the batch has none, and missing ones."""
        if not len(self.groups):
            return source, source < 0
        at = np.minimum(np.searchsorted(self.groups, group), len(self.groups) - 1)
        has_stored = self.groups[at] == group
        return np.where(source < 0, self.batch_rows + at, source), (source < 0) & ~has_stored

    def has(self, group: _Numbers) -> npt.NDArray[np.bool_]:
        """Return whether the table has a row of each group."""
        return np.isin(group, self.groups)

    def appended_to(self, column: pa.Array, name: str) -> pa.Array:
        """Append the column of the stored rows to a column of the batch."""
        if self.rows is None or not self.rows.num_rows:
            return column
        return pa.concat_arrays([column, self.rows.column(name).cast(column.type)])
