# SPDX-License-Identifier: Apache-2.0
"""Roaring bitmaps of row positions inside file indexes, in the portable format.

Source: the public RoaringFormatSpec; Java writes run containers where they are smaller. Bytes are
checked before they reach the native library, which trusts them.
"""

import array
import itertools
import struct

import numpy as np
import numpy.typing as npt
import pyroaring

from storage.errors import CorruptDataError
from storage.format.index.window import Window

_PLAIN = 12346
_WITH_RUNS = 12347
_MAX_CONTAINERS = 1 << 16
_OFFSETS_FROM = 4
"""Bitmaps with runs have a table of offsets from so many containers on."""

_MAX_ARRAY = 4096
_BITSET_BYTES = 8192
_INT = struct.Struct("<I")


def bitmap_of(rows: npt.NDArray[np.integer]) -> pyroaring.BitMap:
    """A bitmap of row positions; ascending ones are fastest."""
    return pyroaring.BitMap(array.array("I", rows.astype(np.uint32).tobytes()))


def encode(bitmap: pyroaring.BitMap) -> bytes:
    """The bytes Java writes. Changes only the bitmap's internal form."""
    bitmap.run_optimize()
    return bytes(bitmap.serialize())


def decode(
    window: Window, offset: int, length: int | None = None, *, rows: int
) -> tuple[pyroaring.BitMap, int]:
    """A stored bitmap, and the offset behind it.

    It takes at most `length` bytes (None: to the end of the window); every position is below
    `rows`.

    Raises:
        CorruptDataError: the bytes are no bitmap of such positions.
    """
    data = window.view(offset, window.length - offset if length is None else length)
    try:
        size = _checked_size(data)
        bitmap = pyroaring.BitMap.deserialize(bytes(data[:size]))
    except ValueError as error:
        raise _damage(window, offset, str(error)) from error
    if bitmap and bitmap.max() >= rows:
        raise _damage(window, offset, f"row {bitmap.max()} of {rows}")
    return bitmap, offset + size


def _damage(window: Window, offset: int, detail: str) -> CorruptDataError:
    return window.damage("a bitmap in a file index is damaged", offset, found=detail)


def _checked_size(data: memoryview) -> int:
    """Bytes of the bitmap at the start of `data`, after checking every container.

    Raises:
        ValueError: says what is wrong.
    """
    (cookie,) = _INT.unpack_from(_slice_checked(data, 0, 4))
    flags = b""
    if cookie & 0xFFFF == _WITH_RUNS:
        count = (cookie >> 16) + 1
        at = 4 + (count + 7) // 8
        flags = bytes(_slice_checked(data, 4, at - 4))
    elif cookie == _PLAIN:
        (count,) = _INT.unpack_from(_slice_checked(data, 4, 4))
        at = 8
    else:
        raise ValueError("unknown cookie")
    if count > _MAX_CONTAINERS:
        raise ValueError("too many containers")
    descriptors = _shorts(data, at, 2 * count).tolist()
    keys = descriptors[::2]
    if any(previous >= key for previous, key in itertools.pairwise(keys)):
        raise ValueError("containers out of order")
    at += 4 * count
    offsets = None
    if not flags or count >= _OFFSETS_FROM:
        offsets = np.frombuffer(_slice_checked(data, at, 4 * count), "<u4").tolist()
        at += 4 * count
    for i in range(count):
        if offsets is not None and offsets[i] != at:
            raise ValueError("wrong offset of a container")
        runs = bool(flags) and flags[i >> 3] >> (i & 7) & 1 == 1
        at += _container_size(data, at, descriptors[2 * i + 1] + 1, runs=runs)
    return at


def _container_size(data: memoryview, at: int, cardinality: int, *, runs: bool) -> int:
    if runs:
        count = int(_shorts(data, at, 1)[0])
        pairs = _shorts(data, at + 2, 2 * count).astype(np.int64)
        starts, ends = pairs[::2], pairs[::2] + pairs[1::2]
        in_order = count > 0 and ends[-1] < _MAX_CONTAINERS and (starts[1:] > ends[:-1]).all()
        if not in_order or int((ends - starts + 1).sum()) != cardinality:
            raise ValueError("damaged run container")
        return 2 + 4 * count
    if cardinality <= _MAX_ARRAY:
        values = _shorts(data, at, cardinality)
        if not (values[1:] > values[:-1]).all():
            raise ValueError("damaged array container")
        return 2 * cardinality
    bits = np.frombuffer(_slice_checked(data, at, _BITSET_BYTES), np.uint64)
    if int(np.bitwise_count(bits).sum(dtype=np.int64)) != cardinality:
        raise ValueError("damaged bitmap container")
    return _BITSET_BYTES


def _shorts(data: memoryview, at: int, count: int) -> npt.NDArray[np.uint16]:
    return np.frombuffer(_slice_checked(data, at, 2 * count), "<u2")


def _slice_checked(data: memoryview, at: int, length: int) -> memoryview:
    if at + length > len(data):
        raise ValueError("ends too early")
    return data[at : at + length]
