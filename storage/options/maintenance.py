# SPDX-License-Identifier: Apache-2.0
"""Options of writing, commit and expiry."""

import dataclasses
from collections.abc import Mapping
from typing import ClassVar

from storage.options.values import (
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
    per_level,
    refused,
    row,
    several,
    text,
)


@dataclasses.dataclass(frozen=True, kw_only=True)
class FileIndexOptions:
    """File indexes."""

    file_index_threshold: int = option(
        "file-index.in-manifest-threshold",
        memory_size,
        "500 b",
        "Largest file index kept in the metadata instead of in a separate file.",
        "bytes",
    )
    file_index_read_enabled: bool = option(
        "file-index.read.enabled",
        boolean,
        "true",
        "Leave out files and rows by their file indexes.",
    )

    ROWS: ClassVar[tuple[Option, ...]] = (
        row(
            "file-index.<type>.columns",
            text,
            None,
            "Columns that get a file index of a type: bloom-filter, bitmap, bsi or range-bitmap; "
            "`m[k]` is key k of the map column m.",
            attribute="file_index_columns",
        ),
        row(
            "file-index.<type>.<column>.<setting>",
            text,
            None,
            "A setting of one file index: items and fpp of bloom-filter, version and "
            "index-block-size of bitmap, chunk-size of range-bitmap.",
            attribute="file_index_settings",
        ),
    )


FORMATS: tuple[Option, ...] = (
    row(
        "parquet.enable.dictionary",
        boolean,
        "true",
        "Columns whose values repeat get a dictionary.",
    ),
    row("parquet.page.size", integer, None, "Size of a data page.", "bytes"),
    row("parquet.dictionary.page.size", integer, None, "Largest dictionary.", "bytes"),
    row(
        "parquet.compression.codec.zstd.level",
        integer,
        None,
        "Level of zstd; as `file.compression.zstd-level` unless set.",
    ),
    row("orc.stripe.size", integer, None, "Size of a stripe; `file.block-size` wins.", "bytes"),
    row("orc.compress.size", integer, None, "Size of a chunk that is compressed.", "bytes"),
    row("orc.row.index.stride", integer, None, "Rows between entries of the index.", "rows"),
    row("orc.block.padding.tolerance", decimal_number, None, "Share of a stripe lost to padding."),
    row(
        "orc.dictionary.key.threshold",
        decimal_number,
        None,
        "Share of distinct values above which a column gets no dictionary.",
    ),
    row("orc.bloom.filter.fpp", decimal_number, None, "Share of false positives."),
    row(
        "orc.timestamp-ltz.legacy.type",
        boolean,
        "true",
        "How TIMESTAMP_LTZ was stored by Java machines that do not run in UTC.",
    ),
    row(
        "avro.codec",
        choice(
            *("zstd", "zstandard", "snappy", "deflate", "gzip", "zlib", "bzip2", "xz"),
            *("null", "none", "uncompressed"),
        ),
        None,
        "Compression of Avro files, before `file.compression`.",
    ),
)
"""Every row, in the order of table-options.md."""

_FORMAT = choice("parquet", "orc", "avro")


@dataclasses.dataclass(frozen=True, kw_only=True)
class WritingOptions:
    """Data files."""

    write_only: bool = option(
        "write-only",
        boolean,
        "false",
        "Never compact or expire while writing.",
        aliases=("write.compaction-skip",),
    )
    write_buffer_size: int = option(
        "write-buffer-size",
        memory_size,
        "256 mb",
        "Rows of one bucket held in memory before a flush. Larger: fewer level-0 files, less "
        "compaction. Smaller: less memory.",
        "bytes",
        least=1,
    )
    target_file_size: int = option(
        "target-file-size",
        memory_size,
        "128 mb",
        "Size at which a data file is closed. Larger: fewer files, slower compaction steps. "
        "Smaller: more metadata.",
        "bytes",
        least=1,
    )
    target_file_rows: int | None = option(
        "target-file-row-num",
        integer,
        None,
        "Rows at which a data file is closed, too; not in compactions.",
        "rows",
        least=1,
    )
    file_format: str = option(
        "file.format",
        choice("parquet", "orc", "avro", "csv", "json", "text"),
        "parquet",
        "Format of data files; csv, json and text of format tables alone.",
    )
    file_format_per_level: Mapping[int, str] = option(
        "file.format.per.level",
        per_level(_FORMAT),
        "",
        "Format of the data files of single levels.",
    )
    file_compression: str = option("file.compression", text, "zstd", "Compression of data files.")
    zstd_level: int = option(
        "file.compression.zstd-level", integer, "1", "Level of zstd. Higher: smaller, slower."
    )
    file_compression_per_level: Mapping[int, str] = option(
        "file.compression.per.level",
        per_level(text),
        "",
        "Compression of the data files of single levels.",
    )
    file_block_size: int | None = option(
        "file.block-size",
        memory_size,
        None,
        "Encoded size of a row group or stripe. Larger: fewer seeks, more memory.",
        "bytes",
    )
    data_file_prefix: str = option(
        "data-file.prefix", text, "data-", "First part of data file names."
    )
    data_file_thin_mode: bool = option(
        "data-file.thin-mode",
        boolean,
        "false",
        "Leave the key columns out of data files; keys are then read from the value columns.",
    )
    changelog_file_prefix: str = option(
        "changelog-file.prefix", text, "changelog-", "First part of changelog file names."
    )
    changelog_file_format: str | None = option(
        "changelog-file.format", _FORMAT, None, "Format of changelog files, if not of data files."
    )
    changelog_file_compression: str | None = option(
        "changelog-file.compression", text, None, "Compression of changelog files."
    )
    changelog_file_stats_mode: str | None = option(
        "changelog-file.stats-mode", text, None, "Column statistics of changelog files."
    )
    stats_mode: str = option(
        "metadata.stats-mode",
        text,
        "truncate(16)",
        "Column statistics kept per file: none, counts, truncate(n) or full.",
    )
    stats_mode_per_level: Mapping[int, str] = option(
        "metadata.stats-mode.per.level",
        per_level(text),
        "",
        "Column statistics of the data files of single levels.",
    )
    stats_keep_first_columns: int = option(
        "metadata.stats-keep-first-n-columns",
        integer,
        "-1",
        "Columns from the first on that get statistics; all when negative.",
        "columns",
    )
    stats_dense_store: bool = option(
        "metadata.stats-dense-store",
        boolean,
        "true",
        "Columns without statistics take no room in the metadata.",
    )
    file_suffix_include_compression: bool = option(
        "file.suffix.include.compression",
        boolean,
        "false",
        "Name the compression in data file names.",
    )
    index_file_in_data_file_dir: bool = option(
        "index-file-in-data-file-dir",
        boolean,
        "false",
        "Table index files are stored beside the data files of their bucket, not in `index`.",
        mutable=False,
    )

    ROWS: ClassVar[tuple[Option, ...]] = (
        row(
            "fields.<name>.stats-mode",
            text,
            None,
            "Statistics of one column.",
            attribute="field_stats_modes",
        ),
        refused("manifest.format", text, "avro", "Format of manifests."),
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
            ("cache-page-size", memory_size, "64 kb"),
            ("spill-compression", text, "zstd"),
            ("spill-compression.zstd-level", integer, "1"),
            ("write-max-writers-to-spill", integer, "10"),
            ("write.batch-size", integer, "1024"),
            ("write.batch-memory", memory_size, "128 mb"),
            ("read.batch-size", integer, "1024"),
            ("file-reader-async-threshold", memory_size, "10 mb"),
            ("async-file-write", boolean, "true"),
            ("zorder.var-length-contribution", integer, "8"),
            ("file-operation.thread-num", integer, None),
            ("write.sequence-number-init-mode", choice("scan", "snapshot"), "scan"),
        ),
    )


@dataclasses.dataclass(frozen=True, kw_only=True)
class CommitOptions:
    """Commits and manifests."""

    commit_max_retries: int = option(
        "commit.max-retries",
        integer,
        "10",
        "Attempts after a lost race for a snapshot id.",
        least=0,
    )
    commit_min_retry_wait_ms: int = option(
        "commit.min-retry-wait", duration_ms, "10 ms", "First wait between attempts.", "ms"
    )
    commit_max_retry_wait_ms: int = option(
        "commit.max-retry-wait", duration_ms, "10 s", "Longest wait between attempts.", "ms"
    )
    commit_timeout_ms: int | None = option(
        "commit.timeout", duration_ms, None, "Longest time of one commit; none when not set.", "ms"
    )
    dynamic_partition_overwrite: bool = option(
        "dynamic-partition-overwrite",
        boolean,
        "true",
        "An overwrite replaces the partitions it writes; when false, those it names, or all.",
    )
    manifest_target_size: int = option(
        "manifest.target-file-size",
        memory_size,
        "8 mb",
        "Size of a merged manifest.",
        "bytes",
        least=1,
    )
    manifest_full_compaction_threshold: int = option(
        "manifest.full-compaction-threshold-size",
        memory_size,
        "16 mb",
        "Size of manifests worth rewriting at which all of them are merged.",
        "bytes",
    )
    manifest_merge_min_count: int = option(
        "manifest.merge-min-count",
        integer,
        "30",
        "Small manifests that are merged.",
        "manifests",
        least=1,
    )
    deletion_vectors_enabled: bool = option(
        "deletion-vectors.enabled",
        boolean,
        "false",
        "Deleted rows are marked by position. In a primary-key table compaction marks the rows "
        "that newer ones replace; until then, files of level 0 do not show in batch reads.",
    )
    deletion_vectors_merge_on_read: bool = option(
        "deletion-vectors.merge-on-read",
        boolean,
        "false",
        "Reads of a primary-key table with deletion vectors merge files of level 0 too.",
    )
    deletion_vectors_bitmap64: bool = option(
        "deletion-vectors.bitmap64",
        boolean,
        "false",
        "New vectors are written in the 64-bit form; both forms are read.",
    )
    deletion_vector_index_file_target_size: int = option(
        "deletion-vector.index-file.target-size",
        memory_size,
        "2 mb",
        "Size at which an index file of deletion vectors is closed.",
        "bytes",
    )
    metastore_partitioned_table: bool = option(
        "metastore.partitioned-table",
        boolean,
        "false",
        "A Hive catalog enters the table's partitions in the metastore, at each commit.",
    )

    ROWS: ClassVar[tuple[Option, ...]] = (
        *ignored(
            "Names, levels and empty snapshots only; rows are the same.",
            ("commit.user-prefix", text, None),
            ("snapshot.ignore-empty-commit", boolean, None),
            ("overwrite-upgrade", boolean, "true"),
        ),
        row(
            "manifest.compression",
            choice("zstd", "zstandard", "none", "null", "deflate", "snappy"),
            "zstd",
            "Compression of manifests, manifest lists and index manifests.",
        ),
        row(
            "manifest.delete-file-drop-stats",
            boolean,
            "false",
            "Leave the column statistics out of manifest entries that remove a file.",
        ),
        refused(
            "commit.strict-mode.last-safe-snapshot", integer, None, "Refuse commits after others."
        ),
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
        row(
            "deletion-vectors.modifiable",
            boolean,
            "false",
            "Whether `deletion-vectors.enabled` may change on a table with snapshots.",
        ),
        *ignored(
            "For other engines; nothing to do here.",
            ("commit.force-create-snapshot", boolean, "false"),
        ),
        refused(
            "metastore.tag-to-partition",
            text,
            None,
            "Tags of an unpartitioned table as partitions of this column in the Hive metastore.",
        ),
    )


@dataclasses.dataclass(frozen=True, kw_only=True)
class ExpiryOptions:
    """Expiry of snapshots."""

    snapshot_num_retained_min: int = option(
        "snapshot.num-retained.min",
        integer,
        "10",
        "Newest snapshots that always stay.",
        "snapshots",
        least=1,
    )
    snapshot_num_retained_max: int = option(
        "snapshot.num-retained.max",
        integer,
        "2147483647",
        "Snapshots beyond this number go, whatever their age.",
        "snapshots",
    )
    snapshot_time_retained_ms: int = option(
        "snapshot.time-retained",
        duration_ms,
        "1 h",
        "A snapshot goes when its successor is older than this.",
        "ms",
    )
    snapshot_expire_limit: int = option(
        "snapshot.expire.limit",
        integer,
        "50",
        "Snapshots removed at one time.",
        "snapshots",
        least=1,
    )

    ROWS: ClassVar[tuple[Option, ...]] = (
        *ignored(
            "How expiry runs, not what it removes.",
            ("snapshot.expire.execution-mode", text, "sync"),
            ("snapshot.clean-empty-directories", boolean, "false"),
        ),
    )


# Options of automatic tags and the end of partitions.


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


# Options of compaction and lookups.


_DAY_HOURS = "hour of the day, -1 = off"


@dataclasses.dataclass(frozen=True, kw_only=True)
class CompactionOptions:
    """Compaction and lookups."""

    compaction_trigger: int = option(
        "num-sorted-run.compaction-trigger",
        integer,
        "5",
        "Sorted runs at which compaction is considered. Larger: cheaper writes, dearer reads.",
        "sorted runs",
        least=1,
    )
    stop_trigger: int = option(
        "num-sorted-run.stop-trigger",
        integer,
        None,
        "Sorted runs a bucket never exceeds after a commit; trigger + 3 when not set.",
        "sorted runs",
    )
    num_levels: int = option(
        "num-levels",
        integer,
        None,
        "Levels of a bucket; trigger + 1 when not set.",
        "levels",
        least=2,
    )
    max_size_amplification_percent: int = option(
        "compaction.max-size-amplification-percent",
        integer,
        "200",
        "Size of the newer runs relative to the oldest above which all runs are merged.",
        "percent",
        least=0,
    )
    size_ratio: int = option(
        "compaction.size-ratio",
        integer,
        "1",
        "How much larger the next older run may be to still be merged with the newer ones.",
        "percent",
        least=-100,
    )
    compaction_optimization_interval: int | None = option(
        "compaction.optimization-interval",
        duration_ms,
        None,
        "Time between full compactions.",
        "ms",
    )
    compaction_total_size_threshold: int | None = option(
        "compaction.total-size-threshold",
        memory_size,
        None,
        "A bucket smaller than this is always compacted fully.",
        "bytes",
    )
    compaction_incremental_size_threshold: int | None = option(
        "compaction.incremental-size-threshold",
        memory_size,
        None,
        "Data outside the last level above which the bucket is compacted fully.",
        "bytes",
    )
    compaction_offpeak_start_hour: int = option(
        "compaction.offpeak.start.hour",
        integer,
        "-1",
        "First off-peak hour, local time.",
        _DAY_HOURS,
    )
    compaction_offpeak_end_hour: int = option(
        "compaction.offpeak.end.hour", integer, "-1", "Hour at which off-peak is over.", _DAY_HOURS
    )
    compaction_offpeak_ratio: int = option(
        "compaction.offpeak-ratio", integer, "0", "Added to the size ratio off-peak.", "percent"
    )
    compaction_force_up_level_0: bool = option(
        "compaction.force-up-level-0",
        boolean,
        "false",
        "Compact all level-0 files at every chance.",
    )
    compaction_force_rewrite_all_files: bool = option(
        "compaction.force-rewrite-all-files",
        boolean,
        "false",
        "Rewrite files that could merely change their level.",
    )
    compaction_small_file_ratio: float = option(
        "compaction.small-file-ratio",
        decimal_number,
        "0.7",
        "Files below this share of `target-file-size` are rewritten with their neighbours.",
    )
    compaction_min_file_num: int = option(
        "compaction.min.file-num",
        integer,
        "5",
        "Small files of an append table that are merged into larger ones.",
        "files",
        least=1,
    )
    compaction_file_num_limit: int = option(
        "compaction.file-num-limit",
        integer,
        "100000",
        "Files of an append table that one compaction examines.",
        "files",
        least=1,
    )
    compaction_delete_ratio_threshold: float = option(
        "compaction.delete-ratio-threshold",
        decimal_number,
        "0.2",
        "Share of deleted rows above which a file of an append table is rewritten.",
    )
    force_lookup: bool = option(
        "force-lookup",
        boolean,
        "false",
        "Every commit compacts level 0 with what it finds above, as the lookup changelog "
        "producer does, without a changelog.",
        mutable=False,
    )
    commit_force_compact: bool = option(
        "commit.force-compact",
        boolean,
        "false",
        "A commit compacts what is due, level 0 included, also where `lookup-wait` is false.",
    )
    full_compaction_delta_commits: int | None = option(
        "full-compaction.delta-commits",
        integer,
        None,
        "Every so many commits of a stream, buckets that were written since are compacted fully. "
        "1 with the changelog producer full-compaction when not set.",
        "commits",
    )
    lookup_wait: bool = option(
        "lookup-wait",
        boolean,
        "true",
        "Commits of tables that look up compact level 0. When false, level 0 waits until its "
        "sorted runs make a compaction due, or for a compaction job.",
        aliases=("changelog-producer.lookup-wait",),
    )
    lookup_compact: str = option(
        "lookup-compact",
        choice("radical", "gentle"),
        "radical",
        "radical: every commit of a table that looks up compacts level 0. gentle: every "
        "`lookup-compact.max-interval`-th commit does, or when sorted runs make it due.",
    )
    lookup_compact_max_interval: int = option(
        "lookup-compact.max-interval",
        integer,
        None,
        "Commits between two compactions of level 0 where `lookup-compact` is gentle; at least "
        "`num-sorted-run.compaction-trigger`, twice that when not set.",
        "commits",
    )
    lookup_cache_file_retention_ms: int = option(
        "lookup.cache-file-retention",
        duration_ms,
        "1 h",
        "Time without use after which the local copy of a data file is removed.",
        "ms",
    )
    lookup_cache_max_disk_size: int | None = option(
        "lookup.cache-max-disk-size",
        memory_size,
        None,
        "Size of all local copies of this table's data files on one machine. Smaller than what "
        "lookups need: files are copied again and again.",
        "bytes",
    )
    lookup_cache_max_memory_size: int = option(
        "lookup.cache-max-memory-size",
        memory_size,
        "256 mb",
        "Size of the local copies of this table's data files that a process keeps mapped into its "
        "memory, besides one that is being searched. Smaller than what lookups need: copies are "
        "mapped again and again.",
        "bytes",
    )

    ROWS: ClassVar[tuple[Option, ...]] = (
        *ignored(
            "Order is kept in any case.",
            ("bucket-append-ordered", boolean, "true"),
        ),
        *ignored(
            "Taken out of the format: newer versions accept the name and do nothing.",
            ("compaction.max.file-num", integer, None),
        ),
        refused("pk-clustering-override", boolean, "false", "Other order of files.", mutable=False),
        *ignored(
            "Timing of compaction only; rows are the same.",
            ("compaction.skip-expired-partitions", boolean, "false"),
        ),
        *ignored(
            "Rows are read from mapped copies, which `lookup.cache-max-memory-size` bounds.",
            ("lookup.cache-rows", integer, "10000"),
        ),
        *ignored(
            "A lookup searches sorted words of the keys; no hash table, and no filter before it.",
            ("lookup.cache.bloom.filter.enabled", boolean, "true"),
            ("lookup.cache.bloom.filter.fpp", decimal_number, "0.05"),
            ("lookup.hash-load-factor", decimal_number, "0.75"),
        ),
        *ignored(
            "Local copies are not compressed, so that a row is read without its neighbours.",
            ("lookup.cache-spill-compression", text, "zstd"),
        ),
        *ignored(
            "For lookup joins of another engine.",
            ("lookup.continuous.discovery-interval", duration_ms, None),
        ),
    )
