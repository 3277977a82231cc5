# SPDX-License-Identifier: Apache-2.0
"""Writing append tables: rows as they come, sequence numbers, refused kinds, overwrite."""

import pathlib

import pyarrow as pa
import pytest

from storage.errors import InvalidOptionError, InvalidRequestError, UnsupportedFeatureError
from storage.format.metadata.file_meta import EMPTY_ROW, FileSource
from storage.format.metadata.schema_changes import SetOption
from storage.table.table import FileStoreTable
from tests.table_kit import data_files, make_table, prepared, reopened, rows_batch, rows_of, write
from tests.unit.storage.newest_files import newest_entries

COLUMNS = (("a", "INT"), ("b", "STRING"))


def append_table(root: pathlib.Path, **options: str) -> FileStoreTable:
    return make_table(root, columns=COLUMNS, keys=(), options={"bucket": "-1", **options})


def sequences(table: FileStoreTable) -> list[tuple[int, int, int]]:
    entries = newest_entries(table)
    return sorted(
        (e.bucket, e.file.min_sequence_number, e.file.max_sequence_number) for e in entries
    )


def test_rows_come_back_with_repeats_and_nulls(tmp_path: pathlib.Path) -> None:
    table = append_table(tmp_path)
    write(table, 1, [("+I", 1, "x"), ("+I", 1, "x"), ("+I", None, None)])
    write(table, 2, [("+I", 2, "y")])
    assert rows_of(reopened(table)) == [(1, "x"), (1, "x"), (2, "y"), (None, None)]


def test_without_buckets_all_is_in_bucket_0_and_every_writer_counts_from_0(
    tmp_path: pathlib.Path,
) -> None:
    table = append_table(tmp_path)
    write(table, 1, [("+I", 1, "x"), ("+I", 2, "y")])
    write(table, 2, [("+I", 3, "z")])
    entries = newest_entries(table)
    assert {(e.bucket, e.total_buckets, e.file.level) for e in entries} == {(0, -1, 0)}
    assert {(e.file.min_key, e.file.max_key) for e in entries} == {(EMPTY_ROW, EMPTY_ROW)}
    assert {e.file.file_source for e in entries} == {FileSource.APPEND.value}
    assert sequences(table) == [(0, 0, 0), (0, 0, 1)]


def test_in_fixed_buckets_sequence_numbers_go_on(tmp_path: pathlib.Path) -> None:
    table = append_table(tmp_path, bucket="2", **{"bucket-key": "a"})
    for round_ in range(2):
        write(table, round_ + 1, [("+I", i, str(round_)) for i in range(20)])
    found = sequences(table)
    for bucket in range(2):
        ranges = [(low, high) for number, low, high in found if number == bucket]
        assert ranges[0][0] == 0
        assert ranges[1][0] == ranges[0][1] + 1
    assert len(rows_of(table)) == 40


def test_rows_of_a_fixed_bucket_keep_their_order(tmp_path: pathlib.Path) -> None:
    table = append_table(tmp_path, bucket="1", **{"bucket-key": "a"})
    for i in range(12):
        write(table, i + 1, [("+I", 100 - i, str(i)), ("+I", i, str(i))])
    column = table.to_arrow().column("b").to_pylist()
    assert column == [str(i) for i in range(12) for _ in range(2)]


def test_the_bucket_follows_from_the_bucket_key(tmp_path: pathlib.Path) -> None:
    table = append_table(tmp_path, bucket="3", **{"bucket-key": "b"})
    write(table, 1, [("+I", i, f"s{i}") for i in range(50)])
    write(table, 2, [("+I", i, f"s{i}") for i in range(50)])
    places: dict[str, set[int]] = {}
    for split in table.new_scan().plan().splits:
        for batch in table.new_read().to_batches(split):
            for value in batch.column("b").to_pylist():
                places.setdefault(value, set()).add(split.bucket)
    assert all(len(found) == 1 for found in places.values())
    assert set.union(*places.values()) == {0, 1, 2}


def test_partitions_are_written_apart(tmp_path: pathlib.Path) -> None:
    table = make_table(
        tmp_path, columns=COLUMNS, keys=(), partitions=("b",), options={"bucket": "-1"}
    )
    write(table, 1, [("+I", 1, "x"), ("+I", 2, None), ("+I", 3, ""), ("+I", 4, "x")])
    root = pathlib.Path(table.layout.root)
    assert {path.parent.parent.name for path in root.glob("*/bucket-0/*")} == {
        "b=x",
        "b=__DEFAULT_PARTITION__",
    }
    assert rows_of(table) == [(1, "x"), (2, None), (3, ""), (4, "x")]
    assert rows_of(table.latest(), columns=["a"]) == [(1,), (2,), (3,), (4,)]


@pytest.mark.parametrize("kind", ["-U", "-D"])
def test_retractions_are_refused(tmp_path: pathlib.Path, kind: str) -> None:
    table = append_table(tmp_path)
    with (
        pytest.raises(InvalidRequestError, match=f"current row kind is: {kind}"),
        table.new_write("user") as writer,
    ):
        writer.write(rows_batch(table, [("+I", 1, "x"), (kind, 2, "y")]))
    assert data_files(table) == set()


def test_retractions_can_be_ignored(tmp_path: pathlib.Path) -> None:
    table = append_table(tmp_path, **{"ignore-delete": "true"})
    write(table, 1, [("+I", 1, "x"), ("-D", 2, "y"), ("-U", 3, "y"), ("+U", 4, "z")])
    assert rows_of(table) == [(1, "x"), (4, "z")]


def test_overwrite_replaces_what_was_there(tmp_path: pathlib.Path) -> None:
    table = append_table(tmp_path)
    write(table, 1, [("+I", 1, "x")])
    messages = prepared(table, [("+I", 2, "y")], overwrite=True)
    table.new_commit("batch").overwrite(messages, 1)
    assert rows_of(table) == [(2, "y")]


def test_files_roll_at_the_target_size(tmp_path: pathlib.Path) -> None:
    table = append_table(tmp_path, **{"target-file-size": "2 kb"})
    numbers = pa.array(range(5_000), pa.int32())
    texts = pa.array([f"value-{i * 7919 % 5000}" for i in range(5_000)])
    with table.new_write("user") as writer:
        writer.write(pa.RecordBatch.from_arrays([numbers, texts], names=["a", "b"]))
        messages = writer.prepare_commit()
    table.new_commit("user").commit(messages, 1)
    files = messages[0].data.new_files
    assert len(files) > 2
    assert [file.min_sequence_number for file in files[1:]] == [
        file.max_sequence_number + 1 for file in files[:-1]
    ]
    assert table.to_arrow().column("a").to_pylist() == list(range(5_000))


def test_what_is_not_committed_is_removed(tmp_path: pathlib.Path) -> None:
    table = append_table(tmp_path, **{"target-file-size": "1 b"})
    with table.new_write("user") as writer:
        writer.write(rows_batch(table, [("+I", 1, "x")]))
    assert data_files(table) == set()
    messages = prepared(table, [("+I", 1, "x")])
    assert data_files(table)
    table.delete_uncommitted(messages)
    assert data_files(table) == set()


def test_a_fixed_bucket_needs_a_bucket_key(tmp_path: pathlib.Path) -> None:
    with pytest.raises(InvalidOptionError, match="bucket-key"):
        append_table(tmp_path, bucket="2")


def test_another_number_of_buckets_needs_an_overwrite(tmp_path: pathlib.Path) -> None:
    table = append_table(tmp_path, bucket="2", **{"bucket-key": "a"})
    write(table, 1, [("+I", i, "x") for i in range(10)])
    more = table.alter([SetOption("bucket", "4")])
    with pytest.raises(InvalidRequestError, match="Try to write table with a new bucket num 4"):
        prepared(more, [("+I", 1, "x")])
    messages = prepared(more, [("+I", i, "y") for i in range(10)], overwrite=True)
    more.new_commit("batch").overwrite(messages, 1)
    assert {b for _, b in rows_of(more)} == {"y"}


def test_the_buckets_of_an_append_table_are_not_for_the_stream(tmp_path: pathlib.Path) -> None:
    with pytest.raises(UnsupportedFeatureError, match="without a primary key"):
        append_table(tmp_path).bucket_writer(EMPTY_ROW, 0, None)
