# SPDX-License-Identifier: Apache-2.0
"""Which decoder reads a format, and what the rest of the pipeline uses of it.

An Avro decoder brings its schema registry's client and the schemas it has seen, so there is one per
worker process, like the decoder.
"""

import dataclasses
import functools
from collections.abc import Callable, Mapping, Sequence
from types import MappingProxyType

from ingest.config.choices import DEBEZIUM_AVRO, DEBEZIUM_JSON
from ingest.config.settings import Settings
from ingest.decode.avro.debezium import DebeziumAvroDecoder, UpsertAvroDecoder
from ingest.decode.avro.writer_schemas import AvroRecords
from ingest.decode.bare_rows import DebeziumFlat, PlainJson, UpsertJson
from ingest.decode.dialects import CanalJson, DmsJson, MaxwellJson, OggJson
from ingest.decode.events import Resolver
from ingest.decode.json.envelope_decoder import EnvelopeDecoder
from ingest.decode.json.envelopes import DebeziumJson, Dialect, DialectOptions
from ingest.decode.registry import SchemaRegistry
from ingest.decode.schema_change_events import JsonValue, plain_value
from ingest.decode.types.semantic_types import TypeMapping
from storage.errors import InternalError

FormatDecoder = EnvelopeDecoder | DebeziumAvroDecoder | UpsertAvroDecoder

PrimaryKeys = Callable[[str], Sequence[str]]
"""Of a table `database.table` the configured key columns of the source; () = the Kafka key's."""

DIALECTS: Mapping[str, type[Dialect]] = MappingProxyType(
    {
        DEBEZIUM_JSON: DebeziumJson,
        "debezium-flat": DebeziumFlat,
        "upsert-json": UpsertJson,
        "canal-json": CanalJson,
        "maxwell-json": MaxwellJson,
        "ogg-json": OggJson,
        "aws-dms-json": DmsJson,
        "json": PlainJson,
    }
)
"""The formats in JSON, by the names that settings use."""

_MAPPING_OF = functools.cache(TypeMapping.of)


def decoder_of(settings: Settings, keys: PrimaryKeys, resolve: Resolver) -> FormatDecoder:
    """The decoder of a pipeline.

    Args:
        keys: of its tables.
        resolve: source table and topic to target.

    Raises:
        InvalidOptionError: a certificate for the schema registry cannot be read.
    """
    options = dialect_options(settings, keys)
    if settings.format in DIALECTS:
        return EnvelopeDecoder(DIALECTS[settings.format](options), resolve)
    avro = settings.avro
    if avro is None:
        raise InternalError("an Avro format without schema registry", format=settings.format)
    kind = DebeziumAvroDecoder if settings.format == DEBEZIUM_AVRO else UpsertAvroDecoder
    return kind(SchemaRegistry(avro.registry).schema, avro.id_bytes, options, resolve)


def dialect_options(settings: Settings, keys: PrimaryKeys) -> DialectOptions:
    """What decoders need to know that events do not carry."""
    facts = dataclasses.asdict(settings.debezium)
    if settings.format == "debezium-flat":
        facts |= dataclasses.asdict(settings.flat)
    elif settings.format not in (DEBEZIUM_JSON, DEBEZIUM_AVRO):
        facts = {"decimal_handling_mode": settings.debezium.decimal_handling_mode}
    mapping = _MAPPING_OF(settings.sink.type_mapping)
    return DialectOptions(**facts, primary_keys=keys, type_mapping=mapping)


def json_values(settings: Settings) -> JsonValue:
    """Reads values of a pipeline's records as JSON, without its decoder."""
    if settings.avro is None:
        return plain_value
    schemas = SchemaRegistry(settings.avro.registry).schema
    return AvroRecords(schemas, settings.avro.id_bytes).json_value
