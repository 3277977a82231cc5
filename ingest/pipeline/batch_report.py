# SPDX-License-Identifier: Apache-2.0
"""Results of the Spark jobs of one micro-batch, their combination, and the report of the batch.

The report is for logs, metrics, the status board and the demo.
"""

import dataclasses
from collections import Counter
from collections.abc import Collection, Iterable, Mapping
from typing import Any

from ingest.pipeline.exchange import (
    BatchPlan,
    BucketResult,
    LookupUse,
    RangeReport,
    TableTotals,
    TaskUse,
    Unwritable,
)
from ingest.schema.routing import Verdict
from storage.errors import InternalError
from storage.format.metadata.file_meta import CommitMessage, CompactIncrement
from storage.table.commit.commit import CommitResult

Commits = dict[str, tuple[CommitResult, float]]
"""Result and duration [s] of each table's commit."""

_NOT_KNOWN = CommitResult(already_committed=True)


@dataclasses.dataclass(frozen=True, slots=True)
class JobOutcome:
    """Results of one Spark job, or of all runs of one batch.

    Attributes:
        report: sum of the reports of the source tasks.
        results: results to commit.
        use: calls of all tasks to store and registry, including discarded work.
    """

    report: RangeReport
    results: tuple[BucketResult, ...]
    use: TaskUse = dataclasses.field(default_factory=TaskUse)

    @property
    def unwritable(self) -> tuple[Unwritable, ...]:
        """Records without which the batch must be run again."""
        results = (record for result in self.results for record in result.unwritable)
        return (*self.report.unwritable, *results)


def task_use(reports: Iterable[RangeReport], results: Iterable[BucketResult]) -> TaskUse:
    """Sum the calls of the tasks of one job to store and registry."""
    total = TaskUse()
    for use in (*(report.use for report in reports), *(result.use for result in results)):
        total = total if use is None else total.plus(use)
    return total


def without_tables(outcome: JobOutcome, tables: Collection[str]) -> JobOutcome:
    """The outcome without the work of some tables."""
    if not tables:
        return outcome
    report = dataclasses.replace(outcome.report)
    report.tables = {n: t for n, t in report.tables.items() if n not in tables}
    report.deltas = [delta for delta in report.deltas if delta.target not in tables]
    results = tuple(result for result in outcome.results if result.table not in tables)
    return JobOutcome(report, results, outcome.use)


def with_rerun(outcome: JobOutcome, rerun: JobOutcome, tables: Collection[str]) -> JobOutcome:
    """The first run's outcome with the work of `tables`, the quarantine among them, of the second.

    Raises:
        InternalError: the two did not read the same offsets.
    """
    if rerun.report.span != outcome.report.span:
        raise InternalError("a second run of a batch read other offsets")
    results = tuple(result for result in outcome.results if result.table not in tables)
    report = dataclasses.replace(
        outcome.report,
        deltas=list(rerun.report.deltas),
        bad=rerun.report.bad,
        bad_records=rerun.report.bad_records,
    )
    report.tables = {
        name: totals for name, totals in outcome.report.tables.items() if name not in tables
    } | rerun.report.tables
    report.keys.add(rerun.report.keys)
    failures = {n: e for n, e in outcome.report.failures.items() if n not in tables}
    report.failures = failures | rerun.report.failures
    return JobOutcome(report, results + rerun.results, outcome.use.plus(rerun.use))


class Unfinished:
    """Committed results of a batch that failed during or after its commits.

    A later attempt skips the tables that have committed, and reports their results with its own.
    They are lost with the process: commits of an unfinished batch of another process are in no
    report.
    """

    def __init__(self) -> None:
        self._identifier: int | None = None
        self._results: dict[str, tuple[BucketResult, ...]] = {}
        self._reports: dict[str, RangeReport] = {}
        self._commits: Commits = {}

    def committing(self, identifier: int, outcome: JobOutcome, tables: Collection[str]) -> None:
        """Record tables that are about to commit, for the first time or in another attempt."""
        if identifier != self._identifier:
            self.clear()
            self._identifier = identifier
        for name in tables:
            self._results[name] = tuple(r for r in outcome.results if r.table == name)
            self._reports[name] = outcome.report
            self._commits.pop(name, None)

    def committed(self, name: str, result: CommitResult, seconds: float) -> None:
        """Record the commit of a table; thread-safe."""
        self._commits[name] = (result, seconds)

    def clear(self) -> None:
        """Forget the batch, which is finished and reported."""
        self._identifier, self._results, self._reports, self._commits = None, {}, {}, {}

    def with_earlier(
        self,
        identifier: int,
        outcome: JobOutcome,
        commits: Commits,
        tables: Collection[str],
        quarantine: str,
    ) -> tuple[JobOutcome, Commits]:
        """Add the results and commits of tables that earlier attempts committed.

        If a commit raised but was published, its compaction is unknown and therefore omitted.
        """
        names = sorted(set(tables) & self._results.keys()) if identifier == self._identifier else []
        if not names:
            return outcome, commits
        results: list[BucketResult] = []
        for name in names:
            has_commit = name in self._commits
            results += self._results[name] if has_commit else map(_appended, self._results[name])
        report = dataclasses.replace(outcome.report)
        report.tables = report.tables | {
            name: self._reports[name].tables.get(name, TableTotals()) for name in names
        }
        if quarantine in names:
            earlier_report = self._reports[quarantine]
            report.bad, report.bad_records = earlier_report.bad, earlier_report.bad_records
        earlier = {name: self._commits.get(name, (_NOT_KNOWN, 0.0)) for name in names}
        combined = JobOutcome(report, (*outcome.results, *results), outcome.use)
        return combined, commits | earlier


def _appended(result: BucketResult) -> BucketResult:
    """Return a result without its compactions."""
    messages = (dataclasses.replace(m, compact=CompactIncrement()) for m in result.messages)
    return dataclasses.replace(result, messages=tuple(messages))


@dataclasses.dataclass(slots=True)
class FileTotals:
    """Files of one type.

    Attributes:
        files: how many.
        bytes: their size [bytes].
    """

    files: int = 0
    bytes: int = 0

    def add(self, size: int) -> None:
        """Count a file."""
        self.files += 1
        self.bytes += size


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class BatchReport:
    """Counts and times of one micro-batch; counts are of committed work only.

    Attributes:
        batch_id: Spark's batch id.
        identifier: commit identifier.
        outcome: `committed`, `empty`, `replayed` or `failed`.
        events: records read from the source.
        records: the same by topic.
        walked: those of them that the compiled scan decoded, by topic.
        bytes: payload bytes read.
        rows_by_table: per table rows by kind (`insert`, `update_after`, `delete`…).
        counts: decoder counts (`op.c`, `tombstone`, `heartbeat`…) by topic.
        bad_by_topic: quarantined records per topic and error class.
        bad_by_table: quarantined records per target table and error class; `""` = unknown.
        bad_skipped: bad records that a table's rule dropped, per table and error class.
        snapshots: newest snapshot id per committed table.
        replayed: tables that an earlier attempt of the batch committed.
        sorted_runs: largest run count over the buckets touched, per table.
        compactions: buckets compacted per table.
        compactions_dropped: buckets per table whose compaction lost a race; their rows stay as
            they were appended.
        written: files that were appended, per (table, type): data, changelog, index.
        bucket_skew: most rows of a bucket over their mean, per table.
        slowest_s: time of the bucket that took longest [s].
        use: calls of tasks to store and registry.
        compaction_read_bytes: of files that committed compactions replaced per table [bytes].
        compaction_bytes: written by committed compactions per table [bytes].
        compaction_seconds: tasks' time to flush and compact the buckets compacted [s].
        changelog_rows: rows of committed changelog files per table.
        values_kept: values that the source did not send, kept from older rows, per table.
        values_lost: values that the source did not send and that no older row had, per table.
        ordering_violations: sampled keys that occurred in two partitions, by topic: (hash of the
            key, partition, other partition).
        split_key_updates: key updates whose other half is in another batch, by topic.
        repeated: rows of tables with `ordering: source` that were delivered again or late.
        lookup: use of local copies; None without lookups.
        commit_retries: lost races, over all tables.
        commit_seconds: commit duration per table [s].
        source_ts_ms: per table (oldest, newest) `source.ts_ms` in the batch [ms].
        end_offsets: next offset to read per topic and partition.
        skipped_offsets: offsets lost to retention per (topic, partition).
        schema_verdicts: decisions on requested schema changes, as (table, verdict) pairs.
        parked: tables that this batch parked, as (table, reason) pairs.
        parked_bad: those of them that had too many bad records.
        case_matches: (table, field of events, column) for columns matched to another letter case or
            normal form.
        dead_letters: copies of bad records acknowledged by the dead-letter topic.
        quarantine: name of the quarantine table.
        duration_s: whole batch on the driver [s].
        phases: wall seconds by phase: plan, job, schema, commit [s].
        started_ms: when the driver began [ms].
    """

    batch_id: int
    identifier: int
    outcome: str
    events: int = 0
    records: Mapping[str, int] = dataclasses.field(default_factory=dict)
    bytes: int = 0
    walked: Mapping[str, int] = dataclasses.field(default_factory=dict)
    rows_by_table: Mapping[str, Mapping[str, int]] = dataclasses.field(default_factory=dict)
    counts: Mapping[str, Mapping[str, int]] = dataclasses.field(default_factory=dict)
    bad_by_topic: Mapping[str, Mapping[str, int]] = dataclasses.field(default_factory=dict)
    bad_by_table: Mapping[str, Mapping[str, int]] = dataclasses.field(default_factory=dict)
    bad_skipped: Mapping[str, Mapping[str, int]] = dataclasses.field(default_factory=dict)
    snapshots: Mapping[str, int] = dataclasses.field(default_factory=dict)
    replayed: tuple[str, ...] = ()
    sorted_runs: Mapping[str, int] = dataclasses.field(default_factory=dict)
    compactions: Mapping[str, int] = dataclasses.field(default_factory=dict)
    compactions_dropped: Mapping[str, int] = dataclasses.field(default_factory=dict)
    written: Mapping[tuple[str, str], FileTotals] = dataclasses.field(default_factory=dict)
    bucket_skew: Mapping[str, float] = dataclasses.field(default_factory=dict)
    slowest_s: float = 0.0
    use: TaskUse = dataclasses.field(default_factory=TaskUse)
    compaction_read_bytes: Mapping[str, int] = dataclasses.field(default_factory=dict)
    compaction_bytes: Mapping[str, int] = dataclasses.field(default_factory=dict)
    compaction_seconds: Mapping[str, float] = dataclasses.field(default_factory=dict)
    changelog_rows: Mapping[str, int] = dataclasses.field(default_factory=dict)
    values_kept: Mapping[str, int] = dataclasses.field(default_factory=dict)
    values_lost: Mapping[str, int] = dataclasses.field(default_factory=dict)
    repeated: Mapping[str, int] = dataclasses.field(default_factory=dict)
    ordering_violations: Mapping[str, set[tuple[int, int, int]]] = dataclasses.field(
        default_factory=dict
    )
    split_key_updates: Mapping[str, int] = dataclasses.field(default_factory=dict)
    lookup: LookupUse | None = None
    commit_retries: int = 0
    commit_seconds: Mapping[str, float] = dataclasses.field(default_factory=dict)
    source_ts_ms: Mapping[str, tuple[int, int]] = dataclasses.field(default_factory=dict)
    end_offsets: Mapping[str, Mapping[str, int]] = dataclasses.field(default_factory=dict)
    skipped_offsets: Mapping[tuple[str, int], int] = dataclasses.field(default_factory=dict)
    schema_verdicts: tuple[tuple[str, Verdict], ...] = ()
    parked: tuple[tuple[str, str], ...] = ()
    parked_bad: tuple[str, ...] = ()
    case_matches: tuple[tuple[str, str, str], ...] = ()
    dead_letters: int = 0
    quarantine: str = ""
    duration_s: float = 0.0
    phases: Mapping[str, float] = dataclasses.field(default_factory=dict)
    started_ms: int = 0

    def is_new(self, *, again: bool) -> bool:
        """Whether its work has not been reported yet.

        A replay that commits something was not finished by the process that started it; with
        `again` an earlier attempt of this process failed after some of its commits.
        """
        return self.outcome != "replayed" or again or bool(self.snapshots)

    def facts(self) -> dict[str, Any]:
        """Plain values for a log or a status page."""
        return {
            "batch_id": self.batch_id,
            "identifier": self.identifier,
            "outcome": self.outcome,
            "events": self.events,
            "rows": self.rows,
            "tables": len(self.snapshots),
            "duration_s": round(self.duration_s, 3),
        }

    @property
    def bad_records(self) -> int:
        """Records that went to quarantine."""
        return sum(sum(classes.values()) for classes in self.bad_by_topic.values())

    @property
    def rows(self) -> int:
        """Rows written to tables, quarantine excluded."""
        return sum(
            sum(kinds.values())
            for table, kinds in self.rows_by_table.items()
            if table != self.quarantine
        )


class CompactionFigures:
    """Written files and outcomes of compactions per table; `add` every result.

    Args:
        commits: what was committed, by table.
    """

    def __init__(self, commits: Mapping[str, tuple[CommitResult, float]]) -> None:
        self._conflicts = {
            name for name, (result, _) in commits.items() if result.compaction_dropped
        }
        self.done: Counter[str] = Counter()
        self.dropped: Counter[str] = Counter()
        self.bytes: Counter[str] = Counter()
        self.read: Counter[str] = Counter()
        self.written: dict[tuple[str, str], FileTotals] = {}
        self.changelog: Counter[str] = Counter()
        self.seconds: dict[str, float] = {}

    def add(self, result: BucketResult) -> None:
        """Add the result of one task for a table."""
        for message in result.messages:
            self._add(result.table, message)
        if any(not message.compact.empty for message in result.messages):
            previous_s = self.seconds.get(result.table, 0.0)
            self.seconds[result.table] = previous_s + result.finish_seconds

    def _add(self, name: str, message: CommitMessage) -> None:
        compact = message.compact
        changelog = [*message.data.changelog_files]
        self._appended(name, "data", (file.file_size for file in message.data.new_files))
        self._appended(name, "changelog", (file.file_size for file in changelog))
        self._appended(name, "index", (file.file_size for file in message.data.new_index_files))
        if not compact.empty:
            conflict = name in self._conflicts
            (self.dropped if conflict else self.done)[name] += 1
            if not conflict:
                inputs = {file.file_name for file in compact.compact_before}
                outputs_added = (f for f in compact.compact_after if f.file_name not in inputs)
                self.bytes[name] += sum(file.file_size for file in outputs_added)
                outputs = {file.file_name for file in compact.compact_after}
                merged = (f for f in compact.compact_before if f.file_name not in outputs)
                self.read[name] += sum(file.file_size for file in merged)
                changelog += compact.changelog_files
        if changelog:
            self.changelog[name] += sum(file.row_count for file in changelog)

    def _appended(self, name: str, kind: str, sizes: Iterable[int]) -> None:
        for size in sizes:
            self.written.setdefault((name, kind), FileTotals()).add(size)


def bucket_skew(results: Iterable[BucketResult]) -> dict[str, float]:
    """Return the rows of the largest bucket relative to the mean of the buckets, by table."""
    rows: dict[str, list[int]] = {}
    for result in results:
        if count := sum(result.rows.values()):
            rows.setdefault(result.table, []).append(count)
    return {name: max(counts) * len(counts) / sum(counts) for name, counts in rows.items()}


def summed(counts: Iterable[tuple[str, int]]) -> dict[str, int]:
    """Return positive sums by name."""
    total: Counter[str] = Counter()
    for name, count in counts:
        total[name] += count
    return dict(+total)


def summary(
    plan: BatchPlan,
    outcome: JobOutcome,
    commits: Mapping[str, tuple[CommitResult, float]],
    *,
    snapshots: Mapping[str, int],
    seconds: float,
    phases: Mapping[str, float],
) -> BatchReport:
    """Build the report of a batch.

    Args:
        plan: of its first run.
        outcome: of all its runs.
        commits: result and duration of each table's commit [s].
        snapshots: newest snapshot of each of these tables.
        seconds: of the whole batch [s].
        phases: seconds of its phases [s].
    """
    report = outcome.report
    rows: dict[str, dict[str, int]] = {}
    runs: dict[str, int] = {}
    work = CompactionFigures(commits)
    lookup: LookupUse | None = None
    for result in outcome.results:
        kinds = rows.setdefault(result.table, {})
        for kind, count in result.rows.items():
            kinds[kind] = kinds.get(kind, 0) + count
        runs[result.table] = max(runs.get(result.table, 0), result.sorted_runs)
        work.add(result)
        if result.lookup is not None:
            lookup = result.lookup if lookup is None else lookup.plus(result.lookup)
    outcome_name = "committed" if commits else "empty"
    return BatchReport(
        batch_id=plan.batch_id,
        identifier=plan.identifier,
        outcome="replayed" if plan.skip else outcome_name,
        events=report.records.total(),
        records=report.records,
        walked=report.walked,
        bytes=report.bytes,
        rows_by_table=rows,
        counts=report.counts,
        bad_by_topic=report.bad,
        bad_by_table=report.bad_records.quarantined,
        bad_skipped=report.bad_records.dropped,
        snapshots=snapshots,
        replayed=tuple(sorted(plan.skip)),
        sorted_runs=runs,
        compactions=work.done,
        compactions_dropped=work.dropped,
        written=work.written,
        bucket_skew=bucket_skew(outcome.results),
        slowest_s=max((result.seconds for result in outcome.results), default=0.0),
        use=outcome.use,
        compaction_read_bytes=work.read,
        compaction_bytes=work.bytes,
        compaction_seconds=work.seconds,
        changelog_rows=work.changelog,
        values_kept=summed((result.table, result.values_kept) for result in outcome.results),
        values_lost=summed((result.table, result.values_lost) for result in outcome.results),
        repeated=summed((n, t.repeated) for n, t in report.tables.items() if n in commits),
        lookup=lookup,
        commit_retries=sum(_retries(result) for result, _ in commits.values()),
        commit_seconds={name: seconds for name, (_, seconds) in commits.items()},
        source_ts_ms={
            name: (totals.min_ts_ms, totals.max_ts_ms)
            for name, totals in report.tables.items()
            if totals.min_ts_ms is not None and totals.max_ts_ms is not None
        },
        end_offsets={
            topic: {partition: end for partition, (_, end) in parts.items()}
            for topic, parts in report.span.items()
        },
        skipped_offsets=report.skipped,
        case_matches=tuple(
            (name, member, column)
            for name, totals in sorted(report.tables.items())
            for member, column in sorted(totals.case_matches)
            if name in commits
        ),
        duration_s=seconds,
        phases={**phases, **{f"task_{k}": v for k, v in _task_seconds(outcome).items()}},
        started_ms=plan.time_ms,
    )


def _retries(result: CommitResult) -> int:
    """Count attempts that lost a race, those of discarded compactions included."""
    snapshots = [
        id_ for id_ in (result.append_snapshot_id, result.compact_snapshot_id) if id_ is not None
    ]
    return max(0, result.attempts - len(snapshots))


def _task_seconds(outcome: JobOutcome) -> dict[str, float]:
    """Return the time of the steps of a job, summed over tasks [s]."""
    finish = sum(result.finish_seconds for result in outcome.results)
    return {
        **outcome.report.seconds,
        "merge": sum(result.seconds for result in outcome.results) - finish,
        "flush": finish,
    }
