# SPDX-License-Identifier: Apache-2.0
import datetime
import decimal
from collections.abc import Mapping, Sequence
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from storage.errors import CorruptDataError, InvalidOptionError, UnsupportedFeatureError
from storage.format.files.text_files import text_codec
from storage.format.metadata.schema import TableSchema, new_schema
from storage.format.types.types import parse_type

UTC = datetime.UTC


def schema(*columns: tuple[str, str]) -> TableSchema:
    return new_schema([(name, parse_type(text)) for name, text in columns], now_ms=0)


def decoded(
    file_format: str,
    table: TableSchema,
    data: bytes,
    options: Mapping[str, str] | None = None,
    columns: Sequence[str] | None = None,
) -> list[dict[str, Any]]:
    codec = text_codec(file_format, table.fields, options or {})
    names = table.field_names if columns is None else columns
    batches = codec.decode(pa.BufferReader(data), names, "file")
    return [row for batch in batches for row in batch.to_pylist()]


def encoded(
    file_format: str,
    table: TableSchema,
    rows: Sequence[Mapping[str, Any]],
    options: Mapping[str, str] | None = None,
) -> bytes:
    codec = text_codec(file_format, table.fields, options or {})
    batch = pa.RecordBatch.from_pylist(list(rows), schema=table.arrow_schema)
    return codec.header + codec.encode(batch)


ALL_TYPES = schema(
    ("a", "TINYINT"),
    ("b", "SMALLINT"),
    ("c", "INT"),
    ("d", "BIGINT"),
    ("e", "FLOAT"),
    ("f", "DOUBLE"),
    ("g", "DECIMAL(20, 3)"),
    ("h", "BOOLEAN"),
    ("i", "STRING"),
    ("j", "BYTES"),
    ("k", "DATE"),
    ("l", "TIME(3)"),
    ("m", "TIMESTAMP(6)"),
    ("n", "TIMESTAMP(3) WITH LOCAL TIME ZONE"),
)
ROW = {
    "a": -128,
    "b": 32767,
    "c": -(1 << 31),
    "d": (1 << 63) - 1,
    "e": 0.5,
    "f": 1e300,
    "g": decimal.Decimal("12345678901234567.891"),
    "h": True,
    "i": "x,\"y\"\\z\nnext; 'q'",
    "j": b"\x00\xff\n",
    "k": datetime.date(2024, 2, 29),
    "l": datetime.time(1, 2, 3, 4000),
    "m": datetime.datetime(2024, 2, 29, 1, 2, 3, 456789),  # noqa: DTZ001
    "n": datetime.datetime(2024, 2, 29, 1, 2, 3, 456000, tzinfo=UTC),
}
NULLS: dict[str, Any] = dict.fromkeys(ROW)


@pytest.mark.parametrize(
    ("file_format", "options"),
    [
        ("csv", {}),
        ("csv", {"csv.include-header": "true", "field-delimiter": r"\t", "nullvalue": "NULL"}),
        ("csv", {"csv.quote-character": "'", "csv.escape-character": "~", "delimiter": ";"}),
        ("csv", {"csv.line-delimiter": r"\r\n"}),
        ("json", {}),
        ("json", {"json.line-delimiter": "|\n|"}),
    ],
)
def test_every_type_comes_back(file_format: str, options: dict[str, str]) -> None:
    rows = [ROW, NULLS, {**NULLS, "i": "a"}]
    data = encoded(file_format, ALL_TYPES, rows, options)
    assert decoded(file_format, ALL_TYPES, data, options) == rows
    assert decoded(file_format, ALL_TYPES, data, options, ["d"]) == [
        {"d": row["d"]} for row in rows
    ]


def test_csv_is_written_as_paimon_does() -> None:
    table = schema(("a", "INT"), ("b", "STRING"), ("c", "BYTES"))
    rows = [{"a": 1, "b": 'x"y', "c": b"\x00\xff"}, {"a": None, "b": "p\\q", "c": None}]
    assert encoded("csv", table, rows) == b'1,"x\\"y",AP8=\n,"p\\\\q",\n'


@pytest.mark.parametrize(
    ("line", "expected"),
    [
        ('1,"a""b",2.5', {"a": 1, "b": 'a"b', "c": 2.5}),
        ("1", {"a": 1, "b": None, "c": None}),
        ("1,x,2,more,fields", {"a": 1, "b": "x", "c": 2.0}),
        ("", {"a": None, "b": None, "c": None}),
        ('7,\\"x,3', {"a": 7, "b": '"x', "c": 3.0}),
        ("1.5,x,2", {"a": None, "b": "x", "c": 2.0}),
        ("99999999999,x,y", {"a": None, "b": "x", "c": None}),
    ],
)
def test_csv_lines_of_others(line: str, expected: dict[str, Any]) -> None:
    table = schema(("a", "INT"), ("b", "STRING"), ("c", "DOUBLE"))
    rows = decoded("csv", table, f"5,five,5.5\n{line}\n".encode())
    assert sorted(rows, key=str) == sorted([{"a": 5, "b": "five", "c": 5.5}, expected], key=str)


def test_a_malformed_csv_value_is_what_the_mode_says() -> None:
    table = schema(("a", "INT"), ("b", "STRING"))
    data = b"1,x\nzwei,y\n3,z\n"
    assert decoded("csv", table, data)[1] == {"a": None, "b": "y"}
    dropped = decoded("csv", table, data, {"csv.mode": "DROPMALFORMED"})
    assert [row["b"] for row in dropped] == ["x", "z"]
    with pytest.raises(CorruptDataError) as caught:
        decoded("csv", table, data, {"mode": "failfast"})
    assert caught.value.context["value"] == "zwei"
    assert caught.value.context["column"] == "a"


def test_a_csv_row_without_any_value_of_one_column_is_there() -> None:
    table = schema(("a", "INT"))
    assert decoded("csv", table, encoded("csv", table, [{"a": None}, {"a": 1}])) == [
        {"a": None},
        {"a": 1},
    ]


def test_an_empty_csv_file_has_no_rows() -> None:
    assert decoded("csv", schema(("a", "INT")), b"") == []


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"csv.field-delimiter": "||"}, "one character"),
        ({"csv.quote-character": ","}, "must differ"),
        ({"csv.line-delimiter": ""}, "must not be empty"),
    ],
)
def test_options_of_csv_are_checked(options: dict[str, str], message: str) -> None:
    with pytest.raises(InvalidOptionError) as caught:
        text_codec("csv", schema(("a", "INT")).fields, options)
    assert message in f"{caught.value} {caught.value.hint}"


def test_other_ends_of_csv_lines_are_not_read() -> None:
    with pytest.raises(UnsupportedFeatureError, match="line delimiter"):
        decoded("csv", schema(("a", "INT")), b"1;2;", {"csv.line-delimiter": ";"})


def test_nested_values_have_no_form_in_csv() -> None:
    with pytest.raises(UnsupportedFeatureError, match="CSV has no form"):
        text_codec("csv", schema(("a", "ARRAY<INT>")).fields, {})


NESTED = schema(
    ("id", "BIGINT"),
    ("l", "ARRAY<INT>"),
    ("m", "MAP<INT, ARRAY<STRING>>"),
    ("r", "ROW<x DECIMAL(5, 1), y ROW<z BYTES>>"),
)


def test_nested_values_in_json() -> None:
    rows = [
        {
            "id": 1,
            "l": [1, None, 3],
            "m": [(1, ["a"]), (2, None)],
            "r": {"x": decimal.Decimal("1.5"), "y": {"z": b"q"}},
        },
        {"id": 2, "l": None, "m": None, "r": None},
        {"id": 3, "l": [], "m": [], "r": {"x": None, "y": None}},
    ]
    assert decoded("json", NESTED, encoded("json", NESTED, rows)) == rows


def test_json_as_paimon_writes_it_is_read() -> None:
    table = schema(("a", "INT"), ("b", "DOUBLE"), ("c", "BOOLEAN"), ("d", "STRING"), ("e", "DATE"))
    data = b'{"a":"1","b":"2.5","c":"true","d":"x","e":"2024-01-02"}\n{"a":2,"d":3}\n\n{"a":null}'
    nothing = dict.fromkeys("abcde")
    assert decoded("json", table, data) == [
        {"a": 1, "b": 2.5, "c": True, "d": "x", "e": datetime.date(2024, 1, 2)},
        {**nothing, "a": 2, "d": "3"},
        nothing,
    ]


@pytest.mark.parametrize("line", [b"not json", b"[1]", b'{"a":"x"}', b'{"l":3}'])
def test_json_that_does_not_fit(line: bytes) -> None:
    table = schema(("a", "INT"), ("l", "ARRAY<INT>"))
    data = b'{"a":1,"l":[1]}\n' + line + b"\n"
    with pytest.raises(CorruptDataError):
        decoded("json", table, data)
    rows = decoded("json", table, data, {"json.ignore-parse-errors": "true"})
    assert rows[0] == {"a": 1, "l": [1]}
    assert rows[1:] in ([], [{"a": None, "l": None}])


def test_names_of_json_members_are_taken_literally() -> None:
    table = schema(("a/b~c", "INT"), ('q"q', "INT"))
    rows = [{"a/b~c": 1, 'q"q': 2}]
    assert decoded("json", table, encoded("json", table, rows)) == rows


def test_text_holds_one_column() -> None:
    table = schema(("line", "STRING"))
    rows = [{"line": "a,b"}, {"line": ""}, {"line": "c"}]
    assert encoded("text", table, rows) == b"a,b\n\nc\n"
    assert decoded("text", table, b"a,b\r\n\nc") == rows
    with pytest.raises(UnsupportedFeatureError, match="one column"):
        text_codec("text", ALL_TYPES.fields, {})


@given(st.lists(st.tuples(st.one_of(st.none(), st.text()), st.one_of(st.none(), st.text()))))
@settings(max_examples=50, deadline=None)
def test_any_text_survives_csv_and_json(pairs: list[tuple[str | None, str | None]]) -> None:
    table = schema(("a", "STRING"), ("b", "STRING"))
    # CSV has one form for null and for nothing, and readers end lines at any of its marks
    rows = [{"a": a or None, "b": b or None} for a, b in pairs]
    rows = [row for row in rows if all("\0" not in (v or "") for v in row.values())]
    for file_format in ("csv", "json"):
        found = decoded(file_format, table, encoded(file_format, table, rows))
        assert found == rows
