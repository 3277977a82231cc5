# SPDX-License-Identifier: Apache-2.0
"""Which long-lived changelogs may go (pure), and removing them with the files only they name.

Source: SEMANTICS.md §F.8. A snapshot that expires leaves its changelog behind where
`changelog.*` keeps changes longer than `snapshot.*` keeps snapshots; see `expire` for what is
kept with it.

Order of a pass, so that it can stop anywhere: EARLIEST moves first, then files go, then what
describes them, then the changelogs from the oldest up. A pass that was cut off is finished by the
next one, which starts from the oldest found by listing.
"""

from collections.abc import Mapping, Sequence

from storage.table.commit.commit_times import CommitTimes
from storage.table.core import TableCore
from storage.table.retention.consumers import min_next_snapshot
from storage.table.retention.expired_files import ExpiredFiles, Scope

__all__ = ["choose_expired_changelogs", "expirable_changelogs", "expire_changelogs"]


def choose_expired_changelogs(
    times: Mapping[int, int],
    *,
    latest: int,
    now_ms: int,
    retain_min: int,
    retain_max: int,
    time_retained_ms: int,
    limit: int,
    keep_from: int | None = None,
) -> range:
    """The ids of long-lived changelogs that expire now, from the oldest on. Pure.

    Numbers count from the newest snapshot, so that changelogs of snapshots that are still there
    count too. The newest long-lived changelog stays.

    Args:
        times: commit time by id [epoch ms]; looked up only where needed.
        latest: id of the newest snapshot.
        now_ms: current time [epoch ms].
        retain_min: newest ones that stay whatever their age.
        retain_max: newest ones of which older ones go whatever their age.
        time_retained_ms: age up to which one stays [ms].
        limit: most ids of one pass.
        keep_from: smallest id that somebody (a consumer) still needs.
    """
    if not times:
        return range(0)
    earliest, newest = min(times), max(times)
    end = min(latest - retain_min + 1, earliest + limit, newest)
    if keep_from is not None:
        end = min(end, keep_from)
    start = latest - retain_max + 1
    for snapshot_id in sorted(one for one in times if start <= one < end):
        time_ms = times.get(snapshot_id)
        if time_ms is not None and time_ms >= now_ms - time_retained_ms:
            return range(earliest, snapshot_id)
    return range(earliest, max(earliest, end))


def expirable_changelogs(
    table: TableCore, *, now_ms: int, keep_from: int | None = None, delete_all: bool = False
) -> list[int]:
    """The ids that `expire_changelogs` would remove now, ascending. Arguments as there."""
    snapshot_ids = table.snapshots.ids()
    return _chosen(table, snapshot_ids, now_ms, keep_from, delete_all)[1]


def _chosen(
    table: TableCore,
    snapshot_ids: Sequence[int],
    now_ms: int,
    keep_from: int | None,
    delete_all: bool,
) -> tuple[list[int], list[int]]:
    """All ids, and those that expire."""
    if not snapshot_ids:
        return [], []
    options = table.options
    ids = [one for one in table.changelogs.ids() if one < snapshot_ids[0]]
    if delete_all:
        return ids, ids
    needed = [one for one in (keep_from, min_next_snapshot(table)) if one is not None]
    expired = choose_expired_changelogs(
        CommitTimes(ids, table.changelogs.read_many),
        latest=snapshot_ids[-1],
        now_ms=now_ms,
        retain_min=options.changelog_num_retained_min,
        retain_max=options.changelog_num_retained_max,
        time_retained_ms=options.changelog_time_retained_ms,
        limit=options.snapshot_expire_limit,
        keep_from=min(needed, default=None),
    )
    return ids, [one for one in ids if one in expired]


def expire_changelogs(
    table: TableCore, *, now_ms: int, keep_from: int | None = None, delete_all: bool = False
) -> int:
    """Remove long-lived changelogs whose time has come, and the files that only they name.

    Safe beside commits, streaming reads of what is kept, and other passes.

    Args:
        table: the table, at a branch.
        now_ms: current time [epoch ms].
        keep_from: smallest id that somebody besides the table's consumers still needs.
        delete_all: remove all of them, whoever still needs them.

    Returns:
        How many were removed.

    Raises:
        StorageUnavailableError: the store failed; call again.
    """
    store, snapshot_ids = table.changelogs, table.snapshots.ids()
    ids, gone = _chosen(table, snapshot_ids, now_ms, keep_from, delete_all)
    if not gone:
        return 0
    if delete_all:
        store.move_latest_hint(None)
    else:
        store.write_earliest_hint(next(one for one in ids if one > gone[-1]))
    changelogs = list(store.read_many(gone))
    ExpiredFiles(
        table,
        gone=changelogs,
        removing=changelogs,
        stop=table.snapshots.read(snapshot_ids[0]),
        latest=snapshot_ids[-1],
        scope=Scope(state=False),
        changelogs=list(store.read_many(one for one in ids[len(gone) :][:1])),
    ).run()
    for snapshot_id in gone:
        store.delete(snapshot_id)
    return len(gone)
