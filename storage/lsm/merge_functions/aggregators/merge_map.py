# SPDX-License-Identifier: Apache-2.0
"""`merge_map` and `merge_map_with_keytime`: maps laid over each other.

Source: SEMANTICS.md §B.3, details 6 and 7. Entries stand in the order in which their keys came.
"""

import dataclasses
from collections.abc import Mapping

import numpy as np
import pyarrow as pa

from storage.format.types.types import AtomicType, DataField, MapType, RowType, TypeRoot
from storage.lsm.merge_functions.aggregators.contract import (
    option_refused,
    require_no_retractions,
    wrong_type,
)
from storage.lsm.merge_functions.aggregators.elements import Elements, Histories
from storage.lsm.merge_functions.aggregators.identity import codes_of
from storage.lsm.merge_functions.segments import Segments, first_where, valid_mask
from storage.options.options import option_value

__all__ = ["MergeMap", "MergeMapWithKeyTime"]


@dataclasses.dataclass(frozen=True, slots=True)
class MergeMap:
    """The last value of every key; keys that are taken back go, whatever their values."""

    name: str = "merge_map"
    retractable: bool = True

    @staticmethod
    def of(field: DataField, name: str) -> "MergeMap":
        """The function for a column.

        Raises:
            InvalidOptionError: the column is no MAP.
        """
        if not isinstance(field.type, MapType):
            raise wrong_type("merge map", "'MAP'", field)
        return MergeMap(name)

    def reduce(self, values: pa.Array, segments: Segments) -> pa.Array:
        """See `Aggregator`."""
        if not segments.rows:
            return values
        entries = Elements.of(values, segments)
        histories = Histories.of(entries, codes_of(entries.parts[0]))
        return _entries(entries, histories, histories.last(histories.live))


@dataclasses.dataclass(frozen=True, slots=True)
class MergeMapWithKeyTime:
    """The value of every key with the greatest stamp, a text inside the value.

    Attributes:
        field: the column.
        stamp: position of the stamp among the members of the value.
    """

    field: DataField
    stamp: int
    name: str = "merge_map_with_keytime"
    retractable: bool = False

    @staticmethod
    def of(field: DataField, name: str, options: Mapping[str, str]) -> "MergeMapWithKeyTime":
        """The function for a column.

        Raises:
            InvalidOptionError: the column is no MAP to ROWs with a stamp of type STRING.
        """
        type_ = field.type
        if not isinstance(type_, MapType):
            raise wrong_type("merge map", "'MAP'", field)
        if not isinstance(type_.value, RowType) or len(type_.value.fields) < 2:
            raise wrong_type("merge map", "a MAP whose values are ROWs of at least 2 fields", field)
        names = [member.name for member in type_.value.fields]
        wanted = option_value(options, f"fields.{field.name}.ts-field") or names[-1]
        if wanted not in names:
            raise option_refused(
                f"Timestamp field '{wanted}' not found in ROW type for field '{field.name}'",
                field,
                "ts-field",
                f"give one of {', '.join(names)}",
            )
        stamp = type_.value.fields[names.index(wanted)].type
        texts = (TypeRoot.CHAR, TypeRoot.VARCHAR)
        if not (isinstance(stamp, AtomicType) and stamp.root in texts):
            raise option_refused(
                f"Timestamp field '{wanted}' must be of type STRING",
                field,
                "ts-field",
                "stamps are compared as texts; store them so",
            )
        return MergeMapWithKeyTime(field, names.index(wanted), name)

    def reduce(self, values: pa.Array, segments: Segments) -> pa.Array:
        """See `Aggregator`."""
        require_no_retractions(self.name, self.field, segments)
        if not segments.rows:
            return values
        entries = Elements.of(values, segments)
        keys, rows = entries.parts
        # the first map of a segment is taken as it is, with its null values and null stamps
        first = first_where(valid_mask(values), segments.starts, segments.rows)
        initial = entries.row == first[entries.segment]
        histories = Histories.of(entries, codes_of(keys), ~valid_mask(rows) & ~initial)
        order = histories.order
        stamps = rows.flatten()[self.stamp].take(pa.array(order))
        chosen = histories.first(histories.greatest(histories.live & valid_mask(stamps), [stamps]))
        kept = histories.first(histories.live & initial[order])
        return _entries(entries, histories, np.where(chosen < 0, kept, chosen))


def _entries(entries: Elements, histories: Histories, chosen: np.ndarray) -> pa.Array:
    """Maps of the chosen entry of each history (position, or -1)."""
    there, arrival = histories.by_arrival(chosen)
    picked = pa.array(histories.order[chosen[there]])
    keys, values = entries.parts
    return entries.with_parts((keys.take(picked), values.take(picked)), arrival)
