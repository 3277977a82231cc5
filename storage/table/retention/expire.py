# SPDX-License-Identifier: Apache-2.0
"""Removing what is expired, and files that nothing references any more.

Source: SEMANTICS.md §F.7, §F.8, FORMAT.md §11.6. Always kept: everything that a retained snapshot,
a tag or a branch references.

Order of a pass, so that it can stop anywhere: EARLIEST moves first (readers rely on it), then data,
changelog and index files, then manifests and lists, then the documents from the oldest up.
An interrupted pass is finished by the next one, which starts from the oldest file found by
listing. Committers rely on the ascending order, see `publish`.

Where changelogs outlive snapshots (`changelog.*`), what their readers need stays: the changelog
files of a table with a changelog producer; without one, appended files and the lists of data
files, removed with the changelog of the snapshot that deleted them, as in Java. The long-lived
changelog is written right before the snapshot file is deleted, so one of the two always exists.
"""

import concurrent.futures
import contextlib
import dataclasses
import functools
import itertools
import logging
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence

from storage.errors import CorruptDataError, InvalidRequestError, NotFoundError
from storage.format.metadata.file_meta import FileKind, FileSource, ManifestEntry
from storage.format.metadata.layout import TableLayout
from storage.format.metadata.manifest import ManifestFileMeta
from storage.format.metadata.schema import SchemaStore
from storage.format.metadata.snapshot import CommitKind, Snapshot, SnapshotStore
from storage.io.file_io import FileStatus
from storage.options.options import TableOptions
from storage.options.table import CATALOG_STORAGES
from storage.table.commit.live_files import list_entries
from storage.table.core import TableCore
from storage.table.iceberg import iceberg_leftovers, publish_iceberg
from storage.table.retention.consumers import expire_consumers, min_next_snapshot
from storage.table.retention.reachability import (
    DataFile,
    Removal,
    all_branches,
    data_files,
    documents,
    index_files,
    listed_entries,
    listed_manifests,
    live_among,
    other_documents,
    read_branches,
    readable_tags,
)

_LOG = logging.getLogger(__name__)

_BATCH_SIZE = 64
"""Most documents read at a time."""


@dataclasses.dataclass(frozen=True, slots=True)
class Scope:
    """What is removed now, of all that only expired snapshots reference.

    Attributes:
        appended: data files that commits appended, once they are replaced; files that compaction
            wrote are removed with `data_lists`, or before.
        data_lists: the lists of data files and their manifests.
        changelog: changelog files, their lists and manifests.
        state: what only the whole state needs: files that compaction wrote, index files, index
            manifests and statistics.
    """

    appended: bool = True
    data_lists: bool = True
    changelog: bool = True
    state: bool = True


@dataclasses.dataclass(kw_only=True)
class ExpiredFiles:
    """Removes what only some snapshots reference.

    Attributes:
        expired: snapshots that expire, ascending.
        removing: snapshots that deleted the data files to remove, ascending.
        stop: oldest snapshot that stays.
        latest: newest id.
        scope: what is removed.
        changelogs: long-lived changelogs that stay and whose lists `expired` could reference.
    """

    table: TableCore
    expired: Sequence[Snapshot]
    removing: Sequence[Snapshot]
    stop: Snapshot
    latest: int
    scope: Scope
    changelogs: Sequence[Snapshot] = ()

    def run(self) -> None:
        """Find the files and remove them."""
        tags = [tag.snapshot for tag in readable_tags(self.table, self.table.layout)]
        branches = other_documents(self.table)
        self._preload([self.stop, *tags, *(item for branch in branches for item in branch.states)])
        removal = Removal(self.table, self._replaced(tags))
        scope = self.scope
        for snapshot in self.expired:
            removal.add(
                snapshot, lists=scope.data_lists, changelog=scope.changelog, state=scope.state
            )
        for snapshot in (self.stop, *tags):
            removal.keep_metadata(snapshot)
        for snapshot in self._overwrites() if removal.index else ():
            removal.keep_index(snapshot)
        for changelog in self.changelogs:
            removal.keep_lists(changelog.lists)
        for branch in branches:
            removal.keep_branch(branch)
        removal.run()

    def _preload(self, kept_snapshots: Iterable[Snapshot]) -> None:
        """Prefetch what is certainly needed; missing files are detected later."""
        store = self.table.manifests
        snapshots = (*self.expired, *kept_snapshots)
        store.preload_lists(itertools.chain.from_iterable(snapshot.lists for snapshot in snapshots))
        metas: list[ManifestFileMeta] = []
        for snapshot in (*self.expired, *self.removing[-1:]):
            for name, size in snapshot.lists[1:]:
                with contextlib.suppress(FileNotFoundError):
                    metas += store.read_list(name, size)
        store.preload_manifests(metas)

    def _replaced(self, tags: Sequence[Snapshot]) -> set[DataFile]:
        """Files deleted from the state that nothing retained in the branch references."""
        removed_by, complete = self._removed_by()
        if not removed_by:
            return set()
        live: set[DataFile] = set()
        if not complete:  # an earlier pass was interrupted: read the state itself
            live |= live_among(self.table, self.stop, removed_by.keys())
        for snapshot in self._overwrites():
            live.update(_added_files(self._delta(snapshot) or ()))
        # a file that some tag references is also in the newest tag before its removal
        for tag, end in zip(tags, (*(tag.id for tag in tags[1:]), self.latest + 1), strict=False):
            candidates = {file for file, removed in removed_by.items() if tag.id < removed <= end}
            live |= live_among(self.table, tag, candidates)
        return set(removed_by) - live

    def _removed_by(self) -> tuple[dict[DataFile, int], bool]:
        """The id of the snapshot that removed each file, and whether all deltas existed."""
        removed_by: dict[DataFile, int] = {}
        complete = self.scope.state  # changelogs: snapshots in between may have restored files
        for snapshot in self.removing:
            entries = self._delta(snapshot)
            complete = complete and entries is not None
            for entry in entries or ():
                if entry.kind is FileKind.DELETE and (self.scope.appended or _compacted(entry)):
                    removed_by.update(dict.fromkeys(data_files((entry,)), snapshot.id))
            for file in _added_files(entries or ()):  # an upgrade removes and adds one file
                removed_by.pop(file, None)
        return removed_by, complete

    def _delta(self, snapshot: Snapshot) -> list[ManifestEntry] | None:
        """What a snapshot changed; None where an earlier pass has removed it already."""
        try:
            return listed_entries(self.table, snapshot.lists[1])
        except FileNotFoundError:
            return None

    def _overwrites(self) -> Iterator[Snapshot]:
        """Snapshots after `stop` that could have brought files back."""
        later = range(self.stop.id + 1, self.latest + 1)
        for number, snapshot_id in enumerate(later):
            if number % _BATCH_SIZE == 0:
                self.table.snapshots.preload(later[number : number + _BATCH_SIZE])
            try:
                snapshot = self.table.snapshots.recall(snapshot_id)
            except NotFoundError:
                continue
            if snapshot.commit_kind is CommitKind.OVERWRITE:
                yield snapshot


def _compacted(entry: ManifestEntry) -> bool:
    """Whether compaction wrote the file; old writers do not record it."""
    return entry.file.file_source == FileSource.COMPACT


def _added_files(entries: Iterable[ManifestEntry]) -> Iterator[DataFile]:
    return data_files(entry for entry in entries if entry.kind is FileKind.ADD)


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Retention:
    """What is kept, where it overrides the table's options; None: as the options.

    Attributes:
        retain_min: newest ones that stay whatever their age (`snapshot.num-retained.min`).
        retain_max: newest ones of which older ones expire whatever their age
            (`snapshot.num-retained.max`).
        time_retained_ms: age up to which one stays (`snapshot.time-retained`) [ms].
        limit: most that expire in one pass (`snapshot.expire.limit`).
    """

    retain_min: int | None = None
    retain_max: int | None = None
    time_retained_ms: int | None = None
    limit: int | None = None


def choose_expired(
    times: Mapping[int, int],
    *,
    now_ms: int,
    retain_min: int,
    retain_max: int,
    time_retained_ms: int,
    limit: int,
    keep_from: int | None = None,
    latest: int | None = None,
) -> range:
    """The ids that expire now, from the oldest on without a gap; the newest stays. Pure.

    A snapshot expires when more than `retain_max` exist, or when its *successor* is older than
    `time_retained_ms`, so that every moment of that span can still be read. A long-lived changelog
    expires by its own age; numbers count from the newest snapshot for both.

    Args:
        times: commit time by id [epoch ms]; looked up only where needed.
        now_ms: current time [epoch ms].
        retain_min: newest ones that stay whatever their age.
        retain_max: newest ones of which older ones expire whatever their age.
        time_retained_ms: age up to which one stays [ms].
        limit: most ids of one pass.
        keep_from: smallest id that a consumer still needs.
        latest: id of the newest snapshot, where `times` are of long-lived changelogs; None: they
            are of snapshots.
    """
    if not times:
        return range(0)
    earliest, newest = min(times), max(times)
    step, latest = (1, newest) if latest is None else (0, latest)
    end = min(latest - retain_min + 1, earliest + limit, newest)
    if keep_from is not None:
        end = min(end, keep_from)
    for number in range(max(latest - retain_max + 1, earliest), end):
        time_ms = times.get(number + step)
        if time_ms is not None and time_ms >= now_ms - time_retained_ms:
            return range(earliest, number)
    return range(earliest, max(earliest, end))


def expirable_snapshots(
    table: TableCore,
    *,
    now_ms: int,
    keep_from: int | None = None,
    retention: Retention | None = None,
) -> list[int]:
    """The ids that `expire_snapshots` would remove now, ascending. Arguments as there."""
    return _all_and_expired_ids(table, now_ms, keep_from, retention or Retention())[1]


def _all_and_expired_ids(
    table: TableCore, now_ms: int, keep_from: int | None, retention: Retention
) -> tuple[list[int], list[int]]:
    """Ids of all snapshots, and those that expire."""
    options = table.options
    needed = [keep_from]
    if not (options.consumer_changelog_only and options.changelogs_outlive_snapshots):
        needed.append(min_next_snapshot(table))
    newest = table.latest_snapshot()
    latest = 0 if newest is None else newest.id
    ids = [id_ for id_ in table.snapshots.ids() if id_ <= latest]
    least, most = retention.retain_min, retention.retain_max
    age, limit = retention.time_retained_ms, retention.limit
    expired = choose_expired(
        _CommitTimes(ids, lambda batch: _read(table, batch)),
        now_ms=now_ms,
        retain_min=max(1, options.snapshot_num_retained_min if least is None else least),
        retain_max=max(1, options.snapshot_num_retained_max if most is None else most),
        time_retained_ms=options.snapshot_time_retained_ms if age is None else age,
        limit=options.snapshot_expire_limit if limit is None else limit,
        keep_from=min((bound for bound in needed if bound is not None), default=None),
    )
    return ids, [id_ for id_ in ids if id_ in expired]


def expire_snapshots(
    table: TableCore,
    *,
    now_ms: int | None = None,
    keep_from: int | None = None,
    retain_min: int | None = None,
    retain_max: int | None = None,
    time_retained_ms: int | None = None,
    limit: int | None = None,
    alone: bool = False,
) -> int:
    """Remove and count expired snapshots, and the files that only they reference.

    Idle consumers are removed first, and expired long-lived changelogs last, where the table's
    options say so.

    Safe beside commits, reads of kept snapshots, and other passes.

    Args:
        now_ms: current time [epoch ms]; None: of the table's clock.
        keep_from: smallest id that a reader besides the table's consumers still needs.
        retain_min: instead of `snapshot.num-retained.min`.
        retain_max: instead of `snapshot.num-retained.max`.
        time_retained_ms: instead of `snapshot.time-retained` [ms].
        limit: instead of `snapshot.expire.limit`.
        alone: leave consumers and long-lived changelogs as they are.

    Raises:
        StorageUnavailableError: the store failed; call again.
    """
    options = table.options
    now_ms = table.clock.now_ms() if now_ms is None else now_ms
    if options.consumer_expiration_time_ms is not None and not alone:
        expire_consumers(table, now_ms=now_ms, age_ms=options.consumer_expiration_time_ms)
    retention = Retention(
        retain_min=retain_min,
        retain_max=retain_max,
        time_retained_ms=time_retained_ms,
        limit=limit,
    )
    ids, expired = _all_and_expired_ids(table, now_ms, keep_from, retention)
    if expired and not _hidden_from_iceberg(table, expired):
        expired = []
    if expired:
        _remove(table, expired, next(id_ for id_ in ids if id_ > expired[-1]), ids[-1])
    if options.changelogs_outlive_snapshots and not alone:
        expire_changelogs(table, now_ms=now_ms, keep_from=keep_from)
    return len(expired)


def _hidden_from_iceberg(table: TableCore, expired: Sequence[int]) -> bool:
    """Whether snapshots that are about to expire are hidden from Iceberg readers.

    While the catalog service is unavailable they stay: its readers may need them.
    """
    follows = table.options.iceberg_storage not in CATALOG_STORAGES or publish_iceberg(table)
    if follows and publish_iceberg(table, hidden=expired):
        return True
    if table.options.iceberg_storage not in CATALOG_STORAGES:
        return True
    _LOG.warning(
        "snapshots are kept until the Iceberg catalog is up to date: its readers may need them",
        extra={"table": table.layout.root, "snapshots": len(expired)},
    )
    return False


def _remove(table: TableCore, expired: Sequence[int], stop_id: int, latest: int) -> None:
    """Remove snapshots below `stop_id`, which stays."""
    outlived = table.options.changelogs_outlive_snapshots
    table.snapshots.write_earliest_hint(stop_id)
    table.snapshots.preload((*expired, stop_id))
    snapshots = list(_read(table, expired))
    stop = table.snapshots.read(stop_id)
    removing = (*(snapshot for snapshot in snapshots if snapshot.id > expired[0]), stop)
    ExpiredFiles(
        table=table,
        expired=snapshots,
        removing=removing,
        stop=stop,
        latest=latest,
        scope=_scope(table.options),
    ).run()
    for snapshot in snapshots:
        if outlived and table.snapshots.exists(snapshot.id):
            table.changelogs.write(snapshot)
        table.snapshots.delete(snapshot.id)
    if outlived:
        table.changelogs.write_latest_hint(expired[-1])


def _scope(options: TableOptions) -> Scope:
    if not options.changelogs_outlive_snapshots:
        return Scope()
    produced = options.changelog_producer != "none"
    return Scope(appended=produced, data_lists=produced, changelog=False)


def _read(table: TableCore, snapshot_ids: Sequence[int]) -> Iterator[Snapshot]:
    """Those of some snapshots that still exist."""
    table.snapshots.preload(snapshot_ids)
    for snapshot_id in snapshot_ids:
        try:
            yield table.snapshots.recall(snapshot_id)
        except NotFoundError:
            continue


def expirable_changelogs(
    table: TableCore, *, now_ms: int, keep_from: int | None = None, delete_all: bool = False
) -> list[int]:
    """The ids that `expire_changelogs` would remove now, ascending. Arguments as there."""
    snapshot_ids = table.snapshots.ids()
    return _chosen_changelogs(table, snapshot_ids, now_ms, keep_from, delete_all)[1]


def _chosen_changelogs(
    table: TableCore,
    snapshot_ids: Sequence[int],
    now_ms: int,
    keep_from: int | None,
    delete_all: bool,
) -> tuple[list[int], list[int]]:
    """Ids of all changelogs below the snapshots, and those that expire."""
    if not snapshot_ids:
        return [], []
    options = table.options
    ids = [id_ for id_ in table.changelogs.ids() if id_ < snapshot_ids[0]]
    if delete_all:
        return ids, ids
    needed = [bound for bound in (keep_from, min_next_snapshot(table)) if bound is not None]
    expired = choose_expired(
        _CommitTimes(ids, table.changelogs.read_many),
        now_ms=now_ms,
        retain_min=options.changelog_num_retained_min,
        retain_max=options.changelog_num_retained_max,
        time_retained_ms=options.changelog_time_retained_ms,
        limit=options.snapshot_expire_limit,
        keep_from=min(needed, default=None),
        latest=snapshot_ids[-1],
    )
    return ids, [id_ for id_ in ids if id_ in expired]


def expire_changelogs(
    table: TableCore,
    *,
    now_ms: int | None = None,
    keep_from: int | None = None,
    delete_all: bool = False,
) -> int:
    """Remove and count expired long-lived changelogs, and the files that only they reference.

    Safe beside commits, streaming reads of what is kept, and other passes.

    Args:
        now_ms: current time [epoch ms]; None: of the table's clock.
        keep_from: smallest id that a reader besides the table's consumers still needs.
        delete_all: remove all of them, also those that readers still need.

    Raises:
        StorageUnavailableError: the store failed; call again.
    """
    now_ms = table.clock.now_ms() if now_ms is None else now_ms
    store, snapshot_ids = table.changelogs, table.snapshots.ids()
    ids, expired = _chosen_changelogs(table, snapshot_ids, now_ms, keep_from, delete_all)
    if not expired:
        return 0
    if delete_all:
        store.move_latest_hint(None)
    else:
        store.write_earliest_hint(next(id_ for id_ in ids if id_ > expired[-1]))
    changelogs = list(store.read_many(expired))
    ExpiredFiles(
        table=table,
        expired=changelogs,
        removing=changelogs,
        stop=table.snapshots.read(snapshot_ids[0]),
        latest=snapshot_ids[-1],
        scope=Scope(state=False),
        changelogs=list(store.read_many(id_ for id_ in ids[len(expired) :][:1])),
    ).run()
    for snapshot_id in expired:
        store.delete(snapshot_id)
    return len(expired)


class _CommitTimes(Mapping[int, int]):
    """Commit time [epoch ms] of snapshots or long-lived changelogs by id, read on demand.

    Documents are read in growing windows, as the first often decides.

    Args:
        ids: ascending.
        read: returns those of some ids that still exist.
    """

    def __init__(
        self, ids: Iterable[int], read: Callable[[Sequence[int]], Iterable[Snapshot]]
    ) -> None:
        self._ids = tuple(ids)
        self._read = read
        self._times: dict[int, int] = {}
        self._read_until = 0
        self._window = 1

    def __getitem__(self, snapshot_id: int) -> int:
        if snapshot_id >= self._read_until:
            self._read_until = snapshot_id + self._window
            self._window = min(2 * self._window, _BATCH_SIZE)
            ids = [id_ for id_ in self._ids if snapshot_id <= id_ < self._read_until]
            self._times |= {snapshot.id: snapshot.time_ms for snapshot in self._read(ids)}
        return self._times[snapshot_id]

    def __iter__(self) -> Iterator[int]:
        return iter(self._ids)

    def __len__(self) -> int:
        return len(self._ids)


# Removing files that nothing references any more, left by crashes and interrupted passes.
#
# Source: SEMANTICS.md §F.13. Files are referenced by snapshots, tags and long-lived changelogs of
# all branches, and Iceberg metadata by its versions; names are unique, so a reference found
# anywhere keeps every file of that name.
#
# Files are listed first and references are read afterwards, so those of commits in between are
# found. Files that are not referenced yet are protected by their age alone. A snapshot or tag that
# cannot be read whole aborts the call before anything is removed, unless it is being expired.


DEFAULT_AGE_MS = 24 * 3_600_000
"""Age that keeps the files of writes that have not committed yet [ms]."""

_THREADS = 16
"""Directories listed at once: on an object store a listing is all latency."""

_BUCKET = "bucket-"
_HINTS = frozenset({"EARLIEST", "LATEST"})
_DATA_DIRECTORY = "data-file.path-directory"

_DELETED = 1000
"""Files removed between two progress reports."""


_Root = tuple[Snapshot, Callable[[], bool]]
"""A snapshot, tag or changelog, and whether it has expired by now."""


@dataclasses.dataclass(frozen=True, slots=True)
class OrphanFiles:
    """What was removed, or would be.

    Attributes:
        paths: sorted.
        size: of all of them [bytes].
    """

    paths: tuple[str, ...]
    size: int


OrphanProgress = Callable[[str, int], None]
"""Called with the phase (`listed`, `named`, `removed`) and the number of files so far."""


def remove_orphan_files(
    table: TableCore,
    *,
    older_than_ms: int | None = None,
    dry_run: bool = False,
    on_progress: OrphanProgress = lambda _phase, _files: None,
) -> OrphanFiles:
    """Remove files of a table, of any branch, that nothing references.

    Safe beside readers, expiry and commits that take less time than the age limit.

    Args:
        older_than_ms: only files last written before this time [epoch ms]; None: a day ago.
        on_progress: see `OrphanProgress`.

    Raises:
        InvalidRequestError: the time is not past.
        CorruptDataError: metadata is damaged or missing, so nothing may be removed.
        StorageUnavailableError: the store failed; call again.
    """
    now_ms = table.clock.now_ms()
    limit_ms = now_ms - DEFAULT_AGE_MS if older_than_ms is None else older_than_ms
    if limit_ms >= now_ms:
        raise InvalidRequestError(
            "The arg olderThan must be less than now",
            detail="files of in-flight writes would be deleted",
            older_than_ms=limit_ms,
            now_ms=now_ms,
        )
    layouts = [layout for branch in all_branches(table) for layout in _layouts(table, branch)]
    with concurrent.futures.ThreadPoolExecutor(_THREADS, "orphans") as pool:
        candidates = _candidates(table, layouts, pool)
    iceberg, named_by_iceberg = iceberg_leftovers(table)
    files = [file for file in (*candidates, *iceberg) if file.modified_ms < limit_ms]
    on_progress("listed", len(files))
    names = {file.name for file in files}
    if names:
        _exclude_named(table, names, on_progress)
        names.difference_update(named_by_iceberg())
    files = sorted((file for file in files if file.name in names), key=lambda file: file.path)
    for at in range(0, 0 if dry_run else len(files), _DELETED):
        table.file_io.delete_many(file.path for file in files[at : at + _DELETED])
        on_progress("removed", min(at + _DELETED, len(files)))
    return OrphanFiles(tuple(file.path for file in files), sum(file.size for file in files))


def _layouts(table: TableCore, branch: str) -> list[TableLayout]:
    """Layouts of a branch, one for each data directory that it has had."""
    layout = dataclasses.replace(table.layout, branch=branch)
    schemas = SchemaStore(table.file_io, layout)
    ids = schemas.ids()
    if not ids:
        raise CorruptDataError(
            f"Branch {branch} has no schemas. Orphan files cleaning aborted.",
            hint="inspect the branch, and drop it if it is not wanted",
            table=layout.root,
            branch=branch,
        )
    directories = {schemas.read(id_).options.get(_DATA_DIRECTORY, "") for id_ in ids}
    return [
        dataclasses.replace(layout, data_directory=path.strip("/")) for path in sorted(directories)
    ]


def _candidates(
    table: TableCore, layouts: Iterable[TableLayout], pool: concurrent.futures.Executor
) -> list[FileStatus]:
    """Files of the directories that Paimon writes; those it always keeps are left out."""
    files: dict[str, FileStatus] = {}
    keyed = len(table.schema.partition_keys)
    for layout in layouts:
        directories = [layout.manifest_dir, layout.index_dir, layout.statistics_dir]
        directories += _bucket_dirs(table, layout.data_root, keyed, pool)
        for listing in pool.map(table.file_io.list, directories):
            files |= {file.path: file for file in listing if not file.directory}
        for directory, prefix in (
            (layout.snapshot_dir, "snapshot-"),
            (layout.changelog_dir, "changelog-"),
        ):
            for file in table.file_io.list(directory):
                if not (file.directory or file.name.startswith(prefix) or file.name in _HINTS):
                    files[file.path] = file
    return list(files.values())


def _bucket_dirs(
    table: TableCore, root: str, depth: int, pool: concurrent.futures.Executor
) -> list[str]:
    level = [root]
    for step in range(depth + 1):
        deeper = []
        for listing in pool.map(table.file_io.list, level):
            for entry in listing:
                matches = "=" in entry.name if step < depth else entry.name.startswith(_BUCKET)
                if entry.directory and matches:
                    deeper.append(entry.path)
        level = deeper
    return level


def _exclude_named(table: TableCore, candidates: set[str], on_progress: OrphanProgress) -> None:
    """Exclude from some names all that a snapshot, tag or changelog of a branch references."""
    total = len(candidates)
    metas: dict[str, ManifestFileMeta] = {}
    roots = read_branches(table, functools.partial(_roots, table))
    for snapshot, expired in roots:
        try:
            _exclude_metadata(table, snapshot, candidates, metas)
        except FileNotFoundError as error:
            if not expired():
                raise _incomplete(table, snapshot, error) from error
            _exclude_metadata(table, snapshot, candidates, metas, strict=False)
    rest = iter(metas.values())
    while candidates and (batch := list(itertools.islice(rest, _BATCH_SIZE))):
        on_progress("named", total - len(candidates))
        try:
            _exclude_names(candidates, list_entries(table, batch))
        except FileNotFoundError:
            for meta in batch:
                _exclude_names(candidates, _entries_or_none(table, meta, roots))


def _incomplete(table: TableCore, snapshot: Snapshot, error: FileNotFoundError) -> CorruptDataError:
    return CorruptDataError(
        "a snapshot names a file that is missing, so nothing may be removed",
        detail=str(error),
        hint="restore the file, or roll back to a complete snapshot",
        snapshot=snapshot.id,
        table=table.layout.root,
    )


def _entries_or_none(
    table: TableCore, meta: ManifestFileMeta, roots: Sequence[_Root]
) -> list[ManifestEntry]:
    """Entries of a manifest; none when everything that references it has expired by now."""
    try:
        return list(list_entries(table, [meta]))
    except FileNotFoundError as error:
        for snapshot, expired in roots:
            lists = (listed_manifests(table, item, strict=False) for item in snapshot.lists)
            names = {manifest.file_name for manifest in itertools.chain.from_iterable(lists)}
            if meta.file_name in names and not expired():
                raise _incomplete(table, snapshot, error) from error
        return []


def _roots(table: TableCore, branch: str) -> Iterator[_Root]:
    """Snapshots, tags and changelogs of a branch, and whether one has expired by now."""
    layout = dataclasses.replace(table.layout, branch=branch)
    store = SnapshotStore(table.file_io, layout)

    def expired(snapshot_id: int) -> bool:
        earliest = store.earliest_id()
        return earliest is None or snapshot_id < earliest or not store.exists(snapshot_id)

    def deleted(path: str) -> bool:
        return not table.file_io.is_file(path)

    content = documents(table, branch)
    for snapshot in content.snapshots:
        yield snapshot, functools.partial(expired, snapshot.id)
    for tag in content.tags:
        yield tag.snapshot, functools.partial(deleted, layout.tag_file(tag.name))
    for changelog in content.changelogs:
        yield changelog, lambda: True  # some of its lists have expired with the snapshot


def _exclude_metadata(
    table: TableCore,
    snapshot: Snapshot,
    candidates: set[str],
    metas: dict[str, ManifestFileMeta],
    *,
    strict: bool = True,
) -> None:
    """Exclude the metadata and index files of a snapshot; collect its manifests.

    Raises:
        FileNotFoundError: one is missing; not of a changelog, which may expire before its tag.
    """
    for manifest_list in snapshot.lists:
        candidates.discard(manifest_list[0])
        needed = strict and manifest_list[0] != snapshot.changelog_manifest_list
        manifests = listed_manifests(table, manifest_list, strict=needed)
        candidates.difference_update(meta.file_name for meta in manifests)
        metas.update((meta.file_name, meta) for meta in manifests)
    candidates.difference_update(filter(None, (snapshot.statistics, snapshot.index_manifest)))
    entries = index_files(table, snapshot, strict=strict)
    candidates.difference_update(path.rpartition("/")[2] for path, _ in entries)


def _exclude_names(candidates: set[str], entries: Iterable[ManifestEntry]) -> None:
    """Exclude data, changelog and file index files that manifests add or remove."""
    names = ((entry.file.file_name, *entry.file.extra_files) for entry in entries)
    candidates.difference_update(itertools.chain.from_iterable(names))
