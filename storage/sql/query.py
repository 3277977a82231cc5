# SPDX-License-Identifier: Apache-2.0
"""Queries: from a tree of our dialect to DuckDB's SQL over scans of tables.

Each name of a table becomes a relation of its own, read with the columns and the conditions that
the query has for it (`storage.sql.pushdown`). Names of views become their queries.
"""

import copy
import itertools
import re
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, cast

import pyarrow as pa
from sqlglot import exp
from sqlglot.errors import ErrorLevel, SqlglotError
from sqlglot.optimizer.scope import Scope, traverse_scope

from storage.errors import LakewardError
from storage.sql import engine, functions
from storage.sql.dialect import Lakeward, parse_query
from storage.sql.errors import SqlError, locate, position, refuse
from storage.sql.nodes import OPTIONS, ZONE_OPTIONS
from storage.sql.parse.words import text_of
from storage.sql.pushdown import (
    Conditions,
    conditions_on,
    filter_of,
    inherited,
    positions,
    used_columns,
)
from storage.sql.relations import SystemTable, columns_of, is_view, rows_of
from storage.table.scan.predicate import Predicate
from storage.table.scan.row_scan import EngineScan

if TYPE_CHECKING:
    from storage.sql.session import SqlSession

# UNNEST and LATERAL VIEW: rows of arrays and maps, as Flink and Spark have them, for DuckDB.
#
# Flink's UNNEST of an array of rows gives a column per field, Spark's EXPLODE one column of rows;
# of a map both give key and value. The type of the column in the tables decides.


TypeOf = Callable[[exp.Column], pa.DataType | None]
"""The type of a column of the tables of a SELECT; None: not known."""


def without_unnests(select: exp.Select, type_of: TypeOf) -> None:
    """Rewrite the UNNESTs in FROM of a SELECT as subqueries with Flink's columns."""
    for unnest in list(select.find_all(exp.Unnest)):
        place = unnest.parent
        if not isinstance(place, exp.From | exp.Join | exp.Lateral):
            continue
        if unnest.parent_select is not select or len(unnest.expressions) != 1:
            continue
        alias = unnest.args.get("alias")
        elements = _elements(unnest.expressions[0], type_of, spread=True)
        position = unnest.args.get("offset")
        if position:
            number = _indexes(unnest.expressions[0])
            elements = elements.select(exp.alias_(number, "ordinality", quoted=True), copy=False)
        columns = list(alias.args.get("columns") or ()) if alias is not None else []
        if isinstance(position, exp.Identifier):
            columns.append(position)
        replacement = _aliased(elements, alias, columns)
        (place if isinstance(place, exp.Lateral) else unnest).replace(replacement)


def without_laterals(select: exp.Select, type_of: TypeOf) -> None:
    """Rewrite LATERAL VIEW as joins."""
    laterals = select.args.get("laterals") or []
    other_laterals = []
    for lateral in laterals:
        function = lateral.this
        if not isinstance(function, exp.Explode | exp.Posexplode | exp.Inline):
            other_laterals.append(lateral)
            continue
        array = function.this
        elements = _elements(array, type_of, spread=isinstance(function, exp.Inline))
        if isinstance(function, exp.Posexplode):
            index = exp.Sub(this=_indexes(array), expression=exp.Literal.number(1))
            elements.set(
                "expressions", [exp.alias_(index, "pos", quoted=True), *elements.expressions]
            )
        alias = lateral.args.get("alias")
        columns = list(alias.args.get("columns") or ()) if alias is not None else []
        if not columns and not isinstance(function, exp.Inline):
            columns = [exp.to_identifier(name) for name in _names(function, array, type_of)]
        join = exp.Join(this=_aliased(elements, alias, columns))
        keeps_empty = bool(lateral.args.get("outer")) or isinstance(
            function, exp.ExplodeOuter | exp.PosexplodeOuter
        )
        if keeps_empty:
            join.set("side", "LEFT")
            join.set("on", exp.true())
        else:
            join.set("kind", "CROSS")
        select.append("joins", join)
    select.set("laterals", other_laterals)


def _names(function: exp.Expr, array: exp.Expr, type_of: TypeOf) -> list[str]:
    type_ = type_of(array) if isinstance(array, exp.Column) else None
    names = ["key", "value"] if type_ is not None and pa.types.is_map(type_) else ["col"]
    return ["pos", *names] if isinstance(function, exp.Posexplode) else names


def _elements(array: exp.Expr, type_of: TypeOf, *, spread: bool) -> exp.Select:
    """`SELECT` of the elements; `spread`: fields of rows as columns."""
    type_ = type_of(array) if isinstance(array, exp.Column) else None
    map_literal = isinstance(array, exp.Map | exp.VarMap | exp.ToMap)
    if map_literal or (type_ is not None and pa.types.is_map(type_)):
        return exp.select(
            *(
                exp.alias_(
                    _unnest(exp.Anonymous(this=f"map_{name}s", expressions=[array.copy()])), name
                )
                for name in ("key", "value")
            )
        )
    rows = type_ is not None and pa.types.is_list(type_) and pa.types.is_struct(type_.value_type)
    return exp.select(_unnest(array.copy(), spread=spread and rows))


def _unnest(array: exp.Expr, *, spread: bool = False) -> exp.Expr:
    arguments: list[exp.Expr] = [array]
    if spread:
        arguments.append(
            exp.PropertyEQ(this=exp.to_identifier("max_depth"), expression=exp.Literal.number(2))
        )
    return exp.Anonymous(this="unnest", expressions=arguments)


def _indexes(array: exp.Expr) -> exp.Expr:
    """The positions of the elements, from 1."""
    return exp.Anonymous(
        this="generate_subscripts", expressions=[array.copy(), exp.Literal.number(1)]
    )


def _aliased(
    elements: exp.Select, alias: exp.Expr | None, columns: list[exp.Identifier]
) -> exp.Expr:
    name = alias.this if alias is not None else None
    subquery = exp.Subquery(this=elements)
    if name is not None or columns:
        subquery.set(
            "alias",
            exp.TableAlias(
                this=name.copy() if name is not None else exp.to_identifier("unnested"),
                columns=[column.copy() for column in columns],
            ),
        )
    return subquery


_MOST_VIEWS = 50
_INCREMENTAL = {
    "paimon_incremental_query": "incremental-between",
    "paimon_incremental_between_timestamp": "incremental-between-timestamp",
    "paimon_incremental_to_auto_tag": "incremental-to-auto-tag",
}
_REFUSED = re.compile(
    "current_(setting|query|schemas|.*id)|getenv|.*variable|query|query_table|write_log|.*sleep.*|"
    "nextval|currval|setval|setseed|txid_current|in_search_path|version|pg_.*|has_.*_privilege|"
    "current_(user|role)|parse_duckdb.*|hash"
)
"""Functions of DuckDB that show or change more than rows of tables, and `hash`, whose value differs
from Spark's."""
_UNITS = {
    **dict.fromkeys(("YYYY", "YY"), "YEAR"),
    **dict.fromkeys(("MM", "MON"), "MONTH"),
    "DD": "DAY",
}
"""Short names of units in Spark's TRUNC and DATE_TRUNC."""
_TABLE_CLAUSES = ("hints", "ordinality", "when", "only", "partition", "changes", "pattern")
"""What sqlglot reads behind the name of a table, for other engines."""
_TABLE_FUNCTIONS = (exp.GenerateSeries, exp.Unnest, exp.Explode)


class Plan:
    """A query ready to run.

    Attributes:
        text: in DuckDB's SQL.
        relations: rows by the names in it.
        columns: names of the columns of all tables, for suggestions.
        scans: for EXPLAIN: table, columns (None: all), condition.
    """

    def __init__(self) -> None:
        self.text = ""
        self.relations: dict[str, Any] = {}
        self.columns: set[str] = set()
        self.scans: list[tuple[str, list[str] | None, Predicate | None]] = []


def time_zone(session: "SqlSession") -> str | None:
    """The time zone of SET."""
    return next((session.options[key] for key in ZONE_OPTIONS if key in session.options), None)


def run_query(session: "SqlSession", node: exp.Query) -> pa.RecordBatchReader:
    """See `SqlSession.query`."""
    plan = plan_query(session, node)
    connection = engine.connect(time_zone(session), plan.relations)
    return engine.run(connection, plan.text, plan.relations, node, plan.columns, session)


def query_rows(session: "SqlSession", node: exp.Query, rows: pa.Table) -> pa.Table:
    """The result of a query over rows in place of each of its tables.

    Raises:
        SqlError: the query is wrong; names the place.
    """
    inside = copy.copy(session)
    inside.relations = {"*": rows}
    return run_query(inside, node).read_all()


def plan_query(session: "SqlSession", node: exp.Query) -> Plan:
    """Resolve the names of a query, and translate it for DuckDB.

    Raises:
        SqlError: the query uses what is not allowed, or is invalid.
        NotFoundError: there is no such table.
    """
    plan = Plan()
    tree = node.copy()
    _name_columns(tree)
    tree = _expanded(session, tree, plan, itertools.count(), depth=0)
    try:
        plan.text = tree.sql(
            dialect="duckdb", identify=True, comments=False, unsupported_level=ErrorLevel.RAISE
        )
    except SqlglotError as error:
        raise SqlError("the query cannot be executed", detail=str(error)) from error
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
        SqlError: it is not valid.
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
        if isinstance(column, exp.Alias | exp.Aliases | exp.Column | exp.Star):
            continue
        if isinstance(column, exp.Explode | exp.Unnest):
            column.replace(exp.alias_(column.copy(), "col"))
            continue
        name = column.sql(
            dialect=Lakeward,
            comments=False,
            normalize_functions="lower",
            unsupported_level=ErrorLevel.IGNORE,
        )
        column.replace(exp.alias_(column.copy(), name, quoted=True))


def _expanded(
    session: "SqlSession",
    tree: exp.Query,
    plan: Plan,
    numbers: Any,
    depth: int,
    result_conditions: Conditions = (),
    names: Sequence[str] = (),
) -> exp.Query:
    if depth > _MOST_VIEWS:
        raise SqlError("views refer to each other in a circle")
    _name_incremental(tree)
    _refuse_functions(tree)
    _name_session(session, tree)
    _newest_partitions(session, tree)
    functions.translate(tree)
    tree = cast("exp.Query", tree.transform(_for_duckdb, copy=False))
    try:
        scopes = traverse_scope(tree)
        for scope in scopes:
            _ = scope.selected_sources  # raises on a duplicate name
    except SqlglotError as error:
        raise SqlError("the query cannot be resolved", detail=str(error)) from error
    relations = [
        {
            name: _resolved(session, source)
            for name, source in scope.sources.items()
            if isinstance(source, exp.Table)
            and _is_named(source)
            and source.parent_select is scope.expression
        }
        for scope in scopes
    ]
    stars = [star for tables in relations[-1:] for star in map(_columns_in_order, tables.values())]
    conditions = inherited(scopes, positions(tree, names, result_conditions, *stars[:1]))
    replacements: list[tuple[exp.Table, exp.Expr]] = []
    selects: list[tuple[exp.Select, TypeOf]] = []
    for scope, tables in zip(scopes, relations, strict=True):
        columns = {name: _known_columns(relation) for name, relation in tables.items()}
        for name, relation in tables.items():
            source = scope.sources[name]
            assert isinstance(source, exp.Table)
            siblings = [columns.get(alias, set()) for alias in scope.sources if alias != name]
            extra = conditions.get(id(scope.expression), ())
            replacement = _replacement(
                session, tree, scope, name, relation, siblings, extra, plan, numbers, depth
            )
            replacements.append((source, replacement))
        _strip_databases(scope, session.database)
        if isinstance(scope.expression, exp.Select):
            selects.append((scope.expression, _type_of(tables)))
    for source, replacement in replacements:
        source.replace(replacement)
    _refuse_leftovers(tree, plan)
    for select, type_of in selects:
        adapt_casts(select, type_of)
        without_unnests(select, type_of)
        without_laterals(select, type_of)
    return tree


def _type_of(relations: Mapping[str, Any]) -> TypeOf:
    """Types of the columns of a SELECT's tables."""

    def type_of(column: exp.Column) -> pa.DataType | None:
        for name, relation in relations.items():
            schema = None if is_view(relation) else columns_of(relation)
            if schema is None or column.table.lower() not in ("", name.lower()):
                continue
            for field in schema:
                if field.name.lower() == column.name.lower():
                    return field.type
        return None

    return type_of


def _for_duckdb(node: exp.Expr) -> exp.Expr:
    """Rewrites what sqlglot does not translate, or would with another meaning."""
    match node:
        case exp.Literal() if _is_large(node):
            return exp.cast(node.copy(), f"DECIMAL({min(38, len(str(node.this)))}, 0)")
        case exp.Quantile():  # Spark's PERCENTILE interpolates
            arguments = [node.this, node.args["quantile"]]
            return exp.Anonymous(this="quantile_cont", expressions=arguments)
        case exp.DayOfWeek():  # Sunday is 1 in Flink and Spark, 0 in DuckDB
            day = exp.Anonymous(this="dayofweek", expressions=[node.this])
            return exp.paren(exp.Add(this=day, expression=exp.Literal.number(1)))
        case exp.StrToUnix() | exp.TimeToUnix():
            instant = node.this
            if not (isinstance(instant, exp.Cast) or isinstance(node, exp.TimeToUnix)):
                return exp.cast(node.copy(), "BIGINT") if not _is_bigint(node) else node
            seconds = exp.Anonymous(this="epoch", expressions=[instant])
            return exp.cast(seconds, "BIGINT")
        case exp.DateTrunc() | exp.TimestampTrunc() if node.text("unit").upper() in _UNITS:
            node.set("unit", exp.var(_UNITS[node.text("unit").upper()]))
            return node
        case exp.Select() if node.args.get("hint"):
            node.set("hint", None)  # a hint on execution changes no result
            return node
        case exp.Bracket(this=exp.Column() as column) if _is_map(node, column):
            keys, values = node.expressions[::2], node.expressions[1::2]
            return exp.Map(keys=exp.array(*keys), values=exp.array(*values))
        case _:
            return node


def _is_large(number: exp.Literal) -> bool:
    """Whether it is a whole number that no BIGINT holds."""
    digits = "" if number.is_string or not str(number.this).isdigit() else number.this.lstrip("0")
    most = 2**63 - 1 + isinstance(number.parent, exp.Neg)
    return len(digits) > 19 or int(digits or 0) > most


def _is_bigint(node: exp.Expr) -> bool:
    parent = node.parent
    return isinstance(parent, exp.Cast) and parent.to.this is exp.DType.BIGINT


def _is_map(node: exp.Bracket, column: exp.Column) -> bool:
    """Flink's `MAP[key, value, …]`."""
    return column.name.upper() == "MAP" and not column.this.quoted and len(node.expressions) > 1


def _is_named(source: exp.Table) -> bool:
    return isinstance(source.this, exp.Identifier)


def _known_columns(relation: Any) -> set[str]:
    return {name.lower() for name in _columns_in_order(relation)}


def _resolved(session: "SqlSession", source: exp.Table) -> Any:
    if clause := next((key for key in _TABLE_CLAUSES if source.args.get(key)), None):
        refuse("a table of a query does not take this clause", source, clause=clause.strip("_"))
    try:
        return session.resolve(source)
    except LakewardError as error:
        raise locate(error, source) from error.__cause__


def _columns_in_order(relation: Any) -> list[str]:
    if is_view(relation):
        return [field.name for field in relation.fields]
    schema = columns_of(relation)
    return [] if schema is None else list(schema.names)


def _replacement(
    session: "SqlSession",
    tree: exp.Query,
    scope: Scope,
    name: str,
    relation: Any,
    siblings: list[set[str]],
    inherited_conditions: Conditions,
    plan: Plan,
    numbers: Any,
    depth: int,
) -> exp.Expr:
    source = scope.sources[name]
    assert isinstance(source, exp.Table)
    alias = source.args.get("alias") or exp.TableAlias(
        this=exp.to_identifier(source.name, quoted=True)
    )
    if is_view(relation):
        conditions = conditions_on(scope, name, inherited_conditions)
        return _view(session, source, relation, plan, numbers, depth, conditions)
    schema = columns_of(relation)
    columns, predicate = None, None
    if schema is not None:
        _refuse_alike(schema, source)
        plan.columns.update(schema.names)
        columns = used_columns(tree, schema, name, scope.expression)
        predicate = filter_of(scope, name, schema, siblings, inherited_conditions)
    key = f"relation_{next(numbers)}"
    try:
        rows = rows_of(relation, columns, predicate, all_rows=_aggregates(scope))
    except LakewardError as error:
        raise locate(error, source) from error
    plan.scans.append((source.sql(dialect=Lakeward), columns, predicate))
    counts = columns == [] and _only_counts(scope.expression, source)
    if counts and isinstance(rows, EngineScan) and (count := rows.row_count) is not None:
        return _counted(scope.expression, count, alias)
    plan.relations[key] = rows
    return exp.Table(
        this=exp.to_identifier(key, quoted=True),
        alias=alias.copy(),
        joins=source.args.get("joins"),
        sample=source.args.get("sample"),
        pivots=source.args.get("pivots"),
        laterals=source.args.get("laterals"),
    )


def _only_counts(select: exp.Expr, source: exp.Table) -> bool:
    """Whether a SELECT has nothing but `COUNT(*)` of its one table."""
    clauses = {key for key, value in select.args.items() if value}
    plain = not any(source.args.get(key) for key in ("joins", "sample", "pivots", "laterals"))
    if not (
        isinstance(select, exp.Select) and plain and clauses <= {"expressions", "from_", "limit"}
    ):
        return False
    counts = [column.unalias() for column in select.expressions]
    return all(isinstance(each, exp.Count) and isinstance(each.this, exp.Star) for each in counts)


def _counted(select: exp.Expr, count: int, alias: exp.TableAlias) -> exp.Expr:
    """One row in place of the table, and its number of rows in place of `COUNT(*)`."""
    for node in list(select.find_all(exp.Count)):
        node.replace(exp.cast(exp.Literal.number(count), exp.DType.BIGINT))
    return exp.select("1").subquery(alias=alias.copy(), copy=False)


def _aggregates(scope: Scope) -> bool:
    """Whether a SELECT has no result before it has read all rows of its tables."""
    grouped = scope.expression.args.get("group") is not None
    return grouped or next(iter(scope.find_all(exp.AggFunc)), None) is not None


def _view(
    session: "SqlSession",
    source: exp.Table,
    view: Any,
    plan: Plan,
    numbers: Any,
    depth: int,
    result_conditions: Conditions,
) -> exp.Expr:
    """The query of a view in place of its name; its names resolve in the view's database."""
    inside = copy.copy(session)
    inside.catalog_name = source.catalog or session.catalog_name
    inside.database = source.db or session.database
    alias = source.args.get("alias")
    name = alias.this if alias is not None else exp.to_identifier(source.name, quoted=True)
    columns = (alias.args.get("columns") if alias is not None else None) or [
        exp.to_identifier(field.name, quoted=True) for field in view.fields
    ]
    names = [column.name for column in columns]
    try:
        query = parse_query(view.query)
        body = _expanded(inside, query, plan, numbers, depth + 1, result_conditions, names)
    except LakewardError as error:  # its place is one in the text of the view
        error.context = {"view": source.name, **error.context, **position(source)}
        raise
    subquery = body.subquery(alias=exp.TableAlias(this=name.copy(), columns=columns), copy=False)
    subquery.set("joins", source.args.get("joins"))
    return subquery


def _refuse_alike(schema: pa.Schema, source: exp.Table) -> None:
    folded = [name.lower() for name in schema.names]
    if len(set(folded)) < len(folded):
        alike = sorted(name for name in schema.names if folded.count(name.lower()) > 1)
        refuse(
            "SQL does not distinguish columns whose names differ only in letter case",
            source,
            hint="read the table in Python",
            columns=", ".join(alike),
        )


def _strip_databases(scope: Scope, database: str) -> None:
    """`db.t.k` is `t.k`: relations have no databases."""
    names = {
        ((source.db or database).lower(), source.name.lower())
        for source in scope.sources.values()
        if isinstance(source, exp.Table)
    }
    for column in (*scope.columns, *scope.stars):
        if (
            column.args.get("db")
            and (column.text("db").lower(), column.text("table").lower()) in names
        ):
            column.set("db", None)
            column.set("catalog", None)


def _name_incremental(tree: exp.Query) -> None:
    """Spark's functions of changes, `paimon_incremental_query('t', '1', '2')`, as hints."""
    for table in list(tree.find_all(exp.Table)):
        option = _INCREMENTAL.get(table.this.name.lower() if table.this else "")
        if option is None or not isinstance(table.this, exp.Anonymous):
            continue
        name, *bounds = [text_of(argument) or "" for argument in table.this.expressions]
        source = exp.to_table(name, dialect=Lakeward)
        source.set("alias", table.args.get("alias"))
        source.meta[OPTIONS] = {option: ",".join(bounds)}
        table.replace(source)


def _refuse_leftovers(tree: exp.Query, plan: Plan) -> None:
    """Nothing but relations and names of WITH may reach DuckDB as a name of a table."""
    names = {cte.alias.lower() for cte in tree.find_all(exp.CTE)} | set(plan.relations)
    for table in tree.find_all(exp.Table):
        if _is_named(table) and (table.db or table.name.lower() not in names):
            refuse("a table is not allowed here", table, table=table.name)


def _refuse_functions(tree: exp.Query) -> None:
    """Only names of tables, queries and arrays are allowed in FROM."""
    for table in tree.find_all(exp.Table):
        if isinstance(table.this, (exp.Identifier, _TABLE_FUNCTIONS)):
            continue
        if isinstance(table.this, exp.Anonymous) and table.this.name.lower() == "range":
            continue
        name = table.this.name or table.this.sql(dialect=Lakeward)
        raise SqlError(
            "this function cannot be used as a table",
            hint="supported are UNNEST, EXPLODE and RANGE",
            function=name or "this",
            **position(table),
        )
    for function in tree.find_all(exp.Func):
        name = _function_name(function)
        if _REFUSED.fullmatch(name):
            raise SqlError("there is no such function", name=name, **position(function))


def _function_name(function: exp.Func) -> str:
    anonymous = isinstance(function, exp.Anonymous)
    return (function.name if anonymous else function.sql_name()).lower()


def _newest_partitions(session: "SqlSession", tree: exp.Query) -> None:
    """Replace `max_pt('t')`: the largest value of the first partition column, as a text."""
    for function in list(tree.find_all(exp.Anonymous)):
        if function.name.lower() != "max_pt":
            continue
        name = text_of(function.expressions[0]) if len(function.expressions) == 1 else None
        if name is None:
            refuse("max_pt takes the name of a table", function, hint="max_pt('database.table')")
        table = _resolved(session, exp.to_table(name, dialect=Lakeward))
        if not getattr(table.schema, "partition_keys", ()):
            refuse("max_pt: the table is not partitioned", function, table=name)
        rows = rows_of(SystemTable(table, "partitions")).column("partition").to_pylist()
        types = table.schema.partition_fields[0].type
        values = [row.partition("/")[0].partition("=")[2] for row in rows]
        if not values:
            refuse("max_pt: the table has no partition", function, table=name)
        new = exp.Literal.string(max(values, key=_partition_order(types)))
        parent = function.parent  # sys.max_pt(…)
        (parent if isinstance(parent, exp.Dot) else function).replace(new)


def _partition_order(type_: Any) -> Any:
    """The order of partition values of a type, given as texts."""
    from storage.format.types.casts import from_text

    return lambda value: from_text(pa.array([value]), type_)[0].as_py()


def _name_session(session: "SqlSession", tree: exp.Query) -> None:
    """Replace the functions that return the current catalog and database."""
    places = {
        "current_database": session.database,
        "current_schema": session.database,
        "current_catalog": session.catalog_name,
    }
    for function in list(tree.find_all(exp.Func)):
        place = places.get(_function_name(function))
        if place is not None:
            function.replace(exp.Literal.string(place))


_WHOLE = frozenset({exp.DType.TINYINT, exp.DType.SMALLINT, exp.DType.INT, exp.DType.BIGINT})
_FRACTION = (r"^(\s*[-+]?\d+)\.\d*\s*$", r"\1")
"""What of a text is cut off in a cast to a whole number."""
_TO_DATES = (exp.TsOrDsAdd, exp.AddMonths, exp.DateTrunc)
"""DATE_ADD, DATE_SUB, ADD_MONTHS and TRUNC of Spark."""
_WHOLE_DAYS = frozenset({"DAY", "WEEK", "MONTH", "QUARTER", "YEAR"})
_FRACTIONS = frozenset({exp.DType.DECIMAL, exp.DType.FLOAT, exp.DType.DOUBLE})
_OF_ARGUMENTS = (
    *(exp.Add, exp.Sub, exp.Mul, exp.Mod, exp.Neg, exp.Paren, exp.Abs, exp.Sum, exp.Min, exp.Max),
    *(exp.Coalesce, exp.Round),
)
"""Expressions that are fractions where an argument is one."""
_ALWAYS = (exp.Div, exp.Avg, exp.Sqrt, exp.Pow, exp.Exp, exp.Ln, exp.Log)


def adapt_casts(select: exp.Select, type_of: TypeOf) -> None:
    """Rewrite casts so that DuckDB returns what Flink and Spark do.

    Fractions are cut off where DuckDB would round them to whole numbers, the text of an instant
    is its local time, without the zone's offset, and a day plus days is a day.

    Args:
        select: changed in place.
        type_of: types of the columns of its tables; a column of a subquery is taken as it is.
    """
    for node in list(select.find_all(exp.Cast)):
        if node.to.this in _WHOLE and _is_fraction(node.this, type_of):
            node.set("this", exp.Anonymous(this="trunc", expressions=[node.this]))
        elif node.to.this in _WHOLE and _is_text(node.this, type_of):
            patterns = [exp.Literal.string(text) for text in _FRACTION]
            whole = exp.Anonymous(this="regexp_replace", expressions=[node.this, *patterns])
            node.set("this", whole)
        elif node.to.this in exp.DataType.TEXT_TYPES and _is_instant(node.this, type_of):
            node.set("this", exp.cast(node.this, exp.DType.TIMESTAMPNTZ))
    for day in reversed(list(select.find_all(exp.Add, exp.Sub, *_TO_DATES))):
        sum_of_days = _is_whole_days(day.expression) and _is_date(day.this, type_of)
        if sum_of_days or isinstance(day, _TO_DATES):
            day.replace(exp.cast(day.copy(), exp.DType.DATE))


def _is_whole_days(node: exp.Expr) -> bool:
    return isinstance(node, exp.Interval) and node.text("unit").upper().rstrip("S") in _WHOLE_DAYS


def _is_date(node: exp.Expr, type_of: TypeOf) -> bool:
    match node.unnest():
        case exp.Column() as column:
            type_ = type_of(column)
            return type_ is not None and pa.types.is_date(type_)
        case exp.Cast() as cast_:
            return cast_.to.this is exp.DType.DATE
        case expression:
            return isinstance(expression, exp.CurrentDate)


def _is_text(node: exp.Expr, type_of: TypeOf) -> bool:
    if isinstance(node, exp.Column):
        type_ = type_of(node)
        return type_ is not None and (pa.types.is_string(type_) or pa.types.is_dictionary(type_))
    return isinstance(node, exp.Literal) and bool(node.is_string)


def _is_instant(node: exp.Expr, type_of: TypeOf) -> bool:
    match node:
        case exp.Column():
            type_ = type_of(node)
            return type_ is not None and pa.types.is_timestamp(type_) and type_.tz is not None
        case exp.Cast():
            return node.to.this in (exp.DType.TIMESTAMPTZ, exp.DType.TIMESTAMPLTZ)
        case _:
            return isinstance(node, exp.CurrentTimestamp)


def _is_fraction(node: exp.Expr, type_of: TypeOf) -> bool:
    match node:
        case exp.Literal(is_string=False):
            return not str(node.this).isdigit()
        case exp.Column():
            type_ = type_of(node)
            return type_ is not None and (pa.types.is_floating(type_) or pa.types.is_decimal(type_))
        case exp.Cast():
            return node.to.this in _FRACTIONS
        case _:
            pass
    if isinstance(node, _ALWAYS):
        return True
    if isinstance(node, _OF_ARGUMENTS):
        return any(_is_fraction(part, type_of) for part in node.iter_expressions())
    return False
