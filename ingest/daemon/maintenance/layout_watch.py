# SPDX-License-Identifier: Apache-2.0
"""Looks at how tables lie in their newest snapshots, on a thread of its own, for the metrics.

A table is looked at after a batch or a compaction committed to it, and all of them at the start.
Looking costs reading what commits added to the manifests; so that tables with very many files do
not cost a core, a look that took long is followed by a pause of many times its length.
"""

import logging
import threading
from collections.abc import Callable, Iterable

from ingest.observe.metrics.layout_figures import TableLayout, layout_of
from ingest.state.table_registry import TableBook
from storage.clock import Clock
from storage.errors import LakewardError

__all__ = ["LOOK_EVERY_S", "LayoutWatch"]

_LOG = logging.getLogger(__name__)

LOOK_EVERY_S = 15.0
"""Least time between two looks [s]: about that between two scrapes."""

_SHARE = 20
"""A look that took a second is followed by a pause of so many."""


class LayoutWatch:
    """See the module.

    1. `start`; 2. `changed` any number of times, from any thread; 3. `close`.

    Args:
        book: the tables.
        clock: time.
        record: takes a table's name and figures.
    """

    def __init__(
        self, book: TableBook, clock: Clock, record: Callable[[str, TableLayout], None]
    ) -> None:
        self._book = book
        self._clock = clock
        self._record = record
        self._lock = threading.Lock()
        self._changed: set[str] = set()
        self._wake = threading.Event()
        self._closing = threading.Event()
        self._begun = False
        self._thread = threading.Thread(target=self._run, name="layout", daemon=True)

    def start(self) -> None:
        """Begin, with all tables; does nothing when it has begun."""
        if not self._begun:
            self._begun = True
            self.changed(self._book.progresses())
            self._thread.start()

    def changed(self, tables: Iterable[str]) -> None:
        """Somebody committed to tables; returns at once."""
        with self._lock:
            self._changed.update(tables)
            if self._changed:
                self._wake.set()

    def close(self) -> None:
        """No further look begins."""
        self._closing.set()
        self._wake.set()
        if self._thread.is_alive():
            self._thread.join(timeout=5)

    def _run(self) -> None:
        while not self._closing.is_set():
            self._wake.wait()
            began = self._clock.monotonic_s()
            self.look()
            spent = self._clock.monotonic_s() - began
            self._closing.wait(max(LOOK_EVERY_S, _SHARE * spent))

    def look(self) -> None:
        """Look at the tables that changed; one that cannot be read keeps its old figures."""
        with self._lock:
            names, self._changed = sorted(self._changed), set()
            self._wake.clear()
        for name in names:
            if self._closing.is_set():
                return
            try:
                layout = layout_of(self._book.table(name))
            except (LakewardError, OSError) as error:
                _LOG.debug("the layout of a table is not known", extra={"table": name, "e": error})
                continue
            if layout is not None:
                self._record(name, layout)
