# SPDX-License-Identifier: Apache-2.0
"""Rows of the option table about writing, commit and expiry. See `option_table`."""

import functools

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
    text,
)

__all__ = ["COMMIT", "EXPIRY", "WRITING"]

FILE_INDEX: tuple[Option, ...] = (
    option(
        "file-index.in-manifest-threshold",
        memory_size,
        "500 b",
        "Largest file index kept in the metadata instead of in a separate file.",
        "bytes",
        attribute="file_index_threshold",
    ),
    option(
        "file-index.read.enabled",
        boolean,
        "true",
        "Leave out files and rows by their file indexes.",
        attribute="file_index_read_enabled",
    ),
    option(
        "file-index.<type>.columns",
        text,
        None,
        "Columns that get a file index of a type: bloom-filter, bitmap, bsi or range-bitmap; "
        "`m[k]` is key k of the map column m.",
        attribute="file_index_columns",
    ),
    option(
        "file-index.<type>.<column>.<setting>",
        text,
        None,
        "A setting of one file index: items and fpp of bloom-filter, version and "
        "index-block-size of bitmap, chunk-size of range-bitmap.",
        attribute="file_index_settings",
    ),
)

_setting = functools.partial(option, by_key=True)

FORMATS: tuple[Option, ...] = (
    _setting(
        "parquet.enable.dictionary",
        boolean,
        "true",
        "Columns whose values repeat get a dictionary.",
    ),
    _setting("parquet.page.size", integer, None, "Size of a data page.", "bytes"),
    _setting("parquet.dictionary.page.size", integer, None, "Largest dictionary.", "bytes"),
    _setting(
        "parquet.compression.codec.zstd.level",
        integer,
        None,
        "Level of zstd; as `file.compression.zstd-level` unless set.",
    ),
    _setting(
        "orc.stripe.size", integer, None, "Size of a stripe; `file.block-size` wins.", "bytes"
    ),
    _setting("orc.compress.size", integer, None, "Size of a chunk that is compressed.", "bytes"),
    _setting("orc.row.index.stride", integer, None, "Rows between entries of the index.", "rows"),
    _setting(
        "orc.block.padding.tolerance", decimal_number, None, "Share of a stripe lost to padding."
    ),
    _setting(
        "orc.dictionary.key.threshold",
        decimal_number,
        None,
        "Share of distinct values above which a column gets no dictionary.",
    ),
    _setting("orc.bloom.filter.fpp", decimal_number, None, "Share of false positives."),
    _setting(
        "orc.timestamp-ltz.legacy.type",
        boolean,
        "true",
        "How TIMESTAMP_LTZ was stored by Java machines that do not run in UTC.",
    ),
    _setting(
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
        "target-file-row-num",
        integer,
        None,
        "Rows at which a data file is closed, too; not in compactions.",
        "rows",
        attribute="target_file_rows",
    ),
    option(
        "file.format",
        choice("parquet", "orc", "avro", "csv", "json", "text"),
        "parquet",
        "Format of data files; csv, json and text of format tables alone.",
    ),
    option(
        "file.format.per.level",
        per_level(_FORMAT),
        "",
        "Format of the data files of single levels.",
    ),
    option("file.compression", text, "zstd", "Compression of data files."),
    option(
        "file.compression.zstd-level",
        integer,
        "1",
        "Level of zstd. Higher: smaller, slower.",
        attribute="zstd_level",
    ),
    option(
        "file.compression.per.level",
        per_level(text),
        "",
        "Compression of the data files of single levels.",
    ),
    option(
        "file.block-size",
        memory_size,
        None,
        "Encoded size of a row group or stripe. Larger: fewer seeks, more memory.",
        "bytes",
    ),
    option("data-file.prefix", text, "data-", "First part of data file names."),
    option(
        "data-file.thin-mode",
        boolean,
        "false",
        "Leave the key columns out of data files; keys are then read from the value columns.",
    ),
    option("changelog-file.prefix", text, "changelog-", "First part of changelog file names."),
    option(
        "changelog-file.format", _FORMAT, None, "Format of changelog files, if not of data files."
    ),
    option("changelog-file.compression", text, None, "Compression of changelog files."),
    option("changelog-file.stats-mode", text, None, "Column statistics of changelog files."),
    *FILE_INDEX,
    *FORMATS,
    option(
        "metadata.stats-mode",
        text,
        "truncate(16)",
        "Column statistics kept per file: none, counts, truncate(n) or full.",
        attribute="stats_mode",
    ),
    option(
        "metadata.stats-mode.per.level",
        per_level(text),
        "",
        "Column statistics of the data files of single levels.",
        attribute="stats_mode_per_level",
    ),
    option(
        "metadata.stats-keep-first-n-columns",
        integer,
        "-1",
        "Columns from the first on that get statistics; all when negative.",
        "columns",
        attribute="stats_keep_first_columns",
    ),
    option(
        "fields.<name>.stats-mode",
        text,
        None,
        "Statistics of one column.",
        attribute="field_stats_modes",
    ),
    option(
        "metadata.stats-dense-store",
        boolean,
        "true",
        "Columns without statistics take no room in the metadata.",
        attribute="stats_dense_store",
    ),
    option(
        "file.suffix.include.compression",
        boolean,
        "false",
        "Name the compression in data file names.",
    ),
    refused(
        "manifest.format",
        text,
        "avro",
        "Format of manifests.",
    ),
    option(
        "index-file-in-data-file-dir",
        boolean,
        "false",
        "Table index files lie beside the data files of their bucket, not in `index`.",
        mutable=False,
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
    option(
        "dynamic-partition-overwrite",
        boolean,
        "true",
        "An overwrite replaces the partitions it writes; when false, those it names, or all.",
    ),
    *ignored(
        "Names, levels and empty snapshots only; rows are the same.",
        ("commit.user-prefix", text, None),
        ("snapshot.ignore-empty-commit", boolean, None),
        ("overwrite-upgrade", boolean, "true"),
    ),
    option(
        "manifest.compression",
        choice("zstd", "zstandard", "none", "null", "deflate", "snappy"),
        "zstd",
        "Compression of manifests, manifest lists and index manifests.",
        by_key=True,
    ),
    option(
        "manifest.delete-file-drop-stats",
        boolean,
        "false",
        "Leave the column statistics out of manifest entries that remove a file.",
        by_key=True,
    ),
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
    option(
        "deletion-vectors.enabled",
        boolean,
        "false",
        "Deleted rows are marked by position. In a primary-key table compaction marks the rows "
        "that newer ones replace; until then, files of level 0 do not show in batch reads.",
    ),
    option(
        "deletion-vectors.modifiable",
        boolean,
        "false",
        "Whether `deletion-vectors.enabled` may change on a table with snapshots.",
        by_key=True,
    ),
    option(
        "deletion-vectors.merge-on-read",
        boolean,
        "false",
        "Reads of a primary-key table with deletion vectors merge files of level 0 too.",
    ),
    option(
        "deletion-vectors.bitmap64",
        boolean,
        "false",
        "New vectors are written in the 64-bit form; both forms are read.",
    ),
    option(
        "deletion-vector.index-file.target-size",
        memory_size,
        "2 mb",
        "Size at which an index file of deletion vectors is closed.",
        "bytes",
    ),
    *ignored(
        "For other engines; nothing to do here.",
        ("commit.force-create-snapshot", boolean, "false"),
    ),
    option(
        "metastore.partitioned-table",
        boolean,
        "false",
        "A Hive catalog enters the table's partitions in the metastore, at each commit.",
    ),
    refused(
        "metastore.tag-to-partition",
        text,
        None,
        "Tags of an unpartitioned table as partitions of this column in the Hive metastore.",
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
