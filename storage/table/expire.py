# SPDX-License-Identifier: Apache-2.0
"""Which snapshots may go (pure), and removing them with the files that only they name.

Source: SEMANTICS.md §F.7, FORMAT.md §11.6. What is kept for certain: everything that a kept
snapshot, a tag or a branch names.

Order of a pass, so that it can stop anywhere: EARLIEST moves first (readers go by it), then data,
changelog and index files, then manifests and lists, then the snapshot files from the oldest up.
A pass that was cut off is finished by the next one, which starts from the oldest file found by
listing. Ascending order is a promise to committers, see `publish`.
"""

import contextlib
import itertools
from collections.abc import Iterable, Iterator, Mapping

from storage.errors import CorruptDataError, NotFoundError
from storage.format.file_meta import FileKind, ManifestEntry
from storage.format.layout import TableLayout
from storage.format.manifest import ManifestFileMeta, fold
from storage.format.snapshot import CommitKind, Snapshot
from storage.io.file_io import read_present
from storage.table.consumers import expire_consumers, min_next_snapshot
from storage.table.core import TableCore
from storage.table.index_files import index_entries, index_path
from storage.table.live_files import list_entries, live_state
from storage.table.references import other_branches

__all__ = ["choose_expired", "expire_snapshots"]

_File = tuple[bytes, int, str]
"""Framed partition, bucket, name."""

_TAG = "tag-"

_TOGETHER = 64
"""Most snapshots read at a time to learn their age."""


def choose_expired(
    times: Mapping[int, int],
    *,
    now_ms: int,
    retain_min: int,
    retain_max: int,
    time_retained_ms: int,
    limit: int,
    keep_from: int | None = None,
) -> range:
    """The ids that expire now, from the oldest on without a gap. Pure.

    A snapshot goes when more than `retain_max` are there, or when its *successor* is older than
    `time_retained_ms`, so that every moment of that span can still be read.

    Args:
        times: commit time by id [epoch ms]; looked up only where needed.
        now_ms: current time [epoch ms].
        retain_min: newest snapshots that stay whatever their age.
        retain_max: newest snapshots of which older ones go whatever their age.
        time_retained_ms: age up to which a snapshot stays [ms].
        limit: most ids of one pass.
        keep_from: smallest id that somebody (a consumer) still needs.
    """
    if not times:
        return range(0)
    earliest, latest = min(times), max(times)
    end = min(latest - retain_min + 1, earliest + limit, latest)
    if keep_from is not None:
        end = min(end, keep_from)
    start = max(latest - retain_max + 1, earliest)
    for snapshot_id in range(start, end):
        successor = times.get(snapshot_id + 1)
        if successor is not None and successor >= now_ms - time_retained_ms:
            return range(earliest, snapshot_id)
    return range(earliest, max(earliest, end))


def expire_snapshots(
    table: TableCore,
    *,
    now_ms: int,
    keep_from: int | None = None,
    retain_min: int | None = None,
    retain_max: int | None = None,
    time_retained_ms: int | None = None,
    limit: int | None = None,
) -> int:
    """Remove snapshots whose time has come, and the files that only they name.

    Safe beside commits, reads of kept snapshots, and other passes.

    Args:
        table: the table.
        now_ms: current time [epoch ms].
        keep_from: smallest id that somebody besides the table's consumers still needs.
        retain_min: instead of `snapshot.num-retained.min`.
        retain_max: instead of `snapshot.num-retained.max`.
        time_retained_ms: instead of `snapshot.time-retained` [ms].
        limit: instead of `snapshot.expire.limit`.

    Returns:
        How many snapshots were removed.

    Raises:
        StorageUnavailableError: the store failed; call again.
    """
    options = table.options
    newest = table.latest_snapshot()
    latest = None if newest is None else newest.id
    ids = [one for one in table.snapshots.ids() if latest is not None and one <= latest]
    least = options.snapshot_num_retained_min if retain_min is None else retain_min
    most = options.snapshot_num_retained_max if retain_max is None else retain_max
    age = options.snapshot_time_retained_ms if time_retained_ms is None else time_retained_ms
    if options.consumer_expiration_time_ms is not None:
        expire_consumers(table, now_ms=now_ms, age_ms=options.consumer_expiration_time_ms)
    needed = [one for one in (keep_from, min_next_snapshot(table)) if one is not None]
    expired = choose_expired(
        _Times(table, ids),
        now_ms=now_ms,
        retain_min=max(1, least),
        retain_max=max(1, most),
        time_retained_ms=age,
        limit=options.snapshot_expire_limit if limit is None else limit,
        keep_from=min(needed, default=None),
    )
    gone = [one for one in ids if one in expired]
    if not gone or latest is None:
        return 0
    stop = next(one for one in ids if one >= expired.stop)
    table.snapshots.write_earliest_hint(stop)
    _Deletion(table, gone, stop, latest).run()
    for snapshot_id in gone:
        table.snapshots.delete(snapshot_id)
    return len(gone)


class _Times(Mapping[int, int]):
    """Commit times, read when asked for."""

    def __init__(self, table: TableCore, ids: Iterable[int]) -> None:
        self._table = table
        self._ids = tuple(ids)
        self._read_until = 0
        self._window = 1

    def __getitem__(self, snapshot_id: int) -> int:
        if snapshot_id >= self._read_until:  # more and more at a time, for the first often decides
            self._read_until = snapshot_id + self._window
            self._window = min(2 * self._window, _TOGETHER)
            some = (one for one in self._ids if snapshot_id <= one < self._read_until)
            self._table.snapshots.preload(some)
        try:
            return self._table.snapshots.recall(snapshot_id).time_ms
        except NotFoundError:
            raise KeyError(snapshot_id) from None

    def __iter__(self) -> Iterator[int]:
        return iter(self._ids)

    def __len__(self) -> int:
        return len(self._ids)


class _Deletion:
    """Removing what only some snapshots name.

    Args:
        table: the table.
        gone: ids that expire, ascending.
        stop: oldest id that stays.
        latest: newest id.
    """

    def __init__(self, table: TableCore, gone: list[int], stop: int, latest: int) -> None:
        self._table = table
        table.snapshots.preload((*gone, stop))
        self._gone = [found for one in gone if (found := self._read(one)) is not None]
        self._stop = table.snapshots.read(stop)
        self._latest = latest
        self._tags = sorted(_tags(table, table.layout), key=lambda tag: tag.id)
        self._pinned = [*self._tags, *other_branches(table)]
        self._complete = True

    def run(self) -> None:
        """Data and changelog files first, then what describes them."""
        self._preload()
        data = self._unneeded_data()
        changelog = {_file(entry) for snapshot in self._gone for entry in self._changelog(snapshot)}
        paths = [self._table.data_path(*file) for file in sorted(data | changelog)]
        index = self._unneeded_index()
        metadata = self._unneeded_metadata()
        self._table.delete_quietly([*paths, *index])
        self._table.delete_quietly(metadata)

    def _preload(self) -> None:
        """Read together what is needed for certain; whatever is missing shows later."""
        store = self._table.manifests
        asked = [*self._gone, self._stop, *self._pinned]
        store.preload_lists(itertools.chain.from_iterable(one.lists for one in asked))
        metas: list[ManifestFileMeta] = []
        for one in (*self._gone, self._stop):
            for name, size in one.lists[1:]:
                with contextlib.suppress(FileNotFoundError):
                    metas += store.read_list(name, size)
        store.preload_manifests(metas)

    def _unneeded_data(self) -> set[_File]:
        """Files removed from the state up to `stop`, which nothing that stays names."""
        removed_by: dict[_File, int] = {}
        for snapshot in (*self._gone[1:], self._stop):
            entries = self._entries(*snapshot.lists[1])
            for entry in entries:
                if entry.kind is FileKind.DELETE:
                    for file in _files(entry):
                        removed_by[file] = snapshot.id
            for entry in entries:  # an upgrade removes and adds one file
                if entry.kind is FileKind.ADD:
                    for file in _files(entry):
                        removed_by.pop(file, None)
        if not removed_by:
            return set()
        for file in self._named_later():
            removed_by.pop(file, None)
        return set(removed_by) - self._pinned_data(removed_by)

    def _named_later(self) -> Iterator[_File]:
        """Files that snapshots after `stop` could have brought back."""
        if not self._complete:  # a former pass was cut off: ask the state itself
            yield from _all_files(live_state(self._table, self._stop).entries())
        for snapshot in self._overwrites():
            yield from _all_files(self._entries(*snapshot.lists[1]))

    def _pinned_data(self, removed_by: Mapping[_File, int]) -> set[_File]:
        """Of some files, those that tags and branches name.

        A file that some tag names is also named by the newest tag before its removal.
        """
        needed: set[_File] = set()
        for number, tag in enumerate(self._tags):
            after = self._tags[number + 1].id if number + 1 < len(self._tags) else self._latest + 1
            asked = {file for file, removed in removed_by.items() if tag.id < removed <= after}
            if asked:
                needed |= asked & set(self._live(tag))
        for snapshot in self._pinned[len(self._tags) :]:
            needed |= set(self._live(snapshot))
        return needed

    def _live(self, snapshot: Snapshot) -> Iterator[_File]:
        lists = self._table.manifests.read_lists(snapshot.lists[:2])
        metas = itertools.chain.from_iterable(lists)
        return _all_files(fold(list_entries(self._table, metas)))

    def _unneeded_metadata(self) -> list[str]:
        kept = (self._stop, *self._pinned)
        used = {name for snapshot in kept for name in self._names(snapshot, strict=True)}
        layout = self._table.layout
        names = {name for snapshot in self._gone for name in self._names(snapshot, strict=False)}
        statistics = {one.statistics for one in self._gone if one.statistics is not None}
        statistics -= {one.statistics for one in kept}
        return [
            *(layout.manifest(name) for name in sorted(names - used)),
            *(layout.statistics_file(name) for name in sorted(filter(None, statistics))),
        ]

    def _unneeded_index(self) -> list[str]:
        """Paths of index files that nothing that stays names."""
        unneeded = {path for one in self._gone for path in self._index_paths(one, strict=False)}
        kept = [self._stop, *self._pinned, *(self._overwrites() if unneeded else ())]
        for snapshot in kept:
            if unneeded:
                unneeded.difference_update(self._index_paths(snapshot, strict=True))
        return sorted(unneeded)

    def _index_paths(self, snapshot: Snapshot, *, strict: bool) -> Iterator[str]:
        try:
            entries = index_entries(self._table, snapshot)
        except FileNotFoundError:
            if strict:
                raise
            return
        for entry in entries:
            if entry.file.external_path is None:
                yield index_path(self._table, entry.partition, entry.bucket, entry.file)

    def _overwrites(self) -> Iterator[Snapshot]:
        """Snapshots after `stop` that could have brought files back."""
        later = range(self._stop.id + 1, self._latest + 1)
        for number, snapshot_id in enumerate(later):
            if number % _TOGETHER == 0:
                self._table.snapshots.preload(later[number : number + _TOGETHER])
            snapshot = self._read(snapshot_id)
            if snapshot is not None and snapshot.commit_kind is CommitKind.OVERWRITE:
                yield snapshot

    def _names(self, snapshot: Snapshot, *, strict: bool) -> Iterator[str]:
        """Manifests of a snapshot, then its lists and its index manifest."""
        lists = [
            name
            for name in (
                snapshot.base_manifest_list,
                snapshot.delta_manifest_list,
                snapshot.changelog_manifest_list,
            )
            if name is not None
        ]
        for name in lists:
            try:
                yield from [meta.file_name for meta in self._table.manifests.read_list(name)]
            except FileNotFoundError:
                # of a tag that Java kept, the changelog list went with its snapshot
                if strict and name != snapshot.changelog_manifest_list:
                    raise
        yield from lists
        if snapshot.index_manifest is not None:
            yield snapshot.index_manifest

    def _changelog(self, snapshot: Snapshot) -> list[ManifestEntry]:
        if snapshot.changelog_manifest_list is None:
            return []
        return self._entries(*snapshot.lists[2])

    def _entries(self, list_name: str, size: int | None) -> list[ManifestEntry]:
        """Entries of a manifest list; what a former pass has removed already is missing."""
        try:
            metas = self._table.manifests.read_list(list_name, size)
            return list(list_entries(self._table, metas))
        except FileNotFoundError:
            self._complete = False
            return []

    def _read(self, snapshot_id: int) -> Snapshot | None:
        try:
            return self._table.snapshots.recall(snapshot_id)
        except NotFoundError:
            return None


def _files(entry: ManifestEntry) -> Iterator[_File]:
    if entry.file.external_path is None:
        for name in (entry.file.file_name, *entry.file.extra_files):
            yield (entry.partition, entry.bucket, name)


def _file(entry: ManifestEntry) -> _File:
    return (entry.partition, entry.bucket, entry.file.file_name)


def _all_files(entries: Iterable[ManifestEntry]) -> Iterator[_File]:
    return (file for entry in entries if entry.kind is FileKind.ADD for file in _files(entry))


def _tags(table: TableCore, layout: TableLayout) -> Iterator[Snapshot]:
    listed = table.file_io.list(layout.tag_dir)
    paths = [one.path for one in listed if one.name.startswith(_TAG) and not one.directory]
    for path, data in zip(paths, read_present(table.file_io, paths), strict=True):
        if data is None:
            continue  # deleted meanwhile
        try:
            yield Snapshot.from_json(data)
        except CorruptDataError as error:
            raise CorruptDataError(
                "a tag cannot be read, so nothing may be deleted",
                detail=str(error),
                path=path,
            ) from error
