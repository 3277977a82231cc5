# SPDX-License-Identifier: Apache-2.0
"""The main loop beside a running query: no failure of its own leaves the query to itself."""

import contextlib
import dataclasses
from types import SimpleNamespace

import pytest

from ingest.daemon import daemon as module
from ingest.daemon.daemon import Daemon, State
from ingest.errors import GivenUpError
from ingest.pipeline.batch_report import BatchReport
from ingest.state.request_files import RequestFiles
from storage.clock import ManualClock
from storage.errors import FencedError, StorageUnavailableError
from storage.io.local import LocalFileIO
from tests.unit.ingest.lake_settings import lake_settings


class Query:
    """Runs until it is stopped."""

    def __init__(self):
        self.isActive = True

    def awaitTermination(self, seconds):
        return not self.isActive

    def stop(self):
        self.isActive = False


class Sink:
    """Works on a batch that never ends, if it is told to."""

    failure = last_batch_id = None

    def __init__(self, clock, *, busy):
        self.clock = clock
        self.busy = busy

    @contextlib.contextmanager
    def idle(self, beat):
        for _ in range(100):
            if not self.busy:
                break
            self.clock.sleep(1.0)
            beat()
        else:
            raise AssertionError("the main loop waited for ever")
        yield


@pytest.fixture
def clock():
    return ManualClock()


@pytest.fixture
def hard_ends(monkeypatch):
    ends = []
    monkeypatch.setattr(module, "end_process_in", lambda seconds, code: ends.append(int(code)))
    monkeypatch.setattr(module.faulthandler, "dump_traceback", lambda **named: None)
    return ends


@contextlib.contextmanager
def without_spark(settings, clock):
    made = Daemon(settings, clock=clock)
    made._maintenance.beat = lambda: None
    made._pipeline = lambda *arguments: SimpleNamespace(pausing=made._pausing, clock=clock)
    yield made
    with made._signals:
        pass  # frees what it opened


def watch(daemon, query, sink):
    """Watch a query; whether it is to be drained."""
    daemon._query, daemon._sink = query, sink
    return daemon._watch()


@pytest.fixture
def daemon(tmp_path, clock):
    settings = lake_settings(tmp_path)
    life = dataclasses.replace(settings.life, batch_timeout_s=30.0)
    with without_spark(dataclasses.replace(settings, life=life), clock) as made:
        yield made


@pytest.fixture
def files(tmp_path):
    return RequestFiles(LocalFileIO(durable=False), str(tmp_path / "lake"), "shop")


def test_a_request_that_cannot_be_answered_ends_the_query_and_is_there_for_the_next(
    daemon, clock, files, monkeypatch
):
    files.ask("pause_stream", {}, now_ms=clock.now_ms())
    query = Query()

    def away(answer):
        raise StorageUnavailableError("the store does not answer")

    with monkeypatch.context() as patch:
        patch.setattr(daemon._requests._files, "write", away)
        with pytest.raises(StorageUnavailableError):
            watch(daemon, query, Sink(clock, busy=False))
    assert not query.isActive, "the next query would meet this one"
    assert [each.kind for each in files.pending()] == ["pause_stream"]


def test_a_batch_without_end_is_given_up_also_while_a_request_waits_for_it(
    daemon, clock, files, hard_ends
):
    files.ask("pause_stream", {}, now_ms=clock.now_ms())
    query = Query()
    daemon._on_batch_begin(1)
    with pytest.raises(GivenUpError, match=r"batch\.timeout"):
        watch(daemon, query, Sink(clock, busy=True))
    assert not query.isActive
    assert hard_ends == [75]


def test_a_lost_stream_is_not_waited_for_either(daemon, clock, files):
    files.ask("pause_stream", {}, now_ms=clock.now_ms())
    query, sink = Query(), Sink(clock, busy=True)
    sleep = clock.sleep

    def lose(seconds):
        sleep(seconds)
        daemon._lease.lost_to = FencedError("another process owns the stream")

    clock.sleep = lose
    with pytest.raises(FencedError):
        watch(daemon, query, sink)
    assert not query.isActive


def test_a_batch_that_follows_a_quiet_hour_has_all_its_time(daemon, clock, hard_ends):
    daemon._on_batch_begin(1)
    daemon._on_batch_end(BatchReport(batch_id=1, identifier=5, outcome="committed", duration_s=0.5))
    clock.sleep(3600)
    daemon._sink = Sink(clock, busy=True)  # it has the lock, and has not said yet that it begins
    daemon._check_batch_time()
    assert daemon._given_up is None
    daemon._on_batch_begin(2)
    clock.sleep(29)
    daemon._check_batch_time()
    assert daemon._given_up is None
    clock.sleep(2)
    daemon._check_batch_time()
    assert (type(daemon._given_up), hard_ends) == (GivenUpError, [75])


class ShiftedClock(ManualClock):
    """Its calendar can be set."""

    shift_ms = 0

    def now_ms(self):
        return super().now_ms() + self.shift_ms


@pytest.fixture
def calendar(tmp_path):
    with without_spark(lake_settings(tmp_path), ShiftedClock()) as made:
        yield made


class SometimeQuery(Query):
    """Ends by itself after ten looks; after the third something happens."""

    def __init__(self, happens):
        super().__init__()
        self.looks = 0
        self.happens = happens

    def awaitTermination(self, seconds):
        self.looks += 1
        if self.looks == 3:
            self.happens()
        return self.looks > 10 or not self.isActive


def test_a_calendar_that_goes_back_starts_the_query_anew_once(calendar, caplog):
    """Spark's trigger would wait until the old time is reached again."""

    def back():
        calendar._clock.shift_ms = -7_200_000

    query = SometimeQuery(back)
    assert watch(calendar, query, Sink(calendar._clock, busy=False)), "it is to be drained"
    assert calendar._steps[State.DRAIN]() is State.RUN
    assert (query.isActive, query.looks) == (False, 3)
    told = [entry for entry in caplog.records if getattr(entry, "event", "") == "clock_set_back"]
    assert [entry.seconds for entry in told] == [7200.0]

    following = SometimeQuery(lambda: None)
    drain = watch(calendar, following, Sink(calendar._clock, busy=False))
    assert not drain, "the new query has the new time from its start"


@pytest.mark.parametrize("shift_ms", [7_200_000, -2_000], ids=["forward", "two seconds"])
def test_other_corrections_of_the_calendar_leave_the_query_alone(calendar, shift_ms):
    def corrected():
        calendar._clock.shift_ms = shift_ms

    query = SometimeQuery(corrected)
    assert not watch(calendar, query, Sink(calendar._clock, busy=False))
    assert query.looks > 10


def test_a_stop_while_spark_starts_ends_the_daemon_without_a_query(tmp_path, clock):
    with without_spark(lake_settings(tmp_path), clock) as daemon:
        daemon._open_stream = lambda: daemon._stop.set()
        daemon._start = SimpleNamespace(session=lambda stop: None if stop.is_set() else object())
        assert daemon._prepare() is State.STOP
