# SPDX-License-Identifier: Apache-2.0
"""Options of merging: row kinds, order, merge engines."""

import dataclasses
from collections.abc import Callable
from typing import Any, ClassVar

from storage.options.values import (
    Access,
    Option,
    boolean,
    choice,
    duration_ms,
    ignored,
    integer,
    name_list,
    option,
    refused,
    row,
    text,
)

_DIRECTIONS = choice("ascending", "descending")


def _descending(value: str) -> bool:
    return _DIRECTIONS(value) == "descending"


def _of_column(key: str, parse: Callable[[str], Any], default: str | None, doc: str) -> Option:
    return row(key, parse, default, doc, attribute="merge_columns")


_COLUMNS = (
    _of_column(
        "fields.<names>.sequence-group",
        name_list,
        None,
        "Columns of a partial-update table that follow the order given by the named columns.",
    ),
    _of_column(
        "fields.<name>.aggregate-function", text, None, "How the values of a column become one."
    ),
    _of_column(
        "fields.<name>.ignore-retract",
        boolean,
        "false",
        "The aggregate of a column passes over -U and -D rows.",
    ),
    _of_column(
        "fields.<name>.distinct",
        boolean,
        "false",
        "`collect` and `listagg` keep each element once.",
    ),
    _of_column(
        "fields.<name>.list-agg-delimiter", str, ",", "Text between the elements of `listagg`."
    ),
    _of_column(
        "fields.<name>.nested-key",
        name_list,
        None,
        "Members that identify the rows of a nested table.",
    ),
    _of_column(
        "fields.<name>.nested-sequence-field",
        name_list,
        None,
        "Members that order the rows of one nested key.",
    ),
    _of_column(
        "fields.<name>.nested-key-null-strategy",
        text,
        "merge",
        "What `nested_update` does with a nested key that holds null: merge, ignore or error.",
    ),
    _of_column("fields.<name>.count-limit", integer, None, "Most rows that `nested_update` keeps."),
    _of_column(
        "fields.<name>.ts-field", text, None, "Member that `merge_map_with_keytime` compares."
    ),
)


@dataclasses.dataclass(frozen=True, kw_only=True)
class MergingOptions:
    """Row kinds, order, merge engines."""

    merge_engine: str = option(
        "merge-engine",
        choice("deduplicate", "partial-update", "aggregation", "first-row"),
        "deduplicate",
        "How rows of one key become one row.",
        mutable=False,
    )
    ignore_delete: bool = option(
        "ignore-delete",
        boolean,
        "false",
        "Drop -D and -U rows before they are buffered.",
        aliases=(
            "deduplicate.ignore-delete",
            "first-row.ignore-delete",
            "partial-update.ignore-delete",
        ),
    )
    ignore_update_before: bool = option(
        "ignore-update-before", boolean, "false", "Drop -U rows before they are buffered."
    )
    sequence_field: tuple[str, ...] = option(
        "sequence.field",
        name_list,
        None,
        "Columns that order the rows of one key before the arrival order does.",
    )
    sequence_descending: bool = option(
        "sequence.field.sort-order",
        _descending,
        "ascending",
        "`descending`: the smaller value wins. A null loses either way.",
    )
    rowkind_field: str | None = option(
        "rowkind.field", text, None, "Column that holds the row kind.", mutable=False
    )
    record_level_expire_time_ms: int | None = option(
        "record-level.expire-time",
        duration_ms,
        None,
        "Age at which compaction drops a row. Reads may show it until then.",
        "ms",
    )
    record_level_time_field: str | None = option(
        "record-level.time-field",
        text,
        None,
        "Column with the time of a row: seconds, milliseconds (from 10^12 on) or a timestamp.",
    )
    partial_update_remove_on_delete: bool = option(
        "partial-update.remove-record-on-delete",
        boolean,
        "false",
        "A -D row removes the whole row of a partial-update table.",
        mutable=False,
    )
    partial_update_remove_on_groups: tuple[str, ...] = option(
        "partial-update.remove-record-on-sequence-group",
        name_list,
        None,
        "Ordering columns of sequence groups whose -D rows remove the whole row.",
        mutable=False,
    )
    aggregation_remove_on_delete: bool = option(
        "aggregation.remove-record-on-delete",
        boolean,
        "false",
        "A -D row removes the whole row of an aggregation table.",
        mutable=False,
    )
    default_aggregate_function: str | None = option(
        "fields.default-aggregate-function",
        text,
        None,
        "Aggregate function of columns without one of their own.",
    )

    ROWS: ClassVar[tuple[Option, ...]] = (
        refused(
            "sequence.snapshot-ordering",
            boolean,
            "false",
            "Order rows by the snapshot that brought them.",
            blocks=Access.BOTH,
            mutable=False,
        ),
        *ignored(
            "Taken out of the format; arrival order decides between equal stamps.",
            ("sequence.auto-padding", text, None),
        ),
        *_COLUMNS,
        row(
            "fields.<name>.default-value",
            str,
            None,
            "What batch reads show instead of null. An older way: defaults of columns are written.",
        ),
    )
