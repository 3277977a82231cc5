# SPDX-License-Identifier: Apache-2.0
"""The elements of arrays and the entries of maps, for functions that fold them row by row.

An array or a map is the numbers of its elements among all of the column: as it is a `range`, once
a function has changed it a list, or a dict by codes that are equal exactly where elements or keys
are. So values of any type are compared and moved without being made Python objects.

Nested values are compared by their content: rows field by field, arrays in order, maps in any
order. Nulls equal each other, floats are compared bit by bit with one NaN, as boxed Java numbers.
"""

import collections
import dataclasses
from collections.abc import Iterable
from typing import Any

import numpy as np
import pyarrow as pa

from storage.errors import InvalidRequestError
from storage.format.types.types import MAX_LENGTH
from storage.lsm.merge_functions.aggregators.function import RowFold
from storage.lsm.merge_functions.segments import valid_mask

__all__ = [
    "LEFT_OUT",
    "REFUSED",
    "REMOVES",
    "Elements",
    "KeyedFold",
    "ListFold",
    "Numbers",
    "codes_of",
    "paired",
]

Numbers = range | list[int] | dict[int, int]

LEFT_OUT = -1
"""Code of an element that takes no part."""
REFUSED = -2
"""Code of an element that is an error."""
REMOVES = -2
"""Rank of an element that removes its key; those of other negative ranks do nothing."""


@dataclasses.dataclass(frozen=True, slots=True)
class Elements:
    """The elements of a column of arrays, or the entries of maps.

    Attributes:
        parts: the elements; or the keys and the values.
        inputs: of each row.
        kind: Arrow type of the column.
    """

    parts: tuple[pa.Array, ...]
    inputs: list[range | None]
    kind: pa.DataType

    @staticmethod
    def of(values: pa.Array) -> "Elements":
        """All elements of a column."""
        offsets = values.offsets.to_numpy()
        first, last = int(offsets[0]), int(offsets[-1])
        whole = (values.keys, values.items) if pa.types.is_map(values.type) else (values.values,)
        bounds = (offsets - first).tolist()
        valid = valid_mask(values).tolist()
        return Elements(
            tuple(part.slice(first, last - first) for part in whole),
            [
                range(bounds[row], bounds[row + 1]) if valid[row] else None
                for row in range(len(valid))
            ],
            values.type,
        )

    def folded_by(self, fold: "ListFold | KeyedFold") -> RowFold:
        """What is done with the column row by row."""
        return RowFold(self.inputs, fold.add, self.column, fold.retract)

    def column(self, totals: list[Numbers | None]) -> pa.Array:
        """Totals as values of the column."""
        chosen = np.fromiter((n for total in totals for n in numbers_of(total)), dtype=np.int64)
        return self.assembled([part.take(pa.array(chosen)) for part in self.parts], totals)

    def assembled(self, parts: list[pa.Array], totals: list[Any]) -> pa.Array:
        """The column of other elements, as many per row as the totals have."""
        offsets = np.cumsum([0, *(len(total or ()) for total in totals)], dtype=np.int32)
        made = pa.MapArray if pa.types.is_map(self.kind) else pa.ListArray
        mask = pa.array([total is None for total in totals]) if None in totals else None
        return made.from_arrays(pa.array(offsets), *parts, type=self.kind, mask=mask)


def numbers_of(value: Numbers | None) -> Iterable[int]:
    """The numbers of a total or an input, in order."""
    if value is None:
        return ()
    return value.values() if isinstance(value, dict) else value


@dataclasses.dataclass(frozen=True, slots=True)
class ListFold:
    """Arrays concatenated.

    Attributes:
        codes: of the elements.
        limit: elements there may be; further ones are passed over.
        all_equal: a retracted element removes all equal ones, not one.
    """

    codes: list[int]
    limit: int = MAX_LENGTH
    all_equal: bool = False

    def add(self, total: Numbers | None, value: Numbers | None) -> Numbers | None:
        """See `RowFold`."""
        if value is None:
            return total
        left = total if isinstance(total, list) else self._part(total)
        room = self.limit - len(left)
        if room > 0:
            left.extend(self._part(value)[:room])
        return left

    def retract(self, total: Numbers | None, value: Numbers | None) -> Numbers | None:
        """See `RowFold`."""
        if total is None or value is None:
            return total
        taken = collections.Counter(self.codes[number] for number in numbers_of(value))
        left = []
        for number in self._part(total):
            code = self.codes[number]
            if taken[code] > 0:
                taken[code] -= not self.all_equal
            else:
                left.append(number)
        return left

    def _part(self, value: Numbers | None) -> list[int]:
        return [number for number in numbers_of(value) if self.codes[number] != LEFT_OUT]


@dataclasses.dataclass(frozen=True, slots=True)
class KeyedFold:
    """One element for each key, in the order in which the keys came.

    Attributes:
        codes: of the keys of the elements.
        ranks: of the elements: one of a higher rank replaces that of its key.
        level: one of the same rank replaces it, too.
        limit: keys there may be; further ones are passed over.
        first_whole: the first value stays as it is.
        refused: error of an element that is one.
    """

    codes: list[int]
    ranks: list[int]
    level: bool
    limit: int = MAX_LENGTH
    first_whole: bool = False
    refused: InvalidRequestError | None = None

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
        """See `RowFold`; the key goes, whatever else the element holds."""
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
        old = table.get(code)
        if old is None or self.ranks[number] > self.ranks[old] - self.level:
            table[code] = number

    def _pass_over(self, code: int) -> None:
        if code == REFUSED and self.refused is not None:
            raise self.refused


def codes_of(values: pa.Array) -> list[int]:
    """Codes from 0 of the values of one column."""
    codes: list[int] = _codes(values).tolist()
    return codes


def paired(parts: Iterable[pa.Array]) -> list[int]:
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
    first, *others = parts
    for part in others:  # dense ones after each step, so that no product leaves 64 bits
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
