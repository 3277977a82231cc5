# SPDX-License-Identifier: Apache-2.0
"""Values that PostgreSQL did not send, in every encoding, under each policy."""

import dataclasses

import pytest

from ingest.decode.events import UNAVAILABLE_COLUMN, Target, Toast
from storage.format.types.type_text import parse_type
from tests.unit.ingest.debezium_events import batch, classes, decoder, message, rows, schema

PLACEHOLDER = "__debezium_unavailable_value"
CODES = list(PLACEHOLDER.encode())
FORMS = [
    ("STRING", PLACEHOLDER),
    ("BYTES", "X19kZWJleml1bV91bmF2YWlsYWJsZV92YWx1ZQ=="),
    ("DECIMAL(10,2)", PLACEHOLDER),
    ("STRING", {PLACEHOLDER: PLACEHOLDER}),
    ("STRING", f'{{"{PLACEHOLDER}": "{PLACEHOLDER}"}}'),
    ({"type": "ARRAY", "element": "STRING"}, [PLACEHOLDER]),
    ({"type": "ARRAY", "element": "BYTES"}, ["X19kZWJleml1bV91bmF2YWlsYWJsZV92YWx1ZQ=="]),
    ({"type": "ARRAY", "element": "INT"}, CODES),
    ({"type": "ARRAY", "element": "STRING"}, ["b68a35a7-17ad-35b3-af2a-ae46edb4545a"]),
]


def typed(type_text):
    table = schema(("id", "BIGINT"), ("n", "INT"), ("v", "STRING"))
    column = dataclasses.replace(table.field("v"), type=parse_type(type_text))
    return dataclasses.replace(table, fields=(*table.fields[:2], column))


def decoder_with(table, toast):
    return decoder({"orders": Target("shop.orders", table, toast=toast)})


@pytest.mark.parametrize(("type_text", "form"), FORMS)
def test_a_missing_value_is_null_and_marked(type_text, form):
    table = typed(type_text)
    one = decoder_with(table, Toast.KEEP)
    result = one.decode(
        batch(
            message("u", None, {"id": 1, "n": 1, "v": form}),
            message("u", None, {"id": 2, "n": 2, "v": None}),
        )
    )
    assert not result.bad
    found = rows(result)
    assert [(row["id"], row["v"], row[UNAVAILABLE_COLUMN]) for row in found] == [
        (1, None, [table.field("v").id]),
        (2, None, None),
    ]
    assert result.counts == {"op.u": 2}


@pytest.mark.parametrize(("type_text", "form"), FORMS)
def test_policies_of_one_table(type_text, form):
    value = message("u", None, {"id": 1, "n": 1, "v": form})
    result = decoder_with(typed(type_text), Toast.NULL).decode(batch(value))
    (row,) = rows(result)
    assert (row["v"], UNAVAILABLE_COLUMN in row) == (None, False)
    result = decoder_with(typed(type_text), Toast.FAIL).decode(batch(value))
    assert classes(result) == ["unavailable_value"]


@pytest.mark.parametrize("op", ["c", "r"])
def test_a_new_row_must_have_its_values(op):
    table = typed("STRING")
    result = decoder_with(table, Toast.KEEP).decode(
        batch(message(op, None, {"id": 1, "n": 1, "v": PLACEHOLDER}))
    )
    assert classes(result) == ["unavailable_value"]
    assert "v" in result.bad[0].error


def test_a_changed_key_must_come_with_all_values():
    table = typed("STRING")
    value = message("u", {"id": 1, "n": 1, "v": "x"}, {"id": 2, "n": 1, "v": PLACEHOLDER})
    result = decoder_with(table, Toast.KEEP).decode(batch(value))
    assert classes(result) == ["unavailable_value"]
    assert "key changed" in result.bad[0].error


def test_text_that_only_contains_the_placeholder_is_a_value():
    text = f"see {PLACEHOLDER} in the documentation"
    result = decoder_with(typed("STRING"), Toast.KEEP).decode(
        batch(message("u", None, {"id": 1, "n": 1, "v": text}))
    )
    assert [row["v"] for row in rows(result)] == [text]


def test_columns_beyond_64_are_marked_too():
    columns = [("id", "BIGINT"), *((f"c{i}", "STRING") for i in range(90))]
    table = schema(*columns)
    row = {"id": 1} | {f"c{i}": PLACEHOLDER if i % 2 else "x" for i in range(90)}
    (found,) = rows(decoder_with(table, Toast.KEEP).decode(batch(message("u", None, row))))
    assert found[UNAVAILABLE_COLUMN] == [table.field(f"c{i}").id for i in range(1, 90, 2)]
