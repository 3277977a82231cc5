# SPDX-License-Identifier: Apache-2.0
"""Chaos in a stream on real Kafka and real Spark: right rows, every bad record kept with its
reason and copied, and brought in after a fix while the daemon runs on.

One of the tables adds up, so a record that is applied twice or not at all shows in its sums.
"""

import json
import random
import uuid

import pytest
import yaml
from confluent_kafka import Consumer, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic

from ingest.cli import main as cli
from storage.catalog.catalog import FileSystemCatalog
from storage.format.metadata.schema_changes import UpdateType
from storage.format.types.types import AtomicType, TypeRoot
from tests.e2e.daemon_process import DaemonProcess, eventually, kafka_config
from tests.e2e.shop_stream import assert_no_file_missing

pytestmark = [pytest.mark.kafka, pytest.mark.spark]

TABLES = ("orders", "sums")
SUMS = {"merge-engine": "aggregation", "fields.n.aggregate-function": "sum"}
LARGE = 2_000_000
GARBAGE = (b"\xff\xfe\x00\x01", b"not json", b"[1,2]", b'{"hello":"world"}', b"{" + b"x" * LARGE)


class ChaosStream:
    """Events of two tables with noise; knows the rows without and with those that are bad."""

    def __init__(self, bootstrap, seed, chaos):
        self.rng = random.Random(seed)
        self.chaos = chaos
        self.now = {table: {} for table in TABLES}
        self.mended = {table: {} for table in TABLES}
        self.bad = {}
        self.fixed = self.calm = False
        self._bootstrap = bootstrap
        self._producer = Producer(
            {
                "bootstrap.servers": bootstrap,
                "message.max.bytes": 4_000_000,
                "enable.idempotence": True,
            }
        )
        tag = f"chaos-{uuid.uuid4().hex[:8]}"
        self.topics = (f"{tag}.one", f"{tag}.two")
        self.dead = f"dead-{tag}"
        topics = [NewTopic(n, 2, 1, config={"max.message.bytes": "4000000"}) for n in self.topics]
        admin = AdminClient({"bootstrap.servers": bootstrap})
        for future in admin.create_topics([*topics, NewTopic(self.dead, 1, 1)]).values():
            future.result(30)

    def changes(self, count):
        for _ in range(count):
            if not self.calm and self.rng.random() < self.chaos:
                self.noise()
            self.change()
        assert self._producer.flush(60) == 0

    def change(self):
        table = self.rng.choice(TABLES)
        topic = self.rng.randrange(2)
        key = self.rng.randrange(150) * 2 + topic
        wrong = not (self.fixed or self.calm) and self.rng.random() < self.chaos
        n = self.rng.randrange(1, 1000) + (0.5 if wrong else 0)
        gone = table == "orders" and key in self.now[table] and self.rng.random() < 0.2
        for rows in [self.mended[table]] + ([] if wrong and not gone else [self.now[table]]):
            if gone:
                rows.pop(key, None)
            else:
                rows[key] = n + (rows.get(key, 0) if table == "sums" else 0)
        row = None if gone else {"id": key, "n": n}
        source = {"db": "shop", "table": table, "ts_ms": 1}
        value = {"before": {"id": key, "n": 0} if gone else None, "after": row}
        value |= {"op": "d" if gone else "c", "source": source}
        data = json.dumps(value).encode()
        self._producer.produce(
            self.topics[topic],
            key=json.dumps({"id": key}),
            value=data,
            partition=key // 2 % 2,
            **({"on_delivery": self._remember(data)} if wrong and not gone else {}),
        )
        self._producer.poll(0)

    def _remember(self, data):
        def told(error, message):
            assert error is None, error
            self.bad[message.topic(), message.partition(), message.offset()] = data

        return told

    def noise(self):
        """A record that is no row: some are to be left alone, some are bad."""
        source = {"db": "shop", "table": "orders", "ts_ms": 1}
        harmless = (
            {"ts_ms": 1_700_000_000_000},
            {"status": "BEGIN", "id": "7:1", "event_count": None, "data_collections": None}
            | {"ts_ms": 1},
            {"op": "t", "before": None, "after": None, "source": source, "ts_ms": 1},
            {"source": source, "databaseName": "shop", "schemaName": None, "ddl": "ALTER …"}
            | {"tableChanges": [], "ts_ms": 1},
            None,
        )
        topic, partition = self.rng.randrange(2), self.rng.randrange(2)
        if self.rng.random() < 0.5:
            value = self.rng.choice(harmless)
            data = None if value is None else json.dumps(value).encode()
            self._producer.produce(self.topics[topic], value=data, key=b"{}", partition=partition)
            return
        data = self.rng.choice(GARBAGE)
        self._producer.produce(
            self.topics[topic], value=data, partition=partition, on_delivery=self._remember(data)
        )

    def copies(self):
        """Places of the copies in the topic of bad records, and how many of them are cut."""
        consumer = Consumer({"bootstrap.servers": self._bootstrap, "group.id": self.dead})
        partition = TopicPartition(self.dead, 0, 0)
        consumer.assign([partition])
        places, cut = set(), 0
        _, end = consumer.get_watermark_offsets(partition, timeout=30)
        for message in consumer.consume(end, timeout=30):
            assert not message.error(), message.error()
            headers = dict(message.headers())
            assert headers["lakeward.error.class"]
            place = [headers[f"lakeward.{n}"].decode() for n in ("topic", "partition", "offset")]
            places.add((place[0], int(place[1]), int(place[2])))
            cut += "lakeward.value.truncated" in headers
        consumer.close()
        return places, cut


def table_of(directory, name):
    return FileSystemCatalog(str(directory / "warehouse")).table(name)


def rows_of(directory, table):
    catalog = FileSystemCatalog(str(directory / "warehouse"))
    if not catalog.exists(f"shop.{table}"):
        return {}
    rows = catalog.table(f"shop.{table}").to_arrow().to_pylist()
    return {row["id"]: row["n"] for row in rows}


def quarantined(directory):
    rows = table_of(directory, "lakeward._quarantine").to_arrow().to_pylist()
    return {(row["topic"], row["partition"], row["offset"]): row for row in rows}


def command(capsys, *arguments):
    capsys.readouterr()
    code = cli.main([*map(str, arguments), "--json"])
    printed = capsys.readouterr()
    return code, [json.loads(line) for line in printed.out.splitlines()], printed.err


def config_of(directory, broker, stream):
    pattern = rf"{stream.topics[0].partition('.')[0]}\..*"
    path = kafka_config(directory, broker, pattern, max_records=2_000, interval="200ms")
    raw = yaml.safe_load(path.read_text())
    raw["tables"] = [{"match": "shop.sums", "table.properties": SUMS}]
    raw["sink"]["table.properties"] = {"snapshot.num-retained.min": "1000"}
    raw["bad.records"] = {"topic": stream.dead, "max.ratio": 0.5}
    path.write_text(yaml.safe_dump(raw))
    return path


@pytest.mark.parametrize(
    ("count", "chaos", "kills"),
    [(2_000, 0.02, 0), pytest.param(60_000, 0.01, 3, marks=pytest.mark.full)],
)
def test_chaos_is_kept_and_replayed_after_a_fix(
    kafka_broker, tmp_path, capsys, count, chaos, kills
):
    stream = ChaosStream(kafka_broker, seed=11, chaos=chaos)
    config = config_of(tmp_path, kafka_broker, stream)
    daemon = DaemonProcess(config)

    def level(rows):
        assert daemon.alive, daemon.log_tail()
        return all(rows_of(tmp_path, table) == rows[table] for table in TABLES)

    try:
        stream.calm = True  # the tables are made from good records
        stream.changes(20)
        eventually(lambda: level(stream.now), timeout=120, interval=0.5, what="the tables")
        stream.calm = False
        for _ in range(kills):
            stream.changes(count // (kills + 1))
            daemon.kill_all()
            daemon = DaemonProcess(config)
        stream.changes(count // (kills + 1))
        eventually(lambda: level(stream.now), timeout=240, interval=0.5, what="right rows")
        eventually(
            lambda: len(quarantined(tmp_path)) >= len(stream.bad), timeout=60, what="bad records"
        )
        kept = quarantined(tmp_path)
        assert {place: row["value"] for place, row in kept.items()} == stream.bad
        assert all(row["error"] and row["error_class"] for row in kept.values())
        wrong = [row for row in kept.values() if row["error_class"] == "type"]
        assert {row["target"] for row in wrong} == {"shop.orders", "shop.sums"}
        _, groups, _ = command(capsys, "quarantine", "ls", "-c", config)
        assert sum(group["records"] for group in groups) == len(kept)

        process = daemon.process.pid
        for table in TABLES:
            opened = table_of(tmp_path, f"shop.{table}")
            opened.alter([UpdateType("n", AtomicType(TypeRoot.DOUBLE))])
        stream.fixed = True
        stream.changes(count // 10)
        words = ("-c", config, "--class", "type", "--timeout", "240")
        code, answer, said = command(capsys, "quarantine", "replay", *words, "--dry-run")
        assert (code, answer[0]["replayed"]) == (0, len(wrong)), said
        stream.changes(count // 10)
        code, answer, said = command(capsys, "quarantine", "replay", *words)
        assert (code, answer[0]["replayed"], answer[0]["bad"]) == (0, len(wrong), {}), said
        stream.changes(count // 10)
        eventually(lambda: level(stream.mended), timeout=240, interval=0.5, what="mended rows")
        assert (daemon.process.pid, daemon.alive) == (process, True)

        states = {row["error_class"]: row["state"] for row in quarantined(tmp_path).values()}
        assert states.pop("type") == "replayed"
        assert set(states.values()) == {"new"}
        code, answer, said = command(
            capsys, "quarantine", "drop", *words[:2], "--state", "replayed"
        )
        assert (code, answer[0]["dropped"]) == (0, len(wrong)), said
        assert daemon.terminate() == 0, daemon.log_tail()
    finally:
        if daemon.alive:
            daemon.kill_all()
    places, cut = stream.copies()
    assert places >= set(stream.bad)
    assert cut >= sum(len(value) > LARGE for value in stream.bad.values())
    for table in TABLES:
        opened = table_of(tmp_path, f"shop.{table}")
        assert_no_file_missing(opened)
