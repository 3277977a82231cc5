# SPDX-License-Identifier: Apache-2.0
"""Dedicated compaction: what it works on, what it commits, and what a lost race costs."""

import contextlib
import dataclasses
import multiprocessing
import os
import pathlib
import shutil
import signal
import subprocess
import sys
import time
from concurrent.futures import ProcessPoolExecutor, ThreadPoolExecutor

import pytest

from storage.clock import RandomIds, SeededIds
from storage.errors import CorruptDataError, InvalidRequestError, LakewardError
from storage.format.metadata.schema_changes import AddColumn
from storage.format.metadata.snapshot import BATCH_COMMIT_IDENTIFIER, CommitKind
from storage.format.types.types import parse_type
from storage.io.local import LocalFileIO
from storage.table.compaction.compact_table import (
    CompactReport,
    CompactRequest,
    compact_table,
    plan_compaction,
)
from storage.testing.invariants import check_table
from tests.faulty_io import Fault, FaultyFileIO, SimulatedCrash
from tests.inline_executor import InlineExecutor
from tests.soak.replay import replayed, rows_by_key
from tests.table_kit import data_files, make_table, named_files, prepared, reopened, rows_of, write
from tests.unit.storage.newest_files import newest_entries

ROOT = pathlib.Path(__file__).resolve().parents[5]
MANY = {"bucket": "3", "num-sorted-run.compaction-trigger": "50"}
PARTITIONED = {
    "columns": (("p", "STRING"), ("k", "BIGINT"), ("v", "STRING")),
    "keys": ("p", "k"),
    "partitions": ("p",),
}


def run(table, request=None, executor=None, **arguments) -> CompactReport:
    return compact_table(
        table, request or CompactRequest(), executor or InlineExecutor(), **arguments
    )


def filled(tmp_path, commits=4, rows=12, **options):
    """A table with level-0 files in every bucket."""
    table = make_table(tmp_path, options={**MANY, **options})
    for number in range(commits):
        write(table, number, [("+I", k, f"v{number}") for k in range(rows)], compaction=False)
    return table


def levels_of(table) -> list[int]:
    return sorted(entry.file.level for entry in newest_entries(table))


def newest(table):
    return reopened(table).latest_snapshot()


def assert_clean(table) -> None:
    """The table is legal, and no file is there that no snapshot names."""
    table = reopened(table)
    check_table(table)
    assert data_files(table) <= named_files(table)[0]


def test_full_compaction_leaves_one_run_per_bucket_and_the_rows(tmp_path):
    table = filled(tmp_path)
    before = rows_of(table)
    report = run(table)
    assert levels_of(reopened(table)) == [table.options.num_levels - 1] * 3
    assert rows_of(reopened(table)) == before
    assert (report.planned, report.compacted, report.buckets) == (3, 3, 3)
    assert (report.files_before, report.files_after) == (12, 3)
    assert report.complete
    assert report.written_bytes > 0
    assert len(report.snapshots) == 1
    snapshot = newest(table)
    assert snapshot.commit_kind is CommitKind.COMPACT
    assert snapshot.commit_identifier == BATCH_COMMIT_IDENTIFIER
    assert snapshot.commit_user.startswith("compact-")
    assert "lakeward.committed." + snapshot.commit_user not in (snapshot.properties or {})
    assert_clean(table)


def test_what_is_compact_already_is_not_planned(tmp_path):
    table = filled(tmp_path)
    run(table)
    report = run(reopened(table))
    assert (report.buckets, report.planned, report.snapshots) == (3, 0, [])


def test_minor_compaction_takes_what_is_due(tmp_path):
    table = filled(tmp_path, commits=4)
    assert run(table, CompactRequest(full=False)).planned == 0
    eager = table.with_options({"num-sorted-run.compaction-trigger": "2"})
    report = run(eager, CompactRequest(full=False))
    assert report.compacted == 3
    assert 0 not in levels_of(reopened(table))


def test_a_write_only_table_is_compacted(tmp_path):
    table = filled(tmp_path, **{"write-only": "true"})
    before = rows_of(table)
    assert run(table).compacted == 3
    assert rows_of(reopened(table)) == before


def test_an_empty_table_has_nothing_to_do(tmp_path):
    report = run(make_table(tmp_path))
    assert (report.planned, report.snapshots, report.complete) == (0, [], True)


def test_only_wanted_partitions_are_compacted(tmp_path):
    table = make_table(tmp_path, **PARTITIONED)
    for number in range(2):
        rows = [("+I", p, k, f"{number}") for p in "abc" for k in range(3)]
        write(table, number, rows, compaction=False)
    request = CompactRequest(partitions=({"p": "a"}, {"p": "c"}))
    report = run(table, request)
    assert (report.buckets, report.compacted) == (2, 2)
    entries = newest_entries(reopened(table))
    left = {table.partition_path(e.partition) for e in entries if e.file.level == 0}
    assert left == {"p=b"}
    with pytest.raises(InvalidRequestError, match="no such partition column"):
        run(table, CompactRequest(partitions=({"q": "a"},)))


def test_only_idle_partitions_are_compacted(tmp_path):
    table = make_table(tmp_path, **PARTITIONED)
    write(table, 1, [("+I", "old", 1, "x")], compaction=False)
    write(table, 2, [("+I", "old", 1, "y")], compaction=False)
    table.clock.advance(10_000)
    write(table, 3, [("+I", "new", 1, "x")], compaction=False)
    write(table, 4, [("+I", "new", 1, "y")], compaction=False)
    table.clock.advance(1_000)
    plan = plan_compaction(table, CompactRequest(idle_ms=5_000))
    assert [table.partition_path(work.partition) for work in plan.work] == ["p=old"]


def test_buckets_can_be_left_alone(tmp_path):
    table = filled(tmp_path)
    plan = plan_compaction(table, CompactRequest())
    first = plan.work[0]
    request = CompactRequest(leave=frozenset({(first.partition, first.bucket)}))
    assert len(plan_compaction(table, request).work) == 2


def test_largest_buckets_come_first_and_the_plan_says_what_is_taken(tmp_path):
    table = filled(tmp_path)
    plan = plan_compaction(table, CompactRequest())
    sizes = [work.taken_size for work in plan.work]
    assert sizes == sorted(sizes, reverse=True)
    assert {(w.files, w.runs, w.taken_files, w.output_level) for w in plan.work} == {(4, 4, 4, 50)}


@pytest.mark.parametrize("bucket", ["-1", "2"])
def test_append_tables_are_compacted(tmp_path, bucket):
    columns = (("a", "INT"), ("b", "STRING"))
    key = {"bucket-key": "a"} if bucket == "2" else {}
    table = make_table(tmp_path, columns=columns, keys=(), options={"bucket": bucket, **key})
    for number in range(5):
        write(table, number, [("+I", k, f"{number}") for k in range(8)], compaction=False)
    before = rows_of(table)
    report = run(table)
    assert report.complete
    assert report.compacted == (1 if bucket == "-1" else 2)
    assert report.files_after < report.files_before
    assert rows_of(reopened(table)) == before
    assert_clean(table)


def test_packs_of_an_append_table_go_to_several_workers(tmp_path):
    options = {"bucket": "-1", "target-file-size": "4 kb", "source.split.open-file-cost": "1 kb"}
    table = make_table(tmp_path, columns=(("a", "INT"),), keys=(), options=options)
    for number in range(12):
        write(table, number, [("+I", number)], compaction=False)
    plan = plan_compaction(table, CompactRequest())
    assert len(plan.work) > 1
    report = run(table)
    assert report.compacted == len(plan.work)
    assert len(report.snapshots) == 1
    assert rows_of(reopened(table)) == sorted(((n,) for n in range(12)), key=repr)


def test_dynamic_buckets_are_compacted_and_keep_their_index(tmp_path):
    table = make_table(tmp_path, options={"bucket": "-1", "dynamic-bucket.target-row-num": "3"})
    for number in range(3):
        write(table, number, [("+I", k, f"{number}") for k in range(10)], compaction=False)
    before, index = rows_of(table), newest(table).index_manifest
    report = run(table)
    assert report.compacted == report.planned == 4
    assert rows_of(reopened(table)) == before
    assert newest(table).index_manifest == index


def test_cross_partition_tables_are_compacted(tmp_path):
    table = make_table(tmp_path, **{**PARTITIONED, "keys": ("k",)}, options={"bucket": "-1"})
    write(table, 1, [("+I", "a", k, "1") for k in range(5)], compaction=False)
    write(table, 2, [("+I", "b", k, "2") for k in range(3)], compaction=False)
    before = rows_of(table)
    assert run(table).complete
    assert rows_of(reopened(table)) == before


def test_buckets_written_with_another_count_keep_theirs(tmp_path):
    table = make_table(tmp_path, **PARTITIONED, options={"bucket": "2"})
    for number in range(2):
        write(table, number, [("+I", "a", k, f"{number}") for k in range(8)], compaction=False)
    before = rows_of(table)
    options = {**table.schema.options, "bucket": "3"}
    assert table.schemas.publish(dataclasses.replace(table.schema, id=1, options=options))
    report = run(reopened(table))
    assert report.compacted == 2
    entries = newest_entries(reopened(table))
    assert {entry.total_buckets for entry in entries} == {2}
    assert rows_of(reopened(table)) == before


def test_files_of_a_newer_schema_keep_their_columns(tmp_path):
    table = filled(tmp_path)
    wider = table.alter([AddColumn("extra", parse_type("INT"))])
    write(wider, 10, [("+I", k, "new", k) for k in range(12)], compaction=False)
    before = rows_of(reopened(table))
    run(table)  # as an old process sees it
    assert rows_of(reopened(table)) == before


# ----------------------------------------------------------------------------- changelog

PRODUCERS = {
    "lookup": {"changelog-producer": "lookup"},
    "full-compaction": {"changelog-producer": "full-compaction"},
    "vectors": {"changelog-producer": "lookup", "deletion-vectors.enabled": "true"},
    "waitless": {"changelog-producer": "lookup", "lookup-wait": "false"},
    "first-row": {
        "changelog-producer": "lookup",
        "merge-engine": "first-row",
        "ignore-delete": "true",
    },
    "sums": {
        "changelog-producer": "lookup",
        "merge-engine": "aggregation",
        "fields.v.aggregate-function": "max",
        "ignore-delete": "true",
    },
}


@pytest.fixture
def copies(tmp_path, monkeypatch):
    """Lookups keep their local copies below the test's directory."""
    monkeypatch.setenv("LAKEWARD_LOOKUP_DIRECTORY", str(tmp_path / "copies"))


def changed(table, number):
    """A commit of new, changed and removed rows, left in level 0."""
    first = number % 7
    rows = [("+I", 100 * number + k, f"new{number}") for k in range(4)]
    rows += [("+U", k, f"v{number}") for k in range(first, first + 5)]
    rows += [("-D", 50 + first, "gone"), ("-D", first, "gone")]
    write(reopened(table), number, rows, compaction=False)


@pytest.mark.parametrize(
    ("name", "beside"),
    [
        *((name, True) for name in PRODUCERS),
        ("lookup", False),
        *(
            pytest.param(name, False, marks=pytest.mark.full)
            for name in PRODUCERS
            if name != "lookup"
        ),
    ],
)
def test_the_changelog_of_all_compactions_gives_the_table(tmp_path, copies, name, beside):
    options = {**MANY, "write-only": "true", "snapshot.num-retained.min": "1000", **PRODUCERS[name]}
    table = make_table(tmp_path / "warehouse", options=options)
    busy = range(1, 9) if beside else ()
    dropped = 0
    for number in range(1, 5):
        changed(table, 20 * number)

        def others(call, number=number):
            if call in busy:
                rival(table) if call % 2 else changed(table, 20 * number + call)

        full = name == "full-compaction" or number % 2 == 0
        report = run(
            reopened(table), CompactRequest(full=full), InlineExecutor(others), parallelism=3
        )
        dropped += report.dropped
        assert not report.failures
    assert run(reopened(table)).complete
    whole = reopened(table)
    check_table(whole)
    replay = replayed(whole)
    assert replay.wrong == []
    assert replay.rows == rows_by_key(whole)
    assert replay.changes > 0
    assert bool(dropped) == beside


# --------------------------------------------------------------------------------- races


def rival(table):
    """Somebody else compacts everything, without a word."""
    other = reopened(table)
    other = other.with_options({"write-only": "false"})
    messages = prepared(other, full=True)
    return other.new_commit(f"rival-{RandomIds().uuid()}").commit(messages, 1)


def test_appends_meanwhile_do_not_disturb(tmp_path):
    table = filled(tmp_path)

    def append(number):
        write(reopened(table), 100 + number, [("+I", 1, f"late{number}")], compaction=False)

    report = run(table, executor=InlineExecutor(append))
    assert (report.compacted, report.dropped) == (3, 0)
    assert (1, "late3") in rows_of(reopened(table))
    assert_clean(table)


def test_a_lost_race_drops_the_compaction_and_nothing_else(tmp_path):
    table = filled(tmp_path)
    before = rows_of(table)

    def others(number):
        if number == 3:
            rival(table)

    report = run(table, executor=InlineExecutor(others), parallelism=3)
    assert report.dropped == 3
    assert report.unchanged == 3  # the rival has done it: the second try finds nothing to do
    assert report.complete
    assert report.snapshots == []
    assert rows_of(reopened(table)) == before
    assert_clean(table)


def test_only_the_bucket_that_lost_is_done_again(tmp_path):
    table = filled(tmp_path)
    before = rows_of(table)

    def others(number):
        if number == 3:
            other = reopened(table)
            entry = plan_compaction(other, CompactRequest()).work[0]
            with other.new_write("rival") as writer:
                writer.compact(full=True, partition=entry.partition, bucket=entry.bucket)
                messages = [m for m in writer.prepare_commit() if m.bucket == entry.bucket]
            other.new_commit("rival").commit(messages, 1)

    report = run(table, executor=InlineExecutor(others), parallelism=3)
    assert (report.dropped, report.compacted, report.unchanged) == (1, 2, 1)
    assert rows_of(reopened(table)) == before
    assert_clean(table)


def test_a_bucket_that_always_loses_is_left_to_a_later_run(tmp_path):
    table = filled(tmp_path, commits=2, bucket="1")

    def others(number):
        rival(table)
        write(reopened(table), 100 + number, [("+I", 1, f"r{number}")], compaction=False)

    report = run(table, executor=InlineExecutor(others))
    assert (report.lost, report.dropped, report.complete) == (1, 4, False)
    assert (1, "r4") in rows_of(reopened(table))
    assert_clean(table)


def test_a_snapshot_that_expires_under_the_compaction_costs_a_try(tmp_path, monkeypatch):
    table = filled(tmp_path, bucket="1")
    calls = []
    original = type(table).latest

    def latest(self):
        if not calls:
            calls.append(1)
            rival(table)
            for path in pathlib.Path(table.layout.root).glob("bucket-0/*"):
                live = reopened(table)
                named = {e.file.file_name for e in live.new_scan().live_entries(newest(table))}
                if path.name not in named:
                    path.unlink()
            pathlib.Path(table.layout.root, "snapshot", "snapshot-4").unlink()
        return original(self)

    monkeypatch.setattr(type(table), "latest", latest)
    report = run(table)
    assert (report.dropped, report.unchanged, report.complete) == (1, 1, True)


# ----------------------------------------------------------------------------------- faults


def test_a_damaged_bucket_fails_and_the_others_go_on(tmp_path):
    table = filled(tmp_path)
    work = plan_compaction(table, CompactRequest()).work[1]
    entries = newest_entries(table)
    broken = next(e.file for e in entries if e.bucket == work.bucket)
    path = pathlib.Path(table.data_path(work.partition, work.bucket, broken.file_name))
    path.write_bytes(b"PAR1" + bytes(100) + b"PAR1")
    report = run(table)
    assert report.compacted == 2
    assert [failure.bucket for failure in report.failures] == [work.bucket]
    assert isinstance(report.failures[0].error, CorruptDataError)
    assert not report.complete


@pytest.mark.parametrize("mode", ["before", "after", "torn", "lost_response", "error"])
def test_whatever_operation_fails_the_table_stays_legal(tmp_path, mode):
    table = filled(tmp_path / "made", commits=2, rows=4, bucket="1")
    before = rows_of(table)
    counted = FaultyFileIO(LocalFileIO(durable=False))
    run(_copy(table, tmp_path / "counted", counted))
    for number in range(1, len(counted.operations) + 1):
        faulty = FaultyFileIO(LocalFileIO(durable=False), Fault(number, mode))
        copy = _copy(table, tmp_path / f"{number}", faulty)
        complete = False
        with contextlib.suppress(SimulatedCrash, LakewardError):
            complete = run(copy).complete
        whole = reopened(copy)
        check_table(whole)
        assert rows_of(whole) == before, (number, mode)
        if complete:
            assert levels_of(whole) == [50], (number, mode)
        assert run(reopened(copy)).complete
        assert rows_of(reopened(copy)) == before


def _copy(table, path, file_io):
    shutil.copytree(table.layout.root, path)
    return type(table).at(str(path), table.schema, file_io, table.clock, SeededIds(7))


def test_a_stop_finishes_what_is_in_work(tmp_path):
    table = filled(tmp_path)
    asked = []

    def stopping():
        asked.append(1)
        return len(asked) > 1

    report = run(table, stopping=stopping)
    assert report.compacted + report.skipped == 3
    assert report.compacted == 1
    assert not report.complete
    assert_clean(table)


def test_progress_adds_up(tmp_path):
    table = filled(tmp_path)
    seen = []
    run(table, on_progress=seen.append)
    last = seen[-1]
    assert (last.done, last.buckets, last.done_size) == (3, 3, last.size)
    assert (last.files_before, last.files_after) == (12, 3)
    assert last.eta_s == 0
    assert [one.done_size for one in seen] == sorted(one.done_size for one in seen)


def test_workers_may_be_processes(tmp_path):
    table = filled(tmp_path)
    shared = type(table).open(table.layout.root)
    context = multiprocessing.get_context("spawn")
    with ProcessPoolExecutor(2, mp_context=context) as executor:
        report = run(shared, executor=executor, parallelism=2)
    assert report.compacted == 3
    assert_clean(table)


def test_threads_give_the_same(tmp_path):
    table = filled(tmp_path)
    with ThreadPoolExecutor(2) as executor:
        report = run(type(table).open(table.layout.root), executor=executor, parallelism=2)
    assert report.compacted == 3


def test_killed_it_leaves_a_legal_table(tmp_path):
    table = filled(tmp_path, commits=4, rows=2_000, **{"write-only": "true"})
    before = rows_of(table)
    script = (
        "import sys\n"
        "from concurrent.futures import ThreadPoolExecutor\n"
        "from storage.table.table import FileStoreTable\n"
        "from storage.table.compaction.compact_table import CompactRequest\n"
        "from storage.table.compaction.compact_table import compact_table\n"
        "table = FileStoreTable.open(sys.argv[1])\n"
        "print('go', flush=True)\n"
        "compact_table(table, CompactRequest(), ThreadPoolExecutor(2), parallelism=2)\n"
    )
    for delay in (0.0, 0.05):
        child = subprocess.Popen(
            [sys.executable, "-c", script, table.layout.root],
            stdout=subprocess.PIPE,
            cwd=ROOT,
            env={**os.environ, "PYTHONPATH": str(ROOT)},
        )
        child.stdout.readline()
        time.sleep(delay)
        child.send_signal(signal.SIGKILL)
        child.wait()
        child.stdout.close()
        check_table(reopened(table))
        assert rows_of(reopened(table)) == before
    assert run(reopened(table)).complete
    assert rows_of(reopened(table)) == before
