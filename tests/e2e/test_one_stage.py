# SPDX-License-Identifier: Apache-2.0
"""A batch that one task reads and writes makes the same tables as a batch that is shuffled."""

import pytest

from ingest.pipeline import sink
from ingest.pipeline.sink import MicroBatchSink
from tests.e2e.daemon_process import drain, kafka_config
from tests.e2e.shop_stream import PATTERN, ShopStream, assert_tables_equal_model, open_tables

pytestmark = [pytest.mark.kafka, pytest.mark.spark]


def written(directory, broker, spark, monkeypatch, largest):
    """Tables of a pipeline whose batches of up to so many records are one stage; how each ran."""
    stages = []
    distribute = MicroBatchSink._distributed

    def noted(self, frame, plan):
        chunks = distribute(self, frame, plan)
        planned = chunks._jdf.queryExecution().executedPlan().toString()
        stages.append(2 if "Exchange" in planned else 1)
        return chunks

    directory.mkdir()
    properties = {"bucket": "1"}
    config = kafka_config(directory, broker, PATTERN, max_records=200, table_properties=properties)
    with monkeypatch.context() as patched:
        patched.setattr(sink, "MIN_TASK_RECORDS", largest)
        patched.setattr(MicroBatchSink, "_distributed", noted)
        drain(config, spark)
    return open_tables(directory / "warehouse"), stages


def files_of(table):
    """What each data file holds, in order of writing."""
    return sorted(
        (file.min_sequence_number, file.max_sequence_number, file.row_count, file.level)
        for split in table.scan().plan()
        for file in split.files
    )


def test_small_batches_and_shuffled_ones_write_the_same_files(
    kafka_broker, spark, tmp_path, monkeypatch
):
    stream = ShopStream(kafka_broker, seed=11)
    stream.snapshot(50)
    stream.changes(500)
    setting = (kafka_broker, spark, monkeypatch)
    one_stage, stages = written(tmp_path / "one", *setting, sink.MIN_TASK_RECORDS)
    assert len(stages) > 2
    assert set(stages) == {1}
    shuffled, stages = written(tmp_path / "two", *setting, -1)
    assert len(stages) > 2
    assert set(stages) == {2}
    for directory in ("one", "two"):
        assert_tables_equal_model(tmp_path / directory / "warehouse", stream.shop)
    assert set(one_stage) == set(shuffled)
    for name, table in one_stage.items():
        assert table.latest_snapshot().id == shuffled[name].latest_snapshot().id
        assert files_of(table) == files_of(shuffled[name])
