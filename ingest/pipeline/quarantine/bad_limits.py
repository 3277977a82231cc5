# SPDX-License-Identifier: Apache-2.0
"""How many bad records a table may have: `tables[].bad.records` and `bad.records.max.ratio`.

A limit is about one table in one batch. Over it the table is parked from the start of the batch, so
nothing of the batch is committed for it, and its bad records do not go to quarantine either: all
of it comes again when the table is resumed.
"""

from collections.abc import Collection

from ingest.config.settings import Settings
from ingest.pipeline.range_report import RangeReport

__all__ = ["RATIO_COUNTS_FROM", "over_limit"]

RATIO_COUNTS_FROM = 100
"""Rows and bad records of a table in a batch below which no ratio is formed: one bad record among
three says nothing about a table."""


def over_limit(
    settings: Settings, report: RangeReport, judged: Collection[str] = ()
) -> dict[str, str]:
    """Tables to be parked for their bad records.

    Args:
        settings: the pipeline's.
        report: of the whole batch, schemas settled.
        judged: tables whose part of the batch is decided: committed before, or parked.

    Returns:
        Reasons, by table.
    """
    reasons: dict[str, str] = {}
    for table, classes in sorted(report.bad_records.found.items()):
        if table in judged:
            continue
        count = sum(classes.values())
        totals = report.tables.get(table)
        whole = count + (0 if totals is None else totals.rows)
        limit = settings.bad_records.max_ratio
        if settings.bad_policy(table) == "fail":
            reason = f"{count} bad records, and the table takes none (bad.records: fail)"
        elif limit is not None and whole >= RATIO_COUNTS_FROM and count > limit * whole:
            reason = (
                f"{count} of {whole} records are bad, more than bad.records.max.ratio = {limit:g}"
            )
        else:
            continue
        topic, partition, offset, error = report.bad_records.first[table]
        kinds = ", ".join(f"{n} {name}" for name, n in classes.most_common())
        reasons[table] = f"{reason}: {kinds}; first {topic}-{partition} @ {offset}: {error}"
    return reasons
