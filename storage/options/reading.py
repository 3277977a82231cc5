# SPDX-License-Identifier: Apache-2.0
"""Rows of the option table: where reads begin, what they show, and how streaming ones go on.

Source: SEMANTICS.md §C.8, §C.9, §F.12.
"""

from storage.options.values import boolean, choice, duration_ms, integer, option, text

__all__ = ["STARTING", "STREAMING"]

STARTING = (
    option("scan.snapshot-id", integer, None, "Snapshot that is read.", "id", by_key=True),
    option("scan.tag-name", text, None, "Tag that is read.", by_key=True),
    option(
        "scan.timestamp-millis",
        integer,
        None,
        "Read the newest snapshot committed by this time; a stream begins with the first after it.",
        "ms",
        by_key=True,
    ),
    option("scan.timestamp", text, None, "The same as a local date and time.", by_key=True),
    option(
        "scan.watermark",
        integer,
        None,
        "Read the first snapshot with this watermark.",
        "ms",
        by_key=True,
    ),
    option("scan.version", text, None, "Tag name, or else snapshot id, that is read.", by_key=True),
    option(
        "scan.file-creation-time-millis",
        integer,
        None,
        "Read only files made at or after this time.",
        "ms",
        by_key=True,
    ),
    option(
        "scan.creation-time-millis",
        integer,
        None,
        "Begin with the first snapshot committed at or after this time; where it has expired, read "
        "only files made since.",
        "ms",
        by_key=True,
    ),
    option(
        "scan.mode",
        choice(
            *("default", "latest-full", "full", "latest", "latest-delta", "compacted-full"),
            *("from-timestamp", "from-snapshot", "from-snapshot-full"),
            *("from-file-creation-time", "from-creation-timestamp", "incremental"),
        ),
        "default",
        "Where reads begin; by default what the other scan options imply.",
    ),
    option(
        "incremental-between",
        text,
        None,
        "Read what changed from one snapshot or tag (exclusive) to another: `1,3`.",
        by_key=True,
    ),
    option(
        "incremental-between-timestamp",
        text,
        None,
        "Read what changed from one time (exclusive) to another: milliseconds or local times.",
        by_key=True,
    ),
    option(
        "incremental-to-auto-tag",
        text,
        None,
        "Read what changed from the automatic tag before this one to it.",
        by_key=True,
    ),
    option(
        "incremental-between-scan-mode",
        choice("auto", "delta", "changelog", "diff"),
        "auto",
        "Whether changes are the files that were added, the changelog, or the difference of both "
        "states; by default the changelog if there is one, else the files.",
    ),
    option(
        "incremental-between-tag-to-snapshot",
        boolean,
        "false",
        "Between two tags read the snapshots between them instead of comparing their states.",
    ),
)

STREAMING = (
    option("consumer-id", text, None, "Name under which a streaming reader keeps its progress."),
    option(
        "consumer.mode",
        choice("exactly-once", "at-least-once"),
        "exactly-once",
        "Whether readers of one consumer progress together, or the slowest one counts.",
    ),
    option(
        "consumer.ignore-progress",
        boolean,
        "false",
        "Begin as `scan.mode` says although the consumer has progress.",
    ),
    option(
        "streaming-read-overwrite",
        boolean,
        "false",
        "A stream of a primary-key table shows what overwrites took away and put there.",
    ),
    option(
        "streaming-read-append-overwrite",
        boolean,
        "false",
        "A stream of a table without primary key shows what overwrites put there.",
    ),
    option(
        "scan.bounded",
        boolean,
        "false",
        "A stream ends with the snapshot that was the newest when it began.",
    ),
    option(
        "scan.bounded.watermark",
        integer,
        None,
        "A stream ends before the first snapshot with a greater watermark.",
        "ms",
    ),
    option(
        "continuous.discovery-interval",
        duration_ms,
        "10 s",
        "How often a stream that has read everything looks for more.",
        "ms",
        attribute="continuous_discovery_interval_ms",
    ),
    option(
        "streaming.read.snapshot.delay",
        duration_ms,
        None,
        "Age that a snapshot must have before a stream reads it.",
        "ms",
        attribute="streaming_read_snapshot_delay_ms",
    ),
    option(
        "lakeward.streaming-read.unmerged",
        boolean,
        "false",
        "A stream of a table with `merge-engine` partial-update, aggregation or first-row and "
        "`changelog-producer` none gives the rows as they were written; otherwise it is refused.",
        attribute="streaming_read_unmerged",
    ),
    option(
        "table-read.sequence-number.enabled",
        boolean,
        "false",
        "`$audit_log` and `$binlog` show the sequence number of each row.",
        attribute="table_read_sequence_number",
    ),
)
