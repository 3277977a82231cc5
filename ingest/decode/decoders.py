# SPDX-License-Identifier: Apache-2.0
"""Which decoder reads a format, and what the rest of the pipeline uses of it.

An Avro decoder brings its schema registry's client and the schemas it has seen, so there is one per
worker process, like the decoder.
"""

import dataclasses
from collections.abc import Callable, Mapping, Sequence
from types import MappingProxyType

import msgspec

from ingest.config.choices import DEBEZIUM_AVRO, DEBEZIUM_JSON, UPSERT_AVRO
from ingest.config.registry_settings import AvroSettings
from ingest.config.settings import Settings
from ingest.decode.avro.debezium import DebeziumAvroDecoder, DebeziumAvroOptions
from ingest.decode.avro.upsert import UpsertAvroDecoder
from ingest.decode.avro.writer_schemas import AvroRecords, Framing, WriterSchemas
from ingest.decode.dialects.bare_rows import PlainJson, UpsertJson
from ingest.decode.dialects.canal import CanalJson
from ingest.decode.dialects.debezium_flat import DebeziumFlat
from ingest.decode.dialects.dms import DmsJson
from ingest.decode.dialects.maxwell import MaxwellJson
from ingest.decode.dialects.ogg import OggJson
from ingest.decode.events import BadRecord, DecodeResult, Resolver, SourceTable
from ingest.decode.json.debezium_json import DebeziumJsonDecoder
from ingest.decode.json.envelope_decoder import EnvelopeDecoder
from ingest.decode.json.envelopes import Dialect, DialectOptions
from ingest.decode.json.schema_block import split_message
from ingest.decode.key_check import KeyColumns, json_keys
from ingest.decode.metadata_columns import OriginReader
from ingest.decode.registry.client import SchemaRegistry
from ingest.decode.schema_change_events import JsonValue, plain_value
from ingest.decode.types.semantic_types import TypeMapping
from ingest.source.records import RawBatch
from storage.errors import InternalError

__all__ = [
    "DIALECTS",
    "FormatDecoder",
    "PrimaryKeys",
    "debezium_options",
    "decoder_of",
    "json_values",
    "truncated_table",
]

DIALECTS: Mapping[str, type[Dialect]] = MappingProxyType(
    {
        "debezium-flat": DebeziumFlat,
        "upsert-json": UpsertJson,
        "canal-json": CanalJson,
        "maxwell-json": MaxwellJson,
        "ogg-json": OggJson,
        "aws-dms-json": DmsJson,
        "json": PlainJson,
    }
)


class _Origin(msgspec.Struct, gc=False):
    name: str | None = None
    db: str | None = None
    schema: str | None = None
    table: str | None = None


class _Truncate(msgspec.Struct, gc=False):
    op: str
    source: _Origin


_TRUNCATE = msgspec.json.Decoder(_Truncate)


def truncated_table(value: bytes | None) -> SourceTable | None:
    """The table that an event says was truncated; None of any other message.

    Args:
        value: a record's value as JSON, with or without a schema block.
    """
    if value is None:
        return None
    try:
        event = _TRUNCATE.decode(split_message(value).payload)
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError):
        return None
    origin = event.source
    if event.op not in ("t", "T") or not origin.table:
        return None
    return SourceTable(origin.db or "", origin.schema or "", origin.table, origin.name or "")


PrimaryKeys = Callable[[str], Sequence[str]]
"""Of a table `database.table` the configured key columns of the source; () = the Kafka key's."""

Truncated = Callable[[RawBatch, int], SourceTable | None]


def _no_table(raw: RawBatch, at: int) -> SourceTable | None:
    return None


@dataclasses.dataclass(frozen=True, slots=True)
class FormatDecoder:
    """A decoder of one format.

    Attributes:
        decode: records of one topic and partition to rows, counts, bad records and deltas.
        key_is_row: whether the members of a Kafka key are the key columns of the row.
        key_columns: column names of a record's key.
        operation: (topic, record) to the name under which a record that gave rows was counted.
        origins: reads metadata of records.
        json_value: a record's value as a JSON message; None when it has none or cannot be decoded.
        truncated: the table that a record counted as `op.t` is about; None of any other record.
    """

    decode: Callable[[RawBatch], DecodeResult]
    key_is_row: bool
    key_columns: KeyColumns
    operation: Callable[[str, BadRecord], str]
    origins: OriginReader
    json_value: JsonValue = plain_value
    truncated: Truncated = _no_table


def decoder_of(settings: Settings, keys: PrimaryKeys, resolve: Resolver) -> FormatDecoder:
    """The decoder of a pipeline.

    Args:
        settings: the pipeline's.
        keys: of its tables.
        resolve: source table and topic to target.

    Raises:
        InvalidOptionError: a certificate for the schema registry cannot be read.
    """
    if settings.format == DEBEZIUM_AVRO:
        return _debezium_avro(settings, keys, resolve)
    if settings.format == UPSERT_AVRO:
        return _upsert_avro(settings, keys, resolve)
    if settings.format == DEBEZIUM_JSON:
        events = DebeziumJsonDecoder(debezium_options(settings, keys), resolve)
        return FormatDecoder(
            events.decode,
            events.key_is_row,
            json_keys,
            events.operation,
            events.origins,
            truncated=_truncated(plain_value),
        )
    dialect = DIALECTS[settings.format](_dialect_options(settings, keys))
    decoder = EnvelopeDecoder(dialect, resolve)
    return FormatDecoder(
        decoder.decode,
        decoder.key_is_row,
        json_keys,
        decoder.operation,
        decoder.origins,
        truncated=decoder.truncated,
    )


def debezium_options(settings: Settings, keys: PrimaryKeys) -> DialectOptions:
    """What decoders of Debezium's envelopes need to know that events do not carry."""
    return DialectOptions(
        **dataclasses.asdict(settings.debezium),
        primary_keys=keys,
        type_mapping=TypeMapping.of(settings.sink.type_mapping),
    )


def _dialect_options(settings: Settings, keys: PrimaryKeys) -> DialectOptions:
    """The same for the other formats."""
    options = DialectOptions(
        primary_keys=keys,
        decimal_handling_mode=settings.debezium.decimal_handling_mode,
        type_mapping=TypeMapping.of(settings.sink.type_mapping),
    )
    if settings.format != "debezium-flat":
        return options
    facts = {**dataclasses.asdict(settings.debezium), **dataclasses.asdict(settings.flat)}
    return dataclasses.replace(options, **facts)


def _truncated(json_value: JsonValue) -> Truncated:
    """Of Debezium's events, whatever they are written in."""
    return lambda raw, at: truncated_table(json_value(raw, at))


def json_values(settings: Settings) -> JsonValue:
    """Reads values of a pipeline's records as JSON, without its decoder."""
    if settings.avro is None:
        return plain_value
    schemas = WriterSchemas(SchemaRegistry(settings.avro.registry).schema)
    return AvroRecords(Framing(settings.avro.id_bytes), schemas).json_value


def _debezium_avro(settings: Settings, keys: PrimaryKeys, resolve: Resolver) -> FormatDecoder:
    avro = _avro_of(settings)
    options = DebeziumAvroOptions(
        schemas=SchemaRegistry(avro.registry).schema,
        debezium=debezium_options(settings, keys),
        id_bytes=avro.id_bytes,
    )
    decoder = DebeziumAvroDecoder(options, resolve)
    records = decoder.records
    return FormatDecoder(
        decoder.decode,
        True,
        records.key_columns,
        _of_one(records.operation),
        decoder.origins,
        records.json_value,
        _truncated(records.json_value),
    )


def _upsert_avro(settings: Settings, keys: PrimaryKeys, resolve: Resolver) -> FormatDecoder:
    avro = _avro_of(settings)
    schemas = SchemaRegistry(avro.registry).schema
    options = _dialect_options(settings, keys)
    decoder = UpsertAvroDecoder(schemas, avro.id_bytes, options, resolve)
    operation = _of_one(decoder.operation)
    records = decoder.records
    return FormatDecoder(
        decoder.decode, True, records.key_columns, operation, decoder.origins, records.json_value
    )


def _avro_of(settings: Settings) -> AvroSettings:
    if settings.avro is None:
        raise InternalError("an Avro format without schema registry", format=settings.format)
    return settings.avro


@dataclasses.dataclass(frozen=True, slots=True)
class _Kept:
    """Headers and timestamp of such a record."""

    record: BadRecord

    def headers(self) -> Sequence[tuple[str, bytes]]:
        return self.record.headers

    def timestamp(self) -> tuple[int, int]:
        return 0, self.record.timestamp_ms


def _of_one(named: Callable[[RawBatch, int], str]) -> Callable[[str, BadRecord], str]:
    """For a record that was taken out of its batch what is known of one in a batch."""

    def operation(topic: str, record: BadRecord) -> str:
        alone = RawBatch(
            topic, 0, [record.offset], [record.key], [record.value], extras={0: _Kept(record)}
        )
        return named(alone, 0)

    return operation
