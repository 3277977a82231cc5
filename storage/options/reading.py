# SPDX-License-Identifier: Apache-2.0
"""Options of reads: where reads begin, what they show, and how streaming ones continue.

Source: SEMANTICS.md §C.8, §C.9, §F.12.
"""

import dataclasses
from typing import ClassVar

from storage.options.values import Option, boolean, choice, duration_ms, integer, option, row, text


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
