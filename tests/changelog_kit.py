# SPDX-License-Identifier: Apache-2.0
"""The changelog of a small table as plain tuples."""

from typing import Any

import pyarrow as pa

from changelog.follow import Follower
from storage.format.types.types import VALUE_KIND, RowKind
from storage.table.core import TableCore
from storage.table.read.read import TableRead
from storage.table.table import FileStoreTable

__all__ = ["changelog_of_commit", "changes_of", "read_snapshot_changelog"]

_SHORT = {kind.value: kind.short for kind in RowKind}


def read_snapshot_changelog(table: TableCore, snapshot_id: int) -> pa.Table:
    """The changes of one snapshot as a stream emits them: `_VALUE_KIND`, then the columns."""
    snapshot = table.snapshots.read(snapshot_id)
    return TableRead(table, kinds=True).to_table(Follower(table).changes(snapshot))


def changes_of(table: FileStoreTable, snapshot_id: int) -> list[tuple[Any, ...]]:
    """(kind, values…) of the changes that a snapshot emits, in their order."""
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
