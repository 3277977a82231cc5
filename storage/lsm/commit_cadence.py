# SPDX-License-Identifier: Apache-2.0
"""Which compactions belong to a commit, by the options and the commit's identifier. Pure.

Source: SEMANTICS.md §C.3 and §D.7. Everything follows from the identifier, so that a restarted
job, or a writer that lives for one commit only, decides as one that never stopped.
"""

from storage.format.metadata.snapshot import BATCH_COMMIT_IDENTIFIER
from storage.options.options import TableOptions


def full_compaction_interval(options: TableOptions) -> int | None:
    """Commits of a stream from one full compaction to the next; None = none is asked for."""
    interval = options.full_compaction_delta_commits
    if interval is None or interval < 0:
        return 1 if options.changelog_producer == "full-compaction" else None
    return max(1, interval)


def has_period(options: TableOptions) -> bool:
    """Whether some compaction comes with every n-th commit, so that identifiers matter."""
    if options.write_only:
        return False
    gentle = options.needs_lookup and options.lookup_compact == "gentle"
    return gentle or full_compaction_interval(options) is not None


def merges_everything(options: TableOptions, identifier: int | None) -> bool:
    """Whether a commit compacts fully what was written since the last full compaction.

    An identifier of None is of no stream, which never asks for it.
    """
    interval = full_compaction_interval(options)
    if interval is None or identifier is None or options.write_only:
        return False
    return identifier == BATCH_COMMIT_IDENTIFIER or identifier % interval == 0


def merges_level_0(options: TableOptions, identifier: int | None) -> bool:
    """Whether a commit compacts all of level 0 that it finds in the buckets it writes.

    An identifier of None is of no stream, which waits as a batch job does.
    """
    if not options.needs_lookup or options.write_only:
        return False
    batch = identifier is None or identifier == BATCH_COMMIT_IDENTIFIER
    if not (batch or options.lookup_wait or options.commit_force_compact):
        return False
    if options.lookup_compact == "gentle":
        return identifier is not None and identifier % options.lookup_compact_max_interval == 0
    return True
