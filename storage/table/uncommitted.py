# SPDX-License-Identifier: Apache-2.0
"""Removing files of commits that did not happen: written, and referenced by no snapshot."""

import contextlib
import dataclasses
from collections.abc import Iterable, Iterator

from storage.errors import RetryableError
from storage.format.metadata.file_meta import CommitMessage, DataFileMeta, IndexManifestEntry
from storage.table.commit.commit_changes import OwnFiles, own_files, own_index_files
from storage.table.commit.index_files import index_path
from storage.table.core import TableCore


def delete_uncommitted(table: TableCore, messages: Iterable[CommitMessage]) -> None:
    """Remove data, changelog and index files of messages that are not and will not be committed."""
    messages = tuple(messages)
    delete_files(table, own_files(messages), own_index_files(messages))


@contextlib.contextmanager
def discarded_on(
    table: TableCore,
    messages: Iterable[CommitMessage],
    errors: type[BaseException] | tuple[type[BaseException], ...] = BaseException,
) -> Iterator[None]:
    """Remove the files of messages when the block raises; without `errors`, any exception.

    Messages that the block still appends are removed, too.
    """
    try:
        yield
    except errors:
        with contextlib.suppress(RetryableError, OSError):  # what stays is an orphan
            delete_uncommitted(table, messages)
        raise


def delete_files(
    table: TableCore, files: OwnFiles, index_files: Iterable[IndexManifestEntry]
) -> None:
    """Remove data files, and index files given as entries; one that stays is an orphan."""
    paths = [table.data_path(*file) for file in sorted(files)]
    paths += [index_path(table, entry.partition, entry.bucket, entry.file) for entry in index_files]
    table.delete_quietly(paths)


def folded_files(
    table: TableCore, message: CommitMessage
) -> tuple[tuple[DataFileMeta, ...], tuple[DataFileMeta, ...]]:
    """What one snapshot changes that holds both the new files of a message and its compaction.

    Files that the message both creates and replaces are removed from the store.

    Returns:
        The live files it removes, and the files it adds.
    """
    compact = message.compact
    new = {file.file_name for file in message.data.new_files}
    replaced = {file.file_name for file in compact.compact_before}
    after = {file.file_name for file in compact.compact_after}
    garbage = {
        (message.partition, message.bucket, name)
        for file in compact.compact_before
        if file.file_name in new - after
        for name in (file.file_name, *file.extra_files)
    }
    delete_files(table, garbage, ())
    before = tuple(file for file in compact.compact_before if file.file_name not in new)
    remaining = tuple(file for file in message.data.new_files if file.file_name not in replaced)
    return before, (*remaining, *compact.compact_after)


def without_changelog(table: TableCore, messages: Iterable[CommitMessage]) -> list[CommitMessage]:
    """The messages of an overwrite, which emits no changelog: their changelog files are removed."""
    result: list[CommitMessage] = []
    paths: list[str] = []
    for message in messages:
        paths += [
            table.data_path(message.partition, message.bucket, name)
            for file in (*message.data.changelog_files, *message.compact.changelog_files)
            for name in (file.file_name, *file.extra_files)
        ]
        data = dataclasses.replace(message.data, changelog_files=())
        compact = dataclasses.replace(message.compact, changelog_files=())
        result.append(dataclasses.replace(message, data=data, compact=compact))
    table.delete_quietly(paths)
    return result
