# SPDX-License-Identifier: Apache-2.0
"""Exact decimals by the column: from unscaled bytes and from digits.

Numpy does the byte work, Arrow the checks, except where Arrow's own checks have holes; those are
closed here (see the comments).
"""

import decimal
from collections.abc import Sequence
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

_WORD_BYTES = 8
_DECIMAL_BYTES = 16
_SIGN_BIT = 0x80
_MAX_DIGITS = 38

MAX_SCALE = 2_047
"""Largest scale, either way, that is written out as digits; no event has a larger one."""

DECIMAL_CONTEXT = decimal.Context(prec=100_000, traps=[decimal.Inexact, decimal.InvalidOperation])
"""Exact arithmetic for single decimals: anything that would round raises."""


class ConversionError(ValueError):
    """Some value of a column does not fit; which one is for the caller to find."""


def require(condition: bool, what: str) -> None:
    """Raise ConversionError unless the condition holds."""
    if not condition:
        raise ConversionError(what)


def every(mask: pa.Array) -> bool:
    """Whether a mask is true wherever it is not null."""
    return pc.all(mask, min_count=0).as_py() is not False


def arrow_array(values: Sequence[Any] | pa.Array, type_: pa.DataType) -> pa.Array:
    """An array of Python values, or of the scan's integers, texts and bytes.

    Raises:
        pa.ArrowInvalid, pa.ArrowTypeError, OverflowError: a value does not fit.
    """
    if isinstance(values, pa.Array):
        if values.type == type_:
            return values
        integers = pa.types.is_integer(values.type) and pa.types.is_integer(type_)
        if integers or (pa.types.is_string(values.type) and pa.types.is_floating(type_)):
            return values.cast(type_)
        values = values.to_pylist()  # casts of other types would take more than a list does
    return pa.array(values, type_)


def decimals_from_bytes(
    values: Sequence[bytes | None] | pa.Array, scale: int, target: pa.Decimal128Type
) -> pa.Array:
    """Decimals from big-endian two's complement unscaled numbers.

    Args:
        values: unscaled numbers, None for null.
        scale: theirs.
        target: type of the column.

    Raises:
        ValueError: a number is empty, does not fit or would lose digits.

    Cost: about 0.1 us a value.
    """
    numbers = arrow_array(values, pa.binary())
    if numbers.null_count == len(numbers):
        return pa.nulls(len(numbers), target)  # whatever the scale is
    words = _signed_words(numbers)
    growth = max(0, target.scale - scale)
    if growth == 0 and scale == target.scale:
        source = target
    else:
        # so many digits fewer, because Arrow's rescaling may wrap around without an error
        require(growth < _MAX_DIGITS and scale <= _MAX_DIGITS, "no common scale")
        source = pa.decimal128(_MAX_DIGITS - growth, scale)
    numbers = pa.Decimal128Array.from_buffers(source, len(values), words)
    numbers.validate(full=True)
    return numbers if source is target else numbers.cast(target)


def unscaled_digits(unscaled: bytes, scale: int) -> str:
    """Digits of one unscaled number.

    Raises:
        ConversionError: it is empty or its scale is beyond `MAX_SCALE`.
    """
    require(bool(unscaled) and abs(scale) <= MAX_SCALE, "an empty number or an odd scale")
    number = decimal.Decimal(int.from_bytes(unscaled, "big", signed=True))
    return plain_digits(number.scaleb(-scale, DECIMAL_CONTEXT))


def whole_digits(unscaled: bytes, scale: int) -> str:
    """Digits of one unscaled number that has no fraction, whatever its scale.

    Raises:
        ConversionError: it is empty, has a fraction, or its scale is odd.
    """
    require(0 <= scale <= MAX_SCALE, "an odd scale")
    number, fraction = divmod(int.from_bytes(unscaled, "big", signed=True), 10**scale)
    require(bool(unscaled) and not fraction, "an empty number or a fraction")
    return format(decimal.Decimal(number), "f")  # which knows no limit of digits


def plain_digits(number: decimal.Decimal) -> str:
    """A decimal without exponent.

    Raises:
        ConversionError: its exponent is beyond `MAX_SCALE`.
    """
    exponent = number.as_tuple().exponent
    require(isinstance(exponent, int) and abs(exponent) <= MAX_SCALE, "an odd scale")
    return format(number, "f")


def _signed_words(values: pa.Array) -> list[pa.Buffer | None]:
    """Buffers of a decimal128 array from big-endian two's complement numbers of any length <= 16.

    Args:
        values: binary array with offset 0.
    """
    validity, offset_buffer, data_buffer = values.buffers()
    offsets = np.frombuffer(offset_buffer, np.int32)[: len(values) + 1]
    lengths = np.diff(offsets)
    widest = int(lengths.max(initial=0))
    require(widest <= _DECIMAL_BYTES, "a number of more than 16 bytes")
    if values.null_count:
        present = values.is_valid().to_numpy(zero_copy_only=False)
        require(bool((lengths[present] > 0).all()), "an empty number")
    else:
        require(bool((lengths > 0).all()), "an empty number")
    if widest == 0:
        return [validity, pa.py_buffer(bytes(_DECIMAL_BYTES * len(values)))]
    data = np.frombuffer(data_buffer, np.uint8)
    words = _narrow_words if widest <= _WORD_BYTES else _wide_words
    return [validity, pa.py_buffer(words(data, offsets, lengths, widest))]


def _narrow_words(
    data: np.ndarray, offsets: np.ndarray, lengths: np.ndarray, widest: int
) -> np.ndarray:
    last = len(data) - 1
    first = data[np.minimum(offsets[:-1], last)]
    low = np.where((first >= _SIGN_BIT) & (lengths > 0), np.int64(-1), np.int64(0))
    for step in range(widest):
        digit = data[np.minimum(offsets[:-1] + step, last)]
        low = np.where(step < lengths, (low << 8) | digit, low)
    words = np.empty((len(low), 2), np.int64)
    words[:, 0] = low
    words[:, 1] = low >> 63
    return words


def _wide_words(
    data: np.ndarray, offsets: np.ndarray, lengths: np.ndarray, widest: int
) -> np.ndarray:
    first = data[np.minimum(offsets[:-1], len(data) - 1)]
    negative = (first >= _SIGN_BIT) & (lengths > 0)
    words = np.zeros((len(lengths), _DECIMAL_BYTES), np.uint8)
    words[negative] = 0xFF
    for step in range(widest):
        rows = np.flatnonzero(lengths > step)
        words[rows, step] = data[offsets[1:][rows] - 1 - step]
    # Arrow's check of precision passes the one number whose absolute value has no 128 bits
    lowest = np.zeros(_DECIMAL_BYTES, np.uint8)
    lowest[-1] = _SIGN_BIT
    require(not (words == lowest).all(axis=1).any(), "too many digits")
    return words


def decimals_from_text(texts: pa.Array, target: pa.Decimal128Type) -> pa.Array:
    """Decimals from text, where Arrow is sure to notice what does not fit.

    Arrow 26 wraps around without an error beyond 128 bits, in parsing and in rescaling (39 ones or
    `3.4e38` into DECIMAL(38, 10) give some number), so long texts and exponents are refused here
    and left to the reference path.
    """
    content = (texts.buffers()[2] or pa.py_buffer(b"")).to_pybytes()
    require(b"e" not in content and b"E" not in content, "an exponent")
    longest = pc.max(pc.binary_length(texts)).as_py() or 0
    require(longest <= _MAX_DIGITS, "a long text")
    if longest + target.scale > _MAX_DIGITS:
        points = pc.find_substring(texts, ".")
        integers = pc.if_else(pc.less(points, 0), pc.binary_length(texts), points)
        require((pc.max(integers).as_py() or 0) + target.scale <= _MAX_DIGITS, "many digits")
    return texts.cast(target)
