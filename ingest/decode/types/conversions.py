# SPDX-License-Identifier: Apache-2.0
"""Whole-column conversion of decoded JSON values to Arrow: the fast path's half of every `Codec`.

`wire_type` says what msgspec decodes a column's values to; `convert` turns a list of such values
(None = null) into the column's array, or raises one of `CONVERSION_ERRORS` when any value does not
fit exactly. Nothing is rounded, wrapped or replaced here; what this module refuses, `reference`
decodes value by value, and the two agree on every value that this one accepts.
"""

import decimal
import itertools
from collections.abc import Callable, Sequence
from typing import Any

import msgspec
import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from ingest.decode.json.scanning import Wire
from ingest.decode.types.decimal_columns import (
    arrow_array,
    decimals_from_bytes,
    decimals_from_text,
    every,
    plain_digits,
    require,
    unscaled_digits,
    whole_digits,
)
from ingest.decode.types.exact_numbers import exact_numbers
from ingest.decode.types.odd_values import (
    any_text,
    json_text,
    member_text,
    members_text,
    struct_text,
    texts_of,
    unsigned_digits,
)
from ingest.decode.types.semantic_types import Codec, Kind
from ingest.decode.types.time_columns import TIME_CONVERTERS
from ingest.decode.types.token_values import NULL
from storage.errors import InternalError
from storage.format.types.types import MAX_LENGTH, AtomicType

CONVERSION_ERRORS = (
    ValueError,  # also pa.ArrowInvalid and ConversionError
    TypeError,  # also pa.ArrowTypeError
    OverflowError,
    pa.ArrowNotImplementedError,
    decimal.DecimalException,
    msgspec.MsgspecError,
    RecursionError,
)


class _VariableDecimal(msgspec.Struct, gc=False):
    scale: int
    value: bytes


_WIRE: dict[Kind, Any] = {
    Kind.INTEGER: int,
    Kind.BOOLEAN: bool,
    Kind.FLOAT: float,
    Kind.NUMBER: msgspec.Raw,
    Kind.SINGLE: float,
    Kind.TEXT: str,
    Kind.TEXT_OR_JSON: str,
    Kind.JSON: msgspec.Raw,
    Kind.BASE64: bytes,
    Kind.BASE64_URL: str,
    Kind.HEX: str,
    Kind.DECIMAL_BYTES: bytes,
    Kind.DECIMAL_NUMBER: msgspec.Raw,
    Kind.DECIMAL_TEXT: str,
    Kind.DECIMAL_PLAIN: msgspec.Raw,
    Kind.VARIABLE_DECIMAL: _VariableDecimal,
    Kind.DAYS: int,
    Kind.TIME: int,
    Kind.TIME_MICROS: int,
    Kind.TIME_TEXT: int,
    Kind.EPOCH: int,
    Kind.ZONED: str,
    Kind.ISO_DATE: str,
    Kind.ISO_TIME: str,
    Kind.ISO_TIMESTAMP: str,
    Kind.BITS: bytes,
    Kind.TEXT_OR_STRUCT: str,
    Kind.STRUCT: msgspec.Raw,
    Kind.ANY_TEXT: msgspec.Raw,
    Kind.BASE64_TEXT: str,
    Kind.UTF8: str,
    Kind.INTEGER_OR_BITS: int,
    Kind.BITS_OR_INTEGER: bytes,
    Kind.TEXT_OR_ANY: str,
    Kind.MEMBER: int | str,
    Kind.MEMBERS: int | str,
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


def wire_type(codec: Codec) -> Any:
    """The Python type that msgspec gives a column's values, besides null."""
    if codec.element is not None:
        if codec.kind is Kind.AS_TEXT:
            return wire_type(codec.element)
        element = wire_type(codec.element)
        # Raw includes null, and excludes the other types of a union
        return list[element] if element is msgspec.Raw else list[element | None]  # type: ignore[valid-type]
    return _WIRE[codec.kind]


_SCANNED: dict[Any, Wire] = {
    int: Wire.INTEGER,
    str: Wire.TEXT,
    bytes: Wire.BASE64,
    float: Wire.NUMBER,
    bool: Wire.BOOLEAN,
}
"""By the type that msgspec would decode."""

_LOOSE = (
    *(Kind.LOOSE_INTEGER, Kind.LOOSE_FLOAT, Kind.LOOSE_NUMBER),
    *(Kind.LOOSE_DECIMAL, Kind.LOOSE_BOOLEAN),
)


def scanned_as(codec: Codec) -> Wire:
    """How the compiled scan reads a column's values; `convert` accepts arrays of all but tokens."""
    arrow = codec.arrow
    if codec.kind is Kind.DECIMAL_BYTES and codec.scale <= _INTEGER_TYPE.precision:
        return Wire.BASE64 if pa.types.is_decimal(arrow) else Wire.TOKEN
    if codec.kind in (Kind.DECIMAL_NUMBER, Kind.DECIMAL_PLAIN) and not codec.unsigned:
        return Wire.NUMBER if pa.types.is_decimal(arrow) else Wire.TOKEN
    if codec.kind in (Kind.MEMBER, Kind.MEMBERS):
        return Wire.TEXT  # a negative number names no member, but its text may
    if codec.kind is Kind.NUMBER:
        return Wire.NUMBER
    if codec.kind in _LOOSE:
        return Wire.LOOSE
    return Wire.TOKEN if codec.element is not None else _SCANNED.get(_WIRE[codec.kind], Wire.TOKEN)


def convert(codec: Codec, values: Sequence[Any] | pa.Array) -> pa.Array:
    """One column.

    Args:
        codec: of the column.
        values: as `wire_type` says, None for null; or an array of what `scanned_as` says: int64,
            bool, string, decoded base64, the texts of numbers and loose values.

    Returns:
        An array of `codec.arrow`, as long as `values`.

    Raises:
        CONVERSION_ERRORS: a value does not fit.

    Cost: a few C loops over the column; a Python step per value only for the rare kinds (hex,
    variable decimals, ISO times, raw JSON).
    """
    if isinstance(values, pa.Array) and codec.kind not in _OF_ARRAYS:
        values = values.to_pylist()
    return _CONVERTERS[codec.kind](codec, values)


def _plain(codec: Codec, values: Sequence[Any]) -> pa.Array:
    return arrow_array(values, codec.arrow)


def _integer(codec: Codec, values: Sequence[Any]) -> pa.Array:
    numbers = arrow_array(values, codec.arrow)
    if codec.unsigned:
        require(every(pc.greater_equal(numbers, 0)), "an unsigned number beyond 63 bits")
    return numbers


def _float(codec: Codec, values: Sequence[Any]) -> pa.Array:
    doubles = arrow_array(values, pa.float64())
    return doubles if codec.arrow == pa.float64() else _rounded(doubles)


def _number(codec: Codec, values: Sequence[Any]) -> pa.Array:
    return exact_numbers(values, codec.arrow)


def _single(codec: Codec, values: Sequence[Any]) -> pa.Array:
    return _rounded(arrow_array(values, pa.float64())).cast(codec.arrow)


def _rounded(doubles: pa.Array) -> pa.Array:
    floats = doubles.cast(pa.float32(), safe=False)
    require(every(pc.is_finite(floats)), "out of the range of FLOAT")
    return floats


def _limited_text(codec: Codec, texts: pa.Array) -> pa.Array:
    length = codec.type.length if isinstance(codec.type, AtomicType) else MAX_LENGTH
    if length < MAX_LENGTH:
        require(every(pc.less_equal(pc.utf8_length(texts), length)), "text is too long")
    return texts


def _text(codec: Codec, values: Sequence[Any]) -> pa.Array:
    return _limited_text(codec, arrow_array(values, pa.string()))


def _tokens_to(read: Callable[[bytes], str | None]) -> Callable[[Codec, Sequence[Any]], pa.Array]:
    def texts(codec: Codec, values: Sequence[Any]) -> pa.Array:
        strings = [None if value is None else read(bytes(value)) for value in values]
        return _limited_text(codec, pa.array(strings, pa.string()))

    return texts


def _named_by(
    name: Callable[[int | str | None, Sequence[str]], str | None],
) -> Callable[[Codec, Sequence[Any]], pa.Array]:
    def texts(codec: Codec, values: Sequence[Any]) -> pa.Array:
        names = {value: name(value, codec.members) for value in set(values)}
        return _limited_text(codec, pa.array([names[value] for value in values], pa.string()))

    return texts


def _base64_text(codec: Codec, values: Sequence[Any]) -> pa.Array:
    msgspec.convert(values, list[bytes | None])
    return _text(codec, values)


def _utf8(codec: Codec, values: Sequence[Any]) -> pa.Array:
    return _limited_bytes(codec, arrow_array(values, pa.string()).cast(pa.binary()))


def _as_text(codec: Codec, values: Sequence[Any]) -> pa.Array:
    if codec.element is None:
        raise InternalError("a codec of text without the value's own")
    texts = texts_of(convert(codec.element, values), codec.element.type)
    return _limited_text(codec, texts)


def _limited_bytes(codec: Codec, values: pa.Array) -> pa.Array:
    length = codec.type.length if isinstance(codec.type, AtomicType) else MAX_LENGTH
    if length < MAX_LENGTH:
        require(every(pc.less_equal(pc.binary_length(values), length)), "too many bytes")
    return values


def _bytes(codec: Codec, values: Sequence[Any]) -> pa.Array:
    return _limited_bytes(codec, arrow_array(values, pa.binary()))


def _hex(codec: Codec, values: Sequence[Any]) -> pa.Array:
    require(all(v is None or v.isalnum() or not v for v in values), "not hexadecimal")
    return _bytes(codec, [None if v is None else bytes.fromhex(v) for v in values])


_URL_SAFE = str.maketrans("+/-_", "??+/")


def _base64_url(codec: Codec, values: Sequence[Any]) -> pa.Array:
    texts = [None if v is None else v.translate(_URL_SAFE) for v in values]
    return _bytes(codec, msgspec.convert(texts, list[bytes | None]))


# --- decimals

_INTEGER_TYPE = pa.decimal128(38, 0)


def _decimal_type(codec: Codec) -> pa.Decimal128Type | None:
    """The column's decimal type; None for a STRING column that takes digits."""
    arrow = codec.arrow
    return arrow if pa.types.is_decimal(arrow) else None


def _decimal_bytes(codec: Codec, values: Sequence[Any]) -> pa.Array:
    if pa.types.is_integer(codec.arrow):
        return decimals_from_bytes(values, codec.scale, _INTEGER_TYPE).cast(codec.arrow)
    target = _decimal_type(codec)
    if target is None:
        texts = [None if v is None else unscaled_digits(v, codec.scale) for v in values]
        return _limited_text(codec, pa.array(texts, pa.string()))
    if codec.scale > _INTEGER_TYPE.precision:
        texts = [None if v is None else whole_digits(v, codec.scale) for v in values]
        return decimals_from_text(pa.array(texts, pa.string()), target)
    return decimals_from_bytes(values, codec.scale, target)


def _decimal_text(codec: Codec, values: Sequence[Any]) -> pa.Array:
    return decimals_from_text(arrow_array(values, pa.string()), codec.arrow)


def _decimal_plain(codec: Codec, values: Sequence[Any]) -> pa.Array:
    if isinstance(values, pa.Array):
        return decimals_from_text(values, codec.arrow)
    tokens = [None if v is None else bytes(v) for v in values]
    if b"null" in tokens:
        tokens = [None if token == b"null" else token for token in tokens]
    if codec.unsigned and pa.types.is_decimal(codec.arrow):
        tokens = [None if token is None else unsigned_digits(token) for token in tokens]
    if pa.types.is_integer(codec.arrow):
        return decimals_from_text(pa.array(tokens, pa.string()), _INTEGER_TYPE).cast(codec.arrow)
    if _decimal_type(codec) is None:
        texts = [None if t is None else plain_digits(decimal.Decimal(t.decode())) for t in tokens]
        return _limited_text(codec, pa.array(texts, pa.string()))
    # a string's token starts with a quote, true with t: neither is a decimal
    return decimals_from_text(pa.array(tokens, pa.string()), codec.arrow)


def _variable_decimal(codec: Codec, values: Sequence[Any]) -> pa.Array:
    texts = [None if v is None else unscaled_digits(v.value, v.scale) for v in values]
    if _decimal_type(codec) is None:
        return _limited_text(codec, pa.array(texts, pa.string()))
    return decimals_from_text(pa.array(texts, pa.string()), codec.arrow)


# --- others


def _bits(codec: Codec, values: Sequence[Any]) -> pa.Array:
    data = [None if v is None else v[::-1] for v in values]
    if pa.types.is_binary(codec.arrow):
        zero = b"\0"
        return _bytes(codec, [None if v is None else v.rjust(codec.width, zero) for v in data])
    numbers = [None if v is None else int.from_bytes(v, "big") for v in data]
    return pa.array(numbers, codec.arrow)


def _bits_or_integer(codec: Codec, values: Sequence[Any]) -> pa.Array:
    require(b"" not in values, "no bits")
    return _bits(codec, values)


def _array(codec: Codec, values: Sequence[Any]) -> pa.Array:
    if codec.element is None:
        raise InternalError("array codec without element")
    flat = list(itertools.chain.from_iterable(v for v in values if v is not None))
    elements = convert(codec.element, flat)
    require(not elements.null_count or codec.element.type.nullable, "a null element")
    lengths = np.fromiter((0 if v is None else len(v) for v in values), np.int32, len(values))
    offsets = np.zeros(len(values) + 1, np.int32)
    np.cumsum(lengths, out=offsets[1:])
    absent = pa.array([v is None for v in values])
    return pa.ListArray.from_arrays(
        pa.array(offsets), elements, type=codec.arrow, mask=absent if None in values else None
    )


# --- loose JSON values made strict; the reference half is in `token_values`

_INTEGER = r"^-?[0-9]{1,19}$"
_NUMBER = r"^-?[0-9]+\.?[0-9]*([eE][+-]?[0-9]{1,4})?$"


_NONE = type(None)


def _texts(values: Sequence[Any] | pa.Array, kinds: set[type]) -> pa.Array:
    if isinstance(values, pa.Array):
        return values
    if not kinds <= {str, _NONE}:
        values = [v if v is None or type(v) is str else repr(v) for v in values]
    return pa.array(values, pa.string())


def loose_integers(values: Sequence[Any] | pa.Array, arrow: pa.DataType) -> pa.Array:
    """Integers from integers and texts of such."""
    kinds: set[type] = {str} if isinstance(values, pa.Array) else set(map(type, values))
    if str not in kinds:
        return pa.array(values, arrow)
    texts = _texts(values, kinds)
    require(every(pc.match_substring_regex(texts, _INTEGER)), "no integer")
    return texts.cast(arrow)


def loose_doubles(values: Sequence[Any] | pa.Array) -> Sequence[Any]:
    """Doubles from numbers and texts of such."""
    kinds: set[type] = {str} if isinstance(values, pa.Array) else set(map(type, values))
    if str not in kinds:
        return values
    texts = _texts(values, kinds)
    require(every(pc.match_substring_regex(texts, _NUMBER)), "no number")
    require(every(pc.not_equal(texts, "-0")), "a negative zero")
    doubles = texts.cast(pa.float64())
    require(every(pc.is_finite(doubles)), "out of the range of DOUBLE")
    return doubles


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


_CONVERTERS: dict[Kind, Callable[[Codec, Sequence[Any]], pa.Array]] = {
    **TIME_CONVERTERS,
    Kind.INTEGER: _integer,
    Kind.BOOLEAN: _plain,
    Kind.FLOAT: _float,
    Kind.NUMBER: _number,
    Kind.SINGLE: _single,
    Kind.TEXT: _text,
    Kind.TEXT_OR_JSON: _text,
    Kind.TEXT_OR_STRUCT: _text,
    Kind.TEXT_OR_ANY: _text,
    Kind.MEMBER: _named_by(member_text),
    Kind.MEMBERS: _named_by(members_text),
    Kind.JSON: _tokens_to(json_text),
    Kind.STRUCT: _tokens_to(struct_text),
    Kind.ANY_TEXT: _tokens_to(any_text),
    Kind.BASE64_TEXT: _base64_text,
    Kind.UTF8: _utf8,
    Kind.AS_TEXT: _as_text,
    Kind.BASE64: _bytes,
    Kind.BASE64_URL: _base64_url,
    Kind.HEX: _hex,
    Kind.DECIMAL_BYTES: _decimal_bytes,
    Kind.DECIMAL_NUMBER: _decimal_plain,
    Kind.DECIMAL_TEXT: _decimal_text,
    Kind.DECIMAL_PLAIN: _decimal_plain,
    Kind.VARIABLE_DECIMAL: _variable_decimal,
    Kind.BITS: _bits,
    Kind.INTEGER_OR_BITS: _integer,
    Kind.BITS_OR_INTEGER: _bits_or_integer,
    Kind.LOOSE_INTEGER: lambda codec, values: loose_integers(values, codec.arrow),
    Kind.LOOSE_FLOAT: lambda codec, values: _float(codec, loose_doubles(values)),
    Kind.LOOSE_NUMBER: lambda codec, values: exact_numbers(values, codec.arrow, loose=True),
    Kind.LOOSE_DECIMAL: lambda codec, values: decimals_from_text(
        loose_decimals(values), codec.arrow
    ),
    Kind.LOOSE_BOOLEAN: lambda codec, values: _plain(codec, loose_truths(values)),
    Kind.LOOSE_HEX: lambda codec, values: _hex(codec, hex_texts(values)),
    Kind.LATIN1: lambda codec, values: _bytes(codec, bytes_of_latin1(values)),
}
_CONVERTERS[Kind.ARRAY] = _array

_OF_ARRAYS = frozenset(
    {
        *(Kind.INTEGER, Kind.INTEGER_OR_BITS, Kind.EPOCH, Kind.DAYS, Kind.TIME, Kind.TIME_MICROS),
        *(Kind.FLOAT, Kind.SINGLE, Kind.NUMBER, Kind.BOOLEAN, Kind.BASE64, Kind.DECIMAL_BYTES),
        *(Kind.TEXT, Kind.TEXT_OR_JSON, Kind.TEXT_OR_STRUCT, Kind.TEXT_OR_ANY, Kind.UTF8),
        *(Kind.DECIMAL_TEXT, Kind.DECIMAL_NUMBER, Kind.DECIMAL_PLAIN, *_LOOSE),
        *(Kind.ZONED, Kind.ISO_DATE, Kind.ISO_TIME, Kind.ISO_TIMESTAMP),
        *(Kind.SQL_DATE, Kind.SQL_TIMESTAMP),
    }
)
"""Kinds whose converters accept arrays; the others accept lists."""
