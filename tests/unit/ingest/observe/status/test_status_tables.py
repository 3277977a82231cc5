# SPDX-License-Identifier: Apache-2.0
"""What the status page says of each table."""

from ingest.observe.status.status_board import BAD_TABLES, TableFacts
from ingest.pipeline.batch_report import BatchReport


def bad(by_table):
    return BatchReport(batch_id=1, identifier=1, outcome="committed", bad_by_table=by_table)


def test_names_that_bad_records_invent_do_not_fill_the_memory():
    facts = TableFacts()
    invented = {f"x{number}": {"json": 1} for number in range(5_000)}
    facts.record(bad({"shop.orders": {"type": 2}, **invented}), "2026-11-22T08:00:00Z")
    facts.record(bad({"shop.orders": {"type": 1}, "other": {"json": 3}}), "2026-11-22T08:00:00Z")
    told = facts.quarantine()
    assert told["records"] == 2 + 5_000 + 1 + 3
    assert told["by_class"] == {"type": 3, "json": 5_003}
    assert told["by_table"]["shop.orders"] == {"type": 3}
    assert "other" not in told["by_table"]
    assert len(told["by_table"]) == BAD_TABLES + 1
    assert told["by_table"][""] == {"json": 5_003 - (BAD_TABLES - 1)}
