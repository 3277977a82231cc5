# SPDX-License-Identifier: Apache-2.0
"""Rows of the catalogue of metrics about tables: commits, layout, compaction, lookups, schemas."""

from ingest.observe.metrics.metric import DELAY_BUCKETS, SECONDS_BUCKETS, Metric

__all__ = ["TABLE_METRICS"]

_TABLE = ("table",)

_ROWS = (
    Metric(
        "table_rows_written_total",
        "counter",
        "Rows committed to data files, told when their batch is done in all its tables. Once each, "
        "whatever its tries; not those of tables that had committed when the process died before.",
        ("table", "kind"),
        unit="rows",
    ),
    Metric(
        "table_changelog_rows_total", "counter", "Rows of committed changelog.", _TABLE, unit="rows"
    ),
    Metric(
        "table_bytes_written_total",
        "counter",
        "Bytes of committed files, without those of compactions: data, changelog or index.",
        ("table", "type"),
        unit="bytes",
    ),
    Metric(
        "table_files_written_total",
        "counter",
        "Committed files, without those of compactions: data, changelog or index.",
        ("table", "type"),
    ),
    Metric(
        "table_state",
        "computed",
        "What becomes of a table's events: exactly one state is 1; alarm on parked.",
        ("table", "state"),
        unit="boolean",
        fold="sum",
    ),
    Metric("table_snapshot_id", "computed", "Newest snapshot of this stream.", _TABLE, unit="id"),
    Metric(
        "table_last_commit_timestamp_seconds",
        "computed",
        "Last commit.",
        _TABLE,
        unit="timestamp",
        fold="max",
    ),
    Metric(
        "table_source_timestamp_seconds",
        "computed",
        "Newest source.ts_ms visible.",
        _TABLE,
        unit="timestamp",
        fold="max",
    ),
    Metric(
        "table_freshness_seconds",
        "computed",
        "Age of the newest visible change; 0 while the table's topics are known to have nothing "
        "newer, absent while it is parked.",
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
        "Values that the source did not send because they did not change, kept from older rows.",
        _TABLE,
        unit="values",
    ),
    Metric(
        "table_values_lost_total",
        "counter",
        "Values that the source did not send and that no older row had; null was stored.",
        _TABLE,
        unit="values",
    ),
    Metric(
        "table_columns_matched_total",
        "counter",
        "Columns of events that were matched to a column spelt in another letter case or Unicode "
        "normal form, once for each batch.",
        _TABLE,
    ),
    Metric(
        "duplicate_events_total",
        "counter",
        "Rows of tables in the order of the source that were delivered again, or late.",
        _TABLE,
        unit="rows",
    ),
    Metric(
        "table_bucket_skew_ratio",
        "computed",
        "Most rows of a bucket over the mean of the buckets that the last batch wrote.",
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
        "Records in live data files; several may be of one row until they are merged.",
        _TABLE,
        unit="records",
        fold="sum",
    ),
    Metric("table_buckets", "computed", "Buckets that hold files.", _TABLE, fold="sum"),
    Metric("table_partitions", "computed", "Partitions that hold files.", _TABLE, fold="sum"),
    Metric(
        "table_level0_files_max",
        "computed",
        "Most files in level 0 of a bucket.",
        _TABLE,
        unit="files",
        fold="max",
    ),
    Metric(
        "table_level0_files_avg",
        "computed",
        "Files in level 0, mean over buckets.",
        _TABLE,
        unit="files",
        fold="max",
    ),
    Metric(
        "table_sorted_runs_max",
        "computed",
        "Most sorted runs in a bucket: each level-0 file and each further level is one.",
        _TABLE,
        unit="runs",
        fold="max",
    ),
    Metric(
        "table_sorted_runs_avg",
        "computed",
        "Sorted runs, mean over buckets.",
        _TABLE,
        unit="runs",
        fold="max",
    ),
    Metric(
        "table_sorted_runs_compaction_trigger",
        "computed",
        "Runs from which on a bucket is compacted (`num-sorted-run.compaction-trigger`).",
        _TABLE,
        unit="runs",
        fold="min",
    ),
    Metric(
        "table_sorted_runs_stop_trigger",
        "computed",
        "Runs from which on reading and writing a bucket is slow (`num-sorted-run.stop-trigger`).",
        _TABLE,
        unit="runs",
        fold="min",
    ),
    Metric("table_schema_id", "computed", "Schema of the newest snapshot.", _TABLE, unit="id"),
    Metric("table_snapshots", "computed", "Snapshots kept.", _TABLE, fold="sum"),
    Metric(
        "table_layout_timestamp_seconds",
        "computed",
        "When the snapshot was committed of which the figures about files are.",
        _TABLE,
        unit="timestamp",
        fold="min",
    ),
)

_COMMIT = (
    Metric(
        "commits_total",
        "counter",
        "Commits: kind append or compact; outcome ok, or conflict (a compaction was dropped).",
        ("table", "kind", "outcome"),
    ),
    Metric(
        "commit_duration_seconds",
        "histogram",
        "Commit with its retries.",
        _TABLE,
        SECONDS_BUCKETS,
        unit="seconds",
    ),
    Metric("commit_retries_total", "counter", "Lost races for a snapshot id.", ("reason",)),
    Metric(
        "snapshots_expired_total",
        "counter",
        "Snapshots that the daemon removed because they have had their time.",
        _TABLE,
    ),
    Metric(
        "orphan_files_removed_total",
        "counter",
        "Files that nothing named and the daemon removed (`maintenance.orphan.clean`).",
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
        "Time spent on compacting buckets, over all tasks and the background.",
        ("table", "kind"),
        unit="seconds",
    ),
    Metric(
        "compaction_read_bytes_total",
        "counter",
        "Bytes of data files that committed compactions replaced.",
        ("table", "kind"),
        unit="bytes",
    ),
    Metric(
        "compaction_written_bytes_total",
        "counter",
        "Bytes of data files that committed compactions wrote.",
        ("table", "kind"),
        unit="bytes",
    ),
    Metric(
        "compaction_pass_duration_seconds",
        "histogram",
        "Compaction of a table in the background.",
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
    Metric("compaction_pending", "gauge", "Tables that wait for compaction in the background."),
    Metric(
        "compaction_oldest_pending_seconds",
        "computed",
        "How long the first of them has waited; 0 = none waits.",
        unit="seconds",
    ),
    Metric(
        "compaction_busy_ratio",
        "computed",
        "Share of the last 5 minutes in which a table was compacted in the background.",
        unit="ratio",
    ),
)

_LOOKUP = (
    Metric("lookup_hits_total", "counter", "Times a local copy of a data file was there."),
    Metric("lookup_misses_total", "counter", "Times it was built or waited for."),
    Metric(
        "lookup_built_bytes_total",
        "counter",
        "Bytes of local copies that were built.",
        unit="bytes",
    ),
    Metric(
        "lookup_evicted_files_total",
        "counter",
        "Local copies removed for want of room or of use.",
        unit="files",
    ),
    Metric(
        "lookup_disk_bytes",
        "gauge",
        "Local copies on disk, of the fullest machine.",
        unit="bytes",
    ),
)

_SCHEMA = (
    Metric(
        "schema_changes_total",
        "counter",
        "Schema changes that were asked for: applied, ignored, refused or parked.",
        ("table", "change", "decision"),
    ),
)

TABLE_METRICS: tuple[tuple[str, tuple[Metric, ...]], ...] = (
    ("Tables", _ROWS),
    ("Files of tables", _LAYOUT),
    ("Commits and upkeep", _COMMIT),
    ("Compaction", _COMPACTION),
    ("Lookups", _LOOKUP),
    ("Schemas", _SCHEMA),
)
