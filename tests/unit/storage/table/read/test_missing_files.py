# SPDX-License-Identifier: Apache-2.0
"""A file that is gone: damage of the newest snapshot, expiry of one that is not there any more."""

import pathlib

import pytest

from storage.errors import CorruptDataError, NotFoundError
from storage.format.metadata.manifest_store import clear_manifest_cache
from storage.table.commit.live_files import clear_live_cache
from storage.table.retention.expire import expire_snapshots
from storage.table.table import FileStoreTable
from tests.table_kit import make_table, reopened, rows_of, write


@pytest.fixture
def table(tmp_path: pathlib.Path) -> FileStoreTable:
    made = make_table(tmp_path)
    write(made, 1, [("+I", 1, "a"), ("+I", 2, "b")])
    write(made, 2, [("+I", 1, "c")], full=True)
    return _fresh(made)


def _fresh(table: FileStoreTable) -> FileStoreTable:
    clear_manifest_cache()
    clear_live_cache()
    return reopened(table)


def _newest_files(table: FileStoreTable) -> dict[str, str]:
    latest = table.latest_snapshot()
    assert latest is not None
    plan = table.new_scan().plan()
    (split,) = plan.splits
    (file,) = split.files
    (meta,) = table.manifests.read_list(latest.delta_manifest_list)
    return {
        "list": table.layout.manifest(latest.base_manifest_list),
        "manifest": table.layout.manifest(meta.file_name),
        "data": table.data_path(split.partition, split.bucket, file.file_name),
    }


@pytest.mark.parametrize("kind", ["list", "manifest", "data"])
def test_of_the_newest_snapshot_it_is_damage(table: FileStoreTable, kind: str) -> None:
    path = _newest_files(table)[kind]
    table = _fresh(table)
    pathlib.Path(path).unlink()
    with pytest.raises(CorruptDataError) as caught:
        table.to_arrow()
    assert caught.value.context["path"] == path
    assert caught.value.context["snapshot"] == table.snapshots.latest_id()


def test_of_an_expired_snapshot_it_is_not_found(table: FileStoreTable) -> None:
    scan = table.new_scan().with_snapshot(1)
    before = table.snapshots.read(1)
    plan = scan.plan()
    assert expire_snapshots(table, now_ms=1 << 50, retain_min=1, retain_max=1) > 0
    with pytest.raises(NotFoundError, match="expired while it was read"):
        table.new_read().to_table(plan)
    with pytest.raises(NotFoundError, match="expired while it was read"):
        _fresh(table).new_scan().plan(before)
    assert rows_of(table) == [(1, "c"), (2, "b")]


def test_of_a_snapshot_between_nothing_more_is_known(table: FileStoreTable) -> None:
    plan = table.new_scan().with_snapshot(1).plan()
    (split,) = plan.splits
    for file in split.files:
        path = table.data_path(split.partition, split.bucket, file.file_name)
        pathlib.Path(path).unlink()
    with pytest.raises(FileNotFoundError):
        table.new_read().to_table(plan)


def test_a_snapshot_whose_id_was_used_anew_is_not_found(table: FileStoreTable) -> None:
    plan = table.new_scan().plan()
    other = reopened(table)
    newest = other.snapshots.latest_id()
    assert newest is not None
    (split,) = plan.splits
    for file in split.files:
        path = table.data_path(split.partition, split.bucket, file.file_name)
        pathlib.Path(path).unlink()
    assert other.snapshots.delete(newest)  # as a rollback does, before another commit
    other.snapshots.move_latest_hint(newest - 1)
    write(reopened(table), 9, [("+I", 5, "e")], compaction=False)
    assert reopened(table).snapshots.latest_id() == newest
    with pytest.raises(NotFoundError):
        table.new_read().to_table(plan)
