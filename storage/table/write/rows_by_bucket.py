# SPDX-License-Identifier: Apache-2.0
"""Splitting rows by partition and bucket. Data plane: no Python object per row.

Where the bucket follows from the row (fixed buckets, append tables) all is done here; where an
index decides, the index works on the result of `partition_groups`.
"""

from collections.abc import Iterator

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from storage.errors import InvalidRequestError
from storage.format.metadata.file_meta import EMPTY_ROW
from storage.format.row.binary_row import encode_rows, frame
from storage.format.row.bucket import assign_buckets, hash_rows
from storage.lsm.key_order import sort_and_group
from storage.table.bucket_mode import UNAWARE_BUCKET, require_fixed
from storage.table.core import TableCore

Rows = npt.NDArray[np.intp]


def bucket_groups(
    batch: pa.RecordBatch, table: TableCore
) -> Iterator[tuple[bytes, int, Rows | None]]:
    """Split rows by partition and bucket, where the bucket follows from the row.

    Args:
        batch: rows with the partition and bucket-key columns in the table's types, or types
            that can be cast to them.

    Yields:
        (framed partition, bucket, ascending row indices; None = all rows), partitions in order
        of appearance.

    Raises:
        UnsupportedFeatureError: an index decides on the buckets of the table.
        InvalidRequestError: a column is missing.
    """
    require_fixed(table.schema, table.options, "cutting rows by bucket")
    buckets = _buckets(batch, table)
    codes, partitions, _ = partition_codes(batch, table)
    width = int(buckets.max()) + 1
    for code, indices in split_codes(codes * width + buckets):
        yield partitions[code // width], code % width, indices


def by_key(batch: pa.RecordBatch, rows: Rows, table: TableCore) -> pa.RecordBatch:
    """Take rows, in the order of the primary key: the writer need not gather them again."""
    names = table.schema.trimmed_primary_keys
    if names:
        keys = pa.RecordBatch.from_arrays([key_column(batch, name, table) for name in names], names)
        order = sort_and_group(keys.take(pa.array(rows)), names).order
        rows = rows if order is None else rows[order]
    return batch.take(pa.array(rows))


def partition_groups(
    batch: pa.RecordBatch, table: TableCore
) -> Iterator[tuple[bytes, Rows | None]]:
    """Split rows by partition.

    Yields:
        (framed partition, ascending row indices; None = all rows) in order of appearance.
    """
    codes, partitions, _ = partition_codes(batch, table)
    for code, indices in split_codes(codes):
        yield partitions[code], indices


def partition_codes(
    batch: pa.RecordBatch, table: TableCore
) -> tuple[npt.NDArray[np.int64], list[bytes], pa.RecordBatch]:
    """Number the partitions of rows.

    Returns:
        The number of each row's partition, the framed partitions by number (in order of
        appearance), and a row with the values of each.
    """
    schema = table.schema
    names = schema.partition_keys
    if not names:
        nothing = pa.RecordBatch.from_arrays([], names=[])
        return np.zeros(batch.num_rows, np.int64), [EMPTY_ROW], nothing
    types = [schema.field(name).type for name in names]
    columns = [key_column(batch, name, table) for name in names]
    rows = encode_rows(columns, types).dictionary_encode()
    framed = [
        frame(rows.dictionary[code].as_py(), len(names)) for code in range(len(rows.dictionary))
    ]
    codes = rows.indices.to_numpy(zero_copy_only=False).astype(np.int64)
    firsts = np.empty(len(framed), np.int64)
    firsts[codes[::-1]] = np.arange(len(codes) - 1, -1, -1)
    values = pa.RecordBatch.from_arrays(columns, names=list(names)).take(pa.array(firsts))
    return codes, framed, values


def key_column(batch: pa.RecordBatch, name: str, table: TableCore) -> pa.Array:
    """A key column of rows in the type of the table.

    Raises:
        InvalidRequestError: it is missing, or a value does not fit.
    """
    position = batch.schema.get_field_index(name)
    if position < 0:
        raise InvalidRequestError("rows lack a key column", column=name)
    type_ = table.schema.arrow_schema.field(name).type
    column = batch.column(position)
    if column.type == type_:
        return column
    try:
        return column.cast(type_)
    except (pa.ArrowInvalid, pa.ArrowNotImplementedError) as error:
        raise InvalidRequestError(
            "a value does not fit its column",
            detail=str(error),
            column=name,
            expected=type_,
            found=column.type,
        ) from error


def key_hashes(batch: pa.RecordBatch, table: TableCore) -> npt.NDArray[np.int32]:
    """Hashes of the trimmed primary keys of rows, which a HASH index holds."""
    names = table.schema.trimmed_primary_keys
    columns = [key_column(batch, name, table) for name in names]
    return hash_rows(columns, [table.schema.field(name).type for name in names])


def split_codes(codes: npt.NDArray[np.int64]) -> Iterator[tuple[int, Rows | None]]:
    """Group rows by a number, ascending.

    Yields:
        (number, ascending row indices; None = all rows).
    """
    if not len(codes):
        return
    first = int(codes[0])
    if (codes == first).all():
        yield first, None
        return
    if codes.min() >= 0 and codes.max() <= np.iinfo(np.uint16).max:
        codes = codes.astype(np.uint16)  # which numpy sorts by radix
    order = np.argsort(codes, kind="stable")
    ordered = codes[order]
    starts = np.flatnonzero(np.r_[True, ordered[1:] != ordered[:-1]])
    ends = np.r_[starts[1:], len(order)]
    for start, end in zip(starts.tolist(), ends.tolist(), strict=True):
        yield int(ordered[start]), order[start:end]


def _buckets(batch: pa.RecordBatch, table: TableCore) -> npt.NDArray[np.int64]:
    schema, options = table.schema, table.options
    if options.bucket in (-1, 1):
        return np.full(batch.num_rows, UNAWARE_BUCKET, np.int64)
    columns = [key_column(batch, name, table) for name in schema.bucket_keys]
    types = [schema.field(name).type for name in schema.bucket_keys]
    return assign_buckets(columns, types, options.bucket, options.bucket_function).astype(np.int64)
