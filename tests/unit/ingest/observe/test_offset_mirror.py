# SPDX-License-Identifier: Apache-2.0
"""Offsets shown as a group's: the newest count, and nobody waits for a broker."""

import dataclasses
import threading
from types import SimpleNamespace

import pytest
from confluent_kafka import Consumer, KafkaError, KafkaException, Producer, TopicPartition

from ingest.config.source_settings import KafkaSourceSettings
from ingest.observe import observe
from ingest.observe.observe import Observer, OffsetMirror
from storage.clock import ManualClock
from tests.unit.ingest.lake_settings import lake_settings


class Broker:
    """Takes offsets when it is let, and fails as often as it is told."""

    def __init__(self):
        self.open = threading.Event()
        self.failures = 0
        self.refused = set()
        self.commits = []
        self.config = None
        self.closed = False

    def __call__(self, config):
        self.config = config
        return self

    def commit(self, *, offsets, asynchronous):
        assert not asynchronous
        assert self.open.wait(10)
        if self.failures:
            self.failures -= 1
            raise KafkaException(KafkaError(KafkaError._TRANSPORT))
        answers = [
            SimpleNamespace(
                topic=one.topic,
                partition=one.partition,
                offset=one.offset,
                error="no leader" if one.partition in self.refused else None,
            )
            for one in offsets
        ]
        self.refused = set()
        self.commits.append({(o.topic, o.partition): o.offset for o in answers if not o.error})
        return answers

    def close(self):
        self.closed = True


@pytest.fixture
def broker():
    return Broker()


@pytest.fixture
def mirror(broker, monkeypatch):
    monkeypatch.setattr(observe, "_RETRY_S", 0.01)
    source = KafkaSourceSettings(
        bootstrap_servers="b:9092", topics=("t",), properties={"group.id": "mine"}
    )
    return OffsetMirror(source, "shop-lag", broker)


def test_a_batch_does_not_wait_and_the_newest_offsets_count(broker, mirror):
    for offset in range(1000):
        mirror.commit({"t": {"0": offset, "1": 2 * offset}})
    broker.open.set()
    mirror.close()
    assert len(broker.commits) <= 3
    assert broker.commits[-1] == {("t", 0): 999, ("t", 1): 1998}
    assert broker.config["group.id"] == "shop-lag"
    assert broker.closed


def test_what_failed_is_tried_again_without_newer_ones_going_back(broker, mirror):
    broker.failures = 3
    broker.open.set()
    mirror.commit({"t": {"0": 5, "1": 7}})
    mirror.commit({"t": {"0": 6}})
    for _ in range(500):
        if broker.commits:
            break
        threading.Event().wait(0.01)
    mirror.close()
    final = {}
    for commit in broker.commits:
        final |= commit
    assert final == {("t", 0): 6, ("t", 1): 7}


def test_a_partition_that_was_refused_is_tried_again(broker, mirror):
    broker.refused = {1}
    broker.open.set()
    mirror.commit({"t": {"0": 5, "1": 7}})
    for _ in range(500):
        if len(broker.commits) == 2:
            break
        threading.Event().wait(0.01)
    mirror.close()
    assert broker.commits == [{("t", 0): 5}, {("t", 1): 7}]


def test_nothing_to_tell_connects_nowhere(broker, mirror):
    mirror.commit({})
    mirror.close()
    assert broker.config is None


def test_an_end_is_not_held_up_by_a_broker_that_is_away(broker, mirror, monkeypatch):
    monkeypatch.setattr(observe, "_CLOSE_S", 0.05)
    mirror.commit({"t": {"0": 1}})
    mirror.close()
    assert broker.commits == []
    broker.open.set()


def test_a_reload_takes_the_new_credentials(tmp_path):
    kafka = KafkaSourceSettings(bootstrap_servers="b:1", topics=("t",))
    settings = lake_settings(tmp_path)
    life = dataclasses.replace(settings.life, offsets_group="lag")
    observer = Observer(dataclasses.replace(settings, source=kafka, life=life), ManualClock())
    kafka = dataclasses.replace(kafka, properties={"sasl.password": "new"})
    observer.use_settings(dataclasses.replace(settings, source=kafka, life=life))
    assert observer._mirror._config["sasl.password"] == "new"


def test_a_client_of_the_group_sees_them():
    cluster = Producer({"test.mock.num.brokers": 1, "log_level": 0})  # the library's own
    for partition in (0, 1):
        cluster.produce("t", b"x", partition=partition)
    cluster.flush(10)
    broker = next(iter(cluster.list_topics(timeout=10).brokers.values()))
    address = f"{broker.host}:{broker.port}"
    mirror = OffsetMirror(KafkaSourceSettings(bootstrap_servers=address, topics=("t",)), "lag")
    mirror.commit({"t": {"0": 3, "1": 8}})
    mirror.commit({"t": {"0": 5}})
    mirror.close()
    other = Consumer({"bootstrap.servers": address, "group.id": "lag"})
    places = [TopicPartition("t", partition) for partition in (0, 1)]
    try:
        assert [each.offset for each in other.committed(places, timeout=10)] == [5, 8]
    finally:
        other.close()
