# SPDX-License-Identifier: Apache-2.0
"""Conflicts between commits. Pure.

Source: SEMANTICS.md §F.3. Appends never conflict with each other; what conflicts are file
removals (compactions, overwrites) whose files another writer removed, key ranges that would overlap
inside one level above 0, and compactions of rows beside older ones that were committed meanwhile.
"""

import itertools
from collections.abc import Callable, Collection, Iterable, Sequence
from typing import Any

from storage.errors import FileConflictError
from storage.format.metadata.file_meta import FileKind, IndexManifestEntry, ManifestEntry
from storage.lsm.levels import KeyOf


def check_delta(delta: Iterable[ManifestEntry]) -> None:
    """Check that a delta is consistent in itself.

    Raises:
        FileConflictError: it names one file twice at one level.
    """
    identities: set[tuple[Any, ...]] = set()
    for entry in delta:
        if entry.identity in identities:
            raise FileConflictError(
                "a commit adds or removes the same file twice",
                file=entry.file.file_name,
                bucket=entry.bucket,
                level=entry.file.level,
            )
        identities.add(entry.identity)


def check_conflicts(
    live: Callable[[bytes, int], Sequence[ManifestEntry]],
    delta: Sequence[ManifestEntry],
    *,
    key_of: KeyOf | None,
    overwrite: bool = False,
    follows: Collection[str] = (),
) -> None:
    """Check a delta against the state it is to be applied to.

    Args:
        live: live ADD entries of a bucket, given framed partition and bucket.
        delta: the changes; consistent in themselves (`check_delta`).
        key_of: comparable form of a framed key; None on a table without primary key.
        overwrite: the commit may change the number of buckets.
        follows: names of files that the same commit has added to level 0 already.

    Raises:
        FileConflictError: a file to remove is not live, a file to add is, files of one level
            above 0 would overlap, the number of buckets would change, or a compaction left out
            rows that are not newer than its own.
    """
    changes: dict[tuple[bytes, int], list[ManifestEntry]] = {}
    for entry in delta:
        changes.setdefault((entry.partition, entry.bucket), []).append(entry)
    for (partition, bucket), entries in changes.items():
        before = live(partition, bucket)
        after = _applied(before, entries)
        if not overwrite:
            _check_bucket_count(before, entries)
        if key_of is not None:
            _check_levels(after, key_of, touched={entry.file.level for entry in entries})
            if not overwrite and bucket >= 0:
                _check_order(after, entries, follows)


_File = tuple[bytes, int, str]
"""Framed partition, bucket, name of a data file."""


def check_vectors(
    live: Callable[[bytes, int], Sequence[ManifestEntry]],
    delta: Sequence[ManifestEntry],
    before: Sequence[IndexManifestEntry],
    after: Sequence[IndexManifestEntry],
) -> None:
    """Check that deletion vectors and the data files they are of stay together.

    A vector that another writer adds to a file must not be lost because the file is compacted at
    the same time, and a file must not be compacted away under a new vector.

    Args:
        live: as for `check_conflicts`.
        delta: changes of data files.
        before: index files of the state the delta is applied to.
        after: index files of the future snapshot.

    Raises:
        FileConflictError: a removed file keeps its vector, or a new vector is of a file that is
            not live.
    """
    removed = {_file(entry) for entry in delta if entry.kind is FileKind.DELETE}
    if before is after and not removed:
        return
    added = {_file(entry) for entry in delta if entry.kind is FileKind.ADD}
    previous = _vector_files(before)
    vectors = previous if before is after else _vector_files(after)
    for _, bucket, name in sorted(vectors & (removed - added)):
        raise _vector_conflict("a file this commit removes got a deletion vector", bucket, name)
    alive: dict[tuple[bytes, int], set[str]] = {}
    for partition, bucket, name in sorted(vectors - previous - added):
        if (partition, bucket) not in alive:
            entries = live(partition, bucket)
            alive[partition, bucket] = {entry.file.file_name for entry in entries}
        if name not in alive[partition, bucket]:
            raise _vector_conflict(
                "a file whose rows this commit deletes is not live any more", bucket, name
            )


def _vector_conflict(detail: str, bucket: int, name: str) -> FileConflictError:
    return FileConflictError(
        "file deletion conflicts detected! give up committing",
        detail=detail,
        hint="another job compacted, overwrote or deleted rows of the bucket; start from the "
        "newest snapshot",
        file=name,
        bucket=bucket,
    )


def _file(entry: ManifestEntry) -> _File:
    return entry.partition, entry.bucket, entry.file.file_name


def _vector_files(entries: Iterable[IndexManifestEntry]) -> set[_File]:
    return {
        (entry.partition, entry.bucket, vector.data_file_name)
        for entry in entries
        for vector in entry.file.deletion_vectors or ()
    }


def _applied(
    before: Sequence[ManifestEntry], delta: Sequence[ManifestEntry]
) -> list[ManifestEntry]:
    after = {entry.identity: entry for entry in before}
    for entry in delta:
        if entry.kind is FileKind.DELETE:
            if after.pop(entry.identity, None) is None:
                raise FileConflictError(
                    "file deletion conflicts detected! give up committing",
                    detail="a file this commit removes is not live any more",
                    hint="another job compacted or overwrote the bucket; start from the newest "
                    "snapshot",
                    file=entry.file.file_name,
                    bucket=entry.bucket,
                    level=entry.file.level,
                )
        elif entry.identity in after:
            raise FileConflictError(
                "a file this commit adds is live already",
                file=entry.file.file_name,
                bucket=entry.bucket,
                level=entry.file.level,
            )
        else:
            after[entry.identity] = entry
    return list(after.values())


def _check_bucket_count(before: Sequence[ManifestEntry], delta: Sequence[ManifestEntry]) -> None:
    counts = {entry.total_buckets for entry in before}
    for entry in delta:
        if entry.kind is FileKind.ADD and counts and entry.total_buckets not in counts:
            raise FileConflictError(
                f"total buckets of partition changed from {min(counts)} to "
                f"{entry.total_buckets} without overwrite",
                hint="rewrite the partition with an overwrite to change its buckets",
                bucket=entry.bucket,
            )


def _check_order(
    after: Sequence[ManifestEntry], delta: Sequence[ManifestEntry], follows: Collection[str]
) -> None:
    """Check that what a compaction left in level 0 is newer: it may have dropped newer deletes.

    A compaction takes in all of level 0, so what is left was committed while it ran.
    """
    if all(entry.kind is FileKind.ADD and entry.file.level == 0 for entry in delta):
        return
    newest = max(entry.file.max_sequence_number for entry in delta)
    own_names = {entry.file.file_name for entry in delta}.union(follows)
    for entry in after:
        left_out = entry.file.level == 0 and entry.file.file_name not in own_names
        if left_out and entry.file.min_sequence_number <= newest:
            raise FileConflictError(
                "LSM conflicts detected! give up committing",
                detail="other rows were committed during a compaction, and are not newer",
                bucket=entry.bucket,
                file=entry.file.file_name,
            )


def _check_levels(after: Sequence[ManifestEntry], key_of: KeyOf, touched: set[int]) -> None:
    by_level: dict[int, list[ManifestEntry]] = {}
    for entry in after:
        if entry.file.level >= 1 and entry.file.level in touched:
            by_level.setdefault(entry.file.level, []).append(entry)
    for level, entries in by_level.items():
        ordered = sorted(entries, key=lambda entry: key_of(entry.file.min_key))
        for left, right in itertools.pairwise(ordered):
            if key_of(left.file.max_key) >= key_of(right.file.min_key):
                raise FileConflictError(
                    "LSM conflicts detected! give up committing",
                    detail="key ranges of files in one level would overlap",
                    level=level,
                    left=left.file.file_name,
                    right=right.file.file_name,
                )
