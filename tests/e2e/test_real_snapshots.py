# SPDX-License-Identifier: Apache-2.0
"""New snapshots of single tables, asked for with `lakeward resnapshot`, by real connectors."""

import contextlib
import json
import threading
import time
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import pytest
import yaml
from confluent_kafka.admin import AdminClient, NewTopic

from ingest.cli import main as cli
from ingest.errors import ExitCode
from tests.e2e.daemon_process import DaemonProcess, run_once
from tests.e2e.oracle import assert_equal
from tests.e2e.real_lake import (
    GOODS,
    PARTS,
    amended,
    fenced,
    finished,
    lake_without_bad,
    lines_apart,
    wait_until_equal,
)
from tests.e2e.real_parts import connect_worker, mariadb_server, postgres_server, registry
from tests.e2e.test_real_databases import LOOKED_UP, Source, each_replayed

__all__ = ["connect_worker", "mariadb_server", "postgres_server", "registry"]

pytestmark = [pytest.mark.full, pytest.mark.kafka, pytest.mark.spark]

SIGNALS = "debezium_signal"


@contextlib.contextmanager
def unseen(database: str, cursor: Any, source: Source, table: str) -> Iterator[None]:
    """What happens to a table meanwhile, the connector does not hear of."""
    before, after = {
        "postgres": [
            f"ALTER PUBLICATION {source.publication} {word} TABLE {table}"
            for word in ("DROP", "ADD")
        ],
        "mariadb": ["SET SESSION sql_log_bin = 0", "SET SESSION sql_log_bin = 1"],
    }[database]
    cursor.execute(before)
    yield
    cursor.execute(after)


class Beside:
    """Random transactions in a thread of its own, as long as the context lasts."""

    def __init__(self, server: Any, source: Source) -> None:
        self._server, self._source = server, source
        self._end = threading.Event()
        self._thread = threading.Thread(target=self._run)
        self.transactions = 0

    def _run(self) -> None:
        with self._server.connect() as connection, connection.cursor() as cursor:
            while not self._end.wait(0.3):  # slower than the connector reads
                self._source.changes.run(cursor, 1)
                self.transactions += 1

    def __enter__(self) -> "Beside":
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._end.set()
        self._thread.join(60)


def talking(server: Any, bootstrap: str, prefix: str, database: str) -> dict[str, str]:
    """Settings of a connector that hears signals and tells of snapshots; their topic is made."""
    admin = AdminClient({"bootstrap.servers": bootstrap})
    admin.create_topics([NewTopic(f"signals-{prefix}", 2, 1)])[f"signals-{prefix}"].result()
    schema = "public" if database == "postgres" else server.database
    return {
        "signal.data.collection": f"{schema}.{SIGNALS}",
        "signal.enabled.channels": "source,kafka",
        "signal.kafka.topic": f"signals-{prefix}",
        "signal.kafka.bootstrap.servers": bootstrap,
        "signal.kafka.groupId": f"signals-{prefix}",
        "signal.kafka.poll.timeout.ms": "1000",
        "signal.poll.interval.ms": "500",
        "notification.enabled.channels": "sink",
        "notification.sink.topic.name": f"told-{prefix}",
        "incremental.snapshot.chunk.size": "64",
    }


@pytest.mark.parametrize("database", ["postgres", "mariadb"])
def test_what_the_connector_missed_comes_with_a_new_snapshot(
    database, kafka_broker, connect_worker, request, tmp_path, capsys
):
    """`lakeward resnapshot` in chunks, blocking, and by its statement, while rows change; then the
    same events in the order of the source."""
    server = request.getfixturevalue(f"{database}_server")
    prefix = f"resnapshot-{database}"
    source = Source(
        database,
        server,
        kafka_broker,
        connect_worker,
        (GOODS, PARTS),
        several=0.2,
        settings=talking(server, kafka_broker, prefix, database),
        prefix=prefix,
    )
    topics = {"signal.topic": f"signals-{prefix}", "notification.topic": f"told-{prefix}"}
    config = amended(
        source.config(tmp_path, table_properties=LOOKED_UP),
        source={f"debezium.{name}": topic for name, topic in topics.items()},
    )
    with server.connect() as connection:
        with connection.cursor() as cursor:
            cursor.execute(
                f"CREATE TABLE {SIGNALS} (id varchar(64) PRIMARY KEY, type varchar(32) NOT NULL, "
                "data varchar(2048))"
            )
        with source.started(connection, ()):
            with DaemonProcess(config) as daemon, connection.cursor() as cursor:
                tables = source.changes.tables
                for number, way in enumerate(("incremental", "blocking", "statement")):
                    first = 10_000 * (number + 1)
                    cursor.execute(GOODS.insert_rows(range(first, first + 300)))
                    source.changes.run(cursor, 30)
                    wait_until_equal(connection, tables, config, daemon, "before the loss")
                    with unseen(database, cursor, source, "goods"):
                        cursor.execute(GOODS.insert_rows(range(first + 300, first + 340)))
                        cursor.execute(f"UPDATE goods SET title = 'unseen' WHERE id = {first + 1}")
                    fenced(cursor, config, daemon, number + 1)
                    lost = lines_apart(connection, tables, config)
                    assert len(lost) == 41, lost[:50]
                    with Beside(server, source) as beside:
                        if way == "statement":
                            cursor.execute(statement(config, capsys))
                            time.sleep(5)  # nobody tells of its end
                        else:
                            [(name, count)] = resnapshot(config, capsys, way).items()
                            assert name == source.collection("goods")
                            assert count >= 340 * (number + 1)
                    with capsys.disabled():
                        print(f"\n{database}, {way}: {beside.transactions} transactions beside")
                    wait_until_equal(connection, tables, config, daemon, "after the snapshot")
                lake = finished(source, config, daemon)
            assert_equal(connection, tables, lake)
            assert_equal(connection, tables, each_replayed(lake))
            assert_equal(connection, tables, ordered_lake(source, tmp_path / "ordered"))
        with connection.cursor() as cursor:
            cursor.execute(f"DROP TABLE {SIGNALS}")


def resnapshot(config: Path, capsys: Any, way: str) -> Mapping[str, int]:
    """Rows by collection that `lakeward resnapshot` of `goods` has seen to the end."""
    arguments = ["--blocking"] if way == "blocking" else []
    code, told, said = asked(config, capsys, *arguments, "--timeout", "180")
    assert code == ExitCode.OK, said
    assert (told["state"], told["type"]) == ("complete", way)
    assert "the connector has begun" in said
    rows: Mapping[str, int] = told["rows"]
    return rows


def statement(config: Path, capsys: Any) -> str:
    """What it says to do where there is no topic for signals."""
    raw = yaml.safe_load(config.read_text())
    del raw["source"]["debezium.signal.topic"]
    other = config.with_name("without-topic.yaml")
    other.write_text(yaml.safe_dump(raw))
    code, told, said = asked(other, capsys)
    assert (code, told["state"]) == (ExitCode.OK, "statement"), said
    return str(told["statement"])


def asked(config: Path, capsys: Any, *arguments: str) -> tuple[int, dict[str, Any], str]:
    """`lakeward resnapshot` of `goods`: exit code, result, what it said meanwhile."""
    capsys.readouterr()
    code = cli.main(["resnapshot", "-c", str(config), "shop.goods", *arguments, "--json"])
    printed = capsys.readouterr()
    return code, json.loads(printed.out or "{}"), printed.err


def ordered_lake(source: Source, folder: Path) -> dict[str, Any]:
    """The same events from their beginning into tables in the order of the source."""
    folder.mkdir()
    config = amended(source.config(folder), source={"ordering": "source"})
    run_once(config, timeout=600)
    return lake_without_bad(folder / "warehouse")
