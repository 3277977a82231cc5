# SPDX-License-Identifier: Apache-2.0
"""`collect`: arrays one behind the other, or as a set. Source: SEMANTICS.md §B.3, detail 5."""

import dataclasses
from collections.abc import Mapping

import numpy as np
import pyarrow as pa

from storage.format.types.types import ArrayType, DataField
from storage.lsm.merge_functions.aggregators.contract import wrong_type
from storage.lsm.merge_functions.aggregators.elements import Elements, Histories
from storage.lsm.merge_functions.aggregators.identity import codes_of
from storage.lsm.merge_functions.segments import Segments, segment_ids
from storage.options.options import option_value

__all__ = ["Collect"]


@dataclasses.dataclass(frozen=True, slots=True)
class Collect:
    """The elements of all arrays; what is taken back removes one equal element each.

    Attributes:
        field: the column.
        distinct: whether equal elements are kept once, in the order of their arrival.
    """

    field: DataField
    distinct: bool
    name: str = "collect"
    retractable: bool = True

    @staticmethod
    def of(field: DataField, name: str, options: Mapping[str, str]) -> "Collect":
        """The function for a column.

        Raises:
            InvalidOptionError: the column is no ARRAY.
        """
        if not isinstance(field.type, ArrayType):
            raise wrong_type("collect", "'Array'", field)
        return Collect(field, option_value(options, f"fields.{field.name}.distinct"), name)

    def reduce(self, values: pa.Array, segments: Segments) -> pa.Array:
        """See `Aggregator`."""
        if not segments.rows:
            return values
        elements = Elements.of(values, segments)
        if self.distinct:
            histories = Histories.of(elements, codes_of(elements.parts[0]))
            firsts = histories.first(histories.live)
            return elements.collected(np.sort(histories.order[firsts[firsts >= 0]]))
        if not elements.taken.any():
            return elements.collected(~elements.taken)
        return elements.collected(_left_over(elements))


def _left_over(elements: Elements) -> np.ndarray:
    """Which elements stay: of equal ones the oldest go first."""
    histories = Histories.of(elements, codes_of(elements.parts[0]))
    taken = elements.taken[histories.order]
    starts, count = histories.starts, len(taken)
    ids = segment_ids(starts, count)
    # elements there are after each step, did the taking not stop at none
    steps = np.cumsum(np.where(taken, -1, 1))
    before = np.where(starts > 0, steps[starts - 1], 0)
    steps -= before[ids]
    lasts = np.append(starts[1:], count) - 1
    left = steps[lasts] - np.minimum(np.minimum.reduceat(steps, starts), 0)
    adds = np.cumsum(~taken)
    behind = adds[lasts][ids] - adds  # further ones that were added later
    stays = np.zeros(count, dtype=bool)
    stays[histories.order] = ~taken & (behind < left[ids])
    return stays
