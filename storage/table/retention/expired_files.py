# SPDX-License-Identifier: Apache-2.0
"""Removing the files that only expired snapshots, or expired long-lived changelogs, name.

Source: SEMANTICS.md §F.7, §F.8, FORMAT.md §11.6. What is kept for certain: everything that a kept
snapshot, a tag or a branch names, and what readers of kept changelogs need. Data, changelog and
index files go first, then what describes them, so that a pass can stop anywhere.
"""

import contextlib
import dataclasses
import itertools
from collections.abc import Iterable, Iterator, Mapping, Sequence

from storage.errors import CorruptDataError, NotFoundError
from storage.format.metadata.file_meta import FileKind, FileSource, ManifestEntry
from storage.format.metadata.layout import TableLayout
from storage.format.metadata.manifest import ManifestFileMeta, fold
from storage.format.metadata.snapshot import CommitKind, Snapshot
from storage.io.file_io import read_present
from storage.table.commit.index_files import index_entries, index_path
from storage.table.commit.live_files import list_entries, live_state
from storage.table.core import TableCore
from storage.table.retention.references import branches_kept, changelog_names

__all__ = ["ExpiredFiles", "Scope"]

_File = tuple[bytes, int, str]
"""Framed partition, bucket, name."""

_TAG = "tag-"

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


class ExpiredFiles:
    """Removing what only some snapshots name.

    Args:
        table: the table.
        gone: snapshots that expire, ascending.
        removing: snapshots that removed the data files that go, ascending.
        stop: oldest snapshot that stays.
        latest: newest id.
        scope: what goes.
        changelogs: long-lived changelogs that stay and whose lists `gone` could name.
    """

    def __init__(
        self,
        table: TableCore,
        gone: Sequence[Snapshot],
        removing: Sequence[Snapshot],
        stop: Snapshot,
        latest: int,
        scope: Scope,
        changelogs: Sequence[Snapshot] = (),
    ) -> None:
        self._table = table
        self._gone = gone
        self._removing = removing
        self._stop = stop
        self._latest = latest
        self._scope = scope
        self._tags = sorted(_tags(table, table.layout), key=lambda tag: tag.id)
        branches = branches_kept(table)
        self._pinned = [*self._tags, *branches.states]
        self._next_changelogs = changelogs
        self._of_branches = [changelog_names(table, one) for one in branches.changelogs]
        readable = (*branches.snapshots, *branches.changelogs)
        self._read_elsewhere = {one.changelog_manifest_list for one in readable}
        # of a pass over changelogs, snapshots in between may have brought files back
        self._complete = scope.state

    def run(self) -> None:
        """Data and changelog files first, then what describes them."""
        self._preload()
        data = self._unneeded_data()
        if self._scope.changelog:
            for snapshot in self._gone:
                data |= {_file(entry) for entry in self._changelog(snapshot)}
        paths = [self._table.data_path(*file) for file in sorted(data)]
        index = self._unneeded_index() if self._scope.state else []
        metadata = self._unneeded_metadata()
        self._table.delete_quietly([*paths, *index])
        self._table.delete_quietly(metadata)

    def _preload(self) -> None:
        """Read together what is needed for certain; whatever is missing shows later."""
        store = self._table.manifests
        asked = [*self._gone, self._stop, *self._pinned]
        store.preload_lists(itertools.chain.from_iterable(one.lists for one in asked))
        metas: list[ManifestFileMeta] = []
        for one in (*self._gone, *self._removing[-1:]):
            for name, size in one.lists[1:]:
                with contextlib.suppress(FileNotFoundError):
                    metas += store.read_list(name, size)
        store.preload_manifests(metas)

    def _unneeded_data(self) -> set[_File]:
        """Files removed from the state, which nothing that stays names."""
        removed_by: dict[_File, int] = {}
        for snapshot in self._removing:
            entries = self._entries(*snapshot.lists[1])
            for entry in entries:
                if entry.kind is FileKind.DELETE and (self._scope.appended or _compacted(entry)):
                    for file in _files(entry):
                        removed_by[file] = snapshot.id
            for entry in entries:  # an upgrade removes and adds one file
                if entry.kind is FileKind.ADD:
                    for file in _files(entry):
                        removed_by.pop(file, None)
        if not removed_by:
            return set()
        for file in self._named_later():
            removed_by.pop(file, None)
        return set(removed_by) - self._pinned_data(removed_by)

    def _named_later(self) -> Iterator[_File]:
        """Files that snapshots after `stop` could have brought back."""
        if not self._complete:  # a former pass was cut off: ask the state itself
            yield from _all_files(live_state(self._table, self._stop).entries())
        for snapshot in self._overwrites():
            yield from _all_files(self._entries(*snapshot.lists[1]))

    def _pinned_data(self, removed_by: Mapping[_File, int]) -> set[_File]:
        """Of some files, those that tags and branches name.

        A file that some tag names is also named by the newest tag before its removal.
        """
        needed: set[_File] = set()
        for number, tag in enumerate(self._tags):
            after = self._tags[number + 1].id if number + 1 < len(self._tags) else self._latest + 1
            asked = {file for file, removed in removed_by.items() if tag.id < removed <= after}
            if asked:
                needed |= asked & set(self._live(tag))
        for snapshot in self._pinned[len(self._tags) :]:
            needed |= set(self._live(snapshot))
        return needed.union(*(files for files, _ in self._of_branches))

    def _live(self, snapshot: Snapshot) -> Iterator[_File]:
        lists = self._table.manifests.read_lists(snapshot.lists[:2])
        metas = itertools.chain.from_iterable(lists)
        return _all_files(fold(list_entries(self._table, metas)))

    def _unneeded_metadata(self) -> list[str]:
        layout = self._table.layout
        kept = (self._stop, *self._pinned)
        used = {name for snapshot in kept for name in self._names(snapshot, strict=True)}
        for changelog in self._next_changelogs:
            used |= set(self._names(changelog, strict=False))
        names = {name for one in self._gone for name in self._going(one)}
        paths = {layout.manifest(name) for name in names - used}
        paths.difference_update(*(paths for _, paths in self._of_branches))
        statistics: set[str | None] = set()
        if self._scope.state:
            statistics = {one.statistics for one in self._gone} - {one.statistics for one in kept}
        return [
            *sorted(paths),
            *(layout.statistics_file(name) for name in sorted(filter(None, statistics))),
        ]

    def _going(self, snapshot: Snapshot) -> Iterator[str]:
        """Names of the manifests and lists of a snapshot that go if nothing else names them."""
        if self._scope.data_lists:
            for name, _ in snapshot.lists[:2]:
                yield from self._listed(name, strict=False)
        if self._scope.changelog and (changelog := self._own_changelog(snapshot)) is not None:
            yield from self._listed(changelog[0], strict=False)
        if self._scope.state and snapshot.index_manifest is not None:
            yield snapshot.index_manifest

    def _unneeded_index(self) -> list[str]:
        """Paths of index files that nothing that stays names."""
        unneeded = {path for one in self._gone for path in self._index_paths(one, strict=False)}
        kept = [self._stop, *self._pinned, *(self._overwrites() if unneeded else ())]
        for snapshot in kept:
            if unneeded:
                unneeded.difference_update(self._index_paths(snapshot, strict=True))
        return sorted(unneeded)

    def _index_paths(self, snapshot: Snapshot, *, strict: bool) -> Iterator[str]:
        try:
            entries = index_entries(self._table, snapshot)
        except FileNotFoundError:
            if strict:
                raise
            return
        for entry in entries:
            if entry.file.external_path is None:
                yield index_path(self._table, entry.partition, entry.bucket, entry.file)

    def _overwrites(self) -> Iterator[Snapshot]:
        """Snapshots after `stop` that could have brought files back."""
        later = range(self._stop.id + 1, self._latest + 1)
        for number, snapshot_id in enumerate(later):
            if number % _TOGETHER == 0:
                self._table.snapshots.preload(later[number : number + _TOGETHER])
            snapshot = self._read(snapshot_id)
            if snapshot is not None and snapshot.commit_kind is CommitKind.OVERWRITE:
                yield snapshot

    def _names(self, snapshot: Snapshot, *, strict: bool) -> Iterator[str]:
        """Manifests of a snapshot, its lists and its index manifest."""
        for name, _ in snapshot.lists[:2]:
            yield from self._listed(name, strict=strict)
        if snapshot.changelog_manifest_list is not None:
            # of a tag that Java kept, it went with its snapshot
            yield from self._listed(snapshot.changelog_manifest_list, strict=False)
        if snapshot.index_manifest is not None:
            yield snapshot.index_manifest

    def _listed(self, name: str, *, strict: bool) -> Iterator[str]:
        """A manifest list and its manifests; manifests are left out when the list is gone."""
        try:
            yield from [meta.file_name for meta in self._table.manifests.read_list(name)]
        except FileNotFoundError:
            if strict:
                raise
        yield name

    def _changelog(self, snapshot: Snapshot) -> list[ManifestEntry]:
        own = self._own_changelog(snapshot)
        return [] if own is None else self._entries(*own)

    def _own_changelog(self, snapshot: Snapshot) -> tuple[str, int | None] | None:
        """Name and size [bytes] of a changelog list that no other branch reads."""
        shared = snapshot.changelog_manifest_list in (None, *self._read_elsewhere)
        return None if shared else snapshot.lists[2]

    def _entries(self, list_name: str, size: int | None) -> list[ManifestEntry]:
        """Entries of a manifest list; what a former pass has removed already is missing."""
        try:
            metas = self._table.manifests.read_list(list_name, size)
            return list(list_entries(self._table, metas))
        except FileNotFoundError:
            self._complete = False
            return []

    def _read(self, snapshot_id: int) -> Snapshot | None:
        try:
            return self._table.snapshots.recall(snapshot_id)
        except NotFoundError:
            return None


def _compacted(entry: ManifestEntry) -> bool:
    """Whether compaction wrote the file; old writers do not say."""
    return entry.file.file_source == FileSource.COMPACT


def _files(entry: ManifestEntry) -> Iterator[_File]:
    if entry.file.external_path is None:
        for name in (entry.file.file_name, *entry.file.extra_files):
            yield (entry.partition, entry.bucket, name)


def _file(entry: ManifestEntry) -> _File:
    return (entry.partition, entry.bucket, entry.file.file_name)


def _all_files(entries: Iterable[ManifestEntry]) -> Iterator[_File]:
    return (file for entry in entries if entry.kind is FileKind.ADD for file in _files(entry))


def _tags(table: TableCore, layout: TableLayout) -> Iterator[Snapshot]:
    listed = table.file_io.list(layout.tag_dir)
    paths = [one.path for one in listed if one.name.startswith(_TAG) and not one.directory]
    for path, data in zip(paths, read_present(table.file_io, paths), strict=True):
        if data is None:
            continue  # deleted meanwhile
        try:
            yield Snapshot.from_json(data)
        except CorruptDataError as error:
            raise CorruptDataError(
                "a tag cannot be read, so nothing may be deleted",
                detail=str(error),
                path=path,
            ) from error
