# SPDX-License-Identifier: Apache-2.0
"""Decodes by the plan in use: resolves source tables to planned targets.

A decoder learns shapes as it goes, so a worker process keeps one per pipeline; each task gives it
the plan whose schema versions count.
"""

import bisect
import dataclasses
import enum
import functools
import json
import logging
from collections import Counter
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence

import numpy as np
import pyarrow as pa

from ingest.config.settings import Settings
from ingest.decode.columns import ColumnNames, why_no_column
from ingest.decode.decoders import FormatDecoder, decoder_of
from ingest.decode.events import (
    OFFSET_COLUMN,
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
from ingest.decode.outcome import bad_record, isolated, without_foreign_keys
from ingest.decode.schema_change_events import TableDdl, schema_changes
from ingest.pipeline.exchange import BatchPlan
from ingest.pipeline.truncates import Truncate
from ingest.schema.routing import Answers, Destination, change_policy, routing_of, type_requests_of
from ingest.source.records import (
    POSITION_COLUMNS,
    RECOGNISED_BY,
    SOURCE,
    PositionKind,
    RawBatch,
    epochs_of,
    kind_of,
    ordering_refused,
    position_kind,
)
from ingest.state.stream_state import (
    METADATA,
    Highest,
    RowPositions,
    StoredPositions,
    Track,
    Warehouse,
    highest_of,
    merged_positions,
    schema_of,
    stored,
)
from ingest.transform.row_transform import RowTransform, source_types
from ingest.transform.rules import (
    HIDDEN_OPTION,
    KEY_OPTION,
    TransformRule,
    hidden_from_text,
    key_recipe,
    present_rule,
    source_key,
    source_key_of,
    transform_rule,
    wanted_columns,
)
from storage.errors import InternalError, InvalidRequestError
from storage.format.metadata.schema import TableSchema
from storage.format.types.types import VALUE_KIND, DataField, DataType
from storage.options.options import TableOptions, option_value
from storage.table.bucket_mode import UNAWARE_BUCKET, BucketMode, bucket_mode
from storage.table.table import FileStoreTable
from storage.table.write.dynamic_bucket import AssignerShare
from storage.table.write.rows_by_bucket import (
    bucket_groups,
    key_hashes,
    partition_groups,
    split_codes,
)

# Row transforms on the map side: change batches as decoded in, rows of the table out.
#
# A table's transform follows from the settings and its schema, so a process plans it once for each
# schema. Rows without a result are bad records of class `transform`, whole. Where a rule does not
# fit the table at all, the rows are decoded as they are and all of them are such bad records; what
# the rule lacks may arrive with the source's next schema change.


TRANSFORM_ERROR = "transform"


@dataclasses.dataclass(frozen=True, slots=True, eq=False)
class TableTransform:
    """The transform of the rows of one table under one of its schemas. Create it with `of`.

    Attributes:
        decode_schema: what rows are decoded with, constant columns included.
        ignored: columns of the source that are left out.
        origin: names of the metadata that rows must come with.
        behind_key: see `RowTransform`.
        moved_by: see `RowTransform`.
        lacks: whether the table lacks columns that the rule makes.
        refusal: why no row can be transformed; "" = rows can.
    """

    decode_schema: TableSchema
    ignored: frozenset[str] = frozenset()
    origin: tuple[str, ...] = ()
    behind_key: frozenset[str] = frozenset()
    moved_by: str = ""
    lacks: bool = False
    refusal: str = ""
    _rows: RowTransform | None = None

    @staticmethod
    def of(rule: TransformRule, schema: TableSchema, zone: str) -> "TableTransform":
        """Plan for a table.

        Args:
            rule: of the table.
            schema: of the table as it is.
            zone: `sink.time.zone`.
        """
        recipe = schema.options.get(KEY_OPTION)
        if rule.empty and recipe is None:
            return TableTransform(schema)
        hidden_types = hidden_from_text(schema.options.get(HIDDEN_OPTION, ""))
        try:
            _check_recipe(recipe, rule, schema, zone)
            rule = present_rule(rule, schema)
            rows = RowTransform.of(rule, schema, hidden=hidden_types, zone=zone)
        except InvalidRequestError as error:
            plain = _source_schema(rule, schema, hidden_types)
            ignored = (frozenset(rule.exclude) - wanted_columns(rule)).union(rule.derived_names)
            ignored = ignored.difference(plain.field_names)
            return TableTransform(plain, ignored=ignored, refusal=_text(error))
        return TableTransform(
            rows.decode_schema,
            ignored=rows.ignored,
            origin=tuple(sorted(rows.metadata)),
            behind_key=rows.behind_key,
            moved_by=rows.moved_by,
            lacks=bool(rows.missing),
            _rows=None if rows.identity else rows,
        )

    @property
    def plain(self) -> bool:
        """Whether rows are not changed."""
        return self._rows is None and not self.refusal

    def apply(
        self, raw: RawBatch, change: ChangeBatch, now_ms: int
    ) -> tuple[ChangeBatch | None, list[BadRecord]]:
        """Transform rows.

        Args:
            raw: the records that they come from.
            change: columns of `decode_schema`.
            now_ms: of the batch [epoch ms]; the same when it is replayed.

        Returns:
            Rows of the table (None: there are none) and the records without a result, in offset
            order.
        """
        if self.refusal:
            offsets = change.rows.column(OFFSET_COLUMN).to_numpy()
            refusals = dict.fromkeys(np.unique(offsets).tolist(), self.refusal)
            return None, _bad(raw, change.target, refusals)
        if self._rows is None:
            return change, []
        result = self._rows.apply(change.rows, change.origin, now_ms=now_ms)
        bad: list[BadRecord] = []
        if len(result.failed):
            offsets = change.rows.column(OFFSET_COLUMN).to_numpy()[result.failed]
            bad = _bad(raw, change.target, dict(zip(offsets.tolist(), result.reasons, strict=True)))
        if result.rows.num_rows == 0:
            return None, bad
        return dataclasses.replace(change, rows=result.rows, origin=None), bad


def _check_recipe(recipe: str | None, rule: TransformRule, schema: TableSchema, zone: str) -> None:
    """Refuse rules that change how keys of the table are computed."""
    if recipe is None:
        return
    previous, current = json.loads(recipe), key_recipe(rule, schema.primary_keys, zone)
    columns = sorted(
        name for name in {*previous, *current} if previous.get(name) != current.get(name)
    )
    if columns:
        raise InvalidRequestError(
            "the rule changes how keys of the table are computed",
            detail="existing rows would not be found",
            hint="revert the change, or write to another table",
            column=", ".join(columns),
        )


def _source_schema(
    rule: TransformRule, table: TableSchema, hidden_types: Mapping[str, DataType]
) -> TableSchema:
    """Return the columns known to come from the source, to decode rows that are not written."""
    source, derived = source_types(rule, table, hidden_types), rule.derived_names
    fields = [
        dataclasses.replace(field, type=source[field.name])
        for field in table.fields
        if field.name in source and field.name not in derived
    ]
    extra = [name for name in sorted(wanted_columns(rule)) if name in source]
    extra = [name for name in extra if name not in table.field_names]
    first_id = table.highest_field_id + 1
    fields += [
        DataField(id=first_id + at, name=name, type=source[name]) for at, name in enumerate(extra)
    ]
    names = {field.name for field in fields}
    return dataclasses.replace(
        table,
        fields=tuple(fields),
        highest_field_id=first_id + len(extra) - 1,
        partition_keys=tuple(name for name in table.partition_keys if name in names),
        primary_keys=tuple(n for n in source_key(rule, table.primary_keys) if n in names),
    )


def _bad(raw: RawBatch, target: str, reasons: dict[int, str]) -> list[BadRecord]:
    places = np.searchsorted(np.asarray(raw.offsets, np.int64), np.array([*reasons], np.int64))
    return [
        bad_record(raw, at, TRANSFORM_ERROR, reason, target)
        for at, reason in zip(places.tolist(), reasons.values(), strict=True)
    ]


def _text(error: InvalidRequestError) -> str:
    """Format the error as one line."""
    parts = [error.message, error.detail, error.hint]
    facts = [f"{key}={value}" for key, value in error.context.items()]
    return "; ".join(filter(None, [*parts, *facts]))


# Assignment of rows to the tasks that write them: what one task of a batch owns of a table.
#
# With fixed buckets, one task owns a bucket. With dynamic buckets, the task that reads and changes
# the index owns everything that it covers: a partition, or its share of the keys of a partition
# (`dynamic-bucket.assigner-parallelism`), or, if keys move between partitions, the table. With
# postponed buckets a task owns a partition. Append tables without buckets need no owner; their rows
# are grouped by partition, so that a batch makes few files.


ANY_BUCKET = -1
"""Placeholder for a bucket that the writing task determines; less the number of its share."""

_WHOLE_TABLE = b""

Rows = np.ndarray


class RowOwner(enum.Enum):
    """Unit of a table that one task of a batch owns."""

    BUCKET = "a bucket"
    PARTITION = "a partition"
    TABLE = "a table"


def row_owner(table: FileStoreTable) -> RowOwner:
    """Return the unit that one task owns of a table."""
    match bucket_mode(table.schema, table.options):
        case BucketMode.FIXED if table.schema.primary_keys:
            return RowOwner.BUCKET
        case BucketMode.CROSS_PARTITION:
            return RowOwner.TABLE
        case _:
            return RowOwner.PARTITION


def merge_keys(table: FileStoreTable) -> Sequence[str]:
    """Return the columns that identify a row within one task."""
    if row_owner(table) is RowOwner.TABLE:
        return table.schema.primary_keys
    return table.schema.trimmed_primary_keys


def has_one_writer(schema: TableSchema, options: TableOptions) -> bool:
    """Return whether one task of a batch writes all rows of a table."""
    match bucket_mode(schema, options):
        case BucketMode.FIXED:
            return options.bucket == 1 and not schema.partition_keys
        case BucketMode.CROSS_PARTITION:
            return True
        case _:
            return not schema.partition_keys and len(_shares(schema, options)) == 1


def share_of(table: FileStoreTable, bucket: int) -> AssignerShare:
    """The share of the keys of a partition that the owner of a placeholder bucket assigns."""
    shares = _shares(table.schema, table.options)
    # a share of one is all of it: what this task does not own, another task may write
    return shares[ANY_BUCKET - bucket] if len(shares) > 1 else AssignerShare()


def _shares(schema: TableSchema, options: TableOptions) -> Sequence[AssignerShare]:
    dynamic = bucket_mode(schema, options) is BucketMode.DYNAMIC
    # where a commit must compact what it wrote, one task has to have all of a bucket
    if not dynamic or options.needs_lookup:
        return (AssignerShare(),)
    return AssignerShare.all_of(options)


def rows_by_owner(
    rows: pa.RecordBatch, table: FileStoreTable
) -> Iterator[tuple[bytes, int, Rows | None]]:
    """Group rows by the task that writes them.

    Yields:
        (framed partition, bucket, ascending row indices; None = all rows).
    """
    match row_owner(table):
        case RowOwner.BUCKET:
            yield from bucket_groups(rows, table)
        case RowOwner.TABLE:
            yield _WHOLE_TABLE, ANY_BUCKET, None
        case RowOwner.PARTITION:
            bucket = ANY_BUCKET if table.schema.primary_keys else UNAWARE_BUCKET
            shares = _shares(table.schema, table.options)
            for partition, indices in partition_groups(rows, table):
                if len(shares) == 1:
                    yield partition, bucket, indices
                    continue
                part = rows if indices is None else rows.take(pa.array(indices))
                numbers = shares[0].numbers_of(partition, key_hashes(part, table))
                for number, positions in split_codes(numbers.astype(np.int64)):
                    if indices is not None:
                        positions = indices if positions is None else indices[positions]
                    yield partition, ANY_BUCKET - number, positions


# The positions of one source task: columns for change batches, and what the driver must know.
#
# A source partition is read by one task where order is the source's (`ranges.whole_partitions`), so
# that every record finds the highest position before it.


_LOG = logging.getLogger(__name__)

_EPOCH_RUNS = 5
"""Runs of a batch in which epochs may be found: a source restarts its positions once or twice in a
batch; one whose positions are never monotonic must not block the stream."""

_Place = tuple[str, str, str, int]


def wanted_metadata(kind: PositionKind | None) -> tuple[str, ...]:
    """Return the metadata that decoders must provide; without a kind, those that determine it."""
    return RECOGNISED_BY if kind is None else (*METADATA, *kind.metadata)


class TaskPositions:
    """See the module.

    Attributes:
        highest: after the rows of each table.
        repeated: rows of each table that were delivered again, or late.
    """

    def __init__(self, plan: BatchPlan) -> None:
        self._plan = plan
        self._tracks: dict[_Place, Track] = {}
        self._epochs: dict[tuple[str, str], int] = {}
        self.highest: dict[str, StoredPositions] = {}
        self.repeated: Counter[str] = Counter()

    def with_positions(
        self, raw: RawBatch, change: ChangeBatch, schema: TableSchema
    ) -> ChangeBatch:
        """Add the columns of positions to a change batch, if the table has them.

        Args:
            change: rows with their origin.
            schema: of the table, whole.
        """
        kind, origin = position_kind(schema), change.origin
        if kind is None or origin is None:
            raise InternalError("rows without metadata for positions", table=change.target)
        servers = origin.column("server").fill_null("").dictionary_encode()
        numbers = servers.indices.to_numpy()
        pieces: list[tuple[pa.Array, ...]] = []
        order: list[np.ndarray] = []
        for number, server in enumerate(servers.dictionary.to_pylist()):
            indices = np.flatnonzero(numbers == number)
            part = origin if len(indices) == len(numbers) else origin.take(pa.array(indices))
            placement = self._track(raw, change.target, server, schema, kind).place(part)
            self._note(raw, change, server, placement)
            pieces.append(placement.columns)
            order.append(indices)
        return _with_columns(change, schema, pieces, order)

    def memory(self) -> Callable[[], None]:
        """Return a function that restores the current state."""
        tracks = {place: (track, track.highest) for place, track in self._tracks.items()}
        epochs, highest, repeated = dict(self._epochs), dict(self.highest), self.repeated.copy()

        def restore() -> None:
            for track, position in tracks.values():
                track.highest = position
            self._tracks = {place: track for place, (track, _) in tracks.items()}
            self._epochs, self.highest, self.repeated = epochs, highest, repeated

        return restore

    def _track(
        self, raw: RawBatch, table: str, server: str, schema: TableSchema, kind: PositionKind
    ) -> Track:
        place = (table, server, raw.topic, raw.partition)
        track = self._tracks.get(place)
        if track is None:
            by_topic = self._plan.positions.get(table, {}).get(server, {})
            position = by_topic.get(raw.topic, {}).get(str(raw.partition))
            highest = Highest() if position is None else highest_of(kind, position)
            track = Track(kind, epochs_of(schema).get(server, ()), highest)
            self._tracks[place] = track
        return track

    def _note(self, raw: RawBatch, change: ChangeBatch, server: str, result: RowPositions) -> None:
        table = change.target
        if not self._plan.wants(table):
            return
        if self._plan.floor(table, raw.topic, raw.partition) <= raw.offsets[0]:
            self.repeated[table] += result.repeated
        if result.epoch_ms is not None:
            earliest_ms = self._epochs.get((table, server), result.epoch_ms)
            self._epochs[table, server] = min(earliest_ms, result.epoch_ms)
        newer = {server: {raw.topic: {str(raw.partition): stored(result.highest)}}}
        self.highest[table] = merged_positions(self.highest.get(table, {}), newer)

    def deltas(self) -> list[SchemaDelta]:
        """Request the epochs that begin in this batch."""
        if self._plan.run >= _EPOCH_RUNS:
            if self._epochs:
                _LOG.warning(
                    "positions are not monotonic: two sources may write to one topic",
                    extra={"tables": sorted({table for table, _ in self._epochs})},
                )
            return []
        return [
            SchemaDelta(table, SourceTable("", "", "", server), "", (), (), 0, epoch_ms=moment)
            for (table, server), moment in sorted(self._epochs.items())
        ]


def _with_columns(
    change: ChangeBatch,
    schema: TableSchema,
    pieces: Sequence[tuple[pa.Array, ...]],
    order: Sequence[np.ndarray],
) -> ChangeBatch:
    columns = list(pieces[0])
    if len(pieces) > 1:
        inverse = pa.array(np.argsort(np.concatenate(order), kind="stable"))
        columns = [
            pa.concat_arrays([piece[at] for piece in pieces]).take(inverse)
            for at in range(len(POSITION_COLUMNS))
        ]
    rows, extra = change.rows, dict(zip(POSITION_COLUMNS, columns, strict=True))
    names = set(rows.schema.names)
    fields, arrays = [], []
    for field in schema.arrow_schema:
        if field.name in extra or field.name in names:
            fields.append(field)
            arrays.append(extra[field.name] if field.name in extra else rows.column(field.name))
    at = rows.schema.get_field_index(VALUE_KIND)
    fields += [rows.schema.field(index) for index in range(at, rows.num_columns)]
    batch = pa.RecordBatch.from_arrays([*arrays, *rows.columns[at:]], schema=pa.schema(fields))
    return dataclasses.replace(change, rows=batch)


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
        schema_id = self._plan.tables.get(name)
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
