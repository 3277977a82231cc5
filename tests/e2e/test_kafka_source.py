# SPDX-License-Identifier: Apache-2.0
"""The Kafka source against a real broker: starts, exact ranges, lost offsets, limits."""

import itertools
import json
import time
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest
from confluent_kafka import (
    OFFSET_END,
    ConsumerGroupTopicPartitions,
    Producer,
    TopicPartition,
)
from confluent_kafka.admin import AdminClient, NewPartitions, NewTopic

from ingest.config.source_settings import KafkaSourceSettings
from ingest.observe.observe import OffsetMirror
from ingest.source import kafka_client
from ingest.source.kafka import REGRESSION_GRACE_S, KafkaSource, TopicIdentities
from ingest.source.open import LagProbe, initial_offsets, open_ranges
from ingest.source.records import RawBatch, SourceRange, normalize
from storage.clock import ManualClock
from storage.errors import DataLossError, InvalidOptionError, RetryableError
from tests.unit.ingest.walking import compiled_scan

pytestmark = pytest.mark.kafka

_NAMES = itertools.count()


class Cluster:
    """What the tests do to the broker."""

    def __init__(self, bootstrap: str) -> None:
        self.bootstrap = bootstrap
        self.admin = AdminClient({"bootstrap.servers": bootstrap})
        self.producer = self.new_producer()

    def new_producer(self) -> Producer:
        # without idempotence a retried first request lets later ones overtake it: a topic's
        # metadata is known shortly before its leader accepts records
        return Producer(
            {"bootstrap.servers": self.bootstrap, "linger.ms": 1, "enable.idempotence": True}
        )

    def topic(self, partitions: int = 1, *, name: str = "", **config) -> str:
        name = name or f"test.{next(_NAMES)}.{time.time_ns()}"
        settings = {key.replace("_", "."): str(value) for key, value in config.items()}
        self.wait(self.admin.create_topics([NewTopic(name, partitions, 1, config=settings)]))
        deadline = time.monotonic() + 10
        while len(self.admin.list_topics(name).topics[name].partitions) < partitions:
            assert time.monotonic() < deadline
            time.sleep(0.05)
        return name

    def produce(self, topic: str, values, *, partition: int = 0, producer=None, **more) -> None:
        target = producer or self.producer
        failed = []
        more["on_delivery"] = lambda error, _: error and failed.append(error)
        for value in values:
            key = b"k%d" % value if isinstance(value, int) else b"k"
            data = b"v%d" % value if isinstance(value, int) else value
            target.produce(topic, data, key, partition=partition, **more)
        target.flush()
        assert not failed, failed

    def delete_records(self, topic: str, before: int, partition: int = 0) -> None:
        self.wait(self.admin.delete_records([TopicPartition(topic, partition, before)]))

    def wait(self, futures) -> None:
        for future in futures.values():
            future.result()

    def settings(self, *topics: str, **values) -> KafkaSourceSettings:
        values.setdefault("discovery_interval_s", 0.0)
        return KafkaSourceSettings(bootstrap_servers=self.bootstrap, topics=topics, **values)


@pytest.fixture(scope="module", params=["native", "consume"])
def cluster(kafka_broker: str, request: pytest.FixtureRequest) -> Iterator[Cluster]:
    """A broker, read by both ways of taking messages from the client library."""
    with pytest.MonkeyPatch.context() as patch:
        if request.param == "native":
            compiled_scan()
            assert kafka_client._library() is not None
        else:
            patch.setattr(kafka_client, "open_queue", lambda *_: None)
        yield Cluster(kafka_broker)
    for pool in kafka_client._IDLE.values():
        for pooled in pool:
            pooled.client.close()
    kafka_client._IDLE.clear()


def source_of(
    settings: KafkaSourceSettings, checkpoint: Path | None = None
) -> tuple[KafkaSource, ManualClock]:
    clock = ManualClock()
    return KafkaSource(settings, clock, checkpoint and TopicIdentities(checkpoint)), clock


def advance(source: KafkaSource, clock: ManualClock, start: dict, **limits) -> dict:
    """The next batch's end, asked of the broker anew, and through its text as in Spark."""
    clock.advance(300)
    return normalize(json.loads(json.dumps(source.latest(start, **limits))))


def consume(piece: SourceRange, settings: KafkaSourceSettings, **more) -> Iterator[RawBatch]:
    for _, batches in kafka_client.consume([piece], settings, **more):
        yield from batches


def read(source: KafkaSource, start: dict, end: dict) -> list[tuple[str, int, int, bytes | None]]:
    rows = []
    for task in source.plan(start, end):
        for _, batches in open_ranges(task, source._settings):
            for batch in batches:
                rows += [
                    (batch.topic, batch.partition, offset, value)
                    for offset, value in zip(batch.offsets, batch.values, strict=True)
                ]
    return rows


def values(rows) -> list[int]:
    return [int(value[1:]) for *_, value in rows]


def offsets(rows) -> list[int]:
    return [offset for _, _, offset, _ in rows]


def test_startup_modes(cluster):
    topic = cluster.topic(2)
    cluster.produce(topic, range(10), timestamp=1_000_000)
    cluster.produce(topic, range(10, 15), timestamp=2_000_000)
    cluster.delete_records(topic, 3)

    def initial(mode, **more):
        return initial_offsets(cluster.settings(topic, startup_mode=mode, **more), None)

    assert initial("earliest") == {topic: {"0": 3, "1": 0}}
    assert initial("latest") == {topic: {"0": 15, "1": 0}}
    assert initial("timestamp", startup_timestamp_ms=1_500_000) == {topic: {"0": 10, "1": 0}}
    assert initial("timestamp", startup_timestamp_ms=9_000_000) == {topic: {"0": 15, "1": 0}}
    specific = {topic: {"0": 7}}
    assert initial("specific-offsets", startup_offsets=specific) == {topic: {"0": 7, "1": 0}}
    named = {topic: {"0": -1, "1": -2}}
    assert initial("specific-offsets", startup_offsets=named) == {topic: {"0": 15, "1": 0}}
    for wrong in ({topic: {"0": 2}}, {topic: {"0": 16}}, {topic: {"7": 0}}, {"other": {"0": 0}}):
        with pytest.raises(InvalidOptionError, match="startup offset"):
            initial("specific-offsets", startup_offsets=wrong)
    assert initial_offsets(cluster.settings(topic), {topic: {"0": 9}}) == {topic: {"0": 9}}


def test_a_range_gives_the_same_records_on_every_read_whoever_reads(cluster):
    topic = cluster.topic()
    cluster.produce(topic, range(12_000))
    source, clock = source_of(cluster.settings(topic, parallelism=4))
    start = source.initial()
    end = advance(source, clock, start)
    first = read(source, start, end)
    assert offsets(first) == list(range(12_000))
    assert values(first) == list(range(12_000))
    cluster.produce(topic, range(12_000, 12_100))
    assert read(source, start, end) == first
    other = KafkaSource(cluster.settings(topic, parallelism=1, properties={"client.id": "other"}))
    assert read(other, start, end) == first
    piece = SourceRange(topic, 0, 11_990, 12_005)
    assert [offset for b in consume(piece, source._settings) for offset in b.offsets] == list(
        range(11_990, 12_005)
    )


def test_a_large_backlog_of_one_partition_is_read_by_several_tasks(cluster):
    topic = cluster.topic()
    cluster.produce(topic, range(40_000))
    source, clock = source_of(cluster.settings(topic, parallelism=4))
    start = source.initial()
    end = advance(source, clock, start)
    tasks = source.plan(start, end)
    assert [[(p.start, p.end) for p in task] for task in tasks] == [
        [(0, 10_000)],
        [(10_000, 20_000)],
        [(20_000, 30_000)],
        [(30_000, 40_000)],
    ]
    rows = read(source, start, end)
    assert offsets(rows) == list(range(40_000))
    assert values(rows) == list(range(40_000))


def test_keys_tombstones_headers_and_timestamps(cluster):
    topic = cluster.topic()
    cluster.producer.produce(topic, None, b"gone", headers=[("a", b"1"), ("n", None)], timestamp=17)
    cluster.producer.produce(topic, b"x", None)
    cluster.producer.flush()
    batches = consume(SourceRange(topic, 0, 0, 2), cluster.settings(topic))
    batch = next(batches)
    assert (list(batch.keys), batch.values) == ([b"gone", None], [None, b"x"])
    assert batch.headers(0) == [("a", b"1"), ("n", b"")]
    assert batch.headers(1) == []
    native = isinstance(batch._messages, kafka_client._Messages)
    assert batch.with_headers(np.array([1, 0])) == ([0] if native else [1, 0])
    assert batch.timestamp_ms(0) == 17
    assert batch.timestamp_ms(1) > 1_600_000_000_000
    assert list(batches) == []


def test_large_records_make_small_batches(cluster):
    topic = cluster.topic()
    cluster.produce(topic, [b"x" * 200_000] * 60)
    batches = list(consume(SourceRange(topic, 0, 0, 60), cluster.settings(topic)))
    assert sum(map(len, batches)) == 60
    assert all(len(batch) <= 21 for batch in batches[1:])


def transaction(cluster, topic, numbers, *, commit=True, name="tx"):
    producer = Producer(
        {"bootstrap.servers": cluster.bootstrap, "transactional.id": f"{name}{topic}"}
    )
    producer.init_transactions()
    producer.begin_transaction()
    cluster.produce(topic, numbers, producer=producer)
    if commit is None:
        return producer
    (producer.commit_transaction if commit else producer.abort_transaction)()
    return None


def test_transactions_leave_gaps_that_ranges_pass_over(cluster):
    topic = cluster.topic()
    transaction(cluster, topic, [0, 1, 2])  # marker at 3
    transaction(cluster, topic, [90, 91], commit=False)  # 4, 5, marker at 6
    transaction(cluster, topic, [7, 8])  # marker at 9: the log ends with it
    source, clock = source_of(cluster.settings(topic))
    start = source.initial()
    end = advance(source, clock, start)
    assert end == {topic: {"0": 10}}
    started = time.monotonic()
    rows = read(source, start, end)
    assert time.monotonic() - started < 3
    assert offsets(rows) == values(rows) == [0, 1, 2, 7, 8]
    for low, high in itertools.combinations(range(11), 2):
        got = read(source, {topic: {"0": low}}, {topic: {"0": high}})
        assert offsets(got) == [n for n in (0, 1, 2, 7, 8) if low <= n < high]


def test_an_aborted_transaction_alone_is_an_empty_range(cluster):
    topic = cluster.topic()
    transaction(cluster, topic, range(500), commit=False)
    source, clock = source_of(cluster.settings(topic))
    start = source.initial()
    end = advance(source, clock, start)
    assert end == {topic: {"0": 501}}
    assert read(source, start, end) == []


def test_an_open_transaction_holds_the_end_back(cluster):
    topic = cluster.topic()
    cluster.produce(topic, range(3))
    producer = transaction(cluster, topic, [3, 4], commit=None, name="open")
    cluster.produce(topic, [5])
    source, clock = source_of(cluster.settings(topic))
    start = source.initial()
    end = advance(source, clock, start)
    assert end == {topic: {"0": 3}}
    assert values(read(source, start, end)) == [0, 1, 2]
    producer.commit_transaction()
    deadline = time.monotonic() + 10
    while (later := advance(source, clock, end)) == end:  # markers are written after the answer
        assert time.monotonic() < deadline
        time.sleep(0.05)
    assert values(read(source, end, later)) == [3, 4, 5]


def test_compaction_leaves_gaps_that_ranges_pass_over(cluster):
    topic = cluster.topic(
        cleanup_policy="compact",
        segment_ms=100,
        min_cleanable_dirty_ratio="0.001",
        max_compaction_lag_ms=100,
        delete_retention_ms=0,
    )
    for number in range(6):
        cluster.producer.produce(topic, b"v%d" % number, b"same")
        cluster.producer.flush()
    time.sleep(0.2)
    cluster.produce(topic, [6])
    source, _ = source_of(cluster.settings(topic))
    start, end = {topic: {"0": 0}}, {topic: {"0": 7}}
    deadline = time.monotonic() + 30
    while len(rows := read(source, start, end)) > 2:
        assert time.monotonic() < deadline, "the broker did not compact"
        time.sleep(0.2)
        cluster.produce(topic, [6])  # rolls the segment
    assert offsets(rows)[0] == 5
    assert read(source, {topic: {"0": 2}}, {topic: {"0": 4}}) == []


def test_deleted_records_stop_the_stream(cluster):
    topic = cluster.topic()
    cluster.produce(topic, range(100))
    source, clock = source_of(cluster.settings(topic))
    start = source.initial()
    cluster.delete_records(topic, 40)
    with pytest.raises(DataLossError) as caught:
        advance(source, clock, start)
    assert caught.value.context == {
        "topic": topic,
        "partition": 0,
        "wanted": 0,
        "earliest": 40,
        "latest": 100,
    }
    assert "fail.on.data.loss" in caught.value.hint
    # planned before they were deleted: the task tells the same
    with pytest.raises(DataLossError, match="wanted=`0` earliest=`40`"):
        read(source, start, {topic: {"0": 60}})


def test_deleted_records_are_skipped_and_counted_when_that_is_allowed(cluster):
    topic = cluster.topic()
    cluster.produce(topic, range(100))
    settings = cluster.settings(topic, fail_on_data_loss=False)
    source, clock = source_of(settings)
    start = source.initial()
    cluster.delete_records(topic, 40)
    end = advance(source, clock, start, max_records=10)
    assert end == {topic: {"0": 50}}
    assert values(read(source, start, end)) == list(range(40, 50))
    [batch] = consume(SourceRange(topic, 0, 10, 60), settings)
    assert (batch.skipped, batch.offsets[0], batch.offsets[-1]) == (30, 40, 59)
    [batch] = consume(SourceRange(topic, 0, 10, 30), settings)
    assert (len(batch), batch.skipped) == (0, 20)
    cluster.wait(cluster.admin.delete_records([TopicPartition(topic, 0, OFFSET_END)]))
    assert advance(source, clock, end) == {topic: {"0": 100}}


def test_idle_consumers_of_former_settings_are_closed(cluster):
    topic = cluster.topic()
    cluster.produce(topic, range(5))
    piece = SourceRange(topic, 0, 0, 5)
    former = cluster.settings(topic)
    list(consume(piece, former))
    [pooled] = kafka_client._IDLE[former.to_json()]
    settings = cluster.settings(topic, fail_on_data_loss=False)
    assert [offset for batch in consume(piece, settings) for offset in batch.offsets] == [*range(5)]
    assert set(kafka_client._IDLE) == {settings.to_json()}
    with pytest.raises(RuntimeError, match="closed"):
        pooled.client.poll(0)


def recreate(cluster, topic, values):
    cluster.wait(cluster.admin.delete_topics([topic]))
    time.sleep(0.5)
    cluster.topic(name=topic)
    # an idempotent producer would continue the sequence numbers of the deleted topic
    cluster.produce(topic, values, producer=cluster.new_producer())


def test_a_topic_created_anew_stops_the_stream_or_is_read_from_its_beginning(cluster):
    topic = cluster.topic()
    cluster.produce(topic, range(100))
    strict, clock = source_of(cluster.settings(topic))
    lossy, lossy_clock = source_of(cluster.settings(topic, fail_on_data_loss=False))
    end = advance(strict, clock, strict.initial())
    assert advance(lossy, lossy_clock, end) == end == {topic: {"0": 100}}
    recreate(cluster, topic, range(10))
    # a short dip is no loss: it could be a change of leader
    assert advance(strict, clock, end) == end
    assert advance(lossy, lossy_clock, end) == end
    clock.advance(int(REGRESSION_GRACE_S * 1000))
    with pytest.raises(DataLossError, match="wanted=`100` earliest=`0` latest=`10`"):
        advance(strict, clock, end)
    lossy_clock.advance(int(REGRESSION_GRACE_S * 1000))
    after = advance(lossy, lossy_clock, end)
    assert after == {topic: {"0": 10}}
    assert values(read(lossy, end, after)) == list(range(10))
    cluster.produce(topic, [10])
    assert values(read(lossy, after, advance(lossy, lossy_clock, after))) == [10]


def test_a_topic_created_anew_that_grew_past_the_old_one_is_known_by_its_id(cluster, tmp_path):
    topic = cluster.topic()
    cluster.produce(topic, range(5))
    strict_settings = cluster.settings(topic)
    lossy_settings = cluster.settings(topic, fail_on_data_loss=False)
    strict, clock = source_of(strict_settings, tmp_path / "strict")
    lossy, lossy_clock = source_of(lossy_settings, tmp_path / "lossy")
    end = advance(strict, clock, strict.initial())
    assert advance(lossy, lossy_clock, strict.initial()) == end == {topic: {"0": 5}}
    recreate(cluster, topic, range(8))
    for source in (strict, source_of(strict_settings, tmp_path / "strict")[0]):
        with pytest.raises(DataLossError, match="re-created"):
            advance(source, clock, end)
    with pytest.raises(DataLossError, match="re-created"):  # planned by an earlier process
        source_of(strict_settings, tmp_path / "strict")[0].plan({topic: {"0": 3}}, end)
    found = []
    for _ in range(3):
        after = advance(lossy, lossy_clock, end)
        found += values(read(lossy, end, after))
        end = after
    assert found == list(range(8))


def test_a_topic_that_is_gone_stops_the_stream_after_a_while(cluster):
    topic = cluster.topic()
    cluster.produce(topic, range(5))
    strict, clock = source_of(cluster.settings(topic))
    end = advance(strict, clock, strict.initial())
    cluster.wait(cluster.admin.delete_topics([topic]))
    time.sleep(0.5)
    assert advance(strict, clock, end) == end
    assert advance(strict, clock, end) == end
    clock.advance(int(REGRESSION_GRACE_S * 1000))
    with pytest.raises(DataLossError, match=topic):
        advance(strict, clock, end)


def test_a_range_whose_end_was_cut_off_fails_instead_of_waiting_for_ever(cluster):
    topic = cluster.topic()
    cluster.produce(topic, range(10))
    piece = SourceRange(topic, 0, 5, 20)
    with pytest.raises(DataLossError, match="wanted=`10`"):
        list(consume(piece, cluster.settings(topic), stall_s=1))
    lossy = cluster.settings(topic, fail_on_data_loss=False)
    batches = list(consume(piece, lossy, stall_s=1))
    assert [(len(batch), batch.skipped) for batch in batches] == [(5, 0), (0, 10)]
    with pytest.raises(DataLossError, match="wanted=`50`"):
        list(consume(SourceRange(topic, 0, 50, 60), cluster.settings(topic), stall_s=1))


def test_new_topics_and_partitions_enter_at_their_beginning(cluster):
    prefix = f"found.{time.time_ns()}"
    first = cluster.topic(name=f"{prefix}.a")
    cluster.produce(first, range(5))
    settings = KafkaSourceSettings(
        bootstrap_servers=cluster.bootstrap,
        topics_pattern=rf"{prefix}\..*",
        topics_exclude=(r".*\.outbox",),
        startup_mode="latest",
        discovery_interval_s=10,
    )
    source, clock = source_of(settings)
    start = source.initial()
    assert start == {first: {"0": 5}}
    second = cluster.topic(name=f"{prefix}.b")
    cluster.topic(name=f"{prefix}.outbox")
    cluster.produce(second, range(20))
    cluster.delete_records(second, 10)
    cluster.wait(cluster.admin.create_partitions([NewPartitions(first, 2)]))
    time.sleep(0.3)
    fresh = Producer(
        {"bootstrap.servers": cluster.bootstrap, "enable.idempotence": True}
    )  # knows the new partition
    cluster.produce(first, [7], partition=1, producer=fresh)
    assert advance(source, clock, start) == start  # not looked for yet
    clock.advance(10_000)
    entered = advance(source, clock, start)
    assert entered == {first: {"0": 5, "1": 0}, second: {"0": 10}}
    assert source.plan(start, entered) == []
    end = advance(source, clock, entered)
    assert end == {first: {"0": 5, "1": 1}, second: {"0": 20}}
    assert values(read(source, entered, end)) == [7, *range(10, 20)]


def test_topics_that_do_not_exist_yet_are_waited_for(cluster):
    topic = f"late.{time.time_ns()}"
    source, clock = source_of(cluster.settings(topic))
    assert source.initial() == {}
    assert advance(source, clock, {}) == {}
    cluster.topic(name=topic)
    cluster.produce(topic, [1])
    start = advance(source, clock, {})
    assert start == {topic: {"0": 0}}
    assert values(read(source, start, advance(source, clock, start))) == [1]


def test_a_deselected_topic_keeps_its_place(cluster):
    one, two = cluster.topic(), cluster.topic()
    cluster.produce(one, range(3))
    cluster.produce(two, range(3))
    source, clock = source_of(cluster.settings(one))
    assert advance(source, clock, {one: {"0": 0}, two: {"0": 1}}) == {one: {"0": 3}, two: {"0": 1}}


def test_row_and_byte_limits_are_shared_fairly(cluster):
    topic = cluster.topic(2)
    cluster.produce(topic, range(1000), partition=0)
    cluster.produce(topic, [b"x" * 10_000] * 1000, partition=1)
    source, clock = source_of(cluster.settings(topic))
    start = source.initial()
    assert advance(source, clock, start, max_records=100) == {topic: {"0": 50, "1": 50}}
    end = advance(source, clock, start, max_bytes=1_000_000)
    assert end[topic]["0"] == 1000  # a thousand small records are far below half of it
    assert 60 <= end[topic]["1"] <= 100
    size = sum(len(value) for *_, value in read(source, start, end))
    assert 0.5e6 < size < 1.1e6
    # progress although a single record is above the limit
    assert advance(source, clock, start, max_bytes=10) == {topic: {"0": 1, "1": 1}}


def test_the_partition_that_answers_first_does_not_stand_for_the_others(cluster):
    topic = cluster.topic(12)
    for partition in range(11):
        cluster.produce(topic, range(2000), partition=partition)
    cluster.produce(topic, [b"x" * 10_000] * 300, partition=11)
    source, clock = source_of(cluster.settings(topic))
    start = source.initial()
    end = advance(source, clock, start, max_bytes=1_500_000)
    size = sum(len(value) for *_, value in read(source, start, end))
    assert 0.1e6 < size < 1.5e6


def test_a_partition_whose_records_cannot_be_read_is_not_waited_for(cluster):
    """With a fixed time to wait for a first answer this took three seconds."""
    topic = cluster.topic(2)
    transaction(cluster, topic, range(500), commit=False)
    cluster.produce(topic, [b"x" * 10_000] * 300, partition=1)
    source, clock = source_of(cluster.settings(topic))
    start = source.initial()
    advance(source, clock, start)  # connected
    began = time.monotonic()
    end = advance(source, clock, start, max_bytes=1_000_000)
    assert time.monotonic() - began < 2
    assert 20 <= end[topic]["1"] <= 100, "sized by its own records"
    assert end[topic]["0"] > 0, "and the stream passes over what cannot be read"


def test_batches_follow_each_other_without_gap_or_overlap(cluster):
    topic = cluster.topic(3)
    for partition in range(3):
        cluster.produce(topic, range(100), partition=partition)
    source, clock = source_of(cluster.settings(topic))
    start = source.initial()
    seen = []
    while (end := advance(source, clock, start, max_records=70)) != start:
        rows = read(source, start, end)
        assert len(rows) <= 70
        seen += rows
        start = end
    assert sorted((p, o) for _, p, o, _ in seen) == [(p, o) for p in range(3) for o in range(100)]


def test_a_frozen_source_drains_to_a_fixed_end(cluster):
    topic = cluster.topic()
    cluster.produce(topic, range(10))
    source, clock = source_of(cluster.settings(topic))
    start = source.initial()
    source.freeze()
    cluster.produce(topic, range(10, 20))
    end = advance(source, clock, start, max_records=6)
    assert end == {topic: {"0": 6}}
    end = advance(source, clock, end, max_records=6)
    assert end == {topic: {"0": 10}}
    assert advance(source, clock, end) == end


def test_brokers_that_do_not_answer(cluster, monkeypatch):
    monkeypatch.setattr("ingest.source.kafka._REQUEST_TIMEOUT_S", 0.5)
    settings = KafkaSourceSettings(
        bootstrap_servers="127.0.0.1:1", topics=("t",), properties={"log_level": "0"}
    )
    source, clock = source_of(settings)
    with pytest.raises(RetryableError, match="kafka did not answer"):
        source.initial()
    start = {"t": {"0": 5}}
    assert advance(source, clock, start) == start
    assert source.available(start) == start
    with pytest.raises(RetryableError):
        source.freeze()
    with pytest.raises(RetryableError, match="position=`0` end=`5`"):
        list(consume(SourceRange("t", 0, 0, 5), settings, stall_s=0.5))


def test_lag_and_cached_watermarks(cluster):
    topic = cluster.topic()
    cluster.produce(topic, range(7))
    cluster.delete_records(topic, 2)
    clock = ManualClock()
    with LagProbe(cluster.settings(topic), clock) as probe:
        assert probe.poll() == {(topic, 0): (2, 7)}
        cluster.produce(topic, range(3))
        assert probe.poll() == {(topic, 0): (2, 7)}
        clock.advance(300)
        assert probe.poll() == {(topic, 0): (2, 10)}
    source, clock = source_of(cluster.settings(topic))
    assert source.available({topic: {"0": 4}}) == {topic: {"0": 10}}


def test_consumers_are_reused_between_ranges_and_dropped_when_a_reader_stops(cluster):
    topic = cluster.topic()
    cluster.produce(topic, range(2000))
    settings = cluster.settings(topic, properties={"client.id": "reuse"})
    key = settings.to_json()
    list(consume(SourceRange(topic, 0, 0, 10), settings))
    [first] = kafka_client._IDLE[key]
    list(consume(SourceRange(topic, 0, 5, 15), settings))
    assert kafka_client._IDLE[key] == [first]
    one, two = (consume(SourceRange(topic, 0, 0, 2000), settings) for _ in range(2))
    first_batch = next(one)
    assert first_batch.offsets[0] == next(two).offsets[0] == 0  # side by side
    assert len(first_batch) + sum(map(len, one)) == 2000
    two.close()
    assert kafka_client._IDLE[key] == [first]
    assert json.loads(key)["properties"] == {"client.id": "reuse"}


def test_the_next_range_is_fetched_near_the_end_of_one(cluster):
    topic = cluster.topic(3)
    for number in range(3):
        cluster.produce(topic, range(20_000), partition=number)
    settings = cluster.settings(topic, properties={"client.id": "ahead"})
    pool = kafka_client._IDLE.setdefault(settings.to_json(), [])
    pieces = [SourceRange(topic, 0, 0, 20_000), *(SourceRange(topic, n, 5, 9) for n in (1, 2, 0))]
    read = []
    for piece, batches in kafka_client.consume(pieces, settings):
        offsets = [offset for batch in batches for offset in batch.offsets]
        read.append((piece.partition, offsets[0], offsets[-1] + 1, len(offsets)))
    assert read == [(0, 0, 20_000, 20_000), (1, 5, 9, 4), (2, 5, 9, 4), (0, 5, 9, 4)]
    assert len(pool) == 2
    ranges = kafka_client.consume(pieces, settings)
    next(next(ranges)[1])
    assert len(pool) == 1  # far from the end
    ranges.close()
    ranges = kafka_client.consume(pieces[1:], settings)
    batches = next(ranges)[1]
    next(batches)
    assert len(pool) == 0  # both are at work, and neither is left open
    batches.close()
    ranges.close()
    assert pool == []


def test_offsets_are_shown_as_those_of_a_group(cluster):
    topic = cluster.topic(2)
    group = f"lag-of-{topic}"
    source = KafkaSourceSettings(bootstrap_servers=cluster.bootstrap, topics=(topic,))
    mirror = OffsetMirror(source, group)
    mirror.commit({topic: {"0": 3, "1": 8}})
    mirror.commit({topic: {"0": 5}})

    def shown() -> dict[int, int]:
        asked = [ConsumerGroupTopicPartitions(group)]
        answer = cluster.admin.list_consumer_group_offsets(asked)[group].result(10)
        return {each.partition: each.offset for each in answer.topic_partitions}

    deadline = time.monotonic() + 30
    while shown() != {0: 5, 1: 8}:
        assert time.monotonic() < deadline, shown()
        time.sleep(0.1)
    mirror.close()
