# SPDX-License-Identifier: Apache-2.0
"""Which class a table is of, by the option `type` of its schema."""

from typing import TYPE_CHECKING

from storage.errors import UnsupportedFeatureError
from storage.format.metadata.schema import TableSchema
from storage.options.options import option_value
from storage.table.format_table import FormatTable
from storage.table.object_schema import OBJECT_TABLE, object_schema
from storage.table.object_table import ObjectTable
from storage.table.scan.format_files import FORMAT_TABLE

if TYPE_CHECKING:
    from storage.table.table import FileStoreTable


def typed_table(table: "FileStoreTable") -> "FileStoreTable | FormatTable":
    """A table as its type wants it: a format table, an object table, or the table itself.

    Raises:
        UnsupportedFeatureError: the type is not one that is implemented.
    """
    kind = option_value(table.schema.options, "type")
    if kind == FORMAT_TABLE:
        return FormatTable(table)
    if kind == OBJECT_TABLE:
        return ObjectTable.of(table)
    if kind not in ("table", "materialized-table"):
        raise UnsupportedFeatureError(
            "tables of this type are not supported",
            option="type",
            value=kind,
            table=table.layout.root,
        )
    return table


def completed_schema(schema: TableSchema) -> TableSchema:
    """The schema of a new table with the columns that its type gives it.

    Raises:
        InvalidOptionError: an object table has no location.
    """
    if schema.fields or option_value(schema.options, "type") != OBJECT_TABLE:
        return schema
    return object_schema(schema.options, comment=schema.comment, now_ms=schema.time_ms)
