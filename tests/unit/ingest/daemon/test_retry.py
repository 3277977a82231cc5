# SPDX-License-Identifier: Apache-2.0
"""Outages are waited for; what nobody can explain is not, for ever."""

import threading

import pytest

from ingest.daemon.retry import BACKOFF_S, LIMIT, Retrier, RetryPolicy
from ingest.errors import DiskFullError, MemoryLimitError, QueryFailedError, SparkGoneError
from ingest.observe.observe import Observer
from storage.clock import ManualClock
from storage.errors import (
    CommitConflictError,
    CorruptDataError,
    DataLossError,
    FencedError,
    InvalidRequestError,
    RetryableError,
    StorageUnavailableError,
)
from tests.unit.ingest.lake_settings import lake_settings


@pytest.mark.parametrize(
    "outage", [StorageUnavailableError("x"), RetryableError("broker"), DiskFullError("x")]
)
def test_an_outage_is_waited_for_without_end(outage):
    clock = ManualClock()
    policy = RetryPolicy(clock)
    waits = []
    for _ in range(1000):
        waits.append(policy.delay_after(outage))
        clock.sleep(waits[-1])
    assert waits[:6] == [*BACKOFF_S, BACKOFF_S[-1]]
    assert set(waits[6:]) == {BACKOFF_S[-1]}


def test_an_outage_may_have_a_limit():
    clock = ManualClock()
    policy = RetryPolicy(clock, 100.0)
    while (wait_s := policy.delay_after(StorageUnavailableError("x"))) is not None:
        clock.sleep(wait_s)
    assert 100 <= clock.monotonic_s() - ManualClock().monotonic_s() <= 130
    policy.progressed()
    assert policy.delay_after(StorageUnavailableError("x")) == BACKOFF_S[0]


@pytest.mark.parametrize(
    "failure", [QueryFailedError("x"), CommitConflictError("x"), MemoryLimitError("x")]
)
def test_what_is_not_explained_ends_the_process_after_a_number(failure):
    policy = RetryPolicy(ManualClock())
    waits = [policy.delay_after(failure) for _ in range(LIMIT)]
    assert None not in waits[:-1]
    assert waits[-1] is None


def test_outages_between_do_not_count_and_a_batch_forgives_all():
    policy = RetryPolicy(ManualClock())
    for _ in range(LIMIT - 1):
        assert policy.delay_after(QueryFailedError("x")) is not None
        assert policy.delay_after(StorageUnavailableError("x")) is not None
    policy.progressed()
    assert policy.delay_after(QueryFailedError("x")) == BACKOFF_S[0]


@pytest.mark.parametrize(
    "failure",
    [
        FencedError("x"),
        DataLossError("x"),
        CorruptDataError("x"),
        InvalidRequestError("x"),
        SparkGoneError("x"),
    ],
)
def test_what_waiting_cannot_heal_is_not_waited_for(failure):
    assert RetryPolicy(ManualClock()).delay_after(failure) is None


class Recorder:
    """An observer."""

    def __init__(self):
        self.seen = []

    def failed(self, error, *, query=True):
        self.seen.append(("failed", type(error), query))

    def waiting(self, error):
        self.seen.append(("waiting", error is not None))

    def trying_again(self, error):
        pass

    def recovered(self):
        self.seen.append(("recovered", True))

    def beat(self):
        self.seen.append(("beat", True))


class Impatient(threading.Event):
    """Waits for nothing."""

    def wait(self, timeout=None):
        return self.is_set()


def failing(times, error):
    left = [error] * times

    def step():
        if left:
            raise left.pop()

    return step


def test_a_start_waits_for_what_is_away():
    recorder = Recorder()
    retrier = Retrier(RetryPolicy(ManualClock()), recorder, Impatient(), once=False)
    assert retrier.succeed(failing(25, StorageUnavailableError("x")))
    assert recorder.seen.count(("waiting", True)) == 25
    assert recorder.seen.count(("failed", StorageUnavailableError, False)) == 25, "no query failed"
    assert recorder.seen[-1] == ("recovered", True)


def test_liveness_is_shown_as_long_as_an_outage_lasts(tmp_path):
    clock = ManualClock()
    observer = Observer(lake_settings(tmp_path), clock)
    retrier = Retrier(RetryPolicy(clock), observer, Impatient(), once=False)

    def step():
        assert observer.board.health()[0], "a restart of the process brings no store back"
        if clock.monotonic_s() < 7200:
            clock.sleep(30)
            raise StorageUnavailableError("x")

    assert retrier.succeed(step)
    clock.sleep(700)
    assert not observer.board.health()[0]


@pytest.mark.parametrize("where", ["at the start", "beside the query"])
def test_an_outage_that_is_over_is_forgotten_also_when_nothing_comes(tmp_path, where):
    clock = ManualClock()
    observer = Observer(lake_settings(tmp_path), clock)
    policy = RetryPolicy(clock, 100.0)
    retrier = Retrier(policy, observer, Impatient(), once=False)
    if where == "at the start":
        assert retrier.succeed(failing(2, StorageUnavailableError("x")))
    else:
        observer.failed(StorageUnavailableError("x"))
        retrier.pause(StorageUnavailableError("x"))
        for _ in range(30):  # in vain: a batch runs, and ends by the same outage
            retrier.note_running(busy=True)
            clock.sleep(10)
        assert policy.delay_after(StorageUnavailableError("x")) is None
        for _ in range(7):
            assert board_waits(observer)
            retrier.note_running(busy=False)
            clock.sleep(10)
    assert not board_waits(observer)
    clock.sleep(7 * 24 * 3600)
    assert policy.delay_after(StorageUnavailableError("x")) == BACKOFF_S[0], "a new outage"


def board_waits(observer):
    document = observer.board.document()
    conditions = document["conditions"]
    assert conditions["last_batch"]["ok"] == (document["facts"]["waiting_for"] is None)
    return document["facts"]["waiting_for"] is not None


def test_a_start_that_is_told_to_stop_waits_no_longer():
    stop = Impatient()
    stop.set()
    assert not Retrier(RetryPolicy(ManualClock()), Recorder(), stop, once=False).succeed(
        lambda: None
    )


def test_a_bounded_run_waits_for_nothing():
    retrier = Retrier(RetryPolicy(ManualClock()), Recorder(), Impatient(), once=True)
    with pytest.raises(StorageUnavailableError):
        retrier.succeed(failing(1, StorageUnavailableError("x")))


def test_an_error_of_the_system_becomes_one_of_ours():
    retrier = Retrier(RetryPolicy(ManualClock()), Recorder(), Impatient(), once=True)
    with pytest.raises(DiskFullError, match="/data/x"):
        retrier.succeed(failing(1, OSError(28, "No space left on device", "/data/x")))
