# SPDX-License-Identifier: Apache-2.0
"""The metrics of one pipeline, on a separate registry, in the driver's process.

Executors never serve or push metrics: they return values with their results, and `Metrics.record`
adds them only after the commit, so counters mean *committed* work and a retried task counts once.
Values that must not become stale (offsets, lag, freshness) are computed at scrape time and omitted
when they are older than `STALE_AFTER_S`. Names and labels are in `metric_table`.
"""

import dataclasses
import importlib.metadata
import platform
import threading
from collections import deque
from collections.abc import Collection, Iterable, Mapping
from typing import Any

import prometheus_client

from ingest.observe.metrics.instruments import Instruments, TableNames
from ingest.observe.metrics.layout_figures import TableLayout
from ingest.observe.metrics.metric_table import METRICS, STATES, TABLE_STATES
from ingest.pipeline.batch_report import BatchReport
from ingest.pipeline.exchange import LookupUse, TaskUse
from storage.clock import Clock, SystemClock
from storage.table.compaction.compact_table import CompactReport
from storage.table.iceberg import IcebergFigures

# Lag of a stream: log offsets by poll, committed offsets by commit, age of uncommitted records.
#
# Values of a poll must not become stale if the source, or a topic, does not answer: they are
# dropped after `STALE_AFTER_S`.


STALE_AFTER_S = 120.0
"""Age of a poll after which its series become absent [s]: eight polls at 15 s, so that a short
broker failure leaves no gap and a failing poll is not mistaken for an idle topic."""

Watermarks = Mapping[tuple[str, int], tuple[int, int]]
"""(topic, partition) -> (log start, log end)."""

_WAITING_MEMORY = 240
"""Remembered polls per partition: an hour at 15 s; longer waiting times are lower bounds."""


@dataclasses.dataclass(slots=True)
class _Partition:
    """Offsets of one partition, and the times at which its end offsets were first seen."""

    low: int = 0
    high: int = 0
    committed: int | None = None
    polled_s: float | None = None
    high_times: "deque[tuple[float, int]]" = dataclasses.field(
        default_factory=lambda: deque(maxlen=_WAITING_MEMORY)
    )

    def polled(self, now_s: float, low: int, high: int) -> None:
        self.low = low
        self.polled_s = now_s
        if high < self.high:  # the topic was re-created
            self.high_times.clear()
        if not self.high_times or high > self.high:
            self.high_times.append((now_s, high))
        self.high = high
        self._forget()

    def reached(self, offset: int) -> None:
        self.committed = offset
        self._forget()

    def _forget(self) -> None:
        if self.committed is not None:
            while self.high_times and self.high_times[0][1] <= self.committed:
                self.high_times.popleft()

    @property
    def lag(self) -> int:
        return max(0, self.high - (self.low if self.committed is None else self.committed))

    def waiting_s(self, now_s: float) -> float:
        if self.lag == 0 or not self.high_times:
            return 0.0
        return max(0.0, now_s - self.high_times[0][0])

    @property
    def headroom(self) -> float:
        """1 = the next record to read is far from deletion, 0 = records are lost."""
        committed = self.low if self.committed is None else self.committed
        length = self.high - self.low
        return 1.0 if length <= 0 else min(1.0, max(0.0, (committed - self.low) / length))


class SourceWatch:
    """See the module; thread-safe.

    Attributes:
        ever_polled: whether any poll has succeeded.
    """

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._lock = threading.Lock()
        self._partitions: dict[tuple[str, int], _Partition] = {}
        self._silent_since_s: dict[tuple[str, int], float] = {}
        self.ever_polled = False
        self._waits: Mapping[str, float] = {}

    def polled(
        self, watermarks: Watermarks, silent: Collection[tuple[str, int]] = frozenset()
    ) -> None:
        """Record the result of a successful poll of the source.

        Args:
            watermarks: start and end offsets of the partitions that answered.
            silent: existing partitions whose leader does not answer.
        """
        now_s = self._clock.monotonic_s()
        with self._lock:
            self.ever_polled = True
            self._silent_since_s = {key: self._last_answer_s(key, now_s) for key in silent}
            for key, (low, high) in watermarks.items():
                self._partitions.setdefault(key, _Partition()).polled(now_s, low, high)

    def _last_answer_s(self, key: tuple[str, int], now_s: float) -> float:
        """Return the last answer of a silent partition, or when it was first missed."""
        partition = self._partitions.get(key)
        if partition is not None and partition.polled_s is not None:
            return partition.polled_s
        return self._silent_since_s.get(key, now_s)

    def reached(self, offsets: Mapping[str, Mapping[str, int]]) -> None:
        """Record the next offsets to read."""
        with self._lock:
            for topic, parts in offsets.items():
                for partition, offset in parts.items():
                    key = (topic, int(partition))
                    self._partitions.setdefault(key, _Partition()).reached(int(offset))

    def set_waits(self, waits: Mapping[str, float]) -> None:
        """Set the configured delay of topics [s]; until then records are not late."""
        with self._lock:
            self._waits = dict(waits)

    def lag(self) -> dict[tuple[str, int], int]:
        """Return the lag in records by (topic, partition); empty without a recent poll."""
        with self._lock:
            return {key: partition.lag for key, partition in self._fresh().items()}

    def late_topics(self) -> set[str] | None:
        """Return topics with late records, or with partitions that have long been silent.

        Records within the configured delay are not late.

        Returns:
            None without a recent poll.
        """
        with self._lock:
            fresh, now_s = self._fresh(), self._clock.monotonic_s()
            if not fresh:
                return None
            late = {
                topic
                for (topic, _), part in fresh.items()
                if part.lag and (topic not in self._waits or self._late_s(topic, part, now_s))
            }
            return late | {
                topic
                for (topic, _), since_s in self._silent_since_s.items()
                if now_s - since_s >= STALE_AFTER_S
            }

    def _late_s(self, topic: str, partition: _Partition, now_s: float) -> float:
        return max(0.0, partition.waiting_s(now_s) - self._waits.get(topic, 0.0))

    def _fresh(self) -> dict[tuple[str, int], _Partition]:
        """Return partitions with a recent poll; those of deleted topics have none."""
        since_s = self._clock.monotonic_s() - STALE_AFTER_S
        return {
            key: partition
            for key, partition in self._partitions.items()
            if partition.polled_s is not None and partition.polled_s >= since_s
        }

    def values(self) -> dict[str, dict[tuple[str, ...], float]]:
        """Return values of the `source_*` gauges that depend on polls."""
        values: dict[str, dict[tuple[str, ...], float]] = {name: {} for name in _NAMES}
        now_s = self._clock.monotonic_s()
        with self._lock:
            values["source_wait_seconds"] = {(topic,): s for topic, s in self._waits.items()}
            for (topic, number), partition in self._fresh().items():
                labels = (topic, str(number))
                values["source_end_offset"][labels] = partition.high
                values["source_start_offset"][labels] = partition.low
                values["source_lag_records"][labels] = partition.lag
                values["source_retention_headroom_ratio"][labels] = partition.headroom
                waiting = values["source_lag_seconds"]
                late_s = self._late_s(topic, partition, now_s)
                waiting[(topic,)] = max(waiting.get((topic,), 0.0), late_s)
                count = values["source_partitions"]
                count[(topic,)] = count.get((topic,), 0) + 1
        return values


_NAMES: Iterable[str] = (
    "source_end_offset",
    "source_start_offset",
    "source_lag_records",
    "source_lag_seconds",
    "source_retention_headroom_ratio",
    "source_partitions",
)


_COUNTERS = {
    "source_records_total": "records",
    "decode_walked_records_total": "walked",
    "decode_errors_total": "bad_by_topic",
    "dlq_records_total": "bad_by_topic",
    "split_key_updates_total": "split_key_updates",
    "quarantined_rows_total": "bad_by_table",
    "bad_records_skipped_total": "bad_skipped",
    "table_rows_written_total": "rows_by_table",
    "table_changelog_rows_total": "changelog_rows",
    "table_values_kept_total": "values_kept",
    "table_values_lost_total": "values_lost",
    "duplicate_events_total": "repeated",
}
"""Counters, and the attributes of `BatchReport` with their increments by the values of labels."""

_OF_COMPACTIONS = {
    "compaction_seconds_total": "compaction_seconds",
    "compaction_read_bytes_total": "compaction_read_bytes",
    "compaction_written_bytes_total": "compaction_bytes",
}
"""The same for counters whose second label is the kind of compaction, which is `minor` here."""

_OF_ICEBERG = {
    "iceberg_versions_total": "versions",
    "iceberg_publish_failures_total": "failures",
    "iceberg_publish_seconds_total": "seconds",
    "iceberg_manifests_written_total": "manifests",
    "iceberg_written_bytes_total": "size",
}
"""Counters, and the attributes of `IcebergFigures` that they follow."""


def count_batch(into: Instruments, report: BatchReport) -> None:
    """Add what holds for replayed batches too: time, not work."""
    into.add("batches_total", 1, report.outcome)
    into.set("batch_id", report.batch_id)
    into.observe("batch_duration_seconds", report.duration_s)
    for phase, seconds in report.phases.items():
        if phase.startswith("task_"):
            name = phase.removeprefix("task_")
            into.add("batch_phase_task_seconds_total", max(0.0, seconds), name)
        else:
            into.observe("batch_phase_duration_seconds", seconds, phase)
    job_s = report.phases.get("job", 0.0)
    if job_s > 0:
        into.replace("batch_slowest_task_ratio", {(): min(1.0, report.slowest_s / job_s)})
    into.add("dlq_sent_total", report.dead_letters)


def count_work(into: Instruments, report: BatchReport) -> None:
    """Add what a batch committed. Once per batch: a replay's work was counted before."""
    into.observe("batch_records", report.events)
    into.add("source_bytes_total", report.bytes)
    for metric, attribute in _COUNTERS.items():
        _add_all(into, metric, getattr(report, attribute))
    for metric, attribute in _OF_COMPACTIONS.items():
        for table, amount in getattr(report, attribute).items():
            into.add(metric, amount, table, "minor")
    _count_topics(into, report)
    for table in report.parked_bad:
        into.add("tables_parked_for_bad_records_total", 1, table)
    for table, verdict in report.schema_verdicts:
        into.add("schema_changes_total", 1, table, verdict.kind.value, verdict.outcome.value)
    for table, _, _ in report.case_matches:
        into.add("table_columns_matched_total", 1, table)
    _count_commits(into, report)


def _count_topics(into: Instruments, report: BatchReport) -> None:
    for topic, counts in report.counts.items():
        for name, count in counts.items():
            into.add("decode_records_total", count, topic, name.removeprefix("op."))
    for topic, violations in report.ordering_violations.items():
        into.add("ordering_violations_total", len(violations), topic)
    for (topic, partition), count in report.skipped_offsets.items():
        into.add("source_skipped_offsets_total", count, topic, str(partition))


def _add_all(into: Instruments, metric: str, amounts: Any, *labels: str) -> None:
    """Raise a counter by amounts in nested maps, whose keys are the values of its labels."""
    if not isinstance(amounts, Mapping):
        into.add(metric, amounts, *labels)
        return
    for label, inner in amounts.items():
        _add_all(into, metric, inner, *labels, label)


def _count_commits(into: Instruments, report: BatchReport) -> None:
    ended_s = report.started_ms / 1000 + report.duration_s
    for table, snapshot_id in report.snapshots.items():
        into.set("table_snapshot_id", snapshot_id, table)
        into.set("table_last_commit_timestamp_seconds", ended_s, table)
        into.add("commits_total", 1, table, "append", "ok")
    for table, seconds in report.commit_seconds.items():
        into.observe("commit_duration_seconds", seconds, table)
    into.add("commit_retries_total", report.commit_retries, "snapshot_exists")
    for (table, kind), written in report.written.items():
        into.add("table_bytes_written_total", written.bytes, table, kind)
        into.add("table_files_written_total", written.files, table, kind)
    for table, ratio in report.bucket_skew.items():
        into.set("table_bucket_skew_ratio", ratio, table)
    for table, (oldest, _) in report.source_ts_ms.items():
        into.observe("table_commit_delay_seconds", max(0.0, ended_s - oldest / 1000), table)
    if report.source_ts_ms:
        clock_lead_s = max(newest for _, newest in report.source_ts_ms.values()) / 1000 - ended_s
        into.set("source_clock_skew_seconds", max(0.0, clock_lead_s))
    for table, count in report.compactions.items():
        into.add("compactions_total", count, table, "minor", "ok")
        if count:
            into.add("commits_total", 1, table, "compact", "ok")
    for table, count in report.compactions_dropped.items():
        into.add("compactions_total", count, table, "minor", "dropped")
        into.add("commits_total", 1, table, "compact", "conflict")


class BusyTime:
    """Busy time of non-overlapping work; thread-safe.

    Args:
        window_s: length of the window [s].
    """

    def __init__(self, clock: Clock, window_s: float = 300.0) -> None:
        self._clock = clock
        self._window_s = window_s
        self._lock = threading.Lock()
        self._born_s = clock.monotonic_s()
        self._began_s: float | None = None
        self._spans: deque[tuple[float, float]] = deque()

    def begin(self) -> None:
        """Record the start of work."""
        with self._lock:
            self._began_s = self._clock.monotonic_s()

    def end(self) -> None:
        """Record the end of work."""
        with self._lock:
            if self._began_s is not None:
                self._spans.append((self._began_s, self._clock.monotonic_s()))
                self._began_s = None

    def ratio(self) -> float:
        """Return the busy share of the window, or of the time since the start if shorter."""
        with self._lock:
            now_s = self._clock.monotonic_s()
            since_s = max(self._born_s, now_s - self._window_s)
            while self._spans and self._spans[0][1] <= since_s:
                self._spans.popleft()
            spans = list(self._spans)
            if self._began_s is not None:
                spans.append((self._began_s, now_s))
            length = now_s - since_s
            busy = sum(end - max(begin, since_s) for begin, end in spans)
            return 0.0 if length <= 0 else min(1.0, busy / length)


PAIMON_FORMAT = "3"
"""Version of the snapshot and schema files that are written (FORMAT.md §2.1, §3.1)."""


def version_of(distribution: str) -> str:
    """Return the installed version of a distribution; `unknown` in a source tree."""
    try:
        return importlib.metadata.version(distribution)
    except importlib.metadata.PackageNotFoundError:
        return "unknown"


class Metrics:
    """Every metric of the daemon; thread-safe.

    Args:
        process: whether `process_*` and `python_gc_*` are exported too.
        tables: values of the label `table`.
        labels: constant labels of every series.
    """

    def __init__(
        self,
        clock: Clock | None = None,
        *,
        process: bool = True,
        tables: TableNames | None = None,
        labels: Mapping[str, str] | None = None,
    ) -> None:
        self._clock = clock or SystemClock()
        self._lock = threading.Lock()
        self._source = SourceWatch(self._clock)
        self._source_ts_ms: dict[str, int] = {}
        self._parked: frozenset[str] = frozenset()
        self._feeds: Mapping[str, Collection[str]] = {}
        self._layouts: dict[str, TableLayout] = {}
        self._iceberg: dict[str, IcebergFigures] = {}
        self._busy = BusyTime(self._clock)
        self._waiting_since_s: Mapping[str, float] = {}
        self._tasks_use = TaskUse()
        self._counted_use = TaskUse()
        self.instruments = Instruments(METRICS, tables, labels)
        self.registry = self.instruments.registry
        self.instruments.before_scrape(self._refresh)
        self.instruments.serve_calls("store_request_duration_seconds", lambda: self._use.store)
        self.instruments.serve_calls(
            "registry_request_duration_seconds", lambda: self._use.registry
        )
        if process:
            prometheus_client.ProcessCollector(registry=self.registry)
            prometheus_client.GCCollector(registry=self.registry)
        self.set_build()
        self.instruments.set("start_timestamp_seconds", self._now_s())
        self.set_state("starting")

    def exposition(self, accept: str = "") -> tuple[bytes, str]:
        """Return body and content type of a scrape for an `Accept` header."""
        return self.instruments.exposition(accept)

    # --- the daemon

    def set_build(self, java: str = "") -> None:
        """Set the versions in use; that of Java is known once Spark has started."""
        versions = (version_of("lakeward"), version_of("pyspark"), platform.python_version())
        self.instruments.replace("build_info", {(*versions, java, PAIMON_FORMAT): 1.0})

    def set_config(self, pipeline: str, digest: str, trigger_s: float | None) -> None:
        """Set the settings in force."""
        self.instruments.replace("config_info", {(pipeline, digest): 1})
        if trigger_s is not None:
            self.instruments.set("trigger_interval_seconds", trigger_s)

    def set_state(self, state: str) -> None:
        """Enter one of `STATES`."""
        for name in STATES:
            self.instruments.set("state", name == state, name)

    def set_outage(self, waiting: bool) -> None:
        """Set whether the daemon waits for an unavailable dependency."""
        self.instruments.set("outage", waiting)

    def set_table_states(self, states: Mapping[str, str]) -> None:
        """Set the state of each table, one of `TABLE_STATES`."""
        values: dict[tuple[str, ...], float] = {
            (table, name): float(name == state)
            for table, state in states.items()
            for name in TABLE_STATES
        }
        self.instruments.replace("table_state", values)
        self._parked = frozenset(table for table, state in states.items() if state == "parked")

    def set_epoch(self, epoch: int) -> None:
        """Set the epoch of the owner."""
        self.instruments.set("driver_epoch", epoch)

    def webhook_called(self, outcome: str) -> None:
        """Count a webhook event: `sent`, `failed` or `dropped`."""
        self.instruments.add("webhook_events_total", 1, outcome)

    def query_failed(self) -> None:
        """Count a failure of the Spark query."""
        self.instruments.add("query_failures_total", 1)

    # --- batches

    def batch_started(self) -> None:
        """Record the start of a micro-batch."""
        self.instruments.set("batch_in_progress", 1)
        self.instruments.set("batch_start_timestamp_seconds", self._now_s())

    def batch_failed(self) -> None:
        """Record a failed micro-batch, which is retried."""
        self.instruments.set("batch_in_progress", 0)
        self.instruments.add("batches_total", 1, "failed")

    def record(self, report: BatchReport, *, again: bool = False) -> None:
        """Add a finished micro-batch. Call it once per batch, after its commits.

        Args:
            again: see `BatchReport.is_new`.
        """
        self.instruments.set("batch_in_progress", 0)
        self.instruments.set("last_success_timestamp_seconds", self._now_s())
        count_batch(self.instruments, report)
        if report.is_new(again=again):
            count_work(self.instruments, report)
            self._record_times(report)
            if report.lookup is not None:
                self.record_lookup(report.lookup)
            for table, runs in report.sorted_runs.items():
                if self.instruments.get("table_sorted_runs_max", table) is None:
                    self.instruments.set("table_sorted_runs_max", runs, table)
        with self._lock:
            self._tasks_use = self._tasks_use.plus(report.use)
        self.record_committed(report.end_offsets)

    def _record_times(self, report: BatchReport) -> None:
        for table, (_, newest) in report.source_ts_ms.items():
            with self._lock:
                newest = max(newest, self._source_ts_ms.get(table, 0))
                self._source_ts_ms[table] = newest
            self.instruments.set("table_source_timestamp_seconds", newest / 1000, table)

    def record_lookup(self, use: LookupUse) -> None:
        """Add the use of local copies of data files."""
        self.instruments.add("lookup_hits_total", use.hits)
        self.instruments.add("lookup_misses_total", use.misses)
        self.instruments.add("lookup_built_bytes_total", use.built_bytes)
        self.instruments.add("lookup_evicted_files_total", use.evicted_files)
        self.instruments.set("lookup_disk_bytes", use.disk_bytes)

    # --- maintenance

    def compaction_started(self) -> None:
        """Record the start of a background compaction."""
        self.instruments.set("compaction_in_progress", 1)
        self._busy.begin()

    def compaction_ended(self, table: str, kind: str, report: CompactReport | None) -> None:
        """Record a background compaction; None: it failed as a whole."""
        into = self.instruments
        into.set("compaction_in_progress", 0)
        self._busy.end()
        if report is None:
            into.add("compactions_total", 1, table, kind, "error")
            return
        into.observe("compaction_pass_duration_seconds", report.seconds, kind)
        into.add("compactions_total", report.compacted, table, kind, "ok")
        into.add("compactions_total", report.dropped, table, kind, "dropped")
        into.add("compactions_total", len(report.failures), table, kind, "error")
        into.add("commits_total", len(report.snapshots), table, "compact", "ok")
        into.add("compaction_seconds_total", report.bucket_seconds, table, kind)
        into.add("compaction_read_bytes_total", report.read_bytes, table, kind)
        into.add("compaction_written_bytes_total", report.written_bytes, table, kind)
        into.add("table_changelog_rows_total", report.changelog_rows, table)

    def compaction_waits(self, since_s: Mapping[str, float]) -> None:
        """Set the tables that wait for background compaction, and since when [monotonic s]."""
        self._waiting_since_s = dict(since_s)
        self.instruments.set("compaction_pending", len(since_s))

    def upkeep_done(self, table: str, *, snapshots: int = 0, orphans: int = 0) -> None:
        """Add expired snapshots and removed orphan files."""
        self.instruments.add("snapshots_expired_total", snapshots, table)
        self.instruments.add("orphan_files_removed_total", orphans, table)

    def record_iceberg(self, table: str, figures: IcebergFigures) -> None:
        """Add what was published of a table's Iceberg metadata since the last call."""
        before = self._iceberg.get(table, IcebergFigures())
        if figures == before:
            return
        self._iceberg[table] = figures
        into = self.instruments
        for metric, attribute in _OF_ICEBERG.items():
            into.add(metric, getattr(figures, attribute) - getattr(before, attribute), table)
        into.set("iceberg_behind_snapshots", figures.unpublished, table)

    def record_layout(self, table: str, layout: TableLayout) -> None:
        """Set the file layout of a table's newest snapshot."""
        for name, value in layout.figures().items():
            self.instruments.set(f"table_{name}", value, table)
        self._layouts[table] = layout

    def layouts(self) -> dict[str, TableLayout]:
        """Return the last layout of each table."""
        return self._layouts.copy()

    # --- source

    def source_error(self, reason: str) -> None:
        """Count a failed poll of the source: `transport` or `auth`."""
        self.instruments.add("source_errors_total", 1, reason)

    def record_committed(self, offsets: Mapping[str, Mapping[str, int]]) -> None:
        """Record the next offsets to read; also at the start, so that lag is correct."""
        self._source.reached(offsets)
        for topic, parts in offsets.items():
            for partition, offset in parts.items():
                self.instruments.set("source_committed_offset", offset, topic, str(partition))

    def record_watermarks(
        self, watermarks: Watermarks, silent: Collection[tuple[str, int]] = frozenset()
    ) -> None:
        """Record the result of a successful poll of the source; see `SourceWatch.polled`."""
        self.instruments.set("source_offsets_poll_timestamp_seconds", self._now_s())
        self._source.polled(watermarks, silent)

    def set_waits(self, waits: Mapping[str, float]) -> None:
        """Set the configured delay of topics [s]; until then records are not late."""
        self._source.set_waits(waits)

    def set_feeds(self, feeds: Mapping[str, Collection[str]]) -> None:
        """Set the topics of each table; other tables may have any topic."""
        self._feeds = feeds

    def lag(self) -> dict[tuple[str, int], int]:
        """Return the lag in records by (topic, partition); empty without a recent poll."""
        return self._source.lag()

    def freshness_s(self) -> dict[str, float]:
        """Return the age of the newest change by table; 0 if its topics have nothing newer [s].

        Records within the configured delay are not newer. Parked tables have no freshness.
        """
        if not self._source.ever_polled:
            return {}
        late_topics, now_ms = self._source.late_topics(), self._clock.now_ms()
        with self._lock:
            return {
                table: 0.0
                if self._caught_up(table, late_topics)
                else max(0.0, now_ms - ts_ms) / 1000
                for table, ts_ms in self._source_ts_ms.items()
                if table not in self._parked
            }

    def _caught_up(self, table: str, late_topics: set[str] | None) -> bool:
        if late_topics is None:
            return False
        feeds = self._feeds.get(table)
        return late_topics.isdisjoint(feeds) if feeds else not late_topics

    # --- at scrape time

    @property
    def _use(self) -> TaskUse:
        with self._lock:
            return TaskUse.now().plus(self._tasks_use)

    def _refresh(self) -> None:
        into = self.instruments
        for name, values in self._source.values().items():
            into.replace(name, values)
        into.replace("table_freshness_seconds", {(t,): s for t, s in self.freshness_s().items()})
        waiting = self._waiting_since_s.values()
        oldest_s = self._clock.monotonic_s() - min(waiting) if waiting else 0.0
        into.set("compaction_oldest_pending_seconds", oldest_s)
        into.set("compaction_busy_ratio", self._busy.ratio())
        with self._lock:  # covers now(): concurrent scrapes must not count backwards
            now = TaskUse.now().plus(self._tasks_use)
            new = TaskUse(
                now.store.since(self._counted_use.store),
                now.registry.since(self._counted_use.registry),
            )
            self._counted_use = now
        for (operation, outcome), count in new.store.calls.items():
            into.add("store_requests_total", count, operation, outcome)
        for operation, size in new.store.sizes.items():
            into.add("store_bytes_total", size, operation)
        for (_, outcome), count in new.registry.calls.items():
            into.add("registry_requests_total", count, outcome)

    def _now_s(self) -> float:
        return self._clock.now_ms() / 1000


prometheus_client.disable_created_metrics()  # type: ignore[no-untyped-call]
