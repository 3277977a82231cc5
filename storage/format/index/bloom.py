# SPDX-License-Identifier: Apache-2.0
"""The bloom filter file index: which values a file certainly does not hold.

Source: FORMAT.md §10.3. Payload: number of hash functions (4 bytes, big-endian), then the bits.
"""

import math

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyroaring

from storage.errors import CorruptDataError, InvalidOptionError
from storage.format.index.hashing import hash_column
from storage.format.index.window import IndexReader, Window
from storage.format.types.types import AtomicType

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
