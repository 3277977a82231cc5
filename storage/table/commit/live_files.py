# SPDX-License-Identifier: Apache-2.0
"""The files that are live in a snapshot, per bucket, cached and advanced by deltas.

State of snapshot S = fold(base list, delta list) (FORMAT.md §3.2), and because a base list holds
the state before its snapshot, also = state of S-1 with the delta of S applied. Every task of every
micro-batch reads one bucket of the newest snapshot, so states are cached per process, by the
names of both manifest lists (which are unique), and advanced by reading deltas only.
"""

import collections
import dataclasses
import itertools
import threading
from collections.abc import Callable, Iterable, Iterator, Mapping

import numpy as np
import numpy.typing as npt

from storage.errors import CorruptDataError, NotFoundError
from storage.format.files.row_selection import Bitmap
from storage.format.index import deletion_vector
from storage.format.index.deletion_vector import encode_file
from storage.format.metadata.file_meta import (
    DataFileMeta,
    IndexFileMeta,
    IndexManifestEntry,
    IndexType,
    ManifestEntry,
)
from storage.format.metadata.manifest import EntryFilter, ManifestFileMeta, fold
from storage.format.metadata.snapshot import Snapshot
from storage.lru import LruCache
from storage.table.core import TableCore

BucketId = tuple[bytes, int]
"""Framed partition and bucket number."""

_CACHED_FILES = 300_000
"""Live files in all cached states of a process; about 1 kB each, shared with the manifest cache."""

_STATES_PER_TABLE = 4
"""Cached states of one table: the newest, and the few that readers are pinned to."""

_STATES_ASKED = 256
"""Recorded snapshots of which a part was read."""

_STEPS = 64
"""Snapshots a state is advanced by; beyond, reading the full lists costs about the same."""

_WHOLE_STATE_FILES = 100_000
"""A table with more files than this is read bucket by bucket, with manifests pruned."""


@dataclasses.dataclass(frozen=True, slots=True)
class LiveState:
    """All live entries of one snapshot.

    Attributes:
        buckets: ADD entries per bucket, in the order they were added.
        file_count: number of files.
    """

    buckets: Mapping[BucketId, tuple[ManifestEntry, ...]]
    file_count: int

    def entries(self) -> Iterator[ManifestEntry]:
        """All entries."""
        return itertools.chain.from_iterable(self.buckets.values())

    def after(self, delta: Iterable[ManifestEntry]) -> "LiveState":
        """The state once a delta is applied; `self` stays as it is.

        Raises:
            CorruptDataError: the delta adds a file that is live.
        """
        changes: dict[BucketId, list[ManifestEntry]] = collections.defaultdict(list)
        for entry in delta:
            changes[(entry.partition, entry.bucket)].append(entry)
        if not changes:
            return self
        buckets = dict(self.buckets)
        count = self.file_count
        for bucket, entries in changes.items():
            before = buckets.pop(bucket, ())
            after = tuple(fold([*before, *entries]))
            count += len(after) - len(before)
            if after:
                buckets[bucket] = after
        return LiveState(buckets, count)


_Key = tuple[str, str, str]


class _StateCache:
    """Least recently used states, bounded by their files. Thread-safe."""

    def __init__(self) -> None:
        self._states: collections.OrderedDict[_Key, LiveState] = collections.OrderedDict()
        self._ids: dict[str, dict[int, _Key]] = {}
        self._requested_keys: LruCache[_Key, bool] = LruCache(_STATES_ASKED)
        self._file_total = 0
        self._lock = threading.Lock()

    def get(self, key: _Key) -> LiveState | None:
        with self._lock:
            state = self._states.get(key)
            if state is not None:
                self._states.move_to_end(key)
            return state

    def put(self, key: _Key, snapshot_id: int, state: LiveState) -> None:
        with self._lock:
            if key not in self._states:
                self._file_total += state.file_count + 1
            self._states[key] = state
            self._states.move_to_end(key)
            ids = self._ids.setdefault(key[0], {})
            ids.pop(snapshot_id, None)
            ids[snapshot_id] = key
            while len(ids) > _STATES_PER_TABLE:
                self._drop(ids.pop(next(iter(ids))))
            while self._file_total > _CACHED_FILES and len(self._states) > 1:
                self._drop(next(iter(self._states)))

    def requested_before(self, key: _Key) -> bool:
        """Whether part of a state was requested before; True from the second time on."""
        is_repeat = key in self._requested_keys
        self._requested_keys.put(key, True)
        return is_repeat

    def nearest(self, root: str, snapshot_id: int) -> int | None:
        """Id of the newest cached snapshot of a table or branch below an id."""
        with self._lock:
            return max((key for key in self._ids.get(root, {}) if key < snapshot_id), default=None)

    def _drop(self, key: _Key) -> None:
        dropped = self._states.pop(key, None)
        if dropped is not None:
            self._file_total -= dropped.file_count + 1

    def clear(self) -> None:
        with self._lock:
            self._states.clear()
            self._ids.clear()
            self._requested_keys.clear()
            self._file_total = 0


_STATES = _StateCache()


def clear_live_cache() -> None:
    """Drop every cached state of this process; for tests and memory emergencies."""
    _STATES.clear()


def list_entries(table: TableCore, metas: Iterable[ManifestFileMeta]) -> Iterator[ManifestEntry]:
    """Entries of manifests, in order."""
    return itertools.chain.from_iterable(table.manifests.read_manifests(metas))


def delta_entries(table: TableCore, snapshot: Snapshot) -> list[ManifestEntry]:
    """What a snapshot changed."""
    return list(list_entries(table, table.manifests.read_list(*snapshot.lists[1])))


def live_state(table: TableCore, snapshot: Snapshot) -> LiveState:
    """Everything live in a snapshot.

    Raises:
        FileNotFoundError: its manifests are missing, as after expiry.
        CorruptDataError: a manifest is damaged, or adds a file twice.
    """
    key = _key(table, snapshot)
    state = _STATES.get(key)
    if state is None:
        state = _advanced(table, snapshot) or _loaded(table, snapshot)
        _STATES.put(key, snapshot.id, state)
    return state


def live_buckets(
    table: TableCore,
    snapshot: Snapshot,
    keeps_entry: EntryFilter,
    keeps_manifest: Callable[[ManifestFileMeta], bool],
) -> Mapping[BucketId, tuple[ManifestEntry, ...]]:
    """Live entries of the wanted buckets, reading no more manifests than may hold some.

    A cached state, or one near enough to advance, is used. Otherwise the manifests that may hold
    some are read. The first such read of a snapshot decodes only the wanted entries and caches
    nothing; later ones cache whole manifests, so that many small reads stay cheap.

    Args:
        snapshot: the state to read.
        keeps_entry: selects buckets; the same for all files of a bucket with one bucket count.
        keeps_manifest: whether a manifest may hold a wanted entry.

    Raises: as `live_state`.
    """
    key = _key(table, snapshot)
    state = _STATES.get(key) or _advanced(table, snapshot)
    if state is not None:
        _STATES.put(key, snapshot.id, state)
        return _filtered_buckets(state.buckets, keeps_entry)
    metas = [meta for meta in _metas(table, snapshot) if keeps_manifest(meta)]
    entries: Iterable[ManifestEntry]
    if _STATES.requested_before(key):
        if len(metas) == len(_metas(table, snapshot)) and not _too_large(table, snapshot):
            return _filtered_buckets(live_state(table, snapshot).buckets, keeps_entry)
        candidates = list_entries(table, metas)
        entries = (e for e in candidates if keeps_entry(e.partition, e.bucket, e.total_buckets))
    else:
        entries = itertools.chain.from_iterable(table.manifests.read_manifests(metas, keeps_entry))
    return _by_bucket(fold(entries))


def _filtered_buckets(
    buckets: Mapping[BucketId, tuple[ManifestEntry, ...]], keeps_entry: EntryFilter
) -> Mapping[BucketId, tuple[ManifestEntry, ...]]:
    return {
        (partition, bucket): entries
        for (partition, bucket), entries in buckets.items()
        if any(keeps_entry(partition, bucket, entry.total_buckets) for entry in entries)
    }


def _by_bucket(entries: Iterable[ManifestEntry]) -> dict[BucketId, tuple[ManifestEntry, ...]]:
    buckets: dict[BucketId, list[ManifestEntry]] = {}
    for entry in entries:
        buckets.setdefault((entry.partition, entry.bucket), []).append(entry)
    return {bucket: tuple(group) for bucket, group in buckets.items()}


def live_entries(
    table: TableCore,
    snapshot: Snapshot,
    *,
    partition: bytes | None = None,
    bucket: int | None = None,
) -> list[ManifestEntry]:
    """Live ADD entries, of one partition or bucket if wanted.

    A table with very many files is not cached whole: manifests are pruned by bucket instead.
    """
    if bucket is None and partition is None:
        return list(live_state(table, snapshot).entries())
    if _STATES.get(_key(table, snapshot)) is None and _too_large(table, snapshot):
        buckets = None if bucket is None else (bucket,)
        metas = [meta for meta in _metas(table, snapshot) if meta.may_hold(buckets)]
        entries = (
            entry
            for entry in list_entries(table, metas)
            if (partition is None or entry.partition == partition)
            and (bucket is None or entry.bucket == bucket)
        )
        return fold(entries)
    state = live_state(table, snapshot)
    if partition is not None and bucket is not None:
        return list(state.buckets.get((partition, bucket), ()))
    return [
        entry
        for (part, number), entries in state.buckets.items()
        for entry in entries
        if (partition is None or part == partition) and (bucket is None or number == bucket)
    ]


def live_files(
    table: TableCore, snapshot: Snapshot, partition: bytes, bucket: int
) -> tuple[DataFileMeta, ...]:
    """Live files of one bucket. Cheap: one delta a snapshot when the previous state is cached."""
    entries = live_entries(table, snapshot, partition=partition, bucket=bucket)
    return tuple(entry.file for entry in entries)


def _key(table: TableCore, snapshot: Snapshot) -> _Key:
    branch = table.layout.branch_root
    return (branch, snapshot.base_manifest_list, snapshot.delta_manifest_list)


def _metas(table: TableCore, snapshot: Snapshot) -> list[ManifestFileMeta]:
    lists = table.manifests.read_lists(snapshot.lists[:2])
    return list(itertools.chain.from_iterable(lists))


def _too_large(table: TableCore, snapshot: Snapshot) -> bool:
    metas = _metas(table, snapshot)
    return sum(meta.num_added_files - meta.num_deleted_files for meta in metas) > _WHOLE_STATE_FILES


def _loaded(table: TableCore, snapshot: Snapshot) -> LiveState:
    entries = fold(list_entries(table, _metas(table, snapshot)))
    return LiveState(_by_bucket(entries), len(entries))


def _advanced(table: TableCore, snapshot: Snapshot) -> LiveState | None:
    """The state advanced from an older cached one; None when none is near.

    The snapshots between must be ancestors of the given one. They are if it is unchanged
    in the store after they were read, because a rollback removes the newest first.
    """
    snapshots = table.snapshots
    base_id = _STATES.nearest(table.layout.branch_root, snapshot.id)
    if base_id is None or snapshot.id - base_id > _STEPS:
        return None
    try:
        state = _STATES.get(_key(table, snapshots.recall(base_id)))
        if state is None:
            return None
        between = [*snapshots.recall_many(range(base_id + 1, snapshot.id)), snapshot]
        lists = list(table.manifests.read_lists(step.lists[1] for step in between))
        manifests = table.manifests.read_manifests(itertools.chain.from_iterable(lists))
        for metas in lists:
            delta = itertools.islice(manifests, len(metas))
            state = state.after(itertools.chain.from_iterable(delta))
    except (NotFoundError, FileNotFoundError, CorruptDataError):
        return None  # expired, or the ids were reused: the lists decide
    return state if snapshots.read_again(snapshot.id) == snapshot else None


# Table index files of a snapshot: listing them, their paths, reading and writing them.
#
# Source: FORMAT.md §4.8, §9. An index manifest is a complete list and never changes, so its
# groupings are cached per process by its name. The change of the list by a commit is in
# `storage.format.metadata.manifest.combine`.


_Grouped = Mapping[BucketId, tuple[IndexFileMeta, ...]]


@dataclasses.dataclass(frozen=True, slots=True)
class IndexChange:
    """Index files for an increment of a commit message; both empty when nothing changed.

    Attributes:
        new: written; the caller removes them unless it commits them.
        deleted: live ones that they replace. The commit fails when another writer replaced them.
    """

    new: tuple[IndexFileMeta, ...] = ()
    deleted: tuple[IndexFileMeta, ...] = ()


_HELD_MANIFESTS = 16
"""Groupings cached by a process: those of the newest snapshots of the tables it works on."""


_GROUPS: LruCache[tuple[str, str], _Grouped] = LruCache(_HELD_MANIFESTS)
"""The newest groupings by index manifest path and index type."""


def clear_index_cache() -> None:
    """Drop every cached grouping of this process; for tests and memory emergencies."""
    _GROUPS.clear()


def by_file_name(table: TableCore) -> bool:
    """Whether a bucket has any number of deletion vector files: append tables without buckets.

    Elsewhere a bucket has one file, which a new one replaces.
    """
    return not table.schema.primary_keys and table.options.bucket < 0


def index_entries(table: TableCore, snapshot: Snapshot | None) -> tuple[IndexManifestEntry, ...]:
    """All index files of a snapshot, of types unknown to this version too.

    Raises:
        FileNotFoundError: the index manifest is missing, as after expiry.
        CorruptDataError: it is damaged.
    """
    if snapshot is None or snapshot.index_manifest is None:
        return ()
    return table.manifests.read_index_manifest(snapshot.index_manifest)


def index_files(table: TableCore, snapshot: Snapshot | None, index_type: IndexType) -> _Grouped:
    """Index files of one type by (framed partition, bucket). Cached.

    Raises:
        As `index_entries`.
    """
    if snapshot is None or snapshot.index_manifest is None:
        return {}
    key = (table.layout.manifest(snapshot.index_manifest), index_type.value)
    groups = _GROUPS.get(key)
    if groups is None:
        grouped: dict[BucketId, list[IndexFileMeta]] = {}
        for entry in index_entries(table, snapshot):
            if entry.file.index_type == index_type:
                grouped.setdefault((entry.partition, entry.bucket), []).append(entry.file)
        groups = {bucket: tuple(files) for bucket, files in grouped.items()}
        _GROUPS.put(key, groups)
    return groups


def index_path(table: TableCore, partition: bytes, bucket: int, file: IndexFileMeta) -> str:
    """Full path of an index file of a bucket."""
    if file.external_path is not None:
        return file.external_path
    return _path(table, partition, bucket, file.file_name)


def _path(table: TableCore, partition: bytes, bucket: int, name: str) -> str:
    if table.options.index_file_in_data_file_dir:
        return table.data_path(partition, bucket, name)
    return table.layout.index_file(name)


def read_hash_index(
    table: TableCore, partition: bytes, bucket: int, file: IndexFileMeta
) -> npt.NDArray[np.int32]:
    """The key hashes of a dynamic bucket, in file order.

    Raises:
        FileNotFoundError: it is missing, as after expiry.
        CorruptDataError: it is cut short, or has another number of hashes than recorded.
    """
    path = index_path(table, partition, bucket, file)
    hashes = deletion_vector.decode_hashes(table.file_io.read_bytes(path), path)
    if len(hashes) != file.row_count:
        raise CorruptDataError(
            "a hash index file does not have the recorded length",
            path=path,
            expected=file.row_count,
            found=len(hashes),
        )
    return hashes


def write_hash_index(
    table: TableCore, partition: bytes, bucket: int, hashes: npt.NDArray[np.int32]
) -> IndexFileMeta:
    """Write all key hashes of a bucket: the existing and the new ones.

    The commit message names the file that this one replaces in `deleted_index_files`.
    """
    data = deletion_vector.encode_hashes(hashes)
    name = _write(table, partition, bucket, data)
    return IndexFileMeta(
        index_type=IndexType.HASH,
        file_name=name,
        file_size=len(data),
        row_count=len(hashes),
    )


def write_deletion_vectors(
    table: TableCore, partition: bytes, bucket: int, vectors: Mapping[str, Bitmap]
) -> IndexFileMeta:
    """Write deletion vectors as one index file; an empty mapping gives a file without any.

    Args:
        partition: framed partition.
        vectors: by data file name, each in the form it is to be written in.
    """
    data, metas = encode_file(vectors)
    name = _write(table, partition, bucket, data)
    return IndexFileMeta(
        index_type=IndexType.DELETION_VECTORS,
        file_name=name,
        file_size=len(data),
        row_count=len(metas),
        deletion_vectors=metas,
    )


def _write(table: TableCore, partition: bytes, bucket: int, data: bytes) -> str:
    name = f"index-{table.ids.uuid()}-0"
    table.file_io.write_bytes(_path(table, partition, bucket, name), data)
    return name
