# SPDX-License-Identifier: Apache-2.0
"""Local copies: shared, bounded, and made again whenever they are lost or damaged."""

import errno
import gc
import multiprocessing
import os
import pathlib
import shutil
import stat

import pytest

from storage.clock import ManualClock
from storage.errors import InvalidRequestError, StorageUnavailableError
from storage.lsm.lookup import local_copy, store
from storage.lsm.lookup.local_copy import SearchedKeys
from storage.lsm.lookup.store import CopyLimits, LookupStore, process_store
from tests.unit.storage.key_value_files import STORE, schema_of
from tests.unit.storage.lookup_buckets import keys_of, lookup_in, run_of, store_at

_TEXTS = schema_of(("k", "STRING NOT NULL"), ("v", "INT"))
_NUMBERS = schema_of(("k", "BIGINT NOT NULL"), ("v", "INT"))
_ROWS = 200


@pytest.fixture(params=["BIGINT", "STRING"])
def bucket(request, tmp_path):
    return _Bucket(tmp_path, _TEXTS if request.param == "STRING" else _NUMBERS)


class _Bucket:
    """Rows 0 to 199 in four files of one run."""

    def __init__(self, directory, schema):
        self.directory = directory
        self.schema = schema
        self.clock = ManualClock()
        self.run = run_of(
            directory, schema, {"k": self._keys(range(_ROWS)), "v": list(range(_ROWS))}, files=4
        )

    def _keys(self, numbers):
        return [f"{n:03}" if self.schema is _TEXTS else n for n in numbers]

    def store(self):
        return store_at(self.directory / "copies", self.clock)

    def copies(self):
        return sorted(path for path in (self.directory / "copies").rglob("*") if path.is_file())

    def look_up(self, copies, numbers=range(_ROWS), **arguments):
        """Values of rows by number, all of which must be found."""
        lookup = lookup_in(self.directory, self.schema, copies, **arguments)
        found = lookup.find(keys_of(self.schema, {"k": self._keys(numbers)}), [self.run])
        assert found.rows["v"].to_pylist() == list(numbers)


def test_a_copy_serves_all_lookups_and_the_next_process(bucket):
    first = bucket.store()
    bucket.look_up(first)
    bucket.look_up(first)
    counters = first.counters()
    assert (counters.misses, counters.hits, counters.built_files) == (4, 4, 4)
    assert counters.built_bytes == counters.bytes_on_disk > 0
    second = bucket.store()
    bucket.look_up(second)
    assert (second.counters().misses, second.counters().hits) == (0, 4)
    assert second.counters().bytes_on_disk == counters.bytes_on_disk


def test_copies_are_for_their_owner_only(bucket):
    bucket.look_up(bucket.store())
    for path in [bucket.directory / "copies", *(bucket.directory / "copies").rglob("*")]:
        assert stat.S_IMODE(path.stat().st_mode) == (0o700 if path.is_dir() else 0o600)


def test_a_lost_directory_is_made_again(bucket):
    copies = bucket.store()
    bucket.look_up(copies)
    shutil.rmtree(bucket.directory / "copies")
    bucket.look_up(copies)
    assert copies.counters().built_files == 8
    assert len(bucket.copies()) == 4


def test_a_lost_copy_is_made_again(bucket):
    copies = bucket.store()
    bucket.look_up(copies)
    bucket.copies()[1].unlink()
    bucket.look_up(copies)
    assert copies.counters().built_files == 5


@pytest.mark.parametrize("harm", ["empty", "short", "tail", "schema", "longer"])
def test_a_damaged_copy_is_made_again(bucket, harm):
    bucket.look_up(bucket.store())
    for path in bucket.copies():
        data = bytearray(path.read_bytes())
        match harm:
            case "empty":
                data = b""
            case "short":
                del data[-100:]
            case "tail":
                data[-30] ^= 1
            case "schema":
                start = data.index(b"_SEQUENCE_NUMBER") - 200
                data[start : start + 200] = bytes(200)
            case "longer":
                data += b"more"
        path.write_bytes(data)
    copies = bucket.store()
    bucket.look_up(copies)
    assert copies.counters().built_files == 4


def test_a_copy_from_before_the_machine_started_is_not_trusted(bucket, monkeypatch):
    bucket.look_up(bucket.store())
    monkeypatch.setattr(local_copy, "_boot", lambda: "another")
    copies = bucket.store()
    bucket.look_up(copies)
    assert copies.counters().built_files == 4


def test_the_least_recently_used_copies_make_room(bucket):
    size = 0
    copies = bucket.store()
    for number in (0, 50, 100):
        bucket.clock.advance(1000)
        bucket.look_up(copies, [number])
        size = copies.counters().bytes_on_disk
    bucket.clock.advance(1000)
    bucket.look_up(copies, [1])
    bucket.clock.advance(1000)
    bucket.look_up(copies, [150], limits=CopyLimits(max_bytes=size + 1))
    assert copies.counters().evicted_files == 1
    copies = bucket.store()
    bucket.look_up(copies, [2, 102, 152])
    assert copies.counters().built_files == 0
    bucket.look_up(copies, [52])
    assert copies.counters().built_files == 1


def test_a_bound_below_one_copy_still_lets_lookups_succeed(bucket):
    copies = bucket.store()
    bucket.look_up(copies, limits=CopyLimits(max_bytes=1))
    assert len(bucket.copies()) == 1
    bucket.look_up(copies, limits=CopyLimits(max_bytes=1))


def test_a_bound_concerns_the_copies_of_its_table_only(bucket, tmp_path_factory):
    copies = bucket.store()
    bucket.look_up(copies)
    other = _Bucket(tmp_path_factory.mktemp("other"), bucket.schema)
    other.look_up(copies, limits=CopyLimits(max_bytes=1))
    assert len(bucket.copies()) == 5


def test_removed_copies_of_others_do_not_make_the_space_negative(bucket):
    copies = bucket.store()
    bucket.look_up(copies, [0])
    bucket.look_up(bucket.store(), [50, 100])  # by another process
    bucket.look_up(copies, [150], limits=CopyLimits(max_bytes=1))
    assert copies.counters().evicted_files == 3
    assert copies.counters().bytes_on_disk == 0


def test_mapped_copies_are_bounded(bucket):
    copies = bucket.store()
    bucket.look_up(copies)
    size = copies.counters().bytes_on_disk // len(bucket.copies())
    limits = CopyLimits(max_mapped=2 * size + size // 2)
    for _ in range(2):  # maps what was closed again, and builds nothing
        for number in (0, 50, 100, 150):
            bucket.look_up(copies, [number], limits=limits)
            assert len(copies._open) <= 2
    assert copies.counters().built_files == len(bucket.copies())
    bucket.look_up(copies, [0], limits=CopyLimits(max_mapped=1))
    assert len(copies._open) == 1


def test_an_open_copy_outlives_its_file(bucket):
    copies = bucket.store()
    source = _source(bucket, 0)
    copy = copies.copy_of("t", source, CopyLimits())
    shutil.rmtree(bucket.directory / "copies")
    searched = lookup_keys(bucket, [0, 49])
    numbers, positions = copy.find(searched)
    assert numbers.tolist() == [0, 1]
    assert [row for batch in copy.rows(positions) for row in batch["v"].to_pylist()] == [0, 49]


def lookup_keys(bucket, numbers):
    batch = keys_of(bucket.schema, {"k": bucket._keys(numbers)})
    types = [field.type for field in bucket.schema.key_fields]
    return SearchedKeys(batch.columns, types, local_copy.boot_seed())


def _source(bucket, number):
    meta = bucket.run.files[number]
    return local_copy.CopySource(
        STORE, f"{bucket.directory}/{meta.file_name}", meta, bucket.schema, bucket.schema
    )


def test_copies_without_use_go(bucket):
    copies = bucket.store()
    bucket.look_up(copies, [0, 60], limits=CopyLimits(retention_ms=600_000))
    bucket.clock.advance(500_000)
    bucket.look_up(copies, [0], limits=CopyLimits(retention_ms=600_000))
    bucket.clock.advance(200_000)
    another = bucket.store()  # whichever process comes by
    bucket.look_up(another, [1], limits=CopyLimits(retention_ms=600_000))
    assert len(bucket.copies()) == 1
    assert another.counters().evicted_files == 1
    bucket.clock.advance(700_000)
    another.sweep()
    assert bucket.copies() == []
    assert another.counters().bytes_on_disk == 0
    assert list((bucket.directory / "copies").iterdir()) == []


def test_copies_of_replaced_files_go_soon(bucket):
    copies = bucket.store()
    bucket.look_up(copies)
    names = [_source(bucket, number).name for number in range(4)]
    lookup_in(bucket.directory, bucket.schema, copies).release(bucket.run.files[:2])
    bucket.look_up(bucket.store(), [0])  # its compaction lost a race: the first is used again
    bucket.clock.advance(40_000)
    copies.sweep()
    left = {path.name.removesuffix(".copy") for path in bucket.copies()}
    assert left == {names[0], *names[2:]}
    bucket.look_up(copies)


def test_memory_does_not_hold_what_is_not_used(bucket):
    copies = bucket.store()
    bucket.look_up(copies)
    copies.sweep()
    bucket.look_up(copies, [0])
    assert len(mapped(bucket)) == 4
    copies.sweep()
    assert len(mapped(bucket)) == 1
    copies.sweep()
    assert mapped(bucket) == set()
    bucket.look_up(copies)
    assert copies.counters().misses == 4  # each was built once


def mapped(bucket):
    """Copies of the bucket that this process has mapped."""
    gc.collect()
    lines = pathlib.Path("/proc/self/maps").read_text().splitlines()
    return {line.split()[-1] for line in lines if str(bucket.directory) in line}


def test_what_dead_processes_left_unfinished_goes(bucket):
    copies = bucket.store()
    bucket.look_up(copies)
    abandoned = bucket.copies()[0].with_name("x.building")
    abandoned.write_bytes(b"half")
    copies.sweep()
    assert not abandoned.exists()
    assert len(bucket.copies()) == 4


def test_files_of_others_are_left_alone(bucket):
    copies = bucket.store()
    bucket.look_up(copies)
    ours = bucket.copies()[0].parent
    others = [
        bucket.directory / "copies" / "a.copy",
        ours / "notes",
        bucket.directory / "copies" / "folder" / "b.copy",
        bucket.directory / "copies" / "folder" / "c.building",
    ]
    others[-1].parent.mkdir()
    for path in others:
        path.write_bytes(b"")
        os.utime(path, (1, 1))
    bucket.clock.advance(10**9)
    copies.sweep()
    assert bucket.copies() == sorted(others)


def test_a_half_written_copy_is_written_anew(bucket):
    copies = bucket.store()
    bucket.look_up(copies)
    for path in bucket.copies():
        path.rename(path.with_suffix(".building"))
    bucket.look_up(copies)
    assert copies.counters().built_files == 8
    assert len(bucket.copies()) == 4


def test_nothing_is_left_of_a_copy_that_fails(bucket):
    copies = bucket.store()
    (bucket.directory / bucket.run.files[0].file_name).unlink()
    with pytest.raises(StorageUnavailableError):
        bucket.look_up(copies)
    assert bucket.copies() == []


def test_a_full_disk_first_costs_other_copies_and_then_is_an_error(bucket, monkeypatch):
    copies = bucket.store()
    bucket.look_up(copies, [0])
    failures = [errno.ENOSPC]
    real = store.write_copy

    def full(file, source):
        if failures:
            raise OSError(failures.pop(), "full")
        return real(file, source)

    monkeypatch.setattr(store, "write_copy", full)
    bucket.look_up(copies, [50])
    assert copies.counters().evicted_files == 1
    failures += [errno.ENOSPC] * 3
    with pytest.raises(StorageUnavailableError, match=r"lookup\.cache-max-disk-size"):
        bucket.look_up(copies, [100])
    assert bucket.copies() == []


def test_two_tables_of_one_path_are_told_apart(bucket):
    """A table that was dropped and made again may have files of the same names."""
    copies = bucket.store()
    bucket.look_up(copies)
    other = schema_of(("k", "BIGINT NOT NULL" if bucket.schema is _NUMBERS else "STRING NOT NULL"),
                      ("w", "INT"), ("v", "INT"))  # fmt: skip
    shutil.move(bucket.directory / "copies", bucket.directory.parent / "copies")
    shutil.rmtree(bucket.directory)
    bucket.directory.mkdir()
    bucket.run = run_of(
        bucket.directory,
        other,
        {"k": bucket._keys(range(_ROWS)), "w": [7] * _ROWS, "v": list(range(_ROWS))},
        files=4,
    )
    bucket.schema, texts = other, bucket.schema is _TEXTS
    bucket._keys = lambda numbers: [f"{n:03}" if texts else n for n in numbers]
    shutil.move(bucket.directory.parent / "copies", bucket.directory / "copies")
    bucket.look_up(copies)
    assert copies.counters().built_files == 8


def _child(bucket, barrier, results):
    copies = LookupStore(bucket.directory / "copies", clock=bucket.clock)
    barrier.wait()
    bucket.look_up(copies)
    results.put(copies.counters().built_files)


def test_processes_that_want_one_copy_build_it_once(bucket, monkeypatch):
    context = multiprocessing.get_context("fork")
    barrier, results = context.Barrier(3), context.Queue()
    children = [context.Process(target=_child, args=(bucket, barrier, results)) for _ in range(3)]
    for child in children:
        child.start()
    built = [results.get(timeout=30) for _ in children]
    for child in children:
        child.join()
    assert sum(built) == 4
    assert len(bucket.copies()) == 4


def test_the_processs_store_is_where_the_environment_says(tmp_path, monkeypatch):
    monkeypatch.setenv("LAKEWARD_LOOKUP_DIRECTORY", str(tmp_path / "here"))
    assert process_store().directory == tmp_path / "here"
    assert process_store() is process_store()


def test_without_a_word_it_is_in_a_directory_of_the_user(tmp_path, monkeypatch):
    monkeypatch.delenv("LAKEWARD_LOOKUP_DIRECTORY", raising=False)
    monkeypatch.setattr(store.tempfile, "gettempdir", lambda: str(tmp_path))
    directory = process_store().directory
    assert directory == tmp_path / f"lakeward-lookup-{os.getuid()}"
    assert stat.S_IMODE(directory.stat().st_mode) == 0o700
    directory.chmod(0o755)
    with pytest.raises(InvalidRequestError, match="other users"):
        process_store()
