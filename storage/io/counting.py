# SPDX-License-Identifier: Apache-2.0
"""A `FileIO` that counts the calls that pass through it.

Retries inside a store's client are one call. Of a file that is opened only the opening counts, and
for a new one its closing, when the store takes it; an iterator counts when it ends.
"""

import contextlib
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import AbstractContextManager
from typing import BinaryIO, TypeVar

import pyarrow as pa

from storage.io.call_counts import CallCounts
from storage.io.file_io import FileIO, FileStatus

__all__ = ["STORE_CALLS", "CountingFileIO", "counted"]

STORE_CALLS = CallCounts()
"""Calls of this process."""

_Result = TypeVar("_Result")


class CountingFileIO(FileIO):
    """See the module. Picklable: the copy counts in its own process.

    Operations: `get` (whole files), `open` (to read), `put`, `put_if_absent`, `list`, `delete`,
    `head`. Outcomes: `ok`, `exists` (another one was first), `absent`, `error`.

    Args:
        inner: the store.
    """

    def __init__(self, inner: FileIO) -> None:
        self.inner = inner
        self.distant = inner.distant

    def read_bytes(self, path: str) -> bytes:
        """See `FileIO`."""
        return _timed("get", lambda: self.inner.read_bytes(path), size=len)

    def read_many(self, paths: Sequence[str]) -> Iterator[bytes]:
        """See `FileIO`; each file counts, with the time since the one before."""
        found = self.inner.read_many(paths)
        while True:
            began = time.perf_counter()
            try:
                data = next(found)
            except StopIteration:
                return
            except BaseException as error:
                STORE_CALLS.add("get", _outcome(error), time.perf_counter() - began)
                raise
            STORE_CALLS.add("get", "ok", time.perf_counter() - began, len(data))
            yield data

    def open_input(self, path: str) -> pa.NativeFile:
        """See `FileIO`."""
        return _timed("open", lambda: self.inner.open_input(path))

    def open_output(self, path: str) -> AbstractContextManager[BinaryIO]:
        """See `FileIO`."""
        return _output(self.inner, path)

    def write_bytes(self, path: str, data: bytes) -> None:
        """See `FileIO`."""
        _timed("put", lambda: self.inner.write_bytes(path, data), size=lambda _: len(data))

    def overwrite_bytes(self, path: str, data: bytes) -> None:
        """See `FileIO`."""
        _timed("put", lambda: self.inner.overwrite_bytes(path, data), size=lambda _: len(data))

    def put_if_absent(self, path: str, data: bytes) -> bool:
        """See `FileIO`."""
        return _timed(
            "put_if_absent",
            lambda: self.inner.put_if_absent(path, data),
            outcome=lambda done: "ok" if done else "exists",
            size=lambda done: len(data) if done else 0,
        )

    def exists(self, path: str) -> bool:
        """See `FileIO`."""
        return _timed("head", lambda: self.inner.exists(path), outcome=_found)

    def is_file(self, path: str) -> bool:
        """See `FileIO`."""
        return _timed("head", lambda: self.inner.is_file(path), outcome=_found)

    def size(self, path: str) -> int:
        """See `FileIO`."""
        return _timed("head", lambda: self.inner.size(path))

    def list(self, path: str) -> list[FileStatus]:
        """See `FileIO`."""
        return _timed("list", lambda: self.inner.list(path))

    def walk(self, path: str) -> Iterator[FileStatus]:
        """See `FileIO`; one call, without the time that the caller takes for the files."""
        found, spent, outcome = iter(self.inner.walk(path)), 0.0, "ok"
        try:
            while True:
                began = time.perf_counter()
                try:
                    status = next(found)
                except StopIteration:
                    return
                except BaseException as error:
                    outcome = _outcome(error)
                    raise
                finally:
                    spent += time.perf_counter() - began
                yield status
        finally:
            STORE_CALLS.add("list", outcome, spent)

    def delete(self, path: str) -> bool:
        """See `FileIO`."""
        return _timed("delete", lambda: self.inner.delete(path), outcome=_found)

    def delete_many(self, paths: Iterable[str]) -> int:
        """See `FileIO`; one call."""
        return _timed("delete", lambda: self.inner.delete_many(paths))

    def prune(self, path: str) -> None:
        """See `FileIO`; not counted."""
        self.inner.prune(path)

    def rename_directory(self, old: str, new: str) -> None:
        """See `FileIO`; not counted."""
        self.inner.rename_directory(old, new)


def counted(inner: FileIO) -> CountingFileIO:
    """A store whose calls are counted."""
    return CountingFileIO(inner)


def _timed(
    operation: str,
    call: Callable[[], _Result],
    *,
    outcome: Callable[[_Result], str] = lambda _: "ok",
    size: Callable[[_Result], int] = lambda _: 0,
) -> _Result:
    began = time.perf_counter()
    try:
        result = call()
    except BaseException as error:
        STORE_CALLS.add(operation, _outcome(error), time.perf_counter() - began)
        raise
    STORE_CALLS.add(operation, outcome(result), time.perf_counter() - began, size(result))
    return result


@contextlib.contextmanager
def _output(inner: FileIO, path: str) -> Iterator[BinaryIO]:
    """The time is that of opening and of closing; in between the caller works.

    A caller that gives up is an outcome of its own: `aborted`.
    """
    began = time.perf_counter()
    spent, outcome, size = 0.0, "error", 0
    try:
        with inner.open_output(path) as sink:
            spent, outcome = time.perf_counter() - began, "aborted"
            yield sink
            began, size, outcome = time.perf_counter(), _position(sink), "error"
        spent += time.perf_counter() - began
        outcome = "ok"
    finally:
        STORE_CALLS.add("put", outcome, spent, size if outcome == "ok" else 0)


def _position(sink: BinaryIO) -> int:
    return 0 if sink.closed else sink.tell()


def _found(there: bool) -> str:
    return "ok" if there else "absent"


def _outcome(error: BaseException) -> str:
    return "absent" if isinstance(error, FileNotFoundError) else "error"
