# SPDX-License-Identifier: Apache-2.0
"""`lakeward verify` against real databases.

What a real connector sends of every type becomes lake tables without Spark: the decoder's rows are
written as they are. They must equal the tables of the database, which is still there.
"""

import dataclasses
import datetime
import json
import random
import subprocess
import sys
import threading
import uuid
from decimal import Decimal
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from ingest.cli import main as cli
from ingest.errors import ExitCode
from storage.catalog.catalog import FileSystemCatalog
from storage.errors import CommitConflictError
from storage.format.metadata.schema import new_schema
from storage.format.types.types import VALUE_KIND, parse_type
from storage.io.local import LocalFileIO
from tests.e2e import mariadb_server as maria
from tests.e2e import postgres_server as pg
from tests.e2e.capture import capture_mariadb, capture_postgres
from tests.e2e.connect_worker import mariadb_config, postgres_config
from tests.e2e.daemon_process import DaemonProcess, eventually, kafka_config, newest_snapshot
from tests.e2e.real_parts import connect_worker, mariadb_server, postgres_server, registry
from tests.table_kit import rows_batch
from tests.unit.ingest.captured_events import Capture
from tests.unit.ingest.captured_sink import CapturedSink

__all__ = ["connect_worker", "mariadb_server", "postgres_server", "registry"]

pytestmark = [pytest.mark.full, pytest.mark.kafka]

UNSENT = ("toasted",)
"""Tables whose events leave out values that did not change; the decoder alone has no stored row."""


def url(server: Any) -> str:
    if isinstance(server, pg.Postgres):
        return f"postgresql+psycopg://{pg.USER}@{server.host}:{server.port}/{server.database}"
    login = f"{maria.USER}:{maria.PASSWORD}"
    return f"mysql+pymysql://{login}@{server.host}:{server.port}/{server.database}"


def make_lake(folder: Path, capture: Capture) -> FileSystemCatalog:
    """Tables of captured events."""
    catalog = FileSystemCatalog(str(folder / "warehouse"), file_io=LocalFileIO(durable=False))
    sink = CapturedSink().take(capture)
    for name, schema in sink.schemas.items():
        if name in UNSENT:
            continue
        table = catalog.create_table(f"shop.{name}", dataclasses.replace(schema, id=0))
        with table.new_write("test") as write:
            for change in sink.changes[name]:
                write.write(whole(change.rows, table))
            table.new_commit("test").commit(write.prepare_commit(), 1)
    return catalog


def whole(rows: pa.RecordBatch, table: Any) -> pa.RecordBatch:
    """The batch with all columns of the table, in its order."""
    arrays = [
        rows.column(field.name)
        if field.name in rows.schema.names
        else pa.nulls(rows.num_rows, field.type)
        for field in table.schema.arrow_schema
    ]
    names = [*table.schema.field_names, VALUE_KIND]
    return pa.RecordBatch.from_arrays([*arrays, rows.column(VALUE_KIND)], names=names)


def verify(capsys: Any, *arguments: str) -> tuple[int, dict[str, dict[str, Any]]]:
    code = cli.main(["verify", *arguments, "--json"])
    out = capsys.readouterr().out
    return code, {
        found["table"].split(".")[1]: found for found in map(json.loads, out.splitlines())
    }


@pytest.mark.parametrize("database", ["postgres", "mariadb"])
def test_every_type(database, kafka_broker, connect_worker, registry, request, tmp_path, capsys):
    server = request.getfixturevalue(f"{database}_server")
    capture = {"postgres": capture_postgres, "mariadb": capture_mariadb}[database]
    found = capture(kafka_broker, connect_worker, registry, server)
    connect_worker.remove_all()
    catalog = make_lake(tmp_path, found["json-schema"])
    code, told = verify(capsys, "--warehouse", catalog.warehouse, "shop.*", "--source", url(server))
    assert code == ExitCode.DIFFERENT
    assert [(name, each["error"]) for name, each in told.items() if each["error"]] == []
    expected = EXPECTED[database]
    assert {name for name, each in told.items() if each["outcome"] != "equal"} == set(expected)
    unexpected = {name: differing(told[name]) - columns for name, columns in expected.items()}
    assert not any(unexpected.values()), unexpected
    left_out = {name for each in told.values() for name in each["not_compared"]}
    assert left_out == NOT_COMPARED[database]
    with server.connect() as connection, connection.cursor() as cursor:
        cursor.execute("SELECT region, id, big FROM keyed ORDER BY id")
        one, *_, two = cursor.fetchall()
        key = "WHERE region = %s AND id = %s AND big = %s"
        cursor.execute(f"DELETE FROM keyed {key}", one)
        cursor.execute(f"UPDATE keyed SET amount = 77 {key}", two)
    arguments = ["--warehouse", catalog.warehouse, "shop.keyed", "--source", url(server)]
    code, told = verify(capsys, *arguments)
    found = told["keyed"]
    assert (code, found["extra"], found["different"], found["missing"]) == (3, 1, 1, 0)
    assert [list(each["key"].values()) for each in found["examples"]] == [list(one), list(two)]


def differing(found: dict[str, Any]) -> set[str]:
    """Columns of rows that both sides have."""
    return {column for each in found["examples"] for column in each.get("columns", ())}


EXPECTED = {
    "postgres": {
        # no event says that a new column has a default in rows that are there
        "numbers": {"added"},
        # truncated in the database
        "ranges": set(),
        # events that the decoder refuses, for they have no counterpart; NaN comes as null
        "infinities": {"n"},
    },
    "mariadb": {
        "numbers": {"added", "renamed"},
        "geometries": set(),
        # connectors send a BIGINT UNSIGNED above 2^63 as a negative number
        "unsigned_bigs": {"biu"},
        # times of a day or more
        "long_times": {"t"},
    },
}
"""Tables that rightly differ, and the columns whose values may."""

NOT_COMPARED = {
    "postgres": {"flag", "p", "l", "s", "b", "way", "area", "round"},
    "mariadb": {"flag", "mi", "p", "g", "l", "a", "m"},
}


@pytest.mark.spark
@pytest.mark.parametrize("database", ["postgres", "mariadb"])
def test_a_moving_source_is_waited_for(
    database, kafka_broker, connect_worker, request, tmp_path, capsys
):
    """Rows change all the time; nothing is reported but what another writer broke in the lake."""
    server = request.getfixturevalue(f"{database}_server")
    prefix = f"verify-{database}"
    config = kafka_config(tmp_path, kafka_broker, rf"{prefix}\..*", name=database)
    with server.connect() as connection, connection.cursor() as cursor:
        cursor.execute("CREATE TABLE moving (id int PRIMARY KEY, v int, t varchar(50))")
        values = ", ".join(f"({i}, {i}, 'text {i}')" for i in range(ROWS))
        cursor.execute(f"INSERT INTO moving VALUES {values}")
    if database == "postgres":
        source = postgres_config(server, prefix, ["public.moving"])
    else:
        source = mariadb_config(server, prefix, ["shop.moving"], kafka_broker)
    connect_worker.add(prefix, source, converter="json-schema", partitions=2)
    arguments = ["-c", str(config), "shop.moving", "--source", url(server), "--wait-for", "lag"]
    arguments += ["--settle", "3s", "--rechecks", "4", "--recheck-wait", "1s"]
    with DaemonProcess(config) as daemon, Changing(server):
        eventually(
            lambda: newest_snapshot(tmp_path / "warehouse", "shop.moving") or not daemon.alive,
            timeout=300,
            what="the first rows in the lake",
        )
        assert daemon.alive, daemon.log_tail()
        code, told = verify(capsys, *arguments, "--wait-timeout", "4m")
        assert (code, told["moving"]["outcome"]) == (ExitCode.OK, "equal"), told
        assert told["moving"]["position"]
        break_rows(tmp_path / "warehouse")
        code, told = verify(capsys, *arguments, "--wait-timeout", "4m")
        found = told["moving"]
        assert code == ExitCode.DIFFERENT
        assert (found["missing"], found["extra"], found["different"]) == (1, 1, 1), found
        kill_a_repair(config, url(server), tmp_path / "warehouse")
        code, told = verify(capsys, *arguments, "--wait-timeout", "4m", "--repair")
        assert (code, told["moving"]["outcome"]) == (ExitCode.OK, "repaired"), told
        code, told = verify(capsys, *arguments, "--wait-timeout", "4m")
        assert (code, told["moving"]["outcome"]) == (ExitCode.OK, "equal"), told
        assert daemon.terminate() == 0
    connect_worker.remove(prefix)


def kill_a_repair(config: Path, source: str, warehouse: Path) -> None:
    """Kill a repair that has parked the table."""
    command = [sys.executable, "-m", "ingest.cli.main", "verify", "-c", str(config), "shop.moving"]
    process = subprocess.Popen([*command, "--source", source, "--repair"])
    try:
        eventually(
            lambda: any("shop.moving" in each.read_text() for each in parked_files(warehouse)),
            timeout=120,
            what="the table to be parked",
        )
    finally:
        process.kill()
        process.wait()


def parked_files(warehouse: Path) -> list[Path]:
    return [*warehouse.glob(".lakeward/*/parked.json")]


ROWS = 2000
QUIET = 100
"""Rows that nobody changes."""


class Changing:
    """Changes rows in a thread, twenty a second, all but the first `QUIET`."""

    def __init__(self, server: Any) -> None:
        self._server = server
        self._end = threading.Event()
        self._thread = threading.Thread(target=self._run, daemon=True)

    def __enter__(self) -> "Changing":
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._end.set()
        self._thread.join()

    def _run(self) -> None:
        rng = random.Random(1)
        added = ROWS
        with self._server.connect() as connection, connection.cursor() as cursor:
            while not self._end.wait(0.05):
                number = rng.randrange(QUIET, ROWS)
                cursor.execute(f"UPDATE moving SET v = v + 1 WHERE id = {number}")
                if rng.random() < 0.1:
                    added += 1
                    cursor.execute(f"INSERT INTO moving VALUES ({added}, 0, 'new')")
                if rng.random() < 0.1:
                    cursor.execute(f"DELETE FROM moving WHERE id = {rng.randrange(QUIET, ROWS)}")


def break_rows(warehouse: Path) -> None:
    """What no event said: one row gone, one too many, one with another value."""
    table = FileSystemCatalog(str(warehouse)).table("shop.moving")
    rows = [["+U", 1, -1, "broken"], ["-D", 2, 2, "text 2"], ["+I", -5, 0, "extra"]]
    for attempt in range(20):
        with table.new_write("somebody", compaction=False) as write:
            write.write(rows_batch(table, rows))
            messages = write.prepare_commit()
        try:
            table.new_commit("somebody").commit(messages, attempt)
        except CommitConflictError:
            continue
        return


def texts() -> list[str]:
    """As many collations order differently; different also where case and accents do not count."""
    rng = random.Random(4)
    letters = "aAbBzZäÄéßøŁ_- .1Ω日😀"
    return ["".join(rng.choices(letters, k=rng.randint(0, 5))) + str(i) for i in range(150)]


def moments() -> list[datetime.datetime]:
    begin = datetime.datetime(2024, 2, 28, 23, 59, 59, 999_990, tzinfo=datetime.UTC)
    return [begin + datetime.timedelta(microseconds=i) for i in range(60)]


def naive() -> list[datetime.datetime]:
    return [moment.replace(tzinfo=None) for moment in moments()]


def decimals() -> list[Decimal]:
    return [Decimal(i * 37 - 1000).scaleb(-3) for i in range(60)]


def uuids() -> list[str]:
    rng = random.Random(5)
    return [str(uuid.UUID(int=rng.getrandbits(128))) for _ in range(60)]


def doubles() -> list[float]:
    return [i / 7 - 3 for i in range(60)]


def contents() -> list[bytes]:
    return [bytes([i * 5 % 256, i]) for i in range(60)]


def padded() -> list[str]:
    return [each.ljust(6) for each in ("a", "a\x01", "a\x01b", "a!", "A", *map(str, range(60)))]


KEYS = {
    "postgres": [
        ('text COLLATE "und-x-icu"', "STRING", texts),
        ("char(6)", "STRING", padded),
        ("uuid", "STRING", uuids),
        ("timestamptz", "TIMESTAMP_LTZ(6)", moments),
        ("numeric(10,3)", "DECIMAL(10, 3)", decimals),
        ("double precision", "DOUBLE", doubles),
        ("bytea", "BYTES", contents),
    ],
    "mariadb": [
        ("varchar(30) COLLATE utf8mb4_general_ci", "STRING", texts),
        ("varchar(30) CHARACTER SET utf8mb4 COLLATE utf8mb4_bin", "STRING", texts),
        ("enum('c', 'B', 'a', 'd')", "STRING", lambda: ["a", "B", "c", "d"]),
        ("datetime(6)", "TIMESTAMP(6)", naive),
        ("decimal(10,3)", "DECIMAL(10, 3)", decimals),
        ("double", "DOUBLE", doubles),
        ("varbinary(8)", "BYTES", contents),
    ],
}


@pytest.mark.parametrize("database", ["postgres", "mariadb"])
def test_keys_of_any_type_and_collation(database, request, tmp_path, capsys):
    """Pages go by the database's order, ranges by nobody's; nothing is lost between."""
    server = request.getfixturevalue(f"{database}_server")
    catalog = FileSystemCatalog(str(tmp_path / "warehouse"), file_io=LocalFileIO(durable=False))
    arguments = ["--warehouse", catalog.warehouse, "--source", url(server), "--page-rows", "7"]
    for number, (type_, lake_type, values) in enumerate(KEYS[database]):
        name, keys = f"keys_{number}", values()
        schema = new_schema(
            [("id", parse_type(lake_type)), ("v", parse_type("INT"))],
            primary_keys=["id"],
            partition_keys=(),
            options={"bucket": "2"},
            now_ms=0,
        )
        table = catalog.create_table(f"shop.{name}", schema)
        with table.new_write("test") as write:
            write.write(rows_batch(table, [["+I", key, i] for i, key in enumerate(keys)]))
            table.new_commit("test").commit(write.prepare_commit(), 1)
        with server.connect() as connection, connection.cursor() as cursor:
            cursor.execute(f"CREATE TABLE {name} (id {type_} PRIMARY KEY, v int)")
            rows = list(zip(keys, range(len(keys)), strict=True))
            cursor.executemany(f"INSERT INTO {name} VALUES (%s, %s)", rows)
        given = [*arguments, f"shop.{name}", "--source-table", name]
        code, told = verify(capsys, *given)
        assert (code, told[name]["source_rows"]) == (ExitCode.OK, len(keys)), (type_, told)
        with server.connect() as connection, connection.cursor() as cursor:
            cursor.execute(f"UPDATE {name} SET v = -1 WHERE v = 1")
            cursor.execute(f"DELETE FROM {name} WHERE v = 2")
        _, told = verify(capsys, *given)
        found = told[name]
        counts = (found["missing"], found["extra"], found["different"])
        assert counts == (0, 1, 1), (type_, found)
