# SPDX-License-Identifier: Apache-2.0
"""Long-lived changelogs: what is left of snapshots that expired while their changes are kept.

Source: FORMAT.md §8.2. `changelog/changelog-<id>` is the JSON of snapshot `<id>`, written right
before the snapshot's file goes, so a reader that looks for the snapshot first and for the
changelog then finds one of them. Of the lists that it names only some are still there: the
changelog list, and of a table without changelog producer the delta list.

There are gaps between the ids where changelogs were not kept, so a stale LATEST is not followed.
"""

from collections.abc import Iterable, Iterator

from storage.format.metadata.numbered_files import SnapshotFiles
from storage.format.metadata.snapshot import Snapshot
from storage.io.file_io import read_present

__all__ = ["ChangelogStore"]


class ChangelogStore(SnapshotFiles):
    """Long-lived changelogs of one table or branch; arguments as of `SnapshotFiles`."""

    kind = "changelog"
    missing_hint = "it may have expired; a consumer keeps what it has not read"
    probes = 1

    @property
    def directory(self) -> str:
        """See `SnapshotFiles`."""
        return self._layout.changelog_dir

    @property
    def hints(self) -> tuple[str, str]:
        """See `SnapshotFiles`."""
        return self._layout.changelog_latest_hint, self._layout.changelog_earliest_hint

    def path(self, snapshot_id: int) -> str:
        """See `SnapshotFiles`."""
        return self._layout.changelog_file(snapshot_id)

    def read_many(self, snapshot_ids: Iterable[int]) -> Iterator[Snapshot]:
        """Several, read together; missing ones are left out.

        Raises:
            CorruptDataError: one is damaged.
        """
        ids = list(snapshot_ids)
        contents = read_present(self._file_io, [self.path(one) for one in ids])
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
        """See `SnapshotFiles`; EARLIEST goes, too, when none is left."""
        super().move_latest_hint(snapshot_id)
        if snapshot_id is None:
            self._file_io.delete(self.hints[1])
