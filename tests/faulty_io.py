# SPDX-License-Identifier: Apache-2.0
"""A `FileIO` that numbers the operations of a history and fails the planned ones.

Run a history once to count its operations, then once per operation with a `Fault` there: that
enumerates every crash. Operations are numbered from 1 in the order in which they reach the store;
a file written through `open_output` counts once, when it is closed.

What a fault leaves behind:

    mode            effect of the operation              what the caller sees
    before          none                                 SimulatedCrash
    after           complete                             SimulatedCrash
    torn            half of the bytes (see below)        SimulatedCrash
    lost_response   complete                             StorageUnavailableError
    error           none                                 StorageUnavailableError

Torn writes leave half the bytes under the final name where the operation promises no atomicity
(`write_bytes`, `open_output`) and under a temporary name where it does (`put_if_absent`,
`overwrite_bytes`). Reads and deletes have no halves: torn is as before.

`SimulatedCrash` derives from BaseException so that no recovery code catches it, and a crashed
instance stays dead: every later operation, from any thread, crashes too.
"""

import contextlib
import dataclasses
import threading
from collections.abc import Callable, Iterator, Sequence
from typing import Any, Literal, TypeVar

import pyarrow as pa
import pytest

from storage.errors import StorageUnavailableError
from storage.io.file_io import FileIO, FileStatus
from storage.io.local import temporary_name

__all__ = ["DEATHS", "IN_TURN", "Fault", "FaultMode", "FaultyFileIO", "SimulatedCrash"]

FaultMode = Literal["before", "after", "torn", "lost_response", "error"]

DEATHS: tuple[FaultMode, ...] = ("before", "after", "torn")
"""Modes of a process that dies."""

IN_TURN = (
    pytest.param(DEATHS, id="in turn"),
    *(pytest.param((mode,), id=mode, marks=pytest.mark.full) for mode in DEATHS),
)
"""Parameters of tests that die at many operations: in each mode in turn; `full`: in every mode."""

_Result = TypeVar("_Result")


class SimulatedCrash(BaseException):
    """The process is dead from here on."""


@dataclasses.dataclass(frozen=True, slots=True)
class Fault:
    """What happens at one operation.

    Attributes:
        at: number of the operation, the first is 1.
        mode: how it fails, see the module's table.
    """

    at: int
    mode: FaultMode


class FaultyFileIO(FileIO):
    """Counts, records and fails operations of another `FileIO`.

    Attributes:
        operations: (method name, path) of every operation so far, in order.
    """

    def __init__(self, inner: FileIO, faults: Fault | Sequence[Fault] = ()) -> None:
        self._inner = inner
        planned = (faults,) if isinstance(faults, Fault) else tuple(faults)
        self._faults = {fault.at: fault.mode for fault in planned}
        self._crashed = False
        self._lock = threading.Lock()
        self.operations: list[tuple[str, str]] = []

    def __getstate__(self) -> dict[str, Any]:
        state = self.__dict__.copy()
        del state["_lock"]
        return state

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.__dict__.update(state)
        self._lock = threading.Lock()

    @property
    def crashed(self) -> bool:
        """Whether a crash has happened; nothing works any more."""
        return self._crashed

    def read_bytes(self, path: str) -> bytes:
        """See `FileIO`."""
        return self._run("read_bytes", path, lambda: self._inner.read_bytes(path))

    def open_input(self, path: str) -> pa.NativeFile:
        """See `FileIO`; opening counts, reads through the opened file do not."""
        return self._run("open_input", path, lambda: self._inner.open_input(path))

    @contextlib.contextmanager
    def open_output(self, path: str) -> Iterator[Any]:
        """See `FileIO`; the bytes are held in memory and reach the store on leaving."""
        self._require_alive()
        sink = pa.BufferOutputStream()
        yield sink
        data = sink.getvalue().to_pybytes()
        self._run(
            "open_output",
            path,
            lambda: self._inner.write_bytes(path, data),
            torn=lambda: self._inner.write_bytes(path, _half(data)),
        )

    def write_bytes(self, path: str, data: bytes) -> None:
        """See `FileIO`."""
        self._run(
            "write_bytes",
            path,
            lambda: self._inner.write_bytes(path, data),
            torn=lambda: self._inner.write_bytes(path, _half(data)),
        )

    def overwrite_bytes(self, path: str, data: bytes) -> None:
        """See `FileIO`."""
        self._run(
            "overwrite_bytes",
            path,
            lambda: self._inner.overwrite_bytes(path, data),
            torn=lambda: self._inner.write_bytes(temporary_name(path), _half(data)),
        )

    def put_if_absent(self, path: str, data: bytes) -> bool:
        """See `FileIO`."""
        return self._run(
            "put_if_absent",
            path,
            lambda: self._inner.put_if_absent(path, data),
            torn=lambda: self._inner.write_bytes(temporary_name(path), _half(data)),
        )

    def exists(self, path: str) -> bool:
        """See `FileIO`."""
        return self._run("exists", path, lambda: self._inner.exists(path))

    def size(self, path: str) -> int:
        """See `FileIO`."""
        return self._run("size", path, lambda: self._inner.size(path))

    def list(self, path: str) -> list[FileStatus]:
        """See `FileIO`."""
        return self._run("list", path, lambda: self._inner.list(path))

    def walk(self, path: str) -> Iterator[FileStatus]:
        """See `FileIO`; counts once, however many directories there are."""
        return self._run("walk", path, lambda: iter(tuple(self._inner.walk(path))))

    def delete(self, path: str) -> bool:
        """See `FileIO`."""
        return self._run("delete", path, lambda: self._inner.delete(path))

    def prune(self, path: str) -> None:
        """See `FileIO`."""
        self._run("prune", path, lambda: self._inner.prune(path))

    def rename_directory(self, old: str, new: str) -> None:
        """See `FileIO`."""
        self._run("rename_directory", old, lambda: self._inner.rename_directory(old, new))

    def _run(
        self,
        operation: str,
        path: str,
        effect: Callable[[], _Result],
        torn: Callable[[], None] | None = None,
    ) -> _Result:
        mode = self._next(operation, path)
        if mode is None:
            return effect()
        if mode in ("after", "lost_response"):
            effect()
        elif mode == "torn" and torn is not None:
            torn()
        if mode in ("lost_response", "error"):
            raise StorageUnavailableError(
                "simulated storage fault", operation=operation, path=path, mode=mode
            )
        raise SimulatedCrash(f"{mode} {operation} {path}")

    def _next(self, operation: str, path: str) -> FaultMode | None:
        """Number this operation and say how it fails, if it does."""
        with self._lock:
            self._require_alive()
            self.operations.append((operation, path))
            mode = self._faults.get(len(self.operations))
            if mode in ("before", "after", "torn"):
                self._crashed = True
            return mode

    def _require_alive(self) -> None:
        if self._crashed:
            raise SimulatedCrash("the process has crashed already")


def _half(data: bytes) -> bytes:
    return data[: len(data) // 2]
