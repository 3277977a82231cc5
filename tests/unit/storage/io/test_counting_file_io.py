# SPDX-License-Identifier: Apache-2.0
"""A store whose calls are counted is a store like any other, and every call is counted once."""

import pickle
import time

import pytest

from storage.errors import StorageUnavailableError
from storage.io.counting import CALL_BUCKETS, STORE_CALLS, CallCounts, CallFigures, CountingFileIO
from storage.io.local import LocalFileIO
from tests.faulty_io import Fault, FaultyFileIO
from tests.unit.storage.file_io_contract import FileIOContract, fail_while_writing


class TestCountedStore(FileIOContract):
    @pytest.fixture
    def store(self):
        return CountingFileIO(LocalFileIO(durable=False))

    @pytest.fixture
    def root(self, tmp_path):
        return str(tmp_path / "root")


@pytest.fixture
def root(tmp_path):
    return str(tmp_path)


@pytest.fixture
def store():
    return CountingFileIO(LocalFileIO(durable=False))


@pytest.fixture
def calls():
    """What was counted since the test began."""
    before = STORE_CALLS.figures()
    return lambda: STORE_CALLS.figures().since(before)


def test_calls_are_counted_by_how_they_end(store, root, calls):
    store.write_bytes(f"{root}/a", b"12345")
    assert store.read_bytes(f"{root}/a") == b"12345"
    assert list(store.read_many([f"{root}/a", f"{root}/a"])) == [b"12345"] * 2
    assert store.put_if_absent(f"{root}/s", b"1")
    assert not store.put_if_absent(f"{root}/s", b"22")
    assert not store.exists(f"{root}/none")
    with pytest.raises(FileNotFoundError):
        store.read_bytes(f"{root}/none")
    with store.open_output(f"{root}/b") as sink:
        sink.write(b"x" * 7)
    with store.open_input(f"{root}/b") as source:
        source.read()
    store.list(root)
    assert not store.delete(f"{root}/none")
    found = calls()
    assert found.calls == {
        ("put", "ok"): 2,
        ("get", "ok"): 3,
        ("get", "absent"): 1,
        ("put_if_absent", "ok"): 1,
        ("put_if_absent", "exists"): 1,
        ("head", "absent"): 1,
        ("open", "ok"): 1,
        ("list", "ok"): 1,
        ("delete", "absent"): 1,
    }
    assert found.sizes == {"put": 12, "get": 15, "put_if_absent": 1}
    assert sum(found.classes.values()) == sum(found.calls.values())


def test_errors_of_the_store_and_of_the_caller_are_two_things(root, calls):
    store = CountingFileIO(FaultyFileIO(LocalFileIO(durable=False), Fault(1, "error")))
    with pytest.raises(StorageUnavailableError):
        store.write_bytes(f"{root}/a", b"1")
    with pytest.raises(RuntimeError, match="boom"):
        fail_while_writing(store, f"{root}/b")
    assert calls().calls == {("put", "error"): 1, ("put", "aborted"): 1}


def test_a_caller_that_has_seen_enough_or_takes_its_time_is_not_the_stores_error(
    store, root, calls
):
    for name in "abc":
        store.write_bytes(f"{root}/{name}", b"1")
    before = calls()
    files = store.walk(root)
    next(files)
    time.sleep(0.1)
    files.close()
    found = calls().since(before)
    assert found.calls == {("list", "ok"): 1}
    assert found.seconds["list"] < 0.1


def test_a_copy_in_another_process_is_still_counted(store, root, calls):
    pickle.loads(pickle.dumps(store)).write_bytes(f"{root}/a", b"1")
    assert calls().calls == {("put", "ok"): 1}


def test_a_distant_store_stays_distant(store):
    class Far(LocalFileIO):
        distant = True

    assert CountingFileIO(Far()).distant
    assert not store.distant


def test_figures_add_up_and_come_apart():
    counts = CallCounts()
    counts.add("get", "ok", CALL_BUCKETS[0], 5)
    early = counts.figures()
    counts.add("get", "ok", CALL_BUCKETS[-1] + 1, 6)
    late = counts.figures()
    step = late.since(early)
    assert step.calls == {("get", "ok"): 1}
    assert step.sizes == {"get": 6}
    assert step.classes == {("get", len(CALL_BUCKETS)): 1}
    assert early.classes == {("get", 0): 1}
    both = early.plus(step)
    assert (both.calls, both.sizes, both.classes) == (late.calls, late.sizes, late.classes)
    assert both.seconds["get"] == pytest.approx(late.seconds["get"])
    assert late.since(late) == CallFigures()
