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
import calendar
import datetime
import decimal
import math
import re
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import msgspec
import pyarrow as pa

from ingest.formats.conversions import PER_UNIT
from ingest.formats.decimal_columns import (
    DECIMAL_CONTEXT,
    MAX_SCALE,
    ConversionError,
    plain_digits,
)
from ingest.formats.loose_tokens import hex_token, moment_token, number_token, truth_token
from ingest.formats.semantic_types import Codec, Kind
from ingest.formats.unavailable import Placeholder
from storage.errors import InternalError
from storage.format.types import AtomicType

__all__ = ["NULL", "UnavailableValueError", "ValueRefusedError", "decode_value"]

NULL = b"null"
_DAY_MS = 86_400_000
_NANOS_PER = {"ms": 1_000_000, "us": 1_000, "ns": 1}
_INT64 = (-(2**63), 2**63 - 1)


class ValueRefusedError(ValueError):
    """The value does not fit the column; the text says why."""


class UnavailableValueError(ValueRefusedError):
    """The value is the placeholder of a value that the source does not have."""


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
        ValueRefusedError: it does not fit.
    """
    if token == NULL:
        return None
    if placeholder.is_value(_loosely(token)):
        raise UnavailableValueError("the source sent a placeholder instead of the value")
    if codec is None:
        raise ValueRefusedError("no conversion to the type of the column")
    return _DECODERS[codec.kind](codec, token, placeholder)


def _loosely(token: bytes) -> Any:
    """The parsed value where it could be a placeholder; any number does for a number."""
    try:
        return msgspec.json.decode(token) if token[:1] in b'"[{' else None
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        raise ValueRefusedError(f"not valid JSON text: {error}") from None


def _refuse(expected: str, token: bytes) -> ValueRefusedError:
    shown = token[:60].decode("utf-8", "backslashreplace")
    return ValueRefusedError(f"expected {expected}, got {shown}")


def _string(token: bytes, expected: str) -> str:
    if token[:1] != b'"':
        raise _refuse(expected, token)
    return msgspec.json.decode(token, type=str)


def _integer(token: bytes, expected: str = "an integer") -> int:
    if re.fullmatch(rb"-?\d{1,100}", token) is None:
        raise _refuse(expected, token)
    return int(token)


def _in_range(number: int, low: int, high: int, what: str) -> int:
    if not low <= number <= high:
        raise ValueRefusedError(f"{number} is out of the range of {what}")
    return number


def _int_column(codec: Codec, token: bytes, _: Placeholder) -> int:
    return _fitting_integer(codec, _integer(token))


def _fitting_integer(codec: Codec, number: int) -> int:
    half = 1 << (codec.arrow.bit_width - 1)
    return _in_range(number, -half, half - 1, str(codec.arrow))


def _boolean(codec: Codec, token: bytes, _: Placeholder) -> bool:
    if token not in (b"true", b"false"):
        raise _refuse("true or false", token)
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
        raise _refuse("a number", token)
    number = float(token)
    if number == 0 and token == b"-0":
        number = 0.0  # an integer token has no negative zero
    limit = _MAX_FLOAT if pa.types.is_float32(codec.arrow) else math.inf
    if abs(number) >= limit:
        raise ValueRefusedError(f"{token[:60].decode()} is out of the range of the column")
    return number


def _length_of(codec: Codec) -> int:
    return codec.type.length if isinstance(codec.type, AtomicType) else 0


def _fitting(codec: Codec, value: Any) -> Any:
    limit = _length_of(codec)
    if limit and len(value) > limit:
        raise ValueRefusedError(f"{len(value)} is longer than the column's length {limit}")
    return value


def _text(codec: Codec, token: bytes, _: Placeholder) -> str:
    return _fitting(codec, _string(token, "a string"))


def _text_or_json(codec: Codec, token: bytes, placeholder: Placeholder) -> str:
    if token[:1] in b"{[":  # `_loosely` has parsed it: it is well-formed UTF-8
        return _fitting(codec, token.decode())
    return _text(codec, token, placeholder)


def _decoded_base64(token: bytes, altchars: bytes | None = None) -> bytes:
    text = _string(token, "base64 text")
    try:
        return base64.b64decode(text, altchars, validate=True)
    except (binascii.Error, ValueError) as error:
        raise ValueRefusedError(f"not base64: {error}") from None


def _base64(codec: Codec, token: bytes, _: Placeholder) -> bytes:
    return _fitting(codec, _decoded_base64(token))


def _base64_url(codec: Codec, token: bytes, _: Placeholder) -> bytes:
    if b"+" in token or b"/" in token:
        raise _refuse("URL-safe base64", token)
    return _fitting(codec, _decoded_base64(token, b"-_"))


def _hex(codec: Codec, token: bytes, _: Placeholder) -> bytes:
    text = _string(token, "hexadecimal text")
    if re.fullmatch(r"([0-9a-fA-F]{2})*", text) is None:
        raise _refuse("hexadecimal text", token)
    return _fitting(codec, bytes.fromhex(text))


# --- decimals

_DECIMAL = re.compile(r"[+-]?(\d+\.?\d*|\.\d+)([eE][+-]?\d{1,4})?", re.ASCII)


def _exact(codec: Codec, number: decimal.Decimal) -> Any:
    """The number at the column's scale, or as plain digits where the column is STRING."""
    arrow = codec.arrow
    if not pa.types.is_decimal(arrow):
        try:
            return _fitting(codec, plain_digits(number))
        except ConversionError as error:
            raise ValueRefusedError(str(error)) from None
    try:
        scaled = number.quantize(decimal.Decimal(1).scaleb(-arrow.scale), context=DECIMAL_CONTEXT)
    except decimal.DecimalException:
        raise ValueRefusedError(f"{number} has more than {arrow.scale} fraction digits") from None
    if len(scaled.as_tuple().digits) > arrow.precision:
        raise ValueRefusedError(f"{number} has too many digits for {arrow}")
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
        raise _refuse("a number", token)
    return _exact(codec, _decimal_of(token.decode()))


def _decimal_text(codec: Codec, token: bytes, _: Placeholder) -> Any:
    return _exact(codec, _decimal_of(_string(token, "a decimal as text")))


class _VariableDecimal(msgspec.Struct):
    scale: int
    value: msgspec.Raw


def _variable_decimal(codec: Codec, token: bytes, _: Placeholder) -> Any:
    try:
        parts = msgspec.json.decode(token, type=_VariableDecimal)
    except msgspec.DecodeError:
        raise _refuse("scale and value", token) from None
    return _exact(codec, _unscaled(_decoded_base64(bytes(parts.value)), parts.scale))


# --- times

_DATE = r"(\d{4})-(\d\d)-(\d\d)"
_CLOCK = r"(\d\d)(?::(\d\d)(?::(\d\d)(?:\.(\d+))?)?)?"
_DATE_TEXT = re.compile(_DATE, re.ASCII)
_TIME_TEXT = re.compile(_CLOCK, re.ASCII)
_LOCAL_TEXT = re.compile(rf"{_DATE}(?:[T ]{_CLOCK})?", re.ASCII)
_ZONED_TEXT = re.compile(rf"{_DATE}[T ]{_CLOCK}(?:Z|([+-])(\d\d)(?::?(\d\d))?)", re.ASCII)
_EPOCH_DAY = datetime.date(1970, 1, 1).toordinal()
_LEAP_YEAR_DAYS = 366


def _days(codec: Codec, token: bytes, _: Placeholder) -> int:
    return _in_range(_integer(token, "days as an integer"), -(2**31), 2**31 - 1, "DATE")


def _time(codec: Codec, token: bytes, _: Placeholder) -> int:
    per_ms = PER_UNIT[codec.unit]
    number = _integer(token, "a time as an integer")
    return _in_range(number, 0, _DAY_MS * per_ms - 1, "a day") // per_ms


def _epoch(codec: Codec, token: bytes, _: Placeholder) -> int:
    number = _in_range(_integer(token, "a timestamp as an integer"), *_INT64, "a timestamp")
    return _instant(codec, number * _NANOS_PER[codec.unit])


def _instant(codec: Codec, nanos: int) -> int:
    value, rest = divmod(nanos, _NANOS_PER[codec.arrow.unit])
    if rest:
        raise ValueRefusedError("the fraction of a second is finer than the column's")
    return _in_range(value, *_INT64, "a timestamp")


def _matched(pattern: re.Pattern[str], text: str, expected: str) -> tuple[str | None, ...]:
    match = pattern.fullmatch(text)
    if match is None:
        raise ValueRefusedError(f"{text[:60]!r} is no {expected}")
    return match.groups()


def _day_number(year: str | None, month: str | None, day: str | None) -> int:
    y, m, d = int(year or 0), int(month or 0), int(day or 0)
    if not 1 <= m <= 12 or not 1 <= d <= calendar.monthrange(y or 4, m)[1]:
        raise ValueRefusedError(f"{year}-{month}-{day} is no date")
    if y == 0:  # proleptic year 0 is a leap year just before what Python's dates know
        return datetime.date(4, m, d).toordinal() - _days_to_year_4() - _EPOCH_DAY
    return datetime.date(y, m, d).toordinal() - _EPOCH_DAY


def _days_to_year_4() -> int:
    return datetime.date(4, 1, 1).toordinal() - datetime.date(1, 1, 1).toordinal() + _LEAP_YEAR_DAYS


def _clock_nanos(parts: Sequence[str | None]) -> int:
    hour, minute, second = (int(part or 0) for part in parts[:3])
    if hour > 23 or minute > 59 or second > 59:
        raise ValueRefusedError("no time of day")
    fraction = (parts[3] or "").rstrip("0")
    if len(fraction) > 9:
        raise ValueRefusedError("a fraction finer than nanoseconds")
    return ((hour * 60 + minute) * 60 + second) * 10**9 + int(fraction.ljust(9, "0"))


def _zoned(codec: Codec, token: bytes, _: Placeholder) -> int:
    text = _string(token, "a timestamp with offset")
    parts = _matched(_ZONED_TEXT, text, "timestamp with offset")
    nanos = _day_number(*parts[:3]) * _DAY_MS * 1_000_000 + _clock_nanos(parts[3:7])
    sign, hours, minutes = parts[7], int(parts[8] or 0), int(parts[9] or 0)
    if hours > 23 or minutes > 59:
        raise ValueRefusedError(f"{text!r} has no valid offset")
    offset = (hours * 60 + minutes) * 60 * 10**9
    return _instant(codec, nanos + offset if sign == "-" else nanos - offset)


def _without_z(token: bytes, expected: str) -> str:
    return _string(token, expected).removesuffix("Z")


def _iso_date(codec: Codec, token: bytes, _: Placeholder) -> int:
    return _day_number(*_matched(_DATE_TEXT, _without_z(token, "an ISO date"), "ISO date"))


def _iso_time(codec: Codec, token: bytes, _: Placeholder) -> int:
    parts = _matched(_TIME_TEXT, _without_z(token, "an ISO time"), "ISO time")
    return _clock_nanos(parts) // 1_000_000


def _iso_timestamp(codec: Codec, token: bytes, _: Placeholder) -> int:
    text = _without_z(token, "an ISO timestamp")
    parts = _matched(_LOCAL_TEXT, text, "ISO timestamp")
    nanos = _day_number(*parts[:3]) * _DAY_MS * 1_000_000 + _clock_nanos(parts[3:])
    return _instant(codec, nanos)


# --- others


def _bits(codec: Codec, token: bytes, _: Placeholder) -> int | bytes:
    data = _decoded_base64(token)
    if pa.types.is_binary(codec.arrow):
        return _fitting(codec, data[::-1])
    return _fitting_integer(codec, int.from_bytes(data, "little"))


def _array(codec: Codec, token: bytes, placeholder: Placeholder) -> list[Any]:
    if codec.element is None:
        raise InternalError("array codec without element")
    if token[:1] != b"[":
        raise _refuse("an array", token)
    tokens = msgspec.json.decode(token, type=list[msgspec.Raw])
    element = codec.element
    values = [decode_value(element, bytes(item), placeholder) for item in tokens]
    if None in values and not element.type.nullable:
        raise ValueRefusedError("a null element in an array that has none")
    return values


def _latin1(codec: Codec, token: bytes, _: Placeholder) -> bytes:
    try:
        return _fitting(codec, _string(token, "text of bytes").encode("latin-1"))
    except UnicodeEncodeError as error:
        raise ValueRefusedError(f"a character is no byte: {error}") from None


def _loose_decimal(codec: Codec, token: bytes, placeholder: Placeholder) -> Any:
    decode = _decimal_text if token[:1] == b'"' else _decimal_plain
    return decode(codec, token, placeholder)


def _moment(codec: Codec, token: bytes, placeholder: Placeholder) -> int | None:
    whole_days = codec.kind is Kind.SQL_DATE
    plain = moment_token(token, whole_days=whole_days)
    if plain == NULL:
        return None
    return (_iso_date if whole_days else _iso_timestamp)(codec, plain, placeholder)


_DECODERS: Mapping[Kind, Callable[[Codec, bytes, Placeholder], Any]] = {
    Kind.INTEGER: _int_column,
    Kind.BOOLEAN: _boolean,
    Kind.FLOAT: _number,
    Kind.TEXT: _text,
    Kind.TEXT_OR_JSON: _text_or_json,
    Kind.JSON: _text_or_json,
    Kind.BASE64: _base64,
    Kind.BASE64_URL: _base64_url,
    Kind.HEX: _hex,
    Kind.DECIMAL_BYTES: _decimal_bytes,
    Kind.DECIMAL_NUMBER: _decimal_bytes,
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
    Kind.ARRAY: _array,
    Kind.LOOSE_INTEGER: lambda codec, token, _: _int_column(codec, number_token(token), _),
    Kind.LOOSE_FLOAT: lambda codec, token, _: _number(codec, number_token(token), _),
    Kind.LOOSE_DECIMAL: _loose_decimal,
    Kind.LOOSE_BOOLEAN: lambda codec, token, _: _boolean(codec, truth_token(token), _),
    Kind.LOOSE_HEX: lambda codec, token, _: _hex(codec, hex_token(token), _),
    Kind.LATIN1: _latin1,
    Kind.SQL_DATE: _moment,
    Kind.SQL_TIMESTAMP: _moment,
}
