# SPDX-License-Identifier: Apache-2.0
"""Infinite dates and timestamps of PostgreSQL: how Debezium writes them, what becomes of them.

PostgreSQL's dates and timestamps may be `infinity` and `-infinity`. The connector sends numbers for
them that are no dates: which ones depends on its version, and on whether the row was read by JDBC
(snapshot) or from the log. A column stored as sent would hold nonsense such as the year -1701533.

By default such a record is bad; `sink.type.mapping` (`Infinity`) chooses null or the bounds of SQL
dates. In TIMESTAMP columns finer than microseconds the bounds are the first and last moment that
nanoseconds reach (1677, 2262).

Source: Debezium's `PostgresValueConverter` of several versions, pgjdbc's `PGStatement`; captured
events of 3.7.
"""

import dataclasses
from collections.abc import Mapping

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from ingest.decode.types.decimal_columns import require
from ingest.decode.types.type_mapping import Infinity

__all__ = [
    "DAYS",
    "EPOCHS",
    "Codes",
    "bound_of",
    "sign_of_text",
    "texts_without_infinities",
    "without_infinities",
]

_MAX, _MIN = 2**63 - 1, -(2**63)
_JDBC_POSITIVE, _JDBC_NEGATIVE = 9_223_372_036_825_200_000, -9_223_372_036_832_400_000


@dataclasses.dataclass(frozen=True, slots=True)
class Codes:
    """The numbers of one encoding that mean infinity.

    Attributes:
        positive: these mean infinity.
        negative: these mean -infinity.
        low: no code lies above this and below `high`.
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
    """Set infinities aside.

    Args:
        numbers: of the column as sent.
        codes: of its encoding.
        policy: what becomes of infinities.

    Returns:
        (numbers with null for infinities, their signs: int8 and 0 elsewhere; None = there are none)

    Raises:
        ConversionError: there are some, and they are to be refused.

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
    kept = pc.if_else(pa.array(either), pa.scalar(None, numbers.type), numbers)
    if policy is Infinity.NULL:
        return kept, None
    return kept, pa.array(positive.astype(np.int8) - negative.astype(np.int8))


def with_bounds(column: pa.Array, signs: pa.Array | None) -> pa.Array:
    """A column of dates or timestamps with the bounds where infinities were set aside."""
    if signs is None:
        return column
    for sign in (1, -1):
        stored = pa.array([bound_of(column.type, sign)], _storage(column.type)).view(column.type)
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
    kept = pc.if_else(either, pa.scalar(None, texts.type), texts)
    if policy is Infinity.NULL:
        return kept, None
    return kept, pc.subtract(positive.cast(pa.int8()), negative.cast(pa.int8()))


def _among(numbers: pa.Array, codes: frozenset[int]) -> "np.ndarray":
    low, high = (-(2**31), 2**31 - 1) if pa.types.is_int32(numbers.type) else (_MIN, _MAX)
    some = pa.array([code for code in codes if low <= code <= high], numbers.type)
    mask: np.ndarray = pc.is_in(numbers, value_set=some).to_numpy(zero_copy_only=False)
    return mask


def _storage(type_: pa.DataType) -> pa.DataType:
    return pa.int32() if pa.types.is_date(type_) else pa.int64()
