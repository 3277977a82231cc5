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

from ingest.formats.decimal_columns import (
    ConversionError,
    decimals_from_bytes,
    decimals_from_text,
    plain_digits,
    require,
    unscaled_digits,
)
from ingest.formats.loose_columns import (
    LOOSE_WIRE,
    bytes_of_latin1,
    hex_texts,
    loose_decimals,
    loose_doubles,
    loose_integers,
    loose_truths,
    moments,
)
from ingest.formats.semantic_types import Codec, Kind
from storage.errors import InternalError
from storage.format.types import MAX_LENGTH, AtomicType

__all__ = [
    "CONVERSION_ERRORS",
    "PER_UNIT",
    "convert",
    "wire_type",
]


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
    **LOOSE_WIRE,
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


def _all(mask: pa.Array) -> bool:
    return pc.all(mask, min_count=0).as_py() is not False


def _plain(codec: Codec, values: Sequence[Any]) -> pa.Array:
    return pa.array(values, codec.arrow)


def _float(codec: Codec, values: Sequence[Any]) -> pa.Array:
    doubles = pa.array(values, pa.float64())
    if codec.arrow == pa.float64():
        return doubles
    floats = doubles.cast(codec.arrow, safe=False)
    require(_all(pc.is_finite(floats)), "out of the range of FLOAT")
    return floats


def _limited_text(codec: Codec, texts: pa.Array) -> pa.Array:
    length = codec.type.length if isinstance(codec.type, AtomicType) else MAX_LENGTH
    if length < MAX_LENGTH:
        require(_all(pc.less_equal(pc.utf8_length(texts), length)), "text is too long")
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
        require(_all(pc.less_equal(pc.binary_length(values), length)), "too many bytes")
    return values


def _bytes(codec: Codec, values: Sequence[Any]) -> pa.Array:
    return _limited_bytes(codec, pa.array(values, pa.binary()))


def _hex(codec: Codec, values: Sequence[Any]) -> pa.Array:
    require(all(v is None or v.isalnum() or not v for v in values), "not hexadecimal")
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
        texts = [None if v is None else unscaled_digits(v, codec.scale) for v in values]
        return _limited_text(codec, pa.array(texts, pa.string()))
    return decimals_from_bytes(values, codec.scale, target)


def _decimal_text(codec: Codec, values: Sequence[Any]) -> pa.Array:
    return decimals_from_text(pa.array(values, pa.string()), codec.arrow)


def _decimal_plain(codec: Codec, values: Sequence[Any]) -> pa.Array:
    tokens = [None if v is None else bytes(v) for v in values]
    if b"null" in tokens:
        tokens = [None if token == b"null" else token for token in tokens]
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


# --- times


def _days(codec: Codec, values: Sequence[Any]) -> pa.Array:
    return pa.array(values, pa.int32()).view(codec.arrow)


def _time(codec: Codec, values: Sequence[Any]) -> pa.Array:
    numbers = pa.array(values, pa.int64())
    per_ms = PER_UNIT[codec.unit]
    in_day = pc.and_(pc.greater_equal(numbers, 0), pc.less(numbers, _DAY_MS * per_ms))
    require(_all(in_day), "outside of a day")
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


def _sql_date(codec: Codec, values: Sequence[Any]) -> pa.Array:
    try:
        return _iso_date(codec, values)
    except CONVERSION_ERRORS:
        return _iso_date(codec, moments(values, whole_days=True))


def _sql_timestamp(codec: Codec, values: Sequence[Any]) -> pa.Array:
    try:
        return _iso_timestamp(codec, values)
    except CONVERSION_ERRORS:
        return _iso_timestamp(codec, moments(values, whole_days=False))


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
    require(not elements.null_count or codec.element.type.nullable, "a null element")
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
    Kind.LOOSE_INTEGER: lambda codec, values: loose_integers(values, codec.arrow),
    Kind.LOOSE_FLOAT: lambda codec, values: _float(codec, loose_doubles(values)),
    Kind.LOOSE_DECIMAL: lambda codec, values: decimals_from_text(
        loose_decimals(values), codec.arrow
    ),
    Kind.LOOSE_BOOLEAN: lambda codec, values: _plain(codec, loose_truths(values)),
    Kind.LOOSE_HEX: lambda codec, values: _hex(codec, hex_texts(values)),
    Kind.LATIN1: lambda codec, values: _bytes(codec, bytes_of_latin1(values)),
    Kind.SQL_DATE: _sql_date,
    Kind.SQL_TIMESTAMP: _sql_timestamp,
}
_CONVERTERS[Kind.ARRAY] = _array
