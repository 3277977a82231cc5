# SPDX-License-Identifier: Apache-2.0
"""Tables that may wait (`tables[].freshness`), with a real database and connector."""

import time
from collections.abc import Sequence
from pathlib import Path

import pytest

from tests.e2e.daemon_process import DaemonProcess, newest_snapshot
from tests.e2e.oracle import assert_equal
from tests.e2e.real_lake import amended, fenced, finished, wait_until_equal
from tests.e2e.real_parts import connect_worker, postgres_server, registry
from tests.e2e.real_tables import Column, RealTable
from tests.e2e.test_real_databases import Source

__all__ = ["connect_worker", "postgres_server", "registry"]

pytestmark = [pytest.mark.full, pytest.mark.kafka, pytest.mark.spark]

FRESHNESS_S = 40
SLACK_S = 10
"""What it may take besides two batches like that of the hot tables [s]."""


def test_cold_tables_wait_as_long_as_they_may_and_no_longer(
    kafka_broker, connect_worker, postgres_server, tmp_path, capsys
):
    """Twenty small tables, four of them hot; a kill while records wait."""
    column = Column("v", "int", ("1", "2", "3"))
    cold = [RealTable(f"cold_{n:02}", (column,)) for n in range(16)]
    hot = [RealTable(f"hot_{n}", (column,)) for n in range(4)]
    source = Source(
        "postgres",
        postgres_server,
        kafka_broker,
        connect_worker,
        (*cold, *hot),
        prefix="cold-postgres",
        partitions=1,
    )
    rule = {"match": "shop.cold_*", "freshness": f"{FRESHNESS_S}s"}
    config = amended(source.config(tmp_path), tables=[rule])
    warehouse = tmp_path / "warehouse"
    with postgres_server.connect() as connection, source.started(connection, ()):
        tables = source.changes.tables
        with DaemonProcess(config) as daemon, connection.cursor() as cursor:
            wait_until_equal(connection, tables, config, daemon, "tables that nobody knew yet")
            fenced(cursor, config, daemon, 1)  # a batch that knows them
            before = snapshots(warehouse, cold)
            began = time.monotonic()
            source.changes.run(cursor, 150)
            wait_until_equal(connection, hot, config, daemon, "the hot tables")
            hot_s = time.monotonic() - began
            if hot_s < FRESHNESS_S:
                assert snapshots(warehouse, cold) == before
            wait_until_equal(connection, tables, config, daemon, "the cold tables")
            cold_s = time.monotonic() - began
            assert FRESHNESS_S <= cold_s <= FRESHNESS_S + 2 * hot_s + SLACK_S
            made = [
                now - then for now, then in zip(snapshots(warehouse, cold), before, strict=True)
            ]
            assert max(made) <= 2  # rows, and their compaction: all that waited is one batch
            before = snapshots(warehouse, cold)
            source.changes.run(cursor, 100)
            wait_until_equal(connection, hot, config, daemon, "the hot tables again")
            daemon.kill_all()
            source.changes.run(cursor, 100)
            with DaemonProcess(config) as daemon:
                began = time.monotonic()
                wait_until_equal(connection, tables, config, daemon, "everything after the kill")
                after_s = time.monotonic() - began
                source.changes.run(cursor, 50)
                lake = finished(source, config, daemon)  # `--once` waits for nothing
        assert_equal(connection, tables, lake)
    with capsys.disabled():
        print(f"\nhot {hot_s:.1f} s, cold {cold_s:.1f} s, after the kill {after_s:.1f} s")


def snapshots(warehouse: Path, tables: Sequence[RealTable]) -> list[int]:
    return [newest_snapshot(warehouse, f"shop.{table.name}") for table in tables]
