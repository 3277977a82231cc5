# SPDX-License-Identifier: Apache-2.0
"""`source.on.truncate: apply` with real databases and connectors."""

import time

import pytest

from tests.e2e.daemon_process import DaemonProcess, eventually, newest_snapshot
from tests.e2e.oracle import assert_equal
from tests.e2e.real_lake import GOODS, PARTS, amended, fenced, finished, wait_until_equal
from tests.e2e.real_parts import connect_worker, mariadb_server, postgres_server, registry
from tests.e2e.real_tables import send
from tests.e2e.test_real_databases import LOOKED_UP, Source, each_replayed, open_lake

__all__ = ["connect_worker", "mariadb_server", "postgres_server", "registry"]

pytestmark = [pytest.mark.full, pytest.mark.kafka, pytest.mark.spark]


@pytest.mark.parametrize("database", ["postgres", "mariadb"])
def test_tables_are_emptied_where_the_source_truncates_them(
    database, kafka_broker, connect_worker, request, tmp_path
):
    """Truncates between rows, in one transaction with them, of two tables at once, and while the
    daemon is dead; the rows and the changelog say the same as the database."""
    server = request.getfixturevalue(f"{database}_server")
    source = Source(
        database,
        server,
        kafka_broker,
        connect_worker,
        (GOODS, PARTS),
        settings={"skipped.operations": "none"},
        prefix=f"truncated-{database}",
        partitions=1,
    )
    config = amended(
        source.config(tmp_path, table_properties=LOOKED_UP), source={"on.truncate": "apply"}
    )
    both = {
        "postgres": "TRUNCATE goods, parts",
        "mariadb": "TRUNCATE TABLE goods; TRUNCATE TABLE parts",
    }[database]
    with server.connect() as connection, source.started(connection, ()):
        changes = source.changes
        with DaemonProcess(config) as daemon, connection.cursor() as cursor:
            changes.run(cursor, 40)
            fenced(cursor, config, daemon, 1)
            assert newest_snapshot(tmp_path / "warehouse", "shop.goods") > 0
            changes.truncate(cursor, "TRUNCATE TABLE goods", "goods")
            fenced(cursor, config, daemon, 2)
            wait_until_equal(connection, changes.tables, config, daemon, "an empty table")
            assert open_lake(tmp_path / "warehouse")["goods"].to_arrow().num_rows == 0
            changes.run(cursor, 30)
            send(
                cursor,
                f"BEGIN; {GOODS.insert(9000)}; TRUNCATE TABLE parts; {PARTS.insert(9001)}; COMMIT",
            )
            changes.truncate(cursor, "SELECT 1", "parts")
            changes.run(cursor, 30)
            fenced(cursor, config, daemon, 3)
            wait_until_equal(connection, changes.tables, config, daemon, "rows before and after")
            daemon.kill_all()
        with connection.cursor() as cursor:
            changes.run(cursor, 20)
            changes.truncate(cursor, both, "goods", "parts")
            changes.run(cursor, 20)
            changes.truncate(cursor, "TRUNCATE TABLE parts", "parts")
            changes.run(cursor, 20)
            with DaemonProcess(config) as daemon:
                eventually(
                    lambda: (
                        newest_snapshot(tmp_path / "warehouse", "shop.parts") > 0
                        or not daemon.alive
                    ),
                    timeout=240,
                )
                time.sleep(6)  # about when the batch with both truncates is written
                assert daemon.alive, daemon.log_tail()
                daemon.kill_all()
            with DaemonProcess(config) as daemon:
                fenced(cursor, config, daemon, 4)
                lake = finished(source, config, daemon)
        assert_equal(connection, changes.tables, lake)
        assert_equal(connection, changes.tables, each_replayed(lake))
