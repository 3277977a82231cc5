# SPDX-License-Identifier: Apache-2.0
"""The quarantine table: records that could not be decoded, kept whole.

`bad.records.table` is an ordinary primary-key table on (topic, topic_epoch, partition, offset), so
a replayed batch writes the same rows again and nothing is counted twice. Columns that later
versions brought stand at the end; the daemon adds them to a table of an earlier version at start.
"""

from collections.abc import Sequence

import orjson
import pyarrow as pa

from ingest.decode.events import OFFSET_COLUMN, OWN_TABLE_OPTION, BadRecord
from storage.format.metadata.schema import TableSchema, new_schema
from storage.format.metadata.schema_changes import AddColumn
from storage.format.types.types import MAX_LENGTH, VALUE_KIND, AtomicType, DataType, TypeRoot

__all__ = ["NEW", "REPLAYED", "missing_columns", "quarantine_rows", "quarantine_schema"]

NEW = "new"
"""State of a record that was neither replayed nor dropped."""

REPLAYED = "replayed"
"""State of a record that a replay brought in."""

_LAST_MS = 253_402_300_800_000
"""The first moment of the year 10000 [epoch ms], which many readers do not support."""

_STRING = AtomicType(TypeRoot.VARCHAR, length=MAX_LENGTH)
_BYTES = AtomicType(TypeRoot.VARBINARY, length=MAX_LENGTH)
_INT = AtomicType(TypeRoot.INT)
_BIGINT = AtomicType(TypeRoot.BIGINT)
_INSTANT = AtomicType(TypeRoot.TIMESTAMP_LTZ, precision=3)

_COLUMNS: tuple[tuple[str, DataType], ...] = (
    ("topic", _STRING),
    ("topic_epoch", _INT),
    ("partition", _INT),
    ("offset", _BIGINT),
    ("timestamp", _INSTANT),
    ("key", _BYTES),
    ("value", _BYTES),
    ("headers", _STRING),
    ("error_class", _STRING),
    ("error", _STRING),
    ("batch_id", _BIGINT),
    ("ingested_at", _INSTANT),
    ("state", _STRING),
    ("target", _STRING),
    ("replayed_at", _INSTANT),
)


def quarantine_schema(now_ms: int) -> TableSchema:
    """The schema that the daemon creates the table with."""
    return new_schema(
        _COLUMNS,
        primary_keys=("topic", "topic_epoch", "partition", "offset"),
        partition_keys=(),
        options={"bucket": "1", OWN_TABLE_OPTION: "quarantine"},
        comment="records that Lakeward could not decode",
        now_ms=now_ms,
    )


def missing_columns(schema: TableSchema) -> tuple[AddColumn, ...]:
    """What a quarantine table of an earlier version lacks."""
    have = set(schema.field_names)
    return tuple(AddColumn(name, type_) for name, type_ in _COLUMNS if name not in have)


def quarantine_rows(
    records: Sequence[BadRecord], *, topic: str, partition: int, batch_id: int, time_ms: int
) -> pa.RecordBatch:
    """Bad records of one source partition as change rows of the quarantine table.

    Returns:
        The table's columns, then `_VALUE_KIND` and the order column, in offset order.
    """
    count = len(records)
    instant = pa.timestamp("ms", tz="UTC")
    columns = [
        pa.array([topic] * count, pa.string()),
        pa.array([0] * count, pa.int32()),
        pa.array([partition] * count, pa.int32()),
        pa.array([record.offset for record in records], pa.int64()),
        pa.array([_moment(record) for record in records], pa.int64()).cast(instant),
        pa.array([record.key for record in records], pa.binary()),
        pa.array([record.value for record in records], pa.binary()),
        pa.array([_headers_json(record) for record in records], pa.string()),
        pa.array([record.error_class for record in records], pa.string()),
        pa.array([_storable(record.error) for record in records], pa.string()),
        pa.array([batch_id] * count, pa.int64()),
        pa.array([time_ms] * count, pa.int64()).cast(instant),
        pa.array([NEW] * count, pa.string()),
        pa.array([record.target or None for record in records], pa.string()),
        pa.nulls(count, instant),
        pa.array([0] * count, pa.int8()),
        pa.array([record.offset for record in records], pa.int64()),
    ]
    names = [name for name, _ in _COLUMNS] + [VALUE_KIND, OFFSET_COLUMN]
    return pa.RecordBatch.from_arrays(columns, names=names)


def _moment(record: BadRecord) -> int | None:
    return record.timestamp_ms if 0 <= record.timestamp_ms < _LAST_MS else None


def _storable(text: str) -> str:
    """The text; what is no character of UTF-8 (half of a surrogate pair) escaped."""
    return text.encode("utf-8", "backslashreplace").decode("utf-8")


def _headers_json(record: BadRecord) -> str | None:
    if not record.headers:
        return None
    pairs = [
        [_storable(name), value.decode("utf-8", "backslashreplace")]
        for name, value in record.headers
    ]
    return orjson.dumps(pairs).decode("utf-8")
