# SPDX-License-Identifier: Apache-2.0
"""Reading and writing the manifests and manifest lists of one table.

Manifests never change once written, so decoded ones are cached: one cache per process, keyed by
full path, bounded by the records held and the time without use, serves every table and every
thread. What this process writes enters the cache at once. Where the store is distant,
several files are read in parallel, and only those not cached. Source: FORMAT.md §1.3, §4.
"""

import collections
import functools
import itertools
import struct
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from types import MappingProxyType
from typing import Any, TypeVar

import msgspec

from storage.clock import IdSource
from storage.errors import CorruptDataError
from storage.format.avro.container import CODECS, ContainerWriter
from storage.format.metadata.file_meta import (
    EMPTY_STATS,
    FileKind,
    IndexManifestEntry,
    ManifestEntry,
    SimpleStats,
)
from storage.format.metadata.layout import TableLayout
from storage.format.metadata.manifest import (
    EntryFilter,
    ManifestFileMeta,
    decode_entries,
    decode_index_entries,
    decode_metas,
    encode_index_entries,
    encode_metas,
    entry_record,
    entry_schema,
)
from storage.format.row.binary_row import decode_row, encode_row
from storage.format.types.types import DataType
from storage.io.file_io import FileIO, read_present
from storage.lru import LruCache
from storage.options.options import option_value
from storage.options.values import codec_of

_CACHED_RECORDS = 200_000
"""Bound of each cache [records]. A decoded entry takes 1-2 kB, so about 300 MB when full."""

_UNUSED_S = 120.0
"""Files without use for so long are dropped [s]: a stream that runs for weeks makes new manifests
with every commit and has no use for the old ones."""

_Record = TypeVar("_Record")


def _weight(records: tuple[object, ...]) -> int:
    """The weight of a file: one more than its records, so that empty files are bounded too."""
    return len(records) + 1


def _cache() -> LruCache[str, tuple[_Record, ...]]:
    """A cache of decoded files by path."""
    return LruCache(_CACHED_RECORDS, weigh=_weight, unused_s=_UNUSED_S)


_ENTRIES: LruCache[str, tuple[ManifestEntry, ...]] = _cache()
_METAS: LruCache[str, tuple[ManifestFileMeta, ...]] = _cache()
_INDEXES: LruCache[str, tuple[IndexManifestEntry, ...]] = _cache()


def clear_manifest_cache() -> None:
    """Drop every decoded manifest of this process; for tests and memory shortage."""
    _ENTRIES.clear()
    _METAS.clear()
    _INDEXES.clear()


class ManifestStore:
    """Manifests of one table.

    File names carry one UUID per instance and a counter per kind. A pickled copy takes a UUID of
    its own, so two processes never write the same name.

    Args:
        partition_types: types of the partition columns, in partition-key order.
        options: of the table; those about manifests say how they are written. Read when
            something is written, so that a table with a bad value can be read and altered.
    """

    def __init__(
        self,
        file_io: FileIO,
        layout: TableLayout,
        id_source: IdSource,
        *,
        partition_types: Sequence[DataType] = (),
        options: Mapping[str, str] = MappingProxyType({}),
    ) -> None:
        self._file_io = file_io
        self._layout = layout
        self._ids = id_source
        self._partition_types = tuple(partition_types)
        self._options = dict(options)
        self._start_names()

    def __getstate__(self) -> dict[str, Any]:
        state = self.__dict__.copy()
        del state["_uuid"], state["_numbers"]
        return state

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.__dict__.update(state)
        self._start_names()

    def _start_names(self) -> None:
        self._uuid = self._ids.uuid()
        self._numbers: dict[str, Iterator[int]] = collections.defaultdict(itertools.count)

    @functools.cached_property
    def _codec(self) -> str:
        return codec_of(option_value(self._options, "manifest.compression"), CODECS, "Avro")

    @functools.cached_property
    def _zstd_level(self) -> int:
        return int(option_value(self._options, "file.compression.zstd-level"))

    @functools.cached_property
    def _drop_stats(self) -> bool:
        return bool(option_value(self._options, "manifest.delete-file-drop-stats"))

    def write_manifests(
        self, entries: Iterable[ManifestEntry], target_size: int
    ) -> list[ManifestFileMeta]:
        """Write entries in their order, starting a new manifest whenever one is full.

        `target_size` is in bytes.

        Returns:
            One meta per manifest, in writing order; nothing for no entries.
        """
        metas = []
        if self._drop_stats:
            entries = map(_without_stats, entries)
        for group, data in self._rolled(tuple(entries), target_size):
            name = self._write("manifest", data, _ENTRIES, group)
            metas.append(self._describe(name, len(data), group))
        return metas

    def write_list(self, metas: Iterable[ManifestFileMeta]) -> tuple[str, int]:
        """Write a manifest list, maybe empty; its name inside `manifest/` and its size [bytes]."""
        metas = tuple(metas)
        data = encode_metas(metas, codec=self._codec, zstd_level=self._zstd_level)
        return self._write("manifest-list", data, _METAS, metas), len(data)

    def write_index_manifest(self, entries: Iterable[IndexManifestEntry]) -> str:
        """Write the complete list of a snapshot's index files; its name inside `manifest/`."""
        entries = tuple(entries)
        data = encode_index_entries(entries, codec=self._codec, zstd_level=self._zstd_level)
        return self._write("index-manifest", data, _INDEXES, entries)

    def _write(
        self,
        kind: str,
        data: bytes,
        cache: LruCache[str, tuple[_Record, ...]],
        records: tuple[_Record, ...],
    ) -> str:
        name = f"{kind}-{self._uuid}-{next(self._numbers[kind])}"
        path = self._layout.manifest(name)
        self._file_io.write_bytes(path, data)
        cache.put(path, records)
        return name

    def read_index_manifest(self, name: str) -> tuple[IndexManifestEntry, ...]:
        """The index files of a snapshot, in file order; cached. Raises as `read_manifests`."""
        path = self._layout.manifest(name)
        entries = _INDEXES.get(path)
        if entries is None:
            entries = decode_index_entries(self._file_io.read_bytes(path), source=path)
            _INDEXES.put(path, entries)
        return entries

    def read_manifests(
        self, metas: Iterable[ManifestFileMeta], keeps_entry: EntryFilter | None = None
    ) -> Iterator[tuple[ManifestEntry, ...]]:
        """The entries of several manifests, in their order; cached unless `keeps_entry` filters.

        Raises:
            FileNotFoundError: one was deleted, as after expiry.
            CorruptDataError: one cannot be decoded, or is shorter than recorded.
        """
        decode = functools.partial(decode_entries, keeps_entry=keeps_entry)
        files = [(meta.file_name, meta.file_size) for meta in metas]
        for entries, cached in self._read_each(_ENTRIES, files, decode, keep=keeps_entry is None):
            if cached and keeps_entry is not None:
                matches = (
                    e for e in entries if keeps_entry(e.partition, e.bucket, e.total_buckets)
                )
                yield tuple(matches)
            else:
                yield entries

    def read_list(self, name: str, size: int | None = None) -> tuple[ManifestFileMeta, ...]:
        """The manifests of a manifest list, in file order; cached.

        `size` is what the snapshot says about it [bytes]; None = unknown.

        Raises:
            As `read_manifests`.
        """
        (metas,) = self.read_lists([(name, size)])
        return metas

    def read_lists(
        self, lists: Iterable[tuple[str, int | None]]
    ) -> Iterator[tuple[ManifestFileMeta, ...]]:
        """Several manifest lists by name and size, one after the other; see `read_list`."""
        for metas, _ in self._read_each(_METAS, list(lists), decode_metas, keep=True):
            yield metas

    def preload_lists(self, lists: Iterable[tuple[str, int | None]]) -> None:
        """Load manifest lists that will be read later into the cache, read together.

        A missing or truncated file is left for its reader to report.
        """
        self._preload(_METAS, dict(lists), decode_metas)

    def preload_manifests(self, metas: Iterable[ManifestFileMeta]) -> None:
        """The same for manifests; as many as the cache holds without evicting each other."""
        sizes: dict[str, int | None] = {}
        records = 0
        for meta in {meta.file_name: meta for meta in metas}.values():
            records += meta.num_added_files + meta.num_deleted_files + 1
            if records > _CACHED_RECORDS // 2:
                break
            sizes[meta.file_name] = meta.file_size
        self._preload(_ENTRIES, sizes, decode_entries)

    def _preload(
        self,
        cache: LruCache[str, tuple[_Record, ...]],
        files: Mapping[str, int | None],
        decode: Callable[[bytes, str], tuple[_Record, ...]],
    ) -> None:
        sizes = {self._layout.manifest(name): size for name, size in files.items()}
        absent = [path for path in sizes if path not in cache]
        if len(absent) < 2:
            return
        for path, data in zip(absent, read_present(self._file_io, absent), strict=True):
            if data is not None and len(data) >= (sizes[path] or 0):
                cache.put(path, decode(data, path))

    def _read_each(
        self,
        cache: LruCache[str, tuple[_Record, ...]],
        files: Sequence[tuple[str, int | None]],
        decode: Callable[[bytes, str], tuple[_Record, ...]],
        *,
        keep: bool,
    ) -> Iterator[tuple[tuple[_Record, ...], bool]]:
        """Decoded files in order, each with whether it came from the cache."""
        paths = [self._layout.manifest(name) for name, _ in files]
        absent = dict.fromkeys(path for path in paths if path not in cache)
        arriving = self._file_io.read_many(list(absent))
        for path, (_, size) in zip(paths, files, strict=True):
            if path in absent:
                del absent[path]
                data = next(arriving)
            else:
                records = cache.get(path)
                if records is not None:
                    yield records, True
                    continue
                data = self._file_io.read_bytes(path)  # evicted meanwhile
            if size is not None and len(data) < size:
                raise CorruptDataError(
                    "a manifest is shorter than recorded",
                    path=path,
                    expected=size,
                    found=len(data),
                )
            records = decode(data, path)
            if keep:
                cache.put(path, records)
            yield records, False

    def may_hold_partition(self, meta: ManifestFileMeta, partitions: Collection[bytes]) -> bool:
        """Whether a manifest may have entries of one of some framed partitions, by its stats."""
        types, stats = self._partition_types, meta.partition_stats
        if not partitions or len(stats.null_counts) != len(types) or not types:
            return bool(partitions)
        lows, highs = decode_row(stats.min_values, types), decode_row(stats.max_values, types)
        bounds = list(zip(lows, highs, stats.null_counts, strict=True))
        rows = (decode_row(partition, types) for partition in partitions)
        return any(
            all(_may_hold_value(value, *bound) for value, bound in zip(row, bounds, strict=True))
            for row in rows
        )

    def delete(self, name: str) -> bool:
        """Remove a manifest or a manifest list. False when it was not there."""
        return self._file_io.delete(self._layout.manifest(name))

    def _rolled(
        self, entries: tuple[ManifestEntry, ...], target_size: int
    ) -> Iterator[tuple[tuple[ManifestEntry, ...], bytes]]:
        """Encode entries into files of about `target_size` [bytes]."""
        start = 0
        writer = self._writer(entries)
        for end, entry in enumerate(entries, start=1):
            writer.append(entry_record(entry))
            if writer.size >= target_size or end == len(entries):
                yield entries[start:end], writer.finish()
                start, writer = end, self._writer(entries)

    def _writer(self, entries: tuple[ManifestEntry, ...]) -> ContainerWriter:
        schema = entry_schema(entries)
        return ContainerWriter(schema, codec=self._codec, zstd_level=self._zstd_level)

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


def _without_stats(entry: ManifestEntry) -> ManifestEntry:
    """A DELETE without value statistics, which no reader uses; identity stays."""
    if entry.kind is FileKind.ADD:
        return entry
    file = msgspec.structs.replace(entry.file, value_stats=EMPTY_STATS, value_stats_cols=())
    return msgspec.structs.replace(entry, file=file)


def _may_hold_value(value: object, low: object, high: object, null_count: int | None) -> bool:
    """Whether a column with these statistics may hold a value."""
    if value is None:
        return null_count != 0
    if low is None or high is None:
        return True
    return bool(_order(low) <= _order(value) <= _order(high))


def _order(value: object) -> Any:
    """Java's order: -0.0 before 0.0 and NaN last; other values compare as they are."""
    if not isinstance(value, float):
        return value
    (bits,) = struct.unpack(">q", struct.pack(">d", value))
    if value != value:
        return 0x7FFF_FFFF_FFFF_FFFF
    return bits if bits >= 0 else -(bits & 0x7FFF_FFFF_FFFF_FFFF) - 1
