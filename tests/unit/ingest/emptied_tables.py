# SPDX-License-Identifier: Apache-2.0
"""Tables that lose rows of no record, by truncates and snapshots, and their stream's life."""

import orjson

from changelog.stream_scan import read_changelog
from storage.format.metadata.schema import new_schema
from storage.format.types.types import AtomicType, RowKind, TypeRoot
from tests.unit.ingest.simulated_stream import BIGINT

__all__ = [
    "KINDS",
    "NAMES",
    "ODD",
    "STRING",
    "act",
    "drain",
    "make_tables",
    "replayed",
    "truncate",
]

STRING = AtomicType(TypeRoot.VARCHAR, length=2_147_483_647)

KINDS = {
    "plain": {"bucket": "3"},
    "input": {"bucket": "2", "changelog-producer": "input"},
    "lookup": {"bucket": "1", "changelog-producer": "lookup"},
    "full": {"bucket": "1", "changelog-producer": "full-compaction"},
    "dynamic": {"bucket": "-1"},
    "vectors": {"bucket": "1", "deletion-vectors.enabled": "true"},
    "moving": {"bucket": "-1"},  # from partition to partition: `n` is no part of the key
}
NAMES = tuple(sorted(KINDS))
ODD = {
    "first-row": {"merge-engine": "first-row"},
    "aggregation": {"merge-engine": "aggregation", "aggregation.remove-record-on-delete": "true"},
    "it ignores deletes": {"ignore-delete": "true"},
    "rowkind.field": {"rowkind.field": "kind"},
    "in the order of n": {"sequence.field": "n"},
}
"""Options of tables whose deletes may leave rows, by what is said of them."""


def truncate(table):
    source = {"db": "shop", "table": table, "ts_ms": 1}
    return None, orjson.dumps({"op": "t", "source": source, "ts_ms": 2})


def make_tables(stream, names):
    for name in names:
        schema = new_schema(
            [("id", BIGINT), ("n", BIGINT)],
            primary_keys=("id",),
            partition_keys=("n",) if name == "moving" else (),
            options=KINDS[name],
            now_ms=0,
        )
        stream.catalog.create_table(f"shop.{name}", schema)
    stream.restart()


def replayed(table):
    """(rows of a changelog replayed from nothing, kinds seen)."""
    rows, kinds = {}, set()
    options = {"scan.mode": "from-snapshot", "scan.snapshot-id": "1"}
    for batch in read_changelog(table, options=options):
        for change in batch.rows.to_pylist():
            kind = RowKind(change["_VALUE_KIND"])
            kinds.add(kind)
            if kind in (RowKind.INSERT, RowKind.UPDATE_AFTER):
                rows[change["id"]] = change["n"]
            elif kind is RowKind.DELETE:
                rows.pop(change["id"])
    return rows, kinds


def act(stream, rng, traffic):
    """Something happens to a stream; `traffic(count)` brings records."""
    what = rng.choices(
        ("traffic", "batch", "fuse", "restart", "pause", "resume", "lose", "fault"),
        (8, 12, 5, 1, 2, 2, 1, 1),
    )[0]
    if what == "traffic":
        traffic(rng.randrange(10, 60))
    elif what == "batch":
        stream.batch()
    elif what == "fuse":
        stream.fuse.left = rng.randrange(16)
    elif what == "restart":
        stream.restart()
    elif what == "pause":
        stream.pause(f"shop.{rng.choice(NAMES)}")
    elif what == "resume":
        stream.resume(*stream.book.parking.parked())
    elif what == "fault":
        stream.faults = {f"shop.{rng.choice(NAMES)}"}
    else:
        stream.lose_checkpoint()
    return what


def drain(stream):
    while stream.batch():
        pass
