# SPDX-License-Identifier: Apache-2.0
"""Background maintenance, beside the stream: expiry, done partitions, orphan files, compaction.

Each runs on one thread of the driver; compaction is in `background_compaction`. A pass that fails
is logged and retried after a later batch: expiry only removes what no kept snapshot names, so it
can stop anywhere. A bounded run is a batch job: it ends with a pass over the tables it wrote, which
makes the tags of `tag.automatic-creation` = batch. Local copies of data files are evicted by the
batches that use them; while the stream is idle, it is done here.
"""

import contextlib
import datetime
import functools
import logging
import threading
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor

from ingest.config.setting import DailyWindow
from ingest.observe.metrics.layout_figures import TableLayout, layout_of
from ingest.observe.metrics.telemetry import Metrics
from ingest.pipeline.batch_report import BatchReport
from ingest.pipeline.exchange import LookupUse
from ingest.state.table_registry import TableRegistry
from storage.catalog.catalog import Catalog
from storage.clock import Clock
from storage.errors import LakewardError, RetryableError, UnsupportedFeatureError
from storage.lsm.lookup.store import process_store
from storage.lsm.write_rules import full_compaction_interval, merges_everything, merges_level_0
from storage.options.options import TableOptions
from storage.table.bucket_mode import BucketMode, bucket_mode
from storage.table.compaction.compact_table import CompactReport, CompactRequest, compact_table
from storage.table.core import TableCore
from storage.table.iceberg import catch_up_iceberg, iceberg_figures
from storage.table.materialized_table import MATERIALIZED_TABLE
from storage.table.retention.expire import remove_orphan_files
from storage.table.table import FileStoreTable
from storage.table.upkeep import TableUpkeep

# Background compaction, on one thread of the driver.
#
# The tasks of a batch compact the buckets they write. What remains: compactions that they postpone
# (`lookup-wait` = false), buckets without rows in a batch that is due for a full compaction
# (`full-compaction.delta-commits`) or that are due by time (`compaction.optimization-interval`),
# compactions that lost a race or failed with their batch, and the rows of postponed buckets, which
# are invisible until then; and, in `maintenance.compaction.window`, every table once. One table and
# one bucket at a time, in separate commits: a lost race costs only the compaction. `write-only`
# tables, and tables that the stream has never written, are skipped.


_LOG = logging.getLogger(__name__)

_NIGHTLY = "window"
_KINDS = ("minor", _NIGHTLY, "full")
"""Of passes: due buckets, all buckets while the daily window is open, all buckets."""

_AGAIN_S = 10.0
"""Least time between a compaction that failed and its repetition [s]."""

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
        self._failed: dict[str, str] = {}
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
            due = kind_due(
                table.options,
                report.identifier,
                written=name in report.snapshots,
                dropped=name in lost_tables,
                first=is_first,
                idle_ms=None if checked_s is None else int((now_s - checked_s) * 1000),
                appends=mode is BucketMode.UNAWARE,
                postpones=mode is BucketMode.POSTPONE,
            )
            is_early = checked_s is not None and now_s - checked_s < _AGAIN_S
            failed = None if is_early else self._failed.pop(name, None)
            for kind in filter(None, (due, failed)):
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
        requested, errors = kind, list[BaseException]()
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
            errors.append(error)
            _LOG.warning(
                "background compaction failed, retrying later",
                extra={"event": "compaction_failed", "table": name, "kind": kind},
                exc_info=error,
            )
        finally:
            self._metrics.compaction_ended(name, kind, report)
        if report is not None:
            errors += [failure.error for failure in report.failures]
            self._report_result(name, kind, report)
            if report.snapshots:
                self._committed((name,))
            if kind == "full" and not report.planned:
                self._skip_until_written(name, last_written)
        if any(isinstance(error, RetryableError) for error in errors):
            self._failed[name] = requested

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


REFRESH_EVERY_S = 15.0
"""Interval of checks of the known materialized tables [s]; each reads the newest schema
and snapshots of the table."""

DISCOVER_EVERY_S = 600.0
"""Between two searches for materialized tables [s]: each reads a schema of every table."""


@contextlib.contextmanager
def _retried(failure: str, event: str, table: str | None = None) -> Iterator[None]:
    """Log what fails: a later pass tries again."""
    try:
        yield
    except (LakewardError, OSError) as error:
        extra = {"event": event} | ({} if table is None else {"table": table})
        _LOG.warning("%s, retrying later", failure, extra=extra, exc_info=error)


class MaterializedRefresh:
    """Refreshes materialized tables by the clock; `run` is called by one thread.

    SQL and its engine are imported with the first refresh: most warehouses have no such table.

    Args:
        catalog: of the warehouse.
    """

    def __init__(self, catalog: Catalog, clock: Clock) -> None:
        self._catalog = catalog
        self._clock = clock
        self._names: list[str] = []
        self._looked_s = clock.monotonic_s()
        self._searched_s: float | None = None

    def due(self) -> bool:
        """Whether a pass is due; the next one is then some seconds later."""
        now_s = self._clock.monotonic_s()
        if now_s - self._looked_s < REFRESH_EVERY_S:
            return False
        self._looked_s = now_s
        return True

    def run(self) -> dict[str, int]:
        """Refresh the tables that are due; a failure is logged and tried again by the next pass.

        Returns:
            Rows written, by the tables that were refreshed.
        """
        now_s = self._clock.monotonic_s()
        if self._searched_s is None or now_s - self._searched_s >= DISCOVER_EVERY_S:
            with _retried("materialized tables could not be searched", "refresh_failed"):
                self._names = list(self._catalog.tables_of_type(MATERIALIZED_TABLE))
                self._searched_s = now_s
        if not self._names:
            return {}
        from storage.sql.materialized import refresh_due  # noqa: PLC0415

        refreshed = {}
        for name in self._names:
            rows = None
            with _retried("a materialized table could not be refreshed", "refresh_failed", name):
                rows = refresh_due(self._catalog, name, self._clock.now_ms())
            if rows is not None:
                refreshed[name] = rows
                _LOG.info(
                    "a materialized table was refreshed",
                    extra={"event": "refreshed", "table": name, "rows": rows},
                )
        return refreshed


POLL_EVERY_S = 15.0
"""Least time between two passes [s]: about that between two scrapes."""

_SHARE = 20
"""A pass of one second is followed by a pause of so many."""

_UNPAUSED_S = 1.0
_PAUSE_SHARE = 4
"""After so long [s], a pass pauses so many times as long as each further table takes."""


class LayoutWatch:
    """Measures the layout of tables in their newest snapshots for the metrics, on its own thread.

    A table is measured after a batch or a compaction committed to it, and all of them at the start.
    That costs reading what commits added to the manifests; so that thousands of tables and very
    many files do not cost a core, least of all during the first batch, a long pass pauses between
    tables, and a pause of many times its length follows it.

    1. `start`; 2. `schedule` any number of times, from any thread; 3. `close`.

    Args:
        record: called with a table's name and figures.
    """

    def __init__(
        self, book: TableRegistry, clock: Clock, record: Callable[[str, TableLayout], None]
    ) -> None:
        self._book = book
        self._clock = clock
        self._record = record
        self._lock = threading.Lock()
        self._changed_tables: set[str] = set()
        self._wake = threading.Event()
        self._closing = threading.Event()
        self._started = False
        self._thread = threading.Thread(target=self._run, name="layout", daemon=True)

    def start(self) -> None:
        """Start with all tables; without effect the second time."""
        if not self._started:
            self._started = True
            self.schedule(self._book.progresses())
            self._thread.start()

    def schedule(self, tables: Iterable[str]) -> None:
        """Measure tables again after commits; returns at once."""
        with self._lock:
            self._changed_tables.update(tables)
            if self._changed_tables:
                self._wake.set()

    def close(self) -> None:
        """Start no further pass."""
        self._closing.set()
        self._wake.set()
        if self._thread.is_alive():
            self._thread.join(timeout=5)

    def _run(self) -> None:
        while not self._closing.is_set():
            self._wake.wait()
            began = self._clock.monotonic_s()
            self.measure()
            spent = self._clock.monotonic_s() - began
            self._closing.wait(max(POLL_EVERY_S, _SHARE * spent))

    def measure(self) -> None:
        """Measure the tables that changed; one that cannot be read keeps its old figures."""
        with self._lock:
            names, self._changed_tables = sorted(self._changed_tables), set()
            self._wake.clear()
        pass_began = self._clock.monotonic_s()
        for name in names:
            began = self._clock.monotonic_s()
            if self._closing.is_set():
                return
            try:
                layout = layout_of(self._book.table(name))
            except (LakewardError, OSError) as error:
                _LOG.debug(
                    "the layout of a table is unavailable", extra={"table": name, "e": error}
                )
                continue
            if layout is not None:
                self._record(name, layout)
            ended = self._clock.monotonic_s()
            if ended - pass_began > _UNPAUSED_S:
                self._closing.wait(_PAUSE_SHARE * (ended - began))


CLEAN_EVERY_S = 86_400.0
"""Time between two passes over a table [s]: a pass lists the table and reads all its manifests."""

FIRST_CLEAN_S = 3_600.0
"""Time before the first pass of a process [s]."""


class OrphanCleaner:
    """Removes orphan files of a stream's tables while the stream runs.

    `maintenance.orphan.clean` is the age that protects files of in-flight commits. The first pass
    comes some time after the start, so that a daemon that is crash-looping does not list the
    warehouse each time; then one a day.

    Args:
        age_s: returns the age of the files that may be removed [s]; None: nothing is removed.
        stopping: polled; once it is true, a pass ends where it is.
    """

    def __init__(
        self,
        age_s: Callable[[], float | None],
        clock: Clock,
        stopping: Callable[[], bool] = lambda: False,
    ) -> None:
        self._age_s = age_s
        self._clock = clock
        self._stopping = stopping
        self._due_s = clock.monotonic_s() + FIRST_CLEAN_S

    def due(self) -> bool:
        """Whether a pass over all tables is due; the next one is then a day later."""
        now_s = self._clock.monotonic_s()
        if self._age_s() is None or now_s < self._due_s:
            return False
        self._due_s = now_s + CLEAN_EVERY_S
        return True

    def clean(self, name: str, table: TableCore) -> int:
        """Remove a table's orphan files; a failure is logged and retried by the next pass.

        Returns:
            How many files were removed.
        """
        age_s = self._age_s()
        if age_s is None or self._stopping():
            return 0
        limit_ms = self._clock.now_ms() - int(age_s * 1000)
        removed = None
        with (
            contextlib.suppress(_StoppedError),
            _retried("orphan files of a table could not be removed", "orphans_failed", name),
        ):
            removed = remove_orphan_files(table, older_than_ms=limit_ms, on_progress=self._checked)
        if removed is None:
            return 0
        if removed.paths:
            _LOG.info(
                "orphan files are removed",
                extra={
                    "event": "orphans_removed",
                    "table": name,
                    "files": len(removed.paths),
                    "bytes": removed.size,
                },
            )
        return len(removed.paths)

    def _checked(self, phase: str, files: int) -> None:
        del phase, files
        if self._stopping():
            raise _StoppedError


class _StoppedError(Exception):
    """The process is about to end."""


EXPIRE_EVERY_COMMITS = 10
"""Commits of a table between two expiry passes. A pass reads the manifests of what it removes, so
doing it each time would double the metadata reads for one snapshot's worth of garbage. Tables with
automatic tags get theirs after each commit: a tag that comes late keeps files, and more than
`tag.num-retained-max` of them are there meanwhile."""

MARK_EVERY_S = 30.0
"""Interval of searches for done partitions [s]: they are done because nothing is committed."""

SWEEP_EVERY_S = 600.0
"""Interval of evictions of local copies of data files [s]; unused ones stay for an hour."""


class Maintenance:
    """Background maintenance of a stream's tables.

    Args:
        metrics: get compactions, layouts and removals.
    """

    def __init__(self, book: TableRegistry, clock: Clock, metrics: Metrics) -> None:
        self._book = book
        self._clock = clock
        self._metrics = metrics
        self._upkeep = TableUpkeep()
        self._commits: dict[str, int] = {}
        self._pending: set[tuple[str, Callable[[str], None]]] = set()
        self._lock = threading.Lock()
        self._swept_s = self._marked_s = clock.monotonic_s()
        self._pool = ThreadPoolExecutor(max_workers=1, thread_name_prefix="maintenance")
        self._layout = LayoutWatch(book, clock, metrics.record_layout)
        self._compaction = BackgroundCompaction(book, clock, metrics, self._layout.schedule)
        self._closing = threading.Event()
        self._refresh = MaterializedRefresh(book.catalog, clock)
        self._refreshing: Future[None] | None = None
        self._orphans = OrphanCleaner(
            lambda: book.settings.maintenance.orphan_clean_s, clock, self._closing.is_set
        )

    def after_batch(self, report: BatchReport) -> None:
        """Count a batch's commits and schedule what is due."""
        for name in report.snapshots:
            count = self._commits.get(name, 0) + 1
            self._commits[name] = count
            if count % _commits_between(self._book.table(name).options) == 0:
                self._schedule(name, self._upkeep_of)
            self._record_iceberg(name)
        self._compaction.after_batch(report)
        self._layout.schedule(report.snapshots)

    def beat(self) -> None:
        """Called continuously, also without batches; returns at once."""
        self._compaction.beat()
        self._layout.start()
        if self._orphans.due():
            for name in sorted(self._book.progresses()):
                self._submit(functools.partial(self._clean, name))
        idle = self._refreshing is None or self._refreshing.done()
        if idle and self._refresh.due():
            self._refreshing = self._pool.submit(self._refresh_due)
            self._refreshing.add_done_callback(report_bug)
        now_s = self._clock.monotonic_s()
        if now_s - self._marked_s >= MARK_EVERY_S:
            self._marked_s = now_s
            for name in sorted(self._book.progresses()):
                table = self._book.table(name)
                if table.options.partition_idle_time_to_done_ms is not None:
                    self._schedule(name, self._mark_done)
                if iceberg_figures(table.layout.root).unpublished:
                    self._schedule(name, self._catch_up)
        if now_s - self._swept_s < SWEEP_EVERY_S:
            return
        self._swept_s = now_s
        if any(self._book.table(name).options.needs_lookup for name in self._book.progresses()):
            self._submit(_sweep)

    def _record_iceberg(self, name: str) -> None:
        figures = iceberg_figures(self._book.table(name).layout.root)
        self._metrics.record_iceberg(name, figures)

    def _catch_up(self, name: str) -> None:
        catch_up_iceberg(self._book.table(name))
        self._record_iceberg(name)

    def _refresh_due(self) -> None:
        if not self._closing.is_set():
            self._refresh.run()

    def compact(self, name: str) -> None:
        """Schedule a full compaction of a table; returns at once."""
        self._compaction.request(name)

    def _clean(self, name: str) -> None:
        removed = self._orphans.clean(name, self._book.table(name))
        self._metrics.upkeep_done(name, orphans=removed)

    def _schedule(self, name: str, work: Callable[[str], None]) -> None:
        with self._lock:
            if (name, work) in self._pending:
                return
            self._pending.add((name, work))
        self._submit(functools.partial(self._pass, name, work))

    def _submit(self, task: Callable[[], None]) -> None:
        self._pool.submit(task).add_done_callback(report_bug)

    def _pass(self, name: str, work: Callable[[str], None]) -> None:
        with self._lock:
            self._pending.discard((name, work))
        work(name)

    def _upkeep_of(self, name: str, *, batch: bool = False) -> None:
        with _retried("maintenance of a table failed", "upkeep_failed", name):
            # the stream's newest own snapshot holds its offsets: others may not push it out
            expired = self._upkeep.run(
                self._book.table(name),
                now_ms=self._clock.now_ms(),
                keep_from=self._book.snapshot_id(name) or None,
                batch=batch,
                dedicated=True,
            )
            self._metrics.upkeep_done(name, snapshots=expired)
            if expired:
                self._layout.schedule((name,))
                _LOG.debug("snapshots expired", extra={"table": name, "count": expired})

    def _mark_done(self, name: str) -> None:
        with _retried("done partitions of a table could not be marked", "upkeep_failed", name):
            marked = self._upkeep.mark_done(self._book.table(name), now_ms=self._clock.now_ms())
            for partition in marked:
                _LOG.info(
                    "partition marked done",
                    extra={"event": "partition_done", "table": name, "partition": partition},
                )

    def finish(self) -> None:
        """The end of a bounded run: do what is scheduled, then maintain the tables it wrote."""
        self._compaction.wait()
        for name in sorted(self._commits):
            self._submit(functools.partial(self._upkeep_of, name, batch=True))
        self._pool.submit(lambda: None).result()

    def stop(self) -> None:
        """Begin nothing more, and leave a compaction after the bucket in work; returns at once."""
        self._closing.set()
        self._compaction.stop()

    def close(self) -> None:
        """Let the running pass, and the bucket being compacted, end; drop the others."""
        self._closing.set()
        self._layout.close()
        self._compaction.close()
        self._pool.shutdown(wait=True, cancel_futures=True)


def _commits_between(options: TableOptions) -> int:
    """How many commits there are between two passes over a table."""
    tags = options.tag_automatic_creation in ("process-time", "watermark")
    return 1 if tags else EXPIRE_EVERY_COMMITS


def _sweep() -> None:
    with _retried("local copies of data files could not be evicted", "sweep_failed"):
        process_store().sweep()
