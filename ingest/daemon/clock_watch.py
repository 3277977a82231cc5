# SPDX-License-Identifier: Apache-2.0
"""Sees that the machine's calendar clock was set back.

Spark's trigger waits until the calendar shows a time. After the clock went back two hours it would
wait for two hours, so the query has to be started anew.
"""

from storage.clock import Clock

__all__ = ["SetBackClock"]

_LEAST_S = 5.0
"""Less is how time services correct a clock, and a trigger that comes so late hurts nobody [s]."""


class SetBackClock:
    """Compares the calendar with the monotonic clock from one look to the next.

    Args:
        clock: has both.
    """

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._ahead_s = self._look()

    def went_back(self) -> float:
        """By how much the calendar clock went back since the reference, at least 5 s [s]; 0 = not.

        The reference is where it stood furthest ahead since the last answer other than 0, so that
        many small steps count, too.
        """
        ahead_s = self._look()
        back_s = self._ahead_s - ahead_s
        if back_s >= _LEAST_S:
            self._ahead_s = ahead_s
            return back_s
        self._ahead_s = max(self._ahead_s, ahead_s)
        return 0.0

    def _look(self) -> float:
        return self._clock.now_ms() / 1000 - self._clock.monotonic_s()
