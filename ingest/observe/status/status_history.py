# SPDX-License-Identifier: Apache-2.0
"""In-memory history of the last hour, for the charts of the status page.

One sample every `EVERY_S`; a missed sample is a gap. Memory is bounded: about 6 kB per table, for
at most `MAX_TABLES` tables. Thread-safe.
"""

import math
import threading
from array import array
from collections.abc import Mapping
from typing import Any

__all__ = ["EVERY_S", "KEPT", "MAX_TABLES", "History"]

EVERY_S = 10.0
"""Interval of samples [s]."""

KEPT = 360
"""Number of samples: an hour."""

MAX_TABLES = 1000
"""Maximum number of tables with a history."""

SPARK_POINTS = 20
"""Points of the chart in the row of a table."""

_UNKNOWN = math.nan


class _Ring:
    """The last `KEPT` values by sample number; NaN = unknown."""

    __slots__ = ("values",)

    def __init__(self) -> None:
        self.values = array("f", [_UNKNOWN]) * KEPT

    def put(self, number: int, value: float) -> None:
        self.values[number % KEPT] = value

    def last(self, newest: int) -> list[float]:
        """Return the values, oldest first."""
        oldest = (newest + 1) % KEPT
        return [*self.values[oldest:], *self.values[:oldest]]


class History:
    """See the module.

    Args:
        now_s: monotonic start time [s].
    """

    def __init__(self, now_s: float) -> None:
        self._began_s = now_s
        self._newest = -1
        self._lock = threading.Lock()
        self._series: dict[str, _Ring] = {}
        self._tables: dict[str, dict[str, _Ring]] = {}

    def due(self, now_s: float) -> bool:
        """Return whether the next sample is due."""
        return self._number(now_s) > self._newest

    def add(
        self,
        now_s: float,
        values: Mapping[str, float | None],
        tables: Mapping[str, Mapping[str, float | None]],
    ) -> None:
        """Add a sample; series that are not in it are unknown at this time.

        Args:
            now_s: monotonic time [s].
            values: values by name.
            tables: values by table and name.
        """
        number = self._number(now_s)
        with self._lock:
            rings = [*self._series.values()]
            rings += [ring for series in self._tables.values() for ring in series.values()]
            for missed in range(max(self._newest + 1, number - KEPT + 1), number + 1):
                for ring in rings:
                    ring.put(missed, _UNKNOWN)
            self._newest = max(number, self._newest)
            _put(self._series, number, values)
            for table, facts in tables.items():
                if table in self._tables or len(self._tables) < MAX_TABLES:
                    _put(self._tables.setdefault(table, {}), number, facts)

    def document(self) -> dict[str, Any]:
        """Return the last hour, oldest first; null = unknown."""
        with self._lock:
            return self._shown(self._series)

    def of_table(self, table: str) -> dict[str, Any]:
        """Return the last hour of a table."""
        with self._lock:
            return self._shown(self._tables.get(table, {}))

    def sparks(self, name: str) -> dict[str, list[float | None]]:
        """Return one series of every table as `SPARK_POINTS` means, oldest first."""
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
            shown[name] = [None if math.isnan(value) else _short(value) for value in values]
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
        known = [value for value in values[start : start + size] if not math.isnan(value)]
        means.append(_short(sum(known) / len(known)) if known else None)
    return means


def _short(value: float) -> float:
    """Round to three digits, which is enough for a chart."""
    return float(f"{value:.3g}") if abs(value) < 1000 else float(round(value))
