# SPDX-License-Identifier: Apache-2.0
"""Functions of dates and times.

They take DATE, TIMESTAMP, TIMESTAMP_LTZ (shown in the pipeline's zone), texts that are one, and
whole numbers since 1970 with their precision: 0 seconds (the default), 3, 6, 9; or `second`,
`millis`, `micros`, `nanos`. Names and meaning of the first ones are those of Paimon's CDC.
"""

import dataclasses
import functools
from collections.abc import Callable
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from ingest.transform.functions.arithmetic import (
    BIGINT,
    DATE,
    INT,
    STRING,
    Cells,
    Frame,
    Planned,
    Values,
    as_array,
    is_integer,
    is_text,
    strict_cast,
    to_instants,
    to_walls,
)
from ingest.transform.functions.call_site import Function, Site, type_label
from storage.errors import InvalidRequestError
from storage.format.types.types import AtomicType, TypeRoot, arrow_type, type_name

_Longs = npt.NDArray[np.int64]
_PER_SECOND = {"s": 1, "ms": 1_000, "us": 1_000_000, "ns": 1_000_000_000}
_DAY = 86_400
_FIRST_DAY, _LAST_DAY = -719_162, 2_932_896
"""0001-01-01 and 9999-12-31."""
_MONTHS = "January February March April May June July August September October November December"
_DAYS = "Thursday Friday Saturday Sunday Monday Tuesday Wednesday"
"""From 1970-01-01 on."""

_MOST_LETTERS = {"S": 9, "a": 1, "D": 3, "y": 9, "u": 9, "M": 4, "L": 4, "Q": 4, "E": 4}
_TWO_LETTERS = "dHkKhms"
_STEP_S = dict.fromkeys("yuMLdDQE", _DAY) | dict.fromkeys("aHkKh", 3_600) | {"m": 60, "s": 1}
_SUPPORTED = "y u M L d D Q E a H k K h m s S A n"


@dataclasses.dataclass(frozen=True, slots=True)
class _Parts:
    """Fields of some moments, each of shape (n,)."""

    days: _Longs
    seconds: _Longs
    nanos: _Longs

    def dates(self, unit: str) -> "np.ndarray[Any, Any]":
        return self.days.astype("datetime64[D]").astype(f"datetime64[{unit}]")

    @property
    def years(self) -> _Longs:
        return self.dates("Y").astype(np.int64) + 1970

    @property
    def months(self) -> _Longs:
        return self.dates("M").astype(np.int64) % 12 + 1

    @property
    def days_of_month(self) -> _Longs:
        return self.days - self.dates("M").astype("datetime64[D]").astype(np.int64) + 1

    @property
    def days_of_year(self) -> _Longs:
        return self.days - self.dates("Y").astype("datetime64[D]").astype(np.int64) + 1

    @property
    def hours(self) -> _Longs:
        return self.seconds // 3600


_Writer = Callable[[_Parts], pa.Array | pa.Scalar]


class DatePattern:
    """A parsed pattern.

    Args:
        writers: one for each part of the pattern.
        step_s: the largest unit that distinguishes its values: a day, hour, minute or second
            [seconds]; 0 = fractions of a second count.
        iso: whether it is `yyyy-MM-dd`, which Arrow writes itself.
    """

    def __init__(self, writers: tuple[_Writer, ...], step_s: int, iso: bool) -> None:
        self._writers = writers
        self._step_s = step_s
        self._iso = iso

    def write(self, column: pa.Array) -> pa.Array:
        """Write DATE or timestamp columns without zone as strings; null stays null."""
        dates = pa.types.is_date(column.type)
        per_second = 1 if dates else _PER_SECOND[column.type.unit]
        numbers = column.view(pa.int32() if dates else pa.int64()).fill_null(0)
        values = numbers.to_numpy(zero_copy_only=False).astype(np.int64) * (_DAY if dates else 1)
        width = max(self._step_s * per_second, 1)
        coded = pa.array(values // width).dictionary_encode()
        distinct = coded.dictionary.to_numpy(zero_copy_only=False)
        if len(distinct) * 2 < len(values):
            texts = self._texts(distinct * width, per_second).take(coded.indices)
        else:
            texts = self._texts(values, per_second)
        return texts if not column.null_count else pc.if_else(column.is_valid(), texts, None)

    def _texts(self, values: _Longs, per_second: int) -> pa.Array:
        seconds, fraction = np.divmod(values, per_second)
        days, seconds = np.divmod(seconds, _DAY)
        if self._iso and len(days) and _FIRST_DAY <= days.min() <= days.max() <= _LAST_DAY:
            return pa.array(days, pa.int32()).view(pa.date32()).cast(pa.string())
        parts = _Parts(days, seconds, fraction * (1_000_000_000 // per_second))
        texts = [writer(parts) for writer in self._writers]
        if all(isinstance(text, pa.Scalar) for text in texts):
            return pa.repeat("".join(text.as_py() for text in texts), len(values))
        return pc.binary_join_element_wise(*texts, "")


@functools.lru_cache(maxsize=256)
def date_pattern(text: str) -> DatePattern:
    """Parse a pattern.

    Raises:
        InvalidRequestError: a letter is unknown or repeated too often, or a quote is not closed.
    """
    writers: list[_Writer] = []
    letters: set[str] = set()
    position = 0
    while position < len(text):
        letter = text[position]
        if letter == "'":
            literal, position = _quoted(text, position)
            writers.append(_fixed(literal))
            continue
        end = position
        while end < len(text) and text[end] == letter:
            end += 1
        if letter.isascii() and letter.isalpha():
            writers.append(_writer(text, letter, end - position))
            letters.add(letter)
        elif letter in "[]{}#":
            raise _pattern_error(text, f"`{letter}` must be quoted")
        else:
            writers.append(_fixed(text[position:end]))
        position = end
    if not writers:
        raise _pattern_error(text, "it is empty")
    iso = text in ("yyyy-MM-dd", "uuuu-MM-dd")
    step_s = min((_STEP_S.get(letter, 0) for letter in letters), default=_DAY)
    return DatePattern(tuple(writers), step_s, iso)


def _pattern_error(text: str, detail: str) -> InvalidRequestError:
    hint = f"letters are {_SUPPORTED}; write it like: yyyy-MM-dd HH:mm:ss"
    return InvalidRequestError("invalid date pattern", detail=detail, hint=hint, pattern=text)


def _quoted(text: str, start: int) -> tuple[str, int]:
    """The text between quotes and the position after it; two quotes are one."""
    if text[start : start + 2] == "''":
        return "'", start + 2
    literal, position = "", start + 1
    while position < len(text):
        if text[position] != "'":
            literal += text[position]
            position += 1
        elif text[position : position + 2] == "''":
            literal += "'"
            position += 2
        else:
            return literal, position + 1
    raise _pattern_error(text, "a quote is not closed")


def _fixed(text: str) -> _Writer:
    scalar = pa.scalar(text)
    return lambda parts: scalar


def _writer(text: str, letter: str, count: int) -> _Writer:
    most = 2 if letter in _TWO_LETTERS else _MOST_LETTERS.get(letter, 19)
    if letter not in _SUPPORTED.split():
        raise _pattern_error(text, f"the letter `{letter}` is not known")
    if count > most:
        raise _pattern_error(text, f"`{letter * count}` has too many letters")
    if letter in "yu":
        return _year(letter, count)
    if letter in "MLQE" and (count > 2 or letter == "E"):
        return _name(letter, count)
    if letter == "a":
        return lambda parts: pc.if_else(pa.array(parts.seconds >= _DAY // 2), "PM", "AM")
    if letter == "S":
        return lambda parts: _padded(parts.nanos // 10 ** (9 - count), count)
    numbers = _NUMBERS[letter]
    return lambda parts: _padded(numbers(parts), count)


_NUMBERS: dict[str, Callable[[_Parts], _Longs]] = {
    "M": lambda parts: parts.months,
    "L": lambda parts: parts.months,
    "Q": lambda parts: (parts.months - 1) // 3 + 1,
    "d": lambda parts: parts.days_of_month,
    "D": lambda parts: parts.days_of_year,
    "H": lambda parts: parts.hours,
    "k": lambda parts: (parts.hours - 1) % 24 + 1,
    "K": lambda parts: parts.hours % 12,
    "h": lambda parts: (parts.hours - 1) % 12 + 1,
    "m": lambda parts: parts.seconds // 60 % 60,
    "s": lambda parts: parts.seconds % 60,
    "A": lambda parts: parts.seconds * 1_000 + parts.nanos // 1_000_000,
    "n": lambda parts: parts.nanos,
}


def _padded(numbers: _Longs, width: int) -> pa.Array:
    texts = pa.array(numbers).cast(pa.string())
    return pc.utf8_lpad(texts, width, "0") if width > 1 else texts


def _year(letter: str, count: int) -> _Writer:
    """`yy` is two digits; from four on, a longer year has a sign, as Java writes it."""

    def write(parts: _Parts) -> pa.Array:
        years = parts.years
        if letter == "y":  # of the era: the year before 1 is 1 again
            years = np.where(years <= 0, 1 - years, years)
        if count == 2:
            return _padded(np.mod(np.abs(years) if letter == "y" else years, 100), 2)
        texts = _padded(np.abs(years), count)
        signs = np.where(
            years < 0, "-", np.where((np.abs(years) >= 10**count) & (count > 3), "+", "")
        )
        if not signs.any():
            return texts
        return pc.binary_join_element_wise(pa.array(signs), texts, "")

    return write


def _name(letter: str, count: int) -> _Writer:
    if letter == "Q":
        names = [f"Q{number}" for number in range(1, 5)]
        if count > 3:
            names = ["1st quarter", "2nd quarter", "3rd quarter", "4th quarter"]
        return lambda parts: pa.array(names).take(pa.array((parts.months - 1) // 3))
    words = (_DAYS if letter == "E" else _MONTHS).split()
    table = pa.array(words if count > 3 else [word[:3] for word in words])
    if letter == "E":
        return lambda parts: table.take(pa.array(parts.days % 7))
    return lambda parts: table.take(pa.array(parts.months - 1))


_R = TypeRoot
_UNITS = {0: "s", 3: "ms", 6: "us", 9: "ns"}
_PRECISION_WORDS = {"second": 0, "millis": 3, "micros": 6, "nanos": 9}
_TIMESTAMP = AtomicType(_R.TIMESTAMP, precision=6)
_NOW = AtomicType(_R.TIMESTAMP_LTZ, precision=3)
_TRUNC_UNITS = ("year", "quarter", "month", "week", "day", "hour", "minute", "second")
_STEP_SECONDS = {"second": 1, "minute": 60, "hour": 3600, "day": 86_400, "week": 604_800}


def _local(site: Site, index: int, precision: int | None) -> tuple[Planned, bool]:
    """An argument as DATE, TIME or TIMESTAMP; and whether it is a TIME."""
    part = site.arguments[index]
    type_ = part.type
    if type_ is None:
        return site.coerced(part, _TIMESTAMP), False
    if is_integer(type_):
        unit = pa.timestamp(_UNITS[precision or 0])
        return site.result(
            _TIMESTAMP, lambda column: column.cast(pa.int64()).view(unit), [part]
        ), False
    if precision is not None:
        last = len(site.arguments) - 1
        raise site.error("a precision applies only to integers", at=last)
    if isinstance(type_, AtomicType):
        if type_.root is _R.TIMESTAMP_LTZ:
            zone = site.zone
            return site.result(_TIMESTAMP, lambda column: to_walls(column, zone), [part]), False
        if is_text(type_):
            kernel = strict_cast(type_, _TIMESTAMP, site.zone)
            assert kernel is not None
            return site.result(_TIMESTAMP, kernel, [part]), False
        if type_.root in (_R.DATE, _R.TIMESTAMP, _R.TIME):
            return part, type_.root is _R.TIME
    raise site.error(f"`{site.name}` takes a date or a time, not {type_label(type_)}", at=index)


def _precision(site: Site, index: int) -> int | None:
    if not site.has(index):
        return None
    argument = site.arguments[index]
    if is_text(argument.type):
        word = site.constant_text(index, "'millis'")
        if word not in _PRECISION_WORDS:
            raise site.error("unknown precision", "use 0, 3, 6 or 9", index)
        return _PRECISION_WORDS[word]
    precision = site.whole_number(index)
    if precision not in _UNITS:
        raise site.error(
            f"unknown precision {precision}",
            "use 0 (seconds), 3 (milli-), 6 (micro-) or 9 (nanoseconds)",
            index,
        )
    return precision


def _part_of_time(name: str, function: Callable[..., Any], *, of_day: bool) -> Function:
    def kernel(column: pa.Array) -> Values:
        if of_day and pa.types.is_date(column.type):
            column = column.cast(pa.timestamp("s"))
        return function(column).cast(pa.int32())

    def plan(site: Site) -> Planned:
        part, is_time = _local(site, 0, _precision(site, 1))
        if is_time and not of_day:
            raise site.error(f"a TIME has no {name}")
        return site.result(INT, kernel, [part])

    meaning = f"{name.replace('of', ' of the ')} as INT"
    return Function(f"{name}(at [, precision])", meaning, plan, (1, 2))


def _date_format(site: Site) -> Planned:
    text = site.constant_text(1, "'yyyy-MM-dd'")
    try:
        pattern = date_pattern(text)
    except InvalidRequestError as error:
        raise site.error(f"{error.message}: {error.detail}", error.hint, 1) from error
    part, is_time = _local(site, 0, _precision(site, 2))
    if is_time:
        part = site.result(_TIMESTAMP, _on_first_day, [part])
    return site.result(STRING, pattern.write, [part])


def _on_first_day(column: pa.Array) -> Values:
    """A TIME as a timestamp of 1970-01-01."""
    return column.view(pa.int32()).cast(pa.int64()).view(pa.timestamp("ms"))


def _date_trunc(site: Site) -> Planned:
    unit = site.constant_text(0, "'month'").lower()
    if unit not in _TRUNC_UNITS:
        raise site.error(f"`{unit}` is not a unit", f"use one of {', '.join(_TRUNC_UNITS)}", 0)
    part, is_time = _local(site, 1, None)
    if is_time or is_text(site.arguments[1].type) or is_integer(site.arguments[1].type):
        raise site.error("date_trunc takes a DATE or a timestamp", at=1)
    type_ = site.arguments[1].type
    assert isinstance(type_, AtomicType)
    zone, target = site.zone, arrow_type(type_)

    def kernel(column: pa.Array) -> Values:
        days = pa.types.is_date(column.type)
        start = pc.floor_temporal(column.cast(pa.timestamp("s")) if days else column, unit=unit)
        if type_.root is _R.TIMESTAMP_LTZ:
            return to_instants(start, zone)
        return start.cast(target)

    return site.result(type_, kernel, [part])


def _to(target: AtomicType) -> Callable[[Site], Planned]:
    def plan(site: Site) -> Planned:
        part = site.arguments[0]
        if part.type is None:
            return site.coerced(part, target)
        kernel = strict_cast(part.type, target, site.zone)
        if kernel is None:
            raise site.error(f"{type_label(part.type)} cannot be cast to {type_name(target)}", at=0)
        return site.result(target, kernel)

    return plan


def _to_timestamp_ltz(site: Site) -> Planned:
    site.need(0, is_integer, "a whole number")
    precision = _precision(site, 1) or 0
    type_ = AtomicType(_R.TIMESTAMP_LTZ, precision=precision)
    unit, target = pa.timestamp(_UNITS[precision], "UTC"), arrow_type(type_)
    return site.result(
        type_,
        lambda column: column.cast(pa.int64()).view(unit).cast(target),
        [site.arguments[0]],
    )


def _now(site: Site) -> Planned:
    def run(frame: Frame) -> Cells:
        now = pa.scalar(frame.now_ms, pa.int64()).cast(arrow_type(_NOW))
        return Cells(as_array(now, frame.num_rows))

    return site.lazy(_NOW, run, ())


def _datediff(site: Site) -> Planned:
    parts = []
    for index in (0, 1):
        part, is_time = _local(site, index, None)
        if is_time:
            raise site.error("a TIME has no date", at=index)
        parts.append(part)

    def kernel(later: Values, earlier: Values) -> Values:
        days = [value.cast(pa.date32()).cast(pa.int32()) for value in (later, earlier)]
        return pc.subtract_checked(*days)

    return site.result(INT, kernel, parts)


# --- intervals -------------------------------------------------------------------------------


def shifted(site: Site, part: Planned, steps: int, unit: str) -> Planned:
    """A date or time some steps later, or earlier.

    Days and longer steps of a TIMESTAMP_LTZ are steps on the wall clock. A month later than a day
    that the month does not have is its last day.
    """
    type_ = part.type
    if (
        type_ is None
        or not isinstance(type_, AtomicType)
        or type_.root
        not in (
            _R.DATE,
            _R.TIMESTAMP,
            _R.TIMESTAMP_LTZ,
        )
    ):
        raise site.error(
            f"an interval is added to dates and timestamps, not to {type_label(type_)}"
        )
    long = unit not in ("second", "minute", "hour")
    if type_.root is _R.DATE and not long:
        raise site.error("a DATE has no time of the day", "cast it to TIMESTAMP first")
    on_walls = type_.root is _R.TIMESTAMP_LTZ and long
    zone = site.zone

    def kernel(column: pa.Array) -> Values:
        if not on_walls:
            return _step(column, steps, unit)
        return to_instants(_step(to_walls(column, zone), steps, unit), zone)

    return site.result(type_, kernel, [part])


def _step(column: pa.Array, steps: int, unit: str) -> pa.Array:
    if unit in ("month", "year"):
        return _later_months(column, steps * (12 if unit == "year" else 1))
    seconds = _STEP_SECONDS[unit] * steps
    if pa.types.is_date(column.type):
        days = pc.add_checked(column.view(pa.int32()), pa.scalar(seconds // 86_400, pa.int32()))
        return days.view(column.type)
    step = pa.scalar(seconds * _PER_SECOND[column.type.unit], pa.int64())
    return pc.add_checked(column.view(pa.int64()), step).view(column.type)


def _later_months(column: pa.Array, months: int) -> pa.Array:
    days_only = pa.types.is_date(column.type)
    per_day = 1 if days_only else _DAY * _PER_SECOND[column.type.unit]
    stored = pa.int32() if days_only else pa.int64()
    values = column.view(stored).fill_null(0).to_numpy(zero_copy_only=False).astype(np.int64)
    days, rest = np.divmod(values, per_day)
    first = days.astype("datetime64[D]").astype("datetime64[M]")
    day = days - first.astype("datetime64[D]").astype(np.int64)
    later = first + np.timedelta64(months, "M")
    start = later.astype("datetime64[D]").astype(np.int64)
    length = (later + np.timedelta64(1, "M")).astype("datetime64[D]").astype(np.int64) - start
    nulls = column.is_null().to_numpy(zero_copy_only=False) if column.null_count else None
    moved = pa.array(start + np.minimum(day, length - 1), pa.int64(), mask=nulls)
    numbers = pc.add_checked(pc.multiply_checked(moved, per_day), pa.array(rest))
    return numbers.cast(stored).view(column.type)


def _date_add(sign: int) -> Callable[[Site], Planned]:
    def plan(site: Site) -> Planned:
        part, is_time = _local(site, 0, None)
        if is_time:
            raise site.error("a TIME has no date", at=0)
        site.need(1, is_integer, "a whole number")

        def kernel(at: Values, days: Values) -> Values:
            moved = pc.add_checked(
                at.cast(pa.date32()).cast(pa.int32()).cast(pa.int64()),
                pc.multiply_checked(days.cast(pa.int64()), sign),
            )
            return moved.cast(pa.int32()).cast(pa.date32())

        return site.result(DATE, kernel, [part, site.arguments[1]])

    return plan


TIME_FUNCTIONS: dict[str, Function] = {
    "year": _part_of_time("year", pc.year, of_day=False),
    "quarter": _part_of_time("quarter", pc.quarter, of_day=False),
    "month": _part_of_time("month", pc.month, of_day=False),
    "week": _part_of_time("week", pc.iso_week, of_day=False),
    "day": _part_of_time("day", pc.day, of_day=False),
    "dayofyear": _part_of_time("dayofyear", pc.day_of_year, of_day=False),
    "hour": _part_of_time("hour", pc.hour, of_day=True),
    "minute": _part_of_time("minute", pc.minute, of_day=True),
    "second": _part_of_time("second", pc.second, of_day=True),
    "date_format": Function(
        "date_format(at, 'yyyy-MM-dd' [, precision])",
        "string by a pattern of Java",
        _date_format,
        (2, 3),
    ),
    "date_trunc": Function(
        "date_trunc('month', at)", "start of the unit it is in", _date_trunc, (2, 2)
    ),
    "to_date": Function("to_date(at)", "as DATE", _to(DATE), (1, 1)),
    "to_timestamp": Function("to_timestamp(at)", "as TIMESTAMP(6)", _to(_TIMESTAMP), (1, 1)),
    "unix_timestamp": Function("unix_timestamp(at)", "seconds since 1970", _to(BIGINT), (1, 1)),
    "to_timestamp_ltz": Function(
        "to_timestamp_ltz(epoch, precision)", "the instant of a number", _to_timestamp_ltz, (2, 2)
    ),
    "date_add": Function("date_add(at, days)", "the date so many days later", _date_add(1)),
    "date_sub": Function(
        "date_sub(at, days)", "the date so many days earlier", _date_add(-1), (2, 2)
    ),
    "datediff": Function("datediff(later, earlier)", "days between two dates", _datediff),
    "now": Function("now()", "when the batch was taken in, TIMESTAMP_LTZ(3)", _now, (0, 0)),
    "current_timestamp": Function("current_timestamp()", "the same as now()", _now, (0, 0)),
}
"""Functions of dates and times."""
