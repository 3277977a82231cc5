# SPDX-License-Identifier: Apache-2.0
"""The metrics of one pipeline, on a registry of their own, in the driver's process.

Executors never serve or push: they return figures with their results, and `Metrics.record` adds
them only after the commit, so counters mean *committed* work and a retried task counts once. What
must not freeze when its source is silent (watermarks, lag, freshness) is worked out at scrape time
and left out when it is older than `STALE_AFTER_S`. Names and labels are in `metric_table`.
"""

import dataclasses
import importlib.metadata
import platform
import threading
from collections import deque
from collections.abc import Iterable, Iterator, Mapping
from typing import Any

import prometheus_client
from prometheus_client import exposition
from prometheus_client.core import GaugeMetricFamily
from prometheus_client.registry import Collector

from ingest.microbatch.batch_report import BatchReport, LookupUse
from ingest.observing.metric_table import METRICS, PREFIX, STATES, TABLE_STATES, Metric
from storage.clock import Clock, SystemClock
from storage.table.compact_table import CompactReport

__all__ = ["PAIMON_FORMAT", "STALE_AFTER_S", "Metrics", "Watermarks", "version_of"]

PAIMON_FORMAT = "3"
"""Version of the snapshot and schema files that are written (FORMAT.md §2.1, §3.1)."""

STALE_AFTER_S = 120.0
"""Age of a watermark poll after which its series disappear [s]: eight polls at 15 s, so that a
short broker hiccup leaves no gap and a dead poll is not mistaken for a quiet topic."""

Watermarks = Mapping[tuple[str, int], tuple[int, int]]
"""(topic, partition) -> (log start, log end)."""

_WAITING_MEMORY = 240
"""Remembered polls per partition: an hour at 15 s; older waiting times are lower bounds."""


def version_of(distribution: str) -> str:
    """Installed version of a distribution; `unknown` when it runs from a source tree."""
    try:
        return importlib.metadata.version(distribution)
    except importlib.metadata.PackageNotFoundError:
        return "unknown"


@dataclasses.dataclass(slots=True)
class _Partition:
    """Offsets of one partition, and when its end offset was first seen at which value."""

    low: int = 0
    high: int = 0
    committed: int | None = None
    seen: "deque[tuple[float, int]]" = dataclasses.field(
        default_factory=lambda: deque(maxlen=_WAITING_MEMORY)
    )

    def polled(self, now_s: float, low: int, high: int) -> None:
        self.low = low
        if not self.seen or high > self.high:
            self.seen.append((now_s, high))
        self.high = high
        self._forget()

    def reached(self, offset: int) -> None:
        self.committed = offset
        self._forget()

    def _forget(self) -> None:
        if self.committed is not None:
            while self.seen and self.seen[0][1] <= self.committed:
                self.seen.popleft()

    @property
    def lag(self) -> int:
        return max(0, self.high - (self.low if self.committed is None else self.committed))

    def waiting_s(self, now_s: float) -> float:
        if self.lag == 0 or not self.seen:
            return 0.0
        return max(0.0, now_s - self.seen[0][0])

    @property
    def headroom(self) -> float:
        """1 = nothing of what we need is near deletion, 0 = loss begins."""
        committed = self.low if self.committed is None else self.committed
        kept = self.high - self.low
        return 1.0 if kept <= 0 else min(1.0, max(0.0, (committed - self.low) / kept))


class Metrics:
    """Every metric of the daemon; thread-safe.

    Args:
        clock: time.
        process: whether `process_*` and `python_gc_*` are exported too.
    """

    def __init__(self, clock: Clock | None = None, *, process: bool = True) -> None:
        self._clock = clock or SystemClock()
        self._lock = threading.Lock()
        self._partitions: dict[tuple[str, int], _Partition] = {}
        self._polled_s: float | None = None
        self._waits: Mapping[str, float] = {}
        self._source_ts_ms: dict[str, int] = {}
        self.registry = prometheus_client.CollectorRegistry()
        self._metrics: dict[str, Any] = {
            row.name: _instrument(row, self.registry) for row in METRICS if row.type != "computed"
        }
        self.registry.register(_Computed(self))
        if process:
            prometheus_client.ProcessCollector(registry=self.registry)
            prometheus_client.GCCollector(registry=self.registry)
        self._metrics["build_info"].labels(
            version_of("lakeward"), version_of("pyspark"), platform.python_version(), PAIMON_FORMAT
        ).set(1)
        self.set_state("starting")

    def exposition(self, accept: str = "") -> tuple[bytes, str]:
        """The scrape answer: body and content type for an `Accept` header."""
        encoder, content_type = exposition.choose_encoder(accept)
        return encoder(self.registry), content_type

    def set_state(self, state: str) -> None:
        """Enter one of `STATES`."""
        for each in STATES:
            self._metrics["state"].labels(each).set(1 if each == state else 0)

    def set_epoch(self, epoch: int) -> None:
        """Which owner of the stream this process is."""
        self._metrics["driver_epoch"].set(epoch)

    def set_table_states(self, states: Mapping[str, str]) -> None:
        """Say which of `TABLE_STATES` each table is in."""
        for table, state in states.items():
            for each in TABLE_STATES:
                self._metrics["table_state"].labels(table, each).set(1 if each == state else 0)

    def webhook_called(self, outcome: str) -> None:
        """A webhook was told, was not, or will not be: `sent`, `failed` or `dropped`."""
        self._metrics["webhook_events_total"].labels(outcome).inc()

    def batch_started(self) -> None:
        """A micro-batch began."""
        self._metrics["batch_in_progress"].set(1)
        self._metrics["batch_start_timestamp_seconds"].set(self._now_s())

    def batch_failed(self) -> None:
        """The micro-batch ended without a report; it will be tried again."""
        self._metrics["batch_in_progress"].set(0)
        self._metrics["batches_total"].labels("failed").inc()

    def record(self, report: BatchReport) -> None:
        """Add a finished micro-batch. Call it once per batch, after its commits."""
        self._metrics["batch_in_progress"].set(0)
        self._metrics["batches_total"].labels(report.outcome).inc()
        self._metrics["batch_id"].set(report.batch_id)
        self._metrics["batch_duration_seconds"].observe(report.duration_s)
        self._metrics["last_success_timestamp_seconds"].set(self._now_s())
        for phase, seconds in report.phases.items():
            if phase.startswith("task_"):
                name = phase.removeprefix("task_")
                self._metrics["batch_phase_task_seconds_total"].labels(name).inc(seconds)
            else:
                self._metrics["batch_phase_duration_seconds"].labels(phase).observe(seconds)
        self._metrics["dlq_sent_total"].inc(report.dead_letters)
        if report.outcome == "replayed":  # its work was counted when it was committed
            self._record_offsets(report)
            return
        self._metrics["batch_records"].observe(report.events)
        self._record_source(report)
        self._record_tables(report)
        self._record_offsets(report)

    def _record_source(self, report: BatchReport) -> None:
        self._metrics["source_bytes_total"].inc(report.bytes)
        records: dict[str, int] = {}
        for topic, counts in report.counts.items():
            for name, count in counts.items():
                self._metrics["decode_records_total"].labels(topic, _op(name)).inc(count)
            records[topic] = sum(n for name, n in counts.items() if name != "unrouted")
        for topic, classes in report.bad_by_topic.items():
            for reason, count in classes.items():
                self._metrics["decode_errors_total"].labels(topic, reason).inc(count)
                self._metrics["dlq_records_total"].labels(topic, reason).inc(count)
            records[topic] = records.get(topic, 0) + sum(classes.values())
        self._record_bad(report)
        for topic, count in records.items():
            self._metrics["source_records_total"].labels(topic).inc(count)
        for topic, found in report.ordering_violations.items():
            self._metrics["ordering_violations_total"].labels(topic).inc(len(found))
        for topic, count in report.split_key_updates.items():
            self._metrics["split_key_updates_total"].labels(topic).inc(count)
        for (topic, partition), count in report.skipped_offsets.items():
            self._metrics["source_skipped_offsets_total"].labels(topic, partition).inc(count)

    def _record_bad(self, report: BatchReport) -> None:
        for metric, tables in (
            ("quarantined_rows_total", report.bad_by_table),
            ("bad_records_skipped_total", report.bad_skipped),
        ):
            for table, classes in tables.items():
                for reason, count in classes.items():
                    self._metrics[metric].labels(table, reason).inc(count)
        for table in report.parked_bad:
            self._metrics["tables_parked_for_bad_records_total"].labels(table).inc()

    def _record_tables(self, report: BatchReport) -> None:
        ended_s = report.started_ms / 1000 + report.duration_s
        for table, kinds in report.rows_by_table.items():
            for kind, count in kinds.items():
                self._metrics["table_rows_written_total"].labels(table, kind).inc(count)
        for table, snapshot_id in report.snapshots.items():
            self._metrics["table_snapshot_id"].labels(table).set(snapshot_id)
            self._metrics["table_last_commit_timestamp_seconds"].labels(table).set(ended_s)
            self._metrics["commits_total"].labels(table, "append", "ok").inc()
        for table, runs in report.sorted_runs.items():
            self._metrics["table_sorted_runs_max"].labels(table).set(runs)
        self._record_compactions(report)
        for outcome, tables in (("swept", report.swept), ("called_off", report.unswept)):
            for table in tables:
                self._metrics["table_sweeps_total"].labels(table, outcome).inc()
        for table, seconds in report.commit_seconds.items():
            self._metrics["commit_duration_seconds"].labels(table).observe(seconds)
        self._metrics["commit_retries_total"].labels("snapshot_exists").inc(report.commit_retries)
        for table, said in report.schema_verdicts:
            labels = (table, said.kind.value, said.outcome.value)
            self._metrics["schema_changes_total"].labels(*labels).inc()
        for table, (oldest, newest) in report.source_ts_ms.items():
            self._metrics["table_commit_delay_seconds"].labels(table).observe(
                max(0.0, ended_s - oldest / 1000)
            )
            with self._lock:
                newest = max(newest, self._source_ts_ms.get(table, 0))
                self._source_ts_ms[table] = newest
            self._metrics["table_source_timestamp_seconds"].labels(table).set(newest / 1000)

    def _record_compactions(self, report: BatchReport) -> None:
        for table, count in report.compactions.items():
            self._metrics["compactions_total"].labels(table, "minor", "ok").inc(count)
            if count:
                self._metrics["commits_total"].labels(table, "compact", "ok").inc()
        for table, count in report.compactions_dropped.items():
            self._metrics["compactions_total"].labels(table, "minor", "dropped").inc(count)
            self._metrics["commits_total"].labels(table, "compact", "conflict").inc()
        for table, seconds in report.compaction_seconds.items():
            self._metrics["compaction_seconds_total"].labels(table, "minor").inc(seconds)
        for table, size in report.compaction_bytes.items():
            self._metrics["compaction_written_bytes_total"].labels(table, "minor").inc(size)
        for metric, counts in (
            ("table_changelog_rows_total", report.changelog_rows),
            ("table_values_kept_total", report.values_kept),
            ("table_values_lost_total", report.values_lost),
            ("duplicate_events_total", report.repeated),
            ("table_rows_swept_total", report.swept),
        ):
            for table, count in counts.items():
                self._metrics[metric].labels(table).inc(count)
        if report.lookup is not None:
            self.record_lookup(report.lookup)

    def record_lookup(self, use: LookupUse) -> None:
        """Add what was done with the local copies of data files."""
        self._metrics["lookup_hits_total"].inc(use.hits)
        self._metrics["lookup_misses_total"].inc(use.misses)
        self._metrics["lookup_built_bytes_total"].inc(use.built_bytes)
        self._metrics["lookup_evicted_files_total"].inc(use.evicted_files)
        self._metrics["lookup_disk_bytes"].set(use.disk_bytes)

    def compaction_started(self) -> None:
        """A table is being compacted in the background."""
        self._metrics["compaction_in_progress"].set(1)

    def compaction_ended(self, table: str, kind: str, report: CompactReport | None) -> None:
        """Add a background compaction; None: it failed as a whole."""
        self._metrics["compaction_in_progress"].set(0)
        total = self._metrics["compactions_total"]
        if report is None:
            total.labels(table, kind, "error").inc()
            return
        total.labels(table, kind, "ok").inc(report.compacted)
        total.labels(table, kind, "dropped").inc(report.dropped)
        total.labels(table, kind, "error").inc(len(report.failures))
        self._metrics["commits_total"].labels(table, "compact", "ok").inc(len(report.snapshots))
        self._metrics["compaction_seconds_total"].labels(table, kind).inc(report.bucket_seconds)
        self._metrics["compaction_written_bytes_total"].labels(table, kind).inc(
            report.written_bytes
        )
        self._metrics["table_changelog_rows_total"].labels(table).inc(report.changelog_rows)

    def upkeep_done(self, table: str, *, snapshots: int = 0, orphans: int = 0) -> None:
        """Add snapshots that expired, and files removed that nothing named."""
        self._metrics["snapshots_expired_total"].labels(table).inc(snapshots)
        self._metrics["orphan_files_removed_total"].labels(table).inc(orphans)

    def _record_offsets(self, report: BatchReport) -> None:
        with self._lock:
            for topic, offsets in report.end_offsets.items():
                for partition, offset in offsets.items():
                    key = (topic, int(partition))
                    self._partitions.setdefault(key, _Partition()).reached(offset)
                    self._metrics["source_committed_offset"].labels(topic, partition).set(offset)

    def source_error(self, reason: str) -> None:
        """A client error: `transport`, `auth`, `timeout`, `out_of_range` or `other`."""
        self._metrics["source_errors_total"].labels(reason).inc()

    def record_committed(self, offsets: Mapping[str, Mapping[str, int]]) -> None:
        """Set the starting offsets of a stream, so that lag is right before the first batch."""
        with self._lock:
            for topic, parts in offsets.items():
                for partition, offset in parts.items():
                    key = (topic, int(partition))
                    self._partitions.setdefault(key, _Partition()).reached(int(offset))

    def record_watermarks(self, watermarks: Watermarks) -> None:
        """Take the result of a successful poll of the source."""
        now_s = self._clock.monotonic_s()
        self._metrics["source_offsets_poll_timestamp_seconds"].set(self._now_s())
        with self._lock:
            self._polled_s = now_s
            for key, (low, high) in watermarks.items():
                self._partitions.setdefault(key, _Partition()).polled(now_s, low, high)

    def set_waits(self, waits: Mapping[str, float]) -> None:
        """Say how long records of a topic may wait [s]: until then they are not late."""
        with self._lock:
            self._waits = dict(waits)

    def _late_s(self, topic: str, partition: _Partition, now_s: float) -> float:
        return max(0.0, partition.waiting_s(now_s) - self._waits.get(topic, 0.0))

    def lag(self) -> dict[tuple[str, int], int]:
        """Records behind, per (topic, partition); empty while no recent poll says."""
        with self._lock:
            if not self._fresh():
                return {}
            return {key: each.lag for key, each in self._partitions.items()}

    def freshness_s(self) -> dict[str, float]:
        """Per table the age of its newest change; 0 while the source has nothing newer [s].

        Records that may wait are nothing newer yet.
        """
        lag = self.lag()
        with self._lock:
            if self._polled_s is None:
                return {}
            now_s = self._clock.monotonic_s()
            caught_up = bool(lag) and not any(
                count
                and (
                    key[0] not in self._waits or self._late_s(key[0], self._partitions[key], now_s)
                )
                for key, count in lag.items()
            )
            now_ms = self._clock.now_ms()
            return {
                table: 0.0 if caught_up else max(0.0, (now_ms - ts_ms) / 1000)
                for table, ts_ms in self._source_ts_ms.items()
            }

    def _fresh(self) -> bool:
        polled = self._polled_s
        return polled is not None and self._clock.monotonic_s() - polled <= STALE_AFTER_S

    def computed(self) -> dict[str, dict[tuple[str, ...], float]]:
        """Values of the metrics of type `computed` by label values."""
        values: dict[str, dict[tuple[str, ...], float]] = {
            row.name: {} for row in METRICS if row.type == "computed"
        }
        values["source_wait_seconds"] = {(topic,): s for topic, s in self._waits.items()}
        values["table_freshness_seconds"] = {(t,): s for t, s in self.freshness_s().items()}
        now_s = self._clock.monotonic_s()
        with self._lock:
            partitions = dict(self._partitions) if self._fresh() else {}
            for (topic, partition), each in partitions.items():
                labels = (topic, str(partition))
                values["source_end_offset"][labels] = each.high
                values["source_start_offset"][labels] = each.low
                values["source_lag_records"][labels] = each.lag
                values["source_retention_headroom_ratio"][labels] = each.headroom
                waiting = values["source_lag_seconds"]
                waiting[(topic,)] = max(
                    waiting.get((topic,), 0.0), self._late_s(topic, each, now_s)
                )
                count = values["source_partitions"]
                count[(topic,)] = count.get((topic,), 0) + 1
        return values

    def _now_s(self) -> float:
        return self._clock.now_ms() / 1000


class _Computed(Collector):
    """Serves the `computed` rows of the catalogue."""

    def __init__(self, metrics: Metrics) -> None:
        self._metrics = metrics

    def collect(self) -> Iterator[GaugeMetricFamily]:
        """See `Collector`; families without values still announce their help and type."""
        values = self._metrics.computed()
        for row in METRICS:
            if row.type == "computed":
                family = GaugeMetricFamily(PREFIX + row.name, row.help, labels=row.labels)
                for labels, value in sorted(values[row.name].items()):
                    family.add_metric(labels, value)
                yield family

    def describe(self) -> Iterable[GaugeMetricFamily]:
        """Names without values, for the registry's duplicate check."""
        return [
            GaugeMetricFamily(PREFIX + row.name, row.help, labels=row.labels)
            for row in METRICS
            if row.type == "computed"
        ]


def _instrument(
    row: Metric, registry: prometheus_client.CollectorRegistry
) -> prometheus_client.Counter | prometheus_client.Gauge | prometheus_client.Histogram:
    name = PREFIX + row.name
    if row.type == "counter":
        return prometheus_client.Counter(name, row.help, row.labels, registry=registry)
    if row.type == "gauge":
        return prometheus_client.Gauge(name, row.help, row.labels, registry=registry)
    return prometheus_client.Histogram(
        name, row.help, row.labels, registry=registry, buckets=row.buckets
    )


def _op(count_name: str) -> str:
    return count_name.removeprefix("op.")


prometheus_client.disable_created_metrics()  # type: ignore[no-untyped-call]
