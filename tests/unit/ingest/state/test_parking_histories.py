# SPDX-License-Identifier: Apache-2.0
"""Whole histories of parking: traffic, pauses, resumes, damaged tables, deaths, lost checkpoints.

At the end of each every table has exactly the rows of the model, the aggregation too, in which any
row written twice or lost shows.
"""

import itertools
import random
from collections import Counter

import pytest

from ingest.state.ownership import Ownership, Parking
from ingest.state.stream_state import CheckpointState
from ingest.state.table_registry import SchemaApplier
from storage.errors import DataLossError, InvalidRequestError, StorageUnavailableError
from tests.unit.ingest.simulated_stream import (
    BATCH,
    QUARANTINE,
    TABLES,
    SimulatedStream,
    event,
)

TOPICS = ("a", "b", "late")


class Model:
    """What the tables must hold in the end."""

    def __init__(self, stream, rng):
        self.stream = stream
        self.rng = rng
        self.rows = {table: {} for table in TABLES}
        self.bad = set()
        self.topics = ["a", "b"]

    def traffic(self, count=10):
        """Records of all tables, mixed in every topic; a key stays in its partition."""
        for _ in range(count):
            table = self.rng.choice(TABLES)
            topic = self.rng.choice(self.topics)
            partition = self.rng.randrange(2)
            if self.rng.random() < 0.1:
                # known for whom it is, but no number
                wrong = event(self.rng.choice(["orders", "sums"]), 1, [1, {}])
                broken = self.rng.choice([(b"k", b"{broken"), wrong])
                self.bad.add((topic, partition, self.stream.topics.add(topic, partition, *broken)))
                continue
            key = self.rng.randrange(8) * 6 + partition * 3 + TOPICS.index(topic)
            n = self.rng.randrange(1, 1000)
            rows = self.rows[table]
            if table == "shop.sums":
                record = event("sums", key, n)
                rows[key] = rows.get(key, 0) + n
            elif key in rows and self.rng.random() < 0.3:
                record = event(table[5:], key, 0, op="d")
                del rows[key]
            else:
                record = event(table[5:], key, n, op="u" if key in rows else "c")
                rows[key] = n
            self.stream.topics.add(topic, partition, *record)

    def check(self):
        for table in TABLES:
            assert self.stream.rows(table) == self.rows[table], table
        assert self.stream.quarantined() == self.bad
        for table in (*TABLES, QUARANTINE):
            if self.stream.catalog.exists(table):
                used = self.stream.identifiers(table)
                assert all(a < b for a, b in itertools.pairwise(used)), (table, used)


@pytest.fixture
def stream(tmp_path, monkeypatch):
    return SimulatedStream(tmp_path, monkeypatch)


def test_a_paused_table_misses_nothing_and_the_others_nothing_twice(stream):
    model = Model(stream, random.Random(1))
    model.traffic(30)
    stream.batch()
    stream.batch()
    stream.pause("shop.orders")
    before = stream.rows("shop.orders")
    model.traffic(60)
    for _ in range(6):
        stream.batch()
    assert stream.rows("shop.orders") == before, "a parked table is left alone"
    assert stream.rows("shop.sums") == model.rows["shop.sums"], "the others flow"
    stream.resume("shop.orders")
    stream.drain()
    model.check()
    assert (stream.book.parking.catching_up, stream.book.floors) == ((), {})


def test_only_topics_that_fed_the_table_are_read_again(stream):
    for number in range(10):
        stream.topics.add("a", 0, *event("orders", number, 1))
        stream.topics.add("b", 0, *event("items", number, 1))
    stream.batch()
    stream.batch()
    stream.pause("shop.orders")
    for number in range(10, 20):
        stream.topics.add("a", 0, *event("orders", number, 1))
        stream.topics.add("b", 0, *event("items", number, 1))
    stream.batch()
    stream.book.load()
    assert stream.position.rewind(["shop.orders"]) == {"a": {"0": [10, 20]}}


def with_orders_parked(stream):
    """A model whose other tables have rows from after that."""
    model = Model(stream, random.Random(3))
    model.traffic(20)
    stream.batch()
    stream.batch()
    stream.pause("shop.orders")
    model.traffic(20)
    stream.batch()
    return model


@pytest.mark.parametrize(
    ("owner", "name"), [(Ownership, "record_batch"), (Parking, "resume")], ids=["note", "parking"]
)
def test_a_resume_that_failed_half_way_leaves_what_a_restart_would_find(
    stream, monkeypatch, owner, name
):
    model = with_orders_parked(stream)
    stream.book.load()

    def away(*arguments):
        raise StorageUnavailableError("away for the test")

    with monkeypatch.context() as outage:
        outage.setattr(owner, name, away)
        with pytest.raises(StorageUnavailableError):
            stream.position.rewind(["shop.orders"])
    assert stream.position.state == CheckpointState.load(stream.position.checkpoint)
    model.traffic(20)
    stream.batch()
    stream.restart()
    model.traffic(20)
    stream.drain()
    model.check()


def test_a_failure_when_all_have_caught_up_leaves_no_table_behind(stream, monkeypatch):
    model = with_orders_parked(stream)
    stream.resume("shop.orders")
    assert stream.book.parking.catching_up == ("shop.orders",)

    def away(parking):
        del parking
        raise StorageUnavailableError("away for the test")

    def carry_all():
        while stream.batch():
            stream.position.release_passed_floors()

    with monkeypatch.context() as outage:
        outage.setattr(Parking, "caught_up", away)
        with pytest.raises(StorageUnavailableError):
            carry_all()
    stream.restart()
    stream.drain()
    assert stream.book.parking.catching_up == ()
    model.check()


def test_a_table_without_traffic_resumes_without_reading_again(stream):
    model = Model(stream, random.Random(2))
    model.traffic(20)
    stream.batch()
    stream.batch()
    stream.drain()
    stream.pause("shop.orders")
    generation = stream.position.state.generation
    stream.resume("shop.orders")
    assert stream.position.state.generation == generation
    model.traffic(20)
    stream.drain()
    model.check()


def test_a_damaged_table_is_parked_with_the_reason_and_the_batch_goes_on(stream):
    model = Model(stream, random.Random(3))
    model.traffic(30)
    stream.batch()
    stream.faults = {"shop.orders"}
    stream.batch()
    entry = stream.book.parking.parked()["shop.orders"]
    assert entry.by == "stream"
    assert entry.reason == "CorruptDataError: damaged for the test path=`shop.orders`"
    stream.work()
    assert stream.rows("shop.items") == model.rows["shop.items"]
    stream.drain()
    model.check()


def test_a_table_that_somebody_parks_during_a_batch_misses_it_whole(stream, monkeypatch):
    """As a schema decision does: the batch goes on for the others."""
    model = Model(stream, random.Random(13))
    model.traffic(30)
    apply = SchemaApplier.apply

    def parks(applier, deltas, **facts):
        stream.book.park("shop.items", "its schema is odd")
        return apply(applier, [d for d in deltas if d.target != "shop.items"], **facts)

    with monkeypatch.context() as patch:
        patch.setattr(SchemaApplier, "apply", parks)
        stream.work()
    assert stream.book.parking.parked()["shop.items"].reason == "its schema is odd"
    assert not stream.catalog.exists("shop.items")
    assert stream.rows("shop.sums") == model.rows["shop.sums"]
    stream.drain()
    model.check()


def test_the_quarantine_table_is_not_parked(stream):
    with pytest.raises(InvalidRequestError):
        stream.book.park(QUARANTINE, "no")


def test_a_table_that_does_not_exist_yet_can_be_parked(stream):
    model = Model(stream, random.Random(4))
    stream.pause("shop.items")
    model.traffic(40)
    stream.work()
    assert not stream.catalog.exists("shop.items")
    assert stream.rows("shop.sums") == model.rows["shop.sums"]
    stream.drain()
    model.check()


def test_a_topic_that_came_while_the_table_was_parked_is_read_from_its_beginning(stream):
    model = Model(stream, random.Random(5))
    model.traffic(20)
    stream.batch()
    stream.batch()
    stream.pause("shop.orders")
    model.topics = ["late"]
    model.traffic(30)
    stream.work()
    assert stream.book.parking.parked()["shop.orders"].since["late"] == {"0": 0, "1": 0}
    stream.drain()
    model.check()


def test_what_retention_took_is_said_and_the_table_stays_parked(stream):
    model = Model(stream, random.Random(6))
    model.traffic(20)
    stream.batch()
    stream.batch()
    stream.pause("shop.orders")
    model.traffic(60)
    stream.work()
    for topic in ("a", "b"):
        for partition in (0, 1):
            stream.topics.low[topic, partition] = 1_000_000
    state = stream.position.state
    with pytest.raises(DataLossError):
        stream.resume("shop.orders")
    assert "shop.orders" in stream.book.parking.parked()
    assert stream.position.state == state
    stream.topics.low.clear()
    stream.drain()
    model.check()


@pytest.mark.parametrize("step", range(9))
def test_a_death_at_every_step_of_a_resume(stream, step):
    model = Model(stream, random.Random(step))
    model.traffic(30)
    stream.batch()
    stream.batch()
    stream.pause("shop.sums")
    model.traffic(40)
    for _ in range(3):
        stream.batch()
    stream.fuse.left = step
    stream.resume("shop.sums")
    for _ in range(3):
        stream.batch()
    stream.drain()
    model.check()


@pytest.mark.parametrize("catching_up", [0, 1, 2, 3, 5])
def test_a_checkpoint_lost_while_catching_up(stream, catching_up):
    model = Model(stream, random.Random(catching_up))
    model.traffic(3 * BATCH)
    stream.work()
    stream.pause("shop.sums")
    model.traffic(6 * BATCH)
    stream.work()
    stream.resume("shop.sums")
    for _ in range(catching_up):
        stream.batch()
    stream.lose_checkpoint()
    model.traffic(BATCH)
    stream.drain()
    model.check()


def test_a_table_parked_again_before_it_caught_up_is_still_behind_after_its_resume(stream):
    model = with_orders_parked(stream)
    stream.resume("shop.orders")
    stream.pause("shop.orders")
    stream.resume("shop.orders")
    assert stream.book.parking.catching_up == ("shop.orders",)
    stream.lose_checkpoint()
    stream.drain()
    model.check()


def test_a_table_that_commits_while_another_catches_up_does_not_forget_where_it_was(stream):
    """Its other topic goes on; the topic that goes back must not take its offsets along."""
    for number in range(3 * BATCH):
        stream.topics.add("a", 0, *event("sums", number, 1))
        stream.topics.add("a", 0, *event("orders", number, 1))
        if number == BATCH:
            stream.batch()
            stream.batch()
            stream.pause("shop.orders")
    stream.work()
    stream.resume("shop.orders")
    for number in range(100, 103):
        stream.topics.add("b", 0, *event("sums", number, 1))
    stream.batch()
    stream.batch()
    assert stream.rows("shop.sums")[100] == 1, "it commits while the other catches up"
    assert stream.book.parking.catching_up == ("shop.orders",)
    stream.lose_checkpoint()
    stream.drain()
    assert set(stream.rows("shop.sums").values()) == {1}
    assert set(stream.rows("shop.orders").values()) == {1}


def test_a_checkpoint_lost_while_a_table_is_parked(stream):
    model = Model(stream, random.Random(8))
    model.traffic(40)
    stream.batch()
    stream.pause("shop.orders")
    model.traffic(40)
    stream.batch()
    stream.lose_checkpoint()
    stream.batch()
    stream.drain()
    model.check()


# `source.fail.on.data.loss: false`: a topic is deleted and created anew while the stream runs


def add(stream, table, numbers, topic="a"):
    for number in numbers:
        stream.topics.add(topic, 0, *event(table, number, 1))


def test_a_table_parked_while_its_topic_begins_again_misses_nothing_of_the_new_one(stream):
    model = Model(stream, random.Random(21))
    model.traffic(80)
    stream.work()
    stream.pause("shop.orders")
    stream.topics.recreate("a")
    model.traffic(20)
    stream.work()
    assert stream.book.parking.parked()["shop.orders"].since["a"] == {"0": 0, "1": 0}
    stream.drain()
    model.check()


def test_a_table_parked_in_the_batch_in_which_its_topic_begins_again(stream):
    add(stream, "orders", range(20))
    stream.work()
    stream.topics.recreate("a")
    add(stream, "orders", range(100, 103))
    add(stream, "sums", range(3))
    stream.faults = {"shop.orders"}
    stream.batch()
    assert "shop.orders" in stream.book.parking.parked()
    stream.drain()
    assert set(stream.rows("shop.orders")) == {*range(20), *range(100, 103)}
    assert stream.rows("shop.sums") == dict.fromkeys(range(3), 1)


def test_floors_of_a_topic_that_begins_again_drop_nothing_of_the_new_one(stream):
    add(stream, "sums", range(20))
    stream.work()
    stream.pause("shop.orders")
    add(stream, "orders", [100])
    add(stream, "sums", range(20, 40))
    stream.work()
    stream.resume("shop.orders")
    assert stream.book.floors, "the others drop what they have"
    stream.topics.recreate("a")  # with what the resumed table missed
    add(stream, "sums", range(200, 205))
    add(stream, "orders", [300])
    stream.drain()
    assert stream.rows("shop.sums") == dict.fromkeys([*range(40), *range(200, 205)], 1)
    assert set(stream.rows("shop.orders")) == {300}
    assert stream.book.parking.common_floor == {}


def test_offsets_of_a_former_topic_are_no_floor_when_another_table_is_resumed(stream):
    add(stream, "sums", range(20))
    stream.work()
    stream.topics.recreate("a")
    add(stream, "orders", [100])
    stream.work()
    stream.pause("shop.orders")
    add(stream, "orders", [101])
    stream.work()
    stream.resume("shop.orders")
    add(stream, "sums", [300])
    stream.drain()
    assert stream.rows("shop.sums") == dict.fromkeys([*range(20), 300], 1)
    assert set(stream.rows("shop.orders")) == {100, 101}


@pytest.mark.parametrize("later", [0, 1, 30])
def test_a_checkpoint_lost_after_a_topic_began_again_without_rows_of_a_table(stream, later):
    add(stream, "sums", range(40))
    stream.work()
    stream.topics.recreate("a")
    add(stream, "orders", [100])
    stream.work()
    add(stream, "sums", range(300, 300 + later), topic="b")
    stream.work()
    stream.lose_checkpoint()
    add(stream, "sums", range(200, 205))
    stream.drain()
    assert stream.rows("shop.sums") == dict.fromkeys(
        [*range(40), *range(300, 300 + later), *range(200, 205)], 1
    )


@pytest.mark.parametrize("after", ["nothing", "restart", "lose", "resume"])
@pytest.mark.parametrize("step", range(12))
def test_a_death_at_every_step_of_the_batch_in_which_a_topic_begins_again(stream, step, after):
    add(stream, "sums", range(20))
    add(stream, "orders", range(20), topic="b")
    add(stream, "items", range(20))
    stream.work()
    stream.pause("shop.items")
    stream.topics.recreate("a")
    for table in ("sums", "orders", "items"):
        add(stream, table, range(100, 103))
    stream.fuse.left = step
    stream.batch()
    if after == "resume":
        stream.resume("shop.items")
    elif after == "lose":
        stream.lose_checkpoint()
    elif after == "restart":
        stream.restart()
    stream.batch()
    add(stream, "sums", range(200, 230))
    stream.drain()
    expected = dict.fromkeys([*range(20), *range(100, 103)], 1)
    assert stream.rows("shop.sums") == expected | dict.fromkeys(range(200, 230), 1)
    assert stream.rows("shop.orders") == stream.rows("shop.items") == expected


def act(stream, model, rng):
    """One thing that happens."""
    what = rng.choices(
        ("traffic", "batch", "pause", "resume", "fault", "fuse", "restart", "lose", "late", "anew"),
        (8, 12, 4, 3, 1, 4, 1, 1, 1, 1),
    )[0]
    if what == "traffic":
        model.traffic(rng.randrange(4, 40))
    elif what == "batch":
        stream.batch()
    elif what == "pause":
        stream.pause(rng.choice(TABLES))
    elif what == "resume":
        parked = sorted(stream.book.parking.parked())
        stream.resume(*rng.sample(parked, rng.randint(0, len(parked))))
    elif what == "fault":
        stream.faults = {rng.choice(TABLES)}
    elif what == "fuse":
        stream.fuse.left = rng.randrange(12)
    elif what == "restart":
        stream.restart()
    elif what == "lose":
        stream.lose_checkpoint()
    elif what == "late":
        model.topics = [*TOPICS]
    elif what == "anew" and not recreate(stream, model, rng):
        return "nothing"
    return what


def recreate(stream, model, rng):
    """A topic begins again, read whole before; faults, deaths and lost checkpoints on the way.

    False if it would not be noticed: it has as many records as before at once.
    """
    few = 4
    model.traffic(60)
    stream.drain()
    topic = rng.choice(model.topics)
    if any(0 < len(records) <= few for records in stream.topics.records[topic].values()):
        return False
    stream.topics.recreate(topic)
    model.traffic(few)
    stream.faults = {rng.choice(TABLES)} if rng.random() < 0.3 else set()
    stream.fuse.left = rng.randrange(16)
    while stream.batch() is None:
        if rng.random() < 0.3:
            stream.lose_checkpoint()
    return True


def run(stream, seed, seen):
    """A history to its end; `seen` counts what it reaches."""
    rng = random.Random(seed)
    model = Model(stream, rng)
    for _ in range(30):
        seen[act(stream, model, rng)] += 1
        seen["parked"] += bool(stream.book.parking.parked())
        seen["behind"] += bool(stream.book.parking.catching_up)
    seen["deaths"] += stream.deaths
    stream.drain()
    model.check()


@pytest.mark.full
@pytest.mark.parametrize("seed", [*range(3, 60), 79, 237, 301, 399])
def test_any_history_ends_in_the_models_rows(stream, seed):
    run(stream, seed, Counter())


def test_histories_end_in_the_models_rows_and_reach_what_they_are_about(tmp_path, monkeypatch):
    seen = Counter()
    for seed in range(3):
        directory = tmp_path / str(seed)
        directory.mkdir()
        with monkeypatch.context() as patch:
            run(SimulatedStream(directory, patch), seed, seen)
    reached = ("deaths", "parked", "behind", "lose", "fault", "anew")
    assert min(seen[name] for name in reached) > 0, seen
