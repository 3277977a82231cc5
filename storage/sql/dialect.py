# SPDX-License-Identifier: Apache-2.0
"""The dialect of Lakeward's statements, and the statements of a text.

Queries are Spark's as sqlglot parses them, with Flink's spelling where it does not contradict;
statements on catalogs, tables and views are read in both spellings (`storage.sql.parse`).
"""

import dataclasses
import itertools
import re
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, ClassVar

from sqlglot import exp
from sqlglot.dialects.spark import Spark
from sqlglot.errors import ParseError, TokenError
from sqlglot.time import format_time
from sqlglot.tokenizer_core import Token, TokenType

from storage.sql.errors import SqlError
from storage.sql.parse.statements import StatementParser

_TOKEN = re.compile(r" but got <Token .*>", re.DOTALL)
_MISSING = re.compile(r"Required keyword: '\w+' missing for <class '[\w.]+\.(\w+)'>")
_SWALLOWING = (TokenType.COMMAND, TokenType.EXECUTE, TokenType.RENAME)
"""Token types after which sqlglot keeps the rest of the statement as one text."""


class Lakeward(Spark):
    """Spark's SQL with `t$files` as a name, hints behind tables and our own statements."""

    class Tokenizer(Spark.Tokenizer):
        """Tokens of a text."""

        KEYWORDS = {
            **{
                word: kind
                for word, kind in Spark.Tokenizer.KEYWORDS.items()
                if kind not in _SWALLOWING
            },
            "BYTES": TokenType.VARBINARY,
            "TIMESTAMP": TokenType.TIMESTAMP,  # without zone, as in Flink and in Paimon's types
        }
        COMMANDS: ClassVar[set[TokenType]] = set()
        COMMAND_PREFIX_TOKENS: ClassVar[set[TokenType]] = set()
        STRING_ESCAPES = ["\\", "'"]
        SINGLE_TOKENS = {
            mark: kind for mark, kind in Spark.Tokenizer.SINGLE_TOKENS.items() if mark != "$"
        }
        VAR_SINGLE_TOKENS = {"$"}
        TOKENS_PRECEDING_HINT = set(TokenType)

    Parser = StatementParser

    @classmethod
    def format_time(cls, expression: str | exp.Expr | None) -> exp.Expr | None:
        """The pattern of a time in sqlglot's terms; texts in single quotes stay as they are."""
        if not isinstance(expression, exp.Expr) or not expression.is_string:
            return super().format_time(expression)
        parts = re.split("('(?:[^']|'')*')", expression.name)
        parts[::2] = [
            format_time(part, cls.TIME_MAPPING, cls.TIME_TRIE) or "" for part in parts[::2]
        ]
        pattern = expression.copy()  # with its place
        pattern.set("this", "".join(parts))
        return pattern


def _rows_as_structs(tokens: list[Token]) -> list[Token]:
    """Flink's type `ROW<…>`, in casts too, as the type that Spark calls STRUCT."""
    for token, following in itertools.pairwise(tokens):
        adjacent = following.token_type is TokenType.LT and following.start == token.end + 1
        if adjacent and token.text.upper() == "ROW":
            token.token_type = TokenType.STRUCT
    return tokens


@dataclasses.dataclass(frozen=True, slots=True)
class Statement:
    """A statement of a text, parsed on demand.

    Attributes:
        text: without the semicolon.
        line: of its first token, from 1.
    """

    text: str
    line: int
    _tokens: Sequence[Token]
    _full_text: str

    def parse(self) -> exp.Expression:
        """The tree of the statement.

        Raises:
            SqlError: it is no statement; names the place.
        """
        parser = StatementParser(dialect=Lakeward())
        try:
            (tree,) = parser.parse(list(self._tokens), self._full_text)
        except ParseError as error:
            raise _located_error(error) from error
        except RecursionError as error:
            raise SqlError("the statement is nested too deeply", line=self.line) from error
        if not isinstance(tree, exp.Expression):
            raise SqlError("there is no statement", line=self.line)
        return tree


def statements(text: str) -> Iterator[Statement]:
    """The statements of a text, separated by semicolons.

    Raises:
        SqlError: a quotation or comment does not end.
    """
    try:
        tokens = _rows_as_structs(Lakeward().tokenize(text))
    except TokenError as error:
        raise SqlError(
            "the text cannot be split into tokens",
            detail=str(error).partition("\n")[0],
            hint="look for an unclosed quote or comment",
        ) from error
    current: list[Token] = []
    for token in [*tokens, None]:
        if token is not None and token.token_type is not TokenType.SEMICOLON:
            current.append(token)
        elif current:
            content = text[current[0].start : current[-1].end + 1]
            yield Statement(content, current[0].line, current, text)
            current = []


def parse_query(text: str) -> exp.Query:
    """The query that a text holds.

    Raises:
        SqlError: it is not one query.
    """
    queries = [statement.parse() for statement in statements(text)]
    if len(queries) != 1 or not isinstance(queries[0], exp.Query):
        raise SqlError("a query is expected", text=text)
    return queries[0]


def _located_error(error: ParseError) -> SqlError:
    facts: Mapping[str, Any] = error.errors[0] if error.errors else {}
    message = _TOKEN.sub("", str(facts.get("description") or error))
    message = _MISSING.sub(lambda match: f"{match[1].upper()} is not complete", message)
    message = message.replace("WHENS is not complete", "MERGE INTO needs a WHEN clause")
    place: dict[str, Any] = {}
    if facts.get("line"):
        near = str(facts.get("highlight") or "")
        place = {"line": facts["line"], "column": max(1, int(str(facts["col"])) - len(near) + 1)}
        if near:
            place["near"] = near
    return SqlError("the statement cannot be parsed", detail=message.rstrip("."), **place)
