# SPDX-License-Identifier: Apache-2.0
"""The comparison itself: equal values must compare equal however they are written, others not."""

import pyarrow as pa
import pytest

from storage.format.types.types import arrow_type, parse_type
from tests.golden.values import difference, from_arrow, from_text

_SAME = [
    ("FLOAT", 0.1, pa.scalar(0.1, pa.float32())),
    ("DOUBLE", "NaN", pa.scalar(float("nan"))),
    ("DECIMAL(5, 2)", "1.50", pa.scalar("1.5").cast(pa.decimal128(5, 2))),
    ("BYTES", "00ff", pa.scalar(b"\x00\xff")),
    ("DATE", "1969-12-31", pa.scalar(-1, pa.date32())),
    ("TIME(3)", "00:00:01.250", pa.scalar(1250, pa.time32("ms"))),
    ("TIMESTAMP(6)", "1970-01-01 00:00:01", pa.scalar(1_000_000, pa.timestamp("us"))),
    ("TIMESTAMP(3)", "1969-12-31T23:59:59.999", pa.scalar(-1, pa.timestamp("ms"))),
    (
        "TIMESTAMP(9) WITH LOCAL TIME ZONE",
        "1970-01-01T00:00:00.000000001Z",
        pa.scalar(1, pa.timestamp("ns", "UTC")),
    ),
]


@pytest.mark.parametrize(("text", "written", "stored"), _SAME, ids=lambda item: str(item)[:30])
def test_a_value_compares_equal_in_both_forms(text: str, written: object, stored: object) -> None:
    data_type = parse_type(text)
    column = pa.array([None, stored.as_py()], type=arrow_type(data_type))
    assert from_arrow(column, data_type) == [None, from_text(written, data_type)]


def test_nested_values_compare_without_the_order_of_a_map() -> None:
    data_type = parse_type("ROW<a ARRAY<INT>, m MAP<STRING, INT>>")
    column = pa.array(
        [None, {"a": [1, None], "m": [("x", 1), ("y", 2)]}], type=arrow_type(data_type)
    )
    written = [[1, None], [["y", 2], ["x", 1]]]
    assert from_arrow(column, data_type)[1] == from_text(written, data_type)
    assert from_arrow(column.slice(1), data_type) == [from_text(written, data_type)]


def test_an_arrow_type_other_than_the_columns_is_an_error() -> None:
    with pytest.raises(TypeError, match="int64"):
        from_arrow(pa.array([1], pa.int64()), parse_type("INT"))


def test_a_difference_names_what_is_missing_and_what_is_extra() -> None:
    assert difference([(1,), (2,)], [(2,), (1,)]) is None
    assert difference([(1,), (1,)], [(1,), (2,)]) == (
        "2 rows expected, 2 found; missing (1,); extra (2,)"
    )
