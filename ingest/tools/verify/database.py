# SPDX-License-Identifier: Apache-2.0
"""A source database through SQLAlchemy: connections, errors, what columns a table has.

SQLAlchemy and the drivers are optional packages (`lakeward[verify]`): `runs` imports this module
only when a database is asked for. SQL is written here and in `database_side` as text, and values
pass without SQLAlchemy's types, so that they come as the driver makes them. Sessions read only, in
UTC.
"""

import contextlib
import dataclasses
import re
import warnings
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import sqlalchemy
import sqlalchemy.exc
from sqlalchemy import Connection, Engine

from ingest.errors import AccessDeniedError
from ingest.tools.verify.source_types import SourceColumn
from ingest.tools.verify.source_url import SourceUrl
from storage.errors import (
    InvalidRequestError,
    LakewardError,
    NotFoundError,
    RetryableError,
)

__all__ = ["Database", "SourceTable", "escaped"]

_HINT = "pip install 'lakeward[verify]'"

_SESSION: Mapping[str, Sequence[str]] = {
    "postgresql": (
        "SET TIME ZONE 'UTC'",
        "SET DateStyle = 'ISO, YMD'",
        "SET bytea_output = 'hex'",
        "SET extra_float_digits = 1",
        "SET default_transaction_read_only = on",
    ),
    "mysql": ("SET time_zone = '+00:00'", "SET SESSION TRANSACTION READ ONLY"),
    "mariadb": ("SET time_zone = '+00:00'", "SET SESSION TRANSACTION READ ONLY"),
    "sqlite": ("PRAGMA query_only = ON",),
}

_DENIED_STATES = ("28000", "28P01", "42501")
_DENIED_NUMBERS = (1044, 1045, 1142, 1143)
_DENIED = re.compile(r"authentication failed|access denied|permission denied", re.IGNORECASE)
_MISSING = re.compile(r"no such table|does not exist|doesn't exist|unknown table", re.IGNORECASE)

_POSTGRES_COLUMNS = """
SELECT a.attname, format_type(COALESCE(NULLIF(t.typbasetype, 0), a.atttypid),
       CASE WHEN t.typbasetype = 0 THEN a.atttypmod ELSE t.typtypmod END)
FROM pg_attribute a JOIN pg_type t ON t.oid = a.atttypid
WHERE a.attrelid = to_regclass(:name) AND a.attnum > 0 AND NOT a.attisdropped
ORDER BY a.attnum"""

_MYSQL_COLUMNS = """
SELECT column_name, column_type FROM information_schema.columns
WHERE table_schema = COALESCE(:schema, DATABASE()) AND table_name = :table
ORDER BY ordinal_position"""

_POSITIONS: Mapping[str, Sequence[str]] = {
    "postgresql": (
        "SELECT CAST(CASE WHEN pg_is_in_recovery() THEN pg_last_wal_replay_lsn() "
        "ELSE pg_current_wal_lsn() END AS text)",
    ),
    "mariadb": ("SELECT @@global.gtid_binlog_pos",),
    "mysql": (
        "SELECT @@global.gtid_executed",
        "SHOW BINARY LOG STATUS",  # without GTIDs: file and place
        "SHOW MASTER STATUS",  # the same before MySQL 8.2
    ),
}


@dataclasses.dataclass(frozen=True, slots=True)
class SourceTable:
    """A table of the source.

    Attributes:
        name: `schema.table` or `table`, for reports.
        quoted: the same in SQL.
        columns: in order.
        unique: sets of columns that no two rows have in common; the primary key first.
    """

    name: str
    quoted: str
    columns: tuple[SourceColumn, ...]
    unique: tuple[frozenset[str], ...]

    def column(self, name: str) -> SourceColumn | None:
        """The column of this name; else the one whose name differs in case alone."""
        exact = [each for each in self.columns if each.name == name]
        loose = [each for each in self.columns if each.name.lower() == name.lower()]
        if exact:
            return exact[0]
        return loose[0] if len(loose) == 1 else None


def escaped(sql: str) -> str:
    """SQL in which no colon begins a parameter."""
    return sql.replace(":", r"\:")


class Database:
    """Connections to a source.

    Args:
        url: where.

    Raises:
        InvalidRequestError: the driver is missing, or the URL is none.
        NotFoundError: it names a file that is not there.
    """

    def __init__(self, url: SourceUrl) -> None:
        self.url = url
        try:
            parsed = sqlalchemy.make_url(url.text)
            _check_file(parsed)
            self.engine: Engine = sqlalchemy.create_engine(
                parsed, hide_parameters=True, connect_args=_connect_args(parsed)
            )
        except ImportError as error:
            raise InvalidRequestError(
                "the driver of this database is not installed",
                hint=_HINT,
                detail=url.cleared(str(error)),
                source=url.shown,
            ) from error
        except (sqlalchemy.exc.ArgumentError, ValueError) as error:
            raise InvalidRequestError(
                "the source is no URL of a database",
                hint="write it like postgresql+psycopg://user:${file:/run/pw}@host/database",
                detail=url.cleared(str(error).split("'", maxsplit=1)[0]),
            ) from None
        self.dialect = self.engine.dialect.name

    def close(self) -> None:
        """Close the connections."""
        self.engine.dispose()

    @contextlib.contextmanager
    def connected(self, *, streaming: bool = False) -> Iterator[Connection]:
        """A connection in a session that reads only, in UTC.

        Args:
            streaming: results are not kept by the driver; holds a transaction open.

        Raises:
            RetryableError: the database does not answer.
            AccessDeniedError: it refuses the user.
            InvalidRequestError: it does not understand the SQL.
        """
        with self.errors(), self.engine.connect() as connection:
            options: dict[str, Any] = {"stream_results": True} if streaming else {}
            for statement in _SESSION.get(self.dialect, ()):
                connection.exec_driver_sql(statement)
            connection.commit()
            if not streaming and self.dialect != "sqlite":
                options["isolation_level"] = "AUTOCOMMIT"
            if options:
                connection = connection.execution_options(**options)
            try:
                yield connection
            finally:
                connection.rollback()

    @contextlib.contextmanager
    def errors(self) -> Iterator[None]:
        """Errors of the driver as ours, without secrets."""
        raw = self.engine.dialect.loaded_dbapi.Error
        try:
            yield
        except (sqlalchemy.exc.SQLAlchemyError, raw) as error:
            raise self._translated(error) from None

    def _translated(self, error: Exception) -> LakewardError:
        original = getattr(error, "orig", None) or error
        message = self.url.cleared(str(original))
        state = getattr(original, "sqlstate", None)
        number = original.args[0] if original.args else None
        if state in _DENIED_STATES or number in _DENIED_NUMBERS or _DENIED.search(message):
            return AccessDeniedError(
                "the source database refused us", detail=message, source=self.url.shown
            )
        if _MISSING.search(message):
            return NotFoundError("not in the source", detail=message, source=self.url.shown)
        driver = self.engine.dialect.loaded_dbapi
        refused = driver.OperationalError, driver.InterfaceError
        if isinstance(original, refused) and self.dialect != "sqlite":
            return RetryableError(
                "the source database does not answer", detail=message, source=self.url.shown
            )
        return InvalidRequestError(
            "the source database refused a query", detail=message, source=self.url.shown
        )

    def table(self, name: str) -> SourceTable:
        """Look at a table.

        Args:
            name: `schema.table` or `table`.

        Raises:
            NotFoundError: there is no such table.
        """
        schema, _, table = name.rpartition(".")
        prepare = self.engine.dialect.identifier_preparer.quote_identifier
        quoted = ".".join(prepare(each) for each in (schema, table) if each)
        with self.connected() as connection:
            columns = self._columns(connection, schema, table, quoted)
            if not columns:
                raise NotFoundError(
                    "the source has no such table",
                    hint="name it with --source-table schema.table",
                    table=name,
                    source=self.url.shown,
                )
            unique = self._unique(connection, schema or None, table)
        return SourceTable(name, quoted, columns, unique)

    def _columns(
        self, connection: Connection, schema: str, table: str, quoted: str
    ) -> tuple[SourceColumn, ...]:
        if self.dialect == "postgresql":
            rows = connection.execute(sqlalchemy.text(_POSTGRES_COLUMNS), {"name": quoted})
        elif self.dialect in ("mysql", "mariadb"):
            names = {"schema": schema or None, "table": table}
            rows = connection.execute(sqlalchemy.text(_MYSQL_COLUMNS), names)
        else:
            return self._reflected(connection, schema or None, table)
        return tuple(SourceColumn(str(name), str(type_).lower()) for name, type_ in rows)

    def _reflected(
        self, connection: Connection, schema: str | None, table: str
    ) -> tuple[SourceColumn, ...]:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", sqlalchemy.exc.SAWarning)
            try:
                found = sqlalchemy.inspect(connection).get_columns(table, schema)
            except sqlalchemy.exc.NoSuchTableError:
                return ()
        return tuple(SourceColumn(each["name"], str(each["type"]).lower()) for each in found)

    def _unique(
        self, connection: Connection, schema: str | None, table: str
    ) -> tuple[frozenset[str], ...]:
        inspector = sqlalchemy.inspect(connection)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", sqlalchemy.exc.SAWarning)
            try:
                primary = inspector.get_pk_constraint(table, schema)
                return (frozenset(primary.get("constrained_columns") or ()),)
            except (NotImplementedError, sqlalchemy.exc.NoSuchTableError):
                return ()

    def position(self) -> str | None:
        """Where the database's log ends; None where it cannot say."""
        for statement in _POSITIONS.get(self._flavour(), ()):
            try:
                with self.connected() as connection:
                    row = connection.exec_driver_sql(statement).first()
            except (InvalidRequestError, AccessDeniedError):
                continue
            if row is not None and row[0]:
                return ":".join(str(part) for part in row[:2])
        return None

    def _flavour(self) -> str:
        maria = getattr(self.engine.dialect, "is_mariadb", False)
        return "mariadb" if maria else self.dialect

    def passed(self, slot: str, position: str) -> bool:
        """Whether a replication slot's reader has confirmed everything up to a position.

        Raises:
            NotFoundError: there is no such slot.
        """
        query = (
            "SELECT confirmed_flush_lsn >= CAST(:position AS pg_lsn) "
            "FROM pg_replication_slots WHERE slot_name = :slot"
        )
        with self.connected() as connection:
            values = {"position": position, "slot": slot}
            row = connection.execute(sqlalchemy.text(query), values).first()
        if row is None:
            raise NotFoundError("the source has no such replication slot", slot=slot)
        return bool(row[0])


def _check_file(parsed: Any) -> None:
    """SQLite would make a file that is not there."""
    name = parsed.database or ""
    plain = parsed.get_backend_name() == "sqlite" and not name.startswith((":", "file:"))
    if plain and name and not Path(name).is_file():
        raise NotFoundError("there is no such database file", path=name)


def _connect_args(parsed: Any) -> dict[str, Any]:
    if parsed.get_backend_name() in ("postgresql", "mysql", "mariadb"):
        return {} if "connect_timeout" in parsed.query else {"connect_timeout": 10}
    return {}
