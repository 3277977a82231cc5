# SPDX-License-Identifier: Apache-2.0
"""What the changelog of a small table says, as plain tuples."""

from typing import Any

from changelog.snapshot_changelog import read_snapshot_changelog
from storage.format.types.types import VALUE_KIND, RowKind
from storage.table.table import FileStoreTable

__all__ = ["changelog_of_commit", "changes_of"]

_SHORT = {kind.value: kind.short for kind in RowKind}


def changes_of(table: FileStoreTable, snapshot_id: int) -> list[tuple[Any, ...]]:
    """(kind, values…) of the changes that a snapshot tells, in their order."""
    names = table.schema.field_names
    rows = read_snapshot_changelog(table, snapshot_id).to_pylist()
    return [(_SHORT[row[VALUE_KIND]], *(row[name] for name in names)) for row in rows]


def changelog_of_commit(table: FileStoreTable, identifier: int) -> list[tuple[Any, ...]]:
    """The same for the changelog files of both snapshots of a commit."""
    snapshots = map(table.snapshots.read, table.snapshots.ids())
    return [
        change
        for snapshot in snapshots
        if snapshot.commit_identifier == identifier and snapshot.changelog_manifest_list
        for change in changes_of(table, snapshot.id)
    ]
