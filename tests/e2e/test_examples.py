# SPDX-License-Identifier: Apache-2.0
"""Every pipeline of docs/examples through a daemon, with events in a real broker, into tables.

The cases are those of the unit tests: what a file promises is written once. Addresses, the
warehouse and the files of secrets are those of here; all else is as it stands in the file.
"""

import json
import urllib.request

import pytest
from confluent_kafka import Consumer, Producer, TopicPartition
from confluent_kafka.admin import AdminClient

from ingest.config.source_settings import KafkaSourceSettings
from ingest.daemon.configuration import load_settings
from ingest.daemon.daemon import Daemon
from storage.catalog.catalog import FileSystemCatalog
from tests.e2e.daemon_process import eventually
from tests.e2e.real_parts import registry
from tests.e2e.s3_server import ACCESS_KEY, SECRET_KEY
from tests.e2e.shop_stream import recreate_topics
from tests.unit import test_examples as cases
from tests.unit.ingest.avro_events import Writer, envelope, event, key_schema

__all__ = ["registry"]

pytestmark = [pytest.mark.full, pytest.mark.kafka, pytest.mark.spark]

LETTERS = "lakeward-dead-letters"
PROMISED = {
    name.removeprefix("test_").replace("_", "-") + ".yaml": case
    for name, case in vars(cases).items()
    if f"{name.removeprefix('test_').replace('_', '-')}.yaml" in cases.PIPELINES
}
"""Cases of the unit tests by the file that they are about."""


class Example:
    """The pipeline of a file: records go to topics, and a daemon processes the backlog.

    Args:
        config: the file.
        overrides: settings of here, by their names.
        bootstrap: the broker.
        spark: the session.
    """

    def __init__(self, config, overrides, bootstrap, spark):
        self.settings = load_settings(config, overrides)
        self.stream = self  # as in the unit tests
        self._producer = Producer({"bootstrap.servers": bootstrap, "log_level": 0})
        self._spark = spark

    def take(self, *records):
        """Process records (topic, key, value); the files source has its own."""
        if isinstance(self.settings.source, KafkaSourceSettings):
            for topic, key, value in records:
                self._producer.produce(topic, cases.encoded(value), cases.encoded(key))
            assert self._producer.flush(60) == 0
        assert Daemon(self.settings, once=True, session=self._spark).run() == 0
        return self

    def table(self, name):
        return self._catalog.table(name)

    def rows(self, name, *columns):
        """Rows of a table as tuples of columns, by the first one."""
        found = self.table(name).to_arrow().to_pylist()
        found.sort(key=lambda row: next(iter(row.values())))
        return [tuple(row[c] for c in columns) for row in found]

    def tables(self):
        """Names of the tables that hold rows of sources."""
        databases = set(self._catalog.list_databases()) - {"lakeward"}
        return sorted(f"{d}.{t}" for d in databases for t in self._catalog.list_tables(d))

    @property
    def _catalog(self):
        sink = self.settings.sink
        return FileSystemCatalog(sink.warehouse, options=dict(sink.options))


@pytest.fixture
def example(kafka_broker, spark, tmp_path, monkeypatch):
    """Makes the pipeline of a file; the broker's other topics are removed."""
    names = ["customers", "orders", "clicks", "payments", "stock_moves"]
    topics = [f"shop.{db}.{n}" for db in ("shop", "inventory", "hr") for n in names]
    topics += [f"shop.orders_0{n}.orders" for n in (0, 1)] + ["shop.hr.secrets"]
    topics += ["erp.erp.orders", "erp.erp.countries", "prices", "canal-shop", LETTERS]
    remove(kafka_broker)
    recreate_topics(kafka_broker, topics, 1)
    monkeypatch.chdir(cases.EXAMPLES)

    def made(name, **sections):
        path = tmp_path / name
        (tmp_path / "s3").write_text(SECRET_KEY, encoding="utf-8")
        text = (cases.EXAMPLES / name).read_text(encoding="utf-8")
        path.write_text(text.replace("/secrets/", f"{tmp_path}/"), encoding="utf-8")
        overrides = {
            "sink.warehouse": str(tmp_path / "lake"),
            "pipeline.checkpoint": str(tmp_path / "checkpoint"),
            "metrics.enabled": False,
            **sections,
        }
        if "type: files" in text:
            overrides["source.path"] = str(cases.EXAMPLES / "events")
        else:
            overrides["source.bootstrap.servers"] = kafka_broker
        return Example(path, overrides, kafka_broker, spark)

    yield made
    remove(kafka_broker)


def remove(bootstrap):
    """Remove all topics: the patterns of examples would read those of other tests."""
    admin = AdminClient({"bootstrap.servers": bootstrap})

    def removed():
        names = [n for n in admin.list_topics(timeout=20).topics if not n.startswith("__")]
        for deleted in admin.delete_topics(names).values() if names else ():
            deleted.exception()  # some may be on their way out already
        return not names

    eventually(removed, timeout=60, what="a broker without topics")


@pytest.mark.parametrize("name", sorted(PROMISED.keys() - {"many-tables.yaml", "quarantine.yaml"}))
def test_a_pipeline_has_the_rows_that_it_promises(name, example):
    PROMISED[name](example)


def test_kafka(example):
    found = example("kafka.yaml").take(
        cases.event("customers", "c", {"id": 1}), cases.event("customers", "d", {"id": 1})
    )
    found.take(cases.event("customers", "c", {"id": 2}))
    assert found.rows("shop.customers", "id") == [(2,)]


def test_many_tables(example):
    def event(table, number):
        topic, key, value = cases.event(table, "c", {"id": number}, db="erp")
        return topic.replace("shop.", "erp."), key, value

    found = example("many-tables.yaml").take(event("orders", 1), event("countries", 2))
    assert found.tables() == ["erp.countries", "erp.orders"]
    assert found.rows("erp.countries", "id") == [(2,)]


def test_s3(example, s3_server, monkeypatch):
    monkeypatch.setenv("S3_ACCESS_KEY", ACCESS_KEY)
    here = {
        "sink.warehouse": f"{s3_server.new_place()}/warehouse",
        "sink.options.s3.endpoint": s3_server.endpoint,
    }
    found = example("s3.yaml", **here).take(cases.event("customers", "c", {"id": 1}))
    assert found.rows("shop.customers", "id") == [(1,)]


def test_debezium_avro(example, registry, tmp_path):
    def writer(subject, schema):
        answer = urllib.request.urlopen(
            urllib.request.Request(
                f"{registry.confluent_url}/subjects/{subject}/versions",
                json.dumps({"schema": json.dumps(schema)}).encode(),
                {"Content-Type": "application/vnd.schemaregistry.v1+json"},
            ),
            timeout=20,
        )
        with answer:
            return Writer(schema, json.load(answer)["id"])

    (tmp_path / "registry").write_text("user:password", encoding="utf-8")
    key = writer("customers-key", key_schema(id="long"))
    value = writer("customers-value", envelope({"id": "long", "name": "string"}))
    found = example(
        "debezium-avro.yaml", **{"source.schema.registry.url": registry.confluent_url}
    ).take(
        *(
            ("shop.shop.customers", key({"id": n}), value(event("c", None, {"id": n, "name": "x"})))
            for n in (1, 2)
        )
    )
    [name] = found.tables()
    assert found.rows(name, "id", "name") == [(1, "x"), (2, "x")]


def test_a_bad_record_is_in_the_dead_letter_topic(example, kafka_broker):
    cases.test_quarantine(example)
    consumer = Consumer({"bootstrap.servers": kafka_broker, "group.id": LETTERS})
    try:
        assert consumer.get_watermark_offsets(TopicPartition(LETTERS, 0), timeout=20) == (0, 1)
    finally:
        consumer.close()


def test_no_pipeline_is_left_out():
    here = {"kafka.yaml", "many-tables.yaml", "s3.yaml", "debezium-avro.yaml"}
    assert PROMISED.keys() | here == set(cases.PIPELINES)
