# SPDX-License-Identifier: Apache-2.0
"""Runs sampled records through the decoder and the schema decisions, in a scratch warehouse.

The driver's own registry works on a temporary directory that holds the existing tables with their
newest schema and without rows. So the result is what the stream would do, decision by decision, and
the real warehouse is only read.
"""

import dataclasses
import tempfile
from collections.abc import Mapping, Sequence

from ingest.config.settings import Settings
from ingest.decode.events import DecodeResult, SchemaDelta, SourceTable, Target
from ingest.decode.schema_change_events import TableDdl
from ingest.errors import SchemaStopError
from ingest.pipeline.decoding import Decoding
from ingest.pipeline.plan import BatchPlan
from ingest.schema.own_tables import history_schema, quarantine_schema, require_own_table
from ingest.schema.routing import Destination, routing_of
from ingest.schema.schema_modes import Verdict
from ingest.source.records import RawBatch
from ingest.state.table_cache import Warehouse, catalog_of
from ingest.state.table_registry import TableRegistry
from ingest.tools.plan.sample import TopicSample
from storage.clock import Clock, SystemClock
from storage.errors import LakewardError
from storage.format.metadata.schema import TableSchema

_MOST_ROUNDS = 8


DecodedBatch = tuple[RawBatch, DecodeResult]
"""A raw batch, and what was decoded from it."""


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Rehearsal:
    """What the stream would do with the sample.

    Attributes:
        sources: the topics in which each source table occurs.
        destinations: of each source table; None = no rule takes it.
        schemas: of every target, as it would be; without those that cannot be made.
        stored_schemas: of the targets that exist, as they are.
        targets: as rows are decoded for them.
        verdicts: (table, change) of all that would be changed, created or refused.
        problems: table to why it would not be written.
        decoded: of every raw batch, with the schemas as they would be.
        stop: why the stream would stop; "" = it does not.
        name_conflicts: why it would not start: foreign tables with the names of Lakeward's own.
        case_matches: (table, member of events, column) where the two are spelled differently.
    """

    sources: Mapping[SourceTable, frozenset[str]]
    destinations: Mapping[SourceTable, Destination | None]
    schemas: Mapping[str, TableSchema]
    stored_schemas: Mapping[str, TableSchema]
    targets: Mapping[str, Target]
    verdicts: Sequence[tuple[str, Verdict]]
    problems: Mapping[str, str]
    decoded: Sequence[DecodedBatch]
    stop: str = ""
    name_conflicts: Mapping[str, str] = dataclasses.field(default_factory=dict)
    case_matches: frozenset[tuple[str, str, str]] = frozenset()


def rehearse(
    settings: Settings, topics: Sequence[TopicSample], clock: Clock | None = None
) -> Rehearsal:
    """Run the sample.

    Raises:
        RetryableError: the schema registry, or the warehouse, did not answer.
    """
    with tempfile.TemporaryDirectory(prefix="lakeward-plan-") as scratch:
        return _Stage(settings, f"{scratch}/lake", clock or SystemClock()).play(topics)


class _Stage:
    """The scratch warehouse and the findings so far."""

    def __init__(self, settings: Settings, scratch: str, clock: Clock) -> None:
        sink = dataclasses.replace(settings.sink, warehouse=scratch, options={})
        self._settings = dataclasses.replace(settings, sink=sink)
        self._real = catalog_of(Warehouse.of(settings.sink))
        self._scratch = catalog_of(Warehouse.of(sink))
        self._clock = clock
        self._decoding = Decoding(self._settings)
        self._book = TableRegistry(self._settings, clock)
        self._schemas_before: dict[str, TableSchema] = {}
        self._checked_tables: set[str] = set()
        self._problems: dict[str, str] = {}

    def play(self, topics: Sequence[TopicSample]) -> Rehearsal:
        batches = [batch for topic in topics for batch in topic.batches]
        self._book.load(create=False)
        verdicts: list[tuple[str, Verdict]] = []
        frozen: dict[str, str] = {}
        stop = ""
        decoded: Sequence[DecodedBatch] = ()
        sources: dict[SourceTable, set[str]] = {}
        for number in range(_MOST_ROUNDS):
            decoded, deltas, ddl = self._decode(batches, number, frozen)
            for source, names in self._decoding.sources.items():
                sources.setdefault(source, set()).update(names)
            if self._fetch(sources):  # existing tables: decode again with their schemas
                self._book.require(self._schemas_before)
                continue
            if not deltas or stop:
                break
            try:
                applied = self._book.schemas.apply(deltas, now_ms=self._clock.now_ms(), ddl=ddl)
            except SchemaStopError as error:
                stop = f"{error.message}: {error.context.get('change', '')}"
                frozen |= {delta.target: stop for delta in deltas}
                continue
            verdicts += applied.verdicts
            frozen |= applied.refused
            for name, why in self._book.take_to_park().items():
                self._problems.setdefault(name, why)
        routing = routing_of(self._settings)
        destinations = {source: routing.destination(source) for source in sources}
        return Rehearsal(
            sources={source: frozenset(names) for source, names in sources.items()},
            destinations=destinations,
            schemas=self._schemas(destinations),
            stored_schemas=self._schemas_before,
            targets=self._decoding.targets,
            verdicts=verdicts,
            problems=self._problems,
            decoded=decoded,
            stop=stop,
            name_conflicts=self._foreign(),
            case_matches=frozenset[tuple[str, str, str]]().union(
                *(result.case_matches for _, result in decoded)
            ),
        )

    def _decode(
        self, batches: Sequence[RawBatch], number: int, frozen: Mapping[str, str]
    ) -> tuple[list[DecodedBatch], list[SchemaDelta], list[TableDdl]]:
        plan = BatchPlan(
            batch_id=0,
            identifier=1,
            run=number,
            time_ms=self._clock.now_ms(),
            tables=self._book.schema_ids(),
            frozen=dict(frozen),
            answers=self._book.schemas.current_answers(),
        )
        self._decoding.use(plan)
        decoded: list[DecodedBatch] = []
        deltas: list[SchemaDelta] = []
        ddl: list[TableDdl] = []
        for raw in batches:
            result = self._decoding.decode(raw)
            deltas += result.deltas
            ddl += self._decoding.ddl(raw)
            decoded.append((raw, result))
        return decoded, deltas, ddl

    def _fetch(self, sources: Mapping[SourceTable, set[str]]) -> bool:
        """Copy existing tables into the scratch warehouse; whether there were any."""
        new = False
        for source in sources:
            place = routing_of(self._settings).writable_destination(source)
            if place is None or place.table in self._checked_tables:
                continue
            name = place.table
            self._checked_tables.add(name)
            try:
                if not self._real.exists(name):
                    continue
                schema = self._real.table(name).schema
                self._scratch.create_table(name, dataclasses.replace(schema, id=0))
            except LakewardError as error:
                self._problems[name] = str(error)
                continue
            self._schemas_before[name] = schema
            new = True
        return new

    def _foreign(self) -> dict[str, str]:
        """Tables of others that have the names of Lakeward's own, and what is wrong with them."""
        now_ms, faults = self._clock.now_ms(), dict[str, str]()
        for name, schema in (
            (self._book.quarantine, quarantine_schema(now_ms)),
            (self._book.history, history_schema(now_ms)),
        ):
            try:
                if self._real.exists(name):
                    require_own_table(name, self._real.table(name).schema, schema)
            except LakewardError as error:
                faults[name] = str(error)
        return faults

    def _schemas(self, places: Mapping[SourceTable, Destination | None]) -> dict[str, TableSchema]:
        written = [place for place in places.values() if place is not None and not place.refusal]
        names = {place.table for place in written}
        schemas = {}
        for name in sorted(names):
            try:
                if self._scratch.exists(name):
                    schemas[name] = self._scratch.table(name).schema
            except LakewardError as error:
                self._problems.setdefault(name, str(error))
        return schemas
