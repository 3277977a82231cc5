# SPDX-License-Identifier: Apache-2.0
"""What a decoder remembers of one topic: schema blocks by their bytes."""

import msgspec

from ingest.decode.dialects.recognition import said_of
from ingest.decode.json.schema_block import SchemaBlock, SplitMessage, parse_block, split_message
from ingest.decode.json.single_event import EventRefusedError

__all__ = ["TopicState"]

_CLOSING_BRACE = ord("}")
_MAX_REMEMBERED = 4_096
"""Blocks of one topic; far above any number of table versions, so that memory stays bounded."""


class TopicState:
    """What is known of a topic's messages; lives as long as the decoder."""

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
            return self._remembered(parts), parts.payload, parts.prefix
        except msgspec.ValidationError as error:
            why = f"the member schema is no schema block of Connect: {error}"
            raise EventRefusedError("envelope", why + said_of(value)) from None
        except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError) as error:
            raise EventRefusedError("json", f"{error}{said_of(value)}") from None

    def _remembered(self, parts: SplitMessage) -> SchemaBlock | None:
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
