# SPDX-License-Identifier: Apache-2.0
"""Background compaction, on one thread of the driver.

The tasks of a batch compact the buckets they write. What remains: compactions that they postpone
(`lookup-wait` = false), buckets without rows in a batch that is due for a full compaction
(`full-compaction.delta-commits`) or that are due by time (`compaction.optimization-interval`),
compactions that lost a race or failed with their batch, and the rows of postponed buckets, which
are invisible until then; and, in `maintenance.compaction.window`, every table once. One table and
one bucket at a time, in separate commits: a lost race costs only the compaction. `write-only`
tables, and tables that the stream has never written, are skipped.
"""

import contextlib
import datetime
import logging
import threading
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor

from ingest.config.daily_window import DailyWindow
from ingest.observe.metrics.telemetry import Metrics
from ingest.pipeline.batch_report import BatchReport
from ingest.pipeline.range_report import LookupUse
from ingest.state.table_registry import TableRegistry
from storage.clock import Clock
from storage.errors import LakewardError, UnsupportedFeatureError
from storage.lsm.commit_cadence import full_compaction_interval, merges_everything, merges_level_0
from storage.lsm.lookup.store import process_store
from storage.options.options import TableOptions
from storage.table.bucket_mode import BucketMode, bucket_mode
from storage.table.compaction.compact_plan import CompactRequest
from storage.table.compaction.compact_table import CompactReport, compact_table
from storage.table.table import FileStoreTable

_LOG = logging.getLogger(__name__)

_NIGHTLY = "window"
_KINDS = ("minor", _NIGHTLY, "full")
"""Of passes: due buckets, all buckets while the daily window is open, all buckets."""

_APPENDS_EVERY = 10
"""Batches between two searches for small files of an append table; a batch adds one a partition."""


def kind_due(
    options: TableOptions,
    identifier: int,
    *,
    written: bool,
    dropped: bool,
    first: bool,
    idle_ms: int | None,
    appends: bool = False,
    postpones: bool = False,
) -> str | None:
    """The compaction that a table needs after a batch: `full`, `minor` or None. Pure.

    Args:
        options: of the table.
        identifier: of the batch's commits.
        written: whether the batch committed to the table.
        dropped: whether a compaction of the batch lost a race, or failed with an earlier attempt.
        first: whether this is the first batch of the process, which may follow a crash.
        idle_ms: time since the table was last checked [ms]; None = never.
        appends: whether it is a table without buckets, whose writers never compact.
        postpones: whether it is a table whose rows get buckets, and become visible, by compaction.
    """
    if options.write_only:
        return None
    if merges_everything(options, identifier):
        return "full"
    if dropped and full_compaction_interval(options) == 1:
        return "full"
    if options.needs_lookup:
        pending = written and not options.lookup_wait
        cadence = options.lookup_compact == "gentle" and merges_level_0(options, identifier)
        if pending or cadence or dropped or first:
            return "minor"
    if postpones and (written or dropped or first):
        return "minor"
    if appends and written and identifier % _APPENDS_EVERY == 0:
        return "minor"
    interval_ms = options.compaction_optimization_interval
    if interval_ms is not None and (idle_ms is None or idle_ms >= interval_ms):
        return "minor"
    return None


class BackgroundCompaction:
    """See the module.

    Args:
        metrics: record every compaction.
        committed: called with the tables of committed compactions.
    """

    def __init__(
        self,
        book: TableRegistry,
        clock: Clock,
        metrics: Metrics,
        committed: Callable[[Iterable[str]], None] = lambda _: None,
    ) -> None:
        self._book = book
        self._clock = clock
        self._metrics = metrics
        self._committed = committed
        self._open: dict[str, int] | None = None
        self._looked_s: dict[str, float] = {}
        self._pending: dict[str, str] = {}
        self._pending_since_s: dict[str, float] = {}
        self._lock = threading.Lock()
        self._night: datetime.date | None = None
        self._closing = threading.Event()
        self._thread = ThreadPoolExecutor(1, thread_name_prefix="compaction")
        self._worker = ThreadPoolExecutor(1, thread_name_prefix="compact-bucket")

    def after_batch(self, report: BatchReport) -> None:
        """Schedule due compactions; returns at once."""
        is_first = self._open is None
        if self._open is None:
            self._open = dict.fromkeys(self._book.progresses(), -1)
        # the attempt that committed these may have failed before it published their compactions
        self._open |= dict.fromkeys((*report.replayed, *report.snapshots), report.identifier)
        lost_tables = {*report.replayed, *report.compactions_dropped}
        now_s = self._clock.monotonic_s()
        for name in sorted(self._open.copy()):
            checked_s = self._looked_s.get(name)
            table = self._book.table(name)
            mode = bucket_mode(table.schema, table.options)
            kind = kind_due(
                table.options,
                report.identifier,
                written=name in report.snapshots,
                dropped=name in lost_tables,
                first=is_first,
                idle_ms=None if checked_s is None else int((now_s - checked_s) * 1000),
                appends=mode is BucketMode.UNAWARE,
                postpones=mode is BucketMode.POSTPONE,
            )
            if kind is not None:
                self._looked_s[name] = now_s
                self._schedule(name, kind)

    def beat(self) -> None:
        """Called periodically: schedules every table when the daily window opens."""
        day = self._window_opened()
        if day is None or day == self._night:
            return
        self._night = day
        for name in sorted(self._book.progresses()):
            if not self._book.table(name).options.write_only:
                self._schedule(name, _NIGHTLY)

    def request(self, name: str) -> None:
        """Schedule a full compaction of a table; returns at once."""
        self._schedule(name, "full")

    def _window_opened(self) -> datetime.date | None:
        """Start date of the current window; None: it is closed, or there is none."""
        text = self._book.settings.maintenance.compaction_window
        return None if text is None else DailyWindow.parse(text).window_date(self._clock.now_ms())

    def _schedule(self, name: str, kind: str) -> None:
        """At most one pass per table is pending; a more complete one replaces it."""
        with self._lock:
            current = self._pending.get(name)
            if current is None or _KINDS.index(kind) > _KINDS.index(current):
                self._pending[name] = kind
            if current is not None:
                return
            self._pending_since_s[name] = self._clock.monotonic_s()
            self._metrics.compaction_waits(self._pending_since_s)
        self._thread.submit(self._run, name).add_done_callback(report_bug)

    def _run(self, name: str) -> None:
        with self._lock:
            kind = self._pending.pop(name)
            self._pending_since_s.pop(name)
            self._metrics.compaction_waits(self._pending_since_s)
        if self._closing.is_set() or (kind == _NIGHTLY and self._window_opened() is None):
            return
        stopping: Callable[[], bool] = self._closing.is_set
        if kind == _NIGHTLY:
            kind, stopping = "full", self._is_late
        last_written = (self._open or {}).get(name)
        self._metrics.compaction_started()
        table, report = self._book.table(name), None
        try:
            with self._lookups(table):
                report = compact_table(
                    table,
                    CompactRequest(full=kind != "minor"),
                    self._worker,
                    user_prefix="background-compact",
                    stopping=stopping,
                )
        except UnsupportedFeatureError as error:
            _LOG.debug("table not compacted", extra={"table": name, "reason": str(error)})
            report = CompactReport()
        except (LakewardError, OSError) as error:
            _LOG.warning(
                "background compaction failed, retrying later",
                extra={"event": "compaction_failed", "table": name, "kind": kind},
                exc_info=error,
            )
        finally:
            self._metrics.compaction_ended(name, kind, report)
        if report is not None:
            self._report_result(name, kind, report)
            if report.snapshots:
                self._committed((name,))
            if kind == "full" and not report.planned:
                self._skip_until_written(name, last_written)

    def _is_late(self) -> bool:
        return self._closing.is_set() or self._window_opened() is None

    def _skip_until_written(self, name: str, last_written: int | None) -> None:
        """Nothing remains to compact: the table is skipped until it is written again."""
        if self._open is not None and self._open.get(name) == last_written:
            self._open.pop(name, None)

    def _report_result(self, name: str, kind: str, report: CompactReport) -> None:
        for failure in report.failures:
            _LOG.warning(
                "a bucket could not be compacted",
                extra={"event": "compaction_failed", "table": name, "bucket": failure.bucket},
                exc_info=failure.error,
            )
        if report.compacted or report.dropped:
            _LOG.info(
                "compacted in the background",
                extra={
                    "event": "compacted",
                    "table": name,
                    "kind": kind,
                    "buckets": report.compacted,
                    "dropped": report.dropped,
                    "lost": report.lost,
                    "written_bytes": report.written_bytes,
                    "duration_s": round(report.seconds, 3),
                },
            )

    @contextlib.contextmanager
    def _lookups(self, table: FileStoreTable) -> Iterator[None]:
        if not table.options.needs_lookup:
            yield
            return
        before = process_store().counters()
        try:
            yield
        finally:
            self._metrics.record_lookup(LookupUse.since(before))

    def wait(self) -> None:
        """Wait until all scheduled passes are finished."""
        self._thread.submit(lambda: None).result()

    def stop(self) -> None:
        """Start no further bucket; returns at once."""
        self._closing.set()

    def close(self) -> None:
        """Finish and commit the bucket in progress, drop the rest."""
        self._closing.set()
        self._thread.shutdown(wait=True, cancel_futures=True)
        self._worker.shutdown(wait=True)


def report_bug(future: "Future[None]") -> None:
    """Log the failure of a task of a pool."""
    if not future.cancelled() and (error := future.exception()) is not None:
        _LOG.error("maintenance stopped: internal error", exc_info=error)
