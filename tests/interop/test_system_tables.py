# SPDX-License-Identifier: Apache-2.0
"""System tables as Java shows them of tables that we wrote, and upkeep by both in turns."""

import datetime
import decimal
import pathlib
import shutil
import time
from collections.abc import Iterator, Mapping
from typing import Any

import pyarrow as pa
import pytest

from storage.clock import ManualClock, SystemClock
from storage.format.metadata.manifest_store import clear_manifest_cache
from storage.format.metadata.schema_changes import AddColumn
from storage.format.types.types import parse_type
from storage.table.branches import create_branch
from storage.table.commit.live_files import clear_live_cache
from storage.table.inspect.system.registry import SYSTEM_TABLES, system_table
from storage.table.retention.consumers import write_consumer
from storage.table.retention.expire import expire_changelogs, expire_snapshots, remove_orphan_files
from storage.table.table import FileStoreTable
from storage.table.tags import create_tag
from storage.testing.invariants import check_table
from tests.interop.java_peer import JavaPeer
from tests.interop.java_upkeep import changelogs, expire, orphans, system_rows
from tests.table_kit import make_table, reopened, rows_of, write

pytestmark = pytest.mark.interop


@pytest.fixture(autouse=True)
def _fresh(java: JavaPeer, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """The table has one name in every test, and we are in Java's time zone."""
    monkeypatch.setenv("TZ", java.zone)
    time.tzset()
    clear_live_cache()
    clear_manifest_cache()
    yield
    shutil.rmtree(java.warehouse / "db.db" / "t")
    monkeypatch.undo()
    time.tzset()


NEWER = frozenset({"writer_version", "branches"})
"""Columns of later releases than the peer's, and one of the documents that it does not have."""

DAY = 19857
NOON = datetime.datetime(2024, 5, 14, 12, 0, 0, 123_000)  # noqa: DTZ001


def shown(found: pa.Table) -> list[dict[str, Any]]:
    """Rows in an order of their own, paths without a scheme."""
    rows = found.to_pylist()
    for row in rows:
        if "file_path" in row:
            row["file_path"] = row["file_path"].removeprefix("file:")
    return sorted(rows, key=repr)


def assert_shown_alike(
    java: JavaPeer,
    table: FileStoreTable,
    name: str,
    options: Mapping[str, str] | None = None,
) -> None:
    ours = system_table(table, name, options)
    theirs = system_rows(java, f"db.t${name}", options)
    known = [one for one in ours.schema.names if one not in NEWER]
    assert theirs.schema.names == known, name
    for field in theirs.schema:
        assert ours.schema.field(field.name).type == field.type, (name, field.name)
    assert shown(ours.select(known)) == shown(theirs), name


def history(folder: pathlib.Path) -> FileStoreTable:
    columns = [
        *(("p", "INT"), ("dt", "DATE"), ("k", "BIGINT"), ("v", "STRING"), ("d", "DECIMAL(10, 2)")),
        *(("f", "DOUBLE"), ("ts", "TIMESTAMP(3)"), ("b", "BOOLEAN")),
    ]
    table = make_table(
        folder,
        columns=columns,
        keys=["p", "dt", "k"],
        partitions=["p", "dt"],
        options={
            "bucket": "2",
            "changelog-producer": "input",
            "fields.v.aggregate-function": "max",
        },
    )
    one, big = decimal.Decimal("1.50"), decimal.Decimal("-3.00")
    write(
        table,
        1,
        [
            ("+I", 1, DAY, 1, "a", one, 1.5, NOON, True),
            ("+I", 1, DAY, 2, None, None, None, None, None),
            ("+I", 2, 0, 1, "c", big, 1e20, NOON, False),
        ],
    )
    table = table.alter([AddColumn("w", parse_type("INT"))])
    write(table, 2, [("+I", 1, DAY, 1, "b", one, 0.1, NOON, True, 7)], full=True)
    nothing = (None,) * 5
    rows = [("-D", 1, DAY, 2, None, *nothing), ("+I", 3, -1, 9, "zz", *nothing)]
    write(table, 3, rows, compaction=False)
    return table


def test_java_shows_the_same(java: JavaPeer) -> None:
    table = history(java.warehouse)
    create_tag(table, "t1", 1)
    create_tag(table, "t2", 2, time_retained_ms=3_723_500)
    create_branch(table, "b", tag="t1")
    write_consumer(table, "c1", 2)
    for name in SYSTEM_TABLES:
        if name not in ("statistics", "branches"):
            assert_shown_alike(java, table, name)
    for name in ("files", "manifests", "buckets", "partitions", "audit_log"):
        assert_shown_alike(java, table, name, {"scan.snapshot-id": "1"})


def test_java_shows_the_same_sequence_numbers_and_indexes(java: JavaPeer) -> None:
    options = {"bucket": "-1", "table-read.sequence-number.enabled": "true"}
    table = make_table(java.warehouse, options=options)
    write(table, 1, [("+I", 1, "a"), ("+I", 2, "b")])
    write(table, 2, [("+I", 1, "c"), ("-D", 2, "b")])
    for name in ("audit_log", "binlog", "ro", "table_indexes", "files"):
        assert_shown_alike(java, table, name)


@pytest.mark.parametrize("producer", ["none", "input"])
def test_changelogs_expire_by_both_in_turns(java: JavaPeer, producer: str) -> None:
    options = {
        "changelog-producer": producer,
        "snapshot.num-retained.min": "1",
        "snapshot.num-retained.max": "2",
        "changelog.num-retained.min": "4",
        "changelog.num-retained.max": "5",
        "manifest.merge-min-count": "3",
    }
    table = make_table(java.warehouse, options=options, clock=ManualClock())
    for number in range(14):
        rows = [("+I", number % 4, f"v{number}")]
        write(table, number, rows, full=number % 3 == 2)
        if number % 2:
            expire(java, "db.t")
        else:
            expire_snapshots(table, now_ms=table.clock.now_ms())
        check_table(reopened(table))
    kept = table.changelogs.ids()
    assert len(kept) == 3
    now_ms = SystemClock().now_ms() + 10**6
    assert orphans(java, "db.t", now_ms) == []
    assert remove_orphan_files(table, dry_run=True).paths == ()
    assert changelogs(java, "db.t") == kept
    expire_changelogs(table, now_ms=0, delete_all=True)
    assert changelogs(java, "db.t") == []
    found = sorted(tuple(row.values()) for row in java.read("db.t").to_pylist())
    assert found == rows_of(table)
