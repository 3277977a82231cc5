# SPDX-License-Identifier: Apache-2.0
"""A real database through real Debezium and Kafka into tables; the database is the oracle."""

import contextlib
import dataclasses
import json
import random
import time
from collections.abc import Collection, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
import yaml

from changelog.stream_scan import read_changelog
from ingest.errors import ExitCode
from storage.catalog.catalog import FileSystemCatalog
from tests.changelog_replay import changelog_faults, replay
from tests.e2e import mariadb_tables, postgres_tables
from tests.e2e.capture import (
    CONVERTERS,
    TopicReader,
    capture_mariadb,
    capture_postgres,
    wait_for_rows,
)
from tests.e2e.connect_worker import ConnectWorker, mariadb_config, postgres_config
from tests.e2e.daemon_process import (
    DaemonProcess,
    eventually,
    kafka_config,
    newest_snapshot,
    run_once,
)
from tests.e2e.oracle import assert_equal
from tests.e2e.real_history import MADE, ORDERS, Step, history
from tests.e2e.real_parts import connect_worker, mariadb_server, postgres_server, registry
from tests.e2e.real_tables import Column, RandomChanges, RealTable
from tests.e2e.test_verify import url, verify
from tests.unit.ingest.agreeing_paths import assert_paths_agree
from tests.unit.ingest.captured_events import Capture

__all__ = ["connect_worker", "mariadb_server", "postgres_server", "registry"]

pytestmark = [pytest.mark.full, pytest.mark.kafka]

FENCE = RealTable("fence", (Column("round", "int", ()),))
"""A table whose one row says how far the connector has come."""


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
    undo(postgres_server, postgres_tables.PREPARE)


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
    source = Source(database, server, kafka_broker, connect_worker, described.TABLES)
    config = source.config(tmp_path)
    with server.connect() as connection, source.started(connection, described.PREPARE):
        live_through(SMALL, source, connection, config, iter(described.EVOLUTION))
        assert_equal(connection, source.changes.tables, open_lake(tmp_path / "warehouse"))


@pytest.mark.spark
@pytest.mark.parametrize("database", ["postgres", "mariadb"])
def test_ten_thousand_transactions(
    database, kafka_broker, connect_worker, request, tmp_path, capsys
):
    """Fifteen DDL statements meanwhile; rows, `lakeward verify` and the changelog all agree, and so
    do the decoding paths on every event."""
    server = request.getfixturevalue(f"{database}_server")
    described = {"postgres": postgres_tables, "mariadb": mariadb_tables}[database]
    odd = {
        "postgres": (postgres_tables.NEGATIVE_SCALES,),
        "mariadb": (mariadb_tables.PRECISE, mariadb_tables.ODD_TIMES),
    }
    tables = (*described.TABLES, *odd[database], ORDERS)
    source = Source(
        database,
        server,
        kafka_broker,
        connect_worker,
        tables,
        MADE,
        several=0.15,
        settings={"bigint.unsigned.handling.mode": "precise"} if database == "mariadb" else None,
    )
    config = source.config(tmp_path, evolve=True, table_properties=LOOKED_UP)
    with server.connect() as connection, source.started(connection, described.PREPARE):
        steps = history(database, source.publication)
        figures = live_through(LARGE, source, connection, config, iter(steps))
        with capsys.disabled():
            print(f"\n{database}: {json.dumps(figures)}")
        assert len(source.changes.tables) >= 12
        lake = open_lake(tmp_path / "warehouse")
        assert_equal(connection, source.changes.tables, lake)
        code, told = verify(capsys, "-c", str(config), "shop.*", "--source", url(server))
        assert {name: each["outcome"] for name, each in told.items()} == dict.fromkeys(
            lake, "equal"
        ), told
        assert code == ExitCode.OK
        assert_equal(connection, source.changes.tables, each_replayed(lake))
        assert assert_paths_agree(source.told()) > figures["events"] // 2
    catalog = FileSystemCatalog(str(tmp_path / "warehouse"))
    assert catalog.table("lakeward._quarantine").to_arrow().num_rows == 0
    said = catalog.table("lakeward._schema_history").to_arrow().to_pylist()
    # a row with a dropped column may be read after the statement, from another partition
    dropped = {("shop.keyed", "note"), ("shop.orders", "note")} if source.tells_ddl else set()
    for row in said:
        if row["decision"] != "applied":
            assert (row["table"], row["column"]) in dropped, row
            assert row["decision"] == "ignored", row
            assert row["reason"].startswith("dropped at"), row
    renames = {(row["old"], row["new"]) for row in said if row["kind"] == "rename.column"}
    # `places` may be made in the lake when its column has its new name already
    renames.discard(("n", "number_of"))
    assert renames == ({("customer", "buyer")} if source.tells_ddl else set())


@dataclasses.dataclass(frozen=True)
class Scale:
    """How much happens to a database, and what goes wrong after which round.

    Attributes:
        rounds: of random transactions.
        transactions: in each.
        altered: rounds after which the next DDL statement runs.
        lake_killed: rounds after which Lakeward is killed, when it has committed something.
        worker_killed: rounds after which Kafka Connect is.
        connector_restarted: rounds after which the connector is restarted in it.
        pauses: between a first commit and the kill [s]; 0 is in the middle of a batch.
    """

    rounds: int
    transactions: int
    altered: Collection[int]
    lake_killed: Collection[int]
    worker_killed: Collection[int]
    connector_restarted: Collection[int]
    pauses: Sequence[float] = (0.0,)


SMALL = Scale(6, 60, range(1, 6, 2), (1, 3, 5), (2,), (4,))
LARGE = Scale(16, 625, range(1, 16), (2, 5, 8, 11, 14), (4,), (10,), (0.0, 4.0, 8.0))
LOOKED_UP = {
    "changelog-producer": "lookup",
    "snapshot.num-retained.min": "1000000",
    "snapshot.num-retained.max": "1000000",
}


class Source:
    """Tables of a database, and the connector that tells of them.

    Args:
        database: `postgres` or `mariadb`.
        server: of it.
        bootstrap: of Kafka.
        worker: Kafka Connect.
        tables: that there are at first.
        made: tables that come later.
        several: see `RandomChanges`.
        settings: more of them for the connector.
        prefix: of its topics; empty = one for the database and the number of tables.
        partitions: of its topics.
    """

    def __init__(
        self,
        database: str,
        server: Any,
        bootstrap: str,
        worker: ConnectWorker,
        tables: tuple[RealTable, ...],
        made: tuple[RealTable, ...] = (),
        several: float = 0.0,
        settings: Mapping[str, str] | None = None,
        prefix: str = "",
        partitions: int = 3,
    ) -> None:
        self.tells_ddl = database == "mariadb"
        self.prefix = prefix or f"e2e-{database}{len(tables)}"
        self.publication = self.prefix.replace("-", "_")
        self.bootstrap, self.worker = bootstrap, worker
        self.changes = RandomChanges(tables, seed=11, several=several)
        self._server, self._tables, self._made = server, tables, made
        self._settings, self._partitions = settings or {}, partitions
        self._config: dict[str, str] = {}

    def config(self, directory: Path, *, evolve: bool = False, **more: Any) -> Path:
        """The pipeline's; `evolve` also follows the DDL that the connector tells."""
        pattern = rf"{self.prefix}\..*|__debezium-heartbeat\.{self.prefix}"
        path = kafka_config(directory, self.bootstrap, pattern, name=self.prefix, **more)
        raw = yaml.safe_load(path.read_text())
        if evolve:
            raw["pipeline"]["schema.change.behavior"] = "evolve"
            if self.tells_ddl:
                raw["source"]["debezium.schema.change.topic"] = self.prefix
        path.write_text(yaml.safe_dump(raw))
        return path

    @contextlib.contextmanager
    def started(self, connection: Any, prepare: Sequence[str]) -> Iterator[None]:
        """With the tables, some rows, and a connector that has told of them."""
        names = [table.name for table in (*self._tables, *self._made, FENCE)]
        with connection.cursor() as cursor:
            for statement in prepare:
                cursor.execute(statement)
            for table in (*self._tables, FENCE):
                for statement in table.create():
                    cursor.execute(statement)
            cursor.execute("INSERT INTO fence (id, round) VALUES (1, 0)")
            self.changes.fill(cursor, 5)
        listed = [self.collection(name) for name in names]
        if self.tells_ddl:
            config = mariadb_config(self._server, self.prefix, listed, self.bootstrap)
        else:
            config = postgres_config(self._server, self.prefix, listed)
        self._config = {**config, **self._settings}
        self.connect(self.prefix)
        # a snapshot that is begun twice would leave rows that were deleted between
        self.wait_until_quiet(5 * len(self._tables) + 1)
        yield
        self.worker.remove_all()
        drop(self._server, (*self.changes.tables, FENCE))
        undo(self._server, prepare)

    def connect(self, name: str) -> None:
        """Add the connector; under a name that it had not before it knows of no earlier one."""
        self.worker.add(name, self._config, converter="json-schema", partitions=self._partitions)

    def collection(self, name: str) -> str:
        """What the connector calls a table."""
        return f"{self._server.database if self.tells_ddl else 'public'}.{name}"

    def told(self) -> Capture:
        """Everything that the connector told."""
        reader = TopicReader(self.bootstrap, self.prefix)
        with contextlib.closing(reader):
            return Capture("", "", "json-schema", {}, tuple(reader.read()))

    def wait_until_quiet(self, at_least: int = 1) -> int:
        """Wait until the connector tells no more; how many rows it has told."""
        return wait_until_quiet(self.bootstrap, self.prefix, self.worker, at_least)


def undo(server: Any, prepare: Sequence[str]) -> None:
    """Take away what the tables needed."""
    with server.connect() as connection, connection.cursor() as cursor:
        for statement in prepare:
            kind, name = statement.replace("IF NOT EXISTS ", "").split()[1:3]
            cursor.execute(f"DROP {kind} {name}")


def live_through(
    scale: Scale, source: Source, connection: Any, config: Path, steps: Iterator[Step]
) -> dict[str, float]:
    """Rounds of changes with the daemon beside them, then whatever is left; figures of all."""
    began, writing = time.monotonic(), 0.0
    daemon = DaemonProcess(config)
    try:
        with connection.cursor() as cursor:
            for number in range(1, scale.rounds + 1):
                since = time.monotonic()
                source.changes.run(cursor, scale.transactions)
                writing += time.monotonic() - since
                if number in scale.altered:
                    source.changes.alter(cursor, *next(steps))
                daemon = disturb(scale, number, daemon, config, source)
            cursor.execute(f"UPDATE fence SET round = {scale.rounds} WHERE id = 1")
        written = time.monotonic()
        wait_for_fence(config.parent, daemon, scale.rounds)
    finally:
        if daemon.alive:
            daemon.kill_all()
    fenced = time.monotonic()
    events = source.wait_until_quiet()
    run_once(config, timeout=900)
    return {
        "transactions": scale.rounds * scale.transactions,
        "transactions_per_s": round(scale.rounds * scale.transactions / writing),
        "events": events,
        "commits": progress(config.parent),
        "lake_killed": len(scale.lake_killed),
        "debezium_restarted": len(scale.worker_killed) + len(scale.connector_restarted),
        "written_s": round(written - began),
        "caught_up_s": round(fenced - written),
        "all_s": round(time.monotonic() - began),
    }


def disturb(
    scale: Scale, number: int, daemon: DaemonProcess, config: Path, source: Source
) -> DaemonProcess:
    """What goes wrong after round `number`; the daemon that runs then."""
    assert daemon.alive, daemon.log_tail()
    if number in scale.worker_killed:
        source.worker.kill()
        source.worker.start()
    if number in scale.connector_restarted:
        source.worker.restart(source.prefix)
    if number in scale.lake_killed:
        before = progress(config.parent)
        eventually(
            lambda: progress(config.parent) > before or not daemon.alive,
            timeout=300,
            what="a commit before the kill",
        )
        time.sleep(random.Random(number).choice(scale.pauses))
        assert daemon.alive, daemon.log_tail()
        daemon.kill_all()
        return DaemonProcess(config)
    return daemon


def each_replayed(lake: Mapping[str, Any]) -> dict[str, pa.Table]:
    """What the changelogs of tables amount to, from empty; every change fits what it meets."""
    found = {}
    for name, table in lake.items():
        changes = [batch.rows for batch in read_changelog(table, options={"scan.snapshot-id": "1"})]
        keys = table.schema.primary_keys
        assert changelog_faults(changes, keys) == [], name
        found[name] = replay(changes, keys)
    return found


def progress(directory: Path) -> int:
    """Commits to the lake's tables so far."""
    folders = (directory / "warehouse").glob("shop.db/*/snapshot")
    return sum(newest_snapshot(directory / "warehouse", f"shop.{f.parent.name}") for f in folders)


def wait_for_fence(directory: Path, daemon: DaemonProcess, last: int) -> None:
    """Wait until the last change of the database is in the lake."""

    def arrived() -> bool:
        assert daemon.alive, daemon.log_tail()
        lake = open_lake(directory / "warehouse")
        if FENCE.name not in lake:
            return False
        return lake[FENCE.name].to_arrow()["round"].to_pylist() == [last]

    eventually(arrived, timeout=900, interval=2.0, what="the fence in the lake")


def wait_until_quiet(bootstrap: str, prefix: str, worker: Any, at_least: int = 1) -> int:
    """Wait until Debezium sends no more rows; how many it sent."""
    reader = TopicReader(bootstrap, prefix)
    try:
        wait_for_rows([reader], at_least, worker)
        return reader.rows()
    finally:
        reader.close()


def open_lake(warehouse: Path) -> dict[str, Any]:
    """The lake's tables of the database, by name."""
    catalog = FileSystemCatalog(str(warehouse))
    if "shop" not in catalog.list_databases():
        return {}
    return {name: catalog.table(f"shop.{name}") for name in catalog.list_tables("shop")}
