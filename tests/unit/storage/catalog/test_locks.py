# SPDX-License-Identifier: Apache-2.0
"""Commits under a catalog's lock, on a store that cannot publish a file atomically by itself."""

import multiprocessing
import pathlib
import pickle
import sqlite3
import threading

import pytest

from storage.catalog.catalog import Catalog
from storage.catalog.jdbc import JdbcLock
from storage.catalog.options import CatalogLock, LockedFileIO
from storage.clock import ManualClock
from storage.errors import CommitConflictError, UnsupportedFeatureError
from storage.format.metadata.schema import new_schema
from storage.format.metadata.schema_changes import AddColumn
from storage.format.types.types import parse_type
from storage.io.counting import ForwardingFileIO
from storage.io.local import LocalFileIO
from tests.table_kit import rows_of, write

INT = parse_type("INT")
WRITERS, COMMITS = 3, 6


class Careless(ForwardingFileIO):
    """A store that replaces what is there, whatever it is asked for."""

    def put_if_absent(self, path, data):
        raise UnsupportedFeatureError("no conditional put")


def opened(folder: str, **more: str) -> Catalog:
    options = {"metastore": "jdbc", "uri": f"jdbc:sqlite:{folder}/names.db", "lock.enabled": "true"}
    options |= {"lock-check-max-sleep": "60 ms", **more}
    return Catalog.open(f"{folder}/w", options).through(Careless)


def schema():
    return new_schema([("k", INT), ("v", INT)], primary_keys=["k"], options={"bucket": "1"})


def _commit(folder: str, number: int, together: threading.Barrier) -> None:
    catalog = opened(folder)
    table = catalog.create_table("db.t", schema(), ignore_if_exists=True)
    together.wait(120)  # a process that started late would race with nobody
    for one in range(COMMITS):
        key = number * 100 + one
        write(table, one + 1, [("+I", key, one)], user=f"u{number}", compaction=False)
    catalog.alter_table("db.t", [AddColumn(f"c{number}", INT)])


def test_processes_that_race_through_the_lock_lose_nothing(tmp_path):
    folder = str(tmp_path)
    opened(folder).create_database("db")
    context = multiprocessing.get_context("spawn")
    together = context.Barrier(WRITERS)
    processes = [
        context.Process(target=_commit, args=(folder, n, together)) for n in range(WRITERS)
    ]
    for process in processes:
        process.start()
    for process in processes:
        process.join(120)
    assert [process.exitcode for process in processes] == [0] * WRITERS
    table = opened(folder).table("db.t")
    keys = [row[0] for row in rows_of(table)]
    assert sorted(keys) == [n * 100 + one for n in range(WRITERS) for one in range(COMMITS)]
    assert table.latest_snapshot().id == WRITERS * COMMITS
    assert set(table.schema.field_names) == {"k", "v", *(f"c{n}" for n in range(WRITERS))}
    with sqlite3.connect(tmp_path / "names.db") as names:
        assert names.execute("select count(*) from paimon_distributed_locks").fetchone() == (0,)


def test_without_the_lock_such_a_store_is_refused(tmp_path):
    catalog = opened(str(tmp_path), **{"lock.enabled": "false"})
    catalog.create_database("db")
    with pytest.raises(UnsupportedFeatureError, match="no conditional put"):
        catalog.create_table("db.t", schema())
    with pytest.raises(UnsupportedFeatureError, match="no lock"):
        Catalog.open(str(tmp_path), {"lock.enabled": "true"})


def test_a_lock_that_is_held_fails_the_commit_and_an_expired_one_does_not(tmp_path):
    catalog = opened(str(tmp_path), **{"lock-acquire-timeout": "1 s"})
    catalog.create_database("db")
    table = catalog.create_table("db.t", schema())
    with sqlite3.connect(tmp_path / "names.db") as names:
        insert = "insert into paimon_distributed_locks values ('jdbc.db.t', {}, 3600)"
        names.execute(insert.format("current_timestamp"))
    with pytest.raises(CommitConflictError, match="lock of the table"):
        write(table, 1, [("+I", 1, 1)])
    assert table.latest_snapshot() is None
    with sqlite3.connect(tmp_path / "names.db") as names:
        names.execute("update paimon_distributed_locks set acquired_at = '2020-01-01 00:00:00'")
    write(table, 1, [("+I", 1, 1)])
    assert rows_of(table) == [(1, 1)]


class Counted(CatalogLock):
    """A lock that is free from the third try on."""

    def __init__(self, options, clock, free_from=3):
        super().__init__("l", options, clock)
        self.tries, self.released, self.free_from = 0, [], free_from

    def acquire(self):
        self.tries += 1
        return f"t{self.tries}" if self.tries >= self.free_from else None

    def release(self, token):
        self.released.append(token)


def test_waiting_for_a_lock(tmp_path):
    clock = ManualClock()
    lock = Counted({"lock-check-max-sleep": "60 ms"}, clock)
    began = clock.monotonic_s()
    file_io = LockedFileIO(Careless(LocalFileIO(durable=False)), lock)
    path = tmp_path / "snapshot-1"
    assert file_io.put_if_absent(str(path), b"a")
    assert not file_io.put_if_absent(str(path), b"b")
    assert path.read_bytes() == b"a"
    assert clock.monotonic_s() - began == pytest.approx(0.11)
    assert lock.released == ["t3", "t4"]
    never = Counted({"lock-acquire-timeout": "5 s"}, clock, free_from=10**9)
    with pytest.raises(CommitConflictError, match="could not be acquired"), never.hold():
        raise AssertionError
    assert never.released == []


def test_a_lock_that_expired_is_not_released(tmp_path):
    clock = ManualClock()
    lock = Counted({"lock-acquire-timeout": "5 s"}, clock, free_from=1)
    with lock.hold():
        clock.sleep(6)
    assert lock.released == []


def test_locks_travel(tmp_path):
    opened(str(tmp_path)).create_database("db")
    options = {"uri": f"jdbc:sqlite:{tmp_path}/names.db"}
    lock = pickle.loads(pickle.dumps(JdbcLock("a.b.c", options)))
    with lock.hold():
        assert JdbcLock("a.b.c", options).acquire() is None
        assert JdbcLock("a.b.d", options).acquire() == "a.b.d"
    assert lock.acquire() == "a.b.c"
    assert pathlib.Path(tmp_path / "names.db").exists()
