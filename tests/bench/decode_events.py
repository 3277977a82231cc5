# SPDX-License-Identifier: Apache-2.0
"""Decode rate of Debezium JSON: polled records to change batches, one process, one core.

    python -m tests.bench.decode_events [--events 100000] [--rounds 5]

Prints one JSON line per shape: CPU seconds per million events, minimum and median of the rounds, by
event by event and with the compiled scan, in turn; how much the scan took; the mean size of
an event. Each way gets values as its client gives them: bytes objects event by event, one buffer
with the compiled scan. Decoders have seen 2,000 events before, as those of a running stream have.
"""

import argparse
import base64
import functools
import json
import os
import statistics
import time
from collections.abc import Callable
from typing import Any
from unittest import mock

import numpy as np

from ingest.compiled import loading
from ingest.decode.events import SourceTable, Target
from ingest.decode.json import envelope_decoder
from ingest.decode.json.envelope_decoder import EnvelopeDecoder
from ingest.decode.json.envelopes import DebeziumJson, DialectOptions
from ingest.source.records import Payloads, RawBatch
from storage.format.metadata.schema import TableSchema, new_schema
from storage.format.types.types import parse_type

BATCH = 5_000
SCANNERS = {
    "by event": lambda _: None,
    "walked": lambda _: loading.load() and loading.loaded(loading.SCAN),
}
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
MORE_COLUMNS = (
    ("a", "BIGINT", "int64", None),
    ("b", "INT", "int32", None),
    ("c", "STRING", "string", None),
    ("d", "DECIMAL(12, 2)", "bytes", "org.apache.kafka.connect.data.Decimal"),
    ("e", "DOUBLE", "double", None),
    ("f", "TIMESTAMP(3)", "int64", "io.debezium.time.Timestamp"),
    ("g", "BOOLEAN", "boolean", None),
)
Columns = tuple[tuple[str, str, str, str | None], ...]
PARAMETERS = {"scale": "2", "connect.decimal.precision": "12"}


def table(columns: Columns = COLUMNS) -> TableSchema:
    typed = [(name, parse_type(text)) for name, text, _, _ in columns]
    return new_schema(typed, primary_keys=("id",), options={"bucket": "1"}, now_ms=0)


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


def payloads(
    count: int, *, before: bool = True, note: str = "a note on {}", odd: int = 0, wide: bool = False
) -> list[bytes]:
    """Events.

    Args:
        count: of them.
        before: whether updates have the row before.
        note: text of a column, as JSON has it.
        odd: every so many events has a number in exponent form where an integer belongs; 0 = none.
        wide: whether the row has fifteen columns.
    """
    rng = np.random.default_rng(7)
    ids = rng.integers(1, 5_000_000, count).tolist()
    cents = rng.integers(0, 1_000_000, count).tolist()
    ops = rng.choice(list("ucd"), count, p=[0.7, 0.2, 0.1]).tolist()
    events = []
    for index in range(count):
        images = [_row(ids[index], cents[index] + side, index, note, wide) for side in (0, 1)]
        op = ops[index]
        if odd and index % odd == 7:
            images[1] = images[1].replace(b'"quantity":', b'"quantity":1e')
            op = "c"
        old = b"null" if op == "c" or (op == "u" and not before) else images[0]
        after = b"null" if op == "d" else images[1]
        events.append(_event(old, after, op.encode(), 1_760_000_000_000 + index))
    return events


def _row(key: int, cents: int, index: int, note: str, wide: bool) -> bytes:
    amount = np.array([cents], ">i4").tobytes()
    text = base64.b64encode(amount).decode()
    more = (
        f',"a":{index},"b":{-index},"c":"city {index % 700}","d":"{text}","e":{index}.5,'
        f'"f":{1_760_000_000_000 + index},"g":false'
    )
    return (
        f'{{"id":{key},"user_id":{key % 1000},"amount":"{text}","status":"status{key % 5}",'
        f'"note":"{note.format(index)}","quantity":{index % 9},"active":true,'
        f'"updated_at":{1_760_000_000_000_000 + index}{more if wide else ""}}}'
    ).encode()


def _event(before: bytes, after: bytes, op: bytes, ts: int) -> bytes:
    return (
        b'{"before":%b,"after":%b,"source":{"version":"3.0.0.Final","connector":"postgresql",'
        b'"name":"pg","ts_ms":%d,"snapshot":"false","db":"shop","sequence":"[\\"1\\",\\"2\\"]",'
        b'"schema":"public","table":"orders","txId":700,"lsn":33000000,"xmin":null},'
        b'"transaction":null,"op":"%b","ts_ms":%d}' % (before, after, ts, op, ts)
    )


def batches(values: list[bytes], *, in_buffers: bool = False) -> list[RawBatch]:
    """Records as they are polled, with their values as a list or in one buffer."""
    made = []
    for start in range(0, len(values), BATCH):
        piece: list[bytes | None] = [*values[start : start + BATCH]]
        offsets = list(range(start, start + len(piece)))
        held = Payloads.of(piece) if in_buffers else piece
        made.append(RawBatch("pg.public.orders", 0, offsets, [None] * len(piece), held))
    return made


def measure(values: list[bytes], rounds: int, columns: Columns = COLUMNS) -> dict[str, Any]:
    schema = table(columns)

    def resolve(_: SourceTable, __: str) -> Target:
        return Target("shop.orders", schema)

    costs: dict[str, list[float]] = {"by event": [], "walked": []}
    taken = 0
    for _ in range(rounds):
        for way, cost in costs.items():
            raws = batches(values, in_buffers=way == "walked")
            with mock.patch.object(envelope_decoder, "scanner", SCANNERS[way]):
                decoder = EnvelopeDecoder(DebeziumJson(DialectOptions()), resolve)
                decoder.decode(batches(values[:2_000])[0])
                start = time.process_time()
                results = [decoder.decode(raw) for raw in raws]
                cost.append((time.process_time() - start) / len(values) * 1e6)
            rows = sum(change.rows.num_rows for result in results for change in result.changes)
            bad = sum(len(result.bad) for result in results)
            if rows + bad != len(values):
                raise AssertionError(f"{rows} rows and {bad} bad of {len(values)} events")
            taken = sum(result.walked for result in results)
    figures = {
        way: [round(min(cost), 2), round(statistics.median(cost), 2)] for way, cost in costs.items()
    }
    return {
        **figures,
        "ratio": round(min(costs["by event"]) / min(costs["walked"]), 2),
        "share_walked": round(taken / len(values), 4),
        "mean_bytes": round(sum(map(len, values)) / len(values)),
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--events", type=int, default=100_000)
    parser.add_argument("--rounds", type=int, default=5)
    arguments = parser.parse_args()
    make = functools.partial(payloads, arguments.events)
    prefix = b'{"schema":' + block() + b',"payload":'
    shapes: dict[str, Callable[[], list[bytes]]] = {
        "bare": lambda: make(before=False),
        "schema block": lambda: [prefix + value + b"}" for value in make(before=False)],
        "whole before": make,
        "block, whole before": lambda: [prefix + value + b"}" for value in make()],
        "bare, 1 of 100 odd": lambda: make(before=False, odd=100),
        "bare, escapes in every event": lambda: make(before=False, note='\\"{}\\"\\n\\u00e9'),
        "bare, 15 columns": lambda: make(before=False, wide=True),
        "bare, 1 of 1000 bad": lambda: [
            value.replace(b'"quantity":', b'"quantity":"x') if at % 1000 == 7 else value
            for at, value in enumerate(make(before=False))
        ],
    }
    for name, values in shapes.items():
        columns = COLUMNS + MORE_COLUMNS if "15" in name else COLUMNS
        figures = measure(values(), arguments.rounds, columns)
        print(json.dumps({"shape": name, **figures, "load": round(os.getloadavg()[0], 1)}))


if __name__ == "__main__":
    main()
