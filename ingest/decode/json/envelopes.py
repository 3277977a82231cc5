# SPDX-License-Identifier: Apache-2.0
"""Interface of an event format to the common decoder: one message in, one row event out.

A `Dialect` knows the envelope of its format: where the row images are, what kind of change it is,
which table it belongs to. It parses no row; images are passed on as JSON text and are decoded by
the column (`envelope_decoder`). One small module per format has its dialect.
"""

import abc
import dataclasses
import datetime
from collections.abc import Callable, Collection, Mapping, Sequence
from typing import Any, ClassVar, TypeVar

import msgspec

from ingest.decode.dialects.recognition import format_hint
from ingest.decode.events import EventRefusedError, SourceTable
from ingest.decode.json.layout import Anatomy
from ingest.decode.json.loose_shapes import LooseShape
from ingest.decode.json.member_columns import Member, Reading
from ingest.decode.json.schema_block import SchemaBlock, TopicState
from ingest.decode.key_check import OldKeys
from ingest.decode.metadata_columns import OriginReader
from ingest.decode.shapes import Shape
from ingest.decode.types.semantic_types import DEFAULT_MAPPING, ProducerFacts, TypeMapping
from ingest.decode.types.token_values import MEMBERS, NULL, PARSE_ERRORS
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


def members_of(text: bytes, what: str, format_: str = "") -> dict[str, bytes]:
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
