# SPDX-License-Identifier: Apache-2.0
"""Deletes that no record asked for, as rows of a source task."""

import pyarrow as pa

from ingest.decode.events import OFFSET_COLUMN
from storage.format.types.types import VALUE_KIND, RowKind
from storage.table.table import FileStoreTable

__all__ = ["as_deletes"]

_FIELDS = (pa.field(VALUE_KIND, pa.int8(), False), pa.field(OFFSET_COLUMN, pa.int64(), False))


def as_deletes(table: FileStoreTable, rows: pa.RecordBatch, offset: int) -> pa.RecordBatch:
    """Rows of a table as change rows that delete them, all at one offset.

    Args:
        table: the table.
        rows: its columns by name, maybe others too.
        offset: where they stand in the order of the partition.
    """
    own = table.schema.arrow_schema
    count = rows.num_rows
    kinds = pa.repeat(pa.scalar(int(RowKind.DELETE), pa.int8()), count)
    offsets = pa.repeat(pa.scalar(offset, pa.int64()), count)
    columns = [rows.column(name) for name in own.names]
    return pa.RecordBatch.from_arrays(
        [*columns, kinds, offsets], schema=pa.schema([*own, *_FIELDS])
    )
