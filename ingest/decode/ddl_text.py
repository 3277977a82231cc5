# SPDX-License-Identifier: Apache-2.0
"""What an ALTER TABLE statement says about names of columns. Pure.

Only renames and drops are recognised: everything else shows in row events. Takes the dialects of
MySQL, MariaDB and Oracle; what it does not understand says nothing.
"""

import dataclasses
import re
from collections.abc import Iterator, Sequence

__all__ = ["ColumnsSaid", "columns_said"]


@dataclasses.dataclass(frozen=True, slots=True)
class ColumnsSaid:
    """Of one statement; all of it happens at once.

    Attributes:
        renamed: (old, new) pairs.
        dropped: dropped columns.
        added: columns that are new.
    """

    renamed: tuple[tuple[str, str], ...] = ()
    dropped: tuple[str, ...] = ()
    added: tuple[str, ...] = ()

    @property
    def swaps(self) -> bool:
        """Whether a new name was another column's, so that shapes do not distinguish rows."""
        removed = {old for old, _ in self.renamed}
        return any(new in removed for old, new in self.renamed if new != old)


_TOKEN = re.compile(
    r"""\s+ | --[^\n]*(?:\n|$) | \#[^\n]*(?:\n|$) | /\*.*?\*/
    | `(?P<tick>(?:[^`]|``)*)` | "(?P<quote>(?:[^"]|"")*)" | \[(?P<bracket>[^\]]*)\]
    | (?P<text>'(?:[^'\\]|''|\\.)*') | (?P<word>[^\W\d][\w$\#]*|\d[\w.$]*) | (?P<mark>.)""",
    re.VERBOSE | re.DOTALL,
)


@dataclasses.dataclass(frozen=True, slots=True)
class _Token:
    """A name, a word or a mark; `word` is empty for quoted names and literals."""

    text: str
    word: str


def columns_said(ddl: str) -> ColumnsSaid:
    """Renamed, dropped and added columns of a statement; nothing for any other statement."""
    tokens = list(_tokens(ddl))
    words = [token.word for token in tokens]
    if words[:1] != ["ALTER"] or "TABLE" not in words[:4]:
        return ColumnsSaid()
    renamed: list[tuple[str, str]] = []
    dropped: list[str] = []
    added: list[str] = []
    for clause in _clauses(tokens[words.index("TABLE") + 1 :]):
        _read(clause, renamed, dropped, added)
    return ColumnsSaid(tuple(renamed), tuple(dropped), tuple(added))


def _tokens(ddl: str) -> Iterator[_Token]:
    for found in _TOKEN.finditer(ddl):
        kind, text = found.lastgroup, found.group()
        if kind == "tick":
            yield _Token(found.group(kind).replace("``", "`"), "")
        elif kind == "quote":
            yield _Token(found.group(kind).replace('""', '"'), "")
        elif kind == "bracket":
            yield _Token(found.group(kind), "")
        elif kind == "text":
            yield _Token("", "")
        elif kind in ("word", "mark"):
            yield _Token(text, text.upper())


_VERBS = ("ADD", "CHANGE", "DROP", "RENAME", "MODIFY", "ALTER")


def _clauses(tokens: Sequence[_Token]) -> Iterator[list[_Token]]:
    """Parts between commas outside of brackets, without the table's name."""
    start = next((i for i, token in enumerate(tokens) if token.word in _VERBS and i), None)
    if start is None:
        return
    clause: list[_Token] = []
    depth = 0
    for token in tokens[start:]:
        depth += (token.word == "(") - (token.word == ")")
        if depth == 0 and token.word in (",", ";"):
            yield clause
            clause = []
        else:
            clause.append(token)
    yield clause


_OTHER_THINGS = frozenset(
    [
        "PRIMARY",
        "INDEX",
        "KEY",
        "FOREIGN",
        "CONSTRAINT",
        "PARTITION",
        "CHECK",
        "PERIOD",
        "SYSTEM",
        "UNIQUE",
        "FULLTEXT",
        "SPATIAL",
        "VERSIONING",
        "SUBPARTITION",
    ]
)


def _read(
    clause: list[_Token],
    renamed: list[tuple[str, str]],
    dropped: list[str],
    added: list[str],
) -> None:
    if not clause:
        return
    verb, rest = clause[0].word, _without(clause[1:], "COLUMN")
    if verb == "RENAME" and clause[1:2] and clause[1].word == "COLUMN":
        names = [token.text for token in rest if token.word != "TO"]
        if len(names) >= 2 and names[0] != names[1]:
            renamed.append((names[0], names[1]))
    elif verb == "CHANGE" and len(rest) >= 2:
        if rest[0].text != rest[1].text:
            renamed.append((rest[0].text, rest[1].text))
    elif verb in ("DROP", "ADD") and rest and rest[0].word not in _OTHER_THINGS:
        (dropped if verb == "DROP" else added).extend(_names(rest))


def _without(tokens: Sequence[_Token], word: str) -> list[_Token]:
    """Tokens after an optional word and IF [NOT] EXISTS."""
    rest = list(tokens)
    if rest and rest[0].word == word:
        rest = rest[1:]
    if rest and rest[0].word == "IF":
        end = next((i for i, token in enumerate(rest) if token.word == "EXISTS"), -1)
        rest = rest[end + 1 :]
    return rest


def _names(rest: Sequence[_Token]) -> list[str]:
    """The column's name, or those in brackets."""
    if rest[0].word != "(":
        return [rest[0].text]
    names: list[str] = []
    depth, first = 0, False
    for token in rest:
        if token.word == "(":
            depth, first = depth + 1, depth == 0
        elif token.word == ")":
            depth -= 1
        elif token.word == "," and depth == 1:
            first = True
        elif first and depth == 1:
            names.append(token.text)
            first = False
    return names
