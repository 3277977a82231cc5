# SPDX-License-Identifier: Apache-2.0
"""Many small files are asked for together, each once, and no more of them than are needed."""

import math
import pathlib
import shutil
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import pytest

from storage.clock import ManualClock, SeededIds
from storage.errors import CorruptDataError, NotFoundError
from storage.format.metadata.manifest_store import clear_manifest_cache
from storage.format.metadata.snapshot import list_tags
from storage.io.file_io import read_present
from storage.io.local import LocalFileIO
from storage.io.object_store import ObjectStoreFileIO
from storage.table.commit.commit_changes import CommitHistory
from storage.table.commit.live_files import clear_live_cache, live_state
from storage.table.retention.expire import expire_snapshots
from storage.table.table import FileStoreTable
from storage.table.tags import create_tag
from tests.table_kit import make_table, write

_AT_ONCE = 16
_MANY = 40
_UNMERGED = {
    "manifest.merge-min-count": "1000",
    "manifest.full-compaction-threshold-size": "1 gb",
    "write-only": "true",
}


class Rounds(LocalFileIO):
    """Counts the files that are read whole, and how many times a reader waits for some."""

    def __init__(self) -> None:
        super().__init__(durable=False)
        self.start()

    def start(self) -> None:
        self.files: list[str] = []
        self.rounds = 0

    def read_bytes(self, path: str) -> bytes:
        self.rounds += 1
        return self._read(path)

    def read_many(self, paths: Sequence[str]) -> Iterator[bytes]:
        self.rounds += math.ceil(len(paths) / _AT_ONCE)
        return map(self._read, paths)

    def _read(self, path: str) -> bytes:
        self.files.append(path)
        return super().read_bytes(path)


@pytest.fixture
def store() -> Rounds:
    return Rounds()


@pytest.fixture(scope="module")
def written(tmp_path_factory: pytest.TempPathFactory) -> pathlib.Path:
    made = make_table(tmp_path_factory.mktemp("warehouse"), options=_UNMERGED)
    for number in range(_MANY):
        write(made, number, [("+I", number, "a")])
    return pathlib.Path(made.layout.root)


@pytest.fixture
def table(tmp_path: pathlib.Path, written: pathlib.Path, store: Rounds) -> FileStoreTable:
    """Forty snapshots and as many manifests, of which nothing is remembered."""
    return _opened(shutil.copytree(written, tmp_path / "t"), store)


def _opened(root: pathlib.Path, store: Rounds) -> FileStoreTable:
    clear_manifest_cache()
    clear_live_cache()
    found = FileStoreTable.open(str(root), store, ManualClock(), SeededIds(7))
    store.start()
    return found


def _manifests(store: Rounds) -> list[str]:
    return [path for path in store.files if "/manifest/manifest-" in path and "-list-" not in path]


def test_a_plan_waits_a_few_times_for_many_manifests(table: FileStoreTable, store: Rounds) -> None:
    plan = table.new_scan().plan()
    assert sum(len(split.files) for split in plan.splits) == _MANY
    assert len(_manifests(store)) == _MANY
    assert len(set(store.files)) == len(store.files)
    assert store.rounds <= 3 + math.ceil(_MANY / _AT_ONCE)  # hint, snapshot, both lists


def test_what_is_held_is_not_read_again(table: FileStoreTable, store: Rounds) -> None:
    latest = table.latest_snapshot()
    assert latest is not None
    metas = [m for metas in table.manifests.read_lists(latest.lists[:2]) for m in metas]
    for meta in metas[::2]:
        next(table.manifests.read_manifests([meta]))
    store.start()
    entries = list(table.manifests.read_manifests(metas))
    assert [each for (each,) in entries] == [
        next(table.manifests.read_manifests([meta]))[0] for meta in metas
    ]
    assert len(store.files) == _MANY // 2
    store.start()
    clear_live_cache()
    table.new_scan().plan()
    assert not _manifests(store)


def test_a_state_moves_on_over_many_snapshots_in_a_few_rounds(
    table: FileStoreTable, store: Rounds
) -> None:
    first, latest = table.snapshots.read(1), table.snapshots.read(_MANY)
    live_state(table, first)
    store.start()
    assert live_state(table, latest).file_count == _MANY
    assert len(_manifests(store)) == len(set(_manifests(store))) == _MANY - 1
    assert store.rounds <= 16


def test_expiry_waits_a_few_times(table: FileStoreTable, store: Rounds) -> None:
    removed = expire_snapshots(table, now_ms=1 << 50, retain_min=2, retain_max=2)
    assert removed == _MANY - 2
    assert store.rounds <= 25
    assert len(_manifests(store)) == len(set(_manifests(store)))


def test_an_expiry_that_finds_nothing_reads_little(tmp_path: pathlib.Path, store: Rounds) -> None:
    made = make_table(tmp_path, file_io=store, options=_UNMERGED, clock=ManualClock())
    for number in range(20):
        write(made, number, [("+I", number, "a")])
    table = _opened(pathlib.Path(made.layout.root), store)
    assert not expire_snapshots(table, now_ms=0, retain_min=1, retain_max=100)
    assert len(store.files) <= 4


def test_tags_are_read_together(table: FileStoreTable, store: Rounds) -> None:
    for number in range(1, 21):
        create_tag(table, f"t{number}", number)
    store.start()
    assert [tag.snapshot.id for tag in list_tags(store, table.layout)] == list(range(1, 21))
    assert store.rounds == 2


def test_the_history_is_walked_in_growing_steps(table: FileStoreTable, store: Rounds) -> None:
    latest = table.latest_snapshot()
    store.start()
    assert CommitHistory(table, "another").find(7, latest) is None
    assert len(store.files) == len(set(store.files)) == _MANY - 1
    assert store.rounds <= 7
    store.start()
    found = CommitHistory(table, "user").find(_MANY - 1, latest)
    assert found is not None
    assert not store.files


def test_a_walk_ends_where_snapshots_do(table: FileStoreTable) -> None:
    found = table.snapshots.recall_many(range(_MANY - 1, -3, -1))
    assert [next(found).id for _ in range(_MANY - 1)] == list(range(_MANY - 1, 0, -1))
    with pytest.raises(NotFoundError):
        next(found)


def test_missing_files_are_told_in_their_place(tmp_path: pathlib.Path) -> None:
    paths = [str(tmp_path / name) for name in "abcde"]
    for path in (paths[1], paths[3]):
        pathlib.Path(path).write_bytes(path.encode())
    found = list(read_present(LocalFileIO(), paths))
    assert found == [None, paths[1].encode(), None, paths[3].encode(), None]
    memory = ObjectStoreFileIO.in_memory()
    memory.write_bytes("s3://memory/b", b"1")
    assert list(read_present(memory, [f"s3://memory/{name}" for name in "abc"])) == [
        None,
        b"1",
        None,
    ]


def test_few_files_are_held_ahead_of_a_slow_reader(monkeypatch: pytest.MonkeyPatch) -> None:
    memory = ObjectStoreFileIO.in_memory()
    paths = [f"s3://memory/{number}" for number in range(100)]
    for number, path in enumerate(paths):
        memory.write_bytes(path, b"%d" % number)
    asked: list[str] = []
    read: Callable[[Any, str], bytes] = ObjectStoreFileIO.read_bytes

    def counted(self: ObjectStoreFileIO, path: str) -> bytes:
        asked.append(path)
        return read(self, path)

    monkeypatch.setattr(ObjectStoreFileIO, "read_bytes", counted)
    found = memory.read_many(paths)
    assert next(found) == b"0"
    assert len(asked) <= _AT_ONCE + 1
    assert list(found) == [b"%d" % number for number in range(1, 100)]
    assert len(asked) == 100


@pytest.mark.parametrize("kind", ["manifest-list", "manifest"])
def test_a_file_cut_between_its_blocks_is_told_by_its_recorded_size(
    table: FileStoreTable, kind: str
) -> None:
    latest = table.latest_snapshot()
    assert latest is not None
    name = latest.delta_manifest_list
    if kind == "manifest":
        (meta,) = table.manifests.read_list(name)
        name = meta.file_name
        clear_manifest_cache()
    path = pathlib.Path(table.layout.manifest(name))
    data = path.read_bytes()
    sync = data[-16:]
    path.write_bytes(data[: data.index(sync) + 16])  # the header: a sound file without records
    with pytest.raises(CorruptDataError, match="shorter than recorded") as caught:
        table.to_arrow()
    assert caught.value.context["path"] == str(path)
