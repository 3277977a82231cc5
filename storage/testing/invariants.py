# SPDX-License-Identifier: Apache-2.0
"""Invariants of every reachable table; checked after each step of the crash tests.

Also behind `lakeward table` checks: a violation is our bug or damage done from outside.
"""

from collections.abc import Container, Iterable, Iterator, Mapping

import pyarrow as pa

from storage.errors import InternalError, LakewardError
from storage.format.files.row_selection import Bitmap
from storage.format.metadata.file_meta import FileKind, IndexFileMeta, IndexType, ManifestEntry
from storage.format.metadata.layout import POSTPONE_BUCKET
from storage.format.metadata.manifest import fold
from storage.format.metadata.snapshot import CommitKind, Snapshot
from storage.lsm.levels import Levels
from storage.table.commit.live_files import (
    LiveState,
    delta_entries,
    index_entries,
    index_path,
    list_entries,
    live_state,
)
from storage.table.core import TableCore
from storage.table.read.deletion_vectors import DeletionFile, load_vectors
from storage.table.read.read import TableRead
from storage.table.retention.reachability import (
    documents,
    index_files,
    listed_entries,
    other_documents,
    state_entries,
)
from storage.table.scan.scan import TableScan, skips_level_0


def check_table(table: TableCore, *, rows: bool = False) -> None:
    """Check all snapshots from EARLIEST to the newest.

    Args:
        rows: read also deletion vectors, and the keys of the newest snapshot.

    Raises:
        InternalError: lists what is violated.
    """
    problems = list(violations(table, rows=rows))
    if problems:
        raise InternalError(
            "a table violates its invariants",
            detail="; ".join(problems[:20]),
            table=table.layout.root,
            count=len(problems),
        )


def violations(table: TableCore, *, rows: bool = False) -> Iterator[str]:
    """Describe every violation.

    What must hold:

    * ids of snapshots have no gaps, and their schemas exist;
    * record counts add up, and equal the rows of the live files;
    * the state before a snapshot is the state after its predecessor;
    * files of one level above 0 do not overlap; sequence numbers and counts of a file are sane;
    * every referenced data file exists, with the recorded size;
    * so does every index file; a bucket has one hash index, deletion vectors are of live files,
      are inside of their index file one after the other, and each file has one at most;
    * files that readers of the long-lived changelogs from EARLIEST on need exist;
    * so do those that tags and other branches reference;
    * with `rows`: deletion vectors mark as many rows as recorded, and only such as their files
      have; where readers do not merge, the newest snapshot has no key twice.
    """
    earliest, latest = table.snapshots.earliest_id(), table.snapshots.latest_id()
    if earliest is None or latest is None:
        return
    seen_files: set[tuple[bytes, int, str]] = set()
    seen_index: set[str] = set()
    before: tuple[Snapshot, LiveState] | None = None
    schema_ids = set(table.schemas.ids())
    for snapshot_id in range(earliest, latest + 1):
        try:
            snapshot = table.snapshots.read(snapshot_id)
            state = live_state(table, snapshot)
            yield from _snapshot(table, snapshot, state, before)
        except (LakewardError, FileNotFoundError) as error:
            yield f"snapshot {snapshot_id} cannot be read: {error}"
            before = None
            continue
        if snapshot.schema_id not in schema_ids:
            yield f"snapshot {snapshot_id} names schema {snapshot.schema_id}, which is not there"
        for (partition, bucket), entries in state.buckets.items():
            yield from _bucket(table, snapshot_id, partition, bucket, entries)
        yield from _files(
            table, snapshot_id, [*state.entries(), *_changelog(table, snapshot)], seen_files
        )
        yield from _index_files(table, snapshot, state, seen_index, rows=rows)
        before = (snapshot, state)
    if rows and before is not None:
        yield from repeated_keys(table, before[0])
    yield from _long_lived(table, schema_ids, earliest, seen_files)
    yield from _kept_elsewhere(table, seen_files, seen_index)


def _long_lived(
    table: TableCore,
    schema_ids: Container[int],
    oldest: int,
    seen_files: set[tuple[bytes, int, str]],
) -> Iterator[str]:
    first = table.changelogs.earliest_id()
    if first is None:
        return
    changelogs = table.changelogs.read_many(i for i in table.changelogs.ids() if i >= first)
    by_delta = table.options.changelog_producer == "none"
    for changelog in changelogs:
        where = f"changelog {changelog.id}"
        if changelog.schema_id not in schema_ids:
            yield f"{where} names schema {changelog.schema_id}, which is not there"
        if changelog.id >= oldest:
            continue  # its snapshot is about to expire
        try:
            entries = _changelog(table, changelog)
            if not entries and by_delta and changelog.commit_kind is CommitKind.APPEND:
                delta = delta_entries(table, changelog)
                entries = [entry for entry in delta if entry.kind is FileKind.ADD]
        except (LakewardError, FileNotFoundError) as error:
            yield f"{where} cannot be read: {error}"
            continue
        for text in _files(table, changelog.id, entries, seen_files):
            yield f"{where}: {text}"


def _snapshot(
    table: TableCore,
    snapshot: Snapshot,
    state: LiveState,
    before: tuple[Snapshot, LiveState] | None,
) -> Iterator[str]:
    where = f"snapshot {snapshot.id}"
    if snapshot.total_record_count != sum(entry.file.row_count for entry in state.entries()):
        yield f"{where}: total record count differs from its live files"
    delta = 0
    for entry in delta_entries(table, snapshot):
        delta += entry.file.row_count * (1 if entry.kind is FileKind.ADD else -1)
    if snapshot.delta_record_count != delta:
        yield f"{where}: delta record count differs from its delta"
    changelog = sum(entry.file.row_count for entry in _changelog(table, snapshot))
    if (snapshot.changelog_record_count or 0) != changelog:
        yield f"{where}: changelog record count differs from its changelog"
    if before is not None:
        yield from _succession(table, snapshot, *before)


def _succession(
    table: TableCore, snapshot: Snapshot, previous: Snapshot, previous_state: LiveState
) -> Iterator[str]:
    where = f"snapshot {snapshot.id}"
    if snapshot.total_record_count != previous.total_record_count + snapshot.delta_record_count:
        yield f"{where}: record counts do not add up"
    if snapshot.time_ms < previous.time_ms:
        yield f"{where}: is older than its predecessor"
    base = table.manifests.read_list(snapshot.base_manifest_list)
    identities: set[tuple[object, ...]] = set()
    for entry in list_entries(table, base):
        if entry.kind is FileKind.ADD:
            identities.add(entry.identity)
        else:
            identities.discard(entry.identity)
    if identities != {entry.identity for entry in previous_state.entries()}:
        yield f"{where}: its base is not the state of its predecessor"


def _bucket(
    table: TableCore,
    snapshot_id: int,
    partition: bytes,
    bucket: int,
    entries: Iterable[ManifestEntry],
) -> Iterator[str]:
    where = f"snapshot {snapshot_id} partition {partition.hex()} bucket {bucket}"
    files = [entry.file for entry in entries]
    for file in files:
        if file.row_count <= 0 or not 0 <= (file.delete_row_count or 0) <= file.row_count:
            yield f"{where}: {file.file_name} has impossible row counts"
        if file.min_sequence_number > file.max_sequence_number:
            yield f"{where}: {file.file_name} has its sequence numbers reversed"
    if table.key_of is None or bucket == POSTPONE_BUCKET:  # rows in the order of arrival
        return
    for file in files:
        if table.key_of(file.min_key) > table.key_of(file.max_key):
            yield f"{where}: {file.file_name} has its keys reversed"
    try:
        Levels.of(files, table.options.num_levels, table.key_of)
    except LakewardError as error:
        yield f"{where}: {error}"


def _index_files(
    table: TableCore, snapshot: Snapshot, state: LiveState, seen_files: set[str], *, rows: bool
) -> Iterator[str]:
    where = f"snapshot {snapshot.id}"
    try:
        entries = index_entries(table, snapshot)
    except (LakewardError, FileNotFoundError) as error:
        yield f"{where}: its index manifest cannot be read: {error}"
        return
    hashed: set[tuple[bytes, int]] = set()
    marked: set[tuple[bytes, int, str]] = set()
    for entry in entries:
        bucket = (entry.partition, entry.bucket)
        if entry.file.index_type == IndexType.HASH:
            if bucket in hashed:
                yield f"{where}: bucket {entry.bucket} has two hash indexes"
            hashed.add(bucket)
        live = {item.file.file_name: item.file.row_count for item in state.buckets.get(bucket, ())}
        for text in _vectors(entry.file, live):
            yield f"{where}: {entry.file.file_name} {text}"
        for vector in entry.file.deletion_vectors or ():
            file = (*bucket, vector.data_file_name)
            if file in marked:
                yield f"{where}: {vector.data_file_name} has two deletion vectors"
            marked.add(file)
        path = index_path(table, *bucket, entry.file)
        if path not in seen_files:
            seen_files.add(path)
            yield from _file(table, snapshot.id, path, entry.file.file_size)
            for text in vector_contents(table, path, entry.file, live) if rows else ():
                yield f"{where}: {entry.file.file_name} {text}"


def _vectors(file: IndexFileMeta, live: Container[str]) -> Iterator[str]:
    end = 1  # the version byte
    for vector in file.deletion_vectors or ():
        name = vector.data_file_name
        if name not in live:
            yield f"holds the deletion vector of {name}, which is not live"
        if vector.offset < end or vector.length <= 0:
            yield f"holds the deletion vector of {name} in an impossible place"
        end = vector.offset + vector.length
    if file.deletion_vectors and end > file.file_size:
        yield "is too short for its deletion vectors"


def _changelog(table: TableCore, snapshot: Snapshot) -> list[ManifestEntry]:
    return [entry for listing in snapshot.lists[2:] for entry in listed_entries(table, listing)]


def _kept_elsewhere(
    table: TableCore, seen_files: set[tuple[bytes, int, str]], seen_index: set[str]
) -> Iterator[str]:
    branches = other_documents(table)
    tagged = [tag.snapshot for tag in documents(table, table.layout.branch).tags]
    for snapshot in (*tagged, *(state for branch in branches for state in branch.states)):
        try:
            entries = fold(state_entries(table, snapshot))
            index = list(index_files(table, snapshot))
        except (LakewardError, FileNotFoundError) as error:
            yield f"snapshot {snapshot.id} of a tag or branch cannot be read: {error}"
            continue
        yield from _files(table, snapshot.id, entries, seen_files)
        for path, file in index:
            if path not in seen_index:
                seen_index.add(path)
                yield from _file(table, snapshot.id, path, file.file_size)


def _files(
    table: TableCore,
    snapshot_id: int,
    entries: Iterable[ManifestEntry],
    seen_files: set[tuple[bytes, int, str]],
) -> Iterator[str]:
    for entry in entries:
        identity = (entry.partition, entry.bucket, entry.file.file_name)
        if identity in seen_files:
            continue
        seen_files.add(identity)
        path = entry.file.external_path or table.data_path(*identity)
        yield from _file(table, snapshot_id, path, entry.file.file_size)


def _file(table: TableCore, snapshot_id: int, path: str, recorded: int) -> Iterator[str]:
    try:
        size = table.file_io.size(path)
    except FileNotFoundError:
        yield f"snapshot {snapshot_id} names {path}, which is not there"
        return
    if size != recorded:
        yield f"snapshot {snapshot_id} names {path} with the wrong size"


def vector_contents(
    table: TableCore, path: str, file: IndexFileMeta, row_counts: Mapping[str, int]
) -> Iterator[str]:
    """Describe what is wrong with the deletion vectors in an index file.

    Args:
        file: what the index manifest says of it.
        row_counts: rows of the live data files of the bucket, by name.
    """
    places = {
        entry.data_file_name: DeletionFile(path, entry.offset, entry.length, entry.cardinality)
        for entry in file.deletion_vectors or ()
    }
    try:
        vectors = load_vectors(table.file_io, places)
    except (LakewardError, FileNotFoundError) as error:
        yield f"cannot be read: {error}"
        return
    for name, vector in vectors.items():
        rows = row_counts.get(name)
        if rows is not None and not _vector_fits(vector, rows):
            yield f"marks {len(vector)} rows of {name}, which has {rows}"


def _vector_fits(vector: Bitmap, rows: int) -> bool:
    return 0 < len(vector) <= rows and vector.max() < rows


def repeated_keys(table: TableCore, snapshot: Snapshot) -> Iterator[str]:
    """Describe keys that readers who do not merge see twice; reads the key columns.

    Args:
        snapshot: the newest.
    """
    keys = list(table.schema.primary_keys)
    if not keys or not skips_level_0(table):
        return
    try:
        plan = TableScan(table).with_snapshot(snapshot.id).plan()
        rows = TableRead(table, keys).to_table(plan)
    except (LakewardError, FileNotFoundError) as error:
        yield f"snapshot {snapshot.id}: its keys cannot be read: {error}"
        return
    repeats = rows.num_rows - _distinct(rows, keys)
    if repeats:
        yield f"snapshot {snapshot.id}: {repeats} rows have a key that is there already"


def _distinct(rows: pa.Table, columns: list[str]) -> int:
    return rows.group_by(columns).aggregate([]).num_rows
