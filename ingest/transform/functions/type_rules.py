# SPDX-License-Identifier: Apache-2.0
"""Types inside expressions: families, common types, and what `+ - * /` give.

Decimals are exact: the scale of a sum is the larger scale, that of a product the sum of both, and a
result that would need more than 38 digits fails for that row instead of being rounded. Only a
quotient is rounded (half up). A floating operand makes the result DOUBLE.
"""

import dataclasses
from collections.abc import Callable

from storage.format.types.types import MAX_LENGTH, AtomicType, DataType, TypeRoot

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
