# SPDX-License-Identifier: Apache-2.0
"""Postponed buckets: written in the order of arrival, invisible, compacted into real buckets."""

import contextlib
import dataclasses
import pathlib
import re

import pytest

from storage.clock import ManualClock
from storage.errors import InvalidOptionError, LakewardError, UnsupportedFeatureError
from storage.format.metadata.layout import POSTPONE_BUCKET
from storage.format.metadata.snapshot import CommitKind
from storage.io.local import LocalFileIO
from storage.table.commit.live_files import live_entries
from storage.table.compaction.compact_table import (
    CompactReport,
    CompactRequest,
    compact_table,
    plan_compaction,
)
from storage.table.compaction.rescale import rescale
from storage.table.read.stored_rows import stored_rows
from storage.table.scan.predicate import parse_predicate
from storage.table.table import FileStoreTable
from storage.table.write.postpone import bucket_counts
from storage.testing.invariants import check_table
from tests.changelog_kit import changes_of
from tests.faulty_io import IN_TURN, Fault, FaultMode, FaultyFileIO, SimulatedCrash
from tests.inline_executor import InlineExecutor
from tests.table_kit import (
    data_files,
    make_table,
    named_files,
    prepared,
    reopened,
    rows_batch,
    rows_of,
    write,
)
from tests.unit.storage.newest_files import newest_entries

POSTPONED = {"bucket": "-2", "postpone.default-bucket-num": "2"}
PARTITIONED = {
    "columns": (("p", "STRING"), ("k", "BIGINT"), ("v", "STRING")),
    "keys": ("p", "k"),
    "partitions": ("p",),
}


def postponed(tmp_path: pathlib.Path, *, clock: ManualClock | None = None, **options: str):
    return make_table(tmp_path, options={**POSTPONED, **options}, clock=clock)


def compacted(table: FileStoreTable, *, full: bool = True) -> CompactReport:
    report = compact_table(table, CompactRequest(full=full), InlineExecutor())
    assert report.complete, report
    return report


def buckets_of(table: FileStoreTable) -> set[tuple[int, int]]:
    return {(one.bucket, one.total_buckets) for one in newest_entries(table)}


def test_rows_lie_unmerged_in_avro_files_named_by_their_writer(tmp_path: pathlib.Path) -> None:
    table = postponed(tmp_path)
    write(table, 1, [("+I", 3, "a"), ("+I", 1, "b"), ("+I", 3, "c")], user="job-s-1")
    snapshot = table.latest_snapshot()
    assert snapshot is not None
    assert snapshot.commit_kind is CommitKind.APPEND
    (entry,) = live_entries(table, snapshot)
    assert (entry.bucket, entry.total_buckets, entry.file.level) == (-2, -2, 0)
    assert entry.file.row_count == 3 == snapshot.total_record_count
    assert entry.file.value_stats_cols == () or not entry.file.value_stats.null_counts
    (path,) = pathlib.Path(table.layout.root).glob("bucket-postpone/*.avro")
    assert re.fullmatch(r"data--u-test-s-\d+-w-[0-9a-f-]{36}-0\.avro", path.name)
    assert rows_of(table) == []
    check_table(table)


def test_a_commit_user_does_not_hide_the_write_id(tmp_path: pathlib.Path) -> None:
    table = postponed(tmp_path)
    with table.new_write("a/b-s-c") as writer:
        writer.write(rows_batch(table, [("+I", 1, "x")]))
        (message,) = writer.prepare_commit()
    name = message.data.new_files[0].file_name
    assert name.startswith("data--u-a_b_s-c-s-")
    assert name.split("-s-")[1].split("-")[0].isdigit()


@pytest.mark.parametrize("full", [True, False])
def test_compaction_shows_the_last_change_of_each_key(tmp_path: pathlib.Path, full: bool) -> None:
    table = postponed(tmp_path)
    write(table, 1, [("+I", 1, "a"), ("+I", 2, "b"), ("+I", 1, "c"), ("+I", 9, "z")])
    write(table, 2, [("-D", 2, "b"), ("+U", 9, "y")])
    report = compacted(table, full=full)
    assert rows_of(table) == [(1, "c"), (9, "y")]
    assert buckets_of(table) <= {(0, 2), (1, 2)}
    assert (report.planned, report.compacted, len(report.snapshots)) == (1, 1, 1)
    snapshot = table.latest_snapshot()
    assert snapshot is not None
    assert snapshot.commit_kind is CommitKind.COMPACT
    check_table(table, rows=True)
    write(table, 3, [("+I", 2, "again"), ("-D", 1, "c")])
    assert rows_of(table) == [(1, "c"), (9, "y")]
    compacted(table, full=full)
    assert rows_of(table) == [(2, "again"), (9, "y")]
    assert compact_table(table, CompactRequest(full=full), InlineExecutor()).planned == 0
    assert data_files(table) == named_files(table)[0]


def test_the_order_of_commits_counts_even_if_the_clock_is_set_back(tmp_path: pathlib.Path) -> None:
    clock = ManualClock(1_000_000_000)
    table = postponed(tmp_path, clock=clock)
    write(table, 1, [("+I", 1, "old")])
    behind = dataclasses.replace(table, clock=ManualClock(5_000))
    write(behind, 2, [("+I", 1, "new")])
    with table.new_write("x") as writer:
        for number in range(3):
            writer.write(rows_batch(table, [("+I", 2, str(number))]))
        table.new_commit("x").commit(writer.prepare_commit(), 7)
    compacted(table)
    assert rows_of(table) == [(1, "new"), (2, "2")]


def test_a_partition_keeps_its_number_of_buckets(tmp_path: pathlib.Path) -> None:
    table = make_table(tmp_path, **PARTITIONED, options=POSTPONED)
    write(table, 1, [("+I", "a", k, "x") for k in range(20)])
    compacted(table)
    assert buckets_of(table) == {(0, 2), (1, 2)}
    other = table.with_options({"postpone.default-bucket-num": "5"})
    write(other, 2, [("+I", p, k, "y") for p in "ab" for k in range(40)])
    compacted(other)
    by_partition = {
        (table.partition_path(one.partition), one.total_buckets) for one in newest_entries(table)
    }
    assert by_partition == {("p=a", 2), ("p=b", 5)}
    assert len(rows_of(table)) == 80
    assert rows_of(table, filter="k = 7 and p = 'b'") == [("b", 7, "y")]
    check_table(table, rows=True)


@pytest.mark.parametrize(
    ("options", "buckets"),
    [
        ({}, 1),
        ({"postpone.target-row-num-per-bucket": "30"}, 4),
        ({"postpone.target-row-num-per-bucket": "100"}, 1),
        ({"postpone.target-size-per-bucket": "1 b", "postpone.default-bucket-num": "3"}, 3),
    ],
)
def test_rows_or_size_say_how_many_buckets(
    tmp_path: pathlib.Path, options: dict[str, str], buckets: int
) -> None:
    table = make_table(tmp_path, options={"bucket": "-2", **options})
    write(table, 1, [("+I", k, "x") for k in range(100)])
    compacted(table)
    assert {total for _, total in buckets_of(table)} == {buckets}


def test_only_chosen_partitions_are_compacted(tmp_path: pathlib.Path) -> None:
    table = make_table(tmp_path, **PARTITIONED, options=POSTPONED)
    write(table, 1, [("+I", "a", 1, "x"), ("+I", "b", 1, "x")])
    request = CompactRequest(partitions=({"p": "b"},))
    assert [one.bucket for one in plan_compaction(table, request).work] == [POSTPONE_BUCKET]
    compact_table(table, request, InlineExecutor())
    assert rows_of(table) == [("b", 1, "x")]
    compacted(table)
    assert rows_of(table) == [("a", 1, "x"), ("b", 1, "x")]


@pytest.mark.parametrize("producer", ["input", "lookup", "full-compaction"])
def test_the_changelog_comes_with_the_compaction(tmp_path: pathlib.Path, producer: str) -> None:
    table = postponed(tmp_path, **{"changelog-producer": producer})
    assert write(table, 1, [("+I", 1, "a"), ("+I", 2, "b")]).append_snapshot_id == 1
    assert table.snapshots.read(1).changelog_manifest_list is None
    compacted(table)
    assert len(changes_of(table, 2)) == 2
    write(table, 3, [("+I", 1, "c")])
    compacted(table)
    expected = 1 if producer == "input" else 2
    assert len(changes_of(table, 4)) == expected
    assert rows_of(table) == [(1, "c"), (2, "b")]


def test_streams_without_a_producer_see_rows_as_they_are_appended(tmp_path: pathlib.Path) -> None:
    table = postponed(tmp_path)
    write(table, 1, [("+I", 5, "a"), ("+I", 1, "b"), ("-D", 5, "a")])
    assert changes_of(table, 1) == [("+I", 5, "a"), ("+I", 1, "b"), ("-D", 5, "a")]
    compacted(table)
    assert changes_of(table, 2) == []
    scan = table.new_scan().with_postponed()
    for key in (1, 5):  # the file begins with the larger key
        chosen = scan.with_filter(parse_predicate(f"k = {key}"))
        assert len(chosen.plan_delta(table.snapshots.read(1))) == 1


def test_a_delete_that_the_engine_refuses_fails_when_it_is_written(tmp_path: pathlib.Path) -> None:
    table = postponed(tmp_path, **{"merge-engine": "partial-update"})
    with pytest.raises(LakewardError):
        prepared(table, [("+I", 1, "a"), ("-D", 1, "a")])
    assert data_files(table) == set()


def test_deletion_vectors_are_made_by_the_compaction(tmp_path: pathlib.Path) -> None:
    table = postponed(tmp_path, **{"deletion-vectors.enabled": "true"})
    write(table, 1, [("+I", k, "a") for k in range(50)])
    compacted(table, full=False)
    write(table, 2, [("+I", 3, "b"), ("-D", 4, "a")])
    compacted(table, full=False)
    assert len(rows_of(table)) == 49
    assert (3, "b") in rows_of(table)
    check_table(table, rows=True)


def test_a_compaction_that_lost_its_race_is_made_again(tmp_path: pathlib.Path) -> None:
    table = postponed(tmp_path)
    write(table, 1, [("+I", k, "a") for k in range(10)])

    def rival(number: int) -> None:
        if number == 1:
            compacted(table)
            write(table, 2, [("+I", 3, "late")])

    report = compact_table(table, CompactRequest(), InlineExecutor(rival))
    assert (report.dropped, report.compacted, report.lost) == (1, 1, 0)
    assert rows_of(table)[3] == (3, "late")
    assert data_files(table) == named_files(table)[0]
    check_table(table, rows=True)


@pytest.mark.parametrize("modes", IN_TURN)
def test_a_compaction_that_is_killed_is_made_whole_by_the_next(
    tmp_path: pathlib.Path, modes: tuple[FaultMode, ...]
) -> None:
    old = [(k, "a") for k in range(10)]
    new = sorted([(k, "b" if k < 3 else "a") for k in range(10)] + [(77, "c")], key=repr)

    def filled(name: str) -> FileStoreTable:
        table = make_table(tmp_path / name, options={**POSTPONED, "changelog-producer": "lookup"})
        write(table, 1, [("+I", *row) for row in old])
        compacted(table)
        write(table, 2, [("+U", k, "b") for k in range(3)])
        write(table, 3, [("+I", 77, "c")])
        return table

    counting = FaultyFileIO(LocalFileIO(durable=False))
    compacted(reopened(filled("whole"), file_io=counting))
    for step in range(1, len(counting.operations), 7):
        table = filled(str(step))
        fault = Fault(step, modes[step % len(modes)])
        faulty = FaultyFileIO(LocalFileIO(durable=False), fault)
        with contextlib.suppress(SimulatedCrash):
            compact_table(reopened(table, file_io=faulty), CompactRequest(), InlineExecutor())
        assert rows_of(reopened(table)) in (old, new)
        check_table(reopened(table), rows=True)
        compacted(reopened(table))
        assert rows_of(reopened(table)) == new
        changes = [one for number in table.snapshots.ids() for one in changes_of(table, number)]
        assert len(changes) == 10 + 6 + 1
        check_table(reopened(table), rows=True)


def test_a_batch_write_goes_to_real_buckets_at_once(tmp_path: pathlib.Path) -> None:
    options = {"bucket": "-2", "postpone.target-row-num-per-bucket": "10"}
    table = make_table(tmp_path, options=options)
    write(table, 1, [("+I", 100, "postponed")])
    with table.new_write("job", batch=True) as writer:
        writer.write(rows_batch(table, [("+I", k, "a") for k in range(25)]))
        writer.write(rows_batch(table, [("+I", 1, "b"), ("-D", 2, "a")]))
        messages = writer.prepare_commit()
    assert {message.total_buckets for message in messages} == {4}
    table.new_commit("job").commit(messages, 2)
    assert len(rows_of(table)) == 24
    assert (1, "b") in rows_of(table)
    assert data_files(table) == named_files(table)[0]
    check_table(table, rows=True)
    write(table, 3, [("+I", 1, "c")])
    compacted(table)
    assert (1, "c") in rows_of(table)
    assert (100, "postponed") in rows_of(table)
    assert {total for _, total in buckets_of(table)} == {4}


def test_a_batch_write_postpones_rows_where_the_table_says_so(tmp_path: pathlib.Path) -> None:
    table = postponed(tmp_path, **{"postpone.batch-write-fixed-bucket": "false"})
    with table.new_write("job", batch=True) as writer:
        writer.write(rows_batch(table, [("+I", 1, "a")]))
        (message,) = writer.prepare_commit()
    assert message.bucket == POSTPONE_BUCKET


def test_an_overwrite_replaces_postponed_rows_too(tmp_path: pathlib.Path) -> None:
    table = postponed(tmp_path)
    write(table, 1, [("+I", 1, "a"), ("+I", 2, "a")])
    compacted(table)
    write(table, 2, [("+I", 3, "b")])
    count, _ = table.overwrite_rows([rows_batch(table, [("+I", 4, "c")])])
    assert count == 1
    compacted(table)
    assert rows_of(table) == [(4, "c")]
    write(table, 3, [("+I", 5, "d")])
    table.truncate()
    compacted(table)
    assert rows_of(table) == []


def test_rows_stored_for_keys_include_postponed_ones(tmp_path: pathlib.Path) -> None:
    table = postponed(tmp_path)
    write(table, 1, [("+I", k, "a") for k in range(6)])
    compacted(table)
    write(table, 2, [("+I", 1, "b"), ("-D", 2, "a"), ("+I", 8, "new")])
    snapshot = table.latest_snapshot()
    assert snapshot is not None
    keys = rows_batch(table, [("+I", k, None) for k in (0, 1, 2, 7, 8)]).select(["k"])
    entry = live_entries(table, snapshot)[0]
    found = stored_rows(table, snapshot, entry.partition, None, keys)
    assert found.keys.tolist() == [0, 1, 4]
    assert found.rows.column("v").to_pylist() == ["a", "b", "new"]


@pytest.mark.parametrize("producer", ["none", "lookup"])
def test_a_partition_gets_another_number_of_buckets(tmp_path: pathlib.Path, producer: str) -> None:
    table = make_table(
        tmp_path, **PARTITIONED, options={**POSTPONED, "changelog-producer": producer}
    )
    write(table, 1, [("+I", p, k, "x") for p in "ab" for k in range(20)])
    compacted(table)
    write(table, 2, [("+U", "a", 1, "late"), ("+I", "c", 1, "new")])
    (done,) = rescale(table, 5, [{"p": "a"}])
    assert (done.before, done.buckets) == (2, 5)
    assert FileStoreTable.open(table.layout.root).options.bucket == -2
    compacted(table)
    rows = rows_of(table)
    assert ("a", 1, "late") in rows
    assert ("c", 1, "new") in rows
    assert len(rows) == 41
    counts = bucket_counts(table, table.latest_snapshot())
    found = {table.partition_path(partition): buckets for partition, buckets in counts.items()}
    assert found == {"p=a": 5, "p=b": 2, "p=c": 2}
    check_table(table, rows=True)


def test_merging_postponed_rows_on_read_is_refused(tmp_path: pathlib.Path) -> None:
    table = postponed(tmp_path).with_options({"postpone.merge-on-read": "true"})
    with pytest.raises(UnsupportedFeatureError) as refused:
        table.to_arrow()
    assert refused.value.context["option"] == "postpone.merge-on-read"


@pytest.mark.parametrize("key", ["default-bucket-num", "target-row-num-per-bucket"])
def test_impossible_numbers_are_refused(tmp_path: pathlib.Path, key: str) -> None:
    with pytest.raises(InvalidOptionError, match=key):
        make_table(tmp_path, options={"bucket": "-2", f"postpone.{key}": "0"})
