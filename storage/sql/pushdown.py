# SPDX-License-Identifier: Apache-2.0
"""Pushdown into the scan of a table: the columns that a query reads, its conditions on rows.

Both are conservative: DuckDB filters and projects again, so what is not pushed costs time only.
"""

import decimal
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any

import pyarrow as pa
from sqlglot import exp
from sqlglot.optimizer.scope import Scope

from storage.table.scan.predicate import (
    And,
    Between,
    Compare,
    In,
    IsNull,
    Like,
    Not,
    Op,
    Or,
    Predicate,
    literal_scalar,
)

_OPS: Mapping[type[exp.Expr], Op] = {
    exp.EQ: Op.EQ,
    exp.NEQ: Op.NE,
    exp.LT: Op.LT,
    exp.LTE: Op.LE,
    exp.GT: Op.GT,
    exp.GTE: Op.GE,
}
_MIRRORED = {Op.LT: Op.GT, Op.LE: Op.GE, Op.GT: Op.LT, Op.GE: Op.LE}

ColumnOf = Callable[[exp.Expr], str | None]


class _NotPushed(Exception):
    """A condition that the scan cannot evaluate."""


def used_columns(
    tree: exp.Expr, schema: pa.Schema, name: str, select: exp.Expr | None = None
) -> list[str]:
    """Columns of a table that a statement may read, in the table's order.

    Empty where only rows are counted.

    Args:
        tree: of the statement.
        schema: of the table.
        name: of the table in the statement.
        select: the SELECT that reads it; `*` elsewhere is of other tables. None: not known.
    """
    words = {identifier.name.lower() for identifier in tree.find_all(exp.Identifier)}
    for star in tree.find_all(exp.Star):
        owner = star.parent.table if isinstance(star.parent, exp.Column) else ""
        matches = select is None or star.parent_select is select or owner.lower() == name.lower()
        if matches and not isinstance(star.parent, exp.Count):
            return list(schema.names)
    whole_row = any(
        not column.table and column.name.lower() == name.lower()
        for column in tree.find_all(exp.Column)
    )
    natural = any(join.method for join in tree.find_all(exp.Join))
    if whole_row or natural:
        return list(schema.names)
    return [column for column in schema.names if column.lower() in words]


def narrowest(schema: pa.Schema) -> str:
    """The column that is cheapest to read, where only rows are counted."""

    def width(field: pa.Field) -> int:
        try:
            return int(field.type.bit_width)
        except ValueError:
            return 1_000

    return str(min(schema, key=width).name)


def filter_of(
    scope: Scope,
    name: str,
    schema: pa.Schema,
    siblings: list[set[str]],
    inherited: Sequence[exp.Expr] = (),
) -> Predicate | None:
    """The conditions of WHERE on one table of a SELECT.

    Args:
        scope: of the SELECT.
        name: of the table in it.
        schema: of the table.
        siblings: lower-cased column names of the other tables; an empty set where unknown.
        inherited: further conditions (`storage.sql.pushdown`).
    """
    select = scope.expression
    where = select.args.get("where") if isinstance(select, exp.Select) else None
    conditions = [*(() if where is None else conjuncts(where.this)), *inherited]
    complete = all(siblings)
    by_fold = {column.lower(): column for column in schema.names}

    def column_of(node: exp.Expr) -> str | None:
        if not isinstance(node, exp.Column) or node.args.get("db"):
            return None
        column = by_fold.get(node.name.lower())
        if node.table:
            return column if node.table.lower() == name.lower() else None
        unique = complete and not any(node.name.lower() in columns for columns in siblings)
        return column if unique else None

    nullable = _may_be_null(select, name)
    parts = []
    for part in conditions:
        predicate = predicate_of(part, column_of, schema)
        if predicate is not None and (not nullable or _rejects_null(predicate)):
            parts.append(predicate)
    return And(tuple(parts)) if len(parts) > 1 else (parts[0] if parts else None)


def _may_be_null(select: exp.Expr, name: str) -> bool:
    """Whether an outer join may replace the table's rows by nulls."""
    joins = select.args.get("joins") or []
    return any(str(join.side).upper() in ("LEFT", "RIGHT", "FULL") for join in joins) and bool(name)


def _rejects_null(predicate: Predicate) -> bool:
    return isinstance(predicate, Compare | In | Between | Like)


def conjuncts(node: exp.Expr) -> Iterator[exp.Expr]:
    """The parts of a conjunction, all of which must be true."""
    node = node.unnest()
    if isinstance(node, exp.And):
        yield from conjuncts(node.this)
        yield from conjuncts(node.expression)
    else:
        yield node


def predicate_of(node: exp.Expr, column_of: ColumnOf, schema: pa.Schema) -> Predicate | None:
    """The condition as storage evaluates it; None: it cannot, or with another result."""
    try:
        return _converted(node.unnest(), column_of, schema)
    except _NotPushed:
        return None


def _converted(  # noqa: C901 - one line per kind of condition
    node: exp.Expr, column_of: ColumnOf, schema: pa.Schema
) -> Predicate:
    def convert(part: exp.Expr) -> Predicate:
        return _converted(part.unnest(), column_of, schema)

    def column(part: exp.Expr) -> str:
        column_name = column_of(part.unnest())
        if column_name is None:
            raise _NotPushed
        return column_name

    match node:
        case exp.And():
            return And((convert(node.this), convert(node.expression)))
        case exp.Or():
            return Or((convert(node.this), convert(node.expression)))
        case exp.Not():
            return Not(convert(node.this))
        case exp.Is(expression=exp.Null()):
            return IsNull(column(node.this))
        case exp.In() if node.expressions and not node.args.get("query"):
            name = column(node.this)
            return In(name, tuple(_literal(literal, name, schema) for literal in node.expressions))
        case exp.Between() if not node.args.get("symmetric"):
            name = column(node.this)
            low, high = (_literal(node.args[key], name, schema) for key in ("low", "high"))
            return Between(name, low, high)
    op = _OPS.get(type(node))
    if op is None:
        raise _NotPushed
    if column_of(node.this.unnest()) is not None:
        name = column(node.this)
        return Compare(op, name, _literal(node.expression, name, schema))
    name = column(node.expression)
    return Compare(_MIRRORED.get(op, op), name, _literal(node.this, name, schema))


def _literal(node: exp.Expr, name: str, schema: pa.Schema) -> Any:
    """A literal's value, where it is certain to compare with the column as in DuckDB."""
    type_ = schema.field(name).type
    value = _value(node.unnest(), type_)
    try:
        if literal_scalar(value, type_) is None:
            raise _NotPushed
    except (pa.ArrowInvalid, pa.ArrowTypeError, pa.ArrowNotImplementedError, ValueError) as error:
        raise _NotPushed from error
    return value


def _value(node: exp.Expr, type_: pa.DataType) -> Any:
    number = pa.types.is_integer(type_) or pa.types.is_decimal(type_) or pa.types.is_floating(type_)
    match node:
        case exp.Neg(this=exp.Literal(is_string=False) as literal) if number:
            return -_number(literal)
        case exp.Literal(is_string=False) if number:
            return _number(node)
        case exp.Literal(is_string=True) if pa.types.is_string(type_) or pa.types.is_date(type_):
            return str(node.this)
        case exp.Boolean() if pa.types.is_boolean(type_):
            return bool(node.this)
        case exp.Cast(this=exp.Literal(is_string=True) as literal) if _same_time(node, type_):
            return str(literal.this)
    raise _NotPushed


def _number(literal: exp.Literal) -> int | decimal.Decimal:
    text = str(literal.this)
    if not text.isdigit():
        if "e" in text.lower():
            raise _NotPushed
        return decimal.Decimal(text)
    return int(text)


def _same_time(node: exp.Cast, type_: pa.DataType) -> bool:
    """DATE of a date column, TIMESTAMP of a column without zone; a precision would round."""
    if node.to.expressions:
        return False
    if node.to.this is exp.DType.DATE:
        return bool(pa.types.is_date(type_))
    return (
        node.to.this in (exp.DType.TIMESTAMP, exp.DType.TIMESTAMPNTZ)
        and pa.types.is_timestamp(type_)
        and type_.tz is None
    )


# Conditions on subqueries, CTEs and views, as conditions on the tables inside them.
#
# They limit what scans read; the query itself stays as it is, so a condition that is not pushed
# down costs time only. One is pushed down where a row that fails it cannot contribute to a row that
# satisfies it: not below LIMIT or a window, and below GROUP BY only on the keys of the groups.


Conditions = Sequence[exp.Expr]
"""Conjuncts; the columns in them belong to the tables of one SELECT, or to its result."""

_LIMITING = ("limit", "offset", "qualify", "sample", "connect", "match", "windows")


def inherited(scopes: Sequence[Scope], result_conditions: Conditions) -> Mapping[int, Conditions]:
    """The conditions that each SELECT of a statement inherits from those around it.

    Args:
        scopes: of the statement, inner ones first.
        result_conditions: conditions on the result of the statement, by the names of its columns.

    Returns:
        By the id of the SELECT: conditions on the tables that it reads.
    """
    by_select: dict[int, list[exp.Expr]] = {}
    users = Counter(id(source) for scope in scopes for source in _derived(scope).values())
    by_scope = {id(scopes[-1]): list(result_conditions)} if scopes else {}
    for scope in reversed(scopes):
        outer = by_scope.get(id(scope), [])
        if isinstance(scope.expression, exp.SetOperation):
            for branch, part in zip(scope.set_operation_scopes, _sides(scope, outer), strict=True):
                by_scope.setdefault(id(branch), []).extend(part)
            continue
        if not isinstance(scope.expression, exp.Select):
            continue
        inner = by_select[id(scope.expression)] = list(pushed_below(scope.expression, outer))
        for name, source in _derived(scope).items():
            holders = list(_holders(scope.selected_sources[name][0]))
            reshapes = any(node.args.get("pivots") or node.args.get("sample") for node in holders)
            if users[id(source)] > 1 or source.is_udtf or reshapes:
                continue
            conditions = conditions_on(scope, name, inner)
            by_scope.setdefault(id(source), []).extend(_named_as(source, holders, conditions))
    return by_select


def conditions_on(scope: Scope, name: str, inherited: Conditions) -> list[exp.Expr]:
    """The conditions of a SELECT on one of its tables alone, by the names of its columns."""
    select = scope.expression
    where = select.args.get("where") if isinstance(select, exp.Select) else None
    parts = [*(conjuncts(where.this) if where is not None else ()), *inherited]
    joins = select.args.get("joins") or []
    if any(str(join.side).upper() in ("LEFT", "RIGHT", "FULL") for join in joins):
        parts = [part for part in parts if _null_rejected(part)]
    single = len(scope.selected_sources) == 1 and not joins and not select.args.get("laterals")
    names = (name.lower(), "") if single else (name.lower(),)
    conditions = []
    for part in parts:
        columns = list(part.find_all(exp.Column))
        if (
            columns
            and part.find(exp.Query) is None
            and all(
                column.table.lower() in names and not column.args.get("db") for column in columns
            )
        ):
            conditions.append(_renamed(part, {}))
    return conditions


def pushed_below(select: exp.Select, conditions: Conditions) -> Iterator[exp.Expr]:
    """Conditions on the result of a SELECT as conditions on the tables that it reads."""
    if not conditions or _is_limiting(select):
        return
    keys = _keys(select)
    for condition in conditions:
        columns: dict[str, exp.Column] = {}
        for column in condition.find_all(exp.Column):
            source = _source_of(select, column.name)
            if source is None or (keys is not None and not _is_key(source, select, keys)):
                break
            columns[column.name.lower()] = source
        else:
            yield _renamed(condition, columns)


def positions(
    query: exp.Expr, names: Sequence[str], conditions: Conditions, star: Sequence[str] = ()
) -> list[exp.Expr]:
    """Conditions on the new names of a query's columns, as those on its own; others are left out.

    `star`: the columns of `SELECT *`, where it is the whole query's list.
    """
    outputs = _output_names(_leftmost(query))
    if isinstance(query, exp.Select) and _is_star(query):
        outputs = list(star)
    if outputs is None or len(outputs) != len(names):
        return []
    by_name = {
        new_name.lower(): exp.column(old_name, quoted=True)
        for new_name, old_name in zip(names, outputs, strict=True)
    }
    return [
        _renamed(condition, by_name)
        for condition in conditions
        if all(column.name.lower() in by_name for column in condition.find_all(exp.Column))
    ]


def _derived(scope: Scope) -> dict[str, Scope]:
    return {
        name: source
        for name, (_, source) in scope.selected_sources.items()
        if isinstance(source, Scope)
    }


def _leftmost(query: exp.Expr) -> exp.Expr:
    while isinstance(query, exp.SetOperation):
        query = query.left
    return query


def _sides(scope: Scope, conditions: Conditions) -> Iterator[list[exp.Expr]]:
    """Conditions on the result of UNION and its like, as conditions on each of its sides."""
    reaches_sides = not any(scope.expression.args.get(key) for key in (*_LIMITING, "by_name"))
    names = _output_names(_leftmost(scope.expression)) if reaches_sides else None
    for place, branch in enumerate(scope.set_operation_scopes):
        if names is None:
            yield []
        else:
            yield positions(branch.expression, names, conditions) if place else list(conditions)


def _holders(node: exp.Expr) -> Iterator[exp.Expr]:
    """The name of a CTE, or a subquery with the brackets around it."""
    if isinstance(node, exp.Table):
        yield node
    while isinstance(node.parent, exp.Subquery):
        node = node.parent
        yield node


def _named_as(source: Scope, holders: Sequence[exp.Expr], conditions: Conditions) -> list[exp.Expr]:
    """Conditions by the names that an alias gives the columns of a subquery or CTE."""
    expression = source.expression
    names = next(filter(None, map(_alias_columns, holders)), [])
    cte = expression.find_ancestor(exp.CTE)
    if cte is not None and cte.this is expression:
        if cte.parent is not None and cte.parent.args.get("recursive"):
            return []
        names = names or _alias_columns(cte)
    return positions(expression, names, conditions) if names else list(conditions)


def _alias_columns(node: exp.Expr) -> list[str]:
    alias = node.args.get("alias")
    return [column.name for column in alias.args.get("columns") or []] if alias is not None else []


def _is_limiting(select: exp.Select) -> bool:
    """Whether leaving out rows may change which other rows are in the result."""
    if any(select.args.get(key) for key in _LIMITING):
        return True
    distinct = select.args.get("distinct")
    if distinct is not None and distinct.args.get("on"):
        return True
    return any(window.parent_select is select for window in select.find_all(exp.Window))


def _keys(select: exp.Select) -> list[exp.Expr] | None:
    """What a SELECT groups by; None: it has no groups."""
    group = select.args.get("group")
    if group is not None:
        sets = any(group.args.get(key) for key in ("grouping_sets", "cube", "rollup", "all"))
        return [] if sets else list(group.expressions)
    aggregates = (
        call for part in select.expressions for call in part.find_all(exp.AggFunc, exp.Anonymous)
    )
    having = select.args.get("having") is not None
    grouped = having or any(call.parent_select is select for call in aggregates)
    return [] if grouped else None


def _is_key(column: exp.Column, select: exp.Select, keys: Iterable[exp.Expr]) -> bool:
    for key in keys:
        if isinstance(key, exp.Literal) and not key.is_string and key.this.isdigit():
            place = int(key.this) - 1
            if place < len(select.expressions):
                key = select.expressions[place].unalias()
        if not isinstance(key, exp.Column) or key.name.lower() != column.name.lower():
            continue
        if key.table.lower() == column.table.lower() or not key.table or not column.table:
            return True
    return False


def _source_of(select: exp.Select, name: str) -> exp.Column | None:
    """The column of a table that a column of the result is; None: it is computed, or not known."""
    stars, matches = [], []
    for column in select.expressions:
        if column.is_star:
            stars.append(column)
        elif column.output_name.lower() == name.lower():
            matches.append(column.unalias())
    if len(matches) == 1 and not stars:
        return matches[0] if isinstance(matches[0], exp.Column) else None
    if matches or len(stars) != 1:
        return None
    star = stars[0].this if isinstance(stars[0], exp.Column) else stars[0]
    if any(star.args.get(key) for key in ("except_", "except", "replace", "rename")):
        return None
    table = stars[0].table if isinstance(stars[0], exp.Column) else None
    return exp.column(name, table=table or None, quoted=True)


def _is_star(select: exp.Select) -> bool:
    """Whether a SELECT gives all columns of its only table, and nothing else."""
    plain = [
        isinstance(item, exp.Star) and not any(item.args.values()) for item in select.expressions
    ]
    return plain == [True] and not select.args.get("joins") and not select.args.get("laterals")


def _output_names(select: exp.Expr) -> list[str] | None:
    if not isinstance(select, exp.Select) or any(column.is_star for column in select.expressions):
        return None
    return [column.output_name for column in select.expressions]


def _renamed(condition: exp.Expr, columns: Mapping[str, exp.Column]) -> exp.Expr:
    """A copy with columns replaced; the others lose the name of their table."""

    def change(node: exp.Expr) -> exp.Expr:
        if not isinstance(node, exp.Column):
            return node
        replacement = columns.get(node.name.lower())
        return exp.column(node.name, quoted=True) if replacement is None else replacement.copy()

    return condition.copy().transform(change)


def _null_rejected(condition: exp.Expr) -> bool:
    """Whether a condition is never true of a null."""
    return isinstance(
        condition.unnest(), exp.EQ | exp.NEQ | exp.LT | exp.LTE | exp.GT | exp.GTE | exp.Between
    ) or (isinstance(condition.unnest(), exp.In) and condition.find(exp.Query) is None)
