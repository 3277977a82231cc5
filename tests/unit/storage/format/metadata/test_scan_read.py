# SPDX-License-Identifier: Apache-2.0
import pathlib
import pickle
from collections.abc import Sequence
from typing import Any

import pyarrow as pa
import pytest

from storage.errors import InvalidRequestError
from storage.format.metadata.schema_changes import AddColumn, DropColumn, RenameColumn, UpdateType
from storage.format.types.types import parse_type
from storage.io.local import LocalFileIO
from storage.table.commit.live_files import clear_live_cache, live_files
from storage.table.scan.predicate import parse_predicate
from storage.table.table import FileStoreTable
from tests.faulty_io import FaultyFileIO
from tests.table_kit import (
    data_files,
    make_table,
    prepared,
    reopened,
    rows_of,
    write,
)

GOLDEN = pathlib.Path(__file__).parents[4] / "golden" / "data" / "public"
PARTITIONED = [("p", "STRING"), ("k", "INT"), ("v", "INT")]


def opened(store: FaultyFileIO, start: int) -> set[str]:
    """Data files opened since then."""
    return {
        pathlib.PurePath(path).name
        for operation, path in store.operations[start:]
        if operation in ("open_input", "read_bytes") and "/bucket-" in path
    }


def test_a_table_without_snapshots_is_empty(tmp_path: pathlib.Path) -> None:
    table = make_table(tmp_path)
    found = table.to_arrow()
    assert found.num_rows == 0
    assert found.schema.names == ["k", "v"]
    assert table.new_scan().plan().snapshot_id is None


def test_newest_version_wins_and_deleted_rows_are_gone(tmp_path: pathlib.Path) -> None:
    table = make_table(tmp_path)
    write(table, 1, [("+I", 1, "a"), ("+I", 2, "b"), ("+I", 3, "c")], compaction=False)
    write(table, 2, [("+U", 1, "A"), ("-D", 2, "b")], compaction=False)
    write(table, 3, [("-U", 3, "c"), ("+U", 3, "C"), ("-D", 9, "z")], compaction=False)
    assert rows_of(table) == [(1, "A"), (3, "C")]
    assert table.to_arrow()["k"].to_pylist() == [1, 3]
    write(table, 4, [("+I", 2, "again")], compaction=False)
    assert rows_of(table) == [(1, "A"), (2, "again"), (3, "C")]
    write(table, 5, full=True)
    assert rows_of(table) == [(1, "A"), (2, "again"), (3, "C")]


def test_rows_of_two_writers_at_once_are_ordered_by_their_numbers(tmp_path: pathlib.Path) -> None:
    table = make_table(tmp_path)
    write(table, 1, [("+I", 7, "old")], compaction=False)
    longer = prepared(table, [("+I", 2, "first"), ("+I", 1, "b"), ("+I", 3, "c")], compaction=False)
    shorter = prepared(table, [("+I", 9, "d"), ("+I", 2, "second")], compaction=False)
    table.new_commit("a").commit(shorter, 1)
    table.new_commit("b").commit(longer, 1)
    ends = [
        (file.min_sequence_number, file.max_sequence_number)
        for split in table.new_scan().plan().splits
        for file in split.files
    ]
    assert sorted(ends) == [(0, 0), (1, 2), (1, 3)]
    assert rows_of(table) == [(1, "b"), (2, "second"), (3, "c"), (7, "old"), (9, "d")]


def test_one_run_is_read_raw_and_several_are_merged(tmp_path: pathlib.Path) -> None:
    table = make_table(tmp_path)
    write(table, 1, [("+I", 1, "a")], compaction=False)
    write(table, 2, [("+I", 5, "b")], compaction=False)
    plan = table.new_scan().plan()
    assert [split.raw for split in plan.splits] == [True]
    assert [len(section) for section in plan.splits[0].sections] == [1, 1]
    write(table, 3, [("+I", 1, "c")], compaction=False)
    (split,) = table.new_scan().plan().splits
    assert [len(section) for section in split.sections] == [2, 1]
    assert not split.raw
    assert split.row_count == 3


def test_a_single_run_with_deletes_hides_them(tmp_path: pathlib.Path) -> None:
    table = make_table(tmp_path)
    write(table, 1, [("+I", 1, "a"), ("-D", 2, "b"), ("-U", 3, "c")], compaction=False)
    assert rows_of(table) == [(1, "a")]
    assert table.to_arrow(columns=["v"])["v"].to_pylist() == ["a"]


@pytest.mark.parametrize("columns", [["v"], ["v", "k"], ["k"], []])
def test_projection_reads_and_gives_what_is_asked(
    tmp_path: pathlib.Path, columns: list[str]
) -> None:
    table = make_table(tmp_path)
    write(table, 1, [("+I", 1, "a"), ("+I", 2, "b")], compaction=False)
    write(table, 2, [("+I", 2, "B")], compaction=False)
    found = table.to_arrow(columns=columns)
    assert found.column_names == columns
    assert found.num_rows == (2 if columns else found.num_rows)
    if "v" in columns:
        assert found["v"].to_pylist() == ["a", "B"]
    with pytest.raises(InvalidRequestError, match="no such column"):
        table.to_arrow(columns=["nope"])


def test_value_filters_wait_until_versions_are_merged(tmp_path: pathlib.Path) -> None:
    table = make_table(tmp_path)
    write(table, 1, [("+I", 1, "old"), ("+I", 2, "x")], compaction=False)
    write(table, 2, [("+I", 1, "new")], compaction=False)
    assert rows_of(table, filter=parse_predicate("v = 'old'")) == []
    assert rows_of(table, filter=parse_predicate("v = 'new'")) == [(1, "new")]
    found = table.to_arrow(columns=["k"], filter=parse_predicate("v = 'x'"))
    assert found.to_pylist() == [{"k": 2}]


def test_key_filters_prune_files_and_value_filters_prune_lone_ones(
    tmp_path: pathlib.Path,
) -> None:
    store = FaultyFileIO(LocalFileIO(durable=False))
    table = make_table(tmp_path, file_io=store)
    for number in range(4):
        rows = [("+I", number * 10 + i, f"{number}{i}") for i in range(5)]
        write(table, number, rows, compaction=False)
    write(table, 9, [("+I", 0, "99")], compaction=False)
    for text, rows, files in [
        ("k = 11", [(11, "11")], 1),
        ("k > 22 and k < 31", [(23, "23"), (24, "24"), (30, "30")], 2),
        ("k = 7", [], 0),
        ("v = '31'", [(31, "31")], 1),
        ("v = '01'", [(1, "01")], 2),  # the section of two files is read whole
        ("v = '00'", [], 2),
        ("v > 'zz'", [], 0),  # no version of any row can match
        ("k in (1, 12)", [(1, "01"), (12, "12")], 2),
    ]:
        start = len(store.operations)
        assert rows_of(table, filter=parse_predicate(text)) == rows, text
        assert len(opened(store, start)) == files, text


def test_partitions_and_buckets_are_pruned(tmp_path: pathlib.Path) -> None:
    table = make_table(
        tmp_path,
        columns=PARTITIONED,
        keys=["p", "k"],
        partitions=["p"],
        options={"bucket": "4"},
    )
    rows: list[tuple[Any, ...]] = [("+I", p, k, k) for p in ("a", "b", "c") for k in range(20)]
    write(table, 1, rows)
    scan = table.new_scan()
    assert len({split.partition for split in scan.plan().splits}) == 3
    plan = scan.with_filter(parse_predicate("p = 'b'")).plan()
    assert {split.partition_path for split in plan.splits} == {"p=b"}
    plan = scan.with_filter(parse_predicate("p <> 'b' and k = 7")).plan()
    assert {split.partition_path for split in plan.splits} == {"p=a", "p=c"}
    assert len({split.bucket for split in plan.splits}) == 1
    assert rows_of(table, filter=parse_predicate("p = 'b' and k in (7, 8)")) == [
        ("b", 7, 7),
        ("b", 8, 8),
    ]
    assert {split.bucket for split in scan.with_bucket(1, 2).plan().splits} == {1, 2}


def test_null_and_odd_partitions_are_read_back(tmp_path: pathlib.Path) -> None:
    table = make_table(
        tmp_path,
        columns=[("p", "STRING"), ("d", "DATE"), ("v", "INT"), ("k", "INT")],
        keys=["p", "d", "k"],
        partitions=["p", "d"],
    )
    rows: list[tuple[Any, ...]] = [("+I", p, 19857, 1, 1) for p in ("", " ", "a/b=c", "ü")]
    write(table, 1, rows)
    assert {row[0] for row in rows_of(table)} == {"", " ", "a/b=c", "ü"}
    assert [row[0] for row in rows_of(table, filter=parse_predicate("p = ''"))] == [""]
    found = rows_of(table, filter=parse_predicate("d = '2024-05-14'"))
    assert len(found) == 4
    assert rows_of(table, filter=parse_predicate("d = '2024-05-15'")) == []


def test_columns_are_followed_through_schema_changes(tmp_path: pathlib.Path) -> None:
    table = make_table(tmp_path, columns=[("k", "INT"), ("a", "INT"), ("b", "STRING")])
    write(table, 1, [("+I", 1, 10, "x"), ("+I", 2, 20, "y")], compaction=False)
    table = table.alter([RenameColumn("a", "c"), UpdateType("c", parse_type("BIGINT"))])
    table = table.alter([DropColumn("b"), AddColumn("b", parse_type("STRING"))])
    write(table, 2, [("+I", 2, 2**40, "z")], compaction=False)
    assert table.schema.field_names == ("k", "c", "b")
    assert rows_of(table) == [(1, 10, None), (2, 2**40, "z")]
    assert rows_of(table, filter=parse_predicate("c = 10")) == [(1, 10, None)]
    assert rows_of(table, filter=parse_predicate("b is null")) == [(1, 10, None)]
    assert rows_of(table, filter=parse_predicate("b = 'x'")) == []
    write(table, 3, full=True)
    assert rows_of(table) == [(1, 10, None), (2, 2**40, "z")]


def test_splits_are_packed_by_size_and_travel(tmp_path: pathlib.Path) -> None:
    table = make_table(
        tmp_path, options={"source.split.target-size": "8 mb", "target-file-size": "1 b"}
    )
    for number in range(5):
        write(table, number, [("+I", number, "a")], compaction=False)
    plan = table.new_scan().plan()
    assert [len(split.files) for split in plan.splits] == [2, 2, 1]
    copied = pickle.loads(pickle.dumps(plan))
    reader = FileStoreTable.open(table.layout.root).new_read(["k"])  # with ids that travel
    reader = pickle.loads(pickle.dumps(reader))
    assert reader.to_table(copied)["k"].to_pylist() == [0, 1, 2, 3, 4]
    batches = [batch for split in plan.splits for batch in reader.to_batches(split)]
    assert sum(batch.num_rows for batch in batches) == 5


def test_bucket_files_advance_by_deltas_only(tmp_path: pathlib.Path) -> None:
    writer = make_table(tmp_path, options={"bucket": "2"})
    store = FaultyFileIO(LocalFileIO(durable=False))
    table = reopened(writer, file_io=store)
    partition = bytes(12)
    for number in range(6):
        write(writer, number, [("+I", k, "a") for k in range(number, number + 5)])
        clear = number == 3
        if clear:
            clear_live_cache()
        latest = writer.snapshots.latest_id()
        start = len(store.operations)
        for bucket in (0, 1, 0):
            found = live_files(table, table.snapshots.read(latest), partition, bucket)
            entries = writer.new_scan().live_entries(writer.snapshots.read(latest or 0))
            assert {f.file_name for f in found} == {
                e.file.file_name for e in entries if e.bucket == bucket
            }
        read = [path for operation, path in store.operations[start:] if operation == "read_bytes"]
        assert all("/snapshot/" in path for path in read), "what this process wrote is known"
        # a look at the snapshot each and at the one before, the steps to it, a last look
        assert len(read) <= 6


def test_files_of_a_bucket_are_the_same_with_and_without_caches(tmp_path: pathlib.Path) -> None:
    table = make_table(tmp_path, options={"bucket": "2"})
    for number in range(12):
        write(table, number, [("+I", k, "a") for k in range(number % 4, 9)])
    ids = table.snapshots.ids()
    warm = {
        (i, b): live_files(table, table.snapshots.read(i), bytes(12), b)
        for i in ids
        for b in (0, 1)
    }
    for (snapshot_id, bucket), files in warm.items():
        clear_live_cache()
        assert set(live_files(table, table.snapshots.read(snapshot_id), bytes(12), bucket)) == set(
            files
        )


def golden(case: str) -> FileStoreTable:
    return FileStoreTable.open(str(GOLDEN / case / "table"))


@pytest.mark.parametrize("case", ["append_unaware", "append_fixed_bucket"])
def test_append_tables_are_read_file_by_file(case: str) -> None:
    table = golden(case)
    plan = table.new_scan().plan()
    assert all(split.raw for split in plan.splits)
    snapshot = table.snapshots.latest()
    assert snapshot is not None
    assert table.to_arrow().num_rows == snapshot.total_record_count


def test_one_write_may_be_flushed_and_compacted_several_times(tmp_path: pathlib.Path) -> None:
    table = make_table(tmp_path)
    batches: Sequence[Sequence[tuple[Any, ...]]] = [
        [("+I", k, f"{round_}") for k in range(round_, round_ + 3)] for round_ in range(8)
    ]
    messages = prepared(table, *batches)
    table.new_commit("u").commit(messages, 1)
    assert rows_of(table) == [(k, str(min(k, 7))) for k in range(10)]
    assert {
        f.file_name for f in live_files(table, table.snapshots.read(2), bytes(12), 0)
    } <= data_files(table)


def test_many_splits_are_read_in_order(tmp_path: pathlib.Path) -> None:
    table = make_table(tmp_path, options={"bucket": "8"})
    write(table, 1, [("+I", k, str(k)) for k in range(200)])
    found = table.to_arrow()
    assert isinstance(found, pa.Table)
    assert sorted(found["k"].to_pylist()) == list(range(200))
    assert found.equals(table.to_arrow())


def test_row_groups_are_pruned_without_losing_versions(tmp_path: pathlib.Path) -> None:
    table = make_table(tmp_path, columns=[("k", "BIGINT"), ("n", "INT"), ("v", "STRING")])
    wide = "x" * 60_000  # a few rows fill a row group
    rows = [("+I", k, k % 2 or None, f"{k}{wide}{k}") for k in range(2_000)]
    write(table, 1, rows, compaction=False)
    for text, keys in [
        ("k = 1500", [1500]),
        ("k > 1997 and n is null", [1998]),
        ("n = 7", []),
        ("k in (3, 1999)", [3, 1999]),
        ("v < '0' ", []),
    ]:
        found = table.to_arrow(columns=["k"], filter=parse_predicate(text))
        assert found["k"].to_pylist() == keys, text
    write(table, 2, [("-D", 1500, 0, ""), ("+U", 3, 9, "new")], compaction=False)
    found = table.to_arrow(columns=["k", "n"], filter=parse_predicate("k in (3, 1500, 1501)"))
    assert found.to_pylist() == [{"k": 3, "n": 9}, {"k": 1501, "n": 1}]
    assert table.to_arrow(filter=parse_predicate("v like '3x%'")).num_rows == 0
