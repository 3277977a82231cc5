# SPDX-License-Identifier: Apache-2.0
import pyarrow as pa
import pytest

from storage.errors import UnsupportedFeatureError
from storage.format.types.types import (
    DataField,
    arrow_schema,
    arrow_type,
    normalize,
    parse_type,
    type_from_arrow,
    type_to_json,
)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("TIMESTAMP(0)", pa.timestamp("ms")),
        ("TIMESTAMP(3)", pa.timestamp("ms")),
        ("TIMESTAMP(4)", pa.timestamp("us")),
        ("TIMESTAMP(7)", pa.timestamp("ns")),
        ("TIMESTAMP_LTZ(6)", pa.timestamp("us", "UTC")),
        ("TIME(3)", pa.time32("ms")),
        ("CHAR(3)", pa.string()),
        ("BINARY(3)", pa.binary()),
        ("DECIMAL(5, 2)", pa.decimal128(5, 2)),
    ],
)
def test_atomic_types(text, expected):
    assert arrow_type(parse_type(text)) == expected


def test_nullability_reaches_into_nested_types():
    type_ = parse_type({"type": "MAP", "key": "STRING", "value": "INT NOT NULL"})
    assert not arrow_type(type_).item_field.nullable
    array = parse_type({"type": "ARRAY", "element": "INT NOT NULL"})
    assert not arrow_type(array).value_field.nullable
    schema = arrow_schema([DataField(id=0, name="k", type=parse_type("INT NOT NULL"))])
    assert not schema.field("k").nullable


@pytest.mark.parametrize(
    "text",
    ["BOOLEAN", "TINYINT", "SMALLINT", "INT", "BIGINT", "FLOAT", "DOUBLE", "DATE", "TIME(3)",
     "STRING", "BYTES", "DECIMAL(38, 3)", "TIMESTAMP(6)", "TIMESTAMP(9) WITH LOCAL TIME ZONE"],
)  # fmt: skip
def test_types_return_from_arrow(text):
    assert type_to_json(type_from_arrow(arrow_type(parse_type(text)))) == text


def test_nested_types_return_from_arrow():
    value = {
        "type": "ROW",
        "fields": [
            {"id": 0, "name": "a", "type": {"type": "ARRAY", "element": "INT NOT NULL"}},
            {"id": 1, "name": "m", "type": {"type": "MAP", "key": "INT NOT NULL", "value": "DATE"}},
        ],
    }
    assert type_to_json(type_from_arrow(arrow_type(parse_type(value)))) == value


def test_times_finer_than_milliseconds_have_no_type():
    with pytest.raises(UnsupportedFeatureError):
        type_from_arrow(pa.time64("us"))


def test_foreign_forms_of_a_column_are_normalized():
    string = parse_type("STRING")
    expected = pa.array(["a", "b", "a"])
    assert normalize(expected, string) is expected
    assert normalize(pa.chunked_array([["a"], ["b", "a"]]), string).equals(expected)
    assert normalize(pa.chunked_array([], pa.string()), string).equals(pa.array([], pa.string()))
    assert normalize(expected.dictionary_encode(), string).equals(expected)
    assert normalize(expected.cast(pa.large_string()), string).equals(expected)


def test_values_that_do_not_fit_are_refused():
    with pytest.raises(UnsupportedFeatureError, match="INT"):
        normalize(pa.array([2**40]), parse_type("INT"))
