# SPDX-License-Identifier: Apache-2.0
"""Rate limit of repeated warnings: a maximum per minute, and the number of suppressed lines.

Two lines are the same if their logger, level, event (or message) and table (or topic) are. The
number of suppressed lines is logged with the first line of any kind after the minute.
"""

import dataclasses
import logging
import time
from collections.abc import Callable
from typing import TextIO

DEFAULT_REPEATS = 10
"""Maximum number of the same warning per minute."""

_WINDOW_S = 60.0
_MOST_KEYS = 10_000

_Key = tuple[str, int, str, str]


@dataclasses.dataclass(slots=True)
class _Window:
    began_s: float
    count: int = 0
    left_out: int = 0


class SamplingHandler(logging.StreamHandler[TextIO]):
    """See the module.

    Args:
        stream: where lines go.
        repeats: maximum number of the same warning per minute; 0 = no limit.
        now_s: monotonic clock [s].
    """

    def __init__(
        self,
        stream: TextIO,
        repeats: int = DEFAULT_REPEATS,
        now_s: Callable[[], float] = time.monotonic,
    ) -> None:
        super().__init__(stream)
        self.repeats = repeats
        self._now_s = now_s
        self._windows: dict[_Key, _Window] = {}
        self._looked_s = now_s()

    def emit(self, record: logging.LogRecord) -> None:
        """See `logging.Handler`; holds the handler's lock."""
        now_s = self._now_s()
        self._tell(now_s)
        if self._passes(record, now_s):
            super().emit(record)

    def _passes(self, record: logging.LogRecord, now_s: float) -> bool:
        sampled = logging.WARNING <= record.levelno < logging.CRITICAL
        if not self.repeats or not sampled:
            return True
        facts = vars(record)
        event = str(facts.get("event") or record.msg)
        subject = str(facts.get("table") or facts.get("topic") or "")
        key = (record.name, record.levelno, event, subject)
        window = self._windows.setdefault(key, _Window(now_s))
        window.count += 1
        if window.count <= self.repeats:
            return True
        window.left_out += 1
        return False

    def _tell(self, now_s: float) -> None:
        """Log the number of suppressed lines of windows that have passed."""
        if now_s - self._looked_s < 1.0 and len(self._windows) < _MOST_KEYS:
            return
        self._looked_s = now_s
        full = len(self._windows) >= _MOST_KEYS
        expired = [k for k, w in self._windows.items() if full or now_s - w.began_s >= _WINDOW_S]
        for key in expired:
            window = self._windows.pop(key)
            if window.left_out:
                super().emit(_summary(key, window.left_out))


def _summary(key: _Key, count: int) -> logging.LogRecord:
    name, level, event, subject = key
    record = logging.LogRecord(
        name, level, __file__, 0, "the same line was left out %d times", (count,), None
    )
    vars(record).update({"event": "left_out", "of": event, "count": count})
    if subject:
        vars(record)["about"] = subject
    return record
