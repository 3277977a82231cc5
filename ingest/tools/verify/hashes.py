# SPDX-License-Identifier: Apache-2.0
"""64-bit hashes of values, keys and rows, a column at a time.

Both sides of a comparison are brought to the lake table's Arrow types first, so a hash is a
function of type and value alone. The canonical form of a value is

* numbers, dates, times, timestamps: the integer that Arrow stores, 64 bits wide;
* decimals: the unscaled number, 128 bits;
* floats: their bits, with one NaN; -0.0 and 0.0 differ;
* texts and bytes: the bytes (XXH64);
* null: a constant of its own, so that it differs from every value with high probability;
* lists: their elements in order and the length; maps: their entries in any order; rows: the fields.

Not part of any file format.
"""

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from storage.errors import UnsupportedFeatureError
from storage.format.index.hashing import wang_mix, xxh64
from storage.format.index.values import byte_view
from storage.format.row.key_hash import mixed

Hashes = npt.NDArray[np.uint64]

_SEED = np.uint64(0x5851F42D4C957F2D)
_NULL = np.uint64(0x9FB21C651E98DF25)
_STEP = np.uint64(0x9E3779B97F4A7C15)


def text_hash(text: str) -> np.uint64:
    """The hash of one text."""
    return np.uint64(column_hashes(pa.array([text], pa.string()))[0])


def combined_hashes(columns: Sequence[Hashes], count: int) -> Hashes:
    """One hash per row of the hashes of its columns; the order of the columns counts.

    Args:
        columns: shape (count,) each.
        count: rows; needed where there is no column.
    """
    state = np.full(count, _SEED, np.uint64)
    for column in columns:
        state *= _STEP
        state ^= column
        state = mixed(state)
    return state


def column_hashes(column: pa.Array) -> Hashes:
    """The hash of every value of a column.

    Raises:
        UnsupportedFeatureError: the type is none of those that a lake table has.
    """
    hashes = _value_hashes(column)
    if column.null_count:
        hashes[np.asarray(pc.is_null(column))] = _NULL
    return hashes


def _value_hashes(column: pa.Array) -> Hashes:
    """As `column_hashes`; the hash of a null is undefined. The caller owns the result."""
    type_ = column.type
    if pa.types.is_string(type_) or pa.types.is_binary(type_):
        return xxh64(*byte_view(column))
    if pa.types.is_decimal128(type_):
        return _decimal_hashes(column)
    if pa.types.is_floating(type_):
        return _integer_hashes(_float_bits(column))
    if pa.types.is_list(type_):
        return _list_hashes(column)
    if pa.types.is_map(type_):
        return _map_hashes(column)
    if pa.types.is_struct(type_):
        fields = [column_hashes(column.field(i)) for i in range(type_.num_fields)]
        return combined_hashes(fields, len(column))
    return _integer_hashes(_integers(column))


def _integers(column: pa.Array) -> npt.NDArray[np.int64]:
    type_ = column.type
    if pa.types.is_boolean(type_):
        column = column.cast(pa.int8())
    elif pa.types.is_timestamp(type_):
        column = column.view(pa.int64())
    elif pa.types.is_date32(type_) or pa.types.is_time32(type_):
        column = column.view(pa.int32())
    elif not pa.types.is_signed_integer(type_):
        raise UnsupportedFeatureError("columns of this type cannot be compared", type=type_)
    return np.asarray(pc.fill_null(column, 0)).astype(np.int64)


def _integer_hashes(values: npt.NDArray[np.int64]) -> Hashes:
    return wang_mix(values)


def _float_bits(column: pa.Array) -> npt.NDArray[np.int64]:
    values = np.asarray(pc.fill_null(column, 0.0))
    values = np.where(np.isnan(values), values.dtype.type(np.nan), values)
    wide = values.dtype == np.float64
    return values.view(np.int64 if wide else np.int32).astype(np.int64)


def _decimal_hashes(column: pa.Array) -> Hashes:
    buffer = column.buffers()[1]
    if buffer is None or not len(column):
        return np.zeros(len(column), np.uint64)
    words = np.frombuffer(buffer, np.int64)
    words = words[2 * column.offset : 2 * (column.offset + len(column))]
    return combined_hashes([wang_mix(words[0::2]), wang_mix(words[1::2])], len(column))


def _list_hashes(column: pa.ListArray) -> Hashes:
    elements = column_hashes(column.flatten())
    lengths = _lengths(column)
    places = _list_positions(lengths)
    mixed = combined_hashes([elements, wang_mix(places)], len(elements))
    return combined_hashes([_sums(mixed, lengths), wang_mix(lengths)], len(column))


def _map_hashes(column: pa.MapArray) -> Hashes:
    fields = [pa.field("key", column.type.key_type), pa.field("value", column.type.item_type)]
    entries = pa.list_(pa.struct(fields))
    pairs = column.cast(entries)
    flat = pairs.flatten()
    hashes = [column_hashes(flat.field(0)), column_hashes(flat.field(1))]
    lengths = _lengths(pairs)
    mixed = combined_hashes(hashes, len(flat))
    return combined_hashes([_sums(mixed, lengths), wang_mix(lengths)], len(column))


def _lengths(column: pa.ListArray) -> npt.NDArray[np.int64]:
    return np.asarray(pc.fill_null(pc.list_value_length(column), 0)).astype(np.int64)


def _list_positions(lengths: npt.NDArray[np.int64]) -> npt.NDArray[np.int64]:
    """The place of every element in its list."""
    starts = np.cumsum(lengths) - lengths
    return np.arange(int(lengths.sum()), dtype=np.int64) - np.repeat(starts, lengths)


def _sums(elements: Hashes, lengths: npt.NDArray[np.int64]) -> Hashes:
    """The sum of the elements of every list, modulo 2^64."""
    bounds = np.concatenate(([0], np.cumsum(lengths)))
    running = np.concatenate((np.zeros(1, np.uint64), np.cumsum(elements, dtype=np.uint64)))
    return np.asarray(running[bounds[1:]] - running[bounds[:-1]])
