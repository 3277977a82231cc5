# SPDX-License-Identifier: Apache-2.0
"""What a micro-batch did, put together from its plan, its jobs and its commits."""

from collections import Counter
from collections.abc import Iterable, Mapping

from ingest.pipeline.batch_report import BatchReport, LookupUse, Written
from ingest.pipeline.job_outcome import JobOutcome
from ingest.pipeline.plan import BatchPlan
from ingest.pipeline.reduce_side import BucketResult
from storage.format.metadata.file_meta import CommitMessage
from storage.table.commit.commit import CommitResult

__all__ = ["summary"]


class CompactionFigures:
    """Written files and outcomes of compactions per table; `add` every result.

    Args:
        commits: what was committed, by table.
    """

    def __init__(self, commits: Mapping[str, tuple[CommitResult, float]]) -> None:
        self._lost = {name for name, (done, _) in commits.items() if done.compaction_dropped}
        self.done: Counter[str] = Counter()
        self.dropped: Counter[str] = Counter()
        self.bytes: Counter[str] = Counter()
        self.read: Counter[str] = Counter()
        self.written: dict[tuple[str, str], Written] = {}
        self.changelog: Counter[str] = Counter()
        self.seconds: dict[str, float] = {}

    def add(self, result: BucketResult) -> None:
        """Add the result of one task for a table."""
        for message in result.messages:
            self._add(result.table, message)
        if any(not message.compact.empty for message in result.messages):
            before = self.seconds.get(result.table, 0.0)
            self.seconds[result.table] = before + result.finish_seconds

    def _add(self, name: str, message: CommitMessage) -> None:
        compact = message.compact
        changelog = [*message.data.changelog_files]
        self._appended(name, "data", (file.file_size for file in message.data.new_files))
        self._appended(name, "changelog", (file.file_size for file in changelog))
        self._appended(name, "index", (file.file_size for file in message.data.new_index_files))
        if not compact.empty:
            lost = name in self._lost
            (self.dropped if lost else self.done)[name] += 1
            if not lost:
                moved = {file.file_name for file in compact.compact_before}
                written = (f for f in compact.compact_after if f.file_name not in moved)
                self.bytes[name] += sum(file.file_size for file in written)
                after = {file.file_name for file in compact.compact_after}
                merged = (f for f in compact.compact_before if f.file_name not in after)
                self.read[name] += sum(file.file_size for file in merged)
                changelog += compact.changelog_files
        if changelog:
            self.changelog[name] += sum(file.row_count for file in changelog)

    def _appended(self, name: str, kind: str, sizes: Iterable[int]) -> None:
        for size in sizes:
            self.written.setdefault((name, kind), Written()).add(size)


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
        commits: what became of each table's commit, and how long it took [s].
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
        bad_by_table=report.bad_records.kept,
        bad_skipped=report.bad_records.skipped,
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
        values_kept=summed((one.table, one.values_kept) for one in outcome.results),
        values_lost=summed((one.table, one.values_lost) for one in outcome.results),
        repeated=summed((n, t.repeated) for n, t in report.tables.items() if n in commits),
        lookup=lookup,
        commit_retries=sum(_retries(done) for done, _ in commits.values()),
        commit_seconds={name: seconds for name, (_, seconds) in commits.items()},
        source_ts_ms={
            name: (totals.min_ts_ms, totals.max_ts_ms)
            for name, totals in report.tables.items()
            if totals.min_ts_ms is not None and totals.max_ts_ms is not None
        },
        end_offsets={
            topic: {partition: end for partition, (_, end) in parts.items()}
            for topic, parts in outcome.totals.span.items()
        },
        skipped_offsets=report.skipped,
        matched=tuple(
            (name, member, column)
            for name, totals in sorted(report.tables.items())
            for member, column in sorted(totals.matched)
            if name in commits
        ),
        duration_s=seconds,
        phases={**phases, **{f"task_{k}": v for k, v in _task_seconds(outcome).items()}},
        started_ms=plan.time_ms,
    )


def _retries(done: CommitResult) -> int:
    """Count attempts that lost a race, those of discarded compactions included."""
    made = [
        each for each in (done.append_snapshot_id, done.compact_snapshot_id) if each is not None
    ]
    return max(0, done.attempts - len(made))


def _task_seconds(outcome: JobOutcome) -> dict[str, float]:
    """Return the time of the steps of a job, summed over tasks [s]."""
    finish = sum(result.finish_seconds for result in outcome.results)
    return {
        **outcome.report.seconds,
        "merge": sum(result.seconds for result in outcome.results) - finish,
        "flush": finish,
    }
