# SPDX-License-Identifier: Apache-2.0
"""The catalogue of metrics: name, type, labels, unit, meaning. Nothing else names a metric.

Names are without the prefix `lakeward_`. Rules: base units, `_total` on counters,
`_timestamp_seconds` for times, `topic`/`partition` labels only on offsets, `table` as
`database.table`; never a bucket, key, offset, file or exception text in a label. This module has
what is about source and batches; `metric_table_tables` and `metric_table_runtime` have the rest.
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
        "source_bytes_total", "counter", "Committed key and value bytes of records.", unit="bytes"
    ),
    Metric(
        "source_committed_offset",
        "gauge",
        "Next offset to read, per last table commit.",
        _PARTITION,
        unit="offset",
    ),
    Metric("source_end_offset", "computed", "High watermark.", _PARTITION, unit="offset"),
    Metric("source_start_offset", "computed", "Log start.", _PARTITION, unit="offset"),
    Metric(
        "source_lag_records",
        "computed",
        "End offset minus committed offset; of a `files` source bytes.",
        _PARTITION,
    ),
    Metric(
        "source_lag_seconds",
        "computed",
        "How long the oldest uncommitted record has been seen waiting, without the time that "
        "settings let it wait (source_wait_seconds); 0 when there is none.",
        ("topic",),
        unit="seconds",
    ),
    Metric(
        "source_wait_seconds",
        "computed",
        "How long records of the topic may wait (freshness, idle.commit); none = they may not.",
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
        "When the watermarks were polled last; what hangs on them is absent 120 s later.",
        unit="timestamp",
    ),
    Metric("source_partitions", "computed", "Partitions known.", ("topic",)),
    Metric(
        "source_errors_total",
        "counter",
        "Polls of the source that failed: transport, or auth (credentials were refused).",
        ("reason",),
    ),
    Metric(
        "source_skipped_offsets_total",
        "counter",
        "Offsets lost to retention that the stream went past.",
        _PARTITION,
    ),
    Metric(
        "source_clock_skew_seconds",
        "gauge",
        "How far the newest change of the last batch is ahead of this machine's clock; 0 = not.",
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
        "Records that could not be decoded, by kind of error.",
        ("topic", "reason"),
    ),
    Metric(
        "decode_walked_records_total",
        "counter",
        "Committed records that the compiled scan decoded; the rest of `decode_records_total` took "
        "more CPU.",
        ("topic",),
    ),
    Metric("dlq_records_total", "counter", "Records in the quarantine table.", ("topic", "reason")),
    Metric(
        "quarantined_rows_total",
        "counter",
        "The same by the table that they are for; empty where that is not known.",
        ("table", "class"),
    ),
    Metric(
        "bad_records_skipped_total",
        "counter",
        "Bad records left out because the table's `bad.records` is `skip`.",
        ("table", "class"),
    ),
    Metric(
        "tables_parked_for_bad_records_total",
        "counter",
        "Times a table was parked for its share of bad records, or for any (`fail`).",
        ("table",),
    ),
    Metric(
        "dlq_sent_total",
        "counter",
        "Copies of bad records acknowledged by `bad.records.topic`, repeats included.",
    ),
    Metric(
        "ordering_violations_total",
        "counter",
        "Sampled keys that were seen in two partitions of a topic.",
        ("topic",),
    ),
    Metric(
        "split_key_updates_total",
        "counter",
        "Changes of key whose two records were in different batches.",
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
        "Whole micro-batch.",
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
        "Time of a part of the job summed over its tasks: consume, decode, sort, merge (rows into "
        "writers), flush (files written and compacted).",
        ("phase",),
        unit="seconds",
    ),
    Metric(
        "batch_slowest_task_ratio",
        "computed",
        "Writing time of the slowest bucket of the last batch, of the whole job's wall time.",
        unit="ratio",
    ),
    Metric("batch_records", "histogram", "Source records in a micro-batch.", (), RECORD_BUCKETS),
    Metric("batch_in_progress", "gauge", "1 while a micro-batch is worked on.", unit="boolean"),
    Metric("batch_id", "gauge", "Spark's id of the micro-batch that ended last.", unit="id"),
    Metric(
        "batch_start_timestamp_seconds",
        "gauge",
        "Start of the current or last micro-batch.",
        unit="timestamp",
    ),
    Metric(
        "last_success_timestamp_seconds",
        "gauge",
        "End of the last micro-batch, empty ones too.",
        unit="timestamp",
    ),
    Metric(
        "trigger_interval_seconds",
        "computed",
        "`pipeline.trigger.interval`: batches that take longer than this have no pause.",
        unit="seconds",
    ),
    Metric(
        "query_step_seconds_total",
        "counter",
        "What Spark says of its batches: triggerExecution, latestOffset, addBatch, walCommit, "
        "commitOffsets and others.",
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
"""The catalogue in parts, as the page of metrics shows it."""

METRICS: tuple[Metric, ...] = tuple(row for _, rows in GROUPS for row in rows)
