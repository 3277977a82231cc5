# SPDX-License-Identifier: Apache-2.0
"""Long-lived changelogs: what is left of snapshots that expired while their changes are kept.

Source: FORMAT.md §8.2. `changelog/changelog-<id>` is the JSON of snapshot `<id>`, written right
before the snapshot's file goes, so a reader that looks for the snapshot first and for the
changelog then finds one of them. Of the lists that it names only some are still there: the
changelog list, and of a table without changelog producer the delta list.

The hints may be absent, stale or wrong. Other readers believe a LATEST whose successor does not
exist, so it is moved down before what it names goes (`move_latest_hint`).
"""

from collections.abc import Iterable, Iterator

from storage.errors import CorruptDataError, NotFoundError
from storage.format.metadata.documents import parse_document, read_document
from storage.format.metadata.layout import TableLayout
from storage.format.metadata.numbered_files import listed_ids, read_hint, write_hint
from storage.format.metadata.snapshot import Snapshot
from storage.io.file_io import FileIO, read_present

__all__ = ["ChangelogStore"]

_PREFIX = "changelog-"


class ChangelogStore:
    """Long-lived changelogs of one table or branch. Picklable, remembers nothing.

    Args:
        file_io: the store of bytes.
        layout: paths of the table or branch.
    """

    def __init__(self, file_io: FileIO, layout: TableLayout) -> None:
        self._file_io = file_io
        self._layout = layout

    def latest_id(self) -> int | None:
        """Id of the newest long-lived changelog, or None when there is none."""
        hint = read_hint(self._file_io, self._layout.changelog_latest_hint)
        if hint is not None and self.exists(hint) and not self.exists(hint + 1):
            return hint
        return max(self.ids(), default=None)

    def earliest_id(self) -> int | None:
        """Id of the oldest long-lived changelog, or None when there is none."""
        hint = read_hint(self._file_io, self._layout.changelog_earliest_hint)
        if hint is not None and self.exists(hint):
            return hint
        return min(self.ids(), default=None)

    def exists(self, snapshot_id: int) -> bool:
        """Whether the changelog of a snapshot is there."""
        return self._file_io.is_file(self._layout.changelog_file(snapshot_id))

    def ids(self) -> list[int]:
        """All ids, ascending, by listing. There are gaps where changelogs were not kept."""
        return listed_ids(self._file_io, self._layout.changelog_dir, _PREFIX)

    def read(self, snapshot_id: int) -> Snapshot:
        """The expired snapshot whose changelog is kept.

        Raises:
            NotFoundError: there is none of that id (any more).
            CorruptDataError: its file is damaged.
        """
        path = self._layout.changelog_file(snapshot_id)
        try:
            changelog = read_document(self._file_io, path, Snapshot.from_json)
        except FileNotFoundError as error:
            raise NotFoundError(
                "no such changelog",
                id=snapshot_id,
                table=self._layout.root,
                hint="it may have expired; a consumer keeps what it has not read",
            ) from error
        return _checked(changelog, snapshot_id, path)

    def read_many(self, snapshot_ids: Iterable[int]) -> Iterator[Snapshot]:
        """Several, read together; those that are gone are left out.

        Raises:
            CorruptDataError: one is damaged.
        """
        asked = list(snapshot_ids)
        paths = [self._layout.changelog_file(one) for one in asked]
        found = read_present(self._file_io, paths)
        for snapshot_id, path, data in zip(asked, paths, found, strict=True):
            if data is not None:
                changelog = parse_document(data, path, Snapshot.from_json)
                yield _checked(changelog, snapshot_id, path)

    def write(self, snapshot: Snapshot) -> None:
        """Keep the changelog of a snapshot that is about to go; again is no harm.

        Raises:
            StorageUnavailableError: it is unknown whether it is kept.
        """
        path = self._layout.changelog_file(snapshot.id)
        self._file_io.overwrite_bytes(path, snapshot.to_json())

    def delete(self, snapshot_id: int) -> bool:
        """Remove one. False when it was not there."""
        return self._file_io.delete(self._layout.changelog_file(snapshot_id))

    def write_latest_hint(self, snapshot_id: int) -> None:
        """Record the newest one, after it was written; best effort."""
        write_hint(self._file_io, self._layout.changelog_latest_hint, snapshot_id)

    def write_earliest_hint(self, snapshot_id: int) -> None:
        """Record the oldest one left; best effort."""
        write_hint(self._file_io, self._layout.changelog_earliest_hint, snapshot_id)

    def move_latest_hint(self, snapshot_id: int | None) -> None:
        """Point LATEST at an older one before newer ones are taken back; None: none is left.

        Raises:
            StorageUnavailableError: the store did not answer.
        """
        if snapshot_id is None:
            self._file_io.delete(self._layout.changelog_latest_hint)
            self._file_io.delete(self._layout.changelog_earliest_hint)
        else:
            latest = self._layout.changelog_latest_hint
            self._file_io.overwrite_bytes(latest, str(snapshot_id).encode())


def _checked(changelog: Snapshot, snapshot_id: int, path: str) -> Snapshot:
    if changelog.id != snapshot_id:
        raise CorruptDataError(
            "a changelog file holds the changelog of another snapshot",
            path=path,
            expected=snapshot_id,
            found=changelog.id,
        )
    return changelog
