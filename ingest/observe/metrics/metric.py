# SPDX-License-Identifier: Apache-2.0
"""The type of a metric's declaration, and shared label values and buckets."""

import dataclasses

__all__ = [
    "DELAY_BUCKETS",
    "PREFIX",
    "RECORD_BUCKETS",
    "SECONDS_BUCKETS",
    "STATES",
    "TABLE_STATES",
    "Metric",
]

PREFIX = "lakeward_"

STATES = ("starting", "running", "paused", "idle", "draining", "failed")
"""Values of `lakeward_state`; exactly one is 1."""

TABLE_STATES = ("running", "parked", "behind")
"""Values of `lakeward_table_state`; `behind` is a resumed table that is catching up."""

SECONDS_BUCKETS = (0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30, 60, 120, 300, 600)
"""Upper bounds of durations in a batch [s]."""

DELAY_BUCKETS = (1, 2, 5, 10, 30, 60, 120, 300, 900, 3600, 14400)
"""Upper bounds of the delay from a change in the source to its commit [s]."""

RECORD_BUCKETS = (1, 10, 100, 1_000, 10_000, 100_000, 1_000_000, 10_000_000)


@dataclasses.dataclass(frozen=True, slots=True)
class Metric:
    """Declaration of a metric.

    Attributes:
        name: name without prefix; that of a counter ends in `_total`.
        type: `counter`, `gauge`, `histogram`, or `computed`: a gauge that is absent while its value
            is unknown. A histogram without buckets has those of `storage.io.call_counts`.
        help: one or two sentences.
        labels: label names.
        buckets: upper bounds of a histogram.
        unit: unit of the value; a base unit if possible.
        fold: aggregation of a gauge over tables that share a label value: `sum`, `max` or `min`;
            empty: omitted.
    """

    name: str
    type: str
    help: str
    labels: tuple[str, ...] = ()
    buckets: tuple[float, ...] = ()
    unit: str = "count"
    fold: str = ""
