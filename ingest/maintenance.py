# SPDX-License-Identifier: Apache-2.0
"""Work that keeps tables small and that no batch has to wait for: snapshot expiry, compaction.

Each runs on one thread of the driver beside the stream; compaction is in `background_compaction`.
A pass that fails is logged and tried again after a later batch: expiry only removes what no kept
snapshot names, so it can stop anywhere.
"""

import logging
import threading
from concurrent.futures import Future, ThreadPoolExecutor

from ingest.background_compaction import BackgroundCompaction, CompactionWatcher
from ingest.batch_report import BatchReport
from ingest.table_book import TableBook
from storage.clock import Clock
from storage.errors import LakewardError
from storage.table.upkeep import TableUpkeep

__all__ = ["EXPIRE_EVERY_COMMITS", "Maintenance"]

_LOG = logging.getLogger(__name__)

EXPIRE_EVERY_COMMITS = 10
"""Commits of a table between two expiry passes. A pass reads the manifests of what it removes, so
doing it each time would double the metadata reads for one snapshot's worth of garbage."""


class Maintenance:
    """Background maintenance of a stream's tables.

    Args:
        book: the tables.
        clock: time.
        watcher: hears about compactions.
    """

    def __init__(self, book: TableBook, clock: Clock, watcher: CompactionWatcher) -> None:
        self._book = book
        self._clock = clock
        self._upkeep = TableUpkeep()
        self._commits: dict[str, int] = {}
        self._pending: set[str] = set()
        self._lock = threading.Lock()
        self._pool = ThreadPoolExecutor(max_workers=1, thread_name_prefix="maintenance")
        self._compaction = BackgroundCompaction(book, clock, watcher)

    def after_batch(self, report: BatchReport) -> None:
        """Count a batch's commits and schedule what is due."""
        for name in report.snapshots:
            count = self._commits.get(name, 0) + 1
            self._commits[name] = count
            if count % EXPIRE_EVERY_COMMITS == 0:
                self._schedule(name)
        self._compaction.after_batch(report)

    def _schedule(self, name: str) -> None:
        with self._lock:
            if name in self._pending:
                return
            self._pending.add(name)
        self._pool.submit(self._expire, name).add_done_callback(_report_bug)

    def _expire(self, name: str) -> None:
        with self._lock:
            self._pending.discard(name)
        try:
            # the stream's newest own snapshot holds its offsets: others may not push it out
            expired = self._upkeep.run(
                self._book.table(name),
                now_ms=self._clock.now_ms(),
                keep_from=self._book.snapshot_id(name) or None,
                dedicated=True,
            )
        except (LakewardError, OSError) as error:
            _LOG.warning(
                "snapshot expiry failed, it will be tried again",
                extra={"event": "expire_failed", "table": name},
                exc_info=error,
            )
            return
        if expired:
            _LOG.debug("snapshots expired", extra={"table": name, "count": expired})

    def finish(self) -> None:
        """Wait until what is scheduled is done, as at the end of a bounded run."""
        self._compaction.wait()

    def close(self) -> None:
        """Let the running pass, and the bucket being compacted, end; drop the others."""
        self._compaction.close()
        self._pool.shutdown(wait=True, cancel_futures=True)


def _report_bug(done: "Future[None]") -> None:
    if not done.cancelled() and (error := done.exception()) is not None:
        _LOG.error("maintenance stopped on a bug", exc_info=error)
