# SPDX-License-Identifier: Apache-2.0
"""MERGE: rows of a source update, delete or complete the rows of a table with the same values.

Source: Paimon's page "SQL write" of Spark, MERGE INTO. For each pair of a row of the table and a
row of the source, and for each row without a partner, the first clause whose condition is true is
carried out. A row of the table must not have two partners while a clause changes such rows.
"""

import dataclasses
import datetime
import enum
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from storage.errors import InvalidRequestError
from storage.format.types.types import RowKind
from storage.table.core import TableCore
from storage.table.scan.predicate import And, Compare, In, Op, Predicate
from storage.table.write.rows.fit_rows import fit_columns
from storage.table.write.rows.row_changes import ChangeResult, change_rows
from storage.table.write.rows.row_rules import require_columns, require_deletable, require_mergeable
from storage.table.write.rows.target_rows import ACTION, ROW, RowAction

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
                yield _changes(part.filter(pa.array(holds)), number, assignments[number])
                remaining = remaining[~holds]
            if when is When.MATCHED:
                yield _changes(joined.take(pa.array(remaining)), None, {})

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


def _changes(
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
