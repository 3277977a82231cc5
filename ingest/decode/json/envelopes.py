# SPDX-License-Identifier: Apache-2.0
"""Interface of an event format to the common decoder, and Debezium JSON.

A `Dialect` knows the envelope of its format: where the row images are, what kind of change it is,
which table it belongs to. It parses no row; images are passed on as JSON text and are decoded by
the column (`envelope_decoder`). One small module per format has its dialect.
"""

import abc
import dataclasses
import datetime
import functools
from collections.abc import Callable, Collection, Mapping, Sequence
from typing import Any, ClassVar, TypeVar

import msgspec
import pyarrow as pa

from ingest.decode.columns import (
    LOWER,
    MOMENT,
    NUMBER,
    TEXT,
    TOKEN,
    Member,
    MemberReader,
    OriginReader,
    Reading,
    folded,
)
from ingest.decode.events import (
    MEMBERS,
    NULL,
    PARSE_ERRORS,
    EventRefusedError,
    SchemaBlock,
    SourceTable,
    TopicState,
    format_hint,
    split_message,
)
from ingest.decode.json.layout import Anatomy
from ingest.decode.json.single_event import (
    Tokens,
    key_tokens,
    members_of,
    row_image,
)
from ingest.decode.outcome import KeyMoves, OldKeys
from ingest.decode.shapes import LooseShape, Shape
from ingest.decode.types.semantic_types import DEFAULT_MAPPING, ProducerFacts, TypeMapping
from ingest.source.records import RawBatch


def _no_keys(_: str) -> tuple[str, ...]:
    return ()


def source_of_topic(topic: str) -> SourceTable:
    """The source table that a topic is named after, for events that name none.

    The last part is the table, the part before it the database (or schema), all before that the
    server: `table`, `db.table`, `server.db.table`. Four parts and more are
    `server.db.schema.table`, as of Debezium's SQL Server connector for several databases.
    """
    parts = [part for part in topic.split(".") if part] or [topic]
    if len(parts) > 3:
        return SourceTable(parts[-3], parts[-2], parts[-1], ".".join(parts[:-3]))
    server = parts[0] if len(parts) == 3 else ""
    return SourceTable(parts[-2] if len(parts) > 1 else "", "", parts[-1], server)


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class DialectOptions:
    """Facts about the producer and the pipeline that events do not carry.

    Attributes:
        primary_keys: configured key columns of a target `db.table`; empty = from the event or the
            Kafka key.
        decimal_handling_mode: of the Debezium connector: `precise`, `string` or `double`.
        binary_handling_mode: `bytes` or `base64`, `base64-url-safe`, `hex`, `latin1`; empty =
            default of the format.
        time_precision_mode: encoding of times without schema block: `isostring` is text,
            Debezium's other modes are integers; empty = default of the format.
        unavailable_value_placeholder: text of Debezium's placeholder for values the source lacks.
        missing_columns: meaning of a column of the table that an update lacks: `null`, or
            `unchanged`; empty = default of the format.
        metadata_prefix: of members of flattened events that are no columns (`add.fields.prefix`).
        metadata_columns: members with that prefix that are columns nevertheless.
        tombstones: whether a null value deletes in `debezium-flat`: `delete`, or `skip` where
            deletes arrive as rewritten rows or not at all.
        before_image_field: DMS: member with the row before (`BeforeImageSettings.FieldName`).
        before_image_prefix: DMS: prefix of columns with the value before, inside of the row.
        type_mapping: types of new columns where there is a choice.
    """

    primary_keys: Callable[[str], Sequence[str]] = _no_keys
    decimal_handling_mode: str = "precise"
    binary_handling_mode: str = ""
    time_precision_mode: str = ""
    unavailable_value_placeholder: str = "__debezium_unavailable_value"
    missing_columns: str = ""
    metadata_prefix: str = "__"
    metadata_columns: tuple[str, ...] = ()
    tombstones: str = "delete"
    before_image_field: str = "before-image"
    before_image_prefix: str = "BI_"
    type_mapping: TypeMapping = DEFAULT_MAPPING


class Image(msgspec.Struct, gc=False, frozen=True):
    """The change of one row.

    Attributes:
        op: `c r u d`.
        before: JSON text of the row before; for updates the changed columns are enough. None = the
            event has none.
        after: JSON text of the row after; None for `d`.
    """

    op: str
    before: bytes | None
    after: bytes | None


class Event(msgspec.Struct, gc=False, frozen=True):
    """A record that changes rows of one table.

    Attributes:
        source: the table.
        images: its rows, at least one; all are used or none.
        ts_ms: of the change in the source [epoch ms].
        key_names: primary key as the event names it; empty = it does not.
        types: JSON text that describes the columns' types, and distinguishes shapes; empty =
            there is none.
        key: the record's key.
        of_key: whether the row is the record's key, of which only the key columns count.
    """

    source: SourceTable
    images: tuple[Image, ...]
    ts_ms: int | None = None
    key_names: tuple[str, ...] = ()
    types: bytes = b""
    key: bytes | None = None
    of_key: bool = False


_MAX_SOURCES = 65_536
"""Source tables remembered; far above any number of tables, so that memory stays bounded."""

_MAX_BLOCKS = 4_096


class Dialect(abc.ABC):
    """One event format.

    Attributes:
        key_is_row: whether the members of the Kafka key are the columns of the primary key.
        fills_keys: whether the Kafka key has key columns that a row lacks.
        whole_before: whether the row before an update is whole, or has the key alone; if not, it
            has the changed columns.
        binary: the format's way of writing bytes, as `DialectOptions.binary_handling_mode`.
        times: the format's way of writing times, as `DialectOptions.time_precision_mode`.
        missing: the format's `DialectOptions.missing_columns`.
        asks_table: whether `with_table` is called.
        members: where messages have metadata, by its name; without what `read` returns.
        anatomy: structure of messages for the compiled scan.
    """

    key_is_row: ClassVar[bool] = False
    fills_keys: ClassVar[bool] = False
    whole_before: ClassVar[bool] = False
    binary: ClassVar[str] = "base64"
    times: ClassVar[str] = "isostring"
    missing: ClassVar[str] = "null"
    asks_table: ClassVar[bool] = False
    members: Mapping[str, Sequence[Member]] = {}
    anatomy: Anatomy

    def __init__(self, options: DialectOptions) -> None:
        self.options = options
        self.facts = ProducerFacts(
            decimal_handling_mode=options.decimal_handling_mode,
            binary_handling_mode=options.binary_handling_mode or self.binary,
            time_precision_mode=options.time_precision_mode or self.times,
            mapping=options.type_mapping,
        )
        self._sources: dict[tuple[str | None, ...], SourceTable] = {}
        self.partial_updates = (options.missing_columns or self.missing) == "unchanged"

    @abc.abstractmethod
    def read(self, topic: str, key: bytes | None, value: bytes | None) -> Event | str:
        """Parse a record.

        Returns:
            The row event, or for any other message its key in `DecodeResult.counts`.

        Raises:
            EventRefusedError: the message is of no known kind.
        """

    def with_table(self, event: Event, key: Collection[str], columns: Collection[str]) -> Event:
        """Complete an event whose message alone does not distinguish columns from metadata.

        Args:
            event: as returned by `read`.
            key: columns of the table's primary key.
            columns: of the table; none while it does not exist.

        Raises:
            EventRefusedError: an image is not a row.
        """
        return event

    def mistaken(self, value: bytes | None) -> str:
        """What a record that does not fit a table's columns is instead of a row; "" = a row."""
        return ""

    def truncated(self, value: bytes) -> SourceTable | None:
        """The table that a record counted as `op.t` truncates; None if it names none."""
        return None

    def prefix(self, topic: str, value: bytes) -> bytes:
        """Text before the payload of a message, which `}` follows; empty = none."""
        return b""

    def old_keys(self, raw: RawBatch) -> OldKeys | None:
        """A reader of the old keys of new rows; None = records do not have them."""
        return None

    def lacking_key(self, event: Event) -> Sequence[str]:
        """Columns of `key_names` that the row of an event without types does not have."""
        return ()

    def metadata_text(self, topic: str, value: bytes) -> bytes | None:
        """The JSON object in which `members` are."""
        return value

    def source(self, database: str, schema: str, table: str, server: str = "") -> SourceTable:
        """A source table; always the same object, so that it is compared by identity."""
        names = (database, schema, table, server)
        source = self._sources.get(names)
        if source is None:
            source = self._remember(names, SourceTable(*names))
        return source

    def source_of_topic(self, topic: str) -> SourceTable:
        """The source table that a topic is named after."""
        source = self._sources.get((topic,))
        return source or self._remember((topic,), source_of_topic(topic))

    def _remember(self, names: tuple[str, ...], source: SourceTable) -> SourceTable:
        if len(self._sources) >= _MAX_SOURCES:
            self._sources.clear()
        self._sources[names] = source
        return source

    def shape(self, event: Event) -> Shape:
        """The shape of an event; requested once per source table and `Event.types`.

        Raises:
            EventRefusedError: the description of the types is not understood.
        """
        return LooseShape(event.source, None, self.facts, self.options.primary_keys)

    def key_names(self, event: Event) -> Sequence[str]:
        """Primary key of a table that does not exist yet; empty = not known."""
        return event.key_names

    def origins(self) -> OriginReader | None:
        """Reads metadata of records where `members` does not say enough."""
        return None


class BlockMessages(Dialect):
    """Base of formats whose messages may have Connect's schema block; remembers blocks."""

    def __init__(self, options: DialectOptions) -> None:
        super().__init__(options)
        self.blocks: dict[bytes, SchemaBlock] = {}
        self.topics: dict[str, TopicState] = {}
        self._keys: dict[str, TopicState] = {}

    def state(self, topic: str, *, of_keys: bool = False) -> TopicState:
        """State of a topic's values, or keys."""
        states = self._keys if of_keys else self.topics
        state = states.get(topic)
        if state is None:
            state = states[topic] = TopicState()
        return state

    def remember(self, block: SchemaBlock) -> SchemaBlock:
        """Keep a block of rows, by its bytes."""
        if len(self.blocks) >= _MAX_BLOCKS:
            self.blocks.clear()
        self.blocks[block.raw] = block
        return block

    def prefix(self, topic: str, value: bytes) -> bytes:
        """See `Dialect.prefix`."""
        return self.state(topic).split(value)[2]


_T = TypeVar("_T")


def parse(decode: Callable[[bytes], _T], value: bytes, what: str, format_: str = "") -> _T:
    """Decode an envelope, or a part of one.

    Args:
        decode: decodes it.
        value: its text.
        what: description of the expected value, for the error.
        format_: format in use, if the value is a whole message: the error then says which other
            format it resembles.

    Raises:
        EventRefusedError: it is not JSON, or not such an envelope.
    """
    try:
        return decode(value)
    except msgspec.ValidationError as error:
        hint = format_hint(value, format_) if format_ else ""
        raise EventRefusedError("envelope", f"not {what}: {error}{hint}") from None
    except PARSE_ERRORS as error:
        hint = format_hint(value, format_) if format_ else ""
        raise EventRefusedError("json", f"{error}{hint}") from None


def json_tokens(operations: Mapping[str, str]) -> dict[bytes, str]:
    """Operations by the JSON tokens that name them (`Anatomy.operations`)."""
    return {msgspec.json.encode(name): op for name, op in operations.items()}


def image(raw: Any) -> bytes | None:
    """Text of an optional row image: None where it is absent or null."""
    text = bytes(raw)
    return None if text == NULL or not text else text


def message_members(text: bytes, what: str, format_: str = "") -> dict[str, bytes]:
    """Members of a JSON object with the raw text of their values; arguments as of `parse`.

    Raises:
        EventRefusedError: it is no object.
    """
    members = parse(MEMBERS.decode, text, what, format_)
    return {name: bytes(raw) for name, raw in members.items()}


def lacks_members(text: bytes, other: bytes) -> bool:
    """Whether an object has not all the members of another.

    Raises:
        EventRefusedError: one is no object.
    """
    names = parse(MEMBERS.decode, other, "a row").keys()
    return not names <= parse(MEMBERS.decode, text, "a row").keys()


def join_members(members: Mapping[str, bytes]) -> bytes:
    """The JSON object that has these members."""
    parts = [msgspec.json.encode(name) + b":" + token for name, token in members.items()]
    return b"{" + b",".join(parts) + b"}"


_SMALLEST_MS = 100_000_000_000
"""As milliseconds a moment of 1973, as seconds one of the year 5138."""


def epoch_ms(number: float | None) -> int | None:
    """A moment in epoch milliseconds from seconds or milliseconds, which some formats mix."""
    if number is None:
        return None
    return int(number if abs(number) >= _SMALLEST_MS else number * 1_000)


def utc_ms(text: str | None) -> int | None:
    """A moment in epoch milliseconds from ISO text, UTC without an offset; None if invalid."""
    if not text:
        return None
    try:
        moment = datetime.datetime.fromisoformat(text)
    except ValueError:
        return None
    if moment.tzinfo is None:
        moment = moment.replace(tzinfo=datetime.UTC)
    return round(moment.timestamp() * 1_000)


EPOCH = Reading(int | float, epoch_ms)
"""Of a member with a moment in seconds or milliseconds."""

ISO = Reading(str, utc_ms)
"""Of a member with a moment as text."""


# Debezium JSON, with and without schema block: event envelopes.
#
# Error classes of bad records: `json` (not JSON), `envelope` (not a known event), `type` (a value
# does not fit its column), `unrepresentable` (no column of that type can hold the value; the
# message names the value of `sink.type.mapping` to set), `schema` (a column that the table lacks
# and may not add), `no_primary_key`, `unavailable_value` (PostgreSQL's TOAST placeholder),
# `source_table_conflict` (another source table writes to the target), `table_name` (the name of the
# target is invalid).
#
# Source: CDC.md §1, measured choices in PEERS.md §3.


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
        return _OP.decode(split_message(raw.value(at) or b"").payload).op.lower() == "d"
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
