# SPDX-License-Identifier: Apache-2.0
"""`product`: multiplied row by row, divided by what is taken back.

Source: SEMANTICS.md §B.3. Whole numbers refuse each product that does not fit and divide towards
zero; floating ones are IEEE; decimals are exact, then rounded half up, and null when they need
more digits than the type has. Numbers go in rounds over all segments. Decimals are Python
integers, one row at a time, in segments of more than one row (1.5 M rows/s).
"""

import dataclasses

import numpy as np
import pyarrow as pa

from storage.format.types.types import DataField, TypeRoot
from storage.lsm.merge_functions.aggregators.contract import arithmetic_refused, renumbered
from storage.lsm.merge_functions.aggregators.ignore_retract import spread
from storage.lsm.merge_functions.aggregators.numbers import (
    FLOATS,
    JAVA_WORDS,
    decimal_array,
    numeric_root,
    split,
    unscaled,
)
from storage.lsm.merge_functions.aggregators.rounds import Rounds
from storage.lsm.merge_functions.segments import Segments, first_where, subset, valid_mask

__all__ = ["Product"]


class _Refused(ArithmeticError):
    """A step that has no result; the argument says why."""


@dataclasses.dataclass(frozen=True, slots=True)
class Product:
    """The product of the values that are not null; null when none was added.

    Attributes:
        field: the column, of a numeric type.
        root: its type.
    """

    field: DataField
    root: TypeRoot
    name: str = "product"
    retractable: bool = True

    @staticmethod
    def of(field: DataField, name: str) -> "Product":
        """The function for a column.

        Raises:
            InvalidOptionError: the column is not numeric.
        """
        return Product(field, numeric_root(field, name))

    def reduce(self, values: pa.Array, segments: Segments) -> pa.Array:
        """See `Aggregator`."""
        keep = valid_mask(values)
        if segments.retract is not None:
            # nothing can be taken back from nothing
            adds = first_where(keep & ~segments.retract, segments.starts, segments.rows)
            begun = np.where(adds < 0, segments.rows, adds)[segments.ids]
            keep &= np.arange(segments.rows, dtype=np.int64) >= begun
        if keep.all():
            return self._products(values, segments)
        groups, left = subset(keep, segments)
        with renumbered(groups):
            made = self._products(values.filter(pa.array(keep)), left)
        return spread(made, groups, len(segments.starts))

    def _products(self, values: pa.Array, segments: Segments) -> pa.Array:
        if len(segments.starts) == segments.rows:
            return values
        if self.root is TypeRoot.DECIMAL:
            return self._decimals(values, segments)
        numbers = values.to_numpy(zero_copy_only=False)
        if self.root in FLOATS:
            return pa.array(_float_products(numbers, segments), values.type)
        return pa.array(self._integers(numbers, segments), values.type)

    def _integers(self, numbers: np.ndarray, segments: Segments) -> np.ndarray:
        bounds = np.iinfo(numbers.dtype)
        wide = numbers.astype(np.int64, copy=False)
        products = wide[segments.starts]
        takes = segments.retract
        rounds = Rounds(segments)
        for groups, rows in rounds:
            old, factor = products[groups], wide[rows]
            new, wrong = _multiplied(old, factor, bounds)
            if takes is not None:
                divided, undivided = _divided(old, factor, bounds)
                new = np.where(takes[rows], divided, new)
                wrong = np.where(takes[rows], undivided, wrong)
            if wrong.any():
                at = int(np.argmax(wrong))
                taken = takes is not None and bool(takes[rows[at]])
                self._refuse(int(old[at]), int(factor[at]), taken, int(groups[at]))
            products[groups] = new
        for group, first, behind in rounds.tails:
            taken_back = (
                [False] * (behind - first) if takes is None else takes[first:behind].tolist()
            )
            total = int(products[group])
            for factor_, taken in zip(wide[first:behind].tolist(), taken_back, strict=True):
                before = total
                if taken and factor_ == 0:
                    self._refuse(before, factor_, taken, group)
                total = _truncated(before, factor_) if taken else before * factor_
                if not bounds.min <= total <= bounds.max:
                    self._refuse(before, factor_, taken, group)
            products[group] = total
        return products.astype(numbers.dtype, copy=False)

    def _refuse(self, old: int, factor: int, taken: bool, segment: int) -> None:
        if taken and factor == 0:
            arithmetic_refused("/ by zero", self.name, self.field, segment)
        word = JAVA_WORDS[self.root]
        problem = f"{word} overflow: {old} {'/' if taken else '*'} {factor}"
        arithmetic_refused(problem, self.name, self.field, segment)

    def _decimals(self, values: pa.Array, segments: Segments) -> pa.Array:
        lasts = segments.lasts
        several = np.flatnonzero(lasts > segments.starts)
        made = unscaled(values.take(pa.array(segments.starts)))
        absent = np.zeros(len(made), dtype=bool)
        scale, bound = values.type.scale, 10**values.type.precision
        numbers = unscaled(values).tolist()
        takes = np.zeros(segments.rows, bool) if segments.retract is None else segments.retract
        flags = takes.tolist()
        for segment, first, last in zip(
            several.tolist(),
            segments.starts[several].tolist(),
            lasts[several].tolist(),
            strict=True,
        ):
            total: int | None = numbers[first]
            for row in range(first + 1, last + 1):
                try:
                    total = _decimal_step(total, numbers[row], flags[row], scale, bound)
                except _Refused as error:
                    arithmetic_refused(str(error), self.name, self.field, segment)
            absent[segment] = total is None
            made[segment] = total or 0
        return decimal_array(*split(made), values.type, absent)


def _multiplied(
    old: np.ndarray, factor: np.ndarray, bounds: np.iinfo
) -> tuple[np.ndarray, np.ndarray]:
    with np.errstate(over="ignore"):
        new = old * factor
    if bounds.bits < 64:
        return new, (new < bounds.min) | (new > bounds.max)
    plain = np.where((old == 0) | (old == -1), 1, old)
    wrong = (old != 0) & (old != -1) & (new // plain != factor)
    return new, wrong | ((old == -1) & (factor == bounds.min))


def _divided(
    old: np.ndarray, factor: np.ndarray, bounds: np.iinfo
) -> tuple[np.ndarray, np.ndarray]:
    wrong = (factor == 0) | ((factor == -1) & (old == bounds.min))
    plain = np.where(wrong, 1, factor)
    floor = old // plain
    return floor + ((floor * plain != old) & ((old < 0) != (plain < 0))), wrong


def _truncated(number: int, divisor: int) -> int:
    whole = abs(number) // abs(divisor)
    return whole if (number < 0) == (divisor < 0) else -whole


def _float_products(numbers: np.ndarray, segments: Segments) -> np.ndarray:
    products = numbers[segments.starts]
    takes = segments.retract
    with np.errstate(all="ignore"):
        rounds = Rounds(segments)
        for groups, rows in rounds:
            new = products[groups] * numbers[rows]
            if takes is not None:
                new = np.where(takes[rows], products[groups] / numbers[rows], new)
            products[groups] = new
        for group, first, behind in rounds.tails:
            total = products[group]
            # runs of rows that all add, or all take back
            taken = np.zeros(behind - first, bool) if takes is None else takes[first:behind]
            edges = np.flatnonzero(taken[1:] != taken[:-1]) + 1
            for run in np.split(np.arange(first, behind), edges):
                tail = np.concatenate([[total], numbers[run]]).astype(numbers.dtype)
                fold = np.divide if len(run) and taken[run[0] - first] else np.multiply
                total = fold.accumulate(tail)[-1]
            products[group] = total
    return products


def _decimal_step(
    total: int | None, number: int, taken: bool, scale: int, bound: int
) -> int | None:
    if total is None:
        return None if taken else number
    if taken:
        above, below = total * 10**scale, number
        _require_exact(total, number)
    else:
        above, below = total * number, 10**scale
    rounded = (2 * abs(above) + abs(below)) // (2 * abs(below))  # half up
    if rounded >= bound:
        return None
    return rounded if (above < 0) == (below < 0) else -rounded


def _require_exact(number: int, divisor: int) -> None:
    """Check that the quotient has finitely many digits, as Java's exact division asks for."""
    if divisor == 0:
        raise _Refused("Division by zero" if number else "Division undefined")
    rest = abs(divisor)
    for prime in (2, 5):
        while rest % prime == 0:
            rest //= prime
    if number % rest:
        raise _Refused("Non-terminating decimal expansion; no exact representable decimal result.")
