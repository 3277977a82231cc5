# SPDX-License-Identifier: Apache-2.0
"""64-bit hashes of whole columns, as the bloom filter index takes them.

Source: FORMAT.md §10.3. Texts and bytes are hashed by XXH64 with seed 0, numbers by Thomas Wang's
64-bit mix. Nothing here is computed row by row: XXH64 walks over the words of all rows
together, so its steps are as many as the longest row has words.
"""

import math

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyroaring

from storage.errors import CorruptDataError, InvalidOptionError
from storage.format.index.values import IndexReader, Window, byte_view, integer_view
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


# The bloom filter file index: which values a file certainly does not hold.
#
# Source: FORMAT.md §10.3. Payload: number of hash functions (4 bytes, big-endian), then the bits.


DEFAULT_ITEMS = 1_000_000
DEFAULT_FPP = 0.1

_COUNT_SIZE = 4
_MAX_FUNCTIONS = 1_024
"""No filter needs more; a larger number is damage."""

_MAX_BITS = 1 << 33

_MIN_ROWS = 16
"""Bits from which on reading the whole filter is cheaper than asking for each."""


def parameters(items: int, fpp: float) -> tuple[int, int]:
    """Bits and hash functions of a filter.

    Args:
        items: distinct values it is made for.
        fpp: share of absent values that it may let pass, between 0 and 1.

    Raises:
        InvalidOptionError: there is no such filter.
    """
    if items < 1 or not 0 < fpp < 1:
        raise InvalidOptionError(
            "a bloom filter needs a number of items and a false positive probability",
            hint="give `items` of at least 1 and `fpp` between 0 and 1",
            items=items,
            fpp=fpp,
        )
    bits = int(-items * math.log(fpp) / (math.log(2) ** 2))
    bits += 8 - bits % 8
    if bits > _MAX_BITS:
        raise InvalidOptionError(
            "a bloom filter would be larger than 1 gb", hint="lower `items`", items=items, fpp=fpp
        )
    return bits, max(1, math.floor(bits / items * math.log(2) + 0.5))


def _positions(hashes: npt.NDArray[np.uint64], function: int, bits: int) -> npt.NDArray[np.int64]:
    """Bit positions that one hash function gives; 32-bit arithmetic wraps around."""
    low = hashes.astype(np.uint32).view(np.int32)
    high = (hashes >> np.uint64(32)).astype(np.uint32).view(np.int32)
    combined = low + high * np.int32(function)
    return np.where(combined < 0, ~combined, combined).astype(np.int64) % bits


class BloomBuilder:
    """Builds the filter of one column."""

    def __init__(
        self, type_: AtomicType, *, items: int = DEFAULT_ITEMS, fpp: float = DEFAULT_FPP
    ) -> None:
        self._type = type_
        self._bits, self._functions = parameters(items, fpp)
        self._set = np.zeros(self._bits // 8, np.uint8)

    def add(self, column: pa.Array) -> None:
        """Add the values of more rows; nulls are left out."""
        hashes, valid = hash_column(column, self._type)
        if column.null_count:
            hashes = hashes[valid]
        for function in range(1, self._functions + 1):
            positions = _positions(hashes, function, self._bits)
            masks = np.left_shift(np.uint8(1), (positions & 7).astype(np.uint8))
            np.bitwise_or.at(self._set, positions >> 3, masks)

    def finish(self) -> bytes:
        """The payload."""
        return self._functions.to_bytes(_COUNT_SIZE, "big") + self._set.tobytes()


class BloomReader(IndexReader):
    """Looks values up in a stored filter, reading only the bytes it needs.

    Raises:
        CorruptDataError: the payload is no filter.
    """

    def __init__(self, window: Window, type_: AtomicType) -> None:
        self._window = window
        self._type = type_
        self._bits = 8 * (window.length - _COUNT_SIZE)
        self._functions = window.integer(0)
        if self._bits <= 0 or not 0 < self._functions <= _MAX_FUNCTIONS:
            raise CorruptDataError(
                "a bloom filter has no bits or an invalid number of hash functions",
                path=window.path,
                offset=window.start,
                expected=f"1 to {_MAX_FUNCTIONS} functions and some bits",
                functions=self._functions,
                bits=self._bits,
            )

    def equal_to(self, values: pa.Array) -> pyroaring.BitMap | None:
        """No rows when certainly none has any of these values, of which none is null."""
        hashes, _ = hash_column(values, self._type)
        if len(hashes) * self._functions > _MIN_ROWS:
            self._window.view(0, self._window.length)  # at once; the source keeps it
        if any(self._may_contain(hashes[i : i + 1]) for i in range(len(hashes))):
            return None
        return pyroaring.BitMap()

    def _may_contain(self, hashes: npt.NDArray[np.uint64]) -> bool:
        for function in range(1, self._functions + 1):
            position = int(_positions(hashes, function, self._bits)[0])
            byte = self._window.byte(_COUNT_SIZE + (position >> 3))
            if not byte >> (position & 7) & 1:
                return False
        return True
