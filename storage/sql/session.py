# SPDX-License-Identifier: Apache-2.0
"""A session: the current catalog and database, options, and the statements run in it.

    session = SqlSession(Catalog.open("/data/warehouse"))
    for result in session.execute("USE shop; SELECT count(*) FROM orders"):
        print(result.rows)

Queries run in DuckDB over scans of the tables (`storage.sql.query`); everything else is a call of a
method of catalog or table, which Python users call as well.
"""

import dataclasses
import importlib
from collections.abc import Iterator, Mapping
from typing import Any

import pyarrow as pa
from sqlglot import exp

from storage.catalog.catalog import DEFAULT_DATABASE, Catalog
from storage.errors import LakewardError, NotFoundError
from storage.sql import nodes
from storage.sql.dialect import Statement, statements
from storage.sql.errors import SqlError, locate, refuse, suggestion

DEFAULT_CATALOG = "paimon"


@dataclasses.dataclass(frozen=True, slots=True)
class Result:
    """The result of a statement.

    Attributes:
        rows: of queries, SHOW, DESCRIBE, EXPLAIN and CALL; else None.
        affected: rows that were written, deleted or changed; 0 of statements on metadata; None
            where there are `rows`.
    """

    rows: pa.Table | None = None
    affected: int | None = None


class SqlSession:
    """Runs statements, one after the other. Not thread-safe, except for `interrupt`.

    Attributes:
        catalogs: by name.
        catalog_name: the current one.
        database: the current one.
        options: of SET.
        relations: replacements of tables of a query, by name; "*": of every other table.
        temporary_views: by name, of CREATE TEMPORARY VIEW.
        rows_read: by queries, for progress displays, which reset it to 0.
    """

    def __init__(
        self, catalog: Catalog, database: str = DEFAULT_DATABASE, name: str = DEFAULT_CATALOG
    ) -> None:
        self.catalogs: dict[str, Catalog] = {name: catalog}
        self.catalog_name = name
        self.database = database
        self.options: dict[str, str] = {}
        self.rows_read = 0
        self.relations: Mapping[str, Any] = {}
        self.temporary_views: dict[str, Any] = {}
        self._running_statement: Any = None

    @property
    def catalog(self) -> Catalog:
        """The current catalog."""
        return self.catalogs[self.catalog_name]

    def execute(self, text: str) -> Iterator[Result]:
        """Run the statements of a text; each when its result is requested.

        Yields:
            One result per statement.

        Raises:
            SqlError: a statement cannot be parsed; those before it have run.
            LakewardError: of the catalog or the table; the context has line and column.
        """
        for statement in statements(text):
            yield self.run(statement)

    def last_rows(self, text: str) -> pa.Table:
        """Run statements; the result of the last one as rows, see `Catalog.sql`."""
        result = [Result(affected=0), *self.execute(text)][-1]
        if result.rows is not None:
            return result.rows
        return pa.table({"affected": pa.array([result.affected or 0], pa.int64())})

    def run(self, statement: Statement) -> Result:
        """Run one statement.

        Raises:
            LakewardError: as of `execute`.
        """
        node = statement.parse()
        try:
            return self.run_node(node)
        except LakewardError as error:
            raise locate(error, node) from error.__cause__
        except RecursionError as error:
            raise SqlError("the statement is nested too deeply", hint="write IN (…)") from error

    def is_query(self, statement: Statement) -> bool:
        """Whether a statement is a query, which `interrupt` cancels; errors are left to `run`."""
        try:
            return isinstance(statement.parse(), exp.Query | exp.Values)
        except LakewardError:
            return False

    def run_node(self, node: exp.Expression) -> Result:
        """Run a parsed statement.

        Raises:
            LakewardError: as of `execute`.
        """
        if isinstance(node, exp.Values):
            node = exp.select("*").from_(node)
        if isinstance(node, exp.Query):
            return Result(rows=self.query(node).read_all())
        for kind, (module, function) in _RUNNERS.items():
            if isinstance(node, kind):
                # a module is imported with its first statement, so that the console starts fast
                execute = getattr(importlib.import_module(f"storage.sql.{module}"), function)
                result = execute(self, node)
                if isinstance(result, pa.Table):
                    return Result(rows=result)
                return Result(affected=int(result or 0))
        return refuse("there is no such statement here", node, hint="put a SELECT before it")

    def query(self, node: exp.Query) -> pa.RecordBatchReader:
        """The rows of a query, batch by batch.

        Raises:
            SqlError: the query is wrong; names the place.
            LakewardError: as of reading the tables.
        """
        from storage.sql.query import run_query

        return run_query(self, node)

    def resolve(self, table: exp.Table) -> Any:
        """Resolve a name in a query, with the state that hints and time travel choose.

        Returns:
            A `FileStoreTable` (or another kind of table that the catalog has), a
            `relations.SystemTable`, `relations.CatalogTable`, or a `View`.

        Raises:
            NotFoundError: there is no such catalog, table, branch or system table.
            InvalidOptionError: options contradict each other.
        """
        from storage.sql.relations import resolve

        relation = self.relations.get(table.name, self.relations.get("*"))
        return resolve(self, table) if relation is None else relation

    def catalog_of(self, node: exp.Table) -> Catalog:
        """The catalog that a name includes, else the current one.

        Raises:
            NotFoundError: there is no such catalog.
        """
        if not node.catalog:
            return self.catalog
        try:
            return self.named_catalog(node.catalog)
        except NotFoundError as error:
            raise locate(error, node.args["catalog"]) from None

    def named_catalog(self, name: str) -> Catalog:
        """A catalog by its name.

        Raises:
            NotFoundError: there is none.
        """
        catalog = self.catalogs.get(name)
        if catalog is None:
            names = ", ".join(self.catalogs)
            hint = suggestion(
                name, self.catalogs, f"there are {names}; CREATE CATALOG makes others"
            )
            raise NotFoundError("there is no such catalog", hint=hint, catalog=name)
        return catalog

    def identifier(self, node: exp.Table) -> str:
        """`database.table` of a name; without a database it is the current one."""
        return f"{node.db or self.database}.{node.name}"

    def watch(self, statement: Any) -> None:
        """Set the connection that `interrupt` stops; None: nothing runs."""
        self._running_statement = statement

    def count_rows(self, rows: int) -> None:
        """Count rows that were read of a table."""
        self.rows_read += rows

    def interrupt(self) -> None:
        """Cancel the query that runs, from another thread."""
        statement = self._running_statement
        if statement is not None:
            statement.interrupt()


_RUNNERS: Mapping[type[exp.Expression], tuple[str, str]] = {
    exp.Insert: ("inserting", "insert"),
    exp.Delete: ("dml", "delete"),
    exp.Update: ("dml", "update"),
    exp.Merge: ("dml", "merge"),
    nodes.Truncate: ("dml", "truncate"),
    nodes.DropPartition: ("dml", "drop_partition"),
    nodes.CallProcedure: ("procedures", "call"),
    nodes.CreateCatalog: ("ddl", "create_catalog"),
    nodes.DropCatalog: ("ddl", "drop_catalog"),
    nodes.CreateDatabase: ("ddl", "create_database"),
    nodes.AlterDatabase: ("ddl", "alter_database"),
    nodes.DropDatabase: ("ddl", "drop_database"),
    nodes.CreateTable: ("ddl", "create_table"),
    nodes.AlterTable: ("ddl", "alter_table"),
    nodes.AlterTag: ("calls.versions", "alter_tag"),
    nodes.DropObject: ("ddl", "drop"),
    nodes.CreateView: ("ddl", "create_view"),
    nodes.AlterView: ("ddl", "alter_view"),
    nodes.AlterMaterializedTable: ("materialized", "alter"),
    nodes.Analyze: ("ddl", "analyze"),
    nodes.Refresh: ("show", "refresh"),
    nodes.Show: ("show", "show"),
    nodes.Describe: ("show", "describe"),
    nodes.Explain: ("show", "explain"),
    nodes.UseCatalog: ("show", "use_catalog"),
    nodes.UseDatabase: ("show", "use_database"),
    nodes.SetOption: ("show", "set_option"),
    nodes.ResetOption: ("show", "reset_option"),
}
"""Module and function by statement: `function(session, node)` returns rows (`pa.Table`), or how
many rows it changed (None: metadata alone)."""
