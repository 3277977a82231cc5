# SPDX-License-Identifier: Apache-2.0
"""Debezium's marks of where a snapshot of a table begins and ends: `source.snapshot` of `op=r`.

`first` and `first_in_data_collection` begin a table, `last` and `last_in_data_collection` end it;
between them it says `true`. A table of one row has one mark: `last` or `last_in_data_collection`,
or `first` where it is the first of several tables. Rows of incremental snapshots say `incremental`.

Records are looked at once more, besides their decoding, and also those that are bad. What cannot
have a mark is told by a search for its words. Source: CDC.md §1.2, and Debezium's
`RelationalSnapshotChangeEventSource`.
"""

from collections.abc import Callable, Sequence

import msgspec

from ingest.decode.events import SourceTable
from ingest.decode.json.schema_block import split_message
from ingest.source.records import RawBatch

__all__ = ["AVRO_WORDS", "JSON_WORDS", "SnapshotMarkOf", "places_with", "snapshot_mark"]

JSON_WORDS = (b'"first"', b'"last"', b'_in_data_collection"')
"""One of them is in every JSON event with a mark."""

AVRO_WORDS = (b"\x0afirst", b"\x08last", b"_in_data_collection")
"""One of them is in every Avro event with a mark: length and bytes of the text."""

SnapshotMarkOf = Callable[[RawBatch, int], tuple[SourceTable, bool] | None]
"""(records, place) to the table and whether its snapshot begins there (else it ends); None: it does
neither."""

_BEGINS = ("first", "first_in_data_collection")
_ENDS = ("last", "last_in_data_collection")


class _Origin(msgspec.Struct, gc=False):
    name: str | None = None
    db: str | None = None
    schema: str | None = None
    table: str | None = None
    snapshot: str | bool | None = None


class _Read(msgspec.Struct, gc=False):
    op: str
    source: _Origin


_READ = msgspec.json.Decoder(_Read)


def places_with(values: Sequence[bytes | None], words: Sequence[bytes]) -> list[int]:
    """Places of records that may have a mark."""
    whole = b"\n".join(filter(None, values))  # less than half of one by one
    if not any(word in whole for word in words):
        return []
    return [
        at
        for at, value in enumerate(values)
        if value is not None and any(word in value for word in words)
    ]


def snapshot_mark(value: bytes | None) -> tuple[SourceTable, bool] | None:
    """The table that a snapshot begins or ends with an event; None of any other message.

    Args:
        value: a record's value as JSON, with or without a schema block.

    Returns:
        The table, and whether its snapshot begins.
    """
    if value is None:
        return None
    try:
        event = _READ.decode(split_message(value).payload)
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError):
        return None
    origin = event.source
    if event.op != "r" or not origin.table or origin.snapshot not in (*_BEGINS, *_ENDS):
        return None
    table = SourceTable(origin.db or "", origin.schema or "", origin.table, origin.name or "")
    return table, origin.snapshot in _BEGINS
