# SPDX-License-Identifier: Apache-2.0
"""UNNEST and LATERAL VIEW: rows of arrays and maps, as Flink and Spark have them, for DuckDB.

Flink's UNNEST of an array of rows gives a column per field, Spark's EXPLODE one column of rows;
of a map both give key and value. The type of the column in the tables decides.
"""

from collections.abc import Callable

import pyarrow as pa
from sqlglot import exp

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
