# SPDX-License-Identifier: Apache-2.0
"""`nested_update` and `nested_partial_update`: arrays of rows as small tables.

Source: SEMANTICS.md §B.3, detail 8. Nested rows stand in the order in which they, or their keys,
came. Null rows are left out. Only segments with both a limit and rows that take back are gone
through in Python, element by element.
"""

import dataclasses
from collections.abc import Mapping

import numpy as np
import pyarrow as pa

from storage.errors import InvalidRequestError
from storage.format.types.types import MAX_LENGTH, ArrayType, DataField, RowType
from storage.lsm.merge_functions.aggregators.contract import (
    option_refused,
    require_no_retractions,
    wrong_type,
)
from storage.lsm.merge_functions.aggregators.elements import Elements, Histories
from storage.lsm.merge_functions.aggregators.identity import Codes, codes_of, paired
from storage.lsm.merge_functions.segments import Segments, first_where, take_or_null, valid_mask
from storage.options.options import option_value

__all__ = ["NestedPartialUpdate", "NestedTable", "NestedUpdate"]

_NULL_STRATEGIES = ("merge", "ignore", "error")


@dataclasses.dataclass(frozen=True, slots=True)
class NestedTable:
    """What both functions know of the nested rows.

    Attributes:
        field: the column, ARRAY of ROW.
        key: positions of the members that identify a nested row; empty when none do.
        null_keys: what to do with rows with a null in their key: `merge` like others, `ignore`
            or `error`.
    """

    field: DataField
    key: tuple[int, ...]
    null_keys: str

    @staticmethod
    def of(field: DataField, options: Mapping[str, str]) -> "NestedTable":
        """Read the options of a column.

        Raises:
            InvalidOptionError: the column is no ARRAY of ROW, or an option does not fit.
        """
        type_ = field.type
        if not (isinstance(type_, ArrayType) and isinstance(type_.element, RowType)):
            raise wrong_type("nested table", "'Array<Row>'", field)
        prefix = f"fields.{field.name}."
        strategy = option_value(options, prefix + "nested-key-null-strategy").lower()
        if strategy not in _NULL_STRATEGIES:
            raise option_refused(
                f"Unsupported nested-key-null-strategy '{strategy}'",
                field,
                "nested-key-null-strategy",
                "give one of merge, ignore, error",
            )
        key = members(field, options, "nested-key")
        if not key:
            for suffix in ("nested-key-null-strategy", "nested-sequence-field"):
                if options.get(prefix + suffix) is not None:
                    raise option_refused(
                        f"Option 'fields.<field-name>.{suffix}' requires "
                        "'fields.<field-name>.nested-key' to be configured",
                        field,
                        suffix,
                        f"set `{prefix}nested-key`, or remove this option",
                    )
        return NestedTable(field, key, strategy)

    def rows(self, values: pa.Array, segments: Segments) -> tuple[Elements, Codes]:
        """The nested rows that take part, and codes of their keys (or of the whole rows).

        Raises:
            InvalidRequestError: a key holds null, and that is an error.
        """
        elements = Elements.of(values, segments)
        present = valid_mask(elements.parts[0])
        if segments.retract is not None:
            # what is taken back from nothing is not looked at
            begun = first_where(
                valid_mask(values) & ~segments.retract, segments.starts, segments.rows
            )
            begun = np.where(begun < 0, segments.rows, begun)
            present = present & (elements.row >= begun[elements.segment])
        elements = elements.only(present)
        if not self.key:
            return elements, codes_of(elements.parts[0])
        keys = elements.parts[0].flatten()
        whole = np.ones(len(elements.row), dtype=bool)
        for member in self.key:
            whole &= valid_mask(keys[member])
        if self.null_keys == "merge" or whole.all():
            return elements, paired(codes_of(keys[member]) for member in self.key)
        if self.null_keys == "error":
            raise InvalidRequestError(
                "Nested key contains null values. Primary key fields must not be null.",
                hint=f"set `fields.{self.field.name}.nested-key-null-strategy` to ignore or merge",
                field=self.field.name,
                segment=int(elements.segment[np.argmin(whole)]),
            )
        chosen = pa.array(whole)
        codes = paired(codes_of(keys[member].filter(chosen)) for member in self.key)
        return elements.only(whole), codes


def members(field: DataField, options: Mapping[str, str], suffix: str) -> tuple[int, ...]:
    """Positions of the members of the nested row that `fields.<field>.<suffix>` names.

    Raises:
        InvalidOptionError: there is no such member.
    """
    assert isinstance(field.type, ArrayType)
    assert isinstance(field.type.element, RowType)
    names = [member.name for member in field.type.element.fields]
    wanted = option_value(options, f"fields.{field.name}.{suffix}") or ()
    for name in wanted:
        if name not in names:
            raise option_refused(
                f"Field '{name}' not found in the nested rows of '{field.name}'",
                field,
                suffix,
                f"give some of {', '.join(names)}",
            )
    return tuple(names.index(name) for name in wanted)


@dataclasses.dataclass(frozen=True, slots=True)
class NestedUpdate:
    """Nested rows appended, or put in the place of those with the same key.

    Attributes:
        table: the nested rows.
        sequence: positions of members; a row is replaced by one that is not less in them.
        limit: nested rows there may be; further ones are passed over.
    """

    table: NestedTable
    sequence: tuple[int, ...]
    limit: int
    name: str = "nested_update"
    retractable: bool = True

    @staticmethod
    def of(field: DataField, name: str, options: Mapping[str, str]) -> "NestedUpdate":
        """The function for a column.

        Raises:
            InvalidOptionError: the column is no ARRAY of ROW, or an option does not fit.
        """
        table = NestedTable.of(field, options)
        limit = option_value(options, f"fields.{field.name}.count-limit")
        sequence = members(field, options, "nested-sequence-field")
        return NestedUpdate(table, sequence, MAX_LENGTH if limit is None else limit, name)

    def reduce(self, values: pa.Array, segments: Segments) -> pa.Array:
        """See `Aggregator`."""
        if not segments.rows:
            return values
        rows, codes = self.table.rows(values, segments)
        whole = np.zeros(len(rows.row), dtype=bool)
        if segments.opened is not None:
            first = segments.starts[rows.segment]
            whole = (rows.row == first) & segments.opened[rows.segment]
        admitted = self._admitted(rows, codes, whole)
        if not admitted.all():
            chosen = np.flatnonzero(admitted)
            rows, codes = rows.only(chosen), Codes(codes.numbers[chosen], codes.bound)
        if not self.table.key and not rows.taken.any():
            return rows.collected(~rows.taken)
        histories = Histories.of(rows, codes)
        if not self.table.key:
            return rows.collected(np.sort(histories.order[histories.live]))
        candidates = histories.live
        if self.sequence:
            ordered = rows.parts[0].take(pa.array(histories.order)).flatten()
            stamps = [ordered[member] for member in self.sequence]
            candidates = histories.greatest(candidates, stamps)
        winners = histories.last(candidates)
        there, arrival = histories.by_arrival(winners)
        picked = rows.parts[0].take(pa.array(histories.order[winners[there]]))
        return rows.with_parts((picked,), arrival)

    def _admitted(self, rows: Elements, codes: Codes, whole: np.ndarray) -> np.ndarray:
        """Which nested rows find a place below the limit, or take back.

        Args:
            rows: the nested rows.
            codes: of their keys, or of the whole rows.
            whole: bool per nested row: it was there before, the limit does not concern it.

        Returns:
            Bool per nested row.
        """
        count = len(rows.row)
        if count == 0 or int(np.bincount(rows.segment).max()) <= self.limit:
            return np.ones(count, dtype=bool)
        if self.table.key:
            # a key that finds no place at first finds none later
            histories = Histories.of(rows, codes, np.zeros(count, dtype=bool))
            newcomers = histories.order[histories.starts]
            new = np.zeros(count, dtype=bool)
            new[newcomers] = True
            admitted = np.empty(count, dtype=bool)
            places = _places(rows.segment, new)
            admitted[histories.order] = ((places <= self.limit) | whole)[newcomers][histories.ids]
        else:
            admitted = (_places(rows.segment, np.ones(count, dtype=bool)) <= self.limit) | whole
        for segment in np.unique(rows.segment[rows.taken]).tolist():
            first, last = np.searchsorted(rows.segment, [segment, segment + 1]).tolist()
            here = slice(first, last)
            admitted[here] = self._admitted_in_turn(rows, codes, whole, here)
        return admitted

    def _admitted_in_turn(
        self, rows: Elements, codes: Codes, whole: np.ndarray, here: slice
    ) -> np.ndarray:
        there: dict[int, int] = {}
        total = 0
        found = []
        for code, taken, kept in zip(
            codes.numbers[here].tolist(),
            rows.taken[here].tolist(),
            whole[here].tolist(),
            strict=True,
        ):
            if taken:
                total -= there.pop(code, 0)
                found.append(True)
            elif self.table.key and code in there:
                found.append(True)
            elif kept or total < self.limit:
                there[code] = there.get(code, 0) + 1
                total += 1
                found.append(True)
            else:
                found.append(False)
        return np.array(found, dtype=bool)


def _places(segment: np.ndarray, new: np.ndarray) -> np.ndarray:
    """How many new elements there are in the segment up to each element.

    Args:
        segment: of each element, ascending.
        new: bool per element.
    """
    places = np.cumsum(new)
    begins = np.searchsorted(segment, segment, side="left")
    return places - np.where(begins > 0, places[begins - 1], 0)


@dataclasses.dataclass(frozen=True, slots=True)
class NestedPartialUpdate:
    """Nested rows of one key made one: of each member the last value that is not null.

    Attributes:
        table: the nested rows, with a key.
    """

    table: NestedTable
    name: str = "nested_partial_update"
    retractable: bool = False

    @staticmethod
    def of(field: DataField, name: str, options: Mapping[str, str]) -> "NestedPartialUpdate":
        """The function for a column.

        Raises:
            InvalidOptionError: the column is no ARRAY of ROW, or there is no nested key.
        """
        table = NestedTable.of(field, options)
        if not table.key:
            raise option_refused(
                f"Aggregate function '{name}' requires a nested key",
                field,
                "nested-key",
                "name the members that identify a nested row",
            )
        return NestedPartialUpdate(table, name)

    def reduce(self, values: pa.Array, segments: Segments) -> pa.Array:
        """See `Aggregator`."""
        require_no_retractions(self.name, self.table.field, segments)
        if not segments.rows:
            return values
        rows, codes = self.table.rows(values, segments)
        histories = Histories.of(rows, codes)
        there, arrival = histories.by_arrival(histories.first(histories.live))
        merged = []
        for member in rows.parts[0].flatten():
            ordered = member.take(pa.array(histories.order))
            merged.append(take_or_null(ordered, histories.last(valid_mask(ordered))[there]))
        kind = rows.parts[0].type
        fields = [kind.field(position) for position in range(kind.num_fields)]
        return rows.with_parts((pa.StructArray.from_arrays(merged, fields=fields),), arrival)
