# SPDX-License-Identifier: Apache-2.0
"""Debezium JSON, with and without schema block: event envelopes.

Error classes of bad records: `json` (not JSON), `envelope` (no event we know), `type` (a value does
not fit its column), `unrepresentable` (no column of that type holds the value; the message names
the word of `sink.type.mapping` to choose), `schema` (a column that the table lacks and may not
get), `no_primary_key`, `unavailable_value` (PostgreSQL's TOAST placeholder),
`source_table_conflict` (the target is filled from another source table), `table_name` (the target
may not have its name).

Source: CDC.md §1, measured choices in PEERS.md §3.
"""

import functools
from collections.abc import Sequence

import msgspec

from ingest.decode.dialects.debezium_origin import EnvelopeOrigins
from ingest.decode.dialects.recognition import said_of
from ingest.decode.events import BadRecord, Resolver, SourceTable
from ingest.decode.json.envelope_decoder import EnvelopeDecoder
from ingest.decode.json.envelopes import Dialect, DialectOptions, Event, Image
from ingest.decode.json.layout import Anatomy
from ingest.decode.json.schema_block import SchemaBlock
from ingest.decode.json.single_event import (
    EventRefusedError,
    Tokens,
    key_tokens,
    row_image,
)
from ingest.decode.key_check import KeyMoves, OldKeys, op_of, operation
from ingest.decode.shapes import Shape
from ingest.decode.topic_state import TopicState
from ingest.decode.types.token_values import NULL
from ingest.source.records import RawBatch

__all__ = ["DebeziumJsonDecoder"]


_NULL = msgspec.Raw(NULL)


class _Source(msgspec.Struct, gc=False):
    name: str | None = None
    db: str | None = None
    schema: str | None = None
    table: str | None = None
    ts_ms: int | None = None


class _OddSource(msgspec.Struct, gc=False):
    """With a moment that is no number."""

    name: str | None = None
    db: str | None = None
    schema: str | None = None
    table: str | None = None
    ts_ms: msgspec.Raw = _NULL


class _Envelope(msgspec.Struct, gc=False):
    op: str
    source: _Source
    before: msgspec.Raw = _NULL
    after: msgspec.Raw = _NULL
    payload: msgspec.Raw | msgspec.UnsetType = msgspec.UNSET


class _OddEnvelope(msgspec.Struct, gc=False):
    op: str
    source: _OddSource
    before: msgspec.Raw = _NULL
    after: msgspec.Raw = _NULL


_ENVELOPE = msgspec.json.Decoder(_Envelope)
_ODD_ENVELOPE = msgspec.json.Decoder(_OddEnvelope)
_MEMBERS = msgspec.json.Decoder(dict[str, msgspec.Raw])
_PARSE_ERRORS = (msgspec.MsgspecError, UnicodeDecodeError, RecursionError)
_ROW_OPS = frozenset("crudCRUD")
_BOUNDARIES = (b'"BEGIN"', b'"END"')
_SHOWN_OP = 20
_ROWS = (
    "; rows need another format: debezium-flat (as ExtractNewRecordState writes them), upsert-json "
    "or upsert-avro (with a key), or json (rows that are only added)"
)
_SIGNAL = frozenset({"id", "type", "data", "additionalData", "additional-data"})


_ANATOMY = Anatomy(
    operations={b'"c"': "c", b'"r"': "r", b'"u"': "u", b'"d"': "d"},
    op=("op",),
    row="after",
    deleted="before",
    old="before",
    stamps=(("source", "ts_ms"),),
    constant=frozenset(("source", name) for name in ("name", "db", "schema", "table")),
)
_MAX_BLOCKS = 4_096
_MAX_SOURCES = 65_536


class DebeziumJson(Dialect):
    """See the module."""

    key_is_row = True
    whole_before = True
    binary = "bytes"
    times = "adaptive"

    def __init__(self, options: DialectOptions) -> None:
        super().__init__(options)
        self.topics: dict[str, TopicState] = {}
        self._blocks: dict[bytes, SchemaBlock] = {}
        self._named: dict[tuple[str | None, ...], SourceTable] = {}

    @property
    def anatomy(self) -> Anatomy:
        """See `Dialect.anatomy`."""
        return _ANATOMY

    def prefix(self, topic: str, value: bytes) -> bytes:
        """See `Dialect.prefix`."""
        return self._state(topic).split(value)[2]

    def _state(self, topic: str) -> TopicState:
        state = self.topics.get(topic)
        if state is None:
            state = self.topics[topic] = TopicState()
        return state

    def read(self, topic: str, key: bytes | None, value: bytes | None) -> Event | str:
        """See `Dialect.read`."""
        if value is None:
            return "tombstone"
        block, payload, envelope = self._parts(topic, value)
        if envelope is None or envelope.op not in _ROW_OPS or not envelope.source.table:
            return _control_kind(topic, block, payload)
        op, before, after = envelope.op, bytes(envelope.before), bytes(envelope.after)
        if op not in "crud":
            op = op.lower()
        if op == "u":
            change = Image(op, None if before == NULL else before, None if after == NULL else after)
        else:
            change = _one_image(op, before, after)
        moment = envelope.source.ts_ms
        return Event(
            self._source_of(envelope.source),
            (change,),
            moment if isinstance(moment, int) else None,
            (),
            b"" if block is None else self._remembered(block),
            key,
        )

    def _parts(
        self, topic: str, value: bytes
    ) -> tuple[SchemaBlock | None, bytes, _Envelope | _OddEnvelope | None]:
        """Schema block, payload and envelope of a message; no envelope where it is none."""
        state = self.topics.get(topic) or self._state(topic)
        if not state.prefixes:
            try:
                bare = _ENVELOPE.decode(value)
            except _PARSE_ERRORS:
                pass  # another form, or bad
            else:
                if bare.payload is msgspec.UNSET:
                    return None, value, bare
        block, payload, _ = state.split(value)
        is_row = block is None or block.row is not None
        return block, payload, _envelope(payload) if is_row else None

    def _source_of(self, said: _Source | _OddSource) -> SourceTable:
        names = (said.db, said.schema, said.table, said.name)
        source = self._named.get(names)
        if source is None:
            if len(self._named) >= _MAX_SOURCES:
                self._named.clear()
            source = SourceTable(*(name or "" for name in names))
            self._named[names] = source
        return source

    def _remembered(self, block: SchemaBlock) -> bytes:
        if block.raw not in self._blocks:
            if len(self._blocks) >= _MAX_BLOCKS:
                self._blocks.clear()
            self._blocks[block.raw] = block
        return block.raw

    def shape(self, event: Event) -> Shape:
        """See `Dialect.shape`."""
        block = self._blocks[event.types] if event.types else None
        return Shape(event.source, block, self.facts, self.options.primary_keys)

    def key_names(self, event: Event) -> Sequence[str]:
        """See `Dialect.key_names`."""
        return tuple(key_tokens(event.key))

    def lacking_key(self, event: Event) -> Sequence[str]:
        """See `Dialect.lacking_key`."""
        change = event.images[0]
        text = change.before if change.op == "d" else change.after
        row = {} if event.types or text is None else row_image(text, "the row")
        return [name for name in self.key_names(event) if row and name not in row]

    def old_keys(self, raw: RawBatch) -> OldKeys:
        """See `Dialect.old_keys`."""
        return KeyMoves(raw, raw.keys.__getitem__, functools.partial(_deletes, raw)).old_key


class DebeziumJsonDecoder(EnvelopeDecoder):
    """Decoder of `debezium-json`.

    Args:
        options: see `DialectOptions`.
        resolve: source table and topic to target; called once per shape and call of `decode`.
    """

    def __init__(self, options: DialectOptions, resolve: Resolver) -> None:
        dialect = DebeziumJson(options)
        super().__init__(dialect, resolve)
        self.origins = EnvelopeOrigins(dialect.topics)

    def operation(self, topic: str, record: BadRecord) -> str:
        """The name under which a record was counted before it was taken out."""
        del topic
        return operation(record)


def _envelope(payload: bytes) -> _Envelope | _OddEnvelope | None:
    """The members that a row event is made of; None where it is none.

    Raises:
        EventRefusedError: it is no JSON.
    """
    try:
        return _ENVELOPE.decode(payload)
    except msgspec.ValidationError:
        pass
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise EventRefusedError("json", f"{error}{said_of(payload)}") from None
    try:
        return _ODD_ENVELOPE.decode(payload)
    except msgspec.ValidationError:
        return None
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise EventRefusedError("json", f"{error}{said_of(payload)}") from None


def _one_image(op: str, before: bytes, after: bytes) -> Image:
    """Of an event that has one row; the other is null, or at least an object."""
    if op == "d":
        if after != NULL:
            _check_image(after, "after")
        return Image(op, None if before == NULL else before, None)
    if before != NULL:
        _check_image(before, "before")
    return Image(op, None, None if after == NULL else after)


def _check_image(image: bytes, what: str) -> None:
    """An image that counts for nothing is an object all the same.

    Raises:
        EventRefusedError: it is none.
    """
    try:
        row_image(image, what)
    except EventRefusedError as error:
        if error.error_class != "json":
            raise


def _deletes(raw: RawBatch, at: int) -> bool:
    return op_of(raw.values[at]) == "d"


def _message_members(payload: bytes) -> Tokens:
    try:
        members = _MEMBERS.decode(payload)
    except msgspec.ValidationError:
        raise EventRefusedError("envelope", "the message is no object") from None
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise EventRefusedError("json", f"{error}{said_of(payload)}") from None
    return {name: bytes(raw) for name, raw in members.items()}


def _control_kind(topic: str, block: SchemaBlock | None, payload: bytes) -> str:
    """What a message that is no row event is (CDC.md §1.8).

    Returns:
        Its key in `DecodeResult.counts`.

    Raises:
        EventRefusedError: it is nothing we know.
    """
    if payload == NULL:
        return "tombstone"
    members = _message_members(payload)
    name = block.name if block is not None else ""
    if topic.startswith("__debezium-heartbeat") or name.endswith(".Heartbeat"):
        return "heartbeat"
    op = members.get("op", b"").lower()
    if op in (b'"t"', b'"m"') and "source" in members:
        return f"op.{op[1:2].decode()}"
    if "op" not in members:
        kind = _without_op(members)
        if kind is not None:
            return kind
    raise EventRefusedError("envelope", _why_unknown(members, payload))


def _without_op(members: Tokens) -> str | None:
    """What it is by members that no row has by chance: flattened rows are no messages."""
    if members.get("status") in _BOUNDARIES and "id" in members:
        return "transaction"
    if _tells_of_tables(members) and ("source" in members or "databaseName" in members):
        return "schema_change"
    if "aggregate_type" in members and "type" in members:
        return "notification"
    if members.keys() >= {"type", "data"} and members.keys() <= _SIGNAL:
        return "signal"
    if members and set(members) <= {"ts_ms", "ts_us", "ts_ns"}:
        return "heartbeat"
    return None


def _tells_of_tables(members: Tokens) -> bool:
    if members.keys() >= {"source", "databaseName"} and members.keys() & {"ddl", "tableChanges"}:
        return True
    return members.get("ddl", b"")[:1] == b'"' or members.get("tableChanges", b"")[:1] == b"["


def _why_unknown(members: Tokens, payload: bytes) -> str:
    seen = said_of(payload, "debezium-json")
    if "specversion" in members:
        return "a CloudEvents message; set the connector's converter to plain JSON"
    if "op" not in members:
        return "no op: not a Debezium envelope" + (seen or _ROWS)
    op = members["op"][:_SHOWN_OP].decode("utf-8", "replace")
    if "source" not in members:
        return f"op {op} without a source block, which says the table" + seen
    if seen:
        return seen.removeprefix("; ")
    if op.strip('"') not in _ROW_OPS:
        return f"op {op} is not known: Debezium's are c, r, u, d, t and m"
    return f"op {op}, and the source block names no table"
