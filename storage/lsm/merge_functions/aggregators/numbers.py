# SPDX-License-Identifier: Apache-2.0
"""`sum`, `count` and `product`: totals that never leave the type of the column.

Source: SEMANTICS.md §B.3. Java adds row by row and refuses each total that does not fit, so all
totals on the way count. Where the values of a key cannot leave the type even if all have one
sign, they are summed at once; the others, and products, are folded row by row.

DECIMAL of up to 18 digits is added in 64 bits without a check of the digits, as Java does; wider
totals, and those that leave 64 bits, become null when they need more digits than the type has.
Products of whole numbers refuse what does not fit and are divided towards zero; floating ones are
IEEE; decimals are exact, then rounded half up, and null when they need more digits.
"""

import dataclasses
from collections.abc import Callable
from typing import Any, ClassVar

import numpy as np
import pyarrow as pa

from storage.format.types.types import AtomicType, TypeRoot
from storage.lsm.merge_functions.aggregators.function import (
    AggregateFunction,
    AggregationRefused,
    RowFold,
    objects_of,
)
from storage.lsm.merge_functions.segments import Op, Segments, valid_mask

INTEGERS = {
    TypeRoot.TINYINT: "byte",
    TypeRoot.SMALLINT: "short",
    TypeRoot.INT: "int",
    TypeRoot.BIGINT: "long",
}
"""What messages about overflow call the types."""
FLOATS = (TypeRoot.FLOAT, TypeRoot.DOUBLE)

_INT64 = np.iinfo(np.int64)
_LIMB = (1 << 32) - 1
_LOW = (1 << 64) - 1
_COMPACT_DIGITS = 18
_SIGNS = np.array([1, 1, -1, 1, 0, 0, 0])
"""What the value of a row counts for, by `Op`."""
_FEW_ROWS = 48
"""Segments for which a round over arrays costs more than to go through them one by one."""
_NEARLY = 1 - 1e-9
"""Sums of 64-bit floats are right up to this factor."""


@dataclasses.dataclass(frozen=True, slots=True)
class _Numeric(AggregateFunction):
    """A function of numbers that can retract them."""

    retractable: ClassVar[bool] = True
    turns_late: ClassVar[bool] = False

    @property
    def _root(self) -> TypeRoot:
        assert isinstance(self.field.type, AtomicType)
        return self.field.type.root

    def _checked(self, most: int, total: int, *step: object) -> int | None:
        """The total, or null for decimals that need more digits.

        `most` is the greatest total; the least one of whole numbers is one further from
        zero.
        """
        if self._root is TypeRoot.DECIMAL:
            return total if -most <= total <= most else None
        if not -most - 1 <= total <= most:
            raise AggregationRefused(f"{INTEGERS[self._root]} overflow: {' '.join(map(str, step))}")
        return total


@dataclasses.dataclass(frozen=True, slots=True)
class Sum(_Numeric):
    """The sum of the values that are not null; null when there is none."""

    def reduce(
        self, values: pa.Array, segments: Segments
    ) -> tuple[pa.Array | None, np.ndarray | None]:
        """See `AggregateFunction`; sums that might leave the type are left."""
        if segments.single:
            return values, None
        starts = segments.starts
        present = segments.present(values)
        absent = None if present is None else ~np.logical_or.reduceat(present, starts)
        if self._root in FLOATS:
            numbers = _signed_floats(values, present, segments)
            return pa.array(_float_totals(numbers, segments), values.type, mask=absent), None
        signs = None if segments.ops is None else _SIGNS[segments.ops]
        if self._root is TypeRoot.DECIMAL:
            low, high, deferred = _decimal_totals(values, present, signs, segments)
            return _decimal_array(low, high, values.type, absent), deferred
        if values.null_count:
            values = values.fill_null(0)
        numbers = values.to_numpy(zero_copy_only=False).astype(np.int64, copy=False)
        if signs is not None:
            numbers = numbers * signs
        dtype = values.type.to_pandas_dtype()
        deferred = _leaving(numbers, int(np.iinfo(dtype).max), segments)
        sums = np.add.reduceat(numbers, starts).astype(dtype, copy=False)
        return pa.array(sums, values.type, mask=absent), deferred

    def open(self, values: pa.Array) -> RowFold:
        """See `AggregateFunction`."""
        kind = values.type
        if self._root is TypeRoot.DECIMAL and kind.precision > _COMPACT_DIGITS:
            limit = 10**kind.precision - 1
        elif self._root is TypeRoot.DECIMAL:
            limit = int(_INT64.max)
        else:
            limit = int(np.iinfo(kind.to_pandas_dtype()).max)

        def add(total: int | None, value: int | None) -> int | None:
            if total is None or value is None:
                return value if total is None else total
            return self._checked(limit, total + value, total, "+", value)

        def retract(total: int | None, value: int | None) -> int | None:
            if value is None:
                return total
            if total is None:
                return self._checked(limit, -value, f"-{value}")
            return self._checked(limit, total - value, total, "-", value)

        return RowFold(_inputs(values), add, lambda totals: _column(totals, kind), retract)


@dataclasses.dataclass(frozen=True, slots=True)
class Product(_Numeric):
    """The product of the values that are not null; null when none was added."""

    def open(self, values: pa.Array) -> RowFold:
        """See `AggregateFunction`."""
        kind = values.type
        step: Callable[[Any, Any, bool], Any]
        if self._root is TypeRoot.DECIMAL:
            step = self._decimal_step(kind)
        elif self._root in FLOATS:
            step = _float_step
        else:
            step = self._whole_step(int(np.iinfo(kind.to_pandas_dtype()).max))

        def add(total: Any, value: Any) -> Any:
            if total is None or value is None:
                return value if total is None else total
            return step(total, value, False)

        def retract(total: Any, value: Any) -> Any:
            return total if total is None or value is None else step(total, value, True)

        return RowFold(_inputs(values), add, lambda totals: _column(totals, kind), retract)

    def _whole_step(self, most: int) -> Callable[[int, int, bool], int | None]:
        def step(total: int, value: int, retract: bool) -> int | None:
            if not retract:
                return self._checked(most, total * value, total, "*", value)
            if value == 0:
                raise AggregationRefused("/ by zero")
            whole = abs(total) // abs(value)
            if (total < 0) != (value < 0):
                whole = -whole
            return self._checked(most, whole, total, "/", value)

        return step

    def _decimal_step(self, kind: pa.DataType) -> Callable[[int, int, bool], int | None]:
        unit, limit = 10**kind.scale, 10**kind.precision - 1

        def step(total: int, value: int, retract: bool) -> int | None:
            if retract:
                _require_exact(total, value)
                above, below = total * unit, value
            else:
                above, below = total * value, unit
            rounded = (2 * abs(above) + abs(below)) // (2 * abs(below))  # half up
            return self._checked(limit, rounded if (above < 0) == (below < 0) else -rounded)

        return step


# --------------------------------------------------------------------------- tier one: sums


def _leaving(numbers: np.ndarray, most: int, segments: Segments) -> np.ndarray | None:
    """Which sums might leave the bounds, on the way or at the end: bool per segment; None = none.

    `numbers` are int64 or float64 per row, exact or rounded to float64; `most` is the greatest
    sum.
    """
    largest = max(int(numbers.max()), -int(numbers.min()))
    longest = int((segments.lasts - segments.starts).max()) + 1
    if largest * longest <= most * _NEARLY:
        return None
    sizes = np.add.reduceat(np.abs(numbers.astype(np.float64)), segments.starts)
    overflows: np.ndarray = sizes > (most * _NEARLY if most > 1 << 50 else most)
    return overflows


def _signed_floats(values: pa.Array, present: np.ndarray | None, segments: Segments) -> np.ndarray:
    numbers = values.to_numpy(zero_copy_only=False)
    if segments.ops is not None:
        numbers = np.where(segments.where(Op.RETRACT), -numbers, numbers)
        opened = segments.where(Op.BASE_RETRACT)
        with np.errstate(invalid="ignore"):
            numbers[opened] -= numbers[opened]
    if present is not None:  # adding -0.0 changes nothing, not even the sign of a zero
        numbers = np.where(present, numbers, numbers.dtype.type(-0.0))
    return numbers


def _float_totals(numbers: np.ndarray, segments: Segments) -> np.ndarray:
    """Sums of floating numbers, added one after the other in their own precision.

    Round `n` adds the n-th row of every segment that has one; when few remain, each is finished
    by itself.
    """
    starts, ends = segments.starts, segments.lasts + 1
    totals = numbers[starts]
    offset = 1
    groups = np.arange(len(starts))
    with np.errstate(all="ignore"):
        while True:
            groups = groups[ends[groups] - starts[groups] > offset]
            if len(groups) <= _FEW_ROWS:
                break
            totals[groups] += numbers[starts[groups] + offset]
            offset += 1
        for group in groups.tolist():
            rest = numbers[starts[group] + offset - 1 : ends[group]].copy()
            rest[0] = totals[group]
            totals[group] = np.add.accumulate(rest)[-1]
    return totals


def _decimal_totals(
    values: pa.Array, present: np.ndarray | None, signs: np.ndarray | None, segments: Segments
) -> tuple[np.ndarray, np.ndarray, np.ndarray | None]:
    """Lower and upper halves of sums, exact in 128 bits, and which of them might not fit."""
    low, high = _halves(values)
    if present is not None:
        low, high = np.where(present, low, 0), np.where(present, high, 0)
    digits, starts = values.type.precision, segments.starts
    limit = int(_INT64.max)
    if np.array_equal(high, low >> 63):
        signed = low if signs is None else low * signs
        overflows = _leaving(signed, limit, segments)
        if overflows is None or digits <= _COMPACT_DIGITS:
            sums = np.add.reduceat(signed, starts)
            return sums, sums >> 63, overflows
    if digits > _COMPACT_DIGITS:
        limit = 10**digits - 1
    overflows = _leaving(high * 2.0**64 + low.view(np.uint64), limit, segments)
    limbs = [
        np.add.reduceat(limb if signs is None else limb * signs, starts)
        for limb in (low & _LIMB, (low >> 32) & _LIMB, high)
    ]
    limbs[1] += limbs[0] >> 32
    limbs[2] += limbs[1] >> 32
    return limbs[1] << 32 | limbs[0] & _LIMB, limbs[2], overflows


# ----------------------------------------------------------------- tier two: values as numbers


def _inputs(values: pa.Array) -> list[Any]:
    """Whole numbers, unscaled decimals, or numpy's floats; None for null."""
    kind = values.type
    if pa.types.is_floating(kind):
        floats = values.fill_null(0).to_numpy(zero_copy_only=False)
        return _with_nulls(list(floats), values)
    if not pa.types.is_decimal(kind):
        return objects_of(values)
    low, high = _halves(values)
    unscaled = (high.astype(object) << 64) | low.view(np.uint64).astype(object)
    return _with_nulls(unscaled.tolist(), values)


def _with_nulls(numbers: list[Any], values: pa.Array) -> list[Any]:
    if not values.null_count:
        return numbers
    valid = valid_mask(values).tolist()
    return [number if present else None for number, present in zip(numbers, valid, strict=True)]


def _column(totals: list[Any], kind: pa.DataType) -> pa.Array:
    if not pa.types.is_decimal(kind):
        return pa.array(totals, kind)
    absent = np.array([total is None for total in totals])
    numbers = np.array([total or 0 for total in totals], dtype=object)
    low = (numbers & _LOW).astype(np.uint64).view(np.int64)
    return _decimal_array(low, (numbers >> 64).astype(np.int64), kind, absent)


def _halves(values: pa.Array) -> tuple[np.ndarray, np.ndarray]:
    """Lower and upper halves of unscaled decimals, int64; undefined for nulls."""
    pairs = np.frombuffer(values.buffers()[1], dtype=np.int64).reshape(-1, 2)
    pairs = pairs[values.offset : values.offset + len(values)]
    return np.ascontiguousarray(pairs[:, 0]), np.ascontiguousarray(pairs[:, 1])


def _decimal_array(
    low: np.ndarray, high: np.ndarray, kind: pa.DataType, absent: np.ndarray | None
) -> pa.Array:
    """Decimals of the halves of unscaled values; null where `absent` is true."""
    validity = None
    if absent is not None and absent.any():
        validity = pa.py_buffer(np.packbits(~absent, bitorder="little"))
    pairs = np.column_stack([low, high])
    return pa.Array.from_buffers(kind, len(low), [validity, pa.py_buffer(pairs)])


def _float_step(total: Any, value: Any, retract: bool) -> Any:
    return total / value if retract else total * value


def _require_exact(number: int, divisor: int) -> None:
    """Check that the quotient has finitely many digits, as Java's exact division asks for."""
    if divisor == 0:
        raise AggregationRefused("Division by zero" if number else "Division undefined")
    rest = abs(divisor)
    for prime in (2, 5):
        while rest % prime == 0:
            rest //= prime
    if number % rest:
        raise AggregationRefused(
            "Non-terminating decimal expansion; no exact representable decimal result."
        )
