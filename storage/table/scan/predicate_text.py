# SPDX-License-Identifier: Apache-2.0
"""Reading a predicate from SQL-like text: `id > 5 and (name = 'x' or name is null)`.

Understands comparisons, IN, BETWEEN, LIKE, IS [NOT] NULL, NOT, AND, OR and parentheses; literals
are numbers, 'strings', TRUE, FALSE, NULL, and DATE/TIME/TIMESTAMP followed by a string. Column
names may stand in back quotes or double quotes.
"""

import decimal
import re
from typing import Any

from storage.errors import InvalidRequestError
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

__all__ = ["as_predicate", "parse_predicate"]

_TOKEN = re.compile(
    r"""\s*(?:
        (?P<number>[+-]?(?:\d+\.?\d*|\.\d+)(?:[eE][+-]?\d+)?)
      | (?P<string>'(?:[^']|'')*')
      | (?P<quoted>`[^`]+`|"[^"]+")
      | (?P<word>[^\W\d]\w*)
      | (?P<op><>|!=|<=|>=|==|=|<|>)
      | (?P<mark>[(),])
    )""",
    re.VERBOSE,
)
_OPS = {"==": Op.EQ, "!=": Op.NE} | {op.value: op for op in Op}
_KEYWORDS = frozenset({"and", "or", "not", "in", "is", "null", "between", "like", "true", "false"})


def parse_predicate(text: str) -> Predicate:
    """Parse a filter.

    Raises:
        InvalidRequestError: the text is no filter; says where.
    """
    parser = _Parser(text)
    predicate = parser.either()
    parser.expect_end()
    return predicate


def as_predicate(filter: object) -> Predicate | None:
    """A filter as callers give it: a text, a predicate, or None.

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


class _Parser:
    """Recursive descent over the tokens."""

    def __init__(self, text: str) -> None:
        self._text = text
        self._tokens = _tokens(text)
        self._next = 0

    def either(self) -> Predicate:
        parts = [self.both()]
        while self._take_word("or"):
            parts.append(self.both())
        return parts[0] if len(parts) == 1 else Or(tuple(parts))

    def both(self) -> Predicate:
        parts = [self.term()]
        while self._take_word("and"):
            parts.append(self.term())
        return parts[0] if len(parts) == 1 else And(tuple(parts))

    def term(self) -> Predicate:
        if self._take_word("not"):
            return Not(self.term())
        if self._take("mark", "("):
            inner = self.either()
            self._need("mark", ")")
            return inner
        return self._condition(self._column())

    def expect_end(self) -> None:
        if self._next < len(self._tokens):
            raise self._error("the end")

    def _condition(self, column: str) -> Predicate:
        if self._take_word("is"):
            negative = self._take_word("not")
            if not self._take_word("null"):
                raise self._error("NULL")
            return Not(IsNull(column)) if negative else IsNull(column)
        negative = self._take_word("not")
        if self._take_word("in"):
            found: Predicate = In(column, self._list())
        elif self._take_word("between"):
            low = self._literal()
            if not self._take_word("and"):
                raise self._error("AND")
            found = Between(column, low, self._literal())
        elif self._take_word("like"):
            found = Like(column, str(self._literal()))
        elif negative:
            raise self._error("IN, BETWEEN or LIKE")
        else:
            kind, value = self._peek()
            if kind != "op":
                raise self._error("a comparison")
            self._next += 1
            found = Compare(_OPS[value], column, self._literal())
        return Not(found) if negative else found

    def _list(self) -> tuple[Any, ...]:
        self._need("mark", "(")
        values = [self._literal()]
        while self._take("mark", ","):
            values.append(self._literal())
        self._need("mark", ")")
        return tuple(values)

    def _column(self) -> str:
        kind, value = self._peek()
        if kind == "quoted":
            self._next += 1
            return value[1:-1]
        if kind == "word" and value.lower() not in _KEYWORDS:
            self._next += 1
            return value
        raise self._error("a column")

    def _literal(self) -> Any:
        kind, value = self._peek()
        word = value.lower() if kind == "word" else ""
        if kind == "number":
            self._next += 1
            return int(value) if re.fullmatch(r"[+-]?\d+", value) else decimal.Decimal(value)
        if kind == "string":
            self._next += 1
            return value[1:-1].replace("''", "'")
        if word in ("true", "false", "null"):
            self._next += 1
            return {"true": True, "false": False, "null": None}[word]
        if word in ("date", "time", "timestamp"):
            self._next += 1
            return self._literal()
        raise self._error("a value")

    def _peek(self) -> tuple[str, str]:
        return self._tokens[self._next] if self._next < len(self._tokens) else ("end", "")

    def _take(self, kind: str, value: str) -> bool:
        if self._peek() != (kind, value):
            return False
        self._next += 1
        return True

    def _take_word(self, word: str) -> bool:
        kind, value = self._peek()
        if kind != "word" or value.lower() != word:
            return False
        self._next += 1
        return True

    def _need(self, kind: str, value: str) -> None:
        if not self._take(kind, value):
            raise self._error(f"`{value}`")

    def _error(self, expected: str) -> InvalidRequestError:
        found = self._peek()[1] or "the end"
        return InvalidRequestError(
            "a filter cannot be understood",
            detail=f"expected {expected}, found `{found}`",
            hint="write it like: id > 5 and name in ('x', 'y')",
            filter=self._text,
        )


def _tokens(text: str) -> list[tuple[str, str]]:
    tokens: list[tuple[str, str]] = []
    position, end = 0, len(text.rstrip())
    while position < end:
        match = _TOKEN.match(text, position)
        if match is None or match.lastgroup is None:
            raise InvalidRequestError(
                "a filter cannot be understood", detail=f"at `{text[position:]}`", filter=text
            )
        tokens.append((match.lastgroup, match.group(match.lastgroup)))
        position = match.end()
    return tokens
