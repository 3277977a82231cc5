# SPDX-License-Identifier: Apache-2.0
"""Sorting and grouping rows by key; the one place that knows the key order.

Data plane: batches in, index arrays out, no Python object per row. The order itself is made in
`key_words`. Control plane: single keys as tuples that compare in the same order, for file ranges
and merge frontiers.
"""

import dataclasses
import functools
import struct
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from storage.errors import UnsupportedFeatureError
from storage.format.row.row_codec import decode_row
from storage.format.types.types import DataType

# Key columns as a few unsigned 64-bit words per row that sort the way the keys do.
#
# Owns the key order of the format: field by field, nulls first, numbers naturally, false before
# true, strings and bytes by unsigned byte, floats as Java compares them (-0.0 < 0.0, NaN greatest).
# Source: FORMAT.md §7.1, SEMANTICS.md §A.10.
#
# Words are relative to the rows they were made from (minimum and common prefix are taken off), so
# they compare only with words of the same call. Neighbouring small words are packed into one.


Word = tuple[np.ndarray, int]
"""One uint64 per row, and the number of low bits in use (1-64)."""

_WORD_BITS = 64
_ALL_ONES = (1 << _WORD_BITS) - 1
_LONGEST_TEXT = 64
"""Bytes behind the common prefix up to which texts are cut into words; ranking beats more words."""

_KEPT_BYTES = np.array(
    [_ALL_ONES ^ ((1 << (_WORD_BITS - 8 * count)) - 1) for count in range(9)], dtype=np.uint64
)
"""Mask of the first `count` bytes of a big-endian word."""


def order_words(columns: Iterable[pa.Array]) -> Iterator[Word]:
    """Words of the key made of some columns, most significant first.

    Two rows have equal words exactly when their keys are equal. Columns that are constant over
    all rows produce no word, so there may be none at all.

    Args:
        columns: key columns in key order, equal lengths of at least one row, scalar types.

    Raises:
        UnsupportedFeatureError: a column has a type that cannot be a key.

    Cost: a few passes over each column; texts of more than 64 distinct bytes are ranked (a sort).
    """
    packed: np.ndarray | None = None
    used_bits = 0
    for column in columns:
        for word, bits in _column_words(column):
            if bits == 0:
                continue
            if packed is None:
                packed, used_bits = word, bits
            elif used_bits + bits <= _WORD_BITS:
                packed, used_bits = (packed << np.uint64(bits)) | word, used_bits + bits
            else:
                yield packed, used_bits
                packed, used_bits = word, bits
    if packed is not None:
        yield packed, used_bits


def _column_words(column: pa.Array) -> Iterator[Word]:
    if pa.types.is_dictionary(column.type):
        column = column.dictionary_decode()
    valid: np.ndarray | None = None
    if column.null_count:
        valid = pc.is_valid(column).to_numpy(zero_copy_only=False)
        yield valid.astype(np.uint64), 1
        if not valid.any():
            return
    kind = column.type
    if pa.types.is_string(kind) or pa.types.is_binary(kind):
        yield from _text_words(column, valid, np.int32)
    elif pa.types.is_large_string(kind) or pa.types.is_large_binary(kind):
        yield from _text_words(column, valid, np.int64)
    elif pa.types.is_decimal128(kind):
        yield from _decimal_words(column, valid)
    else:
        yield _from_zero(_neutral(_signed_numbers(column), valid))


def _signed_numbers(column: pa.Array) -> np.ndarray:
    """int64 values that order like the column; undefined for nulls."""
    kind = column.type
    if pa.types.is_boolean(kind):
        return _plain(column.cast(pa.uint8())).astype(np.int64)
    if pa.types.is_signed_integer(kind) or kind in (pa.uint8(), pa.uint16(), pa.uint32()):
        return _plain(column).astype(np.int64, copy=False)
    if pa.types.is_date32(kind) or pa.types.is_time32(kind):
        return _plain(column.view(pa.int32())).astype(np.int64)
    if pa.types.is_timestamp(kind) or pa.types.is_time64(kind):
        return _plain(column.view(pa.int64()))
    if pa.types.is_float32(kind):
        return _java_float_order(_plain(column), np.int32)
    if pa.types.is_float64(kind):
        return _java_float_order(_plain(column), np.int64)
    raise UnsupportedFeatureError(
        "a column of this type cannot be part of a key", hint="use a scalar type", type=kind
    )


def _plain(column: pa.Array) -> np.ndarray:
    if column.null_count:
        column = column.fill_null(0)
    return column.to_numpy(zero_copy_only=False)


def _java_float_order(values: np.ndarray, integer: type[np.signedinteger]) -> np.ndarray:
    bits = values.view(integer).copy()
    bits[np.isnan(values)] = np.array(np.nan, values.dtype).view(integer)
    negative = bits < 0
    bits[negative] ^= np.iinfo(integer).max
    return bits.astype(np.int64, copy=False)


def _neutral(values: np.ndarray, valid: np.ndarray | None) -> np.ndarray:
    """The values with the slots of nulls set to the smallest valid one."""
    if valid is None:
        return values
    return np.where(valid, values, values[valid].min())


def _from_zero(values: np.ndarray) -> Word:
    """Values (int64 or uint64) counted from their minimum."""
    low, high = int(values.min()), int(values.max())
    word = values.view(np.uint64) - np.uint64(low & _ALL_ONES) if low else values
    return word.view(np.uint64), (high - low).bit_length()


def _decimal_words(column: pa.Array, valid: np.ndarray | None) -> Iterator[Word]:
    halves = np.frombuffer(column.buffers()[1], dtype=np.int64).reshape(-1, 2)
    halves = halves[column.offset : column.offset + len(column)]
    low = np.ascontiguousarray(halves[:, 0])
    if column.type.precision <= 18:
        yield _from_zero(_neutral(low, valid))
        return
    yield _from_zero(_neutral(np.ascontiguousarray(halves[:, 1]), valid))
    yield _from_zero(_neutral(low.view(np.uint64), valid))


def _text_words(
    column: pa.Array, valid: np.ndarray | None, offset_type: type[np.signedinteger]
) -> Iterator[Word]:
    _, offset_buffer, data_buffer = column.buffers()
    offsets = np.frombuffer(offset_buffer, dtype=offset_type)
    offsets = offsets[column.offset : column.offset + len(column) + 1].astype(np.int64)
    starts, lengths = offsets[:-1], np.diff(offsets)
    if valid is not None:
        lengths = np.where(valid, lengths, 0)
    prefix = _common_prefix_length(column) if valid is None or valid.all() else 0
    longest = int(lengths.max()) - prefix
    if longest == 0:
        return
    if longest > _LONGEST_TEXT:
        ranks = pc.rank(column, tiebreaker="dense")
        yield _from_zero(ranks.to_numpy(zero_copy_only=False))
        return
    first, last = int(offsets[0]), int(offsets[-1])
    data = np.frombuffer(data_buffer, dtype=np.uint8)[first:last]
    yield from _eight_byte_words(data, starts - first + prefix, lengths - prefix, longest)
    if not data.all():
        # a text that ends and one that continues with zero bytes have the same words
        yield _from_zero(lengths)


def _eight_byte_words(
    data: np.ndarray, starts: np.ndarray, lengths: np.ndarray, longest: int
) -> Iterator[Word]:
    padded = np.concatenate([data, np.zeros(8, dtype=np.uint8)])
    # every run of eight bytes as a big-endian number, by overlapping (unaligned) view
    eights: np.ndarray = np.ndarray(
        buffer=padded, dtype=">u8", shape=(len(padded) - 7,), strides=(1,)
    )
    for offset in range(0, longest, 8):
        counts = np.clip(lengths - offset, 0, 8)
        word = eights[np.minimum(starts + offset, len(eights) - 1)].astype(np.uint64)
        word &= _KEPT_BYTES[counts]
        if longest - offset < 8:
            word >>= np.uint64(8 * (8 - (longest - offset)))
        yield _from_zero(word)


def _common_prefix_length(column: pa.Array) -> int:
    binary = column.cast(pa.large_binary() if _is_large(column.type) else pa.binary())
    extremes = pc.min_max(binary)
    low, high = extremes["min"].as_buffer(), extremes["max"].as_buffer()
    size = min(low.size, high.size)
    if size == 0:
        return 0
    differing = np.flatnonzero(
        np.frombuffer(low, np.uint8, count=size) != np.frombuffer(high, np.uint8, count=size)
    )
    return int(differing[0]) if len(differing) else size


def _is_large(kind: pa.DataType) -> bool:
    return bool(pa.types.is_large_string(kind) or pa.types.is_large_binary(kind))


_ADAPTIVE_DESCENTS = 64
"""A stable argsort finds presorted runs; it wins while runs are this long on average [rows].

Measured on 2 M int64: 42-190 M rows/s on 20-2 runs and 9 M rows/s on random rows, where sorting
the word packed with the row number runs at 50 M rows/s."""


@dataclasses.dataclass(frozen=True, slots=True)
class KeyGroups:
    """Rows in key order, and where each key begins.

    Attributes:
        order: int64 row numbers in key order (stable); None when the rows are in order already.
        starts: int64 positions in that order at which a new key begins, ascending from 0.
    """

    order: np.ndarray | None
    starts: np.ndarray


def sort_and_group(batch: pa.RecordBatch, key_names: Sequence[str]) -> KeyGroups:
    """Order rows by key, rows of one key staying in their order, and find the groups.

    Cost: >= 20 M rows/s for one integer key in any order; presorted runs are recognised.
    """
    order, same = _sort(order_words(_columns(batch, key_names)), batch.num_rows)
    return KeyGroups(order, _starts(same, batch.num_rows))


def sort_permutation(batch: pa.RecordBatch, key_names: Sequence[str]) -> np.ndarray:
    """Row numbers in the order of the key, then of arrival.

    Columns are scalar, most significant first; nulls come first.
    """
    order, _ = _sort(order_words(_columns(batch, key_names)), batch.num_rows)
    return np.arange(batch.num_rows, dtype=np.int64) if order is None else order


def _columns(batch: pa.RecordBatch, names: Sequence[str]) -> Iterator[pa.Array]:
    for name in names:
        column = batch.column(name)
        yield column.combine_chunks() if isinstance(column, pa.ChunkedArray) else column


def _starts(same: np.ndarray, rows: int) -> np.ndarray:
    if rows == 0:
        return np.empty(0, dtype=np.int64)
    is_new = np.empty(rows, dtype=bool)
    is_new[0] = True
    np.logical_not(same, out=is_new[1:])
    return np.flatnonzero(is_new)


def _sort(words: Iterator[Word], rows: int) -> tuple[np.ndarray | None, np.ndarray]:
    """Row numbers in order (None = as they are), and whether each row equals the one before."""
    same = np.ones(max(rows - 1, 0), dtype=bool)
    if rows <= 1:
        return None, same
    order: np.ndarray | None = None
    for position, (word, bits) in enumerate(words):
        if position == 0:
            order, ordered_bits = _sort_first(word, bits)
        else:
            ordered_bits = word if order is None else word[order]
            if bool(np.any(same & (ordered_bits[1:] < ordered_bits[:-1]))):
                order, ordered_bits = _refine(order, same, ordered_bits)
        same &= ordered_bits[1:] == ordered_bits[:-1]
        if not same.any():
            break
    return order, same


def _sort_first(word: np.ndarray, bits: int) -> tuple[np.ndarray | None, np.ndarray]:
    rows = len(word)
    descents = int(np.count_nonzero(word[1:] < word[:-1]))
    if descents == 0:
        return None, word
    index_bits = (rows - 1).bit_length()
    if descents * _ADAPTIVE_DESCENTS > rows and bits + index_bits <= 64:
        packed = (word << np.uint64(index_bits)) | np.arange(rows, dtype=np.uint64)
        packed.sort()
        order = (packed & np.uint64((1 << index_bits) - 1)).view(np.int64)
        return order, packed >> np.uint64(index_bits)
    order = np.argsort(word, kind="stable")
    return order, word[order]


def _refine(
    order: np.ndarray | None, same: np.ndarray, word: np.ndarray
) -> tuple[np.ndarray, np.ndarray]:
    """Sort by one more word inside the groups that are equal so far and out of order in it."""
    rows = len(word)
    group = np.zeros(rows, dtype=np.int64)
    np.cumsum(~same, out=group[1:])
    wrong = np.zeros(int(group[-1]) + 1, dtype=bool)
    wrong[group[1:][same & (word[1:] < word[:-1])]] = True
    unsorted = np.flatnonzero(wrong[group])
    permutation = np.lexsort((word[unsorted], group[unsorted]))
    order = np.arange(rows, dtype=np.int64) if order is None else order.copy()
    word = word.copy()
    order[unsorted] = order[unsorted[permutation]]
    word[unsorted] = word[unsorted[permutation]]
    return order, word


# --- single keys -----------------------------------------------------------------------------


def comparable(values: Sequence[Any]) -> tuple[Any, ...]:
    """A key as a tuple that compares in key order.

    Values are as `binary_row.decode_row` gives them.
    """
    return tuple((0,) if value is None else (1, _orderable(value)) for value in values)


def _orderable(value: Any) -> Any:
    if isinstance(value, float):
        bits = int(struct.unpack(">q", struct.pack(">d", value))[0])
        if value != value:  # one NaN, above all
            bits = 0x7FF8_0000_0000_0000
        return bits if bits >= 0 else bits ^ 0x7FFF_FFFF_FFFF_FFFF
    return value


def key_decoder(types: Sequence[DataType]) -> Callable[[bytes], tuple[Any, ...]]:
    """A function from a framed key (`DataFileMeta.min_key`) to a comparable tuple.

    Equal types give the same function, which remembers the keys it decoded last.
    """
    return _decoder(tuple(types))


@functools.lru_cache(maxsize=256)
def _decoder(types: tuple[DataType, ...]) -> Callable[[bytes], tuple[Any, ...]]:
    @functools.lru_cache(maxsize=16_384)
    def decode(framed: bytes) -> tuple[Any, ...]:
        return comparable(decode_row(framed, types))

    return decode


def key_at(batch: pa.RecordBatch, key_names: Sequence[str], row: int) -> tuple[Any, ...]:
    """The key of one row as a comparable tuple (compares with others of `key_at` only)."""
    return comparable([_scalar(batch.column(name)[row]) for name in key_names])


def _scalar(value: pa.Scalar) -> Any:
    if not value.is_valid:
        return None
    if isinstance(value, (pa.Date32Scalar, pa.Time32Scalar, pa.Time64Scalar, pa.TimestampScalar)):
        return value.value
    return value.as_py()


def lower_bound(batch: pa.RecordBatch, key_names: Sequence[str], key: tuple[Any, ...]) -> int:
    """First row whose key is not below `key`, in rows sorted by key (the row count if none is)."""
    low, high = 0, batch.num_rows
    while low < high:
        middle = (low + high) // 2
        if key_at(batch, key_names, middle) < key:
            low = middle + 1
        else:
            high = middle
    return low
