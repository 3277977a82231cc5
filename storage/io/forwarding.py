# SPDX-License-Identifier: Apache-2.0
"""A store that hands every call to another one; derived classes change single calls."""

from collections.abc import Iterable, Iterator, Sequence
from contextlib import AbstractContextManager
from typing import BinaryIO

import pyarrow as pa

from storage.io.file_io import FileIO, FileStatus

__all__ = ["ForwardingFileIO"]


class ForwardingFileIO(FileIO):
    """See the module. Picklable as its inner store is.

    Args:
        inner: the store.
    """

    def __init__(self, inner: FileIO) -> None:
        self.inner = inner
        self.distant = inner.distant

    def read_bytes(self, path: str) -> bytes:
        """See `FileIO`."""
        return self.inner.read_bytes(path)

    def read_many(self, paths: Sequence[str]) -> Iterator[bytes]:
        """See `FileIO`."""
        return self.inner.read_many(paths)

    def open_input(self, path: str) -> pa.NativeFile:
        """See `FileIO`."""
        return self.inner.open_input(path)

    def open_output(self, path: str) -> AbstractContextManager[BinaryIO]:
        """See `FileIO`."""
        return self.inner.open_output(path)

    def write_bytes(self, path: str, data: bytes) -> None:
        """See `FileIO`."""
        self.inner.write_bytes(path, data)

    def overwrite_bytes(self, path: str, data: bytes) -> None:
        """See `FileIO`."""
        self.inner.overwrite_bytes(path, data)

    def put_if_absent(self, path: str, data: bytes) -> bool:
        """See `FileIO`."""
        return self.inner.put_if_absent(path, data)

    def exists(self, path: str) -> bool:
        """See `FileIO`."""
        return self.inner.exists(path)

    def is_file(self, path: str) -> bool:
        """See `FileIO`."""
        return self.inner.is_file(path)

    def size(self, path: str) -> int:
        """See `FileIO`."""
        return self.inner.size(path)

    def list(self, path: str) -> list[FileStatus]:
        """See `FileIO`."""
        return self.inner.list(path)

    def walk(self, path: str) -> Iterator[FileStatus]:
        """See `FileIO`."""
        return self.inner.walk(path)

    def delete(self, path: str) -> bool:
        """See `FileIO`."""
        return self.inner.delete(path)

    def delete_many(self, paths: Iterable[str]) -> int:
        """See `FileIO`."""
        return self.inner.delete_many(paths)

    def prune(self, path: str) -> None:
        """See `FileIO`."""
        self.inner.prune(path)

    def rename_directory(self, old: str, new: str) -> None:
        """See `FileIO`."""
        self.inner.rename_directory(old, new)
