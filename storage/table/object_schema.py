# SPDX-License-Identifier: Apache-2.0
"""Columns and options of object tables. Source: Apache Paimon 1.0 to 1.2."""

from collections.abc import Mapping

from storage.errors import InvalidOptionError, InvalidRequestError
from storage.format.metadata.schema import TableSchema, new_schema
from storage.format.types.type_text import parse_type
from storage.options.options import option_value

OBJECT_TABLE = "object-table"
"""Value of the option `type`."""

LOCATION = "object-location"

_TIME = "TIMESTAMP(3) WITH LOCAL TIME ZONE"
_COLUMNS = (
    ("path", "STRING NOT NULL"),
    ("parent_path", "STRING NOT NULL"),
    ("name", "STRING NOT NULL"),
    ("length", "BIGINT NOT NULL"),
    ("mtime", _TIME),
    ("atime", _TIME),
    ("owner", "STRING"),
    ("generation", "INT"),
    ("content_type", "STRING"),
    ("storage_class", "STRING"),
    ("md5_hash", "STRING"),
    ("metadata_mtime", _TIME),
    ("metadata", "MAP<STRING, STRING>"),
)


def object_schema(
    options: Mapping[str, str], *, comment: str | None = None, now_ms: int = 0
) -> TableSchema:
    """The schema of a new object table.

    Args:
        options: of the table, the location among them.
        now_ms: when it is made [epoch ms].

    Raises:
        InvalidOptionError: there is no location.
    """
    columns = [(name, parse_type(text)) for name, text in _COLUMNS]
    schema = new_schema(columns, options=options, comment=comment, now_ms=now_ms)
    check_object_table(schema)
    return schema


def check_object_table(schema: TableSchema) -> None:
    """Check the schema of an object table.

    Raises:
        InvalidOptionError: there is no location.
        InvalidRequestError: it has other columns than object tables have, or keys.
    """
    if not option_value(schema.options, LOCATION):
        raise InvalidOptionError(
            "an object table needs a directory to list",
            hint="set `object-location`",
            option=LOCATION,
        )
    types = {name: parse_type(text) for name, text in _COLUMNS}
    for field in schema.fields:
        if types.get(field.name) != field.type:
            raise InvalidRequestError(
                "the columns of an object table are fixed",
                hint="declare it without columns",
                column=field.name,
            )
    if schema.primary_keys or schema.partition_keys:
        raise InvalidRequestError("an object table has neither primary key nor partitions")
