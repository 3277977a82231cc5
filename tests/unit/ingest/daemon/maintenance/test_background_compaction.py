# SPDX-License-Identifier: Apache-2.0
"""Compaction on the driver's thread: what is due when, and that no batch feels it."""

import dataclasses
import threading
from concurrent.futures import Future

import pytest

from ingest.daemon import maintenance
from ingest.daemon.maintenance import BackgroundCompaction, kind_due
from ingest.observe.metrics.telemetry import Metrics
from ingest.pipeline.batch_report import BatchReport
from storage.clock import ManualClock
from storage.errors import StorageUnavailableError
from storage.format.metadata.snapshot import CommitKind
from storage.options.options import TableOptions
from tests.table_kit import make_table, reopened, rows_of, write
from tests.unit.ingest.one_table_book import OneTableBook

WAITLESS = {"changelog-producer": "lookup", "lookup-wait": "false"}


def report(identifier=1, written=True, dropped=0):
    return BatchReport(
        batch_id=identifier,
        identifier=identifier,
        outcome="committed",
        snapshots={"db.t": 1} if written else {},
        compactions_dropped={"db.t": dropped} if dropped else {},
    )


@pytest.fixture
def metrics():
    return Metrics(ManualClock(), process=False)


def sample(metrics, name, **labels):
    return metrics.registry.get_sample_value(f"lakeward_{name}", labels)


@pytest.fixture
def background(metrics):
    made = []

    def make(table, clock=None):
        made.append(BackgroundCompaction(OneTableBook(table), clock or ManualClock(), metrics))
        return made[-1]

    yield make
    for each in made:
        each.close()


def done_after(job, batch):
    """What is due after a batch, done."""
    job.after_batch(batch)
    job.wait()


def due(options, identifier=7, *, written=True, dropped=False, first=False, idle_ms=0, **more):
    return kind_due(
        TableOptions.from_strings(options),
        identifier,
        written=written,
        dropped=dropped,
        first=first,
        idle_ms=idle_ms,
        **more,
    )


def test_postponed_rows_are_given_buckets_after_each_batch(tmp_path, background):
    assert due({}, postpones=True) == "minor"
    assert due({}, postpones=True, written=False) is None
    assert due({}, postpones=True, written=False, first=True) == "minor"
    assert due({"write-only": "true"}, postpones=True) is None
    table = make_table(tmp_path, options={"bucket": "-2", "postpone.default-bucket-num": "2"})
    one = background(table)
    for number in (1, 2):
        write(table, number, [("+I", k, f"v{number}") for k in range(4)])
        done_after(one, report(number))
        assert rows_of(table) == [(k, f"v{number}") for k in range(4)]


def test_a_plain_table_is_left_to_its_writers():
    assert due({}) is None
    assert due({}, dropped=True, first=True) is None


def test_write_only_tables_are_left_alone():
    assert due({"write-only": "true", "changelog-producer": "full-compaction"}) is None
    assert due({"write-only": "true", "changelog-producer": "lookup"}, first=True) is None


def test_what_writers_leave_in_level_0_is_due_after_each_commit():
    assert due(WAITLESS) == "minor"
    assert due(WAITLESS, written=False) is None
    assert due(WAITLESS, written=False, first=True) == "minor"


def test_a_lookup_that_lost_its_race_is_made_up_for():
    options = {"changelog-producer": "lookup"}
    assert due(options) is None
    assert due(options, dropped=True) == "minor"
    assert due(options, first=True) == "minor"


def test_full_compaction_follows_the_identifier():
    options = {"changelog-producer": "full-compaction", "full-compaction.delta-commits": "5"}
    assert [due(options, number) for number in (4, 5, 6)] == [None, "full", None]
    assert due(options, 4, written=False) is None
    assert due(options, 5, written=False) == "full"
    assert due({"changelog-producer": "full-compaction"}, 3) == "full"


def test_gentle_lookups_have_their_cadence():
    options = {
        "changelog-producer": "lookup",
        "lookup-compact": "gentle",
        "lookup-compact.max-interval": "6",
    }
    assert due(options, 12) == "minor"
    assert due(options, 13) is None


def test_the_interval_goes_by_time():
    options = {"compaction.optimization-interval": "1 min"}
    assert due(options, written=False, idle_ms=None) == "minor"
    assert due(options, written=False, idle_ms=59_000) is None
    assert due(options, written=False, idle_ms=60_000) == "minor"


def test_level_0_goes_after_the_batch(tmp_path, background, metrics):
    table = make_table(tmp_path, options=WAITLESS)
    write(table, 1, [("+I", 1, "a")], compaction=False)
    write(table, 2, [("+U", 1, "b")], compaction=False)
    job = background(table)
    done_after(job, report(2))
    newest = reopened(table).latest_snapshot()
    assert newest.commit_kind is CommitKind.COMPACT
    assert newest.commit_user.startswith("background-compact-")
    assert newest.changelog_record_count == 1
    assert rows_of(reopened(table)) == [(1, "b")]
    assert sample(metrics, "compactions_total", table="db.t", kind="minor", outcome="ok") == 1
    assert sample(metrics, "table_changelog_rows_total", table="db.t") == 1
    assert sample(metrics, "compaction_written_bytes_total", table="db.t", kind="minor") > 0
    assert sample(metrics, "compaction_in_progress") == 0


def test_a_try_that_failed_between_its_snapshots_is_made_up_for(tmp_path, background):
    table = make_table(tmp_path, options={"changelog-producer": "lookup"})
    job = background(table)
    done_after(job, report(1))
    write(table, 2, [("+I", 1, "a")], compaction=False)  # its compaction was not published
    done_after(job, dataclasses.replace(report(2, written=False), replayed=("db.t",)))
    newest = reopened(table).latest_snapshot()
    assert newest.commit_kind is CommitKind.COMPACT
    assert newest.changelog_record_count == 1


def test_buckets_without_rows_are_compacted_when_their_commit_comes(tmp_path, background):
    options = {"changelog-producer": "full-compaction", "full-compaction.delta-commits": "3"}
    table = make_table(tmp_path, options=options)
    write(table, 1, [("+I", 1, "a")], compaction=False)
    job = background(table)
    done_after(job, report(2, written=False))
    assert reopened(table).latest_snapshot().id == 1
    done_after(job, report(3, written=False))
    assert reopened(table).latest_snapshot().commit_kind is CommitKind.COMPACT
    done_after(job, report(6, written=False))
    assert job._open == {}  # nothing left: not looked at until it is written again
    write(table, 7, [("+I", 2, "b")], compaction=False)
    done_after(job, report(9))
    assert reopened(table).latest_snapshot().commit_kind is CommitKind.COMPACT


def test_a_failure_is_counted_and_goes_no_further(tmp_path, background, metrics, monkeypatch):
    def fails(*_arguments, **_options):
        raise StorageUnavailableError("gone")

    monkeypatch.setattr(maintenance, "compact_table", fails)
    job = background(make_table(tmp_path, options=WAITLESS))
    done_after(job, report(1))
    assert sample(metrics, "compactions_total", table="db.t", kind="minor", outcome="error") == 1
    assert sample(metrics, "compaction_in_progress") == 0
    done_after(job, report(2))  # tried again
    assert sample(metrics, "compactions_total", table="db.t", kind="minor", outcome="error") == 2


def test_what_failed_is_done_after_a_batch_without_rows_of_the_table(
    tmp_path, background, monkeypatch
):
    table, clock = make_table(tmp_path, options=WAITLESS), ManualClock()
    write(table, 1, [("+I", 1, "a")], compaction=False)
    job = background(table, clock)
    done_after(job, report(1, written=False))
    write(table, 2, [("+I", 2, "b")], compaction=False)

    def fails(*_arguments, **_options):
        raise StorageUnavailableError("gone")

    with monkeypatch.context() as outage:
        outage.setattr(maintenance, "compact_table", fails)
        done_after(job, report(2))
    clock.sleep(9)
    done_after(job, report(3, written=False))
    assert reopened(table).latest_snapshot().commit_kind is CommitKind.APPEND
    clock.sleep(1)
    done_after(job, report(4, written=False))
    assert reopened(table).latest_snapshot().commit_kind is CommitKind.COMPACT
    newest = reopened(table).latest_snapshot().id
    clock.sleep(10)
    done_after(job, report(5, written=False))
    assert reopened(table).latest_snapshot().id == newest


def test_a_batch_never_waits_and_passes_do_not_pile_up(tmp_path, background, monkeypatch):
    entered, go_on, calls = threading.Event(), threading.Event(), []
    original = maintenance.compact_table

    def slow(*arguments, **options):
        calls.append(1)
        entered.set()
        assert go_on.wait(20)
        return original(*arguments, **options)

    monkeypatch.setattr(maintenance, "compact_table", slow)
    job = background(make_table(tmp_path, options=WAITLESS))
    job.after_batch(report(1))
    assert entered.wait(20)
    for identifier in range(2, 10):
        job.after_batch(report(identifier))
    go_on.set()
    job.wait()
    assert len(calls) == 2


def test_closing_drops_what_waits(tmp_path, background):
    table = make_table(tmp_path, options=WAITLESS)
    write(table, 1, [("+I", 1, "a")], compaction=False)
    job = background(table)
    job._closing.set()
    done_after(job, report(1))
    assert reopened(table).latest_snapshot().id == 1


NOON_MS = 1_700_049_600_000  # 2023-11-15T12:00 UTC


@pytest.fixture
def nightly(metrics, tmp_path):
    """A table with a file in level 0 and its compaction from 01:00 to 05:00; starts at noon."""
    clock = ManualClock(NOON_MS)
    table = make_table(tmp_path, clock=clock)
    write(table, 1, [("+I", 1, "a")], compaction=False)
    book = OneTableBook(reopened(table), compaction_window="01:00-05:00")
    background = BackgroundCompaction(book, clock, metrics)
    yield table, clock, background
    background.close()


def beat(background):
    background.beat()
    background.wait()


def levels(table):
    table = reopened(table)
    return {e.file.level for e in table.new_scan().live_entries(table.latest_snapshot())}


def test_tables_are_compacted_once_in_the_window(nightly):
    table, clock, background = nightly
    beat(background)
    assert levels(table) == {0}
    clock.sleep(14 * 3600)
    beat(background)
    assert levels(table) == {5}
    write(reopened(table), 2, [("+I", 2, "b")], compaction=False)
    beat(background)
    assert levels(table) == {0, 5}
    clock.sleep(24 * 3600)
    beat(background)
    assert levels(table) == {5}


def test_what_is_begun_too_late_waits_for_the_next_window(nightly, monkeypatch):
    table, clock, background = nightly
    clock.sleep(14 * 3600)
    monkeypatch.setattr(background, "_thread", _Later())
    background.beat()
    clock.sleep(4 * 3600)
    background._thread.run()
    assert levels(table) == {0}
    clock.sleep(20 * 3600)
    background.beat()
    background._thread.run()
    assert levels(table) == {5}


def test_write_only_tables_are_left_alone_at_night_too(metrics, tmp_path):
    clock = ManualClock(NOON_MS + 14 * 3_600_000)
    table = make_table(tmp_path, clock=clock, options={"write-only": "true"})
    write(table, 1, [("+I", 1, "a")])
    book = OneTableBook(reopened(table), compaction_window="01:00-05:00")
    background = BackgroundCompaction(book, clock, metrics)
    beat(background)
    background.close()
    assert levels(table) == {0}


class _Later:
    """Runs what is submitted when it is told to."""

    def __init__(self):
        self._work = []

    def submit(self, *work):
        self._work.append(work)
        return Future()

    def run(self):
        while self._work:
            function, *arguments = self._work.pop(0)
            function(*arguments)

    def shutdown(self, **_):
        """Nothing runs."""
