# SPDX-License-Identifier: Apache-2.0
"""Opening the writer of one bucket, by the kind of table, from the state of a snapshot."""

import dataclasses
from collections.abc import Callable, Container, Iterable, Iterator, Mapping, Sequence
from typing import Protocol

import numpy as np
import pyarrow as pa

from storage.errors import InvalidRequestError
from storage.format.files.data_file import (
    BATCH_ROWS,
    DataFileNames,
    DataFileOptions,
    RowFileWriter,
    read_rows,
)
from storage.format.files.row_selection import RowSelection
from storage.format.metadata.file_meta import (
    CommitMessage,
    CompactIncrement,
    DataFileMeta,
    DataIncrement,
    FileSource,
    ManifestEntry,
)
from storage.format.metadata.layout import POSTPONE_BUCKET
from storage.format.metadata.snapshot import Snapshot
from storage.format.types.types import RowKind
from storage.lsm.bucket import BucketContext
from storage.lsm.lookup.store import BucketLookup, process_store
from storage.lsm.merge_tree_writer import MergeTreeWriter
from storage.lsm.write_rules import accept_rows, merges_everything
from storage.options.options import require_writable
from storage.table.bucket_mode import BucketMode, require_buckets
from storage.table.commit.live_files import IndexChange, live_entries, live_files
from storage.table.core import TableCore
from storage.table.read.deletion_vectors import BucketVectors
from storage.table.write.postpone import PostponeWriter

# Which small files of an append table are worth merging. Pure.
#
# Two ways, as Apache Paimon has them. In a fixed bucket the rows have an order, so only neighbours
# are merged. Without buckets they have none: files are packed by size.


_LEAST_PACK = 2
"""One file by itself is not merged with anything."""

_FULL_LEAST_FILES = 3
"""Fewer files are left alone by a full compaction of a fixed bucket."""


def pick_ordered(
    files: Sequence[DataFileMeta], least_files: int, target_size: int
) -> tuple[list[DataFileMeta], list[DataFileMeta]]:
    """The first neighbours in a fixed bucket that are worth merging.

    A window moves over the files: as soon as it holds enough files they are taken; when it holds
    enough bytes its first file is released.

    Args:
        files: in the order of their rows.
        least_files: files in a window that is taken.
        target_size: bytes in a window at which it moves on.

    Returns:
        The files to merge, none when nothing is due, and the files to consider next time.
    """
    window: list[DataFileMeta] = []
    least_files = max(_LEAST_PACK, least_files)
    size = 0
    for i, file in enumerate(files):
        window.append(file)
        size += file.file_size
        if len(window) >= least_files:
            return window, list(files[i + 1 :])
        if size >= target_size:
            size -= window.pop(0).file_size
    return [], window


def pick_all(
    files: Sequence[DataFileMeta],
    target_size: int,
    *,
    deleted: Container[str] | None,
    force: bool = False,
) -> list[DataFileMeta]:
    """The files that a full compaction of a fixed bucket rewrites.

    Args:
        files: in the order of their rows.
        target_size: a file of this size is large.
        deleted: names of files with deleted rows; None on a table without deletion vectors.
        force: rewrite whatever there is.

    Returns:
        All files from the first on that is small or has deleted rows. Without deletion vectors
        only when there are at least 3 and most of them are small.
    """
    if force:
        return list(files)
    if deleted is None and len(files) < _FULL_LEAST_FILES:
        return []
    marked: Container[str] = () if deleted is None else deleted
    first = 0
    while (
        first < len(files)
        and files[first].file_size >= target_size
        and files[first].file_name not in marked
    ):
        first += 1
    chosen = list(files[first:])
    if deleted is not None:
        return chosen
    small = sum(file.file_size < target_size for file in chosen)
    return chosen if 2 * small > len(chosen) >= _FULL_LEAST_FILES else []


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class PackRules:
    """How files without buckets are packed.

    Attributes:
        target_size: of files [bytes].
        small_size: files below this are candidates [bytes].
        open_cost: what a file counts besides its size [bytes].
        least_files: files in a pack that is not full.
        delete_ratio: share of deleted rows above which a file is a candidate.
    """

    target_size: int
    small_size: int
    open_cost: int
    least_files: int
    delete_ratio: float


def pack_files(
    files: Iterable[DataFileMeta],
    rules: PackRules,
    *,
    cardinality: Callable[[str], int | None] = lambda _: None,
    vector_file: Mapping[str, str] | None = None,
) -> list[list[DataFileMeta]]:
    """Packs of files of one partition to merge, each for itself.

    Args:
        cardinality: deleted rows of a file by its name, None when unknown.
        vector_file: the index file that holds a data file's deletion vector, by data file name;
            None on a table without deletion vectors. Files whose vectors share an index file
            come into one pack, since that file is rewritten.
    """
    vectors = vector_file or {}
    candidates = [
        file
        for file in files
        if file.file_size < rules.small_size or _lost_much(file, rules, cardinality, vectors)
    ]
    if vector_file is None:
        return _packed([[file] for file in _by_size(candidates)], rules, flush_last=False)
    groups: dict[str, list[DataFileMeta]] = {}
    whole: list[DataFileMeta] = []
    for file in candidates:
        name = vectors.get(file.file_name)
        if name is None:
            whole.append(file)
        else:
            groups.setdefault(name, []).append(file)
    ordered = sorted(groups.values(), key=lambda group: sum(file.file_size for file in group))
    packs = _packed(ordered, rules, flush_last=True)
    if len(whole) > 1:
        packs += _packed([[file] for file in _by_size(whole)], rules, flush_last=False)
    return packs


def _lost_much(
    file: DataFileMeta,
    rules: PackRules,
    cardinality: Callable[[str], int | None],
    vectors: Mapping[str, str],
) -> bool:
    if file.file_name not in vectors:
        return False
    removed = cardinality(file.file_name)
    return removed is None or removed > file.row_count * rules.delete_ratio


def _by_size(files: Iterable[DataFileMeta]) -> list[DataFileMeta]:
    return sorted(files, key=lambda file: file.file_size)


def _packed(
    groups: Iterable[Sequence[DataFileMeta]], rules: PackRules, *, flush_last: bool
) -> list[list[DataFileMeta]]:
    """Packs of groups that fill two files; the last may be smaller if `flush_last`."""
    packs: list[list[DataFileMeta]] = []
    pack: list[DataFileMeta] = []
    size = 0
    for group in groups:
        pack.extend(group)
        size += sum(file.file_size + rules.open_cost for file in group)
        if len(pack) > 1 and size >= 2 * rules.target_size:
            packs.append(pack)
            pack, size = [], 0
    if pack and (flush_last or len(pack) >= max(_LEAST_PACK, rules.least_files)):
        packs.append(pack)
    return packs


# The writer of one bucket of an append table: rows in arrival order, no keys, no merging.
#
# Source: SEMANTICS.md §G.5, FORMAT.md §7.1. Rows go straight into data files. In a fixed bucket
# their sequence numbers continue those of the bucket and small files that follow one another are
# merged in place; without buckets every writer counts from 0, and merging small files is a job of
# its own (`append_compact`).


_ACCEPTED = (RowKind.INSERT.value, RowKind.UPDATE_AFTER.value)


class AppendWriter:
    """Takes rows of one bucket in arrival order and turns them into files.

    Protocol: as `MergeTreeWriter`. Files are kept in the order of their rows.

    Args:
        context: the bucket and its ports.
        restored_files: live files of the bucket, any order; none without buckets.
        compaction: whether small files are merged at the end of a commit interval.
        deletions: deletion vectors of the restored files; None on tables without any. Files
            that are rewritten lose their deleted rows and their vectors.
    """

    def __init__(
        self,
        context: BucketContext,
        restored_files: Sequence[DataFileMeta],
        *,
        compaction: bool = True,
        deletions: BucketVectors | None = None,
    ) -> None:
        options = context.options
        self._context = context
        self._compacts = compaction and not options.write_only
        self._target_size = DataFileOptions.of(options).target_file_size
        self._names = DataFileNames(context.id_source)
        self._deletions = deletions
        self._next_sequence = 1 + max((f.max_sequence_number for f in restored_files), default=-1)
        self._candidates = sorted(restored_files, key=lambda file: file.min_sequence_number)
        self._rows: RowFileWriter | None = None
        self._new_files: list[DataFileMeta] = []
        self._files_before: dict[str, DataFileMeta] = {}
        self._files_after: dict[str, DataFileMeta] = {}

    def skip_sequence_numbers(self, count: int) -> None:
        """Leave numbers to other writers of this bucket whose rows come before this one's."""
        self._next_sequence += count

    def write(self, batch: pa.RecordBatch) -> None:
        """Take rows.

        Args:
            batch: value columns and `_VALUE_KIND`, all of this bucket, in arrival order.

        Raises:
            InvalidRequestError: a row is no insert, a NOT NULL column holds null, or a value
                does not fit.
            StorageUnavailableError: the store failed.
        """
        context = self._context
        kinds, columns = accept_rows(batch, context.schema, context.options)
        _check_kinds(kinds)
        if len(kinds) == 0:
            return
        rows = pa.RecordBatch.from_arrays(columns, schema=context.schema.arrow_schema)
        if self._rows is None:
            self._rows = _open_files(context, self._names, self._next_sequence, FileSource.APPEND)
        self._rows.write(rows)
        self._next_sequence += rows.num_rows

    def flush(self) -> None:
        """Finish the open file."""
        if self._rows is None:
            return
        writer, self._rows = self._rows, None
        try:
            files = writer.close()
        except BaseException:
            writer.abort()
            raise
        self._new_files.extend(files)
        self._candidates.extend(files)

    def compact(self, *, full: bool = False) -> bool:
        """Flush, then merge small files; also for a writer that does not compact by itself.

        Args:
            full: all files from the first small one on, if most of them are small; otherwise
                `compaction.min.file-num` neighbours at a time.

        Returns:
            Whether any file was rewritten.
        """
        self.flush()
        return self._compact_all() if full else self._compact_while_due()

    def prepare_commit(self, identifier: int | None = None) -> CommitMessage:
        """Flush, merge small files, and hand over what changed.

        Args:
            identifier: of the commit, on which periodic full compactions depend; None = of no
                stream.
        """
        self.flush()
        if self._compacts and merges_everything(self._context.options, identifier):
            self.compact(full=True)
        elif self._compacts:
            self._compact_while_due()
        change = None if self._deletions is None else self._deletions.without(self._files_before)
        message = compaction_message(
            self._context,
            self._files_before.values(),
            self._files_after.values(),
            self._new_files,
            change,
        )
        self._new_files, self._files_before, self._files_after = [], {}, {}
        return message

    def close(self) -> None:
        """Remove files that were not handed over. May be called twice."""
        writer, self._rows = self._rows, None
        if writer is not None:
            writer.abort()
        files = [*self._new_files, *self._files_after.values()]
        self._new_files, self._files_before, self._files_after = [], {}, {}
        self._context.delete_files(files)

    def _compact_while_due(self) -> bool:
        any_compacted = False
        least = self._context.options.compaction_min_file_num
        while True:
            picked, self._candidates = pick_ordered(self._candidates, least, self._target_size)
            if not picked:
                return any_compacted
            self._rewrite(picked)
            any_compacted = True

    def _compact_all(self) -> bool:
        picked = pick_all(
            self._candidates,
            self._target_size,
            deleted=self._deletions,
            force=self._context.options.compaction_force_rewrite_all_files,
        )
        if not picked:
            return False
        chosen = {file.file_name for file in picked}
        self._candidates = [file for file in self._candidates if file.file_name not in chosen]
        self._rewrite(picked)
        return True

    def _rewrite(self, files: Sequence[DataFileMeta]) -> None:
        """Merge files that follow one another; the result takes their place."""
        selections = {} if self._deletions is None else self._deletions.selections(files)
        written = rewrite_files(self._context, files, self._names, selections)
        garbage = []
        for file in files:
            if self._files_after.pop(file.file_name, None) is None:
                self._files_before[file.file_name] = file
            else:
                garbage.append(file)  # created and replaced in one interval: never committed
        self._files_after.update((file.file_name, file) for file in written)
        self._context.delete_files(garbage)
        if written and written[-1].file_size < self._target_size:
            self._candidates.append(written[-1])
            self._candidates.sort(key=lambda file: file.min_sequence_number)


def rewrite_files(
    context: BucketContext,
    files: Sequence[DataFileMeta],
    names: DataFileNames,
    selections: Mapping[str, RowSelection],
    source: FileSource = FileSource.COMPACT,
) -> tuple[DataFileMeta, ...]:
    """Rewrite the rows of files, one after another; no file if no row is left.

    Args:
        files: in the order of their rows; the first gives the first sequence number.
        selections: which rows of a file to write, by name; of other files all.
    """
    rows = read_files(context, files, selections)
    return write_files(context, rows, names, files[0].min_sequence_number, source)


def read_files(
    context: BucketContext,
    files: Iterable[DataFileMeta],
    selections: Mapping[str, RowSelection],
    columns: Sequence[str] | None = None,
) -> Iterator[pa.RecordBatch]:
    """Selected rows in the order of the files, or some of their columns.

    Args:
        selections: per file name the rows to read; all rows of files without one.
    """
    for file in files:
        yield from read_rows(
            context.file_io,
            file.external_path or context.path_of(file),
            file,
            context.schemas(file.schema_id),
            context.schema,
            columns,
            batch_rows=BATCH_ROWS,
            selection=selections.get(file.file_name),
        )


def write_files(
    context: BucketContext,
    batches: Iterable[pa.RecordBatch],
    names: DataFileNames,
    first_sequence: int,
    source: FileSource = FileSource.COMPACT,
) -> tuple[DataFileMeta, ...]:
    """New files with rows in their order."""
    writer = _open_files(context, names, first_sequence, source)
    try:
        for batch in batches:
            writer.write(batch)
        return writer.close()
    except BaseException:
        writer.abort()
        raise


def _open_files(
    context: BucketContext, names: DataFileNames, first_sequence: int, source: FileSource
) -> RowFileWriter:
    return RowFileWriter(
        context.file_io,
        context.directory,
        context.schema,
        id_source=context.id_source,
        clock=context.clock,
        options=DataFileOptions.of(context.options),
        names=names,
        first_sequence=first_sequence,
        source=source,
    )


def compaction_message(
    context: BucketContext,
    before: Iterable[DataFileMeta],
    after: Iterable[DataFileMeta],
    new: Iterable[DataFileMeta] = (),
    change: IndexChange | None = None,
) -> CommitMessage:
    """The message of files added to a bucket, and of files that compaction replaced.

    Args:
        change: of deletion vectors; None: none.
    """
    vectors = change or IndexChange()
    return CommitMessage(
        partition=context.partition,
        bucket=context.bucket,
        total_buckets=context.options.bucket,
        data=DataIncrement(new_files=tuple(new)),
        compact=CompactIncrement(
            compact_before=tuple(before),
            compact_after=tuple(after),
            new_index_files=vectors.new,
            deleted_index_files=vectors.deleted,
        ),
    )


def _check_kinds(kinds: pa.Array) -> None:
    values = kinds.to_numpy(zero_copy_only=False)
    wrong = np.flatnonzero(~np.isin(values, _ACCEPTED))
    if len(wrong):
        kind = RowKind(int(values[wrong[0]]))
        raise InvalidRequestError(
            "Append-only writer can only accept insert or update_after row kind, but current row "
            f"kind is: {kind.short}",
            hint="You can configure 'ignore-delete' to ignore retract records, or give the table "
            "a primary key",
            row=int(wrong[0]),
        )


class BucketWriter(Protocol):
    """What `TableWrite` needs of the writer of a bucket; see `MergeTreeWriter` for the protocol."""

    def write(self, batch: pa.RecordBatch) -> None:
        """Take rows in arrival order."""

    def skip_sequence_numbers(self, count: int) -> None:
        """Leave numbers to other writers of the bucket."""

    def compact(self, *, full: bool = False) -> bool:
        """Flush, then compact; whether anything was."""

    def prepare_commit(self, identifier: int | None = None) -> CommitMessage:
        """Flush and hand over what changed."""

    def close(self) -> None:
        """Remove files that were not handed over."""


def open_bucket(
    table: TableCore,
    partition: bytes,
    bucket: int,
    snapshot: Snapshot | None,
    *,
    compaction: bool = True,
    commit_user: str = "",
) -> BucketWriter:
    """A writer of one bucket that continues from its live files in a snapshot.

    Args:
        partition: framed.
        snapshot: None: the bucket is taken to be empty.
        commit_user: who will commit; names postponed files.

    Raises:
        InvalidRequestError: the partition was written with another number of buckets.
        UnsupportedFeatureError: tables of this kind, or an option, cannot be written.
    """
    if bucket == POSTPONE_BUCKET:
        _require(table)
        live = () if snapshot is None else live_files(table, snapshot, partition, bucket)
        return PostponeWriter(bucket_context(table, partition, bucket), commit_user, live)
    if table.schema.primary_keys:
        return open_merge_tree_writer(table, partition, bucket, snapshot, compaction=compaction)
    mode = _require(table)
    context = bucket_context(table, partition, bucket)
    if mode is BucketMode.UNAWARE:
        # without buckets, a writer does not know the existing files and never compacts
        return AppendWriter(context, (), compaction=False)
    entries = _live_entries(table, partition, bucket, snapshot)
    return AppendWriter(
        context,
        tuple(entry.file for entry in entries),
        compaction=compaction,
        deletions=_vectors(table, partition, bucket, snapshot),
    )


def open_merge_tree_writer(
    table: TableCore,
    partition: bytes,
    bucket: int,
    snapshot: Snapshot | None,
    *,
    compaction: bool = True,
) -> MergeTreeWriter:
    """As `open_bucket`, for a table with a primary key."""
    mode = _require(table)
    if not table.schema.primary_keys or mode is BucketMode.POSTPONE:
        raise InvalidRequestError("not possible for a table of this bucket mode", mode=mode.value)
    entries = _live_entries(table, partition, bucket, snapshot)
    files = tuple(entry.file for entry in entries)
    context = bucket_context(table, partition, bucket)
    vectors = _vectors(table, partition, bucket, snapshot)
    context = dataclasses.replace(context, deletions=vectors)
    if table.options.needs_lookup:
        lookup = BucketLookup(context, process_store())
        context = dataclasses.replace(context, lookup=lookup)
    return MergeTreeWriter(context, files, compaction=compaction)


def bucket_context(table: TableCore, partition: bytes, bucket: int) -> BucketContext:
    """What the writer of a bucket works with."""
    return BucketContext(
        file_io=table.file_io,
        layout=table.layout,
        schema=table.schema,
        options=table.options,
        partition=partition,
        partition_path=table.partition_path(partition),
        bucket=bucket,
        schemas=table.schemas.read,
        clock=table.clock,
        id_source=table.ids,
    )


def _vectors(
    table: TableCore, partition: bytes, bucket: int, snapshot: Snapshot | None
) -> BucketVectors | None:
    """The deletion vectors of a bucket; None on a table without any."""
    if not table.options.deletion_vectors_enabled:
        return None
    return BucketVectors.of(table, snapshot, partition, bucket)


def _require(table: TableCore) -> BucketMode:
    require_writable(table.options)
    return require_buckets(table.schema, table.options)


def _live_entries(
    table: TableCore, partition: bytes, bucket: int, snapshot: Snapshot | None
) -> list[ManifestEntry]:
    if snapshot is None:
        return []
    entries = live_entries(table, snapshot, partition=partition, bucket=bucket)
    live = entries or live_entries(table, snapshot, partition=partition)
    _check_bucket_count(table, (entry for entry in live if entry.bucket != POSTPONE_BUCKET))
    return entries


def _check_bucket_count(table: TableCore, entries: Iterable[ManifestEntry]) -> None:
    count = table.options.bucket
    for entry in entries:
        if entry.total_buckets != count:
            path = table.partition_path(entry.partition)
            scope = f"partition {path}" if path else "table"
            raise InvalidRequestError(
                f"Try to write {scope} with a new bucket num {count}, but the previous bucket num "
                f"is {entry.total_buckets}. Please switch to batch mode, and perform INSERT "
                "OVERWRITE to rescale current data layout first.",
                hint="overwrite the partition with its own rows, or set `bucket` back",
                table=table.layout.root,
            )
