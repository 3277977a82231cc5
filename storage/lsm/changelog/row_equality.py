# SPDX-License-Identifier: Apache-2.0
"""Whether two columns hold the same values, row by row, as Apache Paimon's equaliser says.

Two nulls are equal; numbers of floating point are compared by their bits, all NaN being one; nested
values by what they hold, maps without regard to the order of their entries. Data plane: whole
columns, no Python object per row. Source: SEMANTICS.md §C.2.
"""

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from storage.errors import UnsupportedFeatureError
from storage.lsm.key_words import order_words
from storage.lsm.merge_functions.segments import valid_mask

__all__ = ["equal_rows"]

Mask = npt.NDArray[np.bool_]


def equal_rows(left: pa.Array, right: pa.Array) -> Mask:
    """Which rows of two columns are equal.

    Args:
        left: any type.
        right: as many values of the same type.

    Returns:
        bool per row.
    """
    filled, other = valid_mask(left), valid_mask(right)
    both = filled & other
    alike = filled == other
    kind = left.type
    if pa.types.is_null(kind) or not both.any():
        return alike
    if pa.types.is_map(kind) or pa.types.is_list(kind) or pa.types.is_large_list(kind):
        return alike & (_equal_lists(left, right, both) | ~both)
    if pa.types.is_struct(kind):
        for position in range(kind.num_fields):
            alike &= equal_rows(left.field(position), right.field(position)) | ~both
        return alike
    if pa.types.is_fixed_size_list(kind):
        return alike & (_equal_vectors(left, right, both) | ~both)
    if pa.types.is_floating(kind):
        return alike & ((_bits(left) == _bits(right)) | ~both)
    if pa.types.is_dictionary(kind):
        return equal_rows(left.dictionary_decode(), right.dictionary_decode())
    same = pc.fill_null(pc.equal(left, right), False).to_numpy(zero_copy_only=False)
    return alike & (same | ~both)


def _bits(column: pa.Array) -> np.ndarray:
    if column.null_count:
        column = column.fill_null(0)
    values = column.to_numpy(zero_copy_only=False)
    integer = np.dtype(f"i{values.dtype.itemsize}")
    bits = values.view(integer)
    nan = np.isnan(values)
    return np.where(nan, np.iinfo(integer).max, bits) if nan.any() else bits


def _equal_vectors(left: pa.Array, right: pa.Array, both: Mask) -> Mask:
    size = left.type.list_size
    rows = np.flatnonzero(both)
    picked = pa.array(rows)
    inner = equal_rows(left.take(picked).flatten(), right.take(picked).flatten())
    found = np.zeros(len(both), dtype=bool)
    found[rows] = inner.reshape(len(rows), size).all(axis=1) if size else True
    return found


def _equal_lists(left: pa.Array, right: pa.Array, both: Mask) -> Mask:
    """Lists and maps that are of one length and whose elements are equal; nulls give anything."""
    sizes, others = _lengths(left), _lengths(right)
    found = both & (sizes == others)
    rows = np.flatnonzero(found & (sizes > 0))
    if not len(rows):
        return found
    inner = equal_rows(_elements(left, rows), _elements(right, rows))
    starts = np.cumsum(sizes[rows]) - sizes[rows]
    found[rows] = np.logical_and.reduceat(inner, starts)
    return found


def _lengths(column: pa.Array) -> np.ndarray:
    if pa.types.is_map(column.type):
        lengths = np.diff(column.offsets.to_numpy(zero_copy_only=False)).astype(np.int64)
        return np.where(valid_mask(column), lengths, 0)
    lengths = pc.fill_null(pc.list_value_length(column), 0)
    return lengths.to_numpy(zero_copy_only=False).astype(np.int64)


def _elements(column: pa.Array, rows: np.ndarray) -> pa.Array:
    """The elements of some rows one behind the other, those of a map by key; no row is null."""
    chosen = column.take(pa.array(rows))
    if not pa.types.is_map(column.type):
        return chosen.flatten()
    offsets = chosen.offsets.to_numpy(zero_copy_only=False).astype(np.int64)
    keys = chosen.keys.slice(offsets[0], offsets[-1] - offsets[0])
    items = chosen.items.slice(offsets[0], offsets[-1] - offsets[0])
    entries = pa.StructArray.from_arrays([keys, items], names=["key", "value"])
    owner = np.repeat(np.arange(len(rows)), np.diff(offsets))
    try:
        words = [word for word, _ in order_words([keys])]
    except UnsupportedFeatureError:
        return entries  # keys that are nested have no order: entries are compared as they come
    order = np.lexsort([*reversed(words), owner])
    return entries.take(pa.array(order))
