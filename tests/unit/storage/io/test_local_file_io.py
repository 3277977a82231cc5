# SPDX-License-Identifier: Apache-2.0
"""The local store: atomic publishing, durability of what it promises, errors by meaning."""

import contextlib
import errno
import multiprocessing
import os
import pickle

import pytest

from storage.errors import InvalidRequestError, StorageUnavailableError, UnsupportedFeatureError
from storage.io.local import LocalFileIO, durable_together
from storage.io.resolve import resolve_file_io
from tests.unit.storage.file_io_contract import FileIOContract, winners_by_round


@pytest.fixture
def store():
    return LocalFileIO()


class TestContract(FileIOContract):
    @pytest.fixture
    def root(self, tmp_path):
        return str(tmp_path)


def names_in(directory):
    return sorted(entry.name for entry in directory.iterdir())


def test_put_if_absent_has_one_winner_among_threads(store, tmp_path):
    rounds = 20
    wins = winners_by_round(
        store, str(tmp_path), threads=16, rounds=rounds, content=lambda number: b"%d" % number
    )
    for round_, winners in enumerate(wins):
        assert len(winners) == 1
        assert store.read_bytes(f"{tmp_path}/snapshot-{round_}") == f"{winners[0]}".encode()
    assert len(names_in(tmp_path)) == rounds


def publish_many(root, number, rounds, start, results):
    start.wait()
    store = LocalFileIO(durable=False)
    won = [i for i in range(rounds) if store.put_if_absent(f"{root}/s-{i}", b"%d" % number)]
    results.put((number, won))


def test_put_if_absent_has_one_winner_among_processes(tmp_path):
    context = multiprocessing.get_context("spawn")
    processes, rounds = 3, 150
    start, results = context.Event(), context.Queue()
    running = [
        context.Process(target=publish_many, args=(str(tmp_path), n, rounds, start, results))
        for n in range(processes)
    ]
    for process in running:
        process.start()
    start.set()
    won = dict(results.get(timeout=60) for _ in running)
    for process in running:
        process.join(timeout=60)
    assert sorted(i for numbers in won.values() for i in numbers) == list(range(rounds))
    for number, numbers in won.items():
        assert all((tmp_path / f"s-{i}").read_bytes() == b"%d" % number for i in numbers)


def test_put_if_absent_recognises_its_own_link_after_a_repeated_request(
    store, tmp_path, monkeypatch
):
    real_link = os.link

    def link_twice(source, target):
        real_link(source, target)
        raise FileExistsError(errno.EEXIST, "the first try had gone through", target)

    monkeypatch.setattr(os, "link", link_twice)
    assert store.put_if_absent(f"{tmp_path}/snapshot-1", b"mine") is True
    assert names_in(tmp_path) == ["snapshot-1"]


def test_put_if_absent_without_hard_links_says_so(store, tmp_path, monkeypatch):
    def no_links(source, target):
        raise OSError(errno.EOPNOTSUPP, "not supported")

    monkeypatch.setattr(os, "link", no_links)
    with pytest.raises(UnsupportedFeatureError, match="atomically"):
        store.put_if_absent(f"{tmp_path}/snapshot-1", b"x")
    assert names_in(tmp_path) == []


@pytest.fixture
def synced(monkeypatch):
    """Paths in the order in which they were synced."""
    paths = []
    monkeypatch.setattr(os, "fsync", lambda fd: paths.append(os.readlink(f"/proc/self/fd/{fd}")))
    return paths


def test_every_published_byte_and_name_is_synced(tmp_path, synced):
    LocalFileIO().put_if_absent(f"{tmp_path}/a/b/s", b"x")
    assert synced[:2] == [str(tmp_path), f"{tmp_path}/a"]
    assert synced[2].startswith(f"{tmp_path}/a/b/.s.")
    assert synced[3:] == [f"{tmp_path}/a/b"]
    synced.clear()
    with LocalFileIO().open_output(f"{tmp_path}/a/b/d") as sink:
        sink.write(b"x")
    assert synced == [f"{tmp_path}/a/b/d", f"{tmp_path}/a/b"]
    synced.clear()
    LocalFileIO(durable=False).write_bytes(f"{tmp_path}/c/d", b"x")
    assert synced == []


def test_small_files_are_synced_together_before_the_block_ends(store, tmp_path, synced):
    with durable_together():
        store.write_bytes(f"{tmp_path}/a", b"x")
        with durable_together(), store.open_output(f"{tmp_path}/b") as sink:
            sink.write(b"x")
        assert synced == []
    assert sorted(synced) == [str(tmp_path), f"{tmp_path}/a", f"{tmp_path}/b"]
    synced.clear()
    store.write_bytes(f"{tmp_path}/c", b"x")
    assert synced == [f"{tmp_path}/c", str(tmp_path)]


@pytest.mark.parametrize("publish", ["put_if_absent", "overwrite_bytes"])
def test_what_is_published_in_a_block_comes_after_what_it_may_name(
    publish, store, tmp_path, synced
):
    with durable_together():
        store.write_bytes(f"{tmp_path}/named", b"x")
        getattr(store, publish)(f"{tmp_path}/p", b"named")
        temporary = next(at for at, path in enumerate(synced) if ".tmp" in path)
        assert f"{tmp_path}/named" in synced[:temporary]
        synced.clear()
    assert synced == []


def test_a_large_file_is_synced_at_once(store, tmp_path, synced):
    with durable_together():
        store.write_bytes(f"{tmp_path}/large", bytes((4 << 20) + 1))
        assert synced == [f"{tmp_path}/large", str(tmp_path)]
        with store.open_output(f"{tmp_path}/other") as sink:
            sink.write(bytes((4 << 20) + 1))
        assert synced[2:] == [f"{tmp_path}/other", str(tmp_path)]


def test_a_block_that_fails_syncs_too_and_a_removed_file_is_left_out(store, tmp_path, synced):
    with contextlib.suppress(ZeroDivisionError), durable_together():
        store.write_bytes(f"{tmp_path}/kept", b"x")
        store.write_bytes(f"{tmp_path}/removed", b"x")
        store.delete(f"{tmp_path}/removed")
        raise ZeroDivisionError
    assert sorted(synced) == [str(tmp_path), f"{tmp_path}/kept"]


def test_a_sync_that_fails_at_the_end_is_an_unavailable_store(store, tmp_path, monkeypatch):
    def full(*args):
        raise OSError(errno.ENOSPC, "no space left on device")

    monkeypatch.setattr(os, "fsync", full)
    with pytest.raises(StorageUnavailableError, match="free some space"), durable_together():
        store.write_bytes(f"{tmp_path}/f", b"1")
    monkeypatch.undo()
    with durable_together():
        store.write_bytes(f"{tmp_path}/g", b"1")  # nothing of the failed block is left over


def test_passing_faults_become_storage_unavailable(store, tmp_path, monkeypatch):
    def full(*args):
        raise OSError(errno.ENOSPC, "no space left on device")

    monkeypatch.setattr(os, "fsync", full)
    with pytest.raises(StorageUnavailableError, match="free some space"):
        store.write_bytes(f"{tmp_path}/f", b"1")
    assert names_in(tmp_path) == []


def test_it_pickles():
    store = pickle.loads(pickle.dumps(LocalFileIO(durable=False)))
    assert isinstance(store, LocalFileIO)
    assert store.durable is False


@pytest.mark.parametrize(
    ("location", "root"),
    [
        ("/data/warehouse/", "/data/warehouse"),
        ("file:/data/w", "/data/w"),
        ("file:///data/a%20b", "/data/a%20b"),
        ("file://localhost/data", "/data"),
        ("FILE:///data", "/data"),
        ("/data/c:/d", "/data/c:/d"),
    ],
)
def test_warehouse_locations(location, root):
    store, path = resolve_file_io(location)
    assert isinstance(store, LocalFileIO)
    assert path == root


def test_relative_and_home_locations_become_absolute(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("HOME", "/home/someone")
    assert resolve_file_io("w")[1] == f"{tmp_path}/w"
    assert resolve_file_io("~/w")[1] == "/home/someone/w"


@pytest.mark.parametrize("location", ["", "  ", "file://host/data", "file://"])
def test_unusable_locations_are_refused(location):
    with pytest.raises(InvalidRequestError):
        resolve_file_io(location)


@pytest.mark.parametrize("location", ["oss://b/w", "viewfs://nn:8020/w", "ftp://b/w"])
def test_other_stores_are_refused_with_a_hint(location):
    with pytest.raises(UnsupportedFeatureError, match="hint"):
        resolve_file_io(location)
