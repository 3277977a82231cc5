# SPDX-License-Identifier: Apache-2.0
"""Reading and writing the manifests and manifest lists of one table.

Manifests never change once written, so what was decoded is kept: one cache per process, keyed by
full path and bounded by the number of records held, serves every table and every thread. What this
process writes enters the cache at once. Source: FORMAT.md §1.3, §4.
"""

import collections
import itertools
import struct
import threading
from collections.abc import Iterable, Iterator, Sequence
from typing import Any, Generic, TypeVar

from storage.clock import IdSource
from storage.format.avro_container import ContainerWriter
from storage.format.binary_row import decode_row, encode_row
from storage.format.file_meta import EMPTY_STATS, FileKind, ManifestEntry, SimpleStats
from storage.format.layout import TableLayout
from storage.format.manifest import (
    ManifestFileMeta,
    decode_entries,
    decode_metas,
    encode_metas,
    entry_record,
    entry_schema,
)
from storage.format.types import DataType
from storage.io.file_io import FileIO

__all__ = ["ManifestStore", "clear_manifest_cache"]

_CACHED_RECORDS = 200_000
"""Bound of each cache [records]. A decoded entry takes 1-2 kB, so about 300 MB when full."""

_Record = TypeVar("_Record")


class _RecordCache(Generic[_Record]):
    """Least-recently-used files, bounded by the sum of their records. Thread-safe."""

    def __init__(self, limit: int) -> None:
        self._limit = limit
        self._held = 0
        self._files: collections.OrderedDict[str, tuple[_Record, ...]] = collections.OrderedDict()
        self._lock = threading.Lock()

    def get(self, path: str) -> tuple[_Record, ...] | None:
        with self._lock:
            records = self._files.get(path)
            if records is not None:
                self._files.move_to_end(path)
            return records

    def put(self, path: str, records: tuple[_Record, ...]) -> None:
        with self._lock:
            self._held += _weight(records) - _weight(self._files.pop(path, None))
            self._files[path] = records
            while self._held > self._limit:
                _, dropped = self._files.popitem(last=False)
                self._held -= _weight(dropped)

    def clear(self) -> None:
        with self._lock:
            self._files.clear()
            self._held = 0


def _weight(records: tuple[object, ...] | None) -> int:
    """What a file counts for; one more than its records, so that empty files are bounded too."""
    return 0 if records is None else len(records) + 1


_ENTRIES: _RecordCache[ManifestEntry] = _RecordCache(_CACHED_RECORDS)
_METAS: _RecordCache[ManifestFileMeta] = _RecordCache(_CACHED_RECORDS)


def clear_manifest_cache() -> None:
    """Forget every decoded manifest of this process; for tests and memory emergencies."""
    _ENTRIES.clear()
    _METAS.clear()


class ManifestStore:
    """Manifests of one table.

    File names carry one UUID per instance and a counter per kind. A pickled copy takes a UUID of
    its own, so two processes never write the same name.

    Args:
        file_io: the store.
        layout: where the table's files are.
        id_source: gives the UUID.
        partition_types: types of the partition columns, in partition-key order.
    """

    def __init__(
        self,
        file_io: FileIO,
        layout: TableLayout,
        id_source: IdSource,
        *,
        partition_types: Sequence[DataType] = (),
    ) -> None:
        self._file_io = file_io
        self._layout = layout
        self._ids = id_source
        self._partition_types = tuple(partition_types)
        self._start_names()

    def __getstate__(self) -> dict[str, Any]:
        state = self.__dict__.copy()
        del state["_uuid"], state["_manifest_numbers"], state["_list_numbers"]
        return state

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.__dict__.update(state)
        self._start_names()

    def _start_names(self) -> None:
        self._uuid = self._ids.uuid()
        self._manifest_numbers = itertools.count()
        self._list_numbers = itertools.count()

    def write_manifests(
        self, entries: Iterable[ManifestEntry], target_size: int
    ) -> list[ManifestFileMeta]:
        """Write entries in their order, starting a new manifest whenever one is full.

        Args:
            entries: what to write.
            target_size: a manifest is closed once it holds this much [bytes].

        Returns:
            One meta per manifest, in writing order; nothing for no entries.
        """
        metas = []
        for group, data in _rolled(tuple(entries), target_size):
            name = f"manifest-{self._uuid}-{next(self._manifest_numbers)}"
            path = self._layout.manifest(name)
            self._file_io.write_bytes(path, data)
            _ENTRIES.put(path, group)
            metas.append(self._describe(name, len(data), group))
        return metas

    def write_list(self, metas: Iterable[ManifestFileMeta]) -> tuple[str, int]:
        """Write a manifest list; an empty one is a valid file.

        Returns:
            Its name inside `manifest/` and its size [bytes].
        """
        metas = tuple(metas)
        data = encode_metas(metas)
        name = f"manifest-list-{self._uuid}-{next(self._list_numbers)}"
        path = self._layout.manifest(name)
        self._file_io.write_bytes(path, data)
        _METAS.put(path, metas)
        return name, len(data)

    def read_manifest(self, name: str) -> tuple[ManifestEntry, ...]:
        """The entries of a manifest, in file order; cached.

        Raises:
            FileNotFoundError: it is gone, as after expiry.
            CorruptDataError: it cannot be decoded.
        """
        path = self._layout.manifest(name)
        entries = _ENTRIES.get(path)
        if entries is None:
            entries = decode_entries(self._file_io.read_bytes(path), source=path)
            _ENTRIES.put(path, entries)
        return entries

    def read_list(self, name: str) -> tuple[ManifestFileMeta, ...]:
        """The manifests of a manifest list, in file order; cached. Raises as `read_manifest`."""
        path = self._layout.manifest(name)
        metas = _METAS.get(path)
        if metas is None:
            metas = decode_metas(self._file_io.read_bytes(path), source=path)
            _METAS.put(path, metas)
        return metas

    def delete(self, name: str) -> bool:
        """Remove a manifest or a manifest list. False when it was not there."""
        return self._file_io.delete(self._layout.manifest(name))

    def _describe(self, name: str, size: int, entries: Sequence[ManifestEntry]) -> ManifestFileMeta:
        added = sum(entry.kind is FileKind.ADD for entry in entries)
        buckets = [entry.bucket for entry in entries]
        levels = [entry.file.level for entry in entries]
        row_ids = [
            (first, first + entry.file.row_count - 1)
            for entry in entries
            if (first := entry.file.first_row_id) is not None
        ]
        tracked = len(row_ids) == len(entries)
        return ManifestFileMeta(
            file_name=name,
            file_size=size,
            num_added_files=added,
            num_deleted_files=len(entries) - added,
            partition_stats=self._partition_stats(entries),
            schema_id=max(entry.file.schema_id for entry in entries),
            min_bucket=min(buckets),
            max_bucket=max(buckets),
            min_level=min(levels),
            max_level=max(levels),
            min_row_id=min(first for first, _ in row_ids) if tracked else None,
            max_row_id=max(last for _, last in row_ids) if tracked else None,
        )

    def _partition_stats(self, entries: Sequence[ManifestEntry]) -> SimpleStats:
        """Minimum, maximum and null count per partition column, full precision."""
        types = self._partition_types
        if not types:
            return EMPTY_STATS
        entry_counts = collections.Counter(entry.partition for entry in entries)
        rows = [(decode_row(framed, types), count) for framed, count in entry_counts.items()]
        lows, highs, null_counts = [], [], []
        for position in range(len(types)):
            present = [row[position] for row, _ in rows if row[position] is not None]
            lows.append(min(present, key=_order, default=None))
            highs.append(max(present, key=_order, default=None))
            null_counts.append(sum(count for row, count in rows if row[position] is None))
        return SimpleStats(encode_row(lows, types), encode_row(highs, types), tuple(null_counts))


def _rolled(
    entries: tuple[ManifestEntry, ...], target_size: int
) -> Iterator[tuple[tuple[ManifestEntry, ...], bytes]]:
    """Encode entries into files of about `target_size` [bytes]."""
    schema = entry_schema(entries)
    start = 0
    writer = ContainerWriter(schema)
    for end, entry in enumerate(entries, start=1):
        writer.append(entry_record(entry))
        if writer.size >= target_size or end == len(entries):
            yield entries[start:end], writer.finish()
            start, writer = end, ContainerWriter(schema)


def _order(value: object) -> Any:
    """Java's order: -0.0 before 0.0 and NaN last; other values compare as they are."""
    if not isinstance(value, float):
        return value
    (bits,) = struct.unpack(">q", struct.pack(">d", value))
    if value != value:
        return 0x7FFF_FFFF_FFFF_FFFF
    return bits if bits >= 0 else -(bits & 0x7FFF_FFFF_FFFF_FFFF) - 1
