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
from collections.abc import Callable, Mapping
from typing import Any, ClassVar

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from storage.format.types.types import MAX_LENGTH, AtomicType, DataField, TypeRoot
from storage.lsm.key_order import order_words
from storage.lsm.merge_functions.aggregators.function import (
    AggregateFunction,
    AggregationRefused,
    RowFold,
    objects_of,
    wrong_type,
)
from storage.lsm.merge_functions.segments import (
    Op,
    Segments,
    first_where,
    last_where,
    segment_ids,
    take_or_null,
    valid_mask,
)
from storage.options.options import option_value

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


# `listagg`: texts joined with a delimiter.
#
# Source: SEMANTICS.md §B.3, detail 4. Null and blank texts are passed over. With `distinct` the
# first text stays as it is; of the others only the parts join that are new and not blank.


_BLANKS = (
    "\t\n\x0b\x0c\r\x1c\x1d\x1e\x1f \u1680\u2000\u2001\u2002\u2003\u2004\u2005\u2006\u2008\u2009"
    "\u200a\u2028\u2029\u205f\u3000"
)
"""What Java holds for white space; no-break spaces are none."""
_Total = str | tuple[list[str], set[str]] | None
_NOT_BLANK = "[^" + "".join(f"\\x{{{ord(blank):x}}}" for blank in _BLANKS) + "]"


@dataclasses.dataclass(frozen=True, slots=True)
class ListAgg(AggregateFunction):
    """The texts of a segment as one.

    Attributes:
        distinct: whether texts are cut into parts at the delimiter, and no part joins twice.
    """

    delimiter: str
    distinct: bool

    keeps_lone: ClassVar[bool] = False

    @staticmethod
    def of(field: DataField, name: str, options: Mapping[str, str]) -> "ListAgg":
        """The function for a column.

        Raises:
            InvalidOptionError: the column is no STRING.
        """
        type_ = field.type
        if not (isinstance(type_, AtomicType) and type_.root is TypeRoot.VARCHAR):
            raise wrong_type("list agg", "'VarCharType'", field)
        if type_.length != MAX_LENGTH:
            raise wrong_type("list agg", "STRING (unbounded VARCHAR)", field)
        return ListAgg(
            field,
            name,
            option_value(options, f"fields.{field.name}.list-agg-delimiter"),
            option_value(options, f"fields.{field.name}.distinct"),
        )

    def reduce(
        self, values: pa.Array, segments: Segments
    ) -> tuple[pa.Array | None, np.ndarray | None]:
        """See `AggregateFunction`; late texts, and texts that are a base, are left."""
        if self.distinct:
            return None, None
        filled = pc.match_substring_regex(values, pattern=_NOT_BLANK).fill_null(False)
        keep = filled.to_numpy(zero_copy_only=False) & segments.where(Op.ADD)
        before = np.concatenate([[0], np.cumsum(keep)]).astype(np.int32)
        offsets = np.append(before[segments.starts], before[-1])
        mask = pa.array(offsets[1:] == offsets[:-1])
        lists = pa.ListArray.from_arrays(
            pa.array(offsets), values.filter(pa.array(keep)), mask=mask
        )
        return pc.binary_join(lists, self.delimiter), segments.keys_with(Op.LATE, Op.BASE)

    def open(self, values: pa.Array) -> RowFold:
        """See `AggregateFunction`; a total with `distinct` is its pieces, and all their parts."""
        separator = self.delimiter or " "

        def text(total: _Total) -> str | None:
            return self.delimiter.join(total[0]) if isinstance(total, tuple) else total

        def add(total: _Total, value: _Total) -> _Total:
            added = text(value)
            if added is None or not added.strip(_BLANKS):
                return total
            if total is None or (isinstance(total, str) and not total.strip(_BLANKS)):
                return added
            if not self.distinct:
                return f"{text(total)}{self.delimiter}{added}"
            if isinstance(total, str):
                total = ([total], set(total.split(separator)))
            pieces, parts = total
            for part in added.split(separator):
                if part not in parts and part.strip(_BLANKS):
                    parts.add(part)
                    pieces.append(part)
            return total

        return RowFold(
            objects_of(values),
            add,
            lambda totals: pa.array([text(total) for total in totals], values.type),
        )


# Aggregate functions whose result is one of the values unchanged, or null.
#
# Source: SEMANTICS.md §B.3. First and last values, of any type: one position per segment, one take.
# `max`, `min`, `bool_and` and `bool_or` order as Java does: -0.0 below 0.0, NaN above all, texts
# and bytes by unsigned byte. Numbers are reduced as integers that order alike; other types by their
# order words (`key_words`), word after word among the rows that are still level.


_ALL_ONES = np.uint64(0xFFFF_FFFF_FFFF_FFFF)


@dataclasses.dataclass(frozen=True, slots=True)
class PrimaryKey(AggregateFunction):
    """Key columns: the value of the last row, of any kind."""

    retractable: ClassVar[bool] = True

    def reduce(self, values: pa.Array, segments: Segments) -> tuple[pa.Array, None]:
        """See `AggregateFunction`."""
        return take_or_null(values, segments.lasts), None


@dataclasses.dataclass(frozen=True, slots=True)
class LastValue(AggregateFunction):
    """`last_value` and `last_non_null_value`: null when the value was retracted."""

    retractable: ClassVar[bool] = True

    def reduce(self, values: pa.Array, segments: Segments) -> tuple[pa.Array, None]:
        """See `AggregateFunction`."""
        skips_null = self.name == "last_non_null_value" and values.null_count > 0
        if segments.ops is None:
            last = segments.lasts
            if skips_null:
                last = last_where(valid_mask(values), segments.starts, segments.rows)
            return take_or_null(values, last), None
        back = (Op.RETRACT, Op.BASE_RETRACT)
        decides = segments.where(Op.ADD, Op.BASE, *back)
        valid = valid_mask(values)
        if skips_null:
            decides &= valid
        last = last_where(decides, segments.starts, segments.rows)
        rows = np.where((last >= 0) & segments.where(*back)[last], -1, last)
        late = segments.where(Op.LATE)
        if self.name == "last_non_null_value" and late.any():
            # late values count as earlier ones, so the first of them fills what is null
            behind = np.arange(segments.rows) > np.repeat(
                last, segments.lasts + 1 - segments.starts
            )
            filler = first_where(valid & late & behind, segments.starts, segments.rows)
            rows = np.where(rows >= 0, rows, filler)
        return take_or_null(values, rows), None


@dataclasses.dataclass(frozen=True, slots=True)
class FirstValue(AggregateFunction):
    """`first_value` and `first_non_null_value`.

    Java keeps the value of the row that opens the function. A late row is applied the other way
    round: it opens the function with the current value, and replaces that once it is open.
    """

    def reduce(self, values: pa.Array, segments: Segments) -> tuple[pa.Array, None]:
        """See `AggregateFunction`."""
        starts, rows = segments.starts, segments.rows
        if segments.ops is None and (self.name == "first_value" or not values.null_count):
            return take_or_null(values, starts), None
        opens = valid_mask(values) if self.name != "first_value" else np.ones(rows, dtype=bool)
        positions = first_where(opens & segments.where(Op.ADD), starts, rows)
        special = segments.keys_with(Op.LATE, Op.BASE)
        if special is not None and segments.ops is not None:
            lasts = segments.lasts
            for key in np.flatnonzero(special).tolist():
                span = slice(int(starts[key]), int(lasts[key]) + 1)
                row = self._first(segments.ops[span].tolist(), opens[span].tolist())
                positions[key] = starts[key] + row if row >= 0 else -1
        return take_or_null(values, positions), None

    def _first(self, ops: list[int], opens: list[bool]) -> int:
        """The row whose value remains at the end (-1: none), row by row."""
        current, is_open = -1, False
        for row, op in enumerate(ops):
            if op == Op.BASE:
                current = row
            elif op == Op.ADD and opens[row] and not is_open:
                current, is_open = row, True
            elif op == Op.OBSOLETE:
                is_open = is_open or opens[row]
            elif op == Op.LATE:
                current_opens = opens[current] if current >= 0 else self.name == "first_value"
                if current_opens and not is_open:
                    is_open = True
                else:
                    current = row
        return current


@dataclasses.dataclass(frozen=True, slots=True)
class Extreme(AggregateFunction):
    """The largest or the smallest value that is not null; false is below true."""

    @property
    def _largest(self) -> bool:
        return self.name in ("max", "bool_or")

    def reduce(self, values: pa.Array, segments: Segments) -> tuple[pa.Array, None]:
        """See `AggregateFunction`."""
        if segments.single:
            return values, None
        present = segments.present(values)
        numbers = _as_integers(values)
        if numbers is None:
            candidates = valid_mask(values) if present is None else present
            return self._by_words(values, candidates, segments), None
        absent = None
        if present is not None:
            bounds = np.iinfo(numbers.dtype)
            worst = np.array(bounds.min if self._largest else bounds.max, numbers.dtype)
            numbers = np.where(present, numbers, worst)
            absent = ~np.logical_or.reduceat(present, segments.starts)
        reduce = np.maximum if self._largest else np.minimum
        return _as_values(reduce.reduceat(numbers, segments.starts), absent, values.type), None

    def _by_words(self, values: pa.Array, candidates: np.ndarray, segments: Segments) -> pa.Array:
        ids = segment_ids(segments.starts, segments.rows)
        for word, _ in order_words([values]):
            if self._largest:
                best = np.maximum.reduceat(
                    np.where(candidates, word, np.uint64(0)), segments.starts
                )
            else:
                best = np.minimum.reduceat(np.where(candidates, word, _ALL_ONES), segments.starts)
            candidates = candidates & (word == best[ids])
        return take_or_null(values, first_where(candidates, segments.starts, segments.rows))


def _as_integers(values: pa.Array) -> np.ndarray | None:
    """Integers that order like the values, garbage for nulls; None for texts and wide decimals."""
    kind = values.type
    if pa.types.is_boolean(kind):
        values = values.cast(pa.uint8())
    elif pa.types.is_date32(kind) or pa.types.is_time32(kind):
        values = values.view(pa.int32())
    elif pa.types.is_timestamp(kind):
        values = values.view(pa.int64())
    elif not (pa.types.is_integer(kind) or pa.types.is_floating(kind)):
        return None
    numbers: np.ndarray = values.fill_null(0).to_numpy(zero_copy_only=False)
    if pa.types.is_floating(kind):
        nan = np.isnan(numbers)
        if nan.any():
            numbers = np.where(nan, np.array(np.nan, numbers.dtype), numbers)
        return _flipped(numbers.view(np.int32 if numbers.dtype == np.float32 else np.int64))
    return numbers


def _as_values(numbers: np.ndarray, absent: np.ndarray | None, kind: pa.DataType) -> pa.Array:
    if pa.types.is_boolean(kind):
        return pa.array(numbers.astype(bool), mask=absent)
    if pa.types.is_floating(kind):
        dtype = np.float32 if pa.types.is_float32(kind) else np.float64
        return pa.array(_flipped(numbers).view(dtype), kind, mask=absent)
    array = pa.array(numbers, mask=absent)
    return array if array.type == kind else array.view(kind)


def _flipped(bits: np.ndarray) -> np.ndarray:
    """Sign and magnitude to two's complement, and back."""
    return np.where(bits < 0, bits ^ np.iinfo(bits.dtype).max, bits)
