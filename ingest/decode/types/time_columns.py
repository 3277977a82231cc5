# SPDX-License-Identifier: Apache-2.0
"""Dates, times and timestamps by the column: the temporal part of `conversions`.

The counterpart for single values is `reference`; the two agree on every value that this
module takes.
"""

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from ingest.decode.types.decimal_columns import arrow_array, require
from ingest.decode.types.infinities import (
    DAYS,
    EPOCHS,
    texts_without_infinities,
    with_bounds,
    without_infinities,
)
from ingest.decode.types.loose_columns import moments
from ingest.decode.types.semantic_types import Codec, Kind

__all__ = ["MICROS_PER", "PER_UNIT", "TIME_CONVERTERS", "clock_text", "cut_pattern"]

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


def _all(mask: pa.Array) -> bool:
    return not pc.all(mask, min_count=0).equals(pa.scalar(False))


def _days(codec: Codec, values: Sequence[Any]) -> pa.Array:
    numbers, signs = without_infinities(arrow_array(values, pa.int32()), DAYS, codec.infinity)
    return with_bounds(numbers.view(codec.arrow), signs)


def _time(codec: Codec, values: Sequence[Any]) -> pa.Array:
    numbers = arrow_array(values, pa.int64())
    per_ms = PER_UNIT[codec.unit]
    in_day = pc.and_(pc.greater_equal(numbers, 0), pc.less(numbers, _DAY_MS * per_ms))
    require(_all(in_day), "outside of a day")
    return pc.divide(numbers, per_ms).cast(pa.int32()).view(codec.arrow)


def _time_micros(codec: Codec, values: Sequence[Any]) -> pa.Array:
    numbers = arrow_array(values, pa.int64())
    factor, divisor = MICROS_PER[codec.unit]
    if divisor == 1:
        return pc.multiply_checked(numbers, factor)
    micros = pc.divide(numbers, divisor)
    require(_all(pc.equal(pc.multiply(micros, divisor), numbers)), "finer than microseconds")
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
        pattern, kept = cut_pattern(codec.arrow.unit)
        texts = pc.replace_substring_regex(texts, pattern, kept)
    return texts.cast(codec.arrow)


def cut_pattern(unit: str) -> tuple[str, str]:
    """(pattern, replacement) that leave as many digits of a fraction as a unit has."""
    digits = _DIGITS[unit]
    return (rf"(\.[0-9]{{{digits}}})[0-9]+", r"\1") if digits else (r"\.[0-9]+", "")


def _without_z(values: Sequence[Any]) -> pa.Array:
    texts = arrow_array(values, pa.string())
    return pc.if_else(pc.ends_with(texts, "Z"), pc.utf8_slice_codeunits(texts, 0, -1), texts)


def _sql_date(codec: Codec, values: Sequence[Any]) -> pa.Array:
    try:
        return _iso_moment(codec, values)
    except ValueError:
        return _iso_moment(codec, moments(values, whole_days=True))


def _sql_timestamp(codec: Codec, values: Sequence[Any]) -> pa.Array:
    try:
        return _iso_moment(codec, values)
    except ValueError:
        return _iso_moment(codec, moments(values, whole_days=False))


def _iso_time(codec: Codec, values: Sequence[Any]) -> pa.Array:
    # Arrow parses no times alone
    instants = pc.binary_join_element_wise("1970-01-01T", _without_z(values), "")
    nanos = instants.cast(pa.timestamp("ns")).cast(pa.int64())
    return pc.divide(nanos, PER_UNIT["ns"]).cast(pa.int32()).view(codec.arrow)


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
    Kind.SQL_DATE: _sql_date,
    Kind.SQL_TIMESTAMP: _sql_timestamp,
}
"""As `conversions.convert`, by kind."""
