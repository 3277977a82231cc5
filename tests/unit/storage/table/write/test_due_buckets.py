# SPDX-License-Identifier: Apache-2.0
"""Compactions that a commit brings although it writes no row of the bucket."""

import pathlib
from collections import Counter

import pytest

from storage.format.metadata.schema_changes import SetOption
from storage.format.metadata.snapshot import BATCH_COMMIT_IDENTIFIER
from storage.table.table import FileStoreTable
from storage.table.write.write import buckets_due
from tests.changelog_kit import changelog_of_commit
from tests.table_kit import make_table, reopened, rows_batch, rows_of, write
from tests.unit.storage.newest_files import newest_entries

_COLUMNS = (("p", "INT"), ("k", "INT"), ("v", "STRING"))


def _table(warehouse: pathlib.Path, **options: str) -> FileStoreTable:
    raw = {key.replace("__", ".").replace("_", "-"): value for key, value in options.items()}
    return make_table(warehouse, columns=_COLUMNS, keys=("p", "k"), partitions=("p",), options=raw)


def _levels(table: FileStoreTable) -> list[Counter[int]]:
    """How many files of each level every bucket has."""
    found: dict[tuple[bytes, int], Counter[int]] = {}
    for entry in newest_entries(table):
        found.setdefault((entry.partition, entry.bucket), Counter())[entry.file.level] += 1
    return [found[where] for where in sorted(found)]


def test_a_due_commit_compacts_all_buckets_written_since(tmp_path: pathlib.Path) -> None:
    table = _table(tmp_path, full_compaction__delta_commits="3")
    write(table, 1, [("+I", 1, 1, "a")], stream=True)
    write(table, 2, [("+I", 2, 1, "b")], stream=True)
    assert _levels(table) == [{0: 1}, {0: 1}]
    result = write(reopened(table), 3, [("+I", 3, 1, "c")], stream=True)
    assert result.compact_snapshot_id is not None
    assert _levels(table) == [{5: 1}, {5: 1}, {5: 1}]
    assert rows_of(table) == [(1, 1, "a"), (2, 1, "b"), (3, 1, "c")]
    write(table, 4, [("+I", 1, 1, "d")], stream=True)
    assert _levels(table) == [{0: 1, 5: 1}, {5: 1}, {5: 1}]
    before = table.latest_snapshot()
    assert buckets_due(table, before, 6) == buckets_due(table, before, BATCH_COMMIT_IDENTIFIER)
    assert len(buckets_due(table, before, 6)) == 1
    assert buckets_due(table, before, 5) == ()
    assert buckets_due(table, before, None) == ()
    assert buckets_due(table, None, 6) == ()


def test_a_commit_without_rows_may_be_due(tmp_path: pathlib.Path) -> None:
    table = _table(tmp_path, full_compaction__delta_commits="2")
    with table.new_write("user") as writer:
        commit = table.new_commit("user")
        writer.write(rows_batch(table, [("+I", 1, 1, "a")]))
        commit.commit(writer.prepare_commit(1), 1)
        assert writer.prepare_commit(periodic=False) == []
        (message,) = writer.prepare_commit(2)
        assert message.data.empty
        assert not message.compact.empty
        commit.commit([message], 2)
        assert writer.prepare_commit(4) == []
    assert _levels(table) == [{5: 1}]


@pytest.mark.parametrize("by_option", [True, False])
def test_writers_that_do_not_compact_never_do(tmp_path: pathlib.Path, by_option: bool) -> None:
    options = {"full_compaction__delta_commits": "1"}
    table = _table(tmp_path, **options, **({"write_only": "true"} if by_option else {}))
    for number in (1, 2):
        write(table, number, [("+I", 1, 1, "a")], stream=True, compaction=by_option)
    assert _levels(table) == [{0: 2}]


def test_an_overwrite_takes_in_no_other_bucket(tmp_path: pathlib.Path) -> None:
    table = _table(tmp_path, full_compaction__delta_commits="1")
    write(table, 1, [("+I", 1, 1, "a")], compaction=False)
    with table.new_write("user", overwrite=True) as writer:
        writer.write(rows_batch(table, [("+I", 2, 1, "b")]))
        (message,) = writer.prepare_commit(2)
    table.new_commit("user").overwrite([message], 2)
    assert _levels(table) == [{0: 1}, {5: 1}]


def test_partitions_with_another_bucket_count_are_left_alone(tmp_path: pathlib.Path) -> None:
    table = _table(tmp_path, full_compaction__delta_commits="2")
    write(table, 1, [("+I", 1, 1, "a")], stream=True)
    table = table.alter([SetOption("bucket", "2")])
    write(table, 2, [("+I", 2, 1, "b")], stream=True)
    assert _levels(table) == [{0: 1}, {5: 1}]


def test_every_commit_of_a_copy_on_write_table_is_compacted(tmp_path: pathlib.Path) -> None:
    table = _table(tmp_path, full_compaction__delta_commits="1")
    for number in range(1, 4):
        write(table, number, [("+I", 1, 1, f"v{number}")], stream=True)
        assert _levels(table) == [{5: 1}]


def test_a_writer_whose_compaction_is_done_elsewhere_has_no_period(tmp_path: pathlib.Path) -> None:
    table = _table(tmp_path, full_compaction__delta_commits="1")
    write(table, 1, [("+I", 1, 1, "a")])
    assert _levels(table) == [{0: 1}]
    write(table, BATCH_COMMIT_IDENTIFIER, [("+I", 1, 1, "b")], stream=True)
    assert _levels(table) == [{5: 1}]


def test_append_tables_with_buckets_merge_their_files(tmp_path: pathlib.Path) -> None:
    options = {"full-compaction.delta-commits": "3", "bucket": "1", "bucket-key": "k"}
    table = make_table(tmp_path, keys=(), options=options)
    for number in range(1, 4):
        write(table, number, [("+I", number, "a")], stream=True)
        assert [sum(one.values()) for one in _levels(table)] == [number if number < 3 else 1]


def test_changes_of_a_stream_come_up_to_the_last_due_commit(tmp_path: pathlib.Path) -> None:
    table = _table(
        tmp_path,
        changelog_producer="full-compaction",
        full_compaction__delta_commits="4",
        bucket="2",
    )
    told: dict[tuple[int, int], str] = {}
    for number in range(1, 13):
        rows = [("+I", number % 3, key, f"{number}") for key in range(number % 5, 6)]
        rows.append(("-D", (number + 1) % 3, number % 5, ""))
        write(reopened(table), number, rows, stream=True)
        for kind, partition, key, value in changelog_of_commit(table, number):
            if kind in ("-U", "-D"):
                assert told.pop((partition, key)) == value
            else:
                assert (partition, key) not in told
                told[partition, key] = value
        if number % 4 == 0:
            assert {(*key, value) for key, value in told.items()} == set(rows_of(table))
            assert all(set(one) == {5} for one in _levels(table))
        else:
            assert changelog_of_commit(table, number) == []


def _plainly(table: FileStoreTable, number: int, rows: list[tuple[object, ...]]) -> None:
    """As in the README: nothing is said of the commit when it is prepared."""
    with table.new_write("me") as writer:
        writer.write(rows_batch(table, rows))
        table.new_commit("me").commit(writer.prepare_commit(), identifier=number)


def test_every_plain_commit_of_a_copy_on_write_table_is_compacted(tmp_path: pathlib.Path) -> None:
    table = _table(tmp_path, full_compaction__delta_commits="1")
    for number in range(3):
        _plainly(reopened(table), number, [("+I", 1, 1, f"v{number}")])
        assert _levels(table) == [{5: 1}]


def test_plain_commits_produce_the_changelog_of_full_compactions(tmp_path: pathlib.Path) -> None:
    table = _table(tmp_path, changelog_producer="full-compaction")
    _plainly(table, 1, [("+I", 1, 1, "a")])
    assert changelog_of_commit(table, 1) == [("+I", 1, 1, "a")]
    _plainly(reopened(table), 2, [("+U", 1, 1, "b")])
    assert changelog_of_commit(table, 2) == [("-U", 1, 1, "a"), ("+U", 1, 1, "b")]


def test_plain_commits_keep_the_period_whatever_others_commit(tmp_path: pathlib.Path) -> None:
    table = _table(tmp_path, full_compaction__delta_commits="3")
    for number in range(1, 7):
        write(table, number, [("+I", 2, number, "x")], user="another", compaction=False)
        _plainly(reopened(table), number, [("+I", 1, number, "a")])
        due = number % 3 == 0
        assert all((set(one) == {5}) is due for one in _levels(table))


def test_plain_commits_of_a_gentle_table_compact_every_so_often(tmp_path: pathlib.Path) -> None:
    table = _table(
        tmp_path,
        changelog_producer="lookup",
        lookup_compact="gentle",
        lookup_compact__max_interval="12",
    )
    compacted = []
    for number in range(1, 14):
        _plainly(table, number, [("+I", 1, number, "a")])
        if not any(0 in one for one in _levels(table)):
            compacted.append(number)
    assert compacted == [5, 9, 12]  # by the number of sorted runs, and by the interval
