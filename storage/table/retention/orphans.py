# SPDX-License-Identifier: Apache-2.0
"""Removing files that nothing references any more, left by crashes and interrupted passes.

Source: SEMANTICS.md §F.13. Files are referenced by snapshots, tags and long-lived changelogs of all
branches, and Iceberg metadata by its versions; names are unique, so a reference found anywhere
keeps every file of that name.

Files are listed first and references are read afterwards, so those of commits in between are found.
Files that are not referenced yet are protected by their age alone. A snapshot or tag that cannot be
read whole aborts the call before anything is removed, unless it is being expired.
"""

import concurrent.futures
import dataclasses
import functools
import itertools
from collections.abc import Callable, Iterable, Iterator, Sequence

from storage.errors import CorruptDataError, InvalidRequestError
from storage.format.metadata.file_meta import ManifestEntry
from storage.format.metadata.layout import TableLayout
from storage.format.metadata.manifest import ManifestFileMeta
from storage.format.metadata.schema_store import SchemaStore
from storage.format.metadata.snapshot import Snapshot
from storage.format.metadata.snapshot_store import SnapshotStore
from storage.io.file_io import FileStatus
from storage.table.commit.live_files import list_entries
from storage.table.core import TableCore
from storage.table.iceberg import iceberg_leftovers
from storage.table.retention.reachability import (
    all_branches,
    documents,
    index_files,
    listed_manifests,
)

DEFAULT_AGE_MS = 24 * 3_600_000
"""Age that keeps the files of writes that have not committed yet [ms]."""

_THREADS = 16
"""Directories listed at once: on an object store a listing is all latency."""

_BUCKET = "bucket-"
_HINTS = frozenset({"EARLIEST", "LATEST"})
_DATA_DIRECTORY = "data-file.path-directory"
_BATCH_SIZE = 64
"""Manifests whose entries are held at a time."""

_DELETED = 1000
"""Files removed between two progress reports."""


_Root = tuple[Snapshot, Callable[[], bool]]
"""A snapshot, tag or changelog, and whether it has expired by now."""


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
"""Called with the phase (`listed`, `named`, `removed`) and the number of files so far."""


def remove_orphan_files(
    table: TableCore,
    *,
    older_than_ms: int | None = None,
    dry_run: bool = False,
    on_progress: OrphanProgress = lambda _phase, _files: None,
) -> OrphanFiles:
    """Remove files of a table, of any branch, that nothing references.

    Safe beside readers, expiry and commits that take less time than the age limit.

    Args:
        older_than_ms: only files last written before this time [epoch ms]; None: a day ago.
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
            detail="files of in-flight writes would be deleted",
            older_than_ms=limit_ms,
            now_ms=now_ms,
        )
    layouts = [layout for branch in all_branches(table) for layout in _layouts(table, branch)]
    with concurrent.futures.ThreadPoolExecutor(_THREADS, "orphans") as pool:
        candidates = _candidates(table, layouts, pool)
    iceberg, named_by_iceberg = iceberg_leftovers(table)
    files = [file for file in (*candidates, *iceberg) if file.modified_ms < limit_ms]
    on_progress("listed", len(files))
    names = {file.name for file in files}
    if names:
        _exclude_named(table, names, on_progress)
        names.difference_update(named_by_iceberg())
    files = sorted((file for file in files if file.name in names), key=lambda file: file.path)
    for at in range(0, 0 if dry_run else len(files), _DELETED):
        table.file_io.delete_many(file.path for file in files[at : at + _DELETED])
        on_progress("removed", min(at + _DELETED, len(files)))
    return OrphanFiles(tuple(file.path for file in files), sum(file.size for file in files))


def _layouts(table: TableCore, branch: str) -> list[TableLayout]:
    """Layouts of a branch, one for each data directory that it has had."""
    layout = dataclasses.replace(table.layout, branch=branch)
    schemas = SchemaStore(table.file_io, layout)
    ids = schemas.ids()
    if not ids:
        raise CorruptDataError(
            f"Branch {branch} has no schemas. Orphan files cleaning aborted.",
            hint="inspect the branch, and drop it if it is not wanted",
            table=layout.root,
            branch=branch,
        )
    directories = {schemas.read(id_).options.get(_DATA_DIRECTORY, "") for id_ in ids}
    return [
        dataclasses.replace(layout, data_directory=path.strip("/")) for path in sorted(directories)
    ]


def _candidates(
    table: TableCore, layouts: Iterable[TableLayout], pool: concurrent.futures.Executor
) -> list[FileStatus]:
    """Files of the directories that Paimon writes; those it always keeps are left out."""
    files: dict[str, FileStatus] = {}
    keyed = len(table.schema.partition_keys)
    for layout in layouts:
        directories = [layout.manifest_dir, layout.index_dir, layout.statistics_dir]
        directories += _bucket_dirs(table, layout.data_root, keyed, pool)
        for listing in pool.map(table.file_io.list, directories):
            files |= {file.path: file for file in listing if not file.directory}
        for directory, prefix in (
            (layout.snapshot_dir, "snapshot-"),
            (layout.changelog_dir, "changelog-"),
        ):
            for file in table.file_io.list(directory):
                if not (file.directory or file.name.startswith(prefix) or file.name in _HINTS):
                    files[file.path] = file
    return list(files.values())


def _bucket_dirs(
    table: TableCore, root: str, depth: int, pool: concurrent.futures.Executor
) -> list[str]:
    level = [root]
    for step in range(depth + 1):
        deeper = []
        for listing in pool.map(table.file_io.list, level):
            for entry in listing:
                matches = "=" in entry.name if step < depth else entry.name.startswith(_BUCKET)
                if entry.directory and matches:
                    deeper.append(entry.path)
        level = deeper
    return level


def _exclude_named(table: TableCore, candidates: set[str], on_progress: OrphanProgress) -> None:
    """Exclude from some names all that a snapshot, tag or changelog of a branch references."""
    total = len(candidates)
    metas: dict[str, ManifestFileMeta] = {}
    roots = [root for branch in all_branches(table) for root in _roots(table, branch)]
    for snapshot, expired in roots:
        try:
            _exclude_metadata(table, snapshot, candidates, metas)
        except FileNotFoundError as error:
            if not expired():
                raise _incomplete(table, snapshot, error) from error
            _exclude_metadata(table, snapshot, candidates, metas, strict=False)
    rest = iter(metas.values())
    while candidates and (batch := list(itertools.islice(rest, _BATCH_SIZE))):
        on_progress("named", total - len(candidates))
        try:
            _exclude_names(candidates, list_entries(table, batch))
        except FileNotFoundError:
            for meta in batch:
                _exclude_names(candidates, _entries_or_none(table, meta, roots))


def _incomplete(table: TableCore, snapshot: Snapshot, error: FileNotFoundError) -> CorruptDataError:
    return CorruptDataError(
        "a snapshot names a file that is missing, so nothing may be removed",
        detail=str(error),
        hint="restore the file, or roll back to a complete snapshot",
        snapshot=snapshot.id,
        table=table.layout.root,
    )


def _entries_or_none(
    table: TableCore, meta: ManifestFileMeta, roots: Sequence[_Root]
) -> list[ManifestEntry]:
    """Entries of a manifest; none when everything that references it has expired by now."""
    try:
        return list(list_entries(table, [meta]))
    except FileNotFoundError as error:
        for snapshot, expired in roots:
            lists = (listed_manifests(table, item, strict=False) for item in snapshot.lists)
            names = {manifest.file_name for manifest in itertools.chain.from_iterable(lists)}
            if meta.file_name in names and not expired():
                raise _incomplete(table, snapshot, error) from error
        return []


def _roots(table: TableCore, branch: str) -> Iterator[_Root]:
    """Snapshots, tags and changelogs of a branch, and whether one has expired by now."""
    layout = dataclasses.replace(table.layout, branch=branch)
    store = SnapshotStore(table.file_io, layout)

    def expired(snapshot_id: int) -> bool:
        earliest = store.earliest_id()
        return earliest is None or snapshot_id < earliest or not store.exists(snapshot_id)

    def deleted(path: str) -> bool:
        return not table.file_io.is_file(path)

    content = documents(table, branch)
    for snapshot in content.snapshots:
        yield snapshot, functools.partial(expired, snapshot.id)
    for tag in content.tags:
        yield tag.snapshot, functools.partial(deleted, layout.tag_file(tag.name))
    for changelog in content.changelogs:
        yield changelog, lambda: True  # some of its lists have expired with the snapshot


def _exclude_metadata(
    table: TableCore,
    snapshot: Snapshot,
    candidates: set[str],
    metas: dict[str, ManifestFileMeta],
    *,
    strict: bool = True,
) -> None:
    """Exclude the metadata and index files of a snapshot; collect its manifests.

    Raises:
        FileNotFoundError: one is missing; not of a changelog, which may expire before its tag.
    """
    for manifest_list in snapshot.lists:
        candidates.discard(manifest_list[0])
        needed = strict and manifest_list[0] != snapshot.changelog_manifest_list
        manifests = listed_manifests(table, manifest_list, strict=needed)
        candidates.difference_update(meta.file_name for meta in manifests)
        metas.update((meta.file_name, meta) for meta in manifests)
    candidates.difference_update(filter(None, (snapshot.statistics, snapshot.index_manifest)))
    entries = index_files(table, snapshot, strict=strict)
    candidates.difference_update(path.rpartition("/")[2] for path, _ in entries)


def _exclude_names(candidates: set[str], entries: Iterable[ManifestEntry]) -> None:
    """Exclude data, changelog and file index files that manifests add or remove."""
    names = ((entry.file.file_name, *entry.file.extra_files) for entry in entries)
    candidates.difference_update(itertools.chain.from_iterable(names))
