# SPDX-License-Identifier: Apache-2.0
"""Taking a table back to an older snapshot or to a tag.

Source: SEMANTICS.md §F.11. Order of a rollback, so that it can stop anywhere and be repeated:

1. the target exists as a snapshot: that of an expired tag is written anew, EARLIEST points to it;
2. LATEST points to it, because a LATEST beyond the last snapshot would be believed;
3. newer snapshots are removed from the newest down, so that what is left is always a history,
   then long-lived changelogs and tags of newer snapshots;
4. files that only those named are removed.

Committers beside: one that read a snapshot which is now gone finds that out when it publishes
(`publish.Publisher`) and starts over. One that had published before the rollback looked is rolled
back like the others. On stores that cannot tell which of two callers deleted a file, stop the
writers first.
"""

from storage.errors import InvalidRequestError, NotFoundError
from storage.format.metadata.snapshot import CommitKind, Snapshot
from storage.table.core import TableCore
from storage.table.retention.references import (
    DataFile,
    added_files,
    all_changelogs,
    changelog_files,
    live_data_files,
    other_branches,
    remove_unnamed,
)
from storage.table.tags import all_tags, get_tag

__all__ = ["rollback_target", "rollback_to", "take_back"]


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
        table: the table, at a branch.
        snapshot_id: the snapshot; when it has expired a tag of it will do.
        tag: instead, the tag whose snapshot it is.
        timestamp_ms: instead, the newest that was committed at or before this time [epoch ms].

    Returns:
        The snapshot that is the newest now.

    Raises:
        InvalidRequestError: not exactly one of them is given.
        NotFoundError: there is no such snapshot or tag.
        StorageUnavailableError: the store failed; call again.
    """
    target = rollback_target(table, snapshot_id, tag=tag, timestamp_ms=timestamp_ms)
    table.snapshots.forget()
    if table.snapshots.put(target):
        table.snapshots.write_earliest_hint(min(table.snapshots.ids()))
    table.snapshots.move_latest_hint(target.id)
    gone, files = take_back(table, target.id + 1)
    kept = [target, *(one.snapshot for one in all_tags(table)), *other_branches(table)]
    if any(one.commit_kind is CommitKind.OVERWRITE for one in gone):
        files -= _named_by_history(table, target)
    _take_back_changelogs(table, target.id)  # of an expired tag: it is a snapshot again
    remove_unnamed(table, gone, kept, files, changelogs=all_changelogs(table))
    table.snapshots.move_latest_hint(target.id)
    return target


def take_back(table: TableCore, first_id: int) -> tuple[list[Snapshot], set[DataFile]]:
    """Remove the snapshots, long-lived changelogs and tags from an id on.

    Returns:
        What was removed, and the data and changelog files that it named; some may be named by
        what is left too.
    """
    gone: list[Snapshot] = []
    while newer := [one for one in table.snapshots.ids() if one >= first_id]:
        for snapshot_id in reversed(newer):
            try:
                snapshot = table.snapshots.read(snapshot_id)
            except NotFoundError:
                continue
            if table.snapshots.delete(snapshot_id):
                gone.append(snapshot)
    table.snapshots.forget()
    gone += _take_back_changelogs(table, first_id)
    files = {file for one in gone for file in added_files(table, one)}
    for tag in all_tags(table):
        if tag.snapshot.id >= first_id:
            table.file_io.delete(table.layout.tag_file(tag.name))
            gone.append(tag.snapshot)
            files |= _live(table, tag.snapshot)
    files |= {file for one in gone for file in changelog_files(table, one)}
    if gone:  # what was added between an older target and the oldest of these
        files |= _live(table, min(gone, key=lambda one: one.id))
    return gone, files


def rollback_target(
    table: TableCore,
    snapshot_id: int | None = None,
    *,
    tag: str | None = None,
    timestamp_ms: int | None = None,
) -> Snapshot:
    """The snapshot that `rollback_to` would go back to. Arguments and errors are the same."""
    if sum(one is not None for one in (snapshot_id, tag, timestamp_ms)) != 1:
        raise InvalidRequestError("a rollback goes back to a snapshot, to a tag or to a time")
    if tag is not None:
        return get_tag(table, tag).snapshot
    if snapshot_id is None:
        found = table.snapshots.at_time(timestamp_ms or 0)
        if found is None:
            raise NotFoundError(
                "There is currently no snapshot earlier than or equal to "
                f"timestamp[{timestamp_ms}]",
                table=table.layout.root,
            )
        return found
    try:
        return table.snapshots.read(snapshot_id)
    except NotFoundError:
        for one in all_tags(table):
            if one.snapshot.id == snapshot_id:
                return one.snapshot
        raise NotFoundError(
            f"Rollback snapshot '{snapshot_id}' doesn't exist.",
            detail="it is neither a snapshot nor tagged",
            table=table.layout.root,
        ) from None


def _take_back_changelogs(table: TableCore, first_id: int) -> list[Snapshot]:
    store = table.changelogs
    ids = store.ids()
    newer = [one for one in ids if one >= first_id]
    if not newer:
        return []
    store.move_latest_hint(max((one for one in ids if one < first_id), default=None))
    gone = list(store.read_many(newer))
    for snapshot_id in reversed(newer):
        store.delete(snapshot_id)
    return gone


def _live(table: TableCore, snapshot: Snapshot) -> set[DataFile]:
    try:
        return live_data_files(table, snapshot)
    except FileNotFoundError:
        return set()  # of a pass that was cut off: what is left are orphans


def _named_by_history(table: TableCore, target: Snapshot) -> set[DataFile]:
    """Files of the snapshots below the target: an overwrite could have brought them back."""
    found: set[DataFile] = set()
    for snapshot_id in table.snapshots.ids():
        if snapshot_id <= target.id:
            found |= _live(table, table.snapshots.read(snapshot_id))
    return found
