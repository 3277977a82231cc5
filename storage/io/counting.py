# SPDX-License-Identifier: Apache-2.0
"""A `FileIO` that counts the calls that pass through it.

Retries inside a store's client are one call. Of a file that is opened only the opening counts, and
for a new one its closing, when the store takes it; an iterator counts when it ends.
"""

import bisect
import contextlib
import dataclasses
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager
from typing import Any, BinaryIO, TypeVar

from storage.io.file_io import FileIO, FileStatus

# Figures of calls to a service: how many, how they ended, how long they took, what they moved.
#
# A process counts its calls in one `CallCounts`; what a task did is the difference of two copies.


_K = TypeVar("_K")
_N = TypeVar("_N", int, float)

CALL_BUCKETS = (0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0)
"""Upper bounds of the classes of durations [s]; there is one more, without a bound."""


@dataclasses.dataclass(frozen=True, slots=True)
class CallFigures:
    """A state of a count; picklable.

    Attributes:
        calls: by (operation, outcome).
        seconds: by operation [s].
        sizes: bytes moved by operation.
        classes: calls by (operation, class of duration): the number of the first bucket that they
            fit into.
    """

    calls: Mapping[tuple[str, str], int] = dataclasses.field(default_factory=dict)
    seconds: Mapping[str, float] = dataclasses.field(default_factory=dict)
    sizes: Mapping[str, int] = dataclasses.field(default_factory=dict)
    classes: Mapping[tuple[str, int], int] = dataclasses.field(default_factory=dict)

    def plus(self, other: "CallFigures") -> "CallFigures":
        """Both together."""
        return self._with(other, _sum)

    def since(self, before: "CallFigures") -> "CallFigures":
        """The increase since an earlier state of the same count."""
        return self._with(before, _difference)

    def _with(self, other: "CallFigures", join: Callable[[Any, Any], Any]) -> "CallFigures":
        names = [field.name for field in dataclasses.fields(self)]
        return CallFigures(*(join(getattr(self, name), getattr(other, name)) for name in names))


class CallCounts:
    """Counts calls; thread-safe."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._calls: Counter[tuple[str, str]] = Counter()
        self._seconds: dict[str, float] = {}
        self._sizes: Counter[str] = Counter()
        self._classes: Counter[tuple[str, int]] = Counter()

    def add(self, operation: str, outcome: str, seconds: float, size: int = 0) -> None:
        """Count one call."""
        with self._lock:
            self._calls[(operation, outcome)] += 1
            self._seconds[operation] = self._seconds.get(operation, 0.0) + seconds
            self._classes[(operation, bisect.bisect_left(CALL_BUCKETS, seconds))] += 1
            if size:
                self._sizes[operation] += size

    def figures(self) -> CallFigures:
        """A copy of the state."""
        with self._lock:
            return CallFigures(
                dict(self._calls), dict(self._seconds), dict(self._sizes), dict(self._classes)
            )


def _sum(counts: Mapping[_K, _N], other_counts: Mapping[_K, _N]) -> dict[_K, _N]:
    totals = dict(counts)
    for key, value in other_counts.items():
        totals[key] = totals[key] + value if key in totals else value
    return totals


def _difference(counts: Mapping[_K, _N], other_counts: Mapping[_K, _N]) -> dict[_K, _N]:
    differences: dict[_K, _N] = {}
    for key, value in counts.items():
        difference = value - other_counts[key] if key in other_counts else value
        if difference:
            differences[key] = difference
    return differences


# A store that hands every call to another one; derived classes change single calls.


def _forwarded(name: str) -> Any:
    def call(self: "ForwardingFileIO", *arguments: Any) -> Any:
        return getattr(self.inner, name)(*arguments)

    return call


class ForwardingFileIO(FileIO):
    """See the module. Picklable as its inner store is."""

    def __init__(self, inner: FileIO) -> None:
        self.inner = inner
        self.distant = inner.distant

    read_bytes = _forwarded("read_bytes")
    read_many = _forwarded("read_many")
    open_input = _forwarded("open_input")
    open_output = _forwarded("open_output")
    write_bytes = _forwarded("write_bytes")
    overwrite_bytes = _forwarded("overwrite_bytes")
    overwrite_hint = _forwarded("overwrite_hint")
    put_if_absent = _forwarded("put_if_absent")
    exists = _forwarded("exists")
    is_file = _forwarded("is_file")
    size = _forwarded("size")
    list = _forwarded("list")
    walk = _forwarded("walk")
    delete = _forwarded("delete")
    delete_many = _forwarded("delete_many")
    prune = _forwarded("prune")
    rename_directory = _forwarded("rename_directory")


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
