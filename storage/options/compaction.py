# SPDX-License-Identifier: Apache-2.0
"""Rows of the option table about compaction and lookups. See `option_table`."""

from storage.options.values import (
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

__all__ = ["COMPACTION"]

_DAY_HOURS = "hour of the day, -1 = off"

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
        "compaction.min.file-num",
        integer,
        "5",
        "Small files of an append table that are merged into larger ones.",
        "files",
        attribute="compaction_min_file_num",
    ),
    option(
        "compaction.file-num-limit",
        integer,
        "100000",
        "Files of an append table that one compaction examines.",
        "files",
    ),
    option(
        "compaction.delete-ratio-threshold",
        decimal_number,
        "0.2",
        "Share of deleted rows above which a file of an append table is rewritten.",
    ),
    *ignored(
        "Order is kept in any case.",
        ("bucket-append-ordered", boolean, "true"),
    ),
    *ignored(
        "Taken out of the format: newer versions accept the name and do nothing.",
        ("compaction.max.file-num", integer, None),
    ),
    option(
        "force-lookup",
        boolean,
        "false",
        "Every commit compacts level 0 with what it finds above, as the lookup changelog "
        "producer does, without a changelog.",
        mutable=False,
    ),
    refused("pk-clustering-override", boolean, "false", "Other order of files.", mutable=False),
    option(
        "commit.force-compact",
        boolean,
        "false",
        "A commit compacts what is due, level 0 included, also where `lookup-wait` is false.",
    ),
    option(
        "full-compaction.delta-commits",
        integer,
        None,
        "Every so many commits of a stream, buckets that were written since are compacted fully. "
        "1 with the changelog producer full-compaction when not set.",
        "commits",
    ),
    option(
        "lookup-wait",
        boolean,
        "true",
        "Commits of tables that look up compact level 0. When false, level 0 waits until its "
        "sorted runs make a compaction due, or for a compaction job.",
        aliases=("changelog-producer.lookup-wait",),
    ),
    option(
        "lookup-compact",
        choice("radical", "gentle"),
        "radical",
        "radical: every commit of a table that looks up compacts level 0. gentle: every "
        "`lookup-compact.max-interval`-th commit does, or when sorted runs make it due.",
    ),
    option(
        "lookup-compact.max-interval",
        integer,
        None,
        "Commits between two compactions of level 0 where `lookup-compact` is gentle; at least "
        "`num-sorted-run.compaction-trigger`, twice that when not set.",
        "commits",
    ),
    *ignored(
        "Timing of compaction only; rows are the same.",
        ("compaction.skip-expired-partitions", boolean, "false"),
    ),
    option(
        "lookup.cache-file-retention",
        duration_ms,
        "1 h",
        "Time without use after which the local copy of a data file is removed.",
        "ms",
        attribute="lookup_cache_file_retention_ms",
    ),
    option(
        "lookup.cache-max-disk-size",
        memory_size,
        None,
        "Size of all local copies of this table's data files on one machine. Smaller than what "
        "lookups need: files are copied again and again.",
        "bytes",
    ),
    option(
        "lookup.cache-max-memory-size",
        memory_size,
        "256 mb",
        "Size of the local copies of this table's data files that a process keeps mapped into its "
        "memory, besides one that is being searched. Smaller than what lookups need: copies are "
        "mapped again and again.",
        "bytes",
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
