# SPDX-License-Identifier: Apache-2.0
"""The fault-injecting store: what each mode leaves behind and what the caller sees."""

import pickle

import pytest

from storage.errors import StorageUnavailableError
from storage.io.local import LocalFileIO
from tests.faulty_io import Fault, FaultyFileIO, SimulatedCrash
from tests.unit.storage.file_io_contract import fail_while_writing

CRASHES = ("before", "after", "torn")


@pytest.fixture
def inner():
    return LocalFileIO(durable=False)


def write_through_output(store, path, data):
    with store.open_output(path) as sink:
        sink.write(data)


WRITES = {
    "write_bytes": lambda store, path: store.write_bytes(path, b"12345678"),
    "overwrite_bytes": lambda store, path: store.overwrite_bytes(path, b"12345678"),
    "put_if_absent": lambda store, path: store.put_if_absent(path, b"12345678"),
    "open_output": lambda store, path: write_through_output(store, path, b"12345678"),
}


def content(inner, path):
    return inner.read_bytes(path) if inner.exists(path) else None


def test_without_faults_it_records_and_passes_everything_on(inner, tmp_path):
    store = FaultyFileIO(inner)
    path = f"{tmp_path}/f"
    store.write_bytes(path, b"1")
    store.overwrite_bytes(path, b"22")
    assert store.read_bytes(path) == b"22"
    assert store.open_input(path).read() == b"22"
    assert store.size(path) == 2
    assert store.exists(path)
    assert [s.name for s in store.list(str(tmp_path))] == ["f"]
    assert [s.name for s in store.walk(str(tmp_path))] == ["f"]
    assert store.put_if_absent(path, b"3") is False
    write_through_output(store, path + "2", b"4")
    assert store.delete(path) is True
    assert [name for name, _ in store.operations] == [
        "write_bytes",
        "overwrite_bytes",
        "read_bytes",
        "open_input",
        "size",
        "exists",
        "list",
        "walk",
        "put_if_absent",
        "open_output",
        "delete",
    ]
    assert store.operations[0] == ("write_bytes", path)


@pytest.mark.parametrize("operation", WRITES)
@pytest.mark.parametrize(
    ("mode", "expected"), [("before", None), ("after", b"12345678"), ("error", None),
                           ("lost_response", b"12345678")]
)  # fmt: skip
def test_effect_of_a_write_fault(inner, tmp_path, operation, mode, expected):
    store = FaultyFileIO(inner, Fault(1, mode))
    path = f"{tmp_path}/f"
    with pytest.raises(SimulatedCrash if mode in CRASHES else StorageUnavailableError):
        WRITES[operation](store, path)
    assert content(inner, path) == expected


@pytest.mark.parametrize("operation", ["write_bytes", "open_output"])
def test_a_torn_plain_write_leaves_half_the_file(inner, tmp_path, operation):
    with pytest.raises(SimulatedCrash):
        WRITES[operation](FaultyFileIO(inner, Fault(1, "torn")), f"{tmp_path}/f")
    assert content(inner, f"{tmp_path}/f") == b"1234"


@pytest.mark.parametrize("operation", ["put_if_absent", "overwrite_bytes"])
def test_a_torn_atomic_write_leaves_only_a_half_temporary_file(inner, tmp_path, operation):
    with pytest.raises(SimulatedCrash):
        WRITES[operation](FaultyFileIO(inner, Fault(1, "torn")), f"{tmp_path}/f")
    assert content(inner, f"{tmp_path}/f") is None
    (left,) = inner.list(str(tmp_path))
    assert left.name.startswith(".f.")
    assert left.name.endswith(".tmp")
    assert inner.read_bytes(left.path) == b"1234"


@pytest.mark.parametrize("mode", ["before", "torn"])
def test_a_crashed_delete_removes_nothing(inner, tmp_path, mode):
    inner.write_bytes(f"{tmp_path}/f", b"1")
    with pytest.raises(SimulatedCrash):
        FaultyFileIO(inner, Fault(1, mode)).delete(f"{tmp_path}/f")
    assert inner.exists(f"{tmp_path}/f")


def test_only_the_chosen_operation_fails(inner, tmp_path):
    store = FaultyFileIO(inner, [Fault(2, "error"), Fault(4, "lost_response")])
    store.write_bytes(f"{tmp_path}/1", b"1")
    with pytest.raises(StorageUnavailableError):
        store.write_bytes(f"{tmp_path}/2", b"1")
    store.write_bytes(f"{tmp_path}/2", b"1")
    with pytest.raises(StorageUnavailableError):
        store.put_if_absent(f"{tmp_path}/3", b"1")
    assert store.put_if_absent(f"{tmp_path}/3", b"1") is False
    assert len(store.operations) == 5


@pytest.mark.parametrize("mode", CRASHES)
def test_after_a_crash_everything_crashes(inner, tmp_path, mode):
    store = FaultyFileIO(inner, Fault(1, mode))
    with pytest.raises(SimulatedCrash):
        store.exists(str(tmp_path))
    assert store.crashed
    for call in (
        lambda: store.read_bytes(f"{tmp_path}/f"),
        lambda: store.delete(f"{tmp_path}/f"),
        lambda: store.list(str(tmp_path)),
        lambda: write_through_output(store, f"{tmp_path}/f", b"1"),
    ):
        with pytest.raises(SimulatedCrash):
            call()
    assert len(store.operations) == 1
    assert inner.list(str(tmp_path)) == []


def test_a_crash_is_not_an_exception():
    assert not issubclass(SimulatedCrash, Exception)


def test_an_abandoned_output_is_no_operation(inner, tmp_path):
    store = FaultyFileIO(inner)
    with pytest.raises(RuntimeError, match="boom"):
        fail_while_writing(store, f"{tmp_path}/f")
    assert store.operations == []
    assert not inner.exists(f"{tmp_path}/f")


def test_it_pickles_with_its_history(inner, tmp_path):
    store = FaultyFileIO(inner, Fault(2, "error"))
    store.exists(str(tmp_path))
    copy = pickle.loads(pickle.dumps(store))
    with pytest.raises(StorageUnavailableError):
        copy.exists(str(tmp_path))
    assert len(store.operations) == 1
