# SPDX-License-Identifier: Apache-2.0
"""The columns of a system table, declared as text, and its Arrow table from one dictionary per row.

Rows here are objects of metadata: one per snapshot, file or bucket, never one per row of data.
"""

from collections.abc import Iterable, Mapping
from typing import Any

import pyarrow as pa

from storage.clock import local_of_epoch_ms
from storage.format.metadata.snapshot import Snapshot
from storage.table.core import TableCore
from storage.table.scan.time_travel import chosen_snapshot

__all__ = ["local_time", "schema_of", "shown_snapshot", "table_of"]

_VECTOR = pa.struct(
    [
        pa.field("f0", pa.string(), nullable=False),
        pa.field("f1", pa.int32(), nullable=False),
        pa.field("f2", pa.int32(), nullable=False),
        pa.field("_CARDINALITY", pa.int64()),
    ]
)
_TYPES = {
    "boolean": pa.bool_(),
    "int": pa.int32(),
    "long": pa.int64(),
    "text": pa.string(),
    "time": pa.timestamp("ms"),  # TIMESTAMP(3): a wall clock without zone
    "texts": pa.list_(pa.field("element", pa.string())),
    "vectors": pa.list_(pa.field("element", _VECTOR)),
}


def schema_of(declared: str) -> pa.Schema:
    """The columns of a table: `name type`, separated by commas; `type?` where it may be null."""
    pairs = (column.split() for column in declared.split(","))
    return pa.schema(
        [pa.field(name, _TYPES[type_.rstrip("?")], type_.endswith("?")) for name, type_ in pairs]
    )


def table_of(schema: pa.Schema, rows: Iterable[Mapping[str, Any]]) -> pa.Table:
    """A table of rows that are given as values by column; a column that a row lacks is null."""
    return pa.Table.from_pylist([dict(row) for row in rows], schema=schema)


def local_time(epoch_ms: int | None) -> int | None:
    """A moment [epoch ms] as Java shows it: the wall clock of the machine's zone."""
    return None if epoch_ms is None else local_of_epoch_ms(epoch_ms)


def shown_snapshot(table: TableCore) -> Snapshot | None:
    """The snapshot that the table's options choose, else the newest; None when there is none."""
    return chosen_snapshot(table)[0]
