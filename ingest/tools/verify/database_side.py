# SPDX-License-Identifier: Apache-2.0
"""A table of a source database as a side of a comparison.

Where the key is the table's primary key and its values compare as parameters as they do in ORDER BY
(`source_types.Way.pages`), rows are read in pages by keyset: each page asks for what comes after
the last key of the one before, in the database's own order, so no statement runs long and nothing
is held open. Else one streamed SELECT gives all rows. The order is used for nothing else.
"""

import dataclasses
import datetime
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import pyarrow as pa
import sqlalchemy
from sqlalchemy import Connection

from ingest.tools.verify.database import Database, SourceTable, escaped
from ingest.tools.verify.fitting import fit
from ingest.tools.verify.forms import canonical
from ingest.tools.verify.ranges import Part
from ingest.tools.verify.rows import ANY_NUMBER, Columns, Compared, Odd, Rows
from ingest.tools.verify.source_types import Way
from storage.errors import InternalError
from storage.format.types.types import AtomicType, TypeRoot

__all__ = ["DatabaseSide", "KeyBounds"]

_LOOKED_UP = 1_000
_LOOKED_UP_SQLITE = 200
"""Keys of one SELECT: databases limit parameters, SQLite's old ones to 999."""

_ROWS_IN = ("postgresql", "mysql", "mariadb")
"""Databases that know `(a, b) IN ((1, 2), …)`."""

_FIRST_ROWS = 1_000
_PAGE_BYTES = 32 << 20
"""Size of a page in Arrow [bytes]; as Python objects it is about three times as large."""

_ROW_VALUES = ("postgresql", "sqlite")
"""Databases that use an index for `(a, b) > (1, 2)`; others do for the same written out."""

_INTEGERS = (TypeRoot.TINYINT, TypeRoot.SMALLINT, TypeRoot.INT, TypeRoot.BIGINT)
_PAGED = ("postgresql", "sqlite", "mysql", "mariadb")


@dataclasses.dataclass(frozen=True, slots=True)
class KeyBounds:
    """Rows whose first key column is between two values, both included; None = no bound."""

    low: str | None = None
    high: str | None = None


@dataclasses.dataclass(frozen=True, slots=True)
class _Query:
    where: tuple[str, ...]
    values: Mapping[str, Any]


class _PageSize:
    """How many rows to ask for: few at first, then as many as fit into `_PAGE_BYTES`.

    Args:
        most: rows at most.
    """

    def __init__(self, most: int) -> None:
        self._most = most
        self.rows = min(most, _FIRST_ROWS)

    def seen(self, batch: pa.RecordBatch) -> None:
        """Take in what a page was."""
        per_row = batch.nbytes / max(1, batch.num_rows)
        self.rows = max(1, min(self._most, int(_PAGE_BYTES / max(1.0, per_row))))


class DatabaseSide:
    """See the module.

    Args:
        database: where the table is.
        table: the table.
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
        self._ways = [ways[each.name] for each in columns.all]
        quote = database.engine.dialect.identifier_preparer.quote_identifier
        self._quoted = [escaped(quote(each.source)) for each in columns.all]
        self._keys = self._quoted[: len(columns.keys)]
        self._page_rows = page_rows
        self._fixed = self._fixed_query(where, bounds or KeyBounds())
        key_names = frozenset(each.source for each in columns.keys)
        unique = any(each and each <= key_names for each in table.unique)
        key_ways = self._ways[: len(columns.keys)]
        self.paged = (
            columns.keyed
            and unique
            and database.dialect in _PAGED
            and all(way.pages for way in key_ways)
        )
        self.ordered = columns.keyed and key_ways[0].whole
        self._looked_up = (
            columns.keyed
            and all(way.pages for way in key_ways)
            and (database.dialect != "sqlite" or all(map(_one_way_to_write, columns.keys)))
        )

    @property
    def label(self) -> str:
        """See `Side`."""
        return f"{self._table.name} of {self._database.url.shown}"

    def keys_at_once(self, total: int) -> int:
        """See `Side`."""
        del total
        if not self._looked_up:
            return ANY_NUMBER
        return _LOOKED_UP_SQLITE if self._database.dialect == "sqlite" else _LOOKED_UP

    def _fixed_query(self, where: str | None, bounds: KeyBounds) -> _Query:
        conditions = [] if where is None else [f"({escaped(where)})"]
        values: dict[str, Any] = {}
        for name, mark, bound in (("low", ">=", bounds.low), ("high", "<=", bounds.high)):
            if bound is not None:
                conditions.append(f"{self._keys[0]} {mark} :bound_{name}")
                values[f"bound_{name}"] = _bound(bound)
        return _Query(tuple(conditions), values)

    def batches(self, part: Part | None = None) -> Iterator[Rows]:
        """See `Side`."""
        queries = [_Query((), {})] if part is None else self._intervals(part)
        with self._database.connected(streaming=not self.paged) as connection:
            for query in queries:
                yield from (
                    self._pages(connection, query)
                    if self.paged
                    else self._streamed(connection, query)
                )

    def _intervals(self, part: Part) -> list[_Query]:
        queries: list[_Query] = []
        for low, high in part.intervals:
            where: list[str] = []
            values: dict[str, Any] = {}
            if low is not None:
                where.append(f"{self._keys[0]} > :range_low")
                values["range_low"] = low
            if high is not None:
                where.append(f"{self._keys[0]} <= :range_high")
                values["range_high"] = high
            queries.append(_Query(tuple(where), values))
        return queries

    def _select(self, conditions: Sequence[str], tail: str = "") -> Any:
        wanted = ", ".join(
            way.expression.format(name) + f" AS c{place}"
            for place, (way, name) in enumerate(zip(self._ways, self._quoted, strict=True))
        )
        every = [*self._fixed.where, *conditions]
        where = f" WHERE {' AND '.join(every)}" if every else ""
        return sqlalchemy.text(f"SELECT {wanted} FROM {escaped(self._table.quoted)}{where}{tail}")

    def _streamed(self, connection: Connection, query: _Query) -> Iterator[Rows]:
        values = {**self._fixed.values, **query.values}
        with self._database.errors():
            result = connection.execute(
                self._select(query.where),
                values,
                execution_options={"max_row_buffer": self._page_rows},
            )
        size = _PageSize(self._page_rows)
        while True:
            with self._database.errors():
                # of the result, not of its cursor: SQLAlchemy has taken the first rows already
                rows = result.fetchmany(size.rows)
            if not rows:
                return
            made = self._rows(rows)
            size.seen(made.batch)
            yield made

    def _fetched(
        self, connection: Connection, query: Any, values: Mapping[str, Any]
    ) -> Sequence[tuple[Any, ...]]:
        """All rows, as the driver makes them: SQLAlchemy's rows cost as much again."""
        with self._database.errors():
            result = connection.execute(query, values)
            rows: Sequence[tuple[Any, ...]] = result.cursor.fetchall()
            result.close()
        return rows

    def _pages(self, connection: Connection, query: _Query) -> Iterator[Rows]:
        order = f" ORDER BY {', '.join(self._keys)} LIMIT "
        size = _PageSize(self._page_rows)
        after, last = self._after()
        values = {**self._fixed.values, **query.values}
        where = list(query.where)
        while True:
            asked = size.rows
            rows = self._fetched(connection, self._select(where, f"{order}{asked}"), values)
            if rows:
                made = self._rows(rows)
                size.seen(made.batch)
                yield made
            if len(rows) < asked:
                return
            found = dict(zip(last, rows[-1], strict=False))
            if found.items() <= values.items():
                raise InternalError("the source gives the same page again", table=self._table.name)
            values |= found
            where = [*query.where, after]

    def _after(self) -> tuple[str, list[str]]:
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
        # the first condition is implied; with it an index can be entered
        return f"{self._keys[0]} >= {marks[0]} AND ({' OR '.join(ways)})", names

    def of_keys(self, keys: pa.RecordBatch) -> Iterator[Rows]:
        """See `Side`."""
        if not self._looked_up:
            yield from self.batches()
            return
        dialect = self._database.dialect
        columns = [
            [_parameter(value, dialect) for value in column.to_pylist()] for column in keys.columns
        ]
        condition, values = self._is_one_of(list(zip(*columns, strict=True)))
        values |= self._fixed.values
        with self._database.connected() as connection:
            found = self._fetched(connection, self._select([condition]), values)
        if found:
            yield self._rows(found)

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
            rows = ", ".join("(" + ", ".join(f":{name}" for name in each) + ")" for each in names)
            return f"({', '.join(self._keys)}) IN ({rows})", values
        parts = [
            " AND ".join(f"{key} = :{name}" for key, name in zip(self._keys, each, strict=True))
            for each in names
        ]
        return "(" + " OR ".join(f"({part})" for part in parts) + ")", values

    def _rows(self, rows: Sequence[Sequence[Any]]) -> Rows:
        arrays: list[pa.Array] = []
        odd: list[Odd] = []
        schema = self._columns.schema
        by_column = zip(*rows, strict=True)
        for place, (values, column, way) in enumerate(
            zip(by_column, self._columns.all, self._ways, strict=True)
        ):
            fitted = fit(values, column.type, schema.field(place).type, way.bits)
            arrays.append(canonical(fitted.column, column.form))
            odd += [Odd(row, column.name, text) for row, text in fitted.odd]
        return Rows(pa.RecordBatch.from_arrays(arrays, schema=schema), tuple(odd))


def _one_way_to_write(key: Compared) -> bool:
    """Whether SQLite, which knows no types, holds a value of the lake in one way only."""
    written = (*_INTEGERS, TypeRoot.VARCHAR, TypeRoot.CHAR, TypeRoot.VARBINARY, TypeRoot.BINARY)
    return isinstance(key.type, AtomicType) and key.type.root in written


def _bound(text: str) -> Any:
    return int(text) if text.lstrip("-").isdigit() else text


def _parameter(value: Any, dialect: str) -> Any:
    """A value of the lake as a driver takes it."""
    if isinstance(value, datetime.datetime) and value.tzinfo is not None:
        return value if dialect == "postgresql" else value.replace(tzinfo=None)
    return value
