# SPDX-License-Identifier: Apache-2.0
"""Debezium's truncate events (`op=t`): which table they are about.

They have neither key nor row images, only `source`. Decoders count them; this looks at the few that
there are once more. Source: CDC.md §1.1.
"""

import msgspec

from ingest.decode.events import SourceTable
from ingest.decode.json.schema_block import split_message

__all__ = ["truncated_table"]


class _Origin(msgspec.Struct, gc=False):
    name: str | None = None
    db: str | None = None
    schema: str | None = None
    table: str | None = None


class _Truncate(msgspec.Struct, gc=False):
    op: str
    source: _Origin


_TRUNCATE = msgspec.json.Decoder(_Truncate)


def truncated_table(value: bytes | None) -> SourceTable | None:
    """The table that an event says was truncated; None of any other message.

    Args:
        value: a record's value as JSON, with or without a schema block.
    """
    if value is None:
        return None
    try:
        event = _TRUNCATE.decode(split_message(value).payload)
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError):
        return None
    origin = event.source
    if event.op not in ("t", "T") or not origin.table:
        return None
    return SourceTable(origin.db or "", origin.schema or "", origin.table, origin.name or "")
