# SPDX-License-Identifier: Apache-2.0
"""Statistics are those of the rows as they are read."""

import datetime
import decimal

import numpy as np
import pytest

from storage.errors import InvalidRequestError
from storage.format.metadata.snapshot import CommitKind
from storage.table.inspect.analyze import DistinctCount, analyze
from storage.table.inspect.statistics import ColumnStatistics, read_statistics
from storage.testing.invariants import check_table
from tests.table_kit import make_table, reopened, write

COLUMNS = (
    ("k", "BIGINT"),
    ("s", "STRING"),
    ("d", "DATE"),
    ("n", "DECIMAL(20, 2)"),
    ("f", "DOUBLE"),
    ("b", "BOOLEAN"),
    ("t", "TIMESTAMP(3)"),
    ("a", {"type": "ARRAY", "element": "INT"}),
)


def of(table, name):
    found = analyze(table, [name]).statistics.columns[name]
    assert found.column_id == table.schema.field(name).id
    return found


def test_rows_are_counted_as_they_are_read(tmp_path):
    table = make_table(tmp_path)
    write(table, 1, [("+I", 1, "a"), ("+I", 2, "b")], compaction=False)
    write(table, 2, [("+U", 1, "c"), ("-D", 2, "b")], compaction=False)
    done = analyze(table)
    statistics = done.statistics
    assert (statistics.snapshot_id, statistics.merged_record_count) == (2, 1)
    assert statistics.merged_record_size > 0
    assert statistics.columns == {}
    newest = table.latest_snapshot()
    assert (newest.id, newest.commit_kind) == (done.snapshot_id, CommitKind.ANALYZE)
    assert read_statistics(reopened(table)) == statistics
    check_table(reopened(table))


def test_columns_of_every_kind(tmp_path):
    table = make_table(tmp_path, columns=COLUMNS)
    day, moment = datetime.date(2024, 1, 2), datetime.datetime(2024, 1, 2, 3, 4, 5)  # noqa: DTZ001
    price = decimal.Decimal("-12345678901234567.89")
    nan = float("nan")
    rows = [
        ("+I", 1, "ä", day, price, 1.5, True, moment, [1]),
        ("+I", 2, "xyz", day, abs(price), nan, False, moment, []),
        ("+I", 3, None, None, None, None, None, None, None),
    ]
    write(table, 1, rows)
    found = analyze(table, None).statistics.columns
    assert list(found) == ["k", "s", "d", "n", "f", "b", "t"]

    def known(column):
        return (column.distinct_count, column.min, column.max, column.null_count)

    assert known(found["k"]) == (3, "1", "3", 0)
    assert (found["k"].avg_len, found["k"].max_len) == (8, 8)
    assert known(found["s"]) == (2, None, None, 1)
    assert (found["s"].avg_len, found["s"].max_len) == (2, 3)
    assert known(found["d"]) == (1, "19724", "19724", 1)
    assert known(found["n"]) == (2, str(price), str(abs(price)), 1)
    assert known(found["f"]) == (2, "1.5", "NaN", 1)
    assert known(found["b"]) == (2, "false", "true", 1)
    assert known(found["t"]) == (1, "2024-01-02 03:04:05.000", "2024-01-02 03:04:05.000", 1)


def test_a_column_of_nulls(tmp_path):
    table = make_table(tmp_path)
    write(table, 1, [("+I", 1, None)])
    assert of(table, "v") == ColumnStatistics(
        column_id=1, distinct_count=0, null_count=1, avg_len=20, max_len=20
    )


def test_what_cannot_be_is_refused(tmp_path):
    table = make_table(tmp_path, columns=COLUMNS)
    assert analyze(table) is None
    write(table, 1, [("+I", 1, None, None, None, None, None, None, None)])
    with pytest.raises(InvalidRequestError, match="no such column"):
        analyze(table, ["missing"])
    with pytest.raises(InvalidRequestError, match="no statistics"):
        analyze(table, ["a"])


@pytest.mark.parametrize("count", [0, 10, 100_000, 1_000_000])
def test_many_values_are_counted_about(count):
    distinct = DistinctCount()
    hashes = np.random.default_rng(count).integers(0, 2**64, count, np.uint64)
    for part in np.array_split(np.repeat(hashes, 2), 7):
        distinct.add(part)
    assert abs(distinct.estimate() - count) <= (0.03 * count if count > 131_072 else 0)
