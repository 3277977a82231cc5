# SPDX-License-Identifier: Apache-2.0
"""Values that mean the same: forms in which both sides are compared.

Most columns are compared by their values. Two kinds of STRING columns are not, because what fills
them may write the same thing in several ways: JSON documents (space, order of keys) and numbers
(zeros at the end). JSON costs a Python step per distinct text of a batch. And MySQL's TIMESTAMP of
zero is null when a connector takes a snapshot and 1970-01-01 00:00:00 when it follows the log; no
real TIMESTAMP is that moment, so both are null here.
"""

import decimal
import enum
import json
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

__all__ = ["Form", "canonical", "json_text"]


class Form(enum.Enum):
    """How the texts of a column are compared; the value is what a report says."""

    PLAIN = "value"
    JSON = "JSON value"
    NUMBER = "number"
    NO_EPOCH = "value; 1970-01-01 is null"


def canonical(column: pa.Array, form: Form) -> pa.Array:
    """The column in its form; as it is where its type has no such form."""
    if form is Form.NO_EPOCH and pa.types.is_timestamp(column.type):
        epoch = pc.equal(column.view(pa.int64()), 0)
        return pc.if_else(epoch, pa.scalar(None, column.type), column)
    if form in (Form.PLAIN, Form.NO_EPOCH) or not pa.types.is_string(column.type):
        return column
    if form is Form.NUMBER:
        return _numbers(column)
    encoded = column.dictionary_encode()
    texts = [json_text(text) for text in encoded.dictionary.to_pylist()]
    return pa.array(texts, pa.string()).take(encoded.indices)


def json_text(text: str) -> str:
    """A JSON document without space, keys sorted, numbers exact; other text as it is."""
    try:
        document = json.loads(text, parse_float=_Number, parse_int=_Number, parse_constant=_refuse)
        return _written(document)
    except (ValueError, RecursionError):
        return text


class _Number(decimal.Decimal):
    """A number of a document: equal numbers have one text."""

    @property
    def text(self) -> str:
        if not self:
            return "0"
        digits = self.normalize(decimal.Context(prec=len(self.as_tuple().digits) or 1))
        return str(digits)


def _refuse(word: str) -> Any:
    raise ValueError(word)


def _written(value: Any) -> str:
    if isinstance(value, dict):
        pairs = (f"{json.dumps(key)}:{_written(value[key])}" for key in sorted(value))
        return "{" + ",".join(pairs) + "}"
    if isinstance(value, list):
        return "[" + ",".join(map(_written, value)) + "]"
    if isinstance(value, _Number):
        return value.text
    return json.dumps(value, ensure_ascii=False)


def _numbers(column: pa.Array) -> pa.Array:
    """Plain digits without zeros at the end of a fraction."""
    short = pc.replace_substring_regex(column, r"^(-?\d+\.\d*?)0+$", r"\1")
    short = pc.replace_substring_regex(short, r"^(-?\d+)\.$", r"\1")
    return pc.replace_substring_regex(short, r"^-0$", "0")
