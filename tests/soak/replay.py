# SPDX-License-Identifier: Apache-2.0
"""Replaying the changelog of a table from empty, with every change checked against the state."""

from storage.format.types.types import VALUE_KIND, RowKind
from storage.table.table import FileStoreTable
from tests.changelog_kit import read_snapshot_changelog

INSERT, BEFORE, AFTER, DELETE = (
    RowKind.INSERT.value,
    RowKind.UPDATE_BEFORE.value,
    RowKind.UPDATE_AFTER.value,
    RowKind.DELETE.value,
)


class Replay:
    """The rows that the changes amount to.

    Attributes:
        rows: by primary key.
        changes: rows of changelog applied.
        wrong: changes that do not fit the state they meet, as texts.
    """

    def __init__(self, table: FileStoreTable) -> None:
        self._names = list(table.schema.field_names)
        self._keys = [self._names.index(name) for name in table.schema.primary_keys]
        self.rows: dict[tuple, tuple] = {}
        self.changes = 0
        self.wrong: list[str] = []

    def apply(self, table: FileStoreTable, snapshot_id: int) -> None:
        """The changes of one snapshot."""
        changes = read_snapshot_changelog(table, snapshot_id)
        columns = [changes.column(name).to_pylist() for name in (VALUE_KIND, *self._names)]
        for kind, *row in zip(*columns, strict=True):
            self.changes += 1
            values = tuple(row)
            key = tuple(values[position] for position in self._keys)
            found = self.rows.get(key)
            fits = {
                INSERT: found is None,
                BEFORE: found == values,
                AFTER: True,
                DELETE: found == values,
            }[kind]
            if not fits:
                self.wrong.append(f"snapshot {snapshot_id}: {kind} {values} meets {found}")
            if kind == DELETE:
                self.rows.pop(key, None)
            elif kind != BEFORE:
                self.rows[key] = values


def replayed(table: FileStoreTable) -> Replay:
    """All snapshots that are there, from the first on."""
    replay = Replay(table)
    for snapshot_id in sorted(table.snapshots.ids()):
        replay.apply(table, snapshot_id)
    return replay


def rows_by_key(table: FileStoreTable) -> dict[tuple, tuple]:
    """What a read gives, by primary key."""
    data = table.to_arrow()
    names = list(table.schema.field_names)
    keys = [names.index(name) for name in table.schema.primary_keys]
    rows = zip(*(data.column(name).to_pylist() for name in names), strict=True)
    return {tuple(row[position] for position in keys): tuple(row) for row in rows}
