# SPDX-License-Identifier: Apache-2.0
"""Which snapshots a table has, which is newest, and how a new one becomes visible.

Source: FORMAT.md §3.3 (hints) and §11.5 (publishing). The hint files `LATEST` and `EARLIEST` may
be absent, stale or wrong: they only save a listing and are checked before use.

A snapshot file is not changed by commits and expiry, but a rollback or a fast-forward lets an id
name another document later. So `read` always asks the store. What was read is remembered for
walks over many snapshots (`recall`), together with the newest of them: as long as that one is
unchanged in the store no id below it can have changed either, because snapshots are rolled back
from the newest down. `latest` compares it, and so does `read` whatever it reads; a difference
makes the store forget everything.
"""

import contextlib
import itertools
from collections.abc import Iterable, Iterator

from storage.errors import CorruptDataError, NotFoundError
from storage.format.metadata.layout import TableLayout
from storage.format.metadata.numbered_files import SnapshotFiles
from storage.format.metadata.snapshot import Snapshot
from storage.io.file_io import FileIO, read_present

__all__ = ["SnapshotStore"]

_REMEMBERED = 1024
"""Parsed documents kept in memory: more than the snapshots one walk of an expiry goes over."""

_TOGETHER = 16
"""Most documents that a walk reads at a time."""


class SnapshotStore(SnapshotFiles):
    """Snapshots of one table or branch; arguments as of `SnapshotFiles`.

    What it remembers does not travel with a pickled copy.
    """

    kind = "snapshot"
    missing_hint = "it may have expired; list the snapshots that are left"
    probes = 8

    def __init__(self, file_io: FileIO, layout: TableLayout) -> None:
        super().__init__(file_io, layout)
        self._known: dict[int, Snapshot] = {}
        self._newest: Snapshot | None = None

    @property
    def directory(self) -> str:
        """See `SnapshotFiles`."""
        return self._layout.snapshot_dir

    @property
    def hints(self) -> tuple[str, str]:
        """See `SnapshotFiles`."""
        return self._layout.latest_hint, self._layout.earliest_hint

    def path(self, snapshot_id: int) -> str:
        """See `SnapshotFiles`."""
        return self._layout.snapshot_file(snapshot_id)

    def read(self, snapshot_id: int) -> Snapshot:
        """See `SnapshotFiles`; forgets everything when the document has changed."""
        try:
            snapshot = super().read(snapshot_id)
        except NotFoundError:
            self._known.pop(snapshot_id, None)
            raise
        if self._known.get(snapshot_id, snapshot) != snapshot:
            self.forget()
        return self._remember(snapshot)

    def recall(self, snapshot_id: int) -> Snapshot:
        """The same from memory where possible; for walks below a snapshot that `latest` gave.

        Raises: as `read`.
        """
        known = self._known.get(snapshot_id)
        return self.read(snapshot_id) if known is None else known

    def recall_many(self, snapshot_ids: Iterable[int]) -> Iterator[Snapshot]:
        """Several as from `recall`, in the order asked; those not remembered are read together.

        More and more are read at a time, so that a walk that ends early has read little too much.

        Raises:
            NotFoundError: of the one whose turn it is, as from `recall`.
        """
        left = iter(snapshot_ids)
        size = 1
        while some := list(itertools.islice(left, size)):
            self.preload(some)
            for snapshot_id in some:
                yield self.recall(snapshot_id)
            size = min(2 * size, _TOGETHER)

    def preload(self, snapshot_ids: Iterable[int]) -> None:
        """Remember snapshots that `recall` is asked for next, read together.

        What is missing or damaged is left for `recall` to report.
        """
        absent = [one for one in snapshot_ids if one not in self._known][:_REMEMBERED]
        if len(absent) < 2:
            return
        contents = read_present(self._file_io, [self.path(one) for one in absent])
        for snapshot_id, data in zip(absent, contents, strict=True):
            with contextlib.suppress(CorruptDataError):
                if data is not None:
                    self._remember(self.parse(snapshot_id, data))

    def latest(self) -> Snapshot | None:
        """The newest snapshot, or None on a table without snapshots."""
        newest = self.latest_id()
        if newest is None:
            self.forget()
            return None
        snapshot = self.read(newest)
        before = self._newest
        if before is not None and before != snapshot and not self._is_below(before, snapshot):
            self.forget()
            self._remember(snapshot)
        self._newest = snapshot
        return snapshot

    def at_time(self, time_ms: int) -> Snapshot | None:
        """The newest snapshot committed at or before a time [epoch ms], or None.

        Cost: one listing and a binary search; commit times grow with the id.
        """
        ids = self.ids()
        low, high = 0, len(ids)
        while low < high:
            middle = (low + high) // 2
            if self.read(ids[middle]).time_ms <= time_ms:
                low = middle + 1
            else:
                high = middle
        return self.read(ids[low - 1]) if low else None

    def publish(self, snapshot: Snapshot) -> bool:
        """Make a snapshot visible, unless its id is taken.

        Hints are written afterwards at best effort: once the snapshot file is there the commit
        has happened, so a failing hint does not fail it.

        Returns:
            True when this call published it, False when another writer has the id.

        Raises:
            StorageUnavailableError: it is unknown whether the snapshot was published; read the
                id back to find out.
        """
        if not self.put(snapshot):
            return False
        self.announce(snapshot)
        return True

    def put(self, snapshot: Snapshot) -> bool:
        """The first half of `publish`: the file without the hints. Returns and raises the same."""
        return self._file_io.put_if_absent(self.path(snapshot.id), snapshot.to_json())

    def announce(self, snapshot: Snapshot) -> None:
        """The second half of `publish`: point the hints at a snapshot that is there."""
        self._newest = self._remember(snapshot)
        self.write_latest_hint(snapshot.id)
        if snapshot.id == 1:
            self.write_earliest_hint(snapshot.id)

    def read_again(self, snapshot_id: int) -> Snapshot | None:
        """As `read`, but None when there is none."""
        try:
            return self.read(snapshot_id)
        except NotFoundError:
            return None

    def forget(self) -> None:
        """Remember nothing: ids may name other snapshots from now on."""
        self._known.clear()
        self._newest = None

    def delete(self, snapshot_id: int) -> bool:
        """See `SnapshotFiles`."""
        self._known.pop(snapshot_id, None)
        return super().delete(snapshot_id)

    def _is_below(self, before: Snapshot, newest: Snapshot) -> bool:
        """Whether what was the newest is still part of the history."""
        return before.id < newest.id and self.read_again(before.id) == before

    def _remember(self, snapshot: Snapshot) -> Snapshot:
        self._known[snapshot.id] = snapshot
        while len(self._known) > _REMEMBERED:
            self._known.pop(next(iter(self._known), 0), None)
        return snapshot
