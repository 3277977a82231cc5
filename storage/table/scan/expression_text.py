# SPDX-License-Identifier: Apache-2.0
"""The one SQL grammar of filters and expressions: from text to a tree, and errors of invalid text.

Operators by increasing precedence: OR, AND, NOT, comparisons (with IS, IN, BETWEEN, LIKE, RLIKE),
`+ - ||`, `* / % DIV`, sign. Names of columns are case-sensitive and may be in back quotes or
double quotes; keywords and functions are not. String literals are written in single quotes.

In the tree operators are also calls: `a + b` is `Call("+", (a, b))`. Positions are characters
from 0. `predicate_text` compiles trees to predicates, `ingest.transform.rules` to kernels.
"""

import dataclasses
import difflib
import enum
import re
from collections.abc import Iterable, Iterator, Sequence

from storage.errors import InvalidRequestError, UnsupportedFeatureError
from storage.format.types.types import AtomicType, TypeRoot, parse_type


class LiteralKind(enum.Enum):
    """How a literal is written."""

    NULL = "NULL"
    BOOLEAN = "a boolean"
    NUMBER = "a number"
    TEXT = "a string"
    BYTES = "bytes"
    DATE = "DATE"
    TIME = "TIME"
    TIMESTAMP = "TIMESTAMP"
    TIMESTAMP_LTZ = "TIMESTAMP_LTZ"
    INTERVAL = "INTERVAL"


@dataclasses.dataclass(frozen=True, slots=True)
class Literal:
    """A constant as written.

    Attributes:
        text: the digits, or what stands between the quotes; `3 DAY` of an interval.
        start: first character.
        end: after the last character.
    """

    kind: LiteralKind
    text: str
    start: int
    end: int


@dataclasses.dataclass(frozen=True, slots=True)
class ColumnName:
    """A column of the row."""

    name: str
    start: int
    end: int


@dataclasses.dataclass(frozen=True, slots=True)
class Call:
    """A function or an operator; its name is in lower case."""

    name: str
    arguments: tuple["Node", ...]
    start: int
    end: int


@dataclasses.dataclass(frozen=True, slots=True)
class Case:
    """`CASE WHEN condition THEN value … ELSE otherwise END`."""

    branches: tuple[tuple["Node", "Node"], ...]
    otherwise: "Node | None"
    start: int
    end: int


@dataclasses.dataclass(frozen=True, slots=True)
class CastTo:
    """`CAST(part AS type)`; an `attempt` gives null where the cast fails."""

    part: "Node"
    type: AtomicType
    attempt: bool
    start: int
    end: int


Node = Literal | ColumnName | Call | Case | CastTo


_TOKEN = re.compile(
    r"""(?:
        (?P<number>(?:\d+\.?\d*|\.\d+)(?:[eE][+-]?\d+)?)
      | (?P<bytes>[xX]'[^']*')
      | (?P<string>'(?:[^']|'')*')
      | (?P<quoted>`[^`]+`|"[^"]+")
      | (?P<word>[^\W\d][\w$]*)
      | (?P<op><=>|<>|!=|<=|>=|==|\|\||[=<>+*/%-])
      | (?P<mark>[(),])
    )""",
    re.VERBOSE,
)
_BLANK = re.compile(r"\s*")
_NAME = re.compile(
    r"\s*(?:`(?P<back>[^`]+)`|\"(?P<double>[^\"]+)\"|(?P<plain>[^\W\d][\w$]*))\s*=(?!=)"
)
_COMPARISONS = {
    "=": "=",
    "==": "=",
    "<>": "<>",
    "!=": "<>",
    "<": "<",
    "<=": "<=",
    ">": ">",
    ">=": ">=",
}
_KEYWORDS = frozenset(
    {
        "and",
        "as",
        "between",
        "case",
        "distinct",
        "div",
        "else",
        "end",
        "escape",
        "false",
        "from",
        "ilike",
        "in",
        "is",
        "like",
        "not",
        "null",
        "or",
        "rlike",
        "then",
        "true",
        "when",
    }
)
_TYPED_LITERALS = {
    "date": LiteralKind.DATE,
    "time": LiteralKind.TIME,
    "timestamp": LiteralKind.TIMESTAMP,
    "timestamp_ltz": LiteralKind.TIMESTAMP_LTZ,
    "interval": LiteralKind.INTERVAL,
}
_INTERVAL_UNITS = ("second", "minute", "hour", "day", "week", "month", "year")
_TYPE_NAMES = (*(root.value for root in TypeRoot), "STRING", "BYTES", "INTEGER", "NUMERIC")
_MAX_DEPTH = 100
"""Of parentheses and signs."""
_MAX_LEVELS = 150
"""Of the tree."""


@dataclasses.dataclass(frozen=True, slots=True)
class _Token:
    kind: str
    text: str
    start: int
    end: int

    @property
    def word(self) -> str:
        return self.text.lower() if self.kind == "word" else ""


def parse_expression(text: str) -> Node:
    """Read an expression.

    Raises:
        InvalidRequestError: the text is no expression; names the position and what was expected.
    """
    parser = _Parser(text)
    node = parser.either()
    parser.expect_end()
    _check_depth(text, node)
    return node


def _check_depth(text: str, root: Node) -> None:
    """Reject trees that would exhaust the stack, such as sums of hundreds of terms."""
    level: Sequence[Node] = (root,)
    for _ in range(_MAX_LEVELS):
        level = tuple(part for node in level for part in _parts_of(node))
        if not level:
            return
    raise expression_error(text, level[0].start, "nested too deeply")


def split_assignment(text: str) -> tuple[str, str]:
    """Name and expression of `name = expression`.

    Raises:
        InvalidRequestError: it does not begin with a name and an equals sign.
    """
    match = _NAME.match(text)
    if match is None:
        raise expression_error(
            text, 0, "expected `name = expression`", "write it like: dt = date_format(at, 'yyyy')"
        )
    return next(name for name in match.groups() if name), text[match.end() :].strip()


def nodes_of(node: Node) -> Iterator[Node]:
    """All nodes of a tree, parents first."""
    stack = [node]
    while stack:
        current = stack.pop()
        yield current
        stack += reversed(_parts_of(current))


def _parts_of(node: Node) -> tuple[Node, ...]:
    match node:
        case Call(_, arguments):
            return arguments
        case CastTo(part):
            return (part,)
        case Case(branches, otherwise):
            parts = tuple(part for branch in branches for part in branch)
            return parts if otherwise is None else (*parts, otherwise)
        case _:
            return ()


def expression_error(text: str, position: int, detail: str, hint: str = "") -> InvalidRequestError:
    """The error of an expression that is rejected.

    Args:
        position: character from 0; the message counts from 1.
    """
    return InvalidRequestError(
        "an expression is refused",
        detail=f"at character {position + 1}: {detail}",
        hint=hint,
        expression=text,
    )


class _Parser:
    """Recursive descent over the tokens."""

    def __init__(self, text: str) -> None:
        self._text = text
        self._tokens = _tokens(text)
        self._next = 0
        self._depth = 0

    def expect_end(self) -> None:
        if self._peek().kind != "end":
            raise self._error("an operator or the end")

    # --- by increasing precedence ------------------------------------------------------------

    def either(self) -> Node:
        self._depth += 1
        if self._depth > _MAX_DEPTH:
            raise expression_error(self._text, self._peek().start, "nested too deeply")
        operands = [self._conjunction()]
        while self._take_word("or"):
            operands.append(self._conjunction())
        self._depth -= 1
        return self._balanced("or", operands)

    def _conjunction(self) -> Node:
        operands = [self._negation()]
        while self._take_word("and"):
            operands.append(self._negation())
        return self._balanced("and", operands)

    def _negation(self) -> Node:
        negations: list[int] = []
        while self._peek().word == "not":
            negations.append(self._advance().start)
        node = self._comparison()
        for start in reversed(negations):
            node = Call("not", (node,), start, node.end)
        return node

    def _comparison(self) -> Node:
        left = self._sum()
        while True:
            token = self._peek()
            if token.text in _COMPARISONS:
                self._advance()
                left = self._binary(_COMPARISONS[token.text], left, self._sum())
            elif token.text == "<=>":
                self._advance()
                left = self._not(self._binary("is distinct from", left, self._sum()))
            elif token.word == "is":
                self._advance()
                left = self._is(left)
            elif token.word in ("not", "in", "between", "like", "ilike", "rlike"):
                left = self._matching(left)
            else:
                return left

    def _is(self, left: Node) -> Node:
        negative = self._take_word("not")
        token = self._peek()
        if token.word in ("null", "true", "false"):
            self._advance()
            call: Node = Call(f"is {token.word}", (left,), left.start, token.end)
        elif self._take_word("distinct"):
            self._need_word("from")
            call = self._binary("is distinct from", left, self._sum())
        else:
            raise self._error("NULL, TRUE, FALSE or DISTINCT FROM")
        return self._not(call) if negative else call

    def _matching(self, left: Node) -> Node:
        negative = self._take_word("not")
        word = self._peek().word
        if word not in ("in", "between", "like", "ilike", "rlike"):
            raise self._error("IN, BETWEEN, LIKE or RLIKE")
        self._advance()
        if word == "in":
            call: Node = self._in(left)
        elif word == "between":
            low = self._sum()
            self._need_word("and")
            high = self._sum()
            call = Call("between", (left, low, high), left.start, high.end)
        else:
            pattern = self._sum()
            parts = [left, pattern]
            if word != "rlike" and self._take_word("escape"):
                parts.append(self._sum())
            call = Call(word, tuple(parts), left.start, parts[-1].end)
        return self._not(call) if negative else call

    def _in(self, left: Node) -> Node:
        self._need("(")
        items = [self.either()]
        while self._take(","):
            items.append(self.either())
        return Call("in", (left, *items), left.start, self._need(")").end)

    def _sum(self) -> Node:
        left = self._product()
        while self._peek().text in ("+", "-", "||"):
            operator = self._advance().text
            left = self._binary(operator, left, self._product())
        return left

    def _product(self) -> Node:
        left = self._signed()
        while self._peek().text in ("*", "/", "%") or self._peek().word == "div":
            operator = self._advance().text.lower()
            left = self._binary(operator, left, self._signed())
        return left

    def _signed(self) -> Node:
        token = self._peek()
        if token.kind == "op" and token.text in ("-", "+"):
            self._advance()
            self._depth += 1
            if self._depth > _MAX_DEPTH:
                raise expression_error(self._text, token.start, "nested too deeply")
            part = self._signed()
            self._depth -= 1
            if token.text == "+":
                return part
            if (
                isinstance(part, Literal)
                and part.kind is LiteralKind.NUMBER
                and part.text[0] != "-"
            ):
                return dataclasses.replace(part, text=f"-{part.text}", start=token.start)
            return Call("negate", (part,), token.start, part.end)
        return self._primary()

    def _primary(self) -> Node:
        token = self._peek()
        if token.text == "(" and token.kind == "mark":
            self._advance()
            inner = self.either()
            end = self._need(")").end
            return dataclasses.replace(inner, start=token.start, end=end)
        if token.kind in ("number", "string", "bytes"):
            return self._plain_literal()
        if token.kind == "quoted":
            self._advance()
            return ColumnName(token.text[1:-1], token.start, token.end)
        if token.kind == "word":
            return self._worded(token)
        raise self._error("a value, a column or a function")

    def _plain_literal(self) -> Literal:
        token = self._advance()
        if token.kind == "number":
            return Literal(LiteralKind.NUMBER, token.text, token.start, token.end)
        if token.kind == "string":
            return Literal(LiteralKind.TEXT, _unquoted(token.text), token.start, token.end)
        digits = token.text[2:-1]
        if len(digits) % 2 or re.fullmatch(r"[0-9a-fA-F]*", digits) is None:
            raise expression_error(
                self._text,
                token.start,
                f"`{token.text}` is not a hexadecimal string",
                "write it like: X'00ff'",
            )
        return Literal(LiteralKind.BYTES, digits, token.start, token.end)

    def _worded(self, token: _Token) -> Node:
        word = token.word
        following = self._peek(1)
        if word == "null":
            self._advance()
            return Literal(LiteralKind.NULL, "", token.start, token.end)
        if word in ("true", "false"):
            self._advance()
            return Literal(LiteralKind.BOOLEAN, word, token.start, token.end)
        if word == "case":
            return self._case()
        if following.text == "(" and following.kind == "mark" and word not in _KEYWORDS:
            return self._call(token)
        if word in _TYPED_LITERALS and following.kind in ("string", "number"):
            return self._typed_literal(token)
        if word in _KEYWORDS:
            detail = f"expected a value, a column or a function, found `{token.text}`"
            hint = f'a column of that name is written in double quotes: "{token.text}"'
            raise expression_error(self._text, token.start, detail, hint)
        self._advance()
        return ColumnName(token.text, token.start, token.end)

    def _typed_literal(self, token: _Token) -> Literal:
        kind = _TYPED_LITERALS[token.word]
        self._advance()
        value = self._advance()
        text, end = _unquoted(value.text) if value.kind == "string" else value.text, value.end
        if kind is LiteralKind.INTERVAL:
            unit = self._peek()
            name = unit.word.removesuffix("s")
            if name not in _INTERVAL_UNITS or re.fullmatch(r"-?\d{1,9}", text) is None:
                raise expression_error(
                    self._text, token.start, "not an interval", "write it like: INTERVAL '3' DAY"
                )
            self._advance()
            text, end = f"{text} {name}", unit.end
        elif value.kind != "string":
            raise expression_error(
                self._text,
                value.start,
                f"expected a string after {token.text.upper()}",
                f"write it like: {token.text.upper()} '2024-01-31'",
            )
        return Literal(kind, text, token.start, end)

    def _case(self) -> Node:
        start = self._advance().start
        operand = None if self._peek().word == "when" else self.either()
        branches = []
        while self._take_word("when"):
            condition = self.either()
            if operand is not None:
                condition = Call("=", (operand, condition), condition.start, condition.end)
            self._need_word("then")
            branches.append((condition, self.either()))
        if not branches:
            raise self._error("WHEN")
        otherwise = self.either() if self._take_word("else") else None
        return Case(tuple(branches), otherwise, start, self._need_word("end").end)

    def _call(self, token: _Token) -> Node:
        name = token.word
        self._advance()
        self._need("(")
        if name in ("cast", "try_cast"):
            return self._cast(token.start, attempt=name == "try_cast")
        if name == "extract":
            unit = self._advance()
            self._need_word("from")
            part = self.either()
            return Call(unit.word or unit.text, (part,), token.start, self._need(")").end)
        arguments: list[Node] = []
        if self._peek().text != ")":
            arguments.append(self.either())
            while self._take(","):
                arguments.append(self.either())
        return Call(name, tuple(arguments), token.start, self._need(")").end)

    def _cast(self, start: int, *, attempt: bool) -> Node:
        part = self.either()
        if not self._take_word("as"):
            # Paimon's form cast(value, type); without a type it casts to STRING
            if self._peek().text == ")":
                type_ = parse_type("STRING")
                assert isinstance(type_, AtomicType)
                return CastTo(part, type_, attempt, start, self._advance().end)
            self._need(",")
        first = self._peek()
        depth, last = 0, first
        while self._peek().kind != "end" and not (depth == 0 and self._peek().text == ")"):
            last = self._advance()
            depth += {"(": 1, ")": -1}.get(last.text, 0)
        end = self._need(")").end
        return CastTo(part, self._type(first, last), attempt, start, end)

    def _type(self, first: _Token, last: _Token) -> AtomicType:
        name = self._text[first.start : last.end].strip("'")
        try:
            type_ = parse_type(name)
        except InvalidRequestError as error:
            hint = _nearest(first.text, _TYPE_NAMES) or "write it like: DECIMAL(10, 2)"
            if isinstance(error, UnsupportedFeatureError):
                hint = error.hint
            raise expression_error(self._text, first.start, f"`{name}` is no type", hint) from error
        if not isinstance(type_, AtomicType):
            raise expression_error(self._text, first.start, f"nothing can be cast to `{name}`")
        return dataclasses.replace(type_, nullable=True)

    # --- tokens ------------------------------------------------------------------------------

    def _binary(self, name: str, left: Node, right: Node) -> Call:
        return Call(name, (left, right), left.start, right.end)

    def _balanced(self, name: str, operands: Sequence[Node]) -> Node:
        """A chain of AND or OR as a balanced tree, which stays shallow however long the chain."""
        if len(operands) == 1:
            return operands[0]
        middle = (len(operands) + 1) // 2
        left, right = operands[:middle], operands[middle:]
        return self._binary(name, self._balanced(name, left), self._balanced(name, right))

    def _not(self, part: Node) -> Call:
        return Call("not", (part,), part.start, part.end)

    def _peek(self, ahead: int = 0) -> _Token:
        return self._tokens[min(self._next + ahead, len(self._tokens) - 1)]

    def _advance(self) -> _Token:
        token = self._peek()
        self._next += 1
        return token

    def _take(self, mark: str) -> bool:
        matches = self._peek().kind == "mark" and self._peek().text == mark
        self._next += matches
        return matches

    def _take_word(self, word: str) -> bool:
        matches = self._peek().word == word
        self._next += matches
        return matches

    def _need(self, mark: str) -> _Token:
        if self._peek().kind != "mark" or self._peek().text != mark:
            raise self._error(f"`{mark}`")
        return self._advance()

    def _need_word(self, word: str) -> _Token:
        if self._peek().word != word:
            raise self._error(word.upper())
        return self._advance()

    def _error(self, expected: str) -> InvalidRequestError:
        token = self._peek()
        actual = f"`{token.text}`" if token.kind != "end" else "the end"
        hint = ""
        if token.kind == "word":
            hint = _nearest(token.text, (word.upper() for word in _KEYWORDS))
        return expression_error(
            self._text, token.start, f"expected {expected}, found {actual}", hint
        )


def _nearest(name: str, names: Iterable[str]) -> str:
    """Suggest the known word that is closest to a name."""
    by_lower = {word.lower(): word for word in names}
    matches = difflib.get_close_matches(name.lower(), by_lower, n=1)
    return f"did you mean `{by_lower[matches[0]]}`?" if matches else ""


def _unquoted(text: str) -> str:
    return text[1:-1].replace("''", "'")


def _tokens(text: str) -> list[_Token]:
    tokens: list[_Token] = []
    position = _skipped(text, 0)
    while position < len(text):
        match = _TOKEN.match(text, position)
        if match is None or match.lastgroup is None:
            detail = (
                "a string or quoted name has no end"
                if text[position] in "'`\""
                else f"unexpected `{text[position]}`"
            )
            raise expression_error(text, position, detail)
        tokens.append(_Token(match.lastgroup, match.group(), match.start(), match.end()))
        position = _skipped(text, match.end())
    tokens.append(_Token("end", "", len(text), len(text)))
    return tokens


def _skipped(text: str, position: int) -> int:
    match = _BLANK.match(text, position)
    return position if match is None else match.end()
