# SPDX-License-Identifier: Apache-2.0
"""Canal, Maxwell, GoldenGate and DMS: their messages in JSON.

A message of Canal has the rows of one statement: `data` has the full rows, `old` the previous
values of updated columns. All values are text; bytes are text with one character per byte, and ENUM
and SET values are the members' numbers. `mysqlType` describes the columns, else `sqlType`; without
both, types come from the table, and new columns are STRING.

Messages without rows are counted: DDL, the statements that Canal repeats before their rows (type
QUERY), XA decisions, TiCDC's watermarks. Two kinds that should have rows but do not are bad
records: statements of a source without `binlog_format: ROW`, and TiCDC's large messages that have
only the key.
"""

import dataclasses
import functools
import re
from collections.abc import Collection, Mapping, Sequence
from typing import Any

import msgspec

from ingest.decode.columns import NUMBER, TOKEN, Member, Members, Reading
from ingest.decode.events import PARSE_ERRORS, EventRefusedError, SourceTable, format_hint
from ingest.decode.json.envelopes import (
    EPOCH,
    ISO,
    Dialect,
    DialectOptions,
    Event,
    Image,
    epoch_ms,
    image,
    join_members,
    json_tokens,
    lacks_members,
    message_members,
    parse,
    utc_ms,
)
from ingest.decode.json.layout import Anatomy
from ingest.decode.json.single_event import (
    key_tokens,
)
from ingest.decode.shapes import LooseShape, Shape, TypedColumn
from ingest.decode.types.semantic_types import BIGINT, BOOLEAN, DOUBLE, STRING, Kind
from storage.format.types.types import MAX_LENGTH, AtomicType, TypeRoot

# MySQL column types, as `mysqlType` and JDBC's `sqlType` name them, to Paimon types.
#
# TiCDC omits lengths and precisions unless it is set to `content-compatible`, Canal where the
# statement that created the column did. Such a type is open: text and bytes have no
# limit, numbers and moments are as wide as their values show (`seen_type`).
#
# Decisions: an unsigned type becomes the next wider one, BIGINT UNSIGNED DECIMAL(20, 0); TINYINT(1)
# remains a number, because it may hold more than 0 and 1; BIT(1) is BOOLEAN, other BITs are
# numbers, BIGINT if their length is not known; TIMESTAMP is without zone, because events carry the
# session's wall clock; types without counterpart (ENUM, SET, JSON) are STRING; spatial types are
# BYTES.


_TYPE = re.compile(r"\s*([a-z]+(?: precision| varying)?)\s*(?:\(([^)]*)\))?\s*(.*)", re.DOTALL)
_MAX_PRECISION = 38
_BYTES = AtomicType(TypeRoot.VARBINARY, length=MAX_LENGTH)
_TINYINT = AtomicType(TypeRoot.TINYINT)
_SMALLINT = AtomicType(TypeRoot.SMALLINT)
_INT = AtomicType(TypeRoot.INT)
_FLOAT = AtomicType(TypeRoot.FLOAT)
_UNSIGNED_BIGINT = AtomicType(TypeRoot.DECIMAL, precision=20, scale=0)

_INTEGERS = {
    "tinyint": (_TINYINT, _SMALLINT),
    "smallint": (_SMALLINT, _INT),
    "mediumint": (_INT, _INT),
    "int": (_INT, BIGINT),
    "integer": (_INT, BIGINT),
    "bigint": (BIGINT, _UNSIGNED_BIGINT),
    "serial": (_UNSIGNED_BIGINT, _UNSIGNED_BIGINT),
}
_PLAIN = {
    "float": _FLOAT,
    "double": DOUBLE,
    "double precision": DOUBLE,
    "real": DOUBLE,
    "bool": BOOLEAN,
    "boolean": BOOLEAN,
    "year": _INT,
    "date": AtomicType(TypeRoot.DATE),
    **dict.fromkeys(("tinyblob", "blob", "mediumblob", "longblob"), _BYTES),
    **dict.fromkeys(("geometry", "point", "linestring", "polygon", "multipoint"), _BYTES),
    **dict.fromkeys(("multilinestring", "multipolygon", "geometrycollection"), _BYTES),
    "geomcollection": _BYTES,
}
_OPEN_INTEGERS = 20
"""Integer digits of a decimal whose precision is not known, as long as no value has more."""
_SINGLE_DIGITS = 24
"""The most binary digits of a FLOAT(p) that is no DOUBLE."""
_MAX_FRACTION = 9
_MOMENTS = {
    "time": TypeRoot.TIME,
    "datetime": TypeRoot.TIMESTAMP,
    "timestamp": TypeRoot.TIMESTAMP,
}
_LENGTHS = {
    "char": TypeRoot.VARCHAR,
    "varchar": TypeRoot.VARCHAR,
    "binary": TypeRoot.VARBINARY,
    "varbinary": TypeRoot.VARBINARY,
}
_NUMBER = re.compile("[0-9]{1,9}")
_DECIMALS = ("decimal", "numeric", "dec", "fixed")
_ENUM = re.compile(r"\s*(enum|set)\s*\((.*)\)", re.DOTALL | re.IGNORECASE)
_MEMBER = re.compile(r"'((?:[^'\\]|''|\\.)*)'", re.DOTALL)
_ESCAPED = re.compile(r"''|\\(.)", re.DOTALL)
_ESCAPES = {"0": "\0", "n": "\n", "r": "\r"}


@dataclasses.dataclass(frozen=True, slots=True)
class MysqlType:
    """What is known of a column.

    Attributes:
        type: nullable; of an open type the narrowest.
        is_open: whether its length or precision is not known.
        members: of an ENUM or SET, in their order.
        several: whether values may have more than one of them.
    """

    type: AtomicType
    is_open: bool = False
    members: tuple[str, ...] = ()
    several: bool = False


def mysql_type(text: str) -> MysqlType:
    """Type of a column.

    Args:
        text: as in `SHOW COLUMNS`: `int(11) unsigned`, `decimal(10,2)`, `enum('a','b')`, in any
            case.

    Returns:
        STRING for what is not known.
    """
    match = _TYPE.match(text.lower())
    if match is None:
        return MysqlType(STRING)
    name, inside, rest = match.groups()
    if name in ("enum", "set"):
        return MysqlType(STRING, members=_members(text), several=name == "set")
    if inside is None and (open_type := _OPEN.get(name)) is not None:
        return MysqlType(open_type, is_open=True)
    return MysqlType(_sized(name, inside, rest))


def _members(text: str) -> tuple[str, ...]:
    match = _ENUM.match(text)
    return () if match is None else tuple(map(_unescaped, _MEMBER.findall(match.group(2))))


def _unescaped(text: str) -> str:
    return _ESCAPED.sub(lambda m: _ESCAPES.get(m[1], m[1]) if m[1] else "'", text)


def _sized(name: str, inside: str | None, rest: str) -> AtomicType:
    parts = [part.strip() for part in (inside or "").split(",")]
    numbers = [int(part) for part in parts if _NUMBER.fullmatch(part)]
    if name in _INTEGERS:
        signed, unsigned = _INTEGERS[name]
        return unsigned if "unsigned" in rest or "zerofill" in rest else signed
    if name in _DECIMALS:
        return _decimal(numbers)
    if name == "bit":
        wide = bool(numbers) and numbers[0] >= 64
        return BOOLEAN if numbers == [1] else _UNSIGNED_BIGINT if wide else BIGINT
    if name in _MOMENTS:
        return AtomicType(_MOMENTS[name], precision=numbers[0] if numbers else 0)
    if name in _LENGTHS:
        return AtomicType(_LENGTHS[name], length=max(1, numbers[0] if numbers else 1))
    if name == "float" and len(numbers) == 1 and numbers[0] > _SINGLE_DIGITS:
        return DOUBLE
    return _PLAIN.get(name, STRING)


def _decimal(numbers: list[int]) -> AtomicType:
    precision, scale = [*numbers, 0][:2] if numbers else (10, 0)
    if precision > _MAX_PRECISION:
        return STRING
    return AtomicType(TypeRoot.DECIMAL, precision=precision, scale=scale)


_OPEN = {
    **dict.fromkeys(_DECIMALS, AtomicType(TypeRoot.DECIMAL, precision=_OPEN_INTEGERS, scale=0)),
    **{name: AtomicType(root, precision=0) for name, root in _MOMENTS.items()},
    **{name: STRING if root is TypeRoot.VARCHAR else _BYTES for name, root in _LENGTHS.items()},
    "bit": BIGINT,
}
_DIGITS = re.compile(r"-?0*(\d*)(?:\.(\d*))?", re.ASCII)
_FRACTION = re.compile(r"[^.]*\.(\d+)Z?", re.ASCII)


def seen_type(open_type: AtomicType, token: bytes) -> AtomicType:
    """An open type as wide as a value of it shows.

    Args:
        open_type: of the column.
        token: the value's JSON text, no null.

    Returns:
        The same type if the value requires no more, or is invalid.
    """
    text = msgspec.json.decode(token, type=str) if token[:1] == b'"' else token.decode("utf-8")
    root = open_type.root
    if root is TypeRoot.DECIMAL:
        return _seen_decimal(open_type, text)
    if root in (TypeRoot.TIMESTAMP, TypeRoot.TIME):
        match = _FRACTION.fullmatch(text)
        digits = 0 if match is None else min(len(match.group(1)), _MAX_FRACTION)
        return dataclasses.replace(open_type, precision=max(open_type.precision, digits))
    return open_type


def _seen_decimal(open_type: AtomicType, text: str) -> AtomicType:
    match = _DIGITS.fullmatch(text)
    if match is None:
        return open_type
    scale = len(match.group(2) or "")
    precision = max(len(match.group(1)), _OPEN_INTEGERS) + scale
    if precision > _MAX_PRECISION:
        return open_type
    return dataclasses.replace(open_type, precision=precision, scale=scale)


_JDBC = {
    -7: BOOLEAN,
    16: BOOLEAN,
    -6: _SMALLINT,
    5: _INT,
    4: BIGINT,
    -5: BIGINT,
    7: _FLOAT,
    6: DOUBLE,
    8: DOUBLE,
    91: AtomicType(TypeRoot.DATE),
    92: AtomicType(TypeRoot.TIME, precision=6),
    93: AtomicType(TypeRoot.TIMESTAMP, precision=6),
    **dict.fromkeys((-2, -3, -4, 2004), _BYTES),
}


def jdbc_type(code: int) -> AtomicType:
    """Type of a column of which only JDBC's number is known.

    Returns:
        A nullable type. JDBC does not distinguish unsigned integers, so they get the next wider
        type (BIGINT stays); decimals are STRING, because their scale is not known.
    """
    return _JDBC.get(code, STRING)


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


# AWS DMS's JSON for Kafka and Kinesis targets.
#
# `data` is the row, `metadata` has operation and table. The before image of an update is a separate
# member (`BeforeImageSettings`), or columns with a prefix inside of `data`
# (`add-before-image-columns`), or absent; without it a change of key cannot be detected. DMS omits
# null columns by default, so a missing column is null. Nothing names the primary key:
# `primary.key` has to be configured for tables that do not exist yet.
#
# The table determines whether a member with the prefix is a before image or a column of that name.
# Inserts and loads have no before image, so their members are columns, and so are members that the
# table has as columns. Otherwise `BI_score` is the before image of `score` only in updates and
# deletes that have such a member for the key too, since all of DMS's column filters include it and
# a key is never null, and only if `score` is a column, of the row or of the table. A delete with
# only such members is a before image of the row.


_DMS_FORMAT = "aws-dms-json"
_DMS_OPS = {"load": "r", "insert": "c", "update": "u", "delete": "d"}


_CHANGED = (
    Member(("metadata", "commit-timestamp"), ISO),
    Member(("metadata", "timestamp"), ISO),
)


class _Metadata(msgspec.Struct, gc=False):
    operation: str
    record_type: str = msgspec.field(name="record-type", default="data")
    schema_name: str | None = msgspec.field(name="schema-name", default=None)
    table_name: str | None = msgspec.field(name="table-name", default=None)
    timestamp: str | None = None


_DMS_MEMBERS: Members = {
    "ts_ms": (Member(("metadata", "timestamp"), ISO),),
    "source_ts_ms": _CHANGED,
    "op_ts": _CHANGED,
    "txid": (Member(("metadata", "transaction-id"), TOKEN),),
    "sequence": (Member(("metadata", "stream-position"), TOKEN),),
}


class DmsJson(Dialect):
    """See the module."""

    asks_table = True
    binary = "hex"
    members = _DMS_MEMBERS

    def __init__(self, options: DialectOptions) -> None:
        super().__init__(options)
        message = msgspec.defstruct(
            "Message",
            [
                ("metadata", _Metadata),
                ("data", msgspec.Raw, msgspec.Raw(b"")),
                ("before", msgspec.Raw, msgspec.Raw(b"")),
            ],
            rename={"before": options.before_image_field},
            gc=False,
        )
        self._decode = msgspec.json.Decoder(message).decode
        self._prefix = options.before_image_prefix
        self._prefix_bytes = msgspec.json.encode(self._prefix)[:-1]
        self.anatomy = Anatomy(
            operations=json_tokens(_DMS_OPS),
            op=("metadata", "operation"),
            row="data",
            old=options.before_image_field,
            stamps=(("metadata", "timestamp"),),
            moment=utc_ms,
            constant=frozenset(
                ("metadata", name) for name in ("record-type", "schema-name", "table-name")
            ),
            is_odd=lambda name: bool(self._prefix) and name.startswith(self._prefix),
        )

    def read(self, topic: str, key: bytes | None, value: bytes | None) -> Event | str:
        """See `Dialect.read`."""
        if value is None:
            return "tombstone"
        message: Any = parse(self._decode, value, "a DMS record", _DMS_FORMAT)
        metadata: _Metadata = message.metadata
        if metadata.record_type == "control":
            return "op.t" if metadata.operation.startswith("truncate") else "schema_change"
        op, row = _DMS_OPS.get(metadata.operation), image(message.data)
        if metadata.record_type != "data" or op is None:
            raise EventRefusedError(
                "envelope",
                f"unsupported {metadata.record_type[:40]} record of {metadata.operation[:40]}",
            )
        if row is None or not metadata.table_name:
            raise EventRefusedError("envelope", f"{metadata.operation} without data or table")
        return Event(
            source=self.source("", metadata.schema_name or "", metadata.table_name),
            images=(_image(op, row, image(message.before)),),
            ts_ms=utc_ms(metadata.timestamp),
        )

    def truncated(self, value: bytes) -> SourceTable | None:
        """See `Dialect.truncated`."""
        message: Any = parse(self._decode, value, "a DMS record", _DMS_FORMAT)
        metadata: _Metadata = message.metadata
        if not metadata.operation.startswith("truncate") or not metadata.table_name:
            return None
        return self.source("", metadata.schema_name or "", metadata.table_name)

    def with_table(self, event: Event, key: Collection[str], columns: Collection[str]) -> Event:
        """See `Dialect.with_table`."""
        change = event.images[0]
        row = change.before if change.op == "d" else change.after
        if (
            change.op not in ("u", "d")
            or row is None
            or not self._prefix
            or self._prefix_bytes not in row
        ):
            return event
        members = message_members(row, "data")
        old = self._old_names(members, key, columns, deleted=change.op == "d")
        if not old:
            return event
        before = join_members({old[name]: members[name] for name in old})
        row = join_members({name: token for name, token in members.items() if name not in old})
        if change.op == "d":
            change = Image("d", before if len(old) == len(members) else row, None)
        else:
            change = Image("u", change.before or before, row)
        return msgspec.structs.replace(event, images=(change,))

    def _old_names(
        self,
        members: Mapping[str, bytes],
        key: Collection[str],
        columns: Collection[str],
        *,
        deleted: bool,
    ) -> Mapping[str, str]:
        """Members that are before images, and their columns."""
        size = len(self._prefix)
        marked = {
            name: name[size:]
            for name in members
            if name.startswith(self._prefix) and name not in columns and name not in key
        }
        if deleted and len(marked) == len(members):
            return marked
        if not {*key} & {*marked.values()}:
            return {}
        column_names = {*members, *columns}
        return {name: column for name, column in marked.items() if column in column_names}


def _image(op: str, row: bytes, before: bytes | None) -> Image:
    return Image(op, row, None) if op == "d" else Image(op, before if op == "u" else None, row)


# Maxwell's JSON (MySQL's binlog).
#
# `data` is the row (for a delete the deleted row), `old` the previous values of updated columns.
# The message has no types, so those of new columns are inferred from the values. The primary key is
# in `primary_key_columns` if the producer writes it, else in the Kafka key.


_MAXWELL_FORMAT = "maxwell-json"
_MAXWELL_OPS = {"insert": "c", "update": "u", "delete": "d", "bootstrap-insert": "r"}
_BOOTSTRAP = ("bootstrap-start", "bootstrap-complete")
_DDL = ("table-", "database-")
_KEY_PREFIX = "pk."


class _MaxwellMessage(msgspec.Struct, gc=False):
    type: str
    database: str | None = None
    table: str | None = None
    ts: float | None = None
    data: msgspec.Raw = msgspec.Raw(b"")
    old: msgspec.Raw = msgspec.Raw(b"")
    primary_key_columns: tuple[str, ...] | None = None


_MAXWELL_MESSAGE = msgspec.json.Decoder(_MaxwellMessage)
_ARRAY_KEY = msgspec.json.Decoder(tuple[str | None, str | None, list[dict[str, msgspec.Raw]]])


def _file(position: str) -> str | None:
    """File of a position `file:pos`."""
    return position.rpartition(":")[0] or None


def _position(position: str) -> int | None:
    digits = position.rpartition(":")[2]
    return int(digits) if digits.isascii() and digits.isdigit() else None


_MAXWELL_MEMBERS: Members = {
    "source_ts_ms": (Member(("ts",), EPOCH),),
    "op_ts": (Member(("ts",), EPOCH),),
    "txid": (Member(("xid",), TOKEN),),
    "gtid": (Member(("gtid",)),),
    "file": (Member(("position",), Reading(str, _file)),),
    "pos": (Member(("position",), Reading(str, _position)),),
    "server_id": (Member(("server_id",), NUMBER),),
    "thread": (Member(("thread_id",), NUMBER),),
}


class MaxwellJson(Dialect):
    """See the module."""

    anatomy = Anatomy(
        operations=json_tokens(_MAXWELL_OPS),
        op=("type",),
        row="data",
        old="old",
        stamps=(("ts",),),
        is_epoch=True,
        constant=frozenset({("database",), ("table",), ("primary_key_columns",)}),
    )
    members = _MAXWELL_MEMBERS

    def read(self, topic: str, key: bytes | None, value: bytes | None) -> Event | str:
        """See `Dialect.read`."""
        if value is None:
            return "tombstone"
        message = parse(_MAXWELL_MESSAGE.decode, value, "a Maxwell message", _MAXWELL_FORMAT)
        op = _MAXWELL_OPS.get(message.type)
        if op is None:
            return _maxwell_control(message.type, value)
        row = image(message.data)
        if row is None or not message.table:
            raise EventRefusedError("envelope", f"{message.type} without data or table")
        old = image(message.old) if op == "u" else None
        change = Image(op, row, None) if op == "d" else Image(op, old, row)
        return Event(
            source=self.source(message.database or "", "", message.table),
            images=(change,),
            ts_ms=epoch_ms(message.ts),
            key_names=message.primary_key_columns or (),
            key=key,
        )

    def key_names(self, event: Event) -> Sequence[str]:
        """See `Dialect.key_names`."""
        return event.key_names or _key_names(event.key)


def _maxwell_control(type_: str, value: bytes) -> str:
    if type_ in _BOOTSTRAP:
        return "notification"
    if type_.startswith(_DDL):
        return "schema_change"
    hint = format_hint(value, _MAXWELL_FORMAT)
    raise EventRefusedError("envelope", f"type {type_[:40]} is not a row change{hint}")


def _key_names(key: bytes | None) -> list[str]:
    """Key columns of `{"database":…,"table":…,"pk.id":1}` or of `["db","table",[{"id":1}]]`."""
    names = [name.removeprefix(_KEY_PREFIX) for name in key_tokens(key) if name[:3] == _KEY_PREFIX]
    if names or not key:
        return names
    try:
        _, _, parts = _ARRAY_KEY.decode(key)
    except PARSE_ERRORS:
        return []
    return [name for part in parts for name in part]


# Oracle GoldenGate's JSON in its operation form (`format=json`).
#
# `op_type` is I, U, D or T (truncate); `before` and `after` are row images. The table is
# `SCHEMA.TABLE` or `CATALOG.SCHEMA.TABLE`. An update may carry the key and the changed columns
# only: what `after` lacks is taken from `before`; a column that is in neither is unchanged and not
# known (`missing_columns` may say that it is null).


_OGG_FORMAT = "ogg-json"
_OGG_OPS = {"I": "c", "U": "u", "D": "d"}
_MISSING = "_isMissing"
_MISSING_MARK = b'_isMissing"'


class _OggMessage(msgspec.Struct, gc=False):
    op_type: str
    table: str | None = None
    op_ts: str | None = None
    primary_keys: tuple[str, ...] | None = None
    before: msgspec.Raw = msgspec.Raw(b"")
    after: msgspec.Raw = msgspec.Raw(b"")


_OGG_MESSAGE = msgspec.json.Decoder(_OggMessage)


_OGG_MEMBERS: Members = {
    "ts_ms": (Member(("current_ts",), ISO),),
    "source_ts_ms": (Member(("op_ts",), ISO),),
    "op_ts": (Member(("op_ts",), ISO),),
    "scn": (Member(("csn",), TOKEN),),
    "txid": (Member(("xid",), TOKEN),),
    "sequence": (Member(("pos",), TOKEN),),
}


class OggJson(Dialect):
    """See the module."""

    anatomy = Anatomy(
        operations=json_tokens(_OGG_OPS),
        op=("op_type",),
        row="after",
        deleted="before",
        old="before",
        old_is_whole=True,
        stamps=(("op_ts",),),
        moment=utc_ms,
        constant=frozenset({("table",), ("primary_keys",)}),
        is_odd=lambda name: name.endswith(_MISSING),
    )
    missing = "unchanged"
    members = _OGG_MEMBERS

    def read(self, topic: str, key: bytes | None, value: bytes | None) -> Event | str:
        """See `Dialect.read`."""
        if value is None:
            return "tombstone"
        message = parse(_OGG_MESSAGE.decode, value, "a GoldenGate operation", _OGG_FORMAT)
        if message.op_type == "T":
            return "op.t"
        op = _OGG_OPS.get(message.op_type)
        if op is None or not message.table:
            raise EventRefusedError(
                "envelope", f"invalid op_type {message.op_type[:40]} or table {message.table}"
            )
        return Event(
            source=self.source(*_parts(message.table)),
            images=(_ogg_image(op, image(message.before), image(message.after)),),
            ts_ms=utc_ms(message.op_ts),
            key_names=message.primary_keys or (),
        )

    def truncated(self, value: bytes) -> SourceTable | None:
        """See `Dialect.truncated`."""
        message = parse(_OGG_MESSAGE.decode, value, "a GoldenGate operation", _OGG_FORMAT)
        if message.op_type != "T" or not message.table:
            return None
        return self.source(*_parts(message.table))


def _parts(table: str) -> tuple[str, str, str]:
    parts = ["", "", *table.split(".")]
    return parts[-3], parts[-2], parts[-1]


def _ogg_image(op: str, before: bytes | None, after: bytes | None) -> Image:
    before, after = _present(before), _present(after)
    if op == "d":
        if before is None:
            raise EventRefusedError("envelope", "a delete without before image")
        return Image(op, before, None)
    if after is None:
        hint = "" if before is not None else ": the row form (json_row) is not supported"
        raise EventRefusedError("envelope", f"no after image{hint}")
    if op == "c" or before is None:
        return Image(op, None, after)
    if lacks_members(after, before):
        after = join_members(
            {**message_members(before, "before"), **message_members(after, "after")}
        )
    return Image(op, before, after)


def _present(text: bytes | None) -> bytes | None:
    """A row image without the flags of `includeIsMissingFields`, and without what is missing."""
    if text is None or _MISSING_MARK not in text:
        return text
    members = message_members(text, "a row")
    flags = {
        name + _MISSING for name in members if members.get(name + _MISSING) in (b"true", b"false")
    }
    columns = [name for name in members if name not in flags]
    if any(name + _MISSING not in flags for name in columns):
        return text  # GoldenGate writes one for each column: these are columns called so
    return join_members({n: members[n] for n in columns if members[n + _MISSING] == b"false"})
