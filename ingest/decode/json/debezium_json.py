# SPDX-License-Identifier: Apache-2.0
"""Debezium JSON, with and without schema block: event envelopes.

Error classes of bad records: `json` (not JSON), `envelope` (not a known event), `type` (a value
does not fit its column), `unrepresentable` (no column of that type can hold the value; the message
names the value of `sink.type.mapping` to set), `schema` (a column that the table lacks and may not
add), `no_primary_key`, `unavailable_value` (PostgreSQL's TOAST placeholder),
`source_table_conflict` (another source table writes to the target), `table_name` (the name of the
target is invalid).

Source: CDC.md §1, measured choices in PEERS.md §3.
"""

import functools
from collections.abc import Callable, Collection, Mapping, Sequence

import msgspec
import pyarrow as pa

from ingest.decode.column_names import folded
from ingest.decode.dialects.recognition import format_hint
from ingest.decode.events import EventRefusedError, SourceTable
from ingest.decode.json.envelopes import BlockMessages, Event, Image
from ingest.decode.json.layout import Anatomy
from ingest.decode.json.member_columns import (
    LOWER,
    MOMENT,
    NUMBER,
    TEXT,
    TOKEN,
    Member,
    MemberReader,
    Reading,
)
from ingest.decode.json.schema_block import SchemaBlock, TopicState, split_message
from ingest.decode.json.single_event import (
    Tokens,
    key_tokens,
    members_of,
    row_image,
)
from ingest.decode.key_check import KeyMoves, OldKeys
from ingest.decode.metadata_columns import OriginReader
from ingest.decode.shapes import Shape
from ingest.decode.types.token_values import NULL, PARSE_ERRORS
from ingest.source.records import RawBatch

SOURCE_MEMBERS: Mapping[str, tuple[str, Reading]] = {
    "source_ts_ms": ("ts_ms", NUMBER),
    "op_ts": ("ts_ms", MOMENT),
    "connector": ("connector", TEXT),
    "server": ("name", TEXT),
    "database": ("db", TEXT),
    "schema": ("schema", TEXT),
    "table": ("table", TEXT),
    "snapshot": ("snapshot", TOKEN),
    "lsn": ("lsn", NUMBER),
    "txid": ("txId", TOKEN),
    "gtid": ("gtid", TEXT),
    "file": ("file", TEXT),
    "pos": ("pos", NUMBER),
    "row": ("row", NUMBER),
    "server_id": ("server_id", NUMBER),
    "thread": ("thread", NUMBER),
    "scn": ("scn", TOKEN),
    "commit_scn": ("commit_scn", TOKEN),
    "ssn": ("ssn", NUMBER),
    "change_lsn": ("change_lsn", TEXT),
    "commit_lsn": ("commit_lsn", TEXT),
    "event_serial_no": ("event_serial_no", NUMBER),
    "sequence": ("sequence", TEXT),
}
"""By name of metadata: the member of `source`, and its reader."""

_CLOSING_BRACE = ord("}")

_ORDER = "total_order"

_OUTER: Mapping[str, tuple[str, Reading]] = {"op": ("op", LOWER), "ts_ms": ("ts_ms", NUMBER)}

ENVELOPE_MEMBERS: Mapping[str, tuple[Member, ...]] = {
    **{name: (Member((member,), how),) for name, (member, how) in _OUTER.items()},
    **{name: (Member(("source", member), how),) for name, (member, how) in SOURCE_MEMBERS.items()},
    _ORDER: (Member(("transaction", _ORDER), NUMBER),),
}
"""By name of metadata: its member in an event envelope."""


def flat_members(prefix: str) -> Mapping[str, tuple[Member, ...]]:
    """By name of metadata: its members in events flattened by `ExtractNewRecordState`.

    These have a prefix and are named by `add.fields`: `__source_lsn` for `source.lsn`, `__lsn` for
    `lsn`; there `op` and `ts_ms` are the envelope's (CDC.md §1.3).
    """
    if not prefix:
        return {}
    index: dict[str, tuple[Member, ...]]
    index = {name: (Member((prefix + member,), how),) for name, (member, how) in _OUTER.items()}
    for name, (member, how) in SOURCE_MEMBERS.items():
        places: tuple[Member, ...] = (Member((f"{prefix}source_{member}",), how),)
        if member != "ts_ms":  # which is by default the envelope's
            places += (Member((prefix + member,), how),)
        index[name] = places
    index[_ORDER] = (Member((f"{prefix}transaction_{_ORDER}",), NUMBER),)
    return index


class EnvelopeOrigins:
    """Reads the metadata of event envelopes in JSON.

    Args:
        state: state of a topic.
    """

    def __init__(self, state: Callable[[str], TopicState]) -> None:
        self._state = state
        self._readers: dict[tuple[str, ...], MemberReader] = {}

    def __call__(
        self, raw: RawBatch, places: Sequence[int], names: Collection[str]
    ) -> Mapping[str, pa.Array]:
        """See `metadata_columns.OriginReader`."""
        columns = tuple(names)
        reader = self._readers.get(columns)
        if reader is None:
            reader = MemberReader(ENVELOPE_MEMBERS, columns, required="op")
            self._readers[columns] = reader
        state = self._state(raw.topic)
        messages = _payloads(raw.values, state.prefix, places)
        return reader.columns(messages, lambda index: _payload(state, raw.values[places[index]]))


def _payloads(
    values: Sequence[bytes | None], prefix: bytes, places: Sequence[int]
) -> list[bytes | None]:
    """Payloads of messages with a prefix (empty = bare); None for any other prefix."""
    if not prefix:
        return [values[at] for at in places]
    size = len(prefix)
    return [
        value[size:-1]
        if (value := values[at]) is not None
        and value.startswith(prefix)
        and value[-1] == _CLOSING_BRACE
        else None
        for at in places
    ]


def _payload(state: TopicState, value: bytes | None) -> bytes | None:
    try:
        return None if value is None else state.split(value)[1]
    except EventRefusedError:
        return None


_NULL = msgspec.Raw(NULL)


class _Source(msgspec.Struct, gc=False):
    name: str | None = ""
    db: str | None = ""
    schema: str | None = ""
    table: str | None = ""
    ts_ms: int | None = None
    keyspace: str | None = ""
    value_capture_type: str | None = None


class _OddSource(msgspec.Struct, gc=False):
    """With a timestamp that is not a number."""

    name: str | None = ""
    db: str | None = ""
    schema: str | None = ""
    table: str | None = ""
    ts_ms: msgspec.Raw = _NULL
    keyspace: str | None = ""
    value_capture_type: str | None = None


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


class _Op(msgspec.Struct):
    op: str


class _Truncate(_Op):
    source: _OddSource


_OP = msgspec.json.Decoder(_Op)
_TRUNCATE = msgspec.json.Decoder(_Truncate)
_ENVELOPE = msgspec.json.Decoder(_Envelope)
_ENVELOPES: Sequence[Callable[[bytes], _Envelope | _OddEnvelope]] = (
    _ENVELOPE.decode,
    msgspec.json.Decoder(_OddEnvelope).decode,
)
_ROW_OPS = frozenset("crudCRUD")
_BOUNDARIES = (b'"BEGIN"', b'"END"')
_SHOWN_OP = 20
_ROWS = (
    "; rows need another format: debezium-flat (as ExtractNewRecordState writes them), upsert-json "
    "or upsert-avro (with a key), or json (rows that are only added)"
)
_ONLY_PARTS = (
    "an update of Spanner that has the changed columns only: create the change stream with "
    "value_capture_type = 'NEW_ROW' or 'NEW_ROW_AND_OLD_VALUES'"
)
_SIGNAL = frozenset({"id", "type", "data", "additionalData", "additional-data"})


SPECIAL_MEMBERS = ("keyspace", "value_capture_type")
"""Members of `source` of single connectors: Vitess's name of the database, whose `db` is empty, and
which columns an update of Spanner has."""

_PARTS = frozenset({"OLD_AND_NEW_VALUES", "NEW_VALUES"})
"""Values of `value_capture_type` with which columns that did not change are null."""

_ANATOMY = Anatomy(
    operations={b'"c"': "c", b'"r"': "r", b'"u"': "u", b'"d"': "d"},
    op=("op",),
    row="after",
    deleted="before",
    old="before",
    stamps=(("source", "ts_ms"),),
    constant=frozenset(
        ("source", name) for name in ("name", "db", "schema", "table", *SPECIAL_MEMBERS)
    ),
)


class DebeziumJson(BlockMessages):
    """See the module."""

    anatomy = _ANATOMY
    key_is_row = True
    whole_before = True
    binary = "bytes"
    times = "adaptive"

    def origins(self) -> OriginReader:
        """See `Dialect.origins`."""
        return EnvelopeOrigins(self.state)

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
            if envelope.source.value_capture_type in _PARTS:
                raise EventRefusedError("envelope", _ONLY_PARTS)
            change = Image(op, None if before == NULL else before, None if after == NULL else after)
        else:
            change = _one_image(op, before, after)
        src, moment = envelope.source, envelope.source.ts_ms
        database = src.db or src.keyspace
        types = b"" if block is None else block.raw
        if block is not None and types not in self.blocks:
            self.remember(block)
        return Event(
            self._sources.get((database, src.schema, src.table, src.name))
            or self.source(database or "", src.schema or "", src.table or "", src.name or ""),
            (change,),
            moment if isinstance(moment, int) else None,
            (),
            types,
            key,
        )

    def _parts(
        self, topic: str, value: bytes
    ) -> tuple[SchemaBlock | None, bytes, _Envelope | _OddEnvelope | None]:
        """Schema block, payload and envelope of a message; None if it is not an envelope."""
        state = self.topics.get(topic) or self.state(topic)
        if not state.prefixes:
            try:
                envelope = _ENVELOPE.decode(value)
            except PARSE_ERRORS:
                pass  # another format, or bad
            else:
                if envelope.payload is msgspec.UNSET:
                    return None, value, envelope
        block, payload, _ = state.split(value)
        is_row = block is None or block.row is not None
        return block, payload, _envelope(payload) if is_row else None

    def shape(self, event: Event) -> Shape:
        """See `Dialect.shape`."""
        block = self.blocks[event.types] if event.types else None
        return Shape(event.source, block, self.facts, self.options.primary_keys)

    def key_names(self, event: Event) -> Sequence[str]:
        """See `Dialect.key_names`."""
        return tuple(key_tokens(event.key))

    def lacking_key(self, event: Event) -> Sequence[str]:
        """See `Dialect.lacking_key`."""
        change = event.images[0]
        text = change.before if change.op == "d" else change.after
        row = {} if event.types or text is None else row_image(text, "the row")
        names = {*map(folded, row)}
        return [name for name in self.key_names(event) if row and folded(name) not in names]

    def truncated(self, value: bytes) -> SourceTable | None:
        """See `Dialect.truncated`."""
        return truncated_table(value)

    def old_keys(self, raw: RawBatch) -> OldKeys:
        """See `Dialect.old_keys`."""
        return KeyMoves(raw, raw.keys.__getitem__, functools.partial(_deletes, raw)).old_key


def _envelope(payload: bytes) -> _Envelope | _OddEnvelope | None:
    """The members of a row event; None if it is not one.

    Raises:
        EventRefusedError: it is not JSON.
    """
    for decode in _ENVELOPES:
        try:
            return decode(payload)
        except msgspec.ValidationError:
            continue
        except PARSE_ERRORS as error:
            raise EventRefusedError("json", f"{error}{format_hint(payload)}") from None
    return None


def _one_image(op: str, before: bytes, after: bytes) -> Image:
    """The image of an event with one row; the other must be null or an object."""
    if op == "d":
        if after != NULL:
            _check_image(after, "after")
        return Image(op, None if before == NULL else before, None)
    if before != NULL:
        _check_image(before, "before")
    return Image(op, None, None if after == NULL else after)


def _check_image(image: bytes, what: str) -> None:
    """Require that an unused image is an object.

    Raises:
        EventRefusedError: it is not.
    """
    try:
        row_image(image, what)
    except EventRefusedError as error:
        if error.error_class != "json":
            raise


def _deletes(raw: RawBatch, at: int) -> bool:
    """Whether an event deletes a row."""
    try:
        return _OP.decode(split_message(raw.values[at] or b"").payload).op.lower() == "d"
    except PARSE_ERRORS:
        return False


def truncated_table(value: bytes | None) -> SourceTable | None:
    """The table of a truncate event; None for any other message.

    Args:
        value: a record's value as JSON, with or without a schema block.
    """
    if value is None:
        return None
    try:
        event = _TRUNCATE.decode(split_message(value).payload)
    except PARSE_ERRORS:
        return None
    origin = event.source
    if event.op not in ("t", "T") or not origin.table:
        return None
    return SourceTable(origin.db or "", origin.schema or "", origin.table, origin.name or "")


def _control_kind(topic: str, block: SchemaBlock | None, payload: bytes) -> str:
    """The kind of a message that is not a row event (CDC.md §1.8).

    Returns:
        Its key in `DecodeResult.counts`.

    Raises:
        EventRefusedError: unknown kind.
    """
    if payload == NULL:
        return "tombstone"
    members = members_of(payload, "the message")
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
    """The kind by members that no row has by chance: flattened rows are not messages."""
    if members.get("status") in _BOUNDARIES and "id" in members:
        return "transaction"
    if _names_tables(members) and ("source" in members or "databaseName" in members):
        return "schema_change"
    if "aggregate_type" in members and "type" in members:
        return "notification"
    if members.keys() >= {"type", "data"} and members.keys() <= _SIGNAL:
        return "signal"
    if members and set(members) <= {"ts_ms", "ts_us", "ts_ns"}:
        return "heartbeat"
    return None


def _names_tables(members: Tokens) -> bool:
    if members.keys() >= {"source", "databaseName"} and members.keys() & {"ddl", "tableChanges"}:
        return True
    return members.get("ddl", b"")[:1] == b'"' or members.get("tableChanges", b"")[:1] == b"["


def _why_unknown(members: Tokens, payload: bytes) -> str:
    hint = format_hint(payload, "debezium-json")
    if "specversion" in members:
        return "a CloudEvents message; set the connector's converter to plain JSON"
    if "op" not in members:
        return "no op: not a Debezium envelope" + (hint or _ROWS)
    op = members["op"][:_SHOWN_OP].decode("utf-8", "replace")
    if "source" not in members:
        return f"op {op} without a source block, which says the table" + hint
    if hint:
        return hint.removeprefix("; ")
    if op.strip('"') not in _ROW_OPS:
        return f"op {op} is not known: Debezium's are c, r, u, d, t and m"
    return f"op {op}, and the source block names no table"
