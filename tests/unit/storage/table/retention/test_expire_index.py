# SPDX-License-Identifier: Apache-2.0
"""Expiry of table index files, index manifests and statistics."""

import contextlib
import pathlib

import msgspec

from storage.io.local import LocalFileIO
from storage.table.branches import create_branch
from storage.table.commit.live_files import index_entries
from storage.table.retention.expire import expire_snapshots
from storage.table.scan.predicate import parse_predicate
from storage.table.table import FileStoreTable
from storage.table.tags import create_tag
from storage.table.write.rows.row_changes import delete_where
from storage.testing.invariants import check_table
from tests.faulty_io import Fault, FaultyFileIO, SimulatedCrash
from tests.table_kit import (
    index_files_named,
    index_files_on_disk,
    make_table,
    metadata_files,
    named_files,
    reopened,
    rows_of,
    write,
)


def history(directory: pathlib.Path) -> FileStoreTable:
    """Three files; rows of one are deleted twice, of another once; the third has no vector."""
    options = {"bucket": "-1", "deletion-vectors.enabled": "true"}
    options["deletion-vector.index-file.target-size"] = "1 b"
    table = make_table(directory, keys=(), options=options)
    for number in range(3):
        rows = [("+I", 10 * number + digit, "v") for digit in range(4)]
        write(table, number, rows, compaction=False)
    for text in ("k = 0", "k = 1", "k = 10"):
        delete_where(table, parse_predicate(text), "d")
    return table


def expire(table: FileStoreTable, retain: int) -> int:
    now = table.clock.now_ms() + 10**10
    return expire_snapshots(table, now_ms=now, retain_min=retain, retain_max=retain)


def test_index_files_go_with_the_last_snapshot_that_names_them(tmp_path: pathlib.Path) -> None:
    table = history(tmp_path)
    rows = rows_of(table)
    assert len(index_files_on_disk(table)) == 3
    for retain, left in ((3, 3), (2, 2), (1, 2)):
        assert expire(table, retain) > 0
        fresh = reopened(table)
        assert index_files_on_disk(fresh) == index_files_named(fresh)
        assert len(index_files_on_disk(fresh)) == left
        assert metadata_files(fresh) == named_files(fresh)[1]
        assert rows_of(fresh) == rows
        check_table(fresh)


def test_tags_and_branches_keep_index_files(tmp_path: pathlib.Path) -> None:
    table = history(tmp_path)
    create_tag(table, "t", 4)
    create_branch(table, "b", snapshot_id=5)
    wanted = [rows_of(table, snapshot=one) for one in (4, 5)]
    expire(table, 1)
    fresh = reopened(table)
    assert [rows_of(fresh, tag="t"), rows_of(fresh.at_branch("b"))] == wanted
    assert len(index_files_on_disk(fresh)) == 3


def test_statistics_go_too(tmp_path: pathlib.Path) -> None:
    table = history(tmp_path)
    for number, name in ((1, "stat-a-0"), (2, "stat-a-0"), (6, "stat-b-0")):
        snapshot = table.snapshots.read(number)
        table.file_io.overwrite_bytes(table.layout.statistics_file(name), b"{}")
        changed = msgspec.structs.replace(snapshot, statistics=name)
        table.file_io.overwrite_bytes(table.layout.snapshot_file(number), changed.to_json())
    expire(reopened(table), 1)
    directory = pathlib.Path(table.layout.statistics_dir)
    assert [path.name for path in directory.iterdir()] == ["stat-b-0"]


def test_a_pass_that_was_cut_off_is_finished(tmp_path: pathlib.Path) -> None:
    for at in range(1, 80, 3):
        table = history(tmp_path / str(at))
        rows = rows_of(table)
        store = FaultyFileIO(LocalFileIO(durable=False), Fault(at, "before"))
        done = False
        with contextlib.suppress(SimulatedCrash):
            expire(reopened(table, file_io=store), 1)
            done = True
        fresh = reopened(table)
        check_table(fresh)
        expire(fresh, 1)
        assert rows_of(reopened(table)) == rows
        named = index_files_named(fresh)
        assert named <= index_files_on_disk(fresh)
        if done:
            assert index_files_on_disk(fresh) == named
            break


def test_a_table_without_vectors_left_names_an_empty_index(tmp_path: pathlib.Path) -> None:
    table = history(tmp_path)
    table.new_commit("u").truncate(9)
    assert index_entries(table, table.latest_snapshot()) == ()
    expire(table, 1)
    assert index_files_on_disk(table) == set()
    check_table(reopened(table))
