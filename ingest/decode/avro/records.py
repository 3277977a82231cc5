# SPDX-License-Identifier: Apache-2.0
"""Single Avro records as JSON: keys, and values where one record is decoded alone."""

import msgspec

from ingest.decode.avro.framing import Framing, FramingError, Part, usual_subject
from ingest.decode.avro.writer_schemas import WriterSchema, WriterSchemas
from ingest.decode.dialects.recognition import said_of_text
from ingest.decode.json.single_event import EventRefusedError
from ingest.source.records import RawBatch

__all__ = ["AvroRecords"]


class _Payload(msgspec.Struct):
    op: str = ""


class _Message(msgspec.Struct):
    payload: _Payload


_MESSAGE = msgspec.json.Decoder(_Message)
_REFUSALS = (FramingError, EventRefusedError, msgspec.MsgspecError, UnicodeDecodeError)


class AvroRecords:
    """Reads keys and values of raw batches.

    Args:
        framing: how ids are found.
        writers: schemas by id.
    """

    def __init__(self, framing: Framing, writers: WriterSchemas) -> None:
        self._framing = framing
        self._writers = writers

    def key_columns(self, raw: RawBatch, at: int) -> frozenset[str] | None:
        """Column names of a record's key; None when it has none or it cannot be decoded.

        Costs a look into a dictionary: keys of one schema have the same columns.
        """
        key = raw.keys[at]
        if not key:
            return None
        try:
            writer, _ = self._writer(raw, at, key, Part.KEY)
        except _REFUSALS:
            return None
        return frozenset(writer.schema.fields) or None

    def json_key(self, raw: RawBatch, at: int) -> bytes | None:
        """A record's key as a JSON message; None when it has none or it cannot be decoded."""
        key = raw.keys[at]
        if not key:
            return None
        try:
            writer, begin = self._writer(raw, at, key, Part.KEY)
            return writer.as_bare_json(key, begin)
        except _REFUSALS:
            return None

    def message(self, raw: RawBatch, at: int, part: Part) -> bytes | None:
        """A key or value as a JSON message with its schema block; None when the record has none.

        Raises:
            EventRefusedError: it cannot be decoded.
            RetryableError, AccessDeniedError, InvalidRequestError: of the registry.
        """
        content = raw.keys[at] if part is Part.KEY else raw.values[at]
        if content is None:
            return None
        try:
            writer, begin = self._writer(raw, at, content, part)
        except FramingError as error:
            seen = said_of_text(content) if part is Part.VALUE else ""
            raise EventRefusedError("avro", f"{error}{seen}") from None
        return writer.as_json(content, begin)

    def json_value(self, raw: RawBatch, at: int) -> bytes | None:
        """A record's value as a JSON message; None when it has none or it cannot be decoded."""
        try:
            return self.message(raw, at, Part.VALUE)
        except EventRefusedError:
            return None

    def operation(self, raw: RawBatch, at: int) -> str:
        """The name under which a row event is counted; `op.` for what is none."""
        value = raw.values[at]
        try:
            if value is None:
                return "op."
            writer, begin = self._writer(raw, at, value, Part.VALUE)
            return f"op.{_MESSAGE.decode(writer.as_bare_json(value, begin)).payload.op.lower()}"
        except _REFUSALS:
            return "op."

    def value_writer(self, raw: RawBatch, at: int) -> tuple[WriterSchema, int]:
        """Schema of a record's value, and where the value begins.

        Raises:
            FramingError, EventRefusedError: it cannot be known; never for what gave rows.
        """
        return self._writer(raw, at, raw.values[at] or b"", Part.VALUE)

    def _writer(
        self, raw: RawBatch, at: int, content: bytes, part: Part
    ) -> tuple[WriterSchema, int]:
        headed = self._framing.header_id(raw, at, part)
        if headed is not None:
            return self._writers.of(headed, usual_subject(raw.topic, part)), 0
        schema_id, begin = self._framing.id_before(content)
        return self._writers.of(schema_id, usual_subject(raw.topic, part)), begin
