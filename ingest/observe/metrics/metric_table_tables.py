# SPDX-License-Identifier: Apache-2.0
"""Metrics of tables: commits, layout, compaction, lookups, schemas."""

from ingest.observe.metrics.metric import DELAY_BUCKETS, SECONDS_BUCKETS, Metric

__all__ = ["TABLE_METRICS"]

_TABLE = ("table",)

_ROWS = (
    Metric(
        "table_rows_written_total",
        "counter",
        "Rows committed to data files, counted when the batch is complete in all tables. "
        "Retries count once; not counted are tables that had committed before the process "
        "died.",
        ("table", "kind"),
        unit="rows",
    ),
    Metric(
        "table_changelog_rows_total", "counter", "Committed changelog rows.", _TABLE, unit="rows"
    ),
    Metric(
        "table_bytes_written_total",
        "counter",
        "Bytes of committed files, compactions excluded: data, changelog or index.",
        ("table", "type"),
        unit="bytes",
    ),
    Metric(
        "table_files_written_total",
        "counter",
        "Committed files, compactions excluded: data, changelog or index.",
        ("table", "type"),
    ),
    Metric(
        "table_state",
        "computed",
        "State of a table: exactly one state is 1; alert on parked.",
        ("table", "state"),
        unit="boolean",
        fold="sum",
    ),
    Metric("table_snapshot_id", "computed", "Newest snapshot of this stream.", _TABLE, unit="id"),
    Metric(
        "table_last_commit_timestamp_seconds",
        "computed",
        "Time of the last commit.",
        _TABLE,
        unit="timestamp",
        fold="max",
    ),
    Metric(
        "table_source_timestamp_seconds",
        "computed",
        "Newest visible source.ts_ms.",
        _TABLE,
        unit="timestamp",
        fold="max",
    ),
    Metric(
        "table_freshness_seconds",
        "computed",
        "Age of the newest visible change; 0 if the topics of the table have nothing newer, "
        "absent while it is parked.",
        _TABLE,
        unit="seconds",
        fold="max",
    ),
    Metric(
        "table_commit_delay_seconds",
        "histogram",
        "Commit time minus the oldest source.ts_ms of the batch.",
        _TABLE,
        DELAY_BUCKETS,
        unit="seconds",
    ),
    Metric(
        "table_values_kept_total",
        "counter",
        "Unchanged values that the source did not send, taken from the stored row.",
        _TABLE,
        unit="values",
    ),
    Metric(
        "table_values_lost_total",
        "counter",
        "Values that the source did not send and that no stored row had; null was stored.",
        _TABLE,
        unit="values",
    ),
    Metric(
        "table_columns_matched_total",
        "counter",
        "Columns of events matched to a column with another letter case or Unicode normal "
        "form, once per batch.",
        _TABLE,
    ),
    Metric(
        "duplicate_events_total",
        "counter",
        "Rows of tables with `ordering: source` that were delivered again or late.",
        _TABLE,
        unit="rows",
    ),
    Metric(
        "table_bucket_skew_ratio",
        "computed",
        "Rows of the largest bucket relative to the mean of the buckets that the last batch wrote.",
        _TABLE,
        unit="ratio",
        fold="max",
    ),
)

_LAYOUT = (
    Metric("table_files", "computed", "Live data files.", _TABLE, fold="sum"),
    Metric(
        "table_bytes", "computed", "Bytes of live data files.", _TABLE, unit="bytes", fold="sum"
    ),
    Metric(
        "table_records",
        "computed",
        "Records in live data files; a row can have several until they are merged.",
        _TABLE,
        unit="records",
        fold="sum",
    ),
    Metric("table_buckets", "computed", "Buckets with live files.", _TABLE, fold="sum"),
    Metric("table_partitions", "computed", "Partitions with live files.", _TABLE, fold="sum"),
    Metric(
        "table_level0_files_max",
        "computed",
        "Maximum number of level-0 files of a bucket.",
        _TABLE,
        unit="files",
        fold="max",
    ),
    Metric(
        "table_level0_files_avg",
        "computed",
        "Mean number of level-0 files per bucket.",
        _TABLE,
        unit="files",
        fold="max",
    ),
    Metric(
        "table_sorted_runs_max",
        "computed",
        "Maximum number of sorted runs of a bucket: each level-0 file and each higher level "
        "is one.",
        _TABLE,
        unit="runs",
        fold="max",
    ),
    Metric(
        "table_sorted_runs_avg",
        "computed",
        "Mean number of sorted runs per bucket.",
        _TABLE,
        unit="runs",
        fold="max",
    ),
    Metric(
        "table_sorted_runs_compaction_trigger",
        "computed",
        "Number of sorted runs that triggers compaction (`num-sorted-run.compaction-trigger`).",
        _TABLE,
        unit="runs",
        fold="min",
    ),
    Metric(
        "table_sorted_runs_stop_trigger",
        "computed",
        "Number of sorted runs above which writers wait for compaction "
        "(`num-sorted-run.stop-trigger`).",
        _TABLE,
        unit="runs",
        fold="min",
    ),
    Metric("table_schema_id", "computed", "Schema of the newest snapshot.", _TABLE, unit="id"),
    Metric("table_snapshots", "computed", "Retained snapshots.", _TABLE, fold="sum"),
    Metric(
        "table_layout_timestamp_seconds",
        "computed",
        "Commit time of the snapshot that the metrics of files describe.",
        _TABLE,
        unit="timestamp",
        fold="min",
    ),
)

_COMMIT = (
    Metric(
        "commits_total",
        "counter",
        "Commits: kind append or compact; outcome ok, or conflict (a compaction was discarded).",
        ("table", "kind", "outcome"),
    ),
    Metric(
        "commit_duration_seconds",
        "histogram",
        "Duration of a commit, retries included.",
        _TABLE,
        SECONDS_BUCKETS,
        unit="seconds",
    ),
    Metric(
        "commit_retries_total",
        "counter",
        "Commit retries after losing the race for a snapshot id.",
        ("reason",),
    ),
    Metric(
        "snapshots_expired_total",
        "counter",
        "Snapshots expired by the daemon.",
        _TABLE,
    ),
    Metric(
        "orphan_files_removed_total",
        "counter",
        "Orphan files removed by the daemon (`maintenance.orphan.clean`).",
        _TABLE,
        unit="files",
    ),
)

_COMPACTION = (
    Metric(
        "compactions_total",
        "counter",
        "Compacted buckets: kind minor or full; outcome ok, dropped (lost a race) or error.",
        ("table", "kind", "outcome"),
    ),
    Metric(
        "compaction_seconds_total",
        "counter",
        "Time spent on compacting buckets, over all tasks and in the background.",
        ("table", "kind"),
        unit="seconds",
    ),
    Metric(
        "compaction_read_bytes_total",
        "counter",
        "Bytes of data files replaced by committed compactions.",
        ("table", "kind"),
        unit="bytes",
    ),
    Metric(
        "compaction_written_bytes_total",
        "counter",
        "Bytes of data files written by committed compactions.",
        ("table", "kind"),
        unit="bytes",
    ),
    Metric(
        "compaction_pass_duration_seconds",
        "histogram",
        "Duration of the background compaction of a table.",
        ("kind",),
        SECONDS_BUCKETS,
        unit="seconds",
    ),
    Metric(
        "compaction_in_progress",
        "gauge",
        "1 while a table is compacted in the background.",
        unit="boolean",
    ),
    Metric("compaction_pending", "gauge", "Tables waiting for background compaction."),
    Metric(
        "compaction_oldest_pending_seconds",
        "computed",
        "Time that the longest-waiting table has waited; 0 = none is waiting.",
        unit="seconds",
    ),
    Metric(
        "compaction_busy_ratio",
        "computed",
        "Share of the last 5 minutes spent on background compaction.",
        unit="ratio",
    ),
)

_LOOKUP = (
    Metric("lookup_hits_total", "counter", "Lookups that found a local copy of a data file."),
    Metric("lookup_misses_total", "counter", "Lookups that had to build or wait for a local copy."),
    Metric(
        "lookup_built_bytes_total",
        "counter",
        "Bytes of local copies that were built.",
        unit="bytes",
    ),
    Metric(
        "lookup_evicted_files_total",
        "counter",
        "Local copies that were evicted because of space or age.",
        unit="files",
    ),
    Metric(
        "lookup_disk_bytes",
        "gauge",
        "Bytes of local copies on disk, on the machine with the most.",
        unit="bytes",
    ),
)

_SCHEMA = (
    Metric(
        "schema_changes_total",
        "counter",
        "Requested schema changes, by decision: applied, ignored, refused or parked.",
        ("table", "change", "decision"),
    ),
)

TABLE_METRICS: tuple[tuple[str, tuple[Metric, ...]], ...] = (
    ("Tables", _ROWS),
    ("Files of tables", _LAYOUT),
    ("Commits and maintenance", _COMMIT),
    ("Compaction", _COMPACTION),
    ("Lookups", _LOOKUP),
    ("Schemas", _SCHEMA),
)
