# SPDX-License-Identifier: Apache-2.0
"""Everything that is no row, mixed into a stream: what is harmless is left alone, what is bad is
kept and comes in after a fix. The same on Kafka and Spark: `tests/e2e/test_quarantine.py`."""

import random

import orjson
import pytest

from tests.unit.ingest.daemon.requests.test_replay import Replays
from tests.unit.ingest.simulated_stream import QUARANTINE, event

SOURCE = {"db": "shop", "table": "orders", "ts_ms": 1}
HARMLESS = (
    {"ts_ms": 1_700_000_000_000},
    {"status": "BEGIN", "id": "7:1", "event_count": None, "data_collections": None, "ts_ms": 1},
    {"op": "t", "before": None, "after": None, "source": SOURCE, "ts_ms": 1},
    {"op": "m", "message": {"prefix": "p", "content": ""}, "source": SOURCE, "ts_ms": 1},
    {"source": SOURCE, "databaseName": "shop", "schemaName": None, "ddl": "ALTER", "ts_ms": 1}
    | {"tableChanges": []},
    None,
)
GARBAGE = (b"\xff\xfe\x00\x01", b"not json", b"[1,2]", b'{"hello":"world"}', b"{" + b"x" * 200_000)


@pytest.mark.parametrize("seed", range(3))
def test_chaos_is_kept_and_replayed_after_a_fix(tmp_path, monkeypatch, seed):
    lake = Replays(tmp_path, monkeypatch)
    rng = random.Random(seed)
    now = {"shop.orders": {}, "shop.sums": {}}
    mended = {"shop.orders": {}, "shop.sums": {}}
    bad = {}

    def put(key, value, partition):
        return lake.stream.topics.add("a", partition, key, value)

    def change(*, wrong):
        table, key = rng.choice(["shop.orders", "shop.sums"]), rng.randrange(12)
        n = rng.randrange(1, 99) + (0.5 if wrong else 0)
        gone = table == "shop.orders" and key in now[table] and not wrong and rng.random() < 0.2
        for rows in (mended[table],) if wrong else (mended[table], now[table]):
            if gone:
                rows.pop(key, None)
            else:
                rows[key] = n + (rows.get(key, 0) if table == "shop.sums" else 0)
        record = event(table[5:], key, n, "d" if gone else "c")
        offset = put(*record, key % 2)
        if wrong:
            bad[key % 2, offset] = record[1]

    def traffic(*, fixed):
        for _ in range(25):
            chance = rng.random()
            if chance < 0.1:
                value = rng.choice(HARMLESS)
                put(b"{}", None if value is None else orjson.dumps(value), rng.randrange(2))
            elif chance < 0.2:
                partition, value = rng.randrange(2), rng.choice(GARBAGE)
                bad[partition, put(None, value, partition)] = value
            else:
                change(wrong=chance < 0.4 and not fixed)

    for _ in range(3):
        traffic(fixed=False)
        lake.stream.fuse.left = rng.choice([None, rng.randrange(20)])
        lake.stream.batch()
    lake.stream.fuse.left = None
    lake.work()
    rows = lake.stream.catalog.table(QUARANTINE).to_arrow().to_pylist()
    assert {(row["partition"], row["offset"]): row["value"] for row in rows} == bad
    assert all(row["error"] for row in rows)
    assert {name: lake.rows(name) for name in now} == now

    lake.widen("shop.orders")
    lake.widen("shop.sums")
    traffic(fixed=True)
    lake.stream.batch()
    lake.stream.fuse.left = rng.randrange(12)
    result = lake.replay(choice={"error_class": "type"})
    assert result["bad"] == {}
    lake.stream.fuse.left = None
    traffic(fixed=True)
    lake.work()
    assert {name: lake.rows(name) for name in mended} == mended
