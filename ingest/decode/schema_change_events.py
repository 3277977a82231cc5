# SPDX-License-Identifier: Apache-2.0
"""Messages of Debezium's schema change topic (`SchemaChangeValue`), as MySQL and MariaDB have it.

One message is one statement with the tables it changed: `source`, `databaseName`, `schemaName`,
`ddl`, `tableChanges[]` of `type` CREATE, ALTER or DROP, `id` (two of them for a renamed table) and
`table.columns`. The topic has one partition, so its offsets order the statements.

Of an ALTER TABLE statement only renames, drops and additions of columns are recognised: everything
else is visible in row events. Supports the dialects of MySQL, MariaDB and Oracle; unknown syntax is
ignored.
"""

import dataclasses
import re
from collections.abc import Callable, Iterator, Sequence

import msgspec

from ingest.decode.events import PARSE_ERRORS, SourceTable, split_message
from ingest.source.records import RawBatch


@dataclasses.dataclass(frozen=True, slots=True)
class ColumnChanges:
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


def column_changes(ddl: str) -> ColumnChanges:
    """Renamed, dropped and added columns of a statement; nothing for any other statement."""
    tokens = list(_tokens(ddl))
    words = [token.word for token in tokens]
    if words[:1] != ["ALTER"] or "TABLE" not in words[:4]:
        return ColumnChanges()
    renamed: list[tuple[str, str]] = []
    dropped: list[str] = []
    added: list[str] = []
    for clause in _clauses(tokens[words.index("TABLE") + 1 :]):
        _read(clause, renamed, dropped, added)
    return ColumnChanges(tuple(renamed), tuple(dropped), tuple(added))


def _tokens(ddl: str) -> Iterator[_Token]:
    for match in _TOKEN.finditer(ddl):
        kind, text = match.lastgroup, match.group()
        if kind == "tick":
            yield _Token(match.group(kind).replace("``", "`"), "")
        elif kind == "quote":
            yield _Token(match.group(kind).replace('""', '"'), "")
        elif kind == "bracket":
            yield _Token(match.group(kind), "")
        elif kind == "text":
            yield _Token("", "")
        elif kind in ("word", "mark"):
            yield _Token(text, text.upper())


_VERBS = ("ADD", "CHANGE", "DROP", "RENAME", "MODIFY", "ALTER")


def _clauses(tokens: Sequence[_Token]) -> Iterator[list[_Token]]:
    """Parts between commas outside of brackets, without the table's name."""
    words = [token.word for token in tokens]
    # the first word is the name or its database, and so is a word after a dot
    verbs = (i for i in range(1, len(words)) if words[i] in _VERBS and words[i - 1] != ".")
    start = next(verbs, None)
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
    verb, rest = clause[0].word, _skip_word(clause[1:], "COLUMN")
    is_column = bool(clause[1:2]) and clause[1].word == "COLUMN"
    if verb == "RENAME" and is_column:
        names = [token.text for token in rest if token.word != "TO"]
        if len(names) >= 2 and names[0] != names[1]:
            renamed.append((names[0], names[1]))
    elif verb == "CHANGE" and len(rest) >= 2:
        if rest[0].text != rest[1].text:
            renamed.append((rest[0].text, rest[1].text))
    elif verb in ("DROP", "ADD") and rest and (is_column or rest[0].word not in _OTHER_THINGS):
        (dropped if verb == "DROP" else added).extend(_names(rest))


def _skip_word(tokens: Sequence[_Token], word: str) -> list[_Token]:
    """Tokens after an optional word and IF [NOT] EXISTS."""
    rest = list(tokens)
    if rest and rest[0].word == word:
        rest = rest[1:]
    if rest and rest[0].word == "IF":
        end = next((i for i, token in enumerate(rest) if token.word == "EXISTS"), -1)
        rest = rest[end + 1 :]
    return rest


def _names(tokens: Sequence[_Token]) -> list[str]:
    """The column's name, or those in brackets."""
    if tokens[0].word != "(":
        return [tokens[0].text]
    names: list[str] = []
    depth, first = 0, False
    for token in tokens:
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


JsonValue = Callable[[RawBatch, int], bytes | None]
"""(batch, position) to the record's value as a JSON message; None when it has none."""


@dataclasses.dataclass(frozen=True, slots=True)
class TableDdl:
    """What one statement did to one table of the source.

    Attributes:
        source: the table, after the statement.
        type: `CREATE`, `ALTER` or `DROP`.
        changes: renamed, dropped and added columns.
        columns: all of the table after the statement; empty = unknown.
        ddl: the statement.
        topic: of the message.
        partition: of the message.
        offset: of the message.
        target: `db.table` it is for; "" = not resolved yet.
        owner: as `Target.owner`: whose the target is when several source tables fill it.
    """

    source: SourceTable
    type: str
    changes: ColumnChanges
    columns: tuple[str, ...]
    ddl: str
    topic: str
    partition: int
    offset: int
    target: str = ""
    owner: str = ""


class _Origin(msgspec.Struct):
    name: str | None = None
    db: str | None = None
    schema: str | None = None
    table: str | None = None


class _Column(msgspec.Struct):
    name: str


class _Table(msgspec.Struct):
    columns: list[_Column] = []


class _Change(msgspec.Struct):
    type: str
    id: str
    table: _Table | None = None


class _Message(msgspec.Struct):
    source: _Origin
    databaseName: str | None = None
    schemaName: str | None = None
    ddl: str | None = None
    tableChanges: list[_Change] | None = None


_MESSAGE = msgspec.json.Decoder(_Message)
_PART = re.compile(r'"((?:[^"]|"")*)"|([^".,]+)')


def plain_value(raw: RawBatch, at: int) -> bytes | None:
    """`JsonValue` of records that are JSON."""
    return raw.values[at]


def schema_changes(raw: RawBatch, value: JsonValue) -> Iterator[TableDdl]:
    """The table changes in records of the topic, in their order."""
    for at, offset in enumerate(raw.offsets):
        yield from read_schema_change(value(raw, at), raw.topic, raw.partition, offset)


def read_schema_change(
    value: bytes | None, topic: str, partition: int, offset: int
) -> list[TableDdl]:
    """The tables that a message changes; none for a message that is no schema change."""
    if value is None:
        return []
    try:
        message = _MESSAGE.decode(split_message(value).payload)
    except PARSE_ERRORS:
        return []
    changes = column_changes(message.ddl or "")
    return [
        TableDdl(
            source=source,
            type=change.type.upper(),
            changes=changes if change.type.upper() == "ALTER" else ColumnChanges(),
            columns=tuple(c.name for c in change.table.columns) if change.table else (),
            ddl=message.ddl or "",
            topic=topic,
            partition=partition,
            offset=offset,
        )
        for change in message.tableChanges or ()
        for source in _sources(message, change)
    ]


def _sources(message: _Message, change: _Change) -> Iterator[SourceTable]:
    """The table after the statement: the last of the ids, which are quoted parts and commas."""
    parts = [
        quoted.replace('""', '"') or plain for quoted, plain in _PART.findall(_last(change.id))
    ]
    parts = [part for part in (part.strip() for part in parts) if part]
    if not parts:
        return
    server = message.source.name or ""
    database = parts[0] if len(parts) > 1 else message.databaseName or message.source.db or ""
    schema = parts[1] if len(parts) > 2 else ""
    yield SourceTable(database, schema, parts[-1], server)


def _last(ids: str) -> str:
    depth, start = False, 0
    for position, letter in enumerate(ids):
        if letter == '"':
            depth = not depth
        elif letter == "," and not depth:
            start = position + 1
    return ids[start:]
