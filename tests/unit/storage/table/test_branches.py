# SPDX-License-Identifier: Apache-2.0
"""Branches: making, reading, writing, fast-forwarding and dropping them; fallback reads."""

import os
import pathlib
import pickle
from typing import Any

import pytest

from changelog.stream_scan import ChangelogReader
from storage.catalog.catalog import FileSystemCatalog
from storage.clock import ManualClock, SeededIds
from storage.errors import (
    InvalidRequestError,
    NotFoundError,
)
from storage.format.metadata.manifest_store import clear_manifest_cache
from storage.format.metadata.schema_changes import AddColumn, SetOption
from storage.format.types.types import parse_type
from storage.io.local import LocalFileIO
from storage.table.branches import (
    create_branch,
    drop_branch,
    fast_forward,
    lost_by_forward,
    rename_branch,
)
from storage.table.core import TableCore
from storage.table.retention import expire, reachability
from storage.table.retention.expire import expire_snapshots, remove_orphan_files
from storage.table.retention.reachability import Removal, branch_names
from storage.table.table import FileStoreTable
from storage.table.tags import all_tags, create_tag, delete_tag
from storage.testing.invariants import check_table
from tests.table_kit import NAME, make_table, reopened, rows_of, write
from tests.unit.storage.golden_tables import GOLDEN


def _at(table: FileStoreTable, branch: str) -> FileStoreTable:
    return FileStoreTable.open(
        table.layout.root,
        file_io=LocalFileIO(durable=False),
        clock=table.clock,
        ids=SeededIds(hash(branch) % 1000),
        branch=branch,
    )


def _tagged(tmp_path: pathlib.Path) -> FileStoreTable:
    table = make_table(tmp_path)
    write(table, 1, [("+I", 1, "a")], compaction=False)
    create_tag(table, "t")
    return table


def test_a_branch_of_java_is_read() -> None:
    root = str(GOLDEN / "tags_branch_consumer" / "table")
    assert branch_names(FileStoreTable.open(root)) == ["dev", "empty"]
    dev = FileStoreTable.open(root, branch="dev")
    assert rows_of(dev) == [(1, "branch a", 1), (10, "on branch", 10), (2, "b", 2)]
    assert rows_of(dev, tag="t1") == [(1, "a", 1), (2, "b", 2)]
    assert rows_of(FileStoreTable.open(root, branch="empty")) == []
    with pytest.raises(NotFoundError):
        FileStoreTable.open(root, branch="none")


def test_a_branch_from_a_tag_goes_its_own_way(tmp_path: pathlib.Path) -> None:
    table = _tagged(tmp_path)
    create_branch(table, "b", tag="t")
    files = sorted(
        path.relative_to(table.layout.root).as_posix()
        for path in pathlib.Path(table.layout.root, "branch").rglob("*")
        if path.is_file()
    )
    assert files == [
        "branch/branch-b/schema/schema-0",
        "branch/branch-b/snapshot/snapshot-1",
        "branch/branch-b/tag/tag-t",
    ]
    branch = _at(table, "b")
    write(table, 2, [("+I", 2, "main")])
    write(branch, 2, [("+I", 3, "branch")])
    assert rows_of(reopened(table)) == [(1, "a"), (2, "main")]
    assert rows_of(_at(table, "b")) == [(1, "a"), (3, "branch")]
    travelled = pickle.loads(pickle.dumps(FileStoreTable.open(table.layout.root, branch="b")))
    assert rows_of(travelled) == [(1, "a"), (3, "branch")]
    assert not pathlib.Path(table.layout.root, "branch/branch-b/manifest").exists()
    check_table(_at(table, "b"))


def test_other_ways_of_opening_a_branch(tmp_path: pathlib.Path) -> None:
    table = _tagged(tmp_path)
    create_branch(table, "b", snapshot_id=1)
    write(table, 2, [("+I", 2, "main")])
    catalog = FileSystemCatalog(
        str(tmp_path), file_io=table.file_io, clock=ManualClock(), ids=SeededIds(7)
    )
    for opened in (
        catalog.table(f"{NAME}$branch_b"),
        table.with_options({"branch": "b"}),
        table.at_branch("b"),
    ):
        assert opened.layout.branch == "b"
        assert rows_of(opened) == [(1, "a")]
    with pytest.raises(NotFoundError):
        catalog.table(f"{NAME}$branch_none")
    table.alter([SetOption("branch", "b")])
    assert rows_of(reopened(table)) == [(1, "a")]
    assert rows_of(_at(table, "main")) == [(1, "a"), (2, "main")]


def test_an_empty_branch_has_all_schemas(tmp_path: pathlib.Path) -> None:
    table = _tagged(tmp_path)
    table = table.alter([AddColumn("w", parse_type("INT"))])
    create_branch(table, "b")
    branch = _at(table, "b")
    assert branch.schema.field_names == ("k", "v", "w")
    assert branch.schemas.ids() == [0, 1]
    assert rows_of(branch) == []
    create_branch(table, "old", tag="t")
    assert _at(table, "old").schemas.ids() == [0]


@pytest.mark.parametrize("name", ["main", "", " ", "123", "a/b", "a$b"])
def test_bad_names(tmp_path: pathlib.Path, name: str) -> None:
    with pytest.raises(InvalidRequestError):
        create_branch(_tagged(tmp_path), name)


def test_names_are_taken_once(tmp_path: pathlib.Path) -> None:
    table = _tagged(tmp_path)
    create_branch(table, "b")
    with pytest.raises(InvalidRequestError, match="already exists"):
        create_branch(table, "b")
    create_branch(table, "b", tag="t", ignore_if_exists=True)
    assert rows_of(_at(table, "b")) == []
    with pytest.raises(InvalidRequestError):
        create_branch(table, "c", tag="t", snapshot_id=1)
    for missing in ({"tag": "no"}, {"snapshot_id": 9}):
        with pytest.raises(NotFoundError):
            create_branch(table, "c", **missing)


def test_renaming_and_dropping(tmp_path: pathlib.Path) -> None:
    table = _tagged(tmp_path)
    create_branch(table, "b", tag="t")
    write(_at(table, "b"), 2, [("+I", 3, "branch")])
    rename_branch(table, "b", "c")
    assert branch_names(table) == ["c"]
    assert rows_of(_at(table, "c")) == [(1, "a"), (3, "branch")]
    with pytest.raises(InvalidRequestError):
        drop_branch(_at(table, "c"), "c")
    drop_branch(table, "c")
    assert branch_names(table) == []
    assert not pathlib.Path(table.layout.root, "branch", "branch-c").exists()
    assert rows_of(reopened(table)) == [(1, "a")]
    with pytest.raises(NotFoundError):
        drop_branch(table, "c")


def test_fast_forward_replaces_what_main_has_since(tmp_path: pathlib.Path) -> None:
    table = _tagged(tmp_path)
    create_branch(table, "b", tag="t")
    branch = _at(table, "b").alter([AddColumn("w", parse_type("INT"))])
    for number in (2, 3):
        write(branch, number, [("+I", number, "branch", number)])
    other = table.alter([AddColumn("x", parse_type("STRING"))])
    write(other, 2, [("+I", 9, "main", "lost")])
    write(other, 3, [("+I", 8, "main", "lost")])
    create_tag(table, "lost")
    holder = reopened(table)  # a process that has seen main as it was
    assert len(rows_of(holder)) == 3
    fast_forward(table, "b")
    expected = [(1, "a", None), (2, "branch", 2), (3, "branch", 3)]
    assert rows_of(reopened(table)) == expected
    assert rows_of(holder.latest()) == expected
    assert rows_of(table.latest()) == expected
    assert reopened(table).schema.field_names == ("k", "v", "w")
    assert [tag.name for tag in all_tags(table)] == ["t"]
    write(table.latest(), 4, [("+I", 4, "after", 4)])
    assert rows_of(holder.latest()) == [*expected, (4, "after", 4)]
    assert rows_of(_at(table, "b")) == expected
    check_table(reopened(table))
    fast_forward(table, "b")  # again: what main has since is lost
    assert rows_of(reopened(table)) == expected


def test_fast_forward_to_a_branch_whose_first_snapshots_have_expired(
    tmp_path: pathlib.Path,
) -> None:
    table = _tagged(tmp_path)
    create_branch(table, "b", snapshot_id=1)
    branch = _at(table, "b")
    write(table, 2, [("+I", 2, "main")], full=True)
    write(table, 3, [("+I", 3, "main")], compaction=False)
    for number in range(2, 6):
        write(branch, number, [("+I", number, "branch")], compaction=False)
    expire_snapshots(branch, retain_min=1, retain_max=1, time_retained_ms=0)
    expected = rows_of(branch)
    assert rows_of(table) == [(1, "a"), (2, "main"), (3, "main")]
    assert lost_by_forward(table, branch.snapshots.read(5)) == [1, 2, 3, 4]
    fast_forward(table, "b")
    assert rows_of(table) == expected
    assert table.snapshots.ids() == branch.snapshots.ids() == [5]
    drop_branch(table, "b")
    delete_tag(table, "t")
    write(table, 6, [("+I", 6, "main")], compaction=False)
    expire_snapshots(table, retain_min=1, retain_max=1, time_retained_ms=0)
    assert rows_of(reopened(table)) == [*expected, (6, "main")]
    check_table(table)


def test_fast_forward_refuses_what_makes_no_sense(tmp_path: pathlib.Path) -> None:
    table = _tagged(tmp_path)
    create_branch(table, "b")
    for name in ("b", "main"):
        with pytest.raises(InvalidRequestError):
            fast_forward(table, name)
    with pytest.raises(NotFoundError):
        fast_forward(table, "none")
    create_branch(table, "c", tag="t")
    with pytest.raises(InvalidRequestError):
        fast_forward(_at(table, "b"), "c")
    assert rows_of(reopened(table)) == [(1, "a")]


def test_expiry_of_one_branch_leaves_the_files_of_others(tmp_path: pathlib.Path) -> None:
    table = _tagged(tmp_path)
    create_branch(table, "b", tag="t")
    branch = _at(table, "b")
    for one in (table, branch):
        write(one, 2, [("+I", 1, one.layout.branch)], full=True)
        write(one, 3, [("+I", 2, one.layout.branch)], compaction=False)
    for one in (branch, table):
        expire_snapshots(one, now_ms=0, retain_max=1, retain_min=1, time_retained_ms=0)
        assert rows_of(reopened(table)) == [(1, "main"), (2, "main")]
        assert rows_of(_at(table, "b")) == [(1, "b"), (2, "b")]
        assert rows_of(_at(table, "b"), tag="t") == [(1, "a")]
        assert rows_of(reopened(table), tag="t") == [(1, "a")]


_PARTITIONED = (("dt", "STRING"), ("name", "STRING"), ("amount", "BIGINT"))


def _expire(table: FileStoreTable) -> None:
    assert expire_snapshots(table, retain_min=1, retain_max=1, time_retained_ms=0)


def _remove_orphans(table: FileStoreTable) -> None:
    _expire(table)
    for path in pathlib.Path(table.layout.root).rglob("*"):
        os.utime(path, (0, 0))
    remove_orphan_files(table, older_than_ms=1)


@pytest.mark.parametrize(("module", "remove"), [(reachability, _expire), (expire, _remove_orphans)])
def test_a_branch_that_is_renamed_while_files_are_removed_keeps_its_own(
    tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch, module: Any, remove: Any
) -> None:
    table = _tagged(tmp_path)
    create_branch(table, "b", tag="t")
    delete_tag(table, "t")
    write(table, 2, [("+I", 1, "b")], full=True)
    read = reachability.documents

    def racing(core: TableCore, name: str) -> reachability.Documents:
        if name == "b":
            rename_branch(table, "b", "c")
        return read(core, name)

    monkeypatch.setattr(module, "documents", racing)
    remove(table)
    clear_manifest_cache()
    assert rows_of(_at(table, "c")) == [(1, "a")]


def test_a_branch_is_not_made_of_a_snapshot_that_is_expiring(
    tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    table = make_table(tmp_path)
    write(table, 1, [("+I", 1, "a")], compaction=False)
    write(table, 2, [("+I", 1, "b")], full=True)
    remove = Removal.run

    def racing(removal: Removal) -> int:
        with pytest.raises(NotFoundError, match="expired while the branch"):
            create_branch(table, "b", snapshot_id=1)
        return remove(removal)

    monkeypatch.setattr(Removal, "run", racing)
    assert expire_snapshots(table, retain_min=1, retain_max=1, time_retained_ms=0)
    assert branch_names(table) == []


def test_a_branch_is_not_made_of_a_tag_that_is_being_deleted(
    tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    table = _tagged(tmp_path)
    write(table, 2, [("+I", 1, "b")], full=True)
    expire_snapshots(table, retain_min=1, retain_max=1, time_retained_ms=0)
    overwrite = LocalFileIO.overwrite_bytes

    def racing(file_io: LocalFileIO, path: str, data: bytes) -> None:
        if "branch-b/tag" in path:
            assert delete_tag(table, "t")
        overwrite(file_io, path, data)

    monkeypatch.setattr(LocalFileIO, "overwrite_bytes", racing)
    with pytest.raises(NotFoundError, match="expired while the branch"):
        create_branch(table, "b", tag="t")
    assert branch_names(table) == []


def _with_fallback(
    tmp_path: pathlib.Path, clock: ManualClock | None = None
) -> tuple[FileStoreTable, FileStoreTable]:
    """A table, and its branch that fills in for missing partitions."""
    table = make_table(
        tmp_path, columns=_PARTITIONED, keys=("dt", "name"), partitions=("dt",), clock=clock
    )
    create_branch(table, "fb")
    return table.alter([SetOption("scan.fallback-branch", "fb")]), _at(table, "fb")


def test_missing_partitions_come_from_the_fallback_branch(tmp_path: pathlib.Path) -> None:
    table, fallback = _with_fallback(tmp_path)
    write(fallback, 1, [("+I", "d1", "apple", 4), ("+I", "d1", "peach", 1), ("+I", "d2", "fig", 3)])
    assert rows_of(table) == [("d1", "apple", 4), ("d1", "peach", 1), ("d2", "fig", 3)]
    write(table, 1, [("+I", "d1", "apple", 5), ("+I", "d1", "plum", 7)])
    expected = [("d1", "apple", 5), ("d1", "plum", 7), ("d2", "fig", 3)]
    assert rows_of(reopened(table)) == expected
    assert rows_of(table, columns=["amount"]) == [(3,), (5,), (7,)]
    assert rows_of(table.with_options({"scan.fallback-branch": None})) == expected[:2]
    assert len(table.new_scan().plan().splits) == 1  # of the own branch alone
    fallback.alter([AddColumn("more", parse_type("INT"))])
    with pytest.raises(InvalidRequestError, match="same columns"):
        table.to_arrow()


def test_time_travel_with_a_fallback_branch(tmp_path: pathlib.Path) -> None:
    clock = ManualClock(1_000_000)
    table, fallback = _with_fallback(tmp_path, clock)
    history = []
    for number in range(1, 4):
        clock.advance(1_000)
        write(fallback, 2 * number, [("+I", f"f{number}", "apple", number)])
        write(fallback, 2 * number + 1, [("+I", "both", "fig", number)])
        clock.advance(1_000)
        write(table, number, [("+I", f"t{number}", "plum", number), ("+I", "both", "own", 0)])
        history.append((clock.now_ms(), rows_of(table)))
    assert [len(rows) for _, rows in history] == [3, 5, 7]
    for number, (time_ms, expected) in enumerate(history, 1):
        assert rows_of(table, snapshot=number) == expected
        assert rows_of(table, timestamp_ms=time_ms) == expected
        for option, value in (("snapshot-id", number), ("timestamp-millis", time_ms)):
            chosen = table.with_options({f"scan.{option}": str(value)})
            assert rows_of(reopened(table).with_options({f"scan.{option}": str(value)})) == expected
            assert rows_of(chosen, filter="dt = 'both'") == [("both", "own", 0)]


def test_a_snapshot_older_than_the_fallback_branch_reads_its_first(tmp_path: pathlib.Path) -> None:
    clock = ManualClock(1_000_000)
    table, fallback = _with_fallback(tmp_path, clock)
    write(table, 1, [("+I", "t", "plum", 1)])
    clock.advance(1_000)
    assert rows_of(table, snapshot=1) == [("t", "plum", 1)]
    write(fallback, 1, [("+I", "f", "fig", 1)])
    write(fallback, 2, [("+I", "g", "fig", 1)])
    assert rows_of(table, snapshot=1) == [("f", "fig", 1), ("t", "plum", 1)]


def test_a_tag_must_be_in_both_branches(tmp_path: pathlib.Path) -> None:
    table, fallback = _with_fallback(tmp_path)
    write(table, 1, [("+I", "t", "plum", 1)])
    create_tag(table, "here")
    with pytest.raises(NotFoundError, match="here"):
        table.to_arrow(tag="here")
    write(fallback, 1, [("+I", "f", "fig", 1)])
    create_tag(fallback, "here")
    write(fallback, 2, [("+I", "g", "fig", 1)])
    assert rows_of(table, tag="here") == [("f", "fig", 1), ("t", "plum", 1)]


def test_a_stream_is_of_the_own_branch_alone(tmp_path: pathlib.Path) -> None:
    table, fallback = _with_fallback(tmp_path)
    write(fallback, 1, [("+I", "f", "fig", 1)])
    write(table, 1, [("+I", "t", "plum", 1)])
    changes = list(ChangelogReader(table, 1))
    assert [row["dt"] for change in changes for row in change.to_pylist()] == ["t"]
