# SPDX-License-Identifier: Apache-2.0
"""Kernels of `+ - * / % DIV`, sign and rounding: exact, and a row that overflows fails.

A kernel is made for the types of its operands (`type_rules`), which are first brought to one
type. Division by zero fails for integers, decimals and floating numbers alike.
"""

import dataclasses
import decimal
from collections.abc import Callable, Mapping, Sequence
from typing import Any, TypeAlias

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from ingest.decode.events import failing_positions
from storage.errors import InternalError, InvalidRequestError, UnsupportedFeatureError
from storage.format.files.orc.tail import Zone, instants_to_walls, zone_of
from storage.format.types.casts import CastColumn, CastError, can_cast, column_cast, fit_text
from storage.format.types.types import (
    MAX_LENGTH,
    AtomicType,
    DataType,
    TypeRoot,
    arrow_type,
    type_name,
)

# How a planned expression runs: over whole columns, and with rows that fail.
#
# A kernel that cannot give a value for some row gives null there and says which rows and why
# (`Partial`); it never raises for data. Failures propagate up the expression, except through
# what is only evaluated for some rows: branches of CASE, the right side of AND and OR, later
# arguments of COALESCE. Kernels get Arrow arrays, or scalars for constants, and at least one array.


Mask = npt.NDArray[np.bool_]
Values: TypeAlias = pa.Array | pa.Scalar


@dataclasses.dataclass(frozen=True, slots=True, eq=False)
class Failure:
    """Rows that have no value.

    Attributes:
        rows: which ones, bool of shape (n,).
        reason: for the user.
    """

    rows: Mask
    reason: str


@dataclasses.dataclass(frozen=True, slots=True, eq=False)
class Cells:
    """What an expression gives for the rows of a frame: null where a row failed."""

    values: Values
    failures: tuple[Failure, ...] = ()


@dataclasses.dataclass(frozen=True, slots=True, eq=False)
class Partial:
    """What a kernel gives when it fails for some rows.

    Attributes:
        values: null where it failed.
        failed: bool of shape (n,).
        reason: a few words, the same for all of them.
    """

    values: pa.Array
    failed: Mask
    reason: str


Kernel = Callable[..., Values | Partial]
"""One value per row out of as many arguments as the function has."""


@dataclasses.dataclass(frozen=True, slots=True, eq=False)
class Planned:
    """An expression with its type.

    Attributes:
        type: of the result; None for a bare NULL.
        run: gives the cells of a frame.
        columns: names of the columns that must exist.
        constant: the value, where it depends on no row.
        text: as written.
        start: first character in the whole expression.
        typed: whether the type was stated; a text that was not may become a date.
    """

    type: DataType | None
    run: Callable[["Frame"], Cells]
    columns: frozenset[str]
    constant: pa.Scalar | None
    text: str
    start: int
    typed: bool = True


class Frame:
    """The rows that expressions are evaluated on; results of named expressions are cached.

    Args:
        columns: by name, all of one length.
        num_rows: length.
        now_ms: what `now()` gives [epoch ms].
        plans: expressions that may be used by name, such as computed columns.
    """

    def __init__(
        self,
        columns: Mapping[str, pa.Array],
        num_rows: int,
        now_ms: int = 0,
        plans: Mapping[str, Planned] | None = None,
    ) -> None:
        self.num_rows = num_rows
        self.now_ms = now_ms
        self._columns = columns
        self._plans = plans or {}
        self._computed: dict[str, Cells] = {}

    def column(self, name: str) -> Cells:
        """The cells of a column or a named expression."""
        if name not in self._plans:
            return Cells(self._columns[name])
        if name not in self._computed:
            cells = self._plans[name].run(self)
            self._computed[name] = Cells(as_array(cells.values, self.num_rows), cells.failures)
        return self._computed[name]


def runner(kernel: Kernel, parts: Sequence[Planned], text: str) -> Callable[[Frame], Cells]:
    """The run of a call whose arguments are all evaluated for every row."""
    reason = f" in `{text}`"

    def run(frame: Frame) -> Cells:
        arguments = [part.run(frame) for part in parts]
        failures = tuple(failure for argument in arguments for failure in argument.failures)
        result = _guarded(kernel, [argument.values for argument in arguments], frame.num_rows)
        return with_failures(result, failures, reason)

    return run


_RAISED = (pa.ArrowInvalid, pa.ArrowCapacityError, CastError, OverflowError)


def _guarded(kernel: Kernel, values: Sequence[Values], num_rows: int) -> Values | Partial:
    """Run a kernel; if it raises, locate the failing rows by bisection."""
    try:
        return kernel(*values)
    except _RAISED as error:
        reason = f"no result ({str(error).splitlines()[0]})"
    columns = [as_array(value, num_rows) for value in values]

    def attempt(low: int, high: int) -> None:
        kernel(*(pa.concat_arrays([column.slice(low, high - low)]) for column in columns))

    failed = np.zeros(num_rows, bool)
    failed[failing_positions(attempt, num_rows, _RAISED)] = True
    mask = pa.array(failed)
    cleared = [pc.if_else(mask, pa.scalar(None, column.type), column) for column in columns]
    result = kernel(*cleared)
    if isinstance(result, Partial):
        return Partial(result.values, result.failed | failed, f"{result.reason}, or {reason}")
    return Partial(result, failed, reason)


def with_failures(
    result: Values | Partial, failures: tuple[Failure, ...], suffix: str = ""
) -> Cells:
    """The result of a kernel, with what failed in its arguments before."""
    if not isinstance(result, Partial):
        return Cells(result, failures)
    failed = (*failures, Failure(result.failed, result.reason + suffix))
    return Cells(result.values, failed if result.failed.any() else failures)


def restricted(failures: tuple[Failure, ...], rows: Mask) -> tuple[Failure, ...]:
    """Only what failed among some rows."""
    within = (Failure(failure.rows & rows, failure.reason) for failure in failures)
    return tuple(failure for failure in within if failure.rows.any())


def combined(failures: Sequence[Failure], num_rows: int) -> tuple[npt.NDArray[np.int64], list[str]]:
    """The rows that failed, ascending, and the first reason of each."""
    if not failures:
        return np.zeros(0, np.int64), []
    first = np.full(num_rows, -1, np.int64)
    for number, failure in enumerate(failures):
        first[failure.rows & (first < 0)] = number
    rows = np.flatnonzero(first >= 0)
    return rows, [failures[number].reason for number in first[rows].tolist()]


def as_array(values: Values, length: int) -> pa.Array:
    """The values as an array."""
    return pa.repeat(values, length) if isinstance(values, pa.Scalar) else values


def mask_of(condition: Values, length: int = 1) -> Mask:
    """Where a condition is true; not where it is null."""
    flags = pc.fill_null(as_array(condition, length), False)
    return np.asarray(flags.to_numpy(zero_copy_only=False), bool)


def checked(values: pa.Array, failed: Mask, reason: str) -> Values | Partial:
    """The values, or null where they failed."""
    if not failed.any():
        return values
    remaining = pc.if_else(pa.array(failed), pa.scalar(None, values.type), values)
    return Partial(remaining, failed, reason)


# Types inside expressions: families, common types, and what `+ - * /` give.
#
# Decimals are exact: the scale of a sum is the larger scale, that of a product the sum of both, and
# a result that would need more than 38 digits fails for that row instead of being rounded. Only a
# quotient is rounded (half up). A floating operand makes the result DOUBLE.


_R = TypeRoot
BOOLEAN = AtomicType(_R.BOOLEAN)
INT = AtomicType(_R.INT)
BIGINT = AtomicType(_R.BIGINT)
DOUBLE = AtomicType(_R.DOUBLE)
DATE = AtomicType(_R.DATE)
STRING = AtomicType(_R.VARCHAR, length=MAX_LENGTH)
BYTES = AtomicType(_R.VARBINARY, length=MAX_LENGTH)

MAX_PRECISION = 38
_INTEGERS = (_R.TINYINT, _R.SMALLINT, _R.INT, _R.BIGINT)
_DIGITS = {_R.TINYINT: 3, _R.SMALLINT: 5, _R.INT: 10, _R.BIGINT: 19}
_LEAST_QUOTIENT_SCALE = 6


def _family(*roots: TypeRoot) -> Callable[[DataType | None], bool]:
    return lambda type_: isinstance(type_, AtomicType) and type_.root in roots


is_integer = _family(*_INTEGERS)
is_floating = _family(_R.FLOAT, _R.DOUBLE)
is_numeric = _family(*_INTEGERS, _R.FLOAT, _R.DOUBLE, _R.DECIMAL)
is_text = _family(_R.CHAR, _R.VARCHAR)
is_bytes = _family(_R.BINARY, _R.VARBINARY)
is_temporal = _family(_R.DATE, _R.TIME, _R.TIMESTAMP, _R.TIMESTAMP_LTZ)
"""Both timestamps among them."""


def nullable(type_: DataType) -> DataType:
    """The type that allows null."""
    return type_ if type_.nullable else dataclasses.replace(type_, nullable=True)


def decimal_of(type_: AtomicType) -> AtomicType:
    """The DECIMAL that holds every value of an integer type or a DECIMAL."""
    if type_.root is _R.DECIMAL:
        return dataclasses.replace(type_, nullable=True)
    return AtomicType(_R.DECIMAL, precision=_DIGITS[type_.root], scale=0)


def common_type(left: DataType | None, right: DataType | None) -> DataType | None:
    """The type that holds values of both without loss; None when there is none.

    Integers and floating numbers meet in DOUBLE, which rounds integers beyond 2^53.
    """
    if left is None or right is None:
        type_ = right if left is None else left
        return None if type_ is None else nullable(type_)
    left, right = nullable(left), nullable(right)
    if left == right:
        return left
    if not isinstance(left, AtomicType) or not isinstance(right, AtomicType):
        return None
    if is_numeric(left) and is_numeric(right):
        return _common_number(left, right)
    for family, plain in ((is_text, STRING), (is_bytes, BYTES)):
        if family(left) and family(right):
            return dataclasses.replace(plain, length=max(left.length, right.length))
    return _common_time(left, right)


def _common_number(left: AtomicType, right: AtomicType) -> AtomicType | None:
    if is_floating(left) or is_floating(right):
        return DOUBLE
    if is_integer(left) and is_integer(right):
        return max(left, right, key=lambda type_: _DIGITS[type_.root])
    first, second = decimal_of(left), decimal_of(right)
    scale = max(first.scale, second.scale)
    whole = max(first.precision - first.scale, second.precision - second.scale)
    if whole + scale > MAX_PRECISION:
        return None
    return AtomicType(_R.DECIMAL, precision=whole + scale, scale=scale)


def _common_time(left: AtomicType, right: AtomicType) -> AtomicType | None:
    roots = {left.root, right.root}
    if len(roots) == 1 and is_temporal(left):
        return left if left.precision >= right.precision else right
    if roots == {_R.DATE, _R.TIMESTAMP}:
        return left if left.root is _R.TIMESTAMP else right
    return None


def sum_type(operator: str, left: AtomicType, right: AtomicType) -> AtomicType | None:
    """The type of `+`, `-`, `*`, `%`; None when a product has too many decimal places."""
    if is_floating(left) or is_floating(right):
        return DOUBLE
    if is_integer(left) and is_integer(right):
        return max(left, right, INT, key=lambda type_: _DIGITS[type_.root])
    first, second = decimal_of(left), decimal_of(right)
    scale = max(first.scale, second.scale)
    if operator == "*":
        scale = first.scale + second.scale
        precision = first.precision + second.precision
    elif operator == "%":
        precision = second.precision - second.scale + scale
    else:
        precision = max(first.precision - first.scale, second.precision - second.scale) + scale + 1
    if scale > MAX_PRECISION:
        return None
    return AtomicType(_R.DECIMAL, precision=max(min(precision, MAX_PRECISION), 1), scale=scale)


def quotient_type(left: AtomicType, right: AtomicType) -> AtomicType:
    """The type of `/` of decimals: at least six decimal places, as other SQL engines have it."""
    dividend, divisor = decimal_of(left), decimal_of(right)
    whole = dividend.precision - dividend.scale + divisor.scale
    scale = max(_LEAST_QUOTIENT_SCALE, dividend.scale + divisor.precision + 1)
    if whole + scale > MAX_PRECISION:
        scale = max(MAX_PRECISION - whole, min(scale, _LEAST_QUOTIENT_SCALE))
    return AtomicType(_R.DECIMAL, precision=min(whole + scale, MAX_PRECISION), scale=scale)


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
        return _with_zero(_floating_remainder if remainder else _floating(_whole_part))
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
        left, right = as_double(left), as_double(right)
        values = function(left, right)
        overflow = pc.and_(pc.is_inf(values), pc.and_(pc.is_finite(left), pc.is_finite(right)))
        return checked(values, mask_of(overflow), _OVERFLOW)

    return kernel


def as_double(values: Values) -> Values:
    """Numbers as DOUBLE, the nearest one of integers beyond 2^53."""
    return values.cast(pa.float64(), safe=False)


def _whole_part(left: Values, right: Values) -> Values:
    return pc.trunc(pc.divide(left, right))


def _floating_remainder(left: Values, right: Values) -> Values:
    length = next(len(value) for value in (left, right) if isinstance(value, pa.Array))
    columns = [as_double(as_array(value, length)) for value in (left, right)]
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


# Casts inside expressions: the casts of the table format, but strict; and time zones.
#
# Values are those of `storage.format.types.casts` (Java's). What is silent there fails for
# its row here: numbers out of range, NaN as an integer, decimals with too many digits, strings that
# are no value of the type. Dates and strings of a TIMESTAMP_LTZ are those of the pipeline's zone.
#
# A TIMESTAMP is a local time without zone; a TIMESTAMP_LTZ is an instant, whose year or string
# depends on the zone that the pipeline states (UTC unless set). A local time that occurs twice,
# when clocks go back, is its first instant; one that is skipped is moved forward by the gap, as
# Java does. Before 1900 a zone has its present standard time.


_PER_SECOND = {"s": 1, "ms": 1_000, "us": 1_000_000, "ns": 1_000_000_000}
_DAY = 86_400
_UTC_NAMES = frozenset({"UTC", "Etc/UTC", "Z", "GMT"})


def zone_named(name: str) -> Zone | None:
    """Find the zone of a name such as `Europe/Berlin`; None for UTC.

    Raises:
        InvalidRequestError: there is no such zone.
    """
    if name in _UTC_NAMES:
        return None
    try:
        return zone_of(name)
    except UnsupportedFeatureError as error:
        raise InvalidRequestError(
            "unknown time zone", hint="write it like: Europe/Berlin", zone=name
        ) from error


def to_walls(column: pa.Array, zone: Zone | None) -> pa.Array:
    """Convert instants to local times of the zone.

    Raises:
        pa.ArrowInvalid: a local time does not fit the unit.
    """
    if zone is not None:
        column = instants_to_walls(column, zone)
    return column.cast(pa.timestamp(column.type.unit))


def to_instants(column: pa.Array, zone: Zone | None) -> pa.Array:
    """Convert local times of the zone to instants."""
    instant_type = pa.timestamp(column.type.unit, "UTC")
    if zone is None:
        return column.cast(instant_type)
    numbers = column.view(pa.int64())
    values = numbers.fill_null(0).to_numpy(zero_copy_only=False)
    per_second = _PER_SECOND[column.type.unit]
    walls = values // per_second
    before, after = zone.at(walls - _DAY), zone.at(walls + _DAY)
    second = (zone.at(walls - before) != before) & (zone.at(walls - after) == after)
    offsets = np.where(second, after, before)
    nulls = column.is_null().to_numpy(zero_copy_only=False) if column.null_count else None
    return pa.array(values - offsets * per_second, pa.int64(), mask=nulls).view(instant_type)


_NANOS = 9
_NOT_CASTABLE = (pa.ArrowInvalid, CastError)


def strict_cast(source: DataType, target: AtomicType, zone: Zone | None) -> Kernel | None:
    """The kernel from one type to another; None when there is no such cast.

    Args:
        source: of the argument.
        target: of the result.
        zone: of wall clocks of a TIMESTAMP_LTZ.
    """
    if dataclasses.replace(source, nullable=True) == dataclasses.replace(target, nullable=True):
        return lambda values: values
    if isinstance(source, AtomicType):
        kernel = _by_zone(source, target, zone)
        if kernel is not None:
            return kernel
        if is_integer(target) and not is_text(source) and source.root is not _R.BOOLEAN:
            return _to_integer(source, target)
        if is_temporal(source) and is_text(target):
            return _time_to_text(source, target)
    if not can_cast(source, dataclasses.replace(target, nullable=True)):
        return None
    return _plain(source, dataclasses.replace(target, nullable=True))


def _by_zone(source: AtomicType, target: AtomicType, zone: Zone | None) -> Kernel | None:
    """Casts between instants and wall clocks."""
    source_ltz, target_ltz = source.root is _R.TIMESTAMP_LTZ, target.root is _R.TIMESTAMP_LTZ
    if source_ltz == target_ltz or is_integer(source) or is_integer(target):
        return None
    if source_ltz:
        walls = dataclasses.replace(source, root=_R.TIMESTAMP)
        after = strict_cast(walls, target, zone)
        if after is None:
            return None
        return lambda column: after(to_walls(column, zone))
    local = AtomicType(_R.TIMESTAMP, precision=target.precision)
    before = strict_cast(source, local, zone)
    return None if before is None else _followed(before, lambda column: to_instants(column, zone))


def _followed(first: Kernel, second: CastColumn) -> Kernel:
    def run(column: pa.Array) -> Values | Partial:
        result = first(column)
        if isinstance(result, Partial):
            return dataclasses.replace(result, values=second(result.values))
        return second(result)

    return run


def _time_to_text(source: AtomicType, target: AtomicType) -> Kernel:
    cast = column_cast(source, STRING)
    return lambda column: fit_text(cast(column), target)


def _plain(source: DataType, target: AtomicType) -> Kernel:
    cast = column_cast(source, target)
    reason = f"not a value of {type_name(target)}"
    lossy = target.root is _R.DECIMAL or (target.root is _R.FLOAT and not is_text(source))
    floating = is_floating(source)

    def run(column: pa.Array) -> Values | Partial:
        failed = np.zeros(len(column), bool)
        if floating and target.root is _R.DECIMAL:
            failed = mask_of(pc.invert(pc.is_finite(column)))
        values, failed = _cast_rest(cast, column, failed)
        if lossy:
            failed = failed | _lost_values(column, values)
        return checked(values, failed, reason)

    return run


def _cast_rest(cast: CastColumn, column: pa.Array, failed: Mask) -> tuple[pa.Array, Mask]:
    """The column cast where possible, and the rows that fail; a round per kind of failure."""
    while True:
        remaining = column
        if failed.any():
            remaining = pc.if_else(pa.array(failed), pa.scalar(None, column.type), column)
        try:
            return cast(remaining), failed
        except CastError as error:
            more = failed | _failing(cast, remaining, error.failed)
        except pa.ArrowInvalid:
            more = failed | _failing(cast, remaining, None)
        if (more == failed).all():
            raise InternalError("a cast failed without a failing row")
        failed = more


def _failing(cast: CastColumn, column: pa.Array, failed: pa.Array | None) -> Mask:
    if failed is not None:
        return mask_of(failed)

    def attempt(low: int, high: int) -> None:
        cast(pa.concat_arrays([column.slice(low, high - low)]))

    mask = np.zeros(len(column), bool)
    mask[failing_positions(attempt, len(column), _NOT_CASTABLE)] = True
    return mask


def _lost_values(column: pa.Array, converted: pa.Array) -> Mask:
    """Values that became null, or infinite though they were finite."""
    losses = pc.and_(column.is_valid(), converted.is_null())
    if pa.types.is_floating(converted.type) and pa.types.is_floating(column.type):
        losses = pc.or_(losses, pc.and_(pc.is_inf(converted), pc.is_finite(column)))
    return mask_of(losses)


def _to_integer(source: AtomicType, target: AtomicType) -> Kernel | None:
    if not can_cast(source, target):
        return None
    target_type = arrow_type(target)
    reason = f"out of the range of {type_name(target)}"
    if is_temporal(source):
        # seconds are BIGINT, so that values out of the range of INT are detected
        seconds = column_cast(source, AtomicType(_R.BIGINT))
        return lambda column: narrowed(seconds(column), target_type, reason)
    if source.root is _R.DECIMAL:
        return lambda column: narrowed(pc.round(column, 0, "towards_zero"), target_type, reason)
    if is_floating(source):
        return lambda column: narrowed(pc.trunc(column), target_type, reason)
    return lambda column: narrowed(column, target_type, reason)
