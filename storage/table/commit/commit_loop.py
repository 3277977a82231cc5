# SPDX-License-Identifier: Apache-2.0
"""The one loop of jobs that read a table, write files and commit them beside other writers.

An attempt plans and writes from the newest snapshot, and gives what commits it. When another
writer was faster, the attempt's files are removed and the next one starts from what that writer
left. Where it is unknown whether the commit happened (`StorageUnavailableError`), nothing is
removed and nothing is tried again: that is up to the caller, who may commit the same messages.
"""

from collections.abc import Callable, Sequence

from storage.errors import CommitConflictError, FileConflictError
from storage.format.metadata.file_meta import CommitMessage
from storage.table.commit.commit import CommitResult
from storage.table.core import TableCore
from storage.table.uncommitted import discarded_on

__all__ = ["NOT_COMMITTED", "Attempt", "Committed", "run_until_committed"]

Attempt = tuple[Sequence[CommitMessage], Callable[[], CommitResult]]
"""Messages whose files are written, and what commits them."""

Committed = tuple[Sequence[CommitMessage], CommitResult]
"""Messages of the last attempt, and what became of their commit."""

NOT_COMMITTED = (CommitConflictError, FileConflictError)
"""Errors of a commit that say for certain that nothing was committed."""


def run_until_committed(
    table: TableCore,
    prepare: Callable[[], Attempt | None],
    *,
    attempts: int,
    retried: tuple[type[Exception], ...] = (),
    on_lost: Callable[[], None] = lambda: None,
) -> Committed | None:
    """Make attempts until one is committed, or as many as allowed have lost.

    An attempt is lost when its compaction is dropped, or it raises one of `retried`.

    Args:
        prepare: plans and writes from the newest state; None: there is nothing to commit.
        attempts: most attempts.
        retried: errors after which another attempt may succeed; of `NOT_COMMITTED`.
        on_lost: called after each lost attempt, its files removed.

    Returns:
        None when there was nothing to commit. The compaction of the last attempt may be dropped.

    Raises:
        The error of the last attempt, or one that is not in `retried`.
    """
    committed: Committed | None = None
    for number in range(attempts):
        try:
            attempt = prepare()
            if attempt is None:
                return None
            messages, commit = attempt
            with discarded_on(table, messages, NOT_COMMITTED):
                committed = messages, commit()
        except retried:
            on_lost()
            if number == attempts - 1:
                raise
            continue
        if not committed[1].compaction_dropped:
            break
        on_lost()
    return committed
