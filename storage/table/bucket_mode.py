# SPDX-License-Identifier: Apache-2.0
"""How rows of a table find their bucket. Source: SEMANTICS.md §G. Pure."""

import enum

from storage.errors import InvalidOptionError, UnsupportedFeatureError
from storage.format.metadata.layout import POSTPONE_BUCKET
from storage.format.metadata.schema import TableSchema
from storage.options.options import TableOptions

UNAWARE_BUCKET = 0
"""The one bucket of an append table without buckets."""


class BucketMode(enum.Enum):
    """The kinds of tables by what decides on the bucket of a row."""

    FIXED = "fixed"
    """A hash of the bucket key."""

    UNAWARE = "unaware"
    """Nothing: an append table without buckets."""

    DYNAMIC = "dynamic"
    """The HASH index of the partition: where the key went first."""

    CROSS_PARTITION = "cross-partition"
    """An index of all keys: where the key is now, in whatever partition."""

    POSTPONE = "postpone"
    """A job that compacts, later."""


def bucket_mode(schema: TableSchema, options: TableOptions) -> BucketMode:
    """The mode of a table."""
    if options.bucket == POSTPONE_BUCKET:
        return BucketMode.POSTPONE
    if options.bucket > 0:
        return BucketMode.FIXED
    if not schema.primary_keys:
        return BucketMode.UNAWARE
    if set(schema.partition_keys) <= set(schema.primary_keys):
        return BucketMode.DYNAMIC
    return BucketMode.CROSS_PARTITION


def check_bucket_keys(schema: TableSchema, options: TableOptions) -> None:
    """Check that `bucket` and the options that go with it fit the keys of the schema.

    Raises:
        InvalidOptionError: they do not.
    """
    if options.bucket == -1 and options.bucket_key:
        raise InvalidOptionError(
            "Cannot define 'bucket-key' with bucket = -1",
            hint="remove `bucket-key`, or give a fixed number of buckets",
            option="bucket-key",
        )
    if options.bucket > 0 and not schema.primary_keys and not options.bucket_key:
        raise InvalidOptionError(
            "You should define a 'bucket-key' for bucketed append mode",
            hint="set `bucket-key`, or `bucket` to -1",
            option="bucket-key",
        )
    if options.bucket == -2 and not schema.primary_keys:
        raise InvalidOptionError(
            "The number of buckets needs to be greater than 0",
            hint="set `bucket-key` and `bucket`, or `bucket` to -1",
            option="bucket",
        )
    mode = bucket_mode(schema, options)
    if mode is BucketMode.CROSS_PARTITION and options.sequence_field:
        raise InvalidOptionError(
            "You can not use sequence.field in cross partition update case "
            "(Primary key constraint does not include all partition fields)",
            option="sequence.field",
        )


def require_buckets(schema: TableSchema, options: TableOptions) -> BucketMode:
    """The mode of a table that is to be written.

    Raises:
        InvalidOptionError: `bucket` does not fit the keys.
    """
    check_bucket_keys(schema, options)
    return bucket_mode(schema, options)


def require_fixed(schema: TableSchema, options: TableOptions, who: str) -> None:
    """Check that the bucket of a row follows from the row alone.

    Args:
        who: cannot do without, for the message.

    Raises:
        UnsupportedFeatureError: it does not.
    """
    mode = require_buckets(schema, options)
    if mode not in (BucketMode.FIXED, BucketMode.UNAWARE):
        raise UnsupportedFeatureError(
            f"{who} needs a bucket computed from the row alone",
            hint="write through `FileStoreTable.new_write`, or set `bucket` to a number",
            option="bucket",
            value=options.bucket,
            mode=mode.value,
        )


def require_keyed_buckets(schema: TableSchema, options: TableOptions) -> None:
    """Check for a table with a primary key and a fixed number of buckets, as the stream writes.

    Raises:
        UnsupportedFeatureError: it is of another kind.
    """
    mode = require_buckets(schema, options)
    if not schema.primary_keys:
        raise UnsupportedFeatureError(
            "the buckets of a table without a primary key cannot be written one by one",
            hint="write through `FileStoreTable.new_write`, or give the table a primary key",
        )
    if mode is not BucketMode.FIXED:
        raise UnsupportedFeatureError(
            "this value of a table option is not implemented for writing bucket by bucket",
            detail="an index or a compaction assigns the rows' buckets",
            hint="set `bucket` to a number greater than 0, or write through "
            "`FileStoreTable.new_write`",
            option="bucket",
            value=options.bucket,
        )
