# SPDX-License-Identifier: Apache-2.0
"""What deploy/compose.yaml puts together works together: its tables, connector, store and pipeline.

The same files, with the servers that tests have in place of the containers.
"""

import json
from pathlib import Path

import obstore
import pytest
import yaml
from obstore.store import S3Store

from storage.catalog.catalog import FileSystemCatalog
from tests.e2e.capture import TopicReader
from tests.e2e.daemon_process import DaemonProcess, eventually
from tests.e2e.real_parts import connect_worker, postgres_server, registry
from tests.e2e.s3_server import ACCESS_KEY, SECRET_KEY

__all__ = ["connect_worker", "postgres_server", "registry"]

pytestmark = [pytest.mark.full, pytest.mark.kafka, pytest.mark.spark, pytest.mark.s3]

COMPOSE = Path(__file__).resolve().parents[2] / "deploy" / "compose"
ROWS = {"customers": 1_000, "items": 200, "orders": 5_000}


@pytest.fixture
def run_once(kafka_broker, s3_server, tmp_path, monkeypatch):
    """Works off what is there, with the stack's configuration and the addresses of here."""
    here = {
        "pipeline": {"checkpoint": str(tmp_path / "checkpoint")},
        "source": {"bootstrap.servers": kafka_broker},
        "metrics": {"port": 0},
        "sink": {"options": {"s3.endpoint": s3_server.endpoint}},
    }
    (tmp_path / "here.yaml").write_text(yaml.safe_dump(here))
    config = tmp_path / "lakeward.yaml"
    config.write_text((COMPOSE / "lakeward.yaml").read_text())
    monkeypatch.setenv("S3_ACCESS_KEY", ACCESS_KEY)
    monkeypatch.setenv("S3_SECRET_KEY", SECRET_KEY)

    # the service `bucket` does this
    store = S3Store(
        "lake",
        endpoint=s3_server.endpoint,
        access_key_id=ACCESS_KEY,
        secret_access_key=SECRET_KEY,
        region="us-east-1",
        client_options={"allow_http": True},
    )
    obstore.put(store, "made", b"")

    def run() -> None:
        with DaemonProcess(config, "-c", str(tmp_path / "here.yaml"), "--once") as daemon:
            assert daemon.wait(200) == 0, daemon.log_tail()

    return run


def test_the_shop_arrives_in_the_lake(
    run_once, kafka_broker, s3_server, connect_worker, postgres_server
):
    connector = json.loads((COMPOSE / "connector.json").read_text())
    lake = FileSystemCatalog("s3://lake/warehouse", options=s3_server.options)
    topics = TopicReader(kafka_broker, "shop.public")
    with postgres_server.connect() as connection, connection.cursor() as cursor:

        def assert_equal() -> None:
            for name, columns in {
                "customers": "id, name, email",
                "items": "id, title, price",
                "orders": "id, customer_id, item_id, quantity",
            }.items():
                table = lake.table(f"shop.{name}")
                rows = table.to_arrow(columns=columns.split(", ")).to_pylist()
                cursor.execute(f"SELECT {columns} FROM {name}")
                found = sorted(tuple(row.values()) for row in rows)
                assert found == sorted(cursor.fetchall()), name

        cursor.execute((COMPOSE / "shop.sql").read_text())
        try:
            connect_worker.add("shop", {**connector, **postgres_server.connector})
            total = sum(ROWS.values())
            eventually(lambda: topics.rows() == total, timeout=90, what="the snapshot")
            run_once()
            assert_equal()
            cursor.execute("UPDATE items SET price = price + 1")
            cursor.execute("DELETE FROM orders WHERE id % 10 = 0")
            total += ROWS["items"] + 2 * ROWS["orders"] // 10  # a delete has a tombstone, too
            eventually(lambda: topics.rows() == total, timeout=90, what="the changes")
            run_once()
            assert_equal()
        finally:
            connect_worker.remove_all()
            cursor.execute("DROP TABLE orders, items, customers")
            topics.close()
