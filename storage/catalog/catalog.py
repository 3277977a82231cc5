# SPDX-License-Identifier: Apache-2.0
"""What every catalog does: find databases and tables by name, make them, remove them.

`Catalog.open` chooses the kind by the option `metastore`. There is one kind so far, `filesystem`.
One that keeps names elsewhere (JDBC, Hive) derives from `Catalog` and says where a table lies
(`table_path`) and which names there are; schemas, snapshots and data are the table's own files
wherever it lies, so `table` is the same for all.
"""

import abc
import dataclasses
from collections.abc import Mapping
from typing import TYPE_CHECKING, ClassVar

from storage.clock import Clock, IdSource
from storage.errors import NotFoundError, UnsupportedFeatureError
from storage.format.metadata.layout import TableLayout
from storage.format.metadata.schema import TableSchema
from storage.format.metadata.schema_store import SchemaStore
from storage.format.metadata.snapshot import Snapshot
from storage.format.metadata.snapshot_store import SnapshotStore
from storage.io.file_io import FileIO

if TYPE_CHECKING:
    import pyarrow as pa

    from storage.table.table import FileStoreTable

__all__ = ["BRANCH_MARK", "METASTORE", "Catalog"]

METASTORE = "metastore"
"""Option: the kind of a catalog."""

BRANCH_MARK = "$branch_"
"""Stands between a table's name and that of a branch."""


class Catalog(abc.ABC):
    """Databases and tables by name; a table is named `database.table`.

    Derived classes name their kind: `class HiveCatalog(Catalog, kind="hive")`.

    Attributes:
        file_io: the store that tables lie in.
        warehouse: where tables lie that do not say otherwise.
        options: of the catalog, as it was opened.
    """

    _kinds: ClassVar[dict[str, type["Catalog"]]] = {}

    file_io: FileIO
    warehouse: str
    options: Mapping[str, str]
    clock: Clock
    ids: IdSource

    def __init_subclass__(cls, *, kind: str | None = None) -> None:
        super().__init_subclass__()
        if kind is not None:
            Catalog._kinds[kind] = cls

    @staticmethod
    def open(warehouse: str, options: Mapping[str, str] | None = None) -> "Catalog":
        """Open the catalog of a warehouse.

        Args:
            warehouse: directory, `file:` URI or URL of an object store.
            options: of the catalog and of its store; `metastore` names the kind, `filesystem` if
                it is missing.

        Raises:
            UnsupportedFeatureError: there is no catalog of this kind.
            InvalidOptionError: an option is unknown or malformed.
        """
        given = dict(options or {})
        kind = given.pop(METASTORE, "filesystem").strip().lower()
        found = Catalog._kinds.get(kind)
        if found is None:
            raise UnsupportedFeatureError(
                "there is no catalog of this kind",
                hint=f"there are {', '.join(sorted(Catalog._kinds))}",
                option=METASTORE,
                value=kind,
            )
        return found.of(warehouse, given)

    @classmethod
    @abc.abstractmethod
    def of(cls, warehouse: str, options: Mapping[str, str]) -> "Catalog":
        """A catalog of this kind. Arguments and errors as of `open`."""

    @abc.abstractmethod
    def create_database(self, name: str, ignore_if_exists: bool = False) -> None:
        """Make a database.

        Raises:
            InvalidRequestError: it exists, or the name is not allowed.
        """

    @abc.abstractmethod
    def list_databases(self) -> list[str]:
        """Names of all databases, sorted."""

    @abc.abstractmethod
    def list_tables(self, database: str) -> list[str]:
        """Names of the tables of a database, sorted; empty when there is no such database."""

    @abc.abstractmethod
    def exists(self, identifier: str) -> bool:
        """Whether there is a table `database.table`."""

    @abc.abstractmethod
    def table_path(self, identifier: str) -> str:
        """Directory of a table that is there, or is about to be made.

        Raises:
            InvalidRequestError: the identifier is not `database.table` with allowed names.
        """

    @abc.abstractmethod
    def create_table(
        self, identifier: str, schema: TableSchema, ignore_if_exists: bool = False
    ) -> "FileStoreTable":
        """Make a table; of several concurrent calls one makes it.

        Args:
            identifier: `database.table`; the database need not exist.
            schema: schema 0, as from `new_schema`.
            ignore_if_exists: give the existing table, whatever its schema.

        Raises:
            InvalidRequestError: it exists, the name is not allowed, or the schema is not id 0.
            InvalidOptionError: an option has a bad value.
        """

    @abc.abstractmethod
    def drop_table(self, identifier: str, ignore_if_missing: bool = False) -> None:
        """Remove a table with all its files.

        Raises:
            NotFoundError: there is no such table.
            StorageUnavailableError: files are left; drop it again.
        """

    def newest_snapshot(self, identifier: str) -> Snapshot | None:
        """The newest snapshot of a table, of the branch that its options name; None: no commit yet.

        Reads metadata alone: unlike `table` it loads no file format and no merge engine.

        Raises:
            NotFoundError: there is no such table, or no branch of the name in its options.
        """
        main = TableLayout(self.table_path(identifier))
        schema = SchemaStore(self.file_io, main).latest()
        if schema is None:
            raise NotFoundError("there is no such table", table=identifier)
        branch = dataclasses.replace(main, branch=schema.options.get("branch", main.branch))
        if branch != main and SchemaStore(self.file_io, branch).latest() is None:
            raise NotFoundError("there is no such branch", table=identifier, branch=branch.branch)
        return SnapshotStore(self.file_io, branch).latest()

    def sql(self, text: str, database: str = "default") -> "pa.Table":
        """Run SQL statements in a session of their own, and give what the last one gives.

        Args:
            text: statements, separated by semicolons (docs/guides/sql.md).
            database: the current database.

        Returns:
            The rows of a query, SHOW, DESCRIBE, EXPLAIN or CALL; of other statements one row with
            the column `affected`: how many rows were written, deleted or changed.

        Raises:
            SqlError: a statement cannot be understood; those before it have run.
            LakewardError: what the catalog or the table says of a statement.
        """
        import importlib

        # SQL stands above catalogs: it is found by name, and only when it is asked for
        session = importlib.import_module("storage.sql.session").SqlSession(self, database)
        found: pa.Table = session.last_rows(text)
        return found

    def table(self, identifier: str) -> "FileStoreTable":
        """Open a table at its newest schema.

        Args:
            identifier: `database.table`, or `database.table$branch_name` for a branch.

        Raises:
            NotFoundError: there is no such table or branch.
        """
        from storage.table.table import FileStoreTable

        identifier, mark, branch = identifier.partition(BRANCH_MARK)
        path, wanted = self.table_path(identifier), branch if mark else None
        try:
            return FileStoreTable.open(path, self.file_io, self.clock, self.ids, branch=wanted)
        except NotFoundError as error:
            raise NotFoundError(
                "there is no such table",
                detail=error.message,
                table=identifier,
                branch=branch or "main",
                warehouse=self.warehouse,
            ) from error
