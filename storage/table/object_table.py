# SPDX-License-Identifier: Apache-2.0
"""Object tables: an index of the objects (files) of a directory, as rows of an append table.

Source: SEMANTICS.md §L.2; columns as of Apache Paimon 1.0 to 1.2, whose documents describe
refreshes and time travel. A refresh lists the directory and takes the place of all rows in one
commit, so each one is a snapshot.
"""

import dataclasses
import itertools
from collections.abc import Iterable, Iterator

import pyarrow as pa

from storage.io.file_io import FileIO, FileStatus
from storage.io.resolve import resolve_file_io
from storage.options.options import option_value
from storage.table.object_schema import LOCATION
from storage.table.table import FileStoreTable

_ROWS = 10_000


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
        """List the directory, and count its objects, which take the place of all rows.

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
        own = self.layout.root.partition("://")
        if mark and (scheme, rest.split("/")[0]) == (own[0], own[2].split("/")[0]):
            return self.file_io, location
        return resolve_file_io(location)

    def _rows(self, objects: Iterable[FileStatus]) -> Iterator[pa.RecordBatch]:
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
