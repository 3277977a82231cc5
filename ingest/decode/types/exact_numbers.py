# SPDX-License-Identifier: Apache-2.0
"""Numbers that come without a declared type: which columns hold them exactly.

A FLOAT or DOUBLE holds a number if the shortest text of what is stored has the number's decimal
value (1.10 equals 1.1), if what is stored is the number itself (2^60), or if the text is one that
Java before 19 prints for what is stored. Everything else would be stored as another number.
Every text of 15 significant digits (FLOAT: 6) passes, so only longer texts are compared.

`Double.toString` before Java 19 does not print the shortest text of powers of two (4.9E-324) and of
some numbers from 1E17 on (found with Java 17: no others in 200,000). Java prints decimals
differently: without exponent, or with a signed one above zero.
"""

import base64
import binascii
import decimal
import math
from collections.abc import Sequence
from typing import Any

import msgspec
import numpy as np
import orjson
import pyarrow as pa
import pyarrow.compute as pc

from ingest.decode.types.semantic_types import (
    BIGINT,
    DOUBLE,
    ConversionError,
    every,
    nullable,
    require,
    union_type,
    unscaled_digits,
)
from storage.format.types.casts import column_cast
from storage.format.types.types import MAX_LENGTH, AtomicType, DataType, TypeRoot

_MAX_PRECISION = 38
_INTEGER_DIGITS = 20
"""Digits before the point that a new DECIMAL has room for: every integer of 64 bits."""

_INT64_DIGITS = 18
"""Number of digits that always fit 64 bits."""

_MAX_PRINTED = 18
"""Most digits that Java prints of a float."""

_SURE = {pa.float64(): 15, pa.float32(): 6}
"""Length of texts that always pass: no more digits than the type always keeps."""

_NUMPY = orjson.OPT_SERIALIZE_NUMPY
_QUOTED = r'^"(.*)"$'
_NUMBER = r"^-?[0-9]+\.?[0-9]*([eE][+-]?[0-9]{1,4})?$"


# --- by the column


def exact_numbers(
    values: Sequence[Any] | pa.Array, arrow: pa.DataType, *, loose: bool = False
) -> pa.Array:
    """A FLOAT or DOUBLE column of numbers.

    Args:
        values: their tokens, None where there is none; or an array of their texts.
        arrow: type of the column.
        loose: whether text that holds a number is one, too.

    Raises:
        ValueError: a token is no number, or the column may not hold it exactly.
    """
    if isinstance(values, pa.Array):
        require(not loose or every(pc.match_substring_regex(values, _NUMBER)), "no number")
        return exact_floats(values, arrow)
    if not len(values):
        return pa.array([], arrow)
    try:
        content = b",".join(values)
    except TypeError:  # an absent member
        content = b",".join([b"null" if v is None else v for v in values])
    texts = _split_list(content)
    require(len(texts) == len(values), "no number")  # an array or object, a text with a comma
    if b"null" in content:
        texts = pc.if_else(pc.equal(texts, "null"), pa.scalar(None, pa.string()), texts)
    if loose and b'"' in content:
        quoted = pc.starts_with(texts, '"')
        texts = pc.replace_substring_regex(texts, _QUOTED, r"\1")
        require(every(pc.match_substring_regex(texts.filter(quoted), _NUMBER)), "no number")
    return exact_floats(texts, arrow, content)


def exact_floats(texts: pa.Array, arrow: pa.DataType, comma_separated: bytes = b"") -> pa.Array:
    """The same from texts.

    Args:
        texts: of the numbers.
        arrow: type of the column.
        comma_separated: the texts with commas between them, where that is known.
    """
    doubles = texts.cast(pa.float64())
    floats = doubles if arrow == pa.float64() else doubles.cast(arrow, safe=False)
    content = (texts.buffers()[2] or pa.py_buffer(b"")).to_pybytes()
    if b"-0" in content:  # an integer token has no negative zero
        require(every(pc.not_equal(texts, "-0")), "a negative zero")
    powers = b"e" in content or b"E" in content
    if _longest(texts) <= _SURE[arrow] and not powers:
        return floats
    require(every(pc.is_finite(floats)), "out of range")
    if comma_separated and not floats.null_count and comma_separated == _joined_texts(floats):
        return floats
    long = pc.greater(pc.binary_length(texts), _SURE[arrow])
    if powers:
        long = pc.or_(long, pc.match_substring(texts, "e", ignore_case=True))
    long_texts, shortest = texts.filter(long), _shortest(floats.filter(long))
    require(
        every(pc.equal(long_texts, shortest))
        or every(pc.equal(_digits(long_texts), _digits(shortest))),
        "more digits than the column has",
    )
    return floats


def _longest(texts: pa.Array) -> int:
    offsets = np.frombuffer(texts.buffers()[1], np.int32, len(texts) + 1, texts.offset * 4)
    return int(np.diff(offsets).max(initial=0))


def _shortest(floats: pa.Array) -> pa.Array:
    """The shortest texts of finite numbers."""
    return _split_list(_joined_texts(floats)) if len(floats) else pa.array([], pa.string())


def _joined_texts(floats: pa.Array) -> bytes:
    """The same with commas between them; orjson writes them faster than Arrow."""
    return orjson.dumps(floats.to_numpy(zero_copy_only=False), option=_NUMPY)[1:-1]


def _split_list(comma_separated: bytes) -> pa.Array:
    return pc.split_pattern(pa.array([comma_separated], pa.string()), ",").values


def _digits(texts: pa.Array) -> pa.Array:
    """Significant digits: of a number and its nearest float equal ones mean equal values."""
    mantissas = pc.replace_substring_regex(texts, "[eE].*$", "")
    digits = pc.replace_substring(mantissas, ".", "")
    return pc.ascii_rtrim(pc.ascii_ltrim(digits, "-0"), "0")


# --- one by one


def holds(text: str, number: float, *, single: bool = False) -> bool:
    """Whether a stored number is the one of a text.

    Args:
        text: of a JSON number.
        number: the nearest that the column has.
        single: whether the column is FLOAT.
    """
    try:
        exact = decimal.Decimal(text)
    except decimal.DecimalException:  # the exponent is out of range
        return False
    if exact in (decimal.Decimal(repr(number)), decimal.Decimal(number)):
        return True
    if single and exact == decimal.Decimal(np.format_float_scientific(np.float32(number))):
        return True
    return _printed_by_java(text, exact, number)


def _printed_by_java(text: str, exact: decimal.Decimal, number: float) -> bool:
    exponent = text.partition("E")[2]
    power_of_two = abs(math.frexp(number)[0]) == 0.5
    if not exponent or exponent[0] == "+" or (exponent[0] == "-" and not power_of_two):
        return False
    places = min(len(exact.as_tuple().digits), _MAX_PRINTED) - 1
    return exact == decimal.Decimal(f"{number:.{places}e}")


def is_exact_double(token: bytes) -> bool:
    """Whether a token is a number that a DOUBLE holds exactly."""
    if not _is_number(token):
        return False
    number = float(token)
    return math.isfinite(number) and holds(token.decode(), number)


def _is_number(token: bytes) -> bool:
    return token[:1] in (b"-", *(b"%d" % digit for digit in range(10)))


def _is_integer(token: bytes) -> bool:
    return token.removeprefix(b"-").isdigit()


def number_type(token: bytes) -> DataType:
    """The type of a new column from a JSON number: one that holds it exactly, if any does.

    BIGINT, beyond 64 bits DECIMAL; DOUBLE if it preserves the text, else DECIMAL.
    """
    if _is_integer(token):
        digits = len(token.removeprefix(b"-"))
        small = digits <= _INT64_DIGITS or (
            digits <= _MAX_PRECISION and -(2**63) <= int(token) < 2**63
        )
        return BIGINT if small else _decimal(max(digits, _INTEGER_DIGITS), 0) or _WIDEST
    if is_exact_double(token):
        return DOUBLE
    return _exact_decimal(token) or DOUBLE


def _decimal(integers: int, scale: int) -> AtomicType | None:
    if integers + scale > _MAX_PRECISION:
        return None
    return AtomicType(TypeRoot.DECIMAL, precision=max(1, integers + scale), scale=scale)


_WIDEST = AtomicType(TypeRoot.DECIMAL, precision=_MAX_PRECISION, scale=0)


def _exact_decimal(token: bytes) -> AtomicType | None:
    """A DECIMAL that holds a number, with room before the point; None = no DECIMAL does."""
    try:
        number = decimal.Decimal(token.decode())
    except decimal.DecimalException:
        return None
    _, digits, exponent = number.as_tuple()
    if not isinstance(exponent, int) or abs(exponent) > _MAX_PRECISION:
        return None
    scale = max(0, -exponent)
    integers = max(0, len(digits) + exponent) if any(digits) else 0
    return _decimal(max(integers, min(_INTEGER_DIGITS, _MAX_PRECISION - scale)), scale)


def wider_number(column: DataType, token: bytes) -> DataType | None:
    """The type that a number requires which a column of numbers cannot hold.

    Returns:
        A type whose union with the column's loses nothing; None when there is none, or the column
        does not hold numbers, or the token is none.
    """
    if not isinstance(column, AtomicType) or not _is_number(token):
        return None
    wider: DataType | None = None
    if column.root is TypeRoot.DECIMAL:
        wider = _exact_decimal(token)
    elif column.root is TypeRoot.FLOAT or _is_integer(token):
        wider = number_type(token)
    union = None if wider is None else union_type(nullable(column), wider)
    return None if union in (None, nullable(column)) else wider


# Values whose JSON form determines their type, or that become text: shared by both decoding paths.
#
# A column-wise loop and a single value call the same functions here, so that they cannot disagree.


_STRING = AtomicType(TypeRoot.VARCHAR, length=MAX_LENGTH)
_UNSIGNED_RANGE = 1 << 64


class _VariableDecimal(msgspec.Struct, gc=False, forbid_unknown_fields=True):
    scale: int
    value: str


_VARIABLE = msgspec.json.Decoder(_VariableDecimal)


def json_text(token: bytes) -> str | None:
    """A text, or the JSON text of an object or array; None for null.

    Raises:
        ConversionError: it is something else.
        msgspec.MsgspecError, UnicodeDecodeError: it is no JSON.
    """
    first = token[:1]
    if first in (b"{", b"["):
        # Raw is only skimmed for well-formedness; a full parse also proves strings and escapes
        msgspec.json.decode(token)
        return token.decode()
    if first == b"n":
        return None
    if first == b'"':
        return msgspec.json.decode(token, type=str)
    raise ConversionError("neither text, object nor array")


def struct_text(token: bytes) -> str | None:
    """As `json_text`; of Debezium's VariableScaleDecimal the digits.

    Without a schema block nothing but its two members identifies it. Debezium has no other struct
    with them, and documents come as text.
    """
    if token[:1] == b"{":
        try:
            parts = _VARIABLE.decode(token)
            return unscaled_digits(base64.b64decode(parts.value, validate=True), parts.scale)
        except (msgspec.MsgspecError, binascii.Error, ValueError):
            pass
    return json_text(token)


def any_text(token: bytes) -> str | None:
    """As `json_text`; numbers, true and false as they were sent."""
    if token[:1] in b'{["n':
        return json_text(token)
    return token.decode("ascii")


def member_text(value: int | str | None, members: Sequence[str]) -> str | None:
    """The member of an ENUM by its number; 0 is MySQL's empty text for a value that is none.

    Raises:
        ConversionError: there is no such member.
    """
    number = _number_of(value)
    if number is None:
        return None if value is None else str(value)
    if number > len(members):
        if value in members:
            return str(value)
        raise ConversionError(f"{value} is not the number of any of {len(members)} members")
    return members[number - 1] if number else ""


def members_text(value: int | str | None, members: Sequence[str]) -> str | None:
    """The members of a SET by the bits of a number, with commas between.

    Raises:
        ConversionError: there are no such members.
    """
    number = _number_of(value)
    if number is None:
        return None if value is None else str(value)
    if number >> len(members):
        if value in members:
            return str(value)
        raise ConversionError(f"{value} has bits beyond those of {len(members)} members")
    return ",".join(name for at, name in enumerate(members) if number >> at & 1)


def _number_of(value: int | str | None) -> int | None:
    if isinstance(value, str):
        return int(value) if value.isascii() and value.isdigit() and len(value) < 21 else None
    if value is not None and value < 0:
        raise ConversionError("negative number of a member")
    return value


def texts_of(array: pa.Array, type_: DataType) -> pa.Array:
    """A column as text, by the casts of the table format."""
    return column_cast(type_, _STRING)(array)


def unsigned_digits(token: bytes) -> bytes:
    """The token of a 64-bit integer as the unsigned number with the same bits."""
    return str(int(token) + _UNSIGNED_RANGE).encode() if token[:1] == b"-" else token


def storage_column(type_: pa.DataType, values: Sequence[Any]) -> pa.Array:
    """Array of `type_` from storage values (`reference`)."""
    return pa.array(values, _storage_type(type_)).cast(type_)


def _storage_type(type_: pa.DataType) -> pa.DataType:
    if pa.types.is_list(type_):
        return pa.list_(_storage_type(type_.value_type))
    if pa.types.is_date(type_) or pa.types.is_time(type_):
        return pa.int32()
    return pa.int64() if pa.types.is_timestamp(type_) else type_
