# SPDX-License-Identifier: Apache-2.0
"""Stops appends of writers that do not know that the number of buckets has changed.

Source: SEMANTICS.md §F.15. Appends never conflict, so they are not checked against what is live.
But `rescale` changes the schema before it changes a partition, and what was written by an older
schema is looked at: rows in buckets of two numbers would hide each other.
"""

from collections.abc import Iterable

from storage.errors import CommitConflictError
from storage.format.metadata.file_meta import FileKind, ManifestEntry
from storage.format.metadata.snapshot import Snapshot
from storage.table.commit.live_files import live_entries
from storage.table.core import TableCore

__all__ = ["check_buckets"]


def check_buckets(table: TableCore, latest: Snapshot, entries: Iterable[ManifestEntry]) -> None:
    """Check the number of buckets of new files against a state of a newer schema.

    Args:
        table: at the schema of the files.
        latest: the newest snapshot, of a newer schema.
        entries: of the append.

    Raises:
        CommitConflictError: a partition has another number of buckets; nothing was committed.
    """
    wanted = table.schemas.read(latest.schema_id).num_buckets
    if wanted == table.schema.num_buckets:
        return
    written = {e.partition: e.total_buckets for e in entries if e.kind is FileKind.ADD}
    for partition, buckets in sorted(written.items()):
        there = live_entries(table, latest, partition=partition)
        found = there[0].total_buckets if there else wanted
        if found != buckets:
            raise CommitConflictError(
                "the number of buckets was changed while rows were written",
                detail=f"Total buckets of partition changed from {buckets} to {found}",
                hint="open the table anew and write the rows again",
                table=table.layout.root,
                partition=table.partition_path(partition),
            )
