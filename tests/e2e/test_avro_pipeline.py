# SPDX-License-Identifier: Apache-2.0
"""Events in Avro from Kafka into tables, on Spark, with a stub of a schema registry.

The stub speaks the documented reading API and is no registry; the real one is in
`test_real_databases`.
"""

import contextlib
import threading
import time

import pytest
import yaml
from confluent_kafka import Producer
from confluent_kafka.admin import AdminClient, NewTopic

from ingest.daemon.configuration import load_settings
from ingest.daemon.daemon import Daemon
from ingest.errors import ExitCode
from storage.catalog.catalog import FileSystemCatalog
from tests.e2e.daemon_process import drain, eventually, kafka_config, newest_snapshot
from tests.unit.ingest.avro_events import Writer, envelope, event, key_schema, optional
from tests.unit.ingest.stub_registry import stub_registry

pytestmark = [pytest.mark.spark, pytest.mark.kafka]

KEY = Writer(key_schema(id="long"), 1)
FIRST = Writer(envelope({"id": "long", "v": "string"}), 2)
WIDER = Writer(envelope({"id": "long", "v": "string", "w": [{"type": "long"}, "null"]}), 3)
RENAMED = Writer(envelope({"id": "long", "renamed": optional("string"), "w": optional("long")}), 4)
SCHEMAS = {1: KEY, 2: FIRST, 3: WIDER, 4: RENAMED}


@pytest.fixture
def stub():
    with stub_registry() as running:
        for number, writer in SCHEMAS.items():
            running.add(number, writer.schema)
        yield running


class Topic:
    """A topic of two partitions; records of a key stay in one."""

    def __init__(self, bootstrap, name):
        self.name = name
        admin = AdminClient({"bootstrap.servers": bootstrap})
        admin.create_topics([NewTopic(name, 2, 1)])[name].result()
        client = {"bootstrap.servers": bootstrap, "enable.idempotence": True, "log_level": 0}
        self._producer = Producer(client)

    def send(self, number, value, key=None, headers=()):
        key = KEY({"id": number}) if key is None else key
        self._producer.produce(self.name, value, key, number % 2, headers=list(headers))

    def flush(self):
        self._producer.flush()


@pytest.fixture
def topic(kafka_broker):
    return Topic(kafka_broker, f"avro.{time.time_ns()}")


@pytest.fixture
def config(kafka_broker, topic, stub, tmp_path):
    def write(**source):
        path = kafka_config(tmp_path, kafka_broker, topic.name, name="avro")
        raw = yaml.safe_load(path.read_text())
        registry = {"url": stub.url, "retry.for": "100ms"}
        raw["source"] |= {"format": "debezium-avro", "schema.registry": registry, **source}
        path.write_text(yaml.safe_dump(raw))
        return path

    return write


def rows(directory, name):
    table = FileSystemCatalog(str(directory / "warehouse")).table(name)
    return sorted(table.to_arrow().to_pylist(), key=lambda row: str(row))


def created(writer, number, **values):
    return writer(event("c", None, {"id": number, **values}))


def test_schemas_change_in_the_middle_of_a_topic(spark, topic, config, stub, tmp_path):
    for number in range(40):
        topic.send(number, created(FIRST, number, v=f"v{number}"))
    for number in range(40, 80):
        topic.send(number, created(WIDER, number, v="x", w=number))
    for number in range(10):
        topic.send(number, FIRST(event("d", {"id": number, "v": ""})))
        topic.send(number, None)
    garbage = [b"{}", b"\0\0\0\0\x63junk", b"\0\0\0\0\x07\0{}", created(FIRST, 50, v="x")[:-2]]
    stub.add(7, {"type": "object"}, schemaType="JSON")
    for number, value in enumerate(garbage):
        topic.send(50 + number, value)
    topic.flush()
    path = config()

    drain(path, spark)

    expected = [{"id": n, "v": f"v{n}", "w": None} for n in range(10, 40)]
    expected += [{"id": n, "v": "x", "w": n} for n in range(40, 80)]
    assert rows(tmp_path, "shop.orders") == sorted(expected, key=str)
    found = {row["value"]: row["error_class"] for row in rows(tmp_path, "lakeward._quarantine")}
    classes = ["avro", "schema_id", "avro", "avro"]
    assert found == dict(zip(garbage, classes, strict=True))

    topic.send(10, RENAMED(event("u", None, {"id": 10, "renamed": "r", "w": 3})))
    header = ("__value_schema_id", b"\0" + (4).to_bytes(4, "big"))
    bare = RENAMED.datum(event("u", None, {"id": 11, "renamed": None, "w": None}))
    topic.send(11, bare, headers=[header])
    topic.flush()
    snapshot = newest_snapshot(tmp_path / "warehouse", "shop.orders")
    drain(path, spark)
    drain(path, spark)

    changed = {
        10: {"id": 10, "v": None, "w": 3, "renamed": "r"},
        11: {"id": 11, "v": None, "w": None, "renamed": None},
    }
    expected = [changed.get(row["id"], {**row, "renamed": None}) for row in expected]
    assert rows(tmp_path, "shop.orders") == sorted(expected, key=str)
    assert len(rows(tmp_path, "lakeward._quarantine")) == 4
    assert newest_snapshot(tmp_path / "warehouse", "shop.orders") == snapshot + 1


def test_an_upsert_stream(spark, topic, config, stub, tmp_path):
    fields = [{"name": "id", "type": "long"}, {"name": "name", "type": optional("string")}]
    user = Writer({"type": "record", "name": "User", "fields": fields}, 5)
    stub.add(5, user.schema)
    for number in range(20):
        topic.send(number, user({"id": number, "name": f"n{number}"}))
    topic.send(3, user({"id": 3, "name": None}))
    topic.send(4, None)
    topic.flush()

    drain(config(format="upsert-avro"), spark)

    database, name = topic.name.split(".")
    expected = [{"id": n, "name": None if n == 3 else f"n{n}"} for n in range(20) if n != 4]
    assert rows(tmp_path, f"{database}.{name}") == sorted(expected, key=str)
    assert rows(tmp_path, "lakeward._quarantine") == []


@contextlib.contextmanager
def running(path, spark):
    daemon = Daemon(load_settings(path), session=spark)
    codes = []
    thread = threading.Thread(target=lambda: codes.append(daemon.run()))
    thread.start()
    try:
        yield
    finally:
        daemon.request_stop()
        thread.join(120)
    assert codes == [0]


@pytest.mark.full
def test_a_registry_outage_delays_and_loses_nothing(spark, topic, config, stub, tmp_path, caplog):
    for number in range(10):
        topic.send(number, created(FIRST, number, v="a"))
    topic.flush()
    stub.away = True

    def restarts():
        return sum(getattr(one, "event", "") in {"outage", "restart"} for one in caplog.records)

    with running(config(), spark):
        eventually(restarts, timeout=120, what="the query's restart")
        assert "does not answer" in caplog.text
        stub.away = False
        eventually(
            lambda: newest_snapshot(tmp_path / "warehouse", "shop.orders"),
            timeout=120,
            what="a commit after the outage",
        )

    assert rows(tmp_path, "shop.orders") == [{"id": n, "v": "a"} for n in range(10)]
    assert rows(tmp_path, "lakeward._quarantine") == []


def test_refused_credentials_end_the_daemon(spark, topic, config, stub, tmp_path):
    topic.send(1, created(FIRST, 1, v="a"))
    topic.flush()
    stub.authorization = "Bearer right"
    registry = {"url": stub.url, "bearer.token": "wrong-word"}
    path = config(**{"schema.registry": registry})

    assert Daemon(load_settings(path), session=spark).run() == ExitCode.ACCESS

    registry["bearer.token"] = "right"
    drain(config(**{"schema.registry": registry}), spark)
    assert rows(tmp_path, "shop.orders") == [{"id": 1, "v": "a"}]
