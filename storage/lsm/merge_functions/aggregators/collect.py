# SPDX-License-Identifier: Apache-2.0
"""`collect`, `merge_map`, `merge_map_with_keytime`, `nested_update`, `nested_partial_update`.

An array or a map is represented by the numbers of its elements within the column: a `range` while
unchanged, then a list, or a dict by codes that are equal exactly where elements or keys are. So
values of any type are compared and moved without becoming Python objects.

Nested values are compared by their content: rows field by field, arrays in order, maps in any
order. Nulls equal each other, floats are compared bit by bit with one NaN, as boxed Java numbers.
Source: SEMANTICS.md §B.3, 5 to 8.
"""

import collections
import dataclasses
from collections.abc import Iterable, Mapping
from typing import Any, ClassVar

import numpy as np
import pyarrow as pa

from storage.errors import InvalidRequestError
from storage.format.types.types import (
    MAX_LENGTH,
    ArrayType,
    AtomicType,
    DataField,
    MapType,
    RowType,
    TypeRoot,
)
from storage.lsm.merge_functions.aggregators.function import (
    AggregateFunction,
    RowFold,
    option_refused,
    wrong_type,
)
from storage.lsm.merge_functions.segments import Op, Segments, dense_ranks, valid_mask
from storage.options.options import option_value

Numbers = range | list[int] | dict[int, int]

LEFT_OUT = -1
"""Code of an element that takes no part."""
REFUSED_KEY = -2
"""Code of an element that is an error."""
REMOVES = -2
"""Rank of an element that removes its key; those of other negative ranks do nothing."""


@dataclasses.dataclass(frozen=True, slots=True)
class Elements:
    """The elements of a column of arrays, or the entries of maps.

    Attributes:
        parts: the elements; or the keys and the values.
    """

    parts: tuple[pa.Array, ...]
    inputs: list[range | None]
    kind: pa.DataType

    @staticmethod
    def of(values: pa.Array) -> "Elements":
        """All elements of a column."""
        offsets = values.offsets.to_numpy()
        first, last = int(offsets[0]), int(offsets[-1])
        children = (values.keys, values.items) if pa.types.is_map(values.type) else (values.values,)
        bounds = (offsets - first).tolist()
        valid = valid_mask(values).tolist()
        return Elements(
            tuple(part.slice(first, last - first) for part in children),
            [
                range(bounds[row], bounds[row + 1]) if valid[row] else None
                for row in range(len(valid))
            ],
            values.type,
        )

    def folded_by(self, fold: "ListFold | KeyedFold") -> RowFold:
        """How the column is folded row by row."""
        return RowFold(self.inputs, fold.add, self.column, fold.retract)

    def column(self, totals: list[Numbers | None]) -> pa.Array:
        """Totals as values of the column."""
        numbers = np.fromiter((n for total in totals for n in numbers_of(total)), dtype=np.int64)
        return self.assembled([part.take(pa.array(numbers)) for part in self.parts], totals)

    def assembled(self, parts: list[pa.Array], totals: list[Any]) -> pa.Array:
        """The column of other elements, as many per row as the totals have."""
        offsets = np.cumsum([0, *(len(total or ()) for total in totals)], dtype=np.int32)
        array_type = pa.MapArray if pa.types.is_map(self.kind) else pa.ListArray
        mask = pa.array([total is None for total in totals]) if None in totals else None
        return array_type.from_arrays(pa.array(offsets), *parts, type=self.kind, mask=mask)


def numbers_of(value: Numbers | None) -> Iterable[int]:
    """The numbers of a total or an input, in order."""
    if value is None:
        return ()
    return value.values() if isinstance(value, dict) else value


@dataclasses.dataclass(frozen=True, slots=True)
class ListFold:
    """Arrays concatenated.

    Attributes:
        limit: elements there may be; further ones are ignored.
        all_equal: a retracted element removes all equal ones, not one.
    """

    codes: list[int]
    limit: int = MAX_LENGTH
    all_equal: bool = False

    def add(self, total: Numbers | None, value: Numbers | None) -> Numbers | None:
        """See `RowFold`."""
        if value is None:
            return total
        result = total if isinstance(total, list) else self._part(total)
        room = self.limit - len(result)
        if room > 0:
            result.extend(self._part(value)[:room])
        return result

    def retract(self, total: Numbers | None, value: Numbers | None) -> Numbers | None:
        """See `RowFold`."""
        if total is None or value is None:
            return total
        removals = collections.Counter(self.codes[number] for number in numbers_of(value))
        elements_left = []
        for number in self._part(total):
            code = self.codes[number]
            if removals[code] > 0:
                removals[code] -= not self.all_equal
            else:
                elements_left.append(number)
        return elements_left

    def _part(self, value: Numbers | None) -> list[int]:
        return [number for number in numbers_of(value) if self.codes[number] != LEFT_OUT]


@dataclasses.dataclass(frozen=True, slots=True)
class KeyedFold:
    """One element for each key, in the order in which the keys came.

    Attributes:
        ranks: of the elements: one of a higher rank replaces that of its key.
        level: one of the same rank replaces it, too.
        limit: keys there may be; further ones are ignored.
        first_whole: the first value is kept unchanged.
    """

    codes: list[int]
    ranks: list[int]
    level: bool
    limit: int = MAX_LENGTH
    first_whole: bool = False
    refusal: InvalidRequestError | None = None

    def add(self, total: Numbers | None, value: Numbers | None) -> Numbers | None:
        """See `RowFold`."""
        if value is None:
            return total
        if total is None and self.first_whole:
            return value
        table = self._table(total)
        for number in numbers_of(value):
            code, rank = self.codes[number], self.ranks[number]
            if code < 0:
                self._pass_over(code)
            elif rank == REMOVES:
                table.pop(code, None)
            elif rank >= 0 and (code in table or len(table) < self.limit):
                self._put(table, code, number)
        return table

    def retract(self, total: Numbers | None, value: Numbers | None) -> Numbers | None:
        """See `RowFold`; the key is removed, whatever else the element holds."""
        if total is None or value is None:
            return total
        table = self._table(total)
        for number in numbers_of(value):
            self._pass_over(self.codes[number])
            table.pop(self.codes[number], None)
        return table

    def _table(self, total: Numbers | None) -> dict[int, int]:
        if isinstance(total, dict):
            return total
        table: dict[int, int] = {}
        for number in numbers_of(total):
            code = self.codes[number]
            if code < 0:
                self._pass_over(code)
            else:
                self._put(table, code, number)
        return table

    def _put(self, table: dict[int, int], code: int, number: int) -> None:
        previous = table.get(code)
        if previous is None or self.ranks[number] > self.ranks[previous] - self.level:
            table[code] = number

    def _pass_over(self, code: int) -> None:
        if code == REFUSED_KEY and self.refusal is not None:
            raise self.refusal


def codes_of(values: pa.Array) -> list[int]:
    """Codes from 0 of the values of one column."""
    codes: list[int] = _codes(values).tolist()
    return codes


def pair_codes(parts: Iterable[pa.Array]) -> list[int]:
    """Codes from 0 of tuples, of which the columns hold the parts."""
    codes: list[int] = _pairs(map(_codes, parts)).tolist()
    return codes


def _codes(values: pa.Array) -> np.ndarray:
    kind = values.type
    if pa.types.is_struct(kind):
        return _pairs([valid_mask(values).astype(np.int64), *map(_codes, values.flatten())])
    if pa.types.is_map(kind) or pa.types.is_list(kind):
        offsets = values.offsets.to_numpy()
        first, last = int(offsets[0]), int(offsets[-1])
        parts = (values.keys, values.items) if pa.types.is_map(kind) else (values.values,)
        codes = _pairs(_codes(part.slice(first, last - first)) for part in parts)
        if pa.types.is_map(kind):
            owner = np.repeat(np.arange(len(values)), np.diff(offsets))
            codes = codes[np.lexsort((codes, owner))]
        return _hashed(_as_bytes(values, offsets - first, codes))
    if pa.types.is_floating(kind):
        numbers = values.fill_null(0).to_numpy(zero_copy_only=False)
        numbers = np.where(np.isnan(numbers), np.array(np.nan, numbers.dtype), numbers)
        bits = numbers.view(np.int32 if pa.types.is_float32(kind) else np.int64)
        values = pa.array(bits, mask=~valid_mask(values))
    return _hashed(values)


def _pairs(parts: Iterable[np.ndarray]) -> np.ndarray:
    """Codes of tuples, from the codes of their parts."""
    first, *rest = parts
    for part in rest:  # dense ones after each step, so that no product leaves 64 bits
        mixed = first * (part.max(initial=0) + 1) + part
        first = np.unique(mixed, return_inverse=True)[1].astype(np.int64)
    return first


def _hashed(values: pa.Array) -> np.ndarray:
    indices = values.dictionary_encode(null_encoding="encode").indices
    codes: np.ndarray = indices.to_numpy(zero_copy_only=False).astype(np.int64)
    return codes


def _as_bytes(values: pa.Array, offsets: np.ndarray, codes: np.ndarray) -> pa.Array:
    """Lists as the bytes of the codes of their elements: equal lists are equal bytes."""
    mask = None
    if values.null_count:
        mask = pa.py_buffer(np.packbits(valid_mask(values), bitorder="little"))
    places = pa.py_buffer(offsets.astype(np.int64) * 8)
    content = pa.py_buffer(np.ascontiguousarray(codes))
    return pa.Array.from_buffers(pa.large_binary(), len(values), [mask, places, content])


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
        lists = values.filter(pa.array(present))
        offsets = lists.offsets.to_numpy()[np.append(before[segments.starts], before[-1])]
        mask = pa.array(~np.logical_or.reduceat(present, segments.starts))
        out = pa.ListArray.from_arrays(pa.array(offsets), lists.values, type=values.type, mask=mask)
        return out, segments.keys_with(Op.LATE, Op.RETRACT, Op.BASE_RETRACT)

    def open(self, values: pa.Array) -> RowFold:
        """See `AggregateFunction`."""
        elements = Elements.of(values)
        codes = codes_of(elements.parts[0])
        if self.distinct:
            return elements.folded_by(_SetFold(codes, [0] * len(codes), level=False))
        return elements.folded_by(ListFold(codes))


class _SetFold(KeyedFold):
    """Even a null turns the total into a set."""

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
    is taken unchanged.

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
        ts_field = option_value(options, f"fields.{field.name}.ts-field") or names[-1]
        if ts_field not in names:
            raise option_refused(
                f"Timestamp field '{ts_field}' not found in ROW type for field '{field.name}'",
                field,
                "ts-field",
                f"give one of {', '.join(names)}",
            )
        stamp = type_.value.fields[names.index(ts_field)].type
        texts = (TypeRoot.CHAR, TypeRoot.VARCHAR)
        if not (isinstance(stamp, AtomicType) and stamp.root in texts):
            raise option_refused(
                f"Timestamp field '{ts_field}' must be of type STRING",
                field,
                "ts-field",
                "stamps are compared as texts; store them so",
            )
        return MergeMapWithKeyTime(field, name, names.index(ts_field))

    def open(self, values: pa.Array) -> RowFold:
        """See `AggregateFunction`."""
        entries = Elements.of(values)
        keys, items = entries.parts
        stamps = items.flatten()[self.stamp]
        ranks = np.where(valid_mask(stamps), dense_ranks([stamps]), REMOVES + 1)
        ranks = np.where(valid_mask(items), ranks, REMOVES).tolist()
        fold = KeyedFold(codes_of(keys), ranks, level=False, first_whole=True)
        return entries.folded_by(fold)


_NULL_STRATEGIES = ("merge", "ignore", "error")


@dataclasses.dataclass(frozen=True, slots=True)
class _NestedTable(AggregateFunction):
    """What both functions share about nested rows.

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
        codes = np.array(pair_codes(keys) if keys else codes_of(rows), dtype=np.int64)
        if self.null_keys != "merge":
            whole = np.logical_and.reduce([valid_mask(key) for key in keys])
            codes[~whole] = LEFT_OUT if self.null_keys == "ignore" else REFUSED_KEY
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
        limit: nested rows there may be; further ones are ignored.
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
        max_rows = MAX_LENGTH if limit is None else limit
        return NestedUpdate(field, name, key, null_keys, sequence, max_rows)

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
            KeyedFold(codes, ranks, level=True, limit=self.limit, refusal=self._null_key())
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
    refusal: InvalidRequestError

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
        struct = pa.StructArray.from_arrays(members, fields=fields, mask=mask)
        return self.elements.assembled([struct], totals)

    def _rows(self, value: _Merged | None) -> list[list[int]]:
        if isinstance(value, dict):
            return list(value.values())
        return [[number] * len(self.valid) for number in value or ()]

    def _put(self, table: dict[int, list[int]], value: _Merged | None) -> dict[int, list[int]]:
        for row in self._rows(value):
            code = self.codes[row[0]]
            if code == REFUSED_KEY:
                raise self.refusal
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
    members = option_value(options, f"fields.{field.name}.{suffix}") or ()
    for name in members:
        if name not in names:
            raise option_refused(
                f"Field '{name}' not found in the nested rows of '{field.name}'",
                field,
                suffix,
                f"give some of {', '.join(names)}",
            )
    return tuple(names.index(name) for name in members)
