# SPDX-License-Identifier: Apache-2.0
"""Options of reads: where reads begin, what they show, and how streaming ones continue.

Source: SEMANTICS.md §C.8, §C.9, §F.12.
"""

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


@dataclasses.dataclass(frozen=True, kw_only=True)
class StartingOptions:
    """Where reads start."""

    scan_mode: str = option(
        "scan.mode",
        choice(
            *("default", "latest-full", "full", "latest", "latest-delta", "compacted-full"),
            *("from-timestamp", "from-snapshot", "from-snapshot-full"),
            *("from-file-creation-time", "from-creation-timestamp", "incremental"),
        ),
        "default",
        "Where reads begin; by default what the other scan options imply.",
    )
    incremental_between_scan_mode: str = option(
        "incremental-between-scan-mode",
        choice("auto", "delta", "changelog", "diff"),
        "auto",
        "Whether changes are the files that were added, the changelog, or the difference of both "
        "states; by default the changelog if there is one, else the files.",
    )
    incremental_between_tag_to_snapshot: bool = option(
        "incremental-between-tag-to-snapshot",
        boolean,
        "false",
        "Between two tags read the snapshots between them instead of comparing their states.",
    )

    ROWS: ClassVar[tuple[Option, ...]] = (
        row("scan.snapshot-id", integer, None, "Snapshot that is read.", "id"),
        row("scan.tag-name", text, None, "Tag that is read."),
        row(
            "scan.timestamp-millis",
            integer,
            None,
            "Read the newest snapshot committed by this time; a stream begins with the first after "
            "it.",
            "ms",
        ),
        row("scan.timestamp", text, None, "The same as a local date and time."),
        row(
            "scan.watermark",
            integer,
            None,
            "Read the first snapshot with this watermark.",
            "ms",
        ),
        row("scan.version", text, None, "Tag name, or else snapshot id, that is read."),
        row(
            "scan.file-creation-time-millis",
            integer,
            None,
            "Read only files created at or after this time.",
            "ms",
        ),
        row(
            "scan.creation-time-millis",
            integer,
            None,
            "Begin with the first snapshot committed at or after this time; where it has expired, "
            "read only files created since.",
            "ms",
        ),
        row(
            "incremental-between",
            text,
            None,
            "Read what changed from one snapshot or tag (exclusive) to another: `1,3`.",
        ),
        row(
            "incremental-between-timestamp",
            text,
            None,
            "Read what changed from one time (exclusive) to another: milliseconds or local times.",
        ),
        row(
            "incremental-to-auto-tag",
            text,
            None,
            "Read what changed from the automatic tag before this one to it.",
        ),
    )


@dataclasses.dataclass(frozen=True, kw_only=True)
class StreamingOptions:
    """Streaming reads."""

    consumer_id: str | None = option(
        "consumer-id", text, None, "Name under which a streaming reader keeps its progress."
    )
    consumer_mode: str = option(
        "consumer.mode",
        choice("exactly-once", "at-least-once"),
        "exactly-once",
        "Whether readers of one consumer advance together, or the slowest one counts.",
    )
    consumer_ignore_progress: bool = option(
        "consumer.ignore-progress",
        boolean,
        "false",
        "Begin as `scan.mode` says although the consumer has progress.",
    )
    streaming_read_overwrite: bool = option(
        "streaming-read-overwrite",
        boolean,
        "false",
        "A stream of a primary-key table shows what overwrites took away and put there.",
    )
    streaming_read_append_overwrite: bool = option(
        "streaming-read-append-overwrite",
        boolean,
        "false",
        "A stream of a table without primary key shows what overwrites put there.",
    )
    scan_bounded: bool = option(
        "scan.bounded",
        boolean,
        "false",
        "A stream ends with the snapshot that was the newest when it began.",
    )
    scan_bounded_watermark: int | None = option(
        "scan.bounded.watermark",
        integer,
        None,
        "A stream ends before the first snapshot with a greater watermark.",
        "ms",
    )
    continuous_discovery_interval_ms: int = option(
        "continuous.discovery-interval",
        duration_ms,
        "10 s",
        "How often a stream that has read everything looks for more.",
        "ms",
    )
    streaming_read_snapshot_delay_ms: int | None = option(
        "streaming.read.snapshot.delay",
        duration_ms,
        None,
        "Age that a snapshot must have before a stream reads it.",
        "ms",
    )
    streaming_read_unmerged: bool = option(
        "lakeward.streaming-read.unmerged",
        boolean,
        "false",
        "A stream of a table with `merge-engine` partial-update, aggregation or first-row and "
        "`changelog-producer` none gives the rows as they were written; otherwise it is refused.",
    )
    table_read_sequence_number: bool = option(
        "table-read.sequence-number.enabled",
        boolean,
        "false",
        "`$audit_log` and `$binlog` show the sequence number of each row.",
    )


# Options of merging: row kinds, order, merge engines.


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
