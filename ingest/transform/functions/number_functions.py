# SPDX-License-Identifier: Apache-2.0
"""Operators and functions of numbers; `+` and `-` of dates and intervals, too."""

import dataclasses
import decimal
from collections.abc import Callable

import pyarrow as pa

from ingest.transform.functions.arithmetic import (
    absolute,
    arithmetic,
    negated,
    quotient,
    rounded,
    whole_quotient,
)
from ingest.transform.functions.call_site import Function, Site, constant, type_label
from ingest.transform.functions.cells import Kernel, Planned
from ingest.transform.functions.time_functions import shifted
from ingest.transform.functions.type_rules import (
    DOUBLE,
    INT,
    MAX_PRECISION,
    decimal_of,
    is_floating,
    is_integer,
    is_numeric,
    is_temporal,
    quotient_type,
    sum_type,
)
from storage.format.types.arrow_types import arrow_type
from storage.format.types.types import AtomicType, TypeRoot

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
