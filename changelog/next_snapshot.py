# SPDX-License-Identifier: Apache-2.0
"""Finding the snapshot that a stream reads next, also when it lives on only as a changelog.

Source: SEMANTICS.md §C.8 ("If the next snapshot is gone"), §F.8.
"""

from storage.errors import DataLossError, NotFoundError
from storage.format.metadata.snapshot import Snapshot
from storage.table.core import TableCore

__all__ = ["NextSnapshot"]

_CHECK_EVERY = 16
"""Of how many looks in vain one asks whether the snapshot can still come; it takes a listing."""


class NextSnapshot:
    """Looks for snapshots by id. Picklable.

    Args:
        table: the table.
    """

    def __init__(self, table: TableCore) -> None:
        self._table = table
        self._vain = 0

    def get(self, snapshot_id: int) -> Snapshot | None:
        """A snapshot, or the long-lived changelog that is left of it.

        Returns:
            None when it is not there yet.

        Raises:
            DataLossError: it has expired, or the table has gone back behind it.
            CorruptDataError: its file is damaged.
        """
        found = self._look(snapshot_id)
        if found is not None:
            self._vain = 0
            return found
        if self._vain % _CHECK_EVERY == 0:
            self._check(snapshot_id)
        self._vain += 1
        return None

    def require(self, snapshot_id: int) -> Snapshot:
        """The same for a snapshot that was there before.

        Raises:
            DataLossError: it has expired, or the table has gone back behind it.
            CorruptDataError: its file is damaged.
        """
        found = self._look(snapshot_id)
        if found is None:
            self._check(snapshot_id)
            raise self._gone_back(snapshot_id, self._table.snapshots.latest_id())
        return found

    def _look(self, snapshot_id: int) -> Snapshot | None:
        found = self._table.snapshots.read_again(snapshot_id)
        if found is None and self._table.changelogs.exists(snapshot_id):
            try:
                return self._table.changelogs.read(snapshot_id)
            except NotFoundError:
                return None
        return found

    def _check(self, snapshot_id: int) -> None:
        ids = self._table.snapshots.ids()
        if not ids:
            if snapshot_id > 1:
                raise self._gone_back(snapshot_id, None)
            return
        if snapshot_id > ids[-1] + 1:
            raise self._gone_back(snapshot_id, ids[-1])
        if snapshot_id < ids[0] and self._look(snapshot_id) is None:
            raise DataLossError(
                f"The wanted read snapshot with id {snapshot_id} has expired.",
                detail=f"snapshots {ids[0]} to {ids[-1]} are left",
                hint="begin anew with `scan.mode`; to prevent it, keep snapshots or changelogs "
                "longer (`snapshot.time-retained`, `changelog.time-retained`), or read with a "
                "`consumer-id`, which keeps what it has not read",
                table=self._table.layout.root,
            )

    def _gone_back(self, snapshot_id: int, latest: int | None) -> DataLossError:
        return DataLossError(
            "The next expected snapshot is too big! Most possible cause might be the table had "
            f"been recreated. The next snapshot id is {snapshot_id}, while the latest snapshot id "
            f"is {latest}",
            hint="begin anew: delete the consumer or the checkpoint that names this snapshot",
            table=self._table.layout.root,
        )
