# SPDX-License-Identifier: Apache-2.0
"""Whole-column conversion of decoded JSON values to Arrow: the fast path's half of every `Codec`.

`wire_type` says what msgspec decodes a column's values to; `convert` turns a list of such values
(None = null) into the column's array, or raises one of `CONVERSION_ERRORS` when any value does not
fit exactly. Nothing is rounded, wrapped or replaced here; what this module refuses, `reference`
looks at value by value, and the two agree on every value that this one takes.
"""

import decimal
import itertools
from collections.abc import Callable, Sequence
from typing import Any

import msgspec
import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from ingest.formats.semantic_types import Codec, Kind
from storage.errors import InternalError
from storage.format.types import MAX_LENGTH, AtomicType

__all__ = [
    "CONVERSION_ERRORS",
    "DECIMAL_CONTEXT",
    "MAX_SCALE",
    "PER_UNIT",
    "ConversionError",
    "convert",
    "plain_digits",
    "wire_type",
]


class ConversionError(ValueError):
    """Some value of a column does not fit; which one is for the caller to find."""


CONVERSION_ERRORS = (
    ValueError,  # also pa.ArrowInvalid and ConversionError
    TypeError,  # also pa.ArrowTypeError
    OverflowError,
    pa.ArrowNotImplementedError,
    decimal.DecimalException,
    msgspec.MsgspecError,
)

PER_UNIT = {"ms": 1, "us": 1_000, "ns": 1_000_000}
"""How many of a unit make a millisecond."""

_DAY_MS = 86_400_000
_WORD_BYTES = 8
_DECIMAL_BYTES = 16
_SIGN_BIT = 0x80
_MAX_DIGITS = 38

MAX_SCALE = 1_000
"""Largest scale, either way, that is written out as digits; no database knows larger ones."""

DECIMAL_CONTEXT = decimal.Context(prec=100_000, traps=[decimal.Inexact, decimal.InvalidOperation])
"""Exact arithmetic for single decimals: anything that would round raises."""


class _VariableDecimal(msgspec.Struct, gc=False):
    scale: int
    value: bytes


_WIRE: dict[Kind, Any] = {
    Kind.INTEGER: int,
    Kind.BOOLEAN: bool,
    Kind.FLOAT: float,
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
    Kind.EPOCH: int,
    Kind.ZONED: str,
    Kind.ISO_DATE: str,
    Kind.ISO_TIME: str,
    Kind.ISO_TIMESTAMP: str,
    Kind.BITS: bytes,
}


def wire_type(codec: Codec) -> Any:
    """The Python type that msgspec gives a column's values; null comes on top."""
    if codec.element is not None:
        return list[wire_type(codec.element) | None]  # type: ignore[misc]
    return _WIRE[codec.kind]


def convert(codec: Codec, values: Sequence[Any]) -> pa.Array:
    """One column.

    Args:
        codec: of the column.
        values: as `wire_type` says, None for null.

    Returns:
        An array of `codec.arrow`, as long as `values`.

    Raises:
        CONVERSION_ERRORS: a value does not fit.

    Cost: a few C loops over the column; a Python step per value only for the rare kinds (hex,
    variable decimals, ISO times, raw JSON).
    """
    return _CONVERTERS[codec.kind](codec, values)


def _require(condition: bool, what: str) -> None:
    if not condition:
        raise ConversionError(what)


def _all(mask: pa.Array) -> bool:
    return pc.all(mask, min_count=0).as_py() is not False


def _plain(codec: Codec, values: Sequence[Any]) -> pa.Array:
    return pa.array(values, codec.arrow)


def _float(codec: Codec, values: Sequence[Any]) -> pa.Array:
    doubles = pa.array(values, pa.float64())
    if codec.arrow == pa.float64():
        return doubles
    floats = doubles.cast(codec.arrow, safe=False)
    _require(_all(pc.is_finite(floats)), "out of the range of FLOAT")
    return floats


def _limited_text(codec: Codec, texts: pa.Array) -> pa.Array:
    length = codec.type.length if isinstance(codec.type, AtomicType) else MAX_LENGTH
    if length < MAX_LENGTH:
        _require(_all(pc.less_equal(pc.utf8_length(texts), length)), "text is too long")
    return texts


def _text(codec: Codec, values: Sequence[Any]) -> pa.Array:
    return _limited_text(codec, pa.array(values, pa.string()))


def _json(codec: Codec, values: Sequence[Any]) -> pa.Array:
    texts = [_json_text(value) for value in values]
    return _limited_text(codec, pa.array(texts, pa.string()))


def _json_text(value: Any) -> str | None:
    if value is None:
        return None
    token = bytes(value)
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


def _limited_bytes(codec: Codec, values: pa.Array) -> pa.Array:
    length = codec.type.length if isinstance(codec.type, AtomicType) else MAX_LENGTH
    if length < MAX_LENGTH:
        _require(_all(pc.less_equal(pc.binary_length(values), length)), "too many bytes")
    return values


def _bytes(codec: Codec, values: Sequence[Any]) -> pa.Array:
    return _limited_bytes(codec, pa.array(values, pa.binary()))


def _hex(codec: Codec, values: Sequence[Any]) -> pa.Array:
    _require(all(v is None or v.isalnum() or not v for v in values), "not hexadecimal")
    return _bytes(codec, [None if v is None else bytes.fromhex(v) for v in values])


_URL_SAFE = str.maketrans("+/-_", "??+/")


def _base64_url(codec: Codec, values: Sequence[Any]) -> pa.Array:
    texts = [None if v is None else v.translate(_URL_SAFE) for v in values]
    return _bytes(codec, msgspec.convert(texts, list[bytes | None]))


# --- decimals


def _decimal_type(codec: Codec) -> pa.Decimal128Type | None:
    """The column's decimal type; None for a STRING column that takes digits."""
    arrow = codec.arrow
    return arrow if pa.types.is_decimal(arrow) else None


def _decimal_bytes(codec: Codec, values: Sequence[Any]) -> pa.Array:
    target = _decimal_type(codec)
    if target is None:
        texts = [None if v is None else _digits(v, codec.scale) for v in values]
        return _limited_text(codec, pa.array(texts, pa.string()))
    words = _signed_words(pa.array(values, pa.binary()))
    growth = max(0, target.scale - codec.scale)
    if growth == 0 and codec.scale == target.scale:
        source = target
    else:
        # so many digits fewer, because Arrow's rescaling may wrap around without an error
        _require(growth < _MAX_DIGITS and codec.scale <= _MAX_DIGITS, "no common scale")
        source = pa.decimal128(_MAX_DIGITS - growth, codec.scale)
    numbers = pa.Decimal128Array.from_buffers(source, len(values), words)
    numbers.validate(full=True)
    return numbers if source is target else numbers.cast(target)


def _digits(unscaled: bytes, scale: int) -> str:
    _require(bool(unscaled) and abs(scale) <= MAX_SCALE, "an empty number or an odd scale")
    number = decimal.Decimal(int.from_bytes(unscaled, "big", signed=True))
    return plain_digits(number.scaleb(-scale, DECIMAL_CONTEXT))


def plain_digits(number: decimal.Decimal) -> str:
    """A decimal without exponent.

    Raises:
        ConversionError: its exponent is beyond `MAX_SCALE`.
    """
    exponent = number.as_tuple().exponent
    _require(isinstance(exponent, int) and abs(exponent) <= MAX_SCALE, "an odd scale")
    return format(number, "f")


def _signed_words(values: pa.Array) -> list[pa.Buffer | None]:
    """Buffers of a decimal128 array from big-endian two's complement numbers of any length <= 16.

    Args:
        values: binary array with offset 0.
    """
    validity, offset_buffer, data_buffer = values.buffers()
    offsets = np.frombuffer(offset_buffer, np.int32)[: len(values) + 1]
    lengths = np.diff(offsets)
    widest = int(lengths.max(initial=0))
    _require(widest <= _DECIMAL_BYTES, "a number of more than 16 bytes")
    if values.null_count:
        present = values.is_valid().to_numpy(zero_copy_only=False)
        _require(bool((lengths[present] > 0).all()), "an empty number")
    else:
        _require(bool((lengths > 0).all()), "an empty number")
    if widest == 0:
        return [validity, pa.py_buffer(bytes(_DECIMAL_BYTES * len(values)))]
    data = np.frombuffer(data_buffer, np.uint8)
    words = _narrow_words if widest <= _WORD_BYTES else _wide_words
    return [validity, pa.py_buffer(words(data, offsets, lengths, widest))]


def _narrow_words(
    data: np.ndarray, offsets: np.ndarray, lengths: np.ndarray, widest: int
) -> np.ndarray:
    last = len(data) - 1
    first = data[np.minimum(offsets[:-1], last)]
    low = np.where((first >= _SIGN_BIT) & (lengths > 0), np.int64(-1), np.int64(0))
    for step in range(widest):
        digit = data[np.minimum(offsets[:-1] + step, last)]
        low = np.where(step < lengths, (low << 8) | digit, low)
    words = np.empty((len(low), 2), np.int64)
    words[:, 0] = low
    words[:, 1] = low >> 63
    return words


def _wide_words(
    data: np.ndarray, offsets: np.ndarray, lengths: np.ndarray, widest: int
) -> np.ndarray:
    first = data[np.minimum(offsets[:-1], len(data) - 1)]
    negative = (first >= _SIGN_BIT) & (lengths > 0)
    words = np.zeros((len(lengths), _DECIMAL_BYTES), np.uint8)
    words[negative] = 0xFF
    for step in range(widest):
        rows = np.flatnonzero(lengths > step)
        words[rows, step] = data[offsets[1:][rows] - 1 - step]
    # Arrow's check of precision passes the one number whose absolute value has no 128 bits
    lowest = np.zeros(_DECIMAL_BYTES, np.uint8)
    lowest[-1] = _SIGN_BIT
    _require(not (words == lowest).all(axis=1).any(), "too many digits")
    return words


def _decimal_text(codec: Codec, values: Sequence[Any]) -> pa.Array:
    return _parsed(pa.array(values, pa.string()), codec.arrow)


def _parsed(texts: pa.Array, target: pa.Decimal128Type) -> pa.Array:
    """Decimals from text, where Arrow is sure to notice what does not fit.

    Arrow 26 wraps around without an error beyond 128 bits, in parsing and in rescaling (39 ones or
    `3.4e38` into DECIMAL(38, 10) give some number), so long texts and exponents are refused here
    and left to the reference path.
    """
    content = (texts.buffers()[2] or pa.py_buffer(b"")).to_pybytes()
    _require(b"e" not in content and b"E" not in content, "an exponent")
    longest = pc.max(pc.binary_length(texts)).as_py() or 0
    _require(longest <= _MAX_DIGITS, "a long text")
    if longest + target.scale > _MAX_DIGITS:
        points = pc.find_substring(texts, ".")
        integers = pc.if_else(pc.less(points, 0), pc.binary_length(texts), points)
        _require((pc.max(integers).as_py() or 0) + target.scale <= _MAX_DIGITS, "many digits")
    return texts.cast(target)


def _decimal_plain(codec: Codec, values: Sequence[Any]) -> pa.Array:
    tokens = [None if v is None else bytes(v) for v in values]
    if b"null" in tokens:
        tokens = [None if token == b"null" else token for token in tokens]
    if _decimal_type(codec) is None:
        texts = [None if t is None else plain_digits(decimal.Decimal(t.decode())) for t in tokens]
        return _limited_text(codec, pa.array(texts, pa.string()))
    # a string's token starts with a quote, true with t: neither is a decimal
    return _parsed(pa.array(tokens, pa.string()), codec.arrow)


def _variable_decimal(codec: Codec, values: Sequence[Any]) -> pa.Array:
    texts = [None if v is None else _digits(v.value, v.scale) for v in values]
    if _decimal_type(codec) is None:
        return _limited_text(codec, pa.array(texts, pa.string()))
    return _parsed(pa.array(texts, pa.string()), codec.arrow)


# --- times


def _days(codec: Codec, values: Sequence[Any]) -> pa.Array:
    return pa.array(values, pa.int32()).view(codec.arrow)


def _time(codec: Codec, values: Sequence[Any]) -> pa.Array:
    numbers = pa.array(values, pa.int64())
    per_ms = PER_UNIT[codec.unit]
    in_day = pc.and_(pc.greater_equal(numbers, 0), pc.less(numbers, _DAY_MS * per_ms))
    _require(_all(in_day), "outside of a day")
    return pc.divide(numbers, per_ms).cast(pa.int32()).view(codec.arrow)


def _epoch(codec: Codec, values: Sequence[Any]) -> pa.Array:
    arrow = codec.arrow
    instants = pa.array(values, pa.int64()).view(pa.timestamp(codec.unit, tz=arrow.tz))
    return instants if codec.unit == arrow.unit else instants.cast(arrow)


def _zoned(codec: Codec, values: Sequence[Any]) -> pa.Array:
    # Arrow refuses a text without offset when the type has a zone, and more digits than it holds
    return pa.array(values, pa.string()).cast(codec.arrow)


def _without_z(values: Sequence[Any]) -> pa.Array:
    texts = pa.array(values, pa.string())
    return pc.if_else(pc.ends_with(texts, "Z"), pc.utf8_slice_codeunits(texts, 0, -1), texts)


def _iso_date(codec: Codec, values: Sequence[Any]) -> pa.Array:
    return _without_z(values).cast(codec.arrow)


def _iso_timestamp(codec: Codec, values: Sequence[Any]) -> pa.Array:
    return _without_z(values).cast(codec.arrow)


def _iso_time(codec: Codec, values: Sequence[Any]) -> pa.Array:
    # Arrow parses no times alone
    instants = pc.binary_join_element_wise("1970-01-01T", _without_z(values), "")
    nanos = instants.cast(pa.timestamp("ns")).cast(pa.int64())
    return pc.divide(nanos, PER_UNIT["ns"]).cast(pa.int32()).view(codec.arrow)


# --- others


def _bits(codec: Codec, values: Sequence[Any]) -> pa.Array:
    swapped = [None if v is None else v[::-1] for v in values]
    if pa.types.is_binary(codec.arrow):
        return _bytes(codec, swapped)
    numbers = [None if v is None else int.from_bytes(v, "big") for v in swapped]
    return pa.array(numbers, codec.arrow)


def _array(codec: Codec, values: Sequence[Any]) -> pa.Array:
    if codec.element is None:
        raise InternalError("array codec without element")
    flat = list(itertools.chain.from_iterable(v for v in values if v is not None))
    elements = convert(codec.element, flat)
    _require(not elements.null_count or codec.element.type.nullable, "a null element")
    lengths = np.fromiter((0 if v is None else len(v) for v in values), np.int32, len(values))
    offsets = np.zeros(len(values) + 1, np.int32)
    np.cumsum(lengths, out=offsets[1:])
    absent = pa.array([v is None for v in values])
    return pa.ListArray.from_arrays(
        pa.array(offsets), elements, type=codec.arrow, mask=absent if None in values else None
    )


_CONVERTERS: dict[Kind, Callable[[Codec, Sequence[Any]], pa.Array]] = {
    Kind.INTEGER: _plain,
    Kind.BOOLEAN: _plain,
    Kind.FLOAT: _float,
    Kind.TEXT: _text,
    Kind.TEXT_OR_JSON: _text,
    Kind.JSON: _json,
    Kind.BASE64: _bytes,
    Kind.BASE64_URL: _base64_url,
    Kind.HEX: _hex,
    Kind.DECIMAL_BYTES: _decimal_bytes,
    Kind.DECIMAL_NUMBER: _decimal_plain,
    Kind.DECIMAL_TEXT: _decimal_text,
    Kind.DECIMAL_PLAIN: _decimal_plain,
    Kind.VARIABLE_DECIMAL: _variable_decimal,
    Kind.DAYS: _days,
    Kind.TIME: _time,
    Kind.EPOCH: _epoch,
    Kind.ZONED: _zoned,
    Kind.ISO_DATE: _iso_date,
    Kind.ISO_TIME: _iso_time,
    Kind.ISO_TIMESTAMP: _iso_timestamp,
    Kind.BITS: _bits,
}
_CONVERTERS[Kind.ARRAY] = _array
