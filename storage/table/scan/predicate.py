# SPDX-License-Identifier: Apache-2.0
"""Conditions on rows: values, and their evaluation on batches.

Owns the meaning of a filter: SQL's three-valued logic, with floats compared as SQL engines do
(NaN equals NaN and is greater than every number; -0.0 equals 0.0). Predicates are frozen values;
`predicate_text` parses them from text, `prune` prunes by them.
"""

import dataclasses
import decimal
import enum
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from storage.errors import InvalidRequestError


class Op(enum.Enum):
    """Comparisons."""

    EQ = "="
    NE = "<>"
    LT = "<"
    LE = "<="
    GT = ">"
    GE = ">="

    @property
    def negated(self) -> "Op":
        """The comparison that is true where this one is false."""
        return _NEGATED[self]


_NEGATED = {Op.EQ: Op.NE, Op.NE: Op.EQ, Op.LT: Op.GE, Op.GE: Op.LT, Op.GT: Op.LE, Op.LE: Op.GT}


@dataclasses.dataclass(frozen=True, slots=True)
class Compare:
    """`column op literal`; unknown when either is null.

    The literal is a Python value that fits the column: int, float, Decimal, str, bytes, bool,
    `datetime` values for dates and times (or their ISO text), or None.
    """

    op: Op
    column: str
    literal: Any


@dataclasses.dataclass(frozen=True, slots=True)
class In:
    """`column IN (…)`; unknown when the column, or a literal that would decide, is null."""

    column: str
    literals: tuple[Any, ...]


@dataclasses.dataclass(frozen=True, slots=True)
class Between:
    """`low <= column <= high`."""

    column: str
    low: Any
    high: Any


@dataclasses.dataclass(frozen=True, slots=True)
class IsNull:
    """`column IS NULL`; never unknown."""

    column: str


@dataclasses.dataclass(frozen=True, slots=True)
class Like:
    r"""`column LIKE pattern`, with `%`, `_` and the escape `\`."""

    column: str
    pattern: str


@dataclasses.dataclass(frozen=True, slots=True)
class And:
    """All of the parts; true without parts."""

    parts: tuple["Predicate", ...]


@dataclasses.dataclass(frozen=True, slots=True)
class Or:
    """Any of the parts; false without parts."""

    parts: tuple["Predicate", ...]


@dataclasses.dataclass(frozen=True, slots=True)
class Not:
    """Negation; unknown stays unknown."""

    part: "Predicate"


Predicate = Compare | In | Between | IsNull | Like | And | Or | Not


def columns_of(predicate: Predicate | None) -> frozenset[str]:
    """Names of the columns that a predicate reads."""
    match predicate:
        case None:
            return frozenset()
        case And(parts) | Or(parts):
            return frozenset().union(*(columns_of(part) for part in parts))
        case Not(part):
            return columns_of(part)
        case _:
            return frozenset({predicate.column})


def require_known(columns: Iterable[str], column_names: Sequence[str]) -> None:
    """Check that columns exist.

    Raises:
        InvalidRequestError: names the first that does not.
    """
    for name in columns:
        if name not in column_names:
            raise InvalidRequestError(
                "no such column", hint=f"there are {', '.join(column_names)}", column=name
            )


def conjuncts(predicate: Predicate | None) -> tuple[Predicate, ...]:
    """The parts that must all be true."""
    if predicate is None:
        return ()
    if isinstance(predicate, And):
        return tuple(conjunct for part in predicate.parts for conjunct in conjuncts(part))
    return (predicate,)


def both(first: Predicate | None, second: Predicate | None) -> Predicate | None:
    """Both conditions; None = all rows."""
    if first is None or second is None:
        return second if first is None else first
    return And((first, second))


def normalised(predicate: Predicate) -> Predicate:
    """The same predicate with `Not` pushed down to `IsNull`, `In` and `Like`; no `Between`."""
    match predicate:
        case And(parts):
            return And(tuple(normalised(part) for part in parts))
        case Or(parts):
            return Or(tuple(normalised(part) for part in parts))
        case Between(column, low, high):
            return And((Compare(Op.GE, column, low), Compare(Op.LE, column, high)))
        case Not(part):
            return _negated(part)
        case _:
            return predicate


def _negated(predicate: Predicate) -> Predicate:
    match predicate:
        case And(parts):
            return Or(tuple(_negated(part) for part in parts))
        case Or(parts):
            return And(tuple(_negated(part) for part in parts))
        case Not(part):
            return normalised(part)
        case Compare(op, column, literal):
            return Compare(op.negated, column, literal)
        case Between(column, low, high):
            return Or((Compare(Op.LT, column, low), Compare(Op.GT, column, high)))
        case _:
            return Not(predicate)


# --- evaluation ------------------------------------------------------------------------------


def mask(predicate: Predicate, batch: pa.RecordBatch) -> pa.BooleanArray:
    """Which rows make the predicate true; false where it is unknown.

    Raises:
        InvalidRequestError: a column is missing, or a literal does not fit its column.
    """
    return pc.fill_null(_evaluate(predicate, batch), False)


def _evaluate(predicate: Predicate, batch: pa.RecordBatch) -> pa.BooleanArray:
    match predicate:
        case And(parts):
            return _combine(parts, batch, pc.and_kleene, empty=True)
        case Or(parts):
            return _combine(parts, batch, pc.or_kleene, empty=False)
        case Not(part):
            return pc.invert(_evaluate(part, batch))
        case IsNull(column):
            return pc.is_null(_column(batch, column))
        case Between(column, low, high):
            bounds = And((Compare(Op.GE, column, low), Compare(Op.LE, column, high)))
            return _evaluate(bounds, batch)
        case In(column, literals):
            equalities = tuple(Compare(Op.EQ, column, literal) for literal in literals)
            return _is_in(_column(batch, column), literals, batch, equalities)
        case Like(column, pattern):
            return pc.match_like(_column(batch, column), pattern)
        case Compare(op, column, literal):
            return _compare(op, _column(batch, column), literal, column)


def _combine(
    parts: Sequence[Predicate],
    batch: pa.RecordBatch,
    join: Callable[[pa.Array, pa.Array], pa.Array],
    *,
    empty: bool,
) -> pa.BooleanArray:
    result = pa.repeat(pa.scalar(empty), batch.num_rows)
    for part in parts:
        result = join(result, _evaluate(part, batch))
    return result


def _column(batch: pa.RecordBatch, name: str) -> pa.Array:
    position = batch.schema.get_field_index(name)
    if position < 0:
        raise InvalidRequestError("a filter names a column that does not exist", column=name)
    return batch.column(position)


def _is_in(
    column: pa.Array,
    literals: tuple[Any, ...],
    batch: pa.RecordBatch,
    comparisons: tuple[Compare, ...],
) -> pa.BooleanArray:
    plain = not pa.types.is_floating(column.type) and None not in literals
    if plain and len(literals) > 1:
        values = [literal_scalar(literal, column.type) for literal in literals]
        if all(value is not None for value in values):
            matches = pc.is_in(column, value_set=pa.array(values, type=column.type))
            return pc.if_else(pc.is_valid(column), matches, pa.scalar(None, pa.bool_()))
    return _evaluate(Or(comparisons), batch)


_KERNELS: Mapping[Op, Callable[..., Any]] = {
    Op.EQ: pc.equal,
    Op.NE: pc.not_equal,
    Op.LT: pc.less,
    Op.LE: pc.less_equal,
    Op.GT: pc.greater,
    Op.GE: pc.greater_equal,
}


def _compare(op: Op, column: pa.Array, literal: Any, name: str) -> pa.BooleanArray:
    if literal is None:
        return pa.nulls(len(column), pa.bool_())
    try:
        scalar = literal_scalar(literal, column.type)
        if scalar is None:  # not a value of the column's type: compare where both fit
            column, scalar = _widened(column, literal)
    except (
        pa.ArrowInvalid,
        pa.ArrowTypeError,
        pa.ArrowNotImplementedError,
        decimal.InvalidOperation,  # more digits than the widest decimal has
    ) as error:
        raise InvalidRequestError(
            "a filter compares a column with a value of another type",
            detail=str(error),
            column=name,
            type=column.type,
            value=literal,
        ) from error
    if pa.types.is_floating(column.type):
        return _compare_floats(op, column, scalar)
    return _KERNELS[op](column, scalar)


def _compare_floats(op: Op, column: pa.Array, scalar: pa.Scalar) -> pa.BooleanArray:
    """NaN equals NaN and is the greatest value."""
    nan_column = pc.is_nan(column)
    if pc.is_nan(scalar).as_py():
        valid = pc.is_valid(column)
        truth = {
            Op.EQ: nan_column,
            Op.NE: pc.invert(nan_column),
            Op.LT: pc.invert(nan_column),
            Op.GE: nan_column,
            Op.GT: pc.and_(nan_column, pa.scalar(False)),
            Op.LE: pc.or_(nan_column, pa.scalar(True)),
        }[op]
        return pc.if_else(valid, truth, pa.scalar(None, pa.bool_()))
    plain = _KERNELS[op](column, scalar)
    if op in (Op.GT, Op.GE, Op.NE):
        return pc.or_(plain, nan_column)
    return plain


def literal_scalar(literal: Any, type_: pa.DataType) -> pa.Scalar | None:
    """The literal as a value of a column type; None when it has no exact value there."""
    if isinstance(literal, str) and not pa.types.is_string(type_):
        if pa.types.is_binary(type_):
            return pa.scalar(literal.encode(), type_)
        return pa.scalar(literal).cast(type_)
    if pa.types.is_boolean(type_) != isinstance(literal, bool):
        raise pa.ArrowInvalid(f"{literal!r} is not a {type_}")
    if pa.types.is_floating(type_):
        return pa.scalar(float(literal), type_) if _fits_float(literal, type_) else None
    if isinstance(literal, (float, decimal.Decimal)) and not pa.types.is_decimal(type_):
        if literal != literal or literal in (float("inf"), float("-inf")):
            return None
        return literal_scalar(int(literal), type_) if literal == int(literal) else None
    if isinstance(literal, (int, float)) and pa.types.is_decimal(type_):
        literal = decimal.Decimal(repr(literal))
    try:
        return pa.scalar(literal, type_)
    except (pa.ArrowInvalid, OverflowError):
        if isinstance(literal, (int, decimal.Decimal)):
            return None
        raise


def _fits_float(literal: Any, type_: pa.DataType) -> bool:
    if not isinstance(literal, (int, float, decimal.Decimal)):
        raise pa.ArrowInvalid(f"{literal!r} is not a {type_}")
    value = float(literal)
    return value != value or pa.scalar(value, type_).as_py() == value


def _widened(column: pa.Array, literal: Any) -> tuple[pa.Array, pa.Scalar]:
    """Column and literal as doubles, or as decimals where a double would round integers."""
    if isinstance(literal, float) or pa.types.is_floating(column.type):
        return column.cast(pa.float64(), safe=False), pa.scalar(float(literal), pa.float64())
    value = decimal.Decimal(literal)
    exponent = value.as_tuple().exponent
    scale = max(0, -exponent) if isinstance(exponent, int) else 0
    if pa.types.is_decimal(column.type):
        scale = max(scale, column.type.scale)
    wide = pa.decimal256(76, min(scale, 50))
    return column.cast(wide), pa.scalar(round(value, wide.scale), wide)
