# SPDX-License-Identifier: Apache-2.0
"""The tables of the reference of metrics, generated from the catalogue.

python -m ingest.observe.metrics.metric_page [--write | --check]
"""

import sys
from pathlib import Path

from ingest.config import generated_tables
from ingest.observe.metrics.metric_table import GROUPS, PREFIX, Metric
from storage.io.call_counts import CALL_BUCKETS

PAGE = Path(__file__).resolve().parents[3] / "docs/reference/metrics.md"

_HEAD = "| metric | type | labels | unit | shared | meaning |\n|---|---|---|---|---|---|\n"


def tables() -> dict[str, str]:
    """Return the tables by section of the page."""
    return {title: _HEAD + "".join(map(_row, rows)) for title, rows in GROUPS}


def _row(row: Metric) -> str:
    labels = ", ".join(f"`{label}`" for label in row.labels)
    gauge = row.type in ("gauge", "computed")
    shared = (row.fold or "-") if gauge and "table" in row.labels else ""
    kind = "gauge" if row.type == "computed" else row.type
    if kind == "histogram":
        bounds = row.buckets or CALL_BUCKETS
        kind = f"histogram, {bounds[0]:g} to {bounds[-1]:g}"
    return f"| `{PREFIX}{row.name}` | {kind} | {labels} | {row.unit} | {shared} | {row.help} |\n"


if __name__ == "__main__":
    sys.exit(generated_tables.main(PAGE, tables()))
