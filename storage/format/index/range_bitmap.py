# SPDX-License-Identifier: Apache-2.0
"""The range bitmap file index: a sorted dictionary of the values, and bit slices of their codes.

Source: FORMAT.md §10.6. The dictionary is cut into chunks: each names its first key in the list
of chunks and keeps the others apart, so that a lookup reads one chunk; the slices have a table of
offsets, so that a comparison reads only the ones it needs.
"""

import dataclasses
import struct
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc
import pyroaring

from storage.format.index.bitmap import DistinctRows, RowGrouping, content
from storage.format.index.roaring import bitmap_of, decode, encode
from storage.format.index.values import KeyCodec
from storage.format.index.window import IndexReader, Window
from storage.format.types.types import AtomicType, TypeRoot

_VERSION = 1
_INT = struct.Struct(">i")
_HEAD = struct.Struct(">bii")
_DICTIONARY = struct.Struct(">ibiii")
_SLICES = struct.Struct(">ibbii")
_CHUNK = struct.Struct(">iiii")
_PLACE = struct.Struct(">ii")
_MAX_SLICES = 64
_SMALL = (TypeRoot.BOOLEAN, TypeRoot.TINYINT, TypeRoot.SMALLINT)

Integers = npt.NDArray[np.int64]


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
        head = [_HEAD.pack(_VERSION, groups.row_count, len(keys))]
        if len(keys):
            head += [content(keys.slice(0, 1)), content(keys.slice(len(keys) - 1, 1))]
        head.append(_INT.pack(len(dictionary)))
        size = sum(map(len, head))
        return b"".join([_INT.pack(size), *head, dictionary, _encode_slices(groups)])

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
                kind = _INT.pack(self._codec.width)
                parts = [_CHUNK.pack(start, body_at, end - start - 1, len(body)), kind]
            else:
                at = np.cumsum(sizes[start + 1 : end]) - sizes[start + 1 : end]
                table = at.astype(">i4").tobytes()
                sizes_of_both = _INT.pack(len(table)) + _INT.pack(len(body))
                parts = [_INT.pack(start), _INT.pack(body_at), _INT.pack(end - start - 1)]
                parts.append(sizes_of_both)
                body = table + body
            chunk = b"".join([bytes([_VERSION]), content(keys.slice(start, 1)), *parts])
            offsets.append(_INT.pack(chunk_at))
            chunks.append(chunk)
            bodies.append(body)
            chunk_at += len(chunk)
            body_at += len(body)
        table = b"".join(offsets)
        head = _DICTIONARY.pack(
            _DICTIONARY.size - _INT.size, _VERSION, len(chunks), len(table), chunk_at
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
        end = max(start + 1, min(end, start + 1 + limit // _INT.size))
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
    size = _SLICES.size - _INT.size + len(table)
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
        size = window.count(0, window.length - _INT.size)
        head = window.part(_INT.size, size)
        version, rows, cardinality = _HEAD.unpack(head.read(0, _HEAD.size))
        if version != _VERSION or rows < 0 or not 0 <= cardinality <= rows:
            raise head.damage(
                "this is not a range bitmap index, or one of a later version",
                0,
                expected=f"version {_VERSION}, no more values than rows",
                found=f"version {version}, {cardinality} values of {rows} rows",
            )
        self._rows, self._cardinality = int(rows), int(cardinality)
        at = _HEAD.size
        if cardinality:
            _, at = self._codec.read(head, at)
            _, at = self._codec.read(head, at)
        length = head.integer(at)
        start = _INT.size + size
        self._read_dictionary(window.part(start, length))
        self._read_slices(window.part(start + length))

    def _read_dictionary(self, window: Window) -> None:
        size, version, chunks, table_size, chunk_size = _DICTIONARY.unpack(
            window.read(0, _DICTIONARY.size)
        )
        if version != _VERSION or not 0 <= chunks * _INT.size <= table_size:
            raise window.damage("the dictionary of a range bitmap is damaged", 0, found=version)
        table = window.part(_INT.size + size, table_size)
        offsets = np.frombuffer(table.read(0, chunks * _INT.size), ">i4")
        self._chunk_offsets = offsets.astype(np.int64)
        self._chunks = window.part(_INT.size + size + table_size, chunk_size)
        self._bodies = window.part(_INT.size + size + table_size + chunk_size)

    def _read_slices(self, window: Window) -> None:
        size, version, count, existing, table_size = _SLICES.unpack(window.read(0, _SLICES.size))
        if version != _VERSION or not 0 <= count <= _MAX_SLICES or table_size < count * _PLACE.size:
            raise window.damage("the slices of a range bitmap are damaged", 0, found=version)
        if self._cardinality and count < (self._cardinality - 1).bit_length():
            raise window.damage("slices of a range bitmap are missing", 0, found=count)
        self._slice_positions = window.part(_SLICES.size, table_size)
        body = _INT.size + size
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
            at = chunk.offsets.integer(index * _INT.size)
        return self._codec.read(chunk.keys, at)[0]
