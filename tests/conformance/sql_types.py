# SPDX-License-Identifier: Apache-2.0
"""SQL type text of the cases, nested types included: `ARRAY<ROW<a INT, b STRING>>`.

Schema files write nested types as JSON objects, so the storage layer has no parser for this form.
"""

import dataclasses
from collections.abc import Iterator

from storage.format.type_text import parse_type
from storage.format.types import ArrayType, DataField, DataType, MapType, MultisetType, RowType

__all__ = ["parse_sql_type"]

_NOT_NULL = "NOT NULL"


def parse_sql_type(text: str) -> DataType:
    """The type of a column; ids of nested fields are 0 and numbered when the table is made.

    Raises:
        ValueError: it is no type.
    """
    text = text.strip()
    head, bracket, rest = text.partition("<")
    if not bracket:
        return parse_type(text)
    inner, closing, suffix = rest.rpartition(">")
    suffix = suffix.strip().upper()
    if not closing or suffix not in ("", _NOT_NULL):
        raise ValueError(f"not a type: {text}")
    nested = _nested(head.strip().upper(), list(_split(inner)))
    return dataclasses.replace(nested, nullable=suffix != _NOT_NULL)


def _nested(head: str, parts: list[str]) -> DataType:
    if head == "ROW":
        return RowType(tuple(map(_field, parts)))
    types = [parse_sql_type(part) for part in parts]
    if head == "MAP" and len(types) == 2:
        return MapType(*types)
    if head in ("ARRAY", "MULTISET") and len(types) == 1:
        return ArrayType(types[0]) if head == "ARRAY" else MultisetType(types[0])
    raise ValueError(f"not a type: {head} of {len(types)}")


def _field(text: str) -> DataField:
    text = text.strip()
    if text.startswith("`"):
        name, _, type_ = text[1:].partition("`")
    else:
        name, _, type_ = text.partition(" ")
    return DataField(id=0, name=name, type=parse_sql_type(type_))


def _split(text: str) -> Iterator[str]:
    """Parts between the commas that are not inside brackets."""
    depth, start = 0, 0
    for place, letter in enumerate(text):
        depth += (letter in "<(") - (letter in ">)")
        if letter == "," and depth == 0:
            yield text[start:place]
            start = place + 1
    yield text[start:]
