# SPDX-License-Identifier: Apache-2.0
"""What Spark jobs of one micro-batch bring back, and how two of them become one."""

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
"""What became of each table's commit, and how long it took [s]."""

_NOT_KNOWN = CommitResult(
    append_snapshot_id=None,
    compact_snapshot_id=None,
    already_committed=True,
    compaction_dropped=False,
    attempts=0,
)


@dataclasses.dataclass(frozen=True, slots=True)
class JobOutcome:
    """Everything that came back from one Spark job, or from the runs of one batch together.

    Attributes:
        totals: the source tasks' reports.
        results: what is to be committed.
        use: what all tasks asked of store and registry, those too whose work was thrown away.
    """

    totals: BatchTotals
    results: tuple[BucketResult, ...]
    use: TaskUse = dataclasses.field(default_factory=TaskUse)

    @property
    def report(self) -> RangeReport:
        """All tasks' reports added up."""
        return self.totals.report

    @property
    def unwritable(self) -> tuple[Unwritable, ...]:
        """Records for which the batch is to be run again without them."""
        results = (each for result in self.results for each in result.unwritable)
        return (*self.report.unwritable, *results)


def used(reports: Iterable[RangeReport], results: Iterable[BucketResult]) -> TaskUse:
    """What the tasks of one job asked of store and registry."""
    total = TaskUse()
    for each in (*(report.use for report in reports), *(result.use for result in results)):
        total = total if each is None else total.plus(each)
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
    """What tables brought to the commits of a batch that failed while or after they committed.

    A later try leaves out the tables that did, so what they committed is told with that try. It
    dies with the process: what another process committed of a batch that it did not finish is in no
    report.
    """

    def __init__(self) -> None:
        self._identifier: int | None = None
        self._results: dict[str, tuple[BucketResult, ...]] = {}
        self._totals: dict[str, TableTotals] = {}
        self._commits: Commits = {}

    def committing(self, identifier: int, outcome: JobOutcome, tables: Collection[str]) -> None:
        """Tables are about to commit, for the first time or again because they had not."""
        if identifier != self._identifier:
            self.finished()
            self._identifier = identifier
        for name in tables:
            self._results[name] = tuple(one for one in outcome.results if one.table == name)
            self._totals[name] = outcome.report.tables.get(name, TableTotals())
            self._commits.pop(name, None)

    def committed(self, name: str, done: CommitResult, seconds: float) -> None:
        """A table has committed; safe in threads."""
        self._commits[name] = (done, seconds)

    def finished(self) -> None:
        """The batch is done, and told."""
        self._identifier, self._results, self._totals, self._commits = None, {}, {}, {}

    def with_earlier(
        self, identifier: int, outcome: JobOutcome, commits: Commits, tables: Collection[str]
    ) -> tuple[JobOutcome, Commits]:
        """An outcome and its commits, and those of tables that earlier tries committed.

        Of a commit that failed in its caller's eyes it is known that its rows are there, and not
        what became of its compaction, which is left out.
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
        told = JobOutcome(BatchTotals(report), (*outcome.results, *results), outcome.use)
        return told, commits | earlier


def _appended(result: BucketResult) -> BucketResult:
    """A result without its compactions."""
    messages = (dataclasses.replace(one, compact=CompactIncrement()) for one in result.messages)
    return dataclasses.replace(result, messages=tuple(messages))
