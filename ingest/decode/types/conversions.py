# SPDX-License-Identifier: Apache-2.0
"""Whole-column conversion of decoded JSON values to Arrow: the fast path's half of every `Codec`.

`wire_type` says what msgspec decodes a column's values to; `convert` turns a list of such values
(None = null) into the column's array, or raises one of `CONVERSION_ERRORS` when any value does not
fit exactly. Nothing is rounded, wrapped or replaced here; what this module refuses, `reference`
decodes value by value, and the two agree on every value that this one accepts.
"""

import base64
import dataclasses
import decimal
import functools
import hashlib
import itertools
import uuid
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import msgspec
import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from ingest.compiled.loading import Wire
from ingest.decode.events import NULL
from ingest.decode.types.exact_numbers import (
    any_text,
    exact_numbers,
    json_text,
    member_text,
    members_text,
    struct_text,
    texts_of,
    unsigned_digits,
)
from ingest.decode.types.semantic_types import (
    Codec,
    Infinity,
    Kind,
    arrow_array,
    decimals_from_bytes,
    decimals_from_text,
    every,
    plain_digits,
    require,
    unscaled_digits,
    whole_digits,
)
from storage.errors import InternalError
from storage.format.types.types import MAX_LENGTH, AtomicType

# Dates, times and timestamps by the column: the temporal part of `conversions`.
#
# The counterpart for single values is `reference`; the two agree on every value that this module
# accepts.
#
# PostgreSQL's dates and timestamps may be `infinity` and `-infinity`, for which the connector sends
# numbers that are no dates: which ones depends on its version, and on whether the row was read by
# JDBC (snapshot) or from the log. By default such a record is bad; `sink.type.mapping` (`Infinity`)
# chooses null or the bounds of SQL dates, in TIMESTAMP columns finer than microseconds the first
# and last moment that nanoseconds reach (1677, 2262).
#
# Source: Debezium's `PostgresValueConverter` of several versions, pgjdbc's `PGStatement`; captured
# events of 3.7.


_MAX, _MIN = 2**63 - 1, -(2**63)
_JDBC_POSITIVE, _JDBC_NEGATIVE = 9_223_372_036_825_200_000, -9_223_372_036_832_400_000


@dataclasses.dataclass(frozen=True, slots=True)
class Codes:
    """The numbers of one encoding that mean infinity.

    Attributes:
        positive: these mean infinity.
        negative: these mean -infinity.
        low: no code is above this and below `high`.
        high: see `low`.
    """

    positive: frozenset[int]
    negative: frozenset[int]
    low: int
    high: int

    def sign(self, number: int) -> int:
        """1 or -1 for an infinity, 0 for any other number."""
        return (number in self.positive) - (number in self.negative)


def _codes(positive: set[int], negative: set[int]) -> Codes:
    every = positive | negative
    low = max((code for code in every if code < 0), default=0)
    high = min((code for code in every if code > 0), default=0)
    return Codes(frozenset(positive), frozenset(negative), low, high)


DAYS = _codes(
    # java.sql.Date cut to 32 bits; the largest date of the log; a sign mistaken by older versions
    {-622_191_234, -622_191_233, 2_146_033_979, -2_147_472_692},
    {622_191_232, 622_191_233, -2_147_472_691},
)
"""Days since 1970. All but the second negative one are beyond any database's dates; that one would
be in the year 1,705,480."""

EPOCHS: Mapping[str, Codes] = {
    "ms": _codes(
        {_MAX, _JDBC_POSITIVE, _JDBC_POSITIVE // 1_000, _MAX // 1_000},
        {_MIN, _JDBC_NEGATIVE, _JDBC_NEGATIVE // 1_000, -(-_MIN // 1_000), _MIN // 1_000},
    ),
    "us": _codes({_MAX, _JDBC_POSITIVE}, {_MIN, _JDBC_NEGATIVE}),
    "ns": _codes({_MAX}, {_MIN}),
}
"""By unit: numbers since 1970."""

_TEXTS = {"infinity": 1, "-infinity": -1, "+infinity": 1}
_FAR_YEARS = {"+292278994-": 1, "-292275055-": -1, "-292269055-": -1, "-292269054-": -1}
_YEAR_END = 11

_FIRST_DAY, _LAST_DAY = -719_162, 2_932_896
_DAY = {"ms": 86_400_000, "us": 86_400_000_000}


def sign_of_text(text: str) -> int:
    """1 or -1 for an infinity, 0 for any other text."""
    return _TEXTS.get(text.lower(), 0) or _FAR_YEARS.get(text[:_YEAR_END], 0)


def bound_of(type_: pa.DataType, sign: int) -> int:
    """The storage value that stands for an infinity with `Infinity.BOUNDS`.

    Args:
        type_: of the column: a date or a timestamp.
        sign: 1 or -1.
    """
    if pa.types.is_date(type_):
        return _LAST_DAY if sign > 0 else _FIRST_DAY
    per_day = _DAY.get(type_.unit)
    if per_day is None:
        # the first number that Arrow counts as a timestamp, not as null
        return _MAX if sign > 0 else _MIN + 1
    return (_LAST_DAY + 1) * per_day - 1 if sign > 0 else _FIRST_DAY * per_day


def without_infinities(
    numbers: pa.Array, codes: Codes, policy: Infinity
) -> tuple[pa.Array, pa.Array | None]:
    """Separate infinities from other numbers.

    Args:
        numbers: of the column as sent.
        codes: of its encoding.
        policy: how infinities are handled.

    Returns:
        (numbers with null for infinities, their signs: int8 and 0 elsewhere; None = there are none)

    Raises:
        ConversionError: there are infinities, and the policy refuses them.

    Cost: a minimum and a maximum where there are none.
    """
    ends = pc.min_max(numbers)
    low, high = ends["min"].as_py(), ends["max"].as_py()
    if low is None or (low > codes.low and high < codes.high):
        return numbers, None
    positive = _among(numbers, codes.positive)
    negative = _among(numbers, codes.negative)
    either = positive | negative
    if not either.any():
        return numbers, None
    require(policy is not Infinity.REFUSE, "an infinity")
    finite = pc.if_else(pa.array(either), pa.scalar(None, numbers.type), numbers)
    if policy is Infinity.NULL:
        return finite, None
    return finite, pa.array(positive.astype(np.int8) - negative.astype(np.int8))


def with_bounds(column: pa.Array, signs: pa.Array | None) -> pa.Array:
    """A column of dates or timestamps with the bounds in place of infinities."""
    if signs is None:
        return column
    for sign in (1, -1):
        storage = pa.int32() if pa.types.is_date(column.type) else pa.int64()
        stored = pa.array([bound_of(column.type, sign)], storage).view(column.type)
        column = pc.if_else(pc.equal(signs, sign), stored[0], column)
    return column


def texts_without_infinities(texts: pa.Array, policy: Infinity) -> tuple[pa.Array, pa.Array | None]:
    """As `without_infinities`, for ISO texts; texts that only resemble infinities are kept."""
    content = b"" if texts.buffers()[2] is None else texts.buffers()[2].to_pybytes()
    if b"nfinity" not in content:
        return texts, None
    positive = pc.is_in(texts, value_set=pa.array(["infinity", "+infinity", "Infinity"]))
    negative = pc.is_in(texts, value_set=pa.array(["-infinity", "-Infinity"]))
    either = pc.or_(positive, negative)
    require(policy is not Infinity.REFUSE, "an infinity")
    finite = pc.if_else(either, pa.scalar(None, texts.type), texts)
    if policy is Infinity.NULL:
        return finite, None
    return finite, pc.subtract(positive.cast(pa.int8()), negative.cast(pa.int8()))


def _among(numbers: pa.Array, codes: frozenset[int]) -> "np.ndarray":
    low, high = (-(2**31), 2**31 - 1) if pa.types.is_int32(numbers.type) else (_MIN, _MAX)
    values = pa.array([code for code in codes if low <= code <= high], numbers.type)
    mask: np.ndarray = pc.is_in(numbers, value_set=values).to_numpy(zero_copy_only=False)
    return mask


PER_UNIT = {"ms": 1, "us": 1_000, "ns": 1_000_000}
"""How many of a unit make a millisecond."""

MICROS_PER = {"ms": (1_000, 1), "us": (1, 1), "ns": (1, 1_000)}
"""Microseconds of a unit, as (factor, divisor)."""

_DAY_MS = 86_400_000
_DIGITS = {"s": 0, "ms": 3, "us": 6, "ns": 9}
_NANOS = {"ms": 1_000_000, "us": 1_000, "ns": 1}
_SECOND = 1_000_000_000


def clock_text(number: int, unit: str) -> str:
    """A time of any size and sign as databases print it: `[-]HH:MM:SS[.fraction]`.

    Args:
        number: since midnight.
        unit: `ms`, `us` or `ns`.
    """
    seconds, nanos = divmod(abs(number) * _NANOS[unit], _SECOND)
    minutes, second = divmod(seconds, 60)
    hour, minute = divmod(minutes, 60)
    fraction = f".{nanos:09d}".rstrip("0").rstrip(".")
    return f"{'-' if number < 0 else ''}{hour:02d}:{minute:02d}:{second:02d}{fraction}"


def _days(codec: Codec, values: Sequence[Any]) -> pa.Array:
    numbers, signs = without_infinities(arrow_array(values, pa.int32()), DAYS, codec.infinity)
    return with_bounds(numbers.view(codec.arrow), signs)


def _time(codec: Codec, values: Sequence[Any]) -> pa.Array:
    numbers = arrow_array(values, pa.int64())
    per_ms = PER_UNIT[codec.unit]
    in_day = pc.and_(pc.greater_equal(numbers, 0), pc.less(numbers, _DAY_MS * per_ms))
    require(every(in_day), "outside of a day")
    return _millis(codec, numbers, per_ms)


def _millis(codec: Codec, numbers: pa.Array, per_ms: int) -> pa.Array:
    millis = pc.divide(numbers, per_ms)
    if codec.exact:
        require(every(pc.equal(pc.multiply(millis, per_ms), numbers)), "finer than milliseconds")
    return millis.cast(pa.int32()).view(codec.arrow)


def _time_micros(codec: Codec, values: Sequence[Any]) -> pa.Array:
    numbers = arrow_array(values, pa.int64())
    factor, divisor = MICROS_PER[codec.unit]
    if divisor == 1:
        return pc.multiply_checked(numbers, factor)
    micros = pc.divide(numbers, divisor)
    require(every(pc.equal(pc.multiply(micros, divisor), numbers)), "finer than microseconds")
    return micros


def _time_text(codec: Codec, values: Sequence[Any]) -> pa.Array:
    unit = codec.unit
    texts = [None if value is None else clock_text(value, unit) for value in values]
    return pa.array(texts, pa.string())


def _epoch(codec: Codec, values: Sequence[Any]) -> pa.Array:
    arrow = codec.arrow
    sent = arrow_array(values, pa.int64())
    numbers, signs = without_infinities(sent, EPOCHS[codec.unit], codec.infinity)
    instants = numbers.view(pa.timestamp(codec.unit, tz=arrow.tz))
    return with_bounds(instants if codec.unit == arrow.unit else instants.cast(arrow), signs)


def _zoned(codec: Codec, values: Sequence[Any]) -> pa.Array:
    # Arrow refuses a text without offset when the type has a zone, and more digits than it holds
    texts, signs = texts_without_infinities(arrow_array(values, pa.string()), codec.infinity)
    return with_bounds(_parsed(codec, texts), signs)


def _iso_moment(codec: Codec, values: Sequence[Any]) -> pa.Array:
    """A date or a timestamp."""
    texts, signs = texts_without_infinities(_without_z(values), codec.infinity)
    return with_bounds(_parsed(codec, texts), signs)


def _parsed(codec: Codec, texts: pa.Array) -> pa.Array:
    if codec.cuts:
        pattern, replacement = cut_pattern(codec.arrow.unit)
        texts = pc.replace_substring_regex(texts, pattern, replacement)
    return texts.cast(codec.arrow)


def cut_pattern(unit: str) -> tuple[str, str]:
    """(pattern, replacement) that leave as many digits of a fraction as a unit has."""
    digits = _DIGITS[unit]
    return (rf"(\.[0-9]{{{digits}}})[0-9]+", r"\1") if digits else (r"\.[0-9]+", "")


def _without_z(values: Sequence[Any]) -> pa.Array:
    texts = arrow_array(values, pa.string())
    return pc.if_else(pc.ends_with(texts, "Z"), pc.utf8_slice_codeunits(texts, 0, -1), texts)


_DATE_LENGTH = 10
_MIDNIGHT = r"^.{10}[T :]00:00:00(\.0+)?Z?$"
_ZERO_DATE = r"^0000-00-00([T :][0:.]*)?$"


def _moments(values: Sequence[str | None] | pa.Array, *, whole_days: bool) -> pa.Array:
    """ISO texts of dates or timestamps; see `token_values.moment_token`."""
    texts = arrow_array(values, pa.string())
    zero = pc.match_substring_regex(texts, _ZERO_DATE)
    if not every(pc.invert(zero)):
        texts = pc.if_else(zero, pa.scalar(None, pa.string()), texts)
    day = pc.utf8_slice_codeunits(texts, 0, _DATE_LENGTH)
    colon = pc.equal(pc.utf8_slice_codeunits(texts, _DATE_LENGTH, _DATE_LENGTH + 1), ":")
    if not every(pc.invert(colon)):
        clock = pc.utf8_slice_codeunits(texts, _DATE_LENGTH + 1)
        texts = pc.if_else(colon, pc.binary_join_element_wise(day, clock, " "), texts)
    if whole_days:
        texts = pc.if_else(pc.match_substring_regex(texts, _MIDNIGHT), day, texts)
    return texts


def _sql_moment(codec: Codec, values: Sequence[Any]) -> pa.Array:
    try:
        return _iso_moment(codec, values)
    except ValueError:
        return _iso_moment(codec, _moments(values, whole_days=codec.kind is Kind.SQL_DATE))


def _iso_time(codec: Codec, values: Sequence[Any]) -> pa.Array:
    # Arrow parses no times alone
    instants = pc.binary_join_element_wise("1970-01-01T", _without_z(values), "")
    nanos = instants.cast(pa.timestamp("ns")).cast(pa.int64())
    return _millis(codec, nanos, PER_UNIT["ns"])


TIME_CONVERTERS: Mapping[Kind, Callable[[Codec, Sequence[Any]], pa.Array]] = {
    Kind.DAYS: _days,
    Kind.TIME: _time,
    Kind.TIME_MICROS: _time_micros,
    Kind.TIME_TEXT: _time_text,
    Kind.EPOCH: _epoch,
    Kind.ZONED: _zoned,
    Kind.ISO_DATE: _iso_moment,
    Kind.ISO_TIME: _iso_time,
    Kind.ISO_TIMESTAMP: _iso_moment,
    Kind.SQL_DATE: _sql_moment,
    Kind.SQL_TIMESTAMP: _sql_moment,
}
"""As `conversions.convert`, by kind."""


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


# Debezium's placeholder for a value it does not have: an unchanged TOAST column of PostgreSQL.
#
# The placeholder takes a form per column type (CDC.md §1.4). It must never be stored as a value.


_TEXT_KINDS = (
    Kind.TEXT,
    Kind.TEXT_OR_JSON,
    Kind.JSON,
    Kind.TEXT_OR_STRUCT,
    Kind.STRUCT,
    Kind.ANY_TEXT,
    Kind.TEXT_OR_ANY,
    Kind.MEMBER,
    Kind.MEMBERS,
    Kind.BASE64_TEXT,
)


_DOCUMENTS = (Kind.JSON, Kind.STRUCT, Kind.ANY_TEXT, Kind.AS_TEXT)
"""Text columns in which values that were objects or arrays are JSON text."""

_NUMBER_LIST = r"^\[[-+0-9.eE,\s]*\]$"
_ESCAPED_FORM = r'^(?:\{\s*"[^"\\]*\\|\[\s*"[^"\\]*\\.(?:[^"\\]|\\.)*"\s*\]$)'
"""An object whose first name has an escape, or an array of one text with an escape: a form of the
placeholder that is spelt so has none of the needles. (An object whose first name is the placeholder
without escapes has one.)"""


class Placeholder:
    """All forms of one configured text (`unavailable.value.placeholder`)."""

    def __init__(self, text: str) -> None:
        data = text.encode()
        encodings = (base64.b64encode(data), base64.urlsafe_b64encode(data))
        # as text, and as bytes in each `binary.handling.mode`
        self._texts = tuple(
            dict.fromkeys([text, *(form.decode() for form in encodings), data.hex()])
        )
        self._text = text
        self._codes = list(data)
        digest = hashlib.md5(data, usedforsecurity=False).digest()
        self._uuid = str(uuid.UUID(bytes=digest, version=3))
        self._needles = tuple(form.encode() for form in (*self._texts, self._uuid))
        self._converted: dict[Codec, tuple[pa.Scalar, ...]] = {}

    @property
    def needles(self) -> tuple[bytes, ...]:
        """A record in which none of these is found has no such value."""
        return self._needles

    def is_value(self, value: Any) -> bool:
        """Whether a parsed JSON value is the placeholder in any form."""
        if isinstance(value, str):
            return value in self._texts or self._is_map_text(value)
        if isinstance(value, dict):
            return value == {self._text: self._text}
        if isinstance(value, list):
            return value == self._codes or (
                len(value) == 1 and value[0] in (*self._texts, self._uuid)
            )
        return False

    def _is_map_text(self, value: str) -> bool:
        if self._text not in value:
            return False
        return "".join(value.split()) == f'{{"{self._text}":"{self._text}"}}'

    def suspects(self, codec: Codec, column: pa.Array) -> pa.Array | None:
        """Rows of a converted column that may hold the placeholder.

        Returns:
            A mask without nulls, or None when there is surely none. May name too many rows, never
            too few.

        Cost: a few substring searches over the buffer of a text column; for other types a
        comparison with what the placeholder would become, where it converts at all.
        """
        if codec.kind is Kind.ARRAY:
            return self._suspect_lists(codec, column)
        if codec.kind in _TEXT_KINDS:
            masks = [pc.match_substring(column, needle) for needle in self._present_needles(column)]
        else:
            masks = [pc.equal(column, form) for form in self._forms(codec)]
        if codec.kind in _DOCUMENTS:
            masks += self._documents(codec, column)
        if not masks:
            return None
        return pc.fill_null(functools.reduce(pc.or_, masks), False)

    def exact(self, codec: Codec, column: pa.Array, suspects: pa.Array) -> pa.Array:
        """Which of the suspects surely hold the placeholder and nothing else.

        Args:
            codec: of the column.
            column: converted.
            suspects: what `suspects` gave for it.

        Returns:
            A mask without nulls; suspects outside of it need a closer look at the event.
        """
        if codec.kind in _TEXT_KINDS:
            texts = pa.array([*self._texts], pa.string())
            return pc.fill_null(pc.is_in(column, value_set=texts.cast(column.type)), False)
        if codec.kind in (Kind.ARRAY, Kind.AS_TEXT):  # suspected for the number of elements
            return pa.array(np.zeros(len(column), bool))
        return suspects

    def _documents(self, codec: Codec, column: pa.Array) -> list[pa.Array]:
        """Masks of JSON texts that may be the placeholder without containing any of its texts."""
        if codec.kind is not Kind.AS_TEXT:
            texts = [pc.match_substring_regex(column, _ESCAPED_FORM)]
            lists = pc.match_substring_regex(column, _NUMBER_LIST)
            sizes = [len(self._codes)]
        elif codec.element is not None and codec.element.kind is Kind.ARRAY:
            texts, lists = [], pc.starts_with(column, "[")
            sizes = [1, len(self._codes)]  # elements were converted, whatever they were
        else:
            return []
        commas = pc.count_substring(column, ",")
        return texts + [pc.and_(lists, pc.equal(commas, size - 1)) for size in sizes]

    def _present_needles(self, column: pa.Array) -> list[bytes]:
        data = column.buffers()[2]
        content = b"" if data is None else data.to_pybytes()
        return [needle for needle in self._needles if needle in content]

    def _forms(self, codec: Codec) -> tuple[pa.Scalar, ...]:
        """What the placeholder's texts become in a column, as far as they convert."""
        if codec not in self._converted:
            forms = (_converted(codec, text) for text in self._texts)
            self._converted[codec] = tuple(form for form in forms if form is not None)
        return self._converted[codec]

    def _suspect_lists(self, codec: Codec, column: pa.Array) -> pa.Array | None:
        """Lists of a suspicious length; their elements are compared only where that is cheap."""
        if codec.element is None:
            return None
        lengths = pc.list_value_length(column)
        mask = pc.equal(lengths, len(self._codes))
        if self.suspects(codec.element, column.values) is not None:
            mask = pc.or_(mask, pc.equal(lengths, 1))
        mask = pc.fill_null(mask, False)
        return mask if pc.any(mask, min_count=0).as_py() else None


def _converted(codec: Codec, text: str) -> pa.Scalar | None:
    try:
        value = msgspec.json.decode(msgspec.json.encode(text), type=wire_type(codec))
        return convert(codec, [value])[0]
    except CONVERSION_ERRORS:
        return None
