# SPDX-License-Identifier: Apache-2.0
"""The stored rows of some keys, for a writer that must look them up before it writes.

Where the newest row of a key is the row (deduplicate by arrival), keys are searched in local copies
of the data files, newest run first, and nothing is merged: the cost grows with the keys. Elsewhere
the rows of the bucket are read and merged, of a postponed table also those without a bucket.
"""

import dataclasses

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from storage.format.files.data_file import key_value_schema
from storage.format.metadata.layout import POSTPONE_BUCKET
from storage.format.metadata.snapshot import Snapshot
from storage.format.types.types import VALUE_KIND, RowKind
from storage.lsm.key_order import sort_and_group
from storage.lsm.levels import Levels
from storage.lsm.lookup.store import BucketLookup, process_store
from storage.lsm.merge import merge_rows
from storage.lsm.merge_functions import merge_function_for
from storage.table.bucket_mode import BucketMode, bucket_mode
from storage.table.commit.live_files import live_entries
from storage.table.core import TableCore
from storage.table.read.deletion_vectors import BucketVectors
from storage.table.read.read import TableRead
from storage.table.scan.predicate import Between, Predicate
from storage.table.scan.scan import TableScan
from storage.table.write.bucket_writers import bucket_context
from storage.table.write.postpone import in_arrival_order, read_postponed


@dataclasses.dataclass(frozen=True, slots=True)
class StoredRows:
    """Rows found for some of the requested keys.

    Attributes:
        keys: numbers of the keys with a row, ascending.
        rows: their rows in the same order: the columns of the table.
    """

    keys: npt.NDArray[np.int64]
    rows: pa.RecordBatch


def stored_rows(
    table: TableCore,
    snapshot: Snapshot,
    partition: bytes | None,
    bucket: int | None,
    keys: pa.RecordBatch,
) -> StoredRows:
    """The rows that a snapshot holds for keys of one partition, or of the whole table.

    Args:
        table: with a primary key.
        partition: framed; None: keys are in one partition each, any of the table.
        bucket: where the keys are; None: in any bucket of the partition, or in none yet.
        keys: the columns of the trimmed primary key, strictly ascending by key.

    Raises:
        StorageUnavailableError: a file could not be read.
        CorruptDataError: a file violates the format.
    """
    if partition is not None and bucket is not None and _newest_row_wins(table):
        return _searched(table, snapshot, partition, bucket, keys)
    result = _merged(table, snapshot, partition, bucket, keys)
    if partition is None or bucket_mode(table.schema, table.options) is not BucketMode.POSTPONE:
        return result
    return _with_postponed(table, snapshot, partition, keys, result)


def _newest_row_wins(table: TableCore) -> bool:
    options = table.options
    return options.merge_engine == "deduplicate" and not options.sequence_field


def _searched(
    table: TableCore,
    snapshot: Snapshot,
    partition: bytes,
    bucket: int,
    keys: pa.RecordBatch,
) -> StoredRows:
    context = bucket_context(table, partition, bucket)
    if table.options.deletion_vectors_enabled:
        vectors = BucketVectors.of(table, snapshot, partition, bucket)
        context = dataclasses.replace(context, deletions=vectors)
    entries = live_entries(table, snapshot, partition=partition, bucket=bucket)
    levels = Levels.of((entry.file for entry in entries), 1, context.key_of)
    hits = BucketLookup(context, process_store()).find(keys, levels.runs())
    if hits.rows is None:
        return _nothing(table)
    kinds = hits.rows.column(VALUE_KIND).to_numpy()
    alive = np.flatnonzero(~np.isin(kinds, [kind.value for kind in RowKind if kind.retracts]))
    rows = hits.rows.select(list(table.schema.field_names)).take(pa.array(alive))
    return StoredRows(hits.keys[alive], rows)


def _merged(
    table: TableCore,
    snapshot: Snapshot,
    partition: bytes | None,
    bucket: int | None,
    keys: pa.RecordBatch,
) -> StoredRows:
    scan = TableScan(table).with_snapshot(snapshot.id).with_all_levels()
    scan = scan.with_filter(_key_range(keys))
    if bucket is not None:
        scan = scan.with_bucket(bucket)
    names = list(table.schema.trimmed_primary_keys)
    read = TableRead(table)
    numbers: list[npt.NDArray[np.int64]] = []
    parts: list[pa.RecordBatch] = []
    for split in scan.plan().splits:
        if partition is not None and split.partition != partition:
            continue
        for batch in read.to_batches(split):
            indices, positions = _common(keys, batch.select(names), names)
            if len(indices):
                numbers.append(indices)
                parts.append(batch.take(pa.array(positions)))
    if not parts:
        return _nothing(table)
    indices, rows = np.concatenate(numbers), pa.concat_batches(parts)
    order = np.argsort(indices, kind="stable")
    return StoredRows(indices[order], rows.take(pa.array(order)))


def _with_postponed(
    table: TableCore,
    snapshot: Snapshot,
    partition: bytes,
    keys: pa.RecordBatch,
    stored_rows: StoredRows,
) -> StoredRows:
    """The rows that a compaction would leave for the keys."""
    entries = live_entries(table, snapshot, partition=partition, bucket=POSTPONE_BUCKET)
    if not entries:
        return stored_rows
    schema = key_value_schema(table.schema)
    names = list(table.schema.trimmed_primary_keys)
    count = stored_rows.rows.num_rows
    columns = {name: stored_rows.rows.column(name) for name in stored_rows.rows.schema.names}
    system = [pa.nulls(count, pa.int64()), pa.array(np.zeros(count, np.int8))]
    arrays = [*system, *(columns[name] for name in schema.names[len(system) :])]
    parts = [pa.RecordBatch.from_arrays(arrays, schema=schema)]
    context = bucket_context(table, partition, POSTPONE_BUCKET)
    for batch in read_postponed(context, in_arrival_order(entries)):
        matches = has_key(batch.select(names), keys, names)
        parts.append(batch.filter(pa.array(matches)).cast(schema))
    rows = pa.concat_batches(parts)
    rows = rows.set_column(0, schema.field(0), pa.array(np.arange(rows.num_rows)))
    merged = merge_rows(
        [rows], names, merge_function_for(table.options, table.schema), drop_retractions=True
    )
    indices, positions = _common(keys, merged.select(names), names)
    return StoredRows(indices, merged.take(pa.array(positions)).select(table.schema.field_names))


def has_key(rows: pa.RecordBatch, keys: pa.RecordBatch, names: list[str]) -> npt.NDArray[np.bool_]:
    """Which rows have one of some keys; both have the key columns."""
    order, starts, counts = _groups(keys, rows, names)
    of_key = order < keys.num_rows
    in_group = np.add.reduceat(of_key, starts).astype(bool)
    matches = np.zeros(len(order), bool)
    matches[order] = np.repeat(in_group, counts)
    return matches[keys.num_rows :]


def _key_range(keys: pa.RecordBatch) -> Predicate | None:
    """The range of the keys, for those types by which files can be pruned."""
    first = keys.column(0)
    if not keys.num_rows or not (pa.types.is_integer(first.type) or pa.types.is_string(first.type)):
        return None
    ends = pc.min_max(first)
    return Between(keys.schema.names[0], ends["min"].as_py(), ends["max"].as_py())


def _common(
    keys: pa.RecordBatch, other_keys: pa.RecordBatch, names: list[str]
) -> tuple[npt.NDArray[np.int64], npt.NDArray[np.int64]]:
    """Pairs of row numbers with equal keys; keys are distinct on both sides."""
    order, starts, counts = _groups(keys, other_keys, names)
    pairs = starts[counts == 2]
    return order[pairs], order[pairs + 1] - keys.num_rows


def _groups(
    keys: pa.RecordBatch, other_keys: pa.RecordBatch, names: list[str]
) -> tuple[npt.NDArray[np.int64], npt.NDArray[np.int64], npt.NDArray[np.int64]]:
    """Row numbers of keys, then others, sorted by key; start and row count of each key."""
    columns = [
        pa.concat_arrays([pc.cast(keys.column(n), other_keys.column(n).type), other_keys.column(n)])
        for n in names
    ]
    groups = sort_and_group(pa.RecordBatch.from_arrays(columns, names=names), names)
    total = keys.num_rows + other_keys.num_rows
    order = np.arange(total) if groups.order is None else groups.order
    return order, groups.starts, np.diff(np.r_[groups.starts, total])


def _nothing(table: TableCore) -> StoredRows:
    schema = table.schema.arrow_schema
    return StoredRows(np.empty(0, np.int64), pa.RecordBatch.from_pylist([], schema=schema))
