# SPDX-License-Identifier: Apache-2.0
"""The results of a decoder: typed change batches, bad records, schema deltas and counts.

Values only; every format (see `dialects`) produces them and all later stages read nothing else.
Rows of one `DecodeResult` come from one (topic, partition).
"""

import dataclasses
import enum
from collections.abc import Callable

import pyarrow as pa

from storage.format.metadata.schema import TableSchema
from storage.format.types.types import DataType

OFFSET_COLUMN = "_OFFSET"
"""Last column of `ChangeBatch.rows`: the source offset of each row, int64."""

UNAVAILABLE_COLUMN = "_UNAVAILABLE"
"""Column after `OFFSET_COLUMN`, only in batches that need it: per row the field ids (list of int32)
of values that the source did not send because they did not change; null = none. Their values are
null."""

HELD_ONLY = -1
"""Among the ids of `UNAVAILABLE_COLUMN`: apply the row only if the table has one of its key."""

MOVED = -2
"""Among the ids of `UNAVAILABLE_COLUMN`: the values are those of the row that the preceding delete
removes: the same row of the source under its old key."""

SOURCE_TABLE_OPTION = "lakeward.source-table"
"""Table option with the source table of the table (`SourceTable.address`), or the rule by which
several of them share it (`Target.owner`)."""


OWN_TABLE_OPTION = "lakeward.own-table"
"""Table option with the purpose of Lakeward's own tables; no source table fills them."""


TABLE_NAME = "table_name"
"""Error class of records whose target has an invalid name."""


class EventRefusedError(Exception):
    """The record is bad.

    Attributes:
        error_class: one word, see `BadRecord`.
    """

    def __init__(self, error_class: str, error: str) -> None:
        super().__init__(error)
        self.error_class = error_class


@dataclasses.dataclass(frozen=True, slots=True)
class SourceTable:
    """A table of the source database, from the event's `source` block.

    Attributes:
        database: database name; empty if the event has none.
        schema: schema inside the database; empty if the source has none (MySQL).
        table: table name.
        server: the connector's name of the database server (`source.name`, the topic prefix); empty
            if the event has none.
    """

    database: str
    schema: str
    table: str
    server: str = ""

    @property
    def label(self) -> str:
        """`db.schema.table` without the empty parts."""
        return ".".join(part for part in (self.database, self.schema, self.table) if part)

    @property
    def address(self) -> str:
        """`server.db.schema.table` without the empty parts: one table of one server."""
        return f"{self.server}.{self.label}" if self.server else self.label


class Toast(enum.Enum):
    """Handling of values that the source did not send because they did not change."""

    KEEP = "keep"
    NULL = "null"
    FAIL = "fail"


class TypeRequests(enum.Enum):
    """Which values that do not convert to their column's type request a schema change."""

    NONE = "none: their records are bad"
    DECLARED = "those whose type the event declares"
    ALL = "those, and single values of events that declare no types"


@dataclasses.dataclass(frozen=True, slots=True)
class Target:
    """The target table of a source table.

    Attributes:
        identifier: `db.table`.
        schema: schema to decode with: the columns from the source; None = the table does not exist
            yet.
        evolvable: whether records that the schema does not cover may request a schema change; if
            not they are bad records.
        owner: owner of a table that several source tables share; empty = the source table.
        constants: columns with one value in all rows of this source table, and the value.
        key_prefix: those of them that come first in the primary key.
        refusal: why rows of this source table are refused; "" = they are accepted.
        toast: keep the value of the table, store null, or refuse the record.
        origin: names of metadata (`ingest.decode.metadata_columns`) that its change batches need.
        ignored: excluded columns of the source: not decoded, never a reason for a delta.
        needs_before: why updates and deletes must have the old values of all columns of the
            schema's key; "" = the new ones of the row, or the record's key, suffice.
        needs_values: columns whose old values in a delete, if present, must be correct: with null
            instead it would be ignored or misapplied.
        behind_key: columns of the schema's key that are not in the table's key, which is computed
            from them: their types may change.
        fixed: columns of the source and the types (as text) with which they do not request a
            change: each value must fit the existing column.
        type_requests: see there.
        finds_old_rows: whether the task that writes a row also has the row of its old key.
        why_frozen: why the requested change was refused, if it is not `evolvable` for that reason.
        exact_names: whether column names are case-sensitive.
        refusal_class: error class of the records, if there is a `refusal`.
    """

    identifier: str
    schema: TableSchema | None
    evolvable: bool = True
    owner: str = ""
    constants: tuple[tuple[str, str], ...] = ()
    key_prefix: tuple[str, ...] = ()
    refusal: str = ""
    toast: Toast = Toast.FAIL
    origin: tuple[str, ...] = ()
    ignored: frozenset[str] = frozenset()
    needs_before: str = ""
    needs_values: frozenset[str] = frozenset()
    behind_key: frozenset[str] = frozenset()
    fixed: tuple[tuple[str, str], ...] = ()
    type_requests: TypeRequests = TypeRequests.NONE
    finds_old_rows: bool = False
    why_frozen: str = ""
    exact_names: bool = False
    refusal_class: str = "schema"

    def belongs_to(self, source: SourceTable) -> bool:
        """Whether a source table may write to the table."""
        return self.schema is None or is_owner(self.schema, source, self.owner)


def is_owner(schema: TableSchema, source: SourceTable, owner: str = "") -> bool:
    """Whether a source table may write to a table."""
    if OWN_TABLE_OPTION in schema.options:
        return False
    address = schema.options.get(SOURCE_TABLE_OPTION)
    return address is None or address in ((owner,) if owner else (source.address, source.label))


Resolver = Callable[[SourceTable, str], Target | None]
"""(source table, topic) to its target; None = the table is not routed, its records are counted."""


@dataclasses.dataclass(frozen=True, slots=True)
class ObservedField:
    """A column observed in the source; the type is nullable.

    Attributes:
        name: in the source.
        type: of its values.
        column: matching column of the table, which cannot hold the type; "" = none.
    """

    name: str
    type: DataType
    column: str = dataclasses.field(default="", compare=False)


@dataclasses.dataclass(frozen=True, slots=True)
class SchemaDelta:
    """A shape that the target's schema does not cover.

    Attributes:
        target: `db.table`.
        source: the source table.
        topic: topic of the record.
        fields: columns in event order: all of them if the table is missing, otherwise those that
            are new or need a wider type.
        primary_key: column names, in key order.
        offset: of the first record of that shape.
        owner: see `Target`.
        constants: see `Target`; they are among the columns of the primary key, not of `fields`.
        position: kind of position of the records (`ingest.source.position.kinds`); empty = none, or
            not requested.
        epoch_ms: time at which the source's positions restarted, if the shape is covered and this
            is the change.
        partition: of the topic; -1 = unknown.
        lacks: columns of the table that the shape lacks.
        declared: whether the event declares the types; if not they follow from values.
    """

    target: str
    source: SourceTable
    topic: str
    fields: tuple[ObservedField, ...]
    primary_key: tuple[str, ...]
    offset: int
    owner: str = ""
    constants: tuple[tuple[str, str], ...] = ()
    position: str = ""
    epoch_ms: int | None = None
    partition: int = -1
    lacks: tuple[str, ...] = dataclasses.field(default=(), compare=False)
    declared: bool = False


@dataclasses.dataclass(frozen=True, slots=True)
class BadRecord:
    """A complete record that cannot be decoded, for quarantine.

    Attributes:
        offset: in its partition.
        timestamp_ms: of the record [epoch ms], -1 = none.
        key: raw key.
        value: raw value.
        headers: in order.
        error_class: one word for metrics (`ingest.pipeline.quarantine.bad_classes` lists them).
        error: for people; names the failing column, if any.
        target: `db.table` of the record; empty if unknown.
    """

    offset: int
    timestamp_ms: int
    key: bytes | None
    value: bytes | None
    headers: tuple[tuple[str, bytes], ...]
    error_class: str
    error: str
    target: str = ""


@dataclasses.dataclass(frozen=True, slots=True)
class ChangeBatch:
    """Typed changes of one table.

    Attributes:
        target: `db.table`.
        schema_id: of the schema that the columns follow.
        rows: the table's columns in schema order, then `_VALUE_KIND` int8 and `_OFFSET` int64, and
            `_UNAVAILABLE` if values are missing; in offset order. A change of key is two rows of
            one offset: -D old, then +I new.
        min_source_ts_ms: smallest `source.ts_ms` [epoch ms]; None if no event has one.
        max_source_ts_ms: largest `source.ts_ms` [epoch ms].
        constants: of the target, see there; they are not columns of `rows`.
        origin: metadata of each row, columns as `Target.origin` names them, of the types in
            `ingest.decode.metadata_columns`; None if the target requests none.
    """

    target: str
    schema_id: int
    rows: pa.RecordBatch
    min_source_ts_ms: int | None
    max_source_ts_ms: int | None
    constants: tuple[tuple[str, str], ...] = ()
    origin: pa.RecordBatch | None = None


@dataclasses.dataclass(frozen=True, slots=True)
class DecodeResult:
    """The result of decoding one raw batch.

    Attributes:
        changes: at most one per `Target`, so several for a table that source tables share.
        bad: in offset order.
        deltas: one per distinct shape.
        counts: records by fate: `op.c op.u op.d op.r op.t op.m tombstone heartbeat transaction
            schema_change notification signal unrouted`, and `pending` for row events withheld
            because of a delta. Every record is counted once or is in `bad`.
        case_matches: (table, member of events, column) where rows were decoded from a member whose
            name differs from the column's.
        walked: records decoded by the compiled scan (`ingest.decode.json.layout`).
    """

    changes: list[ChangeBatch]
    bad: list[BadRecord]
    deltas: list[SchemaDelta]
    counts: dict[str, int]
    case_matches: frozenset[tuple[str, str, str]] = frozenset()
    walked: int = 0
