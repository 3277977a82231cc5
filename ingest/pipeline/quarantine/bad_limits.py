# SPDX-License-Identifier: Apache-2.0
"""Limits of bad records of a table: `tables[].bad.records` and `bad.records.max.ratio`.

A limit applies to one table in one batch. Above it the table is parked from the start of the batch:
nothing of the batch is committed to it, and its bad records do not go to quarantine; all of it is
processed again when the table is resumed.
"""

from collections.abc import Collection

from ingest.config.settings import Settings
from ingest.pipeline.range_report import RangeReport

__all__ = ["RATIO_COUNTS_FROM", "over_limit"]

RATIO_COUNTS_FROM = 100
"""Minimum number of rows and bad records of a table in a batch for the ratio to apply."""


def over_limit(
    settings: Settings, report: RangeReport, exempt: Collection[str] = ()
) -> dict[str, str]:
    """Return the tables to park because of their bad records.

    Args:
        settings: settings of the pipeline.
        report: report of the whole batch, after schema changes.
        exempt: tables that are already committed or parked.

    Returns:
        Reasons by table.
    """
    reasons: dict[str, str] = {}
    for table, classes in sorted(report.bad_records.found.items()):
        if table in exempt:
            continue
        count = sum(classes.values())
        totals = report.tables.get(table)
        whole = count + (0 if totals is None else totals.rows)
        limit = settings.bad_records.max_ratio
        if settings.bad_policy(table) == "fail":
            reason = f"{count} bad records, and the table accepts none (bad.records: fail)"
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
