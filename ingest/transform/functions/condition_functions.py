# SPDX-License-Identifier: Apache-2.0
"""Comparisons, logic and choices: SQL's three-valued logic, evaluated from left to right.

Floating numbers compare as in filters of the table format: NaN equals NaN and is greater than every
number. Operands that AND, OR, CASE, IF and COALESCE do not need for a row cannot fail for it.
"""

import dataclasses
import decimal
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from ingest.transform.functions.arithmetic import (
    BOOLEAN,
    DOUBLE,
    INT,
    MAX_PRECISION,
    Cells,
    Failure,
    Frame,
    Kernel,
    Mask,
    Planned,
    Values,
    absolute,
    arithmetic,
    as_array,
    as_double,
    decimal_of,
    is_floating,
    is_integer,
    is_numeric,
    is_temporal,
    is_text,
    mask_of,
    negated,
    quotient,
    quotient_type,
    restricted,
    rounded,
    sum_type,
    whole_quotient,
)
from ingest.transform.functions.call_site import MAX_ARGUMENTS, Function, Site, constant, type_label
from ingest.transform.functions.time_functions import shifted
from storage.format.types.types import AtomicType, TypeRoot, arrow_type

_KERNELS: Mapping[str, Callable[..., Any]] = {
    "=": pc.equal,
    "<>": pc.not_equal,
    "<": pc.less,
    "<=": pc.less_equal,
    ">": pc.greater,
    ">=": pc.greater_equal,
}


# --- comparisons -----------------------------------------------------------------------------


def _comparable(site: Site) -> tuple[list[Planned], Callable[[Values], Values]]:
    """Both sides and the cast of their values to one type."""
    left, right = site.arguments
    if is_numeric(left.type) and is_numeric(right.type):
        assert isinstance(left.type, AtomicType)
        assert isinstance(right.type, AtomicType)
        return [left, right], _number_cast(left.type, right.type)
    parts, type_ = site.aligned([left, right])
    if type_ is not None and not isinstance(type_, AtomicType):
        raise site.error(f"values of {type_label(type_)} cannot be compared")
    if type_ is None:
        parts = [site.coerced(part, BOOLEAN) for part in parts]
    return parts, lambda values: values


def _number_cast(left: AtomicType, right: AtomicType) -> Callable[[Values], Values]:
    if is_integer(left) and is_integer(right):
        return lambda values: values.cast(pa.int64())
    if is_floating(left) or is_floating(right):
        return as_double
    scale = max(decimal_of(left).scale, decimal_of(right).scale)
    wide = pa.decimal256(76, scale)
    return lambda values: _as_decimal(values).cast(wide)


def _as_decimal(values: Values) -> Values:
    if pa.types.is_integer(values.type):
        return values.cast(pa.int64()).cast(pa.decimal128(19, 0))
    return values


def _compare(site: Site) -> Planned:
    parts, cast = _comparable(site)
    function = _KERNELS[site.name]

    def kernel(left: Values, right: Values) -> Values:
        left, right = cast(left), cast(right)
        if pa.types.is_floating(left.type):
            return _compare_floats(site.name, left, right)
        return function(left, right)

    return site.result(BOOLEAN, kernel, parts)


def _compare_floats(name: str, left: Values, right: Values) -> Values:
    result = _KERNELS[name](left, right)
    left_nan, right_nan = pc.is_nan(left), pc.is_nan(right)
    if name in ("=", "<=", ">="):
        result = pc.or_(result, pc.and_(left_nan, right_nan))
    if name == "<>":
        return pc.and_(result, pc.invert(pc.and_(left_nan, right_nan)))
    if name in ("<", "<="):
        return pc.or_(result, pc.and_(right_nan, pc.invert(left_nan)))
    if name in (">", ">="):
        return pc.or_(result, pc.and_(left_nan, pc.invert(right_nan)))
    return result


def _distinct(site: Site) -> Planned:
    parts, cast = _comparable(site)

    def kernel(left: Values, right: Values) -> Values:
        left, right = cast(left), cast(right)
        floats = pa.types.is_floating(left.type)
        differ = _compare_floats("<>", left, right) if floats else pc.not_equal(left, right)
        one_null = pc.xor(pc.is_null(left), pc.is_null(right))
        return pc.or_(pc.fill_null(differ, False), one_null)

    return site.result(BOOLEAN, kernel, parts)


def _in(site: Site) -> Planned:
    left, items = site.arguments[0], site.arguments[1:]
    values = _value_set(left, items)
    if values is not None:

        def kernel(column: Values) -> Values:
            matches = pc.is_in(column, value_set=values)
            return pc.if_else(pc.is_valid(column), matches, pa.scalar(None, pa.bool_()))

        return site.result(BOOLEAN, kernel, [left])
    return _any_of(site, [_compare(_of(site, "=", left, item)) for item in items])


def _any_of(site: Site, conditions: Sequence[Planned]) -> Planned:
    """OR of conditions, halved so that a long list makes no deep tree."""
    if len(conditions) == 1:
        return conditions[0]
    middle = len(conditions) // 2
    halves = [_any_of(site, part) for part in (conditions[:middle], conditions[middle:])]
    return _or(_of(site, "or", *halves))


def _value_set(left: Planned, items: Sequence[Planned]) -> pa.Array | None:
    """Constants that are values of the column's type."""
    type_ = left.type
    if not isinstance(type_, AtomicType) or not (is_text(type_) or is_integer(type_)):
        return None
    scalars = [item.constant for item in items if item.constant is not None]
    alike = all(
        (is_text(item.type) and is_text(type_)) or (is_integer(item.type) and is_integer(type_))
        for item in items
    )
    if len(scalars) < len(items) or not alike or not all(scalar.is_valid for scalar in scalars):
        return None
    try:
        return pa.array([scalar.as_py() for scalar in scalars], arrow_type(type_))
    except (pa.ArrowInvalid, OverflowError):
        return None


def _of(site: Site, name: str, *parts: Planned) -> Site:
    return Site(site.expression, name, parts, site.start, site.end, site.zone)


def _between(site: Site) -> Planned:
    value, low, high = site.arguments
    above = _compare(_of(site, ">=", value, low))
    return _and(_of(site, "and", above, _compare(_of(site, "<=", value, high))))


def _is_null(site: Site) -> Planned:
    (part,) = site.arguments
    if part.type is None:
        part = site.coerced(part, BOOLEAN)
    return site.result(BOOLEAN, pc.is_null, [part])


def _is_truth(truth: bool) -> Callable[[Site], Planned]:
    def plan(site: Site) -> Planned:
        part = condition(site, site.arguments[0])
        return site.result(
            BOOLEAN, lambda column: pc.fill_null(pc.equal(column, pa.scalar(truth)), False), [part]
        )

    return plan


# --- logic -----------------------------------------------------------------------------------


def condition(site: Site, part: Planned) -> Planned:
    """An argument that must be a condition."""
    if part.type is None:
        return site.coerced(part, BOOLEAN)
    if not isinstance(part.type, AtomicType) or part.type.root is not TypeRoot.BOOLEAN:
        raise site.error(
            f"`{part.text}` is {type_label(part.type)}, not a condition",
            f"compare it, like: {part.text} <> 0" if is_numeric(part.type) else "",
        )
    return part


def _not(site: Site) -> Planned:
    return site.result(BOOLEAN, pc.invert, [condition(site, site.arguments[0])])


def _and(site: Site) -> Planned:
    return _join_conditions(site, pc.and_kleene, decided_by=False)


def _or(site: Site) -> Planned:
    return _join_conditions(site, pc.or_kleene, decided_by=True)


def _join_conditions(site: Site, join: Callable[..., Any], *, decided_by: bool) -> Planned:
    left, right = (condition(site, part) for part in site.arguments)

    def run(frame: Frame) -> Cells:
        left_cells, right_cells = left.run(frame), right.run(frame)
        values = join(as_array(left_cells.values, frame.num_rows), right_cells.values)
        if not right_cells.failures:
            return Cells(values, left_cells.failures)
        decided = left_cells.values if decided_by else pc.invert(left_cells.values)
        open_rows = ~mask_of(decided, frame.num_rows)
        return Cells(values, left_cells.failures + restricted(right_cells.failures, open_rows))

    return site.lazy(BOOLEAN, run, [left, right])


# --- choices ---------------------------------------------------------------------------------


def choice(
    site: Site, branches: Sequence[tuple[Planned, Planned]], otherwise: Planned | None
) -> Planned:
    """`CASE WHEN …`: the value of the first condition that is true."""
    conditions = [condition(site, test) for test, _ in branches]
    values = [value for _, value in branches]
    aligned, type_ = site.aligned(values if otherwise is None else [*values, otherwise])
    if type_ is None:
        raise site.error("no branch determines the type", "write CAST(NULL AS …)")
    last = aligned[-1] if otherwise is not None else None
    pairs = list(zip(conditions, aligned, strict=False))
    target = arrow_type(type_)
    site.try_choice(type_)

    def run(frame: Frame) -> Cells:
        rest = np.ones(frame.num_rows, bool)
        failures: tuple[Failure, ...] = ()
        chosen: list[tuple[Mask, Values]] = []
        for test, value in pairs:
            test_cells = test.run(frame)
            failures += restricted(test_cells.failures, rest)
            mask = mask_of(test_cells.values, frame.num_rows) & rest
            if mask.any():
                cells = value.run(frame)
                failures += restricted(cells.failures, mask)
                chosen.append((mask, cells.values))
                rest &= ~mask
        result: Values = pa.scalar(None, target)
        if last is not None:
            cells = last.run(frame)
            failures += restricted(cells.failures, rest)
            result = cells.values
        for mask, values in reversed(chosen):
            result = pc.if_else(pa.array(mask), values, result)
        return Cells(as_array(result, frame.num_rows), failures)

    return site.lazy(type_, run, [*conditions, *aligned])


def _if(site: Site) -> Planned:
    test, yes, no = site.arguments
    return choice(site, [(test, yes)], no)


def _coalesce(site: Site) -> Planned:
    parts, type_ = site.aligned(site.arguments)
    if type_ is None:
        raise site.error("every argument is NULL", "write CAST(NULL AS …)")
    site.try_choice(type_)

    def run(frame: Frame) -> Cells:
        first = parts[0].run(frame)
        result, failures = as_array(first.values, frame.num_rows), first.failures
        for part in parts[1:]:
            empty = np.asarray(pc.is_null(result).to_numpy(zero_copy_only=False), bool)
            if not empty.any():
                break
            cells = part.run(frame)
            failures += restricted(cells.failures, empty)
            result = pc.coalesce(result, cells.values)
        return Cells(result, failures)

    return site.lazy(type_, run, parts)


def _nullif(site: Site) -> Planned:
    left, right = site.arguments
    same = _compare(_of(site, "=", left, right))
    type_ = left.type or BOOLEAN

    def kernel(values: Values, equal: Values) -> Values:
        return pc.if_else(pc.fill_null(equal, False), pa.scalar(None, values.type), values)

    return site.result(type_, kernel, [site.coerced(left, type_), same])


def _extreme(better: str) -> Callable[[Site], Planned]:
    def plan(site: Site) -> Planned:
        parts, type_ = site.aligned(site.arguments)
        if not (is_numeric(type_) or is_temporal(type_) or is_text(type_)) or type_ is None:
            raise site.error(f"values of {type_label(type_)} have no order")

        def run(*values: Values) -> Values:
            result = _ordered(better, values)
            all_valid = pc.is_valid(values[0])
            for value in values[1:]:
                all_valid = pc.and_(all_valid, pc.is_valid(value))
            return pc.if_else(all_valid, result, pa.scalar(None, result.type))

        return site.result(type_, run, parts)

    return plan


def _ordered(name: str, values: Sequence[Values]) -> Values:
    extreme = values[0]
    for value in values[1:]:
        if pa.types.is_floating(extreme.type):
            better = _compare_floats(name, value, extreme)
        else:
            better = _KERNELS[name](value, extreme)
        extreme = pc.if_else(better, value, extreme)
    return extreme


CONDITIONS: dict[str, Function] = {
    **{
        name: Function(f"a {name} b", "comparison; null if an operand is null", _compare)
        for name in _KERNELS
    },
    "is distinct from": Function("a IS DISTINCT FROM b", "never null", _distinct),
    "in": Function("a IN (b, c)", "equal to one of them", _in, (2, MAX_ARGUMENTS)),
    "between": Function("a BETWEEN b AND c", "a >= b AND a <= c", _between, (3, 3)),
    "is null": Function("a IS NULL", "never null", _is_null, (1, 1)),
    "is true": Function("a IS TRUE", "never null", _is_truth(True), (1, 1)),
    "is false": Function("a IS FALSE", "never null", _is_truth(False), (1, 1)),
    "not": Function("NOT a", "null stays null", _not, (1, 1)),
    "and": Function("a AND b", "b is not evaluated if a is false", _and),
    "or": Function("a OR b", "b is not evaluated if a is true", _or),
    "if": Function("if(condition, a, b)", "b if the condition is false or null", _if, (3, 3)),
    "coalesce": Function(
        "coalesce(a, b, …)", "the first argument that is not null", _coalesce, (1, MAX_ARGUMENTS)
    ),
    "ifnull": Function("ifnull(a, b)", "b if a is null", _coalesce),
    "nvl": Function("nvl(a, b)", "b if a is null", _coalesce),
    "nullif": Function("nullif(a, b)", "null if they are equal, else a", _nullif),
    "greatest": Function(
        "greatest(a, b, …)",
        "the largest; null if an argument is null",
        _extreme(">"),
        (2, MAX_ARGUMENTS),
    ),
    "least": Function(
        "least(a, b, …)",
        "the smallest; null if an argument is null",
        _extreme("<"),
        (2, MAX_ARGUMENTS),
    ),
}
"""Operators and functions of truth and choice."""


# Operators and functions of numbers; `+` and `-` of dates and intervals, too.


INTERVAL_MARK = "interval "
"""Begins the constant that an interval literal is planned as."""

_TOO_MANY = "the result would have too many digits"
_CAST = "cast a side to a DECIMAL with fewer digits"


def _operands(site: Site) -> tuple[list[Planned], AtomicType, AtomicType]:
    """Both sides as numbers; NULL takes the type of the other."""
    left, right = site.arguments
    types = [part.type for part in (left, right) if part.type is not None]
    if not types:
        types = [INT]
    parts = [
        part if part.type is not None else site.coerced(part, types[0]) for part in (left, right)
    ]
    for index, part in enumerate(parts):
        if not is_numeric(part.type):
            hint = f"write CAST({part.text} AS DECIMAL(18, 2))"
            if is_temporal(part.type):
                hint = "write an INTERVAL, like: at + INTERVAL '1' DAY; or datediff(a, b)"
            raise site.error(
                f"`{site.name}` takes numbers, not {type_label(part.type)}", hint, index
            )
    parts = [_narrow(part, parts) for part in parts]
    left_type, right_type = parts[0].type, parts[1].type
    assert isinstance(left_type, AtomicType)
    assert isinstance(right_type, AtomicType)
    return parts, left_type, right_type


def _narrow(part: Planned, parts: list[Planned]) -> Planned:
    """A whole number that is written beside a decimal has only the digits that it needs."""
    types = (operand.type for operand in parts if isinstance(operand.type, AtomicType))
    beside = any(type_.root is TypeRoot.DECIMAL for type_ in types)
    if (
        not beside
        or not is_integer(part.type)
        or part.constant is None
        or not part.constant.is_valid
    ):
        return part
    value = decimal.Decimal(part.constant.as_py())
    type_ = AtomicType(TypeRoot.DECIMAL, precision=len(value.as_tuple().digits), scale=0)
    return constant(pa.scalar(value, arrow_type(type_)), type_, part.text, part.start)


def _sum(site: Site) -> Planned:
    interval = _interval(site)
    if interval is not None:
        return interval
    parts, left, right = _operands(site)
    type_ = sum_type(site.name, left, right)
    if type_ is None:
        raise site.error(_TOO_MANY, _CAST)
    return site.result(type_, arithmetic(site.name, type_), parts)


def _interval(site: Site) -> Planned | None:
    marks = [_interval_steps(part) for part in site.arguments]
    if marks == [None, None]:
        return None
    if marks[1] is None and site.name == "+":
        part, mark = site.arguments[1], marks[0]
    elif marks[0] is None and site.name in ("+", "-"):
        part, mark = site.arguments[0], marks[1]
    else:
        raise site.error("an interval can only be added to or subtracted from a date")
    assert mark is not None
    steps, unit = mark
    return shifted(site, part, -steps if site.name == "-" else steps, unit)


def _interval_steps(part: Planned) -> tuple[int, str] | None:
    value = None if part.constant is None or part.type is not None else part.constant.as_py()
    if not isinstance(value, str) or not value.startswith(INTERVAL_MARK):
        return None
    steps, unit = value.removeprefix(INTERVAL_MARK).split()
    return int(steps), unit


def _divide(site: Site) -> Planned:
    parts, left, right = _operands(site)
    if is_integer(left) and is_integer(right):
        dividend, divisor = site.arguments
        raise site.error(
            "`/` of whole numbers truncates in some databases and not in others",
            f"write {dividend.text} DIV {divisor.text}, "
            f"or CAST({dividend.text} AS DECIMAL(18, 2)) / {divisor.text}",
        )
    type_ = DOUBLE if is_floating(left) or is_floating(right) else quotient_type(left, right)
    kernel = quotient(left, right, type_)
    if kernel is None:
        raise site.error(_TOO_MANY, _CAST)
    return site.result(type_, kernel, parts)


def _whole_divide(site: Site) -> Planned:
    operator = "%" if site.name in ("%", "mod") else "div"
    parts, left, right = _operands(site)
    type_ = sum_type("%", left, right)
    if type_ is not None and operator == "div" and type_.root is TypeRoot.DECIMAL:
        type_ = AtomicType(TypeRoot.DECIMAL, precision=MAX_PRECISION, scale=0)
    kernel = None if type_ is None else whole_quotient(operator, left, right, type_)
    if kernel is None or type_ is None:
        raise site.error(_TOO_MANY, _CAST)
    return site.result(type_, kernel, parts)


def _unary(kernel: Callable[[AtomicType], Kernel]) -> Callable[[Site], Planned]:
    def plan(site: Site) -> Planned:
        type_ = site.need(0, is_numeric, "a number")
        return site.result(type_, kernel(type_))

    return plan


def _round(site: Site) -> Planned:
    return _rounding(site, "half_towards_infinity", site.whole_number(1, 0) if site.has(1) else 0)


def _to_whole(mode: str) -> Callable[[Site], Planned]:
    return lambda site: _rounding(site, mode, 0)


def _rounding(site: Site, mode: str, digits: int) -> Planned:
    type_ = site.need(0, is_numeric, "a number")
    part = site.arguments[0]
    if is_integer(type_):
        return part
    if type_.root is not TypeRoot.DECIMAL:
        return site.result(type_, rounded(mode, digits, type_), [part])
    decimal_type = decimal_of(type_)
    if digits >= decimal_type.scale:
        return part
    whole = min(decimal_type.precision - decimal_type.scale + 1, MAX_PRECISION - digits)
    result_type = dataclasses.replace(decimal_type, precision=whole + digits, scale=digits)
    return site.result(result_type, rounded(mode, digits, result_type), [part])


NUMBER_FUNCTIONS: dict[str, Function] = {
    "+": Function("a + b", "sum; a date or time plus an INTERVAL", _sum),
    "-": Function("a - b", "difference; a date or time minus an INTERVAL", _sum),
    "*": Function("a * b", "product", _sum),
    "/": Function("a / b", "quotient; refused for two integers", _divide),
    "%": Function("a % b", "remainder with the sign of a", _whole_divide),
    "mod": Function("mod(a, b)", "remainder with the sign of a", _whole_divide),
    "div": Function("a DIV b", "integer quotient, truncated towards zero", _whole_divide),
    "negate": Function("-a", "negation", _unary(negated), (1, 1)),
    "abs": Function("abs(x)", "absolute value", _unary(absolute), (1, 1)),
    "round": Function("round(x [, digits])", "rounds half up", _round, (1, 2)),
    "ceil": Function("ceil(x)", "smallest integer not below x", _to_whole("up"), (1, 1)),
    "ceiling": Function("ceiling(x)", "smallest integer not below x", _to_whole("up"), (1, 1)),
    "floor": Function("floor(x)", "largest integer not above x", _to_whole("down"), (1, 1)),
}
"""Operators and functions of numbers."""
