# SPDX-License-Identifier: Apache-2.0
"""Which snapshots a table has, which is newest, and how a new one becomes visible.

Source: FORMAT.md §3.3 (hints) and §11.5 (publishing). The hint files `LATEST` and `EARLIEST` may
be absent, stale or wrong: they only save a listing and are checked before use.

A snapshot file is not changed by commits and expiry, but a rollback or a fast-forward lets an id
name another document later. So `read` always asks the store. What was read is remembered for
walks over many snapshots (`recall`), together with the newest of them: as long as that one is
unchanged in the store no id below it can have changed either, because snapshots are taken back
from the newest down. `latest` compares it, and so does `read` whatever it reads; a difference
makes the store forget everything.
"""

import contextlib
import itertools
from collections import OrderedDict
from collections.abc import Iterable, Iterator
from typing import Any

from storage.errors import CorruptDataError, NotFoundError
from storage.format.metadata.documents import parse_document, read_document
from storage.format.metadata.layout import TableLayout
from storage.format.metadata.numbered_files import listed_ids, read_hint, write_hint
from storage.format.metadata.snapshot import Snapshot
from storage.io.file_io import FileIO, read_present

__all__ = ["SnapshotStore"]

_PREFIX = "snapshot-"
_REMEMBERED = 1024
"""Parsed documents kept in memory: more than the snapshots one walk of an expiry goes over."""

_TOGETHER = 16
"""Most documents that a walk reads at a time."""

_PROBES = 8
"""Steps a stale LATEST is followed before listing: one existence check each."""


class SnapshotStore:
    """Snapshots of one table or branch. Picklable; what it remembers does not travel.

    Args:
        file_io: the store of bytes.
        layout: paths of the table or branch.
    """

    def __init__(self, file_io: FileIO, layout: TableLayout) -> None:
        self._file_io = file_io
        self._layout = layout
        self._known: OrderedDict[int, Snapshot] = OrderedDict()
        self._newest: Snapshot | None = None

    def __getstate__(self) -> dict[str, Any]:
        return {
            "_file_io": self._file_io,
            "_layout": self._layout,
            "_known": OrderedDict(),
            "_newest": None,
        }

    def latest_id(self) -> int | None:
        """Id of the newest snapshot, or None on a table without snapshots."""
        hint = read_hint(self._file_io, self._layout.latest_hint)
        if hint is not None and self.exists(hint):
            for candidate in range(hint, hint + _PROBES):
                if not self.exists(candidate + 1):
                    return candidate
        return max(self.ids(), default=None)

    def earliest_id(self) -> int | None:
        """Id of the oldest snapshot, or None on a table without snapshots."""
        hint = read_hint(self._file_io, self._layout.earliest_hint)
        if hint is not None and self.exists(hint):
            return hint
        return min(self.ids(), default=None)

    def exists(self, snapshot_id: int) -> bool:
        """Whether the snapshot's file is there."""
        return self._file_io.is_file(self._layout.snapshot_file(snapshot_id))

    def ids(self) -> list[int]:
        """All snapshot ids, ascending, by listing; other files in the directory do not count."""
        return listed_ids(self._file_io, self._layout.snapshot_dir, _PREFIX)

    def read(self, snapshot_id: int) -> Snapshot:
        """The snapshot of that id, as the store has it now.

        Raises:
            NotFoundError: it never was, has expired, or was taken back.
            CorruptDataError: its file is damaged.
        """
        path = self._layout.snapshot_file(snapshot_id)
        try:
            snapshot = read_document(self._file_io, path, Snapshot.from_json)
        except FileNotFoundError as error:
            self._known.pop(snapshot_id, None)
            raise NotFoundError(
                "no such snapshot",
                detail=f"{snapshot_id} is out of available snapshotId range",
                id=snapshot_id,
                table=self._layout.root,
                hint="it may have expired; list the snapshots that are left",
            ) from error
        if snapshot.id != snapshot_id:
            raise CorruptDataError(
                "a snapshot file holds another snapshot",
                path=path,
                expected=snapshot_id,
                found=snapshot.id,
            )
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

        More and more are read at a time, so that a walk that ends early has read little in vain.

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

        What is missing or wrong is left for `recall` to tell.
        """
        absent = [one for one in snapshot_ids if one not in self._known][:_REMEMBERED]
        if len(absent) < 2:
            return
        paths = [self._layout.snapshot_file(one) for one in absent]
        found = read_present(self._file_io, paths)
        for snapshot_id, path, data in zip(absent, paths, found, strict=True):
            with contextlib.suppress(CorruptDataError):
                if data is not None:
                    snapshot = parse_document(data, path, Snapshot.from_json)
                    if snapshot.id == snapshot_id:
                        self._remember(snapshot)

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
        path = self._layout.snapshot_file(snapshot.id)
        return self._file_io.put_if_absent(path, snapshot.to_json())

    def announce(self, snapshot: Snapshot) -> None:
        """The second half of `publish`: point the hints at a snapshot that is there."""
        self._newest = self._remember(snapshot)
        write_hint(self._file_io, self._layout.latest_hint, snapshot.id)
        if snapshot.id == 1:
            write_hint(self._file_io, self._layout.earliest_hint, snapshot.id)

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

    def write_earliest_hint(self, snapshot_id: int) -> None:
        """Record the oldest snapshot left after expiry; best effort."""
        write_hint(self._file_io, self._layout.earliest_hint, snapshot_id)

    def move_latest_hint(self, snapshot_id: int | None) -> None:
        """Point LATEST at an older snapshot before newer ones are taken back; None removes it.

        Unlike other writing of hints this must not fail silently: other readers believe a LATEST
        whose successor does not exist.

        Raises:
            StorageUnavailableError: the store did not answer.
        """
        if snapshot_id is None:
            self._file_io.delete(self._layout.latest_hint)
        else:
            self._file_io.overwrite_bytes(self._layout.latest_hint, str(snapshot_id).encode())

    def delete(self, snapshot_id: int) -> bool:
        """Remove a snapshot's file (expiry, rollback). False when it was not there."""
        self._known.pop(snapshot_id, None)
        return self._file_io.delete(self._layout.snapshot_file(snapshot_id))

    def _is_below(self, before: Snapshot, newest: Snapshot) -> bool:
        """Whether what was the newest is still part of the history."""
        return before.id < newest.id and self.read_again(before.id) == before

    def _remember(self, snapshot: Snapshot) -> Snapshot:
        self._known[snapshot.id] = snapshot
        while len(self._known) > _REMEMBERED:
            self._known.pop(next(iter(self._known), 0), None)
        return snapshot
