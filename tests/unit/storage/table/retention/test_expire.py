# SPDX-License-Identifier: Apache-2.0
import contextlib
import pathlib

import pytest

from storage.clock import ManualClock
from storage.errors import CorruptDataError, NotFoundError
from storage.format.metadata.file_meta import CommitMessage, DataIncrement
from storage.io.local import LocalFileIO
from storage.table.branches import create_branch
from storage.table.commit.live_files import live_files
from storage.table.retention.expire import choose_expired, expire_snapshots
from storage.table.table import FileStoreTable
from storage.table.tags import create_tag
from storage.testing.invariants import check_table
from tests.faulty_io import Fault, FaultyFileIO, SimulatedCrash
from tests.table_kit import (
    data_files,
    make_table,
    metadata_files,
    named_files,
    reopened,
    rows_of,
    write,
)

MINUTE = 60_000


def chosen(
    ages: dict[int, int],
    *,
    least: int = 1,
    most: int = 1000,
    retained: int = 60,
    limit: int = 50,
    keep_from: int | None = None,
) -> list[int]:
    now = 1_000_000_000
    times = {snapshot_id: now - age * MINUTE for snapshot_id, age in ages.items()}
    expired = choose_expired(
        times,
        now_ms=now,
        retain_min=least,
        retain_max=most,
        time_retained_ms=retained * MINUTE,
        limit=limit,
        keep_from=keep_from,
    )
    return sorted(set(times) - set(expired))


@pytest.mark.parametrize(
    ("ages", "options", "left"),
    [
        ({1: 5, 2: 4, 3: 3, 4: 2, 5: 1}, {"most": 3}, [3, 4, 5]),
        ({1: 180, 2: 120, 3: 90, 4: 30, 5: 1}, {}, [3, 4, 5]),
        ({1: 180, 2: 170, 3: 160, 4: 150}, {"least": 3, "most": 10}, [2, 3, 4]),
        ({1: 600, 2: 590, 3: 580, 4: 570, 5: 560, 6: 1}, {"limit": 2}, [3, 4, 5, 6]),
        ({1: 600, 2: 590, 3: 580}, {"keep_from": 2}, [2, 3]),
        ({1: 600, 2: 590, 3: 580}, {"keep_from": 9}, [3]),
        ({1: 600, 2: 590, 3: 580}, {"keep_from": 1}, [1, 2, 3]),
        ({1: 100, 2: 60, 3: 5}, {}, [1, 2, 3]),  # the successor is exactly as old as retained
        ({1: 100, 2: 61, 3: 5}, {}, [2, 3]),
        ({7: 500}, {}, [7]),
        ({}, {}, []),
        ({1: 9, 2: 8, 3: 7, 4: 6, 5: 5}, {"most": 1, "limit": 3}, [4, 5]),
    ],
)
def test_which_snapshots_go(ages: dict[int, int], options: dict[str, int], left: list[int]) -> None:
    assert chosen(ages, **options) == left


def test_documented_example_under_the_newer_rule() -> None:
    commits = {1: 0, 2: 20, 3: 40, 4: 60, 5: 80, 6: 90, 7: 95, 8: 96}  # minutes after 10:00

    def left_at(minute: int) -> list[int]:
        ages = {i: minute - at for i, at in commits.items() if at <= minute}
        return chosen(ages, least=2, most=5)

    assert left_at(80) == [1, 2, 3, 4, 5]
    assert left_at(90) == [2, 3, 4, 5, 6]
    assert left_at(96) == [4, 5, 6, 7, 8]


def history(tmp_path: pathlib.Path, commits: int = 8) -> FileStoreTable:
    """A table whose files were replaced several times, with the newest rows compacted."""
    clock = ManualClock()
    table = make_table(
        tmp_path,
        clock=clock,
        options={"num-sorted-run.compaction-trigger": "2", "manifest.merge-min-count": "5"},
    )
    for number in range(commits):
        clock.advance(10 * MINUTE)
        rows = [("+I", k, f"{number}") for k in range(number, number + 4)]
        write(table, number, rows, full=number % 3 == 2)
    return table


def expire(table: FileStoreTable, **arguments: int) -> int:
    now = table.clock.now_ms()
    return expire_snapshots(table, now_ms=now + 10**10, **arguments)


def test_only_what_is_kept_is_left_on_disk(tmp_path: pathlib.Path) -> None:
    table = history(tmp_path)
    before = rows_of(table)
    ids = table.snapshots.ids()
    kept = {i: rows_of(table, snapshot=i) for i in ids[-3:]}
    assert expire(table, retain_min=3, retain_max=3) == len(ids) - 3
    fresh = reopened(table)
    assert fresh.snapshots.ids() == ids[-3:]
    assert fresh.snapshots.earliest_id() == ids[-3]
    assert rows_of(fresh) == before
    assert {i: rows_of(fresh, snapshot=i) for i in ids[-3:]} == kept
    data, metadata = named_files(fresh)
    assert data_files(fresh) == data
    assert metadata_files(fresh) == metadata
    check_table(fresh)
    with pytest.raises(NotFoundError):
        fresh.to_arrow(snapshot=ids[0])


def test_expiring_step_by_step_is_the_same(tmp_path: pathlib.Path) -> None:
    table = history(tmp_path)
    while expire(table, retain_min=1, retain_max=1, limit=1):
        check_table(reopened(table))
    fresh = reopened(table)
    data, metadata = named_files(fresh)
    assert (data_files(fresh), metadata_files(fresh)) == (data, metadata)


def test_options_of_the_table_decide_by_default(tmp_path: pathlib.Path) -> None:
    table = history(tmp_path)
    newest = table.snapshots.latest_id() or 0
    assert expire_snapshots(table, now_ms=table.clock.now_ms()) == 0  # ten are kept at least
    assert expire(table) == newest - 10
    assert expire(table, keep_from=1) == 0


def test_tags_keep_their_files(tmp_path: pathlib.Path) -> None:
    table = history(tmp_path)
    ids = table.snapshots.ids()
    expected = {}
    for number in (0, 2, 5):
        create_tag(table, f"t{number}", ids[number])
        expected[f"t{number}"] = rows_of(table, snapshot=ids[number])
    expire(table, retain_min=1, retain_max=1, limit=4)
    expire(table, retain_min=1, retain_max=1)
    fresh = reopened(table)
    assert fresh.snapshots.ids() == ids[-1:]
    assert {name: rows_of(fresh, tag=name) for name in expected} == expected
    check_table(fresh)


def test_a_branch_keeps_its_files(tmp_path: pathlib.Path) -> None:
    table = history(tmp_path)
    ids = table.snapshots.ids()
    expected = rows_of(table, snapshot=ids[1])
    create_branch(table, "b1", snapshot_id=ids[1])
    expire(table, retain_min=1, retain_max=1)
    assert rows_of(reopened(table).at_branch("b1")) == expected


def test_a_damaged_tag_stops_expiry_before_anything_is_deleted(tmp_path: pathlib.Path) -> None:
    table = history(tmp_path)
    ids, files = table.snapshots.ids(), data_files(table)
    table.file_io.write_bytes(table.layout.tag_file("bad"), b"{")
    with pytest.raises(CorruptDataError, match="nothing may be deleted"):
        expire(table, retain_min=1, retain_max=1)
    assert reopened(table).snapshots.ids() == ids
    assert data_files(table) == files


def test_files_brought_back_by_a_later_snapshot_stay(tmp_path: pathlib.Path) -> None:
    """As `rollback_to_as_latest` of other engines does: an OVERWRITE that names old files."""
    table = history(tmp_path, commits=4)
    ids = table.snapshots.ids()
    old = table.snapshots.read(ids[2])
    wanted = rows_of(table, snapshot=ids[2])
    old_files = live_files(table, table.snapshots.read(ids[2]), bytes(12), 0)
    template = write(table, 50, [("+I", 99, "x")])
    assert template.append_snapshot_id is not None
    newest = live_files(table, table.snapshots.read(table.snapshots.latest_id()), bytes(12), 0)
    messages = [
        CommitMessage(
            partition=bytes(12),
            bucket=0,
            total_buckets=1,
            data=DataIncrement(
                new_files=tuple(f for f in old_files if f not in newest),
                deleted_files=tuple(f for f in newest if f not in old_files),
            ),
        )
    ]
    table.new_commit("rollback").commit(messages, 1)
    assert rows_of(table) == wanted
    assert old.id in table.snapshots.ids()
    expire(table, retain_min=2, retain_max=2)
    expire(table, retain_min=1, retain_max=1)
    assert rows_of(reopened(table)) == wanted
    check_table(reopened(table))


def test_expiry_cut_off_anywhere_is_finished_by_the_next_pass(tmp_path: pathlib.Path) -> None:
    counting = FaultyFileIO(LocalFileIO(durable=False))
    dry = history(tmp_path / "dry")
    expire(reopened(dry, file_io=counting), retain_min=2, retain_max=2)
    total = len(counting.operations)
    for number, at in enumerate(range(1, total + 1, max(1, total // 12))):
        table = history(tmp_path / str(number), commits=6)
        rows = rows_of(table)
        with contextlib.suppress(SimulatedCrash):
            dying = reopened(table, file_io=FaultyFileIO(table.file_io, Fault(at, "after")))
            expire(dying, retain_min=2, retain_max=2)
        fresh = reopened(table)
        check_table(fresh)
        assert rows_of(fresh) == rows
        write(fresh, 100, [("+I", 0, "more")])
        expire(fresh, retain_min=1, retain_max=1)
        fresh = reopened(table)
        check_table(fresh)
        assert data_files(fresh) == named_files(fresh)[0]


def test_two_passes_at_once_do_no_harm(tmp_path: pathlib.Path) -> None:
    table = history(tmp_path)
    first, second = reopened(table), reopened(table)
    second.snapshots.ids()
    expire(first, retain_min=3, retain_max=3)
    expire(second, retain_min=1, retain_max=1)
    expire(first, retain_min=1, retain_max=1)
    fresh = reopened(table)
    check_table(fresh)
    assert data_files(fresh) == named_files(fresh)[0]
