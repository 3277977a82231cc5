# SPDX-License-Identifier: Apache-2.0
"""Casts between numbers, decimals and booleans with the results of Java.

Integers wrap, floating numbers are truncated and clamped to INT or BIGINT before they wrap, a
decimal is rounded half up and null where it has too many digits.
Source: SEMANTICS.md §H.2 and the cast rules of Apache Paimon.
"""

import decimal
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from storage.format.types.cast_arrays import CastError, numbers_of, parts_of, rebuilt
from storage.format.types.types import AtomicType, TypeRoot

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
