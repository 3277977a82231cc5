# SPDX-License-Identifier: Apache-2.0
"""Rows of the option table about Iceberg metadata beside a table. See `option_table`."""

from storage.options.values import Option, boolean, choice, integer, option, refused, text

__all__ = ["ICEBERG"]

_OTHER = "Publishing into a catalog service is not supported; use table-location or hadoop-catalog."

ICEBERG: tuple[Option, ...] = (
    option(
        "metadata.iceberg.storage",
        choice("disabled", "table-location", "hadoop-catalog", "hive-catalog", "rest-catalog"),
        "disabled",
        "Where Iceberg metadata of the table is kept: `table-location` (`<table>/metadata`) or "
        "`hadoop-catalog` (`<warehouse>/iceberg/<database>/<table>/metadata`).",
        attribute="iceberg_storage",
        implemented=("disabled", "table-location", "hadoop-catalog"),
    ),
    option(
        "metadata.iceberg.format-version",
        integer,
        "2",
        "Version of the Iceberg format: 2, or 3 for tables with deletion vectors.",
        attribute="iceberg_format_version",
    ),
    option(
        "metadata.iceberg.delete-after-commit.enabled",
        boolean,
        "true",
        "Remove metadata files that are no longer among the previous versions.",
        attribute="iceberg_delete_after_commit",
    ),
    option(
        "metadata.iceberg.previous-versions-max",
        integer,
        "100",
        "Metadata files of earlier versions that are kept. Paimon keeps none, which takes them "
        "from readers that just found them.",
        "versions",
        attribute="iceberg_previous_versions_max",
    ),
    *(
        refused(f"metadata.iceberg.{key}", text, None, _OTHER)
        for key in (
            "uri",
            "database",
            "table",
            "hive-conf-dir",
            "hadoop-conf-dir",
            "storage-location",
        )
    ),
)
