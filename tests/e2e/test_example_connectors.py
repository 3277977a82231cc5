# SPDX-License-Identifier: Apache-2.0
"""The connectors of docs/examples/connectors work as they are, with the addresses of here."""

import json
import re
from pathlib import Path
from typing import Any

import pytest
import yaml
from confluent_kafka.admin import AdminClient, NewTopic

from storage.catalog.catalog import FileSystemCatalog
from tests.e2e.capture import TopicReader
from tests.e2e.daemon_process import DaemonProcess, eventually
from tests.e2e.real_parts import connect_worker, mariadb_server, postgres_server, registry

__all__ = ["connect_worker", "mariadb_server", "postgres_server", "registry"]

pytestmark = [pytest.mark.full, pytest.mark.kafka, pytest.mark.spark]

EXAMPLES = Path(__file__).resolve().parents[2] / "docs" / "examples"
PASSED_THROUGH = re.compile(
    r"(key|value)\.converter.*|topic\.creation\.default\..*|signal\.kafka\..*"
    r"|notification\.sink\..*|schema\.history\.internal\.kafka\..*"
)
"""Options of Kafka Connect, and of parts that have their own definitions."""

CREATE = (
    "CREATE TABLE customers (id int PRIMARY KEY, name varchar(40), credit decimal(10,2))",
    "CREATE TABLE orders (id int PRIMARY KEY, customer int, note text)",
    "CREATE TABLE debezium_signal (id varchar(42) PRIMARY KEY, type varchar(32) NOT NULL, "
    "data varchar(2048))",
    "INSERT INTO customers VALUES (1, 'Ann', 12.50), (2, 'Bob', NULL)",
    "INSERT INTO orders VALUES (10, 1, 'tea')",
)
CHANGE = (
    "UPDATE customers SET credit = -0.01 WHERE id = 2",
    "DELETE FROM customers WHERE id = 1",
    "INSERT INTO orders VALUES (11, 2, NULL)",
)


@pytest.mark.parametrize(("example", "database"), [("postgresql", "postgres"), ("mariadb",) * 2])
def test_rows_arrive(example, database, kafka_broker, connect_worker, request, tmp_path):
    server = request.getfixturevalue(f"{database}_server")
    connector = here(example, server.connector, kafka_broker)
    lake = FileSystemCatalog(str(tmp_path / "warehouse"))
    config = pipeline(tmp_path, kafka_broker)
    known, _ = connect_worker.validate(connector)
    unknown = {name for name in connector if name not in known and not PASSED_THROUGH.match(name)}
    assert unknown == set()
    admin = AdminClient({"bootstrap.servers": kafka_broker})
    remove_topics(admin)  # other tests of this broker have a shop, too
    admin.create_topics([NewTopic("shop-signals", 1, 1)])["shop-signals"].result()
    topics = TopicReader(kafka_broker, "shop")
    with server.connect() as connection, connection.cursor() as cursor:
        for statement in CREATE:
            cursor.execute(statement)
        try:
            connect_worker.add(example, connector)  # offsets are kept by name
            _, errors = connect_worker.validate(connector)
            assert errors == {}
            eventually(lambda: topics.rows() >= 3, timeout=90, what="the snapshot")
            for statement in CHANGE:
                cursor.execute(statement)
            # the delete has a tombstone, too
            eventually(lambda: topics.rows() >= 7, timeout=90, what="the changes")
            with DaemonProcess(*config, "--once") as daemon:
                assert daemon.wait(200) == 0, daemon.log_tail()
            assert lake.list_tables("shop") == ["customers", "orders"]
            for name, columns in {"customers": "id, name, credit", "orders": "*"}.items():
                rows = lake.table(f"shop.{name}").to_arrow().to_pylist()
                cursor.execute(f"SELECT {columns} FROM {name} ORDER BY id")
                found = sorted(tuple(row.values()) for row in rows)
                assert found == list(cursor.fetchall()), name
            assert lake.table("lakeward._quarantine").to_arrow().num_rows == 0
        finally:
            connect_worker.remove_all()
            topics.close()
            remove_topics(admin)
            if database == "postgres":
                cursor.execute("SELECT pg_sleep(1)")
            cursor.execute("DROP TABLE customers, orders, debezium_signal")


def here(example: str, address: dict[str, str], bootstrap: str) -> dict[str, str]:
    """The connector of an example; addresses, credentials and replicas are those of here."""
    connector: dict[str, str] = json.loads((EXAMPLES / f"connectors/{example}.json").read_text())
    assert address.items() >= {("connector.class", connector["connector.class"])}
    own = re.compile(r"database\.(hostname|port|user|password)")
    replaced = {name: value for name, value in address.items() if own.fullmatch(name)}
    servers = {name: bootstrap for name in connector if name.endswith("bootstrap.servers")}
    return {
        **connector,
        **replaced,
        **servers,
        "topic.creation.default.replication.factor": "1",
    }


def pipeline(directory: Path, bootstrap: str) -> tuple[Any, ...]:
    """Arguments of a daemon with the configuration of the example and what differs here."""
    config = directory / "kafka.yaml"
    config.write_text((EXAMPLES / "kafka.yaml").read_text())
    other = directory / "here.yaml"
    sections = {
        "source": {"bootstrap.servers": bootstrap},
        "sink": {"warehouse": str(directory / "warehouse")},
        "metrics": {"port": 0},
    }
    other.write_text(yaml.safe_dump(sections))
    return config, "-c", str(other)


def remove_topics(admin: AdminClient) -> None:
    """Remove the topics of a shop, which the next test would read."""
    names = [name for name in admin.list_topics(timeout=20).topics if "shop" in name]
    for deleted in admin.delete_topics(names).values() if names else ():
        deleted.result()
