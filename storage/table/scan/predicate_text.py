# SPDX-License-Identifier: Apache-2.0
"""Predicates from SQL text: `id > 5 and (name = 'x' or name is null)`.

The part of the grammar of `expression_text` that scans can prune by: comparisons of a column with a
literal, IN, BETWEEN, LIKE, IS [NOT] NULL, NOT, AND, OR and parentheses. Literals are numbers,
'strings', X'bytes', TRUE, FALSE, NULL, and DATE/TIME/TIMESTAMP followed by a string.
"""

import decimal
from collections.abc import Iterator
from typing import Any

from storage.errors import InvalidRequestError
from storage.table.scan.expression_text import (
    Call,
    ColumnName,
    Literal,
    LiteralKind,
    Node,
    parse_expression,
)
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
)

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
