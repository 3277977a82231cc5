# SPDX-License-Identifier: Apache-2.0
"""Dates, times and timestamps by the column: the temporal part of `conversions`.

The counterpart for single values is `reference`; the two agree on every value that this module
accepts.

PostgreSQL's dates and timestamps may be `infinity` and `-infinity`, for which the connector sends
numbers that are no dates: which ones depends on its version, and on whether the row was read by
JDBC (snapshot) or from the log. By default such a record is bad; `sink.type.mapping` (`Infinity`)
chooses null or the bounds of SQL dates, in TIMESTAMP columns finer than microseconds the first and
last moment that nanoseconds reach (1677, 2262).

Source: Debezium's `PostgresValueConverter` of several versions, pgjdbc's `PGStatement`; captured
events of 3.7.
"""

import dataclasses
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from ingest.decode.types.decimal_columns import arrow_array, every, require
from ingest.decode.types.semantic_types import Codec, Infinity, Kind

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
