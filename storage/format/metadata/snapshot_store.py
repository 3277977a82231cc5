# SPDX-License-Identifier: Apache-2.0
"""Which snapshots a table has, which is newest, and how a new one becomes visible.

Source: FORMAT.md §3.3 (hints) and §11.5 (publishing). The hint files `LATEST` and `EARLIEST` may
be absent, stale or wrong: they only save a listing and are checked before use.

A snapshot file is not changed by commits and expiry, but a rollback or a fast-forward lets an id
name another document later. So `read` always asks the store. Documents read are cached for
walks over many snapshots (`recall`), together with the newest of them: as long as that one is
unchanged in the store no id below it can have changed either, because snapshots are rolled back
from the newest down. `latest` compares it, and so does every `read`; a difference
clears the cache.
"""

import contextlib
import itertools
from collections.abc import Iterable, Iterator
from typing import Any, ClassVar

from storage.errors import CorruptDataError, NotFoundError, StorageUnavailableError
from storage.format.metadata.documents import parse_document, read_document
from storage.format.metadata.layout import TableLayout
from storage.format.metadata.snapshot import Snapshot
from storage.io.file_io import FileIO, FileStatus, read_present


def listed_files(file_io: FileIO, directory: str, prefix: str) -> dict[int, FileStatus]:
    """The files of a directory by their ids; other files do not count."""
    numbered = {}
    for status in file_io.list(directory):
        text = status.name.removeprefix(prefix)
        if status.name.startswith(prefix) and _decimal(text):
            numbered[int(text)] = status
    return numbered


def listed_ids(file_io: FileIO, directory: str, prefix: str) -> list[int]:
    """Ids of the files of a directory, ascending; other files do not count."""
    return sorted(listed_files(file_io, directory, prefix))


def read_hint(file_io: FileIO, path: str) -> int | None:
    """The id in a hint, or None when there is no valid one."""
    try:
        text = file_io.read_bytes(path).strip()
    except FileNotFoundError:
        return None
    decoded = text.decode("ascii", "replace")
    return int(decoded) if _decimal(decoded) and int(decoded) > 0 else None


def write_hint(file_io: FileIO, path: str, number: int) -> None:
    """Record an id; best effort, for readers fall back to probing and listing."""
    try:
        file_io.overwrite_hint(path, str(number).encode())
    except (StorageUnavailableError, OSError):
        return


def _decimal(text: str) -> bool:
    digits = text.isascii() and text.isdigit() and len(text) <= len(str(2**63))
    return digits and str(int(text)) == text


class SnapshotFiles:
    """Snapshot documents of one directory: listing, reading, removing. Picklable."""

    kind: ClassVar[str]
    """Name of a document and of the files, such as `snapshot`."""

    missing_hint: ClassVar[str]
    """What to do when one is missing."""

    probes: ClassVar[int]
    """Steps a stale LATEST is followed before listing: one existence check each."""

    def __init__(self, file_io: FileIO, layout: TableLayout) -> None:
        self._file_io = file_io
        self._layout = layout
        self.directory = layout.numbered_dir(self.kind)
        """Where the documents are."""
        self.hints = f"{self.directory}/LATEST", f"{self.directory}/EARLIEST"

    def __reduce__(self) -> tuple[Any, ...]:
        return type(self), (self._file_io, self._layout)

    def path(self, snapshot_id: int) -> str:
        """The file of an id."""
        return self._layout.numbered_file(self.kind, snapshot_id)

    def latest_id(self) -> int | None:
        """The newest id, or None when there is none."""
        hint = read_hint(self._file_io, self.hints[0])
        if hint is not None and self.exists(hint):
            for candidate in range(hint, hint + self.probes):
                if not self.exists(candidate + 1):
                    return candidate
        return max(self.ids(), default=None)

    def earliest_id(self) -> int | None:
        """The oldest id, or None when there is none."""
        hint = read_hint(self._file_io, self.hints[1])
        if hint is not None and self.exists(hint):
            return hint
        return min(self.ids(), default=None)

    def exists(self, snapshot_id: int) -> bool:
        """Whether the file of an id exists."""
        return self._file_io.is_file(self.path(snapshot_id))

    def ids(self) -> list[int]:
        """All ids, ascending, by listing; other files in the directory do not count."""
        return listed_ids(self._file_io, self.directory, f"{self.kind}-")

    def read(self, snapshot_id: int) -> Snapshot:
        """The document of that id, as the store has it now.

        Raises:
            NotFoundError: it never was, has expired, or was rolled back.
            CorruptDataError: its file is damaged.
        """
        path = self.path(snapshot_id)
        try:
            snapshot = read_document(self._file_io, path, Snapshot.from_json)
        except FileNotFoundError as error:
            raise NotFoundError(
                f"no such {self.kind}",
                detail=f"{snapshot_id} is out of available snapshotId range",
                id=snapshot_id,
                table=self._layout.root,
                hint=self.missing_hint,
            ) from error
        return self._checked(snapshot, snapshot_id)

    def parse(self, snapshot_id: int, data: bytes) -> Snapshot:
        """The same of bytes that were read already.

        Raises:
            CorruptDataError: as `read`.
        """
        snapshot = parse_document(data, self.path(snapshot_id), Snapshot.from_json)
        return self._checked(snapshot, snapshot_id)

    def delete(self, snapshot_id: int) -> bool:
        """Remove a file (expiry, rollback). False when it did not exist."""
        return self._file_io.delete(self.path(snapshot_id))

    def write_latest_hint(self, snapshot_id: int) -> None:
        """Record the newest id, after its file was written; best effort."""
        write_hint(self._file_io, self.hints[0], snapshot_id)

    def write_earliest_hint(self, snapshot_id: int) -> None:
        """Record the oldest id that is left after expiry; best effort."""
        write_hint(self._file_io, self.hints[1], snapshot_id)

    def move_latest_hint(self, snapshot_id: int | None) -> None:
        """Point LATEST at an older id before newer files are removed; None: none is left.

        Unlike other writing of hints this must not fail silently: other readers trust a LATEST
        whose successor does not exist.

        Raises:
            StorageUnavailableError: the store did not answer.
        """
        if snapshot_id is None:
            self._file_io.delete(self.hints[0])
        else:
            self._file_io.overwrite_bytes(self.hints[0], str(snapshot_id).encode())

    def _checked(self, snapshot: Snapshot, snapshot_id: int) -> Snapshot:
        if snapshot.id != snapshot_id:
            raise CorruptDataError(
                f"a {self.kind} file holds another {self.kind}",
                path=self.path(snapshot_id),
                expected=snapshot_id,
                found=snapshot.id,
            )
        return snapshot


_REMEMBERED = 1024
"""Parsed documents kept in memory: more than the snapshots one expiry walks over."""

_BATCH_SIZE = 16
"""Most documents that a walk reads at a time."""


class SnapshotStore(SnapshotFiles):
    """Snapshots of one table or branch; arguments as of `SnapshotFiles`.

    A pickled copy starts with an empty cache.
    """

    kind = "snapshot"
    missing_hint = "it may have expired; list the snapshots that are left"
    probes = 8

    def __init__(self, file_io: FileIO, layout: TableLayout) -> None:
        super().__init__(file_io, layout)
        self._snapshots: dict[int, Snapshot] = {}
        self._newest: Snapshot | None = None

    def read(self, snapshot_id: int) -> Snapshot:
        """See `SnapshotFiles`; clears the cache when the document has changed."""
        try:
            snapshot = super().read(snapshot_id)
        except NotFoundError:
            self._snapshots.pop(snapshot_id, None)
            raise
        if self._snapshots.get(snapshot_id, snapshot) != snapshot:
            self.forget()
        return self._remember(snapshot)

    def recall(self, snapshot_id: int) -> Snapshot:
        """The same from memory where possible; for walks below a snapshot that `latest` returned.

        Raises: as `read`.
        """
        cached = self._snapshots.get(snapshot_id)
        return self.read(snapshot_id) if cached is None else cached

    def recall_many(self, snapshot_ids: Iterable[int]) -> Iterator[Snapshot]:
        """Several as from `recall`, in the order asked; those not cached are read together.

        Batches grow, so that a walk that ends early has read little too much.

        Raises:
            NotFoundError: a snapshot is missing when its turn comes, as from `recall`.
        """
        pending = iter(snapshot_ids)
        size = 1
        while batch := list(itertools.islice(pending, size)):
            self.preload(batch)
            for snapshot_id in batch:
                yield self.recall(snapshot_id)
            size = min(2 * size, _BATCH_SIZE)

    def preload(self, snapshot_ids: Iterable[int]) -> None:
        """Cache snapshots that `recall` is asked for next, read together.

        What is missing or damaged is left for `recall` to report.
        """
        absent = [number for number in snapshot_ids if number not in self._snapshots][:_REMEMBERED]
        if len(absent) < 2:
            return
        contents = read_present(self._file_io, [self.path(number) for number in absent])
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
        """Make a snapshot visible unless another writer has its id; whether this call published it.

        Hints are written afterwards at best effort: once the snapshot file exists the commit
        has happened, so a failing hint does not fail it.

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
        """The second half of `publish`: point the hints at a snapshot that exists."""
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
        """Clear the cache: ids may name other snapshots from now on."""
        self._snapshots.clear()
        self._newest = None

    def delete(self, snapshot_id: int) -> bool:
        """See `SnapshotFiles`."""
        self._snapshots.pop(snapshot_id, None)
        return super().delete(snapshot_id)

    def _is_below(self, before: Snapshot, newest: Snapshot) -> bool:
        """Whether the former newest one is still part of the history."""
        return before.id < newest.id and self.read_again(before.id) == before

    def _remember(self, snapshot: Snapshot) -> Snapshot:
        self._snapshots[snapshot.id] = snapshot
        while len(self._snapshots) > _REMEMBERED:
            self._snapshots.pop(next(iter(self._snapshots), 0), None)
        return snapshot


class ChangelogStore(SnapshotFiles):
    """Long-lived changelogs of one table or branch; arguments as of `SnapshotFiles`."""

    kind = "changelog"
    missing_hint = "it may have expired; a consumer keeps what it has not read"
    probes = 1

    def read_many(self, snapshot_ids: Iterable[int]) -> Iterator[Snapshot]:
        """Several, read together; missing ones are left out.

        Raises:
            CorruptDataError: one is damaged.
        """
        ids = list(snapshot_ids)
        contents = read_present(self._file_io, [self.path(number) for number in ids])
        for snapshot_id, data in zip(ids, contents, strict=True):
            if data is not None:
                yield self.parse(snapshot_id, data)

    def write(self, snapshot: Snapshot) -> None:
        """Keep the changelog of a snapshot that is about to expire; idempotent.

        Raises:
            StorageUnavailableError: it is unknown whether it is kept.
        """
        self._file_io.overwrite_bytes(self.path(snapshot.id), snapshot.to_json())

    def move_latest_hint(self, snapshot_id: int | None) -> None:
        """See `SnapshotFiles`; also removes EARLIEST when none is left."""
        super().move_latest_hint(snapshot_id)
        if snapshot_id is None:
            self._file_io.delete(self.hints[1])
