# SPDX-License-Identifier: Apache-2.0
"""Drills in which the fault is Kafka's."""

import time

import pytest

from ingest.errors import ExitCode
from ingest.tools.demo.shop import Mix
from tests.e2e.shop_stream import recreate_topics

pytestmark = [pytest.mark.kafka, pytest.mark.spark, pytest.mark.full]

OUTAGE_S = 60.0
WRITES_ONLY = Mix(insert=0.4, update=0.6, delete=0.0, key_change=0.0)


def recreate_topic(on, broker):
    topic = on.topics[2]
    on.topics_go([topic])
    recreate_topics(broker.address, [topic], 2)


def may_skip(on):
    """A person allows to go on without what is gone, and starts it."""
    on.configure(source={"fail.on.data.loss": False})
    on.start()


def test_broker_restarts(stage, broker):
    on = stage()
    on.produce(2_000, snapshot=300)
    on.stream.corruption()
    on.start()
    on.caught_up()
    on.produce(6_000)
    with on.fault():
        broker.stop()
        on.until(lambda: on.shows("source_errors_total") > 0, "the poll fails", 40)
        broker.start()
    on.produce(1_000)
    on.caught_up()
    on.finish()


def test_broker_is_down_for_a_minute(stage, broker):
    on = stage(pipeline={"trigger": {"interval": "500ms", "max.records": 3_000}})
    on.produce(1_000, snapshot=300)
    on.start()
    on.caught_up()
    on.produce(150_000)  # many batches: records wait, and that is known, when the broker is killed
    on.lag_is_seen()
    on.batch_begins()
    with on.fault():
        broker.kill()
        deadline = time.monotonic() + OUTAGE_S
        while time.monotonic() < deadline:
            assert on.running.alive, on.running.log_tail()
            time.sleep(1.0)
        broker.start()
    on.produce(1_000)
    on.caught_up()
    on.finish()


def test_topic_is_recreated(stage, broker):
    """The new one is shorter than what was read of the old one."""
    on = stage()
    on.produce(4_000, snapshot=300)
    on.start()
    on.caught_up()
    with on.fault():
        recreate_topic(on, broker)
        on.produce(200)
        assert on.ended() == ExitCode.DATA
    may_skip(on)
    on.caught_up()
    on.produce(200)
    on.caught_up()
    on.finish()


def test_topic_is_recreated_and_grows_past_the_old_one(stage, broker):
    """Offsets alone do not show it: the new log has the offset at which the old one was left."""
    on = stage()
    on.produce(1_000, snapshot=100)
    on.start()
    on.caught_up()
    on.terminate()
    with on.fault():
        recreate_topic(on, broker)
        on.produce(6_000)
        on.start()
        assert on.ended() == ExitCode.DATA
    may_skip(on)
    on.caught_up()
    on.finish()


def test_retention_passes_the_offsets(stage, broker):
    on = stage()
    on.produce(2_000, snapshot=300)
    on.start()
    on.caught_up()
    on.terminate()
    before = broker.ends(on.topics)
    on.stream.changes(3_000, mix=WRITES_ONLY)
    taken = broker.ends(on.topics)
    on.stream.changes(500, mix=WRITES_ONLY)
    with on.fault():
        broker.retention_takes(taken)
        on.start()
        assert on.ended() == ExitCode.DATA
    gone = {place: end - before[place] for place, end in taken.items()}
    on.lost(gone)
    # what the hint says: go on with what is left, and let the source send its tables again
    may_skip(on)
    on.stream.everything_again()
    on.caught_up()
    skipped = {place: on.skipped(place) for place in gone}
    assert skipped == gone
    on.finish()
