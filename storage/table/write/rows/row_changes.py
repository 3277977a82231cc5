# SPDX-License-Identifier: Apache-2.0
"""One statement that changes rows: read a state, decide, write, commit; all or nothing.

Protocol of an attempt: the rows of the newest snapshot go to the statement, which decides on each;
the changes are written, and committed if what they are based on still holds. Otherwise the
attempt's files are removed and the next one starts from the newest snapshot (SEMANTICS.md §F.3):

* rows of append tables leave their files, so a compaction, deletion or overwrite of the same files
  is a conflict of files;
* rows of primary-key tables are written again, which would silently undo concurrent writes to the
  same keys; so a commit of rows to the same buckets is a conflict (Java has no such
  check);
* where the statement also inserts rows for what it did not find, any commit of rows is a conflict.
"""

import dataclasses
from collections.abc import Callable, Iterable, Sequence

import numpy as np
import pyarrow as pa

from storage.errors import FileConflictError, InvalidRequestError, NotFoundError
from storage.format.metadata.file_meta import CommitMessage
from storage.format.metadata.layout import POSTPONE_BUCKET
from storage.format.metadata.snapshot import BATCH_COMMIT_IDENTIFIER, CommitKind, Snapshot
from storage.format.types.types import RowKind
from storage.table.commit.commit import Attempt, CommitResult, FileStoreCommit, run_until_committed
from storage.table.commit.live_files import BucketId, delta_entries
from storage.table.core import TableCore
from storage.table.scan.predicate import Predicate
from storage.table.write.postpone import require_bucket_counts
from storage.table.write.rows.fit_rows import fit_columns
from storage.table.write.rows.target_rows import ACTION, ROW, RowAction, target_rows

Change = Callable[[pa.RecordBatchReader], Iterable[pa.RecordBatch]]
"""Takes rows (`ROW` and columns), returns changes (`ROW`, `ACTION` and columns).

A row that no action applies to is left out, or has a null action. A new row has no `ROW`. A column
that the actions of a batch do not set may be missing from it.
"""


@dataclasses.dataclass(frozen=True, slots=True)
class ChangeResult:
    """What a statement did.

    Attributes:
        snapshot_id: its snapshot; None when nothing changed, or it has expired since.
        deleted: rows; like the others 0 when an earlier attempt had committed.
        updated: rows, also where the new values are the old ones.
        inserted: rows.
        already_committed: an earlier attempt had committed; nothing was done now.
    """

    snapshot_id: int | None
    deleted: int = 0
    updated: int = 0
    inserted: int = 0
    already_committed: bool = False

    @property
    def row_count(self) -> int:
        """Rows deleted, updated and inserted."""
        return self.deleted + self.updated + self.inserted


def change_rows(
    table: TableCore,
    change: Change,
    actions: Sequence[RowAction],
    commit_user: str,
    *,
    columns: Sequence[str],
    predicate: Predicate | Callable[[], Predicate | None] | None = None,
    identifier: int | None = None,
) -> ChangeResult:
    """Change rows of a table in one commit.

    Args:
        table: the table; `row_rules` says which statements it takes.
        change: decides on the rows of a state; called again for every attempt.
        actions: what its changes refer to by number.
        predicate: a condition that every row to be changed meets; `change` may get others, too.
            A function is called in every attempt, after its state was chosen.
        identifier: as for `FileStoreCommit.commit`: the changes are made at most once for a user
            and identifier. None: every call is a commit of its own.

    Raises:
        InvalidRequestError: a row is changed twice, a value does not fit, or a key would change.
        FileConflictError: another writer changed the same rows each time; nothing was changed.
        CommitConflictError: another writer won each time; nothing was changed.
        StorageUnavailableError: the store failed; whether rows were changed may be unknown.
    """
    user = commit_user
    if identifier is None:
        identifier, user = BATCH_COMMIT_IDENTIFIER, f"{commit_user}-{table.ids.uuid()}"
    number = identifier
    commit = FileStoreCommit(table, user)
    inserts = any(action.kind is RowKind.INSERT for action in actions)
    counts = ChangeResult(None)

    def prepare() -> Attempt:
        nonlocal counts
        snapshot = table.latest_snapshot()
        target = target_rows(table, snapshot, predicate() if callable(predicate) else predicate)
        changes = _collected(table, change(target.read(columns)), actions)
        counts = _count_actions(changes, actions)
        messages: list[CommitMessage] = []
        if changes.num_rows:
            messages = target.write(changes, actions, user)
        touched = None
        if not inserts:
            keyed = bool(table.schema.primary_keys)
            touched = {(m.partition, m.bucket) for m in messages} if keyed else set()

        def require(latest: Snapshot | None) -> None:
            _require_unchanged(table, user, snapshot, latest, touched)
            if table.options.bucket == POSTPONE_BUCKET:
                require_bucket_counts(table, messages)(latest)

        def publish() -> CommitResult:
            result = commit.commit(messages, number, before_publish=require)
            if result.append_snapshot_id is None:
                return result
            return dataclasses.replace(result, compaction_dropped=False)  # rows are committed

        return messages, publish

    attempts = table.options.commit_max_retries + 1
    committed = run_until_committed(table, prepare, attempts=attempts, retried=(FileConflictError,))
    assert committed is not None, "also no rows are committed"
    result = committed[1]
    if result.already_committed:
        return ChangeResult(result.append_snapshot_id, already_committed=True)
    return dataclasses.replace(counts, snapshot_id=result.append_snapshot_id)


def _collected(
    table: TableCore, batches: Iterable[pa.RecordBatch], actions: Sequence[RowAction]
) -> pa.Table:
    """The changes that change something, in the types of the table."""
    columns = set().union(*(action.columns for action in actions))
    names = [name for name in table.schema.field_names if name in columns]
    whole = table.schema.arrow_schema
    fields = [pa.field(ROW, pa.int64()), pa.field(ACTION, pa.int32())]
    fields += [whole.field(name).with_nullable(True) for name in names]
    changes: list[pa.RecordBatch] = []
    addresses: list[np.ndarray] = []
    for batch in batches:
        rows = batch.column(ROW)
        addresses.append(rows.drop_null().to_numpy(zero_copy_only=False))
        acting = batch.filter(batch.column(ACTION).is_valid())
        if acting.num_rows:
            changes.append(_fitted(acting, pa.schema(fields)))
    matched = np.concatenate(addresses) if addresses else np.empty(0, np.int64)
    if len(np.unique(matched)) < len(matched):
        raise InvalidRequestError(
            "Can't execute this MergeInto when there are some target rows that each of them match "
            "more than one source rows. It may lead to an unexpected result.",
            hint="make the rows of the source unique in the columns of the condition",
            table=table.layout.root,
        )
    return pa.Table.from_batches(changes, pa.schema(fields))


def _fitted(batch: pa.RecordBatch, schema: pa.Schema) -> pa.RecordBatch:
    count, names = batch.num_rows, set(batch.schema.names)
    columns = [
        batch.column(field.name) if field.name in names else pa.nulls(count, field.type)
        for field in schema
    ]
    return fit_columns(pa.RecordBatch.from_arrays(columns, names=schema.names), schema)


def _count_actions(changes: pa.Table, actions: Sequence[RowAction]) -> ChangeResult:
    counts = np.bincount(changes.column(ACTION).to_numpy(), minlength=len(actions))
    by_kind = dict.fromkeys(RowKind, 0)
    for action, count in zip(actions, counts, strict=True):
        by_kind[action.kind] += int(count)
    return ChangeResult(
        None,
        deleted=by_kind[RowKind.DELETE],
        updated=by_kind[RowKind.UPDATE_AFTER],
        inserted=by_kind[RowKind.INSERT],
    )


def _require_unchanged(
    table: TableCore,
    user: str,
    read: Snapshot | None,
    latest: Snapshot | None,
    touched: set[BucketId] | None,
) -> None:
    """Check that what the statement read is unchanged.

    Args:
        touched: buckets in which others must not have written rows; None: in any.

    Raises:
        FileConflictError: it is not.
    """
    if latest is None or latest == read or touched == set():
        return
    first = 1 if read is None else read.id + 1
    try:
        for snapshot_id in range(first, latest.id + 1):
            snapshot = table.snapshots.read(snapshot_id)
            if snapshot.commit_user == user:
                return
            if snapshot.commit_kind in (CommitKind.COMPACT, CommitKind.ANALYZE):
                continue
            written = {(entry.partition, entry.bucket) for entry in delta_entries(table, snapshot)}
            if touched is None or written & touched:
                raise _conflict_error(table, f"snapshot {snapshot_id} has other rows")
    except (NotFoundError, FileNotFoundError) as error:
        raise _conflict_error(table, "snapshots since have expired") from error
    if read is not None and latest.id <= read.id:
        raise _conflict_error(table, "the table was rolled back")


def _conflict_error(table: TableCore, detail: str) -> FileConflictError:
    return FileConflictError(
        "others wrote to the same rows while this statement ran",
        detail=detail,
        hint="run the statement again",
        table=table.layout.root,
    )
