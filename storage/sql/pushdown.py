# SPDX-License-Identifier: Apache-2.0
"""Pushdown into the scan of a table: the columns that a query reads, its conditions on rows.

Both are conservative: DuckDB filters and projects again, so what is not pushed costs time only.
"""

import decimal
from collections.abc import Callable, Iterator, Mapping, Sequence
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
        inherited: further conditions (`storage.sql.inherited`).
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
