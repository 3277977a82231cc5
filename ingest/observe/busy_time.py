# SPDX-License-Identifier: Apache-2.0
"""Which share of the last minutes was spent on something that begins and ends."""

import threading
from collections import deque

from storage.clock import Clock

__all__ = ["BusyTime"]


class BusyTime:
    """Begins and ends of work, one piece at a time; thread-safe.

    Args:
        clock: time.
        window_s: what "the last minutes" are [s].
    """

    def __init__(self, clock: Clock, window_s: float = 300.0) -> None:
        self._clock = clock
        self._window_s = window_s
        self._lock = threading.Lock()
        self._born_s = clock.monotonic_s()
        self._began_s: float | None = None
        self._spans: deque[tuple[float, float]] = deque()

    def begin(self) -> None:
        """Work begins."""
        with self._lock:
            self._began_s = self._clock.monotonic_s()

    def end(self) -> None:
        """It is over."""
        with self._lock:
            if self._began_s is not None:
                self._spans.append((self._began_s, self._clock.monotonic_s()))
                self._began_s = None

    def ratio(self) -> float:
        """From 0 to 1; of the time since the beginning while that is shorter."""
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
