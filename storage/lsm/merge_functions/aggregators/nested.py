# SPDX-License-Identifier: Apache-2.0
"""`nested_update` and `nested_partial_update`: arrays of rows as small tables.

Source: SEMANTICS.md §B.3, detail 8. Nested rows stand in the order in which they, or their keys,
came. Null rows are left out, unless nothing is added to the array that holds them.
"""

import dataclasses
from collections.abc import Mapping
from typing import ClassVar

import numpy as np
import pyarrow as pa

from storage.errors import InvalidRequestError
from storage.format.types.types import MAX_LENGTH, ArrayType, DataField, RowType
from storage.lsm.merge_functions.aggregators.elements import (
    LEFT_OUT,
    REFUSED,
    Elements,
    KeyedFold,
    ListFold,
    codes_of,
    paired,
)
from storage.lsm.merge_functions.aggregators.function import (
    AggregateFunction,
    RowFold,
    option_refused,
    wrong_type,
)
from storage.lsm.merge_functions.segments import valid_mask
from storage.lsm.merge_functions.sequence_order import dense_ranks
from storage.options.options import option_value

__all__ = ["NestedPartialUpdate", "NestedUpdate"]

_NULL_STRATEGIES = ("merge", "ignore", "error")


@dataclasses.dataclass(frozen=True, slots=True)
class _NestedTable(AggregateFunction):
    """What both functions know of the nested rows.

    Attributes:
        key: positions of the members that identify a nested row; empty when none do.
        null_keys: what to do with rows with a null in their key: `merge` like others, `ignore`
            or `error`.
    """

    key: tuple[int, ...]
    null_keys: str

    keeps_lone: ClassVar[bool] = False

    def _codes(self, rows: pa.Array) -> list[int]:
        """Codes of nested rows, or of their keys."""
        keys = [rows.flatten()[member] for member in self.key]
        codes = np.array(paired(keys) if keys else codes_of(rows), dtype=np.int64)
        if self.null_keys != "merge":
            whole = np.logical_and.reduce([valid_mask(key) for key in keys])
            codes[~whole] = LEFT_OUT if self.null_keys == "ignore" else REFUSED
        codes[~valid_mask(rows)] = LEFT_OUT
        return codes.tolist()

    def _null_key(self) -> InvalidRequestError:
        return InvalidRequestError(
            "Nested key contains null values. Primary key fields must not be null.",
            hint=f"set `fields.{self.field.name}.nested-key-null-strategy` to ignore or merge",
            field=self.field.name,
        )


@dataclasses.dataclass(frozen=True, slots=True)
class NestedUpdate(_NestedTable):
    """Nested rows appended, or put in the place of those with the same key.

    Attributes:
        sequence: positions of members; a row is replaced by one that is not less in them.
        limit: nested rows there may be; further ones are passed over.
    """

    sequence: tuple[int, ...]
    limit: int

    retractable: ClassVar[bool] = True

    @staticmethod
    def of(field: DataField, name: str, options: Mapping[str, str]) -> "NestedUpdate":
        """The function for a column.

        Raises:
            InvalidOptionError: the column is no ARRAY of ROW, or an option does not fit.
        """
        key, null_keys = _nested_options(field, options)
        limit = option_value(options, f"fields.{field.name}.count-limit")
        sequence = _members(field, options, "nested-sequence-field")
        most = MAX_LENGTH if limit is None else limit
        return NestedUpdate(field, name, key, null_keys, sequence, most)

    def open(self, values: pa.Array) -> RowFold:
        """See `AggregateFunction`."""
        elements = Elements.of(values)
        rows = elements.parts[0]
        codes = self._codes(rows)
        if not self.key:
            return elements.folded_by(ListFold(codes, self.limit, all_equal=True))
        ranks = [0] * len(rows)
        if self.sequence:
            ranks = dense_ranks([rows.flatten()[member] for member in self.sequence]).tolist()
        return elements.folded_by(
            KeyedFold(codes, ranks, level=True, limit=self.limit, refused=self._null_key())
        )


@dataclasses.dataclass(frozen=True, slots=True)
class NestedPartialUpdate(_NestedTable):
    """Nested rows of one key made one: of each member the last value that is not null."""

    @staticmethod
    def of(field: DataField, name: str, options: Mapping[str, str]) -> "NestedPartialUpdate":
        """The function for a column.

        Raises:
            InvalidOptionError: the column is no ARRAY of ROW, or there is no nested key.
        """
        key, null_keys = _nested_options(field, options)
        if not key:
            raise option_refused(
                f"Aggregate function '{name}' requires a nested key",
                field,
                "nested-key",
                "name the members that identify a nested row",
            )
        return NestedPartialUpdate(field, name, key, null_keys)

    def open(self, values: pa.Array) -> RowFold:
        """See `AggregateFunction`."""
        elements = Elements.of(values)
        rows = elements.parts[0]
        valid = [valid_mask(member).tolist() for member in rows.flatten()]
        fold = _PartialRows(elements, self._codes(rows), valid, self._null_key())
        return RowFold(elements.inputs, fold.add, fold.close)


_Merged = range | dict[int, list[int]]


@dataclasses.dataclass(frozen=True, slots=True)
class _PartialRows:
    """A row of a total is, for each of its members, the number of the row that has it."""

    elements: Elements
    codes: list[int]
    valid: list[list[bool]]
    refused: InvalidRequestError

    def add(self, total: _Merged | None, value: _Merged | None) -> _Merged | None:
        if value is None:
            return total
        table = total if isinstance(total, dict) else self._put({}, total)
        return self._put(table, value)

    def close(self, totals: list[_Merged | None]) -> pa.Array:
        rows = self.elements.parts[0]
        chosen = [row for total in totals for row in self._rows(total)]
        picked = np.array(chosen, dtype=np.int64).reshape(-1, len(self.valid)).T
        members = [
            member.take(pa.array(numbers))
            for member, numbers in zip(rows.flatten(), picked, strict=True)
        ]
        fields = [rows.type.field(position) for position in range(len(members))]
        mask = pa.array(~valid_mask(rows)[picked[0]])
        made = pa.StructArray.from_arrays(members, fields=fields, mask=mask)
        return self.elements.assembled([made], totals)

    def _rows(self, value: _Merged | None) -> list[list[int]]:
        if isinstance(value, dict):
            return list(value.values())
        return [[number] * len(self.valid) for number in value or ()]

    def _put(self, table: dict[int, list[int]], value: _Merged | None) -> dict[int, list[int]]:
        for row in self._rows(value):
            code = self.codes[row[0]]
            if code == REFUSED:
                raise self.refused
            if code == LEFT_OUT:
                continue
            merged = table.setdefault(code, row)
            if merged is row:
                continue
            for member, number in enumerate(row):
                if self.valid[member][number]:
                    merged[member] = number
        return table


def _nested_options(field: DataField, options: Mapping[str, str]) -> tuple[tuple[int, ...], str]:
    """The members of the nested key of a column, and what to do with nulls in it.

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
    key = _members(field, options, "nested-key")
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
    return key, strategy


def _members(field: DataField, options: Mapping[str, str], suffix: str) -> tuple[int, ...]:
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
