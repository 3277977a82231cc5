# SPDX-License-Identifier: Apache-2.0
"""The last hour of a few figures, in memory, for the small charts of the status page.

One sample every `EVERY_S`; a sample that nobody took in time is a gap, not a straight line. Memory
is bounded: about 6 kB a table, for at most `MOST_TABLES` of them. Thread-safe.
"""

import math
import threading
from array import array
from collections.abc import Mapping
from typing import Any

__all__ = ["EVERY_S", "KEPT", "MOST_TABLES", "History"]

EVERY_S = 10.0
"""Between two samples [s]."""

KEPT = 360
"""Samples kept: an hour."""

MOST_TABLES = 1000
"""Tables with a history of their own; later ones have none."""

SPARK_POINTS = 20
"""Points of the chart in a table's line."""

_UNKNOWN = math.nan


class _Ring:
    """The last `KEPT` values by number of sample; NaN = not known."""

    __slots__ = ("values",)

    def __init__(self) -> None:
        self.values = array("f", [_UNKNOWN]) * KEPT

    def put(self, number: int, value: float) -> None:
        self.values[number % KEPT] = value

    def last(self, newest: int) -> list[float]:
        """Oldest first."""
        cut = (newest + 1) % KEPT
        return [*self.values[cut:], *self.values[:cut]]


class History:
    """See the module.

    Args:
        now_s: monotonic time at which it begins [s].
    """

    def __init__(self, now_s: float) -> None:
        self._began_s = now_s
        self._newest = -1
        self._lock = threading.Lock()
        self._series: dict[str, _Ring] = {}
        self._tables: dict[str, dict[str, _Ring]] = {}

    def due(self, now_s: float) -> bool:
        """Whether it is time for a sample."""
        return self._number(now_s) > self._newest

    def add(
        self,
        now_s: float,
        values: Mapping[str, float | None],
        tables: Mapping[str, Mapping[str, float | None]],
    ) -> None:
        """Take a sample; what is not named is not known at this time.

        Args:
            now_s: monotonic time [s].
            values: by name.
            tables: by table, then by name.
        """
        number = self._number(now_s)
        with self._lock:
            rings = [*self._series.values()]
            rings += [ring for each in self._tables.values() for ring in each.values()]
            for missed in range(max(self._newest + 1, number - KEPT + 1), number + 1):
                for ring in rings:
                    ring.put(missed, _UNKNOWN)
            self._newest = max(number, self._newest)
            _put(self._series, number, values)
            for table, facts in tables.items():
                if table in self._tables or len(self._tables) < MOST_TABLES:
                    _put(self._tables.setdefault(table, {}), number, facts)

    def document(self) -> dict[str, Any]:
        """The last hour, oldest first; null = not known."""
        with self._lock:
            return self._shown(self._series)

    def of_table(self, table: str) -> dict[str, Any]:
        """The same of a table."""
        with self._lock:
            return self._shown(self._tables.get(table, {}))

    def sparks(self, name: str) -> dict[str, list[float | None]]:
        """One series of every table in `SPARK_POINTS` means, oldest first."""
        with self._lock:
            return {
                table: _means(rings[name].last(self._newest))
                for table, rings in self._tables.items()
                if name in rings
            }

    def _shown(self, series: Mapping[str, _Ring]) -> dict[str, Any]:
        count = min(KEPT, self._newest + 1)
        shown: dict[str, Any] = {"every_s": EVERY_S}
        for name, ring in series.items():
            values = ring.last(self._newest)[KEPT - count :]
            shown[name] = [None if math.isnan(each) else _short(each) for each in values]
        return shown

    def _number(self, now_s: float) -> int:
        return int((now_s - self._began_s) // EVERY_S)


def _put(series: dict[str, _Ring], number: int, values: Mapping[str, float | None]) -> None:
    for name, value in values.items():
        ring = series.get(name)
        if ring is None:
            ring = series[name] = _Ring()
        ring.put(number, _UNKNOWN if value is None else value)


def _means(values: list[float]) -> list[float | None]:
    size = len(values) // SPARK_POINTS
    means: list[float | None] = []
    for start in range(0, size * SPARK_POINTS, size):
        known = [each for each in values[start : start + size] if not math.isnan(each)]
        means.append(_short(sum(known) / len(known)) if known else None)
    return means


def _short(value: float) -> float:
    """Three digits are enough for a chart."""
    return float(f"{value:.3g}") if abs(value) < 1000 else float(round(value))
