# SPDX-License-Identifier: Apache-2.0
"""Iceberg metadata beside a table, over the same data files, at every commit.

Other modules of `storage.table` use the functions here, which load the rest only where it is used.
"""

import dataclasses
import logging

from storage.errors import InvalidOptionError, LakewardError, UnsupportedFeatureError
from storage.format.metadata.schema import TableSchema
from storage.options.options import TableOptions
from storage.table.core import TableCore

__all__ = ["check_iceberg", "check_iceberg_change", "publish_iceberg", "sync_iceberg"]

_LOG = logging.getLogger(__name__)

_DISABLED = "disabled"
_MAIN = "main"
_VECTORS_VERSION = 3


def publish_iceberg(table: TableCore) -> None:
    """Bring the Iceberg metadata of a table to its newest snapshot, where options ask for it.

    The snapshot is published already: what fails here is logged, and the next call makes up for it.
    """
    if table.options.iceberg_storage == _DISABLED or table.layout.branch != _MAIN:
        return
    try:
        sync_iceberg(table)
    except (LakewardError, OSError, LookupError, ValueError):
        _LOG.warning(
            "the Iceberg metadata of a table was not published; the next commit tries again",
            exc_info=True,
            extra={"table": table.layout.root},
        )


def sync_iceberg(table: TableCore) -> int:
    """Bring the Iceberg metadata of a table to its newest snapshot.

    Returns:
        Number of versions published; 0 when it was there already.

    Raises:
        InvalidOptionError: `metadata.iceberg.storage` is not set.
        UnsupportedFeatureError: the table has what Iceberg lacks.
        CommitConflictError: others published again and again meanwhile.
    """
    from storage.table.iceberg.twin import IcebergTwin  # noqa: PLC0415 - most tables have none

    latest = table.latest_snapshot()
    if latest is not None and latest.schema_id != table.schema.id:
        table = dataclasses.replace(table, schema=table.schemas.read(latest.schema_id))
    if table.options.iceberg_storage == _DISABLED:
        raise InvalidOptionError(
            "the table has no Iceberg metadata",
            hint="set `metadata.iceberg.storage` to table-location",
            option="metadata.iceberg.storage",
            table=table.layout.root,
        )
    return IcebergTwin(table).sync()


def check_iceberg(schema: TableSchema, options: TableOptions) -> None:
    """Check that a table can have the Iceberg metadata that its options ask for.

    Raises:
        InvalidOptionError: options do not go together.
        UnsupportedFeatureError: a type does not exist in Iceberg, or the field ids do not fit.
    """
    if options.iceberg_storage == _DISABLED:
        return
    from storage.table.iceberg.types import iceberg_schema  # noqa: PLC0415 - most tables have none

    iceberg_schema(schema)
    formats = {options.file_format, *options.file_format_per_level.values()}
    wrong = ""
    if options.iceberg_format_version not in (2, _VECTORS_VERSION):
        wrong = "the Iceberg format version is 2 or 3"
    elif options.deletion_vectors_enabled and options.iceberg_format_version < _VECTORS_VERSION:
        wrong = "Iceberg has deletion vectors from format version 3 on"
    if wrong:
        raise InvalidOptionError(
            wrong,
            hint="set `metadata.iceberg.format-version` to 3",
            option="metadata.iceberg.format-version",
            value=options.iceberg_format_version,
        )
    if formats != {"parquet"}:
        raise UnsupportedFeatureError(
            "Iceberg metadata needs Parquet files, which carry field ids",
            hint="set `file.format` to parquet",
            option="file.format",
            value=", ".join(sorted(formats)),
        )


def check_iceberg_change(before: TableSchema, after: TableSchema) -> None:
    """Check that Iceberg readers can read old files of a table whose columns change their types.

    Raises:
        UnsupportedFeatureError: Iceberg has no such promotion; names the column.
    """
    if TableOptions.from_strings(after.options).iceberg_storage == _DISABLED:
        return
    from storage.table.iceberg.types import check_promotion  # noqa: PLC0415 - as above

    for field in after.fields:
        old = next((one for one in before.fields if one.id == field.id), None)
        if old is not None:
            check_promotion(old, field)
