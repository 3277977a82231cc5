# SPDX-License-Identifier: Apache-2.0
"""Whether the column-wise decoding path and the reference path make the same of a connector's
messages."""

from typing import Any

import pyarrow as pa

from tests.unit.ingest.captured_events import Capture
from tests.unit.ingest.captured_sink import CapturedSink
from tests.unit.ingest.every_way import by_columns, by_reference

__all__ = ["assert_paths_agree", "rows_of"]


def assert_paths_agree(capture: Capture) -> int:
    """Rows, refusals, counts and schemas of all messages; the number of rows."""
    with by_columns():
        fast = CapturedSink().take(capture)
    with by_reference():
        reference = CapturedSink().take(capture)
    assert fast.counts == reference.counts
    assert [(t, b.offset, b.error) for t, b in fast.bad] == [
        (t, b.offset, b.error) for t, b in reference.bad
    ]
    assert fast.schemas == reference.schemas
    assert fast.changes.keys() == reference.changes.keys()
    count = 0
    for name, changes in fast.changes.items():
        for one, other in zip(changes, reference.changes[name], strict=True):
            assert rows_of(one.rows) == rows_of(other.rows)
            count += one.rows.num_rows
    return count


def rows_of(rows: pa.RecordBatch) -> dict[str, list[Any]]:
    """Values of each column."""
    return {name: _values(rows.column(name)) for name in rows.schema.names}


def _values(column: pa.Array) -> list[Any]:
    """Python values that can be compared: NaN as text, moments of any year as numbers."""
    kind = column.type
    if pa.types.is_list(kind) and pa.types.is_date(kind.value_type):
        column = column.cast(pa.list_(pa.int32()))
    elif pa.types.is_floating(kind):
        column = column.cast(pa.string())
    elif pa.types.is_date(kind):
        column = column.cast(pa.int32())
    elif pa.types.is_timestamp(kind):
        column = column.cast(pa.int64())
    return list(column.to_pylist())
