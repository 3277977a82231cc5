# SPDX-License-Identifier: Apache-2.0
"""Byte ranges of an index, checked and read only when needed.

A payload in the manifest is in memory already; one in a file of its own is read in
blocks, because a request costs far more than the bytes it fetches.
"""

import dataclasses
import struct
from typing import Any, Protocol

import pyarrow as pa
import pyroaring

from storage.errors import CorruptDataError
from storage.io.file_io import FileIO

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
