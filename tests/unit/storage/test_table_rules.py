# SPDX-License-Identifier: Apache-2.0
"""Options that a schema may not ask for together; the words are those of Apache Paimon's Java."""

from collections.abc import Mapping, Sequence

import pytest

from storage.errors import InvalidOptionError
from storage.format.schema import TableSchema, new_schema
from storage.format.type_text import parse_type
from storage.table.table_rules import check_table

COLUMNS = [("k", parse_type("INT")), ("v", parse_type("INT")), ("g", parse_type("INT"))]


def schema(options: Mapping[str, str], keys: Sequence[str] = ("k",)) -> TableSchema:
    given = {"bucket": "1", **options} if keys else options
    return new_schema(COLUMNS, primary_keys=keys, options=given)


@pytest.mark.parametrize(
    ("options", "text"),
    [
        ({"scan.mode": "from-timestamp"}, "must set only one key in .scan.timestamp-millis"),
        (
            {"scan.mode": "latest", "scan.timestamp-millis": "1"},
            "scan.timestamp-millis must be null when you use latest for scan.mode",
        ),
        (
            {"scan.mode": "from-snapshot-full"},
            "scan.snapshot-id can not be null when you use from-snapshot-full",
        ),
        ({"incremental-between": "1,2", "scan.snapshot-id": "1"}, "must be null when you set"),
        ({"sequence.field": ""}, "Sequence field: '' can not be found in table schema"),
        ({"sequence.field": "g", "merge-engine": "first-row"}, "sequence field on FIRST_ROW"),
        (
            {"merge-engine": "partial-update", "fields.g.sequence-group": "v,v"},
            "Field v is defined repeatedly by multiple groups",
        ),
        (
            {"merge-engine": "partial-update", "fields.g.sequence-group": ""},
            "Field  can not be found in table schema",
        ),
        ({"sequence.snapshot-ordering": "true"}, "requires write-only = true"),
        (
            {
                "sequence.snapshot-ordering": "true",
                "write-only": "true",
                "sequence.field": "g",
            },
            "mutually exclusive with sequence.field",
        ),
        ({"row-tracking.enabled": "true"}, "Cannot define primary-key for row tracking table"),
        ({"data-evolution.enabled": "true"}, "Data evolution config must enabled with"),
        ({"pk-clustering-override": "true"}, "without 'clustering.columns'"),
        ({"snapshot.num-retained.min": "0"}, "snapshot.num-retained.min should be at least 1"),
        (
            {"snapshot.num-retained.min": "5", "snapshot.num-retained.max": "3"},
            "snapshot.num-retained.min should not be larger than snapshot.num-retained.max",
        ),
        ({"type": "nope"}, "give one of `table`"),
    ],
)
def test_options_of_a_keyed_table_that_cannot_stand_together(
    options: dict[str, str], text: str
) -> None:
    with pytest.raises(InvalidOptionError, match=text):
        check_table(schema(options))


@pytest.mark.parametrize(
    ("options", "text"),
    [
        ({"bucket": "-2"}, "The number of buckets needs to be greater than 0"),
        ({"sequence.snapshot-ordering": "true", "write-only": "true"}, "requires a primary key"),
    ],
)
def test_options_of_an_append_table_that_cannot_stand_together(
    options: dict[str, str], text: str
) -> None:
    with pytest.raises(InvalidOptionError, match=text):
        check_table(schema(options, keys=()))


@pytest.mark.parametrize(
    "options",
    [
        {},
        {"scan.mode": "from-snapshot", "scan.snapshot-id": "1"},
        {"scan.timestamp-millis": "1"},
        {"scan.mode": "compacted-full"},
        {"merge-engine": "partial-update", "fields.g.sequence-group": "v"},
        {"sequence.snapshot-ordering": "true", "write-only": "true"},
        {"type": "table"},
        {"row-tracking.enabled": "false"},
    ],
)
def test_options_that_go_together(options: dict[str, str]) -> None:
    check_table(schema(options))
