# SPDX-License-Identifier: Apache-2.0
"""Status of each table, collected from the reports of batches.

Not thread-safe: `status_board` holds its lock around every call.
"""

from collections import deque
from collections.abc import Mapping
from typing import Any

from ingest.pipeline.batch_report import BatchReport

__all__ = ["BAD_TABLES", "RATE_S", "TableFacts"]

RATE_S = 60.0
"""Rates are means over at least this period [s], or over two trigger intervals if longer."""

BAD_TABLES = 1_000
"""Maximum number of table names by which quarantined records are counted; others count as unknown.
A corrupt record can contain any name."""

_PARKED = ("reason", "by", "parked_at")


class TableFacts:
    """See the module."""

    def __init__(self) -> None:
        self._facts: dict[str, dict[str, Any]] = {}
        self._marks: dict[str, deque[tuple[float, int]]] = {}
        self._quarantine: dict[str, dict[str, int]] = {}
        self._classes: dict[str, int] = {}

    def record(self, report: BatchReport, now: str) -> None:
        """Add a batch that was completed at `now` (RFC 3339)."""
        for table, kinds in report.rows_by_table.items():
            self._of(table)["rows"] += sum(kinds.values())
        for table, snapshot_id in report.snapshots.items():
            self._of(table).update(snapshot_id=snapshot_id, committed_at=now)
        for table, count in report.changelog_rows.items():
            if count:
                self._of(table)["changelog"] = {
                    "rows": count,
                    "snapshot_id": report.snapshots.get(table),
                    "at": now,
                }
        for table, runs in report.sorted_runs.items():
            self._of(table)["sorted_runs_max"] = runs
        for table, done in report.compactions.items():
            if done:
                facts = self._of(table)
                facts["compactions"] = facts.get("compactions", 0) + done
                facts["compacted_at"] = now
        self._record_bad(report)

    def _record_bad(self, report: BatchReport) -> None:
        for table, classes in report.bad_by_table.items():
            known = table in self._quarantine or len(self._quarantine) < BAD_TABLES
            into = self._quarantine.setdefault(table if known else "", {})
            for name, count in classes.items():
                into[name] = into.get(name, 0) + count
                self._classes[name] = self._classes.get(name, 0) + count

    def set_states(self, states: Mapping[str, Mapping[str, Any]]) -> None:
        """Set the states of tables."""
        for table, state in states.items():
            facts = self._of(table)
            for name in _PARKED:
                facts.pop(name, None)
            facts.update(state)

    def mark(self, now_s: float, over_s: float) -> dict[str, float]:
        """Return rows per second of each table over the last `over_s` [s]; call it periodically."""
        rates: dict[str, float] = {}
        for table, facts in self._facts.items():
            marks = self._marks.setdefault(table, deque(maxlen=400))
            marks.append((now_s, facts["rows"]))
            while len(marks) > 2 and marks[1][0] <= now_s - over_s:
                marks.popleft()
            took_s = now_s - marks[0][0]
            rates[table] = (facts["rows"] - marks[0][1]) / took_s if took_s > 0 else 0.0
            facts["rows_per_s"] = round(rates[table], 2)
        return rates

    def parked(self) -> set[str]:
        """Return parked tables: their freshness is not that of the stream."""
        return {name for name, facts in self._facts.items() if facts.get("state") == "parked"}

    def document(self) -> dict[str, dict[str, Any]]:
        """Return all tables."""
        return {table: dict(facts) for table, facts in self._facts.items()}

    def quarantine(self) -> dict[str, Any]:
        """Return counts of quarantined records since the start of the process."""
        return {
            "records": sum(self._classes.values()),
            "by_class": dict(self._classes),
            "by_table": {table: dict(classes) for table, classes in self._quarantine.items()},
        }

    def _of(self, table: str) -> dict[str, Any]:
        return self._facts.setdefault(table, {"rows": 0})
