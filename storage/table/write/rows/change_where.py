# SPDX-License-Identifier: Apache-2.0
"""Deleting and updating the rows that a filter chooses."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

import numpy as np
import pyarrow as pa

from storage.errors import InvalidRequestError
from storage.format.types.types import RowKind
from storage.table.core import TableCore
from storage.table.scan.predicate import Predicate, columns_of, literal_scalar, mask
from storage.table.scan.predicate_text import as_predicate
from storage.table.write.rows.row_changes import ChangeResult, change_rows
from storage.table.write.rows.row_rules import require_columns, require_deletable, require_updatable
from storage.table.write.rows.target_rows import ACTION, ROW, RowAction, target_rows

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
