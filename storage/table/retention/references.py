# SPDX-License-Identifier: Apache-2.0
"""Which files snapshots name, and removing those that only snapshots taken away have named.

Used where snapshots go other than by expiry: deleting a tag, rolling back, fast-forwarding a
branch. What is kept for certain is everything that a given set of kept snapshots names; callers
put every branch into it, because data, manifests and index files are shared by all branches.
Source: SEMANTICS.md §F.9, §F.11.
"""

import dataclasses
import itertools
import logging
from collections.abc import Iterable, Iterator

from storage.errors import NotFoundError
from storage.format.metadata.changelog_store import ChangelogStore
from storage.format.metadata.file_meta import FileKind, ManifestEntry
from storage.format.metadata.layout import TableLayout
from storage.format.metadata.manifest import fold
from storage.format.metadata.snapshot import Snapshot
from storage.format.metadata.snapshot_store import SnapshotStore
from storage.format.metadata.tag import list_tags
from storage.table.commit.index_files import index_entries, index_path
from storage.table.commit.live_files import list_entries
from storage.table.core import TableCore

__all__ = [
    "BranchesKept",
    "DataFile",
    "added_files",
    "all_changelogs",
    "branch_names",
    "branches_kept",
    "changelog_files",
    "changelog_names",
    "live_data_files",
    "other_branches",
    "remove_unnamed",
]

_LOG = logging.getLogger(__name__)

DataFile = tuple[bytes, int, str]
"""Framed partition, bucket, name."""

_BRANCH = "branch-"
_MAIN = "main"


def branch_names(table: TableCore) -> list[str]:
    """All branches besides `main`, sorted; by listing."""
    return sorted(
        status.name.removeprefix(_BRANCH)
        for status in table.file_io.list(table.layout.branches_dir)
        if status.directory and status.name.startswith(_BRANCH) and status.name != _BRANCH
    )


@dataclasses.dataclass(frozen=True, slots=True)
class BranchesKept:
    """What every branch but one keeps.

    Attributes:
        tagged: snapshots of tags.
        snapshots: snapshots.
        changelogs: long-lived changelogs.
    """

    tagged: tuple[Snapshot, ...]
    snapshots: tuple[Snapshot, ...]
    changelogs: tuple[Snapshot, ...]

    @property
    def states(self) -> list[Snapshot]:
        """Snapshots and tags: what names live files."""
        return [*self.tagged, *self.snapshots]


def branches_kept(table: TableCore) -> BranchesKept:
    """What every branch but the table's own keeps: what nobody else may take away.

    Raises:
        CorruptDataError: a document is damaged, so that nothing may be deleted.
    """
    tagged: list[Snapshot] = []
    snapshots: list[Snapshot] = []
    changelogs: list[Snapshot] = []
    for name in (_MAIN, *branch_names(table)):
        if name == table.layout.branch:
            continue
        layout = dataclasses.replace(table.layout, branch=name)
        tagged += [tag.snapshot for tag in list_tags(table.file_io, layout)]
        snapshots += _snapshots(table, layout)
        store = ChangelogStore(table.file_io, layout)
        changelogs += store.read_many(store.ids())
    return BranchesKept(tuple(tagged), tuple(snapshots), tuple(changelogs))


def other_branches(table: TableCore) -> list[Snapshot]:
    """Snapshots and tags of every branch but the table's own.

    Raises: as `branches_kept`.
    """
    return branches_kept(table).states


def _snapshots(table: TableCore, layout: TableLayout) -> Iterator[Snapshot]:
    store = SnapshotStore(table.file_io, layout)
    ids = store.ids()
    store.preload(ids)
    for snapshot_id in ids:
        try:
            yield store.recall(snapshot_id)
        except NotFoundError:
            continue  # expired meanwhile


def all_changelogs(table: TableCore) -> list[Snapshot]:
    """Long-lived changelogs of every branch.

    Raises:
        CorruptDataError: one is damaged, so that nothing may be deleted.
    """
    found: list[Snapshot] = []
    for name in (_MAIN, *branch_names(table)):
        store = ChangelogStore(table.file_io, dataclasses.replace(table.layout, branch=name))
        found += store.read_many(store.ids())
    return found


def live_data_files(table: TableCore, snapshot: Snapshot) -> set[DataFile]:
    """Data files and their extra files that are live in a snapshot.

    Raises:
        FileNotFoundError: its manifests are gone.
    """
    store = table.manifests
    metas = itertools.chain.from_iterable(store.read_lists(snapshot.lists[:2]))
    return set(_names(fold(list_entries(table, metas))))


def added_files(table: TableCore, snapshot: Snapshot) -> set[DataFile]:
    """Data files that a snapshot's delta adds; none when its manifests are gone."""
    return _listed(table, snapshot.delta_manifest_list)


def changelog_files(table: TableCore, snapshot: Snapshot) -> set[DataFile]:
    """Changelog files of a snapshot; none when its manifests are gone."""
    name = snapshot.changelog_manifest_list
    return set() if name is None else _listed(table, name)


def changelog_names(table: TableCore, changelog: Snapshot) -> tuple[set[DataFile], set[str]]:
    """What readers of a long-lived changelog need, as far as it is there.

    Returns:
        Files that its delta and its changelog name; paths of both lists and of their manifests.
    """
    files: set[DataFile] = set()
    paths: set[str] = set()
    for name, size in changelog.lists[1:]:
        try:
            metas = table.manifests.read_list(name, size)
            entries = list(list_entries(table, metas))
        except FileNotFoundError:
            continue
        files |= set(_names(entries))
        paths |= {table.layout.manifest(meta.file_name) for meta in metas}
        paths.add(table.layout.manifest(name))
    return files, paths


def _listed(table: TableCore, list_name: str) -> set[DataFile]:
    try:
        entries = list(list_entries(table, table.manifests.read_list(list_name)))
    except FileNotFoundError:
        return set()
    return set(_names(entry for entry in entries if entry.kind is FileKind.ADD))


def _names(entries: Iterable[ManifestEntry]) -> Iterator[DataFile]:
    for entry in entries:
        if entry.file.external_path is None:
            for name in (entry.file.file_name, *entry.file.extra_files):
                yield (entry.partition, entry.bucket, name)


def remove_unnamed(
    table: TableCore,
    gone: Iterable[Snapshot],
    kept: Iterable[Snapshot],
    data: Iterable[DataFile],
    *,
    changelogs: Iterable[Snapshot] = (),
) -> int:
    """Remove data files and the metadata of snapshots, as far as no kept snapshot names them.

    Nothing is removed when a kept snapshot cannot be read: it is being expired by somebody, and
    what is left over then is an orphan.

    Args:
        table: the table.
        gone: snapshots nobody can reach any more; their manifests, index files and statistics go.
        kept: snapshots that stay.
        data: data and changelog files that the former named.
        changelogs: long-lived changelogs that stay.

    Returns:
        How many files were removed.
    """
    kept = {_key(one): one for one in kept}.values()
    try:
        named = set().union(*(live_data_files(table, one) for one in kept))
        for one in kept:
            named |= changelog_files(table, one)
        needed = {path for one in kept for path in _metadata(table, one, strict=True)}
    except FileNotFoundError as error:
        _LOG.warning(
            "files of deleted snapshots stay as orphans: a kept snapshot cannot be read",
            extra={"table": table.layout.root},
            exc_info=error,
        )
        return 0
    for one in changelogs:
        files, lists = changelog_names(table, one)
        named |= files
        needed |= lists
    unneeded = {path for one in gone for path in _metadata(table, one, strict=False)} - needed
    paths = [table.data_path(*file) for file in sorted(set(data) - named)]
    return table.delete_quietly([*paths, *sorted(unneeded)])


def _key(snapshot: Snapshot) -> tuple[object, ...]:
    return (
        snapshot.base_manifest_list,
        snapshot.delta_manifest_list,
        snapshot.changelog_manifest_list,
        snapshot.index_manifest,
        snapshot.statistics,
    )


def _metadata(table: TableCore, snapshot: Snapshot, *, strict: bool) -> Iterator[str]:
    """Paths of manifests, lists, index manifest, index files and statistics of a snapshot.

    A changelog list may be gone while its snapshot, as a tag, is still there.
    """
    layout = table.layout
    lists = [snapshot.base_manifest_list, snapshot.delta_manifest_list]
    if snapshot.changelog_manifest_list is not None:
        lists.append(snapshot.changelog_manifest_list)
    for name in lists:
        try:
            metas = table.manifests.read_list(name)
        except FileNotFoundError:
            if strict and name != snapshot.changelog_manifest_list:
                raise
            metas = ()
        yield from (layout.manifest(meta.file_name) for meta in metas)
        yield layout.manifest(name)
    if snapshot.index_manifest is not None:
        yield from _index_files(table, snapshot, strict=strict)
        yield layout.manifest(snapshot.index_manifest)
    if snapshot.statistics is not None:
        yield layout.statistics_file(snapshot.statistics)


def _index_files(table: TableCore, snapshot: Snapshot, *, strict: bool) -> Iterator[str]:
    try:
        entries = index_entries(table, snapshot)
    except FileNotFoundError:
        if strict:
            raise
        return
    for entry in entries:
        if entry.file.external_path is None:
            yield index_path(table, entry.partition, entry.bucket, entry.file)
