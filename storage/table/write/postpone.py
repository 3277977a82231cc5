# SPDX-License-Identifier: Apache-2.0
"""Postponed buckets (`bucket` = -2): rows are appended as they come, compaction assigns buckets.

Source: SEMANTICS.md §G.4. A writer puts rows into files of the bucket -2 of their partition, in the
order of arrival, unmerged, in Avro and without statistics; readers of rows do not see them. A
compaction replays the files of a partition into real buckets, whose number is that of the partition
or, at first, that of the options: rows count in order of arrival, across writers.

Files are replayed by their creation times, as Java does. Here these grow strictly along the
commits that a writer builds on and along the files of one commit, so that neither clocks that
differ between machines nor one that was set back change which row is the newest.
"""

import dataclasses
import re
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import TypeVar

import msgspec
import numpy as np
import pyarrow as pa

from storage.errors import FileConflictError, UnsupportedFeatureError
from storage.format.avro.schema import schema_text
from storage.format.files.data_file import (
    DataFileOptions,
    KeyValueFileWriter,
    key_value_schema,
    read_key_values,
)
from storage.format.metadata.file_meta import (
    CommitMessage,
    CompactIncrement,
    DataFileMeta,
    DataIncrement,
    ManifestEntry,
)
from storage.format.metadata.layout import POSTPONE_BUCKET
from storage.format.metadata.snapshot import Snapshot
from storage.format.types.types import VALUE_KIND, RowKind
from storage.lsm.bucket import BucketContext
from storage.lsm.merge import merge_rows
from storage.lsm.merge_functions import merge_function_for
from storage.lsm.write_rules import accept_rows
from storage.options.options import TableOptions
from storage.table.commit.commit_changes import folded_files
from storage.table.commit.live_files import live_entries
from storage.table.core import TableCore

_Table = TypeVar("_Table", bound=TableCore)
_RETRACTS = [kind.value for kind in RowKind if kind.retracts]
_WRITE_IDS = 1 << 31


class PostponeWriter:
    """Writer of the postponed bucket of a partition; a `BucketWriter`.

    Args:
        commit_user: who commits; part of the names of the files.
        live: files of the bucket in the snapshot that the commit builds on.
    """

    def __init__(
        self, context: BucketContext, commit_user: str, live: Iterable[DataFileMeta]
    ) -> None:
        self._context = context
        self._newest_ms = newest_creation(live)
        self._options = _file_options(context, commit_user)
        self._arrow_schema = key_value_schema(context.schema)
        self._function = merge_function_for(context.options, context.schema)
        self._files: KeyValueFileWriter | None = None
        self._rows = 0
        self._retracts_checked = False

    def write(self, batch: pa.RecordBatch) -> None:
        """Append rows.

        Raises: as `MergeTreeWriter.write`; also for deletes that the merge engine does not take,
            at which a compaction would fail.
        """
        kinds, columns = accept_rows(batch, self._context.schema, self._context.options)
        if not len(kinds):
            return
        # numbers local to the file: a compaction renumbers the rows
        sequence = pa.array(np.arange(self._rows, self._rows + len(kinds), dtype=np.int64))
        self._rows += len(kinds)
        rows = pa.RecordBatch.from_arrays([sequence, kinds, *columns], schema=self._arrow_schema)
        self._check_retracts(rows, kinds)
        if self._files is None:
            self._files = KeyValueFileWriter(
                self._context.file_io,
                self._context.directory,
                self._context.schema,
                id_source=self._context.id_source,
                clock=self._context.clock,
                options=self._options,
            )
        self._files.write(rows)

    def skip_sequence_numbers(self, count: int) -> None:
        """Do nothing: creation times give the order."""

    def compact(self, *, full: bool = False) -> bool:
        """Do nothing: `compact_table` gives the rows buckets."""
        return False

    def prepare_commit(self, identifier: int | None = None) -> CommitMessage:
        """Finish the files and hand them over."""
        writer, self._files = self._files, None
        files = () if writer is None else writer.close()
        files = tuple(in_commit_order(files, self._newest_ms))
        self._newest_ms = newest_creation(files, self._newest_ms)
        return _postponed(self._context.partition, DataIncrement(new_files=files))

    def close(self) -> None:
        """Remove files that were not handed over."""
        writer, self._files = self._files, None
        if writer is not None:
            writer.abort()

    def _check_retracts(self, rows: pa.RecordBatch, kinds: pa.Array) -> None:
        """Run the merge function on one delete of an existing row."""
        if self._retracts_checked:
            return
        positions = np.flatnonzero(np.isin(kinds.to_numpy(zero_copy_only=False), _RETRACTS))
        if len(positions):
            retract = rows.slice(int(positions[0]), 1)
            kind = retract.schema.get_field_index(VALUE_KIND)
            added = pa.array([RowKind.INSERT.value], pa.int8())
            add = retract.set_column(kind, retract.schema.field(kind), added)
            merge_rows([add, retract], self._context.key_names, self._function)
            self._retracts_checked = True


def _file_options(context: BucketContext, commit_user: str) -> DataFileOptions:
    """How postponed files are written, under names that identify their writer."""
    options = DataFileOptions.of(context.options, level=0)
    # other engines find the write id between the first "-s-" and the next hyphen
    user = re.sub(r"[^\w.-]|-(?=s-)", "_", commit_user)
    write_id = int(context.id_source.uuid().replace("-", ""), 16) % _WRITE_IDS
    file_format = "avro"
    try:
        schema_text(context.schema.fields)
    except UnsupportedFeatureError:
        file_format = options.file_format
    return dataclasses.replace(
        options,
        file_format=file_format,
        stats_mode="none",
        field_stats_modes={},
        indexes=(),
        prefix=f"{options.prefix}-u-{user}-s-{write_id}-w-",
    )


def newest_creation(files: Iterable[DataFileMeta], least: int = -1) -> int:
    """The latest creation time of files [ms]."""
    return max((file.creation_time_ms or 0 for file in files), default=least)


def in_commit_order(files: Iterable[DataFileMeta], after_ms: int) -> Iterator[DataFileMeta]:
    """The files with creation times that grow strictly in their order, from after a time [ms]."""
    for file in files:
        after_ms = max(file.creation_time_ms or 0, after_ms + 1)
        yield msgspec.structs.replace(file, creation_time_ms=after_ms)


def in_arrival_order(entries: Iterable[ManifestEntry]) -> list[DataFileMeta]:
    """The postponed files among live ones, in the order in which their rows count."""
    files = (entry.file for entry in entries if entry.bucket == POSTPONE_BUCKET)
    return sorted(files, key=lambda file: file.creation_time_ms or 0)


def at_buckets(table: _Table, buckets: int) -> _Table:
    """The table as one with a fixed number of buckets; nothing is stored."""
    if table.options.bucket == buckets:
        return table
    options = {**table.schema.options, "bucket": str(buckets)}
    return dataclasses.replace(table, schema=dataclasses.replace(table.schema, options=options))


def bucket_counts(table: TableCore, snapshot: Snapshot | None) -> dict[bytes, int]:
    """Number of real buckets of each partition (framed) that has any."""
    if snapshot is None:
        return {}
    entries = live_entries(table, snapshot)
    return {entry.partition: entry.total_buckets for entry in entries if entry.bucket >= 0}


def compaction_buckets(options: TableOptions, files: Sequence[DataFileMeta]) -> int:
    """How many buckets a compaction gives a partition that has none yet."""
    return options.postpone_default_bucket_num or _estimated(options, files)


def batch_buckets(options: TableOptions, files: Sequence[DataFileMeta]) -> int:
    """How many buckets a batch write gives a partition that has none yet."""
    if options.postpone_default_bucket_num is not None:
        return options.postpone_default_bucket_num
    most = options.postpone_batch_write_fixed_bucket_max_parallelism
    return min(most, 1 << (_estimated(options, files) - 1).bit_length())


def _estimated(options: TableOptions, files: Sequence[DataFileMeta]) -> int:
    rows = options.postpone_target_row_num_per_bucket
    if rows is not None:
        return max(1, -(-sum(file.row_count for file in files) // rows))
    size = sum(file.file_size for file in files)
    return max(1, -(-size // options.postpone_target_size_per_bucket))


def read_postponed(
    context: BucketContext, files: Iterable[DataFileMeta]
) -> Iterator[pa.RecordBatch]:
    """Rows of postponed files as KeyValueBatches, in the current schema."""
    for file in files:
        path = file.external_path or context.path_of(file)
        yield from read_key_values(
            context.file_io, path, file, context.schemas(file.schema_id), context.schema
        )


def compact_increment(table: TableCore, message: CommitMessage) -> CommitMessage:
    """The message with all its files as the result of a compaction: one snapshot brings them."""
    before, after = folded_files(table, message)
    data, compact = message.data, message.compact
    return dataclasses.replace(
        message,
        data=DataIncrement(),
        compact=CompactIncrement(
            compact_before=before,
            compact_after=after,
            changelog_files=(*data.changelog_files, *compact.changelog_files),
            new_index_files=(*data.new_index_files, *compact.new_index_files),
            deleted_index_files=(*data.deleted_index_files, *compact.deleted_index_files),
        ),
    )


def removed_by_compaction(partition: bytes, files: Sequence[DataFileMeta]) -> CommitMessage:
    """The part of a compaction that removes postponed files."""
    compact = CompactIncrement(compact_before=tuple(files))
    return dataclasses.replace(_postponed(partition, DataIncrement()), compact=compact)


def _postponed(partition: bytes, data: DataIncrement) -> CommitMessage:
    return CommitMessage(
        partition=partition, bucket=POSTPONE_BUCKET, total_buckets=POSTPONE_BUCKET, data=data
    )


def require_bucket_counts(
    table: TableCore, messages: Iterable[CommitMessage]
) -> Callable[[Snapshot | None], None]:
    """A check before publication that no partition got another number of buckets.

    The check raises:
        FileConflictError: another writer assigned the buckets of a partition first.
    """
    expected = {m.partition: m.total_buckets for m in messages if m.bucket >= 0}

    def check(latest: Snapshot | None) -> None:
        counts = bucket_counts(table, latest)
        for partition, buckets in expected.items():
            if counts.get(partition, buckets) != buckets:
                raise FileConflictError(
                    "another writer gave the partition its buckets first",
                    hint="write the rows again",
                    table=table.layout.root,
                    partition=table.partition_path(partition),
                    buckets=counts[partition],
                    wanted=buckets,
                )

    return check
