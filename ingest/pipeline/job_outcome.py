# SPDX-License-Identifier: Apache-2.0
"""Results of the Spark jobs of one micro-batch, and their combination."""

import dataclasses
from collections.abc import Collection, Iterable

from ingest.pipeline.plan import Unwritable
from ingest.pipeline.range_report import BatchTotals, RangeReport, TableTotals
from ingest.pipeline.reduce_side import BucketResult
from ingest.pipeline.task_use import TaskUse
from storage.errors import InternalError
from storage.format.metadata.file_meta import CompactIncrement
from storage.table.commit.commit import CommitResult

__all__ = ["Commits", "JobOutcome", "Unfinished", "replaced", "used", "without"]

Commits = dict[str, tuple[CommitResult, float]]
"""Result and duration [s] of each table's commit."""

_NOT_KNOWN = CommitResult(
    append_snapshot_id=None,
    compact_snapshot_id=None,
    already_committed=True,
    compaction_dropped=False,
    attempts=0,
)


@dataclasses.dataclass(frozen=True, slots=True)
class JobOutcome:
    """Results of one Spark job, or of all runs of one batch.

    Attributes:
        totals: reports of the source tasks.
        results: results to commit.
        use: calls of all tasks to store and registry, including discarded work.
    """

    totals: BatchTotals
    results: tuple[BucketResult, ...]
    use: TaskUse = dataclasses.field(default_factory=TaskUse)

    @property
    def report(self) -> RangeReport:
        """Sum of the reports of all tasks."""
        return self.totals.report

    @property
    def unwritable(self) -> tuple[Unwritable, ...]:
        """Records without which the batch must be run again."""
        results = (record for result in self.results for record in result.unwritable)
        return (*self.report.unwritable, *results)


def used(reports: Iterable[RangeReport], results: Iterable[BucketResult]) -> TaskUse:
    """Sum the calls of the tasks of one job to store and registry."""
    total = TaskUse()
    for use in (*(report.use for report in reports), *(result.use for result in results)):
        total = total if use is None else total.plus(use)
    return total


def without(outcome: JobOutcome, tables: Collection[str]) -> JobOutcome:
    """The outcome without the work of some tables."""
    if not tables:
        return outcome
    report = dataclasses.replace(outcome.report)
    report.tables = {n: t for n, t in report.tables.items() if n not in tables}
    report.deltas = [delta for delta in report.deltas if delta.target not in tables]
    kept = tuple(result for result in outcome.results if result.table not in tables)
    return JobOutcome(BatchTotals(report), kept, outcome.use)


def replaced(first: JobOutcome, again: JobOutcome, tables: Collection[str]) -> JobOutcome:
    """The first run's outcome with the work of `tables`, the quarantine among them, of the second.

    Raises:
        InternalError: the two did not read the same offsets.
    """
    if again.totals.span != first.totals.span:
        raise InternalError("a second run of a batch read other offsets")
    kept = tuple(result for result in first.results if result.table not in tables)
    report = dataclasses.replace(
        first.report,
        deltas=list(again.report.deltas),
        bad=again.report.bad,
        bad_records=again.report.bad_records,
    )
    report.tables = {
        name: totals for name, totals in first.report.tables.items() if name not in tables
    } | again.report.tables
    report.keys.add(again.report.keys)
    failures = {n: e for n, e in first.report.failures.items() if n not in tables}
    report.failures = failures | again.report.failures
    return JobOutcome(BatchTotals(report), kept + again.results, first.use.plus(again.use))


class Unfinished:
    """Committed results of a batch that failed during or after its commits.

    A later attempt skips the tables that have committed, and reports their results with its own.
    They are lost with the process: commits of an unfinished batch of another process are in no
    report.
    """

    def __init__(self) -> None:
        self._identifier: int | None = None
        self._results: dict[str, tuple[BucketResult, ...]] = {}
        self._totals: dict[str, TableTotals] = {}
        self._commits: Commits = {}

    def committing(self, identifier: int, outcome: JobOutcome, tables: Collection[str]) -> None:
        """Record tables that are about to commit, for the first time or in another attempt."""
        if identifier != self._identifier:
            self.finished()
            self._identifier = identifier
        for name in tables:
            self._results[name] = tuple(r for r in outcome.results if r.table == name)
            self._totals[name] = outcome.report.tables.get(name, TableTotals())
            self._commits.pop(name, None)

    def committed(self, name: str, done: CommitResult, seconds: float) -> None:
        """Record the commit of a table; thread-safe."""
        self._commits[name] = (done, seconds)

    def finished(self) -> None:
        """Forget the batch, which is finished and reported."""
        self._identifier, self._results, self._totals, self._commits = None, {}, {}, {}

    def with_earlier(
        self, identifier: int, outcome: JobOutcome, commits: Commits, tables: Collection[str]
    ) -> tuple[JobOutcome, Commits]:
        """Add the results and commits of tables that earlier attempts committed.

        If a commit raised but was published, its compaction is unknown and therefore omitted.
        """
        mine = sorted(set(tables) & self._results.keys()) if identifier == self._identifier else []
        if not mine:
            return outcome, commits
        results: list[BucketResult] = []
        for name in mine:
            known = name in self._commits
            results += self._results[name] if known else map(_appended, self._results[name])
        report = dataclasses.replace(outcome.report)
        report.tables = report.tables | {name: self._totals[name] for name in mine}
        earlier = {name: self._commits.get(name, (_NOT_KNOWN, 0.0)) for name in mine}
        combined = JobOutcome(BatchTotals(report), (*outcome.results, *results), outcome.use)
        return combined, commits | earlier


def _appended(result: BucketResult) -> BucketResult:
    """Return a result without its compactions."""
    messages = (dataclasses.replace(m, compact=CompactIncrement()) for m in result.messages)
    return dataclasses.replace(result, messages=tuple(messages))
