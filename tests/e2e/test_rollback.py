# SPDX-License-Identifier: Apache-2.0
"""Tables that are taken back, or get other buckets, under a pipeline: it misses nothing."""

import dataclasses

import pytest

from ingest.cli import main as cli
from ingest.cli.stream import recover_offsets
from ingest.daemon.configuration import load_settings
from ingest.daemon.daemon import Daemon
from storage.catalog.catalog import FileSystemCatalog
from tests.e2e.daemon_process import DaemonProcess, drain
from tests.e2e.test_parking import MixedStream, config_of, rows_of, wait_until

pytestmark = [pytest.mark.kafka, pytest.mark.spark, pytest.mark.full]


def table_of(directory, name):
    return FileSystemCatalog(str(directory / "warehouse")).table(f"shop.{name}")


def on_table(directory, verb, name, *words):
    place = (str(directory / "warehouse"), f"shop.{name}")
    return cli.main(["table", verb, *place, *map(str, words)])


def test_what_a_rollback_took_is_read_again_exactly_once(kafka_broker, spark, tmp_path):
    stream = MixedStream(kafka_broker, seed=15)
    config = config_of(tmp_path, kafka_broker)
    stream.changes(1_200)
    drain(config, spark)
    middle = {name: table_of(tmp_path, name).latest_snapshot().id for name in ("orders", "sums")}
    stream.changes(1_500)
    drain(config, spark)
    stream.assert_tables_equal(tmp_path)

    assert on_table(tmp_path, "rollback", "sums", "--snapshot", middle["sums"]) == 78
    stopped = "--writers-stopped"
    assert on_table(tmp_path, "rollback", "sums", "--snapshot", middle["sums"], stopped) == 0
    assert on_table(tmp_path, "rollback", "orders", "--snapshot", 1, stopped) == 0
    assert rows_of(tmp_path, "sums") != stream.rows["sums"]
    stream.changes(300)
    settings = load_settings(config)
    assert Daemon(settings, once=True, session=spark).run() == 78
    recover_offsets(settings, dry_run=False)
    drain(config, spark)
    stream.assert_tables_equal(tmp_path)

    assert on_table(tmp_path, "rescale", "sums", "--buckets", 3) == 0
    stream.changes(500)
    drain(config, spark)
    stream.assert_tables_equal(tmp_path)


def _roll_back(directory):
    assert on_table(directory, "rollback", "sums", "--snapshot", 1, "--writers-stopped") == 0


def _create_again(directory):
    catalog = FileSystemCatalog(str(directory / "warehouse"))
    schema = catalog.table("shop.sums").schema
    catalog.drop_table("shop.sums")
    catalog.create_table("shop.sums", dataclasses.replace(schema, id=0))


@pytest.mark.parametrize("take_back", [_roll_back, _create_again])
def test_a_rollback_beside_a_daemon_ends_it(kafka_broker, spark, tmp_path, take_back):
    stream = MixedStream(kafka_broker, seed=16)
    config = config_of(tmp_path, kafka_broker)
    stream.changes(1_000)
    with DaemonProcess(config) as daemon:
        wait_until(daemon, lambda: rows_of(tmp_path, "sums") == stream.rows["sums"], "the start")
        take_back(tmp_path)
        stream.changes(500)
        assert daemon.wait(120) == 75, daemon.log_tail()
        assert "rolled back" in daemon.log_path.read_text()
    recover_offsets(load_settings(config), dry_run=False)
    drain(config, spark)
    stream.assert_tables_equal(tmp_path)


def test_buckets_change_beside_a_daemon(kafka_broker, spark, tmp_path):
    stream = MixedStream(kafka_broker, seed=17)
    config = config_of(tmp_path, kafka_broker)
    stream.changes(1_000)
    with DaemonProcess(config) as daemon:
        wait_until(daemon, lambda: rows_of(tmp_path, "sums") == stream.rows["sums"], "the start")
        place = ["-c", str(config), "shop.sums"]
        assert cli.main(["pause", *place]) == 0
        stream.changes(500)
        assert on_table(tmp_path, "rescale", "sums", "--buckets", 4) == 0
        assert on_table(tmp_path, "rescale", "items", "--buckets", 2) == 0
        assert cli.main(["resume", *place]) == 0
        stream.changes(500)
        for name in ("orders", "sums"):
            wait_until(
                daemon,
                lambda name=name: rows_of(tmp_path, name) == stream.rows[name],
                f"{name} after it",
            )
        assert daemon.terminate() == 0, daemon.log_tail()
    with DaemonProcess(config) as daemon:  # `items` may have been parked in between
        cli.main(["resume", "-c", str(config), "shop.items"])
        wait_until(daemon, lambda: rows_of(tmp_path, "items") == stream.rows["items"], "items")
        assert daemon.terminate() == 0, daemon.log_tail()
    stream.assert_tables_equal(tmp_path)
