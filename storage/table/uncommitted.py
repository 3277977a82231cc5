# SPDX-License-Identifier: Apache-2.0
"""Removing what writers made and no snapshot names."""

from collections.abc import Iterable

from storage.format.file_meta import CommitMessage, IndexManifestEntry
from storage.table.commit_changes import OwnFiles, own_files, own_index_files
from storage.table.core import TableCore
from storage.table.index_files import index_path

__all__ = ["delete_files", "delete_uncommitted"]


def delete_uncommitted(table: TableCore, messages: Iterable[CommitMessage]) -> None:
    """Remove data, changelog and index files of messages that are not and will not be committed."""
    messages = tuple(messages)
    delete_files(table, own_files(messages), own_index_files(messages))


def delete_files(
    table: TableCore, files: OwnFiles, index_files: Iterable[IndexManifestEntry]
) -> None:
    """Remove data files, and index files given as entries; one that stays is an orphan."""
    paths = [table.data_path(*file) for file in sorted(files)]
    paths += [index_path(table, one.partition, one.bucket, one.file) for one in index_files]
    table.delete_quietly(paths)
