# SPDX-License-Identifier: Apache-2.0
"""Decode rate of Debezium Avro: list of bytes to change batches, one process, one core.

    python -m tests.bench.decode_avro [--events 40000] [--rounds 5] [--only WAYS]

Prints one JSON line per way and shape of events, all measured in turn within each round, so that
their ratios hold on a busy machine: events per CPU second (median and best), MB/s, mean size.

Ways that end with change batches (typed Arrow columns): `in step`, the product's; `reference`, the
same decoder without it; `json`, the same events as JSON without schema block. For comparison:
`fastavro`, which ends with a dict per event.
"""

import argparse
import io
import json
import os
import statistics
import time
from collections.abc import Callable, Sequence
from typing import Any
from unittest import mock

import fastavro
import numpy as np

from ingest.decode.avro import lanes as avro_lanes
from ingest.decode.avro.connect_schema import parse_schema
from ingest.decode.avro.debezium import DebeziumAvroDecoder
from ingest.decode.avro.writer_schemas import WriterSchema
from ingest.decode.events import SourceTable, Target
from ingest.decode.json.envelope_decoder import EnvelopeDecoder
from ingest.decode.json.envelopes import DebeziumJson, DialectOptions
from ingest.decode.registry import RegisteredSchema, SchemaId
from ingest.source.records import RawBatch
from storage.format.metadata.schema import TableSchema
from tests.bench.decode_events import BATCH, COLUMNS, PARAMETERS, table

TOPIC = "pg.public.orders"
SCHEMA_ID = 7
PREFIX = b"\0" + SCHEMA_ID.to_bytes(4, "big")
_LITERALS = {"int64": "long", "int32": "int"}
_NOTE = " and some more words, so that an event has about six hundred bytes"


def _optional(type_: Any) -> list[Any]:
    return ["null", type_]


def _column(literal: str, semantic: str | None) -> Any:
    kind: Any = _LITERALS.get(literal, literal)
    if semantic is None:
        return kind
    found = {"type": kind, "connect.version": 1, "connect.name": semantic}
    if literal == "bytes":
        known = {"scale": 2, "precision": 12, "logicalType": "decimal"}
        found |= {"connect.parameters": PARAMETERS, **known}
    return found


def schema(columns: Sequence[tuple[str, str, str, str | None]] = COLUMNS) -> dict[str, Any]:
    """As Debezium's PostgreSQL connector registers it, through Confluent's converter."""
    fields = [
        {
            "name": name,
            "type": _column(literal, semantic)
            if name == "id"
            else _optional(_column(literal, semantic)),
        }
        for name, _, literal, semantic in columns
    ]
    row = {"type": "record", "name": "Value", "fields": fields}
    snapshot = {"type": "string", "connect.version": 1, "connect.name": "io.debezium.data.Enum"}
    texts = ("version", "connector", "name", "db", "schema", "table")
    longs = ("ts_us", "ts_ns", "txId", "lsn", "xmin", "origin_lsn")
    source = {
        **dict.fromkeys(texts[:3], "string"),
        "ts_ms": "long",
        "snapshot": [snapshot, "null"],
        "db": "string",
        "sequence": _optional("string"),
        **{name: _optional("long") for name in longs[:2]},
        **dict.fromkeys(texts[4:], "string"),
        **{name: _optional("long") for name in longs[2:5]},
        "origin": _optional("string"),
        "origin_lsn": _optional("long"),
    }
    block = {"id": "string", "total_order": "long", "data_collection_order": "long"}
    top = {
        "before": _optional(row),
        "after": _optional("Value"),
        "source": _record("io.debezium.connector.postgresql.Source", source),
        "transaction": _optional(_record("event.block", block)),
        "op": "string",
        **{name: _optional("long") for name in ("ts_ms", "ts_us", "ts_ns")},
    }
    return _record("pg.public.orders.Envelope", top)


def _record(name: str, fields: dict[str, Any]) -> dict[str, Any]:
    listed = [{"name": field, "type": type_} for field, type_ in fields.items()]
    return {"type": "record", "name": name, "fields": listed, "connect.name": name}


def events(count: int, full_before: bool) -> list[dict[str, Any]]:
    """Seven creates, two updates and a delete of ten; `before` of updates only if asked for."""
    rng = np.random.default_rng(7)
    ids = rng.integers(1, 5_000_000, count).tolist()
    cents = rng.integers(0, 1_000_000, count).tolist()
    ops = rng.choice(list("ucd"), count, p=[0.7, 0.2, 0.1]).tolist()
    return [
        _event(ops[index], ids[index], cents[index], index, full_before) for index in range(count)
    ]


def _event(op: str, key: int, cents: int, index: int, full_before: bool) -> dict[str, Any]:
    stamp = 1_760_000_000_000 + index
    old, new = (_row(key, cents + side, index) for side in (0, 1))
    before = old if op == "d" or (op == "u" and full_before) else None
    source = {
        "version": "3.0.0.Final", "connector": "postgresql", "name": "pg", "ts_ms": stamp,
        "snapshot": "false", "db": "shop", "sequence": f'["{index}","33{index:08d}"]',
        "ts_us": stamp * 1000, "ts_ns": stamp * 1_000_000, "schema": "public", "table": "orders",
        "txId": 700 + index, "lsn": 33_000_000 + index, "xmin": None, "origin": None,
        "origin_lsn": None,
    }  # fmt: skip
    after = None if op == "d" else new
    return {
        "before": before, "after": after, "source": source, "transaction": None, "op": op,
        "ts_ms": stamp + 41, "ts_us": stamp * 1000, "ts_ns": stamp * 1_000_000,
    }  # fmt: skip


def _row(key: int, cents: int, index: int) -> dict[str, Any]:
    note = f"a note on {index}" + _NOTE * 2 + "x" * (index % 150)
    return {
        "id": key, "user_id": key % 1000, "amount": cents.to_bytes(4, "big"),
        "status": f"status{key % 5}", "note": note, "quantity": index % 9, "active": True,
        "updated_at": 1_760_000_000_000_000 + index,
    }  # fmt: skip


def batches(values: list[bytes]) -> list[RawBatch]:
    made = []
    for start in range(0, len(values), BATCH):
        piece: list[bytes | None] = [*values[start : start + BATCH]]
        offsets = list(range(start, start + len(piece)))
        made.append(RawBatch(TOPIC, 0, offsets, [None] * len(piece), piece))
    return made


def ways(
    written: dict[str, Any], values: list[bytes], as_json: list[bytes]
) -> dict[str, Callable[[], int]]:
    """By name: decode everything and say how many events there were."""
    text = json.dumps(written)
    target, raws, json_raws = table(), batches(values), batches(as_json)

    def decoder() -> DebeziumAvroDecoder:
        def fetch(_: SchemaId) -> RegisteredSchema:
            return RegisteredSchema("AVRO", text)

        return DebeziumAvroDecoder(fetch, 4, DialectOptions(), _to(target))

    def in_step() -> int:
        return _rows(decoder(), raws)

    def reference() -> int:
        with mock.patch.object(avro_lanes.EnvelopeLanes, "of", return_value=None):
            return _rows(decoder(), raws)

    def json_events() -> int:
        return _rows(EnvelopeDecoder(DebeziumJson(DialectOptions()), _to(target)), json_raws)

    parsed = fastavro.parse_schema(json.loads(text))

    def to_dicts() -> int:
        for value in values:
            fastavro.schemaless_reader(io.BytesIO(value[5:]), parsed, None)
        return len(values)

    return {
        "in step": in_step,
        "reference": reference,
        "json": json_events,
        "fastavro": to_dicts,
    }


def _to(target: TableSchema) -> Callable[[SourceTable, str], Target]:
    return lambda _, __: Target("shop.orders", target)


def _rows(decoder: Any, raws: list[RawBatch]) -> int:
    rows = 0
    for raw in raws:
        result = decoder.decode(raw)
        rows += sum(change.rows.num_rows for change in result.changes) + len(result.bad)
    return rows


def measure(count: int, rounds: int) -> dict[str, Any]:
    """The product's way over events with whole `before`: as `decode_events.measure`."""
    written = schema()
    parsed = _writer(written)
    values = [_encoded(parsed, event) for event in events(count, full_before=True)]
    run = ways(written, values, [])["in step"]
    rates = []
    for _ in range(rounds):
        start = time.process_time()
        if run() != count:
            raise AssertionError("events were lost")
        rates.append(count / (time.process_time() - start))
    return _figures("whole before", "in step", rates, sum(map(len, values)) / count)


def _writer(written: dict[str, Any]) -> Any:
    """Takes raw values where the schema has logical types."""
    return fastavro.parse_schema(json.loads(json.dumps(written).replace('"logicalType"', '"was"')))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--events", type=int, default=40_000)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--only", default="", help="a way, or several with commas")
    arguments = parser.parse_args()
    written = schema()
    parsed = _writer(written)
    for shape, full in (("no before on updates", False), ("whole before", True)):
        made = events(arguments.events, full)
        values = [_encoded(parsed, event) for event in made]
        reader = WriterSchema(parse_schema(json.dumps(written)))
        as_json = [reader.as_bare_json(value, 5)[25:-1] for value in values]
        found = ways(written, values, as_json)
        if arguments.only:
            found = {name: found[name] for name in arguments.only.split(",")}
        rates: dict[str, list[float]] = {name: [] for name in found}
        for _ in range(arguments.rounds):
            for name, run in found.items():
                start = time.process_time()
                if run() != len(values):
                    raise AssertionError(f"{name} lost events")
                rates[name].append(len(values) / (time.process_time() - start))
        for name, rate in rates.items():
            size = sum(map(len, as_json if name == "json" else values)) / len(values)
            print(json.dumps(_figures(shape, name, rate, size)))


def _encoded(parsed: Any, event: dict[str, Any]) -> bytes:
    out = io.BytesIO()
    out.write(PREFIX)
    fastavro.schemaless_writer(out, parsed, event)
    return out.getvalue()


def _figures(shape: str, way: str, rates: list[float], size: float) -> dict[str, Any]:
    median = statistics.median(rates)
    return {
        "shape": shape,
        "way": way,
        "events_per_cpu_s": round(median),
        "best": round(max(rates)),
        "MB_per_s": round(median * size / 1e6, 1),
        "mean_bytes": round(size),
        "load": round(os.getloadavg()[0], 1),
    }


if __name__ == "__main__":
    main()
