# SPDX-License-Identifier: Apache-2.0
"""Lag of a stream: log offsets by poll, committed offsets by commit, age of uncommitted records.

Values of a poll must not become stale if the source, or a topic, does not answer: they are dropped
after `STALE_AFTER_S`.
"""

import dataclasses
import threading
from collections import deque
from collections.abc import Collection, Iterable, Mapping

from storage.clock import Clock

STALE_AFTER_S = 120.0
"""Age of a poll after which its series become absent [s]: eight polls at 15 s, so that a short
broker failure leaves no gap and a failing poll is not mistaken for an idle topic."""

Watermarks = Mapping[tuple[str, int], tuple[int, int]]
"""(topic, partition) -> (log start, log end)."""

_WAITING_MEMORY = 240
"""Remembered polls per partition: an hour at 15 s; longer waiting times are lower bounds."""


@dataclasses.dataclass(slots=True)
class _Partition:
    """Offsets of one partition, and the times at which its end offsets were first seen."""

    low: int = 0
    high: int = 0
    committed: int | None = None
    polled_s: float | None = None
    high_times: "deque[tuple[float, int]]" = dataclasses.field(
        default_factory=lambda: deque(maxlen=_WAITING_MEMORY)
    )

    def polled(self, now_s: float, low: int, high: int) -> None:
        self.low = low
        self.polled_s = now_s
        if not self.high_times or high > self.high:
            self.high_times.append((now_s, high))
        self.high = high
        self._forget()

    def reached(self, offset: int) -> None:
        self.committed = offset
        self._forget()

    def _forget(self) -> None:
        if self.committed is not None:
            while self.high_times and self.high_times[0][1] <= self.committed:
                self.high_times.popleft()

    @property
    def lag(self) -> int:
        return max(0, self.high - (self.low if self.committed is None else self.committed))

    def waiting_s(self, now_s: float) -> float:
        if self.lag == 0 or not self.high_times:
            return 0.0
        return max(0.0, now_s - self.high_times[0][0])

    @property
    def headroom(self) -> float:
        """1 = the next record to read is far from deletion, 0 = records are lost."""
        committed = self.low if self.committed is None else self.committed
        length = self.high - self.low
        return 1.0 if length <= 0 else min(1.0, max(0.0, (committed - self.low) / length))


class SourceWatch:
    """See the module; thread-safe.

    Args:
        clock: clock.
    """

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._lock = threading.Lock()
        self._partitions: dict[tuple[str, int], _Partition] = {}
        self._silent_since_s: dict[tuple[str, int], float] = {}
        self._ever_polled = False
        self._waits: Mapping[str, float] = {}

    def polled(
        self, watermarks: Watermarks, silent: Collection[tuple[str, int]] = frozenset()
    ) -> None:
        """Record the result of a successful poll of the source.

        Args:
            watermarks: start and end offsets of the partitions that answered.
            silent: existing partitions whose leader does not answer.
        """
        now_s = self._clock.monotonic_s()
        with self._lock:
            self._ever_polled = True
            self._silent_since_s = {key: self._last_answer_s(key, now_s) for key in silent}
            for key, (low, high) in watermarks.items():
                self._partitions.setdefault(key, _Partition()).polled(now_s, low, high)

    def _last_answer_s(self, key: tuple[str, int], now_s: float) -> float:
        """Return the last answer of a silent partition, or when it was first missed."""
        partition = self._partitions.get(key)
        if partition is not None and partition.polled_s is not None:
            return partition.polled_s
        return self._silent_since_s.get(key, now_s)

    def reached(self, offsets: Mapping[str, Mapping[str, int]]) -> None:
        """Record the next offsets to read."""
        with self._lock:
            for topic, parts in offsets.items():
                for partition, offset in parts.items():
                    key = (topic, int(partition))
                    self._partitions.setdefault(key, _Partition()).reached(int(offset))

    def set_waits(self, waits: Mapping[str, float]) -> None:
        """Set the configured delay of topics [s]; until then records are not late."""
        with self._lock:
            self._waits = dict(waits)

    @property
    def ever_polled(self) -> bool:
        """Whether any poll has succeeded."""
        return self._ever_polled

    def lag(self) -> dict[tuple[str, int], int]:
        """Return the lag in records by (topic, partition); empty without a recent poll."""
        with self._lock:
            return {key: partition.lag for key, partition in self._fresh().items()}

    def late_topics(self) -> set[str] | None:
        """Return topics with late records, or with partitions that have long been silent.

        Records within the configured delay are not late.

        Returns:
            None without a recent poll.
        """
        with self._lock:
            fresh, now_s = self._fresh(), self._clock.monotonic_s()
            if not fresh:
                return None
            late = {
                topic
                for (topic, _), part in fresh.items()
                if part.lag and (topic not in self._waits or self._late_s(topic, part, now_s))
            }
            return late | {
                topic
                for (topic, _), since_s in self._silent_since_s.items()
                if now_s - since_s >= STALE_AFTER_S
            }

    def _late_s(self, topic: str, partition: _Partition, now_s: float) -> float:
        return max(0.0, partition.waiting_s(now_s) - self._waits.get(topic, 0.0))

    def _fresh(self) -> dict[tuple[str, int], _Partition]:
        """Return partitions with a recent poll; those of deleted topics have none."""
        since_s = self._clock.monotonic_s() - STALE_AFTER_S
        return {
            key: partition
            for key, partition in self._partitions.items()
            if partition.polled_s is not None and partition.polled_s >= since_s
        }

    def values(self) -> dict[str, dict[tuple[str, ...], float]]:
        """Return values of the `source_*` gauges that depend on polls."""
        values: dict[str, dict[tuple[str, ...], float]] = {name: {} for name in _NAMES}
        now_s = self._clock.monotonic_s()
        with self._lock:
            values["source_wait_seconds"] = {(topic,): s for topic, s in self._waits.items()}
            for (topic, number), partition in self._fresh().items():
                labels = (topic, str(number))
                values["source_end_offset"][labels] = partition.high
                values["source_start_offset"][labels] = partition.low
                values["source_lag_records"][labels] = partition.lag
                values["source_retention_headroom_ratio"][labels] = partition.headroom
                waiting = values["source_lag_seconds"]
                late_s = self._late_s(topic, partition, now_s)
                waiting[(topic,)] = max(waiting.get((topic,), 0.0), late_s)
                count = values["source_partitions"]
                count[(topic,)] = count.get((topic,), 0) + 1
        return values


_NAMES: Iterable[str] = (
    "source_end_offset",
    "source_start_offset",
    "source_lag_records",
    "source_lag_seconds",
    "source_retention_headroom_ratio",
    "source_partitions",
)
