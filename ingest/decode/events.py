# SPDX-License-Identifier: Apache-2.0
"""Events: their JSON tokens and schema blocks, and what decoding makes of them.

Values only; every format (see `dialects`) produces them and all later stages read nothing else.
Rows of one `DecodeResult` come from one (topic, partition).
"""

import dataclasses
import enum
import re
from collections.abc import Callable, Mapping

import msgspec
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
        origin: names of metadata (`ingest.decode.columns`) that its change batches need.
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
        position: kind of position of the records (`ingest.source.records`); empty = none, or
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
        error_class: one word for metrics (`ingest.pipeline.quarantine` lists them).
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
            `ingest.decode.columns`; None if the target requests none.
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


# Single JSON tokens: what the reference path reads values from, and why it refuses them.
#
# Producers other than Debezium write numbers as text, dates as their database prints them and bytes
# with a prefix. The `*_token` functions turn such a token into the one that the strict decoder of
# `reference` takes; what they do not know they give back unchanged, for it to refuse. The fast half
# of the `LOOSE_*` and `SQL_*` kinds is in `conversions` and `time_columns`.


_NUMBER = re.compile(r"-?(?:\d+\.?\d*|\.\d+)(?:[eE][+-]?\d{1,4})?", re.ASCII)
_ZERO_DATE = re.compile(r"0000-00-00(?:[T :][0:.]*)?", re.ASCII)
_DATE_LENGTH = 10
_MIDNIGHT = re.compile(r"[T :]00:00:00(?:\.0+)?", re.ASCII)


def _text(token: bytes) -> str | None:
    return msgspec.json.decode(token, type=str) if token[:1] == b'"' else None


def number_token(token: bytes) -> bytes:
    """A number, out of the text that holds one."""
    text = _text(token)
    if text is None or _NUMBER.fullmatch(text) is None:
        return token
    if text.lstrip("-").startswith("."):
        text = text.replace(".", "0.", 1)
    return text.encode()


_TRUTH = {b"1": b"true", b"0": b"false", b"true": b"true", b"false": b"false"}


def truth_token(token: bytes) -> bytes:
    """`true` or `false`, out of 0, 1 and such texts."""
    text = _text(token)
    plain = (b"0" if token == b"-0" else token) if text is None else text.encode()
    return _TRUTH.get(plain, token)


def hex_token(token: bytes) -> bytes:
    """Hexadecimal text without `0x`."""
    return b'"' + token[3:] if token[:3] in (b'"0x', b'"0X') else token


def moment_token(token: bytes, *, whole_days: bool) -> bytes:
    """A date or timestamp in ISO form; `null` for MySQL's zero date.

    Args:
        token: as sent; date and time may be joined by a colon.
        whole_days: for a DATE, whose midnight is cut.
    """
    text = _text(token)
    if text is None:
        return token
    if _ZERO_DATE.fullmatch(text) is not None:
        return b"null"
    day, rest = text[:_DATE_LENGTH], text[_DATE_LENGTH:]
    if whole_days and _MIDNIGHT.fullmatch(rest.removesuffix("Z")) is not None:
        rest = ""
    elif rest[:1] == ":":
        rest = " " + rest[1:]
    return msgspec.json.encode(day + rest)


NULL = b"null"

MEMBERS: "msgspec.json.Decoder[dict[str, msgspec.Raw]]" = msgspec.json.Decoder(
    dict[str, msgspec.Raw]
)
"""Members of an object with the text of their values."""

PARSE_ERRORS = (msgspec.MsgspecError, UnicodeDecodeError, RecursionError)
"""What decoders of msgspec raise."""

_INTEGER = re.compile(rb"-?\d{1,100}")
_MAX_SHOWN = 60
_KINDS = {
    b'"': "the string",
    b"{": "the object",
    b"[": "the array",
    b"t": "the boolean",
    b"f": "the boolean",
    b"n": "the",
}
_MAX_SHOWN_BITS = 400


class ValueRefusedError(ValueError):
    """The value does not fit the column; the text says why."""


class UnavailableValueError(ValueRefusedError):
    """The value is the placeholder of a value that the source does not have."""


class UnrepresentableError(ValueRefusedError):
    """The source's value has no counterpart in the column's type; the text says what to choose."""


def refusal(expected: str) -> ValueRefusedError:
    """The error of a token that is something else than expected; who reports it adds the token."""
    return ValueRefusedError(f"expected {expected}")


def shown_value(token: bytes) -> str:
    """A value's JSON kind and the begin of its text, for messages."""
    kind = _KINDS.get(token[:1], "the number")
    rest = "…" if len(token) > _MAX_SHOWN else ""
    return f"{kind} {token[:_MAX_SHOWN].decode('utf-8', 'backslashreplace')}{rest}"


def short_number(number: object) -> str:
    """A number's text, not all of it where it is long."""
    if isinstance(number, int) and number.bit_length() > _MAX_SHOWN_BITS:
        return f"a number of {number.bit_length()} bits"
    text = str(number)
    return text if len(text) <= _MAX_SHOWN else f"{text[:_MAX_SHOWN]}…"


def string_of(token: bytes, expected: str) -> str:
    """The text of a JSON string.

    Raises:
        ValueRefusedError: it is not valid.
    """
    if token[:1] != b'"':
        raise refusal(expected)
    return msgspec.json.decode(token, type=str)


def integer_of(token: bytes, expected: str = "an integer") -> int:
    """The number of a JSON integer.

    Raises:
        ValueRefusedError: it is not valid.
    """
    if _INTEGER.fullmatch(token) is None:
        raise refusal(expected)
    return int(token)


def in_range(number: int, low: int, high: int, what: str) -> int:
    """The number.

    Raises:
        ValueRefusedError: it is out of range.
    """
    if not low <= number <= high:
        raise ValueRefusedError(f"{short_number(number)} is out of the range of {what}")
    return number


# What a record is that the format in use does not know: for messages, never for decoding.
#
# Each form is recognised by members that its tool always writes, so a row is taken for a message
# only if it has all of them.


_ENVELOPE_MEMBERS = frozenset(
    ("before", "after", "source", "op", "ts_ms", "ts_us", "ts_ns", "transaction")
)
_MAXWELL_TYPES = frozenset(
    ("insert", "update", "delete", "bootstrap-insert", "bootstrap-start", "bootstrap-complete")
)
_RECORD_MEMBERS = frozenset(
    ("key", "value", "headers", "timestamp", "topic", "partition", "offset")
)
_FRAME_BYTES = 5
_TEXT_CONTROLS = b"\t\n\r"
_INSPECTED_BYTES = 4_096

MONGODB = "an event of Debezium's MongoDB connector, which is not supported"
_FLAT = ("__op", "__deleted", "__table", "__source_ts_ms", "__lsn")


def format_hint(value: bytes | None, format_name: str = "") -> str:
    """What a record looks like and what to do about it, to be put after an error's text.

    Args:
        value: of the record.
        format_name: the format in use.

    Returns:
        Text that begins with `; `; empty when nothing is known of it, or the format reads it.
    """
    what, format_ = looks_like(value)
    if not what or (format_ and format_ == format_name):
        return ""
    return f"; it looks like {what}" + (f": set source.format: {format_}" if format_ else "")


def text_format_hint(value: bytes | None) -> str:
    """As `format_hint`, of a record that should be binary and may be JSON."""
    return format_hint(value) or "; it is JSON" if value is not None and value[:1] == b"{" else ""


def looks_like(value: bytes | None) -> tuple[str, str]:
    """(what a record looks like, the format that reads it); empty = not known, there is none."""
    if not value:
        return "", ""
    if value[:1] == b"\0" and len(value) > _FRAME_BYTES:
        return _framed(value)
    members = _members(value)
    if members is None:
        return (
            "binary data (Protobuf, or Avro without a registry's id)" if _binary(value) else ""
        ), ""
    if members.keys() >= {"schema", "payload"} and members["payload"][:1] == b"{":
        block = _members(members["schema"]) or {}
        if "dataColumn" in block:
            return "Alibaba Cloud's JSON of Canal, which is not supported", ""
        members = _members(members["payload"]) or {}
    return _object(members)


def _is_envelope(members: Mapping[str, bytes]) -> bool:
    """Whether a JSON object has the members of a Debezium envelope, and no others."""
    if not members.keys() >= {"op", "source"} or not members.keys() <= _ENVELOPE_MEMBERS:
        return False
    if not members.keys() & {"before", "after"}:
        return False
    return "connector" in (_members(members["source"]) or {})


def _framed(value: bytes) -> tuple[str, str]:
    if value[_FRAME_BYTES : _FRAME_BYTES + 1] == b"{":
        return "JSON with a schema registry's id before it, which is not supported", ""
    return (
        "bytes of a schema registry's serializer: Protobuf is not supported, Avro is read by "
        "source.format debezium-avro or upsert-avro",
        "",
    )


def _binary(value: bytes) -> bool:
    start = value[:_INSPECTED_BYTES].lstrip()
    if start[:1] in (b"{", b"[", b'"'):
        return False  # text, though it may have characters that JSON does not allow
    return any(byte < 0x20 and byte not in _TEXT_CONTROLS for byte in start)


def _object(members: Mapping[str, bytes]) -> tuple[str, str]:
    for what, format_, fits in _FORMS:
        if fits(members):
            return what, format_
    return "", ""


def _members(text: bytes) -> Mapping[str, bytes] | None:
    try:
        return {name: bytes(raw) for name, raw in MEMBERS.decode(text).items()}
    except PARSE_ERRORS:
        return None


def _shown_text(members: Mapping[str, bytes], name: str) -> str:
    token = members.get(name, b"")
    return token[1:-1].decode("utf-8", "replace") if token[:1] == b'"' else ""


def _is_mongodb(members: Mapping[str, bytes]) -> bool:
    if not members.keys() >= {"op", "source"}:
        return False
    source = _members(members["source"]) or {}
    return _shown_text(source, "connector") == "mongodb" or "collection" in source


def _is_schema_change(members: Mapping[str, bytes]) -> bool:
    return members.keys() >= {"source", "databaseName"} and bool(
        members.keys() & {"ddl", "tableChanges"}
    )


def _is_ogg(members: Mapping[str, bytes]) -> bool:
    if "table" not in members or _shown_text(members, "op_type") not in ("I", "U", "D"):
        return False
    return any(members.get(name, b"")[:1] == b"{" for name in ("before", "after"))


def _is_canal(members: Mapping[str, bytes]) -> bool:
    if "type" not in members or members.get("data", b"")[:1] not in (b"[", b"n"):
        return False
    described = any(members.get(name, b"")[:1] == b"{" for name in ("mysqlType", "sqlType"))
    return described or members.get("isDdl") in (b"true", b"false")


def _is_maxwell(members: Mapping[str, bytes]) -> bool:
    if not members.keys() >= {"type", "database", "table", "data", "ts"}:
        return False
    return members["data"][:1] == b"{" and _shown_text(members, "type") in _MAXWELL_TYPES


def _is_dms(members: Mapping[str, bytes]) -> bool:
    metadata = _members(members.get("metadata", b"")) or {}
    return metadata.keys() >= {"operation", "record-type"}


_FORMS = (
    ("a CloudEvents message, which is not supported", "", lambda m: "specversion" in m),
    (MONGODB, "", _is_mongodb),
    ("an envelope of Debezium", "debezium-json", _is_envelope),
    ("a schema change of Debezium", "debezium-json", _is_schema_change),
    ("a message of Canal", "canal-json", _is_canal),
    ("an operation of GoldenGate", "ogg-json", _is_ogg),
    ("a record of AWS DMS", "aws-dms-json", _is_dms),
    ("a message of Maxwell", "maxwell-json", _is_maxwell),
    (
        "TiCDC's simple protocol, which is not supported (its canal-json is)",
        "",
        lambda m: (
            m.keys() >= {"type", "commitTs"} and bool(m.keys() & {"tableID", "schemaVersion"})
        ),
    ),
    (
        "a message of Qlik Replicate, which is not supported",
        "",
        lambda m: _shown_text(m, "magic") in ("atMSG", "AT"),
    ),
    ("a flattened event of Debezium", "debezium-flat", lambda m: any(n in m for n in _FLAT)),
    (
        "an archived record (source.lines: archived reads it)",
        "",
        lambda m: "value" in m and m.keys() <= _RECORD_MEMBERS and len(m) > 1,
    ),
)
"""(what it is, the format that reads it, how it is recognised), the surest first."""


# The schema block of Debezium JSON (`schemas.enable=true`): splitting it off and reading it.
#
# The block is the same bytes in every message of a table's version and far larger than the row, so
# it is read once; later messages are recognised by comparing their first bytes (CDC.md §1.5).


_PAYLOAD = b',"payload":'
_SCHEMA = b'{"schema":'


class BlockField(msgspec.Struct, frozen=True):
    """One node of a Connect schema.

    Attributes:
        type: literal type (`int32`, `bytes`, `struct`…).
        field: column name, in the fields of a struct.
        name: semantic type, or None.
        optional: whether null is allowed.
        parameters: of the semantic type.
        items: element of an `array`.
        keys: key of a `map`.
        values: value of a `map`.
        fields: of a `struct`.
    """

    type: str
    field: str = ""
    name: str | None = None
    optional: bool = False
    parameters: Mapping[str, str] | None = None
    items: "BlockField | None" = None
    keys: "BlockField | None" = None
    values: "BlockField | None" = None
    fields: tuple["BlockField", ...] = ()


@dataclasses.dataclass(frozen=True, slots=True)
class SchemaBlock:
    """A parsed block.

    Attributes:
        raw: its exact JSON text, which identifies it.
        name: of the top struct (`….Envelope`, `….Heartbeat`), or empty.
        top: names of the top struct's fields.
        row: fields of a row image; None when the message is no row event.
    """

    raw: bytes
    name: str
    top: tuple[str, ...]
    row: tuple[BlockField, ...] | None

    def __hash__(self) -> int:
        return hash(self.raw)


@dataclasses.dataclass(frozen=True, slots=True)
class SplitMessage:
    """A message taken apart.

    Attributes:
        block: raw schema block, or None for a bare payload or `"schema":null`.
        payload: raw payload.
        prefix: when the message is exactly `prefix + payload + b"}"`, that prefix; else empty.
    """

    block: bytes | None
    payload: bytes
    prefix: bytes


class _Outer(msgspec.Struct, gc=False):
    schema: msgspec.Raw
    payload: msgspec.Raw


_OUTER = msgspec.json.Decoder(_Outer)
_BLOCK = msgspec.json.Decoder(BlockField)


def split_message(value: bytes) -> SplitMessage:
    """Separate block and payload; a message without both members is its own payload.

    Raises:
        msgspec.DecodeError: the message is no JSON.
        UnicodeDecodeError: a member name is no UTF-8.
    """
    try:
        outer = _OUTER.decode(value)
    except msgspec.ValidationError:
        return SplitMessage(None, value, b"")
    block, payload = bytes(outer.schema), bytes(outer.payload)
    prefix = _SCHEMA + block + _PAYLOAD
    if len(value) != len(prefix) + len(payload) + 1 or not value.startswith(prefix):
        prefix = b""
    return SplitMessage(None if block == b"null" else block, payload, prefix)


def parse_block(raw: bytes) -> SchemaBlock:
    """Read a block.

    Raises:
        msgspec.DecodeError: it is no Connect schema.
    """
    top = _BLOCK.decode(raw)
    by_name = {field.field: field for field in top.fields}
    image = by_name.get("after") or by_name.get("before")
    row = image.fields if image is not None and image.type == "struct" else None
    return SchemaBlock(raw, top.name or "", tuple(by_name), row)


_CLOSING_BRACE = ord("}")
_MAX_REMEMBERED = 4_096
"""Blocks of one topic; far above any number of table versions, so that memory stays bounded."""


class TopicState:
    """The schema blocks of one topic, by their bytes; lives as long as the decoder."""

    def __init__(self) -> None:
        self.prefixes: dict[bytes, SchemaBlock] = {}
        self.blocks: dict[bytes, SchemaBlock] = {}
        self.prefix = b""
        """Of the last message that had one."""

    def forget(self) -> None:
        """Drop everything; it is learned again."""
        self.prefixes.clear()
        self.blocks.clear()
        self.prefix = b""

    def split(self, value: bytes) -> tuple[SchemaBlock | None, bytes, bytes]:
        """(block, payload, prefix) of a message.

        Raises:
            EventRefusedError: it is no JSON.
        """
        for prefix, block in self.prefixes.items():
            if value.startswith(prefix) and value[-1] == _CLOSING_BRACE:
                self.prefix = prefix
                return block, value[len(prefix) : -1], prefix
        try:
            parts = split_message(value)
            return self._cached_block(parts), parts.payload, parts.prefix
        except msgspec.ValidationError as error:
            why = f"the member schema is no schema block of Connect: {error}"
            raise EventRefusedError("envelope", why + format_hint(value)) from None
        except PARSE_ERRORS as error:
            raise EventRefusedError("json", f"{error}{format_hint(value)}") from None

    def _cached_block(self, parts: SplitMessage) -> SchemaBlock | None:
        if parts.block is None:
            return None
        block = self.blocks.get(parts.block)
        if block is None:
            if len(self.blocks) >= _MAX_REMEMBERED:
                self.forget()
            block = self.blocks[parts.block] = parse_block(parts.block)
        if parts.prefix:
            self.prefixes[parts.prefix] = block
            self.prefix = parts.prefix
        return block


# Finds, by bisection, the rows for which an operation on whole columns fails.
#
# A few rows of many cost a few attempts on small ranges, and the operation need not report which
# row failed.


def failing_positions(
    attempt: Callable[[int, int], object], count: int, errors: tuple[type[Exception], ...]
) -> list[int]:
    """Positions that fail alone.

    Args:
        attempt: tries the rows of a range; fails as a whole.
        count: of rows, at least one.
        errors: exceptions of a failure.

    Returns:
        Ascending. Rows that fail only together are not included.
    """
    positions: list[int] = []
    pending = [(0, count)]
    while pending:
        start, end = pending.pop()
        if end - start == 1:
            positions.append(start)
            continue
        middle = (start + end) // 2
        for low, high in ((middle, end), (start, middle)):
            try:
                attempt(low, high)
            except errors:
                pending.append((low, high))
    return positions
