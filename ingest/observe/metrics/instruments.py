# SPDX-License-Identifier: Apache-2.0
"""Counters, histograms and gauges of the catalogue in one registry, and its exposition.

The number of series is bounded by the number of tables with a separate label value: beyond
`TableNames.most` tables share the value `other`, and with `per_table` = false all share the empty
one. Counters and histograms of such tables are summed, gauges aggregated by their `fold`.
"""

import logging
import threading
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any

import prometheus_client
from prometheus_client import Metric as Family
from prometheus_client import exposition
from prometheus_client.core import GaugeMetricFamily, HistogramMetricFamily
from prometheus_client.registry import Collector

from ingest.observe.metrics.metric_table import PREFIX, Metric
from storage.io.counting import CALL_BUCKETS, CallFigures

_LOG = logging.getLogger(__name__)

OTHER_TABLES = "other"
"""Label value of tables beyond the limit."""

Labels = tuple[str, ...]
Values = Mapping[Labels, float]

_FOLDS: Mapping[str, Callable[[float, float], float]] = {
    "sum": lambda total, value: total + value,
    "max": max,
    "min": min,
}


class TableNames:
    """Values of the label `table`; thread-safe.

    Args:
        per_table: whether tables have separate values.
        most: maximum number of such tables, in order of appearance.
    """

    def __init__(self, *, per_table: bool = True, most: int = 500) -> None:
        self._per_table = per_table
        self._max_tables = most
        self._tables: set[str] = set()
        self._logged = False
        self._lock = threading.Lock()

    def label(self, table: str) -> str:
        """Return the label value of a table."""
        if not self._per_table or not table:
            return ""
        with self._lock:
            if table in self._tables or len(self._tables) < self._max_tables:
                self._tables.add(table)
                return table
            logged, self._logged = self._logged, True
        if not logged:
            _LOG.warning(
                "more tables than metrics.max.tables: the others share table=%r",
                OTHER_TABLES,
                extra={"event": "metrics_tables", "limit": self._max_tables, "table": table},
            )
        return OTHER_TABLES


class Instruments:
    """See the module; thread-safe.

    Args:
        tables: values of the label `table`.
        constant: labels of every series.
    """

    def __init__(
        self,
        rows: Iterable[Metric],
        tables: TableNames | None = None,
        constant: Mapping[str, str] | None = None,
    ) -> None:
        self._tables = tables or TableNames()
        self._constant = dict(constant or {})
        self._lock = threading.Lock()
        self.registry = prometheus_client.CollectorRegistry()
        self._rows = {row.name: row for row in rows}
        self._counting: dict[str, Any] = {}
        self._gauges: dict[str, dict[Labels, float]] = {}
        self._calls: dict[str, Callable[[], CallFigures]] = {}
        self._refresh: list[Callable[[], None]] = []
        for row in self._rows.values():
            if row.type == "counter":
                self._counting[row.name] = prometheus_client.Counter(
                    PREFIX + row.name, row.help, row.labels, registry=self.registry
                )
            elif row.type == "histogram" and row.buckets:
                self._counting[row.name] = prometheus_client.Histogram(
                    PREFIX + row.name,
                    row.help,
                    row.labels,
                    buckets=row.buckets,
                    registry=self.registry,
                )
            elif row.type != "histogram":
                empty = row.type == "computed" or bool(row.labels)
                self._gauges[row.name] = {} if empty else {(): 0.0}
        self.registry.register(_Gauges(self.gauge_families))
        self.registry.register(_Gauges(self.call_families))

    def add(self, name: str, amount: float, *labels: str) -> None:
        """Raise a counter."""
        self._child(name, labels).inc(amount)

    def observe(self, name: str, value: float, *labels: str) -> None:
        """Observe a value of a histogram."""
        self._child(name, labels).observe(value)

    def _child(self, name: str, labels: Labels) -> Any:
        counting = self._counting[name]
        return (
            counting.labels(*self._table_labels(self._rows[name], labels)) if labels else counting
        )

    def _table_labels(self, row: Metric, labels: Labels) -> Labels:
        if "table" not in row.labels:
            return labels
        place = row.labels.index("table")
        return (*labels[:place], self._tables.label(labels[place]), *labels[place + 1 :])

    def set(self, name: str, value: float, *labels: str) -> None:
        """Set one series of a gauge."""
        self._table_labels(self._rows[name], labels)  # tables are known in the order they are met
        with self._lock:
            self._gauges[name][labels] = value

    def get(self, name: str, *labels: str) -> float | None:
        """Return the value of a gauge as it was set."""
        with self._lock:
            return self._gauges[name].get(labels)

    def replace(self, name: str, values: Values) -> None:
        """Replace all series of a gauge."""
        for labels in sorted(values):
            self._table_labels(self._rows[name], labels)
        with self._lock:
            self._gauges[name] = dict(values)

    def before_scrape(self, refresh: Callable[[], None]) -> None:
        """Register a function that sets gauges before each scrape."""
        self._refresh.append(refresh)

    def refresh(self) -> None:
        """Call the registered functions."""
        for refresh in self._refresh:
            refresh()

    def serve_calls(self, name: str, figures: Callable[[], CallFigures]) -> None:
        """Serve a histogram with default buckets from counts of calls."""
        self._calls[name] = figures

    def gauge_families(self) -> Iterator[Family]:
        """Yield all gauges; those without values still have help and type."""
        self.refresh()
        with self._lock:
            gauges = {name: dict(values) for name, values in self._gauges.items()}
        for name, values in gauges.items():
            row = self._rows[name]
            family = GaugeMetricFamily(PREFIX + name, row.help, labels=row.labels)
            for labels, value in sorted(self._folded(row, values).items()):
                family.add_metric(labels, value)
            yield family

    def _folded(self, row: Metric, values: Values) -> Values:
        if "table" not in row.labels:
            return values
        place = row.labels.index("table")
        series: dict[Labels, float] = {}
        for labels, value in values.items():
            group = self._table_labels(row, labels)
            if group[place] == labels[place]:
                series[group] = value
            elif row.fold:
                total = series.get(group)
                series[group] = value if total is None else _FOLDS[row.fold](total, value)
        return series

    def call_families(self) -> Iterator[Family]:
        """Yield histograms of calls."""
        for name, served in self._calls.items():
            row, figures = self._rows[name], served()
            family = HistogramMetricFamily(PREFIX + name, row.help, labels=row.labels)
            for operation in sorted(figures.seconds):
                buckets, total = [], 0
                for index, bound in enumerate((*CALL_BUCKETS, float("inf"))):
                    total += figures.classes.get((operation, index), 0)
                    text = "+Inf" if bound == float("inf") else repr(bound)
                    buckets.append((text, float(total)))
                labels = (operation,) if row.labels else ()
                family.add_metric(labels, buckets, figures.seconds[operation])
            yield family

    def exposition(self, accept: str = "") -> tuple[bytes, str]:
        """Return body and content type of a scrape for an `Accept` header."""
        self.refresh()  # counters are collected before gauges, which refresh by themselves
        encoder, content_type = exposition.choose_encoder(accept)
        return encoder(_Labelled(self.registry, self._constant)), content_type


class _Gauges(Collector):
    def __init__(self, families: Callable[[], Iterator[Family]]) -> None:
        self._families = families

    def collect(self) -> Iterator[Family]:
        return self._families()

    def describe(self) -> list[Family]:
        return []


class _Labelled(prometheus_client.CollectorRegistry):
    """A registry's families with labels added to every series."""

    def __init__(
        self, inner: prometheus_client.CollectorRegistry, labels: Mapping[str, str]
    ) -> None:
        super().__init__()
        self._inner = inner
        self._labels = dict(labels)

    def collect(self) -> Iterator[Family]:
        for family in self._inner.collect():
            if self._labels:
                family.samples = [
                    item._replace(labels={**self._labels, **item.labels}) for item in family.samples
                ]
            yield family
