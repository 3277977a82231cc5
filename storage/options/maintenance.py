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
