# SPDX-License-Identifier: Apache-2.0
"""Which task of a batch writes a row: what one task owns of a table.

Where the bucket follows from the row, a bucket has one task. Where an index finds it, the task that
reads and changes the index owns all it speaks of: a partition, or, where keys move between
partitions, the table. Append tables without buckets need no owner; their rows stay together by
partition, so that a batch makes few files.
"""

import enum
from collections.abc import Iterator, Sequence

import numpy as np
import pyarrow as pa

from storage.format.metadata.schema import TableSchema
from storage.options.options import TableOptions
from storage.table.bucket_mode import UNAWARE_BUCKET, BucketMode, bucket_mode
from storage.table.table import FileStoreTable
from storage.table.write.rows_by_bucket import bucket_groups, partition_groups

__all__ = ["ANY_BUCKET", "Owner", "in_one_task", "merged_by", "owner_of", "placed"]

ANY_BUCKET = -1
"""Stands for the bucket of rows whose task finds it."""

_WHOLE_TABLE = b""

Rows = np.ndarray


class Owner(enum.Enum):
    """What one task of a batch owns."""

    BUCKET = "a bucket"
    PARTITION = "a partition"
    TABLE = "a table"


def owner_of(table: FileStoreTable) -> Owner:
    """What one task owns of a table."""
    match bucket_mode(table.schema, table.options):
        case BucketMode.FIXED if table.schema.primary_keys:
            return Owner.BUCKET
        case BucketMode.CROSS_PARTITION:
            return Owner.TABLE
        case _:
            return Owner.PARTITION


def merged_by(table: FileStoreTable) -> Sequence[str]:
    """The columns by which rows of one task are one and the same."""
    if owner_of(table) is Owner.TABLE:
        return table.schema.primary_keys
    return table.schema.trimmed_primary_keys


def in_one_task(schema: TableSchema, options: TableOptions) -> bool:
    """Whether one task of a batch writes all rows of a table."""
    match bucket_mode(schema, options):
        case BucketMode.FIXED:
            return options.bucket == 1 and not schema.partition_keys
        case BucketMode.CROSS_PARTITION:
            return True
        case _:
            return not schema.partition_keys


def placed(rows: pa.RecordBatch, table: FileStoreTable) -> Iterator[tuple[bytes, int, Rows | None]]:
    """Cut rows by the task that writes them.

    Yields:
        (framed partition, bucket, ascending row indices; None = all rows).
    """
    match owner_of(table):
        case Owner.BUCKET:
            yield from bucket_groups(rows, table)
        case Owner.TABLE:
            yield _WHOLE_TABLE, ANY_BUCKET, None
        case Owner.PARTITION:
            bucket = ANY_BUCKET if table.schema.primary_keys else UNAWARE_BUCKET
            for partition, indices in partition_groups(rows, table):
                yield partition, bucket, indices
