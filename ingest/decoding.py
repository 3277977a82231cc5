# SPDX-License-Identifier: Apache-2.0
"""Chooses the decoder of a pipeline and resolves source tables to planned targets."""

from ingest.formats.debezium_json import DebeziumJsonDecoder
from ingest.formats.events import DecodeResult, SourceTable, Target
from ingest.plan import BatchPlan
from ingest.settings import Settings
from ingest.source.records import RawBatch
from ingest.table_cache import schema_of

__all__ = ["Decoding", "target_name"]


class Decoding:
    """Decoder of one task, with targets pinned to the versions of its plan."""

    def __init__(self, settings: Settings, plan: BatchPlan) -> None:
        self._settings = settings
        self._plan = plan
        self._decoder = DebeziumJsonDecoder(settings.debezium_options(), self._resolve)

    def decode(self, raw: RawBatch) -> DecodeResult:
        """Decode records of one topic."""
        return self._decoder.decode(raw)

    def _resolve(self, source: SourceTable, topic: str) -> Target | None:
        name = target_name(source, self._settings)
        schema_id = self._plan.schema_id(name)
        if schema_id is None:
            return Target(name, None)
        schema = schema_of(self._settings.sink.warehouse, name, schema_id)
        return Target(name, schema, evolvable=name not in self._plan.frozen)


def target_name(source: SourceTable, settings: Settings) -> str:
    """`database.table` that a source table's rows go to."""
    database = source.database or source.schema or settings.sink.default_database
    return f"{database}.{source.table}"
