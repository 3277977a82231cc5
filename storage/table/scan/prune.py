# SPDX-License-Identifier: Apache-2.0
"""Predicates on ranges: whether a file, manifest or partition may hold a matching row.

Pure. Source: SEMANTICS.md §J; where pruning is sound is decided in `scan`.
"""

import dataclasses
from collections.abc import Callable, Mapping
from typing import Any

import pyarrow as pa

from storage.format.files.parquet.parquet import ColumnRange
from storage.format.row.row_codec import Timestamp
from storage.table.scan.predicate import (
    And,
    Compare,
    In,
    IsNull,
    Not,
    Op,
    Or,
    Predicate,
    literal_scalar,
    normalised,
)


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Range:
    """What is known about a column in some file, manifest or partition.

    Attributes:
        low: smallest value or a lower bound, as `row_codec.decode_row` gives it; None = unknown.
        high: largest value or an upper bound; None = unknown.
        null_count: None = unknown.
        row_count: rows the range is about; None = unknown.
    """

    low: Any = None
    high: Any = None
    null_count: int | None = None
    row_count: int | None = None

    @property
    def only_nulls(self) -> bool:
        """Whether every value is null, for certain."""
        return self.row_count is not None and self.null_count == self.row_count


def row_group_range(stored: ColumnRange | None) -> Range | None:
    """The statistics of a row group as a range, where they have the form of decoded rows."""
    if stored is None or not isinstance(stored.minimum, int | str):
        return None
    return Range(
        low=stored.minimum,
        high=stored.maximum,
        null_count=stored.null_count,
        row_count=stored.row_count,
    )


def could_match(
    predicate: Predicate, ranges: Callable[[str], Range | None], types: Mapping[str, pa.DataType]
) -> bool:
    """Whether some row may make the predicate true. False only when none can.

    Args:
        ranges: what is known of a column; None = nothing.
        types: Arrow type of each column that `ranges` knows.
    """
    return _could(normalised(predicate), ranges, types)


def _could(
    predicate: Predicate, ranges: Callable[[str], Range | None], types: Mapping[str, pa.DataType]
) -> bool:
    match predicate:
        case And(parts):
            return all(_could(part, ranges, types) for part in parts)
        case Or(parts):
            return any(_could(part, ranges, types) for part in parts)
        case IsNull(column):
            bounds = ranges(column)
            return bounds is None or bounds.null_count != 0
        case Not(IsNull(column)):
            bounds = ranges(column)
            return bounds is None or not bounds.only_nulls
        case Compare(op, column, literal):
            return _could_compare(op, literal, ranges(column), types.get(column))
        case In(column, literals):
            bounds, type_ = ranges(column), types.get(column)
            return any(_could_compare(Op.EQ, literal, bounds, type_) for literal in literals)
        case _:
            return True


def _could_compare(op: Op, literal: Any, bounds: Range | None, type_: pa.DataType | None) -> bool:
    if literal is None:
        return False
    if bounds is None or type_ is None:
        return True
    if bounds.only_nulls:
        return False
    if bounds.low is None or bounds.high is None or pa.types.is_floating(type_):
        return True  # the range of floats does not cover NaN
    try:
        scalar = literal_scalar(literal, type_)
    except (pa.ArrowInvalid, pa.ArrowTypeError, pa.ArrowNotImplementedError):
        return True  # evaluation reports the error
    return scalar is None or _overlaps(op, bounds.low, bounds.high, row_value(scalar))


def _overlaps(op: Op, low: Any, high: Any, value: Any) -> bool:
    """Whether some x in [low, high] satisfies `x op value`."""
    result: bool
    match op:
        case Op.EQ:
            result = low <= value <= high
        case Op.NE:
            result = not low == value == high
        case Op.LT:
            result = low < value
        case Op.LE:
            result = low <= value
        case Op.GT:
            result = high > value
        case Op.GE:
            result = high >= value
    return result


_NANOS_PER_UNIT = {"s": 1_000_000_000, "ms": 1_000_000, "us": 1_000, "ns": 1}


def row_value(scalar: pa.Scalar) -> Any:
    """An Arrow scalar in the form of `row_codec.decode_row`; control plane only."""
    if pa.types.is_timestamp(scalar.type):
        nanos = scalar.value * _NANOS_PER_UNIT[scalar.type.unit]
        return Timestamp(nanos // 1_000_000, nanos % 1_000_000)
    if pa.types.is_date32(scalar.type) or pa.types.is_time32(scalar.type):
        return scalar.value
    return scalar.as_py()
