# SPDX-License-Identifier: Apache-2.0
"""The `FileIO` of a POSIX file system.

Publishing follows FORMAT.md §11.5: `rename(2)` would silently replace another writer's file, so
`put_if_absent` makes a hidden temporary file durable and gives it its name with `link(2)`, which
fails when the name is taken. A reader of the name sees all bytes or nothing.

Durable means: the file's bytes are synced before its name matters, and the directory that holds
the name is synced before the call returns, or before `durable_together` ends. `durable=False` skips
both; it is for tests and throw-away tables, and only a power loss shows the difference.
"""

import contextlib
import errno
import functools
import os
import stat
import uuid
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextvars import ContextVar
from typing import Any

import pyarrow as pa

from storage.errors import InvalidRequestError, StorageUnavailableError, UnsupportedFeatureError
from storage.io.file_io import FileIO, FileStatus

_NO_HARD_LINKS = frozenset({errno.EPERM, errno.ENOTSUP, errno.EOPNOTSUPP, errno.EMLINK})


_SYNCED_LATER_BYTES = 4 << 20
"""Larger files are synced at once: of these the disk's own time counts, not the journal's."""

_SYNCED_AT_ONCE = 8

_unsynced: ContextVar[list[str] | None] = ContextVar("unsynced", default=None)


@contextlib.contextmanager
def durable_together() -> Iterator[None]:
    """Make the small files that this thread creates meanwhile durable at the end, all together.

    For files that nothing names before the end. A file system with a journal then waits once for
    it, and not twice for each file. Whatever is published meanwhile, by any other method, makes
    durable first what was created before.

    Raises:
        StorageUnavailableError: a file cannot be synced.
    """
    if _unsynced.get() is not None:
        yield  # the outer one syncs
        return
    token = _unsynced.set([])
    try:
        yield
    finally:  # after an error, too: another attempt may name what this one wrote
        try:
            _sync_created()
        finally:
            _unsynced.reset(token)


def _sync_created() -> None:
    """Sync what was created and not yet synced, and the directories that hold the names."""
    paths = _unsynced.get()
    if not paths:
        return
    with _translated("write", paths[0]):
        waits = (*paths, *dict.fromkeys(map(os.path.dirname, paths)))
        # side by side: the disk answers waits that overlap with one flush of its cache
        for _ in _threads_of(os.getpid()).map(_sync_present, waits):
            pass
        paths.clear()


@functools.cache
def _threads_of(_process: int) -> ThreadPoolExecutor:
    """Threads that wait for the disk; a forked process gets its own."""
    return ThreadPoolExecutor(_SYNCED_AT_ONCE, "sync")


def _sync_present(path: str) -> None:
    with contextlib.suppress(FileNotFoundError):  # removed since
        _sync(path)


def temporary_name(path: str) -> str:
    """A fresh hidden name beside `path`: `.<name>.<uuid>.tmp`, which listings of ids ignore."""
    directory, name = os.path.split(path)
    return os.path.join(directory, f".{name}.{uuid.uuid4()}.tmp")


class LocalFileIO(FileIO):
    """Local files, durable by default.

    Holds no state beyond its flag, so it may be shared by threads and pickled to executors.
    """

    def __init__(self, durable: bool = True) -> None:
        self.durable = durable

    def __repr__(self) -> str:
        return f"LocalFileIO(durable={self.durable})"

    def read_bytes(self, path: str) -> bytes:
        """See `FileIO`."""
        with _translated("read", path), open(path, "rb") as file:
            return file.read()

    def open_input(self, path: str) -> pa.NativeFile:
        """See `FileIO`."""
        with _translated("open", path):
            return pa.OSFile(path, "rb")

    def local_path(self, path: str) -> str:
        """See `FileIO`."""
        return os.path.abspath(path)

    @contextlib.contextmanager
    def open_output(self, path: str) -> Iterator[Any]:
        """See `FileIO`; the sink is a `pyarrow.NativeFile`."""
        with _translated("create", path):
            self._make_parents(path)
            os.close(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o666))
            sink = pa.OSFile(path, "wb")
        try:
            with _translated("write", path):
                yield sink
                sink.close()
                if not self._sync_later(path, os.path.getsize):
                    self._sync_file(path)
                    self._sync_directory(path)
        except BaseException:
            sink.close()
            _unlink_quietly(path)
            raise

    def write_bytes(self, path: str, data: bytes) -> None:
        """See `FileIO`."""
        with _translated("write", path):
            self._make_parents(path)
            later = self._sync_later(path, lambda _: len(data))
            self._create(path, data, durable=self.durable and not later)
            if not later:
                self._sync_directory(path)

    def overwrite_bytes(self, path: str, data: bytes) -> None:
        """See `FileIO`."""
        with _translated("overwrite", path):
            if self.durable:
                _sync_created()
            self._make_parents(path)
            temporary = temporary_name(path)
            self._create(temporary, data)
            try:
                os.replace(temporary, path)
            except OSError:
                _unlink_quietly(temporary)
                raise
            self._sync_directory(path)

    def overwrite_hint(self, path: str, data: bytes) -> None:
        """See `FileIO`."""
        LocalFileIO(durable=False).overwrite_bytes(path, data)

    def put_if_absent(self, path: str, data: bytes) -> bool:
        """See `FileIO`.

        Raises:
            UnsupportedFeatureError: the file system has no hard links.
        """
        with _translated("publish", path):
            if os.path.lexists(path):
                return False
            _sync_created()
            self._make_parents(path)
            temporary = temporary_name(path)
            self._create(temporary, data)
            try:
                created = _link(temporary, path)
            finally:
                _unlink_quietly(temporary)
            if created:
                self._sync_directory(path)
            return created

    def exists(self, path: str) -> bool:
        """See `FileIO`."""
        with _translated("stat", path):
            try:
                os.stat(path)
            except (FileNotFoundError, NotADirectoryError):
                return False
            return True

    def size(self, path: str) -> int:
        """See `FileIO`."""
        with _translated("stat", path):
            return os.stat(path).st_size

    def list(self, path: str) -> list[FileStatus]:
        """See `FileIO`."""
        with _translated("list", path):
            try:
                with os.scandir(path) as entries:
                    statuses = [_status(entry) for entry in entries]
            except FileNotFoundError:
                return []
            present = [status for status in statuses if status is not None]
            return sorted(present, key=lambda status: status.name)

    def delete(self, path: str) -> bool:
        """See `FileIO`; not synced: a delete lost in a power cut leaves an orphan, no more."""
        with _translated("delete", path):
            try:
                os.unlink(path)
            except FileNotFoundError:
                return False
            return True

    def prune(self, path: str) -> None:
        """See `FileIO`."""
        with _translated("prune", path):
            for directory, _, _ in os.walk(path, topdown=False):
                with contextlib.suppress(OSError):
                    os.rmdir(directory)

    def rename_directory(self, old: str, new: str) -> None:
        """See `FileIO`: `rename(2)` of a directory replaces none that holds anything."""
        with _translated("rename", old):
            _sync_created()
            self._make_parents(new)
            try:
                os.rename(old, new)
            except OSError as error:
                if error.errno in (errno.ENOTEMPTY, errno.EEXIST):
                    raise FileExistsError(errno.EEXIST, os.strerror(errno.EEXIST), new) from error
                raise
            self._sync_directory(old)
            self._sync_directory(new)

    def _sync_later(self, path: str, size: Callable[[str], int]) -> bool:
        """Whether the end of `durable_together` syncs a new file."""
        paths = _unsynced.get()
        if not self.durable or paths is None or size(path) > _SYNCED_LATER_BYTES:
            return False
        paths.append(path)
        return True

    def _create(self, path: str, data: bytes, *, durable: bool | None = None) -> None:
        """Write a new file; on any failure nothing is left."""
        descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o666)
        try:
            with os.fdopen(descriptor, "wb") as file:
                file.write(data)
                file.flush()
                if self.durable if durable is None else durable:
                    os.fsync(descriptor)
        except BaseException:
            _unlink_quietly(path)
            raise

    def _sync_file(self, path: str) -> None:
        if self.durable:
            _sync(path)

    def _sync_directory(self, path: str) -> None:
        if self.durable:
            _sync(os.path.dirname(path))

    def _make_parents(self, path: str) -> None:
        """Create the missing directories above `path`, each durable in its own parent."""
        parent = os.path.dirname(path)
        if not parent or os.path.isdir(parent):
            return
        self._make_parents(parent)
        with contextlib.suppress(FileExistsError):
            os.mkdir(parent)
        self._sync_directory(parent)


def _link(temporary: str, path: str) -> bool:
    """Give `temporary` the name `path`; False when the name is taken by another file."""
    try:
        os.link(temporary, path)
    except FileExistsError:
        # A network file system may repeat a request whose answer was lost: the name may be ours.
        try:
            return os.path.samestat(os.stat(temporary), os.stat(path))
        except FileNotFoundError:
            return False
    except OSError as error:
        if error.errno in _NO_HARD_LINKS:
            raise UnsupportedFeatureError(
                "the file system cannot publish a file atomically",
                detail=str(error),
                hint="put the warehouse on a file system with hard links (ext4, xfs, btrfs, NFS)",
                path=path,
            ) from error
        raise
    return True


def _sync(path: str) -> None:
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def _status(entry: "os.DirEntry[str]") -> FileStatus | None:
    """The status of a directory entry, or None when it has just disappeared."""
    try:
        info = entry.stat()
    except FileNotFoundError:
        return None
    directory = stat.S_ISDIR(info.st_mode)
    return FileStatus(
        name=entry.name,
        path=entry.path,
        size=0 if directory else info.st_size,
        directory=directory,
        modified_ms=info.st_mtime_ns // 1_000_000,
    )


def _unlink_quietly(path: str) -> None:
    with contextlib.suppress(OSError):
        os.unlink(path)


@contextlib.contextmanager
def _translated(operation: str, path: str) -> Iterator[None]:
    """Turn an `OSError` without a meaning of its own into `StorageUnavailableError`."""
    if "\0" in path:  # no file has such a name; libraries report it in different ways
        raise FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT), path)
    try:
        yield
    except FileNotFoundError as error:
        if error.filename is not None:
            raise
        raise FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT), path) from error
    except (FileExistsError, PermissionError):
        raise
    except (IsADirectoryError, NotADirectoryError) as error:
        raise FileNotFoundError(error.errno, error.strerror, path) from error
    except OSError as error:
        if error.errno == errno.ENAMETOOLONG:
            raise InvalidRequestError(
                "a name is too long for the file system",
                hint="keep partition values short, or use a store without this limit",
                path=path,
            ) from error
        hint = "free some space" if error.errno in (errno.ENOSPC, errno.EDQUOT) else ""
        raise StorageUnavailableError(
            f"cannot {operation} a local file", detail=str(error), hint=hint, path=path
        ) from error
