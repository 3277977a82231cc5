# SPDX-License-Identifier: Apache-2.0
"""Topics that may wait: which, how long, what is offered meanwhile, and what metrics say."""

import dataclasses
import json

import pytest
from pyspark.sql.streaming.datasource import ReadMaxRows

from ingest.config.source_settings import FileSourceSettings, KafkaSourceSettings
from ingest.daemon.configuration import load_settings
from ingest.daemon.daemon import topic_waits
from ingest.observe.metrics.telemetry import Metrics
from ingest.pipeline import stream_planner
from ingest.pipeline.spark_source import LakewardCdcReader
from ingest.source.kafka import KafkaSource
from ingest.source.open import MOST_WAITING, TopicGate, draining, write_control, write_topic_waits
from ingest.source.open import topic_waits as read_waits
from storage.clock import ManualClock
from tests.unit.ingest.lake_settings import lake_settings


@pytest.fixture
def clock():
    return ManualClock()


def at(**offsets):
    return {topic: {"0": offset} for topic, offset in offsets.items()}


def offered(gate, start, end, waits):
    held = gate.gated(start, end, waits)
    return {**end, **{topic: start[topic] for topic in held}}


def settings(directory, text):
    path = directory / "shop.yaml"
    path.write_text(
        f"source: {{type: files, path: {directory}}}\nsink: {{warehouse: {directory}/lake}}\n{text}"
    )
    return load_settings(path)


# which topics may wait


def test_a_topic_waits_as_long_as_its_most_urgent_table_allows(tmp_path):
    chosen = settings(
        tmp_path,
        "pipeline: {name: shop, trigger: {interval: 10s, idle.commit: 10m}}\n"
        "tables: [{match: 'db.slow', freshness: 1h}, {match: 'db.fast', freshness: 10s}]\n",
    )
    feeds = {
        "db.slow": {"a", "b", "d"},
        "db.fast": {"b"},
        "db.plain": {"c", "d"},
        "lakeward._quarantine": {"a", "e"},
    }
    found = topic_waits(chosen, feeds, {"lakeward._quarantine"})
    assert found == {"a": 3600.0, "c": 600.0, "d": 600.0}


def test_without_settings_nothing_waits(tmp_path):
    assert topic_waits(settings(tmp_path, "pipeline: {name: s}\n"), {"db.t": {"a"}}, ()) == {}


# the gate


def test_a_cold_topic_advances_when_its_time_is_up_and_others_do_not_wait(clock):
    gate, waits = TopicGate(clock), {"cold": 60.0}
    assert offered(gate, at(cold=5, hot=5), at(cold=5, hot=5), waits) == at(cold=5, hot=5)
    assert offered(gate, at(cold=5, hot=5), at(cold=7, hot=9), waits) == at(cold=5, hot=9)
    clock.advance(59_000)
    assert offered(gate, at(cold=5, hot=9), at(cold=8, hot=9), waits) == at(cold=5, hot=9)
    clock.advance(1_000)
    assert offered(gate, at(cold=5, hot=9), at(cold=8, hot=9), waits) == at(cold=8, hot=9)
    assert offered(gate, at(cold=8, hot=9), at(cold=9, hot=9), waits) == at(cold=8, hot=9)


def test_many_records_do_not_wait(clock):
    gate, waits = TopicGate(clock), {"cold": 60.0}
    offered(gate, at(cold=0), at(cold=0), waits)
    assert offered(gate, at(cold=0), at(cold=MOST_WAITING - 1), waits) == at(cold=0)
    assert offered(gate, at(cold=0), at(cold=MOST_WAITING), waits) == at(cold=MOST_WAITING)


def test_what_a_new_process_finds_has_waited_long_enough(clock):
    waits = {"cold": 60.0}
    first = TopicGate(clock)
    offered(first, at(cold=0), at(cold=0), waits)
    offered(first, at(cold=0), at(cold=3), waits)
    assert offered(TopicGate(clock), at(cold=0), at(cold=3), waits) == at(cold=3)


def test_a_topic_that_need_not_wait_any_more_goes_at_once(clock):
    gate = TopicGate(clock)
    offered(gate, at(cold=0), at(cold=0), {"cold": 60.0})
    assert offered(gate, at(cold=0), at(cold=3), {"cold": 60.0}) == at(cold=0)
    assert offered(gate, at(cold=0), at(cold=3), {}) == at(cold=3)


def test_new_topics_enter_and_a_log_that_was_made_anew_is_not_held(clock):
    gate, waits = TopicGate(clock), {"cold": 60.0}
    offered(gate, at(cold=9), at(cold=9), waits)
    assert offered(gate, at(cold=9), at(cold=9, new=0), waits) == at(cold=9, new=0)
    assert offered(gate, at(cold=9), at(cold=2), waits) == at(cold=2)


# the reader


def reader(directory, monkeypatch, clock):
    monkeypatch.setattr(stream_planner, "SystemClock", lambda: clock)
    source = FileSourceSettings(path=str(directory / "in"), discovery_interval_s=0.0)
    options = {"settings": source.to_json(), "checkpoint": str(directory / "state")}
    return LakewardCdcReader(options)


def put(directory, topic, number, lines=1):
    folder = directory / "in" / topic
    folder.mkdir(parents=True, exist_ok=True)
    (folder / f"{number}.jsonl").write_bytes(b'{"a":1}\n' * lines)


def read(opened, start, end):
    """What tasks would read."""
    tasks = opened.partitions(start, end)
    return sorted((piece.topic, piece.start, piece.end) for task in tasks for piece in task.ranges)


def test_rows_of_a_cold_topic_stay_in_the_source_and_come_exactly_once(
    tmp_path, monkeypatch, clock
):
    for topic in ("cold", "hot"):
        put(tmp_path, topic, 1)
    write_topic_waits(tmp_path / "state", {"cold": 60.0})
    opened, limit = reader(tmp_path, monkeypatch, clock), ReadMaxRows(100)
    first = opened.latestOffset({}, limit)
    assert {topic for topic, _, _ in read(opened, {}, first)} == {"cold", "hot"}
    for topic in ("cold", "hot"):
        put(tmp_path, topic, 2)
    second = opened.latestOffset(first, limit)
    assert [topic for topic, _, _ in read(opened, first, second)] == ["hot"]
    put(tmp_path, "cold", 3)
    assert opened.latestOffset(second, limit) == second
    clock.advance(60_000)
    third = opened.latestOffset(second, limit)
    found = read(opened, second, third)
    assert [topic for topic, _, _ in found] == ["cold", "cold"]
    # a batch of the log is done again, by a process that knows nothing of the wait
    again = reader(tmp_path, monkeypatch, clock)
    assert read(again, second, json.loads(json.dumps(third))) == found
    assert again.latestOffset(third, limit) == third


def test_topics_that_wait_take_no_part_of_the_limit(tmp_path, monkeypatch, clock):
    opened, limit = reader(tmp_path, monkeypatch, clock), ReadMaxRows(100)
    for topic in ("cold1", "cold2", "hot"):
        put(tmp_path, topic, 1)
    start = opened.latestOffset({}, limit)
    write_topic_waits(tmp_path / "state", {"cold1": 60.0, "cold2": 60.0})
    assert opened.latestOffset(start, limit) == start
    for topic in ("cold1", "cold2", "hot"):
        put(tmp_path, topic, 2, lines=100)
    end = opened.latestOffset(start, limit)
    ((topic, first, last),) = read(opened, start, end)
    assert (topic, last - first) == ("hot", 100 * 8)


def test_a_broker_offers_the_others_within_the_limit(monkeypatch, clock):
    marks = {("cold", "0"): (0, 90), ("hot", "0"): (0, 200)}
    monkeypatch.setattr(KafkaSource, "watermarks", lambda self: marks)
    source = KafkaSource(
        KafkaSourceSettings(bootstrap_servers="k:9092", topics_pattern=".*"), clock
    )
    source._pairs = tuple(marks)
    start = at(cold=10, hot=10)
    assert source.latest(start, max_records=100, gated={"cold"}) == at(cold=10, hot=110)
    assert source.latest(start, gated={"cold", "hot"}) == start
    both = source.latest(start, max_records=100)
    assert sum(entry["0"] for entry in both.values()) == 120


def test_a_run_that_drains_the_source_waits_for_nothing(tmp_path, monkeypatch, clock):
    put(tmp_path, "cold", 1)
    write_topic_waits(tmp_path / "state", {"cold": 60.0})
    opened, limit = reader(tmp_path, monkeypatch, clock), ReadMaxRows(100)
    opened.prepareForTriggerAvailableNow()
    start = opened.latestOffset({}, limit)
    assert start
    put(tmp_path, "cold", 2)
    opened.prepareForTriggerAvailableNow()
    assert opened.latestOffset(start, limit) != start


def test_words_about_waiting_do_not_take_back_a_drain(tmp_path):
    assert read_waits(tmp_path) == {}
    write_control(tmp_path, drain=True)
    write_topic_waits(tmp_path, {"a": 5.0})
    assert draining(tmp_path)
    assert read_waits(tmp_path) == {"a": 5.0}


# metrics


def test_records_that_may_wait_are_not_late(clock):
    metrics = Metrics(clock, process=False)
    metrics.set_waits({"cold": 60.0})
    metrics.record_committed({"cold": {"0": 5}, "hot": {"0": 5}})
    metrics._source_ts_ms["db.t"] = clock.now_ms() - 1000
    metrics.record_watermarks({("cold", 0): (0, 8), ("hot", 0): (0, 5)})

    def sample(name, labels):
        return metrics.registry.get_sample_value(f"lakeward_{name}", labels)

    def late():
        labels = {"topic": "cold"}
        return sample("source_lag_seconds", labels), sample(
            "source_lag_records", {**labels, "partition": "0"}
        )

    clock.advance(50_000)
    assert late() == (0.0, 3)
    assert metrics.freshness_s() == {"db.t": 0.0}
    clock.advance(20_000)
    metrics.record_watermarks({("cold", 0): (0, 8), ("hot", 0): (0, 5)})
    assert late() == (10.0, 3)
    assert metrics.freshness_s()["db.t"] > 0
    assert sample("source_wait_seconds", {"topic": "cold"}) == 60.0


class BusyClock(ManualClock):
    """Something happens while one sleeps."""

    def __init__(self, happens):
        super().__init__()
        self._happens = happens

    def sleep(self, seconds):
        super().sleep(seconds)
        self._happens()


@pytest.mark.parametrize(
    ("interval_s", "event", "waits_s"),
    [(0.2, "", 0.8), (2.0, "", 0.0), (0.1, "record", 0.2), (0.1, "drain", 0.2)],
)
def test_an_idle_stream_with_a_short_trigger_waits_in_its_source(
    tmp_path, monkeypatch, interval_s, event, waits_s
):
    def happens():
        if event == "record":
            put(tmp_path, "hot", 2)
        elif event == "drain":
            write_control(tmp_path / "state", drain=True)

    settings = lake_settings(tmp_path)
    pipeline = dataclasses.replace(settings.pipeline, trigger_interval_s=interval_s)
    clock, limit = BusyClock(happens), ReadMaxRows(100)
    opened = reader(tmp_path, monkeypatch, clock)
    opened._options["pipeline"] = dataclasses.replace(settings, pipeline=pipeline).to_json()
    put(tmp_path, "hot", 1)
    first, began_s = opened.latestOffset({}, limit), clock.monotonic_s()
    assert (opened.latestOffset(first, limit) != first) == (event == "record")
    assert clock.monotonic_s() - began_s == pytest.approx(waits_s)
