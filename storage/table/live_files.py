# SPDX-License-Identifier: Apache-2.0
"""The files that are live in a snapshot, per bucket, kept and advanced by deltas.

State of snapshot S = fold(base list, delta list) (FORMAT.md §3.2), and because a base list holds
the state before its snapshot, also = state of S-1 with the delta of S applied. Every task of every
micro-batch asks for one bucket of the newest snapshot, so states are kept per process, found by
the names of both manifest lists (which are unique), and moved forward by reading deltas only.
"""

import collections
import dataclasses
import itertools
import threading
from collections.abc import Iterable, Iterator, Mapping

from storage.errors import CorruptDataError, NotFoundError
from storage.format.file_meta import DataFileMeta, ManifestEntry
from storage.format.manifest import ManifestFileMeta, fold
from storage.format.snapshot import Snapshot
from storage.table.core import TableCore

__all__ = [
    "BucketId",
    "LiveState",
    "clear_live_cache",
    "delta_entries",
    "list_entries",
    "live_entries",
    "live_files",
    "live_state",
]

BucketId = tuple[bytes, int]
"""Framed partition and bucket number."""

_CACHED_FILES = 300_000
"""Live files held by all states of a process; about 1 kB each, shared with the manifest cache."""

_STATES_PER_TABLE = 4
"""States of one table that are held: the newest, and the few that readers are pinned to."""

_STEPS = 64
"""Snapshots a state is moved forward; beyond, reading the lists anew costs about the same."""

_WHOLE_STATE_FILES = 100_000
"""A table with more files than this is asked bucket by bucket, with manifests pruned."""


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
        self._held = 0
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
                self._held += state.file_count + 1
            self._states[key] = state
            self._states.move_to_end(key)
            ids = self._ids.setdefault(key[0], {})
            ids.pop(snapshot_id, None)
            ids[snapshot_id] = key
            while len(ids) > _STATES_PER_TABLE:
                self._drop(ids.pop(next(iter(ids))))
            while self._held > _CACHED_FILES and len(self._states) > 1:
                self._drop(next(iter(self._states)))

    def nearest(self, root: str, snapshot_id: int) -> int | None:
        """Id of the newest held snapshot of a table below an id."""
        with self._lock:
            return max((one for one in self._ids.get(root, {}) if one < snapshot_id), default=None)

    def _drop(self, key: _Key) -> None:
        dropped = self._states.pop(key, None)
        if dropped is not None:
            self._held -= dropped.file_count + 1

    def clear(self) -> None:
        with self._lock:
            self._states.clear()
            self._ids.clear()
            self._held = 0


_STATES = _StateCache()


def clear_live_cache() -> None:
    """Forget every state of this process; for tests and memory emergencies."""
    _STATES.clear()


def list_entries(table: TableCore, metas: Iterable[ManifestFileMeta]) -> Iterator[ManifestEntry]:
    """Entries of manifests, in order."""
    for meta in metas:
        yield from table.manifests.read_manifest(meta.file_name)


def delta_entries(table: TableCore, snapshot: Snapshot) -> list[ManifestEntry]:
    """What a snapshot changed."""
    return list(list_entries(table, table.manifests.read_list(snapshot.delta_manifest_list)))


def live_state(table: TableCore, snapshot: Snapshot) -> LiveState:
    """Everything live in a snapshot.

    Raises:
        FileNotFoundError: its manifests are gone, as after expiry.
        CorruptDataError: a manifest is damaged, or adds a file twice.
    """
    key = _key(table, snapshot)
    state = _STATES.get(key)
    if state is None:
        state = _advanced(table, snapshot) or _loaded(table, snapshot)
        _STATES.put(key, snapshot.id, state)
    return state


def live_entries(
    table: TableCore,
    snapshot: Snapshot,
    *,
    partition: bytes | None = None,
    bucket: int | None = None,
) -> list[ManifestEntry]:
    """Live ADD entries, of one partition or bucket if wanted.

    A table with very many files is not held whole: manifests are pruned by bucket instead.
    """
    if bucket is None and partition is None:
        return list(live_state(table, snapshot).entries())
    if _STATES.get(_key(table, snapshot)) is None and _too_large(table, snapshot):
        metas = [meta for meta in _metas(table, snapshot) if _may_hold(meta, bucket)]
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
    """Live files of one bucket. Cheap: one delta a snapshot when the process knows the last."""
    entries = live_entries(table, snapshot, partition=partition, bucket=bucket)
    return tuple(entry.file for entry in entries)


def _key(table: TableCore, snapshot: Snapshot) -> _Key:
    return (table.layout.root, snapshot.base_manifest_list, snapshot.delta_manifest_list)


def _metas(table: TableCore, snapshot: Snapshot) -> list[ManifestFileMeta]:
    return [
        *table.manifests.read_list(snapshot.base_manifest_list),
        *table.manifests.read_list(snapshot.delta_manifest_list),
    ]


def _too_large(table: TableCore, snapshot: Snapshot) -> bool:
    metas = _metas(table, snapshot)
    return sum(meta.num_added_files - meta.num_deleted_files for meta in metas) > _WHOLE_STATE_FILES


def _may_hold(meta: ManifestFileMeta, bucket: int | None) -> bool:
    if bucket is None or meta.min_bucket is None or meta.max_bucket is None:
        return True
    return meta.min_bucket <= bucket <= meta.max_bucket


def _loaded(table: TableCore, snapshot: Snapshot) -> LiveState:
    buckets: dict[BucketId, list[ManifestEntry]] = {}
    count = 0
    for entry in fold(list_entries(table, _metas(table, snapshot))):
        buckets.setdefault((entry.partition, entry.bucket), []).append(entry)
        count += 1
    return LiveState({bucket: tuple(found) for bucket, found in buckets.items()}, count)


def _advanced(table: TableCore, snapshot: Snapshot) -> LiveState | None:
    """The state reached from an older one that is held; None when there is none near."""
    known = _STATES.nearest(table.layout.root, snapshot.id)
    if known is None or snapshot.id - known > _STEPS:
        return None
    try:
        start = _STATES.get(_key(table, table.snapshots.read(known)))
        if start is None:
            return None
        state = start
        for snapshot_id in range(known + 1, snapshot.id):
            state = state.after(delta_entries(table, table.snapshots.read(snapshot_id)))
        return state.after(delta_entries(table, snapshot))
    except (NotFoundError, FileNotFoundError, CorruptDataError):
        return None  # expired, or the ids were used anew: what the lists say decides
