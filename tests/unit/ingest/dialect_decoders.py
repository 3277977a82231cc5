# SPDX-License-Identifier: Apache-2.0
"""Decoders of any dialect over fixed targets, for the decoders' tests."""

from typing import Any

from ingest.decode.decoders import DIALECTS
from ingest.decode.events import DecodeResult, ObservedField, SourceTable, Target, Toast
from ingest.decode.json.envelope_decoder import EnvelopeDecoder
from ingest.decode.json.envelopes import DialectOptions
from storage.format.metadata.schema import TableSchema
from storage.format.types.types import parse_type
from tests.unit.ingest.debezium_events import rows


def dialect_decoder(
    name: str,
    targets: dict[str, Target | None] | TableSchema | None,
    *,
    evolvable: bool = True,
    toast: Toast = Toast.FAIL,
    **options: Any,
) -> EnvelopeDecoder:
    """Decoder whose resolver knows one schema for all, or targets by source table name."""

    def resolve(source: SourceTable, topic: str) -> Target | None:
        if isinstance(targets, dict):
            return targets[source.table]
        database = source.database or source.schema
        return Target(f"{database}.{source.table}", targets, evolvable, toast=toast)

    return EnvelopeDecoder(DIALECTS[name](DialectOptions(**options)), resolve)


def changes(result: DecodeResult, *columns: str) -> list[tuple[Any, ...]]:
    """(row kind, columns...) of the rows of the only target."""
    return [(row["kind"], *(row[name] for name in columns)) for row in rows(result)]


def observed(**columns: str) -> tuple[ObservedField, ...]:
    """Columns of a delta by their type's text."""
    return tuple(ObservedField(name, parse_type(text)) for name, text in columns.items())
