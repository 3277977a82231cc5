# SPDX-License-Identifier: Apache-2.0
"""The bit-sliced file index: comparisons of numbers by one bitmap for each of their bits.

Source: FORMAT.md §10.5; comparison after O'Neil and Quass, "Improved query performance with
variant indexes" (1997). Numbers from zero up and negative ones, by their absolute value, are two
halves with slices of their own.
"""

import struct

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyroaring

from storage.format.index.roaring import bitmap_of, decode, encode
from storage.format.index.values import KeyCodec, integer_view
from storage.format.index.window import IndexReader, Window
from storage.format.types.types import AtomicType

_VERSION = 1
_HEAD = struct.Struct(">bi")
_HALF = struct.Struct(">bqq")
_INT = struct.Struct(">i")
_MAX_SLICES = 64
_LEAST = -(1 << 63)

Integers = npt.NDArray[np.int64]


class BsiBuilder:
    """Builds the index of one column; keeps eight bytes a row until `finish`."""

    def __init__(self, type_: AtomicType) -> None:
        self._type = type_
        self._values: list[Integers] = []
        self._rows: list[Integers] = []
        self._row_count = 0

    def add(self, column: pa.Array) -> None:
        """Add more rows."""
        values = integer_view(column, self._type)
        rows = np.flatnonzero(np.asarray(column.is_valid()))
        self._values.append(values[rows])
        self._rows.append(rows + self._row_count)
        self._row_count += len(column)

    def finish(self) -> bytes | None:
        """The payload; None when a value has no absolute value in 64 bits (-2^63)."""
        values = np.concatenate([np.empty(0, np.int64), *self._values])
        rows = np.concatenate([np.empty(0, np.int64), *self._rows])
        if np.any(values == _LEAST):
            return None
        negative = values < 0
        return b"".join(
            [
                _HEAD.pack(_VERSION, self._row_count),
                *_half(values[~negative], rows[~negative]),
                *_half(-values[negative], rows[negative]),
            ]
        )


def _half(values: Integers, rows: Integers) -> list[bytes]:
    if not len(values):
        return [b"\x00"]
    highest = int(values.max())
    slices = highest.bit_length()
    # the least value is always written as 0, as Java does
    parts = [b"\x01", _HALF.pack(_VERSION, 0, highest), encode(bitmap_of(rows)), _INT.pack(slices)]
    parts += [encode(bitmap_of(rows[(values >> bit & 1).astype(bool)])) for bit in range(slices)]
    return parts


class _Half:
    """The slices of one sign."""

    def __init__(
        self, low: int, high: int, existing: pyroaring.BitMap, slices: list[pyroaring.BitMap]
    ) -> None:
        self._low = low
        self._high = high
        self.existing = existing
        self._slices = slices

    def split(self, value: int) -> tuple[pyroaring.BitMap, pyroaring.BitMap, pyroaring.BitMap]:
        """Rows below, at and above a value."""
        none = pyroaring.BitMap()
        if value < self._low:
            return none, none, self.existing
        if value > self._high:
            return self.existing, none, none
        below, equal, above = pyroaring.BitMap(), self.existing, pyroaring.BitMap()
        offset = value - self._low
        for bit in reversed(range(len(self._slices))):
            if offset >> bit & 1:
                below |= equal - self._slices[bit]
                equal = equal & self._slices[bit]
            else:
                above |= equal & self._slices[bit]
                equal = equal - self._slices[bit]
        return below, equal, above


class BsiReader(IndexReader):
    """Compares values in a stored index.

    Raises:
        CorruptDataError: the payload is no bit-sliced index.
    """

    def __init__(self, window: Window, type_: AtomicType) -> None:
        self._codec = KeyCodec(type_)
        version, rows = _HEAD.unpack(window.read(0, _HEAD.size))
        if version != _VERSION or rows < 0:
            raise window.damage(
                "this is not a bit-sliced index, or one of a later version",
                0,
                expected=f"version {_VERSION}",
                found=f"version {version}, {rows} rows",
            )
        self._rows = int(rows)
        self._positive, at = self._read_half(window, _HEAD.size)
        self._negative, _ = self._read_half(window, at)

    def _read_half(self, window: Window, at: int) -> tuple[_Half, int]:
        present = window.byte(at)
        at += 1
        if not present:
            return _Half(0, 0, pyroaring.BitMap(), []), at
        version, low, high = _HALF.unpack(window.read(at, _HALF.size))
        if version != _VERSION or not 0 <= low <= high:
            raise window.damage(
                "the bounds of a bit-sliced index are damaged",
                at,
                expected=f"version {_VERSION}, 0 <= min <= max",
                found=f"version {version}, {low} to {high}",
            )
        existing, at = decode(window, at + _HALF.size, rows=self._rows)
        count = window.count(at, _MAX_SLICES)
        at += _INT.size
        if count < (high - low).bit_length():
            raise window.damage("slices of a bit-sliced index are missing", at, found=count)
        slices = []
        for _ in range(count):
            bitmap, at = decode(window, at, rows=self._rows)
            slices.append(bitmap)
        return _Half(low, high, existing, slices), at

    def equal_to(self, values: pa.Array) -> pyroaring.BitMap:
        """See `IndexReader`."""
        rows = pyroaring.BitMap()
        for key in self._codec.keys(values):
            half = self._positive if key >= 0 else self._negative
            rows |= half.split(abs(key))[1]
        return rows

    def above(self, value: pa.Array, inclusive: bool) -> pyroaring.BitMap:
        """See `IndexReader`."""
        (key,) = self._codec.keys(value)
        if key >= 0:
            _, equal, rows = self._positive.split(key)
        else:
            nearer, equal, _ = self._negative.split(-key)
            rows = nearer | self._positive.existing
        return rows | equal if inclusive else rows

    def below(self, value: pa.Array, inclusive: bool) -> pyroaring.BitMap:
        """See `IndexReader`."""
        (key,) = self._codec.keys(value)
        if key >= 0:
            smaller, equal, _ = self._positive.split(key)
            rows = smaller | self._negative.existing
        else:
            _, equal, rows = self._negative.split(-key)
        return rows | equal if inclusive else rows

    def valid_rows(self) -> pyroaring.BitMap:
        """See `IndexReader`."""
        return self._positive.existing | self._negative.existing

    def null_rows(self) -> pyroaring.BitMap:
        """See `IndexReader`."""
        return pyroaring.BitMap(range(self._rows)) - self.valid_rows()
