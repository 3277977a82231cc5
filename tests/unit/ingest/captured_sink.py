# SPDX-License-Identifier: Apache-2.0
"""A pipeline's tables without a pipeline: what captured events become, and what they ask for."""

from collections import Counter, defaultdict
from collections.abc import Sequence
from typing import Any

import pyarrow as pa

from ingest.decode.avro.debezium import DebeziumAvroDecoder
from ingest.decode.events import (
    MOVED,
    UNAVAILABLE_COLUMN,
    BadRecord,
    ChangeBatch,
    SchemaDelta,
    SourceTable,
    Target,
    Toast,
)
from ingest.decode.json.envelope_decoder import EnvelopeDecoder
from ingest.decode.json.envelopes import DebeziumJson, DialectOptions
from ingest.decode.registry import AVRO, RegisteredSchema, SchemaId
from ingest.decode.types.semantic_types import TypeMapping
from ingest.schema.schema_sync import NewTable, reconcile
from storage.format.metadata.schema import TableSchema
from storage.format.metadata.schema_changes import evolve
from tests.unit.ingest.captured_events import Capture


class CapturedSink:
    """Tables as a pipeline would make them: created and changed by deltas.

    Args:
        schemas: of tables that are there before.
        mapping: words of `sink.type.mapping`.
    """

    def __init__(
        self, schemas: dict[str, TableSchema] | None = None, mapping: Sequence[str] = ()
    ) -> None:
        self._options = DialectOptions(type_mapping=TypeMapping.of(mapping))
        self.schemas = dict(schemas or {})
        self.refused: list[str] = []
        self.changes: dict[str, list[ChangeBatch]] = defaultdict(list)
        self.bad: list[tuple[str, BadRecord]] = []
        self.counts: Counter[str] = Counter()

    def resolve(self, source: SourceTable, _: str) -> Target:
        schema = self.schemas.get(source.table)
        return Target(
            source.table, schema, owner=source.label, toast=Toast.KEEP, finds_old_rows=True
        )

    def take(self, capture: Capture) -> "CapturedSink":
        """Decode a whole capture; a batch is decoded again when it asked for a change."""
        decoder = self._decoder(capture)
        for raw in capture.batches():
            result = decoder.decode(raw)
            for _ in range(8):
                if not result.deltas:
                    break
                for delta in result.deltas:
                    self._apply(delta)
                result = decoder.decode(raw)
            self.counts.update(result.counts)
            self.bad += [(raw.topic, record) for record in result.bad]
            for change in result.changes:
                self.changes[change.target].append(change)
        return self

    def unknown_bad(self, known: set[tuple[str, str, str]]) -> list[tuple[str, str, str]]:
        """Refusals that are not among the known ones."""
        found = [(topic.split(".")[-1], b.error_class, b.error) for topic, b in self.bad]
        return [
            (table, kind, error)
            for table, kind, error in found
            if not any((table, kind) == k[:2] and error.startswith(k[2]) for k in known)
        ]

    def rows(self, name: str) -> pa.Table:
        """The rows of a table, in offset order."""
        parts = [pa.Table.from_batches([change.rows]) for change in self.changes[name]]
        return pa.concat_tables(parts, promote_options="default")

    def moved(self) -> int:
        """How many rows take values from the row of their old key."""
        marks = [
            mark
            for changes in self.changes.values()
            for change in changes
            if UNAVAILABLE_COLUMN in change.rows.schema.names
            for mark in change.rows.column(UNAVAILABLE_COLUMN).to_pylist()
        ]
        return sum(MOVED in mark for mark in marks if mark)

    def _decoder(self, capture: Capture) -> Any:
        if capture.converter != "avro":
            return EnvelopeDecoder(DebeziumJson(self._options), self.resolve)

        def schema(number: SchemaId) -> RegisteredSchema:
            answer = capture.schemas[int(number)]
            assert not answer.get("references")
            return RegisteredSchema(AVRO, answer["schema"])

        return DebeziumAvroDecoder(schema, 4, self._options, self.resolve)

    def _apply(self, delta: SchemaDelta) -> None:
        existing = self.schemas.get(delta.target)
        decision = reconcile(existing, [delta], now_ms=0)
        self.refused += decision.reasons
        if isinstance(decision.action, NewTable):
            self.schemas[delta.target] = decision.action.schema
        elif isinstance(decision.action, tuple) and existing is not None:
            self.schemas[delta.target] = evolve(existing, list(decision.action), 0)
