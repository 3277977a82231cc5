# SPDX-License-Identifier: Apache-2.0
"""Spark's filters as predicates of `storage`: only those that mean exactly the same.

What is left out is given back to Spark, which then filters itself. Left out are conditions on parts
of a column, on types whose values change on the way to Spark (finer than microseconds, TIME), and
texts with the marks of LIKE.
"""

import datetime
from collections.abc import Callable, Mapping
from typing import Any

import pyarrow as pa
from pyspark.sql.datasource import (
    EqualNullSafe,
    EqualTo,
    Filter,
    GreaterThan,
    GreaterThanOrEqual,
    In,
    IsNotNull,
    IsNull,
    LessThan,
    LessThanOrEqual,
    Not,
    StringContains,
    StringEndsWith,
    StringStartsWith,
)

from storage.errors import InvalidRequestError
from storage.table.scan import predicate as own
from storage.table.scan.predicate import Op, Predicate, literal_scalar

__all__ = ["pushed_predicate"]

_COMPARISONS: Mapping[type[Filter], Op] = {
    EqualTo: Op.EQ,
    GreaterThan: Op.GT,
    GreaterThanOrEqual: Op.GE,
    LessThan: Op.LT,
    LessThanOrEqual: Op.LE,
}
_PATTERNS: Mapping[type[Filter], str] = {
    StringStartsWith: "{}%",
    StringEndsWith: "%{}",
    StringContains: "%{}%",
}
_LIKE_MARKS = frozenset("%_\\\n\r")


def pushed_predicate(found: Filter, schema: pa.Schema) -> Predicate | None:
    """What a filter means.

    Args:
        found: the filter.
        schema: columns in the form of `storage`.

    Returns:
        None when Spark has to filter itself.
    """
    if isinstance(found, Not):
        part = pushed_predicate(found.child, schema)
        return None if part is None else own.Not(part)
    path: tuple[str, ...] = getattr(found, "attribute", ())
    if len(path) != 1 or path[0] not in schema.names:
        return None
    name = path[0]
    if isinstance(found, IsNull):
        return own.IsNull(name)
    if isinstance(found, IsNotNull):
        return own.Not(own.IsNull(name))
    type_ = schema.field(name).type
    return _compared(found, name, type_) if _keeps_values(type_) else None


def _compared(found: Filter, name: str, type_: pa.DataType) -> Predicate | None:
    value: Any = getattr(found, "value", None)
    if isinstance(found, In):
        return own.In(name, tuple(value)) if all(_fits(one, type_) for one in value) else None
    pattern = _PATTERNS.get(type(found))
    if pattern is not None:
        plain = isinstance(value, str) and not _LIKE_MARKS & set(value)
        return own.Like(name, pattern.format(value)) if plain else None
    if not _fits(value, type_):
        return None
    if isinstance(found, EqualNullSafe):
        if value is None:
            return own.IsNull(name)
        return own.And((own.Not(own.IsNull(name)), own.Compare(Op.EQ, name, value)))
    op = _COMPARISONS.get(type(found))
    return None if op is None else own.Compare(op, name, value)


_EXACT: tuple[Callable[[pa.DataType], bool], ...] = (
    pa.types.is_boolean,
    pa.types.is_integer,
    pa.types.is_floating,
    pa.types.is_decimal,
    pa.types.is_string,
    pa.types.is_binary,
    pa.types.is_date,
)


def _keeps_values(type_: pa.DataType) -> bool:
    if pa.types.is_timestamp(type_):
        return type_.unit != "ns"
    return any(is_of(type_) for is_of in _EXACT)


def _fits(value: Any, type_: pa.DataType) -> bool:
    """Whether a literal can be compared as it is; null always can."""
    if value is None:
        return True
    if pa.types.is_timestamp(type_):
        if not isinstance(value, datetime.datetime):
            return False
        if (value.tzinfo is None) is not (type_.tz is None):
            return False
        if type_.unit == "ms" and value.microsecond % 1000:
            return False  # Arrow would cut it off
    elif pa.types.is_string(type_) is not isinstance(value, str):
        return False
    try:
        return literal_scalar(value, type_) is not None
    except (pa.ArrowException, InvalidRequestError, OverflowError):
        return False
