# SPDX-License-Identifier: Apache-2.0
"""The one table of table options: name, type, default, meaning, and what Lakeward does with it.

Source: SEMANTICS.md §K. An option that is honoured is an attribute of a group of `TableOptions`,
declared by its row; a group's `ROWS` have none. To carry out an option that is refused or ignored
today, make its row an attribute; where only the texts of a schema are at hand, read it with
`options.option_value`. This module holds placement, changelog and reading, and puts the table
together.
"""

import dataclasses
from typing import ClassVar

from storage.options.compaction import CompactionOptions
from storage.options.format_tables import TYPED
from storage.options.iceberg import IcebergOptions
from storage.options.lifecycle import LifecycleOptions
from storage.options.maintenance import (
    FORMATS,
    CommitOptions,
    ExpiryOptions,
    FileIndexOptions,
    WritingOptions,
)
from storage.options.merging import MergingOptions
from storage.options.reading import StartingOptions, StreamingOptions
from storage.options.values import (
    Access,
    Option,
    boolean,
    choice,
    duration_ms,
    ignored,
    integer,
    memory_size,
    name_list,
    option,
    refused,
    row,
    rows_of,
    text,
)


@dataclasses.dataclass(frozen=True, kw_only=True)
class PlacementOptions:
    """Where rows are placed: partitions, buckets, branches."""

    bucket: int = option(
        "bucket",
        integer,
        "-1",
        "Number of buckets of each partition. More buckets: more parallel writers, smaller files.",
        mutable=False,
    )
    bucket_key: tuple[str, ...] | None = option(
        "bucket-key",
        name_list,
        None,
        "Columns whose hash gives the bucket; the trimmed primary key when not set.",
        mutable=False,
    )
    bucket_function: str = option(
        "bucket-function.type",
        choice("default", "mod", "hive"),
        "default",
        "How a bucket key becomes a bucket.",
        mutable=False,
    )
    partition_default_name: str = option(
        "partition.default-name",
        text,
        "__DEFAULT_PARTITION__",
        "Directory name of a null or blank partition value.",
    )
    partition_legacy_name: bool = option(
        "partition.legacy-name",
        boolean,
        "true",
        "Whether dates in partition paths are written as day numbers, as older versions did.",
    )
    branch: str = option("branch", text, "main", "Branch that is read and written.")
    dynamic_bucket_target_row_num: int = option(
        "dynamic-bucket.target-row-num",
        integer,
        "2000000",
        "Keys of a dynamic bucket; when all buckets have as many, the next key opens a new one.",
        "keys",
        least=1,
    )
    dynamic_bucket_max_buckets: int = option(
        "dynamic-bucket.max-buckets",
        integer,
        "-1",
        "Dynamic buckets of a partition (of an assigner); beyond, keys go to any. -1: 32767.",
        "buckets",
    )
    dynamic_bucket_initial_buckets: int | None = option(
        "dynamic-bucket.initial-buckets",
        integer,
        None,
        "Dynamic buckets among which the first keys of a partition are spread; each is filled, "
        "and followed by new ones, on its own. One when not set.",
        "buckets",
        mutable=False,
        least=1,
    )
    dynamic_bucket_assigner_parallelism: int | None = option(
        "dynamic-bucket.assigner-parallelism",
        integer,
        None,
        "Tasks or threads that share the keys of a partition and assign their buckets; each opens "
        "its own buckets. One when not set.",
        "assigners",
        least=1,
    )
    cross_partition_index_ttl_ms: int | None = option(
        "cross-partition-upsert.index-ttl",
        duration_ms,
        None,
        "Age at which the key index forgets a key. Smaller: less disk, but a key that comes back "
        "later in another partition is then there twice.",
        "ms",
    )
    cross_partition_bootstrap_parallelism: int = option(
        "cross-partition-upsert.bootstrap-parallelism",
        integer,
        "10",
        "Splits read at once to build the key index.",
        "splits",
        least=1,
    )
    postpone_default_bucket_num: int | None = option(
        "postpone.default-bucket-num",
        integer,
        None,
        "Buckets of a partition of a postponed table (`bucket` = -2) that gets real buckets for "
        "the first time; estimated from its rows or its size unless set.",
        "buckets",
        least=1,
    )
    postpone_target_row_num_per_bucket: int | None = option(
        "postpone.target-row-num-per-bucket",
        integer,
        None,
        "Rows of a real bucket, where the number of buckets is estimated; the size decides unless "
        "set.",
        "rows",
        least=1,
    )
    postpone_target_size_per_bucket: int = option(
        "postpone.target-size-per-bucket",
        memory_size,
        "1 gb",
        "Size of the files of a real bucket, where the number of buckets is estimated.",
        "bytes",
        least=1,
    )
    postpone_batch_write_fixed_bucket: bool = option(
        "postpone.batch-write-fixed-bucket",
        boolean,
        "true",
        "Whether batch writes of Spark and SQL to a postponed table go to real buckets at once.",
    )
    postpone_batch_write_fixed_bucket_max_parallelism: int = option(
        "postpone.batch-write-fixed-bucket.max-parallelism",
        integer,
        "2048",
        "Most buckets that such a batch write gives a partition; an estimate is rounded up to a "
        "power of two.",
        "buckets",
        least=1,
    )

    ROWS: ClassVar[tuple[Option, ...]] = (
        refused(
            "data-file.path-directory",
            text,
            None,
            "Directory of data files apart from the metadata.",
            blocks=Access.BOTH,
            mutable=False,
        ),
        refused("data-file.external-paths", text, None, "Data files outside the table directory."),
        refused(
            "primary-key",
            name_list,
            None,
            "Primary key as an option: declare it in the schema.",
            mutable=False,
        ),
        refused(
            "partition",
            name_list,
            None,
            "Partition keys as an option: declare them in the schema.",
            mutable=False,
        ),
        refused("primary-key.nullable", boolean, "false", "Null key columns.", mutable=False),
        *ignored(
            "A batch write keeps the number of buckets of a partition: `rescale` enlarges it.",
            ("postpone.batch-write-fixed-bucket.rescale-load-factor", integer, "32"),
        ),
        refused(
            "postpone.merge-on-read",
            boolean,
            "false",
            "Show postponed rows before compaction.",
            blocks=Access.READ,
        ),
    )


@dataclasses.dataclass(frozen=True, kw_only=True)
class ChangelogOptions:
    """Where changes come from and how long they are kept."""

    changelog_producer: str = option(
        "changelog-producer",
        choice("none", "input", "lookup", "full-compaction"),
        "none",
        "Where row-level changes for streaming readers come from.",
    )
    row_deduplicate: bool = option(
        "changelog-producer.row-deduplicate",
        boolean,
        "false",
        "The producers lookup and full-compaction leave out rows that stay the same.",
    )
    row_deduplicate_ignore_fields: tuple[str, ...] = option(
        "changelog-producer.row-deduplicate-ignore-fields",
        name_list,
        None,
        "Columns left out when rows are compared for that.",
    )
    changelog_num_retained_min: int = option(
        "changelog.num-retained.min",
        integer,
        None,
        "Newest snapshots whose changes always stay; as `snapshot.num-retained.min` unless set. "
        "Where any of these three is larger than that of snapshots, changes outlive snapshots.",
        "snapshots",
        least=1,
    )
    changelog_num_retained_max: int = option(
        "changelog.num-retained.max",
        integer,
        None,
        "Changes of snapshots beyond this number go, whatever their age; as "
        "`snapshot.num-retained.max` unless set.",
        "snapshots",
    )
    changelog_time_retained_ms: int = option(
        "changelog.time-retained",
        duration_ms,
        None,
        "Changes go when they are older than this; as `snapshot.time-retained` unless set.",
        "ms",
    )


@dataclasses.dataclass(frozen=True, kw_only=True)
class ReadingOptions:
    """Reads and schema changes."""

    source_split_target_size: int = option(
        "source.split.target-size", memory_size, "128 mb", "Data read by one split.", "bytes"
    )
    source_split_open_file_cost: int = option(
        "source.split.open-file-cost",
        memory_size,
        "4 mb",
        "What opening a file counts when splits are packed.",
        "bytes",
    )
    consumer_expiration_time_ms: int | None = option(
        "consumer.expiration-time",
        duration_ms,
        None,
        "Age at which a consumer that makes no progress stops keeping snapshots.",
        "ms",
    )
    consumer_changelog_only: bool = option(
        "consumer.changelog-only",
        boolean,
        "false",
        "Consumers keep changes and not snapshots, where changes outlive snapshots.",
    )

    ROWS: ClassVar[tuple[Option, ...]] = (
        row(
            "alter-column-null-to-not-null.disabled",
            boolean,
            "true",
            "Refuse NOT NULL on a nullable column.",
        ),
        row(
            "add-column-before-partition",
            boolean,
            "false",
            "A column added without a place goes before the partition columns.",
        ),
        row(
            "disable-explicit-type-casting",
            boolean,
            "false",
            "Only allow type changes that cannot lose anything.",
        ),
        row(
            "scan.fallback-branch",
            text,
            None,
            "Branch from which batch reads take the partitions that the own branch does not have. "
            "Streams and writes are of the own branch alone.",
        ),
    )


TABLE_OPTIONS: tuple[Option, ...] = (
    *rows_of(PlacementOptions),
    *rows_of(MergingOptions),
    *rows_of(ChangelogOptions),
    *rows_of(FileIndexOptions),
    *FORMATS,
    *rows_of(WritingOptions),
    *rows_of(CompactionOptions),
    *rows_of(CommitOptions),
    *rows_of(ExpiryOptions),
    *rows_of(LifecycleOptions),
    *rows_of(IcebergOptions),
    *rows_of(ReadingOptions),
    *rows_of(StartingOptions),
    *rows_of(StreamingOptions),
    *TYPED,
)
"""Every option, in the order of table-options.md."""
