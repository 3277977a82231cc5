# SPDX-License-Identifier: Apache-2.0
"""Real databases through Debezium in Avro, with a real schema registry, into tables."""

import urllib.parse
from pathlib import Path

import pytest
import yaml
from confluent_kafka import Producer

from ingest.daemon.configuration import load_settings, online
from ingest.daemon.daemon import Daemon
from ingest.errors import ExitCode
from storage.catalog.catalog import FileSystemCatalog
from tests.e2e import mariadb_tables, postgres_tables
from tests.e2e.connect_worker import mariadb_config, postgres_config
from tests.e2e.daemon_process import drain, kafka_config
from tests.e2e.lossy_proxy import LossyProxy, Rule
from tests.e2e.oracle import assert_equal
from tests.e2e.real_parts import connect_worker, mariadb_server, postgres_server, registry
from tests.e2e.real_tables import RandomChanges
from tests.e2e.test_real_databases import drop, open_lake, wait_until_quiet

__all__ = ["connect_worker", "mariadb_server", "postgres_server", "registry"]

pytestmark = [pytest.mark.full, pytest.mark.kafka, pytest.mark.spark]

ROWS = 5
TRANSACTIONS = 40


def avro_config(directory: Path, bootstrap: str, pattern: str, url: str, name: str) -> Path:
    path = kafka_config(directory, bootstrap, pattern, name=name)
    raw = yaml.safe_load(path.read_text())
    raw["source"] |= {
        "format": "debezium-avro",
        "schema.registry": {"url": url, "timeout": "5s", "retry.for": "1s"},
    }
    path.write_text(yaml.safe_dump(raw))
    return path


@pytest.mark.parametrize("database", ["postgres", "mariadb"])
def test_tables_equal_the_database(
    database, spark, kafka_broker, connect_worker, registry, request, tmp_path
):
    """A snapshot, then random transactions and DDL; then the registry is away for a while."""
    server = request.getfixturevalue(f"{database}_server")
    described = {"postgres": postgres_tables, "mariadb": mariadb_tables}[database]
    tables = described.TABLES
    prefix = f"avro-{database}"
    changes = RandomChanges(tables, seed=17)
    with server.connect() as connection, connection.cursor() as cursor:
        for statement in described.PREPARE:
            cursor.execute(statement)
        for table in tables:
            for statement in table.create():
                cursor.execute(statement)
        changes.fill(cursor, ROWS)
        if database == "postgres":
            source = postgres_config(server, prefix, [f"public.{t.name}" for t in tables])
        else:
            listed = [f"{server.database}.{t.name}" for t in tables]
            source = mariadb_config(server, prefix, listed, kafka_broker)
        connect_worker.add(prefix, source, converter="avro", partitions=3)
        wait_until_quiet(kafka_broker, prefix, connect_worker, ROWS * len(tables))
        pattern = rf"{prefix}\..*|__debezium-heartbeat\.{prefix}"
        address = urllib.parse.urlsplit(registry.confluent_url)
        with LossyProxy(f"http://{address.netloc}") as proxy:
            url = proxy.endpoint + address.path
            path = avro_config(tmp_path, kafka_broker, pattern, url, database)
            check_registry(path)
            drain(path, spark)
            assert_equal(connection, changes.tables, open_lake(tmp_path / "warehouse"))
            for number in range(3):
                changes.run(cursor, TRANSACTIONS)
                changes.alter(cursor, *described.EVOLUTION[number])
            changes.run(cursor, TRANSACTIONS)
            wait_until_quiet(kafka_broker, prefix, connect_worker)
            proxy.rules.append(Rule("", "", "503"))
            assert Daemon(load_settings(path), once=True, session=spark).run() == (
                ExitCode.UNAVAILABLE
            )
            proxy.rules.clear()
            drain(path, spark)
            assert_equal(connection, changes.tables, open_lake(tmp_path / "warehouse"))
            assert quarantined(tmp_path) == []
            connect_worker.remove(prefix)
            space = "public" if database == "postgres" else server.database
            send_garbage(kafka_broker, f"{prefix}.{space}.{tables[0].name}")
            drain(path, spark)
            assert_equal(connection, changes.tables, open_lake(tmp_path / "warehouse"))
    drop(server, tables)
    assert quarantined(tmp_path) == [(b"\0\0\x0f\x42\x3f-", "schema_id"), (b"{}", "avro")]


def test_ids_in_headers_as_apicurio_writes_them(
    spark, kafka_broker, connect_worker, registry, postgres_server, tmp_path
):
    """Content ids are followed; global ids, which nobody can ask for, are refused with advice."""
    table, changes = postgres_tables.KEYED, RandomChanges((postgres_tables.KEYED,), seed=3)
    with postgres_server.connect() as connection, connection.cursor() as cursor:
        for statement in table.create():
            cursor.execute(statement)
        changes.fill(cursor, 20)
        prefixes = {"contentId": "headed", "globalId": "global"}
        for used, prefix in prefixes.items():
            source = postgres_config(postgres_server, prefix, [f"public.{table.name}"])
            for part in ("key", "value"):
                settings = {"headers.enabled": "true", "as-confluent": "false", "use-id": used}
                source |= {
                    f"{part}.converter.apicurio.registry.{k}": v for k, v in settings.items()
                }
            connect_worker.add(prefix, source, converter="avro", partitions=1)
            wait_until_quiet(kafka_broker, prefix, connect_worker, 20)
        changes.run(cursor, 30)
        for prefix in prefixes.values():
            wait_until_quiet(kafka_broker, prefix, connect_worker, 40)
            connect_worker.remove(prefix)
        url = registry.confluent_url
        drain(avro_config(tmp_path, kafka_broker, r"headed\..*", url, "headed"), spark)
        assert_equal(connection, changes.tables, open_lake(tmp_path / "warehouse"))
        assert quarantined(tmp_path) == []
    drop(postgres_server, (table,))
    refused = tmp_path / "refused"
    refused.mkdir()
    drain(avro_config(refused, kafka_broker, r"global\..*", url, "global"), spark)
    found = FileSystemCatalog(str(refused / "warehouse")).table("lakeward._quarantine").to_arrow()
    assert found.num_rows >= 40
    assert set(found["error_class"].to_pylist()) == {"avro"}
    assert all("use-id=contentId" in text for text in found["error"].to_pylist())


def check_registry(path: Path) -> None:
    """What `validate --check` says of the registry."""
    found = {finding.name: finding for finding in online(load_settings(path))}
    assert found["schema registry"].ok, found["schema registry"].finding
    wrong = {"source.schema.registry.url": load_settings(path).avro.registry.urls[0] + "/nothing"}
    found = {finding.name: finding for finding in online(load_settings(path, wrong))}
    assert not found["schema registry"].ok
    assert found["schema registry"].exit_code == ExitCode.CONFIG


def send_garbage(bootstrap: str, topic: str) -> None:
    producer = Producer({"bootstrap.servers": bootstrap, "log_level": 0})
    producer.produce(topic, b"{}", b"1", partition=0)
    producer.produce(topic, b"\0\0\x0f\x42\x3f-", b"2", partition=0)
    producer.flush()


def quarantined(directory: Path) -> list[tuple[bytes, str]]:
    table = FileSystemCatalog(str(directory / "warehouse")).table("lakeward._quarantine")
    return sorted((row["value"], row["error_class"]) for row in table.to_arrow().to_pylist())
