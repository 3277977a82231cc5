# SPDX-License-Identifier: Apache-2.0
"""64-bit hashes of whole columns, as the bloom filter index takes them.

Source: FORMAT.md §10.3. Texts and bytes are hashed by XXH64 with seed 0, numbers by Thomas Wang's
64-bit mix. Nothing here is computed row by row: XXH64 walks over the words of all rows
together, so its steps are as many as the longest row has words.
"""

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from storage.format.index.values import byte_view, integer_view
from storage.format.types.types import AtomicType, TypeRoot

Hashes = npt.NDArray[np.uint64]

BLOOM_ROOTS = frozenset(TypeRoot) - {TypeRoot.BOOLEAN, TypeRoot.DECIMAL}
"""Families of types that can be hashed."""

_BYTES = frozenset({TypeRoot.CHAR, TypeRoot.VARCHAR, TypeRoot.BINARY, TypeRoot.VARBINARY})

_P1 = np.uint64(0x9E3779B185EBCA87)
_P2 = np.uint64(0xC2B2AE3D27D4EB4F)
_P3 = np.uint64(0x165667B19E3779F9)
_P4 = np.uint64(0x85EBCA77C2B2AE63)
_P5 = np.uint64(0x27D4EB2F165667C5)
_LANES = (
    np.uint64(0x60EA27EEADC0B5D6),  # P1 + P2
    np.uint64(0xC2B2AE3D27D4EB4F),  # P2
    np.uint64(0),
    np.uint64(0x61C8864E7A143579),  # -P1
)
_STRIPE = 32
_PAD = bytes(_STRIPE)

_ROWS_AT_ONCE = 16_384
"""Rows hashed together: their intermediate values stay in the second-level cache."""


def hash_column(column: pa.Array, type_: AtomicType) -> tuple[Hashes, npt.NDArray[np.bool_]]:
    """The hash of every value.

    Returns:
        Hashes, and which rows are valid; the hash of a null means nothing.
    """
    valid = np.asarray(column.is_valid())
    if type_.root in _BYTES:
        return xxh64(*byte_view(column)), valid
    return wang_mix(integer_view(column, type_)), valid


def wang_mix(values: npt.NDArray[np.int64]) -> Hashes:
    """Thomas Wang's mix of 64-bit integers; right shifts keep the sign."""
    key = ~values + (values << 21)
    key ^= key >> 24
    key += (key << 3) + (key << 8)
    key ^= key >> 14
    key += (key << 2) + (key << 4)
    key ^= key >> 28
    key += key << 31
    return key.view(np.uint64)


def xxh64(data: npt.NDArray[np.uint8], offsets: npt.NDArray[np.int64]) -> Hashes:
    """XXH64 with seed 0 of every slice `data[offsets[i]:offsets[i + 1]]`."""
    count = len(offsets) - 1
    hashes = np.empty(count, np.uint64)
    for start in range(0, count, _ROWS_AT_ONCE):
        bounds = offsets[start : start + _ROWS_AT_ONCE + 1]
        low, high = int(bounds[0]), int(bounds[-1])
        # words are read at any byte, up to 7 bytes beyond the last row
        padded = np.frombuffer(data[low:high].tobytes() + _PAD, np.uint8)
        hashes[start : start + len(bounds) - 1] = _hash_rows(padded, bounds - low)
    return hashes


def _hash_rows(padded: npt.NDArray[np.uint8], bounds: npt.NDArray[np.int64]) -> Hashes:
    words: npt.NDArray[np.uint64] = np.ndarray(
        (len(padded) - 7,), np.dtype("<u8"), buffer=padded.data, strides=(1,)
    )
    at = bounds[:-1].copy()
    lengths = np.diff(bounds)
    hashes = np.full(len(at), _P5)
    long = np.flatnonzero(lengths >= _STRIPE)
    if len(long):
        hashes[long] = _stripes(words, at[long], lengths[long] // _STRIPE)
        at[long] += lengths[long] & -_STRIPE
    hashes += lengths.view(np.uint64)
    rest = lengths & (_STRIPE - 1)
    for step in range(1, _STRIPE // 8):
        rows = np.flatnonzero(rest >= 8 * step)
        if not len(rows):
            break
        mixed = hashes[rows] ^ _round(np.uint64(0), words[at[rows] + 8 * (step - 1)])
        hashes[rows] = _rotated(mixed, 27) * _P1 + _P4
    at += rest & ~7
    rows = np.flatnonzero(rest & 4)
    if len(rows):
        word = words[at[rows]] & np.uint64(0xFFFFFFFF)
        hashes[rows] = _rotated(hashes[rows] ^ (word * _P1), 23) * _P2 + _P3
        at[rows] += 4
    for step in range(1, 4):
        rows = np.flatnonzero((rest & 3) >= step)
        if not len(rows):
            break
        byte = padded[at[rows] + (step - 1)].astype(np.uint64)
        hashes[rows] = _rotated(hashes[rows] ^ (byte * _P5), 11) * _P1
    hashes ^= hashes >> np.uint64(33)
    hashes *= _P2
    hashes ^= hashes >> np.uint64(29)
    hashes *= _P3
    hashes ^= hashes >> np.uint64(32)
    return hashes


def _stripes(words: Hashes, at: npt.NDArray[np.int64], stripes: npt.NDArray[np.int64]) -> Hashes:
    """The state after all whole stripes of rows that have at least one."""
    lanes = np.repeat(np.array(_LANES)[:, None], len(at), axis=1)
    order = np.argsort(-stripes, kind="stable")
    at, stripes = at[order], stripes[order]
    active = len(at)
    for step in range(int(stripes[0])):
        active = int(np.searchsorted(-stripes[:active], -step, side="left"))
        for lane in range(4):
            word = words[at[:active] + (_STRIPE * step + 8 * lane)]
            lanes[lane, :active] = _round(lanes[lane, :active], word)
    state = sum((_rotated(lanes[i], turn) for i, turn in enumerate((1, 7, 12, 18))), np.uint64(0))
    for lane in range(4):
        state = (state ^ _round(np.uint64(0), lanes[lane])) * _P1 + _P4
    result = np.empty_like(state)
    result[order] = state
    return result


def _round(state: np.uint64 | Hashes, word: Hashes) -> Hashes:
    return _rotated(state + word * _P2, 31) * _P1


def _rotated(value: Hashes, bits: int) -> Hashes:
    return (value << np.uint64(bits)) | (value >> np.uint64(64 - bits))
