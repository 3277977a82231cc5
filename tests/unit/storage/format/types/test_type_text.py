# SPDX-License-Identifier: Apache-2.0
import pytest
from hypothesis import given, settings

from storage.errors import InvalidRequestError, UnsupportedFeatureError
from storage.format.types.types import (
    MAX_LENGTH,
    ArrayType,
    AtomicType,
    DataField,
    TypeRoot,
    field_from_json,
    field_to_json,
    parse_type,
    type_name,
    type_to_json,
)
from tests.unit.storage.random_rows import ATOMIC_TEXTS, NANOSECONDS, SEEDS, random_table


@pytest.mark.parametrize(
    ("text", "canonical"),
    [
        ("  decimal ( 20,2 )  not   null", "DECIMAL(20, 2) NOT NULL"),
        ("numeric(5)", "DECIMAL(5, 0)"),
        ("Char", "CHAR(1)"),
        ("VARBINARY(2147483647)", "BYTES"),
        ("timestamp(3) without time zone", "TIMESTAMP(3)"),
        ("TIMESTAMP WITH  LOCAL TIME ZONE", "TIMESTAMP(6) WITH LOCAL TIME ZONE"),
        ("BIGINT NULL", "BIGINT"),
    ],
)
def test_texts_are_read_freely_and_written_one_way(text, canonical):
    assert type_to_json(parse_type(text)) == canonical


def test_suffix_form_of_arrays_is_read():
    element = AtomicType(TypeRoot.INT, nullable=False)
    assert parse_type("INT NOT NULL ARRAY NOT NULL") == ArrayType(element, nullable=False)


@pytest.mark.parametrize(
    "text",
    ["", "TEXT", "INT(3)", "DECIMAL(39, 0)", "DECIMAL(3, 4)", "CHAR(0)", "TIMESTAMP(10)",
     "STRING(5)", "DATE WITH LOCAL TIME ZONE", "TIMESTAMP(3, 1)"],
)  # fmt: skip
def test_other_texts_are_refused(text):
    with pytest.raises(InvalidRequestError):
        parse_type(text)


@pytest.mark.parametrize("value", [{}, {"type": "ARRAY"}, {"type": "SET", "element": "INT"}])
def test_other_objects_are_refused(value):
    with pytest.raises(InvalidRequestError):
        parse_type(value)


def test_types_of_newer_versions_are_named():
    with pytest.raises(UnsupportedFeatureError, match="VARIANT"):
        parse_type({"type": "ARRAY", "element": "VARIANT NOT NULL"})


def test_redundant_members_of_other_writers_are_ignored():
    assert parse_type({"type": "MULTISET", "element": "INT", "nullable": True}).nullable


def test_string_is_an_unbounded_varchar():
    assert parse_type("STRING") == AtomicType(TypeRoot.VARCHAR, length=MAX_LENGTH)


def test_field_keeps_description_and_default():
    value = {"id": 4, "name": "n", "type": "INT", "description": "d", "defaultValue": "0"}
    field = field_from_json(value)
    assert field == DataField(
        id=4, name="n", type=AtomicType(TypeRoot.INT), description="d", default="0"
    )
    assert field_to_json(field) == value


def test_field_without_id_is_refused():
    with pytest.raises(InvalidRequestError, match="lacks"):
        field_from_json({"name": "n", "type": "INT"})


def test_messages_quote_names_of_nested_fields():
    field = {"id": 1, "name": "a`b", "type": "INT", "description": "it's"}
    row = parse_type({"type": "ROW", "fields": [field]})
    assert type_name(row) == "ROW<`a``b` INT COMMENT 'it''s'>"


@pytest.mark.parametrize(
    ("text", "canonical"),
    [
        ("array<int>", "ARRAY<INT>"),
        ("ARRAY < INT NOT NULL > NOT NULL", "ARRAY<INT NOT NULL> NOT NULL"),
        ("Map<string, decimal(10,2)> null", "MAP<STRING, DECIMAL(10, 2)>"),
        ("MULTISET<STRING>", "MULTISET<STRING>"),
        ("ROW<>", "ROW<>"),
        ("ROW(a INT, `b c` STRING)", "ROW<`a` INT, `b c` STRING>"),
        ("ROW<not INT, null MAP<INT,INT>>", "ROW<`not` INT, `null` MAP<INT, INT>>"),
        ("ROW<`a``b` INT NOT NULL COMMENT 'it''s', c DATE>",
         "ROW<`a``b` INT NOT NULL COMMENT 'it''s', `c` DATE>"),
        ("ARRAY<MAP<INT, ROW<a ARRAY<TIMESTAMP(3) WITH LOCAL TIME ZONE>, b INT>>>",
         "ARRAY<MAP<INT, ROW<`a` ARRAY<TIMESTAMP(3) WITH LOCAL TIME ZONE>, `b` INT>>>"),
        ("ROW<a INT> ARRAY", "ARRAY<ROW<`a` INT>>"),
        ("INT ARRAY NOT NULL MULTISET", "MULTISET<ARRAY<INT> NOT NULL>"),
    ],
)  # fmt: skip
def test_nested_types_are_read_as_sql_writes_them(text, canonical):
    assert type_name(parse_type(text)) == canonical
    assert type_name(parse_type(canonical)) == canonical


@pytest.mark.parametrize(
    "text",
    ["ARRAY", "ARRAY<>", "ARRAY<INT", "ARRAY<INT>>", "ARRAY<INT, INT>", "MAP<INT>", "ROW<INT>",
     "MAP<INT, INT, INT>", "ROW<a INT,>", "ROW<a INT)", "ARRAY(INT)", "STRUCT<a INT>",
     "INT NOTNULL", "INT NULLABLE", "ARRAY<INT> x", "ROW<a INT COMMENT x>", "ARRAY<" * 5000],
)  # fmt: skip
def test_nested_texts_that_are_no_type_are_refused_with_the_place(text):
    with pytest.raises(InvalidRequestError, match="not a type") as caught:
        parse_type(text)
    assert "at" in caught.value.context
    assert "ARRAY<STRING>" in caught.value.hint


@given(SEEDS)
@settings(max_examples=100, deadline=None, derandomize=True)
def test_what_messages_show_is_read_back(seed):
    fields, _ = random_table(seed, (*ATOMIC_TEXTS, *NANOSECONDS))
    for field in fields:
        name = type_name(field.type)
        assert type_name(parse_type(name)) == name


@pytest.mark.parametrize(
    ("text", "hint"),
    [
        ("TIMESTAMP WITH TIME ZONE", "TIMESTAMP(6) WITH LOCAL TIME ZONE"),
        ("timestamp(3) with time zone not null", "TIMESTAMP(3) WITH LOCAL TIME ZONE"),
        ("ARRAY<TIMESTAMP(9) WITH TIME ZONE>", "TIMESTAMP(9) WITH LOCAL TIME ZONE"),
        ("TIME WITH TIME ZONE", "STRING"),
    ],
)
def test_a_time_zone_in_each_value_is_refused_with_what_to_use(text, hint):
    with pytest.raises(UnsupportedFeatureError, match="time zone") as caught:
        parse_type(text)
    assert hint in caught.value.hint
