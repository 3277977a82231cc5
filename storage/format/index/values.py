# SPDX-License-Identifier: Apache-2.0
"""How column values look inside file indexes: as 64-bit integers that keep the order, or as bytes.

Source: FORMAT.md §10.3 to §10.6. DATE is days, TIME milliseconds, a timestamp milliseconds up to
precision 3 and microseconds (rounded down) above it, DECIMAL its unscaled value. A float becomes
an integer of the same order, with -0.0 below 0.0 and every NaN the one greatest value.
"""

import dataclasses
import struct
from typing import Any, Protocol

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc
import pyroaring

from storage.errors import CorruptDataError
from storage.format.types.types import AtomicType, TypeRoot
from storage.io.file_io import FileIO

# Byte ranges of an index, checked and read only when needed.
#
# A payload in the manifest is in memory already; one in a file of its own is read in
# blocks, because a request costs far more than the bytes it fetches.


_BLOCK = 64 * 1024
"""Least bytes fetched by one request."""

_INT = struct.Struct(">i")


class Source(Protocol):
    """Bytes of a file index container."""

    @property
    def path(self) -> str:
        """For messages."""

    @property
    def size(self) -> int:
        """Length [bytes]."""

    def view(self, start: int, length: int) -> memoryview:
        """A range inside it; no copy where it can be avoided."""


@dataclasses.dataclass(frozen=True, slots=True)
class MemorySource:
    """A container that is in memory."""

    data: bytes
    path: str

    @property
    def size(self) -> int:
        """See `Source`."""
        return len(self.data)

    def view(self, start: int, length: int) -> memoryview:
        """See `Source`."""
        return memoryview(self.data)[start : start + length]


class FileSource:
    """A container in a file of its own. Caches what it reads.

    Raises:
        CorruptDataError: the file is missing.
    """

    def __init__(self, file_io: FileIO, path: str) -> None:
        self.path = path
        self._file_io = file_io
        try:
            with file_io.open_input(path) as stream:
                self.size = int(stream.size())
                self._blocks = [(0, bytes(stream.read(min(_BLOCK, self.size))))]
        except FileNotFoundError as error:
            raise CorruptDataError(
                "the file index of a data file is missing",
                hint="rebuild it with `rewrite_file_index`, or set "
                "`file-index.read.enabled` to false",
                path=path,
            ) from error

    def view(self, start: int, length: int) -> memoryview:
        """See `Source`."""
        for at, block in self._blocks:
            if at <= start and start + length <= at + len(block):
                return memoryview(block)[start - at : start - at + length]
        count = min(max(length, _BLOCK), self.size - start)
        with self._file_io.open_input(self.path) as stream:
            stream.seek(start)
            block = bytes(stream.read(count))
        self._blocks.append((start, block))
        return memoryview(block)[:length]


@dataclasses.dataclass(frozen=True, slots=True)
class Window:
    """A range of a container, by offsets of its own.

    Attributes:
        start: where the range begins in it.
        length: its length [bytes].
    """

    source: Source
    start: int
    length: int

    @property
    def path(self) -> str:
        """For messages."""
        return self.source.path

    def read(self, offset: int, length: int) -> bytes:
        """A copy of bytes inside the range; see `view`."""
        return bytes(self.view(offset, length))

    def view(self, offset: int, length: int) -> memoryview:
        """Bytes inside the range.

        Raises:
            CorruptDataError: some are outside.
        """
        if offset < 0 or length < 0 or offset + length > self.length:
            raise self.damage("a file index points outside of itself", offset, length=length)
        data = self.source.view(self.start + offset, length)
        if len(data) != length:
            raise self.damage("a file index ends too early", offset, length=length)
        return data

    def byte(self, offset: int) -> int:
        """An unsigned byte."""
        return self.view(offset, 1)[0]

    def integer(self, offset: int) -> int:
        """A signed 4-byte integer, big-endian."""
        (value,) = _INT.unpack(self.view(offset, _INT.size))
        return int(value)

    def count(self, offset: int, at_most: int) -> int:
        """A 4-byte integer between 0 and a bound.

        Raises:
            CorruptDataError: it is outside.
        """
        value = self.integer(offset)
        if not 0 <= value <= at_most:
            raise self.damage(
                "a number in a file index is out of range",
                offset,
                expected=f"0 to {at_most}",
                found=value,
            )
        return value

    def part(self, offset: int, length: int | None = None) -> "Window":
        """A range of this range; None = to the end.

        Raises:
            CorruptDataError: it is not inside.
        """
        length = self.length - offset if length is None else length
        if offset < 0 or length < 0 or offset + length > self.length:
            raise self.damage("a file index points outside of itself", offset, length=length)
        return Window(self.source, self.start + offset, length)

    def damage(self, message: str, offset: int, **context: Any) -> CorruptDataError:
        """The error to raise about an offset of this range."""
        return CorruptDataError(
            message, path=self.path, offset=self.start + max(0, offset), **context
        )


class IndexReader:
    """One stored index of one column. Values are columns in the form of `arrow_types`.

    An answer is a set of rows that holds every row in question, or None when the index cannot
    decide. It is exact but for values that are rounded (`kinds.is_rounded`).

    Raises (all methods): CorruptDataError.
    """

    _answer: pyroaring.BitMap | None = None
    """Answer to a query that the index does not support."""

    def equal_to(self, values: pa.Array) -> pyroaring.BitMap | None:
        """Rows with any of these values, none of which is null."""
        return self._answer

    def above(self, value: pa.Array, inclusive: bool) -> pyroaring.BitMap | None:
        """Rows with a greater value, or also this one."""
        return self._answer

    def below(self, value: pa.Array, inclusive: bool) -> pyroaring.BitMap | None:
        """Rows with a smaller value, or also this one."""
        return self._answer

    def valid_rows(self) -> pyroaring.BitMap | None:
        """Rows that are not null."""
        return self._answer

    def null_rows(self) -> pyroaring.BitMap | None:
        """Rows that are null."""
        return self._answer


IndexKey = int | bytes
"""One value inside an index."""

Integers = npt.NDArray[np.int64]

MAX_DECIMAL = 18
"""Largest precision whose unscaled value fits in 64 bits."""

_TEXTS = (TypeRoot.CHAR, TypeRoot.VARCHAR)
_BYTES = (*_TEXTS, TypeRoot.BINARY, TypeRoot.VARBINARY)
_TIMESTAMPS = (TypeRoot.TIMESTAMP, TypeRoot.TIMESTAMP_LTZ)
_FORMATS = {
    **dict.fromkeys((TypeRoot.TINYINT, TypeRoot.BOOLEAN), ">b"),
    TypeRoot.SMALLINT: ">h",
    **dict.fromkeys((TypeRoot.INT, TypeRoot.DATE, TypeRoot.TIME, TypeRoot.FLOAT), ">i"),
    **dict.fromkeys((TypeRoot.BIGINT, TypeRoot.DOUBLE, TypeRoot.DECIMAL, *_TIMESTAMPS), ">q"),
}
_DTYPES = {1: np.int8, 2: np.int16, 4: np.int32, 8: np.int64}
_LENGTH = struct.Struct(">i")


def is_text(type_: AtomicType) -> bool:
    """Whether values of the type are kept as bytes."""
    return type_.root in _BYTES


def byte_view(column: pa.Array) -> tuple[npt.NDArray[np.uint8], Integers]:
    """Bytes of a string or binary column, and where each row starts, with the end; no copy."""
    _, offsets, data = column.buffers()
    if len(column) == 0:
        return np.empty(0, np.uint8), np.zeros(1, np.int64)
    wide = pa.types.is_large_string(column.type) or pa.types.is_large_binary(column.type)
    stored = np.frombuffer(offsets, np.int64 if wide else np.int32)
    bounds = stored[column.offset : column.offset + len(column) + 1].astype(np.int64)
    content = np.empty(0, np.uint8) if data is None else np.frombuffer(data, np.uint8)
    return content, bounds


def integer_view(column: pa.Array, type_: AtomicType) -> Integers:
    """Every value as Java hashes it: numbers as they are, floats as their bits; nulls as 0.

    The bits of a FLOAT are sign-extended and every NaN has the same bits.
    """
    root = type_.root
    if root in (TypeRoot.FLOAT, TypeRoot.DOUBLE):
        values = np.asarray(pc.fill_null(column, 0.0))
        wide = root is TypeRoot.DOUBLE
        values = np.where(np.isnan(values), values.dtype.type(np.nan), values)
        return values.view(np.int64 if wide else np.int32).astype(np.int64)
    if root is TypeRoot.DECIMAL:
        return _unscaled(column)
    if root in _TIMESTAMPS:
        raw = np.asarray(pc.fill_null(column.view(pa.int64()), 0))
        return raw // 1_000 if column.type.unit == "ns" else raw
    if root in (TypeRoot.DATE, TypeRoot.TIME):
        column = column.view(pa.int32())
    elif root is TypeRoot.BOOLEAN:
        column = column.cast(pa.int8())
    return np.asarray(pc.fill_null(column, 0)).astype(np.int64)


def _unscaled(column: pa.Array) -> Integers:
    """Low words of 128-bit unscaled values; exact up to `MAX_DECIMAL` digits."""
    _, data = column.buffers()
    words = np.frombuffer(data, np.int64)[2 * column.offset : 2 * (column.offset + len(column)) : 2]
    return np.where(np.asarray(column.is_valid()), words, 0)


def _ordered_bits(bits: Integers, root: TypeRoot) -> Integers:
    """Float bits as integers of the same order; its own inverse."""
    mask = np.int64(0x7FFFFFFF if root is TypeRoot.FLOAT else 0x7FFFFFFFFFFFFFFF)
    return np.where(bits < 0, bits ^ mask, bits)


def key_column(column: pa.Array, type_: AtomicType) -> pa.Array:
    """The keys of a column, as an int64 or binary column with the same nulls."""
    if is_text(type_):
        return column.cast(pa.binary())
    keys = integer_view(column, type_)
    if type_.root in (TypeRoot.FLOAT, TypeRoot.DOUBLE):
        keys = _ordered_bits(keys, type_.root)
    return pa.array(keys, mask=None if not column.null_count else ~np.asarray(column.is_valid()))


def big_endian(values: npt.NDArray[Any]) -> pa.Array:
    """Integers as a binary column of their big-endian bytes."""
    width = values.dtype.itemsize
    offsets = np.arange(0, width * (len(values) + 1), width, dtype=np.int32)
    data = values.astype(values.dtype.newbyteorder(">")).tobytes()
    return pa.Array.from_buffers(
        pa.binary(), len(values), [None, pa.py_buffer(offsets), pa.py_buffer(data)]
    )


@dataclasses.dataclass(frozen=True, slots=True)
class KeyCodec:
    """Keys of one type as bytes, big-endian; texts with their length."""

    type: AtomicType

    def keys(self, column: pa.Array) -> list[Any]:
        """Keys of a few values, none of them null; for literals only."""
        return list(key_column(column, self.type).to_pylist())

    @property
    def width(self) -> int:
        """Size of a key [bytes]; 0 = it differs."""
        return 0 if is_text(self.type) else struct.calcsize(_FORMATS[self.type.root])

    def read(self, window: Window, offset: int) -> tuple[IndexKey, int]:
        """The key at an offset, and the offset behind it.

        Raises:
            CorruptDataError: it is not inside the window.
        """
        if is_text(self.type):
            length = window.count(offset, window.length)
            start = offset + _LENGTH.size
            return window.read(start, length), start + length
        raw = window.read(offset, self.width)
        (value,) = struct.unpack(_FORMATS[self.type.root], raw)
        return int(self._bits(value)), offset + self.width

    def entries(
        self, data: memoryview, count: int, numbers: int
    ) -> tuple[list[IndexKey], list[list[int]], int]:
        """Entries that follow one another from the start of `data`.

        Each is a key and so many 4-byte `numbers`.

        Returns:
            The keys, their numbers, and the size of all entries [bytes].

        Raises:
            ValueError: they are not inside.
        """
        if is_text(self.type):
            return _text_entries(data, count, struct.Struct(f">{numbers}i"))
        entry = np.dtype([("key", f">i{self.width}"), ("numbers", ">i4", (numbers,))])
        if count * entry.itemsize > len(data):
            raise ValueError("ends too early")
        records = np.frombuffer(data, entry, count)
        keys = records["key"].astype(np.int64)
        if self.type.root in (TypeRoot.FLOAT, TypeRoot.DOUBLE):
            keys = _ordered_bits(keys, self.type.root)
        return keys.tolist(), records["numbers"].tolist(), count * entry.itemsize

    def encode_column(self, keys: pa.Array) -> pa.Array:
        """Every key as bytes; a binary column without nulls."""
        if is_text(self.type):
            lengths = pc.binary_length(keys).cast(pa.int32())
            return pc.binary_join_element_wise(big_endian(np.asarray(lengths)), keys, b"")
        values = np.asarray(keys)
        if self.type.root in (TypeRoot.FLOAT, TypeRoot.DOUBLE):
            values = _ordered_bits(values, self.type.root)
        return big_endian(values.astype(_DTYPES[self.width]))

    def _bits(self, key: Any) -> int:
        if self.type.root in (TypeRoot.FLOAT, TypeRoot.DOUBLE):
            return int(_ordered_bits(np.array([key], np.int64), self.type.root)[0])
        return int(key)


def _text_entries(
    data: memoryview, count: int, numbers: struct.Struct
) -> tuple[list[IndexKey], list[list[int]], int]:
    keys: list[IndexKey] = []
    records: list[list[int]] = []
    at = 0
    try:
        for _ in range(count):
            (length,) = _LENGTH.unpack_from(data, at)
            start, at = at + _LENGTH.size, at + _LENGTH.size + length
            records.append(list(numbers.unpack_from(data, at)))
            keys.append(bytes(data[start:at]))
            at += numbers.size
            if length < 0:
                raise ValueError("a text has a negative length")
    except struct.error as error:
        raise ValueError("ends too early") from error
    return keys, records, at
