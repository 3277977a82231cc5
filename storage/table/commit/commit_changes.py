# SPDX-License-Identifier: Apache-2.0
"""The changes of a commit: manifest entries of its two snapshots, and the files that it wrote.

Source: SEMANTICS.md §F.1. Pure.
"""

import dataclasses
from collections.abc import Callable, Iterable, Iterator, Sequence

from storage.format.metadata.file_meta import (
    CommitMessage,
    DataFileMeta,
    FileKind,
    IndexFileMeta,
    IndexManifestEntry,
    IndexType,
    ManifestEntry,
)
from storage.format.metadata.snapshot import CommitKind

OwnFiles = set[tuple[bytes, int, str]]
"""Physical files as (framed partition, bucket, name)."""


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Changes:
    """Content of one future snapshot.

    Attributes:
        entries: ADD and DELETE entries of the delta.
        changelog: ADD entries of changelog files.
        index: DELETE and ADD entries of table index files.
        removes: selects by partition (framed) live entries and index files to remove as well,
            again at every attempt; None unless overwriting.
        statistics: name of a new statistics file, or None.
        follows: names of files that the APPEND of the same commit added, if this is its COMPACT.
    """

    kind: CommitKind
    entries: tuple[ManifestEntry, ...] = ()
    changelog: tuple[ManifestEntry, ...] = ()
    index: tuple[IndexManifestEntry, ...] = ()
    removes: Callable[[bytes], bool] | None = None
    statistics: str | None = None
    follows: frozenset[str] = frozenset()

    @property
    def empty(self) -> bool:
        """Whether nothing changes."""
        return not (self.entries or self.changelog or self.index or self.removes or self.statistics)


def changes_of(messages: Sequence[CommitMessage]) -> tuple[Changes, Changes]:
    """The APPEND and the COMPACT part of a commit.

    The first is an OVERWRITE when data files are removed or rows of files are marked as deleted.
    """
    removed = [e for m in messages for e in _entries(m, FileKind.DELETE, m.data.deleted_files)]
    added = [e for m in messages for e in _entries(m, FileKind.ADD, m.data.new_files)]
    before = [e for m in messages for e in _entries(m, FileKind.DELETE, m.compact.compact_before)]
    after = [e for m in messages for e in _entries(m, FileKind.ADD, m.compact.compact_after)]
    index = tuple(
        entry
        for m in messages
        for entry in _index(m, m.data.deleted_index_files, m.data.new_index_files)
    )
    marks = any(entry.file.index_type == IndexType.DELETION_VECTORS for entry in index)
    append = Changes(
        kind=CommitKind.OVERWRITE if removed or marks else CommitKind.APPEND,
        entries=(*removed, *added),
        index=index,
        changelog=tuple(
            e for m in messages for e in _entries(m, FileKind.ADD, m.data.changelog_files)
        ),
    )
    compact = Changes(
        kind=CommitKind.COMPACT,
        entries=(*before, *after),
        index=tuple(
            entry
            for m in messages
            for entry in _index(m, m.compact.deleted_index_files, m.compact.new_index_files)
        ),
        changelog=tuple(
            e for m in messages for e in _entries(m, FileKind.ADD, m.compact.changelog_files)
        ),
        follows=frozenset(entry.file.file_name for entry in added),
    )
    return append, compact


def _entries(
    message: CommitMessage, kind: FileKind, files: Iterable[DataFileMeta]
) -> Iterator[ManifestEntry]:
    for file in files:
        yield ManifestEntry(
            kind=kind,
            partition=message.partition,
            bucket=message.bucket,
            total_buckets=message.total_buckets,
            file=file,
        )


def _index(
    message: CommitMessage, deleted: Iterable[IndexFileMeta], new: Iterable[IndexFileMeta]
) -> Iterator[IndexManifestEntry]:
    for kind, files in ((FileKind.DELETE, deleted), (FileKind.ADD, new)):
        for file in files:
            yield IndexManifestEntry(
                kind=kind, partition=message.partition, bucket=message.bucket, file=file
            )


def own_index_files(messages: Iterable[CommitMessage]) -> list[IndexManifestEntry]:
    """Every table index file that the messages' writers wrote, as ADD entries."""
    return [
        entry
        for message in messages
        for entry in _index(
            message, (), (*message.data.new_index_files, *message.compact.new_index_files)
        )
    ]


def compact_index_files(messages: Iterable[CommitMessage]) -> list[IndexManifestEntry]:
    """The table index files that only the COMPACT snapshot would reference."""
    return [
        entry
        for message in messages
        for entry in _index(message, (), message.compact.new_index_files)
    ]


def own_files(messages: Iterable[CommitMessage]) -> OwnFiles:
    """Every file that the messages' writers wrote, also by compaction.

    A file that a compaction only moved to another level is left out unless the same message
    also wrote it.
    """
    files: OwnFiles = set()
    for message in messages:
        data, compact = message.data, message.compact
        written = _names(message, (*data.new_files, *data.changelog_files))
        inputs = _names(message, (*data.deleted_files, *compact.compact_before)) - written
        outputs = _names(message, (*compact.compact_after, *compact.changelog_files))
        files |= written | (outputs - inputs)
    return files


def compact_files(messages: Iterable[CommitMessage]) -> OwnFiles:
    """The files that only the COMPACT snapshot would reference: deleted when it is dropped."""
    files: OwnFiles = set()
    for message in messages:
        data, compact = message.data, message.compact
        remaining = _names(
            message,
            (
                *data.new_files,
                *data.changelog_files,
                *data.deleted_files,
                *compact.compact_before,
            ),
        )
        files |= _names(message, (*compact.compact_after, *compact.changelog_files)) - remaining
    return files


def partitions_of(messages: Iterable[CommitMessage]) -> frozenset[bytes]:
    """Partitions that receive new files."""
    return frozenset(message.partition for message in messages if message.data.new_files)


def _names(message: CommitMessage, files: Iterable[DataFileMeta]) -> OwnFiles:
    return {
        (message.partition, message.bucket, name)
        for file in files
        for name in (file.file_name, *file.extra_files)
    }
