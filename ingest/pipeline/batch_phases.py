# SPDX-License-Identifier: Apache-2.0
"""How long the phases of a batch take."""

from storage.clock import Clock

__all__ = ["Phases"]


class Phases:
    """Wall seconds between calls."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._last = clock.monotonic_s()
        self.seconds: dict[str, float] = {}

    def end(self, name: str) -> None:
        """A phase is over."""
        now = self._clock.monotonic_s()
        self.seconds[name] = now - self._last
        self._last = now
