# SPDX-License-Identifier: Apache-2.0
"""The file system port: everything storage reads or writes goes through `FileIO`.

Paths are plain strings with `/`; a local path is absolute. The commit primitive is
`put_if_absent`: of any number of concurrent callers for one path exactly one gets True, and a
reader sees either nothing or all bytes.
"""

import dataclasses
from collections.abc import Iterator
from contextlib import AbstractContextManager
from typing import BinaryIO, Protocol, runtime_checkable

import pyarrow as pa

__all__ = ["FileIO", "FileStatus"]


@dataclasses.dataclass(frozen=True, slots=True)
class FileStatus:
    """One directory entry.

    Attributes:
        name: last path element.
        path: full path.
        size: bytes (0 for a directory).
        directory: whether it is a directory.
        modified_ms: last change, epoch milliseconds UTC.
    """

    name: str
    path: str
    size: int
    directory: bool
    modified_ms: int


@runtime_checkable
class FileIO(Protocol):
    """Port to a store. Implementations are picklable and hold no open handles.

    Raises (all methods): `StorageUnavailableError` for passing faults, `FileNotFoundError` where
    a file is required and absent, `PermissionError` as it is.
    """

    def read_bytes(self, path: str) -> bytes:
        """The whole file."""

    def open_input(self, path: str) -> pa.NativeFile:
        """A seekable `pyarrow.NativeFile` for reading (context manager)."""

    def open_output(self, path: str) -> AbstractContextManager[BinaryIO]:
        """A binary sink; leaving the context makes the file durable, an exception removes it.

        Parent directories are created. The file must not exist.
        """

    def write_bytes(self, path: str, data: bytes) -> None:
        """Create a new file durably. Parent directories are created."""

    def overwrite_bytes(self, path: str, data: bytes) -> None:
        """Create or replace atomically; for hints and other best-effort files."""

    def put_if_absent(self, path: str, data: bytes) -> bool:
        """Publish `data` at `path` unless something is there; the commit primitive.

        Returns:
            True when this call created the file, False when it already existed.
        """

    def exists(self, path: str) -> bool:
        """Whether a file or directory is there."""

    def size(self, path: str) -> int:
        """Size in bytes."""

    def list(self, path: str) -> list[FileStatus]:
        """Entries of one directory, sorted by name; empty when it does not exist."""

    def walk(self, path: str) -> Iterator[FileStatus]:
        """All files below a directory, in path order."""

    def delete(self, path: str) -> bool:
        """Remove a file. False when it was not there."""
