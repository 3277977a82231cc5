# SPDX-License-Identifier: Apache-2.0
"""Two daemons on one stream: whoever was overthrown commits nothing, wherever it slept.

Each daemon is a thread with a `FileIO` of its own. A baton lets one of them run at a time and goes
to the other between any two operations on the store: that is a process which is stopped there and
goes on later. `shop.sums` adds up, so that a row too many shows.
"""

import dataclasses
import random
import threading

import pytest

from ingest.state import table_registry as table_book
from ingest.state.lease import lease_of, lost_or, owned_stream, resolve_in_flight
from ingest.state.stream_position import StreamPosition, carry_out, plan_rollback, points_of
from ingest.state.table_registry import TableRegistry
from storage.catalog.catalog import FileSystemCatalog
from storage.errors import FencedError, LakewardError
from storage.io.file_io import FileIO
from storage.io.local import LocalFileIO
from tests.unit.ingest.simulated_stream import SimulatedStream, event

NAMES = ("orders", "sums", "items")
RECORDS = 60


class Baton:
    """Lets one daemon run; `plan(who, count)` says who is next after its count-th operation."""

    def __init__(self, plan):
        self.plan = plan
        self.counts = {}
        self.running = None
        self.alive = []
        self.changed = threading.Condition()

    def step(self, who):
        with self.changed:
            self._await(who)
            self.counts[who] = self.counts.get(who, 0) + 1
            wanted = self.plan(who, self.counts[who])
            if wanted is not None and wanted in self.alive:
                self.running = wanted
                self.changed.notify_all()
                self._await(who)

    def _await(self, who):
        if not self.changed.wait_for(lambda: self.running == who, timeout=60):
            raise TimeoutError(f"{who} was never let on")

    def run(self, first, bodies):
        """Run all to their ends; `first` begins."""
        self.alive, self.running = list(bodies), first
        threads = [
            threading.Thread(target=self._body, args=(who, body)) for who, body in bodies.items()
        ]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()

    def _body(self, who, body):
        with self.changed:
            self._await(who)
        try:
            body()
        finally:
            with self.changed:
                self.alive.remove(who)
                if self.running == who:
                    self.running = self.alive[0] if self.alive else None
                self.changed.notify_all()


class SteppedFileIO(LocalFileIO):
    """Passes every operation on, after a step of the baton."""

    distant = True  # the newcomer may not rely on the death of a process

    def __init__(self, inner, step):
        for name in dir(FileIO):
            if not name.startswith("_") and name != "distant":
                setattr(self, name, self._stepped(getattr(inner, name), step))

    @staticmethod
    def _stepped(function, step):
        def stepped(*args, **kwargs):
            step()
            return function(*args, **kwargs)

        return stepped


class Daemon(SimulatedStream):
    """One more process of a simulated stream."""

    def __init__(self, stream, name, checkpoint):
        self.__dict__ |= stream.__dict__
        pipeline = dataclasses.replace(stream.settings.pipeline, checkpoint=str(checkpoint))
        self.settings = dataclasses.replace(stream.settings, pipeline=pipeline)
        self.name = name
        self.ended = None

    def body(self, batches):
        def run():
            try:
                self.book = TableRegistry(self.settings, self.clock)
                lease = lease_of(self.settings, self.book, self.clock)
                lease.acquire(take_over=True)
                self.book.load()
                resolve_in_flight(self.book, lease.ownership)
                self.book.parking.guard = lease.ownership.require_owned
                self.position = StreamPosition(self.settings, self.book, lease.ownership)
                self.position.open()
                self._start()
                for _ in range(batches):
                    if not self._batch():
                        break
                lease.ownership.delete_old_records()
                lease.release(settled=True)
            except LakewardError as error:
                self.ended = lost_or(error, lease.ownership)
            except BaseException as error:
                self.ended = error

        return run


class Rollback(Daemon):
    """`lakeward stream rollback`, to the first batch, with the daemon taken for dead."""

    def body(self, batches):
        def run():
            try:
                with owned_stream(self.settings, take_over=True, clock=self.clock) as (book, owner):
                    first = points_of(book, "shop")[-1]
                    _, plans = plan_rollback(book, "shop", identifier=first.identifier)
                    carry_out(book, StreamPosition(self.settings, book, owner), "shop", plans)
                    self.taken_back = [plan.name for plan in plans if not plan.unchanged]
            except LakewardError as error:
                self.ended = error

        return run


def make(directory, monkeypatch):
    stream = SimulatedStream(directory, monkeypatch)
    stream.leave()
    add(stream, range(RECORDS))
    return stream


def add(stream, numbers):
    for number in numbers:
        table = NAMES[number % 3]
        stream.topics.add("a", number % 2, *event(table, number % 7, 1))


def expected(stream, table):
    rows = {}
    for number in range(RECORDS):
        if NAMES[number % 3] == table:
            key = number % 7
            rows[key] = rows.get(key, 0) + 1 if table == "sums" else 1
    return rows


def play(stream, monkeypatch, plan, *, shared, batches=(2, 2), newcomer=Daemon):
    """Run two daemons by a plan, then a third to the end; the first two."""
    baton = Baton(plan)

    def catalog_of(warehouse):
        who = threading.current_thread().name
        catalog = FileSystemCatalog(stream.settings.sink.warehouse)
        inner = catalog.file_io
        return FileSystemCatalog(
            stream.settings.sink.warehouse, file_io=SteppedFileIO(inner, lambda: baton.step(who))
        )

    root = stream.directory
    places = [root / "checkpoint"] * 2 if shared else [root / "one", root / "two"]
    daemons = {
        name: kind(stream, name, place)
        for name, kind, place in zip(("old", "new"), (Daemon, newcomer), places, strict=True)
    }
    bodies = {
        name: named(name, daemon.body(count))
        for (name, daemon), count in zip(daemons.items(), batches, strict=True)
    }
    with monkeypatch.context() as patch:
        patch.setattr(table_book, "catalog_of", catalog_of)
        baton.run("old", bodies)
    for daemon in daemons.values():
        assert daemon.ended is None or isinstance(daemon.ended, FencedError), daemon.ended
    last = Daemon(stream, "last", places[1])
    last.open()
    last.drain()
    for table in NAMES:
        assert stream.rows(f"shop.{table}") == expected(stream, table), table
    return daemons


def named(name, body):
    def run():
        threading.current_thread().name = name
        body()

    return run


OPERATIONS = 150
"""Of a daemon that starts and commits two batches, and some more."""

SOME = set(range(17, OPERATIONS, 31))

sleeps_at = pytest.mark.parametrize(
    "at",
    [
        pytest.param(one, marks=[] if one in SOME else pytest.mark.full)
        for one in range(1, OPERATIONS)
    ],
)


@pytest.mark.parametrize("shared", [True, False], ids=["one checkpoint", "two checkpoints"])
@sleeps_at
def test_a_daemon_that_sleeps_anywhere_is_overthrown(tmp_path, monkeypatch, shared, at):
    def plan(who, count):
        return "new" if who == "old" and count == at else None

    daemons = play(make(tmp_path, monkeypatch), monkeypatch, plan, shared=shared)
    assert daemons["new"].ended is None
    if at in range(20, 80):  # it owned the stream, and had more to commit
        assert isinstance(daemons["old"].ended, FencedError)


@pytest.mark.parametrize("shared", [True, False], ids=["one checkpoint", "two checkpoints"])
@pytest.mark.parametrize(
    "seed",
    [pytest.param(one, marks=[] if one < 2 else pytest.mark.full) for one in range(40)],
)
def test_two_daemons_that_take_turns_lose_and_double_nothing(tmp_path, monkeypatch, shared, seed):
    rng = random.Random(seed)
    often = rng.choice([0.02, 0.1, 0.4])

    def plan(who, count):
        other = {"old": "new", "new": "old"}[who]
        return other if rng.random() < often else None

    play(make(tmp_path, monkeypatch), monkeypatch, plan, shared=shared, batches=(3, 3))


@sleeps_at
def test_a_daemon_that_sleeps_through_a_rollback_adds_nothing(tmp_path, monkeypatch, at):
    stream = SimulatedStream(tmp_path, monkeypatch)
    for numbers in (range(12), range(12, 24)):
        add(stream, numbers)
        stream.drain()
    stream.leave()
    add(stream, range(24, RECORDS))

    def plan(who, count):
        return "new" if who == "old" and count == at else None

    daemons = play(stream, monkeypatch, plan, shared=True, newcomer=Rollback)
    assert daemons["new"].ended is None
    assert daemons["new"].taken_back
    # It owned the stream, and had more to commit. From the 78th on all three snapshots may have
    # been there before the rollback, as the threads that commit happen to run; the batch planned
    # afterwards has no records, as the shared checkpoint is empty.
    if at in range(10, 78):
        assert isinstance(daemons["old"].ended, FencedError)
