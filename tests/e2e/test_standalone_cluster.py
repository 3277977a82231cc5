# SPDX-License-Identifier: Apache-2.0
"""On a standalone cluster of two workers the tables are right, though an executor is killed."""

import os
import signal

import pytest

from tests.e2e.daemon_process import DaemonProcess, eventually, kafka_config, newest_snapshot
from tests.e2e.shop_stream import PATTERN, ShopStream, assert_tables_equal_model, quarantined
from tests.e2e.standalone_cluster import standalone_cluster

pytestmark = [pytest.mark.kafka, pytest.mark.spark, pytest.mark.full]


def test_an_executor_is_killed_in_the_middle_of_a_stream(kafka_broker, tmp_path):
    stream = ShopStream(kafka_broker, seed=43)
    stream.snapshot(5_000)
    stream.corruption()
    stream.changes(60_000)
    with standalone_cluster(tmp_path, workers=2) as cluster:
        config = kafka_config(
            tmp_path,
            kafka_broker,
            PATTERN,
            max_records=6_000,
            table_properties={"bucket": "2"},
            spark={
                "master": cluster.master,
                "parallelism": 2,
                "conf": {
                    "spark.driver.host": "127.0.0.1",
                    "spark.executor.memory": "700m",
                    "spark.executor.cores": "1",
                },
            },
        )
        warehouse = tmp_path / "warehouse"
        with DaemonProcess(config, "--once") as daemon:
            eventually(
                lambda: newest_snapshot(warehouse, "shop.orders") >= 2 or not daemon.alive,
                timeout=600,
                what="some batches are committed",
            )
            before = cluster.executors()
            assert len(before) == 2, daemon.log_tail()
            os.kill(before[0], signal.SIGKILL)
            eventually(
                lambda: set(cluster.executors()) - set(before),
                timeout=120,
                what="the worker starts another executor",
            )
            assert daemon.alive
            assert daemon.wait(900) == 0, daemon.log_tail()
    assert_tables_equal_model(warehouse, stream.shop)
    assert quarantined(warehouse) == stream.corrupt
