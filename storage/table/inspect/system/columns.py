# SPDX-License-Identifier: Apache-2.0
"""Making the Arrow table of a system table from one dictionary per row.

Rows here are objects of metadata: one per snapshot, file or bucket, never one per row of data.
"""

from collections.abc import Iterable, Mapping
from typing import Any

import pyarrow as pa

from storage.clock import local_of_epoch_ms
from storage.format.metadata.snapshot import Snapshot
from storage.table.core import TableCore
from storage.table.scan.time_travel import chosen_snapshot

__all__ = ["BOOLEAN", "INT", "LONG", "TEXT", "TIME", "columns", "local_time", "shown_snapshot"]

BOOLEAN, INT, LONG, TEXT = pa.bool_(), pa.int32(), pa.int64(), pa.string()
TIME = pa.timestamp("ms")
"""TIMESTAMP(3): a wall clock without zone."""


def columns(
    required: Mapping[str, pa.DataType], rows: Iterable[Mapping[str, Any]], *, nullable: str = ""
) -> pa.Table:
    """A table of some columns.

    Args:
        required: type of each column, in order.
        rows: values by column.
        nullable: names of the columns that may be null, separated by blanks.
    """
    optional = frozenset(nullable.split())
    fields = [pa.field(name, type_, name in optional) for name, type_ in required.items()]
    return pa.Table.from_pylist([dict(row) for row in rows], schema=pa.schema(fields))


def local_time(epoch_ms: int | None) -> int | None:
    """A moment [epoch ms] as Java shows it: the wall clock of the machine's zone."""
    return None if epoch_ms is None else local_of_epoch_ms(epoch_ms)


def shown_snapshot(table: TableCore) -> Snapshot | None:
    """The snapshot that the table's options choose, else the newest; None when there is none."""
    return chosen_snapshot(table)[0]
