# SPDX-License-Identifier: Apache-2.0
"""The only place that reads wall time, sleeps, or makes identities.

Everything above takes a `Clock` and an `IdSource` as arguments, so that a failing history can be
replayed from its seed.
"""

import datetime
import random
import threading
import time
import uuid
from typing import Protocol


def epoch_of_local_ms(local_wall_ms: int) -> int:
    """The moment at which the machine's wall clock showed a time of `Clock.local_wall_ms` [ms]."""
    whole, rest = divmod(local_wall_ms, 1000)
    local = datetime.datetime(1970, 1, 1) + datetime.timedelta(seconds=whole)  # noqa: DTZ001
    return int(local.timestamp()) * 1000 + rest


def local_of_epoch_ms(epoch_ms: int) -> int:
    """What the machine's wall clock showed at a moment, read as if it were UTC [ms]."""
    whole, rest = divmod(epoch_ms, 1000)
    local = datetime.datetime.fromtimestamp(whole)  # noqa: DTZ006 - the naive local time
    epoch = datetime.datetime(1970, 1, 1)  # noqa: DTZ001
    return (local - epoch) // datetime.timedelta(milliseconds=1) + rest


class Clock(Protocol):
    """Source of time."""

    def now_ms(self) -> int:
        """Milliseconds since the epoch, UTC [ms]."""

    def local_wall_ms(self) -> int:
        """The local wall clock read as if it were UTC [ms].

        Paimon stores a file's creation time this way (FORMAT.md §4.4, `_CREATION_TIME`).
        """

    def monotonic_s(self) -> float:
        """A clock that never goes back, for measuring durations [s]."""

    def sleep(self, seconds: float) -> None:
        """Wait [s]."""


class IdSource(Protocol):
    """Source of unique names."""

    def uuid(self) -> str:
        """A new UUID in its usual text form."""


class SystemClock:
    """The machine's clock."""

    def now_ms(self) -> int:
        """See `Clock`."""
        return time.time_ns() // 1_000_000

    def local_wall_ms(self) -> int:
        """See `Clock`."""
        local = datetime.datetime.now()  # noqa: DTZ005 - the format wants the naive local time
        epoch = datetime.datetime(1970, 1, 1)  # noqa: DTZ001
        return (local - epoch) // datetime.timedelta(milliseconds=1)

    def monotonic_s(self) -> float:
        """See `Clock`."""
        return time.monotonic()

    def sleep(self, seconds: float) -> None:
        """See `Clock`."""
        time.sleep(seconds)


class ManualClock:
    """A clock that moves only on request; for tests and simulations."""

    def __init__(self, now_ms: int = 1_700_000_000_000) -> None:
        self._now_ms = now_ms

    def now_ms(self) -> int:
        """See `Clock`."""
        return self._now_ms

    def local_wall_ms(self) -> int:
        """See `Clock`."""
        return self._now_ms

    def monotonic_s(self) -> float:
        """See `Clock`."""
        return self._now_ms / 1000

    def sleep(self, seconds: float) -> None:
        """Advance instead of waiting."""
        self.advance(int(seconds * 1000))

    def advance(self, milliseconds: int) -> None:
        """Move the clock forward [ms]."""
        self._now_ms += milliseconds


class RandomIds:
    """UUIDs from the operating system."""

    def uuid(self) -> str:
        """See `IdSource`."""
        return str(uuid.uuid4())


class SeededIds:
    """UUIDs from a seed: the same seed gives the same names in the same order."""

    def __init__(self, seed: int) -> None:
        self._random = random.Random(seed)
        self._lock = threading.Lock()

    def uuid(self) -> str:
        """See `IdSource`."""
        with self._lock:
            return str(uuid.UUID(int=self._random.getrandbits(128), version=4))
