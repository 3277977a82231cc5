# SPDX-License-Identifier: Apache-2.0
"""Figures of calls to a service: how many, how they ended, how long they took, what they moved.

A process counts its calls in one `CallCounts`; what a task did is the difference of two copies.
"""

import bisect
import dataclasses
import threading
from collections import Counter
from collections.abc import Callable, Mapping
from typing import Any, TypeVar

_K = TypeVar("_K")
_N = TypeVar("_N", int, float)

CALL_BUCKETS = (0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0)
"""Upper bounds of the classes of durations [s]; there is one more, without a bound."""


@dataclasses.dataclass(frozen=True, slots=True)
class CallFigures:
    """A state of a count; picklable.

    Attributes:
        calls: by (operation, outcome).
        seconds: by operation [s].
        sizes: bytes moved by operation.
        classes: calls by (operation, class of duration): the number of the first bucket that they
            fit into.
    """

    calls: Mapping[tuple[str, str], int] = dataclasses.field(default_factory=dict)
    seconds: Mapping[str, float] = dataclasses.field(default_factory=dict)
    sizes: Mapping[str, int] = dataclasses.field(default_factory=dict)
    classes: Mapping[tuple[str, int], int] = dataclasses.field(default_factory=dict)

    def plus(self, other: "CallFigures") -> "CallFigures":
        """Both together."""
        return self._with(other, _sum)

    def since(self, before: "CallFigures") -> "CallFigures":
        """The increase since an earlier state of the same count."""
        return self._with(before, _difference)

    def _with(self, other: "CallFigures", join: Callable[[Any, Any], Any]) -> "CallFigures":
        names = [field.name for field in dataclasses.fields(self)]
        return CallFigures(*(join(getattr(self, name), getattr(other, name)) for name in names))


class CallCounts:
    """Counts calls; thread-safe."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._calls: Counter[tuple[str, str]] = Counter()
        self._seconds: dict[str, float] = {}
        self._sizes: Counter[str] = Counter()
        self._classes: Counter[tuple[str, int]] = Counter()

    def add(self, operation: str, outcome: str, seconds: float, size: int = 0) -> None:
        """Count one call."""
        with self._lock:
            self._calls[(operation, outcome)] += 1
            self._seconds[operation] = self._seconds.get(operation, 0.0) + seconds
            self._classes[(operation, bisect.bisect_left(CALL_BUCKETS, seconds))] += 1
            if size:
                self._sizes[operation] += size

    def figures(self) -> CallFigures:
        """A copy of the state."""
        with self._lock:
            return CallFigures(
                dict(self._calls), dict(self._seconds), dict(self._sizes), dict(self._classes)
            )


def _sum(counts: Mapping[_K, _N], other_counts: Mapping[_K, _N]) -> dict[_K, _N]:
    totals = dict(counts)
    for key, value in other_counts.items():
        totals[key] = totals[key] + value if key in totals else value
    return totals


def _difference(counts: Mapping[_K, _N], other_counts: Mapping[_K, _N]) -> dict[_K, _N]:
    differences: dict[_K, _N] = {}
    for key, value in counts.items():
        difference = value - other_counts[key] if key in other_counts else value
        if difference:
            differences[key] = difference
    return differences
