# SPDX-License-Identifier: Apache-2.0
"""Adding the file indexes that the options configure to live data files, without rewriting rows.

Source: the `rewrite_file_index` procedure (SEMANTICS.md §J), names from FORMAT.md §1.3. A data
file stays as it is; a COMPACT snapshot replaces its metadata by one that references another index,
and fails if the file is compacted concurrently.
"""

import dataclasses
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

import msgspec

from storage.format.files.data_file import read_rows
from storage.format.index.builder import FileIndexBuilder, FileIndexSpec, check_file_indexes
from storage.format.index.container import encode_container, read_container
from storage.format.metadata.file_meta import (
    CommitMessage,
    CompactIncrement,
    DataFileMeta,
    DataIncrement,
    ManifestEntry,
)
from storage.format.metadata.layout import POSTPONE_BUCKET
from storage.format.metadata.schema import TableSchema
from storage.format.metadata.snapshot import BATCH_COMMIT_IDENTIFIER, Snapshot
from storage.options.options import require_writable
from storage.table.commit.commit import Attempt, CommitResult, FileStoreCommit, run_until_committed
from storage.table.commit.live_files import live_entries
from storage.table.core import TableCore
from storage.table.scan.file_index import INDEX_SUFFIX, index_file_of, index_source, reads_as_stored
from storage.table.uncommitted import discarded_on
from storage.table.write.overwritten import partition_matcher

_NUMBERED = re.compile(r"(.*-)(\d+)\Z", re.DOTALL)
_TRIES = 3

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

    committed = run_until_committed(table, prepare, attempts=_TRIES)
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
