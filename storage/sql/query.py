# SPDX-License-Identifier: Apache-2.0
"""Queries: from a tree of our dialect to DuckDB's text over scans of tables.

Each name of a table becomes a relation of its own, read with the columns and the conditions that
the query has for it (`storage.sql.pushdown`). Names of views become their queries.
"""

import itertools
from typing import TYPE_CHECKING, Any

import pyarrow as pa
from sqlglot import exp
from sqlglot.errors import SqlglotError
from sqlglot.optimizer.scope import Scope, traverse_scope

from storage.sql import engine
from storage.sql.dialect import Lakeward, parse_query
from storage.sql.errors import SqlError, locate, position, refuse
from storage.sql.pushdown import filter_of, used_columns
from storage.sql.relations import columns_of, rows_of

if TYPE_CHECKING:
    from storage.sql.session import SqlSession

__all__ = ["Plan", "constant", "instant_ms", "plan_query", "run_query"]

_ZONE_OPTIONS = ("table.local-time-zone", "spark.sql.session.timeZone")
_MOST_VIEWS = 50
_TABLE_FUNCTIONS = (exp.GenerateSeries, exp.Unnest, exp.Explode)


class Plan:
    """A query ready to run.

    Attributes:
        text: in DuckDB's SQL.
        relations: rows by the names in it.
        scans: for EXPLAIN: table, columns (None: all), condition.
    """

    def __init__(self) -> None:
        self.text = ""
        self.relations: dict[str, Any] = {}
        self.scans: list[tuple[str, list[str] | None, object]] = []


def time_zone(session: "SqlSession") -> str | None:
    """The zone that SET gave."""
    return next((session.options[key] for key in _ZONE_OPTIONS if key in session.options), None)


def run_query(session: "SqlSession", node: exp.Query) -> pa.RecordBatchReader:
    """See `SqlSession.query`."""
    plan = plan_query(session, node)
    connection = engine.connect(time_zone(session))
    session._running = connection
    return engine.run(connection, plan.text, plan.relations, node)


def plan_query(session: "SqlSession", node: exp.Query) -> Plan:
    """Find what the names of a query stand for, and write it for DuckDB.

    Raises:
        SqlError: the query uses what is not allowed, or means nothing.
        NotFoundError: there is no such table.
    """
    plan = Plan()
    tree = node.copy()
    _name_columns(tree)
    tree = _expanded(session, tree, plan, itertools.count(), depth=0)
    try:
        plan.text = tree.sql(dialect="duckdb", identify=True, comments=False)
    except SqlglotError as error:
        raise SqlError("the query cannot be carried out", detail=str(error)) from error
    return plan


def constant(session: "SqlSession", node: exp.Expr) -> Any:
    """The value of an expression without columns.

    Raises:
        SqlError: it has no value.
    """
    query = exp.select(node.copy())
    rows = run_query(session, query).read_all()
    return rows.column(0)[0].as_py()


def instant_ms(session: "SqlSession", node: exp.Expr) -> int:
    """An instant that a literal or an expression names [epoch ms], in the session's zone.

    Raises:
        SqlError: it is none.
    """
    instant = exp.cast(node.copy(), "TIMESTAMPTZ")
    value = constant(session, exp.Anonymous(this="epoch_ms", expressions=[instant]))
    if value is None:
        refuse("a time is expected", node)
    return int(value)


def _name_columns(tree: exp.Query) -> None:
    """Columns without a name are named by their text."""
    select = tree
    while isinstance(select, exp.SetOperation):
        select = select.left
    if not isinstance(select, exp.Select):
        return
    for column in list(select.expressions):
        plain = (exp.Alias, exp.Aliases, exp.Column, exp.Star, exp.Explode, exp.Unnest, exp.Inline)
        if isinstance(column, plain) or column.find(exp.Explode, exp.Posexplode) is not None:
            continue
        name = column.sql(dialect=Lakeward, comments=False)
        column.replace(exp.alias_(column.copy(), name, quoted=True))


def _expanded(
    session: "SqlSession", tree: exp.Query, plan: Plan, numbers: Any, depth: int
) -> exp.Query:
    if depth > _MOST_VIEWS:
        raise SqlError("views refer to each other in a circle")
    _refuse_functions(tree)
    try:
        scopes = traverse_scope(tree)
    except SqlglotError as error:
        raise SqlError("the query cannot be understood", detail=str(error)) from error
    replaced: list[tuple[exp.Table, exp.Expr]] = []
    for scope in scopes:
        found = {
            name: session.resolve(source)
            for name, source in scope.sources.items()
            if isinstance(source, exp.Table)
            and _is_named(source)
            and source.find_ancestor(exp.Query)
        }
        known = {name: _known_columns(relation) for name, relation in found.items()}
        for name, relation in found.items():
            source = scope.sources[name]
            assert isinstance(source, exp.Table)
            others = [known.get(other, set()) for other in scope.sources if other != name]
            new = _replacement(session, tree, scope, name, relation, others, plan, numbers, depth)
            replaced.append((source, new))
        _strip_databases(scope)
    for source, new in replaced:
        source.replace(new)
    return tree


def _is_named(source: exp.Table) -> bool:
    return isinstance(source.this, exp.Identifier)


def _known_columns(relation: Any) -> set[str]:
    query = getattr(relation, "query", None)
    if query is not None:
        return {field.name.lower() for field in relation.fields}
    schema = columns_of(relation)
    return set() if schema is None else {name.lower() for name in schema.names}


def _replacement(
    session: "SqlSession",
    tree: exp.Query,
    scope: Scope,
    name: str,
    relation: Any,
    others: list[set[str]],
    plan: Plan,
    numbers: Any,
    depth: int,
) -> exp.Expr:
    source = scope.sources[name]
    assert isinstance(source, exp.Table)
    alias = source.args.get("alias") or exp.TableAlias(
        this=exp.to_identifier(source.name, quoted=True)
    )
    text = getattr(relation, "query", None)
    if text is not None:
        inner = _expanded(session, parse_query(text), plan, numbers, depth + 1)
        return inner.subquery(alias=alias.copy(), copy=False)
    schema = columns_of(relation)
    columns, predicate = None, None
    if schema is not None:
        _refuse_alike(schema, source)
        columns = used_columns(tree, schema, name)
        predicate = filter_of(scope, name, schema, others)
    key = f"relation_{next(numbers)}"
    try:
        plan.relations[key] = rows_of(relation, columns, predicate)
    except Exception as error:
        from storage.errors import LakewardError

        if isinstance(error, LakewardError):
            raise locate(error, source) from error
        raise
    plan.scans.append((source.sql(dialect=Lakeward), columns, predicate))
    return exp.Table(
        this=exp.to_identifier(key, quoted=True),
        alias=alias.copy(),
        joins=source.args.get("joins"),
        sample=source.args.get("sample"),
        pivots=source.args.get("pivots"),
        laterals=source.args.get("laterals"),
    )


def _refuse_alike(schema: pa.Schema, source: exp.Table) -> None:
    folded = [name.lower() for name in schema.names]
    if len(set(folded)) < len(folded):
        alike = sorted(name for name in schema.names if folded.count(name.lower()) > 1)
        refuse(
            "columns whose names differ only by case cannot be told apart in SQL",
            source,
            hint="read the table in Python",
            columns=", ".join(alike),
        )


def _strip_databases(scope: Scope) -> None:
    """`db.t.k` is `t.k`: relations have no databases."""
    named = {
        (source.db.lower(), source.name.lower())
        for source in scope.sources.values()
        if isinstance(source, exp.Table) and source.db
    }
    for column in scope.columns:
        if column.args.get("db") and (column.text("db").lower(), column.table.lower()) in named:
            column.set("db", None)
            column.set("catalog", None)


def _refuse_functions(tree: exp.Query) -> None:
    """Only names of tables, queries and arrays may stand in FROM."""
    for table in tree.find_all(exp.Table):
        if isinstance(table.this, exp.Identifier) or isinstance(table.this, _TABLE_FUNCTIONS):
            continue
        name = table.this.name or table.this.sql(dialect=Lakeward)
        raise SqlError(
            "this function cannot stand for a table",
            hint="there are UNNEST, EXPLODE and RANGE",
            function=name,
            **position(table),
        )
