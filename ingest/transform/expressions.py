# SPDX-License-Identifier: Apache-2.0
"""SQL expressions over Arrow batches, with the types of Paimon's columns.

`plan_expression` reads and checks a text against columns once; `Planned.run` gives the values of a
frame and the rows that have none. Deterministic: the same batch, time and zone give the same
values. A result is always nullable, because a delete may contain only its key.
"""

import dataclasses
import decimal
from collections.abc import Mapping, Sequence

import pyarrow as pa

from ingest.config.suggestion import nearest
from ingest.transform.functions.call_site import Function, Site, constant, type_label
from ingest.transform.functions.casting import strict_cast
from ingest.transform.functions.cells import Cells, Frame, Planned, runner
from ingest.transform.functions.condition_functions import CONDITIONS, choice
from ingest.transform.functions.number_functions import INTERVAL_MARK, NUMBER_FUNCTIONS
from ingest.transform.functions.text_functions import TEXT_FUNCTIONS
from ingest.transform.functions.time_functions import TIME_FUNCTIONS
from ingest.transform.functions.type_rules import (
    BIGINT,
    BOOLEAN,
    BYTES,
    DOUBLE,
    INT,
    MAX_PRECISION,
    STRING,
)
from storage.format.files.orc.zones import Zone
from storage.format.types.arrow_types import arrow_type
from storage.format.types.types import AtomicType, DataType, TypeRoot
from storage.table.scan.expression_text import (
    Call,
    Case,
    CastTo,
    ColumnName,
    Literal,
    LiteralKind,
    Node,
    expression_error,
    parse_expression,
)

FUNCTIONS: dict[str, Function] = {
    **CONDITIONS,
    **NUMBER_FUNCTIONS,
    **TEXT_FUNCTIONS,
    **TIME_FUNCTIONS,
}
"""Everything that can be called, by name in lower case."""

_INTEGER_LIMITS = ((INT, 1 << 31), (BIGINT, 1 << 63))
_TIME_LITERALS = {
    LiteralKind.DATE: AtomicType(TypeRoot.DATE),
    LiteralKind.TIME: AtomicType(TypeRoot.TIME, precision=3),
    LiteralKind.TIMESTAMP: AtomicType(TypeRoot.TIMESTAMP, precision=6),
    LiteralKind.TIMESTAMP_LTZ: AtomicType(TypeRoot.TIMESTAMP_LTZ, precision=6),
}


def plan_expression(text: str, columns: Mapping[str, DataType], zone: Zone | None) -> Planned:
    """Read and check an expression.

    Args:
        text: SQL.
        columns: names and types of what it may use.
        zone: time zone in which TIMESTAMP_LTZ is evaluated; None for UTC.

    Raises:
        InvalidRequestError: it is malformed, names something unknown, or types do not fit; with the
            position and a suggestion.
    """
    planned = _Binder(text, columns, zone).bind(parse_expression(text))
    if planned.type is None:
        raise expression_error(text, 0, "NULL has no type", "write CAST(NULL AS STRING)")
    return planned


class _Binder:
    """Gives every node of an expression its type and its kernel."""

    def __init__(self, text: str, columns: Mapping[str, DataType], zone: Zone | None) -> None:
        self._text = text
        self._columns = columns
        self._zone = zone

    def bind(self, node: Node) -> Planned:
        match node:
            case Literal():
                return self._literal(node)
            case ColumnName():
                return self._column(node)
            case CastTo():
                return self._cast(node)
            case Case():
                return self._case(node)
            case Call():
                return self._call(node)

    def _site(self, name: str, node: Node, arguments: Sequence[Planned]) -> Site:
        return Site(self._text, name, tuple(arguments), node.start, node.end, self._zone)

    def _call(self, node: Call) -> Planned:
        function = FUNCTIONS.get(node.name)
        if function is None:
            raise expression_error(
                self._text,
                node.start,
                f"there is no function `{node.name}`",
                nearest(node.name, (name for name in FUNCTIONS if name.isidentifier())),
            )
        return function.planned(self._site(node.name, node, [self.bind(a) for a in node.arguments]))

    def _case(self, node: Case) -> Planned:
        branches = [(self.bind(test), self.bind(value)) for test, value in node.branches]
        otherwise = None if node.otherwise is None else self.bind(node.otherwise)
        return choice(self._site("case", node, ()), branches, otherwise)

    def _cast(self, node: CastTo) -> Planned:
        part = self.bind(node.part)
        site = self._site("cast", node, [part])
        if part.type is None:
            return site.coerced(part, node.type)
        kernel = strict_cast(part.type, node.type, self._zone)
        if kernel is None:
            raise site.error(f"{type_label(part.type)} cannot be cast to {type_label(node.type)}")
        if not node.attempt:
            return site.result(node.type, kernel)
        attempt = runner(kernel, [part], site.text)

        def run(frame: Frame) -> Cells:
            # what fails inside of the argument still fails
            return Cells(attempt(frame).values, part.run(frame).failures)

        return site.lazy(node.type, run, [part])

    def _column(self, node: ColumnName) -> Planned:
        type_ = self._columns.get(node.name)
        if type_ is None:
            raise expression_error(
                self._text,
                node.start,
                f"there is no column `{node.name}`",
                nearest(node.name, self._columns) or _quote_hint(node.name),
            )
        name = node.name
        return Planned(
            type_,
            lambda frame: frame.column(name),
            frozenset({name}),
            None,
            self._text[node.start : node.end],
            node.start,
        )

    def _literal(self, node: Literal) -> Planned:
        text = self._text[node.start : node.end]
        match node.kind:
            case LiteralKind.NULL:
                return constant(pa.scalar(None, pa.null()), None, text, node.start)
            case LiteralKind.INTERVAL:
                scalar = pa.scalar(INTERVAL_MARK + node.text)
                return constant(scalar, None, text, node.start)
            case LiteralKind.BOOLEAN:
                return constant(pa.scalar(node.text == "true"), BOOLEAN, text, node.start)
            case LiteralKind.BYTES:
                return constant(pa.scalar(bytes.fromhex(node.text)), BYTES, text, node.start)
            case LiteralKind.TEXT:
                planned = constant(pa.scalar(node.text), STRING, text, node.start)
                return dataclasses.replace(planned, typed=False)
            case LiteralKind.NUMBER:
                return self._number(node, text)
            case _:
                return self._time(node, text)

    def _number(self, node: Literal, text: str) -> Planned:
        if "e" in node.text.lower():
            return constant(pa.scalar(float(node.text)), DOUBLE, text, node.start)
        value = decimal.Decimal(node.text)
        if "." not in node.text:
            for type_, limit in _INTEGER_LIMITS:
                if -limit <= value < limit:
                    scalar = pa.scalar(int(value), arrow_type(type_))
                    return constant(scalar, type_, text, node.start)
        scale = len(node.text.partition(".")[2])
        precision = max(len(value.as_tuple().digits), scale, 1)
        if precision > MAX_PRECISION:
            raise expression_error(
                self._text, node.start, f"a number of more than {MAX_PRECISION} digits"
            )
        decimal_type = AtomicType(TypeRoot.DECIMAL, precision=precision, scale=scale)
        return constant(pa.scalar(value, arrow_type(decimal_type)), decimal_type, text, node.start)

    def _time(self, node: Literal, text: str) -> Planned:
        type_ = _TIME_LITERALS[node.kind]
        fraction = len(node.text.partition(".")[2])
        if (
            type_.root in (TypeRoot.TIMESTAMP, TypeRoot.TIMESTAMP_LTZ)
            and fraction > type_.precision
        ):
            type_ = dataclasses.replace(type_, precision=min(fraction, 9))
        part = constant(pa.scalar(node.text), STRING, text, node.start)
        kernel = strict_cast(STRING, type_, self._zone)
        if kernel is None:
            raise expression_error(self._text, node.start, f"no {type_label(type_)}")
        return self._site("literal", node, [part]).result(type_, kernel)


def _quote_hint(name: str) -> str:
    return f"string literals are written in single quotes: '{name}'"
