# SPDX-License-Identifier: Apache-2.0
"""Data files that the newest snapshot of a table names."""

from storage.format.metadata.file_meta import ManifestEntry
from storage.table.commit.live_files import live_entries
from storage.table.table import FileStoreTable

__all__ = ["newest_entries", "newest_names"]


def newest_entries(table: FileStoreTable) -> list[ManifestEntry]:
    """One entry for each file; the table must have a snapshot."""
    snapshot = table.latest_snapshot()
    assert snapshot is not None
    return live_entries(table, snapshot)


def newest_names(table: FileStoreTable) -> set[str]:
    """Names of the files."""
    return {entry.file.file_name for entry in newest_entries(table)}
