# SPDX-License-Identifier: Apache-2.0
"""The catalogue of metrics: name, type, labels, unit, help. All metrics are declared here.

Names are without the prefix `lakeward_`. Rules: base units, `_total` on counters,
`_timestamp_seconds` for times, `topic`/`partition` labels only on offsets, `table` as
`database.table`; never a bucket, key, offset, file or exception text in a label. This module has
the metrics of source and batches; the others are in `metric_table_tables` and
`metric_table_runtime`.
"""

from ingest.observe.metrics.metric import (
    PREFIX,
    RECORD_BUCKETS,
    SECONDS_BUCKETS,
    STATES,
    TABLE_STATES,
    Metric,
)
from ingest.observe.metrics.metric_table_runtime import RUNTIME_METRICS
from ingest.observe.metrics.metric_table_tables import TABLE_METRICS

__all__ = ["GROUPS", "METRICS", "PREFIX", "STATES", "TABLE_STATES", "Metric"]

_PARTITION = ("topic", "partition")

_SOURCE = (
    Metric("source_records_total", "counter", "Committed source records.", ("topic",)),
    Metric(
        "source_bytes_total",
        "counter",
        "Key and value bytes of committed source records.",
        unit="bytes",
    ),
    Metric(
        "source_committed_offset",
        "gauge",
        "Next offset to read, as of the last commit of tables.",
        _PARTITION,
        unit="offset",
    ),
    Metric(
        "source_end_offset", "computed", "End offset (high watermark).", _PARTITION, unit="offset"
    ),
    Metric("source_start_offset", "computed", "Log start offset.", _PARTITION, unit="offset"),
    Metric(
        "source_lag_records",
        "computed",
        "End offset minus committed offset; bytes for a `files` source.",
        _PARTITION,
    ),
    Metric(
        "source_lag_seconds",
        "computed",
        "Time since the oldest uncommitted record was first seen, minus the configured delay "
        "(source_wait_seconds); 0 if there is none.",
        ("topic",),
        unit="seconds",
    ),
    Metric(
        "source_wait_seconds",
        "computed",
        "Configured delay of the topic (freshness, idle.commit); absent without one.",
        ("topic",),
        unit="seconds",
    ),
    Metric(
        "source_retention_headroom_ratio",
        "computed",
        "(committed - start) / (end - start); at 0 records are lost.",
        _PARTITION,
        unit="ratio",
    ),
    Metric(
        "source_offsets_poll_timestamp_seconds",
        "gauge",
        "Last successful poll of the offsets; metrics that depend on it are absent after 120 s.",
        unit="timestamp",
    ),
    Metric("source_partitions", "computed", "Known partitions.", ("topic",)),
    Metric(
        "source_errors_total",
        "counter",
        "Failed polls of the source: transport, or auth (credentials were refused).",
        ("reason",),
    ),
    Metric(
        "source_skipped_offsets_total",
        "counter",
        "Offsets that the stream skipped because retention had deleted their records.",
        _PARTITION,
    ),
    Metric(
        "source_clock_skew_seconds",
        "gauge",
        "How far the newest change of the last batch is ahead of this machine's clock; 0 = "
        "not ahead.",
        unit="seconds",
    ),
)

_DECODE = (
    Metric(
        "decode_records_total",
        "counter",
        "Decoded records by operation: c u d r t m, tombstone, heartbeat and others.",
        ("topic", "op"),
    ),
    Metric(
        "decode_errors_total",
        "counter",
        "Records that could not be decoded, by class of error.",
        ("topic", "reason"),
    ),
    Metric(
        "dlq_records_total",
        "counter",
        "Records written to the quarantine table.",
        ("topic", "reason"),
    ),
    Metric(
        "decode_walked_records_total",
        "counter",
        "Committed records that the compiled scan decoded; the rest of `decode_records_total` took "
        "more CPU.",
        ("topic",),
    ),
    Metric(
        "quarantined_rows_total",
        "counter",
        "Records written to the quarantine table, by target table; empty if it is unknown.",
        ("table", "class"),
    ),
    Metric(
        "bad_records_skipped_total",
        "counter",
        "Bad records dropped because `bad.records` of the table is `skip`.",
        ("table", "class"),
    ),
    Metric(
        "tables_parked_for_bad_records_total",
        "counter",
        "Times a table was parked because of its ratio of bad records, or of any (`fail`).",
        ("table",),
    ),
    Metric(
        "dlq_sent_total",
        "counter",
        "Copies of bad records acknowledged by the dead-letter topic, duplicates included.",
    ),
    Metric(
        "ordering_violations_total",
        "counter",
        "Sampled keys that occurred in two partitions of a topic.",
        ("topic",),
    ),
    Metric(
        "split_key_updates_total",
        "counter",
        "Key updates whose two records were in different batches.",
        ("topic",),
    ),
)

_BATCH = (
    Metric(
        "batches_total",
        "counter",
        "Micro-batches: committed, empty, failed or replayed.",
        ("outcome",),
    ),
    Metric(
        "batch_duration_seconds",
        "histogram",
        "Duration of a micro-batch.",
        (),
        SECONDS_BUCKETS,
        unit="seconds",
    ),
    Metric(
        "batch_phase_duration_seconds",
        "histogram",
        "Wall time of one phase of a micro-batch: plan, job, schema, commit.",
        ("phase",),
        SECONDS_BUCKETS,
        unit="seconds",
    ),
    Metric(
        "batch_phase_task_seconds_total",
        "counter",
        "Task time by step of the job, summed over tasks: consume, decode, sort, merge (rows "
        "into writers), flush (files written and compacted).",
        ("phase",),
        unit="seconds",
    ),
    Metric(
        "batch_slowest_task_ratio",
        "computed",
        "Write time of the slowest bucket of the last batch, relative to the wall time of the job.",
        unit="ratio",
    ),
    Metric("batch_records", "histogram", "Source records in a micro-batch.", (), RECORD_BUCKETS),
    Metric("batch_in_progress", "gauge", "1 while a micro-batch is processed.", unit="boolean"),
    Metric("batch_id", "gauge", "Spark's id of the last completed micro-batch.", unit="id"),
    Metric(
        "batch_start_timestamp_seconds",
        "gauge",
        "Start of the current or last micro-batch.",
        unit="timestamp",
    ),
    Metric(
        "last_success_timestamp_seconds",
        "gauge",
        "End of the last successful micro-batch, empty ones included.",
        unit="timestamp",
    ),
    Metric(
        "trigger_interval_seconds",
        "computed",
        "`pipeline.trigger.interval`: batches that take longer follow each other without a pause.",
        unit="seconds",
    ),
    Metric(
        "query_step_seconds_total",
        "counter",
        "Duration of trigger phases as reported by Spark: triggerExecution, latestOffset, "
        "addBatch, walCommit, commitOffsets and others.",
        ("step",),
        unit="seconds",
    ),
)

GROUPS: tuple[tuple[str, tuple[Metric, ...]], ...] = (
    ("Source", _SOURCE),
    ("Decoding and bad records", _DECODE),
    ("Micro-batches", _BATCH),
    *TABLE_METRICS,
    *RUNTIME_METRICS,
)
"""The catalogue by section of the reference page."""

METRICS: tuple[Metric, ...] = tuple(row for _, rows in GROUPS for row in rows)
