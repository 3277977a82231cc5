# SPDX-License-Identifier: Apache-2.0
"""SQL of cases, run by an `SqlSession`: `sql` steps, and checks that look by a statement.

Cases name their table as they like (`T`, `order_wide`); a case without a table makes its own, in
the database `mydb`.
"""

import pathlib
import re
from collections.abc import Mapping

import pyarrow as pa
from sqlglot import exp

from storage.catalog.catalog import Catalog, FileSystemCatalog
from storage.sql.nodes import OPTIONS
from storage.sql.session import Result, SqlSession
from tests.conformance.session import TableSession

__all__ = ["CaseStatements"]

_DATABASE = "mydb"
_NAMED_DATABASE = re.compile(r"\bTABLE\s+(\w+)\.\w+", re.IGNORECASE)
_SYSTEM = "sys"
_SOURCE = (
    "CREATE TABLE json_source"
    " (user_id BIGINT, order_created_at STRING, payment_amount_cents BIGINT)"
)
"""The table that the case of a materialized table reads."""


class CaseStatements:
    """Runs the statements of one case.

    Args:
        warehouse: of the case.
        table: of the case; None: it has none.
        views: whether the catalog has views.
    """

    def __init__(
        self, warehouse: pathlib.Path, table: TableSession | None, *, views: bool = False
    ) -> None:
        self._warehouse = warehouse
        self._table = table
        catalog: Catalog
        if table is not None:
            catalog, database = table.catalog(), table.database
        else:
            catalog, database = _catalog(warehouse, views=views), _DATABASE
            catalog.create_database(database, ignore_if_exists=True)
        name = None if table is None else table.path.name
        self._session = _Session(catalog, database, name)

    def run(self, text: str, options: Mapping[str, str] | None = None) -> tuple[Result, int]:
        """Run a statement.

        Args:
            text: of it.
            options: dynamic options of the case's table.

        Returns:
            The result, and how many data files were opened.
        """
        text = text.replace("<tmp>", str(self._warehouse))
        for database in _NAMED_DATABASE.findall(text):
            self._session.catalog.create_database(database, ignore_if_exists=True)
        if "json_source" in text:
            list(self._session.execute(_SOURCE))
        self._session.hints = dict(options or {})
        before = 0 if self._table is None else self._table.operations
        results: list[Result] = []
        if self._table is None or text.lstrip().upper().startswith("SELECT"):
            results += self._session.execute(text)
        else:
            self._table.publish(lambda: results.extend(self._session.execute(text)))
        opened = 0 if self._table is None else self._table.opened_since(before)
        return results[-1], opened

    def rows(self, text: str, options: Mapping[str, str] | None = None) -> tuple[pa.Table, int]:
        """The rows of a statement, and how many data files were opened; arguments as of `run`."""
        result, opened = self.run(text, options)
        assert result.rows is not None
        return result.rows, opened


class _Session(SqlSession):
    """A session in which every name of a table is that of the case's, unless it has none."""

    def __init__(self, catalog: Catalog, database: str, table: str | None) -> None:
        super().__init__(catalog, database)
        self._table = table
        self.hints: dict[str, str] = {}

    def run_node(self, node: exp.Expression) -> Result:
        """See `SqlSession`."""
        for table in node.find_all(exp.Table) if self._table is not None else ():
            if isinstance(table.this, exp.Identifier) and table.db.lower() != _SYSTEM:
                _, mark, rest = table.name.partition("$")
                table.this.set("this", f"{self._table}{mark}{rest}")
                if table.args.get("alias") is None:
                    table.set("alias", exp.TableAlias(this=exp.to_identifier("T")))
                if self.hints:
                    table.meta[OPTIONS] = self.hints
        return super().run_node(node)


def _catalog(warehouse: pathlib.Path, *, views: bool) -> Catalog:
    if not views:
        return FileSystemCatalog(str(warehouse))
    uri = f"jdbc:sqlite:{warehouse}/catalog.db"
    return Catalog.open(str(warehouse), {"metastore": "jdbc", "uri": uri})
