# SPDX-License-Identifier: Apache-2.0
"""`$audit_log`, `$binlog`, `$ro`: other views of the rows of a table.

Source: SEMANTICS.md §I. `audit_log` and `binlog` of a batch read are the merged rows, with keys
that end in a retraction shown as such until compaction has dropped them. Reads of changes put
their batches, with `_VALUE_KIND` (and `_SEQUENCE_NUMBER`), through `audit_log_batch` and
`binlog_batches`. Data plane: no Python object per row.
"""

import functools
from collections.abc import Iterable, Iterator, Sequence

import numpy as np
import pyarrow as pa

from storage.errors import UnsupportedFeatureError
from storage.format.types.types import SEQUENCE_NUMBER, VALUE_KIND, RowKind
from storage.table.core import TableCore
from storage.table.read.read import TableRead
from storage.table.scan.predicate import Predicate
from storage.table.scan.scan import TableScan
from storage.table.scan.time_travel import is_incremental

ROW_KIND = "rowkind"


def audit_log_schema(table: TableCore) -> pa.Schema:
    """Arrow schema of `$audit_log`: the kind, perhaps the sequence number, then the columns."""
    return pa.schema([*_system_fields(table), *table.schema.arrow_schema])


def binlog_schema(table: TableCore) -> pa.Schema:
    """Arrow schema of `$binlog`: as `$audit_log`, with each column a list of images."""
    images = [_images(field) for field in table.schema.arrow_schema]
    return pa.schema([*_system_fields(table), *images])


def audit_log_batch(table: TableCore, batch: pa.RecordBatch) -> pa.RecordBatch:
    """Rows of `$audit_log`.

    Args:
        batch: columns of the table with `_VALUE_KIND`, and `_SEQUENCE_NUMBER` where it is shown.
    """
    schema = audit_log_schema(table)
    names = [name for name in schema.names if name != ROW_KIND]
    return pa.RecordBatch.from_arrays(
        [kind_texts().take(batch.column(VALUE_KIND)), *(batch.column(name) for name in names)],
        schema=schema,
    )


def binlog_batches(
    table: TableCore, batches: Iterable[pa.RecordBatch], *, pairs: bool = True
) -> Iterator[pa.RecordBatch]:
    """Rows of `$binlog`; a -U and the row after it become one row with both images.

    Args:
        batches: as for `audit_log_batch`, in the order of the changes.
        pairs: whether to pack pairs, as reads of changes do.
    """
    pending: pa.RecordBatch | None = None
    for batch in batches:
        if pending is not None:
            batch = pa.concat_batches([pending, batch])
            pending = None
        if not batch.num_rows:
            continue
        first = _first_of_pairs(batch) if pairs else np.zeros(batch.num_rows, np.bool_)
        if first[-1]:
            pending = batch.slice(batch.num_rows - 1)
            batch, first = batch.slice(0, batch.num_rows - 1), first[:-1]
        if batch.num_rows:
            yield _packed(table, batch, first)
    if pending is not None:
        yield _packed(table, pending, np.zeros(1, np.bool_))


def audit_log_table(table: TableCore, predicate: Predicate | None = None) -> pa.Table:
    """The merged rows with their kinds.

    Args:
        table: the table; its options choose the snapshot.
        predicate: rows wanted, by the table's own columns; None = all.
    """
    batches = (audit_log_batch(table, batch) for batch in _rows(table, predicate))
    return pa.Table.from_batches(batches, schema=audit_log_schema(table))


def binlog_table(table: TableCore, predicate: Predicate | None = None) -> pa.Table:
    """The merged rows, each with one image; of changes those of one update together."""
    batches = binlog_batches(table, _rows(table, predicate), pairs=is_incremental(table))
    return pa.Table.from_batches(batches, schema=binlog_schema(table))


def read_optimized_scan(table: TableCore) -> TableScan:
    """A scan that needs no merging: of a primary-key table only the files of the top level."""
    scan = TableScan(table)
    return scan.with_min_level(table.options.num_levels - 1) if table.schema.primary_keys else scan


def read_optimized_table(
    table: TableCore, columns: Sequence[str] | None = None, predicate: Predicate | None = None
) -> pa.Table:
    """`$ro`: what was fully compacted, which may lag behind.

    Args:
        table: the table; its options choose the snapshot.
        columns: in the order wanted; None = all.
        predicate: rows wanted; None = all.
    """
    plan = read_optimized_scan(table).with_filter(predicate).plan()
    return TableRead(table, columns, predicate).to_table(plan)


def refuse_streaming_read_optimized(table: TableCore) -> None:
    """Refuse to follow `$ro` of a primary-key table as a stream.

    Raises:
        UnsupportedFeatureError: the table has a primary key.
    """
    if table.schema.primary_keys:
        raise UnsupportedFeatureError(
            "Unsupported streaming scan for read optimized table",
            hint="follow the table itself",
            table=table.layout.root,
        )


def _rows(table: TableCore, predicate: Predicate | None) -> Iterator[pa.RecordBatch]:
    read = TableRead(table, None, predicate, sequence_numbers=True, retractions=True)
    splits = TableScan(table).with_filter(predicate).splits()
    yield from read.to_table(splits).to_batches()


def _system_fields(table: TableCore) -> list[pa.Field]:
    fields = [pa.field(ROW_KIND, pa.string())]
    if shows_sequence_numbers(table):
        fields.append(pa.field(SEQUENCE_NUMBER, pa.int64(), nullable=False))
    return fields


def shows_sequence_numbers(table: TableCore) -> bool:
    """Whether rows are shown with their sequence numbers."""
    return table.options.table_read_sequence_number and bool(table.schema.primary_keys)


def _images(field: pa.Field) -> pa.Field:
    return pa.field(field.name, pa.list_(pa.field("element", field.type)))


@functools.cache
def kind_texts() -> pa.Array:
    """The texts of kinds, by kind.

    Not made at import: the first array of Python objects imports pandas, which takes a second.
    """
    return pa.array([kind.short for kind in sorted(RowKind)], pa.string())


def _first_of_pairs(batch: pa.RecordBatch) -> np.ndarray:
    """Rows that are packed with the row after them; of several -U in a row every second."""
    before = batch.column(VALUE_KIND).to_numpy() == RowKind.UPDATE_BEFORE
    at = np.arange(len(before))
    last_other = np.maximum.accumulate(np.where(before, -1, at))
    first: np.ndarray = before & ((at - last_other - 1) % 2 == 0)
    return first


def _packed(table: TableCore, batch: pa.RecordBatch, first: np.ndarray) -> pa.RecordBatch:
    """One row per change: `first` rows are packed with their successors."""
    second = np.zeros(len(first), np.bool_)
    second[1:] = first[:-1]
    starts = np.flatnonzero(~second).astype(np.int32)
    offsets = pa.array(np.append(starts, np.int32(batch.num_rows)), pa.int32())
    last = pa.array(np.append(starts[1:], batch.num_rows) - 1)
    schema = binlog_schema(table)
    arrays = []
    for field in schema:
        if field.name == ROW_KIND:
            arrays.append(kind_texts().take(batch.column(VALUE_KIND).take(last)))
        elif field.name == SEQUENCE_NUMBER:
            arrays.append(batch.column(field.name).take(pa.array(starts)))
        else:
            column = batch.column(field.name)
            arrays.append(pa.ListArray.from_arrays(offsets, column, type=field.type))
    return pa.RecordBatch.from_arrays(arrays, schema=schema)
