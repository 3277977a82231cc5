# SPDX-License-Identifier: Apache-2.0
"""Copies of bad records in a topic: what they hold, what is cut, what fails, what is sent again."""

import dataclasses
import datetime

import pytest
from confluent_kafka import KafkaError, KafkaException

from ingest.config.source_settings import KafkaSourceSettings
from ingest.daemon.configuration import load_settings
from ingest.pipeline import dead_letters
from ingest.pipeline.dead_letters import DeadLetter, DeadLetters, letter_of
from storage.clock import ManualClock
from storage.errors import InvalidOptionError, RetryableError
from tests.unit.ingest.simulated_stream import SimulatedStream, event

SOURCE = KafkaSourceSettings(bootstrap_servers="nowhere:1", topics=("t",))


class Broker:
    """In place of a producer and the topic behind it."""

    def __init__(self):
        self.messages = []
        self.largest = 10**9
        self.away = False
        self.waiting = []
        self.config = {}

    def __call__(self, config, logger):
        self.config = config
        return self

    def produce(self, topic, key, value, headers, timestamp, on_delivery):
        if len(value or b"") > 1_000_000:
            raise KafkaException(KafkaError(KafkaError.MSG_SIZE_TOO_LARGE))
        self.waiting.append((dict(headers), key, value, timestamp, on_delivery))

    def poll(self, seconds):
        return 0

    def flush(self, seconds):
        waiting, self.waiting = self.waiting, []
        for headers, key, value, timestamp, on_delivery in waiting:
            if self.away:
                on_delivery(KafkaError(KafkaError._MSG_TIMED_OUT), None)
            elif len(key or b"") + len(value or b"") > self.largest:
                on_delivery(KafkaError(KafkaError.MSG_SIZE_TOO_LARGE), None)
            else:
                self.messages.append((headers, key, value, timestamp))
                on_delivery(None, None)
        return 0


@pytest.fixture
def broker(monkeypatch):
    broker = Broker()
    monkeypatch.setattr(dead_letters, "Producer", broker)
    return broker


@pytest.fixture
def letters(broker):
    return DeadLetters(SOURCE, "dead", ManualClock())


ROW = {
    "topic": "t",
    "partition": 1,
    "offset": 42,
    "timestamp": datetime.datetime(2026, 1, 1, tzinfo=datetime.UTC),
    "key": b"k",
    "value": b"v",
    "headers": '[["trace","1"]]',
    "error_class": "type",
    "error": "no number",
    "target": "shop.orders",
}


def test_a_copy_holds_the_record_and_why_it_is_bad(letters, broker):
    assert letters.send([letter_of(ROW)]) == 1
    assert broker.messages == [
        (
            {
                "trace": b"1",
                "lakeward.error.class": b"type",
                "lakeward.error": b"no number",
                "lakeward.topic": b"t",
                "lakeward.partition": b"1",
                "lakeward.offset": b"42",
                "lakeward.target": b"shop.orders",
            },
            b"k",
            b"v",
            1_767_225_600_000,
        )
    ]
    assert broker.config["acks"] == "all"
    assert "group.id" not in broker.config
    bare = letter_of({**ROW, "target": None, "headers": None, "timestamp": None, "value": None})
    assert "lakeward.target" not in dict(bare.own_headers)
    assert (bare.timestamp_ms, bare.value) == (0, None)


def test_what_is_too_large_is_cut_and_says_so(letters, broker):
    letters.send([letter_of({**ROW, "value": b"x" * 3_000_000})])
    headers, key, value, _ = broker.messages.pop()
    assert headers["lakeward.value.truncated"] == b"3000000"
    assert (key, 900_000 < len(value) < 1_000_000) == (b"k", True)
    broker.largest = 50_000
    count = letters.send([letter_of({**ROW, "value": b"x" * 3_000_000}), letter_of(ROW)])
    assert count == 2
    sizes = sorted(len(value) for _, _, value, _ in broker.messages)
    assert (sizes[0], 10_000 < sizes[1] <= 50_000) == (1, True)
    whole = DeadLetter(b"k" * 9000, b"v", (("h", b"x" * 9000),), (), 0).truncated_to(10_000)
    assert len(whole.key) < 3_000
    assert dict(whole.own_headers) == {
        "lakeward.headers.dropped": b"1",
        "lakeward.key.truncated": b"9000",
    }


def test_a_topic_that_takes_nothing_is_tried_again_not_forgotten(letters, broker):
    broker.largest = 0
    with pytest.raises(RetryableError, match="could not be copied"):
        letters.send([letter_of(ROW)])
    broker.largest, broker.away = 10, True
    with pytest.raises(RetryableError, match="could not be copied"):
        letters.send([letter_of(ROW)])
    broker.away = False
    assert letters.send([letter_of(ROW)]) == 1, "and works again afterwards"


@pytest.mark.parametrize("steps", [None, *range(14)])
def test_every_bad_record_is_copied_before_its_batch_is_recorded(
    tmp_path, monkeypatch, letters, broker, steps
):
    stream = SimulatedStream(tmp_path, monkeypatch)
    start = stream._start

    def with_letters():
        start()
        stream.sink._dead_letters = letters

    monkeypatch.setattr(stream, "_start", with_letters)
    stream.open()
    stream.topics.add("a", 0, *event("orders", 1, 1))
    stream.batch()
    stream.batch()
    for record in (event("orders", 2, 1), (b"k", b"{broken"), event("orders", 3, [1, {}])):
        stream.topics.add("a", 0, *record)
    broker.away = True
    with pytest.raises(RetryableError):
        stream.batch()
    assert stream.rows("shop.orders") == {1: 1, 2: 1}, "committed, but not recorded"
    broker.away, stream.fuse.left = False, steps
    for _ in range(3):
        stream.batch()
    offsets = {int(headers["lakeward.offset"]) for headers, *_ in broker.messages}
    assert offsets == {2, 3}
    stream.topics.add("a", 0, b"k", b"{broken again")
    before = len(broker.messages)
    stream.fuse.left = None
    stream.batch()
    assert [int(m[0]["lakeward.offset"]) for m in broker.messages[before:]] == [4]


def test_only_a_topic_that_can_work_is_taken(tmp_path):
    path = tmp_path / "shop.yaml"

    def settings(source):
        path.write_text(
            f"source: {source}\nsink: {{warehouse: {tmp_path}}}\npipeline: {{name: shop}}\n"
            "bad.records: {topic: shop.dead}\n"
        )
        return load_settings(path)

    with pytest.raises(InvalidOptionError, match="requires a Kafka source"):
        settings(f"{{type: files, path: {tmp_path}}}")
    with pytest.raises(InvalidOptionError, match="the source reads"):
        settings("{type: kafka, bootstrap.servers: 'k:1', topics.pattern: 'shop[.].*'}")
    taken = settings("{type: kafka, bootstrap.servers: 'k:1', topics: [shop.orders]}")
    assert DeadLetters.of(taken, ManualClock()) is not None
    none = dataclasses.replace(
        taken, bad_records=dataclasses.replace(taken.bad_records, topic=None)
    )
    assert DeadLetters.of(none, ManualClock()) is None
