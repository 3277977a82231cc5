# SPDX-License-Identifier: Apache-2.0
"""The sink behind `open_output` on an object store.

An output that fits one part is held until it is complete and then created by one conditional put.
A longer one is uploaded in parts while it is written; the store makes the object visible when the
upload is completed, and an aborted upload leaves nothing.
"""

import contextlib
from collections.abc import Callable
from typing import Any, TypeVar

from obstore.exceptions import BaseError

from storage.errors import InternalError, StorageUnavailableError
from storage.io.file_io import FileIO
from storage.io.object_store.errors import translated

__all__ = ["PART_BYTES", "ObjectUpload"]

PART_BYTES = 8 << 20
"""Outputs up to this size are one put; longer ones are uploaded in such parts [bytes]."""

_Result = TypeVar("_Result")


class ObjectUpload:
    """A writable binary file; `finish` or `abort` ends it.

    Args:
        file_io: the store.
        path: the object.
        open_parts: begins an upload in parts.
    """

    def __init__(self, file_io: FileIO, path: str, open_parts: Callable[[], Any]) -> None:
        self._io = file_io
        self._path = path
        self._open = open_parts
        self._buffer = bytearray()
        self._written = 0
        self._parts: Any = None
        self.closed = False

    def writable(self) -> bool:
        """Whether it is open."""
        return not self.closed

    def tell(self) -> int:
        """Bytes written so far."""
        return self._written

    def flush(self) -> None:
        """Nothing: only a finished object can be read."""

    def close(self) -> None:
        """The pyarrow file around this was closed; `finish` or `abort` follows."""
        self.closed = True

    def write(self, data: Any) -> int:
        """Take bytes; full parts are sent in the background."""
        view = memoryview(data).cast("B")
        if self._parts is None and len(self._buffer) + len(view) > PART_BYTES:
            self._begin_parts()
        if self._parts is None:
            self._buffer += view
        else:
            self._parts_do(lambda: self._parts.write(view))
        self._written += len(view)
        return len(view)

    def finish(self) -> None:
        """Make the object visible.

        Raises:
            FileExistsError: something is at the path.
        """
        if self._parts is None:
            self._io.write_bytes(self._path, bytes(self._buffer))
            return
        try:
            self._parts_do(self._parts.close)
        except (FileNotFoundError, StorageUnavailableError):
            # the upload is gone or no answer came: the name is ours alone, so its size decides
            if not self._io.exists(self._path) or self._io.size(self._path) != self._written:
                raise
        self._parts = None

    def abort(self) -> None:
        """Leave nothing behind; never fails."""
        parts, self._parts = self._parts, None
        self._buffer.clear()
        if parts is not None:
            with contextlib.suppress(BaseError, OSError):
                parts.__exit__(InternalError, InternalError("aborted"), None)

    def _begin_parts(self) -> None:
        if self._io.exists(self._path):
            raise FileExistsError(f"the object exists: {self._path}")
        self._parts = self._open()
        self._parts_do(lambda: self._parts.write(bytes(self._buffer)))
        self._buffer.clear()

    def _parts_do(self, act: Callable[[], _Result]) -> _Result:
        with translated("write", self._path):
            return act()
