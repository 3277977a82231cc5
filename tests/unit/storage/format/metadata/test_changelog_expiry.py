# SPDX-License-Identifier: Apache-2.0
import pathlib
from collections.abc import Mapping

import pyarrow as pa
import pytest

from storage.clock import ManualClock
from storage.errors import CorruptDataError, InvalidOptionError, NotFoundError
from storage.format.metadata.manifest_store import clear_manifest_cache
from storage.format.metadata.snapshot import ChangelogStore, Snapshot
from storage.options.options import TableOptions
from storage.table.branches import create_branch, rollback_to
from storage.table.commit.live_files import delta_entries, list_entries
from storage.table.retention.consumers import write_consumer
from storage.table.retention.expire import choose_expired, expire_changelogs, expire_snapshots
from storage.table.table import FileStoreTable
from storage.table.tags import create_tag, delete_tag
from storage.testing.invariants import check_table, violations
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
KEEP = {
    "snapshot.num-retained.min": "1",
    "snapshot.num-retained.max": "2",
    "changelog.num-retained.min": "5",
    "changelog.num-retained.max": "6",
}


def history(
    directory: pathlib.Path, commits: int = 9, options: Mapping[str, str] | None = None
) -> FileStoreTable:
    """Commits of one row each; every third with a full compaction."""
    clock = ManualClock()
    table = make_table(directory, clock=clock, options=KEEP if options is None else options)
    for number in range(commits):
        clock.advance(MINUTE)
        write(table, number, [("+I", number % 4, f"v{number}")], full=number % 3 == 2)
    return table


def with_changelog(directory: pathlib.Path) -> FileStoreTable:
    """The same with a changelog file in each APPEND snapshot."""
    return history(directory, options={**KEEP, "changelog-producer": "input"})


def expire(table: FileStoreTable) -> int:
    return expire_snapshots(table, now_ms=table.clock.now_ms())


def delta_rows(table: FileStoreTable, changelog: Snapshot) -> int:
    """Rows of the files that a commit appended; reads them."""
    found = 0
    for entry in delta_entries(table, changelog):
        path = table.data_path(entry.partition, entry.bucket, entry.file.file_name)
        assert table.file_io.size(path) == entry.file.file_size
        found += entry.file.row_count
    return found


def changelog_names(table: FileStoreTable, snapshot: Snapshot) -> set[str]:
    assert snapshot.changelog_manifest_list is not None
    metas = table.manifests.read_list(snapshot.changelog_manifest_list)
    return {entry.file.file_name for entry in list_entries(table, metas)}


def chosen(ids: range, latest: int, now_ms: int = 10**9, **arguments: int) -> list[int]:
    settings = {"retain_min": 1, "retain_max": 1000, "time_retained_ms": 0, "limit": 50}
    return list(
        choose_expired(
            {one: one * MINUTE for one in ids}, latest=latest, now_ms=now_ms, **settings | arguments
        )
    )


def test_which_changelogs_go() -> None:
    ids = range(3, 8)
    assert chosen(ids, 9) == [3, 4, 5, 6]  # the newest stays
    assert chosen(ids, 9, retain_min=5) == [3, 4]
    assert chosen(ids, 9, retain_min=9) == []
    assert chosen(ids, 9, limit=2) == [3, 4]
    assert chosen(ids, 9, keep_from=4) == [3]
    now_ms = 9 * MINUTE
    assert chosen(ids, 9, now_ms, time_retained_ms=4 * MINUTE) == [3, 4]
    assert chosen(ids, 9, now_ms, time_retained_ms=9 * MINUTE) == []
    assert chosen(ids, 9, now_ms, time_retained_ms=9 * MINUTE, retain_max=5) == [3, 4]
    assert chosen(range(0), 9) == []


def test_changes_outlive_their_snapshots_and_go_later(tmp_path: pathlib.Path) -> None:
    table = history(tmp_path)
    latest = table.snapshots.ids()[-1]
    assert expire(table) == latest - 2
    assert table.snapshots.ids() == [latest - 1, latest]
    assert table.changelogs.ids() == list(range(latest - 5, latest - 1))
    assert table.changelogs.earliest_id() == latest - 5
    assert table.changelogs.latest_id() == latest - 2
    for changelog in map(table.changelogs.read, table.changelogs.ids()):
        if changelog.commit_kind.value == "APPEND":
            assert delta_rows(table, changelog) == 1
    check_table(reopened(table))


def test_without_a_producer_replaced_files_stay_as_long_as_their_removal(
    tmp_path: pathlib.Path,
) -> None:
    table = history(tmp_path)
    before = rows_of(table)
    expire(table)
    assert rows_of(table) == before
    kept = [
        *map(table.snapshots.read, table.snapshots.ids()),
        *map(table.changelogs.read, table.changelogs.ids()),
    ]
    live, metadata = named_files(table)
    replaced = {e.file.file_name for one in kept for e in delta_entries(table, one)}
    assert live <= data_files(table) <= live | replaced
    manifests = set(metadata)
    for one in kept:
        for name, size in one.lists:
            metas = table.manifests.read_list(name, size)
            manifests |= {name} | {meta.file_name for meta in metas}
    assert metadata_files(table) == manifests


def test_with_a_producer_only_the_changelog_stays(tmp_path: pathlib.Path) -> None:
    table = with_changelog(tmp_path)
    latest = table.snapshots.ids()[-1]
    expire(table)
    assert table.changelogs.ids() == list(range(latest - 5, latest - 1))
    live, metadata = named_files(table)
    changes: set[str] = set()
    for store in (table.snapshots, table.changelogs):
        for snapshot in map(store.read, store.ids()):
            if (name := snapshot.changelog_manifest_list) is not None:
                changes |= changelog_names(table, snapshot)
                metas = table.manifests.read_list(name)
                metadata |= {name} | {meta.file_name for meta in metas}
    assert data_files(table) == live | changes
    assert metadata_files(table) == metadata
    check_table(reopened(table))


def test_a_pass_over_pass_leaves_nothing_behind(tmp_path: pathlib.Path) -> None:
    table = history(tmp_path, commits=5)
    for number in range(5, 14):
        write(table, number, [("+I", number % 4, f"v{number}")], full=number % 3 == 2)
        expire(table)
        check_table(reopened(table))
    assert expire_changelogs(table, now_ms=0, delete_all=True) > 0
    assert table.changelogs.ids() == []
    assert table.changelogs.latest_id() is None
    assert list(table.file_io.list(table.layout.changelog_dir)) == []
    live, metadata = named_files(table)
    oldest = table.snapshots.read(table.snapshots.ids()[0])
    removed = {e.file.file_name for e in delta_entries(table, oldest)}
    assert live <= data_files(table) <= live | removed
    assert metadata_files(table) == metadata


def test_age_keeps_changes_beyond_their_number(tmp_path: pathlib.Path) -> None:
    options = {"snapshot.num-retained.min": "1", "snapshot.time-retained": "2 min"}
    table = history(tmp_path, options={**options, "changelog.time-retained": "5 min"})
    expire(table)
    now = table.clock.now_ms()
    ages = [now - table.changelogs.read(one).time_ms for one in table.changelogs.ids()]
    assert max(ages) == 5 * MINUTE
    table.clock.sleep(3600)
    expire(table)
    assert len(table.changelogs.ids()) == 1  # the newest one stays


def test_consumers_keep_changelogs(tmp_path: pathlib.Path) -> None:
    options = {**KEEP, "consumer.changelog-only": "true"}
    table = history(tmp_path, options=options)
    latest = table.snapshots.ids()[-1]
    write_consumer(table, "reader", 2)
    expire(table)
    assert table.snapshots.ids() == [latest - 1, latest]
    assert table.changelogs.ids() == list(range(2, latest - 1))
    plain = table.with_options({"consumer.changelog-only": "false"})
    write_consumer(plain, "reader", latest)
    expire(plain)
    assert table.changelogs.ids()[0] == latest - 5


def test_a_consumer_keeps_snapshots_unless_told_otherwise(tmp_path: pathlib.Path) -> None:
    table = history(tmp_path)
    write_consumer(table, "reader", 3)
    expire(table)
    assert table.snapshots.ids()[0] == 3


def test_tags_keep_their_files_through_both_passes(tmp_path: pathlib.Path) -> None:
    table = history(tmp_path)
    create_tag(table, "old", 2)
    create_tag(table, "other", 5)
    rows = {name: rows_of(table, tag=name) for name in ("old", "other")}
    expire(table)
    expire_changelogs(table, now_ms=0, delete_all=True)
    for name, expected in rows.items():
        assert rows_of(reopened(table), tag=name) == expected
    assert delete_tag(table, "old")
    assert delete_tag(table, "other")
    check_table(reopened(table))


def test_deleting_a_tag_takes_nothing_from_changelogs(tmp_path: pathlib.Path) -> None:
    table = history(tmp_path)
    first = table.snapshots.ids()[-1] - 5
    create_tag(table, "t", first)
    expire(table)
    delete_tag(table, "t")
    assert table.changelogs.ids()[0] == first
    check_table(reopened(table))


def test_rolling_back_takes_long_lived_changelogs_back(tmp_path: pathlib.Path) -> None:
    table = history(tmp_path)
    latest = table.snapshots.ids()[-1]
    target = latest - 3
    create_tag(table, "t", target)
    rows = rows_of(table, tag="t")
    expire(table)
    rollback_to(table, tag="t")
    assert table.snapshots.ids() == [target]
    assert table.changelogs.ids() == [latest - 5, latest - 4]
    assert table.changelogs.latest_id() == latest - 4
    assert rows_of(table) == rows
    check_table(reopened(table))
    write(table, 99, [("+I", 1, "new")])
    expire(table)
    check_table(reopened(table))


def test_branches_keep_what_they_read(tmp_path: pathlib.Path) -> None:
    table = with_changelog(tmp_path)
    latest = table.snapshots.ids()[-1]
    create_tag(table, "t", latest - 2)
    create_branch(table, "b", tag="t")
    expire(table)
    expire_changelogs(table, now_ms=0, delete_all=True)
    check_table(table.at_branch("b"))


def test_options_contradict_each_other() -> None:
    assert not TableOptions.from_strings({}).changelogs_outlive_snapshots
    for key, value in (("num-retained.min", "11"), ("time-retained", "2 h")):
        assert TableOptions.from_strings({f"changelog.{key}": value}).changelogs_outlive_snapshots
    less = TableOptions.from_strings({"changelog.time-retained": "1 min"})
    assert not less.changelogs_outlive_snapshots
    with pytest.raises(InvalidOptionError, match=r"changelog\.num-retained\.min should not"):
        TableOptions.from_strings({"changelog.num-retained.max": "5"})
    with pytest.raises(InvalidOptionError, match="too small"):
        TableOptions.from_strings({"changelog.num-retained.min": "0"})


def test_changelogs_are_found_without_hints_and_with_wrong_ones(tmp_path: pathlib.Path) -> None:
    table = history(tmp_path)
    expire(table)
    ids = table.changelogs.ids()
    for text in (b"", b"77", b"-1", b"2"):
        for path in (table.layout.changelog_latest_hint, table.layout.changelog_earliest_hint):
            table.file_io.overwrite_bytes(path, text)
        store = ChangelogStore(table.file_io, table.layout)
        assert (store.earliest_id(), store.latest_id()) == (ids[0], ids[-1])
    with pytest.raises(NotFoundError, match="no such changelog"):
        table.changelogs.read(77)
    path = table.layout.numbered_file("changelog", ids[0])
    table.file_io.overwrite_bytes(path, table.changelogs.read(ids[1]).to_json())
    with pytest.raises(CorruptDataError, match="another changelog"):
        table.changelogs.read(ids[0])


def test_losses_of_changelogs_are_violations(tmp_path: pathlib.Path) -> None:
    table = history(tmp_path)
    expire(table)
    changelogs = map(table.changelogs.read, table.changelogs.ids())
    changelog = next(one for one in changelogs if one.commit_kind.value == "APPEND")
    table.file_io.delete(table.layout.manifest(changelog.delta_manifest_list))
    clear_manifest_cache()
    assert any("changelog" in text for text in violations(reopened(table)))


def test_the_document_is_that_of_the_snapshot(tmp_path: pathlib.Path) -> None:
    table = history(tmp_path)
    snapshots = {one: table.snapshots.read(one) for one in table.snapshots.ids()}
    expire(table)
    for one in table.changelogs.ids():
        assert table.changelogs.read(one) == snapshots[one]
    assert isinstance(table.to_arrow(), pa.Table)
