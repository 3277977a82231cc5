# SPDX-License-Identifier: Apache-2.0
"""Loose JSON values made strict, a column at a time: the fast half of the `LOOSE_*` kinds.

Takes what msgspec gives for `LOOSE_WIRE`, or an array of the texts of such values, and returns
values that the strict converter of the same family takes (`conversions`). Refuses with
`CONVERSION_ERRORS` what it is not sure of: the reference half, `loose_tokens`, has the last word.
"""

from collections.abc import Sequence
from typing import Any

import msgspec
import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from ingest.decode.types.decimal_columns import arrow_array, require
from ingest.decode.types.semantic_types import Kind
from ingest.decode.types.token_values import NULL

__all__ = [
    "LOOSE_WIRE",
    "bytes_of_latin1",
    "hex_texts",
    "loose_decimals",
    "loose_doubles",
    "loose_integers",
    "loose_truths",
    "moments",
]

LOOSE_WIRE: dict[Kind, Any] = {
    Kind.LOOSE_INTEGER: int | str,
    Kind.LOOSE_FLOAT: float | str,
    Kind.LOOSE_NUMBER: msgspec.Raw,
    Kind.LOOSE_DECIMAL: msgspec.Raw,
    Kind.LOOSE_BOOLEAN: bool | int | str,
    Kind.LOOSE_HEX: str,
    Kind.LATIN1: str,
    Kind.SQL_DATE: str,
    Kind.SQL_TIMESTAMP: str,
}
"""What msgspec decodes values to."""

_INTEGER = r"^-?[0-9]{1,19}$"
_NUMBER = r"^-?[0-9]+\.?[0-9]*([eE][+-]?[0-9]{1,4})?$"
_ZERO_DATE = r"^0000-00-00([T :][0:.]*)?$"
_MIDNIGHT = r"^.{10}[T :]00:00:00(\.0+)?Z?$"
_DATE_LENGTH = 10


def _matches(texts: pa.Array, pattern: str) -> bool:
    found = pc.all(pc.match_substring_regex(texts, pattern), min_count=0)
    return not found.equals(pa.scalar(False))


def _some(mask: pa.Array) -> bool:
    return pc.any(mask, min_count=0).equals(pa.scalar(True))


_NULL = type(None)


def _texts(values: Sequence[Any] | pa.Array, kinds: set[type]) -> pa.Array:
    if isinstance(values, pa.Array):
        return values
    if not kinds <= {str, _NULL}:
        values = [v if v is None or type(v) is str else repr(v) for v in values]
    return pa.array(values, pa.string())


def loose_integers(values: Sequence[Any] | pa.Array, arrow: pa.DataType) -> pa.Array:
    """Integers from integers and texts of such."""
    kinds: set[type] = {str} if isinstance(values, pa.Array) else set(map(type, values))
    if str not in kinds:
        return pa.array(values, arrow)
    texts = _texts(values, kinds)
    require(_matches(texts, _INTEGER), "no integer")
    return texts.cast(arrow)


def loose_doubles(values: Sequence[Any] | pa.Array) -> Sequence[Any]:
    """Doubles from numbers and texts of such."""
    kinds: set[type] = {str} if isinstance(values, pa.Array) else set(map(type, values))
    if str not in kinds:
        return values
    texts = _texts(values, kinds)
    require(_matches(texts, _NUMBER), "no number")
    require(not _some(pc.equal(texts, "-0")), "a negative zero")
    doubles = texts.cast(pa.float64())
    require(_is_finite(doubles), "out of the range of DOUBLE")
    return doubles


def _is_finite(doubles: pa.Array) -> bool:
    return not pc.all(pc.is_finite(doubles), min_count=0).equals(pa.scalar(False))


def loose_decimals(values: Sequence[Any] | pa.Array) -> pa.Array:
    """Texts of decimals, from the tokens of numbers and of texts."""
    if isinstance(values, pa.Array):
        return values
    tokens = [NULL if value is None else bytes(value) for value in values]
    plain = [token[1:-1] if token[:1] == b'"' else token for token in tokens]
    nulls = [token == NULL for token in tokens]  # a text "null" is no null
    return pa.array(plain, pa.string(), mask=np.array(nulls, np.bool_))


_TRUTH = {True: True, False: False, "true": True, "false": False, "1": True, "0": False, None: None}


def loose_truths(values: Sequence[Any] | pa.Array) -> list[bool | None]:
    """Booleans from booleans, 0, 1 and texts of such (1 equals True as a key)."""
    if isinstance(values, pa.Array):
        values = values.to_pylist()
    require(all(value in _TRUTH for value in values), "neither true nor false")
    return [_TRUTH[value] for value in values]


def bytes_of_latin1(values: Sequence[str | None]) -> list[bytes | None]:
    """Bytes from text that has one character a byte."""
    return [None if value is None else value.encode("latin-1") for value in values]


def hex_texts(values: Sequence[str | None]) -> list[str | None]:
    """Hexadecimal texts without `0x`."""
    return [
        value[2:] if value is not None and value[:2] in ("0x", "0X") else value for value in values
    ]


def moments(values: Sequence[str | None] | pa.Array, *, whole_days: bool) -> pa.Array:
    """ISO texts of dates or timestamps; see `loose_tokens.moment_token`."""
    texts = arrow_array(values, pa.string())
    zero = pc.match_substring_regex(texts, _ZERO_DATE)
    if _some(zero):
        texts = pc.if_else(zero, pa.scalar(None, pa.string()), texts)
    day = pc.utf8_slice_codeunits(texts, 0, _DATE_LENGTH)
    colon = pc.equal(pc.utf8_slice_codeunits(texts, _DATE_LENGTH, _DATE_LENGTH + 1), ":")
    if _some(colon):
        clock = pc.utf8_slice_codeunits(texts, _DATE_LENGTH + 1)
        texts = pc.if_else(colon, pc.binary_join_element_wise(day, clock, " "), texts)
    if whole_days:
        texts = pc.if_else(pc.match_substring_regex(texts, _MIDNIGHT), day, texts)
    return texts
