# SPDX-License-Identifier: Apache-2.0
"""Single dates, times and timestamps: the reference path's half of `time_columns`.

Exact and strict: nothing is rounded but TIME columns, which hold milliseconds (`semantic_types`).
"""

import calendar
import datetime
import re
from collections.abc import Callable, Mapping, Sequence

from ingest.decode.types.infinities import DAYS, EPOCHS, bound_of, sign_of_text
from ingest.decode.types.loose_tokens import moment_token
from ingest.decode.types.semantic_types import Codec, Kind
from ingest.decode.types.time_columns import MICROS_PER, PER_UNIT, clock_text, cut_pattern
from ingest.decode.types.token_values import (
    NULL,
    UnrepresentableError,
    ValueRefusedError,
    in_range,
    integer_of,
    string_of,
)
from ingest.decode.types.type_mapping import Infinity
from storage.format.types.type_text import type_name

__all__ = ["TIME_DECODERS"]

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
"""After so many years the calendar repeats."""


def _infinite(codec: Codec, sign: int, shown: object) -> int | None:
    """What an infinity becomes."""
    if codec.infinity is Infinity.REFUSE:
        name = "infinity" if sign > 0 else "-infinity"
        raise UnrepresentableError(
            f"{shown} is {name}, which {type_name(codec.type)} does not have; sink.type.mapping "
            "infinity-to-null or infinity-to-bounds replaces it"
        )
    return bound_of(codec.arrow, sign) if codec.infinity is Infinity.BOUNDS else None


def _days(codec: Codec, token: bytes) -> int | None:
    number = integer_of(token, "days as an integer")
    sign = DAYS.sign(number)
    if sign:
        return _infinite(codec, sign, number)
    return in_range(number, -(2**31), 2**31 - 1, "DATE")


def _time(codec: Codec, token: bytes) -> int:
    per_ms = PER_UNIT[codec.unit]
    number = integer_of(token, "a time as an integer")
    if not 0 <= number < _DAY_MS * per_ms:
        in_range(number, *_INT64, "a time")
        raise UnrepresentableError(
            f"{clock_text(number, codec.unit)} is not within a day, which is all that TIME holds; "
            "sink.type.mapping time-to-string or time-to-bigint makes other columns of new tables"
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


def _cut(codec: Codec, text: str) -> str:
    return re.sub(*cut_pattern(codec.arrow.unit), text) if codec.cuts else text


def _zoned(codec: Codec, token: bytes) -> int | None:
    text = string_of(token, "a timestamp with offset")
    sign = sign_of_text(text)
    if sign:
        return _infinite(codec, sign, text)
    parts = _matched(_ZONED_TEXT, _cut(codec, text), "timestamp with offset")
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
    return _clock_nanos(parts) // 1_000_000


def _iso_timestamp(codec: Codec, token: bytes) -> int | None:
    text = _without_z(token, "an ISO timestamp")
    sign = sign_of_text(text)
    if sign:
        return _infinite(codec, sign, text)
    parts = _matched(_LOCAL_TEXT, _cut(codec, text), "ISO timestamp")
    nanos = _day_number(*parts[:3]) * _DAY_MS * 1_000_000 + _clock_nanos(parts[3:])
    return _instant(codec, nanos)


def _moment(codec: Codec, token: bytes) -> int | None:
    whole_days = codec.kind is Kind.SQL_DATE
    plain = moment_token(token, whole_days=whole_days)
    if plain == NULL:
        return None
    return (_iso_date if whole_days else _iso_timestamp)(codec, plain)


TIME_DECODERS: Mapping[Kind, Callable[[Codec, bytes], int | str | None]] = {
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
}
"""Token to storage value; raise ValueRefusedError."""
