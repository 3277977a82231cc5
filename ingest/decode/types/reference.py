# SPDX-License-Identifier: Apache-2.0
"""Value by value decoding of one row: slow, exact, and the judge of what is a bad record.

Works on the raw JSON token of every value, so numbers of any size keep all their digits. Takes
everything that the column-wise path takes, with the same result, and a little more where nothing is
lost (a NUMERIC decimal, quoted NaN for floats, trailing zeros of a fraction). Never rounds, never
guesses. Results are *storage values*: int for dates, times and timestamps in the column's unit,
Decimal, str, bytes, bool, float, list.
"""

import base64
import binascii
import decimal
import math
import re
import struct
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import msgspec
import numpy as np
import pyarrow as pa

from ingest.decode.types.decimal_columns import (
    DECIMAL_CONTEXT,
    MAX_SCALE,
    ConversionError,
    plain_digits,
)
from ingest.decode.types.exact_numbers import holds
from ingest.decode.types.loose_tokens import hex_token, number_token, truth_token
from ingest.decode.types.odd_values import (
    any_text,
    member_text,
    members_text,
    storage_column,
    struct_text,
    texts_of,
    unsigned_digits,
)
from ingest.decode.types.reference_times import TIME_DECODERS
from ingest.decode.types.semantic_types import Codec, Kind
from ingest.decode.types.token_values import (
    NULL,
    UnavailableValueError,
    UnrepresentableError,
    ValueRefusedError,
    in_range,
    integer_of,
    refusal,
    short_number,
    string_of,
)
from ingest.decode.types.unavailable import Placeholder
from storage.errors import InternalError
from storage.format.types.type_text import type_name
from storage.format.types.types import AtomicType

__all__ = ["decode_value"]


def decode_value(codec: Codec | None, token: bytes, placeholder: Placeholder) -> Any:
    """Decode one value.

    Args:
        codec: of the column; None takes null only.
        token: its JSON text.
        placeholder: of unavailable values.

    Returns:
        A storage value, None for null.

    Raises:
        UnavailableValueError: the value is the placeholder.
        UnrepresentableError: the column's type has no such value, by policy.
        ValueRefusedError: it does not fit.
    """
    if token == NULL:
        return None
    struct = codec is not None and codec.kind is Kind.VARIABLE_DECIMAL and token[:1] == b"{"
    if not struct and placeholder.is_value(_loosely(token)):
        raise UnavailableValueError("the source sent a placeholder instead of the value")
    return _decoded(codec, token, placeholder)


def _decoded(codec: Codec | None, token: bytes, placeholder: Placeholder) -> Any:
    """A value that is neither null nor the placeholder."""
    if codec is None:
        raise ValueRefusedError("the source's type does not convert to the column's")
    if codec.kind in TIME_DECODERS:
        return TIME_DECODERS[codec.kind](codec, token)
    return _DECODERS[codec.kind](codec, token, placeholder)


def _loosely(token: bytes) -> Any:
    """The parsed value where it could be a placeholder; any number does for a number."""
    try:
        return msgspec.json.decode(token) if token[:1] in b'"[{' else None
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        raise ValueRefusedError(f"not valid JSON text: {error}") from None
    except RecursionError:
        raise ValueRefusedError("the value is nested too deeply") from None


def _int_column(codec: Codec, token: bytes, _: Placeholder) -> int:
    number: int = _fitting_integer(codec, integer_of(token))
    if codec.unsigned and number < 0:
        raise UnrepresentableError(
            f"{number + 2**64} of an unsigned column is out of the range of BIGINT; "
            "sink.type.mapping unsigned-bigint-to-decimal makes other columns of new tables"
        )
    return number


def _fitting_integer(codec: Codec, number: int) -> Any:
    if pa.types.is_decimal(codec.arrow):
        return _exact(codec, decimal.Decimal(number))
    half = 1 << (codec.arrow.bit_width - 1)
    return in_range(number, -half, half - 1, str(codec.arrow))


def _boolean(codec: Codec, token: bytes, _: Placeholder) -> bool:
    if token not in (b"true", b"false"):
        raise refusal("true or false")
    return token == b"true"


_NON_FINITE = {
    b'"NaN"': math.nan,
    b'"Infinity"': math.inf,
    b'"-Infinity"': -math.inf,
    b'"+Infinity"': math.inf,
}
_MAX_FLOAT = 3.4028235677973366e38  # the first double that rounds beyond FLOAT's largest value


def _number(codec: Codec, token: bytes, _: Placeholder) -> float:
    if token in _NON_FINITE:
        return _NON_FINITE[token]
    if token[:1] not in b"-0123456789":
        raise refusal("a number")
    number = float(token)
    if number == 0 and token == b"-0":
        number = 0.0  # an integer token has no negative zero
    single = codec.kind is Kind.SINGLE or pa.types.is_float32(codec.arrow)
    limit = _MAX_FLOAT if single else math.inf
    if abs(number) >= limit:
        raise ValueRefusedError(f"{token[:60].decode()} is out of the range of the column")
    return number


def _exact_number(codec: Codec, token: bytes, placeholder: Placeholder) -> float:
    number = _number(codec, token, placeholder)
    if token in _NON_FINITE:
        return number
    single = pa.types.is_float32(codec.arrow)
    if single:
        number = struct.unpack("<f", struct.pack("<f", number))[0]
    if not holds(token.decode(), number, single=single):
        shown = np.format_float_positional(np.float32(number)) if single else repr(number)
        raise ValueRefusedError(
            f"{token[:60].decode()} would become {shown}, for {type_name(codec.type)} has fewer "
            "digits: make the column DECIMAL or STRING, or set on.incompatible for the table"
        )
    return number


def _single(codec: Codec, token: bytes, placeholder: Placeholder) -> float:
    number: float = struct.unpack("<f", struct.pack("<f", _number(codec, token, placeholder)))[0]
    return number


def _length_of(codec: Codec) -> int:
    return codec.type.length if isinstance(codec.type, AtomicType) else 0


def _fitting(codec: Codec, value: Any) -> Any:
    limit = _length_of(codec)
    if limit and len(value) > limit:
        raise ValueRefusedError(f"{len(value)} is longer than the column's length {limit}")
    return value


def _text(codec: Codec, token: bytes, _: Placeholder) -> str:
    return _fitting(codec, string_of(token, "a string"))


def _struct(codec: Codec, token: bytes, placeholder: Placeholder) -> str:
    if token[:1] == b"{":
        return _fitting(codec, struct_text(token))
    return _text_or_json(codec, token, placeholder)


def _any_text(codec: Codec, token: bytes, _: Placeholder) -> str:
    return _fitting(codec, any_text(token))


def _named_by(
    name: Callable[[int | str | None, Sequence[str]], str | None],
) -> Callable[[Codec, bytes, Placeholder], str | None]:
    def text(codec: Codec, token: bytes, _: Placeholder) -> str | None:
        quoted = token[:1] == b'"'
        value = string_of(token, "a text") if quoted else integer_of(token, "a number or a text")
        try:
            found = name(value, codec.members)
        except ConversionError as error:
            raise ValueRefusedError(str(error)) from None
        return None if found is None else _fitting(codec, found)

    return text


def _base64_text(codec: Codec, token: bytes, _: Placeholder) -> str:
    _decoded_base64(token)
    return _fitting(codec, string_of(token, "base64 text"))


def _utf8(codec: Codec, token: bytes, _: Placeholder) -> bytes:
    return _fitting(codec, string_of(token, "a string").encode())


def _as_text(codec: Codec, token: bytes, placeholder: Placeholder) -> str | None:
    if codec.element is None:
        raise InternalError("a codec of text without the value's own")
    value = decode_value(codec.element, token, placeholder)
    texts = texts_of(storage_column(codec.element.arrow, [value]), codec.element.type)
    text: str | None = texts[0].as_py()
    return None if text is None else _fitting(codec, text)


def _text_or_json(codec: Codec, token: bytes, placeholder: Placeholder) -> str:
    if token[:1] in b"{[":  # `_loosely` has parsed it: it is well-formed UTF-8
        return _fitting(codec, token.decode())
    if codec.element is not None and token[:1] != b'"':
        return _other_text(codec, codec.element, token, placeholder)
    return _text(codec, token, placeholder)


def _any_value(codec: Codec, token: bytes, placeholder: Placeholder) -> str:
    if token[:1] == b'"' or codec.element is not None:
        return _text_or_json(codec, token, placeholder)
    return _any_text(codec, token, placeholder)


def _other_text(codec: Codec, natural: Codec, token: bytes, placeholder: Placeholder) -> str:
    """A number or truth value, as the cast of the column's earlier type or else as it came."""
    try:
        value = decode_value(natural, token, placeholder)
        texts = texts_of(storage_column(natural.arrow, [value]), natural.type)
        return _fitting(codec, texts[0].as_py())
    except ValueRefusedError:
        return _fitting(codec, token.decode())


def _decoded_base64(token: bytes, altchars: bytes | None = None) -> bytes:
    text = string_of(token, "base64 text")
    try:
        return base64.b64decode(text, altchars, validate=True)
    except (binascii.Error, ValueError) as error:
        raise ValueRefusedError(f"not base64: {error}") from None


def _base64(codec: Codec, token: bytes, _: Placeholder) -> bytes:
    return _fitting(codec, _decoded_base64(token))


def _base64_url(codec: Codec, token: bytes, _: Placeholder) -> bytes:
    if b"+" in token or b"/" in token:
        raise refusal("URL-safe base64")
    return _fitting(codec, _decoded_base64(token, b"-_"))


def _hex(codec: Codec, token: bytes, _: Placeholder) -> bytes:
    text = string_of(token, "hexadecimal text")
    if re.fullmatch(r"([0-9a-fA-F]{2})*", text) is None:
        raise refusal("hexadecimal text")
    return _fitting(codec, bytes.fromhex(text))


# --- decimals

_DECIMAL = re.compile(r"[+-]?(\d+\.?\d*|\.\d+)([eE][+-]?\d{1,4})?", re.ASCII)


def _exact(codec: Codec, number: decimal.Decimal) -> Any:
    """The number at the column's scale, or as plain digits where the column is STRING."""
    arrow = codec.arrow
    if pa.types.is_integer(arrow):
        if number != number.to_integral_value(context=DECIMAL_CONTEXT):
            raise ValueRefusedError(f"{short_number(number)} is no integer")
        return _fitting_integer(codec, int(number))
    if not pa.types.is_decimal(arrow):
        try:
            return _fitting(codec, plain_digits(number))
        except ConversionError as error:
            raise ValueRefusedError(str(error)) from None
    try:
        scaled = number.quantize(decimal.Decimal(1).scaleb(-arrow.scale), context=DECIMAL_CONTEXT)
    except decimal.DecimalException:
        shown = short_number(number)
        raise ValueRefusedError(f"{shown} has more than {arrow.scale} fraction digits") from None
    if len(scaled.as_tuple().digits) > arrow.precision:
        raise ValueRefusedError(f"{short_number(number)} has too many digits")
    return abs(scaled) if scaled.is_zero() else scaled


def _decimal_of(text: str) -> decimal.Decimal:
    if _DECIMAL.fullmatch(text) is None:
        raise ValueRefusedError(f"{text[:60]!r} is no decimal number")
    return decimal.Decimal(text)


def _unscaled(data: bytes, scale: int) -> decimal.Decimal:
    if not data or abs(scale) > MAX_SCALE:
        raise ValueRefusedError("an empty number or an odd scale")
    number = decimal.Decimal(int.from_bytes(data, "big", signed=True))
    return number.scaleb(-scale, DECIMAL_CONTEXT)


def _decimal_bytes(codec: Codec, token: bytes, placeholder: Placeholder) -> Any:
    if token[:1] != b'"':
        return _decimal_plain(codec, token, placeholder)
    return _exact(codec, _unscaled(_decoded_base64(token), codec.scale))


def _decimal_plain(codec: Codec, token: bytes, _: Placeholder) -> Any:
    if token[:1] not in b"-0123456789":
        raise refusal("a number")
    if codec.unsigned and token[:1] == b"-" and pa.types.is_decimal(codec.arrow):
        token = unsigned_digits(b"%d" % in_range(integer_of(token), -(2**63), -1, "BIGINT"))
    return _exact(codec, _decimal_of(token.decode()))


def _decimal_text(codec: Codec, token: bytes, _: Placeholder) -> Any:
    return _exact(codec, _decimal_of(string_of(token, "a decimal as text")))


class _VariableDecimal(msgspec.Struct):
    scale: int
    value: msgspec.Raw


def _variable_decimal(codec: Codec, token: bytes, _: Placeholder) -> Any:
    try:
        parts = msgspec.json.decode(token, type=_VariableDecimal)
    except msgspec.DecodeError:
        raise refusal("scale and value") from None
    return _exact(codec, _unscaled(_decoded_base64(bytes(parts.value)), parts.scale))


# --- others


def _bits(codec: Codec, token: bytes, _: Placeholder) -> int | bytes:
    data = _decoded_base64(token)
    if pa.types.is_binary(codec.arrow):
        return _fitting(codec, data[::-1].rjust(codec.width, b"\0"))
    return _fitting_integer(codec, int.from_bytes(data, "little"))


def _integer_or_bits(codec: Codec, token: bytes, placeholder: Placeholder) -> int:
    if token[:1] != b'"':
        return _int_column(codec, token, placeholder)
    data = _decoded_base64(token)
    if not data:
        raise refusal("bits in base64")
    return _fitting_integer(codec, int.from_bytes(data, "little"))


def _array(codec: Codec, token: bytes, placeholder: Placeholder) -> list[Any]:
    if codec.element is None:
        raise InternalError("array codec without element")
    if token[:1] != b"[":
        raise refusal("an array")
    tokens = msgspec.json.decode(token, type=list[msgspec.Raw])
    element = codec.element
    values = [_element(element, bytes(item), placeholder) for item in tokens]
    if None in values and not element.type.nullable:
        raise ValueRefusedError("a null element in an array that has none")
    return values


def _element(codec: Codec, token: bytes, placeholder: Placeholder) -> Any:
    """One value of several, which no placeholder stands for: that is a list of its own."""
    _loosely(token)
    return None if token == NULL else _decoded(codec, token, placeholder)


def _latin1(codec: Codec, token: bytes, _: Placeholder) -> bytes:
    try:
        return _fitting(codec, string_of(token, "text of bytes").encode("latin-1"))
    except UnicodeEncodeError as error:
        raise ValueRefusedError(f"a character is no byte: {error}") from None


def _loose_decimal(codec: Codec, token: bytes, placeholder: Placeholder) -> Any:
    decode = _decimal_text if token[:1] == b'"' else _decimal_plain
    return decode(codec, token, placeholder)


_DECODERS: Mapping[Kind, Callable[[Codec, bytes, Placeholder], Any]] = {
    Kind.INTEGER: _int_column,
    Kind.BOOLEAN: _boolean,
    Kind.FLOAT: _number,
    Kind.NUMBER: _exact_number,
    Kind.SINGLE: _single,
    Kind.TEXT: _text,
    Kind.TEXT_OR_JSON: _text_or_json,
    Kind.JSON: _text_or_json,
    Kind.TEXT_OR_STRUCT: _struct,
    Kind.STRUCT: _struct,
    Kind.ANY_TEXT: _any_text,
    Kind.TEXT_OR_ANY: _any_value,
    Kind.MEMBER: _named_by(member_text),
    Kind.MEMBERS: _named_by(members_text),
    Kind.BASE64_TEXT: _base64_text,
    Kind.UTF8: _utf8,
    Kind.AS_TEXT: _as_text,
    Kind.BASE64: _base64,
    Kind.BASE64_URL: _base64_url,
    Kind.HEX: _hex,
    Kind.DECIMAL_BYTES: _decimal_bytes,
    Kind.DECIMAL_NUMBER: _decimal_bytes,
    Kind.DECIMAL_TEXT: _decimal_text,
    Kind.DECIMAL_PLAIN: _decimal_plain,
    Kind.VARIABLE_DECIMAL: _variable_decimal,
    Kind.BITS: _bits,
    Kind.INTEGER_OR_BITS: _integer_or_bits,
    Kind.BITS_OR_INTEGER: _integer_or_bits,
    Kind.ARRAY: _array,
    Kind.LOOSE_INTEGER: lambda codec, token, _: _int_column(codec, number_token(token), _),
    Kind.LOOSE_FLOAT: lambda codec, token, _: _number(codec, number_token(token), _),
    Kind.LOOSE_NUMBER: lambda codec, token, _: _exact_number(codec, number_token(token), _),
    Kind.LOOSE_DECIMAL: _loose_decimal,
    Kind.LOOSE_BOOLEAN: lambda codec, token, _: _boolean(codec, truth_token(token), _),
    Kind.LOOSE_HEX: lambda codec, token, _: _hex(codec, hex_token(token), _),
    Kind.LATIN1: _latin1,
}
