# SPDX-License-Identifier: Apache-2.0
"""Defaults of columns: their texts, and where they take the place of null."""

import datetime
import decimal

import pyarrow as pa
import pytest

from storage.errors import InvalidRequestError
from storage.format.types.default_values import default_of, fill_defaults, fill_null, read_defaults
from storage.format.types.types import VALUE_KIND, parse_type
from storage.lsm.write_rules import accept_rows
from storage.options.options import TableOptions
from tests.unit.storage.key_value_files import schema_of

INTS = {"type": "ARRAY", "element": "INT"}
ENTRIES = {"type": "MAP", "key": "STRING", "value": "INT"}
ROW = {
    "type": "ROW",
    "fields": [{"id": 1, "name": "x", "type": "INT"}, {"id": 2, "name": "y", "type": INTS}],
}


@pytest.mark.parametrize(
    ("type_", "text", "expected"),
    [
        ("INT", "5", 5),
        ("STRING", "'quoted'", "quoted"),
        ("STRING", "it's", "it's"),
        ("DECIMAL(5, 2)", "1.005", decimal.Decimal("1.01")),
        ("DATE", "2024-01-02", datetime.date(2024, 1, 2)),
        ("BOOLEAN", "true", True),
        ("CHAR(3)", "a", "a  "),
        (INTS, "[1, null, 3]", [1, None, 3]),
        (INTS, "array(1, 2)", [1, 2]),
        (INTS, "[]", []),
        ({"type": "ARRAY", "element": INTS}, "[[1, 2], [3]]", [[1, 2], [3]]),
        ({"type": "ARRAY", "element": "STRING"}, '[a, "b, c"]', ["a", '"b, c"']),
        (ENTRIES, "{a -> 1, b -> null}", [("a", 1), ("b", None)]),
        (ENTRIES, 'MAP("a, b", 1)', [("a, b", 1)]),
        (ENTRIES, "{a -> 1, a -> 2}", [("a", 2)]),
        (ENTRIES, "{}", []),
        (ENTRIES, "NULL", None),
        (ROW, "{1, [2, 3]}", {"x": 1, "y": [2, 3]}),
        (ROW, "STRUCT(null, [])", {"x": None, "y": []}),
        (ROW, "{}", {"x": None, "y": None}),
    ],
)
def test_texts_of_defaults(type_, text, expected):
    value = default_of(text, parse_type(type_), "c")
    value.validate(full=True)
    assert value.to_pylist() == [expected]


@pytest.mark.parametrize(
    ("type_", "text"),
    [
        ("INT", "five"),
        (INTS, "1, 2"),
        (INTS, "[x]"),
        (ENTRIES, "{a}"),
        (ENTRIES, "MAP(a)"),
        (ROW, "{1}"),
        ({"type": "MULTISET", "element": "INT"}, "[1]"),
    ],
)
def test_texts_that_are_no_default_are_named(type_, text):
    with pytest.raises(InvalidRequestError, match="column=`c`"):
        default_of(text, parse_type(type_), "c")


@pytest.mark.parametrize(("type_", "text"), [("INT", "7"), (INTS, "[7]"), (ENTRIES, "{a -> 7}")])
def test_nulls_are_filled_and_nothing_else(type_, text):
    default = default_of(text, parse_type(type_), "c")
    column = pa.concat_arrays([default, pa.nulls(2, default.type), default]).slice(1)
    value = default.to_pylist()[0]
    assert fill_null(column, default).to_pylist() == [value, value, value]
    assert fill_null(column.slice(2), default).to_pylist() == [value]


def with_default(type_, text):
    schema = schema_of(("k", "INT NOT NULL"), ("v", type_))
    fields = (schema.fields[0], schema.fields[1].__class__(
        id=1, name="v", type=schema.fields[1].type, default=text
    ))  # fmt: skip
    return schema.__class__(
        id=0, fields=fields, highest_field_id=9, primary_keys=("k",), options={"bucket": "1"}
    )


def test_column_defaults_are_written():
    schema = with_default(INTS, "[1]")
    batch = pa.record_batch({"k": pa.array([1], pa.int32()), VALUE_KIND: pa.array([0], pa.int8())})
    _, columns = accept_rows(batch, schema, TableOptions.from_strings(schema.options))
    assert columns[1].to_pylist() == [[1]]


def test_option_defaults_are_shown_when_read_but_not_for_keys():
    options = {
        "fields.v.default-value": "7",
        "fields.k.default-value": "1",
        "fields.gone.default-value": "x",
    }
    schema = schema_of(("k", "INT NOT NULL"), ("v", "BIGINT"), options=options)
    defaults = read_defaults(schema)
    assert list(defaults) == ["v"]
    batch = pa.record_batch({"v": pa.array([1, None], pa.int64()), "k": pa.array([1, 2])})
    assert fill_defaults(batch, defaults).to_pydict() == {"v": [1, 7], "k": [1, 2]}
    assert fill_defaults(batch.select(["k"]), defaults) == batch.select(["k"])
