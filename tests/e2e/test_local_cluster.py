# SPDX-License-Identifier: Apache-2.0
"""Several executor processes give the same tables: the shuffle keeps no order there."""

import pytest

from tests.e2e.daemon_process import kafka_config, run_once
from tests.e2e.shop_stream import PATTERN, ShopStream, assert_tables_equal_model, quarantined

pytestmark = [pytest.mark.kafka, pytest.mark.spark, pytest.mark.full]


def test_the_same_stream_on_two_executors(kafka_broker, tmp_path):
    stream = ShopStream(kafka_broker, seed=31)
    stream.snapshot(5_000)
    stream.corruption()
    stream.changes(60_000)
    config = kafka_config(
        tmp_path,
        kafka_broker,
        PATTERN,
        max_records=15_000,
        table_properties={"bucket": "2"},
        spark={"master": "local-cluster[2,1,1024]", "parallelism": 2},
    )

    run_once(config, timeout=900)

    assert_tables_equal_model(tmp_path / "warehouse", stream.shop)
    assert quarantined(tmp_path / "warehouse") == stream.corrupt
