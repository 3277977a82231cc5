# SPDX-License-Identifier: Apache-2.0
"""The bitmap file index: the rows of every distinct value.

Source: FORMAT.md §10.4. Version 1 lists all values in its head, version 2 keeps them sorted in
blocks, so that a lookup reads one block and one bitmap. A value of one row has no bitmap: its row
is in the offset.
"""

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

from storage.errors import InvalidOptionError
from storage.format.index.roaring import bitmap_of, decode, encode
from storage.format.index.values import IndexKey, KeyCodec, big_endian, is_text, key_column
from storage.format.index.window import IndexReader, Window
from storage.format.types.types import AtomicType


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
