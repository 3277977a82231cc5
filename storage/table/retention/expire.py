# SPDX-License-Identifier: Apache-2.0
"""Which snapshots may go (pure), and removing them with the files that only they name.

Source: SEMANTICS.md §F.7, §F.8, FORMAT.md §11.6. What is kept for certain: everything that a kept
snapshot, a tag or a branch names.

Order of a pass, so that it can stop anywhere: EARLIEST moves first (readers go by it), then data,
changelog and index files, then manifests and lists, then the snapshot files from the oldest up.
A pass that was cut off is finished by the next one, which starts from the oldest file found by
listing. Ascending order is a promise to committers, see `publish`.

Where changelogs outlive snapshots (`changelog.*`), what their readers need stays: the changelog
files of a table with a changelog producer; without one, appended files and the lists of data
files, which go with the changelog of the snapshot that removed them, as in Java. The long-lived
changelog is written right before the snapshot file goes, so that one of the two is always there.
"""

import dataclasses
from collections.abc import Iterator, Mapping, Sequence

from storage.errors import NotFoundError
from storage.format.metadata.snapshot import Snapshot
from storage.options.options import TableOptions
from storage.table.commit.commit_times import CommitTimes
from storage.table.core import TableCore
from storage.table.retention.consumers import expire_consumers, min_next_snapshot
from storage.table.retention.expire_changelogs import expire_changelogs
from storage.table.retention.expired_files import ExpiredFiles, Scope

__all__ = ["Retention", "choose_expired", "expirable_snapshots", "expire_snapshots"]


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


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Retention:
    """What is kept, where it differs from what the table's options say; None: as they say.

    Attributes:
        retain_min: instead of `snapshot.num-retained.min`.
        retain_max: instead of `snapshot.num-retained.max`.
        time_retained_ms: instead of `snapshot.time-retained` [ms].
        limit: instead of `snapshot.expire.limit`.
    """

    retain_min: int | None = None
    retain_max: int | None = None
    time_retained_ms: int | None = None
    limit: int | None = None


def expirable_snapshots(
    table: TableCore,
    *,
    now_ms: int,
    keep_from: int | None = None,
    retention: Retention | None = None,
) -> list[int]:
    """The ids that `expire_snapshots` would remove now, ascending. Arguments as there."""
    return _chosen(table, now_ms, keep_from, retention or Retention())[1]


def _chosen(
    table: TableCore, now_ms: int, keep_from: int | None, retention: Retention
) -> tuple[list[int], list[int]]:
    """All ids, and those that expire."""
    options = table.options
    needed = [keep_from]
    if not (options.consumer_changelog_only and options.changelogs_outlive_snapshots):
        needed.append(min_next_snapshot(table))
    newest = table.latest_snapshot()
    latest = 0 if newest is None else newest.id
    ids = [one for one in table.snapshots.ids() if one <= latest]
    least, most = retention.retain_min, retention.retain_max
    age, limit = retention.time_retained_ms, retention.limit
    expired = choose_expired(
        CommitTimes(ids, lambda some: _read(table, some)),
        now_ms=now_ms,
        retain_min=max(1, options.snapshot_num_retained_min if least is None else least),
        retain_max=max(1, options.snapshot_num_retained_max if most is None else most),
        time_retained_ms=options.snapshot_time_retained_ms if age is None else age,
        limit=options.snapshot_expire_limit if limit is None else limit,
        keep_from=min((one for one in needed if one is not None), default=None),
    )
    return ids, [one for one in ids if one in expired]


def expire_snapshots(
    table: TableCore,
    *,
    now_ms: int,
    keep_from: int | None = None,
    retain_min: int | None = None,
    retain_max: int | None = None,
    time_retained_ms: int | None = None,
    limit: int | None = None,
    alone: bool = False,
) -> int:
    """Remove snapshots whose time has come, and the files that only they name.

    Before it consumers that have been idle too long, and then the same of long-lived changelogs,
    where the table's options say so.

    Safe beside commits, reads of kept snapshots, and other passes.

    Args:
        table: the table.
        now_ms: current time [epoch ms].
        keep_from: smallest id that somebody besides the table's consumers still needs.
        retain_min: instead of `snapshot.num-retained.min`.
        retain_max: instead of `snapshot.num-retained.max`.
        time_retained_ms: instead of `snapshot.time-retained` [ms].
        limit: instead of `snapshot.expire.limit`.
        alone: leave consumers and long-lived changelogs as they are.

    Returns:
        How many snapshots were removed.

    Raises:
        StorageUnavailableError: the store failed; call again.
    """
    options = table.options
    if options.consumer_expiration_time_ms is not None and not alone:
        expire_consumers(table, now_ms=now_ms, age_ms=options.consumer_expiration_time_ms)
    retention = Retention(
        retain_min=retain_min,
        retain_max=retain_max,
        time_retained_ms=time_retained_ms,
        limit=limit,
    )
    ids, gone = _chosen(table, now_ms, keep_from, retention)
    if gone:
        _remove(table, gone, next(one for one in ids if one > gone[-1]), ids[-1])
    if options.changelogs_outlive_snapshots and not alone:
        expire_changelogs(table, now_ms=now_ms, keep_from=keep_from)
    return len(gone)


def _remove(table: TableCore, gone: Sequence[int], stop_id: int, latest: int) -> None:
    """Remove snapshots below `stop_id`, which stays."""
    outlived = table.options.changelogs_outlive_snapshots
    table.snapshots.write_earliest_hint(stop_id)
    table.snapshots.preload((*gone, stop_id))
    found = list(_read(table, gone))
    stop = table.snapshots.read(stop_id)
    removing = (*(one for one in found if one.id > gone[0]), stop)
    ExpiredFiles(table, found, removing, stop, latest, _scope(table.options)).run()
    for snapshot in found:
        if outlived and table.snapshots.exists(snapshot.id):
            table.changelogs.write(snapshot)
        table.snapshots.delete(snapshot.id)
    if outlived:
        table.changelogs.write_latest_hint(gone[-1])


def _scope(options: TableOptions) -> Scope:
    if not options.changelogs_outlive_snapshots:
        return Scope()
    produced = options.changelog_producer != "none"
    return Scope(appended=produced, data_lists=produced, changelog=False)


def _read(table: TableCore, snapshot_ids: Sequence[int]) -> Iterator[Snapshot]:
    """Those of some snapshots that are still there."""
    table.snapshots.preload(snapshot_ids)
    for snapshot_id in snapshot_ids:
        try:
            yield table.snapshots.recall(snapshot_id)
        except NotFoundError:
            continue
