# SPDX-License-Identifier: Apache-2.0
"""Status of the daemon: state, readiness conditions, batches, tables, offsets.

The daemon's threads write and the HTTP threads read; every method takes one lock and returns
copies. Everything is bounded: the last batches, errors, schema changes and requests, one entry per
table and partition. The status starts empty with the process; durable state is in the tables.
`status-api.md` documents the fields.
"""

import datetime
import math
import threading
from array import array
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from ingest.observe.metrics.metric_table import STATES
from ingest.observe.metrics.telemetry import version_of
from ingest.pipeline.batch_report import BatchReport
from ingest.state.ownership import Pause
from ingest.state.request_files import Answer
from storage.clock import Clock, SystemClock
from storage.errors import InternalError

EVERY_S = 10.0
"""Interval of samples [s]."""

SAMPLE_COUNT = 360
"""Number of samples: an hour."""

MAX_TABLES = 1000
"""Maximum number of tables with a history."""

SPARK_POINTS = 20
"""Points of the chart in the row of a table."""

_UNKNOWN = math.nan


class _Ring:
    """The last `SAMPLE_COUNT` values by sample number; NaN = unknown."""

    __slots__ = ("values",)

    def __init__(self) -> None:
        self.values = array("f", [_UNKNOWN]) * SAMPLE_COUNT

    def put(self, number: int, value: float) -> None:
        self.values[number % SAMPLE_COUNT] = value

    def last(self, newest: int) -> list[float]:
        """Return the values, oldest first."""
        oldest = (newest + 1) % SAMPLE_COUNT
        return [*self.values[oldest:], *self.values[:oldest]]


class History:
    """The last hour in memory, for the charts of the status page. Thread-safe.

    One sample every `EVERY_S`; a missed sample is a gap. Memory is bounded: about 6 kB per table,
    for at most `MAX_TABLES` tables.

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
            for missed in range(max(self._newest + 1, number - SAMPLE_COUNT + 1), number + 1):
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
            return self._series_document(self._series)

    def of_table(self, table: str) -> dict[str, Any]:
        """Return the last hour of a table."""
        with self._lock:
            return self._series_document(self._tables.get(table, {}))

    def sparks(self, name: str) -> dict[str, list[float | None]]:
        """Return one series of every table as `SPARK_POINTS` means, oldest first."""
        with self._lock:
            return {
                table: _means(rings[name].last(self._newest))
                for table, rings in self._tables.items()
                if name in rings
            }

    def _series_document(self, series: Mapping[str, _Ring]) -> dict[str, Any]:
        count = min(SAMPLE_COUNT, self._newest + 1)
        document: dict[str, Any] = {"every_s": EVERY_S}
        for name, ring in series.items():
            values = ring.last(self._newest)[SAMPLE_COUNT - count :]
            document[name] = [None if math.isnan(value) else _rounded(value) for value in values]
        return document

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
        numbers = [value for value in values[start : start + size] if not math.isnan(value)]
        means.append(_rounded(sum(numbers) / len(numbers)) if numbers else None)
    return means


def _rounded(value: float) -> float:
    """Round to three digits, which is enough for a chart."""
    return float(f"{value:.3g}") if abs(value) < 1000 else float(round(value))


RATE_S = 60.0
"""Rates are means over at least this period [s], or over two trigger intervals if longer."""

BAD_TABLES = 1_000
"""Maximum number of table names by which quarantined records are counted; others count as unknown.
A corrupt record can contain any name."""

_PARKED = ("reason", "by", "parked_at")


class TableFacts:
    """Status of each table, from the reports of batches; `StatusBoard` holds its lock."""

    def __init__(self) -> None:
        self._facts: dict[str, dict[str, Any]] = {}
        self._record_counts: dict[str, deque[tuple[float, int]]] = {}
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
        for table, buckets in report.compactions.items():
            if buckets:
                facts = self._of(table)
                facts["compactions"] = facts.get("compactions", 0) + buckets
                facts["compacted_at"] = now
        self._record_bad(report)

    def _record_bad(self, report: BatchReport) -> None:
        for table, classes in report.bad_by_table.items():
            is_listed = table in self._quarantine or len(self._quarantine) < BAD_TABLES
            into = self._quarantine.setdefault(table if is_listed else "", {})
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
            marks = self._record_counts.setdefault(table, deque(maxlen=400))
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


API_VERSION = 1
"""Version of the document: incremented when a field is removed or changes its meaning."""

CONDITIONS = ("configuration", "owner", "session", "source", "last_batch")
"""Readiness conditions; all except `last_batch` are initially false."""

_HEARTBEAT_S = 600.0
_HEARTBEAT_BATCHES = 10.0
_REMEMBERED_DURATIONS = 100
_REMEMBERED_BATCHES = 40
_REMEMBERED_ERRORS = 20
_REMEMBERED_CHANGES = 50
_REMEMBERED_REQUESTS = 20


def iso(time_ms: int) -> str:
    """Format a time as RFC 3339 in UTC with milliseconds."""
    moment = datetime.datetime.fromtimestamp(time_ms / 1000, datetime.UTC)
    return moment.isoformat(timespec="milliseconds").replace("+00:00", "Z")


class StatusBoard:
    """See the module."""

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
        self._durations: deque[float] = deque(maxlen=_REMEMBERED_DURATIONS)
        self._errors: deque[dict[str, Any]] = deque(maxlen=_REMEMBERED_ERRORS)
        self._batches: deque[dict[str, Any]] = deque(maxlen=_REMEMBERED_BATCHES)
        self._changes: deque[dict[str, Any]] = deque(maxlen=_REMEMBERED_CHANGES)
        self._requests: deque[dict[str, Any]] = deque(maxlen=_REMEMBERED_REQUESTS)
        self._reload: dict[str, Any] | None = None
        self._paused: dict[str, Any] | None = None
        self._batch: dict[str, Any] = {"in_progress": False, "done": 0, "last": None}
        self._tables = TableFacts()
        self._records = 0
        self._record_counts: deque[tuple[float, int]] = deque(maxlen=400)
        self._offsets: dict[str, dict[str, int]] = {}
        self._facts: dict[str, Any] = {}
        self._alive: Callable[[], bool] | None = None
        self._lines: tuple[tuple[str, str, str], ...] = ()
        self._rate_s = RATE_S
        self.history = History(self._started_s)

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
        """Set a readiness condition, with the reason if it is false."""
        with self._lock:
            self._conditions[name] = (ok, reason)

    def set_fact(self, name: str, value: object) -> None:
        """Set a field of `facts`, such as the warehouse or the epoch."""
        with self._lock:
            self._facts[name] = value

    def set_settings(
        self, lines: Sequence[tuple[str, str, str]], trigger_interval_s: float
    ) -> None:
        """Set the settings in force: key, redacted value, origin."""
        with self._lock:
            self._lines = tuple(lines)
            self._rate_s = max(RATE_S, 2 * trigger_interval_s)
            self._facts["trigger_interval_s"] = trigger_interval_s

    def settings(self) -> dict[str, Any]:
        """Return the settings in force."""
        with self._lock:
            rows = [{"key": key, "value": value, "from": by} for key, value, by in self._lines]
            return {"pipeline": self._pipeline, "settings": rows}

    def set_paused(self, pause: Pause | None) -> None:
        """Set whether the stream is paused."""
        with self._lock:
            self._paused = None
            if pause is not None:
                self._paused = {"reason": pause.reason, "since": iso(pause.since_ms)}

    def watch_engine(self, alive: Callable[[], bool]) -> None:
        """Set the liveness check of the JVM process; the call must return immediately."""
        with self._lock:
            self._alive = alive

    def answered(self, answer: Answer) -> None:
        """Record that a request was completed or refused."""
        facts = {"kind": answer.kind, "state": answer.state, "text": answer.text}
        facts |= {"id": answer.id, "hint": answer.hint, "at": iso(answer.at_ms)}
        with self._lock:
            self._requests.append(facts)
            if answer.kind == "reload":
                self._reload = facts

    def beat(self) -> None:
        """Record that the main loop is alive."""
        with self._lock:
            self._beat_s = self._clock.monotonic_s()

    @property
    def sample_due(self) -> bool:
        """Whether the next sample is due."""
        return self.history.due(self._clock.monotonic_s())

    def sample(self, lag: float | None, freshness_s: Mapping[str, float]) -> None:
        """Add a sample to the charts."""
        now_s = self._clock.monotonic_s()
        with self._lock:
            rates = self._tables.mark(now_s, self._rate_s)
            parked = self._tables.parked()
            self._record_counts.append((now_s, self._records))
            while (
                len(self._record_counts) > 2 and self._record_counts[1][0] <= now_s - self._rate_s
            ):
                self._record_counts.popleft()
            took_s = now_s - self._record_counts[0][0]
            records = (self._records - self._record_counts[0][1]) / took_s if took_s > 0 else 0.0
        tables = {
            table: {"rows_per_s": rate, "freshness_s": freshness_s.get(table)}
            for table, rate in rates.items()
        }
        values = {
            "lag_records": lag,
            "freshness_s": max(
                (age_s for name, age_s in freshness_s.items() if name not in parked), default=None
            ),
            "records_per_s": records,
            "rows_per_s": sum(rates.values()),
        }
        self.history.add(now_s, values, tables)

    def batch_started(self, batch_id: int) -> None:
        """Record the start of a micro-batch."""
        with self._lock:
            self._batch |= {
                "in_progress": True,
                "current": batch_id,
                "started_at": self._timestamp(),
            }

    def record(self, report: BatchReport, *, again: bool = False) -> None:
        """Record a successful micro-batch; `again`: see `BatchReport.is_new`."""
        with self._lock:
            self._durations.append(report.duration_s)
            self._conditions["last_batch"] = (True, "")
            last = {
                **report.facts(),
                "bad_records": report.bad_records,
                "phases": {name: round(s, 3) for name, s in report.phases.items()},
                "ended_at": self._timestamp(),
            }
            self._batch = {"in_progress": False, "done": self._batch["done"] + 1, "last": last}
            if report.events or not self._batches or self._batches[-1]["events"]:
                self._batches.append(last)  # only the first of consecutive empty ones
            if report.is_new(again=again):
                self._records += report.events
            for topic, offsets in report.end_offsets.items():
                self._offsets.setdefault(topic, {}).update(offsets)
            self._tables.record(report, self._timestamp())
            self._record_changes(report)

    def _record_changes(self, report: BatchReport) -> None:
        for table, decision in report.schema_verdicts:
            self._changes.append(
                {
                    "table": table,
                    "change": decision.kind.value,
                    "text": decision.text,
                    "outcome": decision.outcome.value,
                    "at": self._timestamp(),
                }
            )

    def set_table_states(self, states: Mapping[str, Mapping[str, Any]]) -> None:
        """Set the states of tables, with the reason of parked ones."""
        with self._lock:
            self._tables.set_states(states)

    def failed(self, error: BaseException) -> None:
        """Record an error; the next successful batch restores readiness."""
        with self._lock:
            message = str(error).split("\n", maxsplit=1)[0]
            self._batch["in_progress"] = False
            self._conditions["last_batch"] = (False, f"the last batch failed: {message}")
            self._errors.append(
                {"at": self._timestamp(), "type": type(error).__name__, "message": message}
            )

    def health(self) -> tuple[bool, dict[str, Any]]:
        """Return whether the process is alive, with details."""
        with self._lock:
            limit = max(_HEARTBEAT_S, _HEARTBEAT_BATCHES * max(self._durations, default=0.0))
            age = self._clock.monotonic_s() - self._beat_s
            engine = self._alive is None or self._alive()
            document: dict[str, Any] = {
                "healthy": age <= limit and engine,
                "heartbeat_age_s": round(age, 1),
                "limit_s": limit,
                "engine_alive": engine,
            }
            if age > limit:
                document["reason"] = "the main loop is stuck"
            elif not engine:
                document["reason"] = "the JVM has exited"
            return document["healthy"], document

    def readiness(self) -> tuple[bool, dict[str, Any]]:
        """Return whether the pipeline is processing data, and every condition with its reason."""
        with self._lock:
            reasons = self._reasons()
            document = {
                "ready": not reasons,
                "state": self._state,
                "reasons": reasons,
                "conditions": self._condition_facts(),
            }
            return not reasons, document

    def _reasons(self) -> list[str]:
        reasons = [reason for ok, reason in self._conditions.values() if not ok]
        if self._state in ("starting", "failed"):
            reasons.append(f"the daemon is {self._state}")
        if self._paused is not None:
            reasons.append(f"the stream is paused: {self._paused['reason']}")
        return reasons

    def _condition_facts(self) -> dict[str, dict[str, Any]]:
        return {
            name: {"ok": ok, "reason": reason} for name, (ok, reason) in self._conditions.items()
        }

    def document(self) -> dict[str, Any]:
        """Return the whole status as plain values for JSON."""
        with self._lock:
            reasons = self._reasons()
            return {
                "api": API_VERSION,
                "pipeline": self._pipeline,
                "version": version_of("lakeward"),
                "state": self._state,
                "now": self._timestamp(),
                "uptime_s": round(self._clock.monotonic_s() - self._started_s, 1),
                "ready": not reasons,
                "reasons": reasons,
                "conditions": self._condition_facts(),
                "paused": self._paused,
                "facts": dict(self._facts),
                "batch": dict(self._batch),
                "batches": list(self._batches),
                "tables": self._tables.document(),
                "source": {
                    topic: {p: {"committed": offset} for p, offset in parts.items()}
                    for topic, parts in self._offsets.items()
                },
                "quarantine": self._tables.quarantine(),
                "schema_changes": list(self._changes),
                "errors": list(self._errors),
                "requests": list(self._requests),
                "reload": self._reload,
            }

    def set_offsets(self, offsets: Mapping[str, Mapping[str, int]]) -> None:
        """Set the start offsets of the stream, before its first batch."""
        with self._lock:
            for topic, parts in offsets.items():
                self._offsets.setdefault(topic, {}).update(parts)

    def _timestamp(self) -> str:
        return iso(self._clock.now_ms())
