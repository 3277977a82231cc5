# SPDX-License-Identifier: Apache-2.0
"""Removing or replacing the rows of a table, or of partitions by values of partition columns.

Source: SEMANTICS.md §F.4. An OVERWRITE commit that only removes, safe beside other writers: what
is live at commit time is removed, later commits stay. Files are deleted when snapshots expire.
"""

import dataclasses
import functools
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from storage.errors import InvalidRequestError
from storage.format.metadata.file_meta import CommitMessage, ManifestEntry
from storage.format.metadata.layout import POSTPONE_BUCKET
from storage.format.metadata.snapshot import BATCH_COMMIT_IDENTIFIER
from storage.table.commit.commit import NOT_COMMITTED, CommitResult, FileStoreCommit
from storage.table.commit.commit_changes import discarded_on
from storage.table.commit.live_files import live_entries
from storage.table.core import TableCore
from storage.table.write.overwritten import partition_matcher
from storage.table.write.postpone import require_bucket_counts

if TYPE_CHECKING:
    from storage.table.table import FileStoreTable
    from storage.table.write.write import TableWrite

PartitionChoice = Callable[[bytes], bool]


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class PartitionFiles:
    """What a partition has in the newest snapshot.

    Attributes:
        partition: framed.
        name: directory part; empty when the table has no partitions.
        files: live data files.
        rows: in them, before merging.
        size: of them [bytes].
    """

    partition: bytes
    name: str
    files: int
    rows: int
    size: int


def live_partitions(
    table: TableCore, partitions: Sequence[Mapping[str, Any]] = ()
) -> list[PartitionFiles]:
    """The partitions that have all values of one of some specifications, by name.

    Args:
        partitions: values of some partition columns each; a text is read as a value of the
            column, None is null. Empty: every partition.

    Raises:
        InvalidRequestError: a column is no partition key or cannot have the value.
    """
    chosen = chosen_partitions(table, partitions)
    snapshot = table.latest_snapshot()
    by_partition: dict[bytes, list[ManifestEntry]] = {}
    for entry in () if snapshot is None else live_entries(table, snapshot):
        if chosen(entry.partition):
            by_partition.setdefault(entry.partition, []).append(entry)
    result = [
        PartitionFiles(
            partition=partition,
            name=table.partition_path(partition),
            files=len(entries),
            rows=sum(entry.file.row_count for entry in entries),
            size=sum(entry.file.file_size for entry in entries),
        )
        for partition, entries in by_partition.items()
    ]
    return sorted(result, key=lambda partition: partition.name)


def chosen_partitions(table: TableCore, partitions: Sequence[Mapping[str, Any]]) -> PartitionChoice:
    """Whether a framed partition has all values of one of some specifications; empty: every one.

    Raises:
        InvalidRequestError: a column is no partition key or cannot have the value.
    """
    matchers = [partition_matcher(table, values) for values in partitions]
    if not matchers:
        return lambda _: True
    return functools.cache(lambda partition: any(matches(partition) for matches in matchers))


def drop_partitions(
    table: TableCore, partitions: Sequence[Mapping[str, Any]], *, user: str | None = None
) -> CommitResult:
    """Remove the rows of partitions that have all values of one of some specifications.

    Args:
        partitions: as of `live_partitions`, at least one; one without values is not allowed.
        user: who commits; None: a new user.

    Raises:
        InvalidRequestError: no partition is selected, or a column is no partition key or cannot
            have the value.
        As `FileStoreCommit.truncate`.
    """
    if not partitions or not all(partitions):
        raise InvalidRequestError(
            "no partition is selected", hint="truncate the table to remove all rows"
        )
    chosen = chosen_partitions(table, partitions)
    return _commit(table, user).truncate(BATCH_COMMIT_IDENTIFIER, partitions=chosen)


def truncate(table: TableCore, *, user: str | None = None) -> CommitResult:
    """Remove all rows.

    Raises:
        As `FileStoreCommit.truncate`.
    """
    return _commit(table, user).truncate(BATCH_COMMIT_IDENTIFIER)


def append_rows(
    table: "FileStoreTable", batches: Iterable[pa.RecordBatch], *, user: str | None = None
) -> tuple[int, CommitResult]:
    """Write rows in one commit.

    Args:
        batches: as of `overwrite_rows`.
        user: who commits; None: a new user.

    Returns:
        How many rows were written, and the outcome of the commit.

    Raises:
        InvalidRequestError: a row does not fit.
        As `FileStoreCommit.commit`.
    """
    user = user or table.ids.uuid()
    count, messages = _write_rows(
        table.new_write(user, batch=True), batches, BATCH_COMMIT_IDENTIFIER
    )
    with discarded_on(table, messages, NOT_COMMITTED):
        check = None
        if table.options.bucket == POSTPONE_BUCKET:
            check = require_bucket_counts(table, messages)
        result = table.new_commit(user).commit(
            messages, BATCH_COMMIT_IDENTIFIER, before_publish=check
        )
    return count, result


def overwrite_rows(
    table: "FileStoreTable",
    batches: Iterable[pa.RecordBatch],
    *,
    partition: Mapping[str, Any] | None = None,
    user: str | None = None,
) -> tuple[int, CommitResult]:
    """Write rows that replace what is live at commit time.

    Args:
        batches: value columns, and `_VALUE_KIND` where there is anything but inserts.
        partition: values of some partition columns: exactly the partitions that have them are
            replaced, also when there are no rows. None: what the table's options say.
        user: who commits; None: a new user.

    Returns:
        How many rows were written, and the outcome of the commit.

    Raises:
        InvalidRequestError: a row does not fit, or does not belong to the partition.
        As `FileStoreCommit.overwrite`.
    """
    if partition is not None:
        table = table.with_options({"dynamic-partition-overwrite": "false"})
    user = user or table.ids.uuid()
    count, messages = _write_rows(table.new_write(user, overwrite=True, batch=True), batches)
    with discarded_on(table, messages, (*NOT_COMMITTED, InvalidRequestError)):
        result = table.new_commit(user).overwrite(
            messages, BATCH_COMMIT_IDENTIFIER, partition=partition
        )
    return count, result


def _write_rows(
    write: "TableWrite", batches: Iterable[pa.RecordBatch], identifier: int | None = None
) -> tuple[int, list[CommitMessage]]:
    count = 0
    with write as writer:
        for batch in batches:
            writer.write(batch)
            count += batch.num_rows
        return count, writer.prepare_commit(identifier)


def _commit(table: TableCore, user: str | None) -> FileStoreCommit:
    return FileStoreCommit(table, user or table.ids.uuid())
