# SPDX-License-Identifier: Apache-2.0
"""A cache of the least recently used values, bounded by their weight and by the time without use.

For what a process decodes from immutable files: manifests, groupings of index files.
"""

import collections
import dataclasses
import threading
from collections.abc import Callable, Hashable
from typing import Generic, TypeVar

from storage.clock import Clock, SystemClock

_Key = TypeVar("_Key", bound=Hashable)
_Value = TypeVar("_Value")


@dataclasses.dataclass(frozen=True, slots=True)
class _Entry(Generic[_Value]):
    value: _Value
    weight: int
    used_s: float
    """Last use [monotonic s]."""


class LruCache(Generic[_Key, _Value]):
    """Values in the order of their last use. Thread-safe.

    Args:
        limit: most that the values may weigh together.
        weigh: weight of a value; 1 each unless given.
        unused_s: values that were not read for this time are dropped at the next `put` [s].
        clock: time.
    """

    def __init__(
        self,
        limit: int,
        *,
        weigh: Callable[[_Value], int] = lambda _: 1,
        unused_s: float = float("inf"),
        clock: Clock | None = None,
    ) -> None:
        self._limit = limit
        self._weigh = weigh
        self._unused_s = unused_s
        self._clock = clock or SystemClock()
        self._values: collections.OrderedDict[_Key, _Entry[_Value]] = collections.OrderedDict()
        self._lock = threading.Lock()
        self.weight = 0
        """What all values weigh together."""

    def get(self, key: _Key) -> _Value | None:
        """The value of a key, marked as used now; None when there is none."""
        with self._lock:
            entry = self._values.pop(key, None)
            if entry is None:
                return None
            used_s = self._clock.monotonic_s()
            self._values[key] = _Entry(entry.value, entry.weight, used_s)
            return entry.value

    def __contains__(self, key: _Key) -> bool:
        with self._lock:
            return key in self._values

    def __len__(self) -> int:
        with self._lock:
            return len(self._values)

    def put(self, key: _Key, value: _Value) -> None:
        """Hold a value, and drop what was not used for the longest time."""
        weight, now_s = self._weigh(value), self._clock.monotonic_s()
        with self._lock:
            if (before := self._values.pop(key, None)) is not None:
                self.weight -= before.weight
            self._values[key] = _Entry(value, weight, now_s)
            self.weight += weight
            while self._values:
                oldest = next(iter(self._values.values()))
                if self.weight <= self._limit and oldest.used_s >= now_s - self._unused_s:
                    break
                self._values.popitem(last=False)
                self.weight -= oldest.weight

    def clear(self) -> None:
        """Drop everything."""
        with self._lock:
            self._values.clear()
            self.weight = 0
