# SPDX-License-Identifier: Apache-2.0
"""Canal JSON (flat messages of MySQL's binlog).

One message has the rows of one statement: `data` has the full rows, `old` the previous values of
updated columns. All values are text; bytes are text with one character per byte, and ENUM and SET
values are the members' numbers. `mysqlType` describes the columns, else `sqlType`; without both,
types come from the table, and new columns are STRING.

Messages without rows are counted: DDL, the statements that Canal repeats before their rows (type
QUERY), XA decisions, TiCDC's watermarks. Two kinds that should have rows but do not are bad
records: statements of a source without `binlog_format: ROW`, and TiCDC's large messages that have
only the key.
"""

import functools
from collections.abc import Sequence

import msgspec

from ingest.decode.dialects.recognition import format_hint
from ingest.decode.events import EventRefusedError, SourceTable
from ingest.decode.json.envelopes import (
    EPOCH,
    Dialect,
    Event,
    Image,
    epoch_ms,
    image,
    json_tokens,
    parse,
)
from ingest.decode.json.layout import Anatomy
from ingest.decode.json.loose_shapes import LooseShape, TypedColumn
from ingest.decode.json.member_columns import Member, Members
from ingest.decode.shapes import Shape
from ingest.decode.types.mysql_types import jdbc_type, mysql_type, seen_type
from ingest.decode.types.semantic_types import Kind

_FORMAT = "canal-json"
_OPS = {"INSERT": "c", "UPDATE": "u", "DELETE": "d"}
_XA = ("XACOMMIT", "XAROLLBACK")


class _TiDB(msgspec.Struct, gc=False):
    only_handle_key: bool | None = msgspec.field(name="onlyHandleKey", default=None)
    claim_check: str | None = msgspec.field(name="claimCheckLocation", default=None)


class _Message(msgspec.Struct, gc=False):
    type: str
    data: list[msgspec.Raw] | None = None
    old: list[msgspec.Raw] | None = None
    database: str | None = None
    table: str | None = None
    is_ddl: bool | None = msgspec.field(name="isDdl", default=None)
    pk_names: tuple[str, ...] | None = msgspec.field(name="pkNames", default=None)
    mysql_type: msgspec.Raw = msgspec.field(name="mysqlType", default=msgspec.Raw(b""))
    sql_type: msgspec.Raw = msgspec.field(name="sqlType", default=msgspec.Raw(b""))
    es: int | None = None
    ts: int | None = None
    sql: str | None = None
    tidb: _TiDB | None = msgspec.field(name="_tidb", default=None)


_MESSAGE = msgspec.json.Decoder(_Message)
_TYPES = msgspec.json.Decoder(dict[str, str | int | None])


_MEMBERS: Members = {
    "ts_ms": (Member(("ts",), EPOCH),),
    "source_ts_ms": (Member(("es",), EPOCH),),
    "op_ts": (Member(("es",), EPOCH),),
    "gtid": (Member(("gtid",)),),
}


class CanalJson(Dialect):
    """See the module."""

    anatomy = Anatomy(
        operations=json_tokens(_OPS),
        op=("type",),
        row="data",
        old="old",
        is_array=True,
        stamps=(("es",), ("ts",)),
        is_epoch=True,
        constant=frozenset(
            (name,)
            for name in (
                *("database", "table", "isDdl", "pkNames", "mysqlType", "sqlType", "sql", "_tidb"),
            )
        ),
        whole=frozenset({("ts",)}),
    )
    binary = "latin1"
    members = _MEMBERS

    def read(self, topic: str, key: bytes | None, value: bytes | None) -> Event | str:
        """See `Dialect.read`."""
        if value is None:
            return "tombstone"
        message = parse(_MESSAGE.decode, value, "a Canal message", _FORMAT)
        op = _OPS.get(message.type)
        if op is None:
            return _control(message, value)
        if message.is_ddl or not message.data or not message.table:
            raise EventRefusedError("envelope", _why_no_rows(message))
        if op != "d" and message.tidb is not None:
            _refuse_key_alone(message.tidb)
        return Event(
            source=self.source(message.database or "", "", message.table),
            images=_images(op, message.data, message.old),
            ts_ms=epoch_ms(message.es if message.es is not None else message.ts),
            key_names=message.pk_names or (),
            types=image(message.mysql_type) or image(message.sql_type) or b"",
        )

    def truncated(self, value: bytes) -> SourceTable | None:
        """See `Dialect.truncated`."""
        message = parse(_MESSAGE.decode, value, "a Canal message", _FORMAT)
        if message.type != "TRUNCATE" or not message.table:
            return None
        return self.source(message.database or "", "", message.table)

    def shape(self, event: Event) -> Shape:
        """See `Dialect.shape`."""
        columns: Sequence[TypedColumn] | None = None
        if event.types:
            types = parse(_TYPES.decode, event.types, "a Canal message: the types are odd")
            columns = [_column(name, type_) for name, type_ in types.items() if type_ is not None]
        keys = self.options.primary_keys
        return LooseShape(event.source, columns, self.facts, keys, all_text=True)


def _images(
    op: str, data: Sequence[msgspec.Raw], old: Sequence[msgspec.Raw] | None
) -> tuple[Image, ...]:
    if op == "d":
        return tuple(Image(op, bytes(row), None) for row in data)
    if op == "c" or old is None:
        return tuple(Image(op, None, bytes(row)) for row in data)
    if len(old) != len(data):
        raise EventRefusedError("envelope", f"{len(data)} rows in data, {len(old)} in old")
    return tuple(Image(op, image(o), bytes(d)) for o, d in zip(old, data, strict=True))


def _column(name: str, type_: str | int) -> TypedColumn:
    if not isinstance(type_, str):
        column_type = jdbc_type(type_)
        return TypedColumn(name, column_type, bounded=False, observed_type=lambda _: column_type)
    declaration = mysql_type(type_)
    if declaration.is_open:
        infer = functools.partial(seen_type, declaration.type)
        return TypedColumn(name, declaration.type, bounded=False, observed_type=infer)
    if not declaration.members:
        return TypedColumn(name, declaration.type)
    kind = Kind.MEMBERS if declaration.several else Kind.MEMBER
    return TypedColumn(name, declaration.type, kind=kind, members=declaration.members)


def _control(message: _Message, value: bytes) -> str:
    if message.type == "TRUNCATE":
        return "op.t"
    if message.is_ddl:
        return "schema_change"
    if message.type == "TIDB_WATERMARK":  # TiCDC writes this format too
        return "heartbeat"
    if message.type in _XA:
        return "transaction"
    if message.type == "QUERY" and not message.data:
        return "notification"
    hint = format_hint(value, _FORMAT)
    raise EventRefusedError("envelope", f"type {message.type[:40]} is not a row change{hint}")


def _why_no_rows(message: _Message) -> str:
    hint = ": a statement instead of its rows, set binlog_format=ROW" if message.sql else ""
    return f"{message.type} without data or table{hint}"


def _refuse_key_alone(tidb: _TiDB) -> None:
    if tidb.only_handle_key or tidb.claim_check:
        raise EventRefusedError(
            "unavailable_value",
            "TiCDC sent only the key, as the message was too large: raise max-message-bytes of "
            "the changefeed and the topic, or compress",
        )
