# SPDX-License-Identifier: Apache-2.0
"""A seekable file over a store that answers range requests: few requests, little too much read.

Every request to an object store costs tens of milliseconds before its first byte, about what a
megabyte takes to arrive. Therefore:

* opening fetches the file's end, where Parquet and ORC keep their footers, and learns the size
  from the same answer; a small file is whole by then;
* a read that begins where the last one ended (or a little later) is taken as part of a scan: the
  window asked for doubles up to `_LARGEST_WINDOW`, and the next one is prefetched;
* any other read gets what it asked for and `_SMALLEST_WINDOW` at least;
* a long read is cut into pieces that are fetched side by side.

At most the file's end, two windows and what one caller asked for are held in memory.
"""

import collections
import io
import itertools
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Executor, Future
from typing import Any

from storage.errors import CorruptDataError

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
