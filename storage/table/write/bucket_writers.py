# SPDX-License-Identifier: Apache-2.0
"""Opening the writer of one bucket, by the kind of table, from the state of a snapshot."""

import dataclasses
from collections.abc import Iterable
from typing import Protocol

import pyarrow as pa

from storage.errors import InvalidRequestError
from storage.format.metadata.file_meta import CommitMessage, ManifestEntry
from storage.format.metadata.layout import POSTPONE_BUCKET
from storage.format.metadata.snapshot import Snapshot
from storage.lsm.bucket import BucketContext
from storage.lsm.lookup.bucket_lookup import BucketLookup
from storage.lsm.lookup.store import process_store
from storage.lsm.merge_tree_writer import MergeTreeWriter
from storage.options.options import require_writable
from storage.table.bucket_mode import BucketMode, require_buckets
from storage.table.commit.live_files import live_entries, live_files
from storage.table.core import TableCore
from storage.table.read.deletion_vectors import BucketVectors
from storage.table.write.append_write import AppendWriter
from storage.table.write.postpone import PostponeWriter


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
