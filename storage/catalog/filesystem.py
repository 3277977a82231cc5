# SPDX-License-Identifier: Apache-2.0
"""The filesystem catalog: databases and tables as directories of a warehouse.

Source: FORMAT.md §12.1. A database is `<warehouse>/<name>.db`; a table is a directory in it that
holds at least one schema file. Nothing else is recorded, so other engines see the same catalog;
there are no views, no properties of databases and, without a store of names, no lock.
"""

import logging
from collections.abc import Mapping

from storage.catalog.catalog import Catalog, check_name, names_of_databases
from storage.catalog.options import LOCK_ENABLED, flag, split_options
from storage.catalog.view import COMMENT, LOCATION, Database
from storage.clock import Clock, IdSource
from storage.errors import NotFoundError, UnsupportedFeatureError
from storage.format.metadata.layout import name_refused
from storage.io.file_io import FileIO
from storage.io.resolve import resolve_file_io

__all__ = ["Catalog", "FileSystemCatalog"]

_LOG = logging.getLogger(__name__)


class FileSystemCatalog(Catalog):
    """Tables of one warehouse. Tables are named `database.table`.

    Attributes:
        file_io: the store.
        warehouse: its root.
        options: of the catalog: the warehouse, and those of the object store.

    Args:
        warehouse: directory, `file:` URI or URL of an object store (`storage.io.resolve`). In an
            object store a database exists while it has tables.
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
        super().__init__(file_io, warehouse, options or {}, clock, ids)

    @classmethod
    def of(cls, warehouse: str, options: Mapping[str, str]) -> "FileSystemCatalog":
        """See `Catalog.open`."""
        settings, store = split_options(options)
        if flag(settings, LOCK_ENABLED, False):
            raise UnsupportedFeatureError(
                "a filesystem catalog has no lock",
                hint="use a catalog with `metastore` = `jdbc` or `hive`",
                option=LOCK_ENABLED,
            )
        catalog = cls(warehouse, options=store)
        catalog.options = {**catalog.options, **settings}
        return catalog

    def _make_database(self, name: str, properties: dict[str, str]) -> bool:
        """See `Catalog`. As in Paimon, properties other than the location are not kept."""
        if LOCATION in properties:
            raise UnsupportedFeatureError(
                "a database of a filesystem catalog cannot have its own location",
                hint="remove the property `location`, or use a JDBC or Hive catalog",
                database=name,
            )
        if name in self.list_databases():
            return False
        if properties:
            _LOG.warning(
                "a filesystem catalog keeps no properties of a database; they are dropped",
                extra={"database": name, "keys": sorted(properties), "comment": COMMENT},
            )
        # a directory appears with its first file and, where directories are real, stays
        path = f"{self.database_path(name)}/.{name}.{self.ids.uuid()}.tmp"
        self.file_io.write_bytes(path, b"")
        self.file_io.delete(path)
        return True

    def list_databases(self) -> list[str]:
        """See `Catalog`; directories whose names no database may have are left out."""
        return names_of_databases(self.file_io, self.warehouse)

    def database(self, name: str) -> Database:
        """See `Catalog`."""
        check_name("database", name)
        if name not in self.list_databases():
            raise NotFoundError("there is no such database", database=name)
        return Database(name)

    def _remove_database(self, name: str) -> None:
        path = self.database_path(name)
        self._remove_all(path)
        self.file_io.prune(path)

    def list_tables(self, database: str) -> list[str]:
        """See `Catalog`; directories whose names no table may have are left out."""
        return sorted(
            status.name
            for status in self.file_io.list(self.database_path(database))
            if status.directory
            and not name_refused("table", status.name)
            and self.schemas(f"{database}.{status.name}").ids()
        )

    def exists(self, identifier: str) -> bool:
        """See `Catalog`."""
        return bool(self.schemas(identifier).ids())
