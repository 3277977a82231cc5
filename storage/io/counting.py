# SPDX-License-Identifier: Apache-2.0
"""A `FileIO` that counts the calls that pass through it.

Retries inside a store's client are one call. Of a file that is opened only the opening counts, and
for a new one its closing, when the store takes it; an iterator counts when it ends.
"""

import contextlib
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager
from typing import Any, BinaryIO

from storage.io.call_counts import CallCounts
from storage.io.file_io import FileIO, FileStatus
from storage.io.forwarding import ForwardingFileIO

STORE_CALLS = CallCounts()
"""Calls of this process."""


def _result_label(exists: bool) -> str:
    return "ok" if exists else "absent"


def _timed(
    name: str,
    operation: str,
    *,
    outcome: Callable[[Any], str] = lambda _: "ok",
    size: Callable[[Any, Any], int] = lambda _, data: 0,
) -> Any:
    """A method that counts the calls of the inner store's method.

    `size` returns the bytes moved, from the result and the last argument.
    """

    def method(store: ForwardingFileIO, *arguments: Any) -> Any:
        start_s = time.perf_counter()
        try:
            result = getattr(store.inner, name)(*arguments)
        except BaseException as error:
            STORE_CALLS.add(operation, _outcome(error), time.perf_counter() - start_s)
            raise
        elapsed_s = time.perf_counter() - start_s
        STORE_CALLS.add(operation, outcome(result), elapsed_s, size(result, arguments[-1]))
        return result

    return method


class CountingFileIO(ForwardingFileIO):
    """See the module. Picklable: the copy counts in its own process.

    Operations: `get` (whole files), `open` (to read), `put`, `put_if_absent`, `list`, `delete`,
    `head`. Outcomes: `ok`, `exists` (another writer won), `absent`, `error`. Directories that
    are pruned or renamed do not count.
    """

    read_bytes = _timed("read_bytes", "get", size=lambda data, _: len(data))
    open_input = _timed("open_input", "open")
    write_bytes = _timed("write_bytes", "put", size=lambda _, data: len(data))
    overwrite_bytes = _timed("overwrite_bytes", "put", size=lambda _, data: len(data))
    overwrite_hint = _timed("overwrite_hint", "put", size=lambda _, data: len(data))
    put_if_absent = _timed(
        "put_if_absent",
        "put_if_absent",
        outcome=lambda created: "ok" if created else "exists",
        size=lambda created, data: len(data) if created else 0,
    )
    exists = _timed("exists", "head", outcome=_result_label)
    is_file = _timed("is_file", "head", outcome=_result_label)
    size = _timed("size", "head")
    list = _timed("list", "list")
    delete = _timed("delete", "delete", outcome=_result_label)
    delete_many = _timed("delete_many", "delete")

    def local_path(self, path: str) -> str | None:
        """See `FileIO`."""
        return self.inner.local_path(path)

    def read_many(self, paths: Sequence[str]) -> Iterator[bytes]:
        """See `FileIO`; each file counts, with the time since the one before."""
        contents = self.inner.read_many(paths)
        while True:
            start_s = time.perf_counter()
            try:
                data = next(contents)
            except StopIteration:
                return
            except BaseException as error:
                STORE_CALLS.add("get", _outcome(error), time.perf_counter() - start_s)
                raise
            STORE_CALLS.add("get", "ok", time.perf_counter() - start_s, len(data))
            yield data

    def open_output(self, path: str) -> AbstractContextManager[BinaryIO]:
        """See `FileIO`."""
        return _output(self.inner, path)

    def walk(self, path: str) -> Iterator[FileStatus]:
        """See `FileIO`; one call, without the time that the caller takes for the files."""
        entries, elapsed_s, outcome = iter(self.inner.walk(path)), 0.0, "ok"
        try:
            while True:
                start_s = time.perf_counter()
                try:
                    status = next(entries)
                except StopIteration:
                    return
                except BaseException as error:
                    outcome = _outcome(error)
                    raise
                finally:
                    elapsed_s += time.perf_counter() - start_s
                yield status
        finally:
            STORE_CALLS.add("list", outcome, elapsed_s)


@contextlib.contextmanager
def _output(inner: FileIO, path: str) -> Iterator[BinaryIO]:
    """The time is that of opening and of closing; in between the caller works.

    A caller that aborts is an outcome of its own: `aborted`.
    """
    start_s = time.perf_counter()
    elapsed_s, outcome, size = 0.0, "error", 0
    try:
        with inner.open_output(path) as sink:
            elapsed_s, outcome = time.perf_counter() - start_s, "aborted"
            yield sink
            start_s, size, outcome = time.perf_counter(), _position(sink), "error"
        elapsed_s += time.perf_counter() - start_s
        outcome = "ok"
    finally:
        STORE_CALLS.add("put", outcome, elapsed_s, size if outcome == "ok" else 0)


def _position(sink: BinaryIO) -> int:
    return 0 if sink.closed else sink.tell()


def _outcome(error: BaseException) -> str:
    return "absent" if isinstance(error, FileNotFoundError) else "error"
