# SPDX-License-Identifier: Apache-2.0
"""Postponed rows into real buckets: by a compaction, or immediately by a batch write.

Files are read in the order in which their rows count and written through the writers of the real
buckets, which number and merge them. See `postpone`.
"""

import contextlib
from collections.abc import Iterable, Iterator, Sequence

import pyarrow as pa

from storage.format.metadata.file_meta import CommitMessage, DataFileMeta
from storage.format.metadata.layout import POSTPONE_BUCKET
from storage.format.metadata.snapshot import Snapshot
from storage.table.commit.commit_changes import delete_uncommitted, discarded_on
from storage.table.commit.live_files import live_entries
from storage.table.core import TableCore
from storage.table.write.bucket_writers import BucketWriter, bucket_context, open_bucket
from storage.table.write.postpone import (
    at_buckets,
    batch_buckets,
    bucket_counts,
    compact_increment,
    compaction_buckets,
    in_arrival_order,
    read_postponed,
    removed_by_compaction,
)
from storage.table.write.rows_by_bucket import bucket_groups


def compact_postponed(
    table: TableCore, snapshot: Snapshot, partition: bytes, *, full: bool
) -> list[CommitMessage]:
    """Assign buckets to the postponed rows of a partition, and compact these.

    Args:
        table: a postponed table that may compact (`write-only` = false).
        snapshot: the state to start from.
        partition: framed.
        full: merge every bucket of the partition into its last level; otherwise what is due in
            those that get rows or have level-0 files.

    Returns:
        Messages of one compaction: of the buckets, and of the postponed files it removes. Empty
        when nothing is postponed.
    """
    entries = live_entries(table, snapshot, partition=partition)
    files = in_arrival_order(entries)
    if not files:
        return []
    real = [entry for entry in entries if entry.bucket != POSTPONE_BUCKET]
    buckets = real[0].total_buckets if real else compaction_buckets(table.options, files)
    fixed = at_buckets(table, buckets)
    messages: list[CommitMessage] = []
    with (
        _Writers(fixed, partition, snapshot, compaction=True) as writers,
        discarded_on(fixed, messages),
    ):
        writers.write(read_postponed(bucket_context(table, partition, POSTPONE_BUCKET), files))
        for entry in real:
            if full or entry.file.level == 0:
                writers.open(entry.bucket)
        messages.extend(compact_increment(fixed, message) for message in writers.prepare(full=full))
    return [*messages, removed_by_compaction(partition, files)]


def into_buckets(
    table: TableCore,
    staged: Sequence[CommitMessage],
    snapshot: Snapshot | None,
    *,
    overwrite: bool = False,
) -> list[CommitMessage]:
    """Assign real buckets to rows that a batch has just postponed, before they are committed.

    Rows that were postponed by earlier commits stay as they are. Nothing is compacted.

    Args:
        table: a postponed table.
        staged: not committed, in the order in which their rows count. Their files are removed.
        snapshot: the state that the commit builds on.

    Returns:
        Messages to commit instead.
    """
    files: dict[bytes, list[DataFileMeta]] = {}
    for message in staged:
        files.setdefault(message.partition, []).extend(message.data.new_files)
    counts = bucket_counts(table, snapshot)
    if overwrite and table.options.postpone_default_bucket_num is not None:
        counts = {}
    messages: list[CommitMessage] = []
    with discarded_on(table, messages), contextlib.ExitStack() as stack:
        for partition, metas in sorted(files.items()):
            buckets = counts.get(partition) or batch_buckets(table.options, metas)
            fixed = at_buckets(table, buckets)
            base = None if overwrite else snapshot
            writers = stack.enter_context(_Writers(fixed, partition, base, compaction=False))
            writers.write(read_postponed(bucket_context(table, partition, POSTPONE_BUCKET), metas))
            messages.extend(writers.prepare())
    delete_uncommitted(table, staged)
    return messages


class _Writers:
    """The writers of the real buckets of one partition. A context manager.

    Args:
        table: with the number of buckets of the partition.
        partition: framed.
        snapshot: the state to continue from; None: empty.
    """

    def __init__(
        self,
        table: TableCore,
        partition: bytes,
        snapshot: Snapshot | None,
        *,
        compaction: bool,
    ) -> None:
        self._table = table
        self._partition = partition
        self._snapshot = snapshot
        self._compaction = compaction
        self._writers: dict[int, BucketWriter] = {}

    def __enter__(self) -> "_Writers":
        return self

    def __exit__(self, *_: object) -> None:
        for writer in self._writers.values():
            writer.close()

    def open(self, bucket: int) -> BucketWriter:
        if bucket not in self._writers:
            self._writers[bucket] = open_bucket(
                self._table,
                self._partition,
                bucket,
                self._snapshot,
                compaction=self._compaction,
            )
        return self._writers[bucket]

    def write(self, batches: Iterable[pa.RecordBatch]) -> None:
        for batch in batches:
            for _, bucket, rows in bucket_groups(batch, self._table):
                self.open(bucket).write(batch if rows is None else batch.take(pa.array(rows)))

    def prepare(self, *, full: bool = False) -> Iterator[CommitMessage]:
        for _, writer in sorted(self._writers.items()):
            if self._compaction:
                writer.compact(full=full)
            message = writer.prepare_commit()
            if not (message.data.empty and message.compact.empty):
                yield message
