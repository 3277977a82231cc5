# SPDX-License-Identifier: Apache-2.0
"""`max`, `min`, `bool_and` and `bool_or`: the outermost value of each segment.

Source: SEMANTICS.md §B.3. The order is Java's: -0.0 below 0.0, NaN above all, texts and bytes by
unsigned byte. Numbers are reduced as integers that order alike; other types by their order words
(`key_words`), word after word among the rows that are still level.
"""

import dataclasses

import numpy as np
import pyarrow as pa

from storage.format.types.types import AtomicType, DataField, TypeRoot
from storage.lsm.key_words import order_words
from storage.lsm.merge_functions.aggregators.contract import require_no_retractions, wrong_type
from storage.lsm.merge_functions.segments import Segments, first_where, take_or_null, valid_mask

__all__ = ["BoolFold", "Extreme"]

_ALL_ONES = np.uint64(0xFFFF_FFFF_FFFF_FFFF)


@dataclasses.dataclass(frozen=True, slots=True)
class Extreme:
    """The largest or the smallest value that is not null.

    Attributes:
        field: the column, of a comparable type.
        largest: whether the largest is wanted.
    """

    field: DataField
    largest: bool
    retractable: bool = False

    @property
    def name(self) -> str:
        """`max` or `min`."""
        return "max" if self.largest else "min"

    @staticmethod
    def of(field: DataField, name: str) -> "Extreme":
        """The function for a column.

        Raises:
            InvalidOptionError: the type has no order.
        """
        if not isinstance(field.type, AtomicType):
            raise wrong_type(name, "comparable", field)
        return Extreme(field, name == "max")

    def reduce(self, values: pa.Array, segments: Segments) -> pa.Array:
        """See `Aggregator`."""
        require_no_retractions(self.name, self.field, segments)
        if len(segments.starts) == segments.rows:
            return values
        numbers = _as_integers(values)
        if numbers is None:
            return self._by_words(values, segments)
        return self._by_numbers(values, numbers, segments)

    def _by_numbers(self, values: pa.Array, numbers: np.ndarray, segments: Segments) -> pa.Array:
        absent = None
        if values.null_count:
            valid = valid_mask(values)
            bounds = np.iinfo(numbers.dtype)
            numbers = np.where(
                valid, numbers, np.array(bounds.min if self.largest else bounds.max, numbers.dtype)
            )
            absent = ~np.logical_or.reduceat(valid, segments.starts)
        reduce = np.maximum if self.largest else np.minimum
        return _as_values(reduce.reduceat(numbers, segments.starts), absent, values.type)

    def _by_words(self, values: pa.Array, segments: Segments) -> pa.Array:
        candidates = valid_mask(values)
        if segments.rows and not candidates.any():
            return values.take(pa.array(segments.starts))
        ids = segments.ids
        for word, _ in order_words([values]):
            if self.largest:
                best = np.maximum.reduceat(
                    np.where(candidates, word, np.uint64(0)), segments.starts
                )
            else:
                best = np.minimum.reduceat(np.where(candidates, word, _ALL_ONES), segments.starts)
            candidates &= word == best[ids]
        return take_or_null(values, first_where(candidates, segments.starts, segments.rows))


@dataclasses.dataclass(frozen=True, slots=True)
class BoolFold:
    """Whether all, or any, of the values that are not null are true.

    Attributes:
        field: the column.
        every: whether all have to be true.
    """

    field: DataField
    every: bool
    retractable: bool = False

    @property
    def name(self) -> str:
        """`bool_and` or `bool_or`."""
        return "bool_and" if self.every else "bool_or"

    @staticmethod
    def of(field: DataField, name: str) -> "BoolFold":
        """The function for a column.

        Raises:
            InvalidOptionError: the column is no BOOLEAN.
        """
        if not (isinstance(field.type, AtomicType) and field.type.root is TypeRoot.BOOLEAN):
            raise wrong_type(name.replace("_", " "), "'BooleanType'", field)
        return BoolFold(field, name == "bool_and")

    def reduce(self, values: pa.Array, segments: Segments) -> pa.Array:
        """See `Aggregator`."""
        require_no_retractions(self.name, self.field, segments)
        if len(segments.starts) == segments.rows:
            return values
        valid = valid_mask(values)
        truths = values.fill_null(self.every).to_numpy(zero_copy_only=False)
        reduce = np.logical_and if self.every else np.logical_or
        absent = ~np.logical_or.reduceat(valid, segments.starts) if values.null_count else None
        return pa.array(reduce.reduceat(truths, segments.starts), pa.bool_(), mask=absent)


def _as_integers(values: pa.Array) -> np.ndarray | None:
    """Integers that order like the values, garbage for nulls; None for texts and wide decimals."""
    kind = values.type
    if pa.types.is_integer(kind):
        return values.fill_null(0).to_numpy(zero_copy_only=False)
    if pa.types.is_date32(kind) or pa.types.is_time32(kind):
        return values.view(pa.int32()).fill_null(0).to_numpy(zero_copy_only=False)
    if pa.types.is_timestamp(kind):
        return values.view(pa.int64()).fill_null(0).to_numpy(zero_copy_only=False)
    if pa.types.is_floating(kind):
        numbers = values.fill_null(0).to_numpy(zero_copy_only=False)
        return _flipped(_bits(numbers, np.isnan(numbers)))
    return None


def _as_values(numbers: np.ndarray, absent: np.ndarray | None, kind: pa.DataType) -> pa.Array:
    if pa.types.is_floating(kind):
        wanted = np.float32 if pa.types.is_float32(kind) else np.float64
        return pa.array(_flipped(numbers).view(wanted), kind, mask=absent)
    made = pa.array(numbers, mask=absent)
    return made if made.type == kind else made.view(kind)


def _bits(numbers: np.ndarray, nan: np.ndarray) -> np.ndarray:
    integer = np.int32 if numbers.dtype == np.float32 else np.int64
    if nan.any():
        numbers = np.where(nan, np.array(np.nan, numbers.dtype), numbers)
    return numbers.view(integer)


def _flipped(bits: np.ndarray) -> np.ndarray:
    """Sign and magnitude to two's complement, and back."""
    return np.where(bits < 0, bits ^ np.iinfo(bits.dtype).max, bits)
