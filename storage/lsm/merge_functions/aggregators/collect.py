# SPDX-License-Identifier: Apache-2.0
"""`collect`, `merge_map` and `merge_map_with_keytime`. Source: SEMANTICS.md §B.3, 5 to 7."""

import dataclasses
from collections.abc import Mapping
from typing import ClassVar

import numpy as np
import pyarrow as pa

from storage.format.types.types import (
    AtomicType,
    DataField,
    MapType,
    RowType,
    TypeRoot,
)
from storage.lsm.merge_functions.aggregators.elements import (
    REMOVES,
    Elements,
    KeyedFold,
    ListFold,
    Numbers,
    codes_of,
)
from storage.lsm.merge_functions.aggregators.function import (
    AggregateFunction,
    RowFold,
    option_refused,
    wrong_type,
)
from storage.lsm.merge_functions.segments import Op, Segments, valid_mask
from storage.lsm.merge_functions.sequence_order import dense_ranks
from storage.options.options import option_value

__all__ = ["Collect", "MergeMap", "MergeMapWithKeyTime"]


@dataclasses.dataclass(frozen=True, slots=True)
class Collect(AggregateFunction):
    """The elements of all arrays; a retraction removes one equal element each.

    Attributes:
        distinct: whether equal elements are kept once, in the order of their arrival.
    """

    distinct: bool

    keeps_lone: ClassVar[bool] = False
    turns_late: ClassVar[bool] = False
    retractable: ClassVar[bool] = True

    @staticmethod
    def of(field: DataField, name: str, options: Mapping[str, str]) -> "Collect":
        """The function of a column, with its options."""
        return Collect(field, name, option_value(options, f"fields.{field.name}.distinct"))

    def reduce(
        self, values: pa.Array, segments: Segments
    ) -> tuple[pa.Array | None, np.ndarray | None]:
        """See `AggregateFunction`; sets, and keys with late rows or retractions, are left."""
        if self.distinct:
            return None, None
        present = valid_mask(values) & segments.where(Op.ADD, Op.BASE)
        before = np.concatenate([[0], np.cumsum(present)])
        kept = values.filter(pa.array(present))
        offsets = kept.offsets.to_numpy()[np.append(before[segments.starts], before[-1])]
        mask = pa.array(~np.logical_or.reduceat(present, segments.starts))
        made = pa.ListArray.from_arrays(pa.array(offsets), kept.values, type=values.type, mask=mask)
        return made, segments.keys_with(Op.LATE, Op.RETRACT, Op.BASE_RETRACT)

    def open(self, values: pa.Array) -> RowFold:
        """See `AggregateFunction`."""
        elements = Elements.of(values)
        codes = codes_of(elements.parts[0])
        if self.distinct:
            return elements.folded_by(_SetFold(codes, [0] * len(codes), level=False))
        return elements.folded_by(ListFold(codes))


class _SetFold(KeyedFold):
    """Even a null makes a set of what is there."""

    def add(self, total: Numbers | None, value: Numbers | None) -> Numbers | None:
        """See `RowFold`."""
        return total if total is value is None else KeyedFold.add(self, total, value or range(0))


@dataclasses.dataclass(frozen=True, slots=True)
class MergeMap(AggregateFunction):
    """The last value of every key; a retraction removes its keys, whatever the values."""

    keeps_lone: ClassVar[bool] = False
    retractable: ClassVar[bool] = True

    def open(self, values: pa.Array) -> RowFold:
        """See `AggregateFunction`."""
        entries = Elements.of(values)
        codes = codes_of(entries.parts[0])
        fold = KeyedFold(codes, [0] * len(codes), level=True, first_whole=True)
        return entries.folded_by(fold)


@dataclasses.dataclass(frozen=True, slots=True)
class MergeMapWithKeyTime(AggregateFunction):
    """The value of every key with the greatest stamp, a text inside the value.

    Entries without a value remove their key, those without a stamp do nothing; but the first map
    is taken as it is.

    Attributes:
        stamp: position of the stamp among the members of the value.
    """

    stamp: int

    keeps_lone: ClassVar[bool] = False

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
        return MergeMapWithKeyTime(field, name, names.index(wanted))

    def open(self, values: pa.Array) -> RowFold:
        """See `AggregateFunction`."""
        entries = Elements.of(values)
        keys, items = entries.parts
        stamps = items.flatten()[self.stamp]
        ranks = np.where(valid_mask(stamps), dense_ranks([stamps]), REMOVES + 1)
        ranks = np.where(valid_mask(items), ranks, REMOVES).tolist()
        fold = KeyedFold(codes_of(keys), ranks, level=False, first_whole=True)
        return entries.folded_by(fold)
