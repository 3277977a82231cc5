# SPDX-License-Identifier: Apache-2.0
"""Builders of Debezium messages and a decoder over fixed targets, for the decoder's tests."""

import json
from typing import Any

from ingest.decode.events import DecodeResult, SourceTable, Target
from ingest.decode.json.envelope_decoder import EnvelopeDecoder
from ingest.decode.json.envelopes import DebeziumJson, DialectOptions
from ingest.source.records import RawBatch
from storage.format.metadata.schema import TableSchema, new_schema
from storage.format.types.types import parse_type

TOPIC = "pg.public.orders"
SOURCE = {
    "version": "3.0.0.Final",
    "connector": "postgresql",
    "name": "pg",
    "ts_ms": 1_000,
    "snapshot": "false",
    "db": "shop",
    "sequence": '["1","2"]',
    "schema": "public",
    "table": "orders",
    "lsn": 5,
}
ORDERS = SourceTable("shop", "public", "orders", "pg")


def dumps(value: Any) -> bytes:
    return json.dumps(value, separators=(",", ":"), ensure_ascii=False).encode()


def event(op: str, before: Any = None, after: Any = None, **source: Any) -> dict[str, Any]:
    return {
        "before": before,
        "after": after,
        "source": {**SOURCE, **source},
        "op": op,
        "ts_ms": 2_000,
    }


def message(op: str, before: Any = None, after: Any = None, **source: Any) -> bytes:
    return dumps(event(op, before, after, **source))


def raw_after(json_text: str | bytes) -> bytes:
    """A create event whose `after` is given as JSON text, well-formed or not."""
    text = json_text if isinstance(json_text, bytes) else json_text.encode()
    return message("c", None, "@@").replace(b'"@@"', text)


def connect_field(
    name: str, type_: str, semantic: str | None = None, **more: Any
) -> dict[str, Any]:
    field: dict[str, Any] = {"type": type_, "optional": True, "field": name}
    if semantic is not None:
        field |= {"name": semantic, "version": 1}
    return {**field, **more}


def connect_block(*fields: dict[str, Any], table: str = "orders") -> dict[str, Any]:
    image = {
        "type": "struct",
        "fields": list(fields),
        "optional": True,
        "name": f"pg.{table}.Value",
    }
    return {
        "type": "struct",
        "fields": [
            {**image, "field": "before"},
            {**image, "field": "after"},
            {"type": "string", "optional": False, "field": "op"},
        ],
        "optional": False,
        "name": f"pg.public.{table}.Envelope",
    }


def with_block(block: dict[str, Any], payload: Any) -> bytes:
    return dumps({"schema": block, "payload": payload})


def schema(
    *columns: tuple[str, str], key: tuple[str, ...] = ("id",), **options: str
) -> TableSchema:
    typed = [(name, parse_type(text)) for name, text in columns]
    return new_schema(typed, primary_keys=key, options={"bucket": "1", **options}, now_ms=0)


def batch(
    *values: bytes | None, keys: list[bytes | None] | None = None, topic: str = TOPIC
) -> RawBatch:
    offsets = [10 + 2 * index for index in range(len(values))]
    return RawBatch(topic, 0, offsets, keys or [None] * len(values), list(values))


def decoder(
    targets: dict[str, Target | None] | TableSchema | None,
    *,
    evolvable: bool = True,
    why_frozen: str = "",
    **options: Any,
) -> EnvelopeDecoder:
    """Decoder whose resolver knows one schema for all, or targets by source table name."""

    def resolve(source: SourceTable, topic: str) -> Target | None:
        if isinstance(targets, dict):
            return targets[source.table]
        return Target(
            f"{source.database}.{source.table}", targets, evolvable, why_frozen=why_frozen
        )

    return EnvelopeDecoder(DebeziumJson(DialectOptions(**options)), resolve)


def rows(result: DecodeResult) -> list[dict[str, Any]]:
    """Rows of the only target, system columns by short names."""
    assert len(result.changes) <= 1
    found = []
    for change in result.changes:
        for row in change.rows.to_pylist():
            row["kind"] = ("+I", "-U", "+U", "-D")[row.pop("_VALUE_KIND")]
            row["offset"] = row.pop("_OFFSET")
            found.append(row)
    return found


def classes(result: DecodeResult) -> list[str]:
    return [record.error_class for record in result.bad]
