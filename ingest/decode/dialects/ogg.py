# SPDX-License-Identifier: Apache-2.0
"""Oracle GoldenGate's JSON in its operation form (`format=json`).

`op_type` is I, U, D or T (truncate); `before` and `after` are row images. The table is
`SCHEMA.TABLE` or `CATALOG.SCHEMA.TABLE`. An update may carry the key and the changed columns only:
what `after` lacks is taken from `before`; a column that is in neither is unchanged and not known
(`missing_columns` may say that it is null).
"""

import msgspec

from ingest.decode.events import EventRefusedError, SourceTable
from ingest.decode.json.envelopes import (
    ISO,
    Dialect,
    Event,
    Image,
    image,
    join_members,
    json_tokens,
    lacks_members,
    members_of,
    parse,
    utc_ms,
)
from ingest.decode.json.layout import Anatomy
from ingest.decode.json.member_columns import TOKEN, Member, Members

_FORMAT = "ogg-json"
_OPS = {"I": "c", "U": "u", "D": "d"}
_MISSING = "_isMissing"
_MISSING_MARK = b'_isMissing"'


class _Message(msgspec.Struct, gc=False):
    op_type: str
    table: str | None = None
    op_ts: str | None = None
    primary_keys: tuple[str, ...] | None = None
    before: msgspec.Raw = msgspec.Raw(b"")
    after: msgspec.Raw = msgspec.Raw(b"")


_MESSAGE = msgspec.json.Decoder(_Message)


_MEMBERS: Members = {
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
        operations=json_tokens(_OPS),
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
    members = _MEMBERS

    def read(self, topic: str, key: bytes | None, value: bytes | None) -> Event | str:
        """See `Dialect.read`."""
        if value is None:
            return "tombstone"
        message = parse(_MESSAGE.decode, value, "a GoldenGate operation", _FORMAT)
        if message.op_type == "T":
            return "op.t"
        op = _OPS.get(message.op_type)
        if op is None or not message.table:
            raise EventRefusedError(
                "envelope", f"invalid op_type {message.op_type[:40]} or table {message.table}"
            )
        return Event(
            source=self.source(*_parts(message.table)),
            images=(_image(op, image(message.before), image(message.after)),),
            ts_ms=utc_ms(message.op_ts),
            key_names=message.primary_keys or (),
        )

    def truncated(self, value: bytes) -> SourceTable | None:
        """See `Dialect.truncated`."""
        message = parse(_MESSAGE.decode, value, "a GoldenGate operation", _FORMAT)
        if message.op_type != "T" or not message.table:
            return None
        return self.source(*_parts(message.table))


def _parts(table: str) -> tuple[str, str, str]:
    parts = ["", "", *table.split(".")]
    return parts[-3], parts[-2], parts[-1]


def _image(op: str, before: bytes | None, after: bytes | None) -> Image:
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
        after = join_members({**members_of(before, "before"), **members_of(after, "after")})
    return Image(op, before, after)


def _present(text: bytes | None) -> bytes | None:
    """A row image without the flags of `includeIsMissingFields`, and without what is missing."""
    if text is None or _MISSING_MARK not in text:
        return text
    members = members_of(text, "a row")
    flags = {
        name + _MISSING for name in members if members.get(name + _MISSING) in (b"true", b"false")
    }
    columns = [name for name in members if name not in flags]
    if any(name + _MISSING not in flags for name in columns):
        return text  # GoldenGate writes one for each column: these are columns called so
    return join_members({n: members[n] for n in columns if members[n + _MISSING] == b"false"})
