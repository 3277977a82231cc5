# SPDX-License-Identifier: Apache-2.0
"""The further run of a batch for tables that the source truncated."""

import dataclasses
from collections.abc import Mapping
from typing import Any

from ingest.pipeline.deletions.truncates import cuts_of
from ingest.pipeline.plan import BatchPlan
from ingest.pipeline.range_report import RangeReport
from ingest.source.ranges import resume_token
from ingest.state.table_registry import TableRegistry

__all__ = ["emptying_plan"]


def emptying_plan(
    book: TableRegistry, plan: BatchPlan, report: RangeReport, end: Mapping[str, Any]
) -> BatchPlan:
    """Plan the run that empties tables; requests parking of tables that cannot be emptied.

    Args:
        book: the stream's tables.
        plan: of the run before.
        report: of the runs before.
        end: source offsets at the end of the batch, of all partitions.

    Returns:
        For the tables to be emptied alone, and the quarantine, which goes with every further run;
        for no table when there are none.
    """
    parked = book.to_park()
    truncates = [each for each in report.truncates if each.table not in parked]
    names = {each.table for each in truncates} & plan.tables.keys()
    cuts, refused = cuts_of(
        truncates,
        {name: book.table(name) for name in names},
        {name: {*report.feeds.get(name, ()), *book.offsets(name)} for name in names},
        {topic: len(parts) for topic, parts in resume_token(end).items()},
    )
    for name, reason in refused.items():
        book.park(name, reason)
    return dataclasses.replace(
        plan,
        run=plan.run + 1,
        only=tuple(sorted({*cuts, book.quarantine})) if cuts else (),
        cuts=cuts,
    )
