# SPDX-License-Identifier: Apache-2.0
"""DDL of a real MariaDB while rows flow, told by its schema change topic; it is the oracle."""

import random
from typing import Any

import pytest
import yaml

from storage.catalog.catalog import FileSystemCatalog
from tests.e2e.connect_worker import mariadb_config
from tests.e2e.daemon_process import DaemonProcess, eventually, kafka_config, run_once
from tests.e2e.real_parts import connect_worker, mariadb_server, registry
from tests.e2e.test_real_databases import wait_until_quiet

__all__ = ["connect_worker", "mariadb_server", "registry"]

pytestmark = [pytest.mark.full, pytest.mark.kafka, pytest.mark.spark]

DDL = (
    "ALTER TABLE goods ADD COLUMN note VARCHAR(40)",
    "ALTER TABLE goods CHANGE qty amount INT",
    "ALTER TABLE goods MODIFY amount BIGINT",
    "ALTER TABLE goods ADD COLUMN day DATE AFTER id",
    "ALTER TABLE goods RENAME COLUMN `name` TO title",
    "ALTER TABLE goods MODIFY price DECIMAL(12,4)",
    "ALTER TABLE goods DROP COLUMN note",
    "CREATE TABLE places (id BIGINT PRIMARY KEY, town VARCHAR(20), n INT)",
    "ALTER TABLE goods ADD COLUMN remark INT",
    "ALTER TABLE goods CHANGE day due DATE, ADD COLUMN extra VARCHAR(10)",
    "ALTER TABLE places RENAME COLUMN N TO number_of",
    "ALTER TABLE goods DROP extra",
    "ALTER TABLE places ADD COLUMN weight DOUBLE, MODIFY town VARCHAR(80)",
    "ALTER TABLE goods RENAME COLUMN due TO day",
    "ALTER TABLE places CHANGE town city VARCHAR(80)",
)
_FIRST_OF_PLACES = "ALTER TABLE places RENAME COLUMN N TO number_of"
VALUES = {
    "int": lambda draw: draw.randrange(-1000, 1000),
    "bigint": lambda draw: draw.randrange(-(2**40), 2**40),
    "varchar": lambda draw: "".join(draw.choices("abcdé ", k=draw.randrange(10))),
    "decimal": lambda draw: f"{draw.randrange(10**6)}.{draw.randrange(100):02}",
    "date": lambda draw: f"20{draw.randrange(10, 30)}-0{draw.randrange(1, 10)}-11",
    "double": lambda draw: draw.randrange(10**6) / 64,
}


class Writer:
    """Writes random rows into whatever columns the tables have."""

    def __init__(self, cursor: Any, database: str) -> None:
        self.cursor = cursor
        self.database = database
        self.draw = random.Random(5)

    def columns(self, table: str) -> dict[str, str]:
        self.cursor.execute(
            "SELECT column_name, data_type FROM information_schema.columns "
            f"WHERE table_schema = '{self.database}' AND table_name = '{table}' "
            "ORDER BY ordinal_position"
        )
        return dict(self.cursor.fetchall())

    def write(self, table: str, count: int) -> None:
        columns = self.columns(table)
        key = "id"
        for _ in range(count):
            number = self.draw.randrange(200)
            if self.draw.random() < 0.15:
                self.cursor.execute(f"DELETE FROM {table} WHERE {key} = {number}")
                continue
            values = {
                name: None if self.draw.random() < 0.2 else VALUES[type_](self.draw)
                for name, type_ in columns.items()
                if name != key
            }
            names = ", ".join(f"`{name}`" for name in (key, *values))
            marks = ", ".join(["%s"] * (len(values) + 1))
            updates = ", ".join(f"`{name}` = VALUES(`{name}`)" for name in values)
            self.cursor.execute(
                f"INSERT INTO {table} ({names}) VALUES ({marks}) ON DUPLICATE KEY UPDATE {updates}",
                (number, *values.values()),
            )


def in_database(cursor: Any, table: str) -> list[dict[str, Any]]:
    cursor.execute(f"SELECT * FROM {table} ORDER BY 1")
    names = [described[0] for described in cursor.description]
    found = [dict(zip(names, row, strict=True)) for row in cursor.fetchall()]
    return sorted((dict(sorted(row.items())) for row in found), key=str)


def in_lake(directory: Any, table: str) -> list[dict[str, Any]]:
    found = FileSystemCatalog(str(directory / "warehouse")).table(f"shop.{table}").to_arrow()
    return sorted((dict(sorted(row.items())) for row in found.to_pylist()), key=str)


def wait_for_table(daemon: DaemonProcess, path: Any, table: str) -> None:
    """What is renamed before the lake has it is made with its new name."""
    schemas = path.parent / f"warehouse/shop.db/{table}/schema"
    eventually(lambda: schemas.is_dir() or not daemon.alive, timeout=300)
    assert daemon.alive, daemon.log_tail()


def test_fifteen_statements_while_rows_flow(kafka_broker, connect_worker, mariadb_server, tmp_path):
    prefix = "ddl-mariadb"
    path = kafka_config(tmp_path, kafka_broker, rf"{prefix}\..*", name="ddl")
    raw = yaml.safe_load(path.read_text())
    raw["pipeline"]["schema.change.behavior"] = "evolve"
    raw["source"]["debezium.schema.change.topic"] = prefix
    path.write_text(yaml.safe_dump(raw))
    with mariadb_server.connect() as connection, connection.cursor() as cursor:
        writer = Writer(cursor, mariadb_server.database)
        cursor.execute(
            "CREATE TABLE goods (id BIGINT PRIMARY KEY, `name` VARCHAR(20), qty INT, "
            "price DECIMAL(8,2))"
        )
        writer.write("goods", 50)
        listed = [rf"{mariadb_server.database}\.(goods|places)"]
        source = mariadb_config(mariadb_server, prefix, listed, kafka_broker)
        connect_worker.add(prefix, source, converter="json-schema", partitions=3)
        wait_until_quiet(kafka_broker, prefix, connect_worker, 1)
        daemon = DaemonProcess(path)
        try:
            wait_for_table(daemon, path, "goods")
            for number, statement in enumerate(DDL):
                if statement == _FIRST_OF_PLACES:
                    wait_for_table(daemon, path, "places")
                cursor.execute(statement)
                for table in ("goods", *(("places",) if number >= 7 else ())):
                    writer.write(table, 60)
                if number in (4, 9):
                    daemon.kill_all()
                    daemon = DaemonProcess(path)
        finally:
            if daemon.alive:
                daemon.kill_all()
        wait_until_quiet(kafka_broker, prefix, connect_worker)
        run_once(path, timeout=900)
        for table in ("goods", "places"):
            assert in_lake(tmp_path, table) == in_database(cursor, table)
        cursor.execute("DROP TABLE goods")
        cursor.execute("DROP TABLE places")
    connect_worker.remove(prefix)
    history = FileSystemCatalog(str(tmp_path / "warehouse")).table("lakeward._schema_history")
    said = history.to_arrow().to_pylist()
    for row in said:
        if row["decision"] != "applied":  # a row from before the drop, read after it
            assert row["table"] == "shop.goods", row
            assert row["column"] in {"note", "extra"}, row
            assert (row["kind"], row["decision"]) == ("add.column", "ignored"), row
    renames = {(row["old"], row["new"]) for row in said if row["kind"] == "rename.column"}
    surely = {("name", "title"), ("qty", "amount"), ("n", "number_of"), ("town", "city")}
    assert renames - {("day", "due"), ("due", "day")} == surely  # no row may have had those names
    bad = FileSystemCatalog(str(tmp_path / "warehouse")).table("lakeward._quarantine")
    assert bad.to_arrow().num_rows == 0
