# SPDX-License-Identifier: Apache-2.0
"""The log of owners: one owner at a time, through lost answers, sleepers and removed records."""

import dataclasses
import os
import subprocess
import sys
import time

import pytest

from ingest.state.lease import Lease, StreamHeldError
from ingest.state.ownership import (
    INSTANCE_VARIABLE,
    BatchNote,
    Owner,
    OwnerRecord,
    Ownership,
    newest_record,
)
from ingest.state.stream_state import STATE_FORMAT, StateFormatError, decoded, encoded
from storage.clock import ManualClock
from storage.errors import CorruptDataError, FencedError, StorageUnavailableError
from storage.io.local import LocalFileIO
from tests.faulty_io import Fault, FaultyFileIO, SimulatedCrash

IO = LocalFileIO(durable=False)


def owner(name, **more):
    return Owner(token=name, host=f"host-{name}", pid=1, since_ms=0, **more)


def ownership(root, name, file_io=IO):
    return Ownership(file_io, str(root), "shop", owner(name))


def taken(root, name, file_io=IO):
    made = ownership(root, name, file_io)
    made.acquire(made.newest(), note=None, settled=True)
    return made


def note(number):
    return BatchNote(identifier=number, start={}, end={}, tables=("a.x",))


def newest(root):
    return newest_record(IO, str(root), "shop")


def test_each_owner_has_the_next_epoch_and_ends_the_one_before(tmp_path):
    first = taken(tmp_path, "a")
    first.record_batch(note(1))
    second = taken(tmp_path, "b")
    assert (first.epoch, second.epoch) == (1, 2)
    for lost in (
        first.require_owned,
        lambda: first.record_batch(note(2)),
        lambda: first.release(settled=True),
    ):
        with pytest.raises(FencedError, match="another process owns the stream") as caught:
            lost()
        assert caught.value.context["owner"] == "host-b, pid 1"
    second.record_batch(note(2))
    assert newest(tmp_path).note == note(2)


def test_of_two_that_start_at_once_one_is_told(tmp_path):
    first, second = ownership(tmp_path, "a"), ownership(tmp_path, "b")
    before = first.newest()
    second.acquire(before, note=None, settled=True)
    with pytest.raises(FencedError):
        first.acquire(before, note=None, settled=True)
    assert newest(tmp_path).owner.token == "b"


def test_a_sleeper_does_not_make_a_removed_record_anew(tmp_path):
    sleeper = taken(tmp_path, "a")
    last = taken(tmp_path, "b")
    for number in range(20):
        last.record_batch(note(number))
    last.delete_old_records()
    names = sorted(path.name for path in (tmp_path / ".lakeward/shop/owner").iterdir())
    assert len(names) == 9
    with pytest.raises(FencedError):
        sleeper.require_owned()
    with pytest.raises(FencedError):
        sleeper.record_batch(note(99))
    after = sorted(path.name for path in (tmp_path / ".lakeward/shop/owner").iterdir())
    assert after == names
    last.record_batch(note(21))


def test_a_starter_that_slept_does_not_begin_the_log_anew(tmp_path):
    sleeper = ownership(tmp_path, "a")
    before = sleeper.newest()
    last = taken(tmp_path, "b")
    for number in range(20):
        last.record_batch(note(number))
    last.delete_old_records()
    with pytest.raises(FencedError):
        sleeper.acquire(before, note=None, settled=True)
    assert newest(tmp_path).owner.token == "b"
    last.require_owned()


def test_a_record_that_could_not_be_removed_is_tried_again_before_later_ones(tmp_path):
    failing = [True]

    class Busy(LocalFileIO):
        def delete(self, path):
            if failing:
                failing.clear()
                raise StorageUnavailableError("not now")
            return super().delete(path)

    sleeper = taken(tmp_path, "a")
    last = taken(tmp_path, "b", Busy(durable=False))
    for number in range(8):
        last.record_batch(note(number))
    with pytest.raises(StorageUnavailableError):
        last.delete_old_records()
    for number in range(8, 12):
        last.record_batch(note(number))
        last.delete_old_records()
    with pytest.raises(FencedError):
        sleeper.record_batch(note(99))
    assert newest(tmp_path).note == note(11)


def test_a_starter_that_was_followed_leaves_its_place_taken(tmp_path):
    """Else the owner before it, which slept, could write there as if nobody had come."""
    sleeper = taken(tmp_path, "a")
    third = ownership(tmp_path, "c")

    class Overtaken(LocalFileIO):
        def list(self, path):
            if third.last is None:
                third.acquire(third.newest(), note=None, settled=True)
            return super().list(path)

    second = ownership(tmp_path, "b", Overtaken(durable=False))
    with pytest.raises(FencedError):
        second.acquire(sleeper.last, note=None, settled=True)
    with pytest.raises(FencedError):
        sleeper.record_batch(note(99))
    assert newest(tmp_path).owner.token == "c"


def history(root, file_io):
    """What one owner does; the notes that were acknowledged."""
    done = []
    made = taken(root, "a", file_io)
    for number in range(3):
        made.record_batch(note(number))
        done.append(number)
    made.require_owned()
    made.delete_old_records()
    made.release(settled=True)
    return done


def operations(tmp_path):
    counting = FaultyFileIO(IO)
    history(tmp_path / "count", counting)
    return len(counting.operations)


@pytest.mark.parametrize("mode", ["before", "after", "torn"])
def test_a_death_at_any_operation_leaves_the_stream_to_the_next(tmp_path, mode):
    for at in range(1, operations(tmp_path) + 1):
        root = tmp_path / str(at)
        with pytest.raises(SimulatedCrash):
            history(root, FaultyFileIO(IO, Fault(at, mode)))
        known = newest(root)
        after = taken(root, "b")
        assert after.epoch == (known.epoch + 1 if known else 1)
        after.record_batch(note(9))
        after.release(settled=True)
        assert newest(root).kind == "left"


@pytest.mark.parametrize("mode", ["lost_response", "error"])
def test_an_owner_goes_on_after_the_store_failed_at_any_operation(tmp_path, mode):
    for at in range(1, operations(tmp_path) + 1):
        root = tmp_path / str(at)
        file_io = FaultyFileIO(IO, Fault(at, mode))
        made = ownership(root, "a", file_io)
        todo = [
            lambda made=made: made.acquire(None, note=None, settled=True),
            *(lambda made=made, n=n: made.record_batch(note(n)) for n in range(3)),
            made.require_owned,
            made.delete_old_records,
            lambda made=made: made.release(settled=True),
        ]
        for step in todo:
            try:
                step()
            except StorageUnavailableError:
                step()
        found = newest(root)
        assert (found.kind, found.epoch, found.owner.token) == ("left", 1, "a")
        assert found.note == note(2)


def test_only_a_batch_that_may_come_yet_is_not_settled(tmp_path):
    first = taken(tmp_path, "a")
    assert newest(tmp_path).settled
    first.record_batch(note(1))
    assert not newest(tmp_path).settled
    first.mark_resolved()
    assert newest(tmp_path).settled
    first.record_batch(note(2))
    first.release(settled=False)
    assert not newest(tmp_path).settled


def test_who_ends_before_it_has_settled_leaves_that_to_the_next(tmp_path):
    """Such as a daemon that is told to stop while the store is away at its start."""
    sleeper = taken(tmp_path, "a")
    sleeper.record_batch(note(1))
    second = ownership(tmp_path, "b")
    second.acquire(second.newest(), note=note(1), settled=False)
    second.release(settled=True)
    assert not newest(tmp_path).settled, "the sleeper may still commit"
    third = ownership(tmp_path, "c")
    third.acquire(third.newest(), note=note(1), settled=False)
    third.mark_resolved()
    third.release(settled=False)
    assert newest(tmp_path).settled


def test_what_a_later_version_wrote_is_refused(tmp_path):
    first = taken(tmp_path, "a")
    path = tmp_path / f".lakeward/shop/owner/record-{first.last.number:012d}"
    old = f'"version": {STATE_FORMAT}'.encode()
    path.write_bytes(path.read_bytes().replace(old, b'"version": 99'))
    with pytest.raises(StateFormatError, match="format 99"):
        newest(tmp_path)
    path.write_bytes(b"{")
    with pytest.raises(CorruptDataError):
        newest(tmp_path)


def test_members_of_a_record_that_are_not_known_do_no_harm(tmp_path):
    record = taken(tmp_path, "a").last
    data = encoded(record).replace(b'"epoch": 1,', b'"epoch": 1, "colour": "red",')
    assert decoded(data, OwnerRecord, "x") == record


# --- who lives


def lease(root, name, clock, **more):
    return Lease(IO, str(root), "shop", clock, me=owner(name, **more))


class Together:
    """A clock whose sleeps let the other daemon live, or not."""

    def __init__(self, clock, other=None, after_s=1e9):
        self.clock, self.other, self.after_s, self.slept = clock, other, after_s, 0.0

    def now_ms(self):
        return self.clock.now_ms()

    def monotonic_s(self):
        return self.slept

    def sleep(self, seconds):
        self.slept += seconds
        if self.other is not None and self.slept >= self.after_s:
            self.other()


def test_a_living_owner_is_named_and_left_alone(tmp_path):
    first = lease(tmp_path, "a", ManualClock())
    first.acquire()
    second = lease(tmp_path, "b", Together(ManualClock(), first.beat, after_s=10))
    with pytest.raises(StreamHeldError, match="runs already") as caught:
        second.acquire()
    assert caught.value.context["host"] == "host-a"
    assert caught.value.context["pid"] == 1
    assert caught.value.context["since"] == "1970-01-01T00:00:00Z"
    assert "--take-over" in caught.value.hint
    first.beat()


def test_a_silent_owner_is_overthrown_after_its_time_whatever_wall_clocks_say(tmp_path):
    first = lease(tmp_path, "a", ManualClock(now_ms=10**15))
    first.acquire()
    first.ownership.record_batch(note(1))
    clock = Together(ManualClock(now_ms=0))
    second = lease(tmp_path, "b", clock)
    second.acquire()
    assert 30 < clock.slept < 35
    assert second.ownership.epoch == 2
    assert not second.ownership.last.settled
    with pytest.raises(FencedError):
        first.beat()


def test_an_owner_that_leaves_meanwhile_is_followed_at_once(tmp_path):
    first = lease(tmp_path, "a", ManualClock())
    first.acquire()
    clock = Together(ManualClock(), lambda: first.release(settled=True), after_s=4)
    second = lease(tmp_path, "b", clock)
    second.acquire()
    assert clock.slept < 7
    assert second.ownership.last.settled


def test_who_left_in_the_middle_of_a_batch_may_not_have_ended_yet(tmp_path):
    me = Owner.this_process(0)
    alive = {"pid": me.pid, "boot": me.boot, "namespace": me.namespace, "ticks": me.ticks}
    for name, facts, settled in (("alive", alive, False), ("dead", alive | {"ticks": "1"}, True)):
        root = tmp_path / name
        first = lease(root, "a", ManualClock())
        first.ownership.me = first.me = dataclasses.replace(owner("a"), **facts)
        first.acquire()
        first.ownership.record_batch(note(1))
        first.release(settled=False)
        second = Lease(IO, str(root), "shop", ManualClock(), me=dataclasses.replace(me, token="b"))
        second.acquire()
        assert second.ownership.last.settled == settled, name


def test_a_third_that_is_faster_counts_as_alive(tmp_path):
    lease(tmp_path, "a", ManualClock()).acquire()
    third = lease(tmp_path, "c", ManualClock())
    clock = Together(ManualClock(), lambda: third.acquire(take_over=True), after_s=20)
    with pytest.raises(StreamHeldError) as caught:
        lease(tmp_path, "b", clock).acquire()
    assert caught.value.context["host"] == "host-c"


def test_taking_over_asks_nobody(tmp_path):
    first = lease(tmp_path, "a", ManualClock())
    first.acquire()
    clock = Together(ManualClock())
    lease(tmp_path, "b", clock).acquire(take_over=True)
    assert clock.slept == 0
    with pytest.raises(FencedError):
        first.beat()


@pytest.mark.parametrize("mode", ["lost_response", "error"])
def test_a_try_that_the_store_failed_in_is_made_again_at_once(tmp_path, mode):
    for at in range(1, 7):
        root = tmp_path / str(at)
        file_io = FaultyFileIO(IO, Fault(at, mode))
        clock = Together(ManualClock())
        one = Lease(file_io, str(root), "shop", clock, me=owner("a"))
        try:
            one.acquire()
        except StorageUnavailableError:
            one.acquire()
        assert clock.slept == 0
        one.beat()
        assert newest(root).owner.token == "a"


def test_who_is_told_to_stop_does_not_wait(tmp_path):
    lease(tmp_path, "a", ManualClock()).acquire()
    with pytest.raises(StreamHeldError):
        lease(tmp_path, "b", Together(ManualClock())).acquire(stopping=lambda: True)


def test_the_thread_tells_of_the_loss(tmp_path):
    told = []
    first = Lease(IO, str(tmp_path), "shop", ManualClock(), ttl_s=0.03, me=owner("a"))
    first.acquire()
    first.keep(told.append)
    lease(tmp_path, "b", ManualClock()).acquire(take_over=True)
    first._thread.join(10)
    assert [type(error) for error in told] == [FencedError]
    assert first.lost_to is told[0]
    first.release(settled=True)
    assert newest(tmp_path).owner.token == "b"


def test_a_store_that_does_not_answer_after_the_start_ends_nothing(tmp_path):
    file_io = FaultyFileIO(IO, [Fault(at, "error") for at in range(8, 20)])
    first = Lease(file_io, str(tmp_path), "shop", ManualClock(), ttl_s=0.03, me=owner("a"))
    first.acquire()
    assert len(file_io.operations) < 8, "the store fails after the stream was taken"
    first.keep(lambda error: None)
    while len(file_io.operations) < 25:
        time.sleep(0.01)
    first.release(settled=True)
    assert first.lost_to is None
    assert newest(tmp_path).kind == "left"


def test_starts_in_quick_succession_leave_a_bounded_folder(tmp_path):
    for number in range(40):
        one = Lease(IO, str(tmp_path), "shop", ManualClock(), me=owner(str(number)))
        one.acquire(take_over=True)
        one.keep(lambda error: None)
        one.beat()
        if number % 2:
            one.release(settled=True)
        else:
            one._ended.set()
    assert len(list((tmp_path / ".lakeward/shop/owner").iterdir())) <= 12


# --- processes


def test_a_process_of_this_machine_is_known_to_be_gone_when_it_is():
    child = subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE)
    try:
        me = Owner.this_process(0)
        its = dataclasses.replace(
            me, token="other", pid=child.pid, ticks=_ticks(child.pid), instance=""
        )
        assert not its.has_ended(me)
        child.kill()
        _until_dead(child)
        assert its.has_ended(me), "a process that waits for its parent counts as ended"
        child.wait()
        assert its.has_ended(me)
        assert not dataclasses.replace(its, boot="of another machine").has_ended(me)
        assert not dataclasses.replace(its, namespace="of another container").has_ended(me)
    finally:
        child.stdin.close()
        child.wait()


def test_a_pid_that_was_given_again_is_another_process():
    me = Owner.this_process(0)
    assert dataclasses.replace(me, token="other", ticks="1").has_ended(me)
    assert not dataclasses.replace(me, token="other").has_ended(me)
    assert not me.has_ended(me)


def test_containers_of_one_pod_follow_one_another(monkeypatch):
    monkeypatch.setenv(INSTANCE_VARIABLE, "pod-uid")
    me = Owner.this_process(0)
    assert me.instance == "pod-uid"
    before = dataclasses.replace(me, token="other", namespace="of the container before")
    assert before.has_ended(me)
    assert not dataclasses.replace(before, instance="other-pod").has_ended(me)


def _ticks(pid):
    with open(f"/proc/{pid}/stat") as file:
        return file.read().rpartition(")")[2].split()[19]


def _until_dead(child):
    os.waitid(os.P_PID, child.pid, os.WEXITED | os.WNOWAIT)
