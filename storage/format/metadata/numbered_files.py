# SPDX-License-Identifier: Apache-2.0
"""Directories of documents `<prefix><id>`, and of snapshots with the hints LATEST and EARLIEST.

Source: FORMAT.md §3.3. A hint holds an id as decimal text; it may be absent, stale or wrong. It
only saves a listing and is checked before use.
"""

import abc
from typing import Any, ClassVar

from storage.errors import CorruptDataError, NotFoundError, StorageUnavailableError
from storage.format.metadata.documents import parse_document, read_document
from storage.format.metadata.layout import TableLayout
from storage.format.metadata.snapshot import Snapshot
from storage.io.file_io import FileIO, FileStatus

__all__ = ["SnapshotFiles", "listed_files", "listed_ids", "read_hint", "write_hint"]


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
        file_io.overwrite_bytes(path, str(number).encode())
    except (StorageUnavailableError, OSError):
        return


def _decimal(text: str) -> bool:
    digits = text.isascii() and text.isdigit() and len(text) <= len(str(2**63))
    return digits and str(int(text)) == text


class SnapshotFiles(abc.ABC):
    """Snapshot documents of one directory: which there are, reading and removing them. Picklable.

    Args:
        file_io: the store of bytes.
        layout: paths of the table or branch.
    """

    kind: ClassVar[str]
    """Name of a document and of the files, such as `snapshot`."""

    missing_hint: ClassVar[str]
    """What to do when one is missing."""

    probes: ClassVar[int]
    """Steps a stale LATEST is followed before listing: one existence check each."""

    def __init__(self, file_io: FileIO, layout: TableLayout) -> None:
        self._file_io = file_io
        self._layout = layout

    def __reduce__(self) -> tuple[Any, ...]:
        return type(self), (self._file_io, self._layout)

    @property
    @abc.abstractmethod
    def directory(self) -> str:
        """Where the documents are."""

    @property
    @abc.abstractmethod
    def hints(self) -> tuple[str, str]:
        """The files LATEST and EARLIEST."""

    @abc.abstractmethod
    def path(self, snapshot_id: int) -> str:
        """The file of an id."""

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
        """Whether the file of an id is there."""
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
        """Remove a file (expiry, rollback). False when it was not there."""
        return self._file_io.delete(self.path(snapshot_id))

    def write_latest_hint(self, snapshot_id: int) -> None:
        """Record the newest id, after its file was written; best effort."""
        write_hint(self._file_io, self.hints[0], snapshot_id)

    def write_earliest_hint(self, snapshot_id: int) -> None:
        """Record the oldest id that is left after expiry; best effort."""
        write_hint(self._file_io, self.hints[1], snapshot_id)

    def move_latest_hint(self, snapshot_id: int | None) -> None:
        """Point LATEST at an older id before newer files are removed; None: none is left.

        Unlike other writing of hints this must not fail silently: other readers believe a LATEST
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
