# SPDX-License-Identifier: Apache-2.0
"""Decode rate of Debezium JSON: list of bytes to change batches, one process, one core.

    python -m tests.bench.decode_events [--events 100000] [--rounds 5]

Prints one JSON line per shape: events per CPU second (median and best of the rounds), MB/s and the
mean size of an event. Shapes: schema block or not; `bad` has one broken event in every thousand,
`single` decodes nothing but what the reference path must take.
"""

import argparse
import base64
import json
import os
import statistics
import time
from collections.abc import Callable

import numpy as np

from ingest.decode.events import SourceTable, Target
from ingest.decode.json.debezium_json import DebeziumJsonDecoder, DebeziumOptions
from ingest.source.records import RawBatch
from storage.format.metadata.schema import TableSchema, new_schema
from storage.format.types.type_text import parse_type

BATCH = 5_000
COLUMNS = (
    ("id", "BIGINT", "int64", None),
    ("user_id", "BIGINT", "int64", None),
    ("amount", "DECIMAL(12, 2)", "bytes", "org.apache.kafka.connect.data.Decimal"),
    ("status", "STRING", "string", None),
    ("note", "STRING", "string", None),
    ("quantity", "INT", "int32", None),
    ("active", "BOOLEAN", "boolean", None),
    ("updated_at", "TIMESTAMP(6)", "int64", "io.debezium.time.MicroTimestamp"),
)
PARAMETERS = {"scale": "2", "connect.decimal.precision": "12"}


def table() -> TableSchema:
    columns = [(name, parse_type(text)) for name, text, _, _ in COLUMNS]
    return new_schema(columns, primary_keys=("id",), options={"bucket": "1"}, now_ms=0)


def block() -> bytes:
    fields = []
    for name, _, literal, semantic in COLUMNS:
        field = {"type": literal, "optional": name != "id", "field": name}
        if semantic:
            field = {**field, "name": semantic, "version": 1}
        if literal == "bytes":
            field["parameters"] = PARAMETERS
        fields.append(field)
    image = {"type": "struct", "optional": True, "name": "shop.public.orders.Value"}
    images = [{**image, "fields": fields, "field": name} for name in ("before", "after")]
    rest = [{"type": "string", "optional": False, "field": "op"}]
    envelope = {"type": "struct", "fields": images + rest, "name": "shop.public.orders.Envelope"}
    return json.dumps(envelope, separators=(",", ":")).encode()


def payloads(count: int) -> list[bytes]:
    rng = np.random.default_rng(7)
    ids = rng.integers(1, 5_000_000, count).tolist()
    cents = rng.integers(0, 1_000_000, count).tolist()
    ops = rng.choice(list("ucd"), count, p=[0.7, 0.2, 0.1]).tolist()
    events = []
    for index in range(count):
        images = [_row(ids[index], cents[index] + side, index) for side in (0, 1)]
        op = ops[index]
        before = b"null" if op == "c" else images[0]
        after = b"null" if op == "d" else images[1]
        events.append(_event(before, after, op.encode(), 1_760_000_000_000 + index))
    return events


def _row(key: int, cents: int, index: int) -> bytes:
    amount = np.array([cents], ">i4").tobytes()
    text = base64.b64encode(amount).decode()
    return (
        f'{{"id":{key},"user_id":{key % 1000},"amount":"{text}","status":"status{key % 5}",'
        f'"note":"a note on {index}","quantity":{index % 9},"active":true,'
        f'"updated_at":{1_760_000_000_000_000 + index}}}'
    ).encode()


def _event(before: bytes, after: bytes, op: bytes, ts: int) -> bytes:
    return (
        b'{"before":%b,"after":%b,"source":{"version":"3.0.0.Final","connector":"postgresql",'
        b'"name":"pg","ts_ms":%d,"snapshot":"false","db":"shop","sequence":"[\\"1\\",\\"2\\"]",'
        b'"schema":"public","table":"orders","txId":700,"lsn":33000000,"xmin":null},'
        b'"transaction":null,"op":"%b","ts_ms":%d}' % (before, after, ts, op, ts)
    )


def batches(values: list[bytes]) -> list[RawBatch]:
    made = []
    for start in range(0, len(values), BATCH):
        piece: list[bytes | None] = [*values[start : start + BATCH]]
        offsets = list(range(start, start + len(piece)))
        made.append(RawBatch("pg.public.orders", 0, offsets, [None] * len(piece), piece))
    return made


def measure(values: list[bytes], rounds: int) -> dict[str, float]:
    schema = table()

    def resolve(_: SourceTable, __: str) -> Target:
        return Target("shop.orders", schema)

    rates = []
    raws = batches(values)
    for _ in range(rounds):
        decoder = DebeziumJsonDecoder(DebeziumOptions(), resolve)
        start = time.process_time()
        rows = bad = 0
        for raw in raws:
            result = decoder.decode(raw)
            rows += sum(change.rows.num_rows for change in result.changes)
            bad += len(result.bad)
        rates.append(len(values) / (time.process_time() - start))
        if rows + bad != len(values):
            raise AssertionError(f"{rows} rows and {bad} bad of {len(values)} events")
    size = sum(map(len, values)) / len(values)
    median = statistics.median(rates)
    return {
        "events_per_cpu_s": round(median),
        "best": round(max(rates)),
        "MB_per_s": round(median * size / 1e6),
        "mean_bytes": round(size),
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--events", type=int, default=100_000)
    parser.add_argument("--rounds", type=int, default=5)
    arguments = parser.parse_args()
    bare = payloads(arguments.events)
    prefix = b'{"schema":' + block() + b',"payload":'
    shapes: dict[str, Callable[[], list[bytes]]] = {
        "bare": lambda: bare,
        "schema block": lambda: [prefix + value + b"}" for value in bare],
        "bare, 1 of 1000 bad": lambda: [
            value.replace(b'"quantity":', b'"quantity":"x') if at % 1000 == 7 else value
            for at, value in enumerate(bare)
        ],
    }
    for name, make in shapes.items():
        figures = measure(make(), arguments.rounds)
        print(json.dumps({"shape": name, **figures, "load": round(os.getloadavg()[0], 1)}))


if __name__ == "__main__":
    main()
