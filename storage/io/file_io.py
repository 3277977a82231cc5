# SPDX-License-Identifier: Apache-2.0
"""Access to a file system or object store: all that storage reads and writes goes through it.

Paths are plain strings with `/`; a local path is absolute. The commit primitive is
`put_if_absent`: of any number of concurrent callers for one path exactly one gets True, and a
reader sees either nothing or all bytes.
"""

import abc
import dataclasses
import logging
from collections.abc import Iterable, Iterator, Sequence
from contextlib import AbstractContextManager
from typing import BinaryIO

import pyarrow as pa

from storage.errors import RetryableError, UnsupportedFeatureError

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
