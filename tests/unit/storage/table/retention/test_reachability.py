# SPDX-License-Identifier: Apache-2.0
"""The walk from snapshots and tags to files: what it finds, and in which order files go."""

import itertools
import pathlib
import random
from collections.abc import Iterable

import pytest

from storage.errors import InternalError
from storage.format.metadata.manifest_store import clear_manifest_cache
from storage.io.local import LocalFileIO
from storage.table.branches import create_branch, rollback_to
from storage.table.retention.expire import expire_snapshots
from storage.table.retention.reachability import (
    Documents,
    live_among,
    live_data_files,
    remove_unreachable,
)
from storage.table.table import FileStoreTable
from storage.table.tags import create_tag, delete_tag
from storage.testing.invariants import check_table
from tests.table_kit import make_table, reopened, rows_of, write

COMPACTING = {"num-sorted-run.compaction-trigger": "2"}


class RecordingFileIO(LocalFileIO):
    """Remembers what was removed by one call."""

    def __init__(self) -> None:
        super().__init__(durable=False)
        self.removed: list[list[str]] = []

    def delete_many(self, paths: Iterable[str]) -> int:
        self.removed.append(list(paths))
        return super().delete_many(self.removed[-1])


def history(root: pathlib.Path, commits: int = 5, **options: str) -> FileStoreTable:
    table = make_table(root, options=COMPACTING | options)
    for number in range(1, commits + 1):
        write(table, number, [("+I", number % 3, f"{number}")], full=number == commits - 1)
    return table


def expire_all(table: FileStoreTable) -> int:
    return expire_snapshots(table, now_ms=table.clock.now_ms(), retain_min=1, retain_max=1)


def test_the_live_files_among_some_are_those_of_the_whole_state(tmp_path: pathlib.Path) -> None:
    table = history(tmp_path, commits=8)
    snapshots = [table.snapshots.read(one) for one in table.snapshots.ids()]
    every = set().union(*(live_data_files(table, one) for one in snapshots))
    assert len(every) > len(live_data_files(table, snapshots[-1]))  # some were replaced
    draw = random.Random(7)
    for snapshot, count in itertools.product(snapshots, range(len(every) + 1)):
        some = set(draw.sample(sorted(every), count))
        assert live_among(table, snapshot, some) == some & live_data_files(table, snapshot)


@pytest.mark.parametrize("way", ["expiry", "tag", "rollback"])
def test_data_files_are_removed_before_what_describes_them(
    tmp_path: pathlib.Path, way: str
) -> None:
    table = history(tmp_path, commits=8)
    ids = table.snapshots.ids()
    create_tag(table, "old", ids[2])
    store = RecordingFileIO()
    observed = reopened(table, file_io=store)
    if way == "expiry":
        expire_all(observed)
    elif way == "tag":
        expire_all(table)
        delete_tag(observed, "old")
    else:
        rollback_to(observed, ids[2])
    data = [any("/bucket-" in path for path in call) for call in store.removed]
    metadata = [any("/manifest/" in path for path in call) for call in store.removed]
    assert (data, metadata) == ([True, False], [False, True])
    check_table(reopened(table))


def test_nothing_is_removed_when_another_branch_cannot_be_read(tmp_path: pathlib.Path) -> None:
    table = history(tmp_path)
    ids = table.snapshots.ids()
    create_branch(table, "dev", snapshot_id=ids[1])
    kept, expired = table.snapshots.read(ids[1]), table.snapshots.read(ids[2])
    table.file_io.delete(table.layout.manifest(kept.delta_manifest_list))
    clear_manifest_cache()
    files = live_data_files(table, expired)
    assert files
    own = Documents(snapshots=(), tags=(), changelogs=())
    assert remove_unreachable(reopened(table), [expired], files, own) == 0
    assert all(table.file_io.exists(table.data_path(*file)) for file in files)


def test_changelog_files_that_a_branch_names_stay(tmp_path: pathlib.Path) -> None:
    table = history(tmp_path, **{"changelog-producer": "input"})
    first = table.snapshots.ids()[0]
    create_branch(table, "dev", snapshot_id=first)
    snapshot = table.snapshots.read(first)
    assert snapshot.changelog_manifest_list is not None
    expire_all(table)
    fresh = reopened(table)
    metas = fresh.manifests.read_list(snapshot.changelog_manifest_list)
    entries = [one for found in fresh.manifests.read_manifests(metas) for one in found]
    paths = [fresh.data_path(one.partition, one.bucket, one.file.file_name) for one in entries]
    assert paths
    assert all(fresh.file_io.exists(path) for path in paths)


@pytest.mark.parametrize("where", ["tag", "branch"])
def test_the_invariants_miss_files_of_tags_and_branches(tmp_path: pathlib.Path, where: str) -> None:
    table = history(tmp_path)
    old = table.snapshots.read(table.snapshots.ids()[1])
    if where == "tag":
        create_tag(table, "old", old.id)
    else:
        create_branch(table, "dev", snapshot_id=old.id)
    expire_all(table)
    check_table(reopened(table))
    only_old = live_data_files(table, old) - live_data_files(table, table.latest_snapshot())
    table.file_io.delete(table.data_path(*sorted(only_old)[0]))
    with pytest.raises(InternalError, match="which is not there"):
        check_table(reopened(table))
    assert rows_of(reopened(table))
