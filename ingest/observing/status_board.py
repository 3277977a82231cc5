# SPDX-License-Identifier: Apache-2.0
"""What the daemon says about itself: state, readiness conditions, last batch, tables, offsets.

The daemon's threads write, the HTTP threads read; every method takes one lock and returns copies.
"""

import datetime
import threading
from collections import deque
from collections.abc import Mapping
from typing import Any

from ingest.microbatch.batch_report import BatchReport
from ingest.observing.metric_table import STATES
from ingest.observing.telemetry import version_of
from storage.clock import Clock, SystemClock
from storage.errors import InternalError

__all__ = ["CONDITIONS", "StatusBoard"]

CONDITIONS = ("configuration", "owner", "session", "source", "last_batch")
"""Readiness conditions; all but `last_batch` are false until the daemon says otherwise."""

_HEARTBEAT_S = 600.0
_HEARTBEAT_BATCHES = 10.0
_REMEMBERED_BATCHES = 100
_REMEMBERED_ERRORS = 10


class StatusBoard:
    """See the module.

    Args:
        pipeline: the pipeline's name.
        clock: time.
    """

    def __init__(self, pipeline: str, clock: Clock | None = None) -> None:
        self._clock = clock or SystemClock()
        self._pipeline = pipeline
        self._lock = threading.Lock()
        self._state = "starting"
        self._started_s = self._clock.monotonic_s()
        self._beat_s = self._started_s
        self._conditions: dict[str, tuple[bool, str]] = {
            name: (False, f"{name} is not ready yet") for name in CONDITIONS
        }
        self._conditions["last_batch"] = (True, "")
        self._durations: deque[float] = deque(maxlen=_REMEMBERED_BATCHES)
        self._errors: deque[dict[str, Any]] = deque(maxlen=_REMEMBERED_ERRORS)
        self._batch: dict[str, Any] = {"in_progress": False, "done": 0, "last": None}
        self._tables: dict[str, dict[str, Any]] = {}
        self._offsets: dict[str, dict[str, int]] = {}
        self._facts: dict[str, Any] = {}

    def set_state(self, state: str) -> None:
        """Enter a state of `metric_table.STATES`.

        Raises:
            InternalError: there is no such state.
        """
        if state not in STATES:
            raise InternalError("no such state", state=state)
        with self._lock:
            self._state = state

    def set_condition(self, name: str, ok: bool, reason: str = "") -> None:
        """Say whether a readiness condition holds, and why not."""
        with self._lock:
            self._conditions[name] = (ok, reason)

    def set_fact(self, name: str, value: object) -> None:
        """Show one more thing under `facts`, such as the warehouse or the epoch."""
        with self._lock:
            self._facts[name] = value

    def beat(self) -> None:
        """The main loop is alive."""
        with self._lock:
            self._beat_s = self._clock.monotonic_s()

    def batch_started(self, batch_id: int) -> None:
        """A micro-batch began."""
        with self._lock:
            self._batch |= {"in_progress": True, "current": batch_id}

    def record(self, report: BatchReport) -> None:
        """A micro-batch ended well."""
        with self._lock:
            self._durations.append(report.duration_s)
            self._conditions["last_batch"] = (True, "")
            self._batch = {
                "in_progress": False,
                "done": self._batch["done"] + 1,
                "last": {
                    "batch_id": report.batch_id,
                    "identifier": report.identifier,
                    "outcome": report.outcome,
                    "events": report.events,
                    "bad_records": report.bad_records,
                    "duration_s": round(report.duration_s, 3),
                    "phases": {name: round(s, 3) for name, s in report.phases.items()},
                    "ended_at": self._now(),
                },
            }
            for topic, offsets in report.end_offsets.items():
                self._offsets.setdefault(topic, {}).update(offsets)
            self._record_tables(report)

    def _record_tables(self, report: BatchReport) -> None:
        for table, kinds in report.rows_by_table.items():
            facts = self._tables.setdefault(table, {"rows": 0})
            facts["rows"] = facts.get("rows", 0) + sum(kinds.values())
        for table, snapshot_id in report.snapshots.items():
            facts = self._tables.setdefault(table, {"rows": 0})
            facts["snapshot_id"] = snapshot_id
            facts["committed_at"] = self._now()
        for table, rows in report.swept.items():
            self._tables.setdefault(table, {"rows": 0})["last_sweep"] = {"rows": rows}
        for table, reason in report.unswept.items():
            self._tables.setdefault(table, {"rows": 0})["last_sweep"] = {"called_off": reason}
        for table, runs in report.sorted_runs.items():
            self._tables.setdefault(table, {"rows": 0})["sorted_runs_max"] = runs

    def set_table_states(self, states: Mapping[str, Mapping[str, Any]]) -> None:
        """Say what becomes of the events of tables: `state`, and of a parked one why."""
        with self._lock:
            for table, state in states.items():
                facts = self._tables.setdefault(table, {"rows": 0})
                for name in ("reason", "by", "parked_at"):
                    facts.pop(name, None)
                facts.update(state)

    def failed(self, error: BaseException) -> None:
        """Remember an error; the next good batch makes the pipeline ready again."""
        with self._lock:
            message = str(error).split("\n", maxsplit=1)[0]
            self._batch["in_progress"] = False
            self._conditions["last_batch"] = (False, f"the last batch failed: {message}")
            self._errors.append(
                {"at": self._now(), "type": type(error).__name__, "message": message}
            )

    def health(self) -> tuple[bool, dict[str, Any]]:
        """Whether a restart would not help, and why."""
        with self._lock:
            limit = max(_HEARTBEAT_S, _HEARTBEAT_BATCHES * max(self._durations, default=0.0))
            age = self._clock.monotonic_s() - self._beat_s
            healthy = age <= limit
            document: dict[str, Any] = {
                "healthy": healthy,
                "heartbeat_age_s": round(age, 1),
                "limit_s": limit,
            }
            if not healthy:
                document["reason"] = "the main loop has stopped"
            return healthy, document

    def readiness(self) -> tuple[bool, dict[str, Any]]:
        """Whether the pipeline does its work, and every condition with its reason."""
        with self._lock:
            reasons = [reason for ok, reason in self._conditions.values() if not ok]
            if self._state in ("starting", "failed"):
                reasons.append(f"the daemon is {self._state}")
            document = {
                "ready": not reasons,
                "state": self._state,
                "reasons": reasons,
                "conditions": self._condition_facts(),
            }
            return not reasons, document

    def _condition_facts(self) -> dict[str, dict[str, Any]]:
        return {
            name: {"ok": ok, "reason": reason} for name, (ok, reason) in self._conditions.items()
        }

    def document(self) -> dict[str, Any]:
        """Everything, as plain values for JSON."""
        with self._lock:
            return {
                "pipeline": self._pipeline,
                "version": version_of("lakeward"),
                "state": self._state,
                "uptime_s": round(self._clock.monotonic_s() - self._started_s, 1),
                "conditions": self._condition_facts(),
                "facts": dict(self._facts),
                "batch": dict(self._batch),
                "tables": {table: dict(facts) for table, facts in self._tables.items()},
                "source": {
                    topic: {p: {"committed": offset} for p, offset in parts.items()}
                    for topic, parts in self._offsets.items()
                },
                "errors": list(self._errors),
            }

    def set_offsets(self, offsets: Mapping[str, Mapping[str, int]]) -> None:
        """Show where the stream starts, before its first batch."""
        with self._lock:
            for topic, parts in offsets.items():
                self._offsets.setdefault(topic, {}).update(parts)

    def _now(self) -> str:
        moment = datetime.datetime.fromtimestamp(self._clock.now_ms() / 1000, datetime.UTC)
        return moment.isoformat(timespec="milliseconds").replace("+00:00", "Z")
