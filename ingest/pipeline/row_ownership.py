# SPDX-License-Identifier: Apache-2.0
"""Assignment of rows to the tasks that write them: what one task of a batch owns of a table.

With fixed buckets, one task owns a bucket. With dynamic buckets, the task that reads and changes
the index owns everything that it covers: a partition, or its share of the keys of a partition
(`dynamic-bucket.assigner-parallelism`), or, if keys move between partitions, the table. With
postponed buckets a task owns a partition. Append tables without buckets need no owner; their rows
are grouped by partition, so that a batch makes few files.
"""

import enum
from collections.abc import Iterator, Sequence

import numpy as np
import pyarrow as pa

from storage.format.metadata.schema import TableSchema
from storage.options.options import TableOptions
from storage.table.bucket_mode import UNAWARE_BUCKET, BucketMode, bucket_mode
from storage.table.table import FileStoreTable
from storage.table.write.dynamic_bucket import AssignerShare
from storage.table.write.rows_by_bucket import (
    bucket_groups,
    key_hashes,
    partition_groups,
    split_codes,
)

ANY_BUCKET = -1
"""Placeholder for a bucket that the writing task determines; less the number of its share."""

_WHOLE_TABLE = b""

Rows = np.ndarray


class RowOwner(enum.Enum):
    """Unit of a table that one task of a batch owns."""

    BUCKET = "a bucket"
    PARTITION = "a partition"
    TABLE = "a table"


def row_owner(table: FileStoreTable) -> RowOwner:
    """Return the unit that one task owns of a table."""
    match bucket_mode(table.schema, table.options):
        case BucketMode.FIXED if table.schema.primary_keys:
            return RowOwner.BUCKET
        case BucketMode.CROSS_PARTITION:
            return RowOwner.TABLE
        case _:
            return RowOwner.PARTITION


def merge_keys(table: FileStoreTable) -> Sequence[str]:
    """Return the columns that identify a row within one task."""
    if row_owner(table) is RowOwner.TABLE:
        return table.schema.primary_keys
    return table.schema.trimmed_primary_keys


def has_one_writer(schema: TableSchema, options: TableOptions) -> bool:
    """Return whether one task of a batch writes all rows of a table."""
    match bucket_mode(schema, options):
        case BucketMode.FIXED:
            return options.bucket == 1 and not schema.partition_keys
        case BucketMode.CROSS_PARTITION:
            return True
        case _:
            return not schema.partition_keys and len(_shares(schema, options)) == 1


def share_of(table: FileStoreTable, bucket: int) -> AssignerShare:
    """The share of the keys of a partition that the owner of a placeholder bucket assigns."""
    shares = _shares(table.schema, table.options)
    # a share of one is all of it: what this task does not own, another task may write
    return shares[ANY_BUCKET - bucket] if len(shares) > 1 else AssignerShare()


def _shares(schema: TableSchema, options: TableOptions) -> Sequence[AssignerShare]:
    dynamic = bucket_mode(schema, options) is BucketMode.DYNAMIC
    # where a commit must compact what it wrote, one task has to have all of a bucket
    if not dynamic or options.needs_lookup:
        return (AssignerShare(),)
    return AssignerShare.all_of(options)


def rows_by_owner(
    rows: pa.RecordBatch, table: FileStoreTable
) -> Iterator[tuple[bytes, int, Rows | None]]:
    """Group rows by the task that writes them.

    Yields:
        (framed partition, bucket, ascending row indices; None = all rows).
    """
    match row_owner(table):
        case RowOwner.BUCKET:
            yield from bucket_groups(rows, table)
        case RowOwner.TABLE:
            yield _WHOLE_TABLE, ANY_BUCKET, None
        case RowOwner.PARTITION:
            bucket = ANY_BUCKET if table.schema.primary_keys else UNAWARE_BUCKET
            shares = _shares(table.schema, table.options)
            for partition, indices in partition_groups(rows, table):
                if len(shares) == 1:
                    yield partition, bucket, indices
                    continue
                part = rows if indices is None else rows.take(pa.array(indices))
                numbers = shares[0].numbers_of(partition, key_hashes(part, table))
                for number, positions in split_codes(numbers.astype(np.int64)):
                    if indices is not None:
                        positions = indices if positions is None else indices[positions]
                    yield partition, ANY_BUCKET - number, positions
