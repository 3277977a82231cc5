# SPDX-License-Identifier: Apache-2.0
"""The bitmap file index: the rows of every distinct value.

Source: FORMAT.md §10.4. Version 1 lists all values in its head, version 2 keeps them sorted in
blocks, so that a lookup reads one block and one bitmap. A value of one row has no bitmap: its row
is in the offset.
"""

import array
import bisect
import dataclasses
import itertools
import struct
from collections.abc import Iterator
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc
import pyroaring

from storage.errors import CorruptDataError, InvalidOptionError
from storage.format.index.values import (
    IndexKey,
    IndexReader,
    KeyCodec,
    Window,
    big_endian,
    integer_view,
    is_text,
    key_column,
)
from storage.format.types.types import AtomicType, TypeRoot

# Roaring bitmaps of row positions inside file indexes, in the portable format.
#
# Source: the public RoaringFormatSpec; Java writes run containers where they are smaller. Bytes are
# checked before they reach the native library, which trusts them.


_PLAIN = 12346
_WITH_RUNS = 12347
_MAX_CONTAINERS = 1 << 16
_OFFSETS_FROM = 4
"""Bitmaps with runs have a table of offsets from so many containers on."""

_MAX_ARRAY = 4096
_BITSET_BYTES = 8192
_ROARING_INT = struct.Struct("<I")


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
    (cookie,) = _ROARING_INT.unpack_from(_slice_checked(data, 0, 4))
    flags = b""
    if cookie & 0xFFFF == _WITH_RUNS:
        count = (cookie >> 16) + 1
        at = 4 + (count + 7) // 8
        flags = bytes(_slice_checked(data, 4, at - 4))
    elif cookie == _PLAIN:
        (count,) = _ROARING_INT.unpack_from(_slice_checked(data, 4, 4))
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


@dataclasses.dataclass(frozen=True, slots=True)
class DistinctRows:
    """A column as its distinct values.

    Attributes:
        keys: distinct keys in ascending order: numbers signed, texts by their bytes.
        codes: position in `keys` of every row; meaningless for nulls.
        nulls: rows that are null, ascending.
        rows: valid rows, by key and then ascending.
        starts: where the rows of each key begin in `rows`; one more than keys.
    """

    keys: pa.Array
    codes: npt.NDArray[np.int64]
    nulls: npt.NDArray[np.int64]
    rows: npt.NDArray[np.int64]
    starts: npt.NDArray[np.int64]

    @property
    def counts(self) -> npt.NDArray[np.int64]:
        """Rows of each key."""
        return np.diff(self.starts)

    @property
    def row_count(self) -> int:
        """All rows, nulls included."""
        return len(self.codes)

    def groups(self, least: int) -> Iterator[tuple[int, npt.NDArray[np.int64]]]:
        """Position of a key and its rows, for keys with at least so many rows."""
        for i in np.flatnonzero(self.counts >= least).tolist():
            yield i, self.rows[self.starts[i] : self.starts[i + 1]]


class RowGrouping:
    """Collects a column batch by batch, four bytes a row besides the distinct values."""

    def __init__(self, type_: AtomicType) -> None:
        self._type = type_
        self._parts: list[pa.DictionaryArray] = []

    def add(self, column: pa.Array) -> None:
        """Add more rows."""
        self._parts.append(key_column(column, self._type).dictionary_encode())

    def finish(self) -> DistinctRows:
        """The rows of every distinct value."""
        keys, codes = self._unified()
        order = np.asarray(pc.sort_indices(keys)).astype(np.int64)
        rank = np.empty(len(order) + 1, np.int64)
        rank[order] = np.arange(len(order))
        rank[-1] = -1
        codes = rank[codes]
        nulls = np.flatnonzero(codes < 0)
        rows = np.argsort(codes, kind="stable")[len(nulls) :]
        counts = np.bincount(codes[codes >= 0], minlength=len(keys))
        starts = np.concatenate([np.zeros(1, np.int64), np.cumsum(counts)])
        return DistinctRows(keys.take(pa.array(order)), codes, nulls, rows, starts)

    def _unified(self) -> tuple[pa.Array, npt.NDArray[np.int64]]:
        """Distinct keys in any order and the code of each row, -1 for null."""
        value_type = pa.binary() if is_text(self._type) else pa.int64()
        if not self._parts:
            return pa.array([], value_type), np.empty(0, np.int64)
        whole = pa.chunked_array(self._parts).unify_dictionaries()
        codes = [np.asarray(pc.fill_null(part.indices, -1)) for part in whole.chunks]
        return whole.chunk(0).dictionary, np.concatenate(codes).astype(np.int64)


def cuts(sizes: npt.NDArray[np.int64], limit: int) -> npt.NDArray[np.int64]:
    """Where pieces begin when entries fill pieces of at most `limit` bytes, each at least one.

    Sizes and limit are in bytes.
    """
    ends = np.cumsum(sizes)
    starts = [0] if len(sizes) else []
    while starts and starts[-1] < len(sizes):
        before = int(ends[starts[-1] - 1]) if starts[-1] else 0
        starts.append(max(starts[-1] + 1, int(np.searchsorted(ends, before + limit, "right"))))
    return np.array(starts, np.int64)


DEFAULT_BLOCK_SIZE = 16 * 1024
VERSIONS = (1, 2)

_HEAD = struct.Struct(">bii?")
_INT = struct.Struct(">i")
_UNKNOWN_LENGTH = -1

Integers = npt.NDArray[np.int64]


class BitmapBuilder:
    """Builds the index of one column.

    Args:
        block_size: most bytes of a block of version 2.

    Raises:
        InvalidOptionError: there is no such version.
    """

    def __init__(
        self, type_: AtomicType, *, version: int = 2, block_size: int = DEFAULT_BLOCK_SIZE
    ) -> None:
        if version not in VERSIONS:
            raise InvalidOptionError(
                "unknown version of the bitmap index", hint="give 1 or 2", version=version
            )
        self._codec = KeyCodec(type_)
        self._version = version
        self._block_size = block_size
        self._grouping = RowGrouping(type_)

    def add(self, column: pa.Array) -> None:
        """Add more rows."""
        self._grouping.add(column)

    def finish(self) -> bytes:
        """The payload."""
        groups = self._grouping.finish()
        null_bitmap = encode(bitmap_of(groups.nulls))
        bodies = [null_bitmap] if len(groups.nulls) > 1 else []
        offsets, lengths = _bitmap_positions(groups, bodies)
        null_offset = -1 - int(groups.nulls[0]) if len(groups.nulls) == 1 else 0
        head = [
            _HEAD.pack(self._version, groups.row_count, len(groups.keys), len(groups.nulls) > 0),
        ]
        if len(groups.nulls):
            head.append(_INT.pack(null_offset))
            if self._version > 1:
                head.append(_INT.pack(len(null_bitmap)))
        keys = self._codec.encode_column(groups.keys)
        columns = [keys, big_endian(offsets.astype(np.int32))]
        if self._version > 1:
            columns.append(big_endian(lengths.astype(np.int32)))
        entries = pc.binary_join_element_wise(*columns, b"")
        if self._version == 1:
            head.append(content(entries))
        else:
            head += self._blocks(keys, entries)
        return b"".join(head + bodies)

    def _blocks(self, keys: pa.Array, entries: pa.Array) -> list[bytes]:
        """The directory of blocks and the blocks themselves."""
        sizes = np.asarray(pc.binary_length(entries)).astype(np.int64)
        if len(sizes) and int(sizes.max()) + _INT.size > self._block_size:
            raise InvalidOptionError(
                "a value does not fit a block of the bitmap index",
                hint="raise `index-block-size`",
                block_size=self._block_size,
                value_size=int(sizes.max()),
            )
        bounds = cuts(sizes, self._block_size - _INT.size).tolist()
        blocks = [
            _INT.pack(end - start) + content(entries.slice(start, end - start))
            for start, end in itertools.pairwise(bounds)
        ]
        ends = np.cumsum([0, *map(len, blocks)]).tolist()
        directory = [_INT.pack(len(blocks))]
        for start, at in zip(bounds[:-1], ends[:-1], strict=True):
            directory += [content(keys.slice(start, 1)), _INT.pack(at)]
        return [*directory, _INT.pack(ends[-1]), *blocks]


def content(column: pa.Array) -> bytes:
    """The bytes of a binary column, row after row."""
    _, offsets, data = column.buffers()
    if data is None or not len(column):
        return b""
    bounds = np.frombuffer(offsets, np.int32)
    start, end = int(bounds[column.offset]), int(bounds[column.offset + len(column)])
    return bytes(data.slice(start, end - start).to_pybytes())


def _bitmap_positions(
    distinct_rows: DistinctRows, bodies: list[bytes]
) -> tuple[Integers, Integers]:
    """Offset and length of every value's rows; appends the bitmaps to `bodies`."""
    first = distinct_rows.rows[distinct_rows.starts[:-1]]
    offsets = -1 - first
    lengths = np.full(len(first), _UNKNOWN_LENGTH, np.int64)
    at = sum(map(len, bodies))
    for i, rows in distinct_rows.groups(2):
        body = encode(bitmap_of(rows))
        bodies.append(body)
        offsets[i], lengths[i] = at, len(body)
        at += len(body)
    return offsets, lengths


class BitmapReader(IndexReader):
    """Finds the rows of values in a stored index, of either version.

    Raises:
        CorruptDataError: the payload is no bitmap index (also from every method).
    """

    def __init__(self, window: Window, type_: AtomicType) -> None:
        self._window = window
        self._codec = KeyCodec(type_)
        version, rows, values, has_null = _HEAD.unpack(window.read(0, _HEAD.size))
        if version not in VERSIONS or rows < 0 or not 0 <= values <= rows:
            raise window.damage(
                "this is not a bitmap index, or one of a later version",
                0,
                expected="version 1 or 2, no more values than rows",
                found=f"version {version}, {values} values of {rows} rows",
            )
        self._rows = int(rows)
        at = _HEAD.size
        self._null: tuple[int, int] | None = None
        if has_null:
            has_length = version > 1
            length = window.integer(at + _INT.size) if has_length else _UNKNOWN_LENGTH
            self._null = (window.integer(at), length)
            at += (2 if has_length else 1) * _INT.size
        self._first: list[Any] = []
        self._blocks: list[tuple[int, int]] = []
        self._entries: dict[int, dict[IndexKey, tuple[int, int]]] = {}
        if version == 1:
            entries, at = self._read_entries(window, at, int(values), with_length=False)
            self._entries[0] = entries
            self._bodies = window.part(at)
        else:
            self._read_directory(at)
        self._ends: Integers | None = None

    def _read_directory(self, at: int) -> None:
        window = self._window
        count = window.count(at, self._rows)
        at += _INT.size
        offsets = []
        for _ in range(count):
            key, at = self._codec.read(window, at)
            self._first.append(key)
            offsets.append(window.integer(at))
            at += _INT.size
        size = window.count(at, window.length)
        start = at + _INT.size
        for offset, end in zip(offsets, [*offsets, size][1:], strict=True):
            if not 0 <= offset <= end <= size:
                raise window.damage("a block of a bitmap index is misplaced", start, found=offset)
            self._blocks.append((start + offset, end - offset))
        self._bodies = window.part(start + size)

    def _read_entries(
        self, window: Window, at: int, count: int, *, with_length: bool
    ) -> tuple[dict[IndexKey, tuple[int, int]], int]:
        """Entries that follow one another, and the offset behind them."""
        data = window.view(at, window.length - at)
        try:
            keys, numbers, size = self._codec.entries(data, count, 2 if with_length else 1)
        except ValueError as error:
            raise window.damage("a bitmap index is damaged", at, found=str(error)) from error
        places = [(entry[0], entry[1] if with_length else _UNKNOWN_LENGTH) for entry in numbers]
        return dict(zip(keys, places, strict=True)), at + size

    def equal_to(self, values: pa.Array) -> pyroaring.BitMap:
        """See `IndexReader`."""
        rows = pyroaring.BitMap()
        for key in self._codec.keys(values):
            place = self._bitmap_position(key)
            if place is not None:
                rows |= self._bitmap(*place)
        return rows

    def null_rows(self) -> pyroaring.BitMap:
        """See `IndexReader`."""
        return pyroaring.BitMap() if self._null is None else self._bitmap(*self._null)

    def valid_rows(self) -> pyroaring.BitMap:
        """See `IndexReader`."""
        return pyroaring.BitMap(range(self._rows)) - self.null_rows()

    def _bitmap_position(self, key: IndexKey) -> tuple[int, int] | None:
        if 0 in self._entries and not self._blocks:
            return self._entries[0].get(key)
        position = bisect.bisect_right(self._first, key) - 1
        if position < 0:
            return None
        if position not in self._entries:
            at, length = self._blocks[position]
            block = self._window.part(at, length)
            count = block.count(0, self._rows)
            self._entries[position], _ = self._read_entries(
                block, _INT.size, count, with_length=True
            )
        return self._entries[position].get(key)

    def _bitmap(self, offset: int, length: int) -> pyroaring.BitMap:
        if offset < 0:
            row = -1 - offset
            if row >= self._rows:
                raise self._window.damage("a row of a bitmap index is out of range", 0, found=row)
            return pyroaring.BitMap([row])
        if length == _UNKNOWN_LENGTH:
            length = self._end(offset) - offset
        bitmap, _ = decode(self._bodies, offset, length, rows=self._rows)
        return bitmap

    def _end(self, offset: int) -> int:
        """Where a bitmap without a length ends: where the next begins (version 1)."""
        if self._ends is None:
            places = [at for at, _ in self._entries[0].values() if at >= 0]
            self._ends = np.unique(np.array([*places, self._bodies.length], np.int64))
        after = int(np.searchsorted(self._ends, offset, "right"))
        return int(self._ends[after]) if after < len(self._ends) else self._bodies.length


# The bit-sliced file index: comparisons of numbers by one bitmap for each of their bits.
#
# Source: FORMAT.md §10.5; comparison after O'Neil and Quass, "Improved query performance with
# variant indexes" (1997). Numbers from zero up and negative ones, by their absolute value, are two
# halves with slices of their own.


_VERSION = 1
_BSI_HEAD = struct.Struct(">bi")
_HALF = struct.Struct(">bqq")
_BSI_INT = struct.Struct(">i")
_MAX_SLICES = 64
_LEAST = -(1 << 63)


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
                _BSI_HEAD.pack(_VERSION, self._row_count),
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
    parts = [
        b"\x01",
        _HALF.pack(_VERSION, 0, highest),
        encode(bitmap_of(rows)),
        _BSI_INT.pack(slices),
    ]
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
        version, rows = _BSI_HEAD.unpack(window.read(0, _BSI_HEAD.size))
        if version != _VERSION or rows < 0:
            raise window.damage(
                "this is not a bit-sliced index, or one of a later version",
                0,
                expected=f"version {_VERSION}",
                found=f"version {version}, {rows} rows",
            )
        self._rows = int(rows)
        self._positive, at = self._read_half(window, _BSI_HEAD.size)
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
        at += _BSI_INT.size
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


# The range bitmap file index: a sorted dictionary of the values, and bit slices of their codes.
#
# Source: FORMAT.md §10.6. The dictionary is cut into chunks: each names its first key in the list
# of chunks and keeps the others apart, so that a lookup reads one chunk; the slices have a table of
# offsets, so that a comparison reads only the ones it needs.


_RANGE_BITMAP_INT = struct.Struct(">i")
_RANGE_BITMAP_HEAD = struct.Struct(">bii")
_DICTIONARY = struct.Struct(">ibiii")
_SLICES = struct.Struct(">ibbii")
_CHUNK = struct.Struct(">iiii")
_PLACE = struct.Struct(">ii")
_SMALL = (TypeRoot.BOOLEAN, TypeRoot.TINYINT, TypeRoot.SMALLINT)


def default_chunk_size(type_: AtomicType) -> int:
    """Most bytes of the further keys of a chunk; 0 = every key is a chunk of its own."""
    return 0 if type_.root in _SMALL else 16 * 1024


class RangeBitmapBuilder:
    """Builds the index of one column.

    Args:
        chunk_size: most bytes of the keys of a chunk, its first key aside; None = by type.
    """

    def __init__(self, type_: AtomicType, *, chunk_size: int | None = None) -> None:
        self._codec = KeyCodec(type_)
        self._chunk_size = default_chunk_size(type_) if chunk_size is None else chunk_size
        self._grouping = RowGrouping(type_)

    def add(self, column: pa.Array) -> None:
        """Add more rows."""
        self._grouping.add(column)

    def finish(self) -> bytes:
        """The payload."""
        groups = self._grouping.finish()
        keys = self._codec.encode_column(groups.keys)
        dictionary = self._dictionary(keys)
        head = [_RANGE_BITMAP_HEAD.pack(_VERSION, groups.row_count, len(keys))]
        if len(keys):
            head += [content(keys.slice(0, 1)), content(keys.slice(len(keys) - 1, 1))]
        head.append(_RANGE_BITMAP_INT.pack(len(dictionary)))
        size = sum(map(len, head))
        return b"".join([_RANGE_BITMAP_INT.pack(size), *head, dictionary, _encode_slices(groups)])

    def _dictionary(self, keys: pa.Array) -> bytes:
        sizes = np.asarray(pc.binary_length(keys)).astype(np.int64)
        offsets: list[bytes] = []
        chunks: list[bytes] = []
        bodies: list[bytes] = []
        chunk_at = body_at = 0
        for start, end in self._chunk_bounds(sizes):
            rest = keys.slice(start + 1, end - start - 1)
            body = content(rest)
            if self._codec.width:
                kind = _RANGE_BITMAP_INT.pack(self._codec.width)
                parts = [_CHUNK.pack(start, body_at, end - start - 1, len(body)), kind]
            else:
                at = np.cumsum(sizes[start + 1 : end]) - sizes[start + 1 : end]
                table = at.astype(">i4").tobytes()
                sizes_of_both = _RANGE_BITMAP_INT.pack(len(table)) + _RANGE_BITMAP_INT.pack(
                    len(body)
                )
                parts = [
                    _RANGE_BITMAP_INT.pack(start),
                    _RANGE_BITMAP_INT.pack(body_at),
                    _RANGE_BITMAP_INT.pack(end - start - 1),
                ]
                parts.append(sizes_of_both)
                body = table + body
            chunk = b"".join([bytes([_VERSION]), content(keys.slice(start, 1)), *parts])
            offsets.append(_RANGE_BITMAP_INT.pack(chunk_at))
            chunks.append(chunk)
            bodies.append(body)
            chunk_at += len(chunk)
            body_at += len(body)
        table = b"".join(offsets)
        head = _DICTIONARY.pack(
            _DICTIONARY.size - _RANGE_BITMAP_INT.size, _VERSION, len(chunks), len(table), chunk_at
        )
        return b"".join([head, table, *chunks, *bodies])

    def _chunk_bounds(self, sizes: Integers) -> list[tuple[int, int]]:
        """First and last-plus-one key of every chunk; the first key does not count."""
        limit = self._chunk_size
        if not self._codec.width:
            return _text_chunks(sizes, limit)
        keys_per_chunk = 1 + limit // self._codec.width
        starts = range(0, len(sizes), keys_per_chunk)
        return [(start, min(start + keys_per_chunk, len(sizes))) for start in starts]


def _text_chunks(sizes: Integers, limit: int) -> list[tuple[int, int]]:
    """Chunks of texts: keys fit `limit`, and so do their offsets."""
    ends = np.cumsum(sizes)
    chunks = []
    start = 0
    while start < len(sizes):
        end = int(np.searchsorted(ends, ends[start] + limit, "right"))
        end = max(start + 1, min(end, start + 1 + limit // _RANGE_BITMAP_INT.size))
        chunks.append((start, end))
        start = end
    return chunks


def _encode_slices(distinct_rows: DistinctRows) -> bytes:
    valid = distinct_rows.codes >= 0
    rows, codes = np.flatnonzero(valid), distinct_rows.codes[valid]
    # without a value Java makes all 64 slices
    count = (
        max(1, (len(distinct_rows.keys) - 1).bit_length())
        if len(distinct_rows.keys)
        else _MAX_SLICES
    )
    existing = encode(bitmap_of(rows))
    slices = [encode(bitmap_of(rows[(codes >> bit & 1).astype(bool)])) for bit in range(count)]
    places, at = [], 0
    for data in slices:
        places.append(_PLACE.pack(at, len(data)))
        at += len(data)
    table = b"".join(places)
    size = _SLICES.size - _RANGE_BITMAP_INT.size + len(table)
    head = _SLICES.pack(size, _VERSION, count, len(existing), len(table))
    return b"".join([head, table, existing, *slices])


@dataclasses.dataclass(frozen=True, slots=True)
class _Chunk:
    """A chunk of the dictionary: its first key and where the others are."""

    first: Any
    code: int
    count: int
    offsets: Window | None
    keys: Window


class RangeBitmapReader(IndexReader):
    """Finds and compares values in a stored index.

    Raises:
        CorruptDataError: the payload is no range bitmap (also from every method).
    """

    def __init__(self, window: Window, type_: AtomicType) -> None:
        self._codec = KeyCodec(type_)
        size = window.count(0, window.length - _RANGE_BITMAP_INT.size)
        head = window.part(_RANGE_BITMAP_INT.size, size)
        version, rows, cardinality = _RANGE_BITMAP_HEAD.unpack(
            head.read(0, _RANGE_BITMAP_HEAD.size)
        )
        if version != _VERSION or rows < 0 or not 0 <= cardinality <= rows:
            raise head.damage(
                "this is not a range bitmap index, or one of a later version",
                0,
                expected=f"version {_VERSION}, no more values than rows",
                found=f"version {version}, {cardinality} values of {rows} rows",
            )
        self._rows, self._cardinality = int(rows), int(cardinality)
        at = _RANGE_BITMAP_HEAD.size
        if cardinality:
            _, at = self._codec.read(head, at)
            _, at = self._codec.read(head, at)
        length = head.integer(at)
        start = _RANGE_BITMAP_INT.size + size
        self._read_dictionary(window.part(start, length))
        self._read_slices(window.part(start + length))

    def _read_dictionary(self, window: Window) -> None:
        size, version, chunks, table_size, chunk_size = _DICTIONARY.unpack(
            window.read(0, _DICTIONARY.size)
        )
        if version != _VERSION or not 0 <= chunks * _RANGE_BITMAP_INT.size <= table_size:
            raise window.damage("the dictionary of a range bitmap is damaged", 0, found=version)
        table = window.part(_RANGE_BITMAP_INT.size + size, table_size)
        offsets = np.frombuffer(table.read(0, chunks * _RANGE_BITMAP_INT.size), ">i4")
        self._chunk_offsets = offsets.astype(np.int64)
        self._chunks = window.part(_RANGE_BITMAP_INT.size + size + table_size, chunk_size)
        self._bodies = window.part(_RANGE_BITMAP_INT.size + size + table_size + chunk_size)

    def _read_slices(self, window: Window) -> None:
        size, version, count, existing, table_size = _SLICES.unpack(window.read(0, _SLICES.size))
        if version != _VERSION or not 0 <= count <= _MAX_SLICES or table_size < count * _PLACE.size:
            raise window.damage("the slices of a range bitmap are damaged", 0, found=version)
        if self._cardinality and count < (self._cardinality - 1).bit_length():
            raise window.damage("slices of a range bitmap are missing", 0, found=count)
        self._slice_positions = window.part(_SLICES.size, table_size)
        body = _RANGE_BITMAP_INT.size + size
        self._existing_window = window.part(body, existing)
        self._slices = window.part(body + existing)
        self._slice_count = count
        self._loaded: dict[int, pyroaring.BitMap] = {}

    def equal_to(self, values: pa.Array) -> pyroaring.BitMap:
        """See `IndexReader`."""
        rows = pyroaring.BitMap()
        for key in self._codec.keys(values):
            code, exact = self._code(key)
            if exact:
                rows |= self._at_least(code) - self._at_least(code + 1)
        return rows

    def above(self, value: pa.Array, inclusive: bool) -> pyroaring.BitMap:
        """See `IndexReader`."""
        (key,) = self._codec.keys(value)
        code, exact = self._code(key)
        return self._at_least(code + 1 if exact and not inclusive else code)

    def below(self, value: pa.Array, inclusive: bool) -> pyroaring.BitMap:
        """See `IndexReader`."""
        (key,) = self._codec.keys(value)
        code, exact = self._code(key)
        return self.valid_rows() - self._at_least(code + 1 if exact and inclusive else code)

    def valid_rows(self) -> pyroaring.BitMap:
        """See `IndexReader`."""
        if not self._cardinality:
            return pyroaring.BitMap()
        if -1 not in self._loaded:
            self._loaded[-1], _ = decode(self._existing_window, 0, rows=self._rows)
        return self._loaded[-1]

    def null_rows(self) -> pyroaring.BitMap:
        """See `IndexReader`."""
        return pyroaring.BitMap(range(self._rows)) - self.valid_rows()

    def _at_least(self, code: int) -> pyroaring.BitMap:
        """Rows whose code is this one or greater."""
        if code <= 0:
            return self.valid_rows()
        if code >= self._cardinality:
            return pyroaring.BitMap()
        # greater than code - 1: from its lowest zero bit on, or at zeros and and at ones
        below = code - 1
        lowest = (~below & (below + 1)).bit_length() - 1
        if lowest >= self._slice_count:
            return pyroaring.BitMap()
        rows = self._slice(lowest)
        for bit in range(lowest + 1, self._slice_count):
            bitmap = self._slice(bit)
            rows = rows & bitmap if below >> bit & 1 else rows | bitmap
        return rows & self.valid_rows()

    def _slice(self, bit: int) -> pyroaring.BitMap:
        if bit not in self._loaded:
            offset, length = _PLACE.unpack(
                self._slice_positions.read(bit * _PLACE.size, _PLACE.size)
            )
            self._loaded[bit], _ = decode(self._slices, offset, length, rows=self._rows)
        return self._loaded[bit]

    def _code(self, key: Any) -> tuple[int, bool]:
        """Code of the first dictionary key that is not smaller, and whether it is this one."""
        low, high = 0, len(self._chunk_offsets)
        while low < high:
            middle = (low + high) // 2
            if self._chunk(middle).first <= key:
                low = middle + 1
            else:
                high = middle
        if not low:
            return 0, False
        chunk = self._chunk(low - 1)
        if chunk.first == key:
            return chunk.code, True
        low, high = 0, chunk.count
        while low < high:
            middle = (low + high) // 2
            if self._key(chunk, middle) < key:
                low = middle + 1
            else:
                high = middle
        exact = low < chunk.count and self._key(chunk, low) == key
        return chunk.code + 1 + low, exact

    def _chunk(self, index: int) -> _Chunk:
        window = self._chunks.part(int(self._chunk_offsets[index]))
        if window.byte(0) != _VERSION:
            raise window.damage("a chunk of a range bitmap is damaged", 0, found=window.byte(0))
        first, at = self._codec.read(window, 1)
        code, start, count, size = _CHUNK.unpack(window.read(at, _CHUNK.size))
        last = window.integer(at + _CHUNK.size)
        if not 0 <= code <= code + count < self._cardinality:
            raise window.damage("codes of a range bitmap are out of range", at, found=code)
        if self._codec.width:
            return _Chunk(first, code, count, None, self._bodies.part(start, size))
        offsets = self._bodies.part(start, size)
        return _Chunk(first, code, count, offsets, self._bodies.part(start + size, last))

    def _key(self, chunk: _Chunk, index: int) -> Any:
        if chunk.offsets is None:
            at = index * self._codec.width
        else:
            at = chunk.offsets.integer(index * _RANGE_BITMAP_INT.size)
        return self._codec.read(chunk.keys, at)[0]
