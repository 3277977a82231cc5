# SPDX-License-Identifier: Apache-2.0
"""The schema block of Debezium JSON (`schemas.enable=true`): splitting it off and reading it.

The block is the same bytes in every message of a table's version and far larger than the row, so it
is read once; later messages are recognised by comparing their first bytes (CDC.md §1.5).
"""

import dataclasses
from collections.abc import Mapping

import msgspec

from ingest.decode.dialects.recognition import format_hint
from ingest.decode.events import EventRefusedError
from ingest.decode.types.token_values import PARSE_ERRORS

_PAYLOAD = b',"payload":'
_SCHEMA = b'{"schema":'


class BlockField(msgspec.Struct, frozen=True):
    """One node of a Connect schema.

    Attributes:
        type: literal type (`int32`, `bytes`, `struct`…).
        field: column name, in the fields of a struct.
        name: semantic type, or None.
        optional: whether null is allowed.
        parameters: of the semantic type.
        items: element of an `array`.
        keys: key of a `map`.
        values: value of a `map`.
        fields: of a `struct`.
    """

    type: str
    field: str = ""
    name: str | None = None
    optional: bool = False
    parameters: Mapping[str, str] | None = None
    items: "BlockField | None" = None
    keys: "BlockField | None" = None
    values: "BlockField | None" = None
    fields: tuple["BlockField", ...] = ()


@dataclasses.dataclass(frozen=True, slots=True)
class SchemaBlock:
    """A parsed block.

    Attributes:
        raw: its exact JSON text, which identifies it.
        name: of the top struct (`….Envelope`, `….Heartbeat`), or empty.
        top: names of the top struct's fields.
        row: fields of a row image; None when the message is no row event.
    """

    raw: bytes
    name: str
    top: tuple[str, ...]
    row: tuple[BlockField, ...] | None

    def __hash__(self) -> int:
        return hash(self.raw)


@dataclasses.dataclass(frozen=True, slots=True)
class SplitMessage:
    """A message taken apart.

    Attributes:
        block: raw schema block, or None for a bare payload or `"schema":null`.
        payload: raw payload.
        prefix: when the message is exactly `prefix + payload + b"}"`, that prefix; else empty.
    """

    block: bytes | None
    payload: bytes
    prefix: bytes


class _Outer(msgspec.Struct, gc=False):
    schema: msgspec.Raw
    payload: msgspec.Raw


_OUTER = msgspec.json.Decoder(_Outer)
_BLOCK = msgspec.json.Decoder(BlockField)


def split_message(value: bytes) -> SplitMessage:
    """Separate block and payload; a message without both members is its own payload.

    Raises:
        msgspec.DecodeError: the message is no JSON.
        UnicodeDecodeError: a member name is no UTF-8.
    """
    try:
        outer = _OUTER.decode(value)
    except msgspec.ValidationError:
        return SplitMessage(None, value, b"")
    block, payload = bytes(outer.schema), bytes(outer.payload)
    prefix = _SCHEMA + block + _PAYLOAD
    if len(value) != len(prefix) + len(payload) + 1 or not value.startswith(prefix):
        prefix = b""
    return SplitMessage(None if block == b"null" else block, payload, prefix)


def parse_block(raw: bytes) -> SchemaBlock:
    """Read a block.

    Raises:
        msgspec.DecodeError: it is no Connect schema.
    """
    top = _BLOCK.decode(raw)
    by_name = {field.field: field for field in top.fields}
    image = by_name.get("after") or by_name.get("before")
    row = image.fields if image is not None and image.type == "struct" else None
    return SchemaBlock(raw, top.name or "", tuple(by_name), row)


_CLOSING_BRACE = ord("}")
_MAX_REMEMBERED = 4_096
"""Blocks of one topic; far above any number of table versions, so that memory stays bounded."""


class TopicState:
    """The schema blocks of one topic, by their bytes; lives as long as the decoder."""

    def __init__(self) -> None:
        self.prefixes: dict[bytes, SchemaBlock] = {}
        self.blocks: dict[bytes, SchemaBlock] = {}
        self.prefix = b""
        """Of the last message that had one."""

    def forget(self) -> None:
        """Drop everything; it is learned again."""
        self.prefixes.clear()
        self.blocks.clear()
        self.prefix = b""

    def split(self, value: bytes) -> tuple[SchemaBlock | None, bytes, bytes]:
        """(block, payload, prefix) of a message.

        Raises:
            EventRefusedError: it is no JSON.
        """
        for prefix, block in self.prefixes.items():
            if value.startswith(prefix) and value[-1] == _CLOSING_BRACE:
                self.prefix = prefix
                return block, value[len(prefix) : -1], prefix
        try:
            parts = split_message(value)
            return self._cached_block(parts), parts.payload, parts.prefix
        except msgspec.ValidationError as error:
            why = f"the member schema is no schema block of Connect: {error}"
            raise EventRefusedError("envelope", why + format_hint(value)) from None
        except PARSE_ERRORS as error:
            raise EventRefusedError("json", f"{error}{format_hint(value)}") from None

    def _cached_block(self, parts: SplitMessage) -> SchemaBlock | None:
        if parts.block is None:
            return None
        block = self.blocks.get(parts.block)
        if block is None:
            if len(self.blocks) >= _MAX_REMEMBERED:
                self.forget()
            block = self.blocks[parts.block] = parse_block(parts.block)
        if parts.prefix:
            self.prefixes[parts.prefix] = block
            self.prefix = parts.prefix
        return block
