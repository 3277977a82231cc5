# SPDX-License-Identifier: Apache-2.0
"""Decodes by the plan in use: resolves source tables to planned targets.

A decoder learns shapes as it goes, so a worker process keeps one per pipeline; each task gives it
the plan whose schema versions count.
"""

import bisect
import dataclasses
import functools
from collections import Counter
from collections.abc import Collection, Mapping, Sequence

import pyarrow as pa

from ingest.config.settings import Settings
from ingest.decode.column_names import ColumnNames, why_no_column
from ingest.decode.decoders import FormatDecoder, decoder_of
from ingest.decode.events import (
    SOURCE_TABLE_OPTION,
    TABLE_NAME,
    BadRecord,
    ChangeBatch,
    DecodeResult,
    SchemaDelta,
    SourceTable,
    Target,
    Toast,
)
from ingest.decode.isolation import isolated
from ingest.decode.key_check import without_foreign_keys
from ingest.decode.schema_change_events import TableDdl, schema_changes
from ingest.pipeline.plan import BatchPlan
from ingest.pipeline.row_ownership import has_one_writer
from ingest.pipeline.task_positions import TaskPositions, wanted_metadata
from ingest.pipeline.transforming import TableTransform
from ingest.pipeline.truncates import Truncate
from ingest.schema.routing import Destination, routing_of
from ingest.schema.schema_modes import Answers, change_policy, type_requests_of
from ingest.source.position.kinds import RECOGNISED_BY, kind_of
from ingest.source.position.ordered_tables import (
    POSITION_COLUMNS,
    SOURCE,
    ordering_refused,
    position_kind,
)
from ingest.source.records import RawBatch
from ingest.state.table_cache import Warehouse, schema_of
from ingest.transform.rules import source_key_of, transform_rule
from storage.errors import InternalError
from storage.format.metadata.schema import TableSchema
from storage.format.types.types import VALUE_KIND
from storage.options.options import TableOptions, option_value


def source_part(schema: TableSchema, constant: Collection[str]) -> TableSchema:
    """Return the schema without columns that do not come from events."""
    if not constant:
        return schema
    return dataclasses.replace(
        schema,
        fields=tuple(field for field in schema.fields if field.name not in constant),
        primary_keys=tuple(name for name in schema.primary_keys if name not in constant),
        partition_keys=tuple(name for name in schema.partition_keys if name not in constant),
    )


def constants_refused(schema: TableSchema, target: Target) -> str:
    """Return why a table cannot have the constant columns of a source table; "" if it can."""
    for name, _ in target.constants:
        if name not in schema.field_names:
            return f"the table has no column {name}, which the route adds: route to another table"
        if name in target.key_prefix and name not in schema.primary_keys:
            return f"the shard column {name} is not in the table's primary key"
    return ""


def with_constants(change: ChangeBatch, schema: TableSchema) -> ChangeBatch:
    """The change batch with all columns of the table.

    Args:
        change: columns of `source_part` in its order, then those of the change.
        schema: of the table.
    """
    rows, constants = change.rows, dict(change.constants)
    arrow = schema.arrow_schema
    arrays = [
        _repeated(constants[field.name], rows.num_rows, field.type)
        if field.name in constants
        else rows.column(field.name)
        for field in arrow
    ]
    at = rows.schema.get_field_index(VALUE_KIND)
    fields = [*arrow, *(rows.schema.field(i) for i in range(at, rows.num_columns))]
    arrays += rows.columns[at:]
    batch = pa.RecordBatch.from_arrays(arrays, schema=pa.schema(fields))
    return dataclasses.replace(change, rows=batch, constants=())


def _repeated(value: str, count: int, type_: pa.DataType) -> pa.Array:
    return pa.repeat(pa.scalar(value, pa.string()), count).cast(type_)


_BY_VALUES = (".aggregate-function", ".sequence-group")
"""Suffixes of table options with which a delete retracts values, not a row."""


@functools.lru_cache(maxsize=2)
def decoding_of(settings_json: str) -> "Decoding":
    """Return the cached decoder of a pipeline in this process."""
    return Decoding(Settings.from_json(settings_json))


class Decoding:
    """A decoder whose targets follow the plan in use. One task at a time.

    Args:
        settings: the pipeline's settings.

    Attributes:
        feeds: by table the topics in which events for it were met since `use`; of parked tables
            too, whose events are counted as unrouted and not decoded.
        positions: of the rows since `use`; None in the order of arrival.
        sources: the topics in which each source table was met since `use`, selected or not.
    """

    def __init__(self, settings: Settings) -> None:
        self.settings = settings
        self._warehouse = Warehouse.of(settings.sink)
        self._plan: BatchPlan | None = None
        self._resolved: dict[SourceTable, Target | None] = {}
        self._targets: dict[str, Target] = {}
        self._transforms: dict[str, TableTransform] = {}
        self._transform_of: dict[tuple[str, int], TableTransform] = {}
        self._routing = routing_of(settings)
        self._tables: dict[SourceTable, str] = {}
        self.feeds: dict[str, set[str]] = {}
        self.sources: dict[SourceTable, set[str]] = {}
        self.positions: TaskPositions | None = None
        self._decoder = self._new_decoder()

    def use(self, plan: BatchPlan) -> None:
        """Use another plan for targets and schemas."""
        self._plan = plan
        self._resolved = {}
        self._targets = {}
        self._tables = {}
        self.feeds = {}
        self.sources = {}
        self._transforms = {}
        self.positions = TaskPositions(plan) if self._by_source else None

    def _new_decoder(self) -> FormatDecoder:
        keys = functools.partial(source_key_of, self.settings)
        return decoder_of(self.settings, keys, self._resolve)

    @property
    def targets(self) -> Mapping[str, Target]:
        """Targets of rows decoded since `use`, by table; the last one of several sources."""
        return self._targets

    @property
    def _by_source(self) -> bool:
        return self.settings.events.ordering == SOURCE

    def decode(self, raw: RawBatch) -> DecodeResult:
        """Decode records of one topic; the content of a record can only make that record bad.

        Raises:
            Exception: an error that is no record's (`ingest.errors.blames_record`).
        """
        return isolated(self._decode_all, self._attempt, raw)

    def _attempt(self, raw: RawBatch) -> None:
        restore = None if self.positions is None else self.positions.memory()
        self._decode_all(raw)
        if restore is not None:
            restore()

    def _decode_all(self, raw: RawBatch) -> DecodeResult:
        """Decode all records, or none."""
        restore = None if self.positions is None else self.positions.memory()
        try:
            return self._decode(raw)
        except Exception:
            if restore is not None:
                restore()
            self._decoder = self._new_decoder()  # it may have learned from part of the records
            raise

    def _decode(self, raw: RawBatch) -> DecodeResult:
        result = self._decoder.decode(raw)
        if result.deltas and self._by_source:
            result = dataclasses.replace(result, deltas=self._with_kinds(raw, result.deltas))
        changes: list[ChangeBatch] = []
        refused_records: list[BadRecord] = []
        requests: list[SchemaDelta] = []
        for change in result.changes:
            good_rows: ChangeBatch | None = change
            if self._decoder.key_is_row and (key := self._key_of_source(change.target)):
                options, exact = self._options_of(change.target), self.settings.events.exact_names
                names = ColumnNames.of(options, exact=exact)
                columns_of = self._decoder.key_columns
                good_rows, records = without_foreign_keys(raw, change, key, columns_of, names)
                refused_records += records
            if good_rows is not None and change.target in self._transforms:
                requests += self._owed(raw, good_rows)
                good_rows, records = self._transformed(raw, good_rows)
                refused_records += records
            if good_rows is not None:
                changes.append(good_rows)
        deltas = [*result.deltas, *requests]
        if not refused_records:
            return dataclasses.replace(result, changes=changes, deltas=deltas)
        counts = Counter(result.counts)
        counts.subtract(self._decoder.operation(raw.topic, record) for record in refused_records)
        bad = sorted([*result.bad, *refused_records], key=lambda record: record.offset)
        return DecodeResult(changes, bad, deltas, dict(+counts), result.case_matches, result.walked)

    def operation(self, topic: str, record: BadRecord) -> str:
        """Return the name under which a record with rows was counted."""
        return self._decoder.operation(topic, record)

    def ddl(self, raw: RawBatch) -> list[TableDdl]:
        """Return statements of the schema change topic on selected tables."""
        if raw.topic != self.settings.events.schema_change_topic:
            return []
        statements: list[TableDdl] = []
        for event in schema_changes(raw, self._decoder.json_value):
            place = self._routing.writable_destination(event.source)
            if place is not None:
                statements.append(dataclasses.replace(event, target=place.table, owner=place.owner))
        return statements

    def truncates(self, raw: RawBatch, counts: Mapping[str, int]) -> list[Truncate]:
        """Events that empty tables, where the settings do not ignore them.

        Args:
            raw: the records.
            counts: what `decode` counted of them.
        """
        policy = self.settings.events.on_truncate
        truncates: list[Truncate] = []
        if policy == "ignore" or not counts.get("op.t"):
            return truncates
        for at in range(len(raw)):
            source = self._decoder.truncated(raw, at)
            place = None if source is None else self._routing.writable_destination(source)
            if source is None or place is None:
                continue
            target = self._resolve(source, raw.topic)
            if target is None or not target.belongs_to(source):
                continue
            refusal = ""
            if place.owner:
                refusal = "other source tables fill it, too"
            elif transform_rule(self.settings, place.table).soft_delete:
                refusal = "its deletes are soft"
            truncates.append(
                Truncate(
                    place.table,
                    raw.topic,
                    raw.partition,
                    raw.offsets[at],
                    stops=policy == "fail",
                    refusal=refusal,
                )
            )
        return truncates

    def _options_of(self, name: str) -> Mapping[str, str]:
        target = self._targets.get(name)
        return {} if target is None or target.schema is None else target.schema.options

    def _key_of_source(self, name: str) -> tuple[str, ...]:
        """Return the primary key if the table took it from the keys of records; else empty."""
        target = self._targets.get(name)
        if target is None or target.schema is None or self.settings.primary_key(name):
            return ()
        has_source = SOURCE_TABLE_OPTION in target.schema.options
        return target.schema.primary_keys if has_source else ()

    def _transformed(
        self, raw: RawBatch, change: ChangeBatch
    ) -> tuple[ChangeBatch | None, list[BadRecord]]:
        """Add columns that do not come from events, and drop bad rows."""
        transform = self._transforms[change.target]
        change = self._with_positions(raw, change)
        if change.constants:
            change = with_constants(change, transform.decode_schema)
        return transform.apply(raw, change, 0 if self._plan is None else self._plan.time_ms)

    def _owed(self, raw: RawBatch, change: ChangeBatch) -> list[SchemaDelta]:
        """Request columns that the pipeline adds and the table lacks."""
        target = self._targets[change.target]
        if not self._transforms[change.target].lacks or not target.evolvable:
            return []
        source = next(s for s, candidate in self._resolved.items() if candidate is target)
        return [SchemaDelta(change.target, source, raw.topic, (), (), raw.offsets[0], target.owner)]

    def _with_kinds(self, raw: RawBatch, deltas: Sequence[SchemaDelta]) -> list[SchemaDelta]:
        """Return the deltas with the kind of position of their records."""
        result = []
        for delta in deltas:
            place = bisect.bisect_left(raw.offsets, delta.offset)
            origins = self._decoder.origins(raw, [place], RECOGNISED_BY)
            kind = kind_of({name: column[0].as_py() for name, column in origins.items()})
            result.append(dataclasses.replace(delta, position=kind))
        return result

    def _with_positions(self, raw: RawBatch, change: ChangeBatch) -> ChangeBatch:
        """Add the columns of positions, if the table has them."""
        if self.positions is None:
            return change
        return self.positions.with_positions(
            raw, change, self._transforms[change.target].decode_schema
        )

    def _resolve(self, source: SourceTable, topic: str) -> Target | None:
        if source not in self._resolved:
            destination = self._routing.destination(source)
            if destination is not None and not destination.is_own_table:
                self._tables[source] = destination.table
            self._resolved[source] = self._planned(destination)
        self.sources.setdefault(source, set()).add(topic)
        if source in self._tables:
            self.feeds.setdefault(self._tables[source], set()).add(topic)
        return self._resolved[source]

    def _toast(self, name: str, schema: TableSchema) -> Toast:
        toast = Toast(self.settings.toast(name))
        aggregates = option_value(schema.options, "merge-engine") in ("aggregation", "first-row")
        return Toast.FAIL if toast is Toast.KEEP and aggregates else toast

    def _transform(self, name: str, schema: TableSchema) -> TableTransform:
        transform = self._transform_of.get((name, schema.id))
        if transform is None:
            rule, zone = transform_rule(self.settings, name), self.settings.sink.time_zone
            transform = self._transform_of[name, schema.id] = TableTransform.of(rule, schema, zone)
        return transform

    def _planned(self, destination: Destination | None) -> Target | None:
        if self._plan is None:
            raise InternalError("a decoder is used without a plan")
        if destination is None or destination.table in self._plan.parked:
            return None
        if destination.refusal:
            return _refusing_target(destination)
        name = destination.table
        schema_id = self._plan.schema_id(name)
        answers = self._plan.answers.get(name, Answers())
        # forbidden column names do not prevent the creation of a table that excludes them
        left_out = filter(why_no_column, transform_rule(self.settings, name).exclude)
        target = Target(
            name,
            None,
            evolvable=name not in self._plan.frozen,
            ignored=answers.ignored.union(left_out),
            fixed=tuple(sorted(answers.fixed)),
            type_requests=type_requests_of(change_policy(self.settings, name)),
            owner=destination.owner,
            constants=destination.constants,
            key_prefix=destination.key_prefix,
            why_frozen=self._plan.frozen.get(name, ""),
            exact_names=self.settings.events.exact_names,
        )
        if schema_id is not None:
            schema = schema_of(self._warehouse, name, schema_id)
            transform = self._transform(name, schema)
            kind, ordering = position_kind(schema), self.settings.events.ordering
            hidden_columns = [name for name, _ in target.constants]
            hidden_columns += POSITION_COLUMNS if kind is not None else ()
            metadata = () if kind is None else wanted_metadata(kind)
            unowned = _unowned(schema, destination)
            target = dataclasses.replace(
                target,
                schema=source_part(transform.decode_schema, hidden_columns),
                refusal=unowned
                or constants_refused(schema, target)
                or ordering_refused(schema, ordering)
                or _names_refused(schema),
                refusal_class=TABLE_NAME if unowned else "schema",
                toast=self._toast(name, schema),
                origin=tuple(dict.fromkeys((*transform.origin, *metadata))),
                ignored=transform.ignored | answers.ignored,
                needs_before=transform.moved_by,
                needs_values=_needed_by_deletes(schema),
                behind_key=transform.behind_key,
                finds_old_rows=transform.plain and not target.constants and _finds_old_rows(schema),
            )
            self._transforms[name] = transform
        self._targets[name] = target
        return target


def _needed_by_deletes(schema: TableSchema) -> frozenset[str]:
    """Return columns whose values determine the effect of a delete (`Target.needs_values`)."""
    options = TableOptions.from_strings(schema.options)
    subtracts = any(key.endswith(_BY_VALUES) for key in schema.options)
    if subtracts or options.merge_engine in ("aggregation", "first-row"):
        return frozenset(schema.field_names)
    order_columns = (*options.sequence_field, *filter(None, [options.rowkind_field]))
    return frozenset(order_columns)


def _refusing_target(destination: Destination) -> Target:
    """Return the target of rows that may not be written; without a table if that is Lakeward's."""
    return Target(
        "" if destination.is_own_table else destination.table,
        None,
        evolvable=False,
        refusal=destination.refusal,
        refusal_class=TABLE_NAME,
    )


def _unowned(schema: TableSchema, destination: Destination) -> str:
    """Return why an existing table takes no rows under a sanitized name; "" if it does.

    Several names may be replaced by one: only a table that names its source table takes one.
    """
    if not destination.original_name or destination.owner or SOURCE_TABLE_OPTION in schema.options:
        return ""
    return (
        f"{destination.table} stands for {destination.original_name}, but was not created for it: "
        f"set its option {SOURCE_TABLE_OPTION}, or send the source table elsewhere with `route`"
    )


def _names_refused(schema: TableSchema) -> str:
    """Return why a table of another writer cannot be written, by its column names; "" if it can."""
    for name in schema.field_names:
        if why := why_no_column(name):
            return f"the table has a column {name}: {why}"
    return ""


def _finds_old_rows(schema: TableSchema) -> bool:
    """Return whether a row can take values of its old key's row (`Target.finds_old_rows`)."""
    options = TableOptions.from_strings(schema.options)
    newest_wins = options.merge_engine == "deduplicate" and not options.sequence_field
    kinds = options.rowkind_field is None and not options.ignore_delete
    return newest_wins and kinds and has_one_writer(schema, options)
