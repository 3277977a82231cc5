# SPDX-License-Identifier: Apache-2.0
"""AWS DMS's JSON for Kafka and Kinesis targets.

`data` is the row, `metadata` has operation and table. The before image of an update is a separate
member (`BeforeImageSettings`), or columns with a prefix inside of `data`
(`add-before-image-columns`), or absent; without it a change of key cannot be detected. DMS omits
null columns by default, so a missing column is null. Nothing names the primary key:
`primary.key` has to be configured for tables that do not exist yet.

The table determines whether a member with the prefix is a before image or a column of that name.
Inserts and loads have no before image, so their members are columns, and so are members that the
table has as columns. Otherwise `BI_score` is the before image of `score` only in updates and
deletes that have such a member for the key too, since all of DMS's column filters include it and a
key is never null, and only if `score` is a column, of the row or of the table. A delete with only
such members is a before image of the row.
"""

from collections.abc import Collection, Mapping
from typing import Any

import msgspec

from ingest.decode.events import EventRefusedError, SourceTable
from ingest.decode.json.envelopes import (
    ISO,
    Dialect,
    DialectOptions,
    Event,
    Image,
    image,
    join_members,
    json_tokens,
    members_of,
    parse,
    utc_ms,
)
from ingest.decode.json.layout import Anatomy
from ingest.decode.json.member_columns import TOKEN, Member, Members

_FORMAT = "aws-dms-json"
_OPS = {"load": "r", "insert": "c", "update": "u", "delete": "d"}


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


_MEMBERS: Members = {
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
    members = _MEMBERS

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
            operations=json_tokens(_OPS),
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
        message: Any = parse(self._decode, value, "a DMS record", _FORMAT)
        metadata: _Metadata = message.metadata
        if metadata.record_type == "control":
            return "op.t" if metadata.operation.startswith("truncate") else "schema_change"
        op, row = _OPS.get(metadata.operation), image(message.data)
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
        message: Any = parse(self._decode, value, "a DMS record", _FORMAT)
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
        members = members_of(row, "data")
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
