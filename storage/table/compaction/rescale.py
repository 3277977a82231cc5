# SPDX-License-Identifier: Apache-2.0
"""Changing the number of buckets of a table, and redistributing its rows.

Source: SEMANTICS.md §F.15. First option `bucket` changes, then each partition is rewritten by one
OVERWRITE commit, which fails if another writer changed the partition meanwhile; it is then read
again. So rows of other writers are never lost, and an interrupted rescale is finished by the next.
Partitions that still have the old number can be read, not written; a writer that opened the table
before fails at its commit (`publish`) and must reopen the table.

Rows are written as they are read: merged, with new sequence numbers. No changelog is emitted; where
compaction emits it, or reads omit rows that are not compacted, everything is compacted first.
For a table with postponed buckets no option changes, and postponed rows stay as they are.
"""

import dataclasses
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import msgspec
import pyarrow as pa

from storage.errors import CommitConflictError, FileConflictError, InvalidRequestError
from storage.format.files.data_file import INDEX_SUFFIX, read_rows
from storage.format.index.builder import (
    FileIndexBuilder,
    FileIndexSpec,
    check_file_indexes,
    encode_container,
    read_container,
)
from storage.format.metadata.file_meta import (
    CommitMessage,
    CompactIncrement,
    DataFileMeta,
    DataIncrement,
    ManifestEntry,
)
from storage.format.metadata.layout import POSTPONE_BUCKET
from storage.format.metadata.schema import TableSchema
from storage.format.metadata.schema_changes import SetOption
from storage.format.metadata.snapshot import BATCH_COMMIT_IDENTIFIER, Snapshot
from storage.options.options import require_writable
from storage.table.bucket_mode import BucketMode, bucket_mode
from storage.table.commit.commit import Attempt, CommitResult, FileStoreCommit, run_until_committed
from storage.table.commit.commit_changes import discarded_on, folded_files
from storage.table.commit.live_files import index_entries, live_entries
from storage.table.compaction.compact_table import WRITER_OPTIONS, CompactRequest, compact_table
from storage.table.core import TableCore
from storage.table.scan.file_index import index_file_of, index_source, reads_as_stored
from storage.table.scan.scan import Split
from storage.table.table import FileStoreTable
from storage.table.write.drop_partitions import PartitionFiles, live_partitions
from storage.table.write.overwritten import partition_matcher
from storage.table.write.postpone import at_buckets, bucket_counts

_TRIES = 5


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class RescaledPartition:
    """A partition that has, or had, another number of buckets.

    Attributes:
        files: its live files.
        before: number of its buckets.
        buckets: target number.
    """

    files: PartitionFiles
    before: int
    buckets: int


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class RescaleProgress:
    """Progress of a rescale.

    Attributes:
        partitions: number to rewrite.
        done: number rewritten.
        rows: number to rewrite, before merging.
        done_rows: number read.
        retries: how often a partition changed concurrently and was read again.
    """

    partitions: int
    done: int
    rows: int
    done_rows: int
    retries: int


def rescaled_partitions(
    table: FileStoreTable, buckets: int, partitions: Sequence[Mapping[str, Any]] = ()
) -> list[RescaledPartition]:
    """The partitions that `rescale` would rewrite. Arguments and errors as there."""
    mode = bucket_mode(table.schema, table.options)
    if mode not in (BucketMode.FIXED, BucketMode.POSTPONE):
        raise InvalidRequestError(
            "only a table with a fixed number of buckets can be rescaled",
            hint="dynamic buckets grow by themselves; append tables without buckets have none",
            table=table.layout.root,
            buckets=mode.value,
        )
    if buckets < 1:
        raise InvalidRequestError("a table has at least one bucket", buckets=buckets)
    snapshot = table.latest_snapshot()
    if snapshot is None:
        return []
    before = bucket_counts(table, snapshot)
    return [
        RescaledPartition(files=files, before=before[files.partition], buckets=buckets)
        for files in live_partitions(table, partitions)
        if before.get(files.partition, buckets) != buckets
    ]


def rescale(
    table: FileStoreTable,
    buckets: int,
    partitions: Sequence[Mapping[str, Any]] = (),
    *,
    on_progress: Callable[[RescaleProgress], None] = lambda _: None,
) -> list[RescaledPartition]:
    """Change the number of buckets of a table, and redistribute its rows.

    Args:
        partitions: values of some partition columns each: only partitions that have all values of
            one of them; the others cannot be written until they are rescaled too. Empty: all.

    Raises:
        InvalidRequestError: the table has no fixed number of buckets, the number is not positive,
            or a column is no partition key or cannot have the value.
        CommitConflictError: a partition changed each time it was read; call again.
        As `FileStoreCommit.overwrite`.
    """
    work = rescaled_partitions(table, buckets, partitions)
    if table.options.bucket not in (buckets, POSTPONE_BUCKET):
        table = table.alter([SetOption("bucket", str(buckets))])
    result: list[RescaledPartition] = []
    while work:
        writable = at_buckets(table.with_options(WRITER_OPTIONS), buckets)
        files = [partition.files for partition in work]
        job = PartitionRewrite(writable, files, tuple(partitions), on_progress)
        for partition in files:
            job.partition(partition)
        result += work
        # a writer with the old number may have created a partition meanwhile
        work = rescaled_partitions(table, buckets, partitions)
    return result


class PartitionRewrite:
    """Rewrites partitions, each by an OVERWRITE commit that fails if the partition has changed.

    Args:
        table: may compact; has the target number of buckets.
        partitions: those that are compacted first, where compaction must have seen all rows.
        rows: gives the rows of splits in the order in which they are written; None: as they are.
    """

    def __init__(
        self,
        table: FileStoreTable,
        work: Sequence[PartitionFiles],
        partitions: tuple[Mapping[str, Any], ...],
        on_progress: Callable[[RescaleProgress], None] = lambda _: None,
        rows: Callable[[Sequence[Split]], Iterator[pa.RecordBatch]] | None = None,
    ) -> None:
        self._rows_of = rows or self._as_they_are
        self._partitions = partitions
        self._table = table
        self._work = work
        self._on_progress = on_progress
        self._rows = sum(files.rows for files in work)
        self._snapshot: Snapshot | None = None
        self._splits: dict[bytes, list[Split]] = {}
        self._done_partitions = 0
        self._done_rows = 0
        self._retries = 0

    def partition(self, files: PartitionFiles) -> CommitResult | None:
        """Rewrite a partition.

        Raises:
            CommitConflictError: another writer changed it each time it was read.
        """
        done_rows = self._done_rows

        def lost() -> None:
            self._done_rows, self._snapshot = done_rows, None
            self._retries += 1

        try:
            committed = run_until_committed(
                self._table,
                lambda: self._attempt(files.partition),
                attempts=_TRIES,
                retried=(_ChangedError,),
                on_lost=lost,
            )
        except _ChangedError as error:
            raise CommitConflictError(
                "other writers changed the partition during every attempt",
                hint="pause its writers (`lakeward pause`), then rescale again",
                table=self._table.layout.root,
                partition=files.name,
            ) from error
        self._done_partitions += 1
        self._report_progress()
        return None if committed is None else committed[1]

    def _as_they_are(self, splits: Sequence[Split]) -> Iterator[pa.RecordBatch]:
        read = self._table.new_read()
        for split in splits:
            yield from read.to_batches(split)
            self._done_rows += split.row_count
            self._report_progress()

    def _attempt(self, partition: bytes) -> Attempt:
        """Rewrite a partition from a snapshot in which rows are compacted where they must be."""
        table = self._table
        snapshot = self._snapshot or self._plan()
        if not self._seen_by_compaction(snapshot, partition):
            raise _ChangedError("received rows that are not compacted yet")
        user = f"rescale-{table.ids.uuid()}"
        with table.new_write(user, overwrite=True) as writer:
            for batch in self._rows_of(self._splits.get(partition, ())):
                writer.write(batch)
            writer.compact(full=True)
            messages = [_with_compaction(table, message) for message in writer.prepare_commit()]
        state = _state(table, snapshot, partition)

        def unchanged(latest: Snapshot | None) -> None:
            if latest is None or (
                latest.id != snapshot.id and _state(table, latest, partition) != state
            ):
                raise _ChangedError("the partition changed after it was read")

        return messages, lambda: FileStoreCommit(table, user).overwrite(
            messages,
            BATCH_COMMIT_IDENTIFIER,
            replaces=frozenset([partition]).__contains__,
            before_publish=unchanged,
        )

    def _seen_by_compaction(self, snapshot: Snapshot, partition: bytes) -> bool:
        """Whether all rows of a partition are compacted, where they must be.

        Where compaction emits the changelog, or reads omit other rows, rows would be lost.
        """
        options = self._table.options
        least = 0
        if options.changelog_producer == "full-compaction":
            least = options.num_levels - 1
        elif options.needs_lookup:
            least = 1
        entries = live_entries(self._table, snapshot, partition=partition)
        return all(e.file.level >= least for e in entries if e.bucket != POSTPONE_BUCKET)

    def _plan(self) -> Snapshot:
        """Restart from the newest snapshot, in which rows are compacted where they must be."""
        options = self._table.options
        if options.needs_lookup or options.changelog_producer == "full-compaction":
            with ThreadPoolExecutor(1, "rescale") as worker:
                compact_table(self._table, CompactRequest(partitions=self._partitions), worker)
        snapshot = self._table.latest_snapshot()
        assert snapshot is not None, "there were partitions"
        self._snapshot, self._splits = snapshot, {}
        for split in self._table.new_scan().plan(snapshot).splits:
            self._splits.setdefault(split.partition, []).append(split)
        return snapshot

    def _report_progress(self) -> None:
        self._on_progress(
            RescaleProgress(
                partitions=len(self._work),
                done=self._done_partitions,
                rows=self._rows,
                done_rows=self._done_rows,
                retries=self._retries,
            )
        )


class _ChangedError(FileConflictError):
    """Another writer changed the partition since it was read."""


_State = tuple[frozenset[tuple[int, int, str]], frozenset[tuple[int, str]]]


def _state(table: TableCore, snapshot: Snapshot, partition: bytes) -> _State:
    entries = live_entries(table, snapshot, partition=partition)
    index = index_entries(table, snapshot)
    return (
        frozenset(
            (entry.bucket, entry.file.level, entry.file.file_name)
            for entry in entries
            if entry.bucket != POSTPONE_BUCKET
        ),
        frozenset((o.bucket, o.file.file_name) for o in index if o.partition == partition),
    )


def _with_compaction(table: TableCore, message: CommitMessage) -> CommitMessage:
    """The message with the output of compaction as its new files, so that one commit suffices.

    Between two commits the rows would be in level 0, which some tables do not read.
    """
    _, files = folded_files(table, message)  # of a writer that began with empty buckets
    data = DataIncrement(
        new_files=files,
        new_index_files=(*message.data.new_index_files, *message.compact.new_index_files),
    )
    return dataclasses.replace(message, data=data, compact=CompactIncrement())


# Adding the file indexes that the options configure to live data files, without rewriting rows.
#
# Source: the `rewrite_file_index` procedure (SEMANTICS.md §J), names from FORMAT.md §1.3. A data
# file stays as it is; a COMPACT snapshot replaces its metadata by one that references another
# index, and fails if the file is compacted concurrently.


_NUMBERED = re.compile(r"(.*-)(\d+)\Z", re.DOTALL)
_INDEX_TRIES = 3

_Payloads = dict[str, dict[str, bytes | None]]


def rewrite_file_index(
    table: TableCore,
    partition: Mapping[str, Any] | None = None,
    *,
    rebuild: bool = False,
    on_progress: Callable[[int, int], None] = lambda _done, _of: None,
) -> CommitResult | None:
    """Build the file indexes that files lack, and commit; None when no file lacks an index.

    Existing indexes of a file are kept, also of columns that the options do not name (any more).

    Args:
        table: the table, with the options that configure the indexes.
        partition: values of some partition columns; None = the whole table.
        rebuild: rebuild all configured indexes, as after a change of their settings.
        on_progress: called with files examined, and files to examine.

    Raises:
        InvalidRequestError: a column is no partition key.
        InvalidOptionError: a configured index is not possible.
        UnsupportedFeatureError: the table may not be written.
        CorruptDataError: a file or its index is damaged.
        As `FileStoreCommit.commit`.
    """
    require_writable(table.options)
    specs = FileIndexSpec.of(table.options)
    check_file_indexes(table.schema.fields, table.options)
    matches = partition_matcher(table, partition or {})

    def prepare() -> Attempt | None:
        messages = _messages(table, specs, matches, on_progress, rebuild=rebuild)
        if not messages:
            return None
        commit = FileStoreCommit(table, table.ids.uuid())
        return messages, lambda: commit.commit(messages, BATCH_COMMIT_IDENTIFIER)

    committed = run_until_committed(table, prepare, attempts=_INDEX_TRIES)
    return None if committed is None else committed[1]


def unindexed_files(
    table: TableCore, partition: Mapping[str, Any] | None = None, *, rebuild: bool = False
) -> list[ManifestEntry]:
    """The files that `rewrite_file_index` would build an index of. Arguments as there."""
    specs = FileIndexSpec.of(table.options)
    matches = partition_matcher(table, partition or {})
    snapshot = table.latest_snapshot()
    if snapshot is None:
        return []
    entries = _indexable(table, snapshot, matches)
    return [entry for entry in entries if _lacking(table, entry, specs, rebuild=rebuild)[1]]


def _indexable(
    table: TableCore, snapshot: Snapshot, keeps_partition: Callable[[bytes], bool]
) -> list[ManifestEntry]:
    """The files of some partitions; not postponed ones, which no filter reads."""
    entries = live_entries(table, snapshot)
    return [e for e in entries if keeps_partition(e.partition) and e.bucket != POSTPONE_BUCKET]


def _messages(
    table: TableCore,
    specs: Sequence[FileIndexSpec],
    keeps_partition: Callable[[bytes], bool],
    on_progress: Callable[[int, int], None],
    *,
    rebuild: bool,
) -> list[CommitMessage]:
    snapshot = table.latest_snapshot()
    if snapshot is None or not specs:
        return []
    messages: list[CommitMessage] = []
    with discarded_on(table, messages):
        entries = _indexable(table, snapshot, keeps_partition)
        for number, entry in enumerate(entries, start=1):
            after = _indexed(table, entry, specs, rebuild=rebuild)
            if after is not None:
                messages.append(_message(entry, after))
            on_progress(number, len(entries))
    return messages


def _message(entry: ManifestEntry, after: DataFileMeta) -> CommitMessage:
    return CommitMessage(
        partition=entry.partition,
        bucket=entry.bucket,
        total_buckets=entry.total_buckets,
        data=DataIncrement(),
        compact=CompactIncrement(compact_before=(entry.file,), compact_after=(after,)),
    )


def _indexed(
    table: TableCore, entry: ManifestEntry, specs: Sequence[FileIndexSpec], *, rebuild: bool
) -> DataFileMeta | None:
    """The metadata of a file with the indexes it lacked; None when it lacks none."""
    file, path = entry.file, _path(table, entry)
    schema = table.schemas.read(file.schema_id)
    payloads, lacking = _lacking(table, entry, specs, rebuild=rebuild)
    new_payloads = _built(table, path, file, schema, lacking) if lacking else {}
    if not new_payloads:
        return None
    for column, indexes in new_payloads.items():
        payloads.setdefault(column, {}).update(indexes)
    data = encode_container(payloads)
    old = index_file_of(file)
    extras = tuple(name for name in file.extra_files if name != old)
    if len(data) <= table.options.file_index_threshold:
        return msgspec.structs.replace(file, extra_files=extras, embedded_index=data)
    directory = path.rpartition("/")[0]
    name = next_index_name(file.file_name, old)
    while table.file_io.exists(f"{directory}/{name}"):
        name = next_index_name(file.file_name, name)  # of an attempt that was not committed
    table.file_io.write_bytes(f"{directory}/{name}", data)
    return msgspec.structs.replace(file, extra_files=(*extras, name), embedded_index=None)


def _path(table: TableCore, entry: ManifestEntry) -> str:
    file = entry.file
    return file.external_path or table.data_path(entry.partition, entry.bucket, file.file_name)


def _lacking(
    table: TableCore, entry: ManifestEntry, specs: Sequence[FileIndexSpec], *, rebuild: bool
) -> tuple[_Payloads, list[FileIndexSpec]]:
    """The indexes that a file has, and those it lacks."""
    source = index_source(table.file_io, _path(table, entry), entry.file)
    payloads: _Payloads = {} if source is None else read_container(source).payloads()
    in_file = _in_file(specs, table.schema, table.schemas.read(entry.file.schema_id))
    return payloads, [
        spec for spec in in_file if rebuild or spec.index_type not in payloads.get(spec.name, {})
    ]


def _in_file(
    specs: Sequence[FileIndexSpec], table_schema: TableSchema, stored: TableSchema
) -> Iterator[FileIndexSpec]:
    """Indexes by the column names of a file, without columns it lacks or stores differently."""
    by_id = {field.id: field for field in stored.fields}
    for spec in specs:
        field = table_schema.field(spec.column)
        source = by_id.get(field.id)
        if source is not None and reads_as_stored(source.type, field.type):
            yield dataclasses.replace(spec, column=source.name)


def _built(
    table: TableCore,
    path: str,
    file: DataFileMeta,
    schema: TableSchema,
    specs: Sequence[FileIndexSpec],
) -> _Payloads:
    names = {spec.column for spec in specs}
    fields = [field for field in schema.fields if field.name in names]
    builder = FileIndexBuilder(fields, specs)
    columns = [field.name for field in fields]
    for batch in read_rows(table.file_io, path, file, schema, schema, columns):
        builder.add(batch.columns)
    return builder.payloads()


def next_index_name(data_file: str, last: str | None) -> str:
    """Name of the next index file of a data file.

    `<data file>.index`, then `<data file>-1.index`, `<data file>-2.index` and so on.

    Args:
        last: name of the index file it has; None = it has none.
    """
    if last is None:
        return data_file + INDEX_SUFFIX
    stem = last.removesuffix(INDEX_SUFFIX)
    match = _NUMBERED.match(stem)
    if match is None:
        return f"{stem}-1{INDEX_SUFFIX}"
    return f"{match[1]}{int(match[2]) + 1}{INDEX_SUFFIX}"
