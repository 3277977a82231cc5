# SPDX-License-Identifier: Apache-2.0
"""Removing all rows of a table, or those of some partitions, by values of partition columns.

Source: SEMANTICS.md §F.4. An OVERWRITE commit that only removes, safe beside other writers: what
is live at commit time goes, and what they commit later stays. Files go when snapshots expire.
"""

import dataclasses
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from storage.errors import InvalidRequestError
from storage.format.metadata.file_meta import ManifestEntry
from storage.format.metadata.snapshot import BATCH_COMMIT_IDENTIFIER
from storage.table.commit.commit import CommitResult, FileStoreCommit
from storage.table.commit.live_files import live_entries
from storage.table.core import TableCore
from storage.table.write.overwritten import partition_matcher

__all__ = ["PartitionFiles", "chosen_partitions", "drop_partitions", "live_partitions", "truncate"]

Chosen = Callable[[bytes], bool]


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
        table: the table, at a branch.
        partitions: values of some partition columns each; a text is read as a value of the
            column, None is null. Empty: every partition.

    Raises:
        InvalidRequestError: a column is no partition key or cannot have the value.
    """
    chosen = chosen_partitions(table, partitions)
    snapshot = table.latest_snapshot()
    found: dict[bytes, list[ManifestEntry]] = {}
    for entry in () if snapshot is None else live_entries(table, snapshot):
        if chosen(entry.partition):
            found.setdefault(entry.partition, []).append(entry)
    partitions_found = [
        PartitionFiles(
            partition=partition,
            name=table.partition_path(partition),
            files=len(entries),
            rows=sum(entry.file.row_count for entry in entries),
            size=sum(entry.file.file_size for entry in entries),
        )
        for partition, entries in found.items()
    ]
    return sorted(partitions_found, key=lambda one: one.name)


def chosen_partitions(table: TableCore, partitions: Sequence[Mapping[str, Any]]) -> Chosen:
    """Whether a framed partition has all values of one of some specifications; empty: every one.

    Raises:
        InvalidRequestError: a column is no partition key or cannot have the value.
    """
    matchers = [partition_matcher(table, values) for values in partitions]
    if not matchers:
        return lambda _: True
    known: dict[bytes, bool] = {}

    def chosen(partition: bytes) -> bool:
        found = known.get(partition)
        if found is None:
            found = known[partition] = any(matches(partition) for matches in matchers)
        return found

    return chosen


def drop_partitions(
    table: TableCore, partitions: Sequence[Mapping[str, Any]], *, user: str | None = None
) -> CommitResult:
    """Remove the rows of partitions that have all values of one of some specifications.

    Args:
        table: the table, at a branch.
        partitions: as of `live_partitions`, at least one; one without values is not allowed.
        user: who commits; None: somebody new.

    Raises:
        InvalidRequestError: nothing is chosen, or a column is no partition key or cannot have the
            value.
        As `FileStoreCommit.truncate`.
    """
    if not partitions or not all(partitions):
        raise InvalidRequestError(
            "no partition is named", hint="truncate the table to remove all rows"
        )
    chosen = chosen_partitions(table, partitions)
    return _commit(table, user).truncate(BATCH_COMMIT_IDENTIFIER, partitions=chosen)


def truncate(table: TableCore, *, user: str | None = None) -> CommitResult:
    """Remove all rows.

    Raises:
        As `FileStoreCommit.truncate`.
    """
    return _commit(table, user).truncate(BATCH_COMMIT_IDENTIFIER)


def _commit(table: TableCore, user: str | None) -> FileStoreCommit:
    return FileStoreCommit(table, user or table.ids.uuid())
