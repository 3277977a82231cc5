# SPDX-License-Identifier: Apache-2.0
"""Finding out what became of a publication, whatever the store answered.

Steps 3 and 4 of the protocol that is described in `publish`.
"""

import logging
from collections.abc import Callable, Iterable

from storage.errors import StorageUnavailableError
from storage.format.metadata.file_meta import FileKind, ManifestEntry
from storage.format.metadata.snapshot import Snapshot
from storage.table.commit.index_files import index_entries
from storage.table.commit.live_files import list_entries, live_state
from storage.table.core import TableCore

__all__ = ["Outcome", "back_off"]

_LOG = logging.getLogger(__name__)


class Outcome:
    """Creates snapshot files and says for certain whether they are part of the history.

    Args:
        table: the table.
    """

    def __init__(self, table: TableCore) -> None:
        self._table = table
        self._withdrawn: set[str | None] = set()

    def published(self, snapshot: Snapshot, latest: Snapshot | None) -> bool:
        """Create a snapshot; False when it is lost for certain.

        Args:
            snapshot: to be published.
            latest: the snapshot it builds on.

        Raises:
            StorageUnavailableError: it is unknown; nothing may be deleted.
        """
        return self._insist(snapshot, lambda: self._created(snapshot)) and self._insist(
            snapshot, lambda: self._follows(snapshot, latest)
        )

    def _insist(self, snapshot: Snapshot, question: Callable[[], bool]) -> bool:
        """Ask until the store answers.

        Raises:
            StorageUnavailableError: it never did; nothing may be deleted.
        """
        last = self._table.options.commit_max_retries
        for number in range(last):
            try:
                return question()
            except StorageUnavailableError as error:
                _LOG.warning("the outcome of a commit is not known yet", exc_info=error)
                back_off(self._table, number + 1)
        try:
            return question()
        except StorageUnavailableError as error:
            raise StorageUnavailableError(
                "it is unknown whether a snapshot was published",
                detail=str(error),
                hint="commit the same messages again once the store answers: that is safe",
                table=self._table.layout.root,
                snapshot=snapshot.id,
                user=snapshot.commit_user,
                identifier=snapshot.commit_identifier,
            ) from error

    def _created(self, snapshot: Snapshot) -> bool:
        """Create the snapshot file; False when the id is another's."""
        snapshots = self._table.snapshots
        if snapshots.put(snapshot):
            return True
        there = snapshots.read_again(snapshot.id)
        if there is None:
            raise StorageUnavailableError(
                "a snapshot is there and is not",
                snapshot=snapshot.id,
                table=self._table.layout.root,
            )
        return there.uuid == snapshot.uuid

    def _follows(self, snapshot: Snapshot, latest: Snapshot | None) -> bool:
        """Whether the snapshot just created is part of the table's history.

        Expiry removes ids from below. While the snapshot that ours builds on is there, no id
        above it has been removed, so ours was free because it had never been. A rollback removes
        ids from above, so an older id that is left while that snapshot is missing shows one.
        """
        snapshots = self._table.snapshots
        if latest is not None and snapshots.read_again(latest.id) == latest:
            return True
        ids = snapshots.ids()
        newer = [found for found in ids if found > snapshot.id]
        if not newer and (latest is None or ids[:1] == [snapshot.id] or not ids):
            return True
        if not newer:  # a rollback took back what ours builds on; if ours too, it was made
            asked = snapshot.uuid in self._withdrawn
            self._withdrawn.add(snapshot.uuid)
            return not (snapshots.delete(snapshot.id) or asked)
        if newer[0] == snapshot.id + 1 and self._builds_on(newer[0], snapshot):
            return True
        _LOG.warning(
            "a snapshot was created at an id that had expired; removing it and committing again",
            extra={"table": self._table.layout.root, "snapshot": snapshot.id},
        )
        snapshots.delete(snapshot.id)
        return False

    def _builds_on(self, successor_id: int, snapshot: Snapshot) -> bool:
        """Whether the base of a snapshot is the state of ours: no other writer made these files."""
        store = self._table.manifests
        try:
            successor = self._table.snapshots.read_again(successor_id)
            if successor is None:
                return False
            base = list_entries(self._table, store.read_list(successor.base_manifest_list))
            before = _live_identities(base)
            ours = {entry.identity for entry in live_state(self._table, snapshot).entries()}
            index = {entry.file.file_name for entry in index_entries(self._table, snapshot)}
            later = {entry.file.file_name for entry in index_entries(self._table, successor)}
        except FileNotFoundError as error:  # both have expired meanwhile: the history decides
            raise StorageUnavailableError(
                "a snapshot expired right after it was published",
                table=self._table.layout.root,
                snapshot=snapshot.id,
            ) from error
        if before == ours and index and index.isdisjoint(later):
            raise StorageUnavailableError(  # replaced, or made by another: the history decides
                "a snapshot expired right after it was published",
                table=self._table.layout.root,
                snapshot=snapshot.id,
            )
        return before == ours


def back_off(table: TableCore, number: int) -> None:
    """Back off before attempt `number`: doubling, with jitter so that competing writers part."""
    options = table.options
    longest = min(
        options.commit_min_retry_wait_ms * 2 ** (number - 1), options.commit_max_retry_wait_ms
    )
    jitter = int(table.ids.uuid()[:4], 16) / 0xFFFF
    table.clock.sleep(longest * (0.5 + jitter / 2) / 1000)


def _live_identities(entries: Iterable[ManifestEntry]) -> set[tuple[object, ...]]:
    live: set[tuple[object, ...]] = set()
    for entry in entries:
        if entry.kind is FileKind.ADD:
            live.add(entry.identity)
        else:
            live.discard(entry.identity)
    return live
