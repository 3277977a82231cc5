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
import datetime
import enum
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from storage.errors import FileConflictError, InvalidRequestError, LakewardError, NotFoundError
from storage.format.metadata.file_meta import CommitMessage
from storage.format.metadata.layout import POSTPONE_BUCKET
from storage.format.metadata.snapshot import BATCH_COMMIT_IDENTIFIER, CommitKind, Snapshot
from storage.format.types.types import RowKind, type_from_arrow, type_name
from storage.table.commit.commit import Attempt, CommitResult, FileStoreCommit, run_until_committed
from storage.table.commit.live_files import BucketId, delta_entries
from storage.table.core import TableCore
from storage.table.scan.predicate import (
    And,
    Compare,
    In,
    Op,
    Predicate,
    as_predicate,
    columns_of,
    literal_scalar,
    mask,
)
from storage.table.write.postpone import require_bucket_counts
from storage.table.write.rows.target_rows import (
    ACTION,
    ROW,
    RowAction,
    require_columns,
    require_deletable,
    require_mergeable,
    require_updatable,
    target_rows,
)

# Values of a statement as values of the columns of a table; an error names column and row.


_MOST_DIGITS = 76
_ERRORS = (pa.ArrowInvalid, pa.ArrowNotImplementedError, pa.ArrowTypeError)


def _type_text(type_: pa.DataType) -> str:
    try:
        return type_name(type_from_arrow(type_))
    except LakewardError:  # a type of the query that no column has
        return str(type_)


def fit_columns(
    batch: pa.RecordBatch, schema: pa.Schema, *, first_row: int = 1, zone: str | None = None
) -> pa.RecordBatch:
    """Rows in the types of a table.

    A value is converted where that is lossless, except for excess fraction digits of a DECIMAL
    (rounded half up) and of a TIME or TIMESTAMP (truncated). A text is parsed as a value of the
    column.

    Args:
        batch: columns in the order of the schema; their names do not matter.
        schema: of the result.
        first_row: number of the first row, for errors; rows count from 1.
        zone: in which instants and times without zone are converted into each other; None: they
            are not.

    Raises:
        InvalidRequestError: a value does not fit; names the column, the row and the value.
    """
    columns = []
    for column, field in zip(batch.columns, schema, strict=True):
        fitted = column
        if column.type != field.type:
            fitted = _fitted_column(column, field, first_row, zone)
        if fitted.null_count and not field.nullable:
            row = int(np.argmax(fitted.is_null().to_numpy(zero_copy_only=False)))
            raise InvalidRequestError(
                f"cannot write null to non-null column({field.name})",
                hint="give the column a value, or make it nullable",
                column=field.name,
                row=first_row + row,
            )
        columns.append(fitted)
    return pa.RecordBatch.from_arrays(columns, schema=schema)


def _fitted_column(column: pa.Array, field: pa.Field, first_row: int, zone: str | None) -> pa.Array:
    try:
        return _cast(column, field.type, zone)
    except _ERRORS as error:
        row = _first_misfit(column, field.type, zone)
        raise InvalidRequestError(
            "a value does not fit its column",
            detail=str(error),
            hint="convert the values with CAST, or change the type of the column",
            column=field.name,
            row=first_row + row,
            value=column[row].as_py(),
            expected=_type_text(field.type),
            found=_type_text(column.type),
        ) from error


def _cast(column: pa.Array, target_type: pa.DataType, zone: str | None) -> pa.Array:
    source = column.type
    if pa.types.is_decimal(target_type):
        column = _whole_decimal(column, target_type)
    elif pa.types.is_timestamp(source) and pa.types.is_timestamp(target_type):
        if (source.tz is None) != (target_type.tz is None):
            column = _in_zone(column, target_type, zone)
        return column.cast(target_type, safe=False)
    elif pa.types.is_time(source) and pa.types.is_time(target_type):
        return column.cast(target_type, safe=False)
    elif pa.types.is_struct(source) and pa.types.is_struct(target_type):
        return _cast_struct(column, target_type, zone)
    elif pa.types.is_list(source) and pa.types.is_list(target_type):
        column = _without_offset(column)
        values = _elements(column.values, target_type.value_field, zone)
        return pa.ListArray.from_arrays(
            column.offsets, values, type=target_type, mask=_null_mask(column)
        )
    elif pa.types.is_map(source) and pa.types.is_map(target_type):
        column = _without_offset(column)
        keys = _elements(column.keys, target_type.key_field, zone)
        items = _elements(column.items, target_type.item_field, zone)
        return pa.MapArray.from_arrays(
            column.offsets, keys, items, type=target_type, mask=_null_mask(column)
        )
    return column.cast(target_type)


def _elements(values: pa.Array, field: pa.Field, zone: str | None) -> pa.Array:
    """What lists and maps hold; rows in them by position, which Arrow's cast takes by name."""
    if values.null_count and not field.nullable:
        raise pa.ArrowInvalid(f"null in place of a value: {field.name} is NOT NULL")
    return values if values.type == field.type else _cast(values, field.type, zone)


def _without_offset(column: pa.Array) -> pa.Array:
    return pa.concat_arrays([column, column.slice(0, 0)])


def _null_mask(column: pa.Array) -> pa.Array | None:
    return column.is_null() if column.null_count else None


def _whole_decimal(column: pa.Array, target_type: pa.Decimal128Type) -> pa.Array:
    """Numbers and texts with the scale of a decimal, and room for its integer digits."""
    source = column.type
    if pa.types.is_integer(source):
        return column.cast(pa.decimal256(_MOST_DIGITS, target_type.scale))
    if pa.types.is_string(source) or pa.types.is_large_string(source):
        column = column.cast(pa.decimal256(_MOST_DIGITS, _MOST_DIGITS // 2))
    if pa.types.is_decimal(column.type) and column.type.scale > target_type.scale:
        return pc.round(column, ndigits=target_type.scale, round_mode="half_towards_infinity")
    return column


def _in_zone(column: pa.Array, target_type: pa.TimestampType, zone: str | None) -> pa.Array:
    if zone is None:
        raise pa.ArrowTypeError("the zone of a time is not known")
    if target_type.tz is not None:
        return pc.assume_timezone(column, zone, ambiguous="earliest", nonexistent="latest")
    return pc.local_timestamp(column.cast(pa.timestamp(column.type.unit, zone)))


def _cast_struct(column: pa.Array, target_type: pa.StructType, zone: str | None) -> pa.Array:
    """Fields by their names where these are the same, else by their positions."""
    source, names = column.type, [field.name for field in target_type]
    if source.num_fields != target_type.num_fields:
        raise pa.ArrowTypeError(f"a row of {target_type.num_fields} fields is expected")
    by_name = {field.name for field in source} == set(names)
    parts = []
    for place, field in enumerate(target_type):
        part = column.field(source.get_field_index(field.name) if by_name else place)
        parts.append(part if part.type == field.type else _cast(part, field.type, zone))
    return pa.StructArray.from_arrays(parts, fields=list(target_type), mask=column.is_null())


def _first_misfit(column: pa.Array, target_type: pa.DataType, zone: str | None) -> int:
    """The first row whose value cannot be converted, by bisection."""
    begin, end = 0, len(column)
    while end - begin > 1:
        middle = (begin + end) // 2
        try:
            _cast(column.slice(begin, middle - begin), target_type, zone)
            begin = middle
        except _ERRORS:
            end = middle
    return begin


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


# Deleting and updating the rows that a filter chooses.


Assignment = Callable[[pa.RecordBatch], pa.Array | pa.Scalar]
"""Returns the new values of a column for rows with all columns of the table, as they were."""


def delete_where(
    table: TableCore, filter: str | Predicate, commit_user: str, *, identifier: int | None = None
) -> ChangeResult:
    """Delete the rows for which a filter is true.

    Rows of a primary-key table are deleted by rows of kind -D; rows of an append table by deletion
    vectors where the table has them, else their files are rewritten. When others change the same
    rows concurrently, the rows are selected again in the new state, as often as
    `commit.max-retries` allows.

    Args:
        filter: the rows, as text or as a predicate; where it is unknown for a row, the row stays.
        identifier: as for `FileStoreCommit.commit`: the deletion is made at most once for a user
            and identifier. None: every call is a commit of its own.

    Raises:
        UnsupportedFeatureError: the table takes no deletes; names the reason.
        InvalidRequestError: a column of the filter is unknown, or it cannot be parsed.
        As `change_rows`.
    """
    require_deletable(table)
    predicate = _require_predicate(table, filter, "`truncate` deletes all rows")

    def change(rows: pa.RecordBatchReader) -> Iterator[pa.RecordBatch]:
        for batch in rows:
            addresses = batch.filter(mask(predicate, batch)).column(ROW)
            yield _changes(addresses, {})

    return change_rows(
        table,
        change,
        [RowAction(RowKind.DELETE)],
        commit_user,
        columns=_in_order(table, columns_of(predicate)),
        predicate=predicate,
        identifier=identifier,
    )


def count_where(table: TableCore, filter: str | Predicate) -> int:
    """How many rows `delete_where` would delete now; nothing is changed. Raises as it does."""
    require_deletable(table)
    predicate = _require_predicate(table, filter, "give a condition")
    target = target_rows(table, table.latest_snapshot(), predicate)
    rows = target.read(_in_order(table, columns_of(predicate)))
    return sum(batch.filter(mask(predicate, batch)).num_rows for batch in rows)


def update_where(
    table: TableCore,
    assignments: Mapping[str, Any],
    filter: str | Predicate | None,
    commit_user: str,
    *,
    identifier: int | None = None,
) -> ChangeResult:
    """Set columns of the rows for which a filter is true.

    Args:
        table: of the merge engines deduplicate and partial-update, or without a primary key.
        assignments: by column: a value, None for null, or a function of the rows as they were
            (`Assignment`).
        filter: the rows, as text or as a predicate; None: all.
        identifier: as of `delete_where`.

    Raises:
        UnsupportedFeatureError: the merge engine takes no updates.
        InvalidRequestError: a column is unknown or a primary key, a value does not fit, or the
            filter cannot be parsed.
        As `change_rows`.
    """
    require_updatable(table, assignments)
    if not assignments:
        raise InvalidRequestError("nothing is set", hint="name a column and its value")
    predicate = None if filter is None else _require_predicate(table, filter, "")
    schema = table.schema.arrow_schema
    values = {
        name: value if callable(value) else literal_scalar(value, schema.field(name).type)
        for name, value in assignments.items()
    }

    def change(rows: pa.RecordBatchReader) -> Iterator[pa.RecordBatch]:
        for batch in rows:
            matches = batch if predicate is None else batch.filter(mask(predicate, batch))
            if not matches.num_rows:
                continue
            old = matches.drop_columns([ROW])
            new: dict[str, pa.Array] = {}
            for name, value in values.items():
                column = value(old) if callable(value) else value
                if column is None or isinstance(column, pa.Scalar):
                    scalar = pa.scalar(None) if column is None else column
                    column = pa.repeat(scalar, matches.num_rows)
                new[name] = column
            yield _changes(matches.column(ROW), new)

    everything = any(callable(value) for value in values.values())
    columns: Sequence[str] = table.schema.field_names
    if not everything:
        columns = _in_order(table, columns_of(predicate))
    return change_rows(
        table,
        change,
        [RowAction(RowKind.UPDATE_AFTER, frozenset(values))],
        commit_user,
        columns=columns,
        predicate=predicate,
        identifier=identifier,
    )


def _changes(rows: pa.Array, new: Mapping[str, pa.Array]) -> pa.RecordBatch:
    actions = pa.array(np.zeros(len(rows), np.int32))
    return pa.RecordBatch.from_pydict({ROW: rows, ACTION: actions, **new})


def _require_predicate(table: TableCore, filter: str | Predicate, hint: str) -> Predicate:
    predicate = as_predicate(filter)
    if predicate is None:
        raise InvalidRequestError("no filter is given", hint=hint)
    require_columns(table, sorted(columns_of(predicate)))
    return predicate


def _in_order(table: TableCore, names: frozenset[str]) -> list[str]:
    return [name for name in table.schema.field_names if name in names]


# MERGE: rows of a source update, delete or complete the rows of a table with the same values.
#
# Source: Paimon's page "SQL write" of Spark, MERGE INTO. For each pair of a row of the table and a
# row of the source, and for each row without a partner, the first clause whose condition is true is
# carried out. A row of the table must not have two partners while a clause changes such rows.


_SOURCE_ROW = "_SOURCE_ROW"


class When(enum.Enum):
    """Which rows a clause is about."""

    MATCHED = "WHEN MATCHED"
    NOT_MATCHED = "WHEN NOT MATCHED"
    NOT_MATCHED_BY_SOURCE = "WHEN NOT MATCHED BY SOURCE"


JoinedRows = Callable[[pa.Table], pa.Array | pa.ChunkedArray | pa.Scalar]
"""A function of rows with columns `t.<column>` of the table and `s.<column>` of the source."""


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class MergeClause:
    """A clause of a merge.

    Attributes:
        when: the rows it is about.
        kind: UPDATE_AFTER or DELETE of rows of the table; INSERT where `when` is NOT_MATCHED.
        columns: of an update or insert, by column of the table: the name of a column of the
            source, or a function of the joined rows. None: each column of the table from the
            column of its name.
        condition: which of the rows, in addition; null counts as false. None: all.
    """

    when: When
    kind: RowKind
    columns: Mapping[str, str | JoinedRows] | None = None
    condition: JoinedRows | None = None


_MOST_VALUES = 200
"""Of a source with more values in a column only their range prunes files of the table."""


def merge(
    table: TableCore,
    source: pa.Table,
    on: Sequence[str],
    clauses: Sequence[MergeClause],
    commit_user: str,
    *,
    identifier: int | None = None,
) -> ChangeResult:
    """Merge the rows of a source into a table.

    Args:
        table: of the merge engines deduplicate and partial-update, or without a primary key.
        on: columns of both; rows with equal values are partners, null equals nothing.
        clauses: in the order in which they are tried.
        identifier: as for `FileStoreCommit.commit`.

    Raises:
        UnsupportedFeatureError: the merge engine takes no updates, or no deletes.
        InvalidRequestError: a clause or column is wrong, a row of the table has several partners,
            a key would change, or a value does not fit.
        As `change_rows`.
    """
    schema = table.schema
    assignments = [_assignments(table, source, clause) for clause in clauses]
    actions = [
        RowAction(clause.kind, frozenset(columns))
        for clause, columns in zip(clauses, assignments, strict=True)
    ]
    check_clauses(table, [clause.when for clause in clauses], actions)
    require_columns(table, on)
    missing = [name for name in on if name not in source.column_names]
    if not on or missing:
        raise InvalidRequestError(
            "the columns to merge on are not columns of both",
            hint="name columns that the table and the source have",
            column=missing[0] if missing else None,
        )
    source = source.combine_chunks()
    key_schema = pa.schema([schema.arrow_schema.field(name).with_nullable(True) for name in on])
    keys = pa.Table.from_batches(
        [fit_columns(batch, key_schema) for batch in source.select(on).to_batches()], key_schema
    ).append_column(_SOURCE_ROW, pa.array(np.arange(source.num_rows)))
    predicate = None
    if all(clause.when is not When.NOT_MATCHED_BY_SOURCE for clause in clauses):
        predicate = partners_of(keys.select(on), schema.arrow_schema)

    def change(rows: pa.RecordBatchReader) -> Iterator[pa.RecordBatch]:
        target = rows.read_all()
        numbered = target.select(on).append_column(ROW, pa.array(np.arange(target.num_rows)))
        pairs = numbered.join(keys, list(on), join_type="full outer")
        left, right = pairs.column(ROW), pairs.column(_SOURCE_ROW)
        populations = {
            When.MATCHED: pairs.filter(_both_valid(left, right)),
            When.NOT_MATCHED: pairs.filter(left.is_null()),
            When.NOT_MATCHED_BY_SOURCE: pairs.filter(right.is_null()),
        }
        for when, rows_of in populations.items():
            numbers = [n for n, clause in enumerate(clauses) if clause.when is when]
            if not numbers or not rows_of.num_rows:
                continue
            joined = _join_sides(target, source, rows_of)
            remaining = np.arange(joined.num_rows)
            for number in numbers:
                part = joined.take(pa.array(remaining))
                holds = _holds(clauses[number].condition, part)
                yield _merge_changes(part.filter(pa.array(holds)), number, assignments[number])
                remaining = remaining[~holds]
            if when is When.MATCHED:
                yield _merge_changes(joined.take(pa.array(remaining)), None, {})

    return change_rows(
        table,
        change,
        actions,
        commit_user,
        columns=schema.field_names,
        predicate=predicate,
        identifier=identifier,
    )


def partners_of(keys: pa.Table, schema: pa.Schema) -> Predicate | None:
    """A condition that every row of a table meets which has a partner in a source.

    Args:
        keys: values of the source by the column of the table that they must equal.
        schema: of the table. Columns of other types than whole numbers, texts and days, and those
            that the source has in another kind of type, are ignored.
    """
    parts: list[Predicate] = []
    for name, column in zip(keys.column_names, keys.columns, strict=True):
        if not _alike(column.type, schema.field(name).type):
            continue
        values = pc.unique(column.drop_null())
        if len(values):
            bounds = pc.min_max(values).as_py()
            parts.append(Compare(Op.GE, name, _literal(bounds["min"])))
            parts.append(Compare(Op.LE, name, _literal(bounds["max"])))
        if len(values) <= _MOST_VALUES:
            parts.append(In(name, tuple(map(_literal, values.to_pylist()))))
    return And(tuple(parts)) if parts else None


def _alike(left: pa.DataType, right: pa.DataType) -> bool:
    """Whether both are of a kind whose values are equal as they are written."""
    kinds = (pa.types.is_integer, pa.types.is_string, pa.types.is_date32)
    return any(kind(left) and kind(right) for kind in kinds)


def _literal(value: Any) -> Any:
    return value.isoformat() if isinstance(value, datetime.date) else value


def check_clauses(table: TableCore, whens: Sequence[When], actions: Sequence[RowAction]) -> None:
    """Check that a table supports the clauses of a merge.

    Raises:
        UnsupportedFeatureError: the merge engine takes no updates, or no deletes.
        InvalidRequestError: a clause does what it cannot do with its rows, or a column is unknown.
    """
    require_mergeable(table)
    if not actions:
        raise InvalidRequestError("a merge has no clause", hint="WHEN MATCHED THEN UPDATE SET …")
    for when, action in zip(whens, actions, strict=True):
        inserts = action.kind is RowKind.INSERT
        if inserts != (when is When.NOT_MATCHED):
            raise InvalidRequestError(
                f"{when.value} cannot {'INSERT' if inserts else 'UPDATE or DELETE'}",
                hint="rows are inserted where the source has one and the table has none",
            )
        if action.kind is RowKind.DELETE:
            require_deletable(table)
        require_columns(table, sorted(action.columns))


def _assignments(
    table: TableCore, source: pa.Table, clause: MergeClause
) -> Mapping[str, str | JoinedRows]:
    if clause.kind is RowKind.DELETE:
        return {}
    columns = clause.columns
    if columns is None:
        columns = {name: name for name in table.schema.field_names}
    for value in columns.values():
        if isinstance(value, str) and value not in source.column_names:
            raise InvalidRequestError(
                "no such column of the source",
                hint=f"it has {', '.join(source.column_names)}",
                column=value,
            )
    return columns


def _both_valid(left: pa.ChunkedArray, right: pa.ChunkedArray) -> pa.Array:
    return pa.array(
        left.is_valid().to_numpy(zero_copy_only=False)
        & right.is_valid().to_numpy(zero_copy_only=False)
    )


def _join_sides(target: pa.Table, source: pa.Table, pairs: pa.Table) -> pa.Table:
    """Rows side by side, nulls where there is no partner; `ROW` is that of the target."""
    left, right = (pairs.column(name).combine_chunks() for name in (ROW, _SOURCE_ROW))
    columns: dict[str, Any] = {ROW: target.column(ROW).take(left)}
    for prefix, table, rows in (("t", target.drop_columns([ROW]), left), ("s", source, right)):
        for name, column in zip(table.column_names, table.columns, strict=True):
            columns[f"{prefix}.{name}"] = column.take(rows)
    return pa.table(columns)


def _holds(condition: JoinedRows | None, rows: pa.Table) -> np.ndarray:
    if condition is None:
        return np.ones(rows.num_rows, np.bool_)
    truth = _as_column(condition(rows), rows.num_rows)
    return np.asarray(truth.fill_null(False).to_numpy(zero_copy_only=False), np.bool_)


def _as_column(values: pa.Array | pa.ChunkedArray | pa.Scalar, count: int) -> pa.Array:
    if isinstance(values, pa.Scalar):
        return pa.repeat(values, count)
    return values.combine_chunks() if isinstance(values, pa.ChunkedArray) else values


def _merge_changes(
    rows: pa.Table, number: int | None, columns: Mapping[str, str | JoinedRows]
) -> pa.RecordBatch:
    count = rows.num_rows
    arrays: dict[str, pa.Array] = {
        ROW: _as_column(rows.column(ROW), count),
        ACTION: pa.repeat(pa.scalar(number, pa.int32()), count),
    }
    for name, value in columns.items():
        values = rows.column(f"s.{value}") if isinstance(value, str) else value(rows)
        arrays[name] = _as_column(values, count)
    return pa.RecordBatch.from_pydict(arrays)
