# SPDX-License-Identifier: Apache-2.0
"""Which files snapshots, tags and long-lived changelogs reach, and removing unreachable ones.

The one walk from documents to manifest lists, manifests, data files, changelog files, index files
and statistics, for all that deletes or counts files: expiry, rollback, deleted tags, orphans.
Source: FORMAT.md §11.6, SEMANTICS.md §F.7 to §F.13.

Memory is bounded by what is to be deleted: manifests of remaining documents are read one at a
time, and only entries of candidates are kept in memory (`live_among`).
"""

import dataclasses
import itertools
import logging
from collections.abc import Callable, Iterable, Iterator
from collections.abc import Set as AbstractSet
from typing import TypeVar

from storage.errors import CorruptDataError, NotFoundError
from storage.format.metadata.file_meta import IndexFileMeta, ManifestEntry
from storage.format.metadata.layout import MAIN_BRANCH, TableLayout
from storage.format.metadata.manifest import ManifestFileMeta, fold
from storage.format.metadata.snapshot import ChangelogStore, Snapshot, SnapshotStore, Tag, list_tags
from storage.table.commit.live_files import index_entries, index_path, list_entries
from storage.table.core import TableCore

_LOG = logging.getLogger(__name__)

DataFile = tuple[bytes, int, str]
"""A data, changelog or file index file: framed partition, bucket, name."""

ManifestList = tuple[str, int | None]
"""Name of a manifest list, and its size [bytes] if it is known; see `Snapshot.lists`."""

_BRANCH = "branch-"
_Read = TypeVar("_Read")


@dataclasses.dataclass(frozen=True, slots=True)
class Documents:
    """The documents by which a branch references files.

    Attributes:
        snapshots: ascending.
        tags: by snapshot id, then name.
        changelogs: long-lived ones, ascending.
    """

    snapshots: tuple[Snapshot, ...]
    tags: tuple[Tag, ...]
    changelogs: tuple[Snapshot, ...]

    @property
    def states(self) -> list[Snapshot]:
        """Snapshots and those of tags: they reference the live files."""
        return [*self.snapshots, *(tag.snapshot for tag in self.tags)]


def branch_names(table: TableCore) -> list[str]:
    """All branches besides `main`, sorted; by listing."""
    return sorted(
        status.name.removeprefix(_BRANCH)
        for status in table.file_io.list(table.layout.branches_dir)
        if status.directory and status.name.startswith(_BRANCH) and status.name != _BRANCH
    )


def all_branches(table: TableCore) -> list[str]:
    """All branches, `main` first; by listing."""
    return [MAIN_BRANCH, *branch_names(table)]


def documents(
    table: TableCore, branch: str, snapshots: tuple[Snapshot, ...] | None = None
) -> Documents:
    """All documents by which a branch references files, except those that expire concurrently.

    Snapshots are read first: one that becomes a tag or a changelog meanwhile is found either way.

    Args:
        snapshots: the relevant ones; None: all of the branch.

    Raises:
        CorruptDataError: a document is damaged, so nothing may be deleted.
    """
    layout = dataclasses.replace(table.layout, branch=branch)
    if snapshots is None:
        snapshots = tuple(_snapshots(SnapshotStore(table.file_io, layout)))
    tags = tuple(readable_tags(table, layout))
    changelogs = ChangelogStore(table.file_io, layout)
    return Documents(snapshots, tags, tuple(changelogs.read_many(changelogs.ids())))


def readable_tags(table: TableCore, layout: TableLayout) -> list[Tag]:
    """All tags of a branch by snapshot id, then name. Raises: as `documents`."""
    try:
        return list_tags(table.file_io, layout)
    except CorruptDataError as error:
        raise CorruptDataError(
            "a tag cannot be read, so nothing may be deleted",
            detail=str(error),
            hint="bring the tag file back, or delete it",
            table=layout.root,
            branch=layout.branch,
        ) from error


def _snapshots(store: SnapshotStore) -> Iterator[Snapshot]:
    ids = store.ids()
    store.preload(ids)
    for snapshot_id in ids:
        try:
            yield store.recall(snapshot_id)
        except NotFoundError:
            continue  # expired concurrently


def other_documents(table: TableCore) -> list[Documents]:
    """Documents of every other branch, whose files must be kept, too.

    Raises: as `documents`.
    """
    own = table.layout.branch
    return read_branches(table, lambda name: [] if name == own else [documents(table, name)])


def read_branches(table: TableCore, read: Callable[[str], Iterable[_Read]]) -> list[_Read]:
    """What is read of each branch by its name; all again if branches were renamed meanwhile."""
    while True:
        names = all_branches(table)
        found = [one for name in names for one in read(name)]
        if len(names) == 1 or names == all_branches(table):
            return found


def listed_manifests(
    table: TableCore, manifest_list: ManifestList, *, strict: bool = True
) -> tuple[ManifestFileMeta, ...]:
    """The manifests of a manifest list; none of a missing one, unless `strict`.

    Raises:
        FileNotFoundError: the list is missing and `strict`.
    """
    try:
        return table.manifests.read_list(*manifest_list)
    except FileNotFoundError:
        if strict:
            raise
        return ()


def listed_entries(
    table: TableCore, manifest_list: ManifestList, *, strict: bool = True
) -> list[ManifestEntry]:
    """All entries of a manifest list; none where a file is missing, unless `strict`.

    Raises: as `listed_manifests`.
    """
    try:
        return list(list_entries(table, table.manifests.read_list(*manifest_list)))
    except FileNotFoundError:
        if strict:
            raise
        return []


def data_files(entries: Iterable[ManifestEntry]) -> Iterator[DataFile]:
    """The files of entries, with their extra files; not those outside of the table."""
    for entry in entries:
        if entry.file.external_path is None:
            for name in (entry.file.file_name, *entry.file.extra_files):
                yield (entry.partition, entry.bucket, name)


def live_data_files(table: TableCore, snapshot: Snapshot) -> set[DataFile]:
    """All files that are live in a snapshot; none when its manifests have expired."""
    try:
        return set(data_files(fold(state_entries(table, snapshot))))
    except FileNotFoundError:
        return set()


def live_among(
    table: TableCore, snapshot: Snapshot, files: AbstractSet[DataFile]
) -> AbstractSet[DataFile]:
    """The subset of files that is live in a snapshot; only their entries are kept in memory.

    Raises:
        FileNotFoundError: a manifest of the snapshot is missing.
    """
    if not files:
        return files
    entries = state_entries(table, snapshot)
    # an ADD and its DELETE name the same files, so folding a subset gives that subset
    live = fold(entry for entry in entries if not files.isdisjoint(data_files((entry,))))
    return files & set(data_files(live))


def state_entries(table: TableCore, snapshot: Snapshot) -> Iterator[ManifestEntry]:
    """All entries of a state, one manifest after the other; `fold` gives the live ones.

    Raises:
        FileNotFoundError: a manifest of the snapshot is missing.
    """
    lists = table.manifests.read_lists(snapshot.lists[:2])
    return list_entries(table, itertools.chain.from_iterable(lists))


def list_names(
    table: TableCore, lists: Iterable[ManifestList], *, strict: bool = True
) -> Iterator[str]:
    """Names of manifest lists and of their manifests. Raises: as `listed_manifests`."""
    for manifest_list in lists:
        for meta in listed_manifests(table, manifest_list, strict=strict):
            yield meta.file_name
        yield manifest_list[0]


def index_files(
    table: TableCore, snapshot: Snapshot, *, strict: bool = True
) -> Iterator[tuple[str, IndexFileMeta]]:
    """The index files of a document with their paths, which may be outside of the table.

    Raises:
        FileNotFoundError: the index manifest is missing and `strict`.
    """
    try:
        entries = index_entries(table, snapshot)
    except FileNotFoundError:
        if strict:
            raise
        return
    for entry in entries:
        yield index_path(table, entry.partition, entry.bucket, entry.file), entry.file


class Removal:
    """Files that expired documents reference and no remaining document does.

    Candidates are added first, then everything still referenced is kept; an error in between
    removes nothing. `run` removes data, changelog and index files first, then their metadata:
    a pass after an interruption finds the files that are left.

    Attributes:
        data: data and changelog files.
        index: paths of index files.
        manifests: names of lists, manifests and index manifests.
        statistics: names of statistics.
    """

    def __init__(self, table: TableCore, data: Iterable[DataFile] = ()) -> None:
        self._table = table
        self.data = set(data)
        self.index: set[str] = set()
        self.manifests: set[str | None] = set()
        self.statistics: set[str | None] = set()
        self._changelogs: set[str] = set()

    def add(
        self, snapshot: Snapshot, *, lists: bool = True, changelog: bool = True, state: bool = True
    ) -> None:
        """Add what a document references except data files, as far as it exists.

        Args:
            lists: its lists of data files, with their manifests.
            changelog: its changelog files, their list and manifests.
            state: its index files, index manifest and statistics.
        """
        if lists:
            self.manifests.update(list_names(self._table, snapshot.lists[:2], strict=False))
        for manifest_list in snapshot.lists[2:] if changelog else ():
            self._changelogs.add(manifest_list[0])
            self.data.update(data_files(listed_entries(self._table, manifest_list, strict=False)))
            self.manifests.update(list_names(self._table, [manifest_list], strict=False))
        if state:
            self.manifests.add(snapshot.index_manifest)
            self.statistics.add(snapshot.statistics)
            entries = index_files(self._table, snapshot, strict=False)
            self.index.update(path for path, file in entries if file.external_path is None)

    def keep_branch(self, documents: Documents) -> None:
        """Keep all that a branch references. Raises: as `keep`."""
        for snapshot in documents.states:
            self.keep(snapshot)
        for changelog in documents.changelogs:
            self.keep_readable(changelog)

    def keep(self, snapshot: Snapshot) -> None:
        """Keep all that a snapshot or tag references; its changelog may have expired before it.

        Raises:
            FileNotFoundError: the document cannot be read whole, so nothing may be removed.
        """
        self.data.difference_update(live_among(self._table, snapshot, self.data))
        self.keep_metadata(snapshot)
        for manifest_list in snapshot.lists[2:]:
            if manifest_list[0] in self._changelogs:  # files of a changelog are in no other
                self._keep_files(manifest_list)

    def keep_readable(self, changelog: Snapshot) -> None:
        """Keep what readers of a long-lived changelog need: its delta and its changelog."""
        self.keep_lists(changelog.lists[1:])
        for manifest_list in changelog.lists[1:]:
            self._keep_files(manifest_list)

    def _keep_files(self, manifest_list: ManifestList) -> None:
        entries = listed_entries(self._table, manifest_list, strict=False)
        self.data.difference_update(data_files(entries))

    def keep_index(self, snapshot: Snapshot) -> None:
        """Keep the index files of a snapshot. Raises: as `keep`."""
        if self.index:
            self.index.difference_update(path for path, _ in index_files(self._table, snapshot))

    def keep_metadata(self, snapshot: Snapshot) -> None:
        """Keep lists, manifests, index files and statistics. Raises: as `keep`."""
        self.manifests.difference_update(list_names(self._table, snapshot.lists[:2]))
        self.keep_lists(snapshot.lists[2:])  # a changelog may expire before a tag
        self.manifests.discard(snapshot.index_manifest)
        self.statistics.discard(snapshot.statistics)
        self.keep_index(snapshot)

    def keep_lists(self, lists: Iterable[ManifestList]) -> None:
        """Keep manifest lists and their manifests, as far as they exist."""
        self.manifests.difference_update(list_names(self._table, lists, strict=False))

    def run(self) -> int:
        """Remove and count what is left; a file that cannot be removed stays as an orphan."""
        table, layout = self._table, self._table.layout
        paths = [table.data_path(*file) for file in sorted(self.data)]
        removed = table.delete_quietly([*paths, *sorted(self.index)])
        described = [layout.manifest(name) for name in sorted(filter(None, self.manifests))]
        described += [layout.statistics_file(name) for name in filter(None, self.statistics)]
        return removed + table.delete_quietly(described)


def remove_unreachable(
    table: TableCore,
    expired: Iterable[Snapshot],
    data: Iterable[DataFile],
    own_documents: Documents,
) -> int:
    """Remove and count the files of deleted documents that no remaining document references.

    Nothing is removed when a remaining document cannot be read: it is expiring, and the files
    become orphans.

    Args:
        expired: deleted documents: their changelogs, manifests, index files and statistics go.
        data: data files that they referenced.
        own_documents: remaining documents of the branch that could reference these files.
    """
    removal = Removal(table, data)
    for snapshot in expired:
        removal.add(snapshot)
    try:
        for branch in (own_documents, *other_documents(table)):
            removal.keep_branch(branch)
    except FileNotFoundError as error:
        _LOG.warning(
            "files of deleted snapshots stay as orphans: a kept snapshot cannot be read",
            extra={"table": table.layout.root},
            exc_info=error,
        )
        return 0
    return removal.run()
