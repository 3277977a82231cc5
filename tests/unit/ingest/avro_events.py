# SPDX-License-Identifier: Apache-2.0
"""Debezium events in Avro as Connect's converter writes them, and a decoder over fixed targets."""

import io
from collections.abc import Mapping, Sequence
from typing import Any

import fastavro

from ingest.decode.avro.debezium import DebeziumAvroDecoder
from ingest.decode.events import SourceTable, Target
from ingest.decode.json.envelopes import DialectOptions
from ingest.decode.registry import RegisteredSchema, SchemaId, UnknownSchemaError
from ingest.source.records import RawBatch
from storage.format.metadata.schema import TableSchema
from tests.unit.ingest import debezium_events
from tests.unit.ingest.debezium_events import SOURCE, TOPIC


def optional(schema: Any) -> list[Any]:
    return ["null", schema]


def named(type_: str, name: str, **parameters: Any) -> dict[str, Any]:
    """A type with Connect's properties."""
    found: dict[str, Any] = {"type": type_, "connect.version": 1, "connect.name": name}
    if parameters:
        found["connect.parameters"] = {key: str(value) for key, value in parameters.items()}
    return found


def decimal(scale: int, precision: int = 64, type_: str = "bytes", **more: Any) -> dict[str, Any]:
    """As `AvroData` writes a decimal: precision 64 when it knows none."""
    known = {} if precision == 64 else {"connect.decimal.precision": precision}
    name = "org.apache.kafka.connect.data.Decimal"
    schema = named(type_, name, scale=scale, **known)
    return {**schema, "scale": scale, "precision": precision, "logicalType": "decimal", **more}


def source_schema(*names: str) -> dict[str, Any]:
    snapshot = {
        "type": "string",
        "connect.version": 1,
        "connect.parameters": {"allowed": "true,first,last,false,incremental"},
        "connect.default": "false",
        "connect.name": "io.debezium.data.Enum",
    }
    types = {
        **dict.fromkeys(("version", "connector", "name", "db", "schema", "table"), "string"),
        "ts_ms": "long",
        "snapshot": [snapshot, "null"],
        "sequence": optional("string"),
        "lsn": optional("long"),
    }
    return {
        "type": "record",
        "name": "Source",
        "namespace": "io.debezium.connector.postgresql",
        "fields": [{"name": name, "type": types[name]} for name in names or SOURCE],
        "connect.name": "io.debezium.connector.postgresql.Source",
    }


def row_schema(fields: Mapping[str, Any]) -> dict[str, Any]:
    return {
        "type": "record",
        "name": "Value",
        "fields": [{"name": name, "type": type_} for name, type_ in fields.items()],
        "connect.name": "pg.public.orders.Value",
    }


def envelope(fields: Mapping[str, Any], **more: Any) -> dict[str, Any]:
    block = {
        "type": "record",
        "name": "block",
        "namespace": "event",
        "fields": [{"name": "id", "type": "string"}, {"name": "total_order", "type": "long"}],
        "connect.name": "event.block",
    }
    types = {
        "before": [*optional(row_schema(fields))],
        "after": optional("Value"),
        "source": source_schema(),
        "transaction": optional(block),
        "op": "string",
        "ts_ms": optional("long"),
        **more,
    }
    return {
        "type": "record",
        "name": "Envelope",
        "namespace": "pg.public.orders",
        "fields": [{"name": name, "type": type_} for name, type_ in types.items()],
        "connect.version": 2,
        "connect.name": "pg.public.orders.Envelope",
    }


def key_schema(**fields: Any) -> dict[str, Any]:
    return {
        "type": "record",
        "name": "Key",
        "namespace": "pg.public.orders",
        "fields": [{"name": name, "type": type_} for name, type_ in fields.items()],
        "connect.name": "pg.public.orders.Key",
    }


def event(op: str, before: Any = None, after: Any = None, **source: Any) -> dict[str, Any]:
    return {**debezium_events.event(op, before, after, **source), "transaction": None}


def without_logic(schema: Any) -> Any:
    """The schema without logical types, so that raw values are written and read."""
    if isinstance(schema, list):
        return [without_logic(part) for part in schema]
    if isinstance(schema, dict):
        return {
            key: without_logic(value) if key in ("type", "fields", "items", "values") else value
            for key, value in schema.items()
            if key != "logicalType"
        }
    return schema


class Writer:
    """Encodes values of one schema.

    Attributes:
        prefix: of its messages.
    """

    def __init__(self, schema: Any, schema_id: int) -> None:
        self.schema = schema
        self.parsed = fastavro.parse_schema(without_logic(schema))
        self.prefix = b"\0" + schema_id.to_bytes(4, "big")

    def datum(self, value: Any) -> bytes:
        out = io.BytesIO()
        fastavro.schemaless_writer(out, self.parsed, value)
        return out.getvalue()

    def __call__(self, value: Any) -> bytes:
        return self.prefix + self.datum(value)


class Schemas:
    """Registered schemas by id, instead of a registry."""

    def __init__(self) -> None:
        self.known: dict[SchemaId, RegisteredSchema] = {}
        self.asked: list[SchemaId] = []

    def __call__(self, schema_id: SchemaId) -> RegisteredSchema:
        self.asked.append(schema_id)
        if schema_id not in self.known:
            raise UnknownSchemaError("unknown", id=schema_id)
        return self.known[schema_id]


def decoder(
    schemas: Schemas,
    target: TableSchema | None,
    *,
    evolvable: bool = True,
    id_bytes: int = 4,
    targets: Mapping[str, Target] | None = None,
    **options: Any,
) -> DebeziumAvroDecoder:
    """A decoder of one target, or of one per source table."""

    def resolve(source: SourceTable, _: str) -> Target | None:
        if targets is not None:
            return targets.get(source.table)
        return Target("shop.orders", target, evolvable)

    return DebeziumAvroDecoder(schemas, id_bytes, DialectOptions(**options), resolve)


class Extra:
    """Headers and timestamp of a record."""

    def __init__(self, headers: Sequence[tuple[str, bytes]], timestamp_ms: int) -> None:
        self._headers, self._timestamp_ms = headers, timestamp_ms

    def headers(self) -> Sequence[tuple[str, bytes]]:
        return self._headers

    def timestamp(self) -> tuple[int, int]:
        return 1, self._timestamp_ms


def batch(
    values: Sequence[bytes | None],
    keys: Sequence[bytes | None] | None = None,
    headers: Mapping[int, Sequence[tuple[str, bytes]]] | None = None,
    topic: str = TOPIC,
) -> RawBatch:
    """Records from offset 100 on."""
    offsets = list(range(100, 100 + len(values)))
    extras = {at: Extra(some, 7_000 + at) for at, some in (headers or {}).items()}
    return RawBatch(
        topic, 0, offsets, list(keys or [None] * len(values)), list(values), extras=extras
    )
