# SPDX-License-Identifier: Apache-2.0
"""Which class a table is of, by the option `type` of its schema."""

import dataclasses
import itertools
from collections.abc import Iterable, Iterator

import pyarrow as pa

from storage.errors import UnsupportedFeatureError
from storage.format.metadata.schema import TableSchema
from storage.io.file_io import FileIO, FileStatus
from storage.io.resolve import resolve_file_io
from storage.options.options import option_value
from storage.table.format_table import FormatTable
from storage.table.scan.format_files import FORMAT_TABLE
from storage.table.table import FileStoreTable
from storage.table.table_rules import LOCATION, OBJECT_TABLE, object_schema

# Object tables: an index of the objects (files) of a directory, as rows of an append table.
#
# Source: SEMANTICS.md §L.2; columns as of Apache Paimon 1.0 to 1.2, whose documents describe
# refreshes and time travel. A refresh lists the directory and replaces all rows in one commit, so
# each one is a snapshot.


_ROWS = 10_000


class ObjectTable(FileStoreTable):
    """A table that lists the objects of a directory; `refresh` brings it up to date."""

    @staticmethod
    def of(table: FileStoreTable) -> "ObjectTable":
        """A table of this type as an `ObjectTable`."""
        fields = dataclasses.fields(table)
        return ObjectTable(**{field.name: getattr(table, field.name) for field in fields})

    @property
    def object_location(self) -> str:
        """The directory that is listed."""
        return str(option_value(self.schema.options, LOCATION))

    def refresh(self, *, file_io: FileIO | None = None, user: str | None = None) -> int:
        """List the directory, replace all rows by its objects, and count them.

        Args:
            file_io: the store of the directory; None: that of the table if it is the same, else
                chosen by the location.
            user: who commits; None: a new user.

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
        root = self.layout.root.partition("://")
        if mark and (scheme, rest.split("/")[0]) == (root[0], root[2].split("/")[0]):
            return self.file_io, location
        return resolve_file_io(location)

    def _rows(self, objects: Iterable[FileStatus]) -> Iterator[pa.RecordBatch]:
        remaining = iter(objects)
        while chunk := list(itertools.islice(remaining, _ROWS)):
            paths = [status.path for status in chunk]
            columns = {
                "path": paths,
                "parent_path": [path.rpartition("/")[0] for path in paths],
                "name": [status.name for status in chunk],
                "length": [status.size for status in chunk],
                "mtime": [status.modified_ms for status in chunk],
            }
            arrays = [
                pa.array(columns[field.name], field.type)
                if field.name in columns
                else pa.nulls(len(chunk), field.type)
                for field in self.schema.arrow_schema
            ]
            yield pa.RecordBatch.from_arrays(arrays, schema=self.schema.arrow_schema)


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
