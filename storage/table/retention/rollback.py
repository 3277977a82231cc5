# SPDX-License-Identifier: Apache-2.0
"""Rolling a table back to an older snapshot or to a tag.

Source: SEMANTICS.md §F.11. Order of a rollback, so that it can stop at any point and be repeated:

1. the target exists as a snapshot: that of an expired tag is written again, EARLIEST points to it;
2. LATEST points to it, because a LATEST beyond the last snapshot would be trusted;
3. newer snapshots are removed from the newest down, so that what is left is always a history,
   then long-lived changelogs and tags of newer snapshots;
4. files that only those referenced are removed.

Concurrent committers: one that read a removed snapshot detects that when it publishes
(`publish.Publisher`) and starts over. A commit published before the rollback lists the snapshots
is rolled back, too. On stores that do not report which of two callers deleted a file, stop the
writers first.
"""

from storage.errors import InvalidRequestError, NotFoundError
from storage.format.metadata.file_meta import FileKind
from storage.format.metadata.snapshot import CommitKind, Snapshot
from storage.table.core import TableCore
from storage.table.iceberg import publish_iceberg
from storage.table.retention.reachability import (
    DataFile,
    data_files,
    documents,
    listed_entries,
    live_data_files,
    remove_unreachable,
)
from storage.table.tags import all_tags, get_tag


def rollback_to(
    table: TableCore,
    snapshot_id: int | None = None,
    *,
    tag: str | None = None,
    timestamp_ms: int | None = None,
) -> Snapshot:
    """Make a snapshot the newest again; later ones, their tags and their files are lost.

    The schema stays as it is.

    Args:
        snapshot_id: the snapshot; if it has expired, a tag of it is enough.
        tag: instead, the tag whose snapshot it is.
        timestamp_ms: instead, the newest that was committed at or before this time [epoch ms].

    Raises:
        InvalidRequestError: not exactly one of them is given.
        NotFoundError: there is no such snapshot or tag.
        StorageUnavailableError: the store failed; call again.
    """
    target = rollback_target(table, snapshot_id, tag=tag, timestamp_ms=timestamp_ms)
    table.snapshots.forget()
    if table.snapshot_owner is not None:
        table.snapshot_owner.roll_back(target.id, tag)
        return target
    if table.snapshots.put(target):
        table.snapshots.write_earliest_hint(min(table.snapshots.ids()))
    table.snapshots.move_latest_hint(target.id)
    expired, tagged = take_back(table, target.id + 1)
    _delete_changelogs(table, target.id)  # of an expired tag: it is a snapshot again
    # an overwrite could have restored files of any snapshot; otherwise the newest references all
    overwritten = any(state.commit_kind is CommitKind.OVERWRITE for state in (*expired, *tagged))
    live_documents = documents(table, table.layout.branch, None if overwritten else (target,))
    files: set[DataFile] = set()
    for snapshot in expired:
        delta = listed_entries(table, snapshot.lists[1], strict=False)
        files |= set(data_files(entry for entry in delta if entry.kind is FileKind.ADD))
    # what was added between an older target and the oldest of these
    oldest = sorted((*expired, *tagged), key=lambda snapshot: snapshot.id)[:1]
    files = files.union(*(live_data_files(table, snapshot) for snapshot in (*tagged, *oldest)))
    remove_unreachable(table, (*expired, *tagged), files, live_documents)
    table.snapshots.move_latest_hint(target.id)
    publish_iceberg(table)
    return target


def take_back(table: TableCore, first_id: int) -> tuple[list[Snapshot], list[Snapshot]]:
    """Remove the snapshots, long-lived changelogs and tags from an id on; their files stay.

    Returns:
        The removed snapshots and changelogs, and the snapshots of the removed tags.
    """
    expired: list[Snapshot] = []
    while newer := [id_ for id_ in table.snapshots.ids() if id_ >= first_id]:
        for snapshot_id in reversed(newer):
            try:
                snapshot = table.snapshots.read(snapshot_id)
            except NotFoundError:
                continue
            if table.snapshots.delete(snapshot_id):
                expired.append(snapshot)
    table.snapshots.forget()
    expired += _delete_changelogs(table, first_id)
    tags = [tag for tag in all_tags(table) if tag.snapshot.id >= first_id]
    for tag in tags:
        table.file_io.delete(table.layout.tag_file(tag.name))
    return expired, [tag.snapshot for tag in tags]


def rollback_target(
    table: TableCore,
    snapshot_id: int | None = None,
    *,
    tag: str | None = None,
    timestamp_ms: int | None = None,
) -> Snapshot:
    """The snapshot that `rollback_to` would go back to. Arguments and errors are the same."""
    if sum(argument is not None for argument in (snapshot_id, tag, timestamp_ms)) != 1:
        raise InvalidRequestError("a rollback goes back to a snapshot, to a tag or to a time")
    if tag is not None:
        return get_tag(table, tag).snapshot
    if snapshot_id is None:
        snapshot = table.snapshots.at_time(timestamp_ms or 0)
        if snapshot is None:
            raise NotFoundError(
                "There is currently no snapshot earlier than or equal to "
                f"timestamp[{timestamp_ms}]",
                table=table.layout.root,
            )
        return snapshot
    try:
        return table.snapshots.read(snapshot_id)
    except NotFoundError:
        for candidate in all_tags(table):
            if candidate.snapshot.id == snapshot_id:
                return candidate.snapshot
        raise NotFoundError(
            f"Rollback snapshot '{snapshot_id}' doesn't exist.",
            detail="it is neither a snapshot nor tagged",
            table=table.layout.root,
        ) from None


def _delete_changelogs(table: TableCore, first_id: int) -> list[Snapshot]:
    store = table.changelogs
    ids = store.ids()
    newer = [id_ for id_ in ids if id_ >= first_id]
    if not newer:
        return []
    store.move_latest_hint(max((id_ for id_ in ids if id_ < first_id), default=None))
    deleted = list(store.read_many(newer))
    for snapshot_id in reversed(newer):
        store.delete(snapshot_id)
    return deleted
