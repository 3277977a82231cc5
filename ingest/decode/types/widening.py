# SPDX-License-Identifier: Apache-2.0
"""Which type holds every value of two types: the rule of automatic widening (CDC.md §3).

Pure. DECIMALs are united so that neither integer nor fraction digits are lost, where Paimon takes
the newer type and may fail on old values; integers and DECIMALs unite to a DECIMAL. A TIME holds
milliseconds whatever its precision, which the table format does not change.
"""

import dataclasses

from storage.format.types.types import MAX_LENGTH, ArrayType, AtomicType, DataType, TypeRoot

_INTEGERS = (TypeRoot.TINYINT, TypeRoot.SMALLINT, TypeRoot.INT, TypeRoot.BIGINT)
_DIGITS = dict(zip(_INTEGERS, (3, 5, 10, 19), strict=True))
"""Digits of the largest integers."""

_GUESSED = (TypeRoot.BIGINT, TypeRoot.DECIMAL)
_FLOATS = (TypeRoot.FLOAT, TypeRoot.DOUBLE)
_STRINGS = (TypeRoot.CHAR, TypeRoot.VARCHAR)
_BYTES = (TypeRoot.BINARY, TypeRoot.VARBINARY)
_PRECISE = (TypeRoot.TIMESTAMP, TypeRoot.TIMESTAMP_LTZ)
_TIMES = (TypeRoot.TIME, *_PRECISE)
_MAX_PRECISION = 38
_MICROS = 6


def nullable(type_: DataType) -> DataType:
    """The same type, null allowed."""
    return dataclasses.replace(type_, nullable=True)


def union_type(current: DataType, observed: DataType) -> DataType | None:
    """The narrowest type that holds the values of both, of one family or of exact numbers.

    Returns:
        A type with `current`'s nullability; equal to `current` when nothing needs to change; None
        when no such type exists.
    """
    if nullable(current) == nullable(observed):
        return current
    match current, observed:
        case AtomicType(), AtomicType():
            return _union_atomic(current, observed)
        case ArrayType(), ArrayType():
            element = union_type(current.element, observed.element)
            return None if element is None else dataclasses.replace(current, element=element)
        case _:
            return None


def guessed_union(current: DataType, observed: DataType) -> DataType | None:
    """As `union_type`, for a new column, whose types may be guesses from single values.

    What a guessed DOUBLE does not hold is found when the values are converted. No stored rows limit
    the digits of times.
    """
    union = union_type(current, observed)
    match current, observed:
        case AtomicType(), AtomicType() if current.root is observed.root and current.root in _TIMES:
            return dataclasses.replace(
                current, precision=max(current.precision, observed.precision)
            )
    if union is None and isinstance(current, AtomicType) and isinstance(observed, AtomicType):
        if observed.root is TypeRoot.DOUBLE and current.root in _GUESSED:
            return observed if current.root is not TypeRoot.DECIMAL else current
        if current.root is TypeRoot.DOUBLE and observed.root in _GUESSED:
            return current if observed.root is not TypeRoot.DECIMAL else observed
    return union


def _union_atomic(current: AtomicType, observed: AtomicType) -> AtomicType | None:
    a, b = current.root, observed.root
    for family in (_INTEGERS, _FLOATS):
        if a in family and b in family:
            root = max(a, b, key=family.index)
            return current if root is a else dataclasses.replace(current, root=root)
    if a in _STRINGS and b in _STRINGS:
        return _longer(current, observed, TypeRoot.VARCHAR)
    if a in _BYTES and b in _BYTES:
        return _longer(current, observed, TypeRoot.VARBINARY)
    if a in _DIGITS and b is TypeRoot.DECIMAL:
        return _with_integers(observed, _DIGITS[a], current)
    if a is TypeRoot.DECIMAL and b in _DIGITS:
        return _with_integers(current, _DIGITS[b], current)
    if a is not b:
        return None
    if a is TypeRoot.DECIMAL:
        return _union_decimal(current, observed)
    if a in _PRECISE:
        return _finer(current, observed.precision)
    return current


def _finer(current: AtomicType, precision: int) -> AtomicType | None:
    """A timestamp with more digits of a second.

    Nanoseconds reach from 1677 to 2262: rows with a later moment, as 9999-12-31, would no longer
    be readable, nor the table writable.
    """
    if current.precision <= _MICROS < precision:
        return None
    return dataclasses.replace(current, precision=max(current.precision, precision))


def _with_integers(number: AtomicType, digits: int, current: AtomicType) -> AtomicType | None:
    """A DECIMAL that has room for integers of so many digits, too."""
    precision = max(number.precision - number.scale, digits) + number.scale
    if precision > _MAX_PRECISION:
        return None
    return dataclasses.replace(number, precision=precision, nullable=current.nullable)


def _longer(current: AtomicType, observed: AtomicType, root: TypeRoot) -> AtomicType:
    if observed.length <= current.length or observed.length == MAX_LENGTH:
        return current  # the source gives no length: values are checked one by one
    return dataclasses.replace(current, root=root, length=observed.length)


def _union_decimal(current: AtomicType, observed: AtomicType) -> AtomicType | None:
    scale = max(current.scale, observed.scale)
    integers = max(current.precision - current.scale, observed.precision - observed.scale)
    if integers + scale > _MAX_PRECISION:
        return None
    return dataclasses.replace(current, precision=integers + scale, scale=scale)
