# SPDX-License-Identifier: Apache-2.0
"""The one table of table options: name, type, default, meaning, and what Lakeward does with it.

Source: SEMANTICS.md §K. This module holds placement, changelog and reading, and puts the table
together; the other rows are in `option_table_merging`, `option_table_upkeep` (writing, commit and
expiry), `option_table_formats`, `option_table_index`, `option_table_compaction`,
`option_table_life`, `option_table_reading` and `format_tables`. `options` turns the table into
typed attributes and into table-options.md. To carry out an option that is refused or ignored today,
change its row and add its attribute there; where only the texts of a schema are at hand, read it
with `options.option_value` (`by_key`).
"""

from storage.options.compaction import COMPACTION
from storage.options.format_tables import TYPED
from storage.options.iceberg import ICEBERG
from storage.options.lifecycle import LIFE
from storage.options.maintenance import COMMIT, EXPIRY, WRITING
from storage.options.merging import MERGING
from storage.options.reading import STARTING, STREAMING
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
    text,
)

__all__ = ["TABLE_OPTIONS"]

_PLACEMENT = (
    option(
        "bucket",
        integer,
        "-1",
        "Number of buckets of each partition. More buckets: more parallel writers, smaller files.",
        mutable=False,
    ),
    option(
        "bucket-key",
        name_list,
        None,
        "Columns whose hash gives the bucket; the trimmed primary key when not set.",
        mutable=False,
    ),
    option(
        "bucket-function.type",
        choice("default", "mod", "hive"),
        "default",
        "How a bucket key becomes a bucket.",
        mutable=False,
        attribute="bucket_function",
    ),
    option(
        "partition.default-name",
        text,
        "__DEFAULT_PARTITION__",
        "Directory name of a null or blank partition value.",
    ),
    option(
        "partition.legacy-name",
        boolean,
        "true",
        "Whether dates in partition paths are written as day numbers, as older versions did.",
    ),
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
    option("branch", text, "main", "Branch that is read and written."),
    option(
        "dynamic-bucket.target-row-num",
        integer,
        "2000000",
        "Keys of a dynamic bucket; when all buckets have as many, the next key opens a new one.",
        "keys",
    ),
    option(
        "dynamic-bucket.max-buckets",
        integer,
        "-1",
        "Dynamic buckets of a partition (of an assigner); beyond, keys go to any. -1: 32767.",
        "buckets",
    ),
    option(
        "dynamic-bucket.initial-buckets",
        integer,
        None,
        "Dynamic buckets among which the first keys of a partition are spread; each is filled, "
        "and followed by new ones, on its own. One when not set.",
        "buckets",
        mutable=False,
    ),
    option(
        "dynamic-bucket.assigner-parallelism",
        integer,
        None,
        "Tasks or threads that share the keys of a partition and assign their buckets; each opens "
        "its own buckets. One when not set.",
        "assigners",
    ),
    option(
        "cross-partition-upsert.index-ttl",
        duration_ms,
        None,
        "Age at which the key index forgets a key. Smaller: less disk, but a key that comes back "
        "later in another partition is then there twice.",
        "ms",
        attribute="cross_partition_index_ttl_ms",
    ),
    option(
        "cross-partition-upsert.bootstrap-parallelism",
        integer,
        "10",
        "Splits read at once to build the key index.",
        "splits",
        attribute="cross_partition_bootstrap_parallelism",
    ),
    option(
        "postpone.default-bucket-num",
        integer,
        None,
        "Buckets of a partition of a postponed table (`bucket` = -2) that gets real buckets for "
        "the first time; estimated from its rows or its size unless set.",
        "buckets",
    ),
    option(
        "postpone.target-row-num-per-bucket",
        integer,
        None,
        "Rows of a real bucket, where the number of buckets is estimated; the size decides unless "
        "set.",
        "rows",
    ),
    option(
        "postpone.target-size-per-bucket",
        memory_size,
        "1 gb",
        "Size of the files of a real bucket, where the number of buckets is estimated.",
        "bytes",
    ),
    option(
        "postpone.batch-write-fixed-bucket",
        boolean,
        "true",
        "Whether batch writes of Spark and SQL to a postponed table go to real buckets at once.",
    ),
    option(
        "postpone.batch-write-fixed-bucket.max-parallelism",
        integer,
        "2048",
        "Most buckets that such a batch write gives a partition; an estimate is rounded up to a "
        "power of two.",
        "buckets",
    ),
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

_CHANGELOG = (
    option(
        "changelog-producer",
        choice("none", "input", "lookup", "full-compaction"),
        "none",
        "Where row-level changes for streaming readers come from.",
    ),
    option(
        "changelog-producer.row-deduplicate",
        boolean,
        "false",
        "The producers lookup and full-compaction leave out rows that stay the same.",
        attribute="row_deduplicate",
    ),
    option(
        "changelog-producer.row-deduplicate-ignore-fields",
        name_list,
        None,
        "Columns left out when rows are compared for that.",
        attribute="row_deduplicate_ignore_fields",
    ),
    option(
        "changelog.num-retained.min",
        integer,
        None,
        "Newest snapshots whose changes always stay; as `snapshot.num-retained.min` unless set. "
        "Where any of these three is larger than that of snapshots, changes outlive snapshots.",
        "snapshots",
    ),
    option(
        "changelog.num-retained.max",
        integer,
        None,
        "Changes of snapshots beyond this number go, whatever their age; as "
        "`snapshot.num-retained.max` unless set.",
        "snapshots",
    ),
    option(
        "changelog.time-retained",
        duration_ms,
        None,
        "Changes go when they are older than this; as `snapshot.time-retained` unless set.",
        "ms",
        attribute="changelog_time_retained_ms",
    ),
)

_READING = (
    option("source.split.target-size", memory_size, "128 mb", "Data read by one split.", "bytes"),
    option(
        "source.split.open-file-cost",
        memory_size,
        "4 mb",
        "What opening a file counts when splits are packed.",
        "bytes",
    ),
    option(
        "alter-column-null-to-not-null.disabled",
        boolean,
        "true",
        "Refuse NOT NULL on a nullable column.",
        by_key=True,
    ),
    option(
        "add-column-before-partition",
        boolean,
        "false",
        "A column added without a place goes before the partition columns.",
        by_key=True,
    ),
    option(
        "disable-explicit-type-casting",
        boolean,
        "false",
        "Only allow type changes that cannot lose anything.",
        by_key=True,
    ),
    option(
        "scan.fallback-branch",
        text,
        None,
        "Branch from which batch reads take the partitions that the own branch does not have. "
        "Streams and writes are of the own branch alone.",
        by_key=True,
    ),
    *STARTING,
    option(
        "consumer.expiration-time",
        duration_ms,
        None,
        "Age at which a consumer that makes no progress stops keeping snapshots.",
        "ms",
        attribute="consumer_expiration_time_ms",
    ),
    option(
        "consumer.changelog-only",
        boolean,
        "false",
        "Consumers keep changes and not snapshots, where changes outlive snapshots.",
    ),
    *STREAMING,
)

TABLE_OPTIONS: tuple[Option, ...] = (
    *_PLACEMENT,
    *MERGING,
    *_CHANGELOG,
    *WRITING,
    *COMPACTION,
    *COMMIT,
    *EXPIRY,
    *LIFE,
    *ICEBERG,
    *_READING,
    *TYPED,
)
"""Every option, in the order of table-options.md."""
