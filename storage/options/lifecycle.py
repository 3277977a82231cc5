# SPDX-License-Identifier: Apache-2.0
"""Options of automatic tags and the end of partitions."""

import dataclasses
from typing import ClassVar

from storage.options.values import (
    Option,
    boolean,
    choice,
    duration_ms,
    ignored,
    integer,
    option,
    refused,
    several,
    text,
)


@dataclasses.dataclass(frozen=True, kw_only=True)
class LifecycleOptions:
    """Tags and partitions over time."""

    tag_automatic_creation: str = option(
        "tag.automatic-creation",
        choice("none", "process-time", "watermark", "batch"),
        "none",
        "Tags created after commits: one a period, by commit time or watermark, or one a batch.",
    )
    tag_creation_period: str = option(
        "tag.creation-period",
        choice("daily", "hourly", "two-hours"),
        "daily",
        "Period of automatic tags.",
    )
    tag_creation_period_duration_ms: int | None = option(
        "tag.creation-period-duration",
        duration_ms,
        None,
        "The period as a duration, instead of `tag.creation-period`.",
        "ms",
    )
    tag_creation_delay_ms: int = option(
        "tag.creation-delay",
        duration_ms,
        "0",
        "An automatic tag is created no earlier than this after its period has ended.",
        "ms",
    )
    tag_period_formatter: str = option(
        "tag.period-formatter",
        choice("with-dashes", "without-dashes", "without-dashes-and-spaces"),
        "with_dashes",
        "Form of the names of automatic tags.",
    )
    tag_num_retained_max: int | None = option(
        "tag.num-retained-max",
        integer,
        None,
        "Automatic tags beyond this number go, the oldest first.",
        "tags",
        least=1,
    )
    tag_default_time_retained_ms: int | None = option(
        "tag.default-time-retained", duration_ms, None, "How long automatic tags live.", "ms"
    )
    tag_automatic_completion: bool = option(
        "tag.automatic-completion",
        boolean,
        "false",
        "Periods without a snapshot get their tags from later snapshots.",
    )
    tag_time_expire_enabled: bool = option(
        "tag.time-expire-enabled", boolean, "true", "Tags that outlived their time go."
    )
    tag_batch_customized_name: str | None = option(
        "tag.batch.customized-name", text, None, "Name of the tag of a batch, instead of its day."
    )
    sink_process_time_zone: str | None = option(
        "sink.process-time-zone",
        text,
        None,
        "Zone in which commit times count for automatic tags; the machine's unless set.",
    )
    sink_watermark_time_zone: str = option(
        "sink.watermark-time-zone",
        text,
        "UTC",
        "Zone in which watermarks count for automatic tags.",
    )
    partition_expiration_time_ms: int | None = option(
        "partition.expiration-time",
        duration_ms,
        None,
        "Partitions older than this are dropped.",
        "ms",
    )
    partition_expiration_check_interval_ms: int = option(
        "partition.expiration-check-interval",
        duration_ms,
        "1 h",
        "How often a process looks for partitions to drop.",
        "ms",
    )
    partition_expiration_strategy: str = option(
        "partition.expiration-strategy",
        choice("values-time", "update-time"),
        "values-time",
        "Whether the age of a partition is that of its values or of its newest file.",
    )
    partition_expiration_max_num: int = option(
        "partition.expiration-max-num",
        integer,
        "100",
        "Partitions dropped at a time.",
        "partitions",
        least=1,
    )
    partition_expiration_batch_size: int | None = option(
        "partition.expiration-batch-size",
        integer,
        None,
        "Partitions dropped by one commit; all of them unless set.",
        "partitions",
        least=1,
    )
    partition_timestamp_formatter: str | None = option(
        "partition.timestamp-formatter",
        text,
        None,
        "Form of the times that partition values spell, as of Java's `DateTimeFormatter`; "
        "`yyyy-MM-dd[ HH:mm:ss]` unless set.",
    )
    partition_timestamp_pattern: str | None = option(
        "partition.timestamp-pattern",
        text,
        None,
        "How values make a time, such as `$day $hour:00:00`; the first value unless set.",
    )
    partition_time_interval_ms: int | None = option(
        "partition.time-interval",
        duration_ms,
        None,
        "Time that a partition stands for, such as 1 d; no partition is done before it is over.",
        "ms",
    )
    partition_idle_time_to_done_ms: int | None = option(
        "partition.idle-time-to-done",
        duration_ms,
        None,
        "A partition is marked as done when it got no rows for this long; takes "
        "`partition.time-interval`, too.",
        "ms",
    )
    partition_end_input_to_done: bool = option(
        "partition.end-input-to-done",
        boolean,
        "false",
        "Mark the partitions that a batch job wrote as done when it ends.",
    )
    partition_mark_done_action: tuple[str, ...] = option(
        "partition.mark-done-action",
        several("success-file", "done-partition", "mark-event", "http-report", "custom"),
        "success-file",
        "How partitions are marked as done: success-file, done-partition, mark-event, http-report, "
        "or several of them.",
    )
    partition_mark_done_action_mode: str = option(
        "partition.mark-done-action.mode",
        choice("process-time", "watermark"),
        "process-time",
        "Whether partitions are idle by the clock or by the watermark.",
    )
    partition_mark_done_action_http_url: str | None = option(
        "partition.mark-done-action.http.url", text, None, "Where http-report reports to."
    )
    partition_mark_done_action_http_params: str | None = option(
        "partition.mark-done-action.http.params",
        text,
        None,
        "`params` in the report of http-report.",
    )

    ROWS: ClassVar[tuple[Option, ...]] = (
        refused(
            "partition.mark-done-action.custom.class",
            text,
            None,
            "Java class that marks partitions as done.",
        ),
        *ignored(
            "Pending partitions are read off the snapshots.",
            ("partition.mark-done.recover-from-state", boolean, "true"),
        ),
    )


"""Every row, in the order of table-options.md."""
