# SPDX-License-Identifier: Apache-2.0
"""Formats whose message is the row itself, with or without Connect's schema block around it.

`json` (every record is an insert), `upsert-json`, and what `debezium-flat` shares with them:
telling block and row apart, and reading a block whose top struct is the row. A message is taken for
a block and a payload when it has these two members and no other, `schema` is null or an object that
says a `type`, and `payload` is null or an object.
"""

from collections.abc import Mapping, Sequence

import msgspec

from ingest.decode.events import (
    MEMBERS,
    MONGODB,
    NULL,
    PARSE_ERRORS,
    BlockField,
    EventRefusedError,
    SchemaBlock,
    SourceTable,
    TopicState,
    looks_like,
)
from ingest.decode.json.envelopes import (
    BlockMessages,
    DialectOptions,
    Event,
    Image,
    epoch_ms,
    flat_members,
    join_members,
    message_members,
    parse,
)
from ingest.decode.json.layout import Anatomy
from ingest.decode.json.single_event import (
    key_tokens,
)
from ingest.decode.shapes import LooseShape, Shape

_BLOCK = msgspec.json.Decoder(BlockField)

BLOCK = (frozenset({"schema", "payload"}),)
"""Members by which a message may be a block and a payload, so that no layout of rows has them."""


class BareRows(BlockMessages):
    """Base of such dialects."""

    def split_value(self, topic: str, value: bytes) -> tuple[SchemaBlock | None, bytes | None]:
        """(block, row) of a record's value; the row is None for null.

        Raises:
            EventRefusedError: it is no JSON.
        """
        return self._split(self.state(topic), value)

    def split_key(self, topic: str, key: bytes) -> tuple[SchemaBlock | None, bytes | None]:
        """The same of a record's key."""
        return self._split(self.state(topic, of_keys=True), key)

    def _split(self, state: TopicState, text: bytes) -> tuple[SchemaBlock | None, bytes | None]:
        try:
            block, payload, prefix = state.split(text)
            doubtful = payload is not text and (not prefix or payload[:1] not in (b"{", b"n"))
        except EventRefusedError:
            if _has_payload(text):
                raise
            return None, text
        if doubtful and not _has_payload(text):
            return None, text
        row = None if payload == NULL else payload
        return (None if block is None else self._row_block(block), row)

    def _row_block(self, parsed: SchemaBlock) -> SchemaBlock:
        block = self.blocks.get(parsed.raw)
        if block is not None:
            return block
        fields = tuple(f for f in _BLOCK.decode(parsed.raw).fields if self.is_column(f.field))
        return self.remember(SchemaBlock(parsed.raw, parsed.name, parsed.top, fields))

    def metadata_text(self, topic: str, value: bytes) -> bytes | None:
        """See `Dialect.metadata_text`."""
        return self.split_value(topic, value)[1] if self.members else None

    def mistaken(self, value: bytes | None) -> str:
        """See `Dialect.mistaken`."""
        what, format_ = looks_like(value)
        if what == MONGODB:
            return what
        if not format_ or format_ == "debezium-flat":
            return ""
        return (
            f"it looks like {what}: set source.format: {format_}; if such messages are to be rows, "
            "make the table with their columns first"
        )

    def is_column(self, name: str) -> bool:
        """Whether a member of the message is a column."""
        return True

    def shape(self, event: Event) -> Shape:
        """See `Dialect.shape`."""
        if not event.types:
            return self.bare_shape(event)
        block = self.blocks.get(event.types)
        if block is None:
            raise EventRefusedError("envelope", "the schema block is no longer known")
        shape = Shape(event.source, block, self.facts, self.options.primary_keys)
        shape.of_key = event.of_key
        return shape

    def bare_shape(self, event: Event) -> Shape:
        """The shape of an event without schema block."""
        return LooseShape(event.source, None, self.facts, self.options.primary_keys)


def _has_payload(text: bytes) -> bool:
    """Whether a message is a block and a payload, not a row with columns of those names.

    Raises:
        EventRefusedError: it is no JSON object.
    """
    members = message_members(text, "a row", "json")
    if members.keys() != {"schema", "payload"} or members["payload"][:1] not in (b"{", b"n"):
        return False
    block = members["schema"]
    return block == NULL or (
        block[:1] == b"{" and "type" in message_members(block, "the schema block")
    )


class PlainJson(BareRows):
    """See the module."""

    anatomy = Anatomy(default_op="c", reserved=BLOCK)

    def read(self, topic: str, key: bytes | None, value: bytes | None) -> Event | str:
        """See `Dialect.read`."""
        if value is None:
            return "tombstone"
        block, row = self.split_value(topic, value)
        if row is None:
            return "tombstone"
        return Event(
            source=self.source_of_topic(topic),
            images=(Image("c", None, row),),
            types=b"" if block is None else block.raw,
        )

    def shape(self, event: Event) -> Shape:
        """See `Dialect.shape`."""
        shape = super().shape(event)
        shape.keyless = True
        return shape


class KeyedRows(BareRows):
    """Rows whose Kafka key has the key columns, so that a null value can delete."""

    key_is_row = True
    fills_keys = True

    def key_names(self, event: Event) -> Sequence[str]:
        """See `Dialect.key_names`."""
        return tuple(key_tokens(event.key))

    def deleted(self, topic: str, source: SourceTable, key: bytes | None) -> Event:
        """The delete that a null value stands for.

        Raises:
            EventRefusedError: the record has no key that says what is deleted.
        """
        try:
            block, row = (None, None) if not key else self.split_key(topic, key)
        except EventRefusedError as error:
            raise EventRefusedError(error.error_class, f"key of a tombstone: {error}") from None
        if row is None:
            raise EventRefusedError("no_primary_key", "a tombstone without key identifies no row")
        if row[:1] != b"{":
            raise EventRefusedError(
                "envelope",
                "the key of a tombstone is a single value: it must be an object with the columns "
                "of the primary key (a transform such as ExtractField$Key removes their names)",
            )
        return Event(
            source=source,
            images=(Image("d", row, None),),
            types=b"" if block is None else block.raw,
            key=key,
            of_key=True,
        )


class UpsertJson(KeyedRows):
    """See the module."""

    anatomy = Anatomy(default_op="u", reserved=BLOCK)

    def read(self, topic: str, key: bytes | None, value: bytes | None) -> Event | str:
        """See `Dialect.read`."""
        source = self.source_of_topic(topic)
        block, row = (None, None) if value is None else self.split_value(topic, value)
        if row is None:
            return self.deleted(topic, source, key)
        return Event(
            source=source,
            images=(Image("u", None, row),),
            types=b"" if block is None else block.raw,
            key=key,
        )


# Debezium events flattened by `ExtractNewRecordState`, with and without schema block.
#
# The value is the row; members with a prefix (`__op`, `__source_ts_ms`, ...) are metadata. A delete
# is a null value (mode `tombstone`, by the Kafka key), a row with `"__deleted": "true"` (mode
# `rewrite`; `add.fields.prefix` does not hold for this member), or absent (mode `drop`). With
# `rewrite-with-tombstone` it occurs twice; `tombstones: skip` drops the second.
#
# The table comes from the metadata fields `source_table` or `table`, `source_db` or `db`,
# `source_schema` or `schema` if the connector adds them, the rest from the topic's name, as for
# null values. A topic with several tables therefore needs `rewrite`.


_CONTROL = {
    "Heartbeat": "heartbeat",
    "TransactionMetadataValue": "transaction",
    "SchemaChangeValue": "schema_change",
}
_HEARTBEAT_TOPIC = "__debezium-heartbeat"
_TRANSACTION_TOPIC = ".transaction"
_TRUE = (b'"true"', b"true")
_DELETED = "__deleted"
_DELETED_BYTES = msgspec.json.encode(_DELETED)
_OPS = {b'"c"': "c", b'"r"': "r", b'"u"': "u", b'"d"': "d"}
_BOUNDARY = {"status", "id", "event_count", "data_collections"}
_DDL = {"source", "databaseName", "ddl", "tableChanges"}
_NOTHING: Mapping[str, bytes] = {}
_TEXT = msgspec.json.Decoder(str)
_MAX_SOURCES = 65_536
_MOMENT_DIGITS = 19


class DebeziumFlat(KeyedRows):
    """See the module."""

    binary = "bytes"
    times = "adaptive"

    def __init__(self, options: DialectOptions) -> None:
        super().__init__(options)
        self._prefix = options.metadata_prefix
        self.members = flat_members(self._prefix)
        self._prefix_bytes = msgspec.json.encode(self._prefix)[:-1]
        self._metadata_columns = frozenset(options.metadata_columns)
        self._names = [
            (f"{self._prefix}source_{part}", f"{self._prefix}{part}")
            for part in ("table", "db", "schema")
        ]
        self.anatomy = _anatomy(self._prefix, [name for pair in self._names for name in pair])
        self._by_tokens: dict[tuple[str | bytes, ...], SourceTable] = {}

    def is_column(self, name: str) -> bool:
        """Whether a member is a column, not metadata."""
        return not self._is_metadata(name) or name in self._metadata_columns

    def _is_metadata(self, name: str) -> bool:
        return name == _DELETED or (bool(self._prefix) and name.startswith(self._prefix))

    def bare_shape(self, event: Event) -> Shape:
        """See `BareRows.bare_shape`: Debezium's encodings."""
        return Shape(event.source, None, self.facts, self.options.primary_keys)

    def read(self, topic: str, key: bytes | None, value: bytes | None) -> Event | str:
        """See `Dialect.read`."""
        block, payload = (None, None) if value is None else self.split_value(topic, value)
        if payload is None:
            if self.options.tombstones == "skip":
                return "tombstone"
            return self.deleted(topic, self._source(topic, _NOTHING), key)
        control = _control(topic, block, payload)
        if control:
            return control
        row, metadata = self._split_metadata(payload)
        return Event(
            source=self._source(topic, metadata),
            images=(_image(metadata, row, self._prefix),),
            ts_ms=_moment(metadata, self._prefix),
            types=b"" if block is None else block.raw,
            key=key,
        )

    # --- metadata

    def _split_metadata(self, payload: bytes) -> tuple[bytes, Mapping[str, bytes]]:
        """(row, metadata) of a flattened event.

        The transformation puts metadata last, so usually the text is split in two. A quote inside
        of a JSON string is escaped: the mark never matches in a value. If it matches in a nested
        object, the rest after it does not parse. What changed the order of members since may have
        left some metadata before the mark.
        """
        is_split = bool(self._prefix) and self._prefix_bytes in payload
        if not is_split and _DELETED_BYTES not in payload:
            return payload, _NOTHING
        at = payload.find(b"," + self._prefix_bytes) if is_split else -1
        head = payload[: max(at, 0)]
        if (
            at > 0
            and not self._metadata_columns
            and self._prefix_bytes not in head
            and _DELETED_BYTES not in head
        ):
            try:
                trailer = MEMBERS.decode(b"{" + payload[at + 1 :])
            except PARSE_ERRORS:
                trailer = {}
            if trailer and all(map(self._is_metadata, trailer)):
                return payload[:at] + b"}", {name: bytes(raw) for name, raw in trailer.items()}
        members = message_members(payload, "the event")
        metadata = {n: t for n, t in members.items() if self._is_metadata(n)}
        return join_members({n: t for n, t in members.items() if self.is_column(n)}), metadata

    def _source(self, topic: str, metadata: Mapping[str, bytes]) -> SourceTable:
        if not metadata:
            return self.source_of_topic(topic)
        tokens = [metadata.get(name) or metadata.get(alias, NULL) for name, alias in self._names]
        source = self._by_tokens.get((topic, *tokens))
        if source is None:
            if len(self._by_tokens) >= _MAX_SOURCES:
                self._by_tokens.clear()
            source = self._source_table(self.source_of_topic(topic), *map(_text, tokens))
            self._by_tokens[topic, *tokens] = source
        return source

    def _source_table(
        self, topic: SourceTable, table: str, database: str, schema: str
    ) -> SourceTable:
        if not database and not schema:
            database, schema = topic.database, topic.schema
        return SourceTable(database, schema, table or topic.table, topic.server)


def _text(token: bytes) -> str:
    """A name in metadata; "" if there is none.

    Raises:
        EventRefusedError: it is not JSON.
    """
    return parse(_TEXT.decode, token, "a name") if token[:1] == b'"' else ""


def _anatomy(prefix: str, names: Sequence[str]) -> Anatomy:
    reserved = (*BLOCK, frozenset(_BOUNDARY), frozenset(_DDL))
    is_odd = None if prefix and _DELETED.startswith(prefix) else _DELETED.__eq__
    if not prefix:
        return Anatomy(default_op="u", reserved=reserved, is_odd=is_odd)
    return Anatomy(
        operations=_OPS,
        op=(f"{prefix}op",),
        default_op="u",
        deletes=f"{prefix}deleted",
        stamps=((f"{prefix}source_ts_ms",), (f"{prefix}ts_ms",)),
        is_epoch=True,
        constant=frozenset((name,) for name in names),
        prefix=prefix,
        reserved=reserved,
        is_odd=is_odd,
    )


def _image(metadata: Mapping[str, bytes], row: bytes, prefix: str) -> Image:
    op = _OPS.get(metadata.get(f"{prefix}op", NULL), "u")
    if op == "d" or any(metadata.get(n) in _TRUE for n in (_DELETED, f"{prefix}deleted")):
        return Image("d", row, None)
    return Image(op, None, row)


def _moment(metadata: Mapping[str, bytes], prefix: str) -> int | None:
    for name in ("source_ts_ms", "ts_ms"):
        token = metadata.get(f"{prefix}{name}", NULL).strip(b'"')
        if token.isdigit() and len(token) <= _MOMENT_DIGITS:
            return epoch_ms(int(token))
    return None


def _is_boundary(members: Mapping[str, bytes]) -> bool:
    names = members.keys() - {"ts_ms"}
    return names == _BOUNDARY and members["status"] in (b'"BEGIN"', b'"END"')


def _control(topic: str, block: SchemaBlock | None, payload: bytes) -> str:
    """The kind of a message of the connector that is not a row; empty = a row."""
    if block is not None:
        kind = _CONTROL.get(block.name.rpartition(".")[2])
        if kind is not None:
            return kind
    if topic.startswith(_HEARTBEAT_TOPIC):
        return "heartbeat"
    if topic.endswith(_TRANSACTION_TOPIC) and _is_boundary(message_members(payload, "the event")):
        return "transaction"  # a table may have this name
    if b'"tableChanges":' in payload and message_members(payload, "the event").keys() >= _DDL:
        return "schema_change"
    return ""
