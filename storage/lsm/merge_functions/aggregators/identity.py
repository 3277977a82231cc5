# SPDX-License-Identifier: Apache-2.0
"""Numbers that are equal exactly when values are: what sets, map keys and nested keys compare.

Values of any type, nested ones by their content: rows field by field, arrays in order, maps in
any order. Nulls equal each other, floats are compared bit by bit with one NaN (as boxed Java
numbers are). The numbers mean nothing beyond the call that made them. Data plane: whole arrays.
"""

import dataclasses
from collections.abc import Iterable

import numpy as np
import pyarrow as pa

from storage.lsm.merge_functions.segments import valid_mask

__all__ = ["Codes", "codes_of", "paired"]

_ROOM = 1 << 62
_SPAN = 1 << 40
"""Integers that lie closer together are their own codes."""


@dataclasses.dataclass(frozen=True, slots=True)
class Codes:
    """One number per value.

    Attributes:
        numbers: int64, from 0.
        bound: all numbers are below it.
    """

    numbers: np.ndarray
    bound: int

    def dense(self) -> "Codes":
        """The same distinctions with the smallest numbers."""
        distinct, numbers = np.unique(self.numbers, return_inverse=True)
        return Codes(numbers.astype(np.int64, copy=False), len(distinct))


def codes_of(values: pa.Array) -> Codes:
    """Codes of the values of one column.

    Cost: a hash or a subtraction per value; nested values, the same for each of their parts.
    """
    kind = values.type
    if pa.types.is_struct(kind):
        valid = valid_mask(values).astype(np.int64)
        return paired([Codes(valid, 2), *(codes_of(child) for child in values.flatten())])
    if pa.types.is_map(kind):
        offsets = values.offsets.to_numpy()
        first, last = int(offsets[0]), int(offsets[-1])
        entries = paired(
            codes_of(part.slice(first, last - first)) for part in (values.keys, values.items)
        )
        owner = np.repeat(np.arange(len(values)), np.diff(offsets))
        ordered = entries.numbers[np.lexsort((entries.numbers, owner))]
        return _sequences(values, offsets - first, ordered)
    if pa.types.is_list(kind):
        offsets = values.offsets.to_numpy()
        first, last = int(offsets[0]), int(offsets[-1])
        return _sequences(
            values, offsets - first, codes_of(values.values.slice(first, last - first)).numbers
        )
    return _scalar_codes(values)


def paired(parts: Iterable[Codes]) -> Codes:
    """Codes of tuples, from the codes of their parts."""
    numbers, bound = np.zeros(1, dtype=np.int64), 1
    for part in parts:
        if bound * part.bound >= _ROOM:
            smaller, part = Codes(numbers, bound).dense(), part.dense()
            numbers, bound = smaller.numbers, smaller.bound
        numbers, bound = numbers * np.int64(part.bound) + part.numbers, bound * part.bound
    return Codes(numbers, bound)


def _scalar_codes(values: pa.Array) -> Codes:
    kind = values.type
    if pa.types.is_floating(kind):
        bits = pa.int32() if pa.types.is_float32(kind) else pa.int64()
        numbers = values.fill_null(0).to_numpy(zero_copy_only=False)
        numbers = np.where(np.isnan(numbers), np.array(np.nan, numbers.dtype), numbers)
        mask = ~valid_mask(values) if values.null_count else None
        values = pa.array(numbers.view(bits.to_pandas_dtype()), bits, mask=mask)
    elif pa.types.is_date32(kind) or pa.types.is_time32(kind):
        values = values.view(pa.int32())
    elif pa.types.is_timestamp(kind):
        values = values.view(pa.int64())
    if pa.types.is_signed_integer(values.type) and values.null_count < len(values):
        numbers = values.fill_null(values.drop_null()[:1][0]).to_numpy(zero_copy_only=False)
        least, most = int(numbers.min()), int(numbers.max())
        if most - least < _SPAN:
            numbers = numbers.astype(np.int64) - least
            if values.null_count:
                numbers = np.where(valid_mask(values), numbers, np.int64(most - least + 1))
            return Codes(numbers, most - least + 2)
    return _hashed(values)


def _hashed(values: pa.Array) -> Codes:
    encoded = values.dictionary_encode(null_encoding="encode")
    numbers = encoded.indices.to_numpy(zero_copy_only=False).astype(np.int64)
    return Codes(numbers, max(len(encoded.dictionary), 1))


def _sequences(values: pa.Array, offsets: np.ndarray, parts: np.ndarray) -> Codes:
    """Codes of lists, from the codes of their elements: equal lists are equal bytes."""
    mask = None
    if values.null_count:
        mask = pa.py_buffer(np.packbits(valid_mask(values), bitorder="little"))
    places = pa.py_buffer(offsets.astype(np.int64) * 8)
    content = pa.py_buffer(np.ascontiguousarray(parts, dtype=np.int64))
    return _hashed(pa.Array.from_buffers(pa.large_binary(), len(values), [mask, places, content]))
