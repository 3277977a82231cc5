# SPDX-License-Identifier: Apache-2.0
"""Deleting rows of append tables by marking their positions.

Source: SEMANTICS.md §E, §F.1. Data files stay as they are; a commit of kind OVERWRITE brings
deletion vectors that take in those that are there.
"""

import dataclasses
from collections.abc import Iterator, Sequence

import numpy as np
import numpy.typing as npt

from storage.errors import (
    CorruptDataError,
    FileConflictError,
    InvalidRequestError,
    UnsupportedFeatureError,
)
from storage.format.files.data_file import read_rows
from storage.format.metadata.file_meta import CommitMessage, DataFileMeta, DataIncrement
from storage.format.metadata.snapshot import BATCH_COMMIT_IDENTIFIER, Snapshot
from storage.format.types.default_values import fill_defaults, read_defaults
from storage.options.options import require_writable
from storage.table.commit.commit import FileStoreCommit
from storage.table.commit.commit_loop import Attempt, run_until_committed
from storage.table.commit.live_files import BucketId, live_entries
from storage.table.core import TableCore
from storage.table.read.deletion_vectors import BucketVectors
from storage.table.scan.predicate import Predicate, columns_of, mask
from storage.table.scan.predicate_text import as_predicate
from storage.table.scan.scan import Split, TableScan
from storage.table.uncommitted import discarded_on

__all__ = ["DeleteResult", "delete_where"]

_BATCH_ROWS = 131_072


@dataclasses.dataclass(frozen=True, slots=True)
class DeleteResult:
    """What a deletion did.

    Attributes:
        snapshot_id: its snapshot; None when no row matched, or it has expired since.
        row_count: rows deleted now; 0 when an earlier attempt had committed.
        already_committed: an earlier attempt had committed; nothing was done now.
    """

    snapshot_id: int | None
    row_count: int
    already_committed: bool = False


def delete_where(
    table: TableCore,
    filter: str | Predicate,
    commit_user: str,
    *,
    identifier: int | None = None,
) -> DeleteResult:
    """Delete the rows of an append table for which a filter is true.

    When others change the same files at the same time, the rows are looked for again in what they
    left, as often as `commit.max-retries` allows.

    Args:
        table: an append table with `deletion-vectors.enabled`.
        filter: the rows, as text or as a predicate; where it is unknown for a row, the row stays.
        commit_user: who commits.
        identifier: as for `FileStoreCommit.commit`: the deletion is made at most once for a user
            and identifier. None: every call is a commit of its own.

    Raises:
        UnsupportedFeatureError: rows of the table cannot be deleted this way; says how.
        InvalidRequestError: a column of the filter is unknown, or it cannot be parsed.
        FileConflictError: others changed the same files each time; nothing was deleted.
        CommitConflictError: others were faster each time; nothing was deleted.
        StorageUnavailableError: the store failed; whether rows were deleted may be unknown.
    """
    _require_markable(table)
    predicate = as_predicate(filter)
    if predicate is None:
        raise InvalidRequestError("no filter is given", hint="`truncate` deletes all rows")
    unknown = columns_of(predicate) - set(table.schema.field_names)
    if unknown:
        raise InvalidRequestError(
            "no such column",
            hint=f"the table has {', '.join(table.schema.field_names)}",
            column=sorted(unknown)[0],
        )
    user = commit_user
    if identifier is None:
        identifier, user = BATCH_COMMIT_IDENTIFIER, f"{commit_user}-{table.ids.uuid()}"
    commit = FileStoreCommit(table, user)
    row_count = 0

    def prepare() -> Attempt:
        nonlocal row_count
        messages, row_count = _prepared(table, predicate, table.latest_snapshot())
        return messages, lambda: commit.commit(messages, identifier)

    attempts = table.options.commit_max_retries + 1
    committed = run_until_committed(table, prepare, attempts=attempts, retried=(FileConflictError,))
    assert committed is not None, "also no rows are committed"
    result = committed[1]
    return DeleteResult(
        snapshot_id=result.append_snapshot_id,
        row_count=0 if result.already_committed else row_count,
        already_committed=result.already_committed,
    )


def _require_markable(table: TableCore) -> None:
    if table.schema.primary_keys:
        raise UnsupportedFeatureError(
            "rows of a primary-key table are not deleted by position",
            hint="write rows of kind -D with the keys to delete",
            table=table.layout.root,
        )
    if not table.options.deletion_vectors_enabled:
        raise UnsupportedFeatureError(
            "rows can be deleted only with deletion vectors",
            hint="set `deletion-vectors.enabled` to true when the table is created, or overwrite "
            "the partitions without the rows",
            table=table.layout.root,
            option="deletion-vectors.enabled",
        )
    require_writable(table.options)


def _prepared(
    table: TableCore, predicate: Predicate, snapshot: Snapshot | None
) -> tuple[list[CommitMessage], int]:
    """Messages with the vectors of all rows that match, and the number of rows newly marked."""
    messages: list[CommitMessage] = []
    row_count = 0
    if snapshot is None:
        return messages, row_count
    plan = TableScan(table).with_filter(predicate).plan(snapshot)
    buckets: dict[BucketId, list[Split]] = {}
    for split in plan.splits:
        buckets.setdefault((split.partition, split.bucket), []).append(split)
    with discarded_on(table, messages):
        for bucket, splits in buckets.items():
            message, marked = _bucket_message(table, predicate, snapshot, bucket, splits)
            row_count += marked
            if marked:
                messages.append(message)
    return messages, row_count


def _bucket_message(
    table: TableCore,
    predicate: Predicate,
    snapshot: Snapshot,
    bucket: BucketId,
    splits: Sequence[Split],
) -> tuple[CommitMessage, int]:
    vectors = BucketVectors.of(table, snapshot, *bucket)
    marked = 0
    for split in splits:
        for file in split.files:
            positions = list(_matching(table, predicate, split, file))
            if positions:
                marked += vectors.mark(file.file_name, np.concatenate(positions))
    change = vectors.finish()
    partition, number = bucket
    entries = live_entries(table, snapshot, partition=partition, bucket=number)
    message = CommitMessage(
        partition=partition,
        bucket=number,
        total_buckets=entries[0].total_buckets,
        data=DataIncrement(new_index_files=change.new, deleted_index_files=change.deleted),
    )
    return message, marked


def _matching(
    table: TableCore, predicate: Predicate, split: Split, file: DataFileMeta
) -> Iterator[npt.NDArray[np.integer]]:
    """Positions in a file of the rows that match, marked ones too.

    Batches come in file order and are complete, so that counting their rows gives positions.
    """
    wanted = columns_of(predicate)
    names = table.schema.field_names
    columns = [name for name in names if name in wanted] or names[:1]
    path = file.external_path or table.layout.data_file(
        split.partition_path, split.bucket, file.file_name
    )
    defaults = read_defaults(table.schema)
    start = 0
    for batch in read_rows(
        table.file_io,
        path,
        file,
        table.schemas.read(file.schema_id),
        table.schema,
        columns,
        batch_rows=_BATCH_ROWS,
    ):
        matches = mask(predicate, fill_defaults(batch, defaults))
        positions = np.flatnonzero(matches.to_numpy(zero_copy_only=False))
        if len(positions):
            yield positions + start
        start += batch.num_rows
    if start != file.row_count:
        raise CorruptDataError(
            "a data file holds another number of rows than recorded",
            path=path,
            expected=file.row_count,
            found=start,
        )
