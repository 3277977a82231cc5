# SPDX-License-Identifier: Apache-2.0
"""Commits that carry table index files, and overwrites of partitions."""

import dataclasses
import pathlib
from collections.abc import Callable, Iterable

import numpy as np
import pytest

from storage.errors import FileConflictError, InvalidRequestError, StorageUnavailableError
from storage.format.metadata.file_meta import (
    EMPTY_ROW,
    CommitMessage,
    CompactIncrement,
    DataIncrement,
    IndexFileMeta,
    IndexType,
)
from storage.format.metadata.snapshot import CommitKind
from storage.io.local import LocalFileIO
from storage.table.commit.live_files import (
    index_entries,
    index_files,
    live_files,
    read_hash_index,
    write_deletion_vectors,
    write_hash_index,
)
from storage.table.table import FileStoreTable
from storage.testing.invariants import check_table, violations
from tests.table_kit import (
    index_files_named,
    index_files_on_disk,
    make_table,
    metadata_files,
    named_files,
    prepared,
    reopened,
    rows_of,
    write,
)

PARTITIONED = [("p", "INT"), ("k", "INT"), ("v", "STRING")]


class Rivalled(LocalFileIO):
    """A store in which something happens right before a publication."""

    def __init__(self) -> None:
        super().__init__(durable=False)
        self.before: list[Callable[[], None]] = []

    def put_if_absent(self, path: str, data: bytes) -> bool:
        if "/snapshot/" in path and self.before:
            self.before.pop(0)()
        return super().put_if_absent(path, data)


def live_hash(table: FileStoreTable, bucket: int = 0) -> IndexFileMeta | None:
    found = index_files(table, table.latest_snapshot(), IndexType.HASH)
    files = found.get((EMPTY_ROW, bucket), ())
    return files[0] if files else None


def with_hashes(
    table: FileStoreTable, messages: Iterable[CommitMessage], hashes: Iterable[int]
) -> list[CommitMessage]:
    """The messages, whose APPEND also grows the hash index of the bucket."""
    found = []
    for message in messages:
        old = live_hash(table, message.bucket)
        known: list[int] = []
        if old is not None:
            known = read_hash_index(table, EMPTY_ROW, message.bucket, old).tolist()
        grown = np.array([*known, *hashes], np.int32)
        new = write_hash_index(table, EMPTY_ROW, message.bucket, grown)
        data = dataclasses.replace(
            message.data,
            new_index_files=(new,),
            deleted_index_files=() if old is None else (old,),
        )
        found.append(dataclasses.replace(message, data=data))
    return found


def hashes_at(table: FileStoreTable, snapshot_id: int) -> list[int]:
    snapshot = table.snapshots.read(snapshot_id)
    ((bucket, (file,)),) = index_files(table, snapshot, IndexType.HASH).items()
    return read_hash_index(table, *bucket, file).tolist()


def grow(table: FileStoreTable, identifier: int, key: int, *, full: bool = False) -> None:
    messages = with_hashes(table, prepared(table, [("+I", key, "x")], full=full), [key])
    table.new_commit("grower").commit(messages, identifier)


def test_an_index_file_replaces_that_of_its_bucket(tmp_path: pathlib.Path) -> None:
    table = make_table(tmp_path)
    grow(table, 1, 7)
    grow(table, 2, 8)
    write(table, 1, [("+I", 9, "y")])
    assert [hashes_at(table, one) for one in (1, 2, 3)] == [[7], [7, 8], [7, 8]]
    manifests = [table.snapshots.read(one).index_manifest for one in (1, 2, 3)]
    assert manifests[0] != manifests[1] == manifests[2]  # carried forward when nothing changes
    kinds = [table.snapshots.read(one).commit_kind for one in (1, 2)]
    assert kinds == [CommitKind.APPEND, CommitKind.APPEND]
    assert metadata_files(table) == named_files(table)[1]
    check_table(table)


def test_a_compaction_carries_the_index_forward(tmp_path: pathlib.Path) -> None:
    table = make_table(tmp_path)
    grow(table, 1, 7)
    grow(table, 2, 8, full=True)
    ids = table.snapshots.ids()
    assert table.snapshots.read(ids[-1]).commit_kind is CommitKind.COMPACT
    assert hashes_at(table, ids[-1]) == [7, 8]


def test_a_writer_that_did_not_see_the_newest_file_fails(tmp_path: pathlib.Path) -> None:
    table = make_table(tmp_path)
    first = with_hashes(table, prepared(table, [("+I", 1, "a")]), [1])
    second = with_hashes(table, prepared(table, [("+I", 2, "b")]), [2])
    table.new_commit("one").commit(first, 1)
    with pytest.raises(FileConflictError, match="index file conflicts"):
        table.new_commit("two").commit(second, 1)
    table.delete_uncommitted(second)
    late = with_hashes(table, prepared(table, [("+I", 3, "c")]), [3])
    grow(table, 2, 5)
    with pytest.raises(FileConflictError, match="index file conflicts"):
        table.new_commit("late").commit(late, 1)
    table.delete_uncommitted(late)
    assert hashes_at(table, 2) == [1, 5]
    assert index_files_on_disk(table) == index_files_named(table)
    assert metadata_files(table) == named_files(table)[1]


def test_a_lost_race_writes_the_index_manifest_anew(tmp_path: pathlib.Path) -> None:
    store = Rivalled()
    table = make_table(tmp_path, options={"bucket": "2"}, file_io=store)
    rival = reopened(table)
    messages = with_hashes(table, prepared(table, [("+I", 1, "a")]), [1])
    other = with_hashes(rival, prepared(rival, [("+I", 3, "b"), ("+I", 0, "b")]), [9])
    other = [one for one in other if one.bucket != messages[0].bucket]
    assert len(other) == 1
    store.before.append(lambda: rival.new_commit("rival").commit(other, 1) and None)
    assert table.new_commit("u").commit(messages, 1).append_snapshot_id == 2
    entries = index_entries(table, table.latest_snapshot())
    assert sorted(entry.bucket for entry in entries) == [0, 1]
    assert metadata_files(table) == named_files(table)[1]
    check_table(table)


def test_a_replay_removes_its_own_index_files(tmp_path: pathlib.Path) -> None:
    table = make_table(tmp_path)
    messages = with_hashes(table, prepared(table, [("+I", 1, "a")]), [1])
    twin = with_hashes(table, prepared(table, [("+I", 1, "a")]), [1])
    commit = table.new_commit("u")
    commit.commit(messages, 1)
    assert commit.commit(messages, 1).already_committed
    assert index_files_on_disk(table) > index_files_named(table)
    assert reopened(table).new_commit("u").commit(twin, 1).already_committed
    assert index_files_on_disk(table) == index_files_named(table)
    assert len(index_files_on_disk(table)) == 1
    check_table(table)


def test_a_replay_of_an_index_that_is_replaced_by_its_own_compaction_keeps_both(
    tmp_path: pathlib.Path,
) -> None:
    table = make_table(tmp_path)
    (message,) = with_hashes(table, prepared(table, [("+I", 1, "a")]), [1])
    (new,) = message.data.new_index_files
    newer = write_hash_index(table, EMPTY_ROW, 0, np.array([1, 2], np.int32))
    compact = CompactIncrement(new_index_files=(newer,), deleted_index_files=(new,))
    message = dataclasses.replace(message, compact=compact)
    result = table.new_commit("u").commit([message], 1)
    assert (result.append_snapshot_id, result.compact_snapshot_id) == (1, 2)
    assert [hashes_at(table, one) for one in (1, 2)] == [[1], [1, 2]]
    assert table.new_commit("u").commit([message], 1).already_committed
    assert index_files_on_disk(table) == {new.file_name, newer.file_name}


def test_a_dropped_compaction_takes_its_index_files_along(tmp_path: pathlib.Path) -> None:
    table = make_table(tmp_path)
    write(table, 1, [("+I", 1, "a")])
    write(table, 2, [("+I", 2, "b")], compaction=False)
    (message,) = prepared(table, full=True)
    new = write_hash_index(table, EMPTY_ROW, 0, np.array([1], np.int32))
    compact = dataclasses.replace(message.compact, new_index_files=(new,))
    write(table, 3, full=True)
    result = table.new_commit("slow").commit([dataclasses.replace(message, compact=compact)], 1)
    assert result.compaction_dropped
    assert index_files_on_disk(table) == set()


def test_an_unknown_outcome_keeps_index_files(tmp_path: pathlib.Path) -> None:
    store = Rivalled()
    table = make_table(tmp_path, file_io=store)
    messages = with_hashes(table, prepared(table, [("+I", 1, "a")]), [1])

    def fail() -> None:
        raise StorageUnavailableError("no answer")

    retries = table.options.commit_max_retries
    store.before = [fail] * (retries + 1)
    with pytest.raises(StorageUnavailableError):
        table.new_commit("u").commit(messages, 1)
    assert len(index_files_on_disk(table)) == 1
    table.new_commit("u").commit(messages, 1)
    assert hashes_at(table, 1) == [1]
    check_table(table)


def test_deletion_vectors_make_an_overwrite(tmp_path: pathlib.Path) -> None:
    table = make_table(tmp_path)
    write(table, 1, [("+I", 1, "a")], full=True)
    (name,) = [file.file_name for file in live_files(table, table.snapshots.read(2), EMPTY_ROW, 0)]
    vectors = write_deletion_vectors(table, EMPTY_ROW, 0, {})
    message = CommitMessage(
        partition=EMPTY_ROW,
        bucket=0,
        total_buckets=1,
        data=DataIncrement(new_index_files=(vectors,)),
    )
    table.new_commit("u").commit([message], 5)
    assert table.snapshots.read(3).commit_kind is CommitKind.OVERWRITE
    assert name in {f.file_name for f in live_files(table, table.snapshots.read(3), EMPTY_ROW, 0)}


def test_violations_of_the_index_are_found(tmp_path: pathlib.Path) -> None:
    table = make_table(tmp_path)
    grow(table, 1, 7)
    (name,) = index_files_on_disk(table)
    path = pathlib.Path(table.layout.index_file(name))
    path.write_bytes(b"12345678")
    assert any("wrong size" in text for text in violations(reopened(table)))
    path.unlink()
    assert any("not there" in text for text in violations(reopened(table)))


# ---------------------------------------------------------------------------- overwriting


def partitioned(
    tmp_path: pathlib.Path, keys: tuple[str, ...] = ("p", "k"), **options: str
) -> FileStoreTable:
    table = make_table(tmp_path, columns=PARTITIONED, keys=keys, partitions=["p"], options=options)
    write(table, 1, [("+I", 1, 1, "a"), ("+I", 2, 2, "b"), ("+I", 3, 3, "c")])
    return table


STATIC = {"dynamic-partition-overwrite": "false"}


def test_a_dynamic_overwrite_replaces_what_it_writes(tmp_path: pathlib.Path) -> None:
    table = partitioned(tmp_path)
    messages = prepared(table, [("+I", 1, 5, "new")], overwrite=True)
    table.new_commit("u").overwrite(messages, 1, partition={"p": 2})
    assert rows_of(table) == [(1, 5, "new"), (2, 2, "b"), (3, 3, "c")]
    assert table.new_commit("u").overwrite([], 2, partition={"p": 2}).append_snapshot_id is None


def test_a_static_overwrite_replaces_what_it_names(tmp_path: pathlib.Path) -> None:
    table = partitioned(tmp_path, **STATIC)
    commit = table.new_commit("u")
    messages = prepared(table, [("+I", 1, 5, "new")], overwrite=True)
    commit.overwrite(messages, 1, partition={"p": "1"})
    assert rows_of(table) == [(1, 5, "new"), (2, 2, "b"), (3, 3, "c")]
    commit.overwrite([], 2, partition={"p": 2})
    assert rows_of(table) == [(1, 5, "new"), (3, 3, "c")]
    messages = prepared(table, [("+I", 4, 4, "d")], overwrite=True)
    commit.overwrite(messages, 3)
    assert rows_of(table) == [(4, 4, "d")]
    check_table(table)


def test_a_static_overwrite_refuses_rows_of_other_partitions(tmp_path: pathlib.Path) -> None:
    table = partitioned(tmp_path, **STATIC)
    messages = prepared(table, [("+I", 2, 5, "new")], overwrite=True)
    with pytest.raises(InvalidRequestError, match="does not belong to this partition"):
        table.new_commit("u").overwrite(messages, 1, partition={"p": 1})
    with pytest.raises(InvalidRequestError, match="no such partition column"):
        table.new_commit("u").overwrite([], 1, partition={"k": 1})
    with pytest.raises(InvalidRequestError, match="not a value"):
        table.new_commit("u").overwrite([], 1, partition={"p": "many"})
    assert len(rows_of(table)) == 3


def test_overwriting_without_partitions_empties_the_table(tmp_path: pathlib.Path) -> None:
    table = make_table(tmp_path)
    write(table, 1, [("+I", 1, "a")])
    result = table.new_commit("u").overwrite([], 1)
    assert table.snapshots.read(result.append_snapshot_id or 0).commit_kind is CommitKind.OVERWRITE
    assert rows_of(table) == []


def test_the_null_partition_can_be_named(tmp_path: pathlib.Path) -> None:
    table = make_table(
        tmp_path, columns=PARTITIONED, keys=(), partitions=["p"], options={"bucket": "-1", **STATIC}
    )
    write(table, 1, [("+I", None, 1, "a"), ("+I", 2, 2, "b")])
    table.new_commit("u").overwrite([], 1, partition={"p": None})
    assert rows_of(table) == [(2, 2, "b")]


def test_overwriting_drops_the_index_files_of_its_partitions(tmp_path: pathlib.Path) -> None:
    table = make_table(tmp_path)
    grow(table, 1, 7)
    messages = prepared(table, [("+I", 9, "new")], overwrite=True)
    fresh = write_hash_index(table, EMPTY_ROW, 0, np.array([9], np.int32))
    data = dataclasses.replace(messages[0].data, new_index_files=(fresh,))
    table.new_commit("u").overwrite([dataclasses.replace(messages[0], data=data)], 1)
    assert hashes_at(table, 2) == [9]
    table.new_commit("u").truncate(2)
    assert index_entries(table, table.latest_snapshot()) == ()
    assert hashes_at(table, 2) == [9]
    check_table(table)
