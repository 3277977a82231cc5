# SPDX-License-Identifier: Apache-2.0
"""Which tables take DELETE, UPDATE and MERGE. Pure.

Source: SEMANTICS.md §N.3; Paimon's pages "SQL write" and "Merge engines".
"""

from collections.abc import Iterable

from storage.errors import InvalidRequestError, UnsupportedFeatureError
from storage.options.options import require_writable
from storage.table.bucket_mode import require_buckets
from storage.table.core import TableCore
from storage.table.scan.predicate import require_known

_UPDATABLE = ("deduplicate", "partial-update")


def require_deletable(table: TableCore) -> None:
    """Check that rows of a table can be deleted.

    Raises:
        UnsupportedFeatureError: the merge engine or an option of the table takes no deletes.
    """
    _require_writable(table)
    options = table.options
    if not table.schema.primary_keys:
        return
    engine = options.merge_engine
    if options.ignore_delete:
        raise UnsupportedFeatureError(
            "the table ignores deletes, so a DELETE would change nothing",
            hint="remove the option: ALTER TABLE … RESET ('ignore-delete')",
            table=table.layout.root,
            option="ignore-delete",
        )
    if engine == "deduplicate":
        return
    if engine == "first-row":
        raise UnsupportedFeatureError(
            "Merge engine first-row can not support batch delete.",
            hint="drop partitions, or overwrite them without the rows",
            table=table.layout.root,
        )
    if engine == "partial-update":
        allowed = bool(
            options.partial_update_remove_on_delete or options.partial_update_remove_on_groups
        )
        hint = (
            "create the table with 'partial-update.remove-record-on-delete' = 'true', or with "
            "sequence groups 'partial-update.remove-record-on-sequence-group'"
        )
    else:
        allowed = options.aggregation_remove_on_delete
        hint = "create the table with 'aggregation.remove-record-on-delete' = 'true'"
    if not allowed:
        raise UnsupportedFeatureError(
            f"Merge engine {engine} doesn't support batch delete by default.",
            hint=hint,
            table=table.layout.root,
        )


def require_updatable(table: TableCore, columns: Iterable[str]) -> None:
    """Check that columns of rows of a table can be set.

    Args:
        columns: the columns that are set.

    Raises:
        UnsupportedFeatureError: the merge engine of the table takes no updates.
        InvalidRequestError: a column is a primary key or is unknown.
    """
    _require_writable(table)
    columns = list(columns)
    require_columns(table, columns)
    keys = table.schema.primary_keys
    _require_engine(table, "update")
    changed = [name for name in columns if name in keys]
    if changed:
        raise key_update(table, changed[0])
    moved = [name for name in columns if name in table.schema.partition_keys]
    if keys and moved and table.options.merge_engine != "deduplicate":
        raise UnsupportedFeatureError(
            "this merge engine cannot move rows to another partition",
            hint="delete the rows and insert them again",
            table=table.layout.root,
            column=moved[0],
        )


def require_mergeable(table: TableCore) -> None:
    """Check that rows can be merged into a table; its clauses are checked besides.

    Raises:
        UnsupportedFeatureError: the merge engine of the table takes no updates.
    """
    _require_writable(table)
    _require_engine(table, "merge into")


def require_columns(table: TableCore, columns: Iterable[str]) -> None:
    """Check that columns are there.

    Raises:
        InvalidRequestError: names the first that is not.
    """
    require_known(columns, table.schema.field_names)


def key_update(table: TableCore, column: str) -> InvalidRequestError:
    """The error of an update of a primary key."""
    return InvalidRequestError(
        "Updates to primary keys are not supported",
        hint="delete the row and insert it with the other key",
        column=column,
        keys=", ".join(table.schema.primary_keys),
    )


def _require_writable(table: TableCore) -> None:
    require_writable(table.options)
    require_buckets(table.schema, table.options)


def _require_engine(table: TableCore, operation: str) -> None:
    engine = table.options.merge_engine
    if table.schema.primary_keys and engine not in _UPDATABLE:
        raise UnsupportedFeatureError(
            f"Merge engine {engine} can not support batch {operation}.",
            hint=f"tables of the engines {' and '.join(_UPDATABLE)} do; in others, insert rows "
            "that the engine merges",
            table=table.layout.root,
        )
