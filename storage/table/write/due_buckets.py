# SPDX-License-Identifier: Apache-2.0
"""Buckets that a commit compacts although it writes no row of them.

Source: SEMANTICS.md §C.3, §D.7. What was written since the last full compaction is read off the
levels of the table itself, not remembered: so it is the same after a restart, in whatever process,
and for writers that live for one commit. The price: rows of other jobs count as well, so one
stream per table should ask for periodic full compactions.
"""

from storage.format.metadata.file_meta import ManifestEntry
from storage.format.metadata.snapshot import Snapshot
from storage.lsm.commit_cadence import merges_everything, merges_level_0
from storage.options.options import TableOptions
from storage.table.commit.live_files import BucketId, live_buckets
from storage.table.core import TableCore

__all__ = ["buckets_due"]


def buckets_due(
    table: TableCore, snapshot: Snapshot | None, identifier: int | None, *, resuming: bool = False
) -> tuple[BucketId, ...]:
    """Buckets to open for a commit besides those that get rows.

    Give each of them a writer of `open_bucket` and hand its `prepare_commit(identifier)` in with
    the others; it does nothing where nothing is to be done.

    Args:
        table: the table.
        snapshot: the one the commit builds on; None = none, and no bucket is due.
        identifier: of the commit; None = of no stream.
        resuming: also buckets whose level 0 should have been compacted by earlier commits, as
            after a crash between the two snapshots of a commit. For the first commit of a job:
            level 0 of another job that is about to commit its compaction looks the same.

    Returns:
        In ascending order. None of buckets with another number of buckets than the table's.
    """
    options = table.options
    if snapshot is None or identifier is None or not table.schema.primary_keys:
        return ()
    fully = merges_everything(options, identifier)
    gentle = options.lookup_compact == "gentle"
    if not fully and not ((resuming or gentle) and merges_level_0(options, identifier)):
        return ()
    found = live_buckets(
        table, snapshot, lambda _partition, _bucket, total: total == options.bucket, lambda _: True
    )
    due = _unmerged if fully else _has_level_0
    return tuple(sorted(where for where, entries in found.items() if due(entries, options)))


def _unmerged(entries: tuple[ManifestEntry, ...], options: TableOptions) -> bool:
    """Whether some file is not in the last level."""
    last = max(options.num_levels - 1, *(entry.file.level for entry in entries))
    return any(entry.file.level != last for entry in entries)


def _has_level_0(entries: tuple[ManifestEntry, ...], _options: TableOptions) -> bool:
    return any(entry.file.level == 0 for entry in entries)
