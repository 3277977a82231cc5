# SPDX-License-Identifier: Apache-2.0
"""Histories where changes outlive snapshots: expiry of both, tags and rollback.

Whenever a process dies, a streaming reader that stands at any id from the oldest changelog on
must find the snapshot or the changelog of that id, with the files that it reads.
"""

from storage.errors import NotFoundError
from storage.format.metadata.snapshot import CommitKind, Snapshot
from storage.table.branches import rollback_to
from storage.table.commit.live_files import delta_entries, list_entries
from storage.table.retention.expire import expire_changelogs
from storage.table.table import FileStoreTable
from storage.table.tags import create_tag, delete_tag
from storage.testing.invariants import check_table
from tests.crash.histories import History, Step, expire_step, write_step
from tests.crash.table_options import FULL_COMPACTION, INPUT, LOOKUP, VECTORS


def tag_step(name: str, snapshot_id: int) -> Step:
    """Tag a snapshot."""

    def step(table: FileStoreTable, identifier: int) -> None:
        del identifier
        create_tag(table, name, snapshot_id, ignore_if_exists=True)

    return step


def untag_step(name: str) -> Step:
    """Delete a tag."""

    def step(table: FileStoreTable, identifier: int) -> None:
        del identifier
        delete_tag(table, name)

    return step


def rollback_step(snapshot_id: int) -> Step:
    """Go back to a snapshot."""

    def step(table: FileStoreTable, identifier: int) -> None:
        del identifier
        rollback_to(table, snapshot_id)

    return step


def expire_changelogs_step() -> Step:
    """Expire all changelogs but the newest."""

    def step(table: FileStoreTable, identifier: int) -> None:
        del identifier
        options = {"changelog.num-retained.min": "1", "changelog.num-retained.max": "1"}
        now_ms = table.clock.now_ms() + 10**10
        expire_changelogs(table.with_options(options), now_ms=now_ms)

    return step


def check_unless_under_way(table: FileStoreTable) -> None:
    """Check, but not in the midst of a rollback to an expired tag, when ids have a gap."""
    ids = table.snapshots.ids()
    if not ids or ids == list(range(ids[0], ids[-1] + 1)):
        check_table(table, rows=True)


def check_followable(table: FileStoreTable) -> None:
    """Read the changes of every id like a streaming reader that may stand anywhere."""
    check_table(table, rows=True)
    latest = table.snapshots.latest_id()
    ids = (table.changelogs.earliest_id(), table.snapshots.earliest_id())
    earliest = min((one for one in ids if one is not None), default=None)
    if latest is None or earliest is None:
        return
    for snapshot_id in range(earliest, latest + 1):
        _read_changes(table, _next(table, snapshot_id))


def _next(table: FileStoreTable, snapshot_id: int) -> Snapshot:
    try:
        return table.snapshots.read(snapshot_id)
    except NotFoundError:
        return table.changelogs.read(snapshot_id)


def _read_changes(table: FileStoreTable, snapshot: Snapshot) -> None:
    if table.options.changelog_producer == "none":
        if snapshot.commit_kind is not CommitKind.APPEND:
            return
        entries = delta_entries(table, snapshot)
    elif snapshot.changelog_manifest_list is None:
        return
    else:
        metas = table.manifests.read_list(snapshot.changelog_manifest_list)
        entries = list(list_entries(table, metas))
    for entry in entries:
        path = table.data_path(entry.partition, entry.bucket, entry.file.file_name)
        if entry.kind.name == "ADD":
            assert table.file_io.size(path) == entry.file.file_size, path


_STEPS = (
    write_step([("+I", 1, "a"), ("+I", 2, "b")]),
    write_step([("+U", 1, "A"), ("-D", 2, "b"), ("+I", 3, "c")]),
    tag_step("t", 2),
    write_step([("+I", 4, "d")], full=True),
    expire_step(1),
    write_step([("+I", 5, "e"), ("-D", 3, "c")]),
    write_step([("+I", 6, "f")], full=True),
    expire_step(1),
    expire_changelogs_step(),
    write_step([("+I", 7, "g")]),
    untag_step("t"),
    expire_step(2),
)
_OPTIONS = {
    "bucket": "1",
    "manifest.merge-min-count": "3",
    "snapshot.num-retained.min": "1",
    "changelog.num-retained.min": "4",
    "changelog.num-retained.max": "4",
    "changelog.time-retained": "2 h",
}
_ROLLBACK = (
    write_step([("+I", 1, "a"), ("+I", 2, "b")]),
    write_step([("+U", 1, "A"), ("-D", 2, "b"), ("+I", 3, "c")], full=True),
    tag_step("t", 2),
    write_step([("+I", 4, "d")]),
    write_step([("+I", 5, "e")]),
    expire_step(1),
    rollback_step(2),
)
HISTORIES = {
    "none": History(steps=_STEPS, options=_OPTIONS, check=check_followable),
    "input": History(steps=_STEPS, options=_OPTIONS | INPUT, check=check_followable),
    "lookup": History(
        steps=(*_STEPS, write_step([], full=True)),
        options=_OPTIONS | LOOKUP,
        check=check_followable,
        changelog=True,
    ),
    "vectors-lookup": History(
        steps=(*_STEPS, write_step([], full=True)),
        options=_OPTIONS | VECTORS | LOOKUP,
        check=check_followable,
        changelog=True,
    ),
    "full-compaction": History(
        steps=(*_STEPS, write_step([], full=True)),
        options=_OPTIONS | FULL_COMPACTION,
        check=check_followable,
        changelog=True,
    ),
    "rollback": History(steps=_ROLLBACK, options=_OPTIONS, check=check_unless_under_way),
}
