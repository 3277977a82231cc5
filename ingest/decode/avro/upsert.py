# SPDX-License-Identifier: Apache-2.0
"""Upsert streams in Avro, with schema ids of a registry: key and row, a null value deletes.

Each record is rewritten as the equivalent JSON message, with its schema, and decoded by
`EnvelopeDecoder`, so both formats have the same semantics. A key that is not Avro (a plain text)
counts as missing: rows must then have their key columns, and a null value is a bad record.

Error classes of bad records: as `upsert_json`, and `avro` and `schema_id` as `debezium_avro`.
"""

import bisect
import dataclasses
from collections.abc import Callable, Collection, Mapping, Sequence

import pyarrow as pa

from ingest.decode.avro.writer_schemas import AvroRecords, Part
from ingest.decode.dialects.bare_rows import UpsertJson
from ingest.decode.events import BadRecord, DecodeResult, EventRefusedError, Resolver
from ingest.decode.json.envelope_decoder import EnvelopeDecoder
from ingest.decode.json.envelopes import DialectOptions
from ingest.decode.metadata_columns import OriginReader, RequestedOrigins
from ingest.decode.outcome import Outcome
from ingest.decode.registry.client import RegisteredSchema, SchemaId
from ingest.source.records import RawBatch


class UpsertAvroDecoder(AvroRecords):
    """Decodes raw batches; caches schemas and shapes between calls.

    Args:
        schemas: id to registered schema: `SchemaRegistry(settings).schema`.
        id_bytes: of the id before a value: 4, or 8 for Apicurio's own format.
        options: as for JSON.
        resolve: source table and topic to target; called once per shape and call of `decode`.
    """

    def __init__(
        self,
        schemas: Callable[[SchemaId], RegisteredSchema],
        id_bytes: int,
        options: DialectOptions,
        resolve: Resolver,
    ) -> None:
        super().__init__(schemas, id_bytes)
        self._resolve = RequestedOrigins(resolve)
        self._as_json = EnvelopeDecoder(UpsertJson(options), self._resolve.plain)

    def decode(self, raw: RawBatch) -> DecodeResult:
        """Decode records of one topic and partition.

        Args:
            raw: in offset order.

        Returns:
            Every record exactly once: as rows, a count, a bad record or pending a delta.

        Raises:
            RetryableError: the registry does not answer.
            AccessDeniedError, InvalidRequestError: the registry refuses, or is not one.

        Cost: about 80 us a record.
        """
        outcome = Outcome(raw)
        places: list[int] = []
        keys: list[bytes | None] = []
        values: list[bytes | None] = []
        for at in range(len(raw)):
            try:
                key, value = self._messages(raw, at)
            except EventRefusedError as error:
                outcome.refuse(at, error)
                continue
            places.append(at)
            keys.append(key)
            values.append(value)
        offsets = [raw.offsets[at] for at in places]
        rewritten = RawBatch(raw.topic, raw.partition, offsets, keys, values)
        result = self._as_json.decode(rewritten)
        if result.changes:  # rewritten records have no headers, and another key
            result = self._resolve.filled(result, raw, self._reader(rewritten))
        by_offset = dict(zip(offsets, places, strict=True)) if result.bad else {}
        for record in result.bad:
            refused = EventRefusedError(record.error_class, record.error)
            outcome.refuse(by_offset[record.offset], refused, record.target)
        return dataclasses.replace(result, bad=outcome.finish().bad)

    def origins(
        self, raw: RawBatch, places: Sequence[int], names: Collection[str]
    ) -> Mapping[str, pa.Array]:
        """See `metadata_columns.OriginReader`."""
        pairs = [self._messages(raw, at) for at in places]
        offsets = [raw.offsets[at] for at in places]
        keys, values = [key for key, _ in pairs], [value for _, value in pairs]
        rewritten = RawBatch(raw.topic, raw.partition, offsets, keys, values)
        return self._as_json.origins(rewritten, range(len(places)), names)

    def _reader(self, rewritten: RawBatch) -> OriginReader:
        """Reads metadata from the rewritten records."""

        def read(
            raw: RawBatch, places: Sequence[int], names: Collection[str]
        ) -> Mapping[str, pa.Array]:
            positions = [bisect.bisect_left(rewritten.offsets, raw.offsets[at]) for at in places]
            return self._as_json.origins(rewritten, positions, names)

        return read

    def operation_at(self, raw: RawBatch, at: int) -> str:
        """See `AvroRecords.operation_at`."""
        try:
            key, value = self._messages(raw, at)
        except EventRefusedError:
            return "op."
        rewritten = BadRecord(raw.offsets[at], raw.timestamp_ms(at), key, value, (), "", "")
        return self._as_json.operation(raw.topic, rewritten)

    def _messages(self, raw: RawBatch, at: int) -> tuple[bytes | None, bytes | None]:
        """Key and value as JSON with their schemas."""
        deletes = raw.values[at] is None
        try:
            key = self.message(raw, at, Part.KEY)
        except EventRefusedError:
            if deletes:
                raise
            key = None
        return key, None if deletes else self.message(raw, at, Part.VALUE)
