# SPDX-License-Identifier: Apache-2.0
"""Histories in which tables are rolled back, once and again, with deaths and parking between.

At the end of each every table has exactly the rows of the model, the aggregation too.
"""

import random

import pytest

from ingest.cli.main import main
from ingest.state.stream_state import forget_rollback, require_not_rolled_back, rolled_back_topics
from storage.errors import FencedError, InvalidRequestError
from tests.unit.ingest.simulated_stream import SimulatedStream, event
from tests.unit.ingest.state.test_parking_histories import Model


@pytest.fixture
def stream(tmp_path, monkeypatch):
    stream = SimulatedStream(tmp_path, monkeypatch)
    for name in ("shop.orders", "shop.sums"):  # so that a rollback may leave nothing of the stream
        stream.catalog.table(name).new_commit("other").truncate(0)
    stream.open()
    return stream


def rollback(stream, name, snapshot_id):
    warehouse = stream.settings.sink.warehouse
    words = ["table", "rollback", warehouse, name, "--snapshot", str(snapshot_id)]
    return main([*words, "--writers-stopped", "--json"])


def recover(stream):
    """What `run --recover-offsets` does, and a start."""
    stream.book.load()
    options = stream.book.options()
    if rolled_back_topics(options, "shop"):
        with pytest.raises(InvalidRequestError, match="rolled back"):
            require_not_rolled_back(options, "shop")
    stream.position.start_from(stream.position.recovered())
    for name in rolled_back_topics(options, "shop"):
        forget_rollback(stream.catalog.table(name), "shop")
    stream.open()
    require_not_rolled_back(stream.book.options(), "shop")


def test_a_table_without_anything_of_the_stream_left(stream, capsys):
    model = Model(stream, random.Random(1))
    model.traffic(60)
    stream.drain()
    assert rollback(stream, "shop.sums", 1) == 0
    assert stream.rows("shop.sums") == {}
    recover(stream)
    model.traffic(20)
    stream.drain()
    model.check()


def test_a_table_that_waits_since_long_is_recovered_too(stream, capsys):
    for number in range(5):
        stream.topics.add("a", 0, *event("orders", number, 1))
        stream.batch()
    for number in range(15):
        stream.topics.add("a", 0, *event("sums", number, 1))
        stream.batch()
    assert rollback(stream, "shop.orders", 3) == 0
    assert len(stream.rows("shop.orders")) < 5
    recover(stream)
    stream.drain()
    assert len(stream.rows("shop.orders")) == 5
    assert stream.rows("shop.sums") == dict.fromkeys(range(15), 1)


def test_a_daemon_that_was_not_stopped_ends_at_its_next_commit(stream, capsys):
    model = Model(stream, random.Random(2))
    model.traffic(60)
    stream.drain()
    rollback(stream, "shop.sums", 2)
    for number in range(4):
        stream.topics.add("a", 0, *event("sums", 1_000 + number, 1))
        model.rows["shop.sums"][1_000 + number] = 1
    with pytest.raises(FencedError, match="rolled back"):
        stream.drain()
    recover(stream)
    stream.drain()
    model.check()


QUICK = 2


@pytest.mark.parametrize(
    "seed",
    [pytest.param(one, marks=[] if one < QUICK else pytest.mark.full) for one in range(20)],
)
def test_any_history_ends_in_the_rows_of_the_model(stream, capsys, seed):
    rng = random.Random(seed)
    model = Model(stream, rng)
    taken = 0
    for _ in range(5):
        model.traffic(rng.randrange(5, 40))
        for _ in range(rng.randrange(3)):
            stream.fuse.left = rng.choice([None, None, rng.randrange(12)])
            stream.batch()
        stream.fuse.left = None
        if rng.random() < 0.2:
            stream.pause("shop.items")
        for name in rng.sample(["shop.orders", "shop.sums"], rng.choice([0, 1, 1, 2])):
            ids = stream.catalog.table(name).snapshots.ids()
            assert rollback(stream, name, rng.choice(ids)) == 0
            taken += 1
        recover(stream)
    stream.drain()
    model.check()
    assert taken


def test_a_parked_table_is_left_as_it_is(stream, capsys):
    model = Model(stream, random.Random(4))
    model.traffic(30)
    stream.drain()
    stream.pause("shop.orders")
    assert rollback(stream, "shop.orders", 1) == 78
    stream.drain()
    model.check()
