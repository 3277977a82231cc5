# SPDX-License-Identifier: Apache-2.0
"""Transforms in the pipeline: what a table holds after random histories, against plain Python."""

import datetime as dt
import hashlib
import itertools
import random

import pytest

from tests.unit.ingest.debezium_events import TOPIC, connect_block, connect_field, dumps, event
from tests.unit.ingest.table_pipeline import TablePipeline

PLACEHOLDER = "__debezium_unavailable_value"
EPOCH = dt.datetime.fromisoformat("1970-01-01")
FIELDS = (
    connect_field("id", "int64"),
    connect_field("qty", "int32"),
    connect_field("price", "int32"),
    connect_field("note", "string"),
    connect_field("email", "string"),
    connect_field("secret", "string"),
    connect_field("created_at", "int64", "io.debezium.time.MicroTimestamp"),
)
BLOCK = dumps(connect_block(*FIELDS))
RULE = """
    filter: "qty > 0"
    columns.exclude: [secret, price]
    computed: ["total = price * qty", "shout = upper(note)"]
    mask: {email: sha256}
"""
_PARTITIONED = """    partition.by: ["dt = date_format(created_at, 'yyyy-MM')"]
"""
PARTITIONS = {
    "": "",
    "cross": _PARTITIONED + "    bucket: -1\n",
    "key": _PARTITIONED + "    primary.key: [dt, id]\n",
}


def record(op, before=None, after=None):
    payload = dumps(event(op, before, after))
    return dumps(
        {"id": (after or before)["id"]}
    ), b'{"schema":' + BLOCK + b',"payload":' + payload + b"}"


def micros(month):
    at = dt.datetime.fromisoformat(f"2024-{month:02d}-15T01:02:03.000004")
    return (at - EPOCH) // dt.timedelta(microseconds=1)


def created(row):
    return EPOCH + dt.timedelta(microseconds=row["created_at"])


def shown(row, deleted=None, partition=""):
    """A source row as the table has it."""
    found = {
        "id": row["id"],
        "qty": row["qty"],
        "note": row["note"],
        "email": hashlib.sha256(row["email"].encode()).hexdigest(),
        "total": row["price"] * row["qty"],
        "shout": row["note"].upper(),
        "created_at": created(row),
    }
    if partition:
        found["dt"] = f"{created(row):%Y-%m}"
    if deleted is not None:
        found["_cdc_deleted"] = deleted
    return found


class Source:
    """A table of a source database and what the lake should have of it."""

    def __init__(self, seed, *, full, soft, partition):
        self.random = random.Random(seed)
        self.full, self.soft, self.partition = full, soft, partition
        self.rows = {}
        self.lake = {}

    def made(self, key):
        return {
            "id": key,
            "qty": self.random.choice([0, 1, 5]),
            "price": self.random.randrange(100),
            "note": f"note {self.random.randrange(1000)}",
            "email": f"{self.random.randrange(1000)}@x",
            "secret": "s",
            "created_at": micros(self.random.randrange(1, 4)),
        }

    def place(self, row):
        """The key in the lake."""
        return (f"{created(row):%Y-%m}" if self.partition == "key" else "", row["id"])

    def put(self, row):
        self.rows[row["id"]] = row
        if row["qty"] > 0:
            deleted = False if self.soft else None
            self.lake[self.place(row)] = shown(row, deleted, self.partition)
        else:
            self.lake.pop(self.place(row), None)

    def drop(self, key):
        place = self.place(self.rows.pop(key))
        if self.soft and place in self.lake:
            self.lake[place] = {**self.lake[place], "_cdc_deleted": True}
        else:
            self.lake.pop(place, None)

    def change(self):
        """A random change and its record."""
        key = self.random.randrange(12)
        old = self.rows.get(key)
        if old is None:
            row = self.made(key)
            self.put(row)
            return record(self.random.choice("cr"), None, row)
        if self.random.random() < 0.3:
            self.drop(key)
            return record("d", old if self.full else dict.fromkeys(old) | {"id": key})
        row = self.made(key)
        before = old if self.full else None
        if self.full and self.random.random() < 0.1 and key + 100 not in self.rows:
            row["id"] = key + 100
        sent = dict(row)
        if self.place(old) != self.place(row):
            self.drop(key)
        elif self.place(row) in self.lake and self.random.random() < 0.3:
            row["note"] = old["note"]
            sent["note"] = PLACEHOLDER
        self.put(row)
        return record("u", before, sent)


def by_key(rows, partition):
    return {(row["dt"] if partition == "key" else "", row["id"]): row for row in rows}


CASES = [
    pytest.param(full, soft, partition, id=f"{full=}-{soft=}-{partition}")
    for full, soft, partition in itertools.product([True, False], [True, False], PARTITIONS)
    if full or partition != "key"  # refused by name, see below
]


@pytest.mark.parametrize(("full", "soft", "partition"), CASES)
def test_random_histories_give_what_plain_python_gives(tmp_path, full, soft, partition):
    text = "tables:\n  - match: shop.*" + RULE + PARTITIONS[partition]
    text += "    deletes: soft\n" if soft else ""
    pipeline = TablePipeline(tmp_path, text, TOPIC)
    source = Source(f"{full}{soft}{partition}", full=full, soft=soft, partition=partition)
    for _ in range(6):
        tasks = [[source.change() for _ in range(source.random.randrange(1, 25))] for _ in "ab"]
        pipeline.feed(*tasks, commit=False)  # lost before its commit
        pipeline.feed(*tasks)
        assert pipeline.quarantined() == []
        assert by_key(pipeline.rows("shop.orders"), partition) == source.lake
    assert pipeline.changes == [("shop.orders", "create table")]
    schema = pipeline.book.table("shop.orders").schema
    assert schema.partition_keys == (("dt",) if partition else ())
