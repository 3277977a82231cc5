# SPDX-License-Identifier: Apache-2.0
"""Postponed tables in turns with Java and pypaimon: each sees what the other one wrote."""

import pathlib
from typing import Any

import pytest

from storage.catalog.catalog import FileSystemCatalog
from storage.clock import SystemClock
from storage.format.metadata.schema import new_schema
from storage.format.types.types import parse_type
from storage.table.commit.live_files import live_entries
from storage.table.compaction.compact_table import CompactRequest, compact_table
from storage.table.table import FileStoreTable
from storage.testing.invariants import check_table
from tests.changelog_kit import changes_of
from tests.inline_executor import InlineExecutor
from tests.interop.java_peer import JavaPeer
from tests.interop.peers import PEERS, peer_rows
from tests.table_kit import rows_of, write

pytestmark = pytest.mark.interop

COLUMNS = (("p", "STRING"), ("k", "BIGINT"), ("v", "STRING"), ("d", "DECIMAL(12, 2)"))


def made(warehouse: pathlib.Path, name: str, **options: str) -> FileStoreTable:
    schema = new_schema(
        [(column, parse_type(text)) for column, text in COLUMNS],
        primary_keys=("p", "k"),
        partition_keys=("p",),
        options={"bucket": "-2", "postpone.default-bucket-num": "3", **options},
        now_ms=SystemClock().now_ms(),
    )
    return FileSystemCatalog(str(warehouse)).create_table(name, schema)


def compacted(table: FileStoreTable) -> list[tuple[Any, ...]]:
    assert compact_table(table, CompactRequest(), InlineExecutor()).complete
    check_table(table, rows=True)
    return rows_of(table)


def java_rows(java: JavaPeer, name: str) -> list[tuple[Any, ...]]:
    return sorted((tuple(row.values()) for row in java.read(name).to_pylist()), key=repr)


def test_java_and_we_write_in_turns(java: JavaPeer, warehouse: pathlib.Path) -> None:
    name = "db.postponed"
    table = made(warehouse, name)
    write(table, 1, [("+I", p, k, "ours", None) for p in "ab" for k in range(30)])
    assert java_rows(java, name) == []
    java.write(name, [("+U", ("a", k, "java", None)) for k in range(10)])
    java.write(name, [("-D", ("b", 3, "ours", None))])
    assert rows_of(table) == java_rows(java, name) == []
    snapshot = table.latest_snapshot()
    assert snapshot is not None
    assert {entry.bucket for entry in live_entries(table, snapshot)} == {-2}
    write(table, 2, [("+U", "a", 1, "last", None), ("+I", "b", 3, "again", None)])
    expected = {("a", k): "java" for k in range(10)}
    expected |= {("a", k): "ours" for k in range(10, 30)} | {("b", k): "ours" for k in range(30)}
    expected |= {("a", 1): "last", ("b", 3): "again"}
    rows = compacted(table)
    assert {row[:2]: row[2] for row in rows} == expected
    assert java_rows(java, name) == rows
    snapshot = table.latest_snapshot()
    assert snapshot is not None
    assert {entry.total_buckets for entry in live_entries(table, snapshot)} == {3}
    java.write(name, [("+U", ("a", 2, "late", None))])
    assert ("a", 2, "late", None) in compacted(table)
    assert java_rows(java, name) == rows_of(table)


def test_java_streams_the_rows_that_we_postpone(java: JavaPeer, warehouse: pathlib.Path) -> None:
    name = "db.postponed_stream"
    table = made(warehouse, name)
    write(
        table, 1, [("+I", "a", 2, "x", None), ("+I", "a", 1, "y", None), ("-D", "a", 2, "x", None)]
    )
    compacted(table)
    write(table, 2, [("+I", "a", 5, "z", None)])
    steps = [
        [(row["rowkind"], row["k"], row["v"]) for row in s.to_pylist()] for s in java.changes(name)
    ]
    assert steps == [[("+I", 2, "x"), ("+I", 1, "y"), ("-D", 2, "x")], [("+I", 5, "z")]]
    java.write(name, [("+I", ("a", 9, "q", None)), ("-D", ("a", 5, "z", None))])
    assert changes_of(table, 4) == [("+I", "a", 9, "q", None), ("-D", "a", 5, "z", None)]


@pytest.mark.parametrize("peer", PEERS)
def test_pypaimon_reads_what_we_compacted(tmp_path: pathlib.Path, peer: str) -> None:
    table = made(tmp_path, "db.t")
    write(table, 1, [("+I", p, k, "x", None) for p in "ab" for k in range(30)])
    if peer == "pypaimon":  # the other one gives no schema where there are no rows
        assert peer_rows(peer, tmp_path, "db.t").num_rows == 0
    write(table, 2, [("+U", "a", 1, "y", None), ("-D", "b", 1, "x", None)])
    rows = compacted(table)
    found = peer_rows(peer, tmp_path, "db.t")
    assert sorted((tuple(row.values()) for row in found.to_pylist()), key=repr) == rows
    assert len(rows) == 59
