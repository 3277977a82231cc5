# SPDX-License-Identifier: Apache-2.0
"""A source table with a random history, and what plain Python says the lake should have of it."""

import datetime as dt
import hashlib
import itertools
import random

from tests.unit.ingest.debezium_events import connect_block, connect_field, dumps, event

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


_LSN = itertools.count(1_000, 16)


def record(op, before=None, after=None):
    lsn = next(_LSN)
    payload = dumps(event(op, before, after, lsn=lsn, sequence=f'["{lsn - 8}","{lsn}"]'))
    return dumps(
        {"id": (after or before)["id"]}
    ), b'{"schema":' + BLOCK + b',"payload":' + payload + b"}"


def micros(month):
    at = dt.datetime.fromisoformat(f"2024-{month:02d}-15T01:02:03.000004")
    return (at - EPOCH) // dt.timedelta(microseconds=1)


def created(row):
    return EPOCH + dt.timedelta(microseconds=row["created_at"])


def shown(row, deleted=None, partition="", op=None):
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
    if op is not None:
        found |= {"_cdc_op": op, "_cdc_table": "orders"}
    if deleted is not None:
        found["_cdc_deleted"] = deleted
    return found


class Source:
    """A table of a source database and what the lake should have of it.

    Args:
        seed: of its history.
        full: whether events bring whole before images, else the key alone.
        soft: whether the lake marks deletes.
        partition: of `PARTITIONS`.
        metadata: whether the lake has `op` and `table`.
    """

    def __init__(self, seed, *, full, soft, partition, metadata=False):
        self.random = random.Random(seed)
        self.full, self.soft, self.partition = full, soft, partition
        self.metadata = metadata
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

    def put(self, row, op):
        self.rows[row["id"]] = row
        if row["qty"] > 0:
            deleted = False if self.soft else None
            op = op if self.metadata else None
            self.lake[self.place(row)] = shown(row, deleted, self.partition, op)
        else:
            self.lake.pop(self.place(row), None)

    def drop(self, key, op="d"):
        place = self.place(self.rows.pop(key))
        if self.soft and place in self.lake:
            more = {"_cdc_op": op} if self.metadata else {}
            self.lake[place] = self.lake[place] | {"_cdc_deleted": True} | more
        else:
            self.lake.pop(place, None)

    def change(self):
        """A random change and its record."""
        key = self.random.randrange(12)
        old = self.rows.get(key)
        if old is None:
            row = self.made(key)
            op = self.random.choice("cr")
            self.put(row, op)
            return record(op, None, row)
        if self.random.random() < 0.3:
            self.drop(key)
            return record("d", old if self.full else dict.fromkeys(old) | {"id": key})
        row = self.made(key)
        before = old if self.full else None
        if self.full and self.random.random() < 0.1 and key + 100 not in self.rows:
            row["id"] = key + 100
        sent = dict(row)
        if self.place(old) != self.place(row):
            self.drop(key, "u")
        elif self.place(row) in self.lake and self.random.random() < 0.3:
            row["note"] = old["note"]
            sent["note"] = PLACEHOLDER
        self.put(row, "u")
        return record("u", before, sent)

    def by_key(self, rows):
        """Rows of the lake as in `lake`."""
        keyed = self.partition == "key"
        return {(row["dt"] if keyed else "", row["id"]): row for row in rows}
