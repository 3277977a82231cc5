# SPDX-License-Identifier: Apache-2.0
import pathlib
from collections.abc import Sequence
from typing import Any

import pyroaring
import pytest

from storage.errors import (
    FileConflictError,
    StorageUnavailableError,
)
from storage.format.metadata.file_meta import EMPTY_ROW, CommitMessage, DataIncrement
from storage.format.metadata.schema_changes import SetOption
from storage.format.metadata.snapshot import CommitKind
from storage.io.local import LocalFileIO
from storage.table.commit.commit import FileStoreCommit
from storage.table.commit.live_files import index_entries
from storage.table.read.deletion_vectors import BucketVectors, deletion_files, load_vectors
from storage.table.retention.expire import expire_snapshots
from storage.table.scan.predicate import parse_predicate
from storage.table.table import FileStoreTable
from storage.table.write.rows.row_changes import ChangeResult, delete_where
from storage.testing.invariants import check_table
from tests.faulty_io import Fault, FaultyFileIO
from tests.table_kit import (
    data_files,
    index_files_named,
    index_files_on_disk,
    make_table,
    prepared,
    reopened,
    rows_of,
    write,
)
from tests.unit.storage.golden_tables import GoldenTable
from tests.unit.storage.newest_files import newest_entries

UNAWARE = {"bucket": "-1"}
BUCKETED = {"bucket": "2", "bucket-key": "k"}


def append_table(directory: pathlib.Path, options: dict[str, str], **more: Any) -> FileStoreTable:
    options = {"deletion-vectors.enabled": "true", **options}
    return make_table(directory, keys=(), options=options, **more)


def insert(table: FileStoreTable, identifier: int, keys: Sequence[int]) -> None:
    write(table, identifier, [("+I", key, f"v{key}") for key in keys], compaction=False)


def delete(table: FileStoreTable, text: str, **more: Any) -> ChangeResult:
    return table.delete_where(parse_predicate(text), "deleter", **more)


def keys_of(table: FileStoreTable, **more: Any) -> list[int]:
    return sorted(row[0] for row in rows_of(table, **more))


def vector_message(table: FileStoreTable, file: str, positions: list[int]) -> CommitMessage:
    vectors = BucketVectors.of(table, table.latest_snapshot(), EMPTY_ROW, 0)
    vectors.mark(file, positions)
    new, replaced = vectors.changes()
    data = DataIncrement(new_index_files=new, deleted_index_files=replaced)
    return CommitMessage(partition=EMPTY_ROW, bucket=0, total_buckets=-1, data=data)


def file_names(table: FileStoreTable) -> list[str]:
    return [entry.file.file_name for entry in newest_entries(table)]


@pytest.mark.parametrize("options", [UNAWARE, BUCKETED])
def test_rows_are_gone_and_the_files_stay(tmp_path: pathlib.Path, options: dict[str, str]) -> None:
    table = append_table(tmp_path, options)
    insert(table, 1, range(10))
    insert(table, 2, range(10, 15))
    files = file_names(table)
    first = delete(table, "k = 3 OR k = 12 OR v = 'v4'")
    assert first == ChangeResult(snapshot_id=3, deleted=3)
    assert keys_of(table) == [0, 1, 2, 5, 6, 7, 8, 9, 10, 11, 13, 14]
    second = delete(table, "k <= 5")
    assert (second.snapshot_id, second.row_count) == (4, 4)
    assert keys_of(table) == [6, 7, 8, 9, 10, 11, 13, 14]
    assert file_names(table) == files
    snapshot = table.snapshots.read(4)
    assert snapshot.commit_kind is CommitKind.OVERWRITE
    assert (snapshot.total_record_count, snapshot.delta_record_count) == (15, 0)
    assert keys_of(table, snapshot=3) == [0, 1, 2, 5, 6, 7, 8, 9, 10, 11, 13, 14]
    assert keys_of(table, snapshot=2) == list(range(15))
    insert(table, 5, [3])
    assert keys_of(table) == [3, 6, 7, 8, 9, 10, 11, 13, 14]
    check_table(table)


def test_nothing_to_delete_makes_no_snapshot(tmp_path: pathlib.Path) -> None:
    table = append_table(tmp_path, UNAWARE)
    assert delete(table, "k = 1") == ChangeResult(snapshot_id=None, deleted=0)
    insert(table, 1, [1, 2])
    delete(table, "k = 1")
    assert delete(table, "k = 1").snapshot_id is None
    assert delete(table, "k = 9").snapshot_id is None
    assert table.snapshots.ids() == [1, 2]
    assert index_files_on_disk(table) == index_files_named(table)


def test_only_true_deletes(tmp_path: pathlib.Path) -> None:
    table = append_table(tmp_path, UNAWARE)
    write(table, 1, [("+I", 1, None), ("+I", 2, "b")], compaction=False)
    delete(table, "v <> 'a'")
    assert rows_of(table) == [(1, None)]


def test_vectors_of_java_are_taken_in(tmp_path: pathlib.Path) -> None:
    table = GoldenTable("append_dv").copied_to(tmp_path / "t")
    before = rows_of(table)
    field = table.schema.field_names[0]
    gone = before[0]
    delete(table, f"{field} = {gone[0]}")
    assert rows_of(table) == [row for row in before if row[0] != gone[0]]
    check_table(table)


@pytest.mark.parametrize("options", [UNAWARE, BUCKETED])
def test_the_form_of_vectors_may_change(tmp_path: pathlib.Path, options: dict[str, str]) -> None:
    table = append_table(tmp_path, options)
    insert(table, 1, range(4))
    insert(table, 2, range(4, 8))
    delete(table, "k = 0 OR k = 4")
    table = table.alter([SetOption("deletion-vectors.bitmap64", "true")])
    delete(table, "k = 1 OR k = 2")
    assert keys_of(table) == [3, 5, 6, 7]
    snapshot = table.latest_snapshot()
    assert snapshot is not None
    forms = set()
    for bucket in ((EMPTY_ROW, 0), (EMPTY_ROW, 1)):
        located = deletion_files(table, snapshot)(bucket)
        forms |= {type(one) for one in load_vectors(table.file_io, located).values()}
    assert forms == {pyroaring.BitMap, pyroaring.BitMap64}
    check_table(table)


def test_index_files_are_rolled_and_touched_ones_rewritten(tmp_path: pathlib.Path) -> None:
    table = append_table(tmp_path, {**UNAWARE, "deletion-vector.index-file.target-size": "1 b"})
    for number in range(3):
        insert(table, number, [10 * number, 10 * number + 1])
    delete(table, "k = 0 OR k = 10 OR k = 20")
    snapshot = table.latest_snapshot()
    before = {entry.file.file_name for entry in index_entries(table, snapshot)}
    assert len(before) == 3
    delete(table, "k = 11")
    after = {entry.file.file_name for entry in index_entries(table, table.latest_snapshot())}
    assert (len(after), len(after & before)) == (3, 2)
    assert keys_of(table) == [1, 21]
    check_table(table)


def test_a_bucket_has_one_index_file(tmp_path: pathlib.Path) -> None:
    table = append_table(tmp_path, BUCKETED)
    insert(table, 1, range(8))
    insert(table, 2, range(8, 16))
    delete(table, "k < 4")
    delete(table, "k > 12")
    entries = index_entries(table, table.latest_snapshot())
    assert sorted(entry.bucket for entry in entries) == [0, 1]
    assert keys_of(table) == list(range(4, 13))


def test_files_without_a_match_are_not_opened(tmp_path: pathlib.Path) -> None:
    store = FaultyFileIO(LocalFileIO(durable=False))
    table = append_table(
        tmp_path, UNAWARE, columns=[("p", "INT"), ("k", "BIGINT")], partitions=["p"], file_io=store
    )
    for part in range(3):
        write(table, part, [("+I", part, part), ("+I", part, 10 + part)], compaction=False)
    start = len(store.operations)
    delete(table, "p = 1 AND k > 5")
    opened = {path for operation, path in store.operations[start:] if operation == "open_input"}
    assert {"p=1" in path for path in opened if "/bucket-" in path} == {True}
    assert rows_of(table) == [(0, 0), (0, 10), (1, 1), (2, 12), (2, 2)]


def test_a_deletion_is_made_once(tmp_path: pathlib.Path) -> None:
    table = append_table(tmp_path, UNAWARE)
    insert(table, 1, [1, 2])
    assert delete(table, "k = 1", identifier=5).row_count == 1
    insert(table, 2, [1])
    again = delete(table, "k = 1", identifier=5)
    assert (again.already_committed, again.row_count) == (True, 0)
    assert keys_of(table) == [1, 2]
    assert index_files_on_disk(table) == index_files_named(table)
    assert delete(table, "k = 1").row_count == 1
    assert delete(table, "k = 2").row_count == 1
    assert keys_of(table) == []


@pytest.mark.parametrize("options", [UNAWARE, {"bucket": "1", "bucket-key": "k"}])
def test_a_deletion_beside_another_is_a_conflict(
    tmp_path: pathlib.Path, options: dict[str, str]
) -> None:
    table = append_table(tmp_path, options)
    insert(table, 1, range(5))
    (name,) = file_names(table)
    for lost in range(2):  # without and with a vector that is there already
        message = vector_message(table, name, [4])
        delete(table, f"k = {lost}")
        with pytest.raises(FileConflictError, match="index file conflicts"):
            table.new_commit("loser").commit([message], lost)
        table.delete_uncommitted([message])
    assert keys_of(table) == [2, 3, 4]
    assert index_files_on_disk(table) == index_files_named(table)
    check_table(table)


def test_a_deletion_looks_again_when_it_lost(
    tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    table = append_table(tmp_path, UNAWARE)
    insert(table, 1, range(6))
    rivals = iter(["k = 0", "k = 1"])
    commit = FileStoreCommit.commit

    def slow(self: FileStoreCommit, *given: Any, **more: Any) -> Any:
        rival = next(rivals, None)
        if rival is not None:
            monkeypatch.setattr(FileStoreCommit, "commit", commit)
            delete_where(reopened(table), parse_predicate(rival), "rival")
            monkeypatch.setattr(FileStoreCommit, "commit", slow)
        return commit(self, *given, **more)

    monkeypatch.setattr(FileStoreCommit, "commit", slow)
    assert delete(table, "k < 3").row_count == 1
    assert keys_of(table) == [3, 4, 5]
    assert index_files_on_disk(table) == index_files_named(table)
    check_table(table)


@pytest.mark.parametrize("options", [UNAWARE, {"bucket": "1", "bucket-key": "k"}])
def test_a_compaction_does_not_bring_rows_back(
    tmp_path: pathlib.Path, options: dict[str, str]
) -> None:
    table = append_table(tmp_path, options)
    insert(table, 1, range(4))
    insert(table, 2, range(4, 8))
    compaction = prepared(table, full=True)
    assert any(message.compact.compact_before for message in compaction)
    delete(table, "k = 1")
    result = table.new_commit("compactor").commit(compaction, 1)
    assert result.compaction_dropped
    assert keys_of(table) == [0, 2, 3, 4, 5, 6, 7]
    check_table(table)


@pytest.mark.parametrize("options", [UNAWARE, {"bucket": "1", "bucket-key": "k"}])
def test_compacted_files_lose_their_vectors(
    tmp_path: pathlib.Path, options: dict[str, str]
) -> None:
    table = append_table(tmp_path, options)
    insert(table, 1, range(4))
    insert(table, 2, range(4, 8))
    delete(table, "k = 1 OR k = 6")
    message = vector_message(table, file_names(table)[0], [0])
    result = table.new_commit("compactor").commit(prepared(table, full=True), 1)
    assert result.compact_snapshot_id is not None
    entries = index_entries(table, table.latest_snapshot())
    assert [vector for entry in entries for vector in entry.file.deletion_vectors or ()] == []
    assert keys_of(table) == [0, 2, 3, 4, 5, 7]
    assert table.to_arrow().num_rows == sum(
        split.row_count for split in table.new_scan().plan().splits
    )
    with pytest.raises(FileConflictError):
        table.new_commit("late").commit([message], 1)
    check_table(table)


def test_a_vector_of_a_file_that_left_is_a_conflict(tmp_path: pathlib.Path) -> None:
    table = append_table(tmp_path, UNAWARE)
    insert(table, 1, range(4))
    insert(table, 2, range(4, 8))
    message = vector_message(table, file_names(table)[0], [0])
    table.new_commit("compactor").commit(prepared(table, full=True), 1)
    with pytest.raises(FileConflictError, match="file deletion conflicts"):
        table.new_commit("late").commit([message], 1)
    assert keys_of(table) == list(range(8))


def test_a_deletion_that_cannot_write_leaves_nothing(tmp_path: pathlib.Path) -> None:
    table = append_table(tmp_path, {**UNAWARE, "deletion-vector.index-file.target-size": "1 b"})
    for number in range(3):
        insert(table, number, [number])
    seen = 0
    for at in range(1, 200):
        store = FaultyFileIO(LocalFileIO(durable=False), Fault(at, "error"))
        try:
            delete_where(reopened(table, file_io=store), parse_predicate("k >= 0"), "d")
        except StorageUnavailableError as error:
            if "/index/" in str(error.context.get("path")):
                seen += 1
                assert index_files_on_disk(table) == set()
        if keys_of(table) == []:
            break
    assert seen == 3
    check_table(table)


def test_index_files_may_lie_beside_the_data(tmp_path: pathlib.Path) -> None:
    table = append_table(tmp_path, {**UNAWARE, "index-file-in-data-file-dir": "true"})
    insert(table, 1, range(4))
    delete(table, "k = 1")
    delete(table, "k = 2")
    assert index_files_on_disk(table) == set()
    assert index_files_named(table) < data_files(table)
    assert keys_of(table) == [0, 3]
    expire_snapshots(table, now_ms=table.clock.now_ms() + 10**10, retain_min=1, retain_max=1)
    assert {name for name in data_files(table) if name.startswith("index-")} == index_files_named(
        table
    )
    check_table(reopened(table))
