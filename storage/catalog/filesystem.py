# SPDX-License-Identifier: Apache-2.0
"""The filesystem catalog: databases and tables as directories of a warehouse.

Source: FORMAT.md §12.1. A database is `<warehouse>/<name>.db`; a table is a directory in it that
holds at least one schema file. Nothing else is recorded, so other engines see the same catalog.

Listing loads no file format and no merge engine: `FileStoreTable`, which needs them, is imported by
the methods that open or make a table, so `lakeward table ls` starts in a fraction of a second.
"""

import dataclasses
import itertools
from collections.abc import Mapping
from typing import TYPE_CHECKING

from storage.catalog.catalog import Catalog
from storage.clock import Clock, IdSource, RandomIds, SystemClock
from storage.errors import InvalidRequestError, NotFoundError, StorageUnavailableError
from storage.format.metadata.layout import TableLayout
from storage.format.metadata.name_rules import name_refused
from storage.format.metadata.schema import TableSchema
from storage.format.metadata.schema_store import SchemaStore
from storage.io.file_io import FileIO
from storage.io.resolve import resolve_file_io

if TYPE_CHECKING:
    from storage.table.table import FileStoreTable

__all__ = ["Catalog", "FileSystemCatalog"]

_DROP_TRIES = 3
"""Times that files are listed; they are removed after all but the one that finds none."""

_SUFFIX = ".db"


class FileSystemCatalog(Catalog, kind="filesystem"):
    """Tables of one warehouse. Tables are named `database.table`.

    Attributes:
        file_io: the store.
        warehouse: its root.
        options: of the catalog: the warehouse, and those of the object store.

    Args:
        warehouse: directory, `file:` URI or URL of an object store (`storage.io.resolve`). In an
            object store a database is there while it has tables.
        file_io: the store; None: chosen by the warehouse.
        clock: given to the tables; None: the machine's.
        ids: given to the tables; None: random.
        options: of the object store, where `file_io` is None.
    """

    def __init__(
        self,
        warehouse: str,
        file_io: FileIO | None = None,
        clock: Clock | None = None,
        ids: IdSource | None = None,
        options: Mapping[str, str] | None = None,
    ) -> None:
        if file_io is None:
            file_io, warehouse = resolve_file_io(warehouse, options)
        self.file_io = file_io
        self.warehouse = warehouse.rstrip("/")
        self.options: Mapping[str, str] = {"warehouse": self.warehouse, **(options or {})}
        self.clock = clock or SystemClock()
        self.ids = ids or RandomIds()

    @classmethod
    def of(cls, warehouse: str, options: Mapping[str, str]) -> "FileSystemCatalog":
        """See `Catalog.open`."""
        return cls(warehouse, options=options)

    def create_database(self, name: str, ignore_if_exists: bool = False) -> None:
        """See `Catalog`."""
        _check_name("database", name)
        if name in self.list_databases():
            if ignore_if_exists:
                return
            raise InvalidRequestError("the database exists already", database=name)
        # a directory appears with its first file and, where directories are real, stays
        path = f"{self._database(name)}/.{name}.{self.ids.uuid()}.tmp"
        self.file_io.write_bytes(path, b"")
        self.file_io.delete(path)

    def list_databases(self) -> list[str]:
        """See `Catalog`; directories of names that no database may have are not among them."""
        names = [
            status.name.removesuffix(_SUFFIX)
            for status in self.file_io.list(self.warehouse)
            if status.directory and status.name.endswith(_SUFFIX)
        ]
        return sorted(name for name in names if not name_refused("database", name))

    def list_tables(self, database: str) -> list[str]:
        """See `Catalog`; directories of names that no table may have are not among them."""
        _check_name("database", database)
        return sorted(
            status.name
            for status in self.file_io.list(self._database(database))
            if status.directory
            and not name_refused("table", status.name)
            and self._schemas(status.path).ids()
        )

    def exists(self, identifier: str) -> bool:
        """See `Catalog`."""
        return bool(self._schemas(self.table_path(identifier)).ids())

    def create_table(
        self, identifier: str, schema: TableSchema, ignore_if_exists: bool = False
    ) -> "FileStoreTable":
        """See `Catalog`."""
        from storage.table.table import FileStoreTable
        from storage.table.table_rules import check_table

        path = self.table_path(identifier)
        if schema.id != 0:
            raise InvalidRequestError("a new table starts with schema 0", schema=schema.id)
        check_table(schema)
        if schema.time_ms == 0:
            schema = dataclasses.replace(schema, time_ms=self.clock.now_ms())
        schemas = self._schemas(path)
        if not schemas.ids() and schemas.publish(schema):
            return FileStoreTable.at(path, schema, self.file_io, self.clock, self.ids)
        if not ignore_if_exists:
            raise InvalidRequestError("the table exists already", table=identifier)
        return self.table(identifier)

    def drop_table(self, identifier: str, ignore_if_missing: bool = False) -> None:
        """Remove a table with all its files.

        The schema files go last: until then the table is there, and an interrupted drop can be
        repeated; afterwards a new table of that name finds nothing of the old one.

        Raises:
            NotFoundError: there is no such table.
            StorageUnavailableError: files are left; drop it again.
        """
        path = self.table_path(identifier)
        if not self._schemas(path).ids():
            if ignore_if_missing:
                return
            raise NotFoundError("there is no such table", table=identifier)
        self._remove_all(path, but=TableLayout(path).schema_dir + "/")
        self._remove_all(path)

    def _remove_all(self, path: str, but: str | None = None) -> None:
        """Remove the files below a directory, in few requests; but not those below another."""
        for number in itertools.count(1):
            found = (status.path for status in self.file_io.walk(path))
            files = [each for each in found if but is None or not each.startswith(but)]
            if not files:
                return
            if number == _DROP_TRIES:
                raise StorageUnavailableError(
                    "files of a table could not be removed",
                    hint="drop the table again",
                    path=files[0],
                )
            self.file_io.delete_many(files)

    def table_path(self, identifier: str) -> str:
        """Directory of a table.

        Raises:
            InvalidRequestError: the identifier is not `database.table` with allowed names.
        """
        database, dot, name = identifier.partition(".")
        if not dot:
            raise InvalidRequestError(
                "a table is named by database and table",
                hint="write it as `database.table`",
                table=identifier,
            )
        _check_name("database", database)
        _check_name("table", name)
        return f"{self._database(database)}/{name}"

    def _database(self, name: str) -> str:
        return f"{self.warehouse}/{name}{_SUFFIX}"

    def _schemas(self, path: str) -> SchemaStore:
        return SchemaStore(self.file_io, TableLayout(path))


def _check_name(what: str, name: str) -> None:
    if refused := name_refused(what, name):
        hint = "names have no blanks at the ends and none of / \\ $ . : or control characters"
        raise InvalidRequestError(refused, hint=hint, name=name)
