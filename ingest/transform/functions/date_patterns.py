# SPDX-License-Identifier: Apache-2.0
"""Dates and times as text by a pattern of Java's `DateTimeFormatter`, for whole columns.

Letters (English names, as Java has them in its root locale for en):
`y u` year, `M L` month, `d` day, `D` day of the year, `Q` quarter, `E` day of the week,
`a` AM or PM, `H k K h` hour, `m` minute, `s` second, `S` fraction, `A` milliseconds of the day,
`n` nanoseconds of the second. Literals stand in single quotes. Other letters are refused. Distinct
days, hours, minutes or seconds of a column are written once, so patterns of partitions are cheap.
"""

import dataclasses
import functools
from collections.abc import Callable
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from storage.errors import InvalidRequestError

__all__ = ["DatePattern", "date_pattern"]

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
            raise _refused(text, f"`{letter}` must stand in quotes")
        else:
            writers.append(_fixed(text[position:end]))
        position = end
    if not writers:
        raise _refused(text, "it is empty")
    iso = text in ("yyyy-MM-dd", "uuuu-MM-dd")
    step_s = min((_STEP_S.get(letter, 0) for letter in letters), default=_DAY)
    return DatePattern(tuple(writers), step_s, iso)


def _refused(text: str, detail: str) -> InvalidRequestError:
    hint = f"letters are {_SUPPORTED}; write it like: yyyy-MM-dd HH:mm:ss"
    return InvalidRequestError("a date pattern is refused", detail=detail, hint=hint, pattern=text)


def _quoted(text: str, start: int) -> tuple[str, int]:
    """The text between quotes and the position after it; two quotes are one."""
    if text[start : start + 2] == "''":
        return "'", start + 2
    found, position = "", start + 1
    while position < len(text):
        if text[position] != "'":
            found += text[position]
            position += 1
        elif text[position : position + 2] == "''":
            found += "'"
            position += 2
        else:
            return found, position + 1
    raise _refused(text, "a quote is not closed")


def _fixed(text: str) -> _Writer:
    scalar = pa.scalar(text)
    return lambda parts: scalar


def _writer(text: str, letter: str, count: int) -> _Writer:
    most = 2 if letter in _TWO_LETTERS else _MOST_LETTERS.get(letter, 19)
    if letter not in _SUPPORTED.split():
        raise _refused(text, f"the letter `{letter}` is not known")
    if count > most:
        raise _refused(text, f"`{letter * count}` has too many letters")
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
