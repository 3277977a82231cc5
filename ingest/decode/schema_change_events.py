# SPDX-License-Identifier: Apache-2.0
"""Messages of Debezium's schema change topic (`SchemaChangeValue`), as MySQL and MariaDB have it.

One message is one statement with the tables it changed: `source`, `databaseName`, `schemaName`,
`ddl`, `tableChanges[]` of `type` CREATE, ALTER or DROP, `id` (two of them for a renamed table) and
`table.columns`. The topic has one partition, so its offsets order the statements.
"""

import dataclasses
import re
from collections.abc import Callable, Iterator

import msgspec

from ingest.decode.ddl_text import ColumnsSaid, columns_said
from ingest.decode.events import SourceTable
from ingest.decode.json.schema_block import split_message
from ingest.source.records import RawBatch

__all__ = ["JsonValue", "TableDdl", "plain_value", "read_schema_change", "schema_changes"]

JsonValue = Callable[[RawBatch, int], bytes | None]
"""(batch, position) to the record's value as a JSON message; None when it has none."""


@dataclasses.dataclass(frozen=True, slots=True)
class TableDdl:
    """What one statement did to one table of the source.

    Attributes:
        source: the table, after the statement.
        type: `CREATE`, `ALTER` or `DROP`.
        said: names of columns in the statement.
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
    said: ColumnsSaid
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
    """What records of the topic are about, in their order."""
    for at, offset in enumerate(raw.offsets):
        yield from read_schema_change(value(raw, at), raw.topic, raw.partition, offset)


def read_schema_change(
    value: bytes | None, topic: str, partition: int, offset: int
) -> list[TableDdl]:
    """The tables that a message is about; none for a message that is no schema change."""
    if value is None:
        return []
    try:
        message = _MESSAGE.decode(split_message(value).payload)
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError):
        return []
    said = columns_said(message.ddl or "")
    return [
        TableDdl(
            source=source,
            type=change.type.upper(),
            said=said if change.type.upper() == "ALTER" else ColumnsSaid(),
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
