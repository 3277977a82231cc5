# SPDX-License-Identifier: Apache-2.0
"""Rows that several tasks wrote before their buckets were known.

Where no task sees all rows of a key (a Spark job whose rows are not shuffled by key), tasks stage
their rows as files of the postponed bucket, and the committing process assigns their buckets: in
the order of the tasks, through the index of a table with dynamic buckets, into the real buckets of
a postponed table, or as postponed rows.
"""

import dataclasses
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import TypeVar

import numpy as np
import pyarrow as pa

from storage.format.metadata.file_meta import CommitMessage
from storage.format.metadata.layout import POSTPONE_BUCKET
from storage.table.bucket_mode import BucketMode, bucket_mode
from storage.table.commit.live_files import live_files
from storage.table.core import TableCore
from storage.table.uncommitted import delete_uncommitted, discarded_on
from storage.table.write.bucket_writers import bucket_context
from storage.table.write.dynamic_bucket import AssignerShare
from storage.table.write.postpone import (
    at_buckets,
    in_commit_order,
    newest_creation,
    read_postponed,
)
from storage.table.write.replay import into_buckets
from storage.table.write.rows_by_bucket import key_hashes
from storage.table.write.write import TableWrite

Table = TypeVar("Table", bound=TableCore)


def is_staged(table: TableCore) -> bool:
    """Whether tasks that do not see all rows of a key must stage them."""
    return bucket_mode(table.schema, table.options) in (BucketMode.DYNAMIC, BucketMode.POSTPONE)


def staging(table: Table) -> Table:
    """The table as tasks write it."""
    return at_buckets(table, POSTPONE_BUCKET)


def place_staged(
    table: TableCore,
    staged: Sequence[CommitMessage],
    *,
    overwrite: bool = False,
    batch: bool = True,
) -> list[CommitMessage]:
    """Assign buckets to staged rows; the messages are to be committed.

    Args:
        staged: of writers of `staging(table)`, in the order in which their rows count. Their files
            are removed, unless the rows stay postponed.
    """
    if bucket_mode(table.schema, table.options) is BucketMode.DYNAMIC:
        return _assigned(table, staged, overwrite=overwrite)
    snapshot = table.latest_snapshot()
    if batch and table.options.postpone_batch_write_fixed_bucket:
        return into_buckets(table, staged, snapshot, overwrite=overwrite)
    newest: dict[bytes, int] = {}
    placed = []
    for message in staged:
        partition = message.partition
        if partition not in newest:
            live = (
                () if snapshot is None else live_files(table, snapshot, partition, POSTPONE_BUCKET)
            )
            newest[partition] = newest_creation(live)
        files = tuple(in_commit_order(message.data.new_files, newest[partition]))
        newest[partition] = newest_creation(files, newest[partition])
        data = dataclasses.replace(message.data, new_files=files)
        placed.append(dataclasses.replace(message, data=data))
    return placed


def _assigned(
    table: TableCore, staged: Sequence[CommitMessage], *, overwrite: bool
) -> list[CommitMessage]:
    """Messages of buckets that the indexes of partitions assign, with one thread per share."""
    shares = AssignerShare.all_of(table.options)
    messages: list[CommitMessage] = []
    with discarded_on(table, messages), ThreadPoolExecutor(len(shares), "assigner") as pool:
        futures = [
            pool.submit(_of_share, table, staged, share, overwrite=overwrite) for share in shares
        ]
        for future in futures:
            messages += future.result()
    delete_uncommitted(table, staged)
    return messages


def _of_share(
    table: TableCore, staged: Sequence[CommitMessage], share: AssignerShare, *, overwrite: bool
) -> list[CommitMessage]:
    """The messages of one assigner: of the staged rows with its keys."""
    with TableWrite(table, "staged", compaction=False, overwrite=overwrite, share=share) as writer:
        for message in staged:
            context = bucket_context(table, message.partition, POSTPONE_BUCKET)
            for batch in read_postponed(context, message.data.new_files):
                writer.write(_owned_rows(batch, table, message.partition, share))
        return writer.prepare_commit()


def _owned_rows(
    batch: pa.RecordBatch, table: TableCore, partition: bytes, share: AssignerShare
) -> pa.RecordBatch:
    if share.channels == 1:
        return batch
    numbers = share.numbers_of(partition, key_hashes(batch, table))
    return batch.take(pa.array(np.flatnonzero(numbers == share.number)))
