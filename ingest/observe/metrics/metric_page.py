# SPDX-License-Identifier: Apache-2.0
"""Generate the reference page of metrics; `--check` compares it with the file."""

import argparse
import sys
from collections.abc import Iterable
from pathlib import Path

from ingest.observe.metrics.metric import PREFIX, Metric
from ingest.observe.metrics.metric_table import GROUPS, METRICS
from storage.io.call_counts import CALL_BUCKETS

__all__ = ["PAGE", "page"]

PAGE = Path(__file__).resolve().parents[3] / "docs/reference/metrics.md"

_HEAD = """# Metrics

Generated from the catalogue in `ingest/observe/metrics/metric_table.py` by `make docs`.

`http://HOST:9108/metrics` serves {count} metrics of Lakeward, all with the prefix `{prefix}`, and
those of the Python process (`process_*`, `python_gc_*`). Alert rules:
[alerts/lakeward.yaml](../../deploy/alerts/lakeward.yaml), with their
[runbook](../operations/runbook.md); dashboards: [dashboards/](../../deploy/dashboards).

- **Counters count committed work.** Only the driver serves metrics: tasks return theirs with their
  results, and they are added when the batch is committed. A retried task counts once, a replayed
  batch not at all. Counters start at 0 with every start of the process: use `rate` and `increase`.
- **Unknown values are absent**, never stale: offsets, lag and headroom if the last poll of the
  source is older than 120 s; freshness of parked tables; metrics of a JVM that has not started.
- **The number of series is bounded.** `topic` and `partition` are labels of offsets only; no label
  contains a bucket, key, offset, file or error text. A table has about 80 series.
  `metrics.max.tables` (500) tables have their own; the others share `table="other"`, which is
  logged once. With `metrics.per.table: false` all tables share the empty name. Counters and
  histograms of tables with a shared name are summed, gauges are aggregated as the column *shared*
  says; `-` = omitted.
- `metrics.labels` adds labels to every series. `table` is `database.table`; `{prefix}build_info`
  and `{prefix}config_info` are for joins and always 1.
"""


def page() -> str:
    """Return the page."""
    parts = [_HEAD.format(count=len(METRICS), prefix=PREFIX)]
    for title, rows in GROUPS:
        parts.append(f"\n## {title}\n\n" + "".join(_table(rows)))
    return "".join(parts)


def _table(rows: Iterable[Metric]) -> Iterable[str]:
    yield "| metric | type | labels | unit | shared | meaning |\n|---|---|---|---|---|---|\n"
    for row in rows:
        labels = ", ".join(f"`{label}`" for label in row.labels)
        shared = (row.fold or "-") if _shared(row) else ""
        kind = "gauge" if row.type == "computed" else row.type
        if kind == "histogram":
            bounds = row.buckets or CALL_BUCKETS
            kind = f"histogram, {bounds[0]:g} to {bounds[-1]:g}"
        text = row.help.replace("|", "\\|")
        yield f"| `{PREFIX}{row.name}` | {kind} | {labels} | {row.unit} | {shared} | {text} |\n"


def _shared(row: Metric) -> bool:
    return "table" in row.labels and row.type in ("gauge", "computed")


def main() -> int:
    """See the module."""
    parser = argparse.ArgumentParser(description=__doc__)
    what = parser.add_mutually_exclusive_group(required=True)
    what.add_argument("--write", action="store_true")
    what.add_argument("--check", action="store_true")
    if parser.parse_args().write:
        PAGE.write_text(page(), encoding="utf-8")
        return 0
    if PAGE.read_text(encoding="utf-8") == page():
        return 0
    sys.stderr.write(f"{PAGE.name} is not as generated: run `make docs`\n")
    return 1


if __name__ == "__main__":
    sys.exit(main())
