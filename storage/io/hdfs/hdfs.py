# SPDX-License-Identifier: Apache-2.0
"""The `FileIO` of HDFS, over WebHDFS or HttpFS.

A file of HDFS can be seen while it is written, and a rename of HDFS is atomic and refuses a name
that is taken. So every file is written under a hidden temporary name beside its own and renamed:
a reader of the name sees all bytes or nothing, and of several writers one gets it.

The answer to a rename may be lost. A temporary name is used by one call alone, so a call that finds
it missing, and its own bytes at the path, knows that its rename took place.
"""

import contextlib
import functools
import os
import tempfile
from collections.abc import Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any, BinaryIO, cast

import orjson
import pyarrow as pa

from storage.errors import (
    CorruptDataError,
    InvalidRequestError,
    RetryableError,
    StorageUnavailableError,
)
from storage.io.file_io import FileIO, FileStatus, note_undeleted
from storage.io.hdfs.client import Cluster, Refusal, cluster_of, request
from storage.io.local import temporary_name
from storage.io.range_reader import TAIL_BYTES, RangeReader
from storage.io.read_ahead import REQUESTS_AT_ONCE, read_ahead

__all__ = ["HdfsFileIO"]

_SPOOL_BYTES = 32 << 20
"""Outputs up to this size wait in memory for their upload, longer ones in a local file [bytes]."""

_NOT_A_DIRECTORY = frozenset({"ParentNotDirectoryException", "AccessControlException"})


@functools.lru_cache(maxsize=1)
def _pool_of(_process: int) -> ThreadPoolExecutor:
    return ThreadPoolExecutor(REQUESTS_AT_ONCE, thread_name_prefix="hdfs")


def _pool() -> ThreadPoolExecutor:
    return _pool_of(os.getpid())


class _Upload:
    """A writable file whose bytes are sent when all are there; its writer may close it.

    Args:
        spool: takes the bytes.
    """

    def __init__(self, spool: BinaryIO) -> None:
        self._spool = spool
        self.closed = False

    def writable(self) -> bool:
        """Whether it is open."""
        return not self.closed

    def tell(self) -> int:
        """Bytes written so far."""
        return self._spool.tell()

    def write(self, data: Any) -> int:
        """Take bytes."""
        return self._spool.write(data)

    def flush(self) -> None:
        """Nothing: only a finished file can be read."""

    def close(self) -> None:
        """The pyarrow file around this was closed."""
        self.closed = True


class HdfsFileIO(FileIO):
    """One cluster. Paths are URLs such as `hdfs://host:8020/warehouse/db.db/t`.

    Safe for several threads. Pickles with its delegation token, which executors need; its text
    form hides it. Connections are made on first use, per process.

    Args:
        location: any URL in the cluster.
        options: `hdfs.webhdfs.address`, `hdfs.webhdfs.user`, `hdfs.webhdfs.delegation-token`,
            `hadoop-conf-dir` and `store.…`.

    Raises:
        InvalidOptionError: an option is unknown or malformed, or the address is missing.
    """

    distant = True

    def __init__(self, location: str, options: Mapping[str, str] | None = None) -> None:
        authority = location.partition("://")[2].partition("/")[0]
        self._root = f"hdfs://{authority}"
        self._cluster: Cluster = cluster_of(authority, options or {})

    def __repr__(self) -> str:
        return f"HdfsFileIO({self._root!r}, {self._cluster})"

    def read_bytes(self, path: str) -> bytes:
        """See `FileIO`."""
        return self._do("GET", "OPEN", path)

    def read_many(self, paths: Sequence[str]) -> Iterator[bytes]:
        """See `FileIO`."""
        if len(paths) < 2:
            return iter([self.read_bytes(path) for path in paths])
        return read_ahead(_pool(), self.read_bytes, paths)

    def open_input(self, path: str) -> pa.NativeFile:
        """See `FileIO`; see `RangeReader`."""
        status = self._status(path)
        if status is None or status.directory:
            raise FileNotFoundError(f"no such file: {path}")

        def fetch(start: int, count: int) -> memoryview:
            data = self._do("GET", "OPEN", path, offset=start, length=count) if count else b""
            if len(data) != count:
                raise CorruptDataError(
                    "a file ends before its length", path=path, offset=start, expected=count
                )
            return memoryview(data)

        size = status.size
        tail = fetch(max(0, size - TAIL_BYTES), min(size, TAIL_BYTES))
        return pa.PythonFile(RangeReader(path, size, tail, fetch, _pool()), mode="r")

    @contextlib.contextmanager
    def open_output(self, path: str) -> Iterator[Any]:
        """See `FileIO`; the sink is a `pyarrow.NativeFile`, sent when it is complete.

        Raises:
            FileExistsError: something is at `path`.
        """
        with tempfile.SpooledTemporaryFile(_SPOOL_BYTES) as temporary:
            spool = cast("BinaryIO", temporary)
            sink = pa.PythonFile(_Upload(spool), mode="w")
            yield sink
            if not self._publish(path, spool):
                raise FileExistsError(f"the file exists: {path}")

    def write_bytes(self, path: str, data: bytes) -> None:
        """See `FileIO`.

        Raises:
            FileExistsError: something is at `path`.
        """
        if not self._publish(path, data):
            raise FileExistsError(f"the file exists: {path}")

    def put_if_absent(self, path: str, data: bytes) -> bool:
        """See `FileIO`."""
        return self._publish(path, data)

    def overwrite_bytes(self, path: str, data: bytes) -> None:
        """See `FileIO`.

        A gateway that cannot rename over a file has it removed first: readers of such files bear
        that one is missing for a moment.
        """
        temporary = self._write(path, data)
        try:
            if self._rename(temporary, path, "OVERWRITE", data):
                return
            self.delete(path)
            replaced = self._rename(temporary, path, "OVERWRITE", data)
        except BaseException:
            self._delete_quietly(temporary)
            raise
        if not replaced:
            self._delete_quietly(temporary)
            raise StorageUnavailableError("a file could not be replaced", path=path)

    def _publish(self, path: str, data: bytes | BinaryIO) -> bool:
        """Make a file of complete bytes; whether this call made it."""
        temporary = self._write(path, data)
        try:
            made = self._rename(temporary, path, "NONE", data)
        except BaseException:
            self._delete_quietly(temporary)
            raise
        if not made:
            self._delete_quietly(temporary)
        return made

    def _write(self, path: str, data: bytes | BinaryIO) -> str:
        """Write a file under a temporary name, which is the answer; again from the start if need.

        The name is this call's alone, so an attempt may replace what another one has left.
        """
        temporary = temporary_name(path)
        try:
            self._do("PUT", "CREATE", temporary, body=data, overwrite="true")
        except BaseException:
            self._delete_quietly(temporary)
            raise
        return temporary

    def _rename(self, temporary: str, path: str, option: str, data: bytes | BinaryIO) -> bool:
        """Give a written file its name; False: the name is taken."""
        try:
            self._move(temporary, path, option)
        except FileExistsError:
            return False
        except FileNotFoundError:
            if not self._holds(path, data):
                raise StorageUnavailableError(
                    "a file vanished before it had its name", hint="try again", path=path
                ) from None
        return True

    def _move(self, old: str, new: str, option: str) -> None:
        """Rename a file or a directory.

        Raises:
            FileNotFoundError: there is nothing at the old path, perhaps because an attempt whose
                answer was lost has moved it.
            FileExistsError: something is at the new path.
        """
        answer = self._do("PUT", "RENAME", old, destination=self._key(new), renameoptions=option)
        if not answer or orjson.loads(answer).get("boolean", True):
            return
        if self.exists(old):  # a gateway without the option, which answers true or false
            raise FileExistsError(f"the file exists: {new}")
        raise FileNotFoundError(f"no such file: {old}")

    def _holds(self, path: str, data: bytes | BinaryIO) -> bool:
        """Whether a file has these bytes."""
        if not isinstance(data, bytes):
            data.seek(0)
            data = data.read()
        try:
            return self.read_bytes(path) == data
        except FileNotFoundError:
            return False

    def exists(self, path: str) -> bool:
        """See `FileIO`."""
        return self._status(path) is not None

    def is_file(self, path: str) -> bool:
        """See `FileIO`."""
        status = self._status(path)
        return status is not None and not status.directory

    def size(self, path: str) -> int:
        """See `FileIO`."""
        status = self._status(path)
        if status is None:
            raise FileNotFoundError(f"no such file: {path}")
        return status.size

    def list(self, path: str) -> list[FileStatus]:
        """See `FileIO`."""
        try:
            found = orjson.loads(self._do("GET", "LISTSTATUS", path))
        except FileNotFoundError:
            return []
        entries = found["FileStatuses"]["FileStatus"]
        inside = [
            _status_of(f"{path.rstrip('/')}/{entry['pathSuffix']}", entry)
            for entry in entries
            if entry["pathSuffix"]
        ]  # a file is its own only entry
        return sorted(inside, key=lambda status: status.name)

    def walk(self, path: str) -> Iterator[FileStatus]:
        """See `FileIO`."""
        entries = self.list(path)
        for status in sorted(entries, key=lambda each: each.name + "/" * each.directory):
            if status.directory:
                yield from self.walk(status.path)
            else:
                yield status

    def delete(self, path: str) -> bool:
        """See `FileIO`."""
        answer = orjson.loads(self._do("DELETE", "DELETE", path, recursive="false"))
        return bool(answer["boolean"])

    def delete_many(self, paths: Iterable[str]) -> int:
        """See `FileIO`; beside each other."""
        return sum(_pool().map(self._delete_quietly, paths))

    def _delete_quietly(self, path: str) -> bool:
        try:
            return self.delete(path)
        except (RetryableError, InvalidRequestError, OSError) as error:
            note_undeleted(path, error)
            return False

    def prune(self, path: str) -> None:
        """See `FileIO`."""
        entries = self.list(path)
        for status in entries:
            if status.directory:
                self.prune(status.path)
        if all(status.directory for status in entries):
            with contextlib.suppress(OSError, ValueError):  # not empty: another writer was faster
                self.delete(path)

    def rename_directory(self, old: str, new: str) -> None:
        """See `FileIO`."""
        if self.exists(new):
            raise FileExistsError(f"the directory exists: {new}")
        self._do("PUT", "MKDIRS", new.rstrip("/").rpartition("/")[0])
        try:
            self._move(old, new, "NONE")
        except FileNotFoundError:
            if not self.exists(new):  # else an attempt whose answer was lost has moved it
                raise

    def _status(self, path: str) -> FileStatus | None:
        try:
            answer = request(self._cluster, "GET", "GETFILESTATUS", self._key(path))
        except Refusal as refusal:
            if refusal.exception == "FileNotFoundException":
                return None
            if refusal.exception in _NOT_A_DIRECTORY and "not a directory" in refusal.text:
                return None
            raise refusal.error(path) from refusal
        return _status_of(path, orjson.loads(answer)["FileStatus"])

    def _do(
        self,
        method: str,
        operation: str,
        path: str,
        body: bytes | BinaryIO | None = None,
        **parameters: str | int,
    ) -> bytes:
        try:
            return request(
                self._cluster, method, operation, self._key(path), body=body, **parameters
            )
        except Refusal as refusal:
            raise refusal.error(path) from refusal

    def _key(self, path: str) -> str:
        """The path inside the file system."""
        return path.removeprefix(self._root) or "/"


def _status_of(path: str, entry: Mapping[str, Any]) -> FileStatus:
    return FileStatus(
        name=path.rstrip("/").rpartition("/")[2],
        path=path,
        size=entry["length"],
        directory=entry["type"] == "DIRECTORY",
        modified_ms=entry["modificationTime"],
    )
