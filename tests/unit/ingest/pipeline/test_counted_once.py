# SPDX-License-Identifier: Apache-2.0
"""Committed rows are counted once, whatever the tries of their batch."""

import pytest

from ingest.observe.observe import Observer
from ingest.pipeline.batch_report import Unfinished
from ingest.state.table_registry import TableRegistry
from storage.errors import StorageUnavailableError
from tests.unit.ingest.observe.metrics.test_telemetry import sample
from tests.unit.ingest.simulated_stream import SimulatedStream, _Never, event

ORDERS, SUMS = "shop.orders", "shop.sums"


class Process:
    """What lives as long as a daemon's process: counters, and what failed tries committed."""

    def __init__(self, stream):
        self.stream = stream
        self.observer = Observer(stream.settings, stream.clock)
        self.unfinished = Unfinished()
        self.reports = []

    def batch(self):
        """One try of the planned batch, by a query of its own."""
        old = self.stream.sink
        self.stream.sink = type(old)(
            stream="shop",
            position=self.stream.position,
            book=self.stream.book,
            slots=1,
            clock=self.stream.clock,
            on_start=self.observer.batch_started,
            on_batch=self._done,
            draining=_Never(),
            unfinished=self.unfinished,
        )
        self.stream.sink.topics, self.stream.sink.settings = old.topics, old.settings
        self.stream._batch()

    def _done(self, report):
        self.reports.append(report)
        self.observer.batch(report)

    def counted(self, name, **labels):
        return sample(self.observer.metrics, name, **labels) or 0

    def rows(self, table):
        return self.counted("table_rows_written_total", table=table, kind="insert")


@pytest.fixture
def stream(tmp_path, monkeypatch):
    stream = SimulatedStream(tmp_path, monkeypatch)
    for table, keys in (("orders", range(1, 4)), ("sums", range(1, 6))):
        for key in keys:
            stream.topics.add("a", 0, *event(table, key, key))
    stream.batch()  # offsets begin
    return stream


def away(monkeypatch, table, *, after):
    """The store is away when a table commits, once: before anything, or after it published."""
    commit, left = TableRegistry.commit, [table]

    def failing(book, name, *args, **more):
        if name not in left:
            return commit(book, name, *args, **more)
        left.clear()
        if after:
            commit(book, name, *args, **more)
        raise StorageUnavailableError("away for the test")

    monkeypatch.setattr(TableRegistry, "commit", failing)


@pytest.mark.parametrize("after", [False, True], ids=["not published", "published"])
@pytest.mark.parametrize("table", [ORDERS, SUMS])
def test_rows_of_a_batch_that_is_tried_again(stream, monkeypatch, table, after):
    stream.open()
    process = Process(stream)
    away(monkeypatch, table, after=after)
    with pytest.raises(StorageUnavailableError):
        process.batch()
    assert process.rows(ORDERS) == process.rows(SUMS) == 0, "counted with the batch"
    process.batch()
    assert (process.rows(ORDERS), process.rows(SUMS)) == (3, 5)
    assert process.counted("source_records_total", topic="a") == 8
    for name in (ORDERS, SUMS):
        assert process.counted("table_files_written_total", table=name, type="data") == 1
        commit = {"table": name, "kind": "append", "outcome": "ok"}
        assert process.counted("commits_total", **commit) == 1
    (report,) = process.reports
    assert set(report.replayed) == ({ORDERS, SUMS} if after else {ORDERS, SUMS} - {table})
    assert set(report.snapshots) == {ORDERS, SUMS}

    stream.topics.add("a", 0, *event("orders", 9, 9))
    process.batch()
    assert (process.rows(ORDERS), process.rows(SUMS)) == (4, 5), "and not with the next one"


def test_bad_records_of_a_batch_that_is_tried_again(stream, monkeypatch):
    stream.topics.add("a", 0, None, b"{")
    stream.open()
    process = Process(stream)
    away(monkeypatch, ORDERS, after=False)
    with pytest.raises(StorageUnavailableError):
        process.batch()
    process.batch()
    (report,) = process.reports
    assert "lakeward._quarantine" in report.replayed
    assert process.counted("decode_errors_total", topic="a", reason="json") == 1
    assert report.bad_by_table == {"": {"json": 1}}


def test_rows_of_a_quarantine_of_another_name_are_no_rows_of_tables(tmp_path, monkeypatch):
    stream = SimulatedStream(tmp_path, monkeypatch, more="bad.records: {table: ops.bad}\n")
    stream.topics.add("a", 0, *event("orders", 1, 1))
    stream.topics.add("a", 0, None, b"{")
    stream.batch()  # offsets begin
    stream.open()
    process = Process(stream)
    process.batch()
    (report,) = process.reports
    assert set(report.snapshots) == {ORDERS, "ops.bad"}
    assert (report.rows, report.bad_records) == (1, 1)


def test_a_batch_that_another_process_began_and_did_not_finish(stream, monkeypatch):
    stream.open()
    first = Process(stream)
    away(monkeypatch, SUMS, after=False)
    with pytest.raises(StorageUnavailableError):
        first.batch()
    stream.open()
    second = Process(stream)
    second.batch()
    assert second.rows(SUMS) == 5, "committed here"
    assert second.rows(ORDERS) == 0, "at most once: the process that committed them has died"
    assert second.counted("source_records_total", topic="a") == 8


def test_a_batch_that_another_process_finished_is_not_counted_again(stream, monkeypatch):
    stream.open()
    first = Process(stream)
    monkeypatch.setattr(stream.fuse, "step", lambda: None)
    first.batch()
    assert (first.rows(ORDERS), first.rows(SUMS)) == (3, 5)
    commits = stream.position.directory / "commits"
    (commits / max(path.name for path in commits.iterdir())).unlink()  # Spark had not recorded it
    stream.open()
    second = Process(stream)
    second.batch()
    assert (second.rows(ORDERS), second.rows(SUMS)) == (0, 0)
    assert second.counted("source_records_total", topic="a") == 0
    assert second.counted("batches_total", outcome="replayed") == 1
