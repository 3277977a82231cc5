# SPDX-License-Identifier: Apache-2.0
"""Removing files that nothing names any more, as crashes and cut-off passes leave them.

Source: SEMANTICS.md §F.13. Files are named by snapshots, tags and long-lived changelogs of all
branches; names are unique, so a name found anywhere keeps every file of it.

What is there is listed first and what is named is read afterwards: whatever a commit names in
between is found. What is not named yet is protected by its age alone. A snapshot or tag that
cannot be read whole ends the call before anything is removed, unless expiry is taking it away.
"""

import concurrent.futures
import contextlib
import dataclasses
import functools
import itertools
from collections.abc import Callable, Iterable, Iterator, Sequence

from storage.errors import CorruptDataError, InvalidRequestError, NotFoundError
from storage.format.metadata.changelog_store import ChangelogStore
from storage.format.metadata.file_meta import ManifestEntry
from storage.format.metadata.layout import TableLayout
from storage.format.metadata.manifest import ManifestFileMeta
from storage.format.metadata.schema_store import SchemaStore
from storage.format.metadata.snapshot import Snapshot
from storage.format.metadata.snapshot_store import SnapshotStore
from storage.format.metadata.tag import list_tags
from storage.io.file_io import FileStatus
from storage.table.commit.index_files import index_entries
from storage.table.commit.live_files import list_entries
from storage.table.core import TableCore
from storage.table.retention.references import branch_names

__all__ = ["DEFAULT_AGE_MS", "OrphanFiles", "OrphanProgress", "remove_orphan_files"]

DEFAULT_AGE_MS = 24 * 3_600_000
"""Age that keeps the files of writes that have not committed yet [ms]."""

_THREADS = 16
"""Directories listed at once: a listing is all waiting on an object store."""

_MAIN = "main"
_BUCKET = "bucket-"
_HINTS = frozenset({"EARLIEST", "LATEST"})
_DATA_DIRECTORY = "data-file.path-directory"
_TOGETHER = 64
"""Manifests whose entries are held at a time."""

_DELETED = 1000
"""Files removed between two words of progress."""


_Document = tuple[Snapshot, Callable[[], bool]]
"""A snapshot, tag or changelog, and whether it is being taken away by now."""


@dataclasses.dataclass(frozen=True, slots=True)
class OrphanFiles:
    """What was removed, or would be.

    Attributes:
        paths: sorted.
        size: of all of them [bytes].
    """

    paths: tuple[str, ...]
    size: int


OrphanProgress = Callable[[str, int], None]
"""Told what is going on (`listed`, `named`, `removed`), and of how many files by now."""


def remove_orphan_files(
    table: TableCore,
    *,
    older_than_ms: int | None = None,
    dry_run: bool = False,
    on_progress: OrphanProgress = lambda _phase, _files: None,
) -> OrphanFiles:
    """Remove files of a table, of any branch, that nothing names.

    Safe beside readers, expiry and commits that take less time than the age limit.

    Args:
        table: the table, at any branch.
        older_than_ms: only files last written before this time [epoch ms]; None: a day ago.
        dry_run: only tell.
        on_progress: see `OrphanProgress`.

    Raises:
        InvalidRequestError: the time is not past.
        CorruptDataError: metadata is damaged or missing, so nothing may be removed.
        StorageUnavailableError: the store failed; call again.
    """
    now_ms = table.clock.now_ms()
    limit_ms = now_ms - DEFAULT_AGE_MS if older_than_ms is None else older_than_ms
    if limit_ms >= now_ms:
        raise InvalidRequestError(
            "The arg olderThan must be less than now",
            detail="files of writes that are under way would go",
            older_than_ms=limit_ms,
            now_ms=now_ms,
        )
    layouts = _layouts(table)
    with concurrent.futures.ThreadPoolExecutor(_THREADS, "orphans") as pool:
        found = [one for one in _candidates(table, layouts, pool) if one.modified_ms < limit_ms]
    on_progress("listed", len(found))
    if found:
        named = _named(table, layouts, on_progress)
        found = [one for one in found if one.name not in named]
    found.sort(key=lambda one: one.path)
    for at in range(0, 0 if dry_run else len(found), _DELETED):
        table.file_io.delete_many(one.path for one in found[at : at + _DELETED])
        on_progress("removed", min(at + _DELETED, len(found)))
    return OrphanFiles(tuple(one.path for one in found), sum(one.size for one in found))


def _layouts(table: TableCore) -> list[TableLayout]:
    """Of every branch, with its own data directory."""
    layouts = []
    for name in (_MAIN, *branch_names(table)):
        layout = TableLayout(table.layout.root, branch=name)
        schemas = SchemaStore(table.file_io, layout)
        ids = schemas.ids()
        if not ids:
            raise CorruptDataError(
                f"Branch {name} has no schemas. Orphan files cleaning aborted.",
                hint="look at the branch, and drop it if it is not wanted",
                table=layout.root,
                branch=name,
            )
        directories = {schemas.read(one).options.get(_DATA_DIRECTORY, "") for one in ids}
        layouts += [
            dataclasses.replace(layout, data_directory=one.strip("/"))
            for one in sorted(directories)
        ]
    return layouts


def _candidates(
    table: TableCore, layouts: Iterable[TableLayout], pool: concurrent.futures.Executor
) -> list[FileStatus]:
    """Files of the directories that Paimon writes; those it always keeps are left out."""
    found: dict[str, FileStatus] = {}
    keyed = len(table.schema.partition_keys)
    for layout in layouts:
        directories = [layout.manifest_dir, layout.index_dir, layout.statistics_dir]
        directories += _bucket_dirs(table, layout.data_root, keyed, pool)
        for listed in pool.map(table.file_io.list, directories):
            found |= {one.path: one for one in listed if not one.directory}
        for directory, prefix in (
            (layout.snapshot_dir, "snapshot-"),
            (layout.changelog_dir, "changelog-"),
        ):
            for one in table.file_io.list(directory):
                if not (one.directory or one.name.startswith(prefix) or one.name in _HINTS):
                    found[one.path] = one
    return list(found.values())


def _bucket_dirs(
    table: TableCore, root: str, depth: int, pool: concurrent.futures.Executor
) -> list[str]:
    level = [root]
    for step in range(depth + 1):
        deeper = []
        for listed in pool.map(table.file_io.list, level):
            for one in listed:
                wanted = "=" in one.name if step < depth else one.name.startswith(_BUCKET)
                if one.directory and wanted:
                    deeper.append(one.path)
        level = deeper
    return level


def _named(
    table: TableCore, layouts: Iterable[TableLayout], on_progress: OrphanProgress
) -> set[str]:
    """Names of all files that a snapshot, tag or changelog of a branch names."""
    named: set[str] = set()
    metas: dict[str, ManifestFileMeta] = {}
    documents = [one for layout in _by_branch(layouts) for one in _documents(table, layout)]
    for snapshot, gone in documents:
        try:
            _name_metadata(table, snapshot, named, metas)
        except FileNotFoundError as error:
            if not gone():
                raise _incomplete(table, snapshot, error) from error
            _name_metadata(table, snapshot, named, metas, strict=False)
    left = list(metas.values())
    for at in range(0, len(left), _TOGETHER):
        on_progress("named", len(named))
        some = left[at : at + _TOGETHER]
        try:
            named.update(_data_files(list_entries(table, some)))
        except FileNotFoundError:
            for meta in some:
                named.update(_data_files(_entries_or_none(table, meta, documents)))
    return named


def _by_branch(layouts: Iterable[TableLayout]) -> list[TableLayout]:
    return list({layout.branch: layout for layout in layouts}.values())


def _incomplete(table: TableCore, snapshot: Snapshot, error: FileNotFoundError) -> CorruptDataError:
    return CorruptDataError(
        "a snapshot names a file that is gone, so nothing may be removed",
        detail=str(error),
        hint="bring the file back, or roll back to a snapshot that is whole",
        snapshot=snapshot.id,
        table=table.layout.root,
    )


def _entries_or_none(
    table: TableCore, meta: ManifestFileMeta, documents: Sequence[_Document]
) -> list[ManifestEntry]:
    """Entries of a manifest; none when whatever named it is being taken away."""
    try:
        return list(list_entries(table, [meta]))
    except FileNotFoundError as error:
        for snapshot, gone in documents:
            named: dict[str, ManifestFileMeta] = {}
            _name_metadata(table, snapshot, set(), named, strict=False)
            if meta.file_name in named and not gone():
                raise _incomplete(table, snapshot, error) from error
        return []


def _documents(table: TableCore, layout: TableLayout) -> Iterator[_Document]:
    """Snapshots, tags and changelogs of a branch, and whether one is being taken away by now."""
    store = SnapshotStore(table.file_io, layout)

    def expired(snapshot_id: int) -> bool:
        earliest = store.earliest_id()
        return earliest is None or snapshot_id < earliest or not store.exists(snapshot_id)

    ids = store.ids()
    store.preload(ids)
    for snapshot_id in ids:
        with contextlib.suppress(NotFoundError):
            yield store.recall(snapshot_id), functools.partial(expired, snapshot_id)
    for tag in list_tags(table.file_io, layout):
        path = layout.tag_file(tag.name)
        yield tag.snapshot, functools.partial(_is_gone, table, path)
    changelogs = ChangelogStore(table.file_io, layout)
    for changelog in changelogs.read_many(changelogs.ids()):
        yield changelog, lambda: True  # some of its lists have gone with the snapshot


def _is_gone(table: TableCore, path: str) -> bool:
    return not table.file_io.is_file(path)


def _name_metadata(
    table: TableCore,
    snapshot: Snapshot,
    named: set[str],
    metas: dict[str, ManifestFileMeta],
    *,
    strict: bool = True,
) -> None:
    """Add the metadata files and index files of a snapshot, and its manifests.

    Raises:
        FileNotFoundError: one is missing; not of a changelog, which may go before its tag.
    """
    store = table.manifests
    for name, size in snapshot.lists:
        named.add(name)
        try:
            found = store.read_list(name, size)
        except FileNotFoundError:
            if strict and name != snapshot.changelog_manifest_list:
                raise
            continue
        metas.update((meta.file_name, meta) for meta in found)
        named.update(meta.file_name for meta in found)
    if snapshot.statistics is not None:
        named.add(snapshot.statistics)
    if snapshot.index_manifest is not None:
        named.add(snapshot.index_manifest)
        try:
            entries = index_entries(table, snapshot)
        except FileNotFoundError:
            if strict:
                raise
            return
        named.update(entry.file.file_name for entry in entries)


def _data_files(entries: Iterable[ManifestEntry]) -> Iterator[str]:
    """Names of data, changelog and file index files that manifests add or remove."""
    names = ((entry.file.file_name, *entry.file.extra_files) for entry in entries)
    return itertools.chain.from_iterable(names)
