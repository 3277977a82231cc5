# SPDX-License-Identifier: Apache-2.0
"""A real database through real Debezium and Kafka into tables; the database is the oracle."""

import json
from pathlib import Path
from typing import Any

import pytest

from storage.table.catalog import FileSystemCatalog
from tests.e2e import mariadb_tables, postgres_tables
from tests.e2e.capture import (
    CONVERTERS,
    TopicReader,
    capture_mariadb,
    capture_postgres,
    wait_for_rows,
)
from tests.e2e.connect_worker import mariadb_config, postgres_config
from tests.e2e.daemon_process import (
    DaemonProcess,
    eventually,
    kafka_config,
    newest_snapshot,
    run_once,
)
from tests.e2e.oracle import assert_equal
from tests.e2e.real_parts import connect_worker, mariadb_server, postgres_server, registry
from tests.e2e.real_tables import Column, RandomChanges, RealTable

__all__ = ["connect_worker", "mariadb_server", "postgres_server", "registry"]

pytestmark = [pytest.mark.full, pytest.mark.kafka]

FENCE = RealTable("fence", (Column("round", "int", ()),))
"""A table whose one row says how far the connector has come."""

ROUNDS = 6
TRANSACTIONS = 60


def check_captures(found: dict[str, Any], tables: tuple[RealTable, ...]) -> None:
    """All encodings tell of the same rows, and JSON parses."""
    assert set(found) == set(CONVERTERS)
    counts = []
    for converter, capture in found.items():
        prefix = {message.topic.split(".")[0] for message in capture.messages}
        assert len({name for name in prefix if not name.startswith("__")}) == 1
        rows = [m for m in capture.messages if m.topic.split(".")[-1] in {t.name for t in tables}]
        assert {m.topic.split(".")[-1] for m in rows} == {table.name for table in tables}
        counts.append(len(rows))
        for message in capture.messages if converter != "avro" else ():
            if message.value is not None:
                value = json.loads(message.value)
                assert ("schema" in value) == (converter == "json-schema")
    assert len(set(counts)) == 1, counts
    assert found["avro"].schemas


def test_postgres_is_captured_in_each_encoding(
    kafka_broker, connect_worker, registry, postgres_server
):
    found = capture_postgres(kafka_broker, connect_worker, registry, postgres_server)
    tables = (*postgres_tables.TABLES, *postgres_tables.ODD)
    check_captures(found, tables)
    connect_worker.remove_all()
    drop(postgres_server, tables)


def test_mariadb_is_captured_in_each_encoding(
    kafka_broker, connect_worker, registry, mariadb_server
):
    found = capture_mariadb(kafka_broker, connect_worker, registry, mariadb_server)
    tables = (*mariadb_tables.TABLES, *mariadb_tables.ODD)
    check_captures(found, tables)
    connect_worker.remove_all()
    drop(mariadb_server, tables)


def drop(server: Any, tables: tuple[RealTable, ...]) -> None:
    with server.connect() as connection, connection.cursor() as cursor:
        for table in tables:
            cursor.execute(f"DROP TABLE {table.name}")


@pytest.mark.spark
@pytest.mark.parametrize("database", ["postgres", "mariadb"])
def test_tables_equal_the_database(database, kafka_broker, connect_worker, request, tmp_path):
    """Random transactions and DDL; Debezium killed and restarted, Lakeward killed three times."""
    server = request.getfixturevalue(f"{database}_server")
    described = {"postgres": postgres_tables, "mariadb": mariadb_tables}[database]
    tables = described.TABLES
    names = [*(table.name for table in tables), FENCE.name]
    prefix = f"e2e-{database}"
    changes = RandomChanges(tables, seed=11)
    config = kafka_config(
        tmp_path, kafka_broker, rf"{prefix}\..*|__debezium-heartbeat\.{prefix}", name=database
    )
    with server.connect() as connection, connection.cursor() as cursor:
        for statement in described.PREPARE:
            cursor.execute(statement)
        for table in (*tables, FENCE):
            for statement in table.create():
                cursor.execute(statement)
        cursor.execute("INSERT INTO fence (id, round) VALUES (1, 0)")
        changes.fill(cursor, 5)
        if database == "postgres":
            source = postgres_config(server, prefix, [f"public.{name}" for name in names])
        else:
            listed = [f"{server.database}.{name}" for name in names]
            source = mariadb_config(server, prefix, listed, kafka_broker)
        connect_worker.add(prefix, source, converter="json-schema", partitions=3)
        # a snapshot that is begun twice would leave rows that were deleted between
        wait_until_quiet(kafka_broker, prefix, connect_worker, 5 * len(tables) + 1)
        daemon = DaemonProcess(config)
        try:
            for number in range(1, ROUNDS + 1):
                changes.run(cursor, TRANSACTIONS)
                if number % 2:
                    changes.alter(cursor, *described.EVOLUTION[number // 2])
                daemon = disturb(number, daemon, config, connect_worker, prefix)
            cursor.execute(f"UPDATE fence SET round = {ROUNDS} WHERE id = 1")
            wait_for_fence(tmp_path, daemon)
        finally:
            if daemon.alive:
                daemon.kill_group()
        wait_until_quiet(kafka_broker, prefix, connect_worker)
        run_once(config, timeout=900)
        lake = open_lake(tmp_path / "warehouse")
        assert_equal(connection, changes.tables, lake)
    connect_worker.remove(prefix)
    drop(server, (*tables, FENCE))


def disturb(number: int, daemon: DaemonProcess, config: Path, worker: Any, name: str):
    """What goes wrong after round `number`; the daemon that runs then."""
    assert daemon.alive, daemon.log_tail()
    if number == 2:
        worker.kill()
        worker.start()
    elif number == 4:
        worker.restart(name)
    elif number < ROUNDS:
        before = progress(config.parent)
        eventually(
            lambda: progress(config.parent) > before or not daemon.alive,
            timeout=300,
            what="a commit before the kill",
        )
        assert daemon.alive, daemon.log_tail()
        daemon.kill_group()
        return DaemonProcess(config)
    return daemon


def progress(directory: Path) -> int:
    """Commits to the lake's tables so far."""
    folders = (directory / "warehouse").glob("shop.db/*/snapshot")
    return sum(newest_snapshot(directory / "warehouse", f"shop.{f.parent.name}") for f in folders)


def wait_for_fence(directory: Path, daemon: DaemonProcess) -> None:
    """Wait until the last change of the database is in the lake."""

    def arrived() -> bool:
        assert daemon.alive, daemon.log_tail()
        lake = open_lake(directory / "warehouse")
        if FENCE.name not in lake:
            return False
        return lake[FENCE.name].to_arrow()["round"].to_pylist() == [ROUNDS]

    eventually(arrived, timeout=600, interval=2.0, what="the fence in the lake")


def wait_until_quiet(bootstrap: str, prefix: str, worker: Any, at_least: int = 1) -> None:
    """Wait until Debezium sends no more rows."""
    reader = TopicReader(bootstrap, prefix)
    try:
        wait_for_rows([reader], at_least, worker)
    finally:
        reader.close()


def open_lake(warehouse: Path) -> dict[str, Any]:
    """The lake's tables of the database, by name."""
    catalog = FileSystemCatalog(str(warehouse))
    if "shop" not in catalog.list_databases():
        return {}
    return {name: catalog.table(f"shop.{name}") for name in catalog.list_tables("shop")}
