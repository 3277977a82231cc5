# SPDX-License-Identifier: Apache-2.0
"""Object tables: an index of the objects (files) of a directory, as rows of an append table.

Source: SEMANTICS.md §L.2; columns as of Apache Paimon 1.0 to 1.2, whose documents describe
refreshes and time travel. A refresh lists the directory and takes the place of all rows in one
commit, so each one is a snapshot.
"""

import dataclasses
import itertools
from collections.abc import Iterator
from typing import TYPE_CHECKING

import pyarrow as pa

from storage.errors import InvalidOptionError, InvalidRequestError
from storage.format.metadata.schema import TableSchema, new_schema
from storage.format.types.type_text import parse_type
from storage.io.file_io import FileIO, FileStatus
from storage.io.resolve import resolve_file_io
from storage.options.options import option_value
from storage.table.table import FileStoreTable

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

__all__ = ["OBJECT_TABLE", "ObjectTable", "check_object_table", "object_schema"]

OBJECT_TABLE = "object-table"
"""Value of the option `type`."""

LOCATION = "object-location"
_ROWS = 10_000
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


class ObjectTable(FileStoreTable):
    """A table that lists the objects of a directory; `refresh` brings it up to date."""

    @staticmethod
    def of(table: FileStoreTable) -> "ObjectTable":
        """A table of this type as what it is."""
        fields = dataclasses.fields(table)
        return ObjectTable(**{field.name: getattr(table, field.name) for field in fields})

    @property
    def object_location(self) -> str:
        """The directory that is listed."""
        return str(option_value(self.schema.options, LOCATION))

    def refresh(self, *, file_io: FileIO | None = None, user: str | None = None) -> int:
        """List the directory; its objects take the place of all rows.

        Args:
            file_io: the store of the directory; None: that of the table if it is the same, else
                chosen by the location.
            user: who commits; None: a new user.

        Returns:
            How many objects there are.

        Raises:
            As `overwrite_rows`; InvalidRequestError, UnsupportedFeatureError: the location has no
                store.
        """
        root = self.object_location.rstrip("/")
        if file_io is None:
            file_io, root = self._store(root)
        rows = self._rows(file_io.walk(root))
        count, _ = self.overwrite_rows(rows, user=user)
        return count

    def _store(self, location: str) -> tuple[FileIO, str]:
        scheme, mark, rest = location.partition("://")
        own = self.layout.root.partition("://")
        if mark and (scheme, rest.split("/")[0]) == (own[0], own[2].split("/")[0]):
            return self.file_io, location
        return resolve_file_io(location)

    def _rows(self, objects: "Iterable[FileStatus]") -> Iterator[pa.RecordBatch]:
        left = iter(objects)
        while some := list(itertools.islice(left, _ROWS)):
            paths = [one.path for one in some]
            known = {
                "path": paths,
                "parent_path": [path.rpartition("/")[0] for path in paths],
                "name": [one.name for one in some],
                "length": [one.size for one in some],
                "mtime": [one.modified_ms for one in some],
            }
            arrays = [
                pa.array(known[field.name], field.type)
                if field.name in known
                else pa.nulls(len(some), field.type)
                for field in self.schema.arrow_schema
            ]
            yield pa.RecordBatch.from_arrays(arrays, schema=self.schema.arrow_schema)


def object_schema(
    options: "Mapping[str, str]", *, comment: str | None = None, now_ms: int = 0
) -> TableSchema:
    """The schema of a new object table.

    Args:
        options: of the table, the location among them.
        comment: of the table.
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
            "an object table needs the directory that it lists",
            hint="set `object-location`",
            option=LOCATION,
        )
    known = {name: parse_type(text) for name, text in _COLUMNS}
    for field in schema.fields:
        if known.get(field.name) != field.type:
            raise InvalidRequestError(
                "an object table has columns of its own",
                hint="declare it without columns",
                column=field.name,
            )
    if schema.primary_keys or schema.partition_keys:
        raise InvalidRequestError("an object table has neither primary key nor partitions")
