# SPDX-License-Identifier: Apache-2.0
"""The one table of table options: name, type, default, meaning, and what Lakeward does with it.

Source: SEMANTICS.md §K. This module holds placement, merging, changelog and reading, and puts
the table together; `option_table_upkeep` holds writing, compaction, commit and expiry. `options`
turns the table into typed attributes and into OPTIONS.md. To carry out an option that is refused
or ignored today, change its row and add its attribute there.
"""

from storage.option_table_merging import MERGING
from storage.option_table_upkeep import COMMIT, COMPACTION, EXPIRY, WRITING
from storage.option_values import (
    Access,
    Option,
    Treatment,
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
    refused("type", text, "table", "Kind of table.", blocks=Access.BOTH, mutable=False),
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
        "Assigners that share the keys of a partition, if not all do.",
        "assigners",
    ),
    option(
        "dynamic-bucket.assigner-parallelism",
        integer,
        None,
        "Processes that assign dynamic buckets.",
        "processes",
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
    *ignored(
        "Only for postponed buckets, which are not written.",
        ("postpone.default-bucket-num", integer, None),
        ("postpone.batch-write-fixed-bucket", boolean, "false"),
    ),
)

_CHANGELOG = (
    option(
        "changelog-producer",
        choice("none", "input", "lookup", "full-compaction"),
        "none",
        "Where row-level changes for streaming readers come from.",
        implemented=("none",),
        blocks=Access.WRITE,
    ),
    refused("changelog.num-retained.min", integer, None, "Changelogs kept after snapshots went."),
    refused("changelog.num-retained.max", integer, None, "Changelogs kept after snapshots went."),
    refused("changelog.time-retained", duration_ms, None, "Age of changelogs without snapshots."),
    *ignored(
        "Only with a changelog producer, which is refused.",
        ("changelog-producer.row-deduplicate", boolean, "false"),
        ("changelog-producer.row-deduplicate-ignore-fields", name_list, None),
        ("changelog-producer.lookup-wait", boolean, "true"),
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
    ),
    option(
        "add-column-before-partition",
        boolean,
        "false",
        "A column added without a place goes before the partition columns.",
    ),
    option(
        "disable-explicit-type-casting",
        boolean,
        "false",
        "Only allow type changes that cannot lose anything.",
    ),
    *(
        refused(key, text, default, "A fixed starting point of reads.", blocks=Access.READ)
        for key, default in (
            ("scan.file-creation-time-millis", None),
            ("scan.creation-time-millis", None),
            ("scan.fallback-branch", None),
            ("incremental-between", None),
            ("incremental-between-timestamp", None),
            ("incremental-to-auto-tag", None),
        )
    ),
    option("scan.snapshot-id", integer, None, "Snapshot that is read.", "id"),
    option("scan.tag-name", text, None, "Tag that is read."),
    option(
        "scan.timestamp-millis",
        integer,
        None,
        "Read the newest snapshot committed by this time.",
        "ms",
        attribute="scan_timestamp_millis",
    ),
    option("scan.timestamp", text, None, "The same as a local date and time."),
    option("scan.watermark", integer, None, "Read the first snapshot with this watermark.", "ms"),
    option("scan.version", text, None, "Tag name, or else snapshot id, that is read."),
    option(
        "scan.mode",
        text,
        "default",
        "Starting point of reads.",
        treatment=Treatment.REFUSE,
        implemented=(
            *("default", "latest-full", "full", "latest", "compacted-full"),
            *("from-timestamp", "from-snapshot", "from-snapshot-full"),
        ),
        blocks=Access.READ,
    ),
    option(
        "consumer.expiration-time",
        duration_ms,
        None,
        "Age at which a consumer that makes no progress stops keeping snapshots.",
        "ms",
        attribute="consumer_expiration_time_ms",
    ),
    *ignored(
        "For streaming readers of other engines.",
        ("streaming-read-overwrite", boolean, "false"),
        ("consumer-id", text, None),
        ("consumer.mode", text, "exactly-once"),
        ("consumer.ignore-progress", boolean, "false"),
        ("consumer.changelog-only", boolean, "false"),
        ("scan.bounded.watermark", integer, None),
        ("incremental-between-scan-mode", text, "auto"),
        ("incremental-between-tag-to-snapshot", boolean, "false"),
        ("continuous.discovery-interval", duration_ms, "10 s"),
        ("streaming.read.snapshot.delay", duration_ms, None),
        ("table-read.sequence-number.enabled", boolean, "false"),
    ),
)

TABLE_OPTIONS: tuple[Option, ...] = (
    *_PLACEMENT,
    *MERGING,
    *_CHANGELOG,
    *WRITING,
    *COMPACTION,
    *COMMIT,
    *EXPIRY,
    *_READING,
)
"""Every option, in the order of OPTIONS.md."""
