# SPDX-License-Identifier: Apache-2.0
"""`fields.<f>.ignore-retract`: -U and -D rows leave the column as it is (SEMANTICS.md §B.3)."""

import dataclasses

import numpy as np
import pyarrow as pa

from storage.lsm.merge_functions.aggregators.contract import Aggregator, renumbered
from storage.lsm.merge_functions.segments import Segments, subset, take_or_null

__all__ = ["IgnoreRetract", "spread"]


@dataclasses.dataclass(frozen=True, slots=True)
class IgnoreRetract:
    """Another function, without the rows that take back.

    Attributes:
        inner: the function.
    """

    inner: Aggregator
    retractable: bool = True

    @property
    def name(self) -> str:
        """Of the inner function."""
        return self.inner.name

    def reduce(self, values: pa.Array, segments: Segments) -> pa.Array:
        """See `Aggregator`; null where all rows of a segment take back."""
        if segments.retract is None:
            return self.inner.reduce(values, segments)
        keep = ~segments.retract
        groups, left = subset(keep, segments)
        with renumbered(groups):
            made = self.inner.reduce(values.filter(pa.array(keep)), left)
        return spread(made, groups, len(segments.starts))


def spread(made: pa.Array, groups: np.ndarray, count: int) -> pa.Array:
    """Values of some segments as values of all, null for the others.

    Args:
        made: one value per number in `groups`.
        groups: segment numbers, ascending, each once.
        count: segments there are.
    """
    if len(groups) == count:
        return made
    positions = np.full(count, -1, dtype=np.int64)
    positions[groups] = np.arange(len(groups), dtype=np.int64)
    return take_or_null(made, positions)
