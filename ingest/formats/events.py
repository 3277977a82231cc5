# SPDX-License-Identifier: Apache-2.0
"""What a decoder gives back: typed change batches, bad records, schema deltas and counts.

Values only; every format (`debezium_json` now) produces them and everything behind the decoder
reads nothing else. Rows of one `DecodeResult` come from one (topic, partition).
"""

import dataclasses
from collections.abc import Callable

import pyarrow as pa

from storage.format.schema import TableSchema
from storage.format.types import DataType

__all__ = [
    "OFFSET_COLUMN",
    "SOURCE_TABLE_OPTION",
    "BadRecord",
    "ChangeBatch",
    "DecodeResult",
    "ObservedField",
    "Resolver",
    "SchemaDelta",
    "SourceTable",
    "Target",
]

OFFSET_COLUMN = "_OFFSET"
"""Last column of `ChangeBatch.rows`: the source offset of each row, int64."""

SOURCE_TABLE_OPTION = "lakeward.source-table"
"""Table option that says which source table fills the table (`SourceTable.label`)."""


@dataclasses.dataclass(frozen=True, slots=True)
class SourceTable:
    """A table of the source database, from the event's `source` block.

    Attributes:
        database: database name; empty when the event names none.
        schema: schema inside the database; empty where the source has none (MySQL).
        table: table name.
    """

    database: str
    schema: str
    table: str

    @property
    def label(self) -> str:
        """`db.schema.table` without the empty parts."""
        return ".".join(part for part in (self.database, self.schema, self.table) if part)


@dataclasses.dataclass(frozen=True, slots=True)
class Target:
    """Where the rows of a source table go.

    Attributes:
        identifier: `db.table`.
        schema: schema to decode with; None = the table does not exist yet.
        evolvable: whether records that the schema does not cover may ask for a schema change; if
            not they are bad records.
    """

    identifier: str
    schema: TableSchema | None
    evolvable: bool = True


Resolver = Callable[[SourceTable, str], Target | None]
"""(source table, topic) to its target; None = the table is not wanted, its records are counted."""


@dataclasses.dataclass(frozen=True, slots=True)
class ObservedField:
    """A column as the source shows it; the type is nullable."""

    name: str
    type: DataType


@dataclasses.dataclass(frozen=True, slots=True)
class SchemaDelta:
    """A shape that the target's schema does not cover.

    Attributes:
        target: `db.table`.
        source: where it was seen.
        topic: topic of the record.
        fields: columns in event order: all of them when the table is missing, otherwise those that
            are new or need a wider type.
        primary_key: column names, in key order.
        offset: of the first record of that shape.
    """

    target: str
    source: SourceTable
    topic: str
    fields: tuple[ObservedField, ...]
    primary_key: tuple[str, ...]
    offset: int


@dataclasses.dataclass(frozen=True, slots=True)
class BadRecord:
    """A record that cannot be decoded, whole, for quarantine.

    Attributes:
        offset: in its partition.
        timestamp_ms: of the record [epoch ms], -1 = none.
        key: raw key.
        value: raw value.
        headers: in order.
        error_class: one word for metrics (`ingest.formats.debezium_json` lists them).
        error: for people; names the column where one is to blame.
    """

    offset: int
    timestamp_ms: int
    key: bytes | None
    value: bytes | None
    headers: tuple[tuple[str, bytes], ...]
    error_class: str
    error: str


@dataclasses.dataclass(frozen=True, slots=True)
class ChangeBatch:
    """Typed changes of one table.

    Attributes:
        target: `db.table`.
        schema_id: of the schema that the columns follow.
        rows: the table's columns in schema order, then `_VALUE_KIND` int8 and `_OFFSET` int64; in
            offset order. A change of key is two rows of one offset: -D old, then +I new.
        min_source_ts_ms: smallest `source.ts_ms` [epoch ms]; None when no event has one.
        max_source_ts_ms: largest `source.ts_ms` [epoch ms].
    """

    target: str
    schema_id: int
    rows: pa.RecordBatch
    min_source_ts_ms: int | None
    max_source_ts_ms: int | None


@dataclasses.dataclass(frozen=True, slots=True)
class DecodeResult:
    """All that came out of one raw batch.

    Attributes:
        changes: at most one per target.
        bad: in offset order.
        deltas: one per distinct shape.
        counts: records by fate: `op.c op.u op.d op.r op.t op.m tombstone heartbeat transaction
            schema_change notification unrouted`, and `pending` for row events withheld because of a
            delta. Every record is counted once or is in `bad`.
    """

    changes: list[ChangeBatch]
    bad: list[BadRecord]
    deltas: list[SchemaDelta]
    counts: dict[str, int]
