# SPDX-License-Identifier: Apache-2.0
"""SQL in a Spark session: queries run on Spark, every other statement as in `lakeward sql`.

sql = lakeward_sql(spark, Catalog.open("/data/warehouse"), "shop")
sql("CREATE TABLE t (k INT PRIMARY KEY NOT ENFORCED, v STRING) WITH ('bucket' = '4')")
sql("SELECT v, count(*) FROM t GROUP BY v").show()
"""

import itertools
from collections.abc import Iterator

from pyspark.sql import DataFrame, SparkSession
from sqlglot import exp
from sqlglot.dialects.spark import Spark
from sqlglot.errors import ErrorLevel
from sqlglot.optimizer.scope import traverse_scope

from storage.catalog.catalog import Catalog
from storage.sql.dialect import parse_query, statements
from storage.sql.errors import SqlError
from storage.sql.pushdown import narrowest, used_columns
from storage.sql.relations import (
    SYSTEM_DATABASE,
    CatalogTable,
    SystemTable,
    columns_of,
    dynamic_options,
    is_view,
    split_name,
)
from storage.sql.session import SqlSession

_FORMAT = "lakeward"
_WAREHOUSE = "warehouse"


def lakeward_sql(spark: SparkSession, catalog: Catalog, database: str = "default") -> "SparkSql":
    """Statements on the tables of a catalog, from a Spark session.

    Args:
        spark: has `format("lakeward")`.
        catalog: the current catalog; CREATE CATALOG and USE add and select others.
        database: the current database.
    """
    return SparkSql(spark, SqlSession(catalog, database))


class SparkSql:
    """Runs statements in one session.

    Attributes:
        session: catalogs, current database, options of SET.
    """

    def __init__(self, spark: SparkSession, session: SqlSession) -> None:
        self._spark = spark
        self._numbers = itertools.count()
        self.session = session

    def __call__(self, text: str) -> DataFrame:
        """Run statements, and return the result of the last one.

        Args:
            text: statements, separated by semicolons. Queries are Spark's; hints, states, system
                tables and views are those of docs/guides/sql.md.

        Returns:
            The rows; of other statements one row with the column `affected`.

        Raises:
            SqlError: a statement cannot be parsed; those before it have run.
            LakewardError: of the catalog or the table.
        """
        frame: DataFrame | None = None
        for statement in statements(text):
            node = statement.parse()
            if isinstance(node, exp.Query):
                frame = self._query(node)
            else:
                frame = self._spark.createDataFrame(self.session.last_rows(statement.text))
        if frame is None:
            raise SqlError("there is no statement")
        return frame

    def _query(self, node: exp.Query) -> DataFrame:
        tree, names = node.copy(), list[str]()
        for source in list(_tables(tree)):
            source.replace(self._replacement(tree, source, names))
        try:
            return self._spark.sql(
                tree.sql(Spark, comments=False, unsupported_level=ErrorLevel.RAISE)
            )
        finally:
            for name in names:
                self._spark.catalog.dropTempView(name)

    def _replacement(self, tree: exp.Query, source: exp.Table, names: list[str]) -> exp.Expr:
        """The replacement of a table: a view of Spark, or the query of a view."""
        relation = self.session.resolve(source)
        alias = source.args.get("alias") or exp.TableAlias(this=exp.to_identifier(source.name))
        if is_view(relation):
            query = parse_query(relation.query)
            for inner in list(_tables(query)):
                inner.replace(self._replacement(query, inner, names))
            return query.subquery(alias=alias.copy(), copy=False)
        reader = self._spark.read.format(_FORMAT)
        if isinstance(relation, CatalogTable):
            reader = reader.option(_WAREHOUSE, relation.catalog.warehouse)
            frame = reader.option("table", f"{SYSTEM_DATABASE}.{relation.name}").load()
        else:
            table = relation.table if isinstance(relation, SystemTable) else relation
            base, branch, system = split_name(source)
            marks = (f"$branch_{branch}" if branch else "") + (f"${system}" if system else "")
            schema = columns_of(relation)
            if schema is not None:
                columns = used_columns(tree, schema, alias.name) or [narrowest(schema)]
                reader = reader.option("columns", ",".join(columns))
            catalog = self.session.catalog_of(source)
            store = {key: text for key, text in catalog.options.items() if key != _WAREHOUSE}
            options = dynamic_options(self.session, source, base)
            frame = reader.options(**store, **options).load(table.layout.root + marks)
        name = f"lakeward_relation_{next(self._numbers)}"
        frame.createOrReplaceTempView(name)
        names.append(name)
        return exp.Table(
            this=exp.to_identifier(name),
            alias=alias.copy(),
            joins=source.args.get("joins"),
            sample=source.args.get("sample"),
            laterals=source.args.get("laterals"),
        )


def _tables(tree: exp.Query) -> Iterator[exp.Table]:
    """The names of tables in a query, but not those of its WITH."""
    for scope in traverse_scope(tree):
        for source in scope.sources.values():
            if isinstance(source, exp.Table) and isinstance(source.this, exp.Identifier):
                yield source
