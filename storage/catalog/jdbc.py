# SPDX-License-Identifier: Apache-2.0
"""The JDBC catalog: names of databases, tables and views in a relational database.

Source: FORMAT.md §12.2 and Paimon's `JdbcCatalog`, with which it shares its tables. The database
is SQLite, PostgreSQL, or MySQL and MariaDB, named by a `uri` as JDBC spells it. A row of
`paimon_tables` makes a table; its schema and data are files below `<warehouse>/<database>.db`.
"""

import contextlib
import functools
import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any
from urllib.parse import parse_qsl, urlsplit

import sqlalchemy as sa
from sqlalchemy.exc import DBAPIError, IntegrityError, OperationalError, ProgrammingError

from storage.catalog.catalog import Catalog, check_name, split_identifier
from storage.catalog.options import (
    LOCK_ENABLED,
    SYNC_ALL_PROPERTIES,
    URI,
    CatalogLock,
    LockedFileIO,
    flag,
    split_options,
    table_properties,
)
from storage.catalog.view import LOCATION, Database, View
from storage.errors import (
    AlreadyExistsError,
    InvalidOptionError,
    NotFoundError,
    StorageUnavailableError,
    UnsupportedFeatureError,
)
from storage.format.metadata.documents import dump_object
from storage.format.metadata.layout import MAIN_BRANCH
from storage.format.metadata.schema import TableSchema
from storage.format.metadata.schema_changes import SchemaChange
from storage.format.metadata.snapshot import Snapshot
from storage.io.file_io import FileIO
from storage.io.object_store_options import redacted_text
from storage.io.resolve import resolve_file_io
from storage.table.core import CatalogEnvironment

if TYPE_CHECKING:
    from storage.table.core import TableCore
    from storage.table.table import FileStoreTable

_CATALOG_KEY = "catalog-key"
_KEY_LENGTH = "lock-key-max-length"
_USER = "jdbc.user"
_PASSWORD = "jdbc.password"
_EXISTS = "exists"
"""Property that a database has a row of even without other properties."""

_DRIVERS = {
    "sqlite": "sqlite",
    "postgresql": "postgresql+psycopg",
    "mysql": "mysql+pymysql",
    "mariadb": "mysql+pymysql",
}
_URI_OPTIONS = {"postgresql": frozenset({"sslmode", "sslrootcert", "options"})}
_LOCK_WAIT_S = 30
"""How long a statement waits for another one's lock of an SQLite file."""

_VALUE_LENGTH = 1000
"""Longer values of table properties do not fit the catalog's table."""

_RENAMING = "lakeward.renaming-to"
"""Property of a table that is being renamed, until its row has moved: its new name."""

_DATA = sa.MetaData()


def _names(*columns: str) -> list[sa.Column[str]]:
    return [sa.Column(name, sa.String(255), primary_key=True) for name in columns]


_TABLES = sa.Table("paimon_tables", _DATA, *_names("catalog_key", "database_name", "table_name"))
_DATABASE_PROPERTIES = sa.Table(
    "paimon_database_properties",
    _DATA,
    *_names("catalog_key", "database_name", "property_key"),
    sa.Column("property_value", sa.String(_VALUE_LENGTH)),
)
_TABLE_PROPERTIES = sa.Table(
    "paimon_table_properties",
    _DATA,
    *_names("catalog_key", "database_name", "table_name", "property_key"),
    sa.Column("property_value", sa.String(_VALUE_LENGTH)),
    mysql_charset="utf8mb3",  # a key of four names would be too long in utf8mb4
)
_VIEWS = sa.Table(
    "paimon_views",
    _DATA,
    *_names("catalog_key", "database_name", "view_name"),
    sa.Column("view_schema", sa.Text, nullable=False),
)


def _locks(length: int) -> sa.Table:
    return sa.Table(
        "paimon_distributed_locks",
        sa.MetaData(),
        sa.Column("lock_id", sa.String(length), primary_key=True),
        sa.Column(
            "acquired_at", sa.TIMESTAMP, server_default=sa.func.current_timestamp(), nullable=False
        ),
        sa.Column("expire_time_seconds", sa.BigInteger, server_default="0", nullable=False),
    )


_AGE_OF_LOCK = {
    "sqlite": "strftime('%s', 'now') - strftime('%s', acquired_at)",
    "postgresql": "extract(epoch from localtimestamp - acquired_at)",
    "mysql": "timestampdiff(second, acquired_at, now())",
}


class _Connection:
    """The relational database of a catalog; one per process and options."""

    def __init__(self, uri: str, user: str, password: str) -> None:
        self.url = _url(uri, user, password)
        local = {"timeout": _LOCK_WAIT_S} if self.url.drivername == "sqlite" else {}
        self.engine = sa.create_engine(self.url, pool_pre_ping=True, connect_args=local)

    @contextlib.contextmanager
    def begin(self) -> Iterator[sa.Connection]:
        """A transaction.

        Raises:
            StorageUnavailableError: the database does not answer.
        """
        try:
            with self.engine.begin() as connection:
                yield connection
        except IntegrityError:
            raise
        except DBAPIError as error:
            raise StorageUnavailableError(
                "the catalog's database failed",
                detail=str(error.orig),
                hint="check `uri`, `jdbc.user` and `jdbc.password`, and that the database runs",
                database=self.url.render_as_string(hide_password=True),
            ) from error

    def make(self, tables: Sequence[sa.Table]) -> None:
        """Create missing tables."""
        with self.begin() as connection:
            names = set(sa.inspect(connection).get_table_names())
        for table in tables:
            if table.name in names:
                continue
            try:
                with self.engine.begin() as connection:
                    table.create(connection)
            except (OperationalError, ProgrammingError, IntegrityError) as error:
                with self.begin() as connection:  # another process made it
                    if table.name not in sa.inspect(connection).get_table_names():
                        raise StorageUnavailableError(
                            "a catalog table cannot be created",
                            detail=str(error.orig),
                            hint="allow the user to create tables, or create it yourself",
                            table=table.name,
                        ) from error


def _connection(uri: str, user: str, password: str) -> _Connection:
    return _connection_of(os.getpid(), uri, user, password)  # sockets must not be shared by forks


@functools.lru_cache(maxsize=16)
def _connection_of(_process: int, uri: str, user: str, password: str) -> _Connection:
    return _Connection(uri, user, password)


def _url(uri: str, user: str, password: str) -> sa.URL:
    """The URL of SQLAlchemy for one of JDBC.

    Raises:
        InvalidOptionError: it is no URL of JDBC.
        UnsupportedFeatureError: there is no driver for it.
    """
    prefix, _, rest = uri.partition(":")
    kind = rest.partition(":")[0].lower()
    if prefix != "jdbc" or not kind:
        raise InvalidOptionError(
            "the address of the catalog's database is not a JDBC URL",
            hint="write `jdbc:sqlite:/path/file.db`, `jdbc:postgresql://host:5432/database` or "
            "`jdbc:mysql://host:3306/database`",
            key=URI,
            value=redacted_text(uri),
        )
    if kind not in _DRIVERS:
        raise UnsupportedFeatureError(
            "there is no driver for this kind of database",
            hint="use sqlite, postgresql, mysql or mariadb",
            option=URI,
            value=kind,
        )
    if kind == "sqlite":
        path = rest.partition(":")[2].removeprefix("file:").partition("?")[0]
        if not path or path == ":memory:":
            raise InvalidOptionError(
                "an in-memory catalog would be lost with its process",
                hint="write jdbc:sqlite:/path/to/file.db",
                key=URI,
            )
        return sa.URL.create("sqlite", database=path)
    parts = urlsplit(rest)
    query = dict(parse_qsl(parts.query))
    user = user or query.pop("user", "")
    password = password or query.pop("password", "")
    unknown = sorted(set(query) - _URI_OPTIONS.get(kind, frozenset()))
    if unknown:
        raise InvalidOptionError(
            "this JDBC URL parameter is not supported", hint="remove it", parameter=unknown[0]
        )
    try:
        port = parts.port
    except ValueError as error:
        raise InvalidOptionError(
            "the port of a JDBC URL is not a number",
            hint=f"write jdbc:{kind}://host:port/database",
            key=URI,
        ) from error
    return sa.URL.create(
        _DRIVERS[kind],
        username=user or None,
        password=password or None,
        host=parts.hostname,
        port=port,
        database=parts.path.strip("/") or None,
        query=query,
    )


class JdbcLock(CatalogLock):
    """A row of `paimon_distributed_locks`, as Paimon's `JdbcCatalogLock` takes it.

    Args:
        name: of the lock, `catalog-key.database.table`.
        options: of the catalog.
    """

    def __init__(self, name: str, options: Mapping[str, str]) -> None:
        super().__init__(name, options)
        self._address = _address(options)
        self._length = _key_length(options)

    def acquire(self) -> str | None:
        """See `CatalogLock`."""
        database = _connection(*self._address)
        locks = _locks(self._length)
        age: sa.ColumnElement[int] = sa.literal_column(_AGE_OF_LOCK[database.engine.dialect.name])
        with database.begin() as connection:
            connection.execute(
                sa.delete(locks).where(
                    locks.c.lock_id == self.name, age > locks.c.expire_time_seconds
                )
            )
        row = {"lock_id": self.name, "expire_time_seconds": self.timeout_ms // 1000}
        try:
            with database.begin() as connection:
                connection.execute(sa.insert(locks).values(row))
        except IntegrityError:
            return None
        return self.name

    def release(self, token: str) -> None:
        """See `CatalogLock`."""
        locks = _locks(self._length)
        with _connection(*self._address).begin() as connection:
            connection.execute(sa.delete(locks).where(locks.c.lock_id == token))


class _JdbcEnvironment(CatalogEnvironment):
    """Keeps `paimon_table_properties` up to date."""

    def __init__(self, catalog: "JdbcCatalog", identifier: str) -> None:
        self._catalog = catalog
        self._identifier = identifier

    def alter(self, table: "FileStoreTable", changes: Sequence[SchemaChange]) -> "FileStoreTable":
        """See `CatalogEnvironment`."""
        altered = table.alter_files(changes)
        self._catalog.sync_properties(self._identifier)
        return altered

    def published(self, table: "TableCore", snapshot: Snapshot) -> None:
        """See `CatalogEnvironment`; nothing to do."""


class JdbcCatalog(Catalog):
    """See the module. Made by `Catalog.open`; picklable."""

    keeps_views = True

    def __init__(self, file_io: FileIO, warehouse: str, options: Mapping[str, str]) -> None:
        super().__init__(file_io, warehouse, options)
        self._key = options.get(_CATALOG_KEY, "jdbc")
        self._address = _address(options)
        self._locked = flag(options, LOCK_ENABLED, file_io.distant)
        self._syncs = flag(options, SYNC_ALL_PROPERTIES, True)
        locks = [_locks(_key_length(options))] if self._locked else []
        self._database.make([*_DATA.sorted_tables, *locks])

    @property
    def _database(self) -> _Connection:
        return _connection(*self._address)

    @classmethod
    def of(cls, warehouse: str, options: Mapping[str, str]) -> "JdbcCatalog":
        """See `Catalog.open`."""
        keys = (URI, _CATALOG_KEY, _KEY_LENGTH, _USER, _PASSWORD, SYNC_ALL_PROPERTIES)
        settings, store = split_options(options, keys)
        file_io, root = resolve_file_io(warehouse, store)
        return cls(file_io, root, {**settings, **store})

    # ---- databases

    def _make_database(self, name: str, properties: dict[str, str]) -> bool:
        location = self.database_path(name)
        if properties.get(LOCATION, location).rstrip("/") != location:
            raise UnsupportedFeatureError(
                "tables of a JDBC catalog are stored in its warehouse",
                hint="remove the property `location`",
                database=name,
            )
        rows = {_EXISTS: "true", LOCATION: location, **properties}
        if not self._is_database(name):
            with contextlib.suppress(IntegrityError), self._database.begin() as connection:
                self._insert_properties(connection, name, rows)
                return True
        return False

    def list_databases(self) -> list[str]:
        """See `Catalog`."""
        with self._database.begin() as connection:
            return sorted(
                {
                    name
                    for table in (_TABLES, _DATABASE_PROPERTIES, _VIEWS)
                    for name in connection.scalars(
                        sa.select(table.c.database_name)
                        .where(table.c.catalog_key == self._key)
                        .distinct()
                    )
                }
            )

    def database(self, name: str) -> Database:
        """See `Catalog`."""
        if not self._is_database(name):
            raise NotFoundError("there is no such database", database=name)
        properties = {LOCATION: self.database_path(name), **self._properties(name)}
        properties.pop(_EXISTS, None)
        return Database.of(name, properties)

    def _change_database(self, name: str, changes: Mapping[str, str | None]) -> None:
        for key in (LOCATION, _EXISTS):
            if key in changes:
                raise UnsupportedFeatureError(
                    "this property of a database cannot be changed", database=name, property=key
                )
        table = _DATABASE_PROPERTIES
        with self._database.begin() as connection:
            of_database = _equals(table, self._key, name)
            connection.execute(
                sa.delete(table).where(*of_database, table.c.property_key.in_(list(changes)))
            )
            rows = {key: value for key, value in changes.items() if value is not None}
            self._insert_properties(connection, name, rows)

    def _remove_database(self, name: str) -> None:
        with self._database.begin() as connection:
            for table in (_TABLES, _DATABASE_PROPERTIES, _TABLE_PROPERTIES, _VIEWS):
                connection.execute(sa.delete(table).where(*_equals(table, self._key, name)))
        self.file_io.prune(self.database_path(name))

    def _is_database(self, name: str) -> bool:
        check_name("database", name)
        with self._database.begin() as connection:
            return any(
                connection.scalar(
                    sa.select(sa.literal(1)).where(*_equals(table, self._key, name)).limit(1)
                )
                for table in (_DATABASE_PROPERTIES, _TABLES, _VIEWS)
            )

    def _properties(self, name: str) -> dict[str, str]:
        table = _DATABASE_PROPERTIES
        query = sa.select(table.c.property_key, table.c.property_value)
        with self._database.begin() as connection:
            rows = connection.execute(query.where(*_equals(table, self._key, name)))
            return {key: value or "" for key, value in rows}

    def _insert_properties(
        self, connection: sa.Connection, name: str, rows: Mapping[str, str]
    ) -> None:
        place = {"catalog_key": self._key, "database_name": name}
        _insert_texts(connection, _DATABASE_PROPERTIES, place, rows)

    # ---- tables

    def list_tables(self, database: str) -> list[str]:
        """See `Catalog`."""
        return self._listed(_TABLES.c.table_name, database)

    def exists(self, identifier: str) -> bool:
        """See `Catalog`; a rename that was interrupted is undone first."""
        if not self._has(_TABLES, identifier):
            return False
        new = self._renaming_to(identifier)
        if new is None:
            return True
        self._undo_rename(identifier, new)
        return self._has(_TABLES, identifier)

    def file_io_of(self, identifier: str) -> FileIO:
        """See `Catalog`: with `lock.enabled`, publications happen under the table's lock."""
        if not self._locked:
            return self.file_io
        database, name = split_identifier(identifier)
        lock = JdbcLock(f"{self._key}.{database}.{name}", self.options)
        return LockedFileIO(self.file_io, lock)

    def sync_properties(self, identifier: str) -> None:
        """Write the options, keys and comment of a table where other engines look them up.

        The row of the table is locked meanwhile, so of concurrent calls the last one has read the
        newest schema.
        """
        place = self._key_values(_TABLE_PROPERTIES, identifier)
        row = _equals(_TABLES, *place.values())
        table = _TABLE_PROPERTIES
        with self._database.begin() as connection:
            connection.execute(sa.update(_TABLES).where(*row).values(place))
            schema = self.schemas(identifier).latest()
            texts = {} if schema is None else table_properties(schema)
            rows = {key: text for key, text in texts.items() if len(text) <= _VALUE_LENGTH}
            connection.execute(sa.delete(table).where(*_equals(table, *place.values())))
            _insert_texts(connection, table, place, rows)

    def _environment(self, identifier: str, branch: str) -> CatalogEnvironment | None:
        syncs = self._syncs and branch == MAIN_BRANCH
        return _JdbcEnvironment(self, identifier) if syncs else None

    def _check_free(self, identifier: str) -> None:
        database, _ = split_identifier(identifier)
        if not self._is_database(database):
            raise NotFoundError(
                "there is no such database", hint="create it first", database=database
            )
        if self._has(_VIEWS, identifier):
            raise AlreadyExistsError("a view of this name exists", view=identifier)
        for old in self._renamed_from(identifier):
            self._undo_rename(old, identifier)

    def _register(self, identifier: str, schema: TableSchema) -> None:
        with contextlib.suppress(IntegrityError), self._database.begin() as connection:
            connection.execute(sa.insert(_TABLES).values(self._key_values(_TABLES, identifier)))
        if self._syncs:
            self.sync_properties(identifier)

    def _unregister(self, identifier: str) -> None:
        with self._database.begin() as connection:
            for table in (_TABLES, _TABLE_PROPERTIES):
                place = self._key_values(table, identifier).values()
                connection.execute(sa.delete(table).where(*_equals(table, *place)))

    def _move(self, old: str, new: str, move_files: Callable[[], None]) -> None:
        """See `Catalog`: the files move inside the transaction that moves the rows.

        A note is committed before that. If the process dies after the files have moved, and before
        the rows have, the next access to either name, by any process, moves the files back.
        """
        self._note_rename(old, new)
        try:
            with self._database.begin() as connection:
                connection.execute(sa.delete(_TABLE_PROPERTIES).where(*self._note(old)))
                for table in (_TABLES, _TABLE_PROPERTIES):
                    place = self._key_values(table, old).values()
                    update = sa.update(table).where(*_equals(table, *place))
                    connection.execute(update.values(self._key_values(table, new)))
                move_files()
        except BaseException as error:
            self._undo_rename(old, new)
            with self._database.begin() as connection:
                connection.execute(sa.delete(_TABLE_PROPERTIES).where(*self._note(old)))
            if isinstance(error, IntegrityError):
                raise FileExistsError(new) from error
            raise

    def _note(self, identifier: str) -> list[Any]:
        """The condition on the row of properties that holds the new name of a table."""
        place = self._key_values(_TABLE_PROPERTIES, identifier).values()
        return [*_equals(_TABLE_PROPERTIES, *place), _TABLE_PROPERTIES.c.property_key == _RENAMING]

    def _note_rename(self, old: str, new: str) -> None:
        place = self._key_values(_TABLE_PROPERTIES, old)
        with self._database.begin() as connection:
            connection.execute(sa.delete(_TABLE_PROPERTIES).where(*self._note(old)))
            _insert_texts(connection, _TABLE_PROPERTIES, place, {_RENAMING: new})

    def _renaming_to(self, identifier: str) -> str | None:
        query = sa.select(_TABLE_PROPERTIES.c.property_value).where(*self._note(identifier))
        with self._database.begin() as connection:
            target: str | None = connection.scalar(query)
            return target

    def _renamed_from(self, identifier: str) -> list[str]:
        """Tables that are being renamed to this name."""
        table = _TABLE_PROPERTIES
        query = sa.select(table.c.database_name, table.c.table_name).where(
            table.c.catalog_key == self._key,
            table.c.property_key == _RENAMING,
            table.c.property_value == identifier,
        )
        with self._database.begin() as connection:
            return [f"{database}.{name}" for database, name in connection.execute(query)]

    def _undo_rename(self, old: str, new: str) -> None:
        """Move the files of a table back to the location of its row, which has not moved.

        The row of the note is locked, so a rename in progress ends first.
        """
        with self._database.begin() as connection:
            note = sa.update(_TABLE_PROPERTIES).where(*self._note(old))
            if not connection.execute(note.values(property_value=new)).rowcount:
                return
            condition = _equals(_TABLES, *self._key_values(_TABLES, new).values())
            row = connection.scalar(sa.select(sa.literal(1)).where(*condition))
            moved = not self.schemas(old).ids() and bool(self.schemas(new).ids())
            if moved and not row:
                self.file_io.rename_directory(self.table_path(new), self.table_path(old))
                connection.execute(sa.delete(_TABLE_PROPERTIES).where(*self._note(old)))

    def _location(self, identifier: str) -> str:
        path = self.table_path(identifier)
        if not self.exists(identifier):
            raise NotFoundError("the table is not in the catalog", table=identifier)
        return path

    def repair_table(self, identifier: str) -> None:
        """See `Catalog`."""
        schema = self.schemas(identifier).latest()
        if schema is None:
            raise NotFoundError(
                "no table files found", table=identifier, path=self.table_path(identifier)
            )
        self.create_database(split_identifier(identifier)[0], ignore_if_exists=True)
        self._register(identifier, schema)

    # ---- views

    def _make_view(self, identifier: str, view: View) -> bool:
        row = {**self._key_values(_VIEWS, identifier), "view_schema": _view_text(view)}
        try:
            with self._database.begin() as connection:
                connection.execute(sa.insert(_VIEWS).values(row))
        except IntegrityError:
            return False
        return True

    def view(self, identifier: str) -> View:
        """See `Catalog`."""
        place = self._key_values(_VIEWS, identifier).values()
        with self._database.begin() as connection:
            text = connection.scalar(
                sa.select(_VIEWS.c.view_schema).where(*_equals(_VIEWS, *place))
            )
        if text is None:
            raise NotFoundError("there is no such view", view=identifier)
        return View.from_json(text.encode(), identifier)

    def list_views(self, database: str) -> list[str]:
        """See `Catalog`."""
        return self._listed(_VIEWS.c.view_name, database)

    def _remove_view(self, identifier: str) -> None:
        self._execute_on_view(sa.delete(_VIEWS), identifier)

    def _move_view(self, old: str, new: str) -> bool:
        try:
            self._execute_on_view(sa.update(_VIEWS).values(self._key_values(_VIEWS, new)), old)
        except IntegrityError:
            return False
        return True

    def _change_view(self, identifier: str, view: View) -> None:
        self._execute_on_view(sa.update(_VIEWS).values(view_schema=_view_text(view)), identifier)

    def _execute_on_view(self, statement: sa.Delete | sa.Update, identifier: str) -> None:
        where = _equals(_VIEWS, *self._key_values(_VIEWS, identifier).values())
        with self._database.begin() as connection:
            if not connection.execute(statement.where(*where)).rowcount:
                raise NotFoundError("there is no such view", view=identifier)

    # ---- rows

    def _key_values(self, table: sa.Table, identifier: str) -> dict[str, str]:
        """The columns that name a table or a view, in the order of the key."""
        database, name = split_identifier(identifier)
        column = "view_name" if table is _VIEWS else "table_name"
        return {"catalog_key": self._key, "database_name": database, column: name}

    def _has(self, table: sa.Table, identifier: str) -> bool:
        place = self._key_values(table, identifier).values()
        with self._database.begin() as connection:
            query = sa.select(sa.literal(1)).where(*_equals(table, *place))
            return connection.scalar(query) is not None

    def _listed(self, column: sa.Column[Any], database: str) -> list[str]:
        check_name("database", database)
        query = sa.select(column).where(*_equals(column.table, self._key, database))
        with self._database.begin() as connection:
            return sorted(connection.scalars(query))


def _equals(table: sa.FromClause, *values: str) -> list[sa.ColumnElement[bool]]:
    """Conditions that the first columns of a table equal values."""
    return [column == value for column, value in zip(table.columns, values, strict=False)]


def _insert_texts(
    connection: sa.Connection, table: sa.Table, place: Mapping[str, str], rows: Mapping[str, str]
) -> None:
    if rows:
        connection.execute(
            sa.insert(table),
            [
                {**place, "property_key": key, "property_value": value}
                for key, value in rows.items()
            ],
        )


def _view_text(view: View) -> str:
    return dump_object(view.to_json()).decode()


def _address(options: Mapping[str, str]) -> tuple[str, str, str]:
    uri = options.get(URI, "").strip()
    if not uri:
        raise InvalidOptionError(
            "a JDBC catalog needs the address of its database",
            hint="set it to jdbc:postgresql://host:5432/database, for example",
            key=URI,
        )
    return uri, options.get(_USER, ""), options.get(_PASSWORD, "")


def _key_length(options: Mapping[str, str]) -> int:
    text = options.get(_KEY_LENGTH, "255")
    if not text.isdecimal() or not int(text):
        raise InvalidOptionError("option is not a number above zero", key=_KEY_LENGTH, value=text)
    return int(text)
