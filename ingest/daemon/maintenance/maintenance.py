# SPDX-License-Identifier: Apache-2.0
"""Work that no batch has to wait for: what is due after commits, expiry above all, and compaction.

Each runs on one thread of the driver beside the stream; compaction is in `background_compaction`,
the removal of files that nothing names in `orphan_duty`.
A pass that fails is logged and tried again after a later batch: expiry only removes what no kept
snapshot names, so it can stop anywhere. A bounded run is a batch job: it ends with a pass over the
tables it wrote, which makes the tags of `tag.automatic-creation` = batch. Local copies of data
files are swept by whoever uses them; when the stream is idle, nobody does.
"""

import functools
import logging
import threading
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor

from ingest.daemon.maintenance.background_compaction import BackgroundCompaction, CompactionWatcher
from ingest.daemon.maintenance.layout_watch import LayoutWatch
from ingest.daemon.maintenance.orphan_duty import OrphanDuty
from ingest.pipeline.batch_report import BatchReport
from ingest.state.table_registry import TableBook
from storage.clock import Clock
from storage.errors import LakewardError
from storage.lsm.lookup.store import process_store
from storage.options.options import TableOptions
from storage.table.upkeep import TableUpkeep

__all__ = ["EXPIRE_EVERY_COMMITS", "SWEEP_EVERY_S", "Maintenance"]

_LOG = logging.getLogger(__name__)

EXPIRE_EVERY_COMMITS = 10
"""Commits of a table between two expiry passes. A pass reads the manifests of what it removes, so
doing it each time would double the metadata reads for one snapshot's worth of garbage. Tables with
automatic tags get theirs after each commit: a tag that comes late keeps files, and more than
`tag.num-retained-max` of them are there meanwhile."""

SWEEP_EVERY_S = 600.0
"""Between two sweeps of the local copies of data files [s]; unused ones stay for an hour."""


class Maintenance:
    """Background maintenance of a stream's tables.

    Args:
        book: the tables.
        clock: time.
        watcher: hears about compactions, and what was removed.
    """

    def __init__(self, book: TableBook, clock: Clock, watcher: CompactionWatcher) -> None:
        self._book = book
        self._clock = clock
        self._watcher = watcher
        self._upkeep = TableUpkeep()
        self._commits: dict[str, int] = {}
        self._pending: set[str] = set()
        self._lock = threading.Lock()
        self._swept_s = clock.monotonic_s()
        self._pool = ThreadPoolExecutor(max_workers=1, thread_name_prefix="maintenance")
        self._layout = LayoutWatch(book, clock, watcher.record_layout)
        self._compaction = BackgroundCompaction(book, clock, watcher, self._layout.changed)
        self._closing = threading.Event()
        self._orphans = OrphanDuty(
            lambda: book.settings.maintenance.orphan_clean_s, clock, self._closing.is_set
        )

    def after_batch(self, report: BatchReport) -> None:
        """Count a batch's commits and schedule what is due."""
        for name in report.snapshots:
            count = self._commits.get(name, 0) + 1
            self._commits[name] = count
            if count % _commits_between(self._book.table(name).options) == 0:
                self._schedule(name)
        self._compaction.after_batch(report)
        self._layout.changed(report.snapshots)

    def beat(self) -> None:
        """Called all the time, also when there are no batches; returns at once."""
        self._compaction.beat()
        self._layout.start()
        if self._orphans.due():
            for name in sorted(self._book.progresses()):
                self._submit(functools.partial(self._clean, name))
        now_s = self._clock.monotonic_s()
        if now_s - self._swept_s < SWEEP_EVERY_S:
            return
        self._swept_s = now_s
        if any(self._book.table(name).options.needs_lookup for name in self._book.progresses()):
            self._submit(_sweep)

    def compact(self, name: str) -> None:
        """Have a table compacted fully as soon as its turn comes; returns at once."""
        self._compaction.ask(name)

    def _clean(self, name: str) -> None:
        gone = self._orphans.clean(name, self._book.table(name))
        self._watcher.upkeep_done(name, orphans=gone)

    def _schedule(self, name: str) -> None:
        with self._lock:
            if name in self._pending:
                return
            self._pending.add(name)
        self._submit(functools.partial(self._pass, name))

    def _submit(self, task: Callable[[], None]) -> None:
        self._pool.submit(task).add_done_callback(_report_bug)

    def _pass(self, name: str) -> None:
        with self._lock:
            self._pending.discard(name)
        self._upkeep_of(name)

    def _upkeep_of(self, name: str, *, batch: bool = False) -> None:
        try:
            # the stream's newest own snapshot holds its offsets: others may not push it out
            expired = self._upkeep.run(
                self._book.table(name),
                now_ms=self._clock.now_ms(),
                keep_from=self._book.snapshot_id(name) or None,
                batch=batch,
                dedicated=True,
            )
        except (LakewardError, OSError) as error:
            _LOG.warning(
                "upkeep of a table failed, it will be tried again",
                extra={"event": "upkeep_failed", "table": name},
                exc_info=error,
            )
            return
        self._watcher.upkeep_done(name, snapshots=expired)
        if expired:
            self._layout.changed((name,))
            _LOG.debug("snapshots expired", extra={"table": name, "count": expired})

    def finish(self) -> None:
        """The end of a bounded run: do what is scheduled, then look after what was written."""
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
    try:
        process_store().sweep()
    except (LakewardError, OSError) as error:
        _LOG.warning(
            "local copies of data files could not be swept, it will be tried again",
            extra={"event": "sweep_failed"},
            exc_info=error,
        )


def _report_bug(done: "Future[None]") -> None:
    if not done.cancelled() and (error := done.exception()) is not None:
        _LOG.error("maintenance stopped on a bug", exc_info=error)
