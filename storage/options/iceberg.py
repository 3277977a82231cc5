# SPDX-License-Identifier: Apache-2.0
"""Options of Iceberg metadata beside a table."""

import dataclasses
from typing import ClassVar

from storage.options.values import Option, boolean, choice, integer, option, refused, text

_OTHER = "Publishing into a catalog service is not supported; use table-location or hadoop-catalog."


@dataclasses.dataclass(frozen=True, kw_only=True)
class IcebergOptions:
    """Iceberg metadata beside a table."""

    iceberg_storage: str = option(
        "metadata.iceberg.storage",
        choice("disabled", "table-location", "hadoop-catalog", "hive-catalog", "rest-catalog"),
        "disabled",
        "Where Iceberg metadata of the table is kept: `table-location` (`<table>/metadata`) or "
        "`hadoop-catalog` (`<warehouse>/iceberg/<database>/<table>/metadata`).",
        implemented=("disabled", "table-location", "hadoop-catalog"),
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

    ROWS: ClassVar[tuple[Option, ...]] = (
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
