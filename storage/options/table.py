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

from storage.options.maintenance import (
    FORMATS,
    CommitOptions,
    CompactionOptions,
    ExpiryOptions,
    FileIndexOptions,
    LifecycleOptions,
    WritingOptions,
)
from storage.options.reading import MergingOptions, StartingOptions, StreamingOptions
from storage.options.values import (
    Access,
    Option,
    boolean,
    character,
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
    separator,
    text,
)

# Options of format tables, object tables and materialized tables.
#
# Source: SEMANTICS.md §L.2, and Apache Paimon's options of the same names. They are read with
# `options.option_value`, because these tables exist before a table of files does.


TABLE_TYPES = (
    "table",
    "format-table",
    "materialized-table",
    "object-table",
    "lance-table",
    "iceberg-table",
)

TYPED: tuple[Option, ...] = (
    row(
        "type",
        choice(*TABLE_TYPES),
        "table",
        "Kind of table: a table of snapshots, a directory of files (`format-table`), an index of "
        "the objects of a directory (`object-table`), or the result of a query "
        "(`materialized-table`).",
        mutable=False,
        implemented=("table", "materialized-table", "object-table"),  # format tables: elsewhere
    ),
    row(
        "format-table.partition-path-only-value",
        boolean,
        "false",
        "Partition directories of a format table are named by the value alone.",
        mutable=False,
    ),
    row(
        "format-table.file.compression",
        text,
        None,
        "Compression of the files of a format table, where `file.compression` is not set; "
        "otherwise snappy for Parquet, zstd for ORC, none for text.",
        aliases=("compression",),
    ),
    refused(
        "format-table.commit-hive-sync-url",
        text,
        None,
        "Metastore in which new partitions of a format table are registered.",
    ),
    *ignored(
        "Which engine reads a format table; this one does whatever is said.",
        ("format-table.implementation", choice("paimon", "engine"), "paimon"),
        mutable=False,
    ),
    *ignored(
        "Directories of a format table are listed one after the other.",
        ("format-table.scan.list-parallelism", text, None),
    ),
    row(
        "csv.field-delimiter",
        character,
        ",",
        "Character between the fields of a CSV line.",
        aliases=("field-delimiter", "seq", "delimiter"),
    ),
    row(
        "csv.line-delimiter",
        separator,
        r"\n",
        "Text at the end of a CSV line; `\\n` or `\\r\\n` to be read.",
        aliases=("lineSep",),
    ),
    row(
        "csv.quote-character",
        character,
        '"',
        "Stands around fields with delimiters.",
        aliases=("quote",),
    ),
    row(
        "csv.escape-character",
        character,
        "\\",
        "Stands before quotes inside of quotes.",
        aliases=("escape",),
    ),
    row(
        "csv.include-header",
        boolean,
        "false",
        "Whether the first line of a CSV file names the columns.",
        aliases=("header",),
    ),
    row(
        "csv.null-literal",
        separator,
        "",
        "Text of a null in CSV.",
        aliases=("nullvalue",),
    ),
    row(
        "csv.mode",
        choice("permissive", "dropmalformed", "failfast"),
        "permissive",
        "A CSV field that is no value of its column: null, the row left out, or an error.",
        aliases=("mode",),
    ),
    row(
        "json.ignore-parse-errors",
        boolean,
        "false",
        "JSON lines that cannot be parsed are left out, and values that do not fit are null.",
    ),
    row(
        "json.line-delimiter",
        separator,
        r"\n",
        "Text at the end of a JSON line.",
    ),
    refused(
        "json.map-null-key-mode",
        choice("fail", "drop", "literal"),
        "fail",
        "What a null key of a map becomes in JSON.",
    ),
    *ignored(
        "Null keys of maps are refused.",
        ("json.map-null-key-literal", text, "null"),
    ),
    row(
        "text.line-delimiter",
        separator,
        r"\n",
        "Text at the end of a line of a text file. Also `lineSep`.",
    ),
    row(
        "object-location",
        text,
        None,
        "Directory whose objects an object table lists.",
        mutable=False,
    ),
    row(
        "materialized-table.definition-query",
        text,
        None,
        "Query whose result a materialized table holds.",
    ),
    row(
        "materialized-table.interval-freshness",
        text,
        None,
        "How old the rows of a materialized table may be, in the unit of the next option.",
    ),
    row(
        "materialized-table.interval-freshness.time-unit",
        choice("second", "minute", "hour", "day"),
        None,
        "Unit of the freshness.",
    ),
    row(
        "materialized-table.logical-refresh-mode",
        choice("automatic", "full", "continuous"),
        None,
        "How the table was declared to be refreshed.",
    ),
    row(
        "materialized-table.refresh-mode",
        choice("full", "continuous"),
        None,
        "How it is refreshed.",
    ),
    row(
        "materialized-table.refresh-status",
        choice("initializing", "activated", "suspended"),
        None,
        "Whether it is refreshed by the clock.",
    ),
    row(
        "materialized-table.refresh-handler-description",
        text,
        None,
        "Who refreshes it.",
    ),
    row(
        "materialized-table.refresh-handler-bytes",
        text,
        None,
        "State of who refreshes it, of another engine.",
    ),
    row(
        "partition.fields.<column>.date-formatter",
        text,
        None,
        "Pattern of the time in a partition column of a materialized table, such as "
        "`yyyy-MM-dd`; a refresh by the clock then writes the newest partition alone.",
    ),
)


# Options of Iceberg metadata beside a table.


CATALOG_STORAGES = frozenset({"hive-catalog", "rest-catalog"})
"""Values of `metadata.iceberg.storage` with which every version is published to a service, too."""

REST_PREFIX = "metadata.iceberg.rest."


@dataclasses.dataclass(frozen=True, kw_only=True)
class IcebergOptions:
    """Iceberg metadata beside a table."""

    iceberg_storage: str = option(
        "metadata.iceberg.storage",
        choice("disabled", "table-location", "hadoop-catalog", "hive-catalog", "rest-catalog"),
        "disabled",
        "Where Iceberg metadata of the table is published: `table-location` (`<table>/metadata`), "
        "`hadoop-catalog` (`<warehouse>/iceberg/<database>/<table>/metadata`), and there as well "
        "as in a Hive metastore (`hive-catalog`) or an Iceberg REST catalog (`rest-catalog`).",
    )
    iceberg_storage_location: str | None = option(
        "metadata.iceberg.storage-location",
        choice("table-location", "catalog-location"),
        None,
        "Directory of the metadata files: as with `table-location`, or as with `hadoop-catalog` "
        "(`catalog-location`). Unset: `table-location` for that storage only.",
    )
    iceberg_format_version: int = option(
        "metadata.iceberg.format-version",
        integer,
        "2",
        "Version of the Iceberg format: 2, or 3 for tables with deletion vectors.",
    )
    iceberg_delete_after_commit: bool = option(
        "metadata.iceberg.delete-after-commit.enabled",
        boolean,
        "true",
        "Remove metadata files that are no longer among the previous versions.",
    )
    iceberg_previous_versions_max: int = option(
        "metadata.iceberg.previous-versions-max",
        integer,
        "100",
        "Metadata files of earlier versions that are kept. Paimon keeps none, which takes them "
        "from readers that just found them.",
        "versions",
    )
    iceberg_compaction_min_files: int = option(
        "metadata.iceberg.compaction.min.file-num",
        integer,
        "10",
        "Small manifests that are merged once they fill one of full size.",
        "files",
        least=2,
    )
    iceberg_compaction_max_files: int = option(
        "metadata.iceberg.compaction.max.file-num",
        integer,
        "50",
        "Small manifests that are merged whatever they hold.",
        "files",
        least=2,
    )
    iceberg_uri: str | None = option(
        "metadata.iceberg.uri",
        text,
        None,
        "Address of the Hive metastore of `hive-catalog`: thrift://host:9083, several by comma.",
    )
    iceberg_database: str | None = option(
        "metadata.iceberg.database",
        text,
        None,
        "Database of the table in the Iceberg catalog. Unset: that of the table.",
    )
    iceberg_table: str | None = option(
        "metadata.iceberg.table",
        text,
        None,
        "Name of the table in the Iceberg catalog. Unset: that of the table.",
    )
    iceberg_hive_conf_dir: str | None = option(
        "metadata.iceberg.hive-conf-dir",
        text,
        None,
        "Directory of the hive-site.xml that names the metastore of `hive-catalog`.",
    )

    ROWS: ClassVar[tuple[Option, ...]] = (
        row(
            f"{REST_PREFIX}<property>",
            text,
            None,
            "Property of the REST catalog of `rest-catalog`: `uri`, `warehouse`, `prefix`, "
            "`token`, `credential`, `oauth2-server-uri`, `scope`, `header.<name>`. Others are "
            "refused, but for those that tune Iceberg's own client.",
        ),
        refused(
            "metadata.iceberg.hive-client-class",
            text,
            "org.apache.hadoop.hive.metastore.HiveMetaStoreClient",
            "The metastore is asked over thrift; classes of other clients cannot be loaded.",
        ),
        refused(
            "metadata.iceberg.manifest-legacy-version",
            boolean,
            "false",
            "Manifests have the form of Iceberg 1.5 and later.",
        ),
        *ignored(
            "Without effect: the metastore is asked over thrift, and statistics of its tables are "
            "not updated.",
            ("metadata.iceberg.hadoop-conf-dir", text, None),
            ("metadata.iceberg.hive-skip-update-stats", boolean, "false"),
            ("metadata.iceberg.glue.skip-archive", boolean, "false"),
        ),
        *ignored(
            "Without effect: manifests are compressed with deflate, which every reader has.",
            ("metadata.iceberg.manifest-compression", text, "snappy"),
        ),
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
