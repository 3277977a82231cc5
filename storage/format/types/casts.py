# SPDX-License-Identifier: Apache-2.0
"""Which column type may become which other, and the kernel that casts a column.

Source: SEMANTICS.md §H.2, and the cast rules of Apache Paimon where they are narrower. Every pair
that `can_cast` allows has a kernel; the results are Java's. Pure, whole columns.
"""

import decimal
from collections.abc import Callable
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from storage.format.types.types import (
    MAX_LENGTH,
    ArrayType,
    AtomicType,
    DataType,
    MapType,
    MultisetType,
    RowType,
    TypeRoot,
    arrow_type,
)

# Shared by all casts of columns: values as numpy arrays and back, and how a cast fails.


class CastError(ValueError):
    """A value cannot be converted to the target type.

    Attributes:
        value: text of the first such value.
        failed: mask of the values that cannot, if known; null where the value is null.
    """

    def __init__(self, reason: str, value: str, failed: pa.Array | None = None) -> None:
        super().__init__(reason)
        self.value = value
        self.failed = failed


def numbers_of(column: pa.Array, stored: pa.DataType | None = None) -> np.ndarray[Any, Any]:
    """The values as numpy numbers; zero where the column is null.

    `stored` is the number type as which the bits are read; that of the column unless given.
    """
    if stored is not None:
        column = column.view(stored)
    if column.null_count:
        column = column.fill_null(0)
    return np.asarray(column.to_numpy(zero_copy_only=False))


def rebuilt(values: np.ndarray[Any, Any], like: pa.Array, target_type: pa.DataType) -> pa.Array:
    """Numbers as a column of `target_type`, null where `like` is."""
    nulls = like.is_null().to_numpy(zero_copy_only=False) if like.null_count else None
    if (
        pa.types.is_integer(target_type)
        or pa.types.is_floating(target_type)
        or pa.types.is_boolean(target_type)
    ):
        return pa.array(values, target_type, mask=nulls)
    stored = pa.int32() if target_type.bit_width == 32 else pa.int64()
    return pa.array(values, stored, mask=nulls).view(target_type)


def require_all(valid: pa.Array, texts: pa.Array, reason: str) -> None:
    """Check that a condition holds wherever it is not null.

    Raises:
        CastError: for the first text that violates it.
    """
    broken = pc.index(valid, pa.scalar(False)).as_py()
    if broken >= 0:
        raise CastError(reason, str(texts[broken].as_py()), pc.invert(valid))


def parts_of(texts: pa.Array, pattern: str) -> dict[str, pa.Array]:
    """Named groups of a regular expression, by name; null where a text does not match."""
    groups = pc.extract_regex(texts, pattern)
    valid = groups.is_valid()
    return {
        name: pc.if_else(valid, groups.field(i), pa.scalar(None, pa.string()))
        for i, name in enumerate(groups.type.names)
    }


# Casts between numbers, decimals and booleans with the results of Java.
#
# Integers wrap, floating numbers are truncated and clamped to INT or BIGINT before they wrap, a
# decimal is rounded half up and null where it has too many digits.
# Source: SEMANTICS.md §H.2 and the cast rules of Apache Paimon.


WIDE = pa.decimal256(76, 38)
"""Holds every DECIMAL and every 64-bit integer exactly."""

_COMPACT_DIGITS = 18
_TWO_63 = float(1 << 63)
_SCIENTIFIC = (
    r"^(?P<sign>[+-]?)(?P<whole>[0-9]*)\.?(?P<fraction>[0-9]*)(?:[eE](?P<exponent>[+-]?[0-9]+))?$"
)
_MOST_DIGITS = 76


def to_number(column: pa.Array, source: AtomicType, target: AtomicType) -> pa.Array:
    """Numbers, decimals or booleans as another kind of number.

    Raises:
        CastError: NaN or an infinity becomes a DECIMAL.
    """
    target_type = _arrow(target)
    if source.root is TypeRoot.BOOLEAN:
        column = column.cast(pa.int8())
    if target.root is TypeRoot.DECIMAL:
        if pa.types.is_floating(column.type):
            return _decimal_from_float(column, target)
        return fit_decimal(_widened(column), target)
    if source.root is TypeRoot.DECIMAL:
        return _from_decimal(column, source, target)
    values = numbers_of(column)
    if np.issubdtype(values.dtype, np.floating) and pa.types.is_integer(target_type):
        values = _integral(values, wide=target.root is TypeRoot.BIGINT)
    with np.errstate(over="ignore"):
        return rebuilt(values.astype(target_type.to_pandas_dtype()), column, target_type)


def to_boolean(column: pa.Array) -> pa.Array:
    """Integers as booleans: everything but zero is true."""
    return pc.not_equal(column, pa.scalar(0, column.type))


def fit_decimal(wide: pa.Array, target: AtomicType) -> pa.Array:
    """256-bit decimals as DECIMAL(p, s): rounded half up, null where they have too many digits."""
    if wide.type.scale > target.scale:
        wide = pc.round(wide, target.scale, "half_towards_infinity")
    digits = "9" * (target.precision - target.scale) + "." + "9" * target.scale
    limit = decimal.Decimal(f"0{digits}")
    fits = pc.less_equal(pc.abs(wide), pa.scalar(limit, wide.type))
    fitting = pc.if_else(fits, wide, pa.scalar(None, wide.type))
    return fitting.cast(pa.decimal128(target.precision, target.scale))


def decimal_from_text(texts: pa.Array, target: AtomicType) -> pa.Array:
    """Texts that are numbers (checked by the caller) as DECIMAL, with the rules of `fit_decimal`.

    Exact for any number of digits and any exponent.
    """
    negative, digits, exponent = scientific(texts)
    scale = max(WIDE.scale, target.scale + 1)
    fits = pc.less(exponent, pa.scalar(_MOST_DIGITS - scale, pa.int64()))
    digits = pc.utf8_slice_codeunits(digits, 0, _MOST_DIGITS)
    power = pc.max_element_wise(exponent, pa.scalar(-_MOST_DIGITS, pa.int64()))
    large = pc.binary_join_element_wise(_pointed(digits), power.cast(pa.string()), "e")
    # Arrow mishandles many digits with a negative exponent, so the zeros are written out
    zeros = pc.binary_repeat("0", pc.max_element_wise(pc.subtract(-1, power), 0))
    fraction = pc.utf8_slice_codeunits(pc.binary_join_element_wise(zeros, digits, ""), 0, scale)
    small = pc.binary_join_element_wise("0.", fraction, "")
    plain = pc.if_else(pc.less(power, 0), small, large)
    signed = pc.binary_join_element_wise(pc.if_else(negative, "-", ""), plain, "")
    fitting = pc.if_else(fits, signed, pa.scalar(None, pa.string()))
    return fit_decimal(fitting.cast(pa.decimal256(_MOST_DIGITS, scale), safe=False), target)


def scientific(texts: pa.Array) -> tuple[pa.Array, pa.Array, pa.Array]:
    """Decompose texts of numbers, which must match: is negative, digits, exponent.

    The number is `d.ddd * 10^exponent` with the digits given; they have no zeros in front or
    behind, except that zero is the digit `0` with exponent 0.
    """
    parts = parts_of(texts, _SCIENTIFIC)
    digits = pc.binary_join_element_wise(parts["whole"], parts["fraction"], "")
    stripped = pc.utf8_ltrim(digits, "0")
    zero = pc.equal(pc.binary_length(stripped), 0)
    leading = pc.subtract(pc.binary_length(digits), pc.binary_length(stripped))
    power = pc.if_else(pc.equal(parts["exponent"], ""), "0", parts["exponent"])
    power = _bounded(pc.utf8_ltrim(power, "+"))
    place = pc.subtract(pc.subtract(pc.binary_length(parts["whole"]), 1), leading)
    exponent = pc.if_else(zero, pa.scalar(0, pa.int64()), pc.add(power, place.cast(pa.int64())))
    stripped = pc.if_else(zero, "0", pc.utf8_rtrim(stripped, "0"))
    return pc.equal(parts["sign"], "-"), stripped, exponent


def _bounded(powers: pa.Array) -> pa.Array:
    """Exponents as numbers, clamped to nine digits."""
    negative = pc.starts_with(powers, "-")
    digits = pc.utf8_ltrim(pc.utf8_ltrim(powers, "-"), "0")
    long = pc.greater(pc.binary_length(digits), 9)
    digits = pc.if_else(long, "999999999", pc.if_else(pc.equal(digits, ""), "0", digits))
    numbers = digits.cast(pa.int64())
    return pc.if_else(negative, pc.negate(numbers), numbers)


def _pointed(digits: pa.Array) -> pa.Array:
    first = pc.utf8_slice_codeunits(digits, 0, 1)
    rest = pc.utf8_slice_codeunits(digits, 1)
    return pc.binary_join_element_wise(first, pc.if_else(pc.equal(rest, ""), "0", rest), ".")


def _integral(values: np.ndarray[Any, Any], *, wide: bool) -> np.ndarray[Any, Any]:
    """Java's (long) or (int) of floating numbers: truncated, clamped, zero for NaN."""
    numbers = np.nan_to_num(values.astype(np.float64), nan=0.0, posinf=_TWO_63, neginf=-_TWO_63)
    if not wide:
        return np.trunc(np.clip(numbers, -(1 << 31), (1 << 31) - 1)).astype(np.int64)
    integers = np.where(np.abs(numbers) < _TWO_63, numbers, 0.0).astype(np.int64)
    limits = np.iinfo(np.int64)
    integers[numbers >= _TWO_63] = limits.max
    integers[numbers <= -_TWO_63] = limits.min
    return integers


def _widened(column: pa.Array) -> pa.Array:
    if pa.types.is_integer(column.type):
        column = column.cast(pa.int64())
    return column.cast(WIDE)


def _decimal_from_float(column: pa.Array, target: AtomicType) -> pa.Array:
    """Through the shortest text, as Java's BigDecimal.valueOf does."""
    column = column.cast(pa.float64())
    broken = pc.index(pc.is_finite(column), pa.scalar(False)).as_py()
    if broken >= 0:
        raise CastError("not a decimal number", str(column[broken].as_py()))
    return decimal_from_text(column.cast(pa.string()), target)


def _from_decimal(column: pa.Array, source: AtomicType, target: AtomicType) -> pa.Array:
    target_type = _arrow(target)
    if pa.types.is_floating(target_type):
        if source.precision > _COMPACT_DIGITS:
            return _narrowed(column.cast(pa.string()).cast(pa.float64()), target_type)
        doubles = _low_words(column).astype(np.float64) / np.float64(10**source.scale)
        return _narrowed(rebuilt(doubles, column, pa.float64()), target_type)
    whole = pc.round(column.cast(WIDE), 0, "towards_zero").cast(pa.decimal128(38, 0))
    return rebuilt(_low_words(whole).astype(target_type.to_pandas_dtype()), column, target_type)


def _narrowed(column: pa.Array, target_type: pa.DataType) -> pa.Array:
    return column if column.type == target_type else column.cast(target_type, safe=False)


def _low_words(column: pa.Array) -> np.ndarray[Any, Any]:
    """The low 64 bits of the unscaled values, as Java's longValue returns."""
    data = column.buffers()[1]
    if data is None:
        return np.zeros(len(column), np.int64)
    words = np.frombuffer(data, np.int64).reshape(-1, 2)
    return words[column.offset : column.offset + len(column), 0]


def _arrow(type_: AtomicType) -> pa.DataType:
    if type_.root is TypeRoot.DECIMAL:
        return pa.decimal128(type_.precision, type_.scale)
    return _NUMBERS[type_.root]


_NUMBERS = {
    TypeRoot.TINYINT: pa.int8(),
    TypeRoot.SMALLINT: pa.int16(),
    TypeRoot.INT: pa.int32(),
    TypeRoot.BIGINT: pa.int64(),
    TypeRoot.FLOAT: pa.float32(),
    TypeRoot.DOUBLE: pa.float64(),
}


# Casts of columns to character strings and to binary strings, in Java's text forms.
#
# Source: SEMANTICS.md §H.2 and the cast rules of Apache Paimon: doubles as `1.0E10`, decimals
# plainly, timestamps with as many digits as their precision, `[a, b]`, `{k -> v}` and `{a, b}` for
# nested values. Numbers, booleans and strings are cut to the length of the target, CHAR is filled
# up. Times with local time zone are shown in UTC.


_R = TypeRoot
_BLOBS = (_R.BINARY, _R.VARBINARY)
_STRING = AtomicType(TypeRoot.VARCHAR, length=MAX_LENGTH)
_NULL_TEXT = "null"
_SECONDS_CHARACTERS = 19
_PLAIN_FROM, _PLAIN_BELOW = 1e-3, 1e7
"""Doubles in between have no exponent in Java's text."""


def to_text(column: pa.Array, source: DataType, target: AtomicType = _STRING) -> pa.Array:
    """Values of any type as texts.

    Raises:
        CastError: bytes are no UTF-8.
    """
    match source:
        case ArrayType(element=element):
            return _bracketed("[", _joined_lists(column, to_text(column.values, element)), "]")
        case MapType(key=key, value=value):
            keys, items = to_text(column.keys, key), to_text(column.items, value)
            entries = _join([_null_as_text(keys), _null_as_text(items)], " -> ")
            return _bracketed("{", _joined_lists(column, entries), "}")
        case RowType(fields=fields):
            children = [
                _null_as_text(to_text(column.field(i), field.type))
                for i, field in enumerate(fields)
            ]
            text = _bracketed("{", _join(children, ", "), "}")
            return pc.if_else(column.is_valid(), text, pa.scalar(None, pa.string()))
        case AtomicType():
            return _atomic_text(column, source, target)
        case _:
            raise CastError("a MULTISET has no text form", "")


def fit_text(texts: pa.Array, target: AtomicType) -> pa.Array:
    """Texts cut to the length of a CHAR or VARCHAR [code points]; CHAR filled up with blanks."""
    if target.length < MAX_LENGTH:
        texts = pc.utf8_slice_codeunits(texts, 0, target.length)
    return pc.utf8_rpad(texts, target.length) if target.root is _R.CHAR else texts


def fit_binary(blobs: pa.Array, target: AtomicType) -> pa.Array:
    """Bytes cut to the length of a BINARY or VARBINARY; BINARY filled up with zeros."""
    if target.root is _R.BINARY:
        blobs = pc.binary_join_element_wise(blobs, pa.scalar(bytes(target.length)), b"")
    return blobs if target.length >= MAX_LENGTH else pc.binary_slice(blobs, 0, target.length)


def _atomic_text(column: pa.Array, source: AtomicType, target: AtomicType) -> pa.Array:
    root = source.root
    if root in (_R.FLOAT, _R.DOUBLE):
        return fit_text(_float_text(column), target)
    if root is _R.DECIMAL:
        return fit_text(_decimal_text(column, source.scale), target)
    if root in (_R.TIMESTAMP, _R.TIMESTAMP_LTZ):
        return _timestamp_text(column, source.precision)
    if root is _R.TIME:
        return _time_text(column, source.precision)
    if root is _R.DATE:
        return column.cast(pa.string())
    if root in _BLOBS:
        return _decoded(column)
    texts = column if pa.types.is_string(column.type) else column.cast(pa.string())
    return fit_text(texts, target)


def _decoded(column: pa.Array) -> pa.Array:
    try:
        return column.cast(pa.string())
    except pa.ArrowInvalid as error:
        raise CastError("bytes are not UTF-8 text", str(error)) from error


def _float_text(column: pa.Array) -> pa.Array:
    """The shortest digits that identify the number, in the form of Java's Double.toString."""
    shortest = column.cast(pa.string())
    size = pc.abs(column)
    finite = pc.is_finite(column)
    nan_names = pc.if_else(
        pc.is_nan(column), "NaN", pc.if_else(pc.less(column, 0), "-Infinity", "Infinity")
    )
    low, high = pa.scalar(_PLAIN_FROM, column.type), pa.scalar(_PLAIN_BELOW, column.type)
    if pa.types.is_float32(column.type):
        size = size.cast(pa.float64())
        # the float next to 0.001 is a little above it, and Java compares the float
        low, high = low.cast(pa.float64()), high.cast(pa.float64())
    plain = pc.or_(
        pc.equal(size, pa.scalar(0, size.type)),
        pc.and_(pc.greater_equal(size, low), pc.less(size, high)),
    )
    pointed = pc.if_else(
        pc.match_substring(shortest, "."), shortest, _join([shortest, pa.scalar("0")], ".")
    )
    negative, digits, exponent = scientific(pc.if_else(finite, shortest, "0"))
    digits, exponent = _least_two_digits(column, digits, exponent)
    rest = pc.utf8_slice_codeunits(digits, 1)
    mantissa = _join(
        [pc.utf8_slice_codeunits(digits, 0, 1), pc.if_else(pc.equal(rest, ""), "0", rest)], "."
    )
    exponential = _join(
        [pc.if_else(negative, "-", ""), mantissa, pa.scalar("E"), exponent.cast(pa.string())], ""
    )
    return pc.if_else(finite, pc.if_else(plain, pointed, exponential), nan_names)


def _least_two_digits(
    column: pa.Array, digits: pa.Array, exponent: pa.Array
) -> tuple[pa.Array, pa.Array]:
    """Where one digit would do, the nearest two: they differ for the very smallest numbers only."""
    tiniest = np.finfo(column.type.to_pandas_dtype()).smallest_subnormal
    values = np.abs(numbers_of(column))
    tiny = (values < 64 * tiniest) & (values != 0)
    for value in np.unique(values[tiny]):
        mantissa, power = np.format_float_scientific(value, precision=1, unique=False).split("e")
        same = pc.and_(pa.array(values == value), pc.equal(pc.binary_length(digits), 1))
        digits = pc.if_else(same, mantissa.replace(".", "").rstrip("0"), digits)
        exponent = pc.if_else(same, int(power), exponent)
    return digits, exponent


def _decimal_text(column: pa.Array, scale: int) -> pa.Array:
    """Plain digits, all of the scale, never an exponent."""
    whole = pa.Array.from_buffers(
        pa.decimal128(38, 0), len(column), column.buffers(), offset=column.offset
    )
    if scale == 0:
        return whole.cast(pa.string())
    digits = whole.cast(pa.string())
    negative = pc.starts_with(digits, "-")
    digits = pc.utf8_lpad(pc.utf8_ltrim(digits, "-"), scale + 1, "0")
    before = pc.utf8_slice_codeunits(digits, 0, -scale)
    after = pc.utf8_slice_codeunits(digits, -scale)
    number = _join([before, after], ".")
    return _join([pc.if_else(negative, "-", ""), number], "")


def _timestamp_text(column: pa.Array, precision: int) -> pa.Array:
    texts = column.cast(pa.timestamp(column.type.unit)).cast(pa.string())
    length = _SECONDS_CHARACTERS + (1 + precision if precision else 0)
    digits = {"ms": 3, "us": 6, "ns": 9}[column.type.unit]
    surplus = _SECONDS_CHARACTERS + 1 + digits - length
    return pc.utf8_slice_codeunits(texts, 0, -surplus) if surplus > 0 else texts


def _time_text(column: pa.Array, precision: int) -> pa.Array:
    """`12:34:56`, with a fraction from precision 1 on that ends before trailing zeros."""
    day = 86_400_000
    millis = pa.array(numbers_of(column, pa.int32()) % day, pa.int32())
    millis = pc.if_else(column.is_valid(), millis, pa.scalar(None, pa.int32()))
    texts = millis.view(pa.time32("ms")).cast(pa.string())
    seconds = pc.utf8_slice_codeunits(texts, 0, 8)
    if precision == 0:
        return seconds
    fraction = pc.utf8_slice_codeunits(texts, 9, 9 + min(precision, 3))
    first = pc.utf8_slice_codeunits(fraction, 0, 1)
    further = pc.utf8_rtrim(pc.utf8_slice_codeunits(fraction, 1), "0")
    return _join([seconds, pa.scalar("."), first, further], "")


def _joined_lists(column: pa.Array, elements: pa.Array) -> pa.Array:
    """The texts of each list's elements with commas between; null for a null list."""
    buffers = column.buffers()[:2]
    lists = pa.Array.from_buffers(
        pa.list_(pa.string()),
        len(column),
        buffers,
        offset=column.offset,
        children=[_null_as_text(elements)],
    )
    return pc.binary_join(lists, ", ")


def _null_as_text(texts: pa.Array) -> pa.Array:
    return texts.fill_null(_NULL_TEXT)


def _bracketed(opening: str, texts: pa.Array, closing: str) -> pa.Array:
    return _join([pa.scalar(opening), texts, pa.scalar(closing)], "")


def _join(parts: list[pa.Array | pa.Scalar], separator: str) -> pa.Array:
    return pc.binary_join_element_wise(*parts, separator)


# Casts between dates, times, timestamps and numbers with the results of Java.
#
# A TIMESTAMP WITH LOCAL TIME ZONE is converted in UTC, so that the same file reads the same
# everywhere (Java takes the zone of its process). Source: SEMANTICS.md §H.2 and the cast rules of
# Apache Paimon.


DAY_MILLIS = 86_400_000
_NANOS = {"ms": 1_000_000, "us": 1_000, "ns": 1}
_MILLIS_DIGITS = 3

Numbers = np.ndarray[Any, Any]


def nanos_of_unit(type_: pa.DataType) -> int:
    """Nanoseconds of one step of an Arrow timestamp type [ns]."""
    return _NANOS[type_.unit]


def to_time(column: pa.Array, source: AtomicType, target: AtomicType) -> pa.Array:
    """A DATE, TIME or timestamp as another of them, or a timestamp as a number of seconds.

    Raises:
        CastError: a timestamp does not fit 64-bit nanoseconds.
    """
    if source.root in (_R.TIMESTAMP, _R.TIMESTAMP_LTZ):
        return _from_timestamp(column, source, target)
    days_or_millis = numbers_of(column, pa.int32()).astype(np.int64)
    scale = DAY_MILLIS if source.root is _R.DATE else 1
    return _scaled(days_or_millis * scale, _NANOS["ms"], column, target)


def number_to_timestamp(column: pa.Array, target: AtomicType) -> pa.Array:
    """Seconds since 1970 as a timestamp.

    Raises:
        CastError: it does not fit the steps of the target.
    """
    seconds = numbers_of(column).astype(np.int64)
    return _scaled(seconds, 1_000_000_000, column, target)


def with_precision(values: Numbers, source_type: pa.DataType, digits: int) -> Numbers:
    """Timestamps cut to so many digits as Paimon does: towards zero in whole milliseconds."""
    per_milli = _NANOS["ms"] // _NANOS[source_type.unit]
    millis = values // per_milli
    below = values - millis * per_milli
    if digits > _MILLIS_DIGITS:
        step = max(1, 10 ** (9 - digits) // _NANOS[source_type.unit])
        return millis * per_milli + below // step * step
    step = 10 ** (_MILLIS_DIGITS - digits)
    cut = np.sign(millis) * (np.abs(millis) // step * step)
    exact = (millis % step == 0) & (below == 0)
    return np.where(exact, values, cut * per_milli)


def _from_timestamp(column: pa.Array, source: AtomicType, target: AtomicType) -> pa.Array:
    values = numbers_of(column, pa.int64())
    per_milli = _NANOS["ms"] // _NANOS[column.type.unit]
    match target.root:
        case _R.TIMESTAMP | _R.TIMESTAMP_LTZ:
            if source.precision > target.precision:
                values = with_precision(values, column.type, target.precision)
            return _scaled(values, _NANOS[column.type.unit], column, target)
        case _R.DATE:
            days = values // (per_milli * DAY_MILLIS)
            return rebuilt(days.astype(np.int32), column, arrow_type(target))
        case _R.TIME:
            millis = values // per_milli % DAY_MILLIS
            return rebuilt(millis.astype(np.int32), column, arrow_type(target))
        case _:
            millis = values // per_milli
            seconds = np.sign(millis) * (np.abs(millis) // 1000)
            target_type = arrow_type(target)
            return rebuilt(seconds.astype(target_type.to_pandas_dtype()), column, target_type)


def _scaled(values: Numbers, step_nanos: int, like: pa.Array, target: AtomicType) -> pa.Array:
    """Steps of so many nanoseconds as a timestamp type."""
    kind = arrow_type(target)
    unit = _NANOS[kind.unit]
    if step_nanos < unit:
        return rebuilt(values // (unit // step_nanos), like, kind)
    factor = step_nanos // unit
    limits = np.iinfo(np.int64)
    outside = (values > limits.max // factor) | (values < -(limits.max // factor))
    if outside.any():
        first = int(np.argmax(outside))
        raise CastError(f"the time does not fit {kind}", str(like[first]), pa.array(outside))
    return rebuilt(values * factor, like, kind)


# Casts of character strings to other types: what Java's parsers accept, and nothing more.
#
# A text that is no value of the type is an error that names it. Times with local time zone are read
# as UTC. Source: SEMANTICS.md §H.2 and the cast rules of Apache Paimon.


_PARSED_INTEGERS = (_R.TINYINT, _R.SMALLINT, _R.INT, _R.BIGINT)
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


def from_text(texts: pa.Array, target: AtomicType) -> pa.Array:
    """Texts as values of another type.

    Raises:
        CastError: a text is no value of the type.
    """
    root = target.root
    if root in _PARSED_INTEGERS:
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


_TEXTS = frozenset({_R.CHAR, _R.VARCHAR})
_BYTES = frozenset({_R.BINARY, _R.VARBINARY})
_INTEGERS = frozenset({_R.TINYINT, _R.SMALLINT, _R.INT, _R.BIGINT})
_NUMERICS = _INTEGERS | {_R.FLOAT, _R.DOUBLE, _R.DECIMAL}
_TIMESTAMPS = frozenset({_R.TIMESTAMP, _R.TIMESTAMP_LTZ})
_SECONDS = frozenset({_R.INT, _R.BIGINT})
"""Numbers that timestamps become and are made of."""

_IMPLICIT: dict[TypeRoot, frozenset[TypeRoot]] = {
    # target: sources whose values it can hold
    _R.CHAR: frozenset({_R.CHAR}),
    _R.VARCHAR: _TEXTS,
    _R.BOOLEAN: frozenset(),
    _R.BINARY: frozenset({_R.BINARY}),
    _R.VARBINARY: _BYTES,
    _R.DECIMAL: _NUMERICS,
    _R.TINYINT: frozenset({_R.TINYINT}),
    _R.SMALLINT: frozenset({_R.TINYINT, _R.SMALLINT}),
    _R.INT: frozenset({_R.TINYINT, _R.SMALLINT, _R.INT}),
    _R.BIGINT: _INTEGERS,
    _R.FLOAT: _INTEGERS | {_R.FLOAT, _R.DECIMAL},
    _R.DOUBLE: _NUMERICS,
    _R.DATE: frozenset({_R.TIMESTAMP}),
    _R.TIME: frozenset({_R.TIMESTAMP}),
    _R.TIMESTAMP: _TIMESTAMPS,
    _R.TIMESTAMP_LTZ: _TIMESTAMPS,
}
_TO_NUMERIC = _NUMERICS | _TEXTS | {_R.BOOLEAN}
_EXPLICIT: dict[TypeRoot, frozenset[TypeRoot]] = {
    **dict.fromkeys(_TEXTS, frozenset(TypeRoot)),
    _R.BOOLEAN: _TEXTS | _INTEGERS,
    **dict.fromkeys(_BYTES, _TEXTS | _BYTES),
    **dict.fromkeys(_NUMERICS, _TO_NUMERIC),
    **dict.fromkeys(_SECONDS, _TO_NUMERIC | _TIMESTAMPS),
    **dict.fromkeys((_R.DATE, _R.TIME), _TIMESTAMPS | _TEXTS),
    **dict.fromkeys(_TIMESTAMPS, _TIMESTAMPS | _TEXTS | _SECONDS | {_R.DATE, _R.TIME}),
}
_TIMES = _TIMESTAMPS | {_R.DATE, _R.TIME}
"""Sources whose text is only defined for a nullable STRING."""


def can_cast(source: DataType, target: DataType, *, explicit: bool = True) -> bool:
    """Whether a column of type `source` may become `target`.

    Lengths and precisions are not compared, except that dates and times become nothing shorter
    than STRING: a shorter target cuts or rounds, as Paimon's casts do. `explicit` also allows
    casts that may lose information or fail on some values.
    """
    if not isinstance(target, AtomicType):
        return False
    if not isinstance(source, AtomicType):
        return explicit and target.root in _TEXTS and _has_text(source)
    if target.root in _TEXTS and source.root in _TIMES:
        unbounded = target.root is _R.VARCHAR and target.length == MAX_LENGTH
        return explicit and unbounded and target.nullable
    if source.root in _IMPLICIT[target.root]:
        return True
    return explicit and source.root in _EXPLICIT[target.root]


def _has_text(type_: DataType) -> bool:
    """Whether Paimon has a text form of a nested value: of all but MULTISET."""
    match type_:
        case AtomicType():
            return True
        case ArrayType(element=element):
            return _has_text(element)
        case MapType(key=key, value=value):
            return _has_text(key) and _has_text(value)
        case RowType(fields=fields):
            return all(_has_text(field.type) for field in fields)
        case MultisetType():
            return False


CastColumn = Callable[[pa.Array], pa.Array]
"""From a column of the old type to one of the new type; raises CastError."""


def column_cast(source: DataType, target: AtomicType) -> CastColumn:
    """The cast from one type to another.

    The pair is one that `can_cast` allows, and differs in more than nullability.
    """
    kernel = _kernel(source, target)
    target_type = arrow_type(target)

    def cast(column: pa.Array) -> pa.Array:
        # kernels take a whole array: some of Arrow's mishandle the offsets of slices
        result = kernel(column)
        if isinstance(result, pa.ChunkedArray):
            result = result.combine_chunks()
        return result if result.type == target_type else result.cast(target_type)

    return cast


def _kernel(source: DataType, target: AtomicType) -> CastColumn:
    if not isinstance(source, AtomicType):
        return lambda column: to_text(column, source, target)
    if source.root in _TEXTS:
        return lambda column: from_text(column, target)
    if target.root in _TEXTS:
        return lambda column: to_text(column, source, target)
    if target.root in _BYTES:
        return lambda column: fit_binary(column, target)
    if source.root in _TIMES:
        return lambda column: to_time(column, source, target)
    if target.root in _TIMES:
        return lambda column: number_to_timestamp(column, target)
    if target.root is _R.BOOLEAN:
        return to_boolean
    return lambda column: to_number(column, source, target)
