# SPDX-License-Identifier: Apache-2.0
"""Options of compaction and lookups."""

import dataclasses
from typing import ClassVar

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
