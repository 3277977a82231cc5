# SPDX-License-Identifier: Apache-2.0
"""Statistics of columns that are all at hand."""

from storage.format.row.stats import StatsAccumulator
from storage.format.types.types import DataField

__all__ = ["collect"]


def collect(columns, types, modes):
    """Statistics over all columns at once; modes: one for all columns, or one per column."""
    fields = [DataField(id=i, name=str(i), type=type_) for i, type_ in enumerate(types)]
    accumulator = StatsAccumulator(fields, modes)
    accumulator.add(columns)
    return accumulator.stats()
