# SPDX-License-Identifier: Apache-2.0
"""Formats whose message is the row itself, with or without Connect's schema block around it.

`json` (every record is an insert), `upsert-json`, and what `debezium-flat` shares with them:
telling block and row apart, and reading a block whose top struct is the row. A message is taken for
a block and a payload when it has these two members and no other, `schema` is null or an object that
says a `type`, and `payload` is null or an object.
"""

from collections.abc import Sequence

import msgspec

from ingest.decode.dialects.recognition import MONGODB, looks_like
from ingest.decode.events import EventRefusedError, SourceTable
from ingest.decode.json.envelopes import BlockMessages, Event, Image, members_of
from ingest.decode.json.layout import Anatomy
from ingest.decode.json.loose_shapes import LooseShape
from ingest.decode.json.schema_block import BlockField, SchemaBlock, TopicState
from ingest.decode.json.single_event import (
    key_tokens,
)
from ingest.decode.shapes import Shape
from ingest.decode.types.token_values import NULL

_BLOCK = msgspec.json.Decoder(BlockField)

BLOCK = (frozenset({"schema", "payload"}),)
"""Members by which a message may be a block and a payload, so that no layout of rows has them."""


class BareRows(BlockMessages):
    """Base of such dialects."""

    def split_value(self, topic: str, value: bytes) -> tuple[SchemaBlock | None, bytes | None]:
        """(block, row) of a record's value; the row is None for null.

        Raises:
            EventRefusedError: it is no JSON.
        """
        return self._split(self.state(topic), value)

    def split_key(self, topic: str, key: bytes) -> tuple[SchemaBlock | None, bytes | None]:
        """The same of a record's key."""
        return self._split(self.state(topic, of_keys=True), key)

    def _split(self, state: TopicState, text: bytes) -> tuple[SchemaBlock | None, bytes | None]:
        try:
            block, payload, prefix = state.split(text)
            doubtful = payload is not text and (not prefix or payload[:1] not in (b"{", b"n"))
        except EventRefusedError:
            if _has_payload(text):
                raise
            return None, text
        if doubtful and not _has_payload(text):
            return None, text
        row = None if payload == NULL else payload
        return (None if block is None else self._row_block(block), row)

    def _row_block(self, parsed: SchemaBlock) -> SchemaBlock:
        block = self.blocks.get(parsed.raw)
        if block is not None:
            return block
        fields = tuple(f for f in _BLOCK.decode(parsed.raw).fields if self.is_column(f.field))
        return self.remember(SchemaBlock(parsed.raw, parsed.name, parsed.top, fields))

    def metadata_text(self, topic: str, value: bytes) -> bytes | None:
        """See `Dialect.metadata_text`."""
        return self.split_value(topic, value)[1] if self.members else None

    def mistaken(self, value: bytes | None) -> str:
        """See `Dialect.mistaken`."""
        what, format_ = looks_like(value)
        if what == MONGODB:
            return what
        if not format_ or format_ == "debezium-flat":
            return ""
        return (
            f"it looks like {what}: set source.format: {format_}; if such messages are to be rows, "
            "make the table with their columns first"
        )

    def is_column(self, name: str) -> bool:
        """Whether a member of the message is a column."""
        return True

    def shape(self, event: Event) -> Shape:
        """See `Dialect.shape`."""
        if not event.types:
            return self.bare_shape(event)
        block = self.blocks.get(event.types)
        if block is None:
            raise EventRefusedError("envelope", "the schema block is no longer known")
        shape = Shape(event.source, block, self.facts, self.options.primary_keys)
        shape.of_key = event.of_key
        return shape

    def bare_shape(self, event: Event) -> Shape:
        """The shape of an event without schema block."""
        return LooseShape(event.source, None, self.facts, self.options.primary_keys)


def _has_payload(text: bytes) -> bool:
    """Whether a message is a block and a payload, not a row with columns of those names.

    Raises:
        EventRefusedError: it is no JSON object.
    """
    members = members_of(text, "a row", "json")
    if members.keys() != {"schema", "payload"} or members["payload"][:1] not in (b"{", b"n"):
        return False
    block = members["schema"]
    return block == NULL or (block[:1] == b"{" and "type" in members_of(block, "the schema block"))


class PlainJson(BareRows):
    """See the module."""

    anatomy = Anatomy(default_op="c", reserved=BLOCK)

    def read(self, topic: str, key: bytes | None, value: bytes | None) -> Event | str:
        """See `Dialect.read`."""
        if value is None:
            return "tombstone"
        block, row = self.split_value(topic, value)
        if row is None:
            return "tombstone"
        return Event(
            source=self.source_of_topic(topic),
            images=(Image("c", None, row),),
            types=b"" if block is None else block.raw,
        )

    def shape(self, event: Event) -> Shape:
        """See `Dialect.shape`."""
        shape = super().shape(event)
        shape.keyless = True
        return shape


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
        try:
            block, row = (None, None) if not key else self.split_key(topic, key)
        except EventRefusedError as error:
            raise EventRefusedError(error.error_class, f"key of a tombstone: {error}") from None
        if row is None:
            raise EventRefusedError("no_primary_key", "a tombstone without key identifies no row")
        if row[:1] != b"{":
            raise EventRefusedError(
                "envelope",
                "the key of a tombstone is a single value: it must be an object with the columns "
                "of the primary key (a transform such as ExtractField$Key removes their names)",
            )
        return Event(
            source=source,
            images=(Image("d", row, None),),
            types=b"" if block is None else block.raw,
            key=key,
            of_key=True,
        )


class UpsertJson(KeyedRows):
    """See the module."""

    anatomy = Anatomy(default_op="u", reserved=BLOCK)

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
