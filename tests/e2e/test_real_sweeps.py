# SPDX-License-Identifier: Apache-2.0
"""`source.on.resnapshot: sweep` with a real database and connector: what nobody told of goes."""

from typing import Any

import psycopg
import pytest

from tests.e2e.daemon_process import DaemonProcess, eventually, newest_snapshot
from tests.e2e.oracle import assert_equal
from tests.e2e.real_lake import (
    GOODS,
    PARTS,
    amended,
    fenced,
    finished,
    lines_apart,
    wait_until_equal,
)
from tests.e2e.real_parts import connect_worker, mariadb_server, postgres_server, registry
from tests.e2e.test_real_databases import LOOKED_UP, Source, each_replayed
from tests.e2e.test_real_snapshots import SIGNALS, Beside, resnapshot, talking, unseen

__all__ = ["connect_worker", "mariadb_server", "postgres_server", "registry"]

pytestmark = [pytest.mark.full, pytest.mark.kafka, pytest.mark.spark]


@pytest.mark.parametrize("database", ["postgres", "mariadb"])
def test_rows_that_were_deleted_while_nobody_looked_go_with_a_new_snapshot(
    database, kafka_broker, connect_worker, request, tmp_path, capsys
):
    """A blocking snapshot of one table, then a connector that begins anew with all of them, the
    daemon killed meanwhile; rows and changelogs equal the database."""
    server = request.getfixturevalue(f"{database}_server")
    prefix = f"swept-{database}"
    source = Source(
        database,
        server,
        kafka_broker,
        connect_worker,
        (GOODS, PARTS),
        settings=talking(server, kafka_broker, prefix, database),
        prefix=prefix,
        partitions=1,
    )
    config = amended(
        source.config(tmp_path, table_properties=LOOKED_UP),
        source={
            "on.resnapshot": "sweep",
            "topics.exclude": [rf".*\.{SIGNALS}"],
            "debezium.signal.topic": f"signals-{prefix}",
            "debezium.notification.topic": f"told-{prefix}",
        },
    )
    with server.connect() as connection:
        with connection.cursor() as cursor:
            cursor.execute(
                f"CREATE TABLE {SIGNALS} (id varchar(64) PRIMARY KEY, type varchar(32) NOT NULL, "
                "data varchar(2048))"
            )
        with source.started(connection, ()):
            tables = source.changes.tables
            with DaemonProcess(config) as daemon, connection.cursor() as cursor:
                for table in tables:
                    cursor.execute(table.insert_rows(range(10_000, 10_300)))
                source.changes.run(cursor, 40)
                wait_until_equal(connection, tables, config, daemon, "before the loss")

                for table in tables:
                    with unseen(database, cursor, source, table.name):
                        cursor.execute(table.delete(range(10_000, 10_020)))
                        cursor.execute(table.insert_rows(range(10_300, 10_310)))
                fenced(cursor, config, daemon, 2)
                assert len(lines_apart(connection, tables, config)) == 60
                with Beside(server, source):
                    [(_, count)] = resnapshot(config, capsys, "blocking").items()
                assert count >= 290
                wait_until_equal(connection, [GOODS], config, daemon, "goods after the snapshot")
                fenced(cursor, config, daemon, 3)
                others = lines_apart(connection, tables, config)
                assert len(others) == 30, others
                assert sum("too many" in line for line in others) == 20

                connect_worker.remove_all()
                for table in tables:
                    cursor.execute(table.delete(range(10_100, 10_150)))
                    cursor.execute(table.insert_rows(range(10_400, 10_410)))
                source.changes.run(cursor, 40)
                forget(database, cursor, source)
                before = newest_snapshot(tmp_path / "warehouse", "shop.goods")
                source.connect(f"{prefix}-again")
                eventually(
                    lambda: newest_snapshot(tmp_path / "warehouse", "shop.goods") > before,
                    timeout=240,
                    what="the new connector's rows",
                )
                daemon.kill_group()
                source.changes.run(cursor, 20)
                with DaemonProcess(config) as daemon:
                    fenced(cursor, config, daemon, 4)
                    lake = finished(source, config, daemon)
            assert_equal(connection, tables, lake)
            assert_equal(connection, tables, each_replayed(lake))
        with connection.cursor() as cursor:
            cursor.execute(f"DROP TABLE {SIGNALS}")
    told = config.with_suffix(".log").read_text().count('"event": "swept"')
    assert told >= 3  # goods twice, parts once


def forget(database: str, cursor: Any, source: Source) -> None:
    """Take away what the database keeps for the connector."""
    if database != "postgres":
        return

    def gone() -> bool:
        try:
            cursor.execute(f"SELECT pg_drop_replication_slot('{source.publication}')")
        except psycopg.errors.ObjectInUse:
            return False
        return True

    eventually(gone, timeout=60, what="an unused slot")
