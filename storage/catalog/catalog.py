# SPDX-License-Identifier: Apache-2.0
"""The interface of all catalogs: find, create, change, remove databases, tables and views.

`Catalog.open` chooses the kind by the option `metastore` and imports it then. A kind lists names
and locates tables (`table_path`); schemas, snapshots and data are the table's own files wherever it
lies, so `table` is the same for all.

Listing loads no file format and no merge engine: `FileStoreTable`, which needs them, is imported by
the methods that open or make a table, so `lakeward table ls` starts in a fraction of a second.
"""

import abc
import dataclasses
import importlib
import itertools
import logging
import uuid
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from storage.catalog.options import (
    FORMAT_TABLES,
    LOCK_ENABLED,
    METASTORE,
    STORE_PREFIXES,
    TABLE_DEFAULT,
    flag,
    split_options,
)
from storage.catalog.view import COMMENT, LOCATION, Database, View
from storage.clock import Clock, IdSource, RandomIds, SystemClock
from storage.errors import (
    AlreadyExistsError,
    InvalidRequestError,
    NotFoundError,
    StorageUnavailableError,
    UnsupportedFeatureError,
)
from storage.format.metadata.layout import MAIN_BRANCH, TableLayout, name_refused
from storage.format.metadata.schema import SchemaStore, TableSchema
from storage.format.metadata.snapshot import Snapshot, SnapshotStore
from storage.io.file_io import FileIO
from storage.io.resolve import is_local, resolve_file_io

if TYPE_CHECKING:
    import pyarrow as pa

    from storage.format.metadata.schema_changes import SchemaChange
    from storage.table.core import CatalogEnvironment
    from storage.table.table import FileStoreTable

DEFAULT_DATABASE = "default"
"""The database of statements without USE; created with its first table."""

PATH = "path"
"""Option of a table outside of the warehouse."""

BRANCH_MARK = "$branch_"
"""Separates a table's name from that of a branch."""

DATABASE_SUFFIX = ".db"

_KINDS = {
    "filesystem": "storage.catalog.catalog:FileSystemCatalog",
    "hive": "storage.catalog.hive:HiveCatalog",
    "jdbc": "storage.catalog.jdbc:JdbcCatalog",
    "rest": "storage.catalog.rest:RestCatalog",
}
"""Module and class by kind."""

_ICEBERG, _DISABLED = "metadata.iceberg.storage", "disabled"
_DROP_TRIES = 3
"""How often files are listed; they are removed after each listing but the last."""

_REGISTRATION_WAITS = 30
_REGISTRATION_WAIT_S = 0.1
"""How long a table may take from its first file to its entry in the catalog."""


class Catalog(abc.ABC):
    """Databases and tables by name; a table is named `database.table`.

    Attributes:
        file_io: the store of the tables.
        warehouse: the root of tables without a location of their own.
        options: of the catalog, as it was opened.
        clock: given to the tables.
        ids: given to the tables.
    """

    file_io: FileIO
    warehouse: str
    options: Mapping[str, str]
    clock: Clock
    ids: IdSource

    def __init__(
        self,
        file_io: FileIO,
        warehouse: str,
        options: Mapping[str, str],
        clock: Clock | None = None,
        ids: IdSource | None = None,
    ) -> None:
        self.file_io = file_io
        self.warehouse = warehouse.rstrip("/")
        self.options = {"warehouse": self.warehouse, **options}
        self.clock = clock or SystemClock()
        self.ids = ids or RandomIds()
        self._wrap: Callable[[FileIO], FileIO] = _unchanged

    @staticmethod
    def open(warehouse: str, options: Mapping[str, str] | None = None) -> "Catalog":
        """Open the catalog of a warehouse.

        Args:
            warehouse: directory, `file:` URI or URL of an object store.
            options: of the catalog and of its store; `metastore` names the kind, `filesystem` if
                it is missing.

        Raises:
            UnsupportedFeatureError: there is no catalog of this kind, or what it needs is not
                installed.
            InvalidOptionError: an option is unknown or malformed.
        """
        remaining = dict(options or {})
        kind = remaining.pop(METASTORE, "filesystem").strip().lower()
        qualified_name = _KINDS.get(kind)
        if qualified_name is None:
            raise UnsupportedFeatureError(
                "there is no catalog of this kind",
                hint=f"there are {', '.join(sorted(_KINDS))}",
                option=METASTORE,
                value=kind,
            )
        module, _, name = qualified_name.partition(":")
        try:
            cls = getattr(importlib.import_module(module), name)
        except ModuleNotFoundError as error:
            raise UnsupportedFeatureError(
                "a package that this kind of catalog needs is not installed",
                detail=str(error),
                hint=f'pip install "lakeward[{kind}]"',
                option=METASTORE,
                value=kind,
            ) from error
        catalog: Catalog = cls.of(warehouse, remaining)
        return catalog

    @classmethod
    @abc.abstractmethod
    def of(cls, warehouse: str, options: Mapping[str, str]) -> "Catalog":
        """A catalog of this kind. Arguments and errors as of `open`."""

    def through(self, wrap: Callable[[FileIO], FileIO]) -> "Catalog":
        """This catalog with all calls of its stores going through a wrapper, as for counting."""
        self.file_io = wrap(self.file_io)
        self._wrap = wrap
        return self

    def _store_of(self, path: str) -> tuple[FileIO, str]:
        """The store of a path, and the path as that store takes it."""
        if path.startswith(self.warehouse + "/"):
            return self.file_io, path.rstrip("/")
        store = {
            key: value for key, value in self.options.items() if key.startswith(STORE_PREFIXES)
        }
        file_io, path = resolve_file_io(path, None if is_local(path) else store)
        return self._wrap(file_io), path

    # ---- databases

    def create_database(
        self, name: str, ignore_if_exists: bool = False, properties: Mapping[str, str] | None = None
    ) -> None:
        """Make a database.

        Args:
            name: of the database.
            ignore_if_exists: do nothing when it exists, whatever its properties.
            properties: texts by key; `comment` and `location` have a meaning.

        Raises:
            InvalidRequestError: it exists, or the name is not allowed.
            UnsupportedFeatureError: the catalog cannot honour a property.
        """
        check_name("database", name)
        if not self._make_database(name, dict(properties or {})) and not ignore_if_exists:
            raise AlreadyExistsError("the database exists already", database=name)

    @abc.abstractmethod
    def _make_database(self, name: str, properties: dict[str, str]) -> bool:
        """Make a database; False: it exists."""

    @abc.abstractmethod
    def list_databases(self) -> list[str]:
        """Names of all databases, sorted."""

    @abc.abstractmethod
    def database(self, name: str) -> Database:
        """A database with its properties.

        Raises:
            NotFoundError: there is nothing of this name.
        """

    def alter_database(
        self, name: str, changes: Mapping[str, str | None], ignore_if_missing: bool = False
    ) -> None:
        """Set properties of a database, or remove them (None).

        Raises:
            NotFoundError: there is nothing of this name.
            UnsupportedFeatureError: the catalog keeps no properties, or a property is fixed.
        """
        if not _may_miss(lambda: self.database(name), ignore_if_missing):
            self._change_database(name, changes)

    def _change_database(self, name: str, changes: Mapping[str, str | None]) -> None:
        raise self._unsupported("properties of databases", database=name)

    def drop_database(
        self, name: str, ignore_if_missing: bool = False, cascade: bool = False
    ) -> None:
        """Remove a database.

        Args:
            name: of the database.
            ignore_if_missing: do nothing when there is none.
            cascade: remove its tables and views, too; else it must be empty.

        Raises:
            NotFoundError: there is nothing of this name.
            InvalidRequestError: it is not empty; nothing was removed.
        """
        if _may_miss(lambda: self.database(name), ignore_if_missing):
            return
        tables = self.list_tables(name)
        views = self.list_views(name) if self.keeps_views else []
        if (tables or views) and not cascade:
            raise InvalidRequestError(
                "the database is not empty",
                hint="drop its tables and views first, or drop it with cascade",
                database=name,
                tables=len(tables),
                views=len(views),
            )
        for table in tables:
            self.drop_table(f"{name}.{table}", ignore_if_missing=True)
        for view in views:
            self.drop_view(f"{name}.{view}", ignore_if_missing=True)
        self._remove_database(name)

    @abc.abstractmethod
    def _remove_database(self, name: str) -> None:
        """Remove an empty database."""

    # ---- tables

    @abc.abstractmethod
    def list_tables(self, database: str) -> list[str]:
        """Names of the tables of a database, sorted; empty when there is no such database."""

    @abc.abstractmethod
    def exists(self, identifier: str) -> bool:
        """Whether there is a table `database.table`."""

    def table_path(self, identifier: str) -> str:
        """Directory of a table that exists or is about to be created.

        Raises:
            InvalidRequestError: the identifier is not `database.table` with allowed names.
        """
        database, name = split_identifier(identifier)
        return f"{self.database_path(database)}/{name}"

    def database_path(self, name: str) -> str:
        """Directory of a database's tables.

        Raises:
            InvalidRequestError: the name is not allowed.
        """
        check_name("database", name)
        return f"{self.warehouse}/{name}{DATABASE_SUFFIX}"

    def create_table(
        self, identifier: str, schema: TableSchema, ignore_if_exists: bool = False
    ) -> "FileStoreTable | Any":
        """Make a table; of several concurrent calls one makes it.

        Args:
            identifier: `database.table`; in a filesystem catalog the database need not exist.
            schema: schema 0, as from `new_schema`.
            ignore_if_exists: return the existing table, whatever its schema.

        Raises:
            InvalidRequestError: it exists, the name is not allowed, or the schema is not id 0.
            InvalidOptionError: an option has a bad value.
            NotFoundError: there is no such database.
        """
        from storage.table.table import FileStoreTable
        from storage.table.table_types import typed_table

        path, schema = self.table_path(identifier), self._completed(schema, identifier)
        self._check_free(identifier)
        schemas = self.schemas(identifier)
        if not self.exists(identifier) and not schemas.ids() and schemas.publish(schema):
            self._register(identifier, schema)
            file_io = self.file_io_of(identifier)
            table = FileStoreTable.at(path, schema, file_io, self.clock, self.ids)
            return typed_table(
                dataclasses.replace(table, environment=self._environment(identifier, MAIN_BRANCH))
            )
        self._await_registration(identifier)
        if not ignore_if_exists:
            raise AlreadyExistsError("the table exists already", table=identifier)
        return self.table(identifier)

    def _completed(self, schema: TableSchema, identifier: str) -> TableSchema:
        """The checked schema of a new table, with what its type and the catalog's defaults add."""
        from storage.table.table_rules import check_table
        from storage.table.table_types import completed_schema

        if schema.id != 0:
            raise InvalidRequestError("a new table starts with schema 0", schema=schema.id)
        if PATH in schema.options:
            raise UnsupportedFeatureError(
                "tables of this catalog are stored in its warehouse",
                hint="leave out LOCATION and the option `path`",
                table=identifier,
                path=schema.options[PATH],
            )
        schema = completed_schema(schema)
        defaults = {
            key.removeprefix(TABLE_DEFAULT): value
            for key, value in self.options.items()
            if key.startswith(TABLE_DEFAULT)
        }
        schema = dataclasses.replace(
            schema,
            options={**defaults, **schema.options},
            time_ms=schema.time_ms or self.clock.now_ms(),
        )
        self._check_type(schema, identifier)
        check_table(schema)
        return schema

    def _check_free(self, identifier: str) -> None:  # noqa: B027 - a hook
        """Check that a table can be created: its database exists, no view has its name."""

    def _register(self, identifier: str, schema: TableSchema) -> None:  # noqa: B027 - a hook
        """Register a table whose schema file was just written."""

    def _await_registration(self, identifier: str) -> None:
        """Wait until a table whose files exist is in the catalog, too."""
        for _ in range(_REGISTRATION_WAITS):
            if self.exists(identifier):
                return
            self.clock.sleep(_REGISTRATION_WAIT_S)
        raise InvalidRequestError(
            "table files exist, but the table is not in the catalog",
            hint="register it with `repair_table`, or remove its directory",
            table=identifier,
            path=self.table_path(identifier),
        )

    def drop_table(self, identifier: str, ignore_if_missing: bool = False) -> None:
        """Remove a table with all its files.

        The schema files go last, then the entry in the catalog: until then the table exists, and
        an interrupted drop can be repeated; afterwards a new table of that name finds nothing of
        the old one.

        Raises:
            NotFoundError: there is no such table.
            StorageUnavailableError: files are left, or the Iceberg catalog of the table does not
                answer; drop it again.
        """
        if _may_miss(lambda: self._require(identifier), ignore_if_missing):
            return
        path = self.table_path(identifier)
        if self._owns_files(identifier):
            self._retract(identifier)
            self._remove_all(path, but=TableLayout(path).schema_dir + "/")
            self._remove_all(path)
        self._unregister(identifier)

    def _owns_files(self, identifier: str) -> bool:
        """Whether the files are removed with the table: not those of an external table."""
        return True

    def _unregister(self, identifier: str) -> None:  # noqa: B027 - a hook
        """Remove the entry of a table whose files are removed."""

    def _remove_all(self, path: str, but: str | None = None) -> None:
        """Remove the files below a directory, in few requests; except those below another."""
        for number in itertools.count(1):
            paths = (status.path for status in self._store_of(path)[0].walk(path))
            files = [file for file in paths if but is None or not file.startswith(but)]
            if not files:
                return
            if number == _DROP_TRIES:
                raise StorageUnavailableError(
                    "files of a table could not be removed",
                    hint="drop the table again",
                    path=files[0],
                )
            self._store_of(path)[0].delete_many(files)

    def rename_table(self, old: str, new: str, ignore_if_missing: bool = False) -> None:
        """Give a table another name, in the same or another database; its directory moves.

        Raises:
            NotFoundError: there is no such table, or no such database.
            InvalidRequestError: the new name is taken or not allowed.
            UnsupportedFeatureError: the table is in an object store, which cannot move it.
            StorageUnavailableError: the Iceberg catalog of the table does not answer.
        """
        new_path = self.table_path(new)
        if _may_miss(lambda: self._require(old), ignore_if_missing):
            return
        self._check_free(new)
        conflict = AlreadyExistsError("the table exists already", table=new)
        if self.exists(new):
            raise conflict
        moves = self._owns_files(old) and self._retract(old)
        try:
            old_path, file_io = self.table_path(old), self.file_io_of(old)
            self._move(old, new, lambda: file_io.rename_directory(old_path, new_path))
        except FileExistsError as error:
            raise conflict from error
        finally:
            if moves:
                self._publish_iceberg(new if self.exists(new) else old)

    def _retract(self, identifier: str) -> bool:
        """Remove a table from the Iceberg catalog that its options name; False: they name none."""
        schema = self.schemas(identifier).latest()
        if schema is None or schema.options.get(_ICEBERG, _DISABLED) == _DISABLED:
            return False
        from storage.table.iceberg import retract_iceberg

        retract_iceberg(self.table(identifier))
        return True

    def _publish_iceberg(self, identifier: str) -> None:
        from storage.table.iceberg import publish_all

        publish_all(self.table(identifier))

    def _move(self, old: str, new: str, move_files: Callable[[], None]) -> None:
        """Move a table's files and its entry: both or none."""
        move_files()

    def alter_table(
        self, identifier: str, changes: "Sequence[SchemaChange]", ignore_if_missing: bool = False
    ) -> None:
        """Change the schema of a table, as one new version.

        Raises:
            NotFoundError: there is no such table.
            InvalidSchemaChangeError: a change is not allowed.
            CommitConflictError: another writer changed the schema at each attempt.
        """
        try:
            table = self.table(identifier)
        except NotFoundError:
            if ignore_if_missing:
                return
            raise
        table.alter(changes)

    def _require(self, identifier: str) -> None:
        if not self.exists(identifier):
            raise NotFoundError("there is no such table", table=identifier)

    def file_io_of(self, identifier: str) -> FileIO:
        """The store of one table: as `file_io`, with what the catalog adds to publications."""
        return self.file_io

    def schemas(self, identifier: str) -> SchemaStore:
        """The schema files of a table."""
        return SchemaStore(self.file_io_of(identifier), TableLayout(self.table_path(identifier)))

    def _environment(self, identifier: str, branch: str) -> "CatalogEnvironment | None":
        """The catalog's part in changes of a table or of a branch of it."""
        return None

    def table_id(self, identifier: str) -> str:
        """An id that distinguishes a table from others, even of its name; its branches share it.

        Raises:
            NotFoundError: there is no such table.
        """
        identifier = identifier.partition(BRANCH_MARK)[0]
        schemas = self.schemas(identifier)
        ids = schemas.ids()
        if not ids:
            raise NotFoundError("there is no such table", table=identifier)
        return str(uuid.uuid5(uuid.NAMESPACE_OID, schemas.read(ids[0]).to_json().decode()))

    def tables_of_type(self, type_: str, database: str | None = None) -> Iterator[str]:
        """Names of the tables of a type, such as `materialized-table`; of one database if given."""
        for name in self.list_databases() if database is None else [database]:
            for table in self.list_tables(name):
                schema = self.schemas(f"{name}.{table}").latest()
                if schema is not None and schema.options.get("type") == type_:
                    yield f"{name}.{table}"

    def newest_snapshot(self, identifier: str) -> Snapshot | None:
        """The newest snapshot of a table, of the branch that its options name; None: no commit yet.

        Reads metadata alone: unlike `table` it loads no file format and no merge engine.

        Raises:
            NotFoundError: there is no such table, or no branch of the name in its options.
        """
        main, file_io = TableLayout(self.table_path(identifier)), self.file_io_of(identifier)
        schema = SchemaStore(file_io, main).latest()
        if schema is None:
            raise NotFoundError("there is no such table", table=identifier)
        branch = dataclasses.replace(main, branch=schema.options.get("branch", main.branch))
        if branch != main and SchemaStore(file_io, branch).latest() is None:
            raise NotFoundError("there is no such branch", table=identifier, branch=branch.branch)
        return SnapshotStore(file_io, branch).latest()

    def sql(self, text: str, database: str = "default") -> "pa.Table":
        """Run SQL statements in a new session, and return the result of the last one.

        Returns:
            The rows of a query, SHOW, DESCRIBE, EXPLAIN or CALL; of other statements one row with
            the column `affected`: how many rows were written, deleted or changed.

        Raises:
            SqlError: a statement cannot be parsed; those before it have run.
            LakewardError: the catalog or the table refuses a statement.
        """
        import importlib

        # SQL is a layer above catalogs: imported by name, and only on demand
        session = importlib.import_module("storage.sql.session").SqlSession(self, database)
        rows: pa.Table = session.last_rows(text)
        return rows

    def table(self, identifier: str) -> "FileStoreTable | Any":
        """Open a table at its newest schema.

        The class follows from the option `type`: `FormatTable`, `ObjectTable` (a `FileStoreTable`),
        else `FileStoreTable`. A `FormatTable` refuses by name what it does not support.

        Args:
            identifier: `database.table`, or `database.table$branch_name` for a branch.

        Raises:
            NotFoundError: there is no such table or branch.
        """
        from storage.table.table import FileStoreTable
        from storage.table.table_types import typed_table

        identifier, mark, branch = identifier.partition(BRANCH_MARK)
        branch_name = branch if mark else None
        try:
            path, file_io = self._location(identifier), self.file_io_of(identifier)
            table = FileStoreTable.open(path, file_io, self.clock, self.ids, branch=branch_name)
        except NotFoundError as error:
            raise NotFoundError(
                "there is no such table",
                detail=error.message,
                table=identifier,
                branch=branch or "main",
                warehouse=self.warehouse,
            ) from error
        environment = self._environment(identifier, table.layout.branch)
        if environment is not None:
            table = dataclasses.replace(table, environment=environment)
        self._check_type(table.schema, identifier)
        return typed_table(table)

    def _check_type(self, schema: TableSchema, identifier: str) -> None:
        """Check that the catalog has tables of this type.

        Raises:
            UnsupportedFeatureError: format tables are switched off.
        """
        disabled = not flag(self.options, FORMAT_TABLES, True)
        if disabled and schema.options.get("type") == "format-table":
            raise UnsupportedFeatureError(
                "format tables are switched off in this catalog",
                hint=f"set its option `{FORMAT_TABLES}` to true",
                table=identifier,
            )

    def _location(self, identifier: str) -> str:
        """Directory of a table that is in the catalog.

        Raises:
            NotFoundError: it is not.
        """
        return self.table_path(identifier)

    def repair_table(self, identifier: str) -> None:
        """Register a table whose files exist; update what the catalog stores of it.

        Raises:
            NotFoundError: there are no files of a table.
            UnsupportedFeatureError: this kind of catalog has no entries.
        """
        raise self._unsupported("entries to repair", table=identifier)

    def repair_database(self, name: str) -> None:
        """`repair_table` for every directory of a database that holds a table."""
        for status in self.file_io.list(self.database_path(name)):
            identifier = f"{name}.{status.name}"
            candidate = status.directory and not name_refused("table", status.name)
            if candidate and self.schemas(identifier).ids():
                self.repair_table(identifier)

    def repair_catalog(self) -> None:
        """`repair_database` for every directory of the warehouse that is a database."""
        for name in names_of_databases(self.file_io, self.warehouse):
            self.repair_database(name)

    # ---- views

    keeps_views: bool = False
    """Whether the catalog has views."""

    def create_view(self, identifier: str, view: View, ignore_if_exists: bool = False) -> None:
        """Make a view.

        Raises:
            InvalidRequestError: a view or a table of this name exists.
            NotFoundError: there is no such database.
            UnsupportedFeatureError: the catalog has no views.
        """
        if not self.keeps_views:
            raise self._unsupported("views", view=identifier)
        self._check_free_view(identifier)
        if not self._make_view(identifier, view) and not ignore_if_exists:
            raise AlreadyExistsError("the view exists already", view=identifier)

    def _check_free_view(self, identifier: str) -> None:
        self.database(split_identifier(identifier)[0])
        if self.exists(identifier):
            raise AlreadyExistsError("a table of this name exists", table=identifier)

    def view(self, identifier: str) -> View:
        """A view.

        Raises:
            NotFoundError: there is no such view, or the catalog has none.
        """
        raise NotFoundError(
            "there is no such view", detail="a filesystem catalog has no views", view=identifier
        )

    def list_views(self, database: str) -> list[str]:
        """Names of the views of a database, sorted; empty when the catalog has none."""
        return []

    def drop_view(self, identifier: str, ignore_if_missing: bool = False) -> None:
        """Remove a view.

        Raises:
            NotFoundError: there is no such view.
        """
        if not _may_miss(lambda: self._require_view(identifier), ignore_if_missing):
            _may_miss(lambda: self._remove_view(identifier), ignore_if_missing)

    def rename_view(self, old: str, new: str, ignore_if_missing: bool = False) -> None:
        """Give a view another name.

        Raises:
            NotFoundError: there is no such view, or no such database.
            InvalidRequestError: the new name is taken or not allowed.
        """
        if not _may_miss(lambda: self._require_view(old), ignore_if_missing):
            self._check_free_view(new)
            if not self._move_view(old, new):
                raise AlreadyExistsError("the view exists already", view=new)

    def alter_view(self, identifier: str, view: View, ignore_if_missing: bool = False) -> None:
        """Replace a view.

        Raises:
            NotFoundError: there is no such view.
            UnsupportedFeatureError: the catalog cannot change this of a view; nothing was changed.
        """
        if not _may_miss(lambda: self._require_view(identifier), ignore_if_missing):
            _may_miss(lambda: self._change_view(identifier, view), ignore_if_missing)

    def _require_view(self, identifier: str) -> None:
        self.view(identifier)

    # of catalogs with views; False: something of the name exists
    def _make_view(self, identifier: str, view: View) -> bool:
        raise NotImplementedError

    def _remove_view(self, identifier: str) -> None:
        raise NotImplementedError

    def _move_view(self, old: str, new: str) -> bool:
        raise NotImplementedError

    def _change_view(self, identifier: str, view: View) -> None:
        raise NotImplementedError

    def _unsupported(self, what: str, **context: str) -> UnsupportedFeatureError:
        return UnsupportedFeatureError(
            f"this kind of catalog has no {what}",
            hint="use a catalog with `metastore` = `jdbc`, `hive` or `rest`",
            **context,
        )


def _unchanged(store: FileIO) -> FileIO:
    return store


def _may_miss(act: Callable[[], object], ignore_if_missing: bool) -> bool:
    """Whether something is missing.

    Raises:
        NotFoundError: it is missing, and that is not ignored.
    """
    try:
        act()
    except NotFoundError:
        if not ignore_if_missing:
            raise
        return True
    return False


def split_branch(name: str) -> tuple[str, str | None, list[str]]:
    """Table, branch and further parts (of which one names a system table) of `t$branch_b$files`."""
    base, *parts = name.split("$")
    mark = BRANCH_MARK.removeprefix("$")
    branch = parts.pop(0).removeprefix(mark) if parts and parts[0].startswith(mark) else None
    return base, branch, parts


def split_identifier(identifier: str) -> tuple[str, str]:
    """Names of the database and of the table of `database.table`.

    Raises:
        InvalidRequestError: the identifier is not of this form, or a name is not allowed.
    """
    database, dot, name = identifier.partition(".")
    if not dot:
        raise InvalidRequestError(
            "the table name has no database", hint="write it as `database.table`", table=identifier
        )
    check_name("database", database)
    check_name("table", name)
    return database, name


def check_name(what: str, name: str) -> None:
    """Check the name of a database or a table.

    Raises:
        InvalidRequestError: it is not allowed.
    """
    if refused := name_refused(what, name):
        hint = "names have no blanks at the ends and none of / \\ $ . : or control characters"
        raise InvalidRequestError(refused, hint=hint, name=name)


def names_of_databases(file_io: FileIO, warehouse: str) -> list[str]:
    """Names of the directories of a warehouse that are databases, sorted."""
    names = [
        status.name.removesuffix(DATABASE_SUFFIX)
        for status in file_io.list(warehouse)
        if status.directory and status.name.endswith(DATABASE_SUFFIX)
    ]
    return sorted(name for name in names if not name_refused("database", name))


# The filesystem catalog: databases and tables as directories of a warehouse.
#
# Source: FORMAT.md §12.1. A database is `<warehouse>/<name>.db`; a table is a directory in it that
# holds at least one schema file. Nothing else is recorded, so other engines see the same catalog;
# there are no views, no properties of databases and, without a store of names, no lock.


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
