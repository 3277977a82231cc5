# SPDX-License-Identifier: Apache-2.0
"""Conditions on rows: values, and their evaluation on batches.

Owns the meaning of a filter: SQL's three-valued logic, with floats compared as SQL engines do
(NaN equals NaN and is greater than every number; -0.0 equals 0.0). Predicates are frozen values;
`predicate_text` parses them from text, `prune` prunes by them.
"""

import dataclasses
import decimal
import enum
import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from storage.errors import InvalidRequestError
from storage.format.files.parquet import ColumnRange
from storage.format.row.row_codec import Timestamp
from storage.table.scan.expression_text import (
    Call,
    ColumnName,
    Literal,
    LiteralKind,
    Node,
    parse_expression,
)


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

_WILD = {"%": ".*", "_": "."}


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
            return match_like(_column(batch, column), pattern)
        case Compare(op, column, literal):
            return _compare(op, _column(batch, column), literal, column)


def match_like(
    column: pa.Array, pattern: str, *, escape: str = "\\", ignore_case: bool = False
) -> pa.BooleanArray:
    r"""SQL's LIKE: `%` is any text, `_` any character, the escape makes the next one plain.

    `pc.match_like` takes the escapes in patterns such as `a\\%` for text.
    """
    if escape not in pattern and "\\" not in pattern:
        return pc.match_like(column, pattern, ignore_case=ignore_case)
    regex = "(?s)^"
    letters = iter(pattern)
    for letter in letters:
        if letter == escape:
            regex += re.escape(next(letters, ""))
        else:
            regex += _WILD.get(letter) or re.escape(letter)
    return pc.match_substring_regex(column, f"{regex}$", ignore_case=ignore_case)


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


# Predicates on ranges: whether a file, manifest or partition may hold a matching row.
#
# Pure. Source: SEMANTICS.md §J; where pruning is sound is decided in `scan`.


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Range:
    """What is known about a column in some file, manifest or partition.

    Attributes:
        low: smallest value or a lower bound, as `row_codec.decode_row` gives it; None = unknown.
        high: largest value or an upper bound; None = unknown.
        null_count: None = unknown.
        row_count: rows the range is about; None = unknown.
    """

    low: Any = None
    high: Any = None
    null_count: int | None = None
    row_count: int | None = None

    @property
    def only_nulls(self) -> bool:
        """Whether every value is null, for certain."""
        return self.row_count is not None and self.null_count == self.row_count


def row_group_range(stored: ColumnRange | None) -> Range | None:
    """The statistics of a row group as a range, where they have the form of decoded rows."""
    if stored is None or not isinstance(stored.minimum, int | str):
        return None
    return Range(
        low=stored.minimum,
        high=stored.maximum,
        null_count=stored.null_count,
        row_count=stored.row_count,
    )


def could_match(
    predicate: Predicate, ranges: Callable[[str], Range | None], types: Mapping[str, pa.DataType]
) -> bool:
    """Whether some row may make the predicate true. False only when none can.

    Args:
        ranges: what is known of a column; None = nothing.
        types: Arrow type of each column that `ranges` knows.
    """
    return _could(normalised(predicate), ranges, types)


def _could(
    predicate: Predicate, ranges: Callable[[str], Range | None], types: Mapping[str, pa.DataType]
) -> bool:
    match predicate:
        case And(parts):
            return all(_could(part, ranges, types) for part in parts)
        case Or(parts):
            return any(_could(part, ranges, types) for part in parts)
        case IsNull(column):
            bounds = ranges(column)
            return bounds is None or bounds.null_count != 0
        case Not(IsNull(column)):
            bounds = ranges(column)
            return bounds is None or not bounds.only_nulls
        case Compare(op, column, literal):
            return _could_compare(op, literal, ranges(column), types.get(column))
        case In(column, literals):
            bounds, type_ = ranges(column), types.get(column)
            return any(_could_compare(Op.EQ, literal, bounds, type_) for literal in literals)
        case _:
            return True


def _could_compare(op: Op, literal: Any, bounds: Range | None, type_: pa.DataType | None) -> bool:
    if literal is None:
        return False
    if bounds is None or type_ is None:
        return True
    if bounds.only_nulls:
        return False
    if bounds.low is None or bounds.high is None or pa.types.is_floating(type_):
        return True  # the range of floats does not cover NaN
    try:
        scalar = literal_scalar(literal, type_)
    except (pa.ArrowInvalid, pa.ArrowTypeError, pa.ArrowNotImplementedError):
        return True  # evaluation reports the error
    return scalar is None or _overlaps(op, bounds.low, bounds.high, row_value(scalar))


def _overlaps(op: Op, low: Any, high: Any, value: Any) -> bool:
    """Whether some x in [low, high] satisfies `x op value`."""
    result: bool
    match op:
        case Op.EQ:
            result = low <= value <= high
        case Op.NE:
            result = not low == value == high
        case Op.LT:
            result = low < value
        case Op.LE:
            result = low <= value
        case Op.GT:
            result = high > value
        case Op.GE:
            result = high >= value
    return result


_NANOS_PER_UNIT = {"s": 1_000_000_000, "ms": 1_000_000, "us": 1_000, "ns": 1}


def row_value(scalar: pa.Scalar) -> Any:
    """An Arrow scalar in the form of `row_codec.decode_row`; control plane only."""
    if pa.types.is_timestamp(scalar.type):
        nanos = scalar.value * _NANOS_PER_UNIT[scalar.type.unit]
        return Timestamp(nanos // 1_000_000, nanos % 1_000_000)
    if pa.types.is_date32(scalar.type) or pa.types.is_time32(scalar.type):
        return scalar.value
    return scalar.as_py()


# Predicates from SQL text: `id > 5 and (name = 'x' or name is null)`.
#
# The part of the grammar of `expression_text` that scans can prune by: comparisons of a column with
# a literal, IN, BETWEEN, LIKE, IS [NOT] NULL, NOT, AND, OR and parentheses. Literals are numbers,
# 'strings', X'bytes', TRUE, FALSE, NULL, and DATE/TIME/TIMESTAMP followed by a string.


_MOST_DIGITS = 76
"""Of an int: the widest decimal has as many."""
_OPS = {op.value: op for op in Op}
_MIRRORED = {Op.LT: Op.GT, Op.LE: Op.GE, Op.GT: Op.LT, Op.GE: Op.LE}


def parse_predicate(text: str) -> Predicate:
    """Parse a filter.

    Raises:
        InvalidRequestError: the text is no filter; names the position.
    """
    try:
        node = parse_expression(text)
    except InvalidRequestError as error:
        raise _text_error(text, error.detail, error.hint) from error
    return _Converter(text).predicate(node)


def as_predicate(filter: object) -> Predicate | None:
    """A filter as callers pass it: a text, a predicate, or None.

    Raises:
        InvalidRequestError: the text is no filter, or the value is neither text nor predicate.
    """
    if isinstance(filter, str):
        return parse_predicate(filter)
    if filter is None or isinstance(filter, Predicate):
        return filter
    hint = "such as \"price > 5 and item like 't%'\""
    if isinstance(filter, int):
        hint = f"a snapshot is given by name: snapshot={filter}"
    raise InvalidRequestError(
        "a filter is a text or a predicate", hint=hint, type=type(filter).__name__, value=filter
    )


class _Converter:
    """Converts a tree to a predicate.

    Args:
        text: the whole filter, for errors.
    """

    def __init__(self, text: str) -> None:
        self._text = text

    def predicate(self, node: Node) -> Predicate:
        match node:
            case Call("and"):
                return And(tuple(map(self.predicate, _operands(node, "and"))))
            case Call("or"):
                return Or(tuple(map(self.predicate, _operands(node, "or"))))
            case Call("not", (part,)):
                return Not(self.predicate(part))
            case Call("is null", (ColumnName(name),)):
                return IsNull(name)
            case Call("in", (ColumnName(name), *items)):
                return In(name, tuple(map(self._literal, items)))
            case Call("between", (ColumnName(name), low, high)):
                return Between(name, self._literal(low), self._literal(high))
            case Call("like", (ColumnName(name), pattern)):
                return Like(name, str(self._literal(pattern)))
            case Call(operator, (ColumnName(name), value)) if operator in _OPS:
                return Compare(_OPS[operator], name, self._literal(value))
            case Call(operator, (value, ColumnName(name))) if operator in _OPS:
                op = _OPS[operator]
                return Compare(_MIRRORED.get(op, op), name, self._literal(value))
        raise self._error(node, "a condition on a column")

    def _literal(self, node: Node) -> Any:
        if not isinstance(node, Literal) or node.kind is LiteralKind.INTERVAL:
            raise self._error(node, "a literal")
        match node.kind:
            case LiteralKind.NULL:
                return None
            case LiteralKind.BOOLEAN:
                return node.text == "true"
            case LiteralKind.BYTES:
                return bytes.fromhex(node.text)
            case LiteralKind.NUMBER:
                number = decimal.Decimal(node.text)
                whole = node.text.removeprefix("-").isdigit()
                return int(number) if whole and len(node.text) <= _MOST_DIGITS else number
            case _:
                return node.text

    def _error(self, node: Node, expected: str) -> InvalidRequestError:
        actual = self._text[node.start : node.end]
        return _text_error(
            self._text, f"at character {node.start + 1}: expected {expected}, found `{actual}`"
        )


def _operands(node: Node, name: str) -> Iterator[Node]:
    """Operands of a chain such as `a AND b AND c`."""
    if not isinstance(node, Call) or node.name != name:
        yield node
        return
    for argument in node.arguments:
        yield from _operands(argument, name)


def _text_error(text: str, detail: str, hint: str = "") -> InvalidRequestError:
    return InvalidRequestError(
        "a filter cannot be parsed",
        detail=detail,
        hint=hint or "write it like: id > 5 and name in ('x', 'y')",
        filter=text,
    )
