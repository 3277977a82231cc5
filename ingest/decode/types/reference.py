# SPDX-License-Identifier: Apache-2.0
"""Value by value decoding of one row: slow, exact; it decides which records are bad.

Works on the raw JSON token of every value, so numbers of any size keep all their digits. Accepts
everything that the column-wise path accepts, with the same result, and more where nothing is lost
(a NUMERIC decimal, quoted NaN for floats, trailing zeros of a fraction). Never rounds, never
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
import struct
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import msgspec
import numpy as np
import pyarrow as pa

from ingest.decode.events import (
    NULL,
    UnavailableValueError,
    UnrepresentableError,
    ValueRefusedError,
    hex_token,
    in_range,
    integer_of,
    moment_token,
    number_token,
    refusal,
    short_number,
    string_of,
    truth_token,
)
from ingest.decode.types.conversions import (
    DAYS,
    EPOCHS,
    MICROS_PER,
    PER_UNIT,
    Placeholder,
    bound_of,
    clock_text,
    cut_pattern,
    sign_of_text,
)
from ingest.decode.types.exact_numbers import (
    any_text,
    holds,
    member_text,
    members_text,
    storage_column,
    struct_text,
    texts_of,
    unsigned_digits,
)
from ingest.decode.types.semantic_types import (
    DECIMAL_CONTEXT,
    MAX_SCALE,
    Codec,
    ConversionError,
    Infinity,
    Kind,
    plain_digits,
)
from storage.errors import InternalError
from storage.format.types.types import AtomicType, type_name

_DAY_MS = 86_400_000
_NANOS_PER = {"ms": 1_000_000, "us": 1_000, "ns": 1}
_INT64 = (-(2**63), 2**63 - 1)
_DATE = r"(\d{4}|[+-]\d{4,6})-(\d\d)-(\d\d)"
_CLOCK = r"(\d\d)(?::(\d\d)(?::(\d\d)(?:\.(\d+))?)?)?"
_DATE_TEXT = re.compile(_DATE, re.ASCII)
_TIME_TEXT = re.compile(_CLOCK, re.ASCII)
_LOCAL_TEXT = re.compile(rf"{_DATE}(?:[T ]{_CLOCK})?", re.ASCII)
_ZONED_TEXT = re.compile(rf"{_DATE}[T ]{_CLOCK}(?:Z|([+-])(\d\d)(?::?(\d\d))?)", re.ASCII)
_EPOCH_DAY = datetime.date(1970, 1, 1).toordinal()
_CYCLE_YEARS, _CYCLE_DAYS = 400, 146_097
"""Period after which the calendar repeats."""


def _infinite(codec: Codec, sign: int, literal: object) -> int | None:
    """What an infinity becomes."""
    if codec.infinity is Infinity.REFUSE:
        name = "infinity" if sign > 0 else "-infinity"
        raise UnrepresentableError(
            f"{literal} is {name}, which {type_name(codec.type)} does not have; sink.type.mapping "
            "infinity-to-null or infinity-to-bounds replaces it"
        )
    return bound_of(codec.arrow, sign) if codec.infinity is Infinity.BOUNDS else None


def _days(codec: Codec, token: bytes) -> int | None:
    number = integer_of(token, "days as an integer")
    sign = DAYS.sign(number)
    if sign:
        return _infinite(codec, sign, number)
    return in_range(number, -(2**31), 2**31 - 1, "DATE")


_OTHER_TIMES = (
    "sink.type.mapping time-to-string (or time-to-bigint, where times are numbers) makes other "
    "columns of new tables"
)


def _time(codec: Codec, token: bytes) -> int:
    per_ms = PER_UNIT[codec.unit]
    number = integer_of(token, "a time as an integer")
    if not 0 <= number < _DAY_MS * per_ms:
        in_range(number, *_INT64, "a time")
        raise UnrepresentableError(
            f"{clock_text(number, codec.unit)} is not within a day, which is all that TIME holds; "
            + _OTHER_TIMES
        )
    return _millis(codec, number, per_ms, codec.unit)


def _millis(codec: Codec, number: int, per_ms: int, unit: str) -> int:
    if codec.exact and number % per_ms:
        raise UnrepresentableError(
            f"{clock_text(number, unit)} is finer than the milliseconds that TIME holds, so two "
            f"keys would become one; {_OTHER_TIMES}"
        )
    return number // per_ms


def _time_micros(codec: Codec, token: bytes) -> int:
    number = in_range(integer_of(token, "a time as an integer"), *_INT64, "a time")
    micros, rest = divmod(number * MICROS_PER[codec.unit][0], MICROS_PER[codec.unit][1])
    if rest:
        raise ValueRefusedError("the fraction of a second is finer than microseconds")
    return in_range(micros, *_INT64, "BIGINT")


def _time_text(codec: Codec, token: bytes) -> str:
    number = in_range(integer_of(token, "a time as an integer"), *_INT64, "a time")
    return clock_text(number, codec.unit)


def _epoch(codec: Codec, token: bytes) -> int | None:
    number = in_range(integer_of(token, "a timestamp as an integer"), *_INT64, "a timestamp")
    sign = EPOCHS[codec.unit].sign(number)
    if sign:
        return _infinite(codec, sign, number)
    return _instant(codec, number * _NANOS_PER[codec.unit])


def _instant(codec: Codec, nanos: int) -> int:
    value, rest = divmod(nanos, _NANOS_PER[codec.arrow.unit])
    if rest:
        raise ValueRefusedError(
            f"the fraction of a second is finer than {type_name(codec.type)} has: "
            "sink.type.mapping cut-fractions cuts those of texts, zoned-to-string makes other "
            "columns of new tables"
        )
    return in_range(value, *_INT64, "a timestamp")


def _matched(pattern: re.Pattern[str], text: str, expected: str) -> tuple[str | None, ...]:
    match = pattern.fullmatch(text)
    if match is None:
        raise ValueRefusedError(f"{text[:60]!r} is no {expected}")
    return match.groups()


def _day_number(year: str | None, month: str | None, day: str | None) -> int:
    y, m, d = int(year or 0), int(month or 0), int(day or 0)
    cycles, y_in_cycle = divmod(y - 4, _CYCLE_YEARS)  # Python's dates begin with the year 1
    within = y_in_cycle + 4
    if not 1 <= m <= 12 or not 1 <= d <= calendar.monthrange(within, m)[1]:
        raise ValueRefusedError(f"{year}-{month}-{day} is no date")
    return datetime.date(within, m, d).toordinal() - _EPOCH_DAY + cycles * _CYCLE_DAYS


def _clock_nanos(parts: Sequence[str | None]) -> int:
    hour, minute, second = (int(part or 0) for part in parts[:3])
    if hour > 23 or minute > 59 or second > 59:
        raise ValueRefusedError("no time of day")
    fraction = (parts[3] or "").rstrip("0")
    if len(fraction) > 9:
        raise ValueRefusedError("a fraction finer than nanoseconds")
    return ((hour * 60 + minute) * 60 + second) * 10**9 + int(fraction.ljust(9, "0"))


def _truncated(codec: Codec, text: str) -> str:
    return re.sub(*cut_pattern(codec.arrow.unit), text) if codec.cuts else text


def _zoned(codec: Codec, token: bytes) -> int | None:
    text = string_of(token, "a timestamp with offset")
    sign = sign_of_text(text)
    if sign:
        return _infinite(codec, sign, text)
    parts = _matched(_ZONED_TEXT, _truncated(codec, text), "timestamp with offset")
    nanos = _day_number(*parts[:3]) * _DAY_MS * 1_000_000 + _clock_nanos(parts[3:7])
    side, hours, minutes = parts[7], int(parts[8] or 0), int(parts[9] or 0)
    if hours > 23 or minutes > 59:
        raise ValueRefusedError(f"{text!r} has no valid offset")
    offset = (hours * 60 + minutes) * 60 * 10**9
    return _instant(codec, nanos + offset if side == "-" else nanos - offset)


def _without_z(token: bytes, expected: str) -> str:
    return string_of(token, expected).removesuffix("Z")


def _iso_date(codec: Codec, token: bytes) -> int | None:
    text = _without_z(token, "an ISO date")
    sign = sign_of_text(text)
    if sign:
        return _infinite(codec, sign, text)
    return _day_number(*_matched(_DATE_TEXT, text, "ISO date"))


def _iso_time(codec: Codec, token: bytes) -> int:
    parts = _matched(_TIME_TEXT, _without_z(token, "an ISO time"), "ISO time")
    return _millis(codec, _clock_nanos(parts), PER_UNIT["ns"], "ns")


def _iso_timestamp(codec: Codec, token: bytes) -> int | None:
    text = _without_z(token, "an ISO timestamp")
    sign = sign_of_text(text)
    if sign:
        return _infinite(codec, sign, text)
    parts = _matched(_LOCAL_TEXT, _truncated(codec, text), "ISO timestamp")
    nanos = _day_number(*parts[:3]) * _DAY_MS * 1_000_000 + _clock_nanos(parts[3:])
    return _instant(codec, nanos)


def _moment(codec: Codec, token: bytes) -> int | None:
    whole_days = codec.kind is Kind.SQL_DATE
    plain = moment_token(token, whole_days=whole_days)
    if plain == NULL:
        return None
    return (_iso_date if whole_days else _iso_timestamp)(codec, plain)


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
    return _decoded(codec, token)


def _decoded(codec: Codec | None, token: bytes) -> Any:
    """A value that is neither null nor the placeholder."""
    if codec is None:
        raise ValueRefusedError("the source's type does not convert to the column's")
    return _DECODERS[codec.kind](codec, token)


def _loosely(token: bytes) -> Any:
    """The parsed value where it could be a placeholder, otherwise None."""
    try:
        return msgspec.json.decode(token) if token[:1] in b'"[{' else None
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        raise ValueRefusedError(f"not valid JSON text: {error}") from None
    except RecursionError:
        raise ValueRefusedError("the value is nested too deeply") from None


def _int_column(codec: Codec, token: bytes) -> int:
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


def _boolean(codec: Codec, token: bytes) -> bool:
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


def _number(codec: Codec, token: bytes) -> float:
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


def _exact_number(codec: Codec, token: bytes) -> float:
    number = _number(codec, token)
    if token in _NON_FINITE:
        return number
    single = pa.types.is_float32(codec.arrow)
    if single:
        number = struct.unpack("<f", struct.pack("<f", number))[0]
    if not holds(token.decode(), number, single=single):
        text = np.format_float_positional(np.float32(number)) if single else repr(number)
        raise ValueRefusedError(
            f"{token[:60].decode()} would become {text}, for {type_name(codec.type)} has fewer "
            "digits: make the column DECIMAL or STRING, or set on.incompatible for the table"
        )
    return number


def _single(codec: Codec, token: bytes) -> float:
    number: float = struct.unpack("<f", struct.pack("<f", _number(codec, token)))[0]
    return number


def _require_length(codec: Codec, value: Any) -> Any:
    limit = codec.type.length if isinstance(codec.type, AtomicType) else 0
    if limit and len(value) > limit:
        raise ValueRefusedError(f"{len(value)} is longer than the column's length {limit}")
    return value


def _text(codec: Codec, token: bytes) -> str:
    return _require_length(codec, string_of(token, "a string"))


def _struct(codec: Codec, token: bytes) -> str:
    if token[:1] == b"{":
        return _require_length(codec, struct_text(token))
    return _text_or_json(codec, token)


def _any_text(codec: Codec, token: bytes) -> str:
    return _require_length(codec, any_text(token))


def _named_by(
    name: Callable[[int | str | None, Sequence[str]], str | None],
) -> Callable[[Codec, bytes], str | None]:
    def text(codec: Codec, token: bytes) -> str | None:
        quoted = token[:1] == b'"'
        value = string_of(token, "a text") if quoted else integer_of(token, "a number or a text")
        try:
            label = name(value, codec.members)
        except ConversionError as error:
            raise ValueRefusedError(str(error)) from None
        return None if label is None else _require_length(codec, label)

    return text


def _base64_text(codec: Codec, token: bytes) -> str:
    _decoded_base64(token)
    return _require_length(codec, string_of(token, "base64 text"))


def _utf8(codec: Codec, token: bytes) -> bytes:
    return _require_length(codec, string_of(token, "a string").encode())


def _as_text(codec: Codec, token: bytes) -> str | None:
    if codec.element is None:
        raise InternalError("a codec of text without the value's own")
    value = _decoded(codec.element, token)
    texts = texts_of(storage_column(codec.element.arrow, [value]), codec.element.type)
    text: str | None = texts[0].as_py()
    return None if text is None else _require_length(codec, text)


def _text_or_json(codec: Codec, token: bytes) -> str:
    if token[:1] in b"{[":  # `_loosely` has parsed it: it is well-formed UTF-8
        return _require_length(codec, token.decode())
    if codec.element is not None and token[:1] != b'"':
        return _other_text(codec, codec.element, token)
    return _text(codec, token)


def _any_value(codec: Codec, token: bytes) -> str:
    if token[:1] == b'"' or codec.element is not None:
        return _text_or_json(codec, token)
    return _any_text(codec, token)


def _other_text(codec: Codec, natural: Codec, token: bytes) -> str:
    """A number or boolean, as the cast of the column's earlier type or else as it was sent."""
    try:
        value = _decoded(natural, token)
        texts = texts_of(storage_column(natural.arrow, [value]), natural.type)
        return _require_length(codec, texts[0].as_py())
    except ValueRefusedError:
        return _require_length(codec, token.decode())


def _decoded_base64(token: bytes, altchars: bytes | None = None) -> bytes:
    text = string_of(token, "base64 text")
    try:
        return base64.b64decode(text, altchars, validate=True)
    except (binascii.Error, ValueError) as error:
        raise ValueRefusedError(f"not base64: {error}") from None


def _base64(codec: Codec, token: bytes) -> bytes:
    return _require_length(codec, _decoded_base64(token))


def _base64_url(codec: Codec, token: bytes) -> bytes:
    if b"+" in token or b"/" in token:
        raise refusal("URL-safe base64")
    return _require_length(codec, _decoded_base64(token, b"-_"))


def _hex(codec: Codec, token: bytes) -> bytes:
    text = string_of(token, "hexadecimal text")
    if re.fullmatch(r"([0-9a-fA-F]{2})*", text) is None:
        raise refusal("hexadecimal text")
    return _require_length(codec, bytes.fromhex(text))


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
            return _require_length(codec, plain_digits(number))
        except ConversionError as error:
            raise ValueRefusedError(str(error)) from None
    try:
        scaled = number.quantize(decimal.Decimal(1).scaleb(-arrow.scale), context=DECIMAL_CONTEXT)
    except decimal.DecimalException:
        text = short_number(number)
        raise ValueRefusedError(f"{text} has more than {arrow.scale} fraction digits") from None
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


def _decimal_bytes(codec: Codec, token: bytes) -> Any:
    if token[:1] != b'"':
        return _decimal_plain(codec, token)
    return _exact(codec, _unscaled(_decoded_base64(token), codec.scale))


def _decimal_plain(codec: Codec, token: bytes) -> Any:
    if token[:1] not in b"-0123456789":
        raise refusal("a number")
    if codec.unsigned and token[:1] == b"-" and pa.types.is_decimal(codec.arrow):
        token = unsigned_digits(b"%d" % in_range(integer_of(token), -(2**63), -1, "BIGINT"))
    return _exact(codec, _decimal_of(token.decode()))


def _decimal_text(codec: Codec, token: bytes) -> Any:
    return _exact(codec, _decimal_of(string_of(token, "a decimal as text")))


class _VariableDecimal(msgspec.Struct):
    scale: int
    value: msgspec.Raw


def _variable_decimal(codec: Codec, token: bytes) -> Any:
    try:
        parts = msgspec.json.decode(token, type=_VariableDecimal)
        unscaled = _decoded_base64(bytes(parts.value))
    except (msgspec.DecodeError, UnicodeDecodeError):
        raise refusal("scale and value") from None
    return _exact(codec, _unscaled(unscaled, parts.scale))


# --- others


def _bits(codec: Codec, token: bytes) -> int | bytes:
    data = _decoded_base64(token)
    if pa.types.is_binary(codec.arrow):
        return _require_length(codec, data[::-1].rjust(codec.width, b"\0"))
    return _fitting_integer(codec, int.from_bytes(data, "little"))


def _integer_or_bits(codec: Codec, token: bytes) -> int:
    if token[:1] != b'"':
        return _int_column(codec, token)
    data = _decoded_base64(token)
    if not data:
        raise refusal("bits in base64")
    return _fitting_integer(codec, int.from_bytes(data, "little"))


def _array(codec: Codec, token: bytes) -> list[Any]:
    if codec.element is None:
        raise InternalError("array codec without element")
    if token[:1] != b"[":
        raise refusal("an array")
    tokens = msgspec.json.decode(token, type=list[msgspec.Raw])
    element = codec.element
    values = [_element(element, bytes(item)) for item in tokens]
    if None in values and not element.type.nullable:
        raise ValueRefusedError("a null element in an array that has none")
    return values


def _element(codec: Codec, token: bytes) -> Any:
    """An element of an array; placeholders replace whole arrays, never elements."""
    _loosely(token)
    return None if token == NULL else _decoded(codec, token)


def _latin1(codec: Codec, token: bytes) -> bytes:
    try:
        return _require_length(codec, string_of(token, "text of bytes").encode("latin-1"))
    except UnicodeEncodeError as error:
        raise ValueRefusedError(f"a character is no byte: {error}") from None


def _loose_decimal(codec: Codec, token: bytes) -> Any:
    decode = _decimal_text if token[:1] == b'"' else _decimal_plain
    return decode(codec, token)


_DECODERS: Mapping[Kind, Callable[[Codec, bytes], Any]] = {
    Kind.DAYS: _days,
    Kind.TIME: _time,
    Kind.TIME_MICROS: _time_micros,
    Kind.TIME_TEXT: _time_text,
    Kind.EPOCH: _epoch,
    Kind.ZONED: _zoned,
    Kind.ISO_DATE: _iso_date,
    Kind.ISO_TIME: _iso_time,
    Kind.ISO_TIMESTAMP: _iso_timestamp,
    Kind.SQL_DATE: _moment,
    Kind.SQL_TIMESTAMP: _moment,
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
    Kind.LOOSE_INTEGER: lambda codec, token: _int_column(codec, number_token(token)),
    Kind.LOOSE_FLOAT: lambda codec, token: _number(codec, number_token(token)),
    Kind.LOOSE_NUMBER: lambda codec, token: _exact_number(codec, number_token(token)),
    Kind.LOOSE_DECIMAL: _loose_decimal,
    Kind.LOOSE_BOOLEAN: lambda codec, token: _boolean(codec, truth_token(token)),
    Kind.LOOSE_HEX: lambda codec, token: _hex(codec, hex_token(token)),
    Kind.LATIN1: _latin1,
}
"""Token to storage value; raise ValueRefusedError."""
