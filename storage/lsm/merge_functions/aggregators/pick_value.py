# SPDX-License-Identifier: Apache-2.0
"""Aggregate functions whose result is one of the values as it stands, or null.

Source: SEMANTICS.md §B.3. Any type; one position per segment and one `take`.
"""

import dataclasses

import numpy as np
import pyarrow as pa

from storage.format.types.types import DataField
from storage.lsm.merge_functions.aggregators.contract import require_no_retractions
from storage.lsm.merge_functions.segments import (
    Segments,
    first_where,
    last_where,
    take_or_null,
    valid_mask,
)

__all__ = [
    "FirstNonNullValue",
    "FirstValue",
    "LastNonNullValue",
    "LastValue",
    "PrimaryKey",
    "without_retracted",
]


def without_retracted(positions: np.ndarray, segments: Segments) -> np.ndarray:
    """The positions, and -1 where the row takes back."""
    if segments.retract is None:
        return positions
    return np.where((positions >= 0) & segments.retract[positions], np.int64(-1), positions)


@dataclasses.dataclass(frozen=True, slots=True)
class PrimaryKey:
    """Key columns: the value of the last row, whatever its kind."""

    name: str = "primary-key"
    retractable: bool = True

    def reduce(self, values: pa.Array, segments: Segments) -> pa.Array:
        """See `Aggregator`."""
        return take_or_null(values, segments.lasts)


@dataclasses.dataclass(frozen=True, slots=True)
class LastValue:
    """The last value, null included; null when the last row takes back."""

    name: str = "last_value"
    retractable: bool = True

    def reduce(self, values: pa.Array, segments: Segments) -> pa.Array:
        """See `Aggregator`."""
        return take_or_null(values, without_retracted(segments.lasts, segments))


@dataclasses.dataclass(frozen=True, slots=True)
class LastNonNullValue:
    """The last value that is not null; null when it was taken back."""

    name: str = "last_non_null_value"
    retractable: bool = True

    def reduce(self, values: pa.Array, segments: Segments) -> pa.Array:
        """See `Aggregator`."""
        if values.null_count == 0:
            positions = segments.lasts
        else:
            positions = last_where(valid_mask(values), segments.starts, segments.rows)
        return take_or_null(values, without_retracted(positions, segments))


@dataclasses.dataclass(frozen=True, slots=True)
class FirstValue:
    """The first value, null included."""

    field: DataField
    name: str = "first_value"
    retractable: bool = False

    def reduce(self, values: pa.Array, segments: Segments) -> pa.Array:
        """See `Aggregator`."""
        require_no_retractions(self.name, self.field, segments)
        return take_or_null(values, segments.starts)


@dataclasses.dataclass(frozen=True, slots=True)
class FirstNonNullValue:
    """The first value that is not null."""

    field: DataField
    name: str = "first_non_null_value"
    retractable: bool = False

    def reduce(self, values: pa.Array, segments: Segments) -> pa.Array:
        """See `Aggregator`."""
        require_no_retractions(self.name, self.field, segments)
        if values.null_count == 0:
            return take_or_null(values, segments.starts)
        return take_or_null(values, first_where(valid_mask(values), segments.starts, segments.rows))
