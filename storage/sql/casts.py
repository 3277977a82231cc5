# SPDX-License-Identifier: Apache-2.0
"""CAST as in Flink and Spark, where DuckDB does otherwise.

Fractions are cut off where DuckDB would round them to whole numbers, and the text of an instant is
its local time, without the zone's offset.
"""

import pyarrow as pa
from sqlglot import exp

from storage.sql.unnest import TypeOf

__all__ = ["adapt_casts"]

_WHOLE = frozenset({exp.DType.TINYINT, exp.DType.SMALLINT, exp.DType.INT, exp.DType.BIGINT})
_FRACTIONS = frozenset({exp.DType.DECIMAL, exp.DType.FLOAT, exp.DType.DOUBLE})
_OF_ARGUMENTS = (
    *(exp.Add, exp.Sub, exp.Mul, exp.Mod, exp.Neg, exp.Paren, exp.Abs, exp.Sum, exp.Min, exp.Max),
    *(exp.Coalesce, exp.Round),
)
"""What is a fraction where an argument is one."""
_ALWAYS = (exp.Div, exp.Avg, exp.Sqrt, exp.Pow, exp.Exp, exp.Ln, exp.Log)


def adapt_casts(select: exp.Select, type_of: TypeOf) -> None:
    """Write the casts of a SELECT so that DuckDB does what Flink and Spark do.

    Args:
        select: changed in place.
        type_of: types of the columns of its tables; a column of a subquery is taken as it is.
    """
    for cast in list(select.find_all(exp.Cast)):
        if cast.to.this in _WHOLE and _is_fraction(cast.this, type_of):
            cast.set("this", exp.Anonymous(this="trunc", expressions=[cast.this]))
        elif cast.to.this in exp.DataType.TEXT_TYPES and _is_instant(cast.this, type_of):
            cast.set("this", exp.cast(cast.this, exp.DType.TIMESTAMPNTZ))


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
