# SPDX-License-Identifier: Apache-2.0
import os
import pathlib
import shutil

import pytest

from storage.errors import CorruptDataError, InvalidRequestError
from storage.format.metadata.manifest_store import clear_manifest_cache
from storage.io.local import LocalFileIO
from storage.table.branches import create_branch
from storage.table.retention.expire import (
    DEFAULT_AGE_MS,
    OrphanFiles,
    expire_snapshots,
    remove_orphan_files,
)
from storage.table.scan.predicate import parse_predicate
from storage.table.table import FileStoreTable
from storage.table.tags import create_tag
from storage.table.write.rows.row_changes import delete_where
from storage.testing.invariants import check_table
from tests.faulty_io import Fault, FaultyFileIO, SimulatedCrash
from tests.table_kit import make_table, prepared, reopened, rows_of, write

KEEP = {
    "snapshot.num-retained.min": "1",
    "snapshot.num-retained.max": "2",
    "changelog.num-retained.min": "4",
    "changelog.num-retained.max": "4",
    "file-index.bloom-filter.columns": "v",
    "file-index.in-manifest-threshold": "1 b",
}


def grown_old(table: FileStoreTable) -> None:
    """Let every file be older than the limit."""
    old = table.clock.now_ms() / 1000 - 2 * DEFAULT_AGE_MS / 1000
    for path in pathlib.Path(table.layout.root).rglob("*"):
        os.utime(path, (old, old))


def files(table: FileStoreTable) -> set[str]:
    root = pathlib.Path(table.layout.root)
    return {str(path) for path in root.rglob("*") if path.is_file()}


def orphans_of(table: FileStoreTable) -> OrphanFiles:
    clear_manifest_cache()
    return remove_orphan_files(reopened(table))


def test_whatever_is_named_stays(tmp_path: pathlib.Path) -> None:
    table = make_table(tmp_path, options=KEEP, partitions=["k"], keys=["k", "v"])
    for number in range(9):
        write(table, number, [("+I", number % 2, "x"), ("+I", 5, f"{number}")], full=number == 5)
        if number == 1:
            create_tag(table, "t", 1)
            create_branch(table, "b", tag="t")
    write(table.at_branch("b"), 1, [("+I", 1, "on b")])
    expire_snapshots(table, now_ms=table.clock.now_ms() + 10**10)
    assert table.changelogs.ids()
    grown_old(table)
    before = files(table)
    assert orphans_of(table) == OrphanFiles((), 0)
    assert files(table) == before
    for one in (reopened(table), reopened(table).at_branch("b")):
        check_table(one)


def test_leftovers_go_when_they_are_old(tmp_path: pathlib.Path) -> None:
    table = make_table(tmp_path, keys=["k", "v"], partitions=["v"])
    write(table, 1, [("+I", 1, "a"), ("+I", 2, "b")])
    prepared(table, [("+I", 3, "a"), ("+I", 3, "c")])  # never committed
    root = pathlib.Path(table.layout.root)
    named = files(table)
    left = [
        root / "manifest" / "manifest-left-0",
        root / "snapshot" / ".snapshot-7.tmp",
        root / "changelog" / "unknown",
        root / "index" / "index-left-0",
        root / "statistics" / "stat-left-0",
    ]
    for path in left:
        path.parent.mkdir(exist_ok=True)
        path.write_bytes(b"12345")
    (root / "notes.txt").write_text("not ours")
    grown_old(table)
    young = root / "manifest" / "manifest-young-0"
    young.write_bytes(b"1")
    os.utime(young, (table.clock.now_ms() / 1000, table.clock.now_ms() / 1000))
    assert remove_orphan_files(table, dry_run=True).size >= 25
    assert set(map(str, left)) < files(table)
    removed = orphans_of(table)
    assert len(removed.paths) == len(left) + 2
    assert set(map(str, left)) < set(removed.paths)
    assert files(table) == (named | {str(root / "notes.txt"), str(young)}) - set(removed.paths)
    assert rows_of(table) == [(1, "a"), (2, "b")]
    check_table(reopened(table))


def test_index_files_of_deleted_rows_stay(tmp_path: pathlib.Path) -> None:
    options = {"bucket": "-1", "deletion-vectors.enabled": "true"}
    table = make_table(tmp_path, keys=[], options=options)
    write(table, 1, [("+I", 1, "a"), ("+I", 2, "b")])
    delete_where(table, parse_predicate("k = 1"), "user")
    grown_old(table)
    assert not orphans_of(table).paths
    assert rows_of(table) == [(2, "b")]


def test_a_crashed_expiry_leaves_what_can_be_removed(tmp_path: pathlib.Path) -> None:
    for at in range(1, 60, 7):
        table = make_table(tmp_path / f"{at}", options={"num-sorted-run.compaction-trigger": "2"})
        for number in range(4):
            write(table, number, [("+I", 1, f"{number}")], full=number == 2)
        store = FaultyFileIO(LocalFileIO(durable=False), Fault(at, "before"))
        try:
            one = reopened(table, file_io=store)
            expire_snapshots(one, now_ms=one.clock.now_ms(), retain_min=1, retain_max=1)
        except SimulatedCrash:
            pass
        grown_old(table)
        orphans_of(table)
        check_table(reopened(table))
        assert rows_of(reopened(table)) == [(1, "3")]
        shutil.rmtree(tmp_path / f"{at}")


@pytest.mark.parametrize("pattern", ["manifest-list-*", "manifest-[0-9a-f]*"])
def test_nothing_goes_when_a_snapshot_is_not_whole(tmp_path: pathlib.Path, pattern: str) -> None:
    table = make_table(tmp_path)
    write(table, 1, [("+I", 1, "a")])
    prepared(table, [("+I", 3, "c")])
    next(pathlib.Path(table.layout.manifest_dir).glob(pattern)).unlink()
    grown_old(table)
    before = files(table)
    with pytest.raises(CorruptDataError, match="nothing may be removed"):
        orphans_of(table)
    assert files(table) == before


def test_a_branch_without_schemas_aborts(tmp_path: pathlib.Path) -> None:
    table = make_table(tmp_path)
    write(table, 1, [("+I", 1, "a")])
    (pathlib.Path(table.layout.branches_dir) / "branch-b" / "snapshot").mkdir(parents=True)
    with pytest.raises(CorruptDataError, match="has no schemas"):
        orphans_of(table)


def test_the_limit_is_past(tmp_path: pathlib.Path) -> None:
    table = make_table(tmp_path)
    with pytest.raises(InvalidRequestError, match="olderThan must be less than now"):
        remove_orphan_files(table, older_than_ms=table.clock.now_ms())
