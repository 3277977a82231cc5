# SPDX-License-Identifier: Apache-2.0
"""Upsert streams: the key is a JSON object of the key columns, the value the row, null deletes.

The table is named after the topic. Key columns may be in the key alone. As nothing distinguishes
an insert from an update, a row is +U.
"""

from collections.abc import Sequence

from ingest.decode.dialects.bare_rows import BLOCK, BareRows
from ingest.decode.events import SourceTable
from ingest.decode.json.envelopes import Event, Image
from ingest.decode.json.layout import Anatomy
from ingest.decode.json.single_event import EventRefusedError, key_tokens

__all__ = ["KeyedRows", "UpsertJson"]


class KeyedRows(BareRows):
    """Rows whose Kafka key has the key columns, so that a null value can delete."""

    key_is_row = True
    fills_keys = True

    def key_names(self, event: Event) -> Sequence[str]:
        """See `Dialect.key_names`."""
        return tuple(key_tokens(event.key))

    def deleted(self, topic: str, source: SourceTable, key: bytes | None) -> Event:
        """The delete that a null value stands for.

        Raises:
            EventRefusedError: the record has no key that says what is deleted.
        """
        block, row = (None, None) if not key else self.split_key(topic, key)
        if row is None:
            raise EventRefusedError("no_primary_key", "a null value without key deletes nothing")
        return Event(
            source=source,
            images=(Image("d", row, None),),
            types=b"" if block is None else block.raw,
            key=key,
            of_key=True,
        )


class UpsertJson(KeyedRows):
    """See the module."""

    @property
    def anatomy(self) -> Anatomy:
        """See `Dialect.anatomy`."""
        return Anatomy(default_op="u", reserved=BLOCK)

    def read(self, topic: str, key: bytes | None, value: bytes | None) -> Event | str:
        """See `Dialect.read`."""
        source = self.source_of_topic(topic)
        block, row = (None, None) if value is None else self.split_value(topic, value)
        if row is None:
            return self.deleted(topic, source, key)
        return Event(
            source=source,
            images=(Image("u", None, row),),
            types=b"" if block is None else block.raw,
            key=key,
        )
