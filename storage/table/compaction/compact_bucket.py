# SPDX-License-Identifier: Apache-2.0
"""Compacting one bucket for a dedicated compaction; runs in whatever thread or process.

Nothing is visible until the message is committed. The state compacted is that of the newest
snapshot, in the newest schema: a file written in a schema that this process does not know yet
would lose its new columns. So the snapshot is taken first, and the schema after it.
"""

import contextlib
import dataclasses

from storage.errors import NotFoundError
from storage.format.metadata.file_meta import CommitMessage, DataFileMeta
from storage.format.metadata.snapshot import Snapshot
from storage.table.commit.live_files import live_entries
from storage.table.compaction.append_compact import merge_packs
from storage.table.compaction.compact_plan import BucketWork
from storage.table.read.lost_files import judging_losses
from storage.table.table import FileStoreTable
from storage.table.write.append_write import BucketDeletions
from storage.table.write.bucket_writers import bucket_context, open_bucket

__all__ = ["BucketOutcome", "compact_bucket"]


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class BucketOutcome:
    """What became of one piece of work.

    Attributes:
        work: the piece.
        message: to commit; None when there is nothing to.
        stale: its files were taken away meanwhile: start over from the newest snapshot.
        read_files: files merged or moved.
        read_bytes: of the files that were rewritten [bytes].
        written_files: files that take their place.
        written_bytes: of the files that were written [bytes].
        changelog_rows: rows of the changelog files.
        seconds: wall time [s].
    """

    work: BucketWork
    message: CommitMessage | None = None
    stale: bool = False
    read_files: int = 0
    read_bytes: int = 0
    written_files: int = 0
    written_bytes: int = 0
    changelog_rows: int = 0
    seconds: float = 0.0


def compact_bucket(table: FileStoreTable, work: BucketWork, *, full: bool) -> BucketOutcome:
    """Compact one bucket as it is now.

    Args:
        table: the table; its dynamic options hold.
        work: which bucket, or which files.
        full: merge everything into the last level; otherwise only what is due.

    Raises:
        StorageUnavailableError: the store failed; what was written is removed.
        CorruptDataError: a file is damaged, or missing of the newest snapshot.
        UnsupportedFeatureError: the table cannot be compacted.
    """
    began = table.clock.monotonic_s()
    try:
        message = _compacted(table, work, full=full)
    except (FileNotFoundError, NotFoundError):  # expired while it was read
        return BucketOutcome(work=work, stale=True, seconds=table.clock.monotonic_s() - began)
    seconds = table.clock.monotonic_s() - began
    if message is None or message.compact.empty:
        return BucketOutcome(work=work, seconds=seconds)
    increment = message.compact
    moved = {file.file_name for file in increment.compact_before}
    moved &= {file.file_name for file in increment.compact_after}
    return BucketOutcome(
        work=work,
        message=message,
        read_files=len(increment.compact_before),
        read_bytes=_size(increment.compact_before, moved),
        written_files=len(increment.compact_after),
        written_bytes=_size(increment.compact_after, moved),
        changelog_rows=sum(file.row_count for file in increment.changelog_files),
        seconds=seconds,
    )


def _size(files: tuple[DataFileMeta, ...], without: set[str]) -> int:
    return sum(file.file_size for file in files if file.file_name not in without)


def _compacted(table: FileStoreTable, work: BucketWork, *, full: bool) -> CommitMessage | None:
    snapshot = table.latest_snapshot()
    if snapshot is None:
        return None
    newest = _with_buckets(table.latest(), work.total_buckets)
    with judging_losses(newest, snapshot.id):
        if work.pack is not None:
            return _packed(newest, snapshot, work, work.pack)
        writer = open_bucket(newest, work.partition, work.bucket, snapshot, compaction=True)
        with contextlib.closing(writer):
            writer.compact(full=full)
            return writer.prepare_commit()


def _with_buckets(table: FileStoreTable, total_buckets: int) -> FileStoreTable:
    """The table as its files were written, also where `bucket` was changed since."""
    if table.options.bucket == total_buckets:
        return table
    options = {**table.schema.options, "bucket": str(total_buckets)}
    return dataclasses.replace(table, schema=dataclasses.replace(table.schema, options=options))


def _packed(
    table: FileStoreTable, snapshot: Snapshot, work: BucketWork, pack: tuple[str, ...]
) -> CommitMessage | None:
    entries = live_entries(table, snapshot, partition=work.partition, bucket=work.bucket)
    live = {entry.file.file_name: entry.file for entry in entries}
    if any(name not in live for name in pack):
        raise NotFoundError("files of a planned compaction are gone", files=len(pack))
    deletions = BucketDeletions.of(table, snapshot, work.partition, work.bucket)
    context = bucket_context(table, work.partition, work.bucket)
    return merge_packs(table, context, [[live[name] for name in pack]], deletions)
