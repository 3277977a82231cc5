# SPDX-License-Identifier: Apache-2.0
"""What Spark jobs of one micro-batch bring back, and how two of them become one."""

import dataclasses
from collections.abc import Collection, Iterable

from ingest.microbatch.plan import Unwritable
from ingest.microbatch.range_report import BatchTotals, RangeReport
from ingest.microbatch.reduce_side import BucketResult
from ingest.microbatch.task_use import TaskUse
from storage.errors import InternalError

__all__ = ["JobOutcome", "replaced", "used", "without"]


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
    report.met_bad_too(again.report)
    failures = {n: e for n, e in first.report.failures.items() if n not in tables}
    report.failures = failures | again.report.failures
    return JobOutcome(BatchTotals(report), kept + again.results, first.use.plus(again.use))
