# SPDX-License-Identifier: Apache-2.0
"""Casts of columns to character strings and to binary strings, in Java's text forms.

Source: SEMANTICS.md §H.2 and the cast rules of Apache Paimon: doubles as `1.0E10`, decimals
plainly, timestamps with as many digits as their precision, `[a, b]`, `{k -> v}` and `{a, b}` for
nested values. Numbers, booleans and strings are cut to the length of the target, CHAR is filled
up. Times with local time zone are shown in UTC.
"""

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from storage.format.types.cast_arrays import CastError, numbers_of
from storage.format.types.cast_numbers import scientific
from storage.format.types.types import (
    MAX_LENGTH,
    ArrayType,
    AtomicType,
    DataType,
    MapType,
    RowType,
    TypeRoot,
)

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
