# SPDX-License-Identifier: Apache-2.0
"""The Spark data source under Spark: drain to the end, replay, drain on request, nothing to do."""

import json
import time
from pathlib import Path

import pytest
from pyspark.errors import StreamingQueryException
from pyspark.sql import SparkSession

from ingest.config.source_settings import FileSourceSettings
from ingest.pipeline.spark_source import CHUNK_SPARK_SCHEMA
from ingest.source.open import initial_offsets, write_control
from tests.e2e.stub_source import StubSource

pytestmark = pytest.mark.spark


@pytest.fixture(scope="module")
def session(spark: SparkSession) -> SparkSession:
    """The session of all tests: a process has one, and stopping it would stop theirs."""
    spark.dataSource.register(StubSource)
    return spark


class Stream:
    """A stream over a directory that remembers what every micro-batch held."""

    def __init__(self, spark: SparkSession, root: Path, **settings) -> None:
        self.spark = spark
        self.events = root / "events"
        self.events.mkdir()
        self.checkpoint = root / "checkpoint"
        settings = {"discovery_interval_s": 0.0, **settings}
        self.settings = FileSourceSettings(path=str(self.events), **settings)
        self.batches: dict[int, list[tuple[str, int, int]]] = {}
        self.fail_in: int | None = None

    def begin(self) -> None:
        self.checkpoint.mkdir()
        initial = {"initial": initial_offsets(self.settings, None)}
        (self.checkpoint / "lakeward.json").write_text(json.dumps(initial))

    def write(self, name: str, numbers) -> None:
        (self.events / name).write_text("".join(f"{number}\n" for number in numbers))

    def on_batch(self, frame, batch_id: int) -> None:
        rows = []
        for row in frame.collect():
            offsets, values = json.loads(bytes(row.payload))
            rows += [(row.topic, o, int(v)) for o, v in zip(offsets, values, strict=True)]
        self.batches[batch_id] = sorted(rows)
        if self.fail_in == batch_id:
            raise RuntimeError("planned failure")

    def start(self, **trigger):
        frame = (
            self.spark.readStream.format(StubSource.name())
            .schema(CHUNK_SPARK_SCHEMA)
            .option("settings", self.settings.to_json())
            .option("checkpoint", str(self.checkpoint))
            .load()
        )
        writer = frame.writeStream.option("checkpointLocation", str(self.checkpoint))
        return writer.foreachBatch(self.on_batch).trigger(**trigger).start()

    def once(self) -> None:
        query = self.start(availableNow=True)
        try:
            assert query.awaitTermination(60)
        finally:
            query.stop()

    @property
    def values(self) -> list[int]:
        return sorted(value for rows in self.batches.values() for _, _, value in rows)


def wait_for(condition) -> None:
    deadline = time.monotonic() + 30
    while not condition():
        assert time.monotonic() < deadline
        time.sleep(0.05)


def test_a_run_that_drains_takes_several_limited_batches_and_goes_on_later(session, tmp_path):
    stream = Stream(session, tmp_path, max_records=8)
    stream.write("a.1.jsonl", range(10))
    stream.write("a.2.jsonl", range(10, 15))
    stream.write("b.1.jsonl", range(100, 105))
    stream.begin()
    stream.once()
    assert stream.values == [*range(15), *range(100, 105)]
    assert len(stream.batches) >= 3
    assert all(len(rows) <= 8 for rows in stream.batches.values())
    stream.batches.clear()
    stream.write("a.3.jsonl", [15])
    stream.write("c.1.jsonl", [200])
    stream.once()
    assert stream.values == [15, 200]


def test_a_failed_batch_is_replayed_with_the_same_rows_although_files_arrived(session, tmp_path):
    stream = Stream(session, tmp_path, max_records=8)
    stream.write("a.1.jsonl", range(10))
    stream.write("a.2.jsonl", range(10, 20))
    stream.begin()
    stream.fail_in = 1
    with pytest.raises(StreamingQueryException, match="planned failure"):
        stream.once()
    failed = stream.batches[1]
    assert [value for *_, value in failed] == list(range(8, 16))
    stream.fail_in = None
    stream.write("a.3.jsonl", range(20, 24))
    with (stream.events / "a.2.jsonl").open("a") as file:
        file.write("99\n")
    stream.once()
    assert stream.batches[1] == failed
    assert stream.values == [*range(24), 99]


def test_a_source_told_to_drain_offers_nothing_until_it_may_again(session, tmp_path):
    stream = Stream(session, tmp_path)
    stream.begin()  # nothing there: the first batch is empty and has no tasks
    query = stream.start(processingTime="100 milliseconds")
    try:
        stream.write("a.1.jsonl", [1])
        wait_for(lambda: stream.values == [1])
        write_control(stream.checkpoint, drain=True)
        time.sleep(0.5)
        stream.write("a.2.jsonl", [2])
        time.sleep(1)
        assert query.isActive
        assert stream.values == [1]
        write_control(stream.checkpoint, drain=False)
        wait_for(lambda: stream.values == [1, 2])
    finally:
        query.stop()
