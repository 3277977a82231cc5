# SPDX-License-Identifier: Apache-2.0
"""The local copies of data files that lookups search: one directory for all processes of a machine.

    <directory>/<hash of the table's path>/<name>.copy       a whole copy, see `local_copy`
    <directory>/<hash of the table's path>/<name>.building   being written by the holder of its lock

Files of other names are left alone. All can be rebuilt from the table, so missing or damaged ones
are. The modification time of a copy is its expiry; every use extends it. The lock on a file under
construction ends with its process, and the next holder finds the copy, or builds it.

Open copies are mapped into memory, and count as resident while they are: a process closes those
that it did not use between two sweeps. Copies of files that compactions have replaced expire early.
"""

import contextlib
import dataclasses
import errno
import fcntl
import functools
import hashlib
import os
import pathlib
import re
import stat
import tempfile
import threading
from collections.abc import Iterable, Iterator, Sequence
from typing import TYPE_CHECKING

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyroaring

from storage.clock import Clock, SystemClock
from storage.errors import InternalError, InvalidRequestError, StorageUnavailableError
from storage.format.files.data_file import key_value_schema
from storage.format.files.row_selection import Bitmap
from storage.format.metadata.file_meta import DataFileMeta
from storage.format.row.row_codec import decode_row, from_row_values
from storage.lsm.bucket import LookupResult
from storage.lsm.key_order import key_at, lower_bound
from storage.lsm.levels import SortedRun
from storage.lsm.lookup.local_copy import (
    CopySource,
    LocalCopy,
    SearchedKeys,
    boot_seed,
    open_copy,
    write_copy,
)

if TYPE_CHECKING:
    from storage.lsm.bucket import BucketContext

DIRECTORY_VARIABLE = "LAKEWARD_LOOKUP_DIRECTORY"
"""Environment variable that names the directory of `process_store`."""

_COPY = ".copy"
_BUILDING = ".building"
_TABLE = re.compile(r"[0-9a-f]{16}")
_SWEEP_MS = 60_000
_HOUR_MS = 3_600_000
_RELEASED_MS = 30_000
"""How long the copy of a replaced file stays: its compaction may lose the race to commit."""

_ATTEMPTS = 3
"""Attempts to build one copy: the disk may be full of others, or the directory removed."""

_DISK_FULL = frozenset({errno.ENOSPC, errno.EDQUOT})


@dataclasses.dataclass(frozen=True, slots=True)
class CopyLimits:
    """How much space the copies of one table may take, and for how long.

    Attributes:
        max_bytes: of all its copies on this machine; None = any number [bytes].
        retention_ms: time without use after which a copy is removed [ms].
    """

    max_bytes: int | None = None
    retention_ms: int = _HOUR_MS
    max_mapped: int | None = None


@dataclasses.dataclass(slots=True)
class LookupCounters:
    """What one process did with the copies since it started.

    Attributes:
        hits: requests for a copy that existed.
        misses: requests for one that did not, and was built or waited for.
        built_files: copies built.
        built_bytes: their size [bytes].
        built_seconds: time that took [s].
        evicted_files: copies removed for lack of space or use.
        bytes_on_disk: size of all copies of the directory: of all processes at the last sweep, of
            this one since then [bytes].
    """

    hits: int = 0
    misses: int = 0
    built_files: int = 0
    built_bytes: int = 0
    built_seconds: float = 0.0
    evicted_files: int = 0
    bytes_on_disk: int = 0


@dataclasses.dataclass(frozen=True, slots=True)
class _CopyOnDisk:
    """A copy on disk."""

    path: pathlib.Path
    size: int
    stays_until_ns: int


class LookupStore:
    """See the module. Safe for threads, and for any number of processes on one directory.

    A copy that is open stays readable when its file is removed, by any process.

    Args:
        directory: created with the first copy; only its owner can read it.
        clock: when copies were used.
    """

    def __init__(self, directory: pathlib.Path, *, clock: Clock | None = None) -> None:
        self.directory = directory
        self._clock = SystemClock() if clock is None else clock
        self._open: dict[pathlib.Path, LocalCopy] = {}
        self._used_paths: set[pathlib.Path] = set()
        self._lock = threading.Lock()
        self._swept_ms: int | None = None
        self._counts = LookupCounters()

    def copy_of(self, table: str, source: CopySource, limits: CopyLimits) -> LocalCopy:
        """The copy of a data file, built when there is none.

        Copies of a table share the limits.

        Raises:
            StorageUnavailableError: the data file or the local disk failed.
            CorruptDataError: the data file violates the format.
        """
        self._sweep_sometimes()
        path = self._path_of(table, source)
        copy = self._open_existing(path, source, limits)
        if copy is not None:
            self._counts.hits += 1
            return copy
        self._counts.misses += 1
        copy = self._build_with_retries(path, source, limits)
        self._make_room(path, limits)
        return copy

    def release(self, table: str, sources: Iterable[CopySource]) -> None:
        """Expire the copies of some data files soon, unless they are used again."""
        now_ns = self._now_ns()
        for source in sources:
            path = self._path_of(table, source)
            self._forget(path)
            with contextlib.suppress(OSError):  # there is no copy
                os.utime(path, ns=(now_ns, now_ns + _RELEASED_MS * 1_000_000))

    def sweep(self) -> None:
        """Remove what was not used for its time, and what dead processes left unfinished.

        Runs automatically about once a minute while copies are in use.
        """
        now_ns, copies = self._now_ns(), self._copies_on_disk()
        self._counts.bytes_on_disk = sum(copy.size for copy in copies)
        self._remove([copy for copy in copies if copy.stays_until_ns < now_ns])
        for folder in self._folders():
            for path in _entries(folder, _BUILDING):
                _remove_abandoned(path)
            with contextlib.suppress(OSError):  # not empty
                folder.rmdir()
        with self._lock:
            # one that is being searched stays mapped until that is done
            self._open = {
                path: copy for path, copy in self._open.items() if path in self._used_paths
            }
            self._used_paths.clear()

    def counters(self) -> LookupCounters:
        """What happened so far."""
        # copies that others built since the sweep may have been removed here
        return dataclasses.replace(self._counts, bytes_on_disk=max(0, self._counts.bytes_on_disk))

    # --- finding and building ---------------------------------------------------------------

    def _open_existing(
        self, path: pathlib.Path, source: CopySource, limits: CopyLimits
    ) -> LocalCopy | None:
        """The copy, if it is on disk; its use is recorded."""
        with self._lock:
            copy = self._open.get(path)
        try:
            info = path.stat()
            now_ns = self._now_ns()
            os.utime(path, ns=(now_ns, now_ns + limits.retention_ms * 1_000_000))
        except OSError:
            self._forget(path)
            return None
        if copy is None or copy.size != info.st_size:
            copy = open_copy(path, source)
            if copy is None:
                self._forget(path)
                return None
        with self._lock:
            self._open.pop(path, None)
            self._open[path] = copy  # the last is the one used last
            self._used_paths.add(path)
            self._unmap(path, limits)
        return copy

    def _unmap(self, latest: pathlib.Path, limits: CopyLimits) -> None:
        """Close copies of the table, the least recently used first, down to what may be mapped.

        They stay on disk. A copy that is being searched stays mapped until that is done.
        """
        most = limits.max_mapped
        if most is None or sum(copy.size for copy in self._open.values()) <= most:
            return
        mapped = [path for path in self._open if path.parent == latest.parent]
        surplus = sum(self._open[path].size for path in mapped) - most
        for path in mapped[:-1]:
            if surplus <= 0:
                return
            surplus -= self._open.pop(path).size

    def _build_with_retries(
        self, path: pathlib.Path, source: CopySource, limits: CopyLimits
    ) -> LocalCopy:
        for attempt in range(_ATTEMPTS):
            try:
                return self._build(path, source, limits)
            except OSError as error:
                full = error.errno in _DISK_FULL
                if attempt == _ATTEMPTS - 1 or not (full or isinstance(error, FileNotFoundError)):
                    raise _local_failure(error, path) from error
                if full:
                    self._remove(self._copies_on_disk())
        raise InternalError("all attempts failed without an error")

    def _build(self, path: pathlib.Path, source: CopySource, limits: CopyLimits) -> LocalCopy:
        with self._turn_to_build(path) as unfinished:
            copy = self._open_existing(path, source, limits)
            if copy is not None:  # another process built it meanwhile
                return copy
            start = self._clock.monotonic_s()
            with unfinished.open("r+b") as file:
                file.truncate(0)
                size = write_copy(file, source)
            unfinished.rename(path)
            self._counts.built_files += 1
            self._counts.built_bytes += size
            self._counts.bytes_on_disk += size
            self._counts.built_seconds += self._clock.monotonic_s() - start
            copy = self._open_existing(path, source, limits)
        if copy is None:
            raise StorageUnavailableError(
                "a local copy of a data file is missing or damaged right after it was written",
                hint="nothing else may use the directory",
                path=path,
            )
        return copy

    @contextlib.contextmanager
    def _turn_to_build(self, path: pathlib.Path) -> Iterator[pathlib.Path]:
        """Hold the lock on the unfinished file of a copy; wait for its holder."""
        unfinished = path.with_suffix(_BUILDING)
        while True:
            descriptor = self._create(unfinished)
            try:
                fcntl.flock(descriptor, fcntl.LOCK_EX)
                if not _names(unfinished, descriptor):
                    continue  # it was finished or removed while we waited
                try:
                    yield unfinished
                finally:
                    if _names(unfinished, descriptor):
                        unfinished.unlink(missing_ok=True)
                return
            finally:
                os.close(descriptor)

    def _create(self, unfinished: pathlib.Path) -> int:
        flags = os.O_RDWR | os.O_CREAT | os.O_CLOEXEC
        while True:
            unfinished.parent.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
            with contextlib.suppress(FileNotFoundError):  # a sweep removes empty directories
                unfinished.parent.mkdir(mode=0o700, exist_ok=True)
                return os.open(unfinished, flags, 0o600)

    def _forget(self, path: pathlib.Path) -> None:
        with self._lock:
            self._open.pop(path, None)
            self._used_paths.discard(path)

    # --- removing ---------------------------------------------------------------------------

    def _make_room(self, new_copy: pathlib.Path, limits: CopyLimits) -> None:
        """Remove copies of the table, the least recently used first, down to its limit."""
        if limits.max_bytes is None:
            return
        copies = sorted(self._copies_on_disk(new_copy.parent), key=lambda copy: copy.stays_until_ns)
        surplus = sum(copy.size for copy in copies) - limits.max_bytes
        for copy in copies:
            if surplus <= 0:
                break
            if copy.path != new_copy:
                self._remove([copy])
                surplus -= copy.size

    def _sweep_sometimes(self) -> None:
        now_ms = self._clock.now_ms()
        with self._lock:
            if self._swept_ms is not None and now_ms - self._swept_ms < _SWEEP_MS:
                return
            self._swept_ms = now_ms
        self.sweep()

    def _remove(self, copies: Sequence[_CopyOnDisk]) -> None:
        for copy in copies:
            with contextlib.suppress(FileNotFoundError):  # another process removed it
                copy.path.unlink()
                self._counts.evicted_files += 1
                self._counts.bytes_on_disk -= copy.size
            self._forget(copy.path)

    def _copies_on_disk(self, folder: pathlib.Path | None = None) -> list[_CopyOnDisk]:
        """The copies of one table, or of all."""
        copies = []
        for directory in self._folders() if folder is None else [folder]:
            for path in _entries(directory, _COPY):
                with contextlib.suppress(FileNotFoundError):
                    facts = path.stat()
                    copies.append(_CopyOnDisk(path, facts.st_size, facts.st_mtime_ns))
        return copies

    def _folders(self) -> list[pathlib.Path]:
        return [path for path in _entries(self.directory, "") if _TABLE.fullmatch(path.name)]

    def _path_of(self, table: str, source: CopySource) -> pathlib.Path:
        folder = hashlib.blake2b(table.encode(), digest_size=8).hexdigest()
        return self.directory / folder / (source.name + _COPY)

    def _now_ns(self) -> int:
        return self._clock.now_ms() * 1_000_000


def _entries(folder: pathlib.Path, ending: str) -> list[pathlib.Path]:
    try:
        return sorted(path for path in folder.iterdir() if path.name.endswith(ending))
    except (FileNotFoundError, NotADirectoryError):
        return []


def _names(path: pathlib.Path, descriptor: int) -> bool:
    """Whether a path still leads to an open file."""
    try:
        return os.path.samestat(path.stat(), os.fstat(descriptor))
    except FileNotFoundError:
        return False


def _remove_abandoned(unfinished: pathlib.Path) -> None:
    """Remove an unfinished copy unless a process holds its lock."""
    try:
        descriptor = os.open(unfinished, os.O_RDWR | os.O_CLOEXEC)
    except OSError:
        return
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        if _names(unfinished, descriptor):
            unfinished.unlink(missing_ok=True)
    except BlockingIOError:
        return
    finally:
        os.close(descriptor)


def _local_failure(error: OSError, path: pathlib.Path) -> StorageUnavailableError:
    return StorageUnavailableError(
        "a local copy of a data file could not be written",
        detail=str(error),
        hint=f"make room, set `lookup.cache-max-disk-size`, or point {DIRECTORY_VARIABLE} to "
        "another disk",
        path=path,
    )


def process_store() -> LookupStore:
    """The store of this process, on the directory that all processes of this user share.

    The directory is that of `LAKEWARD_LOOKUP_DIRECTORY`, or one below the system's temporary one.

    Raises:
        InvalidRequestError: the directory below the temporary one belongs to another user.
    """
    return _store_of(os.environ.get(DIRECTORY_VARIABLE) or _usual_directory(), os.getpid())


@functools.cache
def _store_of(directory: str, _process: int) -> LookupStore:
    # by process: a fork must not share locks and counters with its parent
    return LookupStore(pathlib.Path(directory))


def _usual_directory() -> str:
    directory = pathlib.Path(tempfile.gettempdir()) / f"lakeward-lookup-{os.getuid()}"
    with contextlib.suppress(FileExistsError):
        directory.mkdir(mode=0o700)
    facts = directory.lstat()
    if not stat.S_ISDIR(facts.st_mode) or facts.st_uid != os.getuid() or facts.st_mode & 0o077:
        raise InvalidRequestError(
            "other users may have access to the directory for local copies of data files",
            hint=f"remove it, or set {DIRECTORY_VARIABLE}",
            path=directory,
        )
    return str(directory)


# Rows of keys in the upper levels of one bucket, from local copies of the data files.
#
# The `KeyLookup` of a bucket. A file is copied on the first lookup of a key that it could hold, by
# the key range of its metadata.


_Numbers = npt.NDArray[np.int64]


@dataclasses.dataclass(frozen=True, slots=True)
class _Part:
    """The keys found in one file."""

    file: DataFileMeta
    keys: _Numbers
    positions: _Numbers
    rows: list[pa.RecordBatch]


@dataclasses.dataclass(frozen=True, slots=True)
class BucketLookup:
    """See the module; a `KeyLookup`. Holds nothing open itself.

    Attributes:
        context: the bucket; rows are returned in its schema, without those its deletion vectors
            mark.
        store: the copies.
    """

    context: "BucketContext"
    store: LookupStore

    def find(
        self, keys: pa.RecordBatch, runs: Sequence[SortedRun], *, values: bool = True
    ) -> LookupResult:
        """See `KeyLookup`.

        Cost: grows with the keys, and by some microseconds per file that could hold one.
        """
        schema = self.context.schema
        names = schema.trimmed_primary_keys
        types = [field.type for field in schema.key_fields]
        pending = keys.select(names)
        numbers = np.arange(pending.num_rows)
        searched = SearchedKeys(pending.columns, types, boot_seed())
        parts: list[_Part] = []
        for run in runs:
            if not len(numbers):
                break
            is_missing = np.ones(len(numbers), np.bool_)
            for file, start, end in self._files_with_keys(pending, run.files):
                part = self._search(file, searched.between(start, end), values=values)
                if part is not None:
                    is_missing[part.keys + start] = False
                    parts.append(dataclasses.replace(part, keys=numbers[part.keys + start]))
            if not is_missing.all():
                remaining_keys = np.flatnonzero(is_missing)
                pending, numbers = pending.take(pa.array(remaining_keys)), numbers[remaining_keys]
                searched = searched.only(remaining_keys)
        return self._result(parts, values=values)

    def release(self, files: Iterable[DataFileMeta]) -> None:
        """See `KeyLookup`."""
        self.store.release(self.context.layout.root, map(self._source_of, files))

    def _files_with_keys(
        self, keys: pa.RecordBatch, files: Sequence[DataFileMeta]
    ) -> list[tuple[DataFileMeta, int, int]]:
        """Files whose range holds some of the keys, each with the range of these keys."""
        schema = self.context.schema
        names = schema.trimmed_primary_keys
        types = [field.type for field in schema.key_fields]
        ends = [decode_row(key, types) for file in files for key in (file.min_key, file.max_key)]
        columns = [
            from_row_values(column, type_)
            for column, type_ in zip(zip(*ends, strict=True), types, strict=True)
        ]
        bounds = pa.RecordBatch.from_arrays(columns, names=list(names))
        result = []
        for number, file in enumerate(files):
            low, high = (key_at(bounds, names, 2 * number + i) for i in range(2))
            start, end = lower_bound(keys, names, low), lower_bound(keys, names, high)
            if end < keys.num_rows and key_at(keys, names, end) == high:
                end += 1
            if start < end:
                result.append((file, start, end))
        return result

    def _search(self, file: DataFileMeta, keys: SearchedKeys, *, values: bool) -> _Part | None:
        """The keys found in a file, numbered from 0; None when there are none."""
        copy = self._copy_of(file)
        numbers, positions = copy.find(keys)
        deletions = self.context.deletions
        deleted = None if deletions is None else deletions.vector_of(file.file_name)
        if deleted is not None and len(positions):
            alive = _alive(deleted, positions)
            numbers, positions = numbers[alive], positions[alive]
        if not len(numbers):
            return None
        return _Part(file, numbers, positions, copy.rows(positions) if values else [])

    def _copy_of(self, file: DataFileMeta) -> LocalCopy:
        options = self.context.options
        limits = CopyLimits(
            options.lookup_cache_max_disk_size,
            options.lookup_cache_file_retention_ms,
            options.lookup_cache_max_memory_size,
        )
        return self.store.copy_of(self.context.layout.root, self._source_of(file), limits)

    def _source_of(self, file: DataFileMeta) -> CopySource:
        context = self.context
        file_schema = context.schemas(file.schema_id)
        return CopySource(context.file_io, context.path_of(file), file, file_schema, context.schema)

    def _result(self, parts: Sequence[_Part], *, values: bool) -> LookupResult:
        """All rows found, in the order of the keys."""
        schema = key_value_schema(self.context.schema)
        numbers = _concatenated([part.keys for part in parts])
        positions = _concatenated([part.positions for part in parts])
        counts = [len(part.keys) for part in parts]
        file_of = np.repeat(np.arange(len(parts), dtype=np.int32), counts)
        batches = [batch for part in parts for batch in part.rows]
        rows = None
        if values:
            rows = pa.concat_batches(batches) if batches else _no_rows(schema)
        if len(numbers) and not bool(np.all(numbers[1:] > numbers[:-1])):
            order = np.argsort(numbers)
            numbers, positions, file_of = numbers[order], positions[order], file_of[order]
            rows = None if rows is None else rows.take(pa.array(order))
        return LookupResult(numbers, rows, tuple(part.file for part in parts), file_of, positions)


def _alive(deleted: Bitmap, positions: _Numbers) -> npt.NDArray[np.bool_]:
    """Which of some ascending positions are not deleted."""
    if isinstance(deleted, pyroaring.BitMap64):
        common = (deleted & pyroaring.BitMap64(positions.astype(np.uint64))).to_array()
    else:
        common = (deleted & pyroaring.BitMap(positions.astype(np.uint32))).to_array()
    matches = np.asarray(common, np.int64)
    alive = np.ones(len(positions), np.bool_)
    alive[np.searchsorted(positions, matches)] = False
    return alive


def _concatenated(parts: Sequence[_Numbers]) -> _Numbers:
    return np.concatenate(parts) if parts else np.empty(0, np.int64)


def _no_rows(schema: pa.Schema) -> pa.RecordBatch:
    return pa.RecordBatch.from_arrays([pa.array([], kind) for kind in schema.types], schema=schema)
