# SPDX-License-Identifier: Apache-2.0
"""The driver's part in emptying tables that the source truncated (`truncates`)."""

import dataclasses
from collections.abc import Mapping
from typing import Any

from ingest.plan import BatchPlan
from ingest.range_report import RangeReport
from ingest.source.ranges import resume_token
from ingest.table_book import TableBook
from ingest.truncates import cuts_of

__all__ = ["emptying_plan"]


def emptying_plan(
    book: TableBook, plan: BatchPlan, report: RangeReport, end: Mapping[str, Any]
) -> BatchPlan:
    """The run that empties tables; asks to park those that cannot be emptied.

    Args:
        book: the stream's tables.
        plan: of the run before.
        report: of the runs before.
        end: source offsets at the end of the batch, of all partitions.

    Returns:
        For the tables to be emptied alone, and the quarantine, which goes with every further run;
        for no table when there are none.
    """
    gone = book.to_park()
    truncates = [each for each in report.truncates if each.table not in gone]
    names = {each.table for each in truncates} & plan.tables.keys()
    cuts, refused = cuts_of(
        truncates,
        {name: book.table(name) for name in names},
        {name: {*report.feeds.get(name, ()), *book.offsets(name)} for name in names},
        {topic: len(parts) for topic, parts in resume_token(end).items()},
    )
    for name, reason in refused.items():
        book.park(name, reason)
    only = tuple(sorted({*cuts, book.quarantine})) if cuts else ()
    return dataclasses.replace(plan, run=plan.run + 1, only=only, cuts=cuts)
