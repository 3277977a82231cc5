# SPDX-License-Identifier: Apache-2.0
"""System tables as Apache Paimon's Spark connector (0.9.0) prints them of tables that we wrote.

Columns of later releases are compared with the Java classes of 2.0.0, in `test_system_tables`.
"""

import datetime
import shutil
import time
from collections.abc import Iterator
from typing import Any

import pyarrow as pa
import pytest

from storage.catalog.catalog import FileSystemCatalog
from storage.catalog.system_tables import catalog_system_table
from storage.format.metadata.manifest_store import clear_manifest_cache
from storage.table.branches import create_branch
from storage.table.commit.live_files import clear_live_cache
from storage.table.compaction.rescale import rescale
from storage.table.inspect.analyze import analyze, compute_statistics
from storage.table.inspect.statistics import read_statistics
from storage.table.inspect.system.registry import SYSTEM_TABLES, system_table
from storage.table.retention.consumers import write_consumer
from storage.table.table import FileStoreTable
from storage.table.tags import create_tag
from tests.interop.spark_peer import SparkPeer
from tests.interop.test_system_tables import history
from tests.table_kit import reopened, rows_of

pytestmark = [pytest.mark.interop, pytest.mark.full]

LATER = {"table_indexes", "binlog", "file_key_ranges", "buckets"}
"""Not known to the connector's 0.9."""

CHANGED = {("files", "partition"), ("partitions", "partition")}
"""Texts that later releases write otherwise; compared with Java 2.0.0 in `test_system_tables`."""


@pytest.fixture(autouse=True)
def _fresh(spark: SparkPeer, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    monkeypatch.setenv("TZ", "UTC")
    time.tzset()
    clear_live_cache()
    clear_manifest_cache()
    yield
    shutil.rmtree(spark.warehouse / "db.db" / "t", ignore_errors=True)
    monkeypatch.undo()
    time.tzset()


def shown(found: pa.Table, names: list[str]) -> list[dict[str, Any]]:
    rows = found.select(names).to_pylist()
    for row in rows:
        for key, value in row.items():
            if isinstance(value, datetime.datetime):
                row[key] = value.replace(tzinfo=None)
            elif key == "file_path":
                row[key] = value.rpartition("/")[2]  # then the name alone
            elif key == "partition":
                row[key] = value.replace("{", "[").replace("}", "]")
    return sorted(rows, key=repr)


@pytest.fixture
def table(spark: SparkPeer) -> FileStoreTable:
    table = history(spark.warehouse)
    create_tag(table, "t1", 1)
    create_branch(table, "b", tag="t1")
    write_consumer(table, "c1", 2)
    return table


def test_spark_prints_the_same(spark: SparkPeer, table: FileStoreTable) -> None:
    analyze(table)
    differing = []
    for name in sorted(SYSTEM_TABLES.keys() - LATER):
        theirs = spark.query(f"SELECT * FROM db.`t${name}`")
        ours = system_table(reopened(table), name)
        common = [one for one in theirs.schema.names if one in ours.schema.names]
        missing = [one for one in theirs.schema.names if one not in common]
        if missing not in ([], ["branches"], ["created_from_tag", "created_from_snapshot"]):
            differing.append((name, "lacks", missing))
        if [one for one in ours.schema.names if one in common] != common:
            differing.append((name, "order", common))
        for column in common:
            found = [[row[column] for row in shown(one, common)] for one in (ours, theirs)]
            if found[0] != found[1] and (name, column) not in CHANGED:
                differing.append((name, column, found))
    assert differing == []


def test_spark_prints_the_same_options_of_all_tables(
    spark: SparkPeer, table: FileStoreTable
) -> None:
    theirs = spark.query("SELECT * FROM sys.all_table_options WHERE table_name = 't'")
    ours = catalog_system_table(FileSystemCatalog(str(spark.warehouse)), "all_table_options")
    names = theirs.schema.names
    assert ours.schema.names == names
    rows = [row for row in shown(ours, names) if row["table_name"] == "t"]
    assert rows == shown(theirs, names)


def test_statistics_are_those_of_spark(spark: SparkPeer, table: FileStoreTable) -> None:
    columns = ["p", "dt", "k", "v", "d", "f", "b"]
    told = ", ".join(columns)
    spark.run(f"ANALYZE TABLE db.t COMPUTE STATISTICS FOR COLUMNS {told}")
    theirs = read_statistics(reopened(table))
    assert theirs is not None
    snapshot = table.snapshots.read(theirs.snapshot_id)
    ours = compute_statistics(reopened(table), snapshot, columns)
    assert ours.merged_record_count == theirs.merged_record_count
    assert dict(ours.columns) == dict(theirs.columns)
    analyze(reopened(table), columns)
    found = spark.query("SELECT * FROM db.`t$statistics`").to_pylist()
    assert found[0]["mergedRecordCount"] == ours.merged_record_count


def test_spark_reads_and_writes_on_after_a_rescale(spark: SparkPeer, table: FileStoreTable) -> None:
    before = rows_of(table)
    rescale(reopened(table), 5)
    assert rows_of(reopened(table)) == before
    found = spark.query("SELECT * FROM db.t")
    assert found.num_rows == len(before)
    spark.run("DELETE FROM db.t WHERE k = 9")
    assert len(rows_of(reopened(table))) == len([row for row in before if row[2] != 9])
