# SPDX-License-Identifier: Apache-2.0
"""Decode rate of the other JSON formats: list of bytes to change batches, one process, one core.

    python -m tests.bench.decode_formats [--events 50000] [--rounds 5]

Prints one JSON line per format: CPU seconds per million events, minimum and median of the rounds,
event by event and with the compiled scan, in turn; how much the scan took; the mean size of an
event. Messages are written as their tools document it, all with the same row of eight columns;
updates have the row before as far as the format brings it.
"""

import argparse
import json
import os
import statistics
import time
from collections.abc import Callable, Mapping
from typing import Any
from unittest import mock

import numpy as np

from ingest.decode.decoders import DIALECTS
from ingest.decode.events import SourceTable, Target
from ingest.decode.json import envelope_decoder
from ingest.decode.json.envelope_decoder import EnvelopeDecoder
from ingest.decode.json.envelopes import DialectOptions
from ingest.source.records import RawBatch
from storage.format.metadata.schema import TableSchema, new_schema
from storage.format.types.types import parse_type
from tests.bench.decode_events import SCANNERS

BATCH = 5_000
TYPES = {
    "id": "BIGINT",
    "user_id": "BIGINT",
    "amount": "DECIMAL(12, 2)",
    "status": "STRING",
    "note": "STRING",
    "quantity": "INT",
    "score": "DOUBLE",
    "updated_at": "TIMESTAMP(6)",
}
MYSQL = [
    "bigint",
    "bigint",
    "decimal(12,2)",
    "varchar(40)",
    "varchar(80)",
    "int",
    "double",
    "datetime(6)",
]
Row = dict[str, Any]
Written = tuple[bytes | None, bytes]
"""Key and value."""


def table() -> TableSchema:
    typed = [(name, parse_type(text)) for name, text in TYPES.items()]
    return new_schema(typed, primary_keys=("id",), options={"bucket": "1"}, now_ms=0)


def _dumps(value: Any) -> bytes:
    return json.dumps(value, separators=(",", ":")).encode()


def _texts(row: Row) -> dict[str, str]:
    return {name: str(value) for name, value in row.items()}


def _changed(old: Row, new: Row) -> Row:
    return {name: value for name, value in old.items() if new[name] != value}


def canal(op: str, olds: list[Row], news: list[Row], at: int) -> Written:
    """All values are text; `old` has what changed."""
    changed = [_texts(_changed(old, new)) for old, new in zip(olds, news, strict=True)]
    value = {
        "data": [_texts(row) for row in news],
        "database": "shop",
        "es": 1_760_000_000_000 + at,
        "id": at,
        "isDdl": False,
        "mysqlType": dict(zip(TYPES, MYSQL, strict=True)),
        "old": changed if op == "u" else None,
        "pkNames": ["id"],
        "sql": "",
        "sqlType": dict.fromkeys(TYPES, 12),
        "table": "orders",
        "ts": 1_760_000_000_500 + at,
        "type": {"c": "INSERT", "u": "UPDATE", "d": "DELETE"}[op],
    }
    return None, _dumps(value)


def maxwell(op: str, olds: list[Row], news: list[Row], at: int) -> Written:
    value = {
        "database": "shop",
        "table": "orders",
        "type": {"c": "insert", "u": "update", "d": "delete"}[op],
        "ts": 1_760_000_000 + at // 100,
        "xid": 23_396 + at,
        "commit": True,
        "data": news[0],
    }
    if op == "u":
        value["old"] = _changed(olds[0], news[0])
    return None, _dumps(value)


def ogg(op: str, olds: list[Row], news: list[Row], at: int) -> Written:
    """With whole images."""
    value: dict[str, Any] = {
        "table": "SHOP.orders",
        "op_type": {"c": "I", "u": "U", "d": "D"}[op],
        "op_ts": f"2026-11-02 22:{at // 60 % 60:02d}:{at % 60:02d}.000000",
        "current_ts": "2026-11-02T22:14:41.147000",
        "pos": f"{at:020d}",
    }
    if op != "c":
        value["before"] = olds[0]
    if op != "d":
        value["after"] = news[0]
    return None, _dumps(value)


def dms(op: str, olds: list[Row], news: list[Row], at: int) -> Written:
    value = {
        "data": news[0],
        "metadata": {
            "timestamp": f"2026-11-02T22:{at // 60 % 60:02d}:{at % 60:02d}.632000Z",
            "record-type": "data",
            "operation": {"c": "insert", "u": "update", "d": "delete"}[op],
            "partition-key-type": "schema-table",
            "schema-name": "shop",
            "table-name": "orders",
            "transaction-id": 8_589_937_000 + at,
        },
    }
    if op == "u":
        value["before-image"] = olds[0]
    return None, _dumps(value)


def _numbers(row: Row) -> Row:
    """As Debezium writes it with `decimal.handling.mode=string`."""
    return {**row, "amount": str(row["amount"]), "updated_at": 1_760_000_000_000_000 + row["id"]}


def flat(op: str, olds: list[Row], news: list[Row], at: int) -> Written:
    added = {
        "__op": op,
        "__source_ts_ms": 1_760_000_000_000 + at,
        "__deleted": str(op == "d").lower(),
    }
    return _dumps({"id": news[0]["id"]}), _dumps({**_numbers(news[0]), **added})


def upsert(op: str, olds: list[Row], news: list[Row], at: int) -> Written:
    return _dumps({"id": news[0]["id"]}), _dumps(news[0])


FORMATS: Mapping[str, tuple[str, Callable[[str, list[Row], list[Row], int], Written], int]] = {
    "canal-json": ("canal-json", canal, 1),
    "canal-json, 10 rows": ("canal-json", canal, 10),
    "maxwell-json": ("maxwell-json", maxwell, 1),
    "ogg-json": ("ogg-json", ogg, 1),
    "aws-dms-json": ("aws-dms-json", dms, 1),
    "debezium-flat": ("debezium-flat", flat, 1),
    "upsert-json": ("upsert-json", upsert, 1),
    "json": ("json", upsert, 1),
}


def messages(write: Callable[..., Written], count: int, rows: int) -> list[Written]:
    """So many messages of so many rows."""
    rng = np.random.default_rng(7)
    ops = rng.choice(list("ucd"), count, p=[0.7, 0.2, 0.1]).tolist()
    written = []
    for at, op in enumerate(ops):
        olds = [_row(rng, at * rows + n) for n in range(rows)]
        news = [{**old, "amount": old["amount"] + 1.5, "status": "paid"} for old in olds]
        written.append(write(op, olds, news if op != "d" else olds, at))
    return written


def _row(rng: np.random.Generator, at: int) -> Row:
    key = int(rng.integers(1, 5_000_000))
    return {
        "id": key,
        "user_id": key % 1_000,
        "amount": at % 10_000 + 0.25,
        "status": f"status{key % 5}",
        "note": f"a note on {at}",
        "quantity": at % 9,
        "score": at + 0.5,
        "updated_at": f"2026-10-{at % 28 + 1:02d} 10:11:12.{at % 10**6:06d}",
    }


def batches(written: list[Written]) -> list[RawBatch]:
    made = []
    for start in range(0, len(written), BATCH):
        keys, values = zip(*written[start : start + BATCH], strict=True)
        offsets = list(range(start, start + len(keys)))
        made.append(RawBatch("shop.orders", 0, offsets, list(keys), list(values)))
    return made


def measure(name: str, written: list[Written], rounds: int, rows: int) -> dict[str, Any]:
    schema = table()
    costs: dict[str, list[float]] = {way: [] for way in SCANNERS}
    raws, taken = batches(written), 0

    def resolve(_: SourceTable, __: str) -> Target:
        return Target("shop.orders", schema)

    options = (
        DialectOptions(decimal_handling_mode="string")
        if name == "debezium-flat"
        else DialectOptions()
    )
    for _ in range(rounds):
        for way, cost in costs.items():
            with mock.patch.object(envelope_decoder, "scanner", SCANNERS[way]):
                decoder = EnvelopeDecoder(DIALECTS[name](options), resolve)
                decoder.decode(batches(written[:2_000])[0])
                start = time.process_time()
                results = [decoder.decode(raw) for raw in raws]
                cost.append((time.process_time() - start) / len(written) * 1e6)
            found = sum(change.rows.num_rows for result in results for change in result.changes)
            if found != len(written) * rows:
                raise AssertionError(f"{found} rows of {len(written)} events {results[0].bad[:1]}")
            taken = sum(result.walked for result in results)
    return {
        **{
            way: [round(min(cost), 2), round(statistics.median(cost), 2)]
            for way, cost in costs.items()
        },
        "share_walked": round(taken / len(written), 4),
        "mean_bytes": round(sum(len(value) for _, value in written) / len(written)),
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--events", type=int, default=50_000)
    parser.add_argument("--rounds", type=int, default=5)
    arguments = parser.parse_args()
    for name, (format_, write, rows) in FORMATS.items():
        written = messages(write, arguments.events // rows, rows)
        figures = measure(format_, written, arguments.rounds, rows)
        load = round(os.getloadavg()[0], 1)
        print(json.dumps({"format": name, **figures, "load": load}), flush=True)


if __name__ == "__main__":
    main()
