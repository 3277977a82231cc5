# SPDX-License-Identifier: Apache-2.0
"""Which snapshots and long-lived changelogs expire (pure), and removing them with their files.

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

import contextlib
import dataclasses
import itertools
import logging
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence

from storage.errors import NotFoundError
from storage.format.metadata.file_meta import FileKind, FileSource, ManifestEntry
from storage.format.metadata.manifest import ManifestFileMeta
from storage.format.metadata.snapshot import CommitKind, Snapshot
from storage.options.iceberg import CATALOG_STORAGES
from storage.options.options import TableOptions
from storage.table.core import TableCore
from storage.table.iceberg import publish_iceberg
from storage.table.retention.consumers import expire_consumers, min_next_snapshot
from storage.table.retention.reachability import (
    DataFile,
    Removal,
    data_files,
    listed_entries,
    live_among,
    other_documents,
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
