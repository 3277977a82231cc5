# SPDX-License-Identifier: Apache-2.0
"""The rows of one state that a statement may change: read with their addresses, then written.

Rows of an append table are addressed by positions in files: changed ones are removed from their
file, by its deletion vector or by rewriting the file, and written to new files. Rows of a
primary-key table are replaced by writing their key again. Source: SEMANTICS.md §E, §F.1, §G.5.

The address `ROW` of a row is a number within one state and predicate; it is meaningless later.
"""

import dataclasses
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Protocol

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc
import pyroaring

from storage.errors import CorruptDataError, InvalidRequestError, UnsupportedFeatureError
from storage.format.files.data_file import DataFileNames, read_rows
from storage.format.files.row_selection import Except, Only
from storage.format.metadata.file_meta import CommitMessage, DataFileMeta, DataIncrement, FileSource
from storage.format.metadata.layout import POSTPONE_BUCKET
from storage.format.metadata.snapshot import BATCH_COMMIT_IDENTIFIER, Snapshot
from storage.format.types.default_values import fill_defaults, read_defaults
from storage.format.types.types import VALUE_KIND, RowKind
from storage.lsm.changelog import equal_rows
from storage.lsm.merge_functions import merge_function_for
from storage.lsm.merge_functions.partial_update import PartialUpdate
from storage.options.options import require_writable
from storage.table.bucket_mode import require_buckets
from storage.table.commit.commit_changes import discarded_on
from storage.table.commit.live_files import BucketId, live_entries, live_state
from storage.table.core import TableCore
from storage.table.read.deletion_vectors import BucketVectors, selections
from storage.table.read.missing_files import explain_missing_files
from storage.table.read.read import TableRead
from storage.table.scan.predicate import Predicate, require_known
from storage.table.scan.scan import Split, TableScan
from storage.table.write.bucket_writers import bucket_context, rewrite_files
from storage.table.write.write import TableWrite

# Which tables take DELETE, UPDATE and MERGE. Pure.
#
# Source: SEMANTICS.md §N.3; Paimon's pages "SQL write" and "Merge engines".


_UPDATABLE = ("deduplicate", "partial-update")


def require_deletable(table: TableCore) -> None:
    """Check that rows of a table can be deleted.

    Raises:
        UnsupportedFeatureError: the merge engine or an option of the table takes no deletes.
    """
    _require_writable(table)
    options = table.options
    if not table.schema.primary_keys:
        return
    engine = options.merge_engine
    if options.ignore_delete:
        raise UnsupportedFeatureError(
            "the table ignores deletes, so a DELETE would change nothing",
            hint="remove the option: ALTER TABLE … RESET ('ignore-delete')",
            table=table.layout.root,
            option="ignore-delete",
        )
    if engine == "deduplicate":
        return
    if engine == "first-row":
        raise UnsupportedFeatureError(
            "Merge engine first-row can not support batch delete.",
            hint="drop partitions, or overwrite them without the rows",
            table=table.layout.root,
        )
    if engine == "partial-update":
        allowed = bool(
            options.partial_update_remove_on_delete or options.partial_update_remove_on_groups
        )
        hint = (
            "create the table with 'partial-update.remove-record-on-delete' = 'true', or with "
            "sequence groups 'partial-update.remove-record-on-sequence-group'"
        )
    else:
        allowed = options.aggregation_remove_on_delete
        hint = "create the table with 'aggregation.remove-record-on-delete' = 'true'"
    if not allowed:
        raise UnsupportedFeatureError(
            f"Merge engine {engine} doesn't support batch delete by default.",
            hint=hint,
            table=table.layout.root,
        )


def require_updatable(table: TableCore, columns: Iterable[str]) -> None:
    """Check that columns of rows of a table can be set.

    Args:
        columns: the columns that are set.

    Raises:
        UnsupportedFeatureError: the merge engine of the table takes no updates.
        InvalidRequestError: a column is a primary key or is unknown.
    """
    _require_writable(table)
    columns = list(columns)
    require_columns(table, columns)
    keys = table.schema.primary_keys
    _require_engine(table, "update")
    changed = [name for name in columns if name in keys]
    if changed:
        raise key_update(table, changed[0])
    moved = [name for name in columns if name in table.schema.partition_keys]
    if keys and moved and table.options.merge_engine != "deduplicate":
        raise UnsupportedFeatureError(
            "this merge engine cannot move rows to another partition",
            hint="delete the rows and insert them again",
            table=table.layout.root,
            column=moved[0],
        )


def require_mergeable(table: TableCore) -> None:
    """Check that rows can be merged into a table; its clauses are checked besides.

    Raises:
        UnsupportedFeatureError: the merge engine of the table takes no updates.
    """
    _require_writable(table)
    _require_engine(table, "merge into")


def require_columns(table: TableCore, columns: Iterable[str]) -> None:
    """Check that columns are there.

    Raises:
        InvalidRequestError: names the first that is not.
    """
    require_known(columns, table.schema.field_names)


def key_update(table: TableCore, column: str) -> InvalidRequestError:
    """The error of an update of a primary key."""
    return InvalidRequestError(
        "Updates to primary keys are not supported",
        hint="delete the row and insert it with the other key",
        column=column,
        keys=", ".join(table.schema.primary_keys),
    )


def _require_writable(table: TableCore) -> None:
    require_writable(table.options)
    require_buckets(table.schema, table.options)


def _require_engine(table: TableCore, operation: str) -> None:
    engine = table.options.merge_engine
    if table.schema.primary_keys and engine not in _UPDATABLE:
        raise UnsupportedFeatureError(
            f"Merge engine {engine} can not support batch {operation}.",
            hint=f"tables of the engines {' and '.join(_UPDATABLE)} do; in others, insert rows "
            "that the engine merges",
            table=table.layout.root,
        )


ROW = "_LAKEWARD_ROW"
"""Address of a row (int64); null of a row that is new."""

ACTION = "_LAKEWARD_ACTION"
"""Number of the action of a change (int32); null: none, the row stays as it is."""

_BATCH_ROWS = 131_072
_MERGE_ON_READ = "deletion-vectors.merge-on-read"


@dataclasses.dataclass(frozen=True, slots=True)
class RowAction:
    """What is done to some of the rows.

    Attributes:
        kind: INSERT, UPDATE_AFTER or DELETE.
        columns: those that the changes set; an update leaves the others as they are, an insert
            takes null or the default of the column.
    """

    kind: RowKind
    columns: frozenset[str] = frozenset()


class TargetRows(Protocol):
    """The rows of one state that a statement may change."""

    def read(self, columns: Sequence[str]) -> pa.RecordBatchReader:
        """A superset of the matching rows: `ROW`, then these columns of the table."""

    def write(
        self, changes: pa.Table, actions: Sequence[RowAction], user: str
    ) -> list[CommitMessage]:
        """Write what changes; the caller commits the messages, or removes their files.

        Args:
            changes: `ROW`, `ACTION` and columns in the types of the table; no address twice,
                each with an action.
            actions: by number.
        """


def target_rows(
    table: TableCore, snapshot: Snapshot | None, predicate: Predicate | None
) -> TargetRows:
    """The rows of a state.

    Args:
        snapshot: None: before the first one.
        predicate: a condition that every row to be changed meets; None: there is none.
    """
    if table.schema.primary_keys:
        return _KeyedRows(table, snapshot, predicate)
    return _AppendRows(table, snapshot, predicate)


@dataclasses.dataclass(slots=True)
class _File:
    """A file of an append table: the address of its first row, and its deleted rows."""

    split: Split
    meta: DataFileMeta
    start: int
    deleted: Except | None


class _AppendRows:
    def __init__(
        self, table: TableCore, snapshot: Snapshot | None, predicate: Predicate | None
    ) -> None:
        self._table = table
        self._snapshot = snapshot
        self._files: list[_File] = []
        self._defaults = read_defaults(table.schema)
        if snapshot is None:
            return
        start = 0
        for split in TableScan(table).with_filter(predicate).plan(snapshot).splits:
            deleted = selections(table.file_io, split.deletion_vectors)
            for meta in split.files:
                self._files.append(_File(split, meta, start, deleted.get(meta.file_name)))
                start += meta.row_count

    def read(self, columns: Sequence[str]) -> pa.RecordBatchReader:
        names = list(columns) or self._table.schema.field_names[:1]
        schema = _read_schema(self._table, names)

        def batches() -> Iterator[pa.RecordBatch]:
            for file in self._files:
                yield from self._addressed(file, names, schema)

        return _selected(schema, batches(), columns)

    def _addressed(
        self, file: _File, columns: Sequence[str], schema: pa.Schema
    ) -> Iterator[pa.RecordBatch]:
        """Live rows of a file; its batches are unfiltered, so that counting gives positions."""
        position = 0
        for batch in self._rows(file, columns, None):
            batch = fill_defaults(batch, self._defaults)
            rows = pa.array(np.arange(position, position + batch.num_rows) + file.start)
            result = pa.RecordBatch.from_arrays([rows, *batch.columns], schema=schema)
            live = None
            if file.deleted is not None:
                live = file.deleted.mask(position, batch.num_rows)
            position += batch.num_rows
            result = result if live is None else result.filter(pa.array(live))
            if result.num_rows:
                yield result
        if position != file.meta.row_count:
            raise CorruptDataError(
                "a data file holds another number of rows than recorded",
                path=self._path(file),
                expected=file.meta.row_count,
                found=position,
            )

    def _path(self, file: _File) -> str:
        split = file.split
        return file.meta.external_path or self._table.layout.data_file(
            split.partition_path, split.bucket, file.meta.file_name
        )

    def _rows(
        self, file: _File, columns: Sequence[str] | None, selection: Only | None
    ) -> Iterator[pa.RecordBatch]:
        table = self._table
        with explain_missing_files(table, file.split.snapshot_id):
            yield from read_rows(
                table.file_io,
                self._path(file),
                file.meta,
                table.schemas.read(file.meta.schema_id),
                table.schema,
                columns,
                batch_rows=_BATCH_ROWS,
                selection=selection,
            )

    def write(
        self, changes: pa.Table, actions: Sequence[RowAction], user: str
    ) -> list[CommitMessage]:
        existing, new = _split_changes(changes)
        addresses = existing.column(ROW).to_numpy()
        starts = [file.start for file in self._files] + [np.iinfo(np.int64).max]
        bounds = np.searchsorted(addresses, starts)
        removed: dict[BucketId, list[tuple[_File, npt.NDArray[np.int64]]]] = {}
        messages: list[CommitMessage] = []
        with (
            discarded_on(self._table, messages),
            TableWrite(self._table, user, compaction=False) as writer,
        ):
            for number, file in enumerate(self._files):
                begin, end = int(bounds[number]), int(bounds[number + 1])
                if begin == end:
                    continue
                part = existing.slice(begin, end - begin)
                where = (file.split.partition, file.split.bucket)
                positions = addresses[begin:end] - file.start
                removed.setdefault(where, []).append((file, positions))
                self._write_updates(writer, file, positions, part, actions)
            _write_new(writer, self._table, new, actions)
            messages += writer.prepare_commit()
            for where, files in removed.items():
                messages.append(self._removal(where, files))
        return messages

    def _write_updates(
        self,
        writer: TableWrite,
        file: _File,
        positions: npt.NDArray[np.int64],
        part: pa.Table,
        actions: Sequence[RowAction],
    ) -> None:
        updates = [n for n, action in enumerate(actions) if action.kind is RowKind.UPDATE_AFTER]
        chosen = np.isin(part.column(ACTION).to_numpy(), updates)
        if not chosen.any():
            return
        part = part.filter(pa.array(chosen))
        selection = Only(pyroaring.BitMap64(positions[chosen].astype(np.uint64)))
        position = 0
        for batch in self._rows(file, None, selection):
            old = fill_defaults(batch, self._defaults)
            changes = part.slice(position, old.num_rows)
            position += old.num_rows
            for number, rows in _by_action(changes):
                picked = old.take(rows)
                writer.write(_overlaid(self._table, picked, changes.take(rows), actions[number]))

    def _removal(
        self, bucket_id: BucketId, files: list[tuple[_File, npt.NDArray[np.int64]]]
    ) -> CommitMessage:
        table, snapshot = self._table, self._snapshot
        assert snapshot is not None, "there are files"
        partition, bucket = bucket_id
        total = live_entries(table, snapshot, partition=partition, bucket=bucket)[0].total_buckets
        if table.options.deletion_vectors_enabled:
            vectors = BucketVectors.of(table, snapshot, partition, bucket)
            for file, positions in files:
                vectors.mark(file.meta.file_name, positions)
            new, replaced = vectors.changes()
            data = DataIncrement(new_index_files=new, deleted_index_files=replaced)
        else:
            data = self._rewritten(bucket_id, files)
        return CommitMessage(partition=partition, bucket=bucket, total_buckets=total, data=data)

    def _rewritten(
        self, bucket_id: BucketId, files: list[tuple[_File, npt.NDArray[np.int64]]]
    ) -> DataIncrement:
        """Rewrites each file by itself, which preserves the order of rows in a bucket."""
        context = bucket_context(self._table, *bucket_id)
        names = DataFileNames(self._table.ids)
        new: list[DataFileMeta] = []
        try:
            for file, positions in files:
                if len(positions) == file.meta.row_count:
                    continue
                live = Except(pyroaring.BitMap64(positions.astype(np.uint64)))
                selection = {file.meta.file_name: live}
                new += rewrite_files(context, [file.meta], names, selection, FileSource.APPEND)
        except BaseException:
            context.delete_files(new)
            raise
        return DataIncrement(
            new_files=tuple(new), deleted_files=tuple(file.meta for file, _ in files)
        )


class _KeyedRows:
    """Level 0 is merged also where batch reads leave it out: it holds the newest values."""

    def __init__(
        self, table: TableCore, snapshot: Snapshot | None, predicate: Predicate | None
    ) -> None:
        self._table = table
        self._predicate = predicate
        options = {**table.schema.options, _MERGE_ON_READ: "true"}
        schema = dataclasses.replace(table.schema, options=options)
        self._full_table = dataclasses.replace(table, schema=schema)
        self._splits: tuple[Split, ...] = ()
        if snapshot is not None:
            _require_buckets(table, snapshot)
            self._splits = TableScan(self._full_table).with_filter(predicate).plan(snapshot).splits
        self._starts: list[int] = []

    def read(self, columns: Sequence[str]) -> pa.RecordBatchReader:
        names = list(columns) or self._table.schema.primary_keys[:1]
        schema = _read_schema(self._table, names)
        reader = TableRead(self._full_table, names, self._predicate)
        self._starts = []

        def batches() -> Iterator[pa.RecordBatch]:
            start = 0
            for split in self._splits:
                self._starts.append(start)
                for batch in reader.to_batches(split):
                    rows = pa.array(np.arange(start, start + batch.num_rows))
                    start += batch.num_rows
                    yield pa.RecordBatch.from_arrays([rows, *batch.columns], schema=schema)

        return _selected(schema, batches(), columns)

    def write(
        self, changes: pa.Table, actions: Sequence[RowAction], user: str
    ) -> list[CommitMessage]:
        existing, new = _split_changes(changes)
        addresses = existing.column(ROW).to_numpy()
        # a statement may have left splits unread, that cannot hold rows that it changes
        starts = [*self._starts[: len(self._splits)], np.iinfo(np.int64).max]
        bounds = np.searchsorted(addresses, starts)
        reader = TableRead(self._full_table, None, self._predicate)
        with TableWrite(self._table, user, batch=True) as writer:
            for number, split in enumerate(self._splits[: len(starts) - 1]):
                if bounds[number] == bounds[number + 1]:
                    continue
                start = starts[number]
                for batch in reader.to_batches(split):
                    begin, end = np.searchsorted(addresses, [start, start + batch.num_rows])
                    if begin < end:
                        old = batch.take(pa.array(addresses[begin:end] - start))
                        self._write_known(writer, old, existing.slice(begin, end - begin), actions)
                    start += batch.num_rows
            _write_new(writer, self._table, new, actions)
            return writer.prepare_commit(BATCH_COMMIT_IDENTIFIER)

    def _write_known(
        self, writer: TableWrite, old: pa.RecordBatch, part: pa.Table, actions: Sequence[RowAction]
    ) -> None:
        for number, rows in _by_action(part):
            action, picked = actions[number], old.take(rows)
            if action.kind is RowKind.DELETE:
                writer.write(_of_kind(self._table, picked, RowKind.DELETE))
                continue
            updated = _overlaid(self._table, self._addable(picked), part.take(rows), action)
            self._require_same_keys(picked, updated, action)
            options = self._table.options
            if options.changelog_producer == "input" and options.merge_engine == "deduplicate":
                # the changelog holds what is written: an update needs both of its images
                writer.write(_of_kind(self._table, picked, RowKind.UPDATE_BEFORE))
            writer.write(_of_kind(self._table, updated, RowKind.UPDATE_AFTER))

    def _addable(self, old: pa.RecordBatch) -> pa.RecordBatch:
        """The rows without totals, to which merging would add their own values again."""
        function = merge_function_for(self._table.options, self._table.schema)
        functions = function.functions if isinstance(function, PartialUpdate) else {}
        for name in (name for name, used in functions.items() if used.name != "last_value"):
            place = old.schema.get_field_index(name)
            field = old.schema.field(place).with_nullable(True)
            old = old.set_column(place, field, pa.nulls(old.num_rows, field.type))
        return old

    def _require_same_keys(
        self, old: pa.RecordBatch, new: pa.RecordBatch, action: RowAction
    ) -> None:
        for name in self._table.schema.primary_keys:
            if name not in action.columns:
                continue
            if not equal_rows(old.column(name), new.column(name)).all():
                raise key_update(self._table, name)


def _require_buckets(table: TableCore, snapshot: Snapshot) -> None:
    """Check that no row waits for its bucket: it is not visible, and would be overwritten."""
    if any(bucket == POSTPONE_BUCKET for _, bucket in live_state(table, snapshot).buckets):
        raise UnsupportedFeatureError(
            "rows of the table wait for their buckets",
            hint="compact the table first: CALL sys.compact('…')",
            table=table.layout.root,
        )


def _read_schema(table: TableCore, columns: Sequence[str]) -> pa.Schema:
    whole = table.schema.arrow_schema
    return pa.schema([pa.field(ROW, pa.int64()), *(whole.field(name) for name in columns)])


def _selected(
    schema: pa.Schema, batches: Iterator[pa.RecordBatch], columns: Sequence[str]
) -> pa.RecordBatchReader:
    """The rows; without the column that was read to count them where none is wanted."""
    if not columns:
        schema = pa.schema([schema.field(ROW)])
        batches = (batch.select([ROW]) for batch in batches)
    return pa.RecordBatchReader.from_batches(schema, batches)


def _split_changes(changes: pa.Table) -> tuple[pa.Table, pa.Table]:
    """Changes of existing rows, by address; and new rows in arrival order."""
    fresh = pc.is_null(changes.column(ROW))
    existing = changes.filter(pc.invert(fresh)).sort_by(ROW)
    return existing.combine_chunks(), changes.filter(fresh)


def _by_action(part: pa.Table) -> Iterator[tuple[int, pa.Array]]:
    codes = part.column(ACTION).to_numpy()
    for number in np.unique(codes):
        yield int(number), pa.array(np.flatnonzero(codes == number))


def _overlaid(
    table: TableCore, old: pa.RecordBatch, part: pa.Table, action: RowAction
) -> pa.RecordBatch:
    """Rows with the columns that an action sets; the others stay."""
    columns: Mapping[str, pa.Array] = {
        name: _combined(part.column(name)) if name in action.columns else old.column(name)
        for name in table.schema.field_names
    }
    return pa.RecordBatch.from_pydict(dict(columns), schema=_nullable(table))


def _write_new(
    writer: TableWrite, table: TableCore, new: pa.Table, actions: Sequence[RowAction]
) -> None:
    for number, rows in _by_action(new):
        names = [name for name in table.schema.field_names if name in actions[number].columns]
        part = new.take(rows)
        for batch in part.select(names).combine_chunks().to_batches():
            writer.write(batch)


def _of_kind(table: TableCore, batch: pa.RecordBatch, kind: RowKind) -> pa.RecordBatch:
    """Rows with their kind, also in the column that decides on it where there is one."""
    name = table.options.rowkind_field
    if name is not None:
        place = batch.schema.get_field_index(name)
        texts = pa.array([kind.short]).cast(batch.schema.field(place).type)
        batch = batch.set_column(
            place, batch.schema.field(place), texts.take(pa.array(np.zeros(batch.num_rows, int)))
        )
    kinds = np.full(batch.num_rows, kind.value, np.int8)
    return batch.append_column(VALUE_KIND, pa.array(kinds))


def _combined(column: pa.ChunkedArray) -> pa.Array:
    combined = column.combine_chunks()
    return combined.combine_chunks() if isinstance(combined, pa.ChunkedArray) else combined


def _nullable(table: TableCore) -> pa.Schema:
    """The columns of the table, nulls allowed: the writer checks which of them may hold one."""
    return pa.schema([field.with_nullable(True) for field in table.schema.arrow_schema])
