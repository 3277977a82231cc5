# SPDX-License-Identifier: Apache-2.0
"""The naive table: a dict of rows, one frozen copy per snapshot, and the changes in between.

It knows what a `deduplicate` table shows and nothing of files, levels, buckets or batches. Rows
are tuples in column order; a change is (kind, row) with kind `+I`, `-U`, `+U` or `-D`.
"""

from collections.abc import Iterable, Mapping, Sequence
from types import MappingProxyType
from typing import Any

Row = tuple[Any, ...]
Change = tuple[str, Row]

ADDS = frozenset({"+I", "+U"})
KINDS = ("+I", "-U", "+U", "-D")


class TableModel:
    """What readers of a primary-key table must see.

    Args:
        key: positions of the key columns (partition columns included: a key lives in its
            partition).
        ignore_delete: as the table option.
        ignore_update_before: as the table option.
    """

    def __init__(
        self, key: Sequence[int], *, ignore_delete: bool = False, ignore_update_before: bool = False
    ) -> None:
        self.key = tuple(key)
        self._ignored = {"-U", "-D"} if ignore_delete else set()
        if ignore_update_before:
            self._ignored.add("-U")
        self._rows: dict[Row, Row] = {}
        self._pending: list[Change] = []
        self._snapshots: dict[int, Mapping[Row, Row]] = {}
        self._changes: dict[int, tuple[Change, ...]] = {}

    def write(self, changes: Iterable[Change]) -> None:
        """Rows in arrival order; visible after `commit`."""
        self._pending.extend(change for change in changes if change[0] not in self._ignored)

    def discard(self) -> None:
        """Forget what was written and not committed, as a crash does."""
        self._pending.clear()

    def commit(self, *snapshot_ids: int) -> None:
        """Make what was written visible.

        Args:
            snapshot_ids: the snapshots this commit published, in order; all show the new state.
                The changes belong to the first one.
        """
        changes, self._pending = tuple(self._pending), []
        for kind, row in changes:
            key = tuple(row[position] for position in self.key)
            if kind in ADDS:
                self._rows[key] = row
            else:
                self._rows.pop(key, None)
        state = MappingProxyType(dict(self._rows))
        for position, snapshot_id in enumerate(snapshot_ids):
            assert snapshot_id not in self._snapshots
            self._snapshots[snapshot_id] = state
            self._changes[snapshot_id] = changes if position == 0 else ()

    def compact(self, *snapshot_ids: int) -> None:
        """Snapshots that show what was there before."""
        assert not self._pending
        self.commit(*snapshot_ids)

    def expire(self, earliest: int) -> None:
        """Forget the snapshots before `earliest`."""
        for snapshot_id in [known for known in self._snapshots if known < earliest]:
            del self._snapshots[snapshot_id]
            del self._changes[snapshot_id]

    @property
    def snapshot_ids(self) -> list[int]:
        """The snapshots that can be read, ascending."""
        return sorted(self._snapshots)

    def rows(self, snapshot_id: int | None = None) -> list[Row]:
        """What a scan returns, sorted by key; of the newest committed state by default."""
        state = self._rows if snapshot_id is None else self._snapshots[snapshot_id]
        return [row for _, row in sorted(state.items(), key=lambda item: order_of(item[0]))]

    def changes(self, snapshot_id: int) -> tuple[Change, ...]:
        """What the commit of a snapshot wrote, in arrival order."""
        return self._changes[snapshot_id]


def order_of(row: Row) -> tuple[Any, ...]:
    """A sort key for rows that may hold nulls: nulls first."""
    return tuple((value is not None, value) for value in row)


def in_order(rows: Iterable[Row]) -> list[Row]:
    """Rows sorted for comparison."""
    return sorted(rows, key=order_of)
