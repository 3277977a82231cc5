# SPDX-License-Identifier: Apache-2.0
"""Removing the files that only expired snapshots, or expired long-lived changelogs, name.

Source: SEMANTICS.md §F.7, §F.8, FORMAT.md §11.6. What is kept for certain: everything that a kept
snapshot, a tag or a branch names, and what readers of kept changelogs need. Data, changelog and
index files go first, then what describes them, so that a pass can stop anywhere.
"""

import contextlib
import dataclasses
import itertools
from collections.abc import Iterable, Iterator, Sequence

from storage.errors import NotFoundError
from storage.format.metadata.file_meta import FileKind, FileSource, ManifestEntry
from storage.format.metadata.manifest import ManifestFileMeta
from storage.format.metadata.snapshot import CommitKind, Snapshot
from storage.table.core import TableCore
from storage.table.retention.reachability import (
    DataFile,
    Removal,
    data_files,
    listed_entries,
    live_among,
    other_documents,
    readable_tags,
)

__all__ = ["ExpiredFiles", "Scope"]

_TOGETHER = 64
"""Most snapshots read at a time."""


@dataclasses.dataclass(frozen=True, slots=True)
class Scope:
    """What goes now, of all that only expired snapshots name.

    Attributes:
        appended: data files that commits appended, once they are replaced; files that compaction
            wrote go with `data_lists`, or before.
        data_lists: the lists of data files and their manifests.
        changelog: changelog files, their lists and manifests.
        state: what only the whole state needs: files that compaction wrote, index files, index
            manifests and statistics.
    """

    appended: bool = True
    data_lists: bool = True
    changelog: bool = True
    state: bool = True


@dataclasses.dataclass(kw_only=True)
class ExpiredFiles:
    """Removes what only some snapshots name.

    Attributes:
        table: the table.
        expired: snapshots that expire, ascending.
        removing: snapshots that removed the data files that go, ascending.
        stop: oldest snapshot that stays.
        latest: newest id.
        scope: what goes.
        changelogs: long-lived changelogs that stay and whose lists `expired` could name.
    """

    table: TableCore
    expired: Sequence[Snapshot]
    removing: Sequence[Snapshot]
    stop: Snapshot
    latest: int
    scope: Scope
    changelogs: Sequence[Snapshot] = ()

    def run(self) -> None:
        """Find the files and remove them."""
        tags = [tag.snapshot for tag in readable_tags(self.table, self.table.layout)]
        others = other_documents(self.table)
        self._preload([self.stop, *tags, *(one for other in others for one in other.states)])
        removal = Removal(self.table, self._replaced(tags))
        scope = self.scope
        for snapshot in self.expired:
            removal.add(
                snapshot, lists=scope.data_lists, changelog=scope.changelog, state=scope.state
            )
        for snapshot in (self.stop, *tags):
            removal.keep_metadata(snapshot)
        for snapshot in self._overwrites() if removal.index else ():
            removal.keep_index(snapshot)
        for changelog in self.changelogs:
            removal.keep_lists(changelog.lists)
        for other in others:
            removal.keep_branch(other)
        removal.run()

    def _preload(self, kept: Iterable[Snapshot]) -> None:
        """Read together what is needed for certain; whatever is missing shows later."""
        store = self.table.manifests
        asked = (*self.expired, *kept)
        store.preload_lists(itertools.chain.from_iterable(one.lists for one in asked))
        metas: list[ManifestFileMeta] = []
        for one in (*self.expired, *self.removing[-1:]):
            for name, size in one.lists[1:]:
                with contextlib.suppress(FileNotFoundError):
                    metas += store.read_list(name, size)
        store.preload_manifests(metas)

    def _replaced(self, tags: Sequence[Snapshot]) -> set[DataFile]:
        """Files removed from the state, which nothing that stays in the branch names."""
        removed_by, complete = self._removed_by()
        if not removed_by:
            return set()
        kept: set[DataFile] = set()
        if not complete:  # a former pass was cut off: ask the state itself
            kept |= live_among(self.table, self.stop, removed_by.keys())
        for snapshot in self._overwrites():
            kept.update(_added(self._delta(snapshot) or ()))
        # a file that some tag names is also named by the newest tag before its removal
        for tag, end in zip(tags, (*(tag.id for tag in tags[1:]), self.latest + 1), strict=False):
            asked = {file for file, removed in removed_by.items() if tag.id < removed <= end}
            kept |= live_among(self.table, tag, asked)
        return set(removed_by) - kept

    def _removed_by(self) -> tuple[dict[DataFile, int], bool]:
        """The id of the snapshot that removed each file, and whether all deltas were there."""
        removed_by: dict[DataFile, int] = {}
        complete = self.scope.state  # changelogs: snapshots in between may have restored files
        for snapshot in self.removing:
            entries = self._delta(snapshot)
            complete = complete and entries is not None
            for entry in entries or ():
                if entry.kind is FileKind.DELETE and (self.scope.appended or _compacted(entry)):
                    removed_by.update(dict.fromkeys(data_files((entry,)), snapshot.id))
            for file in _added(entries or ()):  # an upgrade removes and adds one file
                removed_by.pop(file, None)
        return removed_by, complete

    def _delta(self, snapshot: Snapshot) -> list[ManifestEntry] | None:
        """What a snapshot changed; None where a former pass has removed it already."""
        try:
            return listed_entries(self.table, snapshot.lists[1])
        except FileNotFoundError:
            return None

    def _overwrites(self) -> Iterator[Snapshot]:
        """Snapshots after `stop` that could have brought files back."""
        later = range(self.stop.id + 1, self.latest + 1)
        for number, snapshot_id in enumerate(later):
            if number % _TOGETHER == 0:
                self.table.snapshots.preload(later[number : number + _TOGETHER])
            try:
                snapshot = self.table.snapshots.recall(snapshot_id)
            except NotFoundError:
                continue
            if snapshot.commit_kind is CommitKind.OVERWRITE:
                yield snapshot


def _compacted(entry: ManifestEntry) -> bool:
    """Whether compaction wrote the file; old writers do not say."""
    return entry.file.file_source == FileSource.COMPACT


def _added(entries: Iterable[ManifestEntry]) -> Iterator[DataFile]:
    return data_files(entry for entry in entries if entry.kind is FileKind.ADD)
