# SPDX-License-Identifier: Apache-2.0
import datetime
from decimal import Decimal
from typing import Any

import pyarrow as pa
import pytest

from storage.errors import InvalidRequestError
from storage.table.write.rows.row_changes import fit_columns

TIME = datetime.datetime.fromisoformat("2024-07-01 12:00:00.123456")


def fitted(column: pa.Array, wanted: pa.DataType, **more: Any) -> list[Any]:
    batch = pa.RecordBatch.from_arrays([column], names=["given"])
    schema = pa.schema([pa.field("c", wanted, more.pop("nullable", True))])
    return fit_columns(batch, schema, **more).column(0).to_pylist()


@pytest.mark.parametrize(
    ("values", "given", "wanted", "expected"),
    [
        ([1, None], pa.int32(), pa.int64(), [1, None]),
        ([1], pa.int64(), pa.decimal128(10, 2), [Decimal("1.00")]),
        ([2.0], pa.float64(), pa.int32(), [2]),
        ([Decimal("1.005"), Decimal("-1.005")], pa.decimal128(9, 3), pa.decimal128(9, 2), None),
        (["3.456", "7"], pa.string(), pa.decimal128(5, 2), [Decimal("3.46"), Decimal("7.00")]),
        (["12"], pa.string(), pa.int8(), [12]),
        (["2024-01-31"], pa.string(), pa.date32(), [datetime.date(2024, 1, 31)]),
        ([TIME], pa.timestamp("us"), pa.timestamp("ms"), [TIME.replace(microsecond=123_000)]),
        ([b"ab"], pa.binary(), pa.binary(2), [b"ab"]),
        (
            [{"x": 1, "y": "a"}, None],
            pa.struct({"x": pa.int32(), "y": pa.string()}),
            pa.struct({"y": pa.string(), "x": pa.int64()}),
            [{"y": "a", "x": 1}, None],
        ),
        (
            [{"col1": 1, "col2": "a"}],
            pa.struct({"col1": pa.int32(), "col2": pa.string()}),
            pa.struct({"x": pa.int64(), "y": pa.string()}),
            [{"x": 1, "y": "a"}],
        ),
    ],
)
def test_values_that_lose_nothing_are_converted(
    values: list[Any], given: pa.DataType, wanted: pa.DataType, expected: list[Any] | None
) -> None:
    if expected is None:
        expected = [Decimal("1.01"), Decimal("-1.01")]
    assert fitted(pa.array(values, given), wanted) == expected


@pytest.mark.parametrize(
    ("values", "given", "wanted", "row"),
    [
        ([1, 2, 300], pa.int64(), pa.int8(), 3),
        ([1.0, 1.5], pa.float64(), pa.int64(), 2),
        (["1", "x", "y"], pa.string(), pa.int64(), 2),
        ([None, Decimal("1234.5")], pa.decimal128(6, 1), pa.decimal128(4, 1), 2),
        ([10**12], pa.int64(), pa.decimal128(10, 2), 1),
        ([TIME], pa.timestamp("us"), pa.timestamp("us", "UTC"), 1),
        ([{"x": 1}], pa.struct({"x": pa.int32()}), pa.struct({"x": pa.int32(), "y": pa.int8()}), 1),
    ],
)
def test_an_error_names_column_row_and_value(
    values: list[Any], given: pa.DataType, wanted: pa.DataType, row: int
) -> None:
    with pytest.raises(InvalidRequestError) as caught:
        fitted(pa.array(values, given), wanted, first_row=11)
    context = caught.value.context
    assert (context["column"], context["row"]) == ("c", 10 + row)
    assert context["value"] == values[row - 1]


@pytest.mark.parametrize("begin", [0, 1])
def test_rows_in_lists_and_maps_are_taken_by_position(begin: int) -> None:
    row, wanted_row = pa.struct({"": pa.int32()}), pa.struct({"x": pa.int64()})
    values = [[{"": 9}, {"": 8}], [{"": 1}, None], None, []]
    rows = [None if row is None else [v and {"x": v[""]} for v in row] for row in values]
    found = fitted(pa.array(values, pa.list_(row)).slice(begin), pa.list_(wanted_row))
    assert found == rows[begin:]
    entries = [[("a", {"": 9})], [("b", {"": 1}), ("c", None)], None, []]
    given = pa.array(entries, pa.map_(pa.string(), row)).slice(begin)
    pairs = [None if row is None else [(k, v and {"x": v[""]}) for k, v in row] for row in entries]
    assert fitted(given, pa.map_(pa.string(), wanted_row)) == pairs[begin:]


def test_null_is_refused_in_lists_of_values() -> None:
    wanted = pa.list_(pa.field("element", pa.int64(), nullable=False))
    with pytest.raises(InvalidRequestError, match="does not fit") as caught:
        fitted(pa.array([[1], [2, None]]), wanted)
    assert caught.value.context["row"] == 2


def test_null_is_refused_where_the_column_takes_none() -> None:
    with pytest.raises(InvalidRequestError, match="non-null column") as caught:
        fitted(pa.array([1, None, None]), pa.int64(), nullable=False)
    assert caught.value.context["row"] == 2


def test_times_and_instants_meet_in_a_zone() -> None:
    naive, instant = pa.timestamp("ms"), pa.timestamp("ms", "UTC")
    local = datetime.datetime.fromisoformat("2024-07-01 12:00:00")
    there = datetime.datetime(2024, 7, 1, 10, tzinfo=datetime.UTC)
    assert fitted(pa.array([local], naive), instant, zone="Europe/Berlin") == [there]
    assert fitted(pa.array([there], instant), naive, zone="Europe/Berlin") == [local]
