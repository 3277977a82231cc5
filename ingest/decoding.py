# SPDX-License-Identifier: Apache-2.0
"""Chooses the decoder of a pipeline and resolves source tables to planned targets.

A decoder learns shapes as it goes, so a worker process keeps one per pipeline; each task gives it
the plan whose schema versions count.
"""

import functools
from collections import Counter

from ingest.formats.debezium_json import DebeziumJsonDecoder
from ingest.formats.events import (
    SOURCE_TABLE_OPTION,
    BadRecord,
    ChangeBatch,
    DecodeResult,
    SourceTable,
    Target,
)
from ingest.formats.key_check import operation, without_foreign_keys
from ingest.plan import BatchPlan
from ingest.settings import Settings
from ingest.source.records import RawBatch
from ingest.table_cache import Warehouse, schema_of
from storage.errors import InternalError

__all__ = ["Decoding", "decoding_of", "target_name"]


@functools.lru_cache(maxsize=2)
def decoding_of(settings_json: str) -> "Decoding":
    """The process's decoder of a pipeline."""
    return Decoding(Settings.from_json(settings_json))


class Decoding:
    """A decoder whose targets follow the plan in use. One task at a time.

    Args:
        settings: the pipeline's settings.
    """

    def __init__(self, settings: Settings) -> None:
        self.settings = settings
        self._plan: BatchPlan | None = None
        self._targets: dict[str, Target] = {}
        self._decoder = DebeziumJsonDecoder(settings.debezium_options(), self._resolve)

    def use(self, plan: BatchPlan) -> None:
        """Resolve targets by this plan from now on."""
        self._plan = plan
        self._targets = {}

    def decode(self, raw: RawBatch) -> DecodeResult:
        """Decode records of one topic."""
        result = self._decoder.decode(raw)
        changes: list[ChangeBatch] = []
        foreign: list[BadRecord] = []
        for change in result.changes:
            rest: ChangeBatch | None = change
            if key := self._key_of_source(change.target):
                rest, taken = without_foreign_keys(raw, change, key)
                foreign += taken
            if rest is not None:
                changes.append(rest)
        if not foreign:
            return result
        counts = Counter(result.counts)
        counts.subtract(operation(record) for record in foreign)
        bad = sorted([*result.bad, *foreign], key=lambda record: record.offset)
        return DecodeResult(changes, bad, result.deltas, dict(+counts))

    def _key_of_source(self, name: str) -> tuple[str, ...]:
        """The primary key, if the table took it from the records' keys; else empty."""
        target = self._targets.get(name)
        if target is None or target.schema is None or self.settings.primary_key(name):
            return ()
        made = SOURCE_TABLE_OPTION in target.schema.options
        return target.schema.primary_keys if made else ()

    def _resolve(self, source: SourceTable, topic: str) -> Target | None:
        name = target_name(source, self.settings)
        target = self._targets.get(name)
        if target is None:
            target = self._targets[name] = self._planned(name)
        return target

    def _planned(self, name: str) -> Target:
        if self._plan is None:
            raise InternalError("a decoder is used before it has a plan")
        schema_id = self._plan.schema_id(name)
        evolvable = name not in self._plan.frozen
        if schema_id is None:
            return Target(name, None, evolvable)
        schema = schema_of(Warehouse.of(self.settings.sink), name, schema_id)
        return Target(name, schema, evolvable)


def target_name(source: SourceTable, settings: Settings) -> str:
    """`database.table` that a source table's rows go to."""
    database = source.database or source.schema or settings.sink.default_database
    return f"{database}.{source.table}"
