# SPDX-License-Identifier: Apache-2.0
"""Which snapshots a table has, which is newest, and how a new one becomes visible.

Source: FORMAT.md §3.3 (hints) and §11.5 (publishing). The hint files `LATEST` and `EARLIEST` may
be absent, stale or wrong: they only save a listing and are checked before use.
"""

from collections import OrderedDict
from typing import Any

from storage.errors import NotFoundError, StorageUnavailableError
from storage.format.layout import TableLayout
from storage.format.snapshot import Snapshot
from storage.io.file_io import FileIO

__all__ = ["SnapshotStore"]

_PREFIX = "snapshot-"
_CACHED_SNAPSHOTS = 256
"""Parsed documents kept in memory: more than the snapshots one scan or expiry walks over."""

_PROBES = 8
"""Steps a stale LATEST is followed before listing: one existence check each."""


class SnapshotStore:
    """Snapshots of one table or branch. Picklable; the cache does not travel.

    A snapshot file never changes, so `read` keeps what it has seen. A store must not outlive a
    rollback of its table, which lets ids name new documents; make a new one then.

    Args:
        file_io: the store of bytes.
        layout: paths of the table or branch.
    """

    def __init__(self, file_io: FileIO, layout: TableLayout) -> None:
        self._file_io = file_io
        self._layout = layout
        self._cache: OrderedDict[int, Snapshot] = OrderedDict()

    def __getstate__(self) -> dict[str, Any]:
        return {"_file_io": self._file_io, "_layout": self._layout, "_cache": OrderedDict()}

    def latest_id(self) -> int | None:
        """Id of the newest snapshot, or None on a table without snapshots."""
        hint = self._hint(self._layout.latest_hint)
        if hint is not None and self.exists(hint):
            for candidate in range(hint, hint + _PROBES):
                if not self.exists(candidate + 1):
                    return candidate
        return max(self.ids(), default=None)

    def earliest_id(self) -> int | None:
        """Id of the oldest snapshot, or None on a table without snapshots."""
        hint = self._hint(self._layout.earliest_hint)
        if hint is not None and self.exists(hint):
            return hint
        return min(self.ids(), default=None)

    def exists(self, snapshot_id: int) -> bool:
        """Whether the snapshot's file is there."""
        return self._file_io.exists(self._layout.snapshot_file(snapshot_id))

    def ids(self) -> list[int]:
        """All snapshot ids, ascending, by listing."""
        names = (status.name for status in self._file_io.list(self._layout.snapshot_dir))
        return sorted(
            int(name.removeprefix(_PREFIX))
            for name in names
            if name.startswith(_PREFIX) and _decimal(name.removeprefix(_PREFIX))
        )

    def read(self, snapshot_id: int) -> Snapshot:
        """The snapshot of that id.

        Raises:
            NotFoundError: it never was, or has expired.
            CorruptDataError: its file is damaged.
        """
        cached = self._cache.get(snapshot_id)
        if cached is not None:
            return cached
        try:
            data = self._file_io.read_bytes(self._layout.snapshot_file(snapshot_id))
        except FileNotFoundError as error:
            raise NotFoundError(
                "no such snapshot",
                detail=f"{snapshot_id} is out of available snapshotId range",
                id=snapshot_id,
                table=self._layout.root,
                hint="it may have expired; list the snapshots that are left",
            ) from error
        return self._remember(Snapshot.from_json(data))

    def latest(self) -> Snapshot | None:
        """The newest snapshot, or None on a table without snapshots."""
        newest = self.latest_id()
        return None if newest is None else self.read(newest)

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
        self._remember(snapshot)
        self._write_hint(self._layout.latest_hint, snapshot.id)
        if snapshot.id == 1:
            self._write_hint(self._layout.earliest_hint, snapshot.id)

    def read_again(self, snapshot_id: int) -> Snapshot | None:
        """The snapshot as the store has it now, past the cache; None when there is none."""
        self._cache.pop(snapshot_id, None)
        try:
            return self.read(snapshot_id)
        except NotFoundError:
            return None

    def write_earliest_hint(self, snapshot_id: int) -> None:
        """Record the oldest snapshot left after expiry; best effort."""
        self._write_hint(self._layout.earliest_hint, snapshot_id)

    def delete(self, snapshot_id: int) -> bool:
        """Remove a snapshot's file (expiry, rollback). False when it was not there."""
        self._cache.pop(snapshot_id, None)
        return self._file_io.delete(self._layout.snapshot_file(snapshot_id))

    def _remember(self, snapshot: Snapshot) -> Snapshot:
        self._cache[snapshot.id] = snapshot
        while len(self._cache) > _CACHED_SNAPSHOTS:
            self._cache.popitem(last=False)
        return snapshot

    def _hint(self, path: str) -> int | None:
        try:
            text = self._file_io.read_bytes(path).strip()
        except FileNotFoundError:
            return None
        decoded = text.decode("ascii", "replace")
        return int(decoded) if _decimal(decoded) and int(decoded) > 0 else None

    def _write_hint(self, path: str, snapshot_id: int) -> None:
        try:
            self._file_io.overwrite_bytes(path, str(snapshot_id).encode())
        except (StorageUnavailableError, OSError):
            return  # readers fall back to probing and listing


def _decimal(text: str) -> bool:
    return text.isascii() and text.isdigit() and len(text) <= len(str(2**63))
