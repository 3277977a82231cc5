# SPDX-License-Identifier: Apache-2.0
"""128-bit hashes of keys, for indexes that keep hashes instead of keys.

Not part of the table format. Column by column over the words of `binary_row`, like the bucket
hash: two multiply-rotate chains with different constants, seeded separately by every index so that
keys that collide cannot be prepared. Among a billion keys two are equal with a probability of
about 10^-21.
"""

import functools
from collections.abc import Sequence

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from storage.format.row.binary_row import ColumnWords, mix_tail, placed_words, row_words
from storage.format.types.arrow_types import normalize
from storage.format.types.types import DataType

KeyHashes = npt.NDArray[np.uint64]
"""Shape (rows, 2)."""

_BLOCK_ROWS = 16_384
"""Rows hashed together: the working arrays stay within a core's L2 cache."""

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
        _mix(state, np.atleast_1d(word), lane)
    for part in parts:
        mix_tail(state, part.tail, functools.partial(_mix, lane=lane))
    state ^= sizes.astype(np.uint64)
    return mixed(state)


def _mix(state: npt.NDArray[np.uint64], words: npt.NDArray[np.uint64], lane: int) -> None:
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
