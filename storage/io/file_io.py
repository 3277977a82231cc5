# SPDX-License-Identifier: Apache-2.0
"""Access to a file system or object store: all that storage reads and writes goes through it.

Paths are plain strings with `/`; a local path is absolute. The commit primitive is
`put_if_absent`: of any number of concurrent callers for one path exactly one gets True, and a
reader sees either nothing or all bytes.
"""

import abc
import collections
import dataclasses
import io
import itertools
import logging
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import Executor, Future
from contextlib import AbstractContextManager
from typing import Any, BinaryIO

import pyarrow as pa

from storage.errors import CorruptDataError, RetryableError, UnsupportedFeatureError

_LOG = logging.getLogger(__name__)


@dataclasses.dataclass(frozen=True, slots=True)
class FileStatus:
    """One directory entry.

    Attributes:
        size: bytes (0 for a directory).
        modified_ms: last change, epoch milliseconds UTC.
    """

    name: str
    path: str
    size: int
    directory: bool
    modified_ms: int


class FileIO(abc.ABC):
    """A file system or object store. Implementations are picklable and hold no open handles.

    Attributes:
        distant: whether every request costs tens of milliseconds, so that readers should ask for
            neighbouring parts of a file together.

    Raises (all methods): `StorageUnavailableError` for transient faults, `FileNotFoundError` where
    a file is required and absent, `PermissionError` as it is.
    """

    distant: bool = False

    @abc.abstractmethod
    def read_bytes(self, path: str) -> bytes:
        """The whole file."""

    def read_many(self, paths: Sequence[str]) -> Iterator[bytes]:
        """Several whole files, in the order asked for; in parallel where that pays.

        A bounded number is buffered, however many are asked for. Errors arrive with the file they
        are about, as from `read_bytes`, and end the reading.
        """
        return (self.read_bytes(path) for path in paths)

    @abc.abstractmethod
    def open_input(self, path: str) -> pa.NativeFile:
        """A seekable `pyarrow.NativeFile` for reading (context manager)."""

    def local_path(self, path: str) -> str | None:
        """The path at which programs of this machine open a file; None: there is none."""
        return None

    @abc.abstractmethod
    def open_output(self, path: str) -> AbstractContextManager[BinaryIO]:
        """A binary sink; leaving the context makes the file durable, an exception removes it.

        Parent directories are created.

        Raises:
            FileExistsError: something is at `path`.
        """

    @abc.abstractmethod
    def write_bytes(self, path: str, data: bytes) -> None:
        """Create a new file durably; otherwise as `open_output`."""

    @abc.abstractmethod
    def overwrite_bytes(self, path: str, data: bytes) -> None:
        """Create or replace atomically; durable at return."""

    def overwrite_hint(self, path: str, data: bytes) -> None:
        """The same, maybe not durable: readers check a hint before they use it."""
        self.overwrite_bytes(path, data)

    @abc.abstractmethod
    def put_if_absent(self, path: str, data: bytes) -> bool:
        """Publish `data` at `path` unless something exists; the commit primitive.

        Returns:
            True when this call created the file, False when it already existed.
        """

    @abc.abstractmethod
    def exists(self, path: str) -> bool:
        """Whether a file or directory exists."""

    def is_file(self, path: str) -> bool:
        """Whether a file exists; cheaper than `exists` where directories do not exist."""
        return self.exists(path)

    @abc.abstractmethod
    def size(self, path: str) -> int:
        """Size in bytes."""

    @abc.abstractmethod
    def list(self, path: str) -> list[FileStatus]:
        """Entries of one directory, sorted by name; empty when it does not exist."""

    def walk(self, path: str) -> Iterator[FileStatus]:
        """All files below a directory, in path order; one that disappears meanwhile is left out."""
        # A directory sorts among its neighbours as `name/`: `a.b` comes before the entries of `a`.
        for status in sorted(self.list(path), key=lambda entry: entry.name + "/" * entry.directory):
            if status.directory:
                yield from self.walk(status.path)
            else:
                yield status

    @abc.abstractmethod
    def delete(self, path: str) -> bool:
        """Remove a file. False when it did not exist."""

    def delete_many(self, paths: Iterable[str]) -> int:
        """Remove files that are not needed; one that cannot be removed stays as an orphan.

        Returns:
            How many existed and were removed. A store that does not report whether an object
            existed counts all that are absent now.
        """
        deleted = 0
        for path in paths:
            try:
                deleted += self.delete(path)
            except (RetryableError, OSError) as error:
                note_undeleted(path, error)
        return deleted

    @abc.abstractmethod
    def prune(self, path: str) -> None:
        """Remove a directory and those in it, unless they hold files.

        Does nothing on stores where a directory exists only while it holds files.
        """

    def rename_directory(self, old: str, new: str) -> None:
        """Give a directory another path, atomically; the parent of the new one is created.

        Raises:
            UnsupportedFeatureError: the store has no directories that could be renamed.
            FileExistsError: files are at the new path.
            FileNotFoundError: there is no such directory.
        """
        raise UnsupportedFeatureError(
            "this store cannot rename a directory atomically",
            hint="make a table of the new name, copy the rows (`insert into … select`), drop this",
            old=old,
            new=new,
        )


def read_present(file_io: FileIO, paths: Sequence[str]) -> Iterator[bytes | None]:
    """As `FileIO.read_many`, with None for a missing file."""
    position = 0
    while position < len(paths):
        try:
            for data in file_io.read_many(paths[position:]):
                position += 1
                yield data
        except FileNotFoundError:
            position += 1
            yield None


def note_undeleted(path: str, error: Exception) -> None:
    """Log that an unneeded file stays."""
    _LOG.debug("an unneeded file was not deleted", extra={"path": path}, exc_info=error)


# A seekable file over a store that answers range requests: few requests, little too much read.
#
# Every request to an object store costs tens of milliseconds before its first byte, about what a
# megabyte takes to arrive. Therefore:
#
# * opening fetches the file's end, where Parquet and ORC keep their footers, and learns the size
#   from the same answer; a small file is whole by then;
# * a read that begins where the last one ended (or a little later) is taken as part of a scan: the
#   window asked for doubles up to `_LARGEST_WINDOW`, and the next one is prefetched;
# * any other read gets what it asked for and `_SMALLEST_WINDOW` at least;
# * a long read is cut into pieces that are fetched side by side.
#
# At most the file's end, two windows and what one caller asked for are held in memory.


REQUESTS_AT_ONCE = 16
"""Limit of the requests that a process has in flight."""


TAIL_BYTES = 256 << 10
"""Fetched on opening [bytes]; holds the footer of nearly every file, and small files whole."""

_SMALLEST_WINDOW = 64 << 10
_LARGEST_WINDOW = 4 << 20
_HOLE = 64 << 10
"""A gap that a scan may leave out without being taken for random access [bytes]."""

Fetch = Callable[[int, int], memoryview]
"""From offset and length, both inside the file, to exactly these bytes."""


class RangeReader(io.RawIOBase):
    """Reads one object by ranges; not safe for several threads at once.

    Args:
        tail: its last bytes, at least one unless it is empty.
        fetch: makes a range request; called from several threads.
    """

    def __init__(
        self, path: str, size: int, tail: memoryview, fetch: Fetch, pool: Executor
    ) -> None:
        super().__init__()
        self._path = path
        self._size = size
        self._fetch = fetch
        self._pool = pool
        self._position = 0
        self._tail = tail
        self._tail_start = size - len(tail)
        self._window: tuple[int, memoryview] = (0, memoryview(b""))
        self._read_ahead: tuple[int, int, Future[memoryview]] | None = None
        self._expected_start = 0
        self._next_window = _SMALLEST_WINDOW

    def readable(self) -> bool:
        """True."""
        return True

    def seekable(self) -> bool:
        """True."""
        return True

    def tell(self) -> int:
        """Where the next read begins."""
        return self._position

    def seek(self, offset: int, whence: int = io.SEEK_SET) -> int:
        """Set where the next read begins; sends no request."""
        base = {io.SEEK_SET: 0, io.SEEK_CUR: self._position, io.SEEK_END: self._size}[whence]
        self._position = max(0, base + offset)
        return self._position

    def read(self, size: int | None = -1) -> Any:
        """Up to `size` bytes from here, fewer only at the end; a view, to spare a copy."""
        remaining = max(0, self._size - self._position)
        count = remaining if size is None or size < 0 else min(size, remaining)
        if count == 0:
            return b""
        data = self._bytes(self._position, count)
        self._position += count
        return data

    def readall(self) -> bytes:
        """Everything from here to the end."""
        return bytes(self.read())

    def readinto(self, buffer: Any) -> int:
        """Fill a buffer from here."""
        target = memoryview(buffer).cast("B")
        data = self.read(len(target))
        target[: len(data)] = data
        return len(data)

    def close(self) -> None:
        """Discard what was read ahead."""
        self._window = (0, memoryview(b""))
        self._tail = memoryview(b"")
        self._tail_start = self._size
        self._read_ahead = None
        super().close()

    def _bytes(self, start: int, count: int) -> memoryview:
        data = self._buffered(start, count)
        if data is None:
            self._load(start, count)
            data = self._buffered(start, count)
        self._expected_start = start + count
        if data is None:
            raise CorruptDataError(
                "the store returned fewer bytes than the object has",
                path=self._path,
                offset=start,
                expected=count,
            )
        return data

    def _buffered(self, start: int, count: int) -> memoryview | None:
        if start >= self._tail_start:
            return self._tail[start - self._tail_start :][:count]
        first, window = self._window
        if first <= start and start + count <= first + len(window):
            return window[start - first :][:count]
        return None

    def _load(self, start: int, count: int) -> None:
        """Load the requested bytes as the window, or as its beginning."""
        scanning = 0 <= start - self._expected_start <= _HOLE
        self._next_window = (
            min(_LARGEST_WINDOW, 2 * self._next_window) if scanning else _SMALLEST_WINDOW
        )
        ahead, self._read_ahead = self._read_ahead, None
        parts: list[memoryview] = []
        position = start
        first, window = self._window
        if first <= start < first + len(window):
            parts.append(window[start - first :])
            position = first + len(window)
        if ahead is not None and ahead[0] <= position < ahead[0] + ahead[1]:
            parts.append(ahead[2].result()[position - ahead[0] :])
            position = ahead[0] + ahead[1]
        end = start + count
        if position < end:
            stop = max(end, min(start + self._next_window, self._size))
            parts += self._fetched(position, stop - position)
            position = stop
        self._window = (start, parts[0] if len(parts) == 1 else memoryview(b"".join(parts)))
        if scanning and self._next_window == _LARGEST_WINDOW:
            self._send_ahead(position)

    def _fetched(self, start: int, count: int) -> list[memoryview]:
        """The bytes of a range in order: long ones in pieces, the file's end from the tail."""
        end = min(start + count, self._tail_start)
        offsets = range(start, end, _LARGEST_WINDOW)
        sizes = [min(_LARGEST_WINDOW, end - offset) for offset in offsets]
        parts = [self._fetch(offsets[0], sizes[0])] if len(sizes) == 1 else []
        if len(sizes) > 1:
            parts = list(self._pool.map(self._fetch, offsets, sizes))
        if start + count > end:
            skip = max(0, start - self._tail_start)
            parts.append(self._tail[skip : start + count - self._tail_start])
        return parts

    def _send_ahead(self, start: int) -> None:
        """Request the bytes that a scan will read next."""
        count = min(_LARGEST_WINDOW, self._tail_start - start)
        if count > 0:
            self._read_ahead = (start, count, self._pool.submit(self._fetch, start, count))


def read_ahead(
    pool: Executor, read: Callable[[str], bytes], paths: Sequence[str]
) -> Iterator[bytes]:
    """What `read` gives for each path; up to `REQUESTS_AT_ONCE` are in flight or buffered.

    An error arrives with the file it is about and ends the reading.
    """
    remaining = iter(paths)
    waiting: collections.deque[Future[bytes]] = collections.deque()

    def send(count: int) -> None:
        for path in itertools.islice(remaining, count):
            waiting.append(pool.submit(read, path))

    try:
        send(REQUESTS_AT_ONCE)
        while waiting:
            data = waiting.popleft().result()
            send(1)
            yield data
    finally:
        for future in waiting:
            future.cancel()
