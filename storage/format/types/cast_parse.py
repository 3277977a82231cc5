# SPDX-License-Identifier: Apache-2.0
"""Casts of character strings to other types: what Java's parsers accept, and nothing more.

A text that is no value of the type is an error that names it. Times with local time zone are read
as UTC. Source: SEMANTICS.md §H.2 and the cast rules of Apache Paimon.
"""

from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from storage.format.types.arrow_types import arrow_type
from storage.format.types.cast_arrays import CastError, numbers_of, parts_of, rebuilt, require_all
from storage.format.types.cast_numbers import decimal_from_text
from storage.format.types.cast_texts import fit_binary, fit_text
from storage.format.types.cast_times import nanos_of_unit
from storage.format.types.types import AtomicType, TypeRoot

_R = TypeRoot
_INTEGERS = (_R.TINYINT, _R.SMALLINT, _R.INT, _R.BIGINT)
_TRUE, _FALSE = ("t", "true", "y", "yes", "1"), ("f", "false", "n", "no", "0")
_BLANKS = "".join(chr(i) for i in range(33))
"""Characters that Java's trim removes."""

_INTEGER = r"^[+-]?(?:[0-9]+(?:\.[0-9]*)?|\.[0-9]*)$"
_NUMBER = r"^[+-]?(?:[0-9]+\.?[0-9]*|\.[0-9]+)(?:[eE][+-]?[0-9]+)?$"
_FLOAT = r"^[+-]?(?:NaN|Infinity|(?:[0-9]+\.?[0-9]*|\.[0-9]+)(?:[eE][+-]?[0-9]+)?[fFdD]?)$"
_EPOCH = r"^-?[0-9]+$"
_DATE = (
    r"^[ \t]*(?P<year>[0-9]+)[ \t]*(?:-[ \t]*(?P<month>[0-9]+)[ \t]*"
    r"(?:-[ \t]*(?P<day>[0-9]+)[ \t]*)?)?$"
)
_TIME = (
    r"^\s*(?P<hour>[0-9]+)\s*(?::\s*(?P<minute>[0-9]+)\s*(?::\s*(?P<second>[0-9]+)\s*"
    r"(?:\.(?P<fraction>[^+-]*))?)?)?"
    r"(?:(?P<sign>[+-])\s*(?P<zone_hour>[0-9]+)\s*(?::\s*(?P<zone_minute>[0-9]+)\s*)?)?$"
)
_TIMESTAMP = (
    r"^(?P<year>[0-9]{4})-(?P<month>[0-9]{1,2})-(?P<day>[0-9]{1,2})"
    r"(?: (?P<hour>[0-9]{1,2}):(?P<minute>[0-9]{1,2}):(?P<second>[0-9]{1,2})"
    r"(?:\.(?P<fraction>[0-9]{0,9}))?"
    r"|T(?P<t_hour>[0-9]{1,2}):(?P<t_minute>[0-9]{1,2})"
    r"(?::(?P<t_second>[0-9]{1,2})(?:\.(?P<t_fraction>[0-9]{0,9}))?)?)?$"
)
_LONGEST_NUMBER = 9
"""Digits of a part of a date or time beyond which it is out of range anyway."""

Numbers = np.ndarray[Any, Any]


def from_text(texts: pa.Array, target: AtomicType) -> pa.Array:
    """Texts as values of another type.

    Raises:
        CastError: a text is no value of the type.
    """
    root = target.root
    if root in _INTEGERS:
        return _integers(texts, target)
    match root:
        case _R.CHAR | _R.VARCHAR:
            return fit_text(texts, target)
        case _R.BINARY | _R.VARBINARY:
            return fit_binary(texts.cast(pa.binary()), target)
        case _R.BOOLEAN:
            return _booleans(texts)
        case _R.DECIMAL:
            require_all(pc.match_substring_regex(texts, _NUMBER), texts, "not a number")
            return decimal_from_text(texts, target)
        case _R.FLOAT | _R.DOUBLE:
            return _floats(texts, target)
        case _R.DATE:
            return _dates(texts)
        case _R.TIME:
            return _times(texts)
        case _:
            return _timestamps(texts, target)


def _integers(texts: pa.Array, target: AtomicType) -> pa.Array:
    valid = pc.match_substring_regex(texts, _INTEGER)
    require_all(valid, texts, "not a whole number")
    negative = pc.starts_with(texts, "-")
    whole = pc.replace_substring_regex(pc.utf8_ltrim(texts, "+-"), r"\..*$", "")
    whole = pc.utf8_ltrim(whole, "0")
    whole = pc.if_else(pc.equal(whole, ""), "0", whole)
    signed = pc.binary_join_element_wise(pc.if_else(negative, "-", ""), whole, "")
    target_type = arrow_type(target)
    limits = np.iinfo(target_type.to_pandas_dtype())
    short = pc.less_equal(pc.binary_length(whole), len(str(limits.max)))
    require_all(short, texts, f"out of the range of {target.root.value}")
    numbers = signed.cast(pa.decimal128(38, 0))
    fits = pc.and_(
        pc.less_equal(numbers, pa.scalar(int(limits.max)).cast(pa.decimal128(38, 0))),
        pc.greater_equal(numbers, pa.scalar(int(limits.min)).cast(pa.decimal128(38, 0))),
    )
    require_all(fits, texts, f"out of the range of {target.root.value}")
    return signed.cast(target_type)


def _booleans(texts: pa.Array) -> pa.Array:
    lowered = pc.utf8_lower(texts)
    true = pc.is_in(lowered, pa.array(_TRUE))
    valid = pc.or_(true, pc.is_in(lowered, pa.array(_FALSE)))
    require_all(pc.or_(valid, texts.is_null()), texts, "not a truth value")
    return pc.if_else(texts.is_valid(), true, pa.scalar(None, pa.bool_()))


def _floats(texts: pa.Array, target: AtomicType) -> pa.Array:
    trimmed = pc.utf8_trim(texts, _BLANKS)
    require_all(pc.match_substring_regex(trimmed, _FLOAT), texts, "not a number")
    trimmed = pc.replace_substring(trimmed, "Infinity", "inf")
    trimmed = pc.replace_substring_regex(trimmed, r"^\+|([0-9.])[fFdD]$", r"\1")
    return pc.replace_substring_regex(trimmed, "^-NaN$", "NaN").cast(arrow_type(target))


def _dates(texts: pa.Array) -> pa.Array:
    """Either days since 1970, or year, month and day, of which the last ones may be missing."""
    epoch = pc.match_substring_regex(texts, _EPOCH)
    none = pa.scalar(None, pa.string())
    days_given = _integers(pc.if_else(epoch, texts, none), AtomicType(_R.INT))
    # a text such as `2017-12-12 09:30:00.0` is a date, too; a blank in front is none
    day_texts = pc.replace_substring_regex(pc.if_else(epoch, none, texts), r"^([^ ]+) .*$", r"\1")
    parts = parts_of(day_texts, _DATE)
    matched = pc.or_(parts["year"].is_valid(), day_texts.is_null())
    require_all(matched, texts, "not a date")
    days, valid = _days(parts, clamp=False)
    require_all(_where_text(valid, day_texts), texts, "not a date")
    dates = rebuilt(days.astype(np.int32), day_texts, pa.date32())
    return pc.coalesce(days_given.view(pa.date32()), dates)


def _times(texts: pa.Array) -> pa.Array:
    epoch = pc.match_substring_regex(texts, _EPOCH)
    none = pa.scalar(None, pa.string())
    millis_given = _integers(pc.if_else(epoch, texts, none), AtomicType(_R.INT))
    time_texts = pc.if_else(epoch, none, texts)
    parts = parts_of(time_texts, _TIME)
    require_all(pc.or_(parts["hour"].is_valid(), time_texts.is_null()), texts, "not a time")
    digits = pc.utf8_slice_codeunits(pc.utf8_rpad(parts["fraction"], 4, "0"), 0, 4)
    tenths = _part(pc.replace_substring_regex(digits, "[^0-9]", "0"))
    sign = np.where(pc.equal(parts["sign"], "-").fill_null(False), -1, 1)
    hours = _part(parts["hour"]) + sign * _part(parts["zone_hour"])
    minutes = _part(parts["minute"]) + sign * _part(parts["zone_minute"])
    millis = (tenths + 5) // 10 + 1000 * (_part(parts["second"]) + 60 * (minutes + 60 * hours))
    times = rebuilt(millis.astype(np.int32), time_texts, pa.time32("ms"))
    return pc.coalesce(millis_given.view(pa.time32("ms")), times)


_EPOCH_UNITS = {0: 1_000_000_000, 3: 1_000_000, 6: 1_000, 9: 1}


def _timestamps(texts: pa.Array, target: AtomicType) -> pa.Array:
    target_type = arrow_type(target)
    unit = nanos_of_unit(target_type)
    none = pa.scalar(None, pa.string())
    epoch = pc.match_substring_regex(texts, _EPOCH)
    if target.root is _R.TIMESTAMP_LTZ:
        epoch = pc.and_(epoch, False)
    numbers = _integers(pc.if_else(epoch, texts, none), AtomicType(_R.BIGINT))
    time_texts = pc.if_else(epoch, none, texts)
    parts = parts_of(time_texts, _TIMESTAMP)
    require_all(pc.or_(parts["year"].is_valid(), time_texts.is_null()), texts, "not a timestamp")
    days, valid = _days(parts, clamp=True)
    hours, minutes, seconds = (
        _part(parts[name]) + _part(parts[f"t_{name}"]) for name in ("hour", "minute", "second")
    )
    valid &= (hours < 24) & (minutes < 60) & (seconds < 60)
    require_all(_where_text(valid, time_texts), texts, "not a timestamp")
    fraction = pc.binary_join_element_wise(
        parts["fraction"].fill_null(""), parts["t_fraction"].fill_null(""), ""
    )
    nanos = _part(pc.utf8_slice_codeunits(pc.utf8_rpad(fraction, 9, "0"), 0, 9))
    total_s = ((days * 24 + hours) * 60 + minutes) * 60 + seconds
    limit = np.iinfo(np.int64).max // (1_000_000_000 // unit) - 1
    require_all(
        _where_text(np.abs(total_s) < limit, time_texts), texts, f"does not fit {target_type}"
    )
    steps = total_s * (1_000_000_000 // unit) + nanos // unit
    # dates and times are cut downwards to the precision, unlike timestamps by a cast
    digit = max(1, 10 ** (9 - target.precision) // unit)
    stamps = rebuilt(steps // digit * digit, time_texts, target_type)
    return pc.coalesce(_epoch_steps(numbers, texts, target, target_type), stamps)


def _epoch_steps(
    numbers: pa.Array, texts: pa.Array, target: AtomicType, target_type: pa.DataType
) -> pa.Array:
    """Numbers counted in the target's own precision, which must be that of a usual unit."""
    if numbers.null_count == len(numbers):
        return pa.nulls(len(numbers), target_type)
    if target.precision not in _EPOCH_UNITS:
        first = pc.index(numbers.is_valid(), pa.scalar(True)).as_py()
        raise CastError(
            "a cast from number needs precision 0, 3, 6 or 9", str(texts[first].as_py())
        )
    factor = _EPOCH_UNITS[target.precision] // nanos_of_unit(target_type)
    return rebuilt(numbers_of(numbers) * factor, numbers, target_type)


def _part(texts: pa.Array) -> Numbers:
    """A group of digits as numbers; 0 where missing, out of every range where too long."""
    texts = texts.fill_null("")
    long = pc.greater(pc.binary_length(pc.utf8_ltrim(texts, "0")), _LONGEST_NUMBER)
    digits = pc.if_else(long, "9" * _LONGEST_NUMBER, pc.if_else(pc.equal(texts, ""), "0", texts))
    return numbers_of(digits.cast(pa.int64()))


def _days(parts: dict[str, pa.Array], *, clamp: bool) -> tuple[Numbers, Numbers]:
    """Days since 1970 of year, month and day; whether they are a date.

    A missing month or day is the first. `clamp` takes the last day of a month for a later one,
    as Java's formatter does.
    """
    year = _part(parts["year"])
    month = _part(parts["month"]) + _is_missing(parts["month"])
    day = _part(parts["day"]) + _is_missing(parts["day"])
    leap = (year % 4 == 0) & ((year % 100 != 0) | (year % 400 == 0))
    lengths = np.array([0, 31, 28, 31, 30, 31, 30, 31, 31, 30, 31, 30, 31])
    in_year = (month >= 1) & (month <= 12)
    month = np.where(in_year, month, 1)
    last = lengths[month] + ((month == 2) & leap)
    valid = in_year & (year <= 9999) & (day >= 1) & (day <= (31 if clamp else last))
    day = np.minimum(day, last)
    # days from civil: years begin in March, so that the leap day is the last one
    shifted = year - (month <= 2)
    era = shifted // 400
    of_era = shifted - era * 400
    day_of_year = (153 * (month + np.where(month > 2, -3, 9)) + 2) // 5 + day - 1
    day_of_era = of_era * 365 + of_era // 4 - of_era // 100 + day_of_year
    return era * 146_097 + day_of_era - 719_468, valid


def _is_missing(texts: pa.Array) -> Numbers:
    empty = pc.or_(texts.is_null(), pc.equal(texts, "").fill_null(True))
    return np.asarray(empty.to_numpy(zero_copy_only=False)).astype(np.int64)


def _where_text(valid: Numbers, texts: pa.Array) -> pa.Array:
    """The condition where there is a text."""
    return pc.if_else(texts.is_valid(), pa.array(valid), pa.scalar(None, pa.bool_()))
