# SPDX-License-Identifier: Apache-2.0
"""Keys of records: whether they still are the table's primary key, and rows whose key changed.

A table made from the Kafka key merges rows by those columns. If the source's key grows later (`id`
to `id, region`), rows of different keys would silently become one. Keys are not parsed on the fast
path, so the keys of the first and the last row of a table are compared, and all of them only when
one of the two differs: a source changes its key once, not back and forth within a few thousand
records. (Other tables of the topic may have other keys.)

Debezium writes a change of key as a delete of the old key (header `__debezium.newkey`), a tombstone
and an insert of the new one (header `__debezium.oldkey`), consecutively. An insert with missing
values (`unavailable`) can take them from the old row only if the last state of that row is known:
its delete must directly precede the insert, in the same partition and batch of records. Otherwise
there may be changes of the old row that have not been read yet (CDC.md §1.2).
"""

import bisect
import dataclasses
from collections.abc import Callable, Collection
from typing import Any

import msgspec
import pyarrow as pa

from ingest.decode.column_names import NO_NAMES, ColumnNames
from ingest.decode.events import OFFSET_COLUMN, BadRecord, ChangeBatch, EventRefusedError
from ingest.decode.json.single_event import (
    Tokens,
    key_tokens,
)
from ingest.decode.outcome import bad_record
from ingest.decode.types.token_values import PARSE_ERRORS
from ingest.source.records import RawBatch

OldKeys = Callable[[int], Tokens | None]
"""`KeyMoves.old_key`, for positions of any kind."""

_OLD, _NEW = "__debezium.oldkey", "__debezium.newkey"


class KeyMoves:
    """Finds old keys. Reads headers of single records, so it is for the few that need it.

    Args:
        raw: the records.
        json_key: the key of the record at a position as JSON; None = it has none.
        is_delete: whether the record at a position deletes a row.
    """

    def __init__(
        self,
        raw: RawBatch,
        json_key: Callable[[int], bytes | None],
        is_delete: Callable[[int], bool],
    ) -> None:
        self._raw = raw
        self._json_key = json_key
        self._is_delete = is_delete

    def old_key(self, at: int) -> Tokens | None:
        """Columns of the key that a new row had before; None: the row is new.

        Raises:
            EventRefusedError: the key changed, but the last state of the old row is unknown.
        """
        old = self._header(at, _OLD)
        if old is None:
            return None
        before = at - 1
        if before >= 0 and self._raw.values[before] is None:
            before -= 1  # the tombstone of the delete
        if before < 0 or self._raw.values[before] is None or not self._is_delete(before):
            raise _unknown("the delete of the old key is not the record right before")
        if self._header(before, _NEW) != _parsed(self._json_key(at)):
            raise _unknown("the delete before it is of another change")
        key = key_tokens(self._json_key(before))
        if not key or _parsed(self._json_key(before)) != old:
            raise _unknown("the delete before it is of another key")
        return key

    def _header(self, at: int, name: str) -> Any:
        return _parsed(dict(self._raw.headers(at)).get(name))


def _parsed(text: bytes | None) -> Any:
    """A key without its schema; None for what is no JSON object."""
    if not text:
        return None
    try:
        value = msgspec.json.decode(text)
    except PARSE_ERRORS:
        return None
    if isinstance(value, dict) and value.keys() == {"schema", "payload"}:
        value = value["payload"]
    return value if isinstance(value, dict) else None


def _unknown(reason: str) -> EventRefusedError:
    return EventRefusedError(
        "unavailable_value",
        f"the key changed, the source did not send all values, and {reason}: the old row may have "
        "changed where it was not seen",
    )


ERROR_CLASS = "primary_key_changed"


KeyColumns = Callable[[RawBatch, int], frozenset[str] | None]
"""(batch, position) to the column names of a record's key; None when it has none."""


def json_keys(raw: RawBatch, at: int) -> frozenset[str] | None:
    """`KeyColumns` of JSON."""
    return key_columns(raw.keys[at])


def key_columns(key: bytes | None) -> frozenset[str] | None:
    """Column names of a Kafka key; None when it has none or is no JSON object."""
    members = _parsed(key)
    return None if members is None else frozenset(members)


def without_foreign_keys(
    raw: RawBatch,
    change: ChangeBatch,
    primary_key: Collection[str],
    columns_of: KeyColumns = json_keys,
    names: ColumnNames = NO_NAMES,
) -> tuple[ChangeBatch | None, list[BadRecord]]:
    """Remove the rows whose record has another key than the table.

    Args:
        raw: the records.
        change: what was decoded from them for one table.
        primary_key: the table's.
        columns_of: reads keys.
        names: column names by the table's options, former names included.

    Returns:
        The remaining rows (None if there are none), and the removed records, in offset order.
    """
    expected = frozenset(primary_key)

    def disagrees(at: int) -> bool:
        columns = columns_of(raw, at)
        if columns is None or columns == expected:
            return False
        slots = {name: names.slots(name, expected, columns) for name in columns}
        return {matches[0] if matches else name for name, matches in slots.items()} != expected

    column = change.rows.column(OFFSET_COLUMN)
    ends = [column[0].as_py(), column[-1].as_py()] if len(column) else []
    if not any(disagrees(bisect.bisect_left(raw.offsets, offset)) for offset in ends):
        return change, []
    row_offsets = set(column.to_pylist())
    error = (
        f"the record's key is not the primary key of {change.target} "
        f"({', '.join(primary_key)}): make a new table for the new key"
    )
    bad = [
        bad_record(raw, index, ERROR_CLASS, error, change.target)
        for index, offset in enumerate(raw.offsets)
        if offset in row_offsets and disagrees(index)
    ]
    if not bad:
        return change, []
    removed = {record.offset for record in bad}
    offsets = change.rows.column(OFFSET_COLUMN).to_pylist()
    keep = pa.array([offset not in removed for offset in offsets])
    rows = change.rows.filter(keep)
    if rows.num_rows == 0:
        return None, bad
    origin = None if change.origin is None else change.origin.filter(keep)
    return dataclasses.replace(change, rows=rows, origin=origin), bad
