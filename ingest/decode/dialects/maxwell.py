# SPDX-License-Identifier: Apache-2.0
"""Maxwell's JSON (MySQL's binlog).

`data` is the row (for a delete the deleted row), `old` the previous values of updated columns. The
message has no types, so those of new columns are inferred from the values. The primary key is in
`primary_key_columns` if the producer writes it, else in the Kafka key.
"""

from collections.abc import Sequence

import msgspec

from ingest.decode.dialects.recognition import format_hint
from ingest.decode.events import EventRefusedError
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
from ingest.decode.json.member_columns import NUMBER, TOKEN, Member, Members, Reading
from ingest.decode.json.single_event import (
    key_tokens,
)
from ingest.decode.types.token_values import PARSE_ERRORS

_FORMAT = "maxwell-json"
_OPS = {"insert": "c", "update": "u", "delete": "d", "bootstrap-insert": "r"}
_BOOTSTRAP = ("bootstrap-start", "bootstrap-complete")
_DDL = ("table-", "database-")
_KEY_PREFIX = "pk."


class _Message(msgspec.Struct, gc=False):
    type: str
    database: str | None = None
    table: str | None = None
    ts: float | None = None
    data: msgspec.Raw = msgspec.Raw(b"")
    old: msgspec.Raw = msgspec.Raw(b"")
    primary_key_columns: tuple[str, ...] | None = None


_MESSAGE = msgspec.json.Decoder(_Message)
_ARRAY_KEY = msgspec.json.Decoder(tuple[str | None, str | None, list[dict[str, msgspec.Raw]]])


def _file(position: str) -> str | None:
    """File of a position `file:pos`."""
    return position.rpartition(":")[0] or None


def _position(position: str) -> int | None:
    digits = position.rpartition(":")[2]
    return int(digits) if digits.isascii() and digits.isdigit() else None


_MEMBERS: Members = {
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
        operations=json_tokens(_OPS),
        op=("type",),
        row="data",
        old="old",
        stamps=(("ts",),),
        is_epoch=True,
        constant=frozenset({("database",), ("table",), ("primary_key_columns",)}),
    )
    members = _MEMBERS

    def read(self, topic: str, key: bytes | None, value: bytes | None) -> Event | str:
        """See `Dialect.read`."""
        if value is None:
            return "tombstone"
        message = parse(_MESSAGE.decode, value, "a Maxwell message", _FORMAT)
        op = _OPS.get(message.type)
        if op is None:
            return _control(message.type, value)
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


def _control(type_: str, value: bytes) -> str:
    if type_ in _BOOTSTRAP:
        return "notification"
    if type_.startswith(_DDL):
        return "schema_change"
    hint = format_hint(value, _FORMAT)
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
