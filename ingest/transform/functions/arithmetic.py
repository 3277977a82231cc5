# SPDX-License-Identifier: Apache-2.0
"""Kernels of `+ - * / % DIV`, sign and rounding: exact, and a row that overflows fails.

A kernel is made for the types of its operands (`type_rules`), which are first brought to one
type. Division by zero fails for integers, decimals and floating numbers alike.
"""

import decimal
from collections.abc import Callable
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from ingest.transform.functions.cells import (
    Kernel,
    Mask,
    Partial,
    Values,
    as_array,
    checked,
    mask_of,
)
from ingest.transform.functions.type_rules import decimal_of, is_floating, is_integer
from storage.format.types.arrow_types import arrow_type
from storage.format.types.types import AtomicType, TypeRoot

_NARROW_DIGITS, _WIDE_DIGITS = 38, 76
_DIVIDEND_DIGITS = 72
"""Arrow adds four decimal places to a dividend."""
_WHOLE = pa.decimal256(76, 0)

_OVERFLOW = "out of range"
_ZERO = "division by zero"
_FUNCTIONS: dict[str, Callable[..., pa.Array]] = {
    "+": pc.add_checked,
    "-": pc.subtract_checked,
    "*": pc.multiply_checked,
}


def arithmetic(operator: str, result: AtomicType) -> Kernel:
    """`+`, `-` or `*` of numbers of any types, in the type that `sum_type` gives."""
    if is_floating(result):
        return _floating(_FUNCTIONS[operator])
    if result.root is TypeRoot.DECIMAL:
        return _decimal_sum(_FUNCTIONS[operator], result)
    function = _FUNCTIONS[operator]
    return _integers(function, lambda left, right: _sum(function, left, right), result)


def whole_quotient(
    operator: str, left: AtomicType, right: AtomicType, result: AtomicType
) -> Kernel | None:
    """`DIV` (truncated towards zero) or `%` (with the sign of the dividend) of numbers.

    Returns:
        None when the operands together have too many digits for it.
    """
    remainder = operator == "%"
    if is_floating(result):
        return _with_zero(_floating_remainder if remainder else _floating_div)
    if result.root is TypeRoot.DECIMAL:
        dividend, divisor = decimal_of(left), decimal_of(right)
        if dividend.precision + max(divisor.scale - dividend.scale, 0) > _DIVIDEND_DIGITS:
            return None
        return _with_zero(_decimal_division(result, remainder=remainder))
    if remainder:
        return _with_zero(_integer_remainder(result))
    return _with_zero(_integers(pc.divide_checked, lambda *pair: _divided(*pair)[0], result))


def quotient(left: AtomicType, right: AtomicType, result: AtomicType) -> Kernel | None:
    """`/`: of decimals rounded half up to the scale of the result.

    Returns:
        None when the operands together have too many digits for it.
    """
    if is_floating(result):
        return _with_zero(_floating(pc.divide))
    dividend, divisor = decimal_of(left), decimal_of(right)
    shift = result.scale + 1 + divisor.scale - dividend.scale
    if dividend.precision + max(shift, 0) > _DIVIDEND_DIGITS:
        return None

    def kernel(left: Values, right: Values) -> Values | Partial:
        # unscaled numbers: left * 10^shift / right has one decimal place more than the result
        numbers = _divided(_unscaled(left, shift), _unscaled(right, max(0, -shift)))[0]
        numbers = _labelled(numbers, _WIDE_DIGITS, result.scale + 1)
        return fit(pc.round(numbers, result.scale, "half_towards_infinity"), result)

    return _with_zero(kernel)


def fit(wide: pa.Array, result: AtomicType) -> Values | Partial:
    """256-bit decimals of the same scale as DECIMAL; those with too many digits fail."""
    target = arrow_type(result)
    try:
        return wide.cast(target)
    except pa.ArrowInvalid:
        most = decimal.Decimal((0, (9,) * result.precision, -result.scale))
        failed = mask_of(pc.greater(pc.abs(wide), pa.scalar(most, wide.type)))
    values = pc.if_else(pa.array(failed), pa.scalar(None, wide.type), wide)
    return Partial(values.cast(target), failed, _OVERFLOW)


def negated(type_: AtomicType) -> Kernel:
    """`-x`."""
    return _integers(pc.negate_checked, pc.negate, type_) if is_integer(type_) else pc.negate


def absolute(type_: AtomicType) -> Kernel:
    """`abs(x)`."""
    return _integers(pc.abs_checked, pc.abs, type_) if is_integer(type_) else pc.abs


def rounded(mode: str, digits: int, result: AtomicType) -> Kernel:
    """`round`, `ceil`, `floor` and cutting of decimals and floating numbers.

    Args:
        mode: of Arrow's `round`.
        digits: decimal places that stay.
        result: of a decimal: the type with so many places.
    """
    if result.root is not TypeRoot.DECIMAL:
        return lambda column: pc.round(column, digits, mode)

    def kernel(column: pa.Array) -> Values | Partial:
        wide = column.cast(pa.decimal256(_WIDE_DIGITS, column.type.scale))
        values = pc.round(wide, digits, mode)
        return fit(values.cast(pa.decimal256(_WIDE_DIGITS, result.scale)), result)

    return kernel


def truncated(width: int, type_: AtomicType) -> Kernel:
    """The largest multiple of `width` that is not above a number; of the last decimal place."""
    if is_integer(type_):
        limits = np.iinfo(arrow_type(type_).to_pandas_dtype())
        stored = arrow_type(type_)

        def integers(column: pa.Array) -> Values | Partial:
            values = column.fill_null(0).to_numpy(zero_copy_only=False).astype(np.int64)
            rest = np.mod(values, width)
            failed = values < int(limits.min) + rest
            nulls = failed | column.is_null().to_numpy(zero_copy_only=False)
            multiples = pa.array(np.where(failed, 0, values - rest), pa.int64(), mask=nulls)
            return checked(multiples.cast(stored), failed, _OVERFLOW)

        return integers

    def decimals(column: pa.Array) -> Values | Partial:
        numbers = _unscaled(column, 0)
        divisor = pa.scalar(decimal.Decimal(width), _labelled(numbers, 20, 0).type)
        rest = _divided(numbers, divisor)[1]
        zero = pa.scalar(decimal.Decimal(0), rest.type)
        rest = pc.if_else(pc.less(rest, zero), _sum(pc.add, rest, divisor), rest)
        return fit(_labelled(_sum(pc.subtract, numbers, rest), _WIDE_DIGITS, type_.scale), type_)

    return decimals


# --- integers --------------------------------------------------------------------------------


def _integers(fast: Callable[..., Any], exact: Callable[..., Any], result: AtomicType) -> Kernel:
    """A kernel of integers, of which those that overflow fail.

    Args:
        fast: raises when one overflows.
        exact: the same for unscaled 256-bit decimals.
        result: type of operands and result.
    """
    target = arrow_type(result)

    def kernel(*values: Values) -> Values | Partial:
        operands = [value.cast(target) for value in values]
        try:
            return fast(*operands)
        except pa.ArrowInvalid:
            numbers = exact(*(_unscaled(value, 0) for value in operands))
        return narrowed(numbers, target, _OVERFLOW)

    return kernel


def narrowed(numbers: pa.Array, target_type: pa.DataType, reason: str) -> Values | Partial:
    """Whole numbers of any type as integers; those out of range fail."""
    try:
        return numbers.cast(target_type)
    except pa.ArrowInvalid:
        limits = np.iinfo(target_type.to_pandas_dtype())
    low, high = int(limits.min), int(limits.max)
    if pa.types.is_floating(numbers.type):
        # the limits as floating numbers: 2^63 is one, 2^63 - 1 is not
        above = pc.greater_equal(numbers, pa.scalar(float(high + 1), numbers.type))
        below = pc.less(numbers, pa.scalar(float(low), numbers.type))
        outside = pc.or_(pc.or_(above, below), pc.is_nan(numbers))
    elif pa.types.is_decimal(numbers.type):
        wide = pa.decimal256(76, numbers.type.scale)
        numbers = numbers.cast(wide)
        ends = [pa.scalar(decimal.Decimal(end), wide) for end in (low, high)]
        outside = pc.or_(pc.less(numbers, ends[0]), pc.greater(numbers, ends[1]))
    else:
        outside = pc.or_(pc.less(numbers, low), pc.greater(numbers, high))
    failed = mask_of(outside)
    values = pc.if_else(pa.array(failed), pa.scalar(None, numbers.type), numbers)
    return Partial(values.cast(target_type), failed, reason)


def _present(left: Values, right: Values) -> Mask:
    """Rows where both have a value."""
    return mask_of(pc.and_(pc.is_valid(left), pc.is_valid(right)))


def _integer_remainder(result: AtomicType) -> Kernel:
    target = arrow_type(result)

    def longs(values: Values) -> np.ndarray:
        column = as_array(values, 1).fill_null(0)
        return np.asarray(column.to_numpy(zero_copy_only=False)).astype(np.int64)

    def kernel(left: Values, right: Values) -> Values:
        dividends, divisors = np.broadcast_arrays(longs(left), longs(right))
        rest = np.fmod(dividends, np.where((divisors == 0) | (divisors == -1), 1, divisors))
        return pa.array(rest, pa.int64(), mask=~_present(left, right)).cast(target)

    return kernel


# --- decimals --------------------------------------------------------------------------------
#
# Where Arrow's rules for the precision of results leave no room, calculations use unscaled 256-bit
# integers under types that only state what Arrow must know (`_labelled`).


def _decimal_sum(function: Callable[..., pa.Array], result: AtomicType) -> Kernel:
    product = function is pc.multiply_checked
    target = arrow_type(result)

    def kernel(left: Values, right: Values) -> Values | Partial:
        left, right = _as_decimal(left), _as_decimal(right)
        first, second = left.type, right.type
        if product:
            digits = first.precision + second.precision + 1
        else:
            whole = max(first.precision - first.scale, second.precision - second.scale)
            digits = whole + max(first.scale, second.scale) + 1
        if digits <= _NARROW_DIGITS:
            values = function(left, right)
            return (
                values.cast(target) if digits <= result.precision + product else fit(values, result)
            )
        if product:
            numbers = _sum(pc.multiply, _unscaled(left, 0), _unscaled(right, 0))
        else:
            numbers = _sum(function, *_aligned(left, right)[:2])
        return fit(_labelled(numbers, _WIDE_DIGITS, result.scale), result)

    return kernel


def _as_decimal(values: Values) -> Values:
    if pa.types.is_decimal(values.type):
        return values
    digits = {8: 3, 16: 5, 32: 10, 64: 19}[values.type.bit_width]
    return values.cast(pa.decimal128(digits, 0))


def _unscaled(values: Values, shift: int) -> Values:
    """The unscaled numbers times 10^shift, as 256-bit whole numbers."""
    values = _as_decimal(values)
    scale = values.type.scale + max(shift, 0)
    return _labelled(values.cast(pa.decimal256(_WIDE_DIGITS, scale)), _WIDE_DIGITS, 0)


def _labelled(values: Values, precision: int, scale: int) -> Values:
    """The same 256-bit numbers under another type."""
    if isinstance(values, pa.Scalar):
        return _labelled(pa.repeat(values, 1), precision, scale)[0]
    type_ = pa.decimal256(precision, scale)
    return pa.Array.from_buffers(type_, len(values), values.buffers(), offset=values.offset)


def _sum(function: Callable[..., pa.Array], left: Values, right: Values) -> pa.Array:
    """A sum or product of unscaled numbers that is known to fit."""
    numbers = function(_labelled(left, 9, 0), _labelled(right, 9, 0))
    return _labelled(numbers, _WIDE_DIGITS, 0)


def _divided(left: Values, right: Values) -> tuple[pa.Array, pa.Array]:
    """Quotient, truncated towards zero, and remainder, with the sign of the dividend.

    Of unscaled numbers, the left one of at most 72 digits.

    Arrow's division of 256-bit decimals is wrong for a few divisors of more than 64 bits, so the
    remainder is checked; the rows in question are divided again.
    """
    ratio = pc.divide(_labelled(left, _DIVIDEND_DIGITS, 0), _labelled(right, 1, 0))
    times = _labelled(pc.round(ratio, 0, "towards_zero").cast(_WHOLE), _WIDE_DIGITS, 0)
    rest = _sum(pc.subtract, left, _sum(pc.multiply, times, right))
    zero = pa.scalar(decimal.Decimal(0), rest.type)
    below = pc.less(pc.abs(rest), pc.abs(_labelled(right, _WIDE_DIGITS, 0)))
    side = pc.or_(pc.equal(rest, zero), pc.equal(pc.less(rest, zero), pc.less(left, zero)))
    wrong = np.flatnonzero(mask_of(pc.invert(pc.and_(below, side))))
    if not len(wrong):
        return times, rest
    pairs = [_numbers_at(values, wrong) for values in (left, right)]
    quotients = [abs(dividend) // abs(divisor) for dividend, divisor in zip(*pairs, strict=True)]
    signed = [
        number if (dividend < 0) == (divisor < 0) else -number
        for number, dividend, divisor in zip(quotients, *pairs, strict=True)
    ]
    which = np.zeros(len(times), bool)
    which[wrong] = True
    right_ones = pa.array([decimal.Decimal(number) for number in signed], times.type)
    times = pc.replace_with_mask(times, pa.array(which), right_ones)
    return times, _sum(pc.subtract, left, _sum(pc.multiply, times, right))


def _numbers_at(values: Values, rows: np.ndarray) -> list[int]:
    if isinstance(values, pa.Scalar):
        return [int(values.as_py())] * len(rows)
    return [int(number) for number in values.take(pa.array(rows)).to_pylist()]


def _decimal_division(result: AtomicType, *, remainder: bool) -> Kernel:
    def kernel(left: Values, right: Values) -> Values | Partial:
        dividend, divisor, scale = _aligned(left, right)
        numbers = _divided(dividend, divisor)[remainder]
        return fit(_labelled(numbers, _WIDE_DIGITS, scale if remainder else 0), result)

    return kernel


def _aligned(left: Values, right: Values) -> tuple[Values, Values, int]:
    """The unscaled numbers of two decimals at their larger scale."""
    left, right = _as_decimal(left), _as_decimal(right)
    scale = max(left.type.scale, right.type.scale)
    return (
        _unscaled(left, scale - left.type.scale),
        _unscaled(right, scale - right.type.scale),
        scale,
    )


# --- floating numbers ------------------------------------------------------------------------


def _floating(function: Callable[..., pa.Array]) -> Kernel:
    plain = {
        pc.add_checked: pc.add,
        pc.subtract_checked: pc.subtract,
        pc.multiply_checked: pc.multiply,
    }
    function = plain.get(function, function)

    def kernel(left: Values, right: Values) -> Values | Partial:
        left, right = left.cast(pa.float64()), right.cast(pa.float64())
        values = function(left, right)
        overflow = pc.and_(pc.is_inf(values), pc.and_(pc.is_finite(left), pc.is_finite(right)))
        return checked(values, mask_of(overflow), _OVERFLOW)

    return kernel


def _floating_div(left: Values, right: Values) -> Values:
    return pc.trunc(pc.divide(left.cast(pa.float64()), right.cast(pa.float64())))


def _floating_remainder(left: Values, right: Values) -> Values:
    length = next(len(value) for value in (left, right) if isinstance(value, pa.Array))
    columns = [as_array(value, length).cast(pa.float64()) for value in (left, right)]
    dividends, divisors = (column.to_numpy(zero_copy_only=False) for column in columns)
    with np.errstate(invalid="ignore"):
        rest = np.fmod(dividends, divisors)
    return pa.array(rest, mask=~_present(*columns))


def _with_zero(kernel: Kernel) -> Kernel:
    """A division that fails where the divisor is zero, and divides the rest."""

    def run(left: Values, right: Values) -> Values | Partial:
        length = next(len(value) for value in (left, right) if isinstance(value, pa.Array))
        divisor = as_array(right, length)
        zero = pc.equal(divisor, _zero_of(right.type))
        if not mask_of(zero).any():
            return kernel(left, right)
        failed = mask_of(zero) & mask_of(pc.is_valid(left), length)
        result = kernel(left, pc.if_else(zero, pa.scalar(None, right.type), divisor))
        if isinstance(result, Partial):
            return Partial(result.values, result.failed | failed, f"{_ZERO} or {_OVERFLOW}")
        return checked(result, failed, _ZERO)

    return run


def _zero_of(type_: pa.DataType) -> pa.Scalar:
    return pa.scalar(decimal.Decimal(0) if pa.types.is_decimal(type_) else 0, type_)
