# SPDX-License-Identifier: Apache-2.0
"""A source database through SQLAlchemy: connections, errors, columns of tables, and their rows.

SQLAlchemy and the drivers are optional packages (`lakeward[verify]`): `runs` imports this module
only when the source is a database. SQL is written as text, and values pass without SQLAlchemy's
types, so that they come as the driver returns them. Sessions are read-only, in UTC.

Where the key is the table's primary key and its values compare as parameters as they do in ORDER BY
(`source_types.Way.pages`), rows are read in pages by keyset: each page begins after the last key
of the one before, in the database's own order, so no statement runs long and no transaction stays
open. Otherwise one streamed SELECT reads all rows. The order is used for nothing else.
"""

import contextlib
import dataclasses
import datetime
import re
import warnings
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import pyarrow as pa
import sqlalchemy
import sqlalchemy.exc
from sqlalchemy import Connection, Engine

from ingest.errors import AccessDeniedError
from ingest.tools.verify.compare import ANY_NUMBER, Columns, Compared, Unfit, hashed
from ingest.tools.verify.fitting import SourceColumn, Way, canonical, fit
from ingest.tools.verify.source_url import SourceUrl
from storage.errors import (
    InternalError,
    InvalidRequestError,
    LakewardError,
    NotFoundError,
    RetryableError,
)
from storage.format.types.types import AtomicType, TypeRoot

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
        exact = [column for column in self.columns if column.name == name]
        loose = [column for column in self.columns if column.name.lower() == name.lower()]
        if exact:
            return exact[0]
        return loose[0] if len(loose) == 1 else None


def escaped(sql: str) -> str:
    """SQL in which no colon begins a parameter."""
    return sql.replace(":", r"\:")


class Database:
    """Connections to a source.

    Raises:
        InvalidRequestError: the driver is missing, or the URL is malformed.
        NotFoundError: it names a file that does not exist.
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
                source=url.label,
            ) from error
        except (sqlalchemy.exc.ArgumentError, ValueError) as error:
            raise InvalidRequestError(
                "the source is not a database URL",
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
                "the source database denied access", detail=message, source=self.url.label
            )
        if _MISSING.search(message):
            return NotFoundError("not found in the source", detail=message, source=self.url.label)
        driver = self.engine.dialect.loaded_dbapi
        refused = driver.OperationalError, driver.InterfaceError
        if isinstance(original, refused) and self.dialect != "sqlite":
            return RetryableError(
                "the source database does not answer", detail=message, source=self.url.label
            )
        return InvalidRequestError(
            "the source database refused a query", detail=message, source=self.url.label
        )

    def table(self, name: str) -> SourceTable:
        """Describe a table.

        Args:
            name: `schema.table` or `table`.

        Raises:
            NotFoundError: there is no such table.
        """
        schema, _, table = name.rpartition(".")
        prepare = self.engine.dialect.identifier_preparer.quote_identifier
        quoted = ".".join(prepare(part) for part in (schema, table) if part)
        with self.connected() as connection:
            columns = self._columns(connection, schema, table, quoted)
            if not columns:
                raise NotFoundError(
                    "the source has no such table",
                    hint="name it with --source-table schema.table",
                    table=name,
                    source=self.url.label,
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
                rows = sqlalchemy.inspect(connection).get_columns(table, schema)
            except sqlalchemy.exc.NoSuchTableError:
                return ()
        return tuple(SourceColumn(column["name"], str(column["type"]).lower()) for column in rows)

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
        """The end of the database's log; None where it is unknown."""
        for statement in _POSITIONS.get(self._flavour(), ()):
            try:
                with self.connected() as connection:
                    row = connection.exec_driver_sql(statement).first()
            except (InvalidRequestError, AccessDeniedError):
                continue
            if row is not None and row[0]:
                return ":".join(str(part) for part in row[:2])
        return None

    def is_replica(self) -> bool:
        """Whether the database follows another one, as far as the database reports."""
        statement = {
            "postgresql": "SELECT pg_is_in_recovery()",
            "mysql": "SELECT @@global.read_only",
            "mariadb": "SELECT @@global.read_only",
        }.get(self.dialect)
        if statement is None:
            return False
        with self.connected() as connection:
            row = connection.exec_driver_sql(statement).first()
        return row is not None and row[0] not in (0, "OFF", "0", False)

    def _flavour(self) -> str:
        maria = getattr(self.engine.dialect, "is_mariadb", False)
        return "mariadb" if maria else self.dialect

    def has_confirmed(self, slot: str, position: str) -> bool:
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
    """SQLite would create a missing file."""
    name = parsed.database or ""
    plain = parsed.get_backend_name() == "sqlite" and not name.startswith((":", "file:"))
    if plain and name and not Path(name).is_file():
        raise NotFoundError("there is no such database file", path=name)


def _connect_args(parsed: Any) -> dict[str, Any]:
    if parsed.get_backend_name() in ("postgresql", "mysql", "mariadb"):
        return {} if "connect_timeout" in parsed.query else {"connect_timeout": 10}
    return {}


# --- rows

_KEYS_PER_SELECT = 1_000
_SQLITE_KEYS = 200
"""Keys of one SELECT: databases limit parameters, SQLite's old ones to 999."""

_ROWS_IN = ("postgresql", "mysql", "mariadb")
"""Databases that know `(a, b) IN ((1, 2), …)`."""

_FIRST_ROWS = 1_000
_PAGE_BYTES = 32 << 20
"""Size of a page in Arrow [bytes]; as Python objects it is about three times as large."""

_ROW_VALUES = ("postgresql", "sqlite")
"""Databases that use an index for `(a, b) > (1, 2)`; others use one for the same written out."""

_INTEGERS = (TypeRoot.TINYINT, TypeRoot.SMALLINT, TypeRoot.INT, TypeRoot.BIGINT)
_PAGED = ("postgresql", "sqlite", "mysql", "mariadb")


@dataclasses.dataclass(frozen=True, slots=True)
class KeyBounds:
    """Rows whose first key column is between two values, both included; None = no bound."""

    low: str | None = None
    high: str | None = None


class _PageSize:
    """How many rows to select: few at first, then as many as fit into `_PAGE_BYTES`."""

    def __init__(self, most: int) -> None:
        self._max_rows = most
        self.rows = min(most, _FIRST_ROWS)

    def adapt(self, batch: pa.RecordBatch) -> None:
        """Follow the size of a page."""
        per_row = batch.nbytes / max(1, batch.num_rows)
        self.rows = max(1, min(self._max_rows, int(_PAGE_BYTES / max(1.0, per_row))))


class DatabaseSide:
    """See the module.

    Args:
        database: where the table is.
        columns: what is compared.
        ways: how each of the columns is read, by its name in the lake.
        where: SQL condition on rows; None = all count.
        bounds: of the first key column.
        page_rows: rows of a page at most, and of a batch.
    """

    def __init__(
        self,
        database: Database,
        table: SourceTable,
        columns: Columns,
        ways: Mapping[str, Way],
        *,
        where: str | None = None,
        bounds: KeyBounds | None = None,
        page_rows: int = 10_000,
    ) -> None:
        self._database = database
        self._table = table
        self._columns = columns
        self._ways = [ways[column.name] for column in columns.all]
        quote = database.engine.dialect.identifier_preparer.quote_identifier
        self._quoted = [escaped(quote(column.source)) for column in columns.all]
        self._keys = self._quoted[: len(columns.keys)]
        self._page_rows = page_rows
        self._fixed_where: list[str] = []
        self._fixed_values: dict[str, Any] = {}
        self._fix(where, bounds or KeyBounds())
        key_names = frozenset(column.source for column in columns.keys)
        unique = any(names and names <= key_names for names in table.unique)
        key_ways = self._ways[: len(columns.keys)]
        self.paged = (
            columns.keyed
            and unique
            and database.dialect in _PAGED
            and all(way.pages for way in key_ways)
        )
        self._looks_up = (
            columns.keyed
            and all(way.pages for way in key_ways)
            and (database.dialect != "sqlite" or all(map(_one_way_to_write, columns.keys)))
        )

    @property
    def label(self) -> str:
        """See `Side`."""
        return f"{self._table.name} of {self._database.url.label}"

    def keys_at_once(self, total: int) -> int:
        """See `Side`."""
        del total
        if not self._looks_up:
            return ANY_NUMBER
        return _SQLITE_KEYS if self._database.dialect == "sqlite" else _KEYS_PER_SELECT

    def _fix(self, where: str | None, bounds: KeyBounds) -> None:
        """Set the conditions common to all queries."""
        if where is not None:
            self._fixed_where.append(f"({escaped(where)})")
        for name, mark, bound in (("low", ">=", bounds.low), ("high", "<=", bounds.high)):
            if bound is not None:
                self._fixed_where.append(f"{self._keys[0]} {mark} :bound_{name}")
                self._fixed_values[f"bound_{name}"] = _bound(bound)

    def batches(self) -> Iterator[pa.RecordBatch]:
        """See `Side`."""
        with self._database.connected(streaming=not self.paged) as connection:
            yield from self._pages(connection) if self.paged else self._streamed(connection)

    def _select(self, conditions: Sequence[str], tail: str = "") -> Any:
        columns = ", ".join(
            way.expression.format(name) + f" AS c{place}"
            for place, (way, name) in enumerate(zip(self._ways, self._quoted, strict=True))
        )
        clauses = [*self._fixed_where, *conditions]
        where = f" WHERE {' AND '.join(clauses)}" if clauses else ""
        return sqlalchemy.text(f"SELECT {columns} FROM {escaped(self._table.quoted)}{where}{tail}")

    def _streamed(self, connection: Connection) -> Iterator[pa.RecordBatch]:
        with self._database.errors():
            result = connection.execute(
                self._select(()),
                self._fixed_values,
                execution_options={"max_row_buffer": self._page_rows},
            )
        size = _PageSize(self._page_rows)
        while True:
            with self._database.errors():
                # of the result, not of its cursor: SQLAlchemy has taken the first rows already
                rows = result.fetchmany(size.rows)
            if not rows:
                return
            batch = self._rows(rows)
            size.adapt(batch)
            yield batch

    def _fetched(
        self, connection: Connection, query: Any, values: Mapping[str, Any]
    ) -> Sequence[tuple[Any, ...]]:
        """All rows, as the driver returns them: SQLAlchemy's rows double the cost."""
        with self._database.errors():
            result = connection.execute(query, values)
            rows: Sequence[tuple[Any, ...]] = result.cursor.fetchall()
            result.close()
        return rows

    def _pages(self, connection: Connection) -> Iterator[pa.RecordBatch]:
        order = f" ORDER BY {', '.join(self._keys)} LIMIT "
        size = _PageSize(self._page_rows)
        after, last = self._after_key()
        values = dict(self._fixed_values)
        where: list[str] = []
        while True:
            limit = size.rows
            rows = self._fetched(connection, self._select(where, f"{order}{limit}"), values)
            if rows:
                batch = self._rows(rows)
                size.adapt(batch)
                yield batch
            if len(rows) < limit:
                return
            key_values = dict(zip(last, rows[-1], strict=False))
            if key_values.items() <= values.items():
                raise InternalError(
                    "the source returned the same page again", table=self._table.name
                )
            values |= key_values
            where = [after]

    def _after_key(self) -> tuple[str, list[str]]:
        """The condition for what follows a key, and the names of its parameters."""
        names = [f"after_{place}" for place in range(len(self._keys))]
        marks = [f":{name}" for name in names]
        if len(names) == 1:
            return f"{self._keys[0]} > {marks[0]}", names
        if self._database.dialect in _ROW_VALUES:
            return f"({', '.join(self._keys)}) > ({', '.join(marks)})", names
        ways = []
        for place in range(len(names)):
            equal = [f"{self._keys[i]} = {marks[i]}" for i in range(place)]
            ways.append("(" + " AND ".join([*equal, f"{self._keys[place]} > {marks[place]}"]) + ")")
        # the first condition is implied; it lets the database use an index
        return f"{self._keys[0]} >= {marks[0]} AND ({' OR '.join(ways)})", names

    def of_keys(self, keys: pa.RecordBatch) -> Iterator[pa.RecordBatch]:
        """See `Side`."""
        if not self._looks_up:
            yield from self.batches()
            return
        dialect = self._database.dialect
        columns = [
            [_parameter(value, dialect) for value in column.to_pylist()] for column in keys.columns
        ]
        condition, values = self._is_one_of(list(zip(*columns, strict=True)))
        values |= self._fixed_values
        with self._database.connected() as connection:
            rows = self._fetched(connection, self._select([condition]), values)
        if rows:
            yield self._rows(rows)

    def _is_one_of(self, keys: Sequence[tuple[Any, ...]]) -> tuple[str, dict[str, Any]]:
        values: dict[str, Any] = {}
        if len(self._keys) == 1:
            values = {f"key_{place}": key for place, (key,) in enumerate(keys)}
            return f"{self._keys[0]} IN ({', '.join(f':{name}' for name in values)})", values
        names: list[list[str]] = []
        for row, key in enumerate(keys):
            names.append([f"key_{row}_{place}" for place in range(len(key))])
            values |= dict(zip(names[-1], key, strict=True))
        if self._database.dialect in _ROWS_IN:
            rows = ", ".join("(" + ", ".join(f":{name}" for name in group) + ")" for group in names)
            return f"({', '.join(self._keys)}) IN ({rows})", values
        parts = [
            " AND ".join(f"{key} = :{name}" for key, name in zip(self._keys, group, strict=True))
            for group in names
        ]
        return "(" + " OR ".join(f"({part})" for part in parts) + ")", values

    def _rows(self, rows: Sequence[Sequence[Any]]) -> pa.RecordBatch:
        arrays: list[pa.Array] = []
        unfit: list[Unfit] = []
        schema = self._columns.schema
        by_column = zip(*rows, strict=True)
        for index, (values, column, way) in enumerate(
            zip(by_column, self._columns.all, self._ways, strict=True)
        ):
            fitted = fit(values, column.type, schema.field(index).type, way.bits)
            arrays.append(canonical(fitted.column, column.form))
            unfit += [(row, column.name, text) for row, text in fitted.unfit]
        batch = pa.RecordBatch.from_arrays(arrays, schema=schema)
        return hashed(batch, self._columns, unfit)


def _one_way_to_write(key: Compared) -> bool:
    """Whether SQLite, which knows no types, stores a value of the lake in one way only."""
    written = (*_INTEGERS, TypeRoot.VARCHAR, TypeRoot.CHAR, TypeRoot.VARBINARY, TypeRoot.BINARY)
    return isinstance(key.type, AtomicType) and key.type.root in written


def _bound(text: str) -> Any:
    return int(text) if text.lstrip("-").isdigit() else text


def _parameter(value: Any, dialect: str) -> Any:
    """A value of the lake as a driver takes it."""
    if isinstance(value, datetime.datetime) and value.tzinfo is not None:
        return value if dialect == "postgresql" else value.replace(tzinfo=None)
    return value
