# SPDX-License-Identifier: Apache-2.0
"""Putting rows in the place of those of a table or of partitions, as one call.

Source: SEMANTICS.md §F.4; see `FileStoreCommit.overwrite` for what is replaced.
"""

from collections.abc import Iterable, Mapping
from typing import Any

import pyarrow as pa

from storage.errors import CommitConflictError, FileConflictError, InvalidRequestError
from storage.format.metadata.snapshot import BATCH_COMMIT_IDENTIFIER
from storage.table.commit.commit import CommitResult
from storage.table.table import FileStoreTable
from storage.table.uncommitted import delete_uncommitted

__all__ = ["overwrite_rows"]


def overwrite_rows(
    table: FileStoreTable,
    batches: Iterable[pa.RecordBatch],
    *,
    partition: Mapping[str, Any] | None = None,
    user: str | None = None,
) -> tuple[int, CommitResult]:
    """Write rows and let them take the place of what is live when they are committed.

    Args:
        table: the table, at a branch.
        batches: value columns, and `_VALUE_KIND` where there is anything but inserts.
        partition: values of some partition columns: exactly the partitions that have them are
            replaced, also when there are no rows. None: what the table's options say.
        user: who commits; None: somebody new.

    Returns:
        How many rows were written, and what became of the commit.

    Raises:
        InvalidRequestError: a row does not fit, or does not belong to the partition.
        As `FileStoreCommit.overwrite`.
    """
    if partition is not None:
        table = table.with_options({"dynamic-partition-overwrite": "false"})
    user = user or table.ids.uuid()
    count = 0
    with table.new_write(user, overwrite=True) as writer:
        for batch in batches:
            writer.write(batch)
            count += batch.num_rows
        messages = writer.prepare_commit()
    try:
        result = table.new_commit(user).overwrite(
            messages, BATCH_COMMIT_IDENTIFIER, partition=partition
        )
    except (CommitConflictError, FileConflictError, InvalidRequestError):  # certain not to be there
        delete_uncommitted(table, messages)
        raise
    return count, result
