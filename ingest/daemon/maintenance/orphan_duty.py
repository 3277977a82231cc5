# SPDX-License-Identifier: Apache-2.0
"""Removing files that nothing names, of a stream's tables, while the stream runs.

`maintenance.orphan.clean` says which age protects files of commits that are under way. The first
pass comes some time after the start, so that a daemon that is started again and again does not list
the warehouse each time; then one a day.
"""

import logging
from collections.abc import Callable

from storage.clock import Clock
from storage.errors import LakewardError
from storage.table.core import TableCore
from storage.table.retention.orphans import remove_orphan_files

__all__ = ["CLEAN_EVERY_S", "FIRST_CLEAN_S", "OrphanDuty"]

_LOG = logging.getLogger(__name__)

CLEAN_EVERY_S = 86_400.0
"""Between two passes over a table [s]: a pass lists the table and reads all its manifests."""

FIRST_CLEAN_S = 3_600.0
"""Before the first pass of a process [s]."""


class OrphanDuty:
    """When the tables are to be cleaned, and cleaning them.

    Args:
        age_s: gives the age of the files that may go [s]; None: nothing is removed.
        clock: time.
        stopping: asked now and then; once it says yes, a pass ends where it is.
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
        """Clean a table; a failure is logged, and the next pass tries again.

        Returns:
            How many files were removed.
        """
        age_s = self._age_s()
        if age_s is None or self._stopping():
            return 0
        limit_ms = self._clock.now_ms() - int(age_s * 1000)
        try:
            gone = remove_orphan_files(table, older_than_ms=limit_ms, on_progress=self._checked)
        except _StoppedError:
            return 0
        except (LakewardError, OSError) as error:
            _LOG.warning(
                "a table could not be cleaned, it will be tried again",
                extra={"event": "orphans_failed", "table": name},
                exc_info=error,
            )
            return 0
        if gone.paths:
            _LOG.info(
                "files that nothing names are removed",
                extra={
                    "event": "orphans_removed",
                    "table": name,
                    "files": len(gone.paths),
                    "bytes": gone.size,
                },
            )
        return len(gone.paths)

    def _checked(self, phase: str, files: int) -> None:
        del phase, files
        if self._stopping():
            raise _StoppedError


class _StoppedError(Exception):
    """The process is about to end."""
