# SPDX-License-Identifier: Apache-2.0
"""Values that PostgreSQL did not send, in every encoding, under each policy."""

import dataclasses
import json

import pytest

from ingest.decode.events import UNAVAILABLE_COLUMN, Target, Toast
from ingest.decode.types.conversions import Placeholder, convert
from ingest.decode.types.semantic_types import STRING, Codec, Kind, TypeMapping
from storage.format.types.types import parse_type
from tests.unit.ingest.debezium_events import (
    batch,
    classes,
    decoder,
    message,
    raw_after,
    rows,
    schema,
)
from tests.unit.ingest.walking import walking

INTS = {"type": "ARRAY", "element": "INT"}
INT = Codec(Kind.INTEGER, parse_type("INT"))

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
    ({"type": "ARRAY", "element": "DATE"}, CODES),
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
    null = message("u", None, {"id": 2, "n": 2, "v": None})
    gone = message("d", {"id": 3, "n": 3, "v": form})
    result = decoder_with(typed(type_text), Toast.FAIL).decode(batch(null, value, gone))
    assert classes(result) == ["unavailable_value"]
    assert [(row["kind"], row["id"], row["v"]) for row in rows(result)] == [
        ("+U", 2, None),
        ("-D", 3, None),
    ]


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


ESCAPED = json.dumps(PLACEHOLDER).replace("b", "\\u0062").encode()
DOCUMENTS = [
    json.dumps(CODES, separators=(",", ":")).encode(),
    json.dumps(CODES).encode(),
    b"[95.0" + json.dumps(CODES, separators=(",", ":")).encode()[3:],
    b"[" + ESCAPED + b"]",
    b"[ " + ESCAPED + b" ]",
    b"{" + ESCAPED + b":" + ESCAPED + b"}",
    b'{ "' + PLACEHOLDER.encode() + b'" : ' + ESCAPED + b"}",
]


@pytest.mark.parametrize("toast", [Toast.KEEP, Toast.FAIL])
@pytest.mark.parametrize("mapping", [(), ("to-string",)])
@pytest.mark.parametrize("token", DOCUMENTS)
def test_documents_that_are_the_placeholder_are_no_text(token, mapping, toast):
    """A text column that had an object is read as documents, column by column."""
    target = {"orders": Target("shop.orders", typed("STRING"), toast=toast)}
    one = decoder(target, type_mapping=TypeMapping.of(mapping))
    documents = [b'{"a":1}', b"[1,2]", b'["a\\"b","c"]', b'{"a":"\\u00e9"}', token, b'["x"]']
    with walking():
        for _ in range(3):
            values = [raw_after(b'{"id":1,"n":1,"v":%b}' % text) for text in documents]
            result = one.decode(batch(*values))
            (refused,) = result.bad
            assert (refused.offset, refused.error_class) == (18, "unavailable_value")
            texts = [t.decode() for at, t in enumerate(documents) if at != 4]
            assert [row["v"] for row in rows(result)] == texts


@pytest.mark.parametrize("size", [1, len(CODES)])
def test_lists_in_a_column_that_became_text(size):
    """The codes of the placeholder in a column that was a list of numbers are no list."""
    codec = Codec(Kind.AS_TEXT, STRING, element=Codec(Kind.ARRAY, parse_type(INTS), element=INT))
    values = [[1, 2], CODES[:size], [], None]
    column = convert(codec, values)
    placeholder = Placeholder(PLACEHOLDER)
    suspects = placeholder.suspects(codec, column)
    assert suspects.to_pylist()[1]
    assert suspects.to_pylist()[0] is False
    assert not any(placeholder.exact(codec, column, suspects).to_pylist())


def test_marks_come_only_with_rows_that_need_them():
    """Refused rows that lack a value leave no trace in the batch of the others."""
    one = decoder_with(typed("STRING"), Toast.KEEP)
    values = [{"id": 1, "n": 1, "v": PLACEHOLDER}, {"id": 2, "n": 2, "v": "b"}]
    result = one.decode(batch(*(message("c", None, value) for value in values)))
    assert classes(result) == ["unavailable_value"]
    assert [sorted(row) for row in rows(result)] == [["id", "kind", "n", "offset", "v"]]
