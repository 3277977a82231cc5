# SPDX-License-Identifier: Apache-2.0
"""The catalogue of metrics: name, type, labels, meaning. Nothing else names a metric.

Names are without the prefix `lakeward_`. Rules: base units, `_total` on counters,
`_timestamp_seconds` for times, `topic`/`partition` labels only on offsets, `table` as
`database.table`; never a bucket, key, offset, file or exception text in a label.
"""

import dataclasses

__all__ = ["METRICS", "PREFIX", "STATES", "TABLE_STATES", "Metric"]

PREFIX = "lakeward_"

STATES = ("starting", "running", "paused", "idle", "draining", "failed")
"""Values of `lakeward_state`; exactly one is 1."""

TABLE_STATES = ("running", "parked", "behind")
"""Values of `lakeward_table_state`: written as events come; left alone while the others flow;
resumed and catching up with the others."""

_SECONDS = (0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30, 60, 120, 300, 600)
_DELAY = (1, 2, 5, 10, 30, 60, 120, 300, 900, 3600, 14400)
_RECORDS = (1, 10, 100, 1_000, 10_000, 100_000, 1_000_000, 10_000_000)


@dataclasses.dataclass(frozen=True, slots=True)
class Metric:
    """One row.

    Attributes:
        name: without prefix; a counter's ends in `_total`.
        type: `counter`, `gauge`, `histogram`, or `computed`: a gauge worked out at scrape time,
            absent while it is not known.
        help: one sentence.
        labels: label names.
        buckets: upper bounds of a histogram.
    """

    name: str
    type: str
    help: str
    labels: tuple[str, ...] = ()
    buckets: tuple[float, ...] = ()


_PARTITION = ("topic", "partition")

METRICS: tuple[Metric, ...] = (
    Metric(
        "build_info",
        "gauge",
        "Versions in use; always 1.",
        ("version", "pyspark", "python", "paimon_format"),
    ),
    Metric("state", "gauge", "What the daemon does: exactly one state is 1.", ("state",)),
    Metric(
        "driver_epoch",
        "gauge",
        "How many times the stream was begun to be owned, this time included; stored with it.",
    ),
    Metric(
        "webhook_events_total",
        "counter",
        "Events for webhooks: sent, failed (given up) or dropped (too many waited).",
        ("outcome",),
    ),
    # source
    Metric("source_records_total", "counter", "Committed source records.", ("topic",)),
    Metric("source_bytes_total", "counter", "Committed key and value bytes."),
    Metric(
        "source_committed_offset",
        "gauge",
        "Next offset to read, per last table commit.",
        _PARTITION,
    ),
    Metric("source_end_offset", "computed", "High watermark.", _PARTITION),
    Metric("source_start_offset", "computed", "Log start.", _PARTITION),
    Metric("source_lag_records", "computed", "End offset minus committed offset.", _PARTITION),
    Metric(
        "source_lag_seconds",
        "computed",
        "How long the oldest uncommitted record has been seen waiting, without the time that "
        "settings let it wait (source_wait_seconds); 0 when there is none.",
        ("topic",),
    ),
    Metric(
        "source_wait_seconds",
        "computed",
        "How long records of the topic may wait (freshness, idle.commit); none = they may not.",
        ("topic",),
    ),
    Metric(
        "source_retention_headroom_ratio",
        "computed",
        "(committed - start) / (end - start); at 0 records are lost.",
        _PARTITION,
    ),
    Metric(
        "source_offsets_poll_timestamp_seconds", "gauge", "When the watermarks were polled last."
    ),
    Metric("source_partitions", "computed", "Partitions known.", ("topic",)),
    Metric(
        "source_errors_total",
        "counter",
        "Client errors: transport, auth, timeout, out_of_range, other.",
        ("reason",),
    ),
    Metric(
        "source_skipped_offsets_total",
        "counter",
        "Offsets lost to retention that the stream went past.",
        _PARTITION,
    ),
    # decode
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
    # batch
    Metric(
        "batches_total",
        "counter",
        "Micro-batches: committed, empty, failed or replayed.",
        ("outcome",),
    ),
    Metric("batch_duration_seconds", "histogram", "Whole micro-batch.", (), _SECONDS),
    Metric(
        "batch_phase_duration_seconds",
        "histogram",
        "Wall time of one phase of a micro-batch.",
        ("phase",),
        _SECONDS,
    ),
    Metric(
        "batch_phase_task_seconds_total",
        "counter",
        "Time of a phase summed over tasks; against the wall time it shows skew.",
        ("phase",),
    ),
    Metric("batch_records", "histogram", "Source records in a micro-batch.", (), _RECORDS),
    Metric("batch_in_progress", "gauge", "1 while a micro-batch is worked on."),
    Metric("batch_id", "gauge", "Spark's id of the micro-batch that ended last."),
    Metric("batch_start_timestamp_seconds", "gauge", "Start of the current or last micro-batch."),
    Metric(
        "last_success_timestamp_seconds", "gauge", "End of the last micro-batch, empty ones too."
    ),
    # table
    Metric(
        "table_rows_written_total", "counter", "Rows committed to data files.", ("table", "kind")
    ),
    Metric(
        "table_state",
        "gauge",
        "What becomes of a table's events: exactly one state is 1; alarm on parked.",
        ("table", "state"),
    ),
    Metric("table_snapshot_id", "gauge", "Newest snapshot of this stream.", ("table",)),
    Metric("table_last_commit_timestamp_seconds", "gauge", "Last commit.", ("table",)),
    Metric("table_source_timestamp_seconds", "gauge", "Newest source.ts_ms visible.", ("table",)),
    Metric(
        "table_freshness_seconds",
        "computed",
        "Age of the newest visible change; 0 while the source has nothing newer.",
        ("table",),
    ),
    Metric(
        "table_commit_delay_seconds",
        "histogram",
        "Commit time minus the oldest source.ts_ms of the batch.",
        ("table",),
        _DELAY,
    ),
    Metric(
        "table_sorted_runs_max",
        "gauge",
        "Most sorted runs in a bucket that the last batch touched.",
        ("table",),
    ),
    # commit, compaction, schema
    Metric(
        "commits_total",
        "counter",
        "Snapshots: kind append, compact or overwrite; outcome ok, conflict or error.",
        ("table", "kind", "outcome"),
    ),
    Metric(
        "commit_duration_seconds", "histogram", "Commit with its retries.", ("table",), _SECONDS
    ),
    Metric("commit_retries_total", "counter", "Lost races for a snapshot id.", ("reason",)),
    Metric(
        "compactions_total",
        "counter",
        "Compacted buckets: kind minor or full; outcome ok, dropped (lost a race) or error.",
        ("table", "kind", "outcome"),
    ),
    Metric(
        "compaction_seconds_total",
        "counter",
        "Time spent on compacting buckets, over all tasks and the background.",
        ("table", "kind"),
    ),
    Metric(
        "compaction_written_bytes_total",
        "counter",
        "Bytes of data files that committed compactions wrote.",
        ("table", "kind"),
    ),
    Metric(
        "snapshots_expired_total",
        "counter",
        "Snapshots that the daemon removed because they have had their time.",
        ("table",),
    ),
    Metric(
        "orphan_files_removed_total",
        "counter",
        "Files that nothing named and the daemon removed (`maintenance.orphan.clean`).",
        ("table",),
    ),
    Metric("compaction_in_progress", "gauge", "1 while a table is compacted in the background."),
    Metric("table_changelog_rows_total", "counter", "Rows of committed changelog.", ("table",)),
    Metric(
        "table_values_kept_total",
        "counter",
        "Values that the source did not send because they did not change, kept from older rows.",
        ("table",),
    ),
    Metric(
        "table_rows_swept_total",
        "counter",
        "Rows deleted because a new snapshot of the source did not bring them.",
        ("table",),
    ),
    Metric(
        "table_sweeps_total",
        "counter",
        "Snapshots of the source that were to be swept: swept, or called_off.",
        ("table", "outcome"),
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
    Metric(
        "duplicate_events_total",
        "counter",
        "Rows of tables in the order of the source that were delivered again, or late.",
        ("table",),
    ),
    Metric(
        "table_values_lost_total",
        "counter",
        "Values that the source did not send and that no older row had; null was stored.",
        ("table",),
    ),
    # lookup
    Metric("lookup_hits_total", "counter", "Times a local copy of a data file was there."),
    Metric("lookup_misses_total", "counter", "Times it was built or waited for."),
    Metric("lookup_built_bytes_total", "counter", "Bytes of local copies that were built."),
    Metric(
        "lookup_evicted_files_total", "counter", "Local copies removed for want of room or of use."
    ),
    Metric("lookup_disk_bytes", "gauge", "Local copies on disk, of the fullest machine."),
    Metric(
        "schema_changes_total",
        "counter",
        "Schema changes that were asked for: applied, ignored, refused or parked.",
        ("table", "change", "decision"),
    ),
)
