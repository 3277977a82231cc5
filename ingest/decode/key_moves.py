# SPDX-License-Identifier: Apache-2.0
"""Rows whose key changed, where the change comes as two records: a delete, then an insert.

Debezium writes a change of key as a delete of the old key (header `__debezium.newkey`), a tombstone
and an insert of the new one (header `__debezium.oldkey`), all in a row. An insert whose values did
not all come (`unavailable`) can take them from the old row only if that row is known as it was just
before: its delete must stand right before the insert, in the same partition and batch of records.
Elsewhere changes of the old row may lie that have not been read yet.

Source: CDC.md §1.2.
"""

from collections.abc import Callable
from typing import Any

import msgspec

from ingest.decode.json.single_event import EventRefusedError, Tokens, key_tokens
from ingest.source.records import RawBatch

__all__ = ["KeyMoves", "OldKeys"]

OldKeys = Callable[[int], Tokens | None]
"""`KeyMoves.old_key`, whatever the positions are of."""

_OLD, _NEW = "__debezium.oldkey", "__debezium.newkey"
_ERRORS = (msgspec.MsgspecError, UnicodeDecodeError, RecursionError)


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
        """Columns of the key that a new row had before; None: the row is really new.

        Args:
            at: position of its record.

        Raises:
            EventRefusedError: the key changed, but the old row is not surely known.
        """
        old = self._header(at, _OLD)
        if old is None:
            return None
        before = at - 1
        if before >= 0 and self._raw.values[before] is None:
            before -= 1  # the tombstone of the delete
        if before < 0 or self._raw.values[before] is None or not self._is_delete(before):
            raise _unknown("the delete of the old key does not stand right before")
        if self._header(before, _NEW) != _parsed(self._json_key(at)):
            raise _unknown("the delete before it is of another change")
        found = key_tokens(self._json_key(before))
        if not found or _parsed(self._json_key(before)) != old:
            raise _unknown("the delete before it is of another key")
        return found

    def _header(self, at: int, name: str) -> Any:
        return _parsed(dict(self._raw.headers(at)).get(name))


def _parsed(text: bytes | None) -> Any:
    """A key without its schema; None for what is no JSON object."""
    if not text:
        return None
    try:
        value = msgspec.json.decode(text)
    except _ERRORS:
        return None
    if isinstance(value, dict) and value.keys() == {"schema", "payload"}:
        value = value["payload"]
    return value if isinstance(value, dict) else None


def _unknown(why: str) -> EventRefusedError:
    return EventRefusedError(
        "unavailable_value",
        f"the key changed, the source did not send all values, and {why}: the old row may have "
        "changed where it was not seen",
    )
