# SPDX-License-Identifier: Apache-2.0
"""Options of Iceberg metadata beside a table."""

import dataclasses
from typing import ClassVar

from storage.options.values import (
    Option,
    boolean,
    choice,
    ignored,
    integer,
    option,
    refused,
    row,
    text,
)

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
