# SPDX-License-Identifier: Apache-2.0
"""Which bucket a row belongs to: murmur hash of its bucket key, and the bucket functions.

Source: FORMAT.md §6. The hash runs over the words of `binary_row` column by column, so rows are
never laid out: fixed parts cost a dozen vector operations per 8 bytes, strings are hashed one word
a step over the rows that are still that long. Work goes in blocks that stay in the CPU's cache.
"""

import functools
from collections.abc import Sequence
from typing import Any, Literal, cast

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from storage.errors import InvalidRequestError, UnsupportedFeatureError
from storage.format.row.binary_row import (
    ColumnWords,
    Words,
    mix_tail,
    placed_words,
    row_words,
)
from storage.format.row.row_codec import MAX_COMPACT_DECIMAL, RowValue, to_row_values
from storage.format.types.types import AtomicType, DataType, TypeRoot, normalize, type_name

BucketFunction = Literal["default", "mod", "hive"]

Hashes = npt.NDArray[np.uint32]

_BLOCK_ROWS = 16_384
"""Rows hashed together: a block's five working arrays of 64 KiB stay within a core's L2 cache."""

_SEED = 42
_C1, _C2 = np.uint32(0xCC9E2D51), np.uint32(0x1B873593)
_ADD = np.uint32(0xE6546B64)
_FINAL1, _FINAL2 = np.uint32(0x85EBCA6B), np.uint32(0xC2B2AE35)
_FIVE = np.uint32(5)
_HALF = np.uint64(32)


def hash_rows(columns: Sequence[pa.Array], types: Sequence[DataType]) -> npt.NDArray[np.int32]:
    """Hash of each row's BinaryRow, as Java's signed int; of shape (rows,).

    Args:
        columns: the bucket key columns in bucket key order (or the trimmed primary key for a
            dynamic bucket index), equally long.
        types: their types; nested ones are encoded row by row.

    Raises:
        InvalidRequestError: no columns.
        UnsupportedFeatureError: a column does not have its declared type.
    """
    arrays = _normalized(columns, types)
    count = len(arrays[0])
    out = np.empty(count, np.uint32)
    for start in range(0, count, _BLOCK_ROWS):
        block = [array.slice(start, _BLOCK_ROWS) for array in arrays]
        out[start : start + _BLOCK_ROWS] = _hash_block(row_words(block, types), len(block[0]))
    return out.view(np.int32)


def assign_buckets(
    columns: Sequence[pa.Array],
    types: Sequence[DataType],
    bucket_count: int,
    function: BucketFunction | str = "default",
) -> npt.NDArray[np.int32]:
    """Bucket of each row, 0 to `bucket_count` - 1.

    Args:
        columns: the bucket key columns in bucket key order, equally long.
        types: their types.
        bucket_count: of the table, > 0.
        function: option `bucket-function.type`.

    Raises:
        InvalidRequestError: no columns, no buckets, or an unknown function.
        UnsupportedFeatureError: the function does not take these types.
    """
    if bucket_count <= 0:
        raise InvalidRequestError(
            "rows can be assigned to a fixed number of buckets only", bucket=bucket_count
        )
    arrays = _normalized(columns, types)
    if bucket_count == 1:
        return np.zeros(len(arrays[0]), np.int32)
    match function:
        case "default":
            # |hash % n| with Java's truncating remainder is |hash| % n.
            magnitude = np.abs(hash_rows(arrays, types)).view(np.uint32)
            return _remainder(magnitude, bucket_count)
        case "mod":
            return _mod_buckets(arrays, types, bucket_count)
        case "hive":
            hashes = hive_hash(arrays, types) & np.uint32(0x7FFFFFFF)
            return _remainder(hashes, bucket_count)
        case _:
            raise InvalidRequestError(
                "unknown bucket function",
                function=function,
                hint="set `bucket-function.type` to default, mod or hive",
            )


def murmur_rows(rows: npt.NDArray[np.uint8]) -> npt.NDArray[np.int32]:
    """Hash of rows that are already bytes.

    Of shape (rows, width), width a multiple of 4.
    """
    count, width = rows.shape
    words = np.ascontiguousarray(rows).view(np.uint32)
    state = np.full(count, _SEED, np.uint32)
    for i in range(width // 4):
        _mix(state, words[:, i])
    return _finish(state, np.full(count, width, np.uint32)).view(np.int32)


def _normalized(columns: Sequence[pa.Array], types: Sequence[DataType]) -> list[pa.Array]:
    if not columns:
        raise InvalidRequestError(
            "rows cannot be hashed without bucket key columns",
            hint="set `bucket-key`, or `bucket` to -1",
        )
    return [normalize(column, type_) for column, type_ in zip(columns, types, strict=True)]


def _remainder(values: Hashes, divisor: int) -> npt.NDArray[np.int32]:
    if divisor & (divisor - 1) == 0:
        return (values & np.uint32(divisor - 1)).view(np.int32)
    # numpy divides by a scalar with multiplications, but not so for the remainder.
    quotients = values // np.uint32(divisor)
    return (values - quotients * np.uint32(divisor)).view(np.int32)


def _mod_buckets(
    columns: Sequence[pa.Array], types: Sequence[DataType], bucket_count: int
) -> npt.NDArray[np.int32]:
    type_ = types[0]
    integer = isinstance(type_, AtomicType) and type_.root in (TypeRoot.INT, TypeRoot.BIGINT)
    if len(types) != 1 or not integer:
        raise UnsupportedFeatureError(
            "bucket function mod takes exactly one INT or BIGINT column",
            types=", ".join(type_name(column_type) for column_type in types),
        )
    values = columns[0].fill_null(0).to_numpy(zero_copy_only=False)
    return cast(npt.NDArray[np.int32], np.mod(values, bucket_count).astype(np.int32))


def _hash_block(parts: Sequence[ColumnWords], count: int) -> Hashes:
    words, _, sizes = placed_words(parts, count)
    state = np.full(1, _SEED, np.uint32)  # one value for all rows while the words are constants
    for word in words:
        if word.ndim and len(state) != count:
            state = np.repeat(state, count)
        _mix_words(state, word)
    if len(state) != count:
        state = np.repeat(state, count)
    for part in parts:
        mix_tail(state, part.tail, _mix_words)
    return _finish(state, (sizes << 3).astype(np.uint32))


def _mix_words(state: Hashes, words: Words) -> None:
    """Mix 8 more bytes of each row into the state, in place. `words` is of its shape or ()."""
    words = np.atleast_1d(words)
    _mix(state, words.astype(np.uint32))
    _mix(state, (words >> _HALF).astype(np.uint32))


def _mix(state: Hashes, k: Hashes) -> None:
    """Mix 4 more bytes of each row into the state, in place: one step of murmur3's 32-bit form."""
    k = k * _C1
    k = (k << np.uint32(15)) | (k >> np.uint32(17))
    k *= _C2
    state ^= k
    rotated = state << np.uint32(13)
    state >>= np.uint32(19)
    state |= rotated
    state *= _FIVE
    state += _ADD


def _finish(state: Hashes, lengths: Hashes) -> Hashes:
    state ^= lengths
    state ^= state >> np.uint32(16)
    state *= _FINAL1
    state ^= state >> np.uint32(13)
    state *= _FINAL2
    state ^= state >> np.uint32(16)
    return state


_INTEGERS = (
    TypeRoot.BOOLEAN,
    TypeRoot.TINYINT,
    TypeRoot.SMALLINT,
    TypeRoot.INT,
    TypeRoot.DATE,
    TypeRoot.TIME,
)
_TEXTS = (TypeRoot.CHAR, TypeRoot.VARCHAR, TypeRoot.BINARY, TypeRoot.VARBINARY)
_FACTOR = np.uint32(31)


def hive_hash(columns: Sequence[pa.Array], types: Sequence[DataType]) -> Hashes:
    """Hash of each row, wrapping at 32 bits; nulls count as 0.

    TIMESTAMPs and nested types have no such hash, unless all values are null.

    Raises:
        UnsupportedFeatureError: a value of a type without a hash.
    """
    state = np.zeros(len(columns[0]), np.uint32)
    for column, type_ in zip(columns, types, strict=True):
        state *= _FACTOR
        state += _column_hash(normalize(column, type_), type_)
    return state


def _column_hash(column: pa.Array, type_: DataType) -> Hashes:
    if column.null_count == len(column):
        return np.zeros(len(column), np.uint32)
    hashes = _value_hash(column, type_)
    if column.null_count:
        hashes[column.is_null().to_numpy(zero_copy_only=False)] = 0
    return hashes


def _value_hash(column: pa.Array, type_: DataType) -> Hashes:
    root = type_.root if isinstance(type_, AtomicType) else None
    if root in _INTEGERS:
        integers = _filled(column.cast(pa.int32()), 0)
        return cast(Hashes, integers.astype(np.int32).view(np.uint32))
    if root is TypeRoot.BIGINT:
        return _folded(_filled(column, 0).view(np.uint64))
    if root is TypeRoot.FLOAT:
        floats = _canonical(_filled(column, 0.0).astype(np.float32))
        return cast(Hashes, floats.view(np.uint32))
    if root is TypeRoot.DOUBLE:
        return _folded(_canonical(_filled(column, 0.0)).view(np.uint64))
    if root in _TEXTS:
        return _text_hash(column)
    if root is TypeRoot.DECIMAL and isinstance(type_, AtomicType):
        return _decimal_hash(column, type_)
    raise UnsupportedFeatureError(
        "bucket function hive does not support this type", type=type_name(type_)
    )


def _filled(column: pa.Array, value: float) -> npt.NDArray[Any]:
    return np.array(column.fill_null(value).to_numpy(zero_copy_only=False))


def _folded(bits: npt.NDArray[np.uint64]) -> Hashes:
    return (bits ^ (bits >> np.uint64(32))).astype(np.uint32)


def _canonical(values: npt.NDArray[Any]) -> npt.NDArray[Any]:
    values = np.where(values == 0, values.dtype.type(0), values)
    return np.where(np.isnan(values), values.dtype.type(np.nan), values)


def _text_hash(column: pa.Array) -> Hashes:
    """Sum of 31^(distance to the end) * signed byte, by one running sum over the buffer."""
    _, offset_buffer, data = column.buffers()
    offsets = np.frombuffer(offset_buffer, np.int32, len(column) + 1, column.offset * 4)
    first, last = int(offsets[0]), int(offsets[-1])
    if data is None or last == first:
        return np.zeros(len(column), np.uint32)
    content = np.frombuffer(data, np.int8, last - first, first).astype(np.uint32)
    lengths = np.diff(offsets)
    ends = np.repeat(offsets[1:] - first, lengths)
    powers = np.full(int(lengths.max()), _FACTOR, np.uint32)
    powers[0] = 1
    np.multiply.accumulate(powers, out=powers)
    content *= powers[ends - 1 - np.arange(last - first)]
    sums = np.zeros(last - first + 1, np.uint32)
    np.cumsum(content, dtype=np.uint32, out=sums[1:])
    return cast(Hashes, sums[offsets[1:] - first] - sums[offsets[:-1] - first])


def _decimal_hash(column: pa.Array, type_: AtomicType) -> Hashes:
    if type_.precision > MAX_COMPACT_DECIMAL:
        values = (_decimal_value_hash(value) for value in to_row_values(column, type_))
        return np.fromiter(values, np.uint32, len(column))
    pairs = np.frombuffer(column.buffers()[1], np.int64, 2 * len(column), column.offset * 16)
    unscaled = pairs[::2].copy()
    if column.null_count:
        unscaled[column.is_null().to_numpy(zero_copy_only=False)] = 0
    scales = np.where(unscaled == 0, 0, type_.scale).astype(np.uint32)
    for _ in range(type_.scale):
        quotients = unscaled // 10
        strip = (scales > 0) & (quotients * 10 == unscaled)
        unscaled = np.where(strip, quotients, unscaled)
        scales -= strip
    magnitude = np.abs(unscaled).view(np.uint64)
    hashes = (magnitude >> np.uint64(32)).astype(np.uint32) * _FACTOR
    hashes += magnitude.astype(np.uint32)
    hashes = np.where(unscaled < 0, np.uint32(0) - hashes, hashes)
    return hashes * _FACTOR + scales


def _decimal_value_hash(value: RowValue) -> int:
    """Java's `BigDecimal.hashCode` of the value without trailing zeros."""
    if value is None or value == 0:
        return 0
    sign, digits, exponent = value.as_tuple()
    unscaled = int("".join(map(str, digits)))
    while exponent < 0 and unscaled % 10 == 0:
        unscaled //= 10
        exponent += 1
    hashed = 0
    for shift in range((unscaled.bit_length() + 31) // 32 * 32 - 32, -1, -32):
        hashed = 31 * hashed + (unscaled >> shift & 0xFFFFFFFF)
    return (31 * (-hashed if sign else hashed) - exponent) & 0xFFFFFFFF


# 128-bit hashes of keys, for indexes that keep hashes instead of keys.
#
# Not part of the table format. Column by column over the words of `binary_row`, like the bucket
# hash: two multiply-rotate chains with different constants, seeded separately by every index so
# that keys that collide cannot be prepared. Among a billion keys two are equal with a probability
# of about 10^-21.


KeyHashes = npt.NDArray[np.uint64]
"""Shape (rows, 2)."""


_ODD = (np.uint64(0x9E3779B97F4A7C15), np.uint64(0xC2B2AE3D27D4EB4F))
_STEP = (np.uint64(0xFF51AFD7ED558CCD), np.uint64(0x87C37B91114253D5))
_TURN = (np.uint64(31), np.uint64(33))
_MIX1, _MIX2 = np.uint64(0xBF58476D1CE4E5B9), np.uint64(0x94D049BB133111EB)
_WORD = np.uint64(64)


def key_hashes(
    columns: Sequence[pa.Array], types: Sequence[DataType], seed: tuple[int, int]
) -> KeyHashes:
    """Hashes of the rows of some columns, of shape (rows, 2).

    Args:
        columns: the key columns, equally long, at least one.
        types: their types.
        seed: two random numbers below 2^64; hashes of different seeds have nothing in common.
    """
    arrays = [normalize(column, type_) for column, type_ in zip(columns, types, strict=True)]
    count = len(arrays[0])
    out = np.empty((count, 2), np.uint64)
    for start in range(0, count, _BLOCK_ROWS):
        block = [array.slice(start, _BLOCK_ROWS) for array in arrays]
        parts = row_words(block, types)
        for lane in range(2):
            out[start : start + _BLOCK_ROWS, lane] = _lane(parts, len(block[0]), lane, seed[lane])
    return out


def _lane(parts: Sequence[ColumnWords], count: int, lane: int, seed: int) -> npt.NDArray[np.uint64]:
    words, _, sizes = placed_words(parts, count)
    state = np.full(count, seed, np.uint64)
    for word in words:
        _mix_lane(state, np.atleast_1d(word), lane)
    for part in parts:
        mix_tail(state, part.tail, functools.partial(_mix_lane, lane=lane))
    state ^= sizes.astype(np.uint64)
    return mixed(state)


def _mix_lane(state: npt.NDArray[np.uint64], words: npt.NDArray[np.uint64], lane: int) -> None:
    """Take a word of each row into the state, in place; `words` of its shape or (1,)."""
    state ^= words * _ODD[lane]
    rotated = state << _TURN[lane]
    state >>= _WORD - _TURN[lane]
    state |= rotated
    state *= _STEP[lane]
    state += _ODD[1 - lane]


def mixed(state: npt.NDArray[np.uint64]) -> npt.NDArray[np.uint64]:
    """Spread every bit over all others, in place (the finalizer of SplitMix64)."""
    state ^= state >> np.uint64(30)
    state *= _MIX1
    state ^= state >> np.uint64(27)
    state *= _MIX2
    state ^= state >> np.uint64(31)
    return state
