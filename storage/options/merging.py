# SPDX-License-Identifier: Apache-2.0
"""Rows of the option table about merging: row kinds, order, merge engines. See `option_table`."""

from collections.abc import Callable
from typing import Any

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
    text,
)

__all__ = ["MERGING"]

_DIRECTIONS = choice("ascending", "descending")


def _descending(value: str) -> bool:
    return _DIRECTIONS(value) == "descending"


def _of_column(key: str, parse: Callable[[str], Any], default: str | None, doc: str) -> Option:
    return option(key, parse, default, doc, attribute="merge_columns")


_COLUMNS = (
    _of_column(
        "fields.<names>.sequence-group",
        name_list,
        None,
        "Columns of a partial-update table that follow the order given by the named columns.",
    ),
    _of_column(
        "fields.<name>.aggregate-function",
        text,
        None,
        "How the values of a column become one.",
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
        "fields.<name>.list-agg-delimiter",
        str,
        ",",
        "Text between the elements of `listagg`.",
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
    _of_column(
        "fields.<name>.count-limit",
        integer,
        None,
        "Most rows that `nested_update` keeps.",
    ),
    _of_column(
        "fields.<name>.ts-field",
        text,
        None,
        "Member that `merge_map_with_keytime` compares.",
    ),
)

MERGING: tuple[Option, ...] = (
    option(
        "merge-engine",
        choice("deduplicate", "partial-update", "aggregation", "first-row"),
        "deduplicate",
        "How rows of one key become one row.",
        mutable=False,
    ),
    option(
        "ignore-delete",
        boolean,
        "false",
        "Drop -D and -U rows before they are buffered.",
        aliases=(
            "deduplicate.ignore-delete",
            "first-row.ignore-delete",
            "partial-update.ignore-delete",
        ),
    ),
    option("ignore-update-before", boolean, "false", "Drop -U rows before they are buffered."),
    option(
        "sequence.field",
        name_list,
        None,
        "Columns that order the rows of one key before the arrival order does.",
    ),
    option(
        "sequence.field.sort-order",
        _descending,
        "ascending",
        "`descending`: the smaller value wins. A null loses either way.",
        attribute="sequence_descending",
    ),
    option("rowkind.field", text, None, "Column that holds the row kind.", mutable=False),
    refused(
        "sequence.snapshot-ordering",
        boolean,
        "false",
        "Order rows by the snapshot that brought them.",
        blocks=Access.BOTH,
        mutable=False,
    ),
    option(
        "record-level.expire-time",
        duration_ms,
        None,
        "Age at which compaction drops a row. Reads may show it until then.",
        "ms",
        attribute="record_level_expire_time_ms",
    ),
    option(
        "record-level.time-field",
        text,
        None,
        "Column with the time of a row: seconds, milliseconds (from 10^12 on) or a timestamp.",
    ),
    *ignored(
        "Taken out of the format; arrival order decides between equal stamps.",
        ("sequence.auto-padding", text, None),
    ),
    option(
        "partial-update.remove-record-on-delete",
        boolean,
        "false",
        "A -D row removes the whole row of a partial-update table.",
        attribute="partial_update_remove_on_delete",
        mutable=False,
    ),
    option(
        "partial-update.remove-record-on-sequence-group",
        name_list,
        None,
        "Ordering columns of sequence groups whose -D rows remove the whole row.",
        attribute="partial_update_remove_on_groups",
        mutable=False,
    ),
    option(
        "aggregation.remove-record-on-delete",
        boolean,
        "false",
        "A -D row removes the whole row of an aggregation table.",
        attribute="aggregation_remove_on_delete",
        mutable=False,
    ),
    option(
        "fields.default-aggregate-function",
        text,
        None,
        "Aggregate function of columns without one of their own.",
        attribute="default_aggregate_function",
    ),
    *_COLUMNS,
    option(
        "fields.<name>.default-value",
        str,
        None,
        "What batch reads show instead of null. An older way: defaults of columns are written.",
        by_key=True,
    ),
)
