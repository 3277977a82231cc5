# SPDX-License-Identifier: Apache-2.0
"""Share of the last minutes that was spent on some work."""

import threading
from collections import deque

from storage.clock import Clock

__all__ = ["BusyTime"]


class BusyTime:
    """Busy time of non-overlapping work; thread-safe.

    Args:
        clock: clock.
        window_s: length of the window [s].
    """

    def __init__(self, clock: Clock, window_s: float = 300.0) -> None:
        self._clock = clock
        self._window_s = window_s
        self._lock = threading.Lock()
        self._born_s = clock.monotonic_s()
        self._began_s: float | None = None
        self._spans: deque[tuple[float, float]] = deque()

    def begin(self) -> None:
        """Record the start of work."""
        with self._lock:
            self._began_s = self._clock.monotonic_s()

    def end(self) -> None:
        """Record the end of work."""
        with self._lock:
            if self._began_s is not None:
                self._spans.append((self._began_s, self._clock.monotonic_s()))
                self._began_s = None

    def ratio(self) -> float:
        """Return the busy share of the window, or of the time since the start if shorter."""
        with self._lock:
            now_s = self._clock.monotonic_s()
            since_s = max(self._born_s, now_s - self._window_s)
            while self._spans and self._spans[0][1] <= since_s:
                self._spans.popleft()
            spans = list(self._spans)
            if self._began_s is not None:
                spans.append((self._began_s, now_s))
            length = now_s - since_s
            busy = sum(end - max(begin, since_s) for begin, end in spans)
            return 0.0 if length <= 0 else min(1.0, busy / length)
