# SPDX-License-Identifier: Apache-2.0
"""Rolling back: what is left, what other processes see, and races with writers."""

import pathlib

import pytest

from storage.errors import InvalidRequestError, NotFoundError
from storage.io.local import LocalFileIO
from storage.table.branches import create_branch, fast_forward, rollback_target, rollback_to
from storage.table.retention.expire import expire_snapshots
from storage.table.table import FileStoreTable
from storage.table.tags import all_tags, create_tag, delete_tag
from storage.testing.invariants import check_table
from tests.faulty_io import Fault, FaultyFileIO, SimulatedCrash
from tests.table_kit import (
    data_files,
    make_table,
    metadata_files,
    named_files,
    prepared,
    reopened,
    rows_of,
    write,
)
from tests.unit.storage.golden_tables import GoldenTable
from tests.unit.storage.newest_files import newest_names

LOCAL = LocalFileIO(durable=False)


def _written(tmp_path: pathlib.Path, count: int = 4) -> FileStoreTable:
    table = make_table(tmp_path)
    for number in range(1, count + 1):
        write(table, number, [("+I", number, "a")], compaction=False)
    return table


def test_newer_snapshots_tags_and_files_go(tmp_path: pathlib.Path) -> None:
    table = _written(tmp_path)
    for number in (1, 3):
        create_tag(table, f"t{number}", number)
    before = data_files(table)
    assert rollback_to(table, 2).id == 2
    assert rows_of(reopened(table)) == [(1, "a"), (2, "a")]
    assert reopened(table).snapshots.ids() == [1, 2]
    assert [tag.name for tag in all_tags(table)] == ["t1"]
    assert data_files(table) == newest_names(table) < before
    hint = pathlib.Path(table.layout.latest_hint)
    assert hint.read_bytes() == b"2"
    assert metadata_files(table) == named_files(reopened(table))[1]
    check_table(reopened(table))


def test_an_upgraded_file_of_the_target_stays(tmp_path: pathlib.Path) -> None:
    table = make_table(tmp_path)
    write(table, 1, [("+I", 1, "a")], compaction=False)
    write(table, 2, full=True)
    assert table.snapshots.latest_id() == 2
    rollback_to(table, 1)
    assert rows_of(reopened(table)) == [(1, "a")]


def test_every_process_sees_the_ids_used_anew(tmp_path: pathlib.Path) -> None:
    table = _written(tmp_path)
    holder = reopened(table)
    committer = holder.new_commit("late")
    assert len(rows_of(holder)) == 4
    assert len(rows_of(holder, snapshot=3)) == 3
    committer.filter_committed([7])
    rollback_to(table, 2)
    assert len(rows_of(holder)) == 2
    for number in (7, 8, 9):
        write(table, number, [("+I", 10 * number, "new")], user="late", compaction=False)
    expected = [(1, "a"), (2, "a"), (70, "new")]
    assert sorted(rows_of(holder, snapshot=3)) == expected
    assert len(rows_of(holder)) == 5
    assert len(rows_of(reopened(table))) == 5
    assert committer.filter_committed([7, 8, 9, 10]) == [10]
    check_table(reopened(table))


def test_a_twin_finds_its_commit_after_a_rollback(tmp_path: pathlib.Path) -> None:
    table = _written(tmp_path)
    twin = reopened(table)
    first = twin.new_commit("stream")
    assert first.commit(prepared(twin, [("+I", 50, "x")], compaction=False), 1).append_snapshot_id
    rollback_to(table, 2)
    again = reopened(table)
    messages = prepared(again, [("+I", 51, "y")], compaction=False)
    assert not again.new_commit("stream").commit(messages, 2).already_committed
    messages = prepared(twin, [("+I", 51, "y")], compaction=False)
    assert first.commit(messages, 2).already_committed
    assert rows_of(reopened(table)) == [(1, "a"), (2, "a"), (51, "y")]


def test_a_tag_of_an_expired_snapshot_becomes_a_snapshot_again(tmp_path: pathlib.Path) -> None:
    table = _written(tmp_path)
    create_tag(table, "t", 1)
    write(table, 5, [("+I", 1, "b")], full=True)
    expire_snapshots(table, now_ms=0, retain_max=1, retain_min=1, time_retained_ms=0)
    with pytest.raises(NotFoundError, match="doesn't exist"):
        rollback_to(table, 2)
    with pytest.raises(NotFoundError):
        rollback_to(table, tag="none")
    with pytest.raises(InvalidRequestError):
        rollback_to(table)
    rollback_to(table, tag="t")
    again = reopened(table)
    assert rows_of(again) == [(1, "a")]
    assert again.snapshots.ids() == [1]
    assert again.snapshots.earliest_id() == 1
    assert data_files(table) == newest_names(again)
    write(again, 6, [("+I", 2, "b")])
    assert rows_of(reopened(table)) == [(1, "a"), (2, "b")]
    assert reopened(table).snapshots.latest_id() == 2


def test_branches_keep_their_files(tmp_path: pathlib.Path) -> None:
    table = _written(tmp_path)
    create_branch(table, "b", snapshot_id=3)
    rollback_to(table, 1)
    assert rows_of(reopened(table)) == [(1, "a")]
    assert rows_of(table.at_branch("b")) == [(1, "a"), (2, "a"), (3, "a")]


@pytest.mark.parametrize("number", range(1, 24))
def test_a_rollback_that_dies_anywhere_can_be_repeated(tmp_path: pathlib.Path, number: int) -> None:
    table = _written(tmp_path)
    create_tag(table, "t", 1)
    write(table, 5, [("+I", 1, "b")], full=True)
    expire_snapshots(table, now_ms=0, retain_max=2, retain_min=1, time_retained_ms=0)
    rows_before = rows_of(reopened(table))
    changing = FaultyFileIO(LOCAL, Fault(at=number * 3, mode="before"))
    try:
        rollback_to(reopened(table, file_io=changing), tag="t")
    except SimulatedCrash:
        seen = rows_of(reopened(table))
        assert seen in (rows_before, [(1, "a")], [(k, "a") for k in range(1, 5)])
        rollback_to(reopened(table), tag="t")
    assert rows_of(reopened(table)) == [(1, "a")]
    write(reopened(table), 9, [("+I", 2, "after")])
    assert rows_of(reopened(table)) == [(1, "a"), (2, "after")]
    check_table(reopened(table))


@pytest.mark.parametrize(
    ("published", "snapshot_id", "attempts"),
    [
        pytest.param(False, 3, 2, id="a commit that is not published yet starts over"),
        pytest.param(True, 5, 1, id="a commit that is published is rolled back"),
    ],
)
def test_a_rollback_while_another_commits(
    tmp_path: pathlib.Path, published: bool, snapshot_id: int, attempts: int
) -> None:
    table = _written(tmp_path)

    class RollingBack(LocalFileIO):
        armed = True

        def put_if_absent(self, path: str, data: bytes) -> bool:
            created = published and super().put_if_absent(path, data)
            if "/snapshot/" in path and RollingBack.armed:
                RollingBack.armed = False
                rollback_to(reopened(table), 2)
            return created if published else super().put_if_absent(path, data)

    racing = reopened(table, file_io=RollingBack(durable=False))
    messages = prepared(racing, [("+I", 9, "late")], compaction=False)
    result = racing.new_commit("late").commit(messages, 1)
    assert (result.append_snapshot_id, result.attempts) == (snapshot_id, attempts)
    late = [] if published else [(9, "late")]
    assert rows_of(reopened(table)) == [(1, "a"), (2, "a"), *late]
    check_table(reopened(table))


@pytest.mark.parametrize("back", [True, False])
def test_a_tag_of_java_is_rolled_back_to_or_deleted(tmp_path: pathlib.Path, back: bool) -> None:
    table = GoldenTable("expired_snapshots").copied_to(tmp_path / "table")
    tagged, newest = rows_of(table, tag="keep"), rows_of(table)
    assert tagged != newest
    if back:
        rollback_to(table, tag="keep")
        assert reopened(table).snapshots.ids() == [2]
    else:
        delete_tag(table, "keep")
        check_table(reopened(table))
    assert rows_of(reopened(table)) == (tagged if back else newest)
    expire_snapshots(table, now_ms=0, retain_max=1, retain_min=1, time_retained_ms=0)
    assert data_files(table) == newest_names(table)
    write(reopened(table), 77, [("+I", 99, "z", 9)])
    assert len(rows_of(reopened(table))) == len(tagged if back else newest) + 1


def test_a_branch_of_java_is_fast_forwarded_to(tmp_path: pathlib.Path) -> None:
    table = GoldenTable("tags_branch_consumer").copied_to(tmp_path / "table")
    wanted = rows_of(table.at_branch("dev"))
    fast_forward(table, "dev")
    assert rows_of(reopened(table)) == wanted
    assert [tag.name for tag in all_tags(table)] == ["t1"]
    write(reopened(table), 77, [("+I", 99, "z", 9)])
    assert len(rows_of(reopened(table))) == len(wanted) + 1


def test_a_time_is_a_target_too(tmp_path):
    table = make_table(tmp_path)
    times = []
    for number in range(1, 4):
        write(table, number, [("+I", number, "a")])
        times.append(table.clock.now_ms())
        table.clock.sleep(60)
    assert rollback_target(table, timestamp_ms=times[1] + 1).id == 2
    assert rollback_to(table, timestamp_ms=times[1]).id == 2
    assert rows_of(table) == [(1, "a"), (2, "a")]
    with pytest.raises(NotFoundError, match="no snapshot earlier"):
        rollback_to(table, timestamp_ms=times[0] - 1)
    with pytest.raises(InvalidRequestError):
        rollback_to(table, 1, timestamp_ms=times[0])
