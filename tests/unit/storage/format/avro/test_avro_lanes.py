# SPDX-License-Identifier: Apache-2.0
"""Decoding many blocks together and record by record: the same columns, the same refusals."""

import io
import json
from collections.abc import Sequence
from typing import Any

import fastavro
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from storage.format.avro import rows as avro_decode
from storage.format.avro.rows import RecordDecoder
from storage.format.types.types import DataField, parse_type

ROW = {
    "type": "ROW",
    "fields": [
        {"id": 20, "name": "x", "type": "INT"},
        {
            "id": 21,
            "name": "y",
            "type": {"type": "ROW", "fields": [{"id": 22, "name": "z", "type": "STRING"}]},
        },
        {"id": 23, "name": "w", "type": {"type": "ARRAY", "element": "BIGINT"}},
    ],
}
INNER = {"type": "record", "name": "Y", "fields": [{"name": "z", "type": ["null", "string"]}]}
TYPES: dict[str, Any] = {
    "l": "BIGINT NOT NULL",
    "s": "STRING",
    "d": "DOUBLE",
    "f": "BINARY(4)",
    "a": {"type": "ARRAY", "element": {"type": "ARRAY", "element": "STRING"}},
    "m": {"type": "MAP", "key": "STRING NOT NULL", "value": "INT"},
    "r": ROW,
}
FIELDS = [
    DataField(id=i, name=name, type=parse_type(type_))
    for i, (name, type_) in enumerate(TYPES.items())
]
LISTS = {"type": "array", "items": ["null", {"type": "array", "items": ["null", "string"]}]}
SCHEMA = {
    "type": "record",
    "name": "record",
    "fields": [
        {"name": "l", "type": "long"},
        {"name": "skipped", "type": {"type": "map", "values": ["null", "bytes"]}},
        {"name": "s", "type": ["string", "null"]},
        {"name": "d", "type": ["null", "double"]},
        {"name": "f", "type": ["null", {"type": "fixed", "name": "F", "size": 4}]},
        {"name": "e", "type": {"type": "enum", "name": "E", "symbols": ["A", "B"]}},
        {"name": "a", "type": ["null", LISTS]},
        {"name": "m", "type": ["null", {"type": "map", "values": ["null", "int"]}]},
        {
            "name": "r",
            "type": [
                "null",
                {
                    "type": "record",
                    "name": "R",
                    "fields": [
                        {"name": "x", "type": ["null", "int"]},
                        {"name": "y", "type": ["null", INNER]},
                        {"name": "w", "type": ["null", {"type": "array", "items": "long"}]},
                    ],
                },
            ],
        },
    ],
}
PARSED = fastavro.parse_schema(json.loads(json.dumps(SCHEMA)))

longs = st.integers(-(2**63), 2**63 - 1)
ints = st.none() | st.integers(-(2**31), 2**31 - 1)
texts = st.none() | st.text(max_size=200) | st.sampled_from(["x" * 64, "y" * 9_000])
records = st.fixed_dictionaries(
    {
        "l": longs,
        "skipped": st.dictionaries(st.text(max_size=3), st.none() | st.binary(), max_size=2),
        "s": texts,
        "d": st.none() | st.floats(allow_nan=False),
        "f": st.none() | st.binary(min_size=4, max_size=4),
        "e": st.sampled_from("AB"),
        "a": st.none() | st.lists(st.none() | st.lists(texts, max_size=3), max_size=3),
        "m": st.none() | st.dictionaries(st.text(max_size=3), ints, max_size=3),
        "r": st.none()
        | st.fixed_dictionaries(
            {
                "x": ints,
                "y": st.none() | st.fixed_dictionaries({"z": texts}),
                "w": st.none() | st.lists(longs, max_size=3),
            }
        ),
    }
)


def block(rows: Sequence[dict[str, Any]]) -> tuple[bytes, int]:
    output = io.BytesIO()
    for row in rows:
        fastavro.schemaless_writer(output, PARSED, row)
    return output.getvalue(), len(rows)


def outcome(blocks: Sequence[tuple[bytes, int]], least: int) -> object:
    """The columns, or the text of the error."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(avro_decode, "LEAST_LANES", least)
        try:
            found = RecordDecoder(json.dumps(SCHEMA), FIELDS).decode(blocks)
        except (ValueError, OverflowError) as error:
            return str(error)
    for column in found:
        column.validate(full=True)
    return [column.to_pylist() for column in found]


@settings(max_examples=30, deadline=None)
@given(st.lists(st.lists(records, max_size=4), min_size=1, max_size=14))
def test_columns_are_the_same_record_by_record(rows: list[list[dict[str, Any]]]) -> None:
    blocks = [block(part) for part in rows]
    found = outcome(blocks, 1)
    assert isinstance(found, list)
    assert found == outcome(blocks, 1_000)
    flat = [row for part in rows for row in part]
    assert found[0] == [row["l"] for row in flat]
    assert found[1] == [row["s"] for row in flat]
    assert found[4] == [row["a"] for row in flat]


@settings(max_examples=60, deadline=None)
@given(st.lists(st.lists(records, min_size=1, max_size=3), min_size=1, max_size=3), st.data())
def test_damage_is_reported_the_same_record_by_record(
    rows: list[list[dict[str, Any]]], data: st.DataObject
) -> None:
    blocks = [block(part) for part in rows]
    which = data.draw(st.integers(0, len(blocks) - 1))
    content, count = blocks[which]
    changed = bytearray(content)
    place = data.draw(st.integers(0, len(changed) - 1))
    changed[place] = data.draw(st.integers(0, 255))
    if data.draw(st.booleans()):
        del changed[place : place + data.draw(st.integers(1, 9))]
    blocks[which] = bytes(changed), count
    assert repr(outcome(blocks, 1)) == repr(outcome(blocks, 1_000))
