# SPDX-License-Identifier: Apache-2.0
"""Which bucket a row belongs to: murmur hash of its bucket key, and the bucket functions.

Source: FORMAT.md §6. The hash runs over the words of `binary_row` column by column, so rows are
never laid out: fixed parts cost a dozen vector operations per 8 bytes, strings are hashed one word
a step over the rows that are still that long. Work goes in blocks that stay in the CPU's cache.
"""

from collections.abc import Sequence
from typing import Literal, cast

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from storage.errors import InvalidRequestError, UnsupportedFeatureError
from storage.format.row.binary_row import (
    BytesTail,
    ColumnWords,
    FixedTail,
    Words,
    placed_words,
    row_words,
)
from storage.format.row.hive_hash import hive_hash
from storage.format.types.arrow_types import normalize
from storage.format.types.type_text import type_name
from storage.format.types.types import AtomicType, DataType, TypeRoot

__all__ = ["BucketFunction", "assign_buckets", "hash_rows", "murmur_rows"]

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
    """Hash of each row's BinaryRow, as Java's signed int.

    Args:
        columns: the bucket key columns in bucket key order (or the trimmed primary key for a
            dynamic bucket index), equally long.
        types: their types; nested ones are encoded row by row.

    Returns:
        Shape (rows,), in the columns' order.

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
        InvalidRequestError: no columns, no buckets, or a function that is not known.
        UnsupportedFeatureError: the function does not take these types.
    """
    if bucket_count <= 0:
        raise InvalidRequestError(
            "rows can be assigned to a fixed count of buckets only", bucket=bucket_count
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

    Args:
        rows: shape (rows, width), width a multiple of 4.
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
            types=", ".join(type_name(each) for each in types),
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
        _mix_tail(state, part.tail)
    return _finish(state, (sizes << 3).astype(np.uint32))


def _mix_tail(state: Hashes, tail: FixedTail | BytesTail | None) -> None:
    match tail:
        case FixedTail(words=words):
            for word in words:
                _mix_words(state, word)
        case BytesTail():
            counts = tail.word_counts
            shortest, longest = int(counts.min()), int(counts.max())
            for step in range(shortest):
                _mix_words(state, tail.word(step, None))
            for step in range(shortest, longest):
                rows = np.flatnonzero(counts > step)
                part = state[rows]
                _mix_words(part, tail.word(step, rows))
                state[rows] = part
        case None:
            return


def _mix_words(state: Hashes, words: Words) -> None:
    """Take 8 more bytes of each row into the state, in place. `words` is of its shape or ()."""
    words = np.atleast_1d(words)
    _mix(state, words.astype(np.uint32))
    _mix(state, (words >> _HALF).astype(np.uint32))


def _mix(state: Hashes, k: Hashes) -> None:
    """Take 4 more bytes of each row into the state, in place: one step of murmur3's 32-bit form."""
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
