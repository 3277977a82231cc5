# SPDX-License-Identifier: Apache-2.0
"""Kafka into tables that the pipeline makes in a shared catalog; others see and read them there."""

import contextlib
import json
import pathlib
import subprocess
import time

import pyspark
import pytest
import yaml
from confluent_kafka import Producer
from confluent_kafka.admin import AdminClient

from storage.catalog.catalog import Catalog, FileSystemCatalog
from tests.catalog_service import TOKEN, catalog_service
from tests.e2e.availability import had
from tests.e2e.daemon_process import drain, kafka_config
from tests.e2e.hive_metastore import hive_metastore
from tests.e2e.shop_stream import recreate_topics
from tests.interop import artifacts
from tests.interop.java_peer import JavaPeer
from tests.interop.peers import missing, peers_python
from tests.interop.test_hive_catalog import CLIENT

pytestmark = [pytest.mark.kafka, pytest.mark.spark, pytest.mark.interop]

PYPAIMON = """
import json
import sys
from pypaimon import CatalogFactory
catalog = CatalogFactory.create(dict(pair.split("=", 1) for pair in sys.argv[1:]))
def rows(name):
    builder = catalog.get_table(name).new_read_builder()
    return builder.new_read().to_arrow(builder.new_scan().plan().splits()).to_pylist()
print(json.dumps({name: rows(f"shop.{name}") for name in catalog.list_tables("shop")}))
"""


def event(table, op, row):
    source = {"name": "shop", "db": "shop", "table": table, "ts_ms": 1}
    before, after = (row, None) if op == "d" else (None, row)
    return {"before": before, "after": after, "source": source, "op": op}


def produce(broker, prefix, *events):
    known = AdminClient({"bootstrap.servers": broker}).list_topics().topics
    topics = {f"{prefix}.shop.{each['source']['table']}" for each in events}
    recreate_topics(broker, sorted(topics - known.keys()), 1)
    producer = Producer({"bootstrap.servers": broker})
    for each in events:
        row = each["after"] or each["before"]
        topic = f"{prefix}.shop.{each['source']['table']}"
        key = json.dumps({"id": row["id"]})
        producer.produce(topic, json.dumps(each), key, on_delivery=delivered)
    assert producer.flush(30) == 0


def delivered(error, _):
    assert error is None, error


def pipeline(directory, broker, prefix, catalog):
    """A configuration whose sink makes its tables in a catalog."""
    path = kafka_config(directory, broker, rf"{prefix}\.shop\..*", name=f"p{prefix}")
    raw = yaml.safe_load(path.read_text())
    raw["sink"]["catalog"] = catalog
    path.write_text(yaml.safe_dump(raw))
    return path


def read_by_pypaimon(options):
    done = subprocess.run(
        [peers_python(), "-c", PYPAIMON, *(f"{key}={value}" for key, value in options.items())],
        capture_output=True,
        text=True,
        timeout=120,
    )
    assert done.returncode == 0, done.stderr[-3000:]
    return json.loads(done.stdout.splitlines()[-1])


@contextlib.contextmanager
def jdbc(directory):
    options = {"metastore": "jdbc", "uri": f"jdbc:sqlite:{directory}/names.db"}
    whole = {**options, "warehouse": str(directory / "warehouse")}
    yield options, whole, lambda: read_by_pypaimon(whole)


@contextlib.contextmanager
def rest(directory):
    served = directory / "served"
    with catalog_service(str(served)) as server:
        options = {"metastore": "rest", "uri": server.uri, "token": TOKEN, "warehouse": "lake"}
        whole = {**options, "token.provider": "bear"}
        yield options, whole, lambda: read_by_pypaimon(whole)


@contextlib.contextmanager
def hive(directory):
    try:
        artifacts.jar(artifacts.CORE, fetch=False)
    except artifacts.ArtifactUnavailableError as error:
        missing(str(error))
    folder = pathlib.Path(pyspark.__file__).parent / "jars"
    jars = [path for name in CLIENT for path in folder.glob(f"{name}.jar")]
    warehouse = directory / "warehouse"
    with had(hive_metastore(), "Hive metastore") as server:
        options = {"metastore": "hive", "uri": server.uri}
        with JavaPeer.running(warehouse, catalog=options, jars=jars) as java:

            def read():
                names = java.names("shop")
                return {name: java.read(f"shop.{name}").to_pylist() for name in names}

            yield options, {**options, "warehouse": str(warehouse)}, read


@pytest.mark.parametrize(
    "kind",
    [
        pytest.param(jdbc, id="jdbc"),
        pytest.param(rest, id="rest", marks=pytest.mark.full),
        pytest.param(hive, id="hive", marks=pytest.mark.full),
    ],
)
def test_tables_of_a_pipeline_are_those_of_its_catalog(kafka_broker, spark, tmp_path, kind):
    prefix = f"{kind.__name__}{time.time_ns()}"
    produce(
        kafka_broker,
        prefix,
        event("orders", "c", {"id": 1, "v": "a"}),
        event("orders", "c", {"id": 2, "v": "b"}),
        event("people", "c", {"id": 9, "name": "x"}),
        event("orders", "u", {"id": 1, "v": "A"}),
    )
    with kind(tmp_path) as (options, whole, read_by_peer):
        config = pipeline(tmp_path, kafka_broker, prefix, options)
        drain(config, spark)
        assert by_id(read_by_peer()) == {
            "orders": [{"id": 1, "v": "A"}, {"id": 2, "v": "b"}],
            "people": [{"id": 9, "name": "x"}],
        }

        # a column more and a table more, through the same catalog
        produce(
            kafka_broker,
            prefix,
            event("orders", "d", {"id": 2, "v": "b"}),
            event("orders", "c", {"id": 3, "v": "c", "n": 7}),
            event("items", "c", {"id": 5, "w": 1.5}),
        )
        drain(config, spark)
        assert by_id(read_by_peer()) == {
            "items": [{"id": 5, "w": 1.5}],
            "orders": [{"id": 1, "v": "A", "n": None}, {"id": 3, "v": "c", "n": 7}],
            "people": [{"id": 9, "name": "x"}],
        }
        catalog = Catalog.open(whole["warehouse"], whole)
        assert catalog.list_tables("shop") == ["items", "orders", "people"]
        if kind is rest:  # none of the tables lie in the pipeline's own warehouse
            assert FileSystemCatalog(str(tmp_path / "warehouse")).list_databases() == []


def by_id(tables):
    return {name: sorted(rows, key=lambda row: row["id"]) for name, rows in tables.items()}
