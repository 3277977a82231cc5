# SPDX-License-Identifier: Apache-2.0
"""The bounded document of `/api/status`, from status board and metrics. See status-api.md."""

import sys
from collections.abc import Mapping
from typing import Any

from ingest.observe.metrics.layout_figures import TableLayout
from ingest.observe.metrics.telemetry import Metrics
from ingest.observe.status.status_board import StatusBoard

__all__ = ["MAX_TABLES", "status_document", "table_document"]

MAX_TABLES = 2000
"""Maximum number of tables in the document; parked and busy ones come first."""


def status_document(
    board: StatusBoard, metrics: Metrics, more: Mapping[str, Any], *, most: int = MAX_TABLES
) -> dict[str, Any]:
    """Return the document.

    Args:
        board: status of the daemon.
        metrics: freshness and lag.
        more: further fields.
        most: maximum number of tables.
    """
    document = board.document()
    tables: dict[str, dict[str, Any]] = document["tables"]
    freshness = metrics.freshness_s()
    for table, seconds in freshness.items():
        tables.setdefault(table, {})["freshness_s"] = round(seconds, 3)
    for table, layout in metrics.layouts().items():
        tables.setdefault(table, {})["layout"] = _layout(layout)
    flowing = [s for name, s in freshness.items() if tables[name].get("state") != "parked"]
    lags = metrics.lag()
    for (topic, partition), lag in lags.items():
        parts = document["source"].setdefault(topic, {})
        parts.setdefault(str(partition), {})["lag"] = lag
    history = board.history.document()
    document["summary"] = {
        "lag_records": sum(lags.values()) if lags else None,
        "freshness_s": round(max(flowing), 3) if flowing else None,
        "records_per_s": _last(history.get("records_per_s")),
        "rows_per_s": _last(history.get("rows_per_s")),
        "tables": len(tables),
        "parked": sum(facts.get("state") == "parked" for facts in tables.values()),
    }
    document["history"] = history
    for table, values in board.history.sparks("rows_per_s").items():
        if table in tables:
            tables[table]["spark"] = values
    document["tables_left_out"] = max(0, len(tables) - most)
    if len(tables) > most:
        document["tables"] = dict(sorted(tables.items(), key=_first)[:most])
    return {**document, **more}


def table_document(board: StatusBoard, metrics: Metrics, table: str) -> dict[str, Any] | None:
    """Return the status of one table; None = unknown table."""
    document = status_document(board, metrics, {}, most=sys.maxsize)
    facts = document["tables"].get(table)
    if facts is None:
        return None
    changes = [change for change in document["schema_changes"] if change["table"] == table]
    return {
        "api": document["api"],
        "pipeline": document["pipeline"],
        "now": document["now"],
        "table": table,
        **{name: value for name, value in facts.items() if name != "spark"},
        "history": board.history.of_table(table),
        "quarantine": document["quarantine"]["by_table"].get(table, {}),
        "schema_changes": changes,
    }


def _layout(layout: TableLayout) -> dict[str, Any]:
    return {
        "snapshot_id": layout.snapshot_id,
        "files": layout.files,
        "bytes": layout.bytes,
        "records": layout.records,
        "buckets": layout.buckets,
        "partitions": layout.partitions,
        "levels": [
            {"level": level, "files": files, "bytes": size} for level, files, size in layout.levels
        ],
        "runs_max": max(layout.runs, default=None),
        "runs_compact": layout.compaction_trigger,
        "runs_stop": layout.stop_trigger,
        "debt_bytes": layout.debt_bytes,
        "snapshots": layout.snapshots,
    }


def _first(entry: tuple[str, Mapping[str, Any]]) -> tuple[bool, float, str]:
    name, facts = entry
    calm = facts.get("state", "running") == "running"
    return calm, -float(facts.get("rows_per_s") or 0.0), name


def _last(values: list[float | None] | None) -> float | None:
    return values[-1] if values else None
