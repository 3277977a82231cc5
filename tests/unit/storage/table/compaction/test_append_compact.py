# SPDX-License-Identifier: Apache-2.0
"""Compaction of append tables: which files, in what order, and what becomes of deleted rows."""

import pathlib

import pytest

from storage.format.metadata.file_meta import (
    EMPTY_ROW,
    CommitMessage,
    DataFileMeta,
    DataIncrement,
    FileSource,
)
from storage.format.metadata.snapshot import CommitKind
from storage.table.commit.live_files import index_entries
from storage.table.read.deletion_vectors import BucketVectors
from storage.table.table import FileStoreTable
from storage.table.write.bucket_writers import PackRules, pack_files, pick_all, pick_ordered
from tests.table_kit import data_files, make_table, reopened, rows_of, write
from tests.unit.storage.file_metas import file_meta
from tests.unit.storage.newest_files import newest_entries

COLUMNS = (("a", "INT"), ("b", "STRING"))


def append_table(root: pathlib.Path, **options: str) -> FileStoreTable:
    return make_table(root, columns=COLUMNS, keys=(), options={"bucket": "-1", **options})


def live(table: FileStoreTable) -> list[DataFileMeta]:
    return [entry.file for entry in newest_entries(table)]


def files_of(*sizes: int) -> list[DataFileMeta]:
    return [file_meta(name=f"f{i}", size=s, sequence=i, rows=10) for i, s in enumerate(sizes)]


def compact_append_table(table: FileStoreTable, *, full: bool = False) -> list[CommitMessage]:
    with table.new_write("compact") as writer:
        writer.compact(full=full)
        return writer.prepare_commit()


def names(files: list[DataFileMeta]) -> list[str]:
    return [file.file_name for file in files]


# ------------------------------------------------------------------------------- picking


def test_neighbours_are_taken_when_there_are_enough() -> None:
    picked, rest = pick_ordered(files_of(1, 1, 1, 1), 3, 100)
    assert (names(picked), names(rest)) == (["f0", "f1", "f2"], ["f3"])


def test_the_window_leaves_its_first_file_when_it_is_full() -> None:
    picked, rest = pick_ordered(files_of(90, 20, 5, 5), 3, 100)
    assert (names(picked), names(rest)) == (["f1", "f2", "f3"], [])


def test_too_few_files_wait() -> None:
    picked, rest = pick_ordered(files_of(1, 1), 3, 100)
    assert (picked, names(rest)) == ([], ["f0", "f1"])


def test_a_large_file_alone_is_left_behind() -> None:
    picked, rest = pick_ordered(files_of(200, 1), 3, 100)
    assert (picked, names(rest)) == ([], ["f1"])


def test_a_full_compaction_starts_at_the_first_small_file() -> None:
    assert names(pick_all(files_of(200, 1, 200, 1, 1), 100, deleted=None)) == [
        *("f1", "f2", "f3", "f4")
    ]


@pytest.mark.parametrize("sizes", [(1, 1), (1, 200, 200, 1), (200, 200, 200)])
def test_a_full_compaction_that_would_gain_little_is_not_made(sizes: tuple[int, ...]) -> None:
    assert pick_all(files_of(*sizes), 100, deleted=None) == []


def test_with_deletion_vectors_a_full_compaction_is_always_made() -> None:
    assert names(pick_all(files_of(200, 200), 100, deleted={"f1"})) == ["f1"]
    assert names(pick_all(files_of(1, 1), 100, deleted=set())) == ["f0", "f1"]


RULES = PackRules(target_size=100, small_size=70, open_cost=10, least_files=3, delete_ratio=0.2)


def test_small_files_are_packed_by_size() -> None:
    packs = pack_files(files_of(60, 65, 10, 20, 80, 62), RULES)
    assert [names(pack) for pack in packs] == [["f2", "f3", "f0", "f5", "f1"]]


def test_a_pack_that_is_not_full_needs_enough_files() -> None:
    assert pack_files(files_of(1, 1), RULES) == []
    assert [names(pack) for pack in pack_files(files_of(1, 1, 1), RULES)] == [["f0", "f1", "f2"]]


def test_files_with_vectors_go_together_by_their_index_file() -> None:
    files = files_of(500, 500, 500, 30)
    counts = {"f0": 3, "f1": 1, "f2": None}
    packs = pack_files(
        [*files],
        RULES,
        cardinality=lambda name: counts.get(name),
        vector_file={"f0": "x", "f1": "x", "f2": "y"},
    )
    # row_count is 10: f0 lost more than 20 %, f1 did not, f2 is unknown
    assert [sorted(names(pack)) for pack in packs] == [["f0", "f2"]]


# ------------------------------------------------------------------------------ carrying out


def test_small_files_become_one(tmp_path: pathlib.Path) -> None:
    table = append_table(tmp_path, **{"compaction.min.file-num": "2"})
    for i in range(3):
        write(table, i + 1, [("+I", i, "x"), ("+I", i, None)])
    before = rows_of(table)
    result = table.new_commit("compact").commit(compact_append_table(table), 1)
    assert result.append_snapshot_id is None
    assert result.compact_snapshot_id == 4
    assert rows_of(reopened(table)) == before
    (file,) = live(table)
    assert (file.min_sequence_number, file.max_sequence_number) == (0, 5)
    assert file.file_source == FileSource.COMPACT.value


def test_nothing_to_do_gives_no_messages(tmp_path: pathlib.Path) -> None:
    table = append_table(tmp_path)
    assert compact_append_table(table) == []
    write(table, 1, [("+I", 1, "x")])
    assert compact_append_table(table) == []
    assert compact_append_table(table, full=True) == []
    write(table, 2, [("+I", 2, "x")])
    assert compact_append_table(table) == []
    assert len(compact_append_table(table, full=True)) == 1


def test_the_facade_compacts_too(tmp_path: pathlib.Path) -> None:
    table = append_table(tmp_path)
    for i in range(5):
        write(table, i + 1, [("+I", i, "x")])
    with table.new_write("user") as writer:
        assert writer.compact()
        assert not writer.compact()
        messages = writer.prepare_commit()
    table.new_commit("user").commit(messages, 9)
    assert len(live(table)) == 1
    assert len(rows_of(table)) == 5


def test_a_compaction_that_is_not_committed_leaves_nothing(tmp_path: pathlib.Path) -> None:
    table = append_table(tmp_path)
    for i in range(5):
        write(table, i + 1, [("+I", i, "x")])
    before = data_files(table)
    with table.new_write("user") as writer:
        writer.compact()
        assert data_files(table) > before
    assert data_files(table) == before


def test_partitions_are_compacted_apart(tmp_path: pathlib.Path) -> None:
    table = make_table(
        tmp_path, columns=COLUMNS, keys=(), partitions=("b",), options={"bucket": "-1"}
    )
    for i in range(5):
        write(table, i + 1, [("+I", i, "x"), *([("+I", i, "y")] if i < 2 else [])])
    messages = compact_append_table(table)
    assert len(messages) == 1
    table.new_commit("compact").commit(messages, 1)
    assert len(live(table)) == 3
    assert len(rows_of(table)) == 7


def test_neighbours_of_a_fixed_bucket_are_merged_while_writing(tmp_path: pathlib.Path) -> None:
    table = append_table(tmp_path, bucket="1", **{"bucket-key": "a"})
    for i in range(11):
        write(table, i + 1, [("+I", -i, str(i))])
    assert table.to_arrow().column("b").to_pylist() == [str(i) for i in range(11)]
    assert len(live(table)) < 5
    kinds = [table.snapshots.read(i).commit_kind for i in table.snapshots.ids()]
    assert kinds.count(CommitKind.COMPACT) == 2


def test_write_only_leaves_compaction_to_others(tmp_path: pathlib.Path) -> None:
    table = append_table(tmp_path, bucket="1", **{"bucket-key": "a", "write-only": "true"})
    for i in range(6):
        write(table, i + 1, [("+I", -i, str(i))])
    assert len(live(table)) == 6
    table.new_commit("compact").commit(compact_append_table(table, full=True), 1)
    assert len(live(table)) == 1
    assert table.to_arrow().column("b").to_pylist() == [str(i) for i in range(6)]


def test_two_compactions_in_one_interval_leave_no_file_behind(tmp_path: pathlib.Path) -> None:
    table = append_table(tmp_path, bucket="1", **{"bucket-key": "a", "write-only": "true"})
    for i in range(6):
        write(table, i + 1, [("+I", -i, str(i))])
    with table.new_write("user") as writer:
        assert writer.compact()
        assert not writer.compact(full=True)  # one file left
        messages = writer.prepare_commit()
    table.new_commit("user").commit(messages, 9)
    assert data_files(table) == {
        name for snapshot in table.snapshots.ids() for name in _names_at(table, snapshot)
    }
    assert table.to_arrow().column("b").to_pylist() == [str(i) for i in range(6)]


def _names_at(table: FileStoreTable, snapshot_id: int) -> list[str]:
    entries = table.new_scan().live_entries(table.snapshots.read(snapshot_id))
    return [entry.file.file_name for entry in entries]


def delete_rows(table: FileStoreTable, file: DataFileMeta, rows: list[int]) -> None:
    """Commit a deletion vector for a file of bucket 0 of an unpartitioned table."""
    vectors = BucketVectors.of(table, table.latest_snapshot(), EMPTY_ROW, 0)
    assert vectors.mark(file.file_name, rows) == len(rows)
    new, replaced = vectors.changes()
    message = CommitMessage(
        partition=EMPTY_ROW,
        bucket=0,
        total_buckets=table.options.bucket,
        data=DataIncrement(new_index_files=new, deleted_index_files=replaced),
    )
    table.new_commit(f"delete {rows}").commit([message], 1)


def vectors_left(table: FileStoreTable) -> list[str]:
    return [
        vector.data_file_name
        for entry in index_entries(table, table.latest_snapshot())
        for vector in entry.file.deletion_vectors or ()
    ]


def test_vectors_of_files_that_stay_stay(tmp_path: pathlib.Path) -> None:
    options = {"deletion-vectors.enabled": "true", "target-file-size": "4 kb"}
    table = append_table(tmp_path, **options)
    write(table, 1, [("+I", i, f"{i * 104729 % 99991:x}" * 40) for i in range(600)])
    large = max(live(table), key=lambda file: file.file_size)
    assert large.file_size > 4096
    write(table, 2, [("+I", 1000, "x"), ("+I", 1001, "x")])
    write(table, 3, [("+I", 1002, "x")])
    small = [file for file in live(table) if file.file_size < 2000]
    delete_rows(table, large, [0])
    delete_rows(table, min(small, key=lambda file: -file.row_count), [0])
    left = rows_of(table)
    table.new_commit("compact").commit(compact_append_table(table, full=True), 1)
    assert rows_of(table) == left
    assert vectors_left(table) == [large.file_name]


def test_a_file_that_lost_many_rows_is_rewritten(tmp_path: pathlib.Path) -> None:
    options = {"deletion-vectors.enabled": "true", "target-file-size": "400 b"}
    table = append_table(tmp_path, **options)
    write(table, 1, [("+I", i, "x") for i in range(10)])
    delete_rows(table, live(table)[0], [0, 1])
    assert compact_append_table(table) == []  # 20 % is not more than 20 %
    delete_rows(table, live(table)[0], [5])
    table.new_commit("compact").commit(compact_append_table(table), 1)
    assert [file.row_count for file in live(table)] == [7]
    assert vectors_left(table) == []
