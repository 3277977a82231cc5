# SPDX-License-Identifier: Apache-2.0
"""Rows of the option table about writing, compaction, commit and expiry. See `option_table`."""

from storage.option_values import (
    Access,
    Option,
    boolean,
    choice,
    decimal_number,
    duration_ms,
    ignored,
    integer,
    memory_size,
    option,
    refused,
    text,
)

__all__ = ["COMMIT", "COMPACTION", "EXPIRY", "WRITING"]

_DAY_HOURS = "hour of the day, -1 = off"

WRITING: tuple[Option, ...] = (
    option(
        "write-only",
        boolean,
        "false",
        "Never compact or expire while writing.",
        aliases=("write.compaction-skip",),
    ),
    option(
        "write-buffer-size",
        memory_size,
        "256 mb",
        "Rows of one bucket held in memory before a flush. Larger: fewer level-0 files, less "
        "compaction. Smaller: less memory.",
        "bytes",
    ),
    option(
        "target-file-size",
        memory_size,
        "128 mb",
        "Size at which a data file is closed. Larger: fewer files, slower compaction steps. "
        "Smaller: more metadata.",
        "bytes",
    ),
    option(
        "file.format",
        choice("parquet", "orc", "avro"),
        "parquet",
        "Format of data files.",
        implemented=("parquet",),
        blocks=Access.WRITE,
    ),
    option("file.compression", text, "zstd", "Compression of data files."),
    option(
        "file.compression.zstd-level",
        integer,
        "1",
        "Level of zstd. Higher: smaller, slower.",
        attribute="zstd_level",
    ),
    option("data-file.prefix", text, "data-", "First part of data file names."),
    option(
        "metadata.stats-mode",
        text,
        "truncate(16)",
        "Column statistics kept per file: none, counts, truncate(n) or full.",
        attribute="stats_mode",
    ),
    option(
        "fields.<name>.stats-mode",
        text,
        None,
        "Statistics of one column.",
        attribute="field_stats_modes",
    ),
    refused("file.format.per.level", text, None, "Format of data files by level."),
    *ignored(
        "File layout only: any reader finds the same rows.",
        ("file.compression.per.level", text, None),
        ("data-file.thin-mode", boolean, "false"),
        ("metadata.stats-mode.per.level", text, None),
        ("target-file-row-num", integer, None),
        ("file-index.<type>.columns", text, None),
        ("file-index.in-manifest-threshold", memory_size, "500 b"),
        ("file-index.read.enabled", boolean, "true"),
        ("index-file-in-data-file-dir", boolean, "false"),
    ),
    *ignored(
        "Tuning of a mechanism that works differently here.",
        ("write-buffer-spillable", boolean, "true"),
        ("write-buffer-spill.max-disk-size", memory_size, None),
        ("local-merge-buffer-size", memory_size, None),
        ("local-sort.max-num-file-handles", integer, "128"),
        ("sort-spill-threshold", integer, None),
        ("sort-spill-buffer-size", memory_size, "64 mb"),
        ("sort-engine", text, "loser-tree"),
        ("page-size", memory_size, "64 kb"),
        ("write.sequence-number-init-mode", choice("scan", "snapshot"), "scan"),
    ),
)

COMPACTION: tuple[Option, ...] = (
    option(
        "num-sorted-run.compaction-trigger",
        integer,
        "5",
        "Sorted runs at which compaction is considered. Larger: cheaper writes, dearer reads.",
        "sorted runs",
        attribute="compaction_trigger",
    ),
    option(
        "num-sorted-run.stop-trigger",
        integer,
        None,
        "Sorted runs a bucket never exceeds after a commit; trigger + 3 when not set.",
        "sorted runs",
        attribute="stop_trigger",
    ),
    option("num-levels", integer, None, "Levels of a bucket; trigger + 1 when not set.", "levels"),
    option(
        "compaction.max-size-amplification-percent",
        integer,
        "200",
        "Size of the newer runs relative to the oldest above which all runs are merged.",
        "percent",
        attribute="max_size_amplification_percent",
    ),
    option(
        "compaction.size-ratio",
        integer,
        "1",
        "How much larger the next older run may be to still be merged with the newer ones.",
        "percent",
        attribute="size_ratio",
    ),
    option(
        "compaction.optimization-interval",
        duration_ms,
        None,
        "Time between full compactions.",
        "ms",
    ),
    option(
        "compaction.total-size-threshold",
        memory_size,
        None,
        "A bucket smaller than this is always compacted fully.",
        "bytes",
    ),
    option(
        "compaction.incremental-size-threshold",
        memory_size,
        None,
        "Data outside the last level above which the bucket is compacted fully.",
        "bytes",
    ),
    option(
        "compaction.offpeak.start.hour",
        integer,
        "-1",
        "First off-peak hour, local time.",
        _DAY_HOURS,
    ),
    option(
        "compaction.offpeak.end.hour", integer, "-1", "Hour at which off-peak is over.", _DAY_HOURS
    ),
    option(
        "compaction.offpeak-ratio", integer, "0", "Added to the size ratio off-peak.", "percent"
    ),
    option(
        "compaction.force-up-level-0",
        boolean,
        "false",
        "Compact all level-0 files at every chance.",
    ),
    option(
        "compaction.force-rewrite-all-files",
        boolean,
        "false",
        "Rewrite files that could merely change their level.",
    ),
    option(
        "compaction.small-file-ratio",
        decimal_number,
        "0.7",
        "Files below this share of `target-file-size` are rewritten with their neighbours.",
    ),
    option(
        "commit.force-compact",
        boolean,
        "false",
        "Wait for compaction before a commit; here compaction is part of the commit in any case.",
    ),
    refused(
        "force-lookup", boolean, "false", "Look up old values without a changelog.", mutable=False
    ),
    refused("pk-clustering-override", boolean, "false", "Other order of files.", mutable=False),
    *ignored(
        "Timing of compaction only; rows are the same.",
        ("full-compaction.delta-commits", integer, None),
        ("lookup-wait", boolean, "true"),
        ("lookup-compact", text, "radical"),
        ("lookup-compact.max-interval", integer, None),
        ("compaction.skip-expired-partitions", boolean, "false"),
        ("compaction.min.file-num", integer, "5"),
    ),
    *ignored(
        "Tuning of lookups, which are not used here.",
        ("lookup.cache-file-retention", duration_ms, "1 h"),
        ("lookup.cache-max-disk-size", memory_size, None),
        ("lookup.cache-max-memory-size", memory_size, "256 mb"),
        ("lookup.cache-rows", integer, "10000"),
        ("lookup.cache.bloom.filter.enabled", boolean, "true"),
        ("lookup.cache.bloom.filter.fpp", decimal_number, "0.05"),
        ("lookup.hash-load-factor", decimal_number, "0.75"),
        ("lookup.cache-spill-compression", text, "zstd"),
        ("lookup.continuous.discovery-interval", duration_ms, None),
    ),
)

COMMIT: tuple[Option, ...] = (
    option("commit.max-retries", integer, "10", "Attempts after a lost race for a snapshot id."),
    option(
        "commit.min-retry-wait",
        duration_ms,
        "10 ms",
        "First wait between attempts.",
        "ms",
        attribute="commit_min_retry_wait_ms",
    ),
    option(
        "commit.max-retry-wait",
        duration_ms,
        "10 s",
        "Longest wait between attempts.",
        "ms",
        attribute="commit_max_retry_wait_ms",
    ),
    option(
        "commit.timeout",
        duration_ms,
        None,
        "Longest time of one commit; none when not set.",
        "ms",
        attribute="commit_timeout_ms",
    ),
    option("commit.user-prefix", text, None, "First part of generated commit users."),
    option(
        "snapshot.ignore-empty-commit",
        boolean,
        None,
        "Whether a commit without files makes no snapshot.",
    ),
    option(
        "dynamic-partition-overwrite",
        boolean,
        "true",
        "An overwrite replaces the partitions it writes, not the whole table.",
    ),
    option("overwrite-upgrade", boolean, "true", "Files of an overwrite go to the last level."),
    option(
        "manifest.target-file-size",
        memory_size,
        "8 mb",
        "Size of a merged manifest.",
        "bytes",
        attribute="manifest_target_size",
    ),
    option(
        "manifest.full-compaction-threshold-size",
        memory_size,
        "16 mb",
        "Size of manifests worth rewriting at which all of them are merged.",
        "bytes",
        attribute="manifest_full_compaction_threshold",
    ),
    option(
        "manifest.merge-min-count", integer, "30", "Small manifests that are merged.", "manifests"
    ),
    refused("commit.strict-mode.last-safe-snapshot", integer, None, "Refuse commits after others."),
    refused("commit.discard-duplicate-files", boolean, "false", "Drop files that are there."),
    refused(
        "row-tracking.enabled", boolean, "false", "Row ids.", blocks=Access.BOTH, mutable=False
    ),
    refused(
        "data-evolution.enabled",
        boolean,
        "false",
        "Columns in files of their own.",
        blocks=Access.BOTH,
        mutable=False,
    ),
    refused(
        "tag.automatic-creation",
        choice("none", "process-time", "watermark", "batch"),
        "none",
        "Tags made by commits.",
    ),
    refused("partition.expiration-time", duration_ms, None, "Age at which partitions go."),
    refused(
        "deletion-vectors.enabled",
        boolean,
        "false",
        "Deleted rows are marked by position.",
        blocks=Access.BOTH,
    ),
    *ignored(
        "Only with `deletion-vectors.enabled`, which is refused.",
        ("deletion-vectors.modifiable", boolean, "false"),
        ("deletion-vectors.merge-on-read", boolean, "false"),
        ("deletion-vectors.bitmap64", boolean, "false"),
        ("deletion-vector.index-file.target-size", memory_size, "2 mb"),
    ),
    *ignored(
        "Only with `tag.automatic-creation`, which is refused.",
        ("tag.creation-period", text, "daily"),
        ("tag.creation-period-duration", duration_ms, None),
        ("tag.creation-delay", duration_ms, "0"),
        ("tag.period-formatter", text, "with_dashes"),
        ("tag.num-retained-max", integer, None),
        ("tag.default-time-retained", duration_ms, None),
        ("tag.automatic-completion", boolean, "false"),
        ("tag.time-expire-enabled", boolean, "true"),
        ("tag.batch.customized-name", text, None),
    ),
    *ignored(
        "Only with `partition.expiration-time`, which is refused.",
        ("partition.expiration-check-interval", duration_ms, "1 h"),
        ("partition.expiration-strategy", text, "values-time"),
        ("partition.expiration-max-num", integer, "100"),
        ("partition.expiration-batch-size", integer, None),
        ("partition.timestamp-formatter", text, None),
        ("partition.timestamp-pattern", text, None),
    ),
    *ignored(
        "For other engines; nothing to do here.",
        ("commit.force-create-snapshot", boolean, "false"),
        ("metastore.partitioned-table", boolean, "false"),
    ),
)

EXPIRY: tuple[Option, ...] = (
    option(
        "snapshot.num-retained.min",
        integer,
        "10",
        "Newest snapshots that always stay.",
        "snapshots",
    ),
    option(
        "snapshot.num-retained.max",
        integer,
        "2147483647",
        "Snapshots beyond this number go, whatever their age.",
        "snapshots",
    ),
    option(
        "snapshot.time-retained",
        duration_ms,
        "1 h",
        "A snapshot goes when its successor is older than this.",
        "ms",
        attribute="snapshot_time_retained_ms",
    ),
    option("snapshot.expire.limit", integer, "50", "Snapshots removed at one time.", "snapshots"),
    *ignored(
        "How expiry runs, not what it removes.",
        ("snapshot.expire.execution-mode", text, "sync"),
        ("snapshot.clean-empty-directories", boolean, "false"),
    ),
)
