# SPDX-License-Identifier: Apache-2.0
"""Writer schemas of Avro records, and single records as JSON.

A schema is parsed once per id, from the registry's answer; an undecodable schema is cached too.

The id is before the value (magic byte 0 and a big-endian id, or magic byte 1 and a GUID) or in a
header, and then the value has no prefix. A value without prefix may begin with a zero byte too, so
headers are read first; since reading them costs as much as decoding, only those of the first and
the last record of a batch are read, and all of them if one of the two has such a header: a producer
changes its configuration once, not back and forth within a few thousand records. `header_id` is for
the doubtful rest.

Apicurio's converters may name a schema by its content id, which registries resolve through
Confluent's API, or by its global id, which they do not: such records are refused with the
producer's setting that changes it. So are values in Avro's JSON encoding, which a header declares.

Source: CDC.md §1.7; `SchemaId` of Confluent's clients (`__key_schema_id`, `__value_schema_id`);
header names of Apicurio's serdes.
"""

import dataclasses
import enum
import functools
import uuid
from collections.abc import Callable, Iterator, Sequence

import msgspec

from ingest.decode.avro.connect_schema import AvroSchema, SchemaTextError, parse_schema
from ingest.decode.avro.lanes import AvroValueError, EnvelopeLanes, ValueReader, reader_of, to_json
from ingest.decode.events import (
    BadRecord,
    EventRefusedError,
    SchemaBlock,
    SourceTable,
    parse_block,
    text_format_hint,
)
from ingest.decode.registry import AVRO, RegisteredSchema, SchemaId, UnknownSchemaError
from ingest.source.records import RawBatch

_ID, _GUID = 0, 1
_GUID_BYTES = 16
_CONFLUENT_BYTES, _APICURIO_BYTES = 4, 8
_BINARY = b"BINARY"
_SIZES = {b"\0": 1 + _CONFLUENT_BYTES, b"\1": 1 + _GUID_BYTES}
"""Of a header by its magic byte."""


class FramingError(ValueError):
    """No schema id can be found; the message has the reason."""


class Part(enum.Enum):
    """Key or value of a record; its value is (Confluent's header, Apicurio's headers)."""

    KEY = ("__key_schema_id", "apicurio.key.contentId", "apicurio.key.globalId")
    VALUE = ("__value_schema_id", "apicurio.value.contentId", "apicurio.value.globalId")

    @property
    def encoding_header(self) -> str:
        """The header with the encoding of the content."""
        return f"apicurio.{self.name.lower()}.encoding"


def usual_subject(topic: str, part: Part) -> str:
    """The subject under which producers register schemas of a topic by default."""
    return f"{topic}-{part.name.lower()}"


class Framing:
    """Finds schema ids.

    Args:
        id_bytes: of an id before a value: 4, or 8 as Apicurio writes it by default.
    """

    def __init__(self, id_bytes: int) -> None:
        if id_bytes not in (_CONFLUENT_BYTES, _APICURIO_BYTES):
            raise ValueError(f"invalid id size: {id_bytes} bytes")
        self._id_bytes = id_bytes

    @property
    def prefix_bytes(self) -> int:
        """Length of the usual prefix: magic byte and id."""
        return 1 + self._id_bytes

    def has_headers(self, raw: RawBatch) -> bool:
        """Whether the headers of all records of a batch must be read."""
        ends = {0, len(raw) - 1} if len(raw) else set()
        return any(_header(raw, at, part) is not None for at in ends for part in Part)

    def header_id(self, raw: RawBatch, at: int, part: Part) -> SchemaId | None:
        """The id in a record's headers.

        Raises:
            FramingError: the header contains no id.
        """
        header = _header(raw, at, part)
        if header is None:
            return None
        name, content = header
        if name == part.value[2]:
            raise FramingError(
                f"the header {name} names a schema by Apicurio's global id: set "
                "apicurio.registry.use-id=contentId on the producer"
            )
        if name == part.value[1] and len(content) == _APICURIO_BYTES:
            encoding = dict(raw.headers(at)).get(part.encoding_header, _BINARY)
            if encoding.upper() != _BINARY:
                raise FramingError(
                    f"the header {part.encoding_header} names an encoding that is not binary: set "
                    "apicurio.registry.avro.encoding=BINARY on the producer"
                )
            return int.from_bytes(content, "big")
        if name == part.value[0] and content[:1] in _SIZES and len(content) == _SIZES[content[:1]]:
            return self._split_prefix(content, _CONFLUENT_BYTES)[0]
        raise FramingError(f"the header {name} holds no schema id")

    def prefix(self, value: bytes) -> bytes:
        """The bytes that identify the schema."""
        if value[:1] == b"\x01":
            return value[: 1 + _GUID_BYTES]
        return value[: 1 + self._id_bytes]

    def id_before(self, value: bytes) -> tuple[SchemaId, int]:
        """The id before a value, and the start of the value.

        Raises:
            FramingError: there is none.
        """
        return self._split_prefix(value, self._id_bytes)

    def _split_prefix(self, value: bytes, id_bytes: int) -> tuple[SchemaId, int]:
        magic = value[0] if value else -1
        size = {_ID: id_bytes, _GUID: _GUID_BYTES}.get(magic, 0)
        content = value[1 : 1 + size]
        if not size or len(content) < size:
            raise FramingError(
                "no schema id: the value does not begin with a registry's magic byte, "
                "and no header names a schema"
            )
        if magic == _GUID:
            return uuid.UUID(bytes=content), 1 + size
        return int.from_bytes(content, "big"), 1 + size


def _header(raw: RawBatch, at: int, part: Part) -> tuple[str, bytes] | None:
    headers = dict(raw.headers(at))
    for name in part.value:
        if name in headers:
            return name, headers[name]
    return None


_BARE_BLOCK = b'{"schema":null,"payload":'


class WriterSchema:
    """A schema that records were written with.

    Attributes:
        schema: parsed.
        key_names: key columns of all targets of its events: of `before`, the fast path decodes only
            these.
    """

    def __init__(self, schema: AvroSchema) -> None:
        self.schema = schema
        self.key_names: frozenset[str] = frozenset()

    @functools.cached_property
    def read(self) -> ValueReader:
        """Reads one value."""
        return reader_of(self.schema.tree)

    @functools.cached_property
    def lanes(self) -> EnvelopeLanes | None:
        """Decodes many row events; None if the schema is not one of row events."""
        return EnvelopeLanes.of(self.schema)

    @functools.cached_property
    def block(self) -> SchemaBlock:
        """As a schema block."""
        return parse_block(self.schema.block)

    def as_json(self, data: bytes, start: int) -> bytes:
        """The equivalent JSON message, including the schema block.

        Raises:
            EventRefusedError: the bytes do not match the schema.
        """
        return b'{"schema":' + self.schema.block + b',"payload":' + self._json(data, start) + b"}"

    def as_bare_json(self, data: bytes, start: int) -> bytes:
        """The same without a schema block."""
        return _BARE_BLOCK + self._json(data, start) + b"}"

    def _json(self, data: bytes, start: int) -> bytes:
        try:
            return to_json(self.read, data, start)
        except AvroValueError as error:
            raise EventRefusedError(
                "avro", f"the value does not match its schema: {error}"
            ) from None


class WriterSchemas:
    """Writer schemas by id.

    Args:
        fetch: reads from the registry (`SchemaRegistry.schema`), which caches schemas.
    """

    def __init__(self, fetch: Callable[[SchemaId], RegisteredSchema]) -> None:
        self._fetch = fetch
        self._by_id: dict[SchemaId, WriterSchema | EventRefusedError] = {}

    def of(self, schema_id: SchemaId, subject: str) -> WriterSchema:
        """The schema of an id.

        Args:
            schema_id: of the record.
            subject: of the schema, for messages.

        Raises:
            EventRefusedError: class `schema_id`: unknown to the registry (requested again next
                time); class `avro`: it cannot be decoded.
            RetryableError, AccessDeniedError, InvalidRequestError: of the registry.
        """
        cached = self._by_id.get(schema_id)
        if cached is None:
            try:
                registered = self._fetch(schema_id)
            except UnknownSchemaError as error:
                raise EventRefusedError("schema_id", f"{error} subject=`{subject}`") from None
            cached = self._by_id[schema_id] = _parsed(schema_id, registered)
        if isinstance(cached, EventRefusedError):
            raise cached
        return cached


def _parsed(schema_id: SchemaId, registered: RegisteredSchema) -> WriterSchema | EventRefusedError:
    if registered.kind != AVRO:
        return EventRefusedError(
            "avro",
            f"schema {schema_id} is {registered.kind}, not Avro, which is not supported: set the "
            "producer's converter or serializer to Avro's",
        )
    try:
        parsed = WriterSchema(
            parse_schema(registered.text, dict.fromkeys(_texts(registered.references)))
        )
        _ = parsed.read, parsed.block
    except (SchemaTextError, msgspec.MsgspecError, LookupError, RecursionError) as error:
        return EventRefusedError("avro", f"schema {schema_id} cannot be decoded: {error}")
    return parsed


def _texts(references: tuple[RegisteredSchema, ...]) -> Iterator[str]:
    for reference in references:
        yield from _texts(reference.references)
        yield reference.text


class _Payload(msgspec.Struct):
    op: str = ""


class _Message(msgspec.Struct):
    payload: _Payload


_MESSAGE = msgspec.json.Decoder(_Message)
_REFUSALS = (FramingError, EventRefusedError, msgspec.MsgspecError, UnicodeDecodeError)


@dataclasses.dataclass(frozen=True, slots=True)
class _BadRecordExtras:
    """Headers and timestamp of a record without its batch."""

    record: BadRecord

    def headers(self) -> Sequence[tuple[str, bytes]]:
        return self.record.headers

    def timestamp(self) -> tuple[int, int]:
        return 0, self.record.timestamp_ms


class AvroRecords:
    """Reads keys and values of raw batches; base of the decoders.

    Args:
        schemas: id to registered schema: `SchemaRegistry(settings).schema`.
        id_bytes: of the id before a value: 4, or 8 for Apicurio's own format.

    Attributes:
        key_is_row: whether the members of keys are the columns of the primary key.
    """

    key_is_row = True

    def __init__(self, schemas: Callable[[SchemaId], RegisteredSchema], id_bytes: int) -> None:
        self.framing = Framing(id_bytes)
        self.writers = WriterSchemas(schemas)

    def key_columns(self, raw: RawBatch, at: int) -> frozenset[str] | None:
        """Column names of a record's key; None if it has none or it cannot be decoded.

        Costs a dictionary lookup: keys of one schema have the same columns.
        """
        key = raw.keys[at]
        if not key:
            return None
        try:
            writer, _ = self._writer(raw, at, key, Part.KEY)
        except _REFUSALS:
            return None
        return frozenset(writer.schema.fields) or None

    def json_key(self, raw: RawBatch, at: int) -> bytes | None:
        """A record's key as a JSON message; None if it has none or it cannot be decoded."""
        key = raw.keys[at]
        if not key:
            return None
        try:
            writer, begin = self._writer(raw, at, key, Part.KEY)
            return writer.as_bare_json(key, begin)
        except _REFUSALS:
            return None

    def message(self, raw: RawBatch, at: int, part: Part) -> bytes | None:
        """A key or value as a JSON message with its schema block; None if the record has none.

        Raises:
            EventRefusedError: it cannot be decoded.
            RetryableError, AccessDeniedError, InvalidRequestError: of the registry.
        """
        content = raw.keys[at] if part is Part.KEY else raw.values[at]
        if content is None:
            return None
        try:
            writer, begin = self._writer(raw, at, content, part)
        except FramingError as error:
            hint = text_format_hint(content) if part is Part.VALUE else ""
            raise EventRefusedError("avro", f"{error}{hint}") from None
        return writer.as_json(content, begin)

    def json_value(self, raw: RawBatch, at: int) -> bytes | None:
        """A record's value as a JSON message; None if it has none or it cannot be decoded."""
        try:
            return self.message(raw, at, Part.VALUE)
        except EventRefusedError:
            return None

    def truncated(self, raw: RawBatch, at: int) -> SourceTable | None:
        """The table of a record counted as `op.t`; None for any other record."""
        return None

    def operation(self, topic: str, record: BadRecord) -> str:
        """Name of the count of a record that yielded rows."""
        key, value, extras = [record.key], [record.value], {0: _BadRecordExtras(record)}
        return self.operation_at(RawBatch(topic, 0, [record.offset], key, value, extras=extras), 0)

    def operation_at(self, raw: RawBatch, at: int) -> str:
        """The same of a record in its batch; `op.` if it is not a row event."""
        value = raw.values[at]
        try:
            if value is None:
                return "op."
            writer, begin = self._writer(raw, at, value, Part.VALUE)
            return f"op.{_MESSAGE.decode(writer.as_bare_json(value, begin)).payload.op.lower()}"
        except _REFUSALS:
            return "op."

    def value_writer(self, raw: RawBatch, at: int) -> tuple[WriterSchema, int]:
        """Schema of a record's value, and the start of the value.

        Raises:
            FramingError, EventRefusedError: it is unknown; never for records that yielded rows.
        """
        return self._writer(raw, at, raw.values[at] or b"", Part.VALUE)

    def _writer(
        self, raw: RawBatch, at: int, content: bytes, part: Part
    ) -> tuple[WriterSchema, int]:
        header_id = self.framing.header_id(raw, at, part)
        if header_id is not None:
            return self.writers.of(header_id, usual_subject(raw.topic, part)), 0
        schema_id, begin = self.framing.id_before(content)
        return self.writers.of(schema_id, usual_subject(raw.topic, part)), begin
