# SPDX-License-Identifier: Apache-2.0
"""Pause, resume, reload and damage of a running daemon, on real Kafka and real Spark.

All three tables are fed from the same topics, and one of them adds up: a row that is lost or
written twice shows in its sums.
"""

import json
import random
import shutil
import signal

import pytest
import yaml
from confluent_kafka import Producer, TopicPartition
from confluent_kafka.admin import AdminClient

from ingest.cli import main as cli
from storage.catalog.catalog import FileSystemCatalog
from tests.e2e.daemon_process import (
    DaemonProcess,
    drain,
    eventually,
    files_config,
    kafka_config,
)
from tests.e2e.shop_stream import (
    assert_identifiers_never_repeat,
    assert_no_file_missing,
    recreate_topics,
)

pytestmark = [pytest.mark.kafka, pytest.mark.spark]

TOPICS = ("mixed.one", "mixed.two")
TABLES = ("orders", "items", "sums")
SUMS = {"merge-engine": "aggregation", "fields.n.aggregate-function": "sum"}


class MixedStream:
    """Events of three tables in two topics, and the rows they must become."""

    def __init__(self, bootstrap, seed):
        self.rng = random.Random(seed)
        self.rows = {table: {} for table in TABLES}
        self._bootstrap = bootstrap
        self.recreate_topics()

    def recreate_topics(self):
        recreate_topics(self._bootstrap, TOPICS, 2)
        self._producer = Producer(
            {"bootstrap.servers": self._bootstrap, "enable.idempotence": True}
        )

    def changes(self, count):
        for _ in range(count):
            table = self.rng.choice(TABLES)
            topic = self.rng.randrange(2)
            key = self.rng.randrange(200) * 2 + topic  # a key stays in its topic
            n = self.rng.randrange(1, 1000)
            rows = self.rows[table]
            gone = table != "sums" and key in rows and self.rng.random() < 0.2
            if gone:
                del rows[key]
            else:
                rows[key] = n + (rows.get(key, 0) if table == "sums" else 0)
            value = {
                "before": {"id": key, "n": 0} if gone else None,
                "after": None if gone else {"id": key, "n": n},
                "op": "d" if gone else "c",
                "source": {"db": "shop", "table": table, "ts_ms": 1},
            }
            self._producer.produce(
                TOPICS[topic], key=json.dumps({"id": key}), value=json.dumps(value)
            )
            self._producer.poll(0)
        assert self._producer.flush(30) == 0

    def retention_takes_all(self):
        """What is in the topics is gone; offsets go on."""
        ends = [TopicPartition(topic, p, -1) for topic in TOPICS for p in range(2)]
        admin = AdminClient({"bootstrap.servers": self._bootstrap})
        for future in admin.delete_records(ends).values():
            future.result(30)

    def assert_tables_equal(self, directory):
        for table in TABLES:
            assert rows_of(directory, table) == self.rows[table], table
            opened = FileSystemCatalog(str(directory / "warehouse")).table(f"shop.{table}")
            assert_identifiers_never_repeat(opened)
            assert_no_file_missing(opened)


def rows_of(directory, table):
    catalog = FileSystemCatalog(str(directory / "warehouse"))
    if not catalog.exists(f"shop.{table}"):
        return {}
    rows = catalog.table(f"shop.{table}").to_arrow().to_pylist()
    return {row["id"]: row["n"] for row in rows}


def config_of(directory, broker, **changes):
    path = kafka_config(directory, broker, r"mixed\..*", max_records=400, interval="100ms")
    raw = yaml.safe_load(path.read_text())
    raw["tables"] = [{"match": "shop.sums", "table.properties": SUMS}]
    raw["sink"]["table.properties"] = {"snapshot.num-retained.min": "1000"}
    for key, value in changes.items():
        raw[key].update(value)
    path.write_text(yaml.safe_dump(raw))
    return path


def command(capsys, *arguments):
    """(exit code, what it printed as JSON, what it said on standard error)."""
    capsys.readouterr()
    code = cli.main([*map(str, arguments), "--json"])
    printed = capsys.readouterr()
    return code, json.loads(printed.out) if printed.out else None, printed.err


def tables_of(capsys, config):
    return command(capsys, "status", "-c", config)[1]["tables"]


def wait_until(daemon, check, what, timeout=120):
    def alive_and():
        assert daemon.alive, daemon.log_tail()
        return check()

    try:
        return eventually(alive_and, timeout=timeout, interval=0.3, what=what)
    except AssertionError as error:
        raise AssertionError(f"{error}\n{daemon.log_tail(30)}") from error


@pytest.mark.full
def test_a_paused_table_is_resumed_and_killed_while_it_catches_up(
    kafka_broker, spark, tmp_path, capsys
):
    stream = MixedStream(kafka_broker, seed=5)
    config = config_of(tmp_path, kafka_broker)
    stream.changes(1_000)
    with DaemonProcess(config) as daemon:
        wait_until(daemon, lambda: rows_of(tmp_path, "sums") == stream.rows["sums"], "the start")

        code, answer, _ = command(capsys, "pause", "-c", config, "shop.orders", "--reason", "test")
        assert (code, answer["parked"]) == (0, ["shop.orders"]), daemon.log_tail()
        before = rows_of(tmp_path, "orders")
        stream.changes(4_000)
        wait_until(daemon, lambda: rows_of(tmp_path, "sums") == stream.rows["sums"], "the others")
        assert rows_of(tmp_path, "orders") == before
        facts = tables_of(capsys, config)["shop.orders"]
        assert (facts["state"], facts["by"], facts["reason"]) == ("parked", "person", "test")
        assert facts["missed"] == 4_000

        code, answer, _ = command(capsys, "resume", "-c", config, "shop.orders")
        assert code == 0, daemon.log_tail()
        again = sum(b - a for parts in answer["again"].values() for a, b in parts.values())
        assert 4_000 <= again <= 5_000
        wait_until(
            daemon, lambda: rows_of(tmp_path, "orders") != before, "the first batch of the rest"
        )
        daemon.kill_all()
    assert tables_of(capsys, config)["shop.orders"]["state"] == "behind"

    stream.changes(500)
    drain(config, spark, pipeline_trigger_max_records=50_000)

    stream.assert_tables_equal(tmp_path)
    with DaemonProcess(config) as daemon:
        wait_until(
            daemon,
            lambda: tables_of(capsys, config)["shop.orders"]["state"] == "running",
            "level with the others",
        )
        assert daemon.terminate() == 0, daemon.log_tail()


@pytest.mark.full
def test_a_damaged_table_is_parked_and_heals_and_settings_change_while_it_runs(
    kafka_broker, tmp_path, capsys
):
    stream = MixedStream(kafka_broker, seed=6)
    config = config_of(tmp_path, kafka_broker)
    stream.changes(1_000)
    items = tmp_path / "warehouse/shop.db/items"
    with DaemonProcess(config) as daemon:
        wait_until(daemon, lambda: rows_of(tmp_path, "sums") == stream.rows["sums"], "the start")

        kept = tmp_path / "kept"
        shutil.copytree(items / "manifest", kept)
        for path in (items / "manifest").glob("manifest-*"):
            path.write_bytes(b"not an avro file")
        stream.changes(1_000)
        wait_until(
            daemon,
            lambda: tables_of(capsys, config)["shop.items"]["state"] == "parked",
            "the damage is noticed",
        )
        facts = tables_of(capsys, config)["shop.items"]
        assert facts["by"] == "stream"
        assert "CorruptDataError" in facts["reason"]
        wait_until(daemon, lambda: rows_of(tmp_path, "sums") == stream.rows["sums"], "the others")

        for path in kept.iterdir():
            shutil.copy(path, items / "manifest" / path.name)
        code, _, said = command(capsys, "resume", "-c", config, "shop.items")
        assert code == 0, said + daemon.log_tail()
        wait_until(daemon, lambda: rows_of(tmp_path, "items") == stream.rows["items"], "it heals")

        config_of(tmp_path, kafka_broker, source={"format": "canal-json"})
        code, _, said = command(capsys, "reload", "-c", config)
        assert code == 78
        assert "source.format" in said
        config_of(
            tmp_path,
            kafka_broker,
            source={"topics.pattern": r"mixed\.(one|two|three)"},
            pipeline={"trigger": {"interval": "50ms", "max.records": 5_000}},
        )
        code, answer, said = command(capsys, "reload", "-c", config)
        assert code == 0, said
        assert answer["changed"] == ["pipeline", "source"]
        stream.changes(500)
        wait_until(daemon, lambda: rows_of(tmp_path, "sums") == stream.rows["sums"], "goes on")
        config_of(tmp_path, kafka_broker)
        daemon.process.send_signal(signal.SIGHUP)
        wait_until(
            daemon,
            lambda: daemon.log_path.read_text().count("settings changed") == 2,
            "the signal is heard",
        )
        stream.changes(500)
        wait_until(daemon, lambda: rows_of(tmp_path, "sums") == stream.rows["sums"], "goes on")
        assert daemon.terminate() == 0, daemon.log_tail()
    stream.assert_tables_equal(tmp_path)


@pytest.mark.full
def test_what_retention_took_is_said_and_the_others_go_on(kafka_broker, tmp_path, capsys):
    stream = MixedStream(kafka_broker, seed=7)
    config = config_of(tmp_path, kafka_broker)
    stream.changes(500)
    with DaemonProcess(config) as daemon:
        wait_until(daemon, lambda: rows_of(tmp_path, "sums") == stream.rows["sums"], "the start")
        code, _, said = command(capsys, "pause", "-c", config, "shop.orders")
        assert code == 0, said
        stream.changes(500)
        wait_until(daemon, lambda: rows_of(tmp_path, "sums") == stream.rows["sums"], "the others")
        stream.retention_takes_all()

        code, _, said = command(capsys, "resume", "-c", config, "shop.orders")
        assert code == 65, said
        assert "lakeward resnapshot" in said
        assert tables_of(capsys, config)["shop.orders"]["state"] == "parked"

        code, _, said = command(capsys, "resume", "-c", config, "shop.orders", "--skip-missed")
        assert code == 0, said
        stream.changes(500)
        wait_until(daemon, lambda: rows_of(tmp_path, "sums") == stream.rows["sums"], "goes on")
        assert tables_of(capsys, config)["shop.orders"]["state"] == "running"
        assert daemon.terminate() == 0, daemon.log_tail()
    assert rows_of(tmp_path, "items") == stream.rows["items"]


@pytest.mark.full
def test_topics_begin_again_while_a_table_is_parked_and_the_checkpoint_is_lost(
    kafka_broker, tmp_path, capsys
):
    stream = MixedStream(kafka_broker, seed=9)
    config = config_of(tmp_path, kafka_broker, source={"fail.on.data.loss": False})
    stream.changes(1_000)
    with DaemonProcess(config) as daemon:
        wait_until(daemon, lambda: rows_of(tmp_path, "sums") == stream.rows["sums"], "the start")
        code, _, said = command(capsys, "pause", "-c", config, "shop.orders")
        assert code == 0, said
        stream.recreate_topics()
        stream.changes(300)
        wait_until(daemon, lambda: rows_of(tmp_path, "sums") == stream.rows["sums"], "the others")
        code, answer, said = command(capsys, "resume", "-c", config, "shop.orders")
        assert code == 0, said
        again = sum(b - a for parts in answer["again"].values() for a, b in parts.values())
        assert again == 300
        wait_until(daemon, lambda: rows_of(tmp_path, "orders") == stream.rows["orders"], "the rest")
        assert daemon.terminate() == 0, daemon.log_tail()
    shutil.rmtree(tmp_path / "checkpoint")
    stream.changes(100)
    with DaemonProcess(config) as daemon:
        wait_until(daemon, lambda: rows_of(tmp_path, "sums") == stream.rows["sums"], "new records")
        assert daemon.terminate() == 0, daemon.log_tail()
    stream.assert_tables_equal(tmp_path)


@pytest.mark.full
def test_requests_wait_for_the_next_start_and_files_are_read_again(spark, tmp_path, capsys):
    """Without a daemon, and with a source whose offsets are files."""
    rng = random.Random(8)
    wanted = {table: {} for table in TABLES}
    config = files_config(tmp_path, tables=[{"match": "shop.sums", "table.properties": SUMS}])

    def write(number):
        folder = tmp_path / "events" / "mixed"
        folder.mkdir(parents=True, exist_ok=True)
        lines = []
        for _ in range(200):
            table, key, n = rng.choice(TABLES), rng.randrange(50), rng.randrange(100)
            rows = wanted[table]
            rows[key] = n + (rows.get(key, 0) if table == "sums" else 0)
            source = {"db": "shop", "table": table}
            value = {"before": None, "after": {"id": key, "n": n}, "op": "c", "source": source}
            lines.append(json.dumps({"key": {"id": key}, "value": value}))
        (folder / f"{number:04}.jsonl").write_text("\n".join(lines) + "\n")

    write(0)
    code, answer, _ = command(
        capsys, "pause", "-c", config, "shop.orders", "--unknown", "--no-wait"
    )
    assert (code, answer) == (0, {"state": "waiting"})
    drain(config, spark)
    write(1)
    drain(config, spark)
    assert rows_of(tmp_path, "orders") == {}
    assert rows_of(tmp_path, "sums") == wanted["sums"]

    command(capsys, "resume", "-c", config, "shop.orders", "--no-wait")
    write(2)
    drain(config, spark)
    assert {table: rows_of(tmp_path, table) for table in TABLES} == wanted
    write(3)
    drain(config, spark)
    assert {table: rows_of(tmp_path, table) for table in TABLES} == wanted
