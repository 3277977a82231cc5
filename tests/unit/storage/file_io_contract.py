# SPDX-License-Identifier: Apache-2.0
"""What every `FileIO` promises, whatever is behind it.

A test module inherits from `FileIOContract` and gives the fixtures `store` and `root` (a fresh
directory's path).
"""

import threading

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from storage.io.file_io import FileIO

ODD_NAMES = ("p=a%2Fb", "x y", "ä", "a#b?c", "a+b&c", "k=__DEFAULT_PARTITION__")


def fail_while_writing(store, path, size=3):
    with store.open_output(path) as sink:
        sink.write(b"x" * size)
        raise RuntimeError("boom")


def winners_by_round(store, root, *, threads, rounds, content):
    """Who, of threads that put `root/snapshot-<round>` at the same time, is told to have done it.

    A thread puts what `content` gives for its number.
    """
    wins = [[] for _ in range(rounds)]
    barrier = threading.Barrier(threads)

    def run(number):
        for round_ in range(rounds):
            barrier.wait()
            if store.put_if_absent(f"{root}/snapshot-{round_}", content(number)):
                wins[round_].append(number)

    running = [threading.Thread(target=run, args=(n,)) for n in range(threads)]
    for thread in running:
        thread.start()
    for thread in running:
        thread.join()
    return wins


class FileIOContract:
    """The shared tests."""

    def test_is_a_file_io(self, store):
        assert isinstance(store, FileIO)

    def test_put_if_absent_publishes_once(self, store, root):
        path = f"{root}/snapshot/snapshot-1"
        assert store.put_if_absent(path, b"first") is True
        assert store.put_if_absent(path, b"second") is False
        assert store.put_if_absent(path, b"first") is False
        assert store.read_bytes(path) == b"first"
        assert [status.name for status in store.list(f"{root}/snapshot")] == ["snapshot-1"]

    def test_put_if_absent_has_one_winner_among_threads(self, store, root):
        wins = winners_by_round(
            store, root, threads=8, rounds=6, content=lambda number: b"the same bytes"
        )
        assert [len(winners) for winners in wins] == [1] * 6

    @pytest.mark.parametrize("size", [3, 20 << 20], ids=["small", "large"])
    def test_an_output_appears_whole_or_not_at_all(self, store, root, size):
        path = f"{root}/p=1/bucket-0/data-0"
        block = bytes(range(256)) * 4096
        with store.open_output(path) as sink:
            assert not isinstance(sink, str)
            for start in range(0, size, len(block)):
                sink.write(block[: size - start])
            assert sink.tell() == size
        assert store.size(path) == size
        assert store.read_bytes(path) == (block * (size // len(block) + 1))[:size]
        with pytest.raises(RuntimeError, match="boom"):
            fail_while_writing(store, path + "x", size)
        assert not store.exists(path + "x")
        with pytest.raises(FileExistsError), store.open_output(path) as sink:
            sink.write(b"0" * size)
        assert store.read_bytes(path)[:2] == block[:2]

    def test_an_output_may_be_closed_by_its_writer(self, store, root):
        with store.open_output(f"{root}/d") as sink:
            sink.write(b"abc")
            sink.close()
        assert store.read_bytes(f"{root}/d") == b"abc"

    def test_write_bytes_creates_and_never_replaces(self, store, root):
        store.write_bytes(f"{root}/m", b"1")
        with pytest.raises(FileExistsError):
            store.write_bytes(f"{root}/m", b"2")
        assert store.read_bytes(f"{root}/m") == b"1"

    def test_an_empty_file_is_a_file(self, store, root):
        store.write_bytes(f"{root}/empty", b"")
        assert store.exists(f"{root}/empty")
        assert store.size(f"{root}/empty") == 0
        assert store.read_bytes(f"{root}/empty") == b""
        with store.open_input(f"{root}/empty") as source:
            assert source.size() == 0
            assert source.read() == b""

    def test_overwrite_replaces_in_one_step(self, store, root):
        store.overwrite_bytes(f"{root}/LATEST", b"1")
        store.overwrite_hint(f"{root}/LATEST", b"22")
        assert store.read_bytes(f"{root}/LATEST") == b"22"
        assert [status.name for status in store.list(root)] == ["LATEST"]

    def test_listing_is_sorted_and_empty_for_a_missing_directory(self, store, root):
        for name in ("b", "a.x", "a/1", "c/d/2"):
            store.write_bytes(f"{root}/{name}", b"12")
        found = store.list(root)
        assert [(s.name, s.path, s.directory, s.size) for s in found] == [
            ("a", f"{root}/a", True, 0),
            ("a.x", f"{root}/a.x", False, 2),
            ("b", f"{root}/b", False, 2),
            ("c", f"{root}/c", True, 0),
        ]
        assert all(s.modified_ms > 1_500_000_000_000 for s in found if not s.directory)
        assert store.list(f"{root}/missing") == []
        walked = [status.path for status in store.walk(root)]
        assert walked == [f"{root}/{name}" for name in ("a.x", "a/1", "b", "c/d/2")]
        assert list(store.walk(f"{root}/missing")) == []

    def test_names_are_taken_literally(self, store, root):
        for name in ODD_NAMES:
            store.write_bytes(f"{root}/{name}/{name}", name.encode())
        assert [status.name for status in store.list(root)] == sorted(ODD_NAMES)
        for name in ODD_NAMES:
            assert store.read_bytes(f"{root}/{name}/{name}") == name.encode()
            assert [s.path for s in store.list(f"{root}/{name}")] == [f"{root}/{name}/{name}"]

    def test_a_listing_has_all_pages(self, store, root):
        names = sorted(f"f-{number}" for number in range(1100))
        for name in names:
            store.overwrite_bytes(f"{root}/many/{name}", b"")
        assert [status.name for status in store.list(f"{root}/many")] == names
        assert store.delete_many(f"{root}/many/{name}" for name in names) == len(names)
        assert store.list(f"{root}/many") == []

    def test_delete_and_exists_and_size(self, store, root):
        path = f"{root}/d/f"
        assert not store.exists(path)
        assert store.delete(path) is False
        store.write_bytes(path, b"123")
        assert store.exists(path)
        assert store.size(path) == 3
        assert store.exists(f"{root}/d")
        assert store.is_file(path)
        assert not store.exists(f"{path}/below-a-file")
        assert store.delete(path) is True
        assert not store.exists(path)
        assert not store.is_file(path)

    def test_missing_files_raise_file_not_found(self, store, root):
        for call in (store.read_bytes, store.open_input, store.size):
            with pytest.raises(FileNotFoundError):
                call(f"{root}/missing")

    def test_many_files_are_read_in_order(self, store, root):
        paths = [f"{root}/f-{number}" for number in range(40)]
        for number, path in enumerate(paths):
            store.write_bytes(path, b"%d" % number)
        assert list(store.read_many(paths)) == [b"%d" % number for number in range(40)]
        assert list(store.read_many([])) == []
        with pytest.raises(FileNotFoundError):
            list(store.read_many([paths[0], f"{root}/missing"]))

    def test_input_is_seekable(self, store, root):
        store.write_bytes(f"{root}/f", b"0123456789")
        with store.open_input(f"{root}/f") as source:
            assert isinstance(source, pa.NativeFile)
            assert source.size() == 10
            source.seek(4)
            assert source.read(3) == b"456"
            assert source.tell() == 7
            assert source.read() == b"789"
            assert source.read_at(2, 1) == b"12"

    def test_parquet_is_written_and_read(self, store, root):
        table = pa.table({"a": range(5000), "b": [str(n) for n in range(5000)]})
        with store.open_output(f"{root}/t.parquet") as sink:
            pq.write_table(table, sink, row_group_size=1000)
        with store.open_input(f"{root}/t.parquet") as source:
            file = pq.ParquetFile(source)
            assert file.num_row_groups == 5
            assert file.read_row_group(3, columns=["b"]).column("b")[0].as_py() == "3000"
            assert file.read() == table
