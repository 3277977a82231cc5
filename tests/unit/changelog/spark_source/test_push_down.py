# SPDX-License-Identifier: Apache-2.0
"""Spark's filters are taken when they mean the same here, and only then."""

import datetime
import pickle
from decimal import Decimal

import pyarrow as pa
import pytest
from pyspark.sql.datasource import (
    DataSourceReader,
    EqualNullSafe,
    EqualTo,
    Filter,
    GreaterThan,
    GreaterThanOrEqual,
    In,
    IsNotNull,
    IsNull,
    LessThan,
    LessThanOrEqual,
    Not,
    StringContains,
    StringEndsWith,
    StringStartsWith,
)

from changelog.spark_source.batch_scan import batch_scan
from changelog.spark_source.data_source import ScanReader
from changelog.spark_source.source_options import pushed_predicate, spark_schema
from storage.table.scan.predicate import mask
from storage.table.table import FileStoreTable
from tests.table_kit import make_table, write

UTC = datetime.UTC
NOON = datetime.datetime.fromisoformat("2026-01-31T12:00")
COLUMNS = {
    "n": pa.array([1, 2, None], pa.int64()),
    "s": pa.array(["ab", "b", None], pa.string()),
    "d": pa.array([Decimal("1.50"), Decimal("2.00"), None], pa.decimal128(10, 2)),
    "f": pa.array([0.5, float("nan"), None], pa.float32()),
    "day": pa.array([datetime.date(2026, 1, 31), datetime.date(2026, 2, 1), None]),
    "ts": pa.array([NOON, NOON.replace(hour=13), None], pa.timestamp("ms")),
    "tz": pa.array([NOON.replace(tzinfo=UTC)] * 2 + [None], pa.timestamp("us", "UTC")),
    "fine": pa.array([NOON, NOON, None], pa.timestamp("ns")),
    "time": pa.array([0, 1, None], pa.time32("ms")),
    "b": pa.array([True, False, None]),
    "bytes": pa.array([b"a", b"b", None]),
}
BATCH = pa.RecordBatch.from_pydict(COLUMNS)


def kept(found: Filter) -> list[bool] | None:
    predicate = pushed_predicate(found, BATCH.schema)
    return None if predicate is None else mask(predicate, BATCH).to_pylist()


@pytest.mark.parametrize(
    ("found", "expected"),
    [
        (EqualTo(("n",), 1), [True, False, False]),
        (Not(EqualTo(("n",), 1)), [False, True, False]),
        (EqualNullSafe(("n",), None), [False, False, True]),
        (Not(EqualNullSafe(("n",), 1)), [False, True, True]),
        (GreaterThan(("n",), 1), [False, True, False]),
        (GreaterThanOrEqual(("d",), Decimal("1.5")), [True, True, False]),
        (LessThan(("day",), datetime.date(2026, 2, 1)), [True, False, False]),
        (LessThanOrEqual(("ts",), NOON), [True, False, False]),
        (EqualTo(("tz",), NOON.replace(tzinfo=UTC)), [True, True, False]),
        (GreaterThan(("f",), 1.0), [False, True, False]),  # NaN is the greatest, as in Spark
        (In(("s",), ("b", "c")), [False, True, False]),
        (Not(In(("n",), (1, None))), [False, False, False]),
        (IsNull(("time",)), [False, False, True]),
        (IsNotNull(("fine",)), [True, True, False]),
        (StringStartsWith(("s",), "a"), [True, False, False]),
        (StringEndsWith(("s",), "b"), [True, True, False]),
        (Not(StringContains(("s",), "a")), [False, True, False]),
        (EqualTo(("b",), True), [True, False, False]),
        (EqualTo(("bytes",), b"b"), [False, True, False]),
    ],
)
def test_filters_that_are_taken(found, expected):
    assert kept(found) == expected


@pytest.mark.parametrize(
    "found",
    [
        EqualTo(("n", "x"), 1),  # part of a column
        EqualTo(("other",), 1),
        EqualTo(("fine",), NOON),  # Spark sees microseconds
        GreaterThan(("time",), 1),  # Spark sees an INT
        EqualTo(("f",), 0.1),  # no 32-bit float
        EqualTo(("ts",), NOON.replace(microsecond=1)),
        EqualTo(("ts",), NOON.replace(tzinfo=UTC)),
        StringContains(("s",), "50%"),
        In(("d",), (Decimal("1.505"),)),
        EqualTo(("n",), "1"),
        Not(EqualTo(("fine",), NOON)),
    ],
)
def test_filters_that_are_left_to_spark(found):
    assert kept(found) is None


def test_spark_finds_its_own_method_and_gets_filters_taken_all_the_same(tmp_path):
    """Spark refuses readers with another `pushFilters` while its setting for it is off."""
    table = FileStoreTable.open(make_table(tmp_path).layout.root)
    scan = batch_scan(table)
    for reader in (
        made := ScanReader(scan, spark_schema(scan.schema)),
        pickle.loads(pickle.dumps(made)),
    ):
        assert reader.pushFilters.__func__ is DataSourceReader.pushFilters
        assert type(reader).pushFilters is DataSourceReader.pushFilters
        assert list(reader.pushFilters([EqualTo(("k",), 1)])) == []
        assert reader._pushed is not None


def test_filters_reach_plan_and_rows(tmp_path):
    table = make_table(tmp_path, options={"bucket": "4"})
    for number in range(3):
        write(table, number, [("+I", number * 100 + k, f"v{k}") for k in range(50)])
    scan = batch_scan(table)
    reader = ScanReader(scan, spark_schema(scan.schema))
    others = [EqualTo(("v", "x"), 1)]
    assert list(reader.pushFilters([EqualTo(("k",), 117), IsNotNull(("k",)), *others])) == others
    partitions = reader.partitions()
    assert len(partitions) == 1
    assert len(partitions[0].value.files) == 1
    found = [row for part in partitions for batch in reader.read(part) for row in batch.to_pylist()]
    assert found == [{"k": 117, "v": "v17"}]
