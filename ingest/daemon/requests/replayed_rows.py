# SPDX-License-Identifier: Apache-2.0
"""Decodes chosen records again with the settings in force; returns the rows to write.

Records are decoded as in a batch. If they need a schema change, it is applied and everything is
decoded again; a refused change leaves the records in quarantine, with the new error.
"""

import dataclasses
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt
import orjson
import pyarrow as pa
import pyarrow.compute as pc

from ingest.config.settings import Settings
from ingest.config.source_settings import KafkaSourceSettings, SourceSettings
from ingest.decode.events import (
    MOVED,
    OFFSET_COLUMN,
    UNAVAILABLE_COLUMN,
    BadRecord,
    DecodeResult,
    SchemaDelta,
)
from ingest.decode.isolation import ERROR_CLASS
from ingest.decode.outcome import bad_record, joined_rows
from ingest.pipeline.decoding import Decoding
from ingest.pipeline.plan import BatchPlan, Unwritable
from ingest.source.open import open_range, open_source
from ingest.source.ranges import OffsetMap, SourceRange, floor_of, resume_token
from ingest.source.records import NO_TIMESTAMP, RawBatch
from ingest.state.table_registry import TableRegistry
from storage.errors import DataLossError, InternalError, InvalidRequestError
from storage.lsm.key_order import sort_and_group
from storage.table.table import FileStoreTable


@dataclasses.dataclass(frozen=True, slots=True)
class QuarantinedRecord:
    """A record of the quarantine table.

    Header values that are not text are not stored exactly.
    """

    topic: str
    partition: int
    offset: int
    key: bytes | None
    value: bytes | None
    pairs: tuple[tuple[str, bytes], ...]
    timestamp_ms: int
    target: str

    def headers(self) -> Sequence[tuple[str, bytes]]:
        """See `RecordExtras`."""
        return self.pairs

    def timestamp(self) -> tuple[int, int]:
        """See `RecordExtras`."""
        return 1, self.timestamp_ms


def kept_of(row: Mapping[str, Any]) -> QuarantinedRecord:
    """The record of a row of the quarantine table."""
    pairs = orjson.loads(row["headers"]) if row["headers"] else ()
    moment = row["timestamp"]
    return QuarantinedRecord(
        topic=row["topic"],
        partition=row["partition"],
        offset=row["offset"],
        key=row["key"],
        value=row["value"],
        pairs=tuple((name, value.encode()) for name, value in pairs),
        timestamp_ms=NO_TIMESTAMP if moment is None else round(moment.timestamp() * 1000),
        target=row["target"] or "",
    )


def raw_of(records: Sequence[QuarantinedRecord]) -> RawBatch:
    """Records of one partition, in offset order, as a source returns them."""
    first = records[0]
    return RawBatch(
        first.topic,
        first.partition,
        [record.offset for record in records],
        [record.key for record in records],
        [record.value for record in records],
        extras=dict(enumerate(records)),
    )


def same_key(key: bytes) -> bytes:
    """A canonical form of a key, equal for different encodings of the same key.

    JSON regardless of spaces and order; Avro without the schema id.
    """
    if key[:1] == b"\0" and len(key) > 5:
        return key[5:]
    try:
        return orjson.dumps(orjson.loads(key), option=orjson.OPT_SORT_KEYS)
    except ValueError:
        return key


def checked(
    batches: Iterable[RawBatch], quarantined: Sequence[QuarantinedRecord], source_offsets: set[int]
) -> Iterator[RawBatch]:
    """The source's records, compared with the chosen ones among them.

    Args:
        batches: of one partition, from the first chosen record on.
        quarantined: records of the quarantine table. A compacted topic may have lost some.
        source_offsets: receives the offsets of those that the source has.

    Raises:
        InvalidRequestError: the source has another record at the offset of a chosen one.
    """
    records = {record.offset: record for record in quarantined}
    for raw in batches:
        for at, offset in enumerate(raw.offsets):
            record = records.get(offset)
            if record is None:
                continue
            if raw.values[at] != record.value or raw.keys[at] != record.key:
                raise InvalidRequestError(
                    "the source has another record at the offset of a quarantined one",
                    detail="its topic was recreated, so later records are unknown",
                    hint="--alone applies the quarantined record without looking at later ones",
                    topic=raw.topic,
                    partition=raw.partition,
                    offset=offset,
                )
            source_offsets.add(offset)
        if len(raw):
            yield raw


def source_records(
    settings: SourceSettings, topic: str, partition: int, start: int, end: int
) -> Iterator[RawBatch]:
    """The source's records in [start, end) of a partition; with files perhaps later ones too.

    Raises:
        DataLossError: some of them have expired.
        RetryableError: it did not answer.
    """
    settings = dataclasses.replace(settings, fail_on_data_loss=True)
    for piece in _split_range(settings, topic, partition, start, end):
        try:
            yield from open_range(piece, settings)
        except DataLossError as error:
            raise DataLossError(
                "the source no longer has all records since a quarantined one",
                detail="a later record of the same key may be among the missing ones",
                hint="snapshot the table again; or --alone applies the quarantined records without "
                "looking at later ones, where you know that there are none",
                topic=topic,
                partition=partition,
                start=start,
            ) from error


def _split_range(
    settings: SourceSettings, topic: str, partition: int, start: int, end: int
) -> Iterator[SourceRange]:
    if isinstance(settings, KafkaSourceSettings):
        yield SourceRange(topic, partition, start, end)
        return
    source = open_source(settings)
    key = str(partition)
    current = source.restore({topic: {key: start}})
    while current[topic][key] < end:
        latest = source.latest(current)
        if latest.get(topic, {}).get(key, 0) <= current[topic][key]:
            return
        for task in source.plan({topic: current[topic]}, {topic: latest[topic]}):
            yield from task
        current = {topic: latest[topic]}


def applies_again(table: FileStoreTable) -> bool:
    """Whether applying all changes of a key since some time again is idempotent.

    True for tables that keep the last row, and for partial updates without aggregation. For the
    others (append tables, aggregation, first-row) a change must be applied once.
    """
    options = table.options
    if not table.schema.primary_keys:
        return False
    if options.merge_engine == "deduplicate":
        return True
    adds_up = options.default_aggregate_function is not None or any(
        name.endswith(".aggregate-function") for name in table.schema.options
    )
    return options.merge_engine == "partial-update" and not adds_up


class KeyedRows:
    """Rows that a replay writes to one table, from one source partition.

    Those of the chosen records and all later ones of the same keys; only these are held in memory.

    Args:
        offsets: offsets of chosen records of the partition, ascending.
        end: rows from this offset on are excluded.
        alone: whether to return only rows of the chosen records.

    Attributes:
        moves: whether a later record changes a key and uses values of the row under the old one,
            which no longer exists.
    """

    def __init__(self, table: FileStoreTable, offsets: pa.Array, end: int, *, alone: bool) -> None:
        self._keys = list(table.schema.primary_keys)
        self._offsets = offsets
        self._end = end
        self._chosen_only = alone or not applies_again(table)
        self.moves = False
        self._known_keys: pa.RecordBatch | None = None
        self._quarantined_rows: list[pa.RecordBatch] = []
        self._rows: list[pa.RecordBatch] = []

    def take_kept(self, rows: pa.RecordBatch) -> None:
        """Rows of the chosen records from the quarantine table; they come first."""
        rows = rows.filter(pc.less(rows.column(OFFSET_COLUMN), self._end))
        if rows.num_rows:
            self._add_keys(rows)
            self._quarantined_rows.append(rows)

    def take(self, rows: pa.RecordBatch) -> None:
        """The source's next rows of the table, in offset order."""
        rows = rows.filter(pc.less(rows.column(OFFSET_COLUMN), self._end))
        chosen_rows = rows.filter(pc.is_in(rows.column(OFFSET_COLUMN), value_set=self._offsets))
        self._add_keys(chosen_rows)
        if self._chosen_only:
            rows = chosen_rows
        elif self._known_keys is None:
            return
        else:
            rows = self._rows_of_keys(rows, self._known_keys)
            self.moves |= _moves(rows) > _moves(chosen_rows)
        if rows.num_rows:
            self._rows.append(rows)

    def _rows_of_keys(self, rows: pa.RecordBatch, known_keys: pa.RecordBatch) -> pa.RecordBatch:
        """Rows of known keys, and the other rows of the same records: a key change has two."""
        offsets = rows.column(OFFSET_COLUMN)
        while True:
            matches = rows.filter(pa.array(self._same_keys(rows, known_keys)))
            record_rows = rows.filter(pc.is_in(offsets, value_set=matches.column(OFFSET_COLUMN)))
            if record_rows.num_rows == matches.num_rows:
                return record_rows
            keys = self._add_keys(record_rows)
            known_keys = known_keys if keys is None else keys

    def _add_keys(self, rows: pa.RecordBatch) -> pa.RecordBatch | None:
        """Add the keys of rows to the known ones, and return these."""
        if self._chosen_only or rows.num_rows == 0:
            return self._known_keys
        keys = rows.select(self._keys)
        all_keys = keys if self._known_keys is None else pa.concat_batches([self._known_keys, keys])
        groups = sort_and_group(all_keys, self._keys)
        firsts = groups.starts if groups.order is None else groups.order[groups.starts]
        self._known_keys = all_keys.take(pa.array(np.sort(firsts)))
        return self._known_keys

    def _same_keys(self, rows: pa.RecordBatch, known_keys: pa.RecordBatch) -> npt.NDArray[np.bool_]:
        all_keys = pa.concat_batches([known_keys, rows.select(self._keys)])
        groups = sort_and_group(all_keys, self._keys)
        order = np.arange(all_keys.num_rows) if groups.order is None else groups.order
        counts = np.diff(np.r_[groups.starts, all_keys.num_rows])
        is_known = (
            np.add.reduceat((order < known_keys.num_rows).astype(np.int64), groups.starts) > 0
        )
        mask = np.zeros(all_keys.num_rows, np.bool_)
        mask[order] = np.repeat(is_known, counts)
        return mask[known_keys.num_rows :]

    def rows(self, source_offsets: Collection[int], emptied: int = 0) -> pa.RecordBatch | None:
        """All rows to write, in offset order; None = none.

        Args:
            source_offsets: offsets of chosen records in the source; others come from quarantine.
            emptied: offset of the table's last truncate, which ends all rows before it.
        """
        offsets = pa.array(sorted(source_offsets), pa.int64())
        parts = [
            rows.filter(pc.invert(pc.is_in(rows.column(OFFSET_COLUMN), value_set=offsets)))
            for rows in self._quarantined_rows
        ]
        parts = [rows for rows in (*parts, *self._rows) if rows.num_rows]
        if not parts:
            return None
        rows = joined_rows(parts)
        rows = rows.filter(pc.greater_equal(rows.column(OFFSET_COLUMN), emptied))
        order = np.argsort(rows.column(OFFSET_COLUMN).to_numpy(), kind="stable")
        return rows.take(pa.array(order))


def _moves(rows: pa.RecordBatch) -> int:
    """Number of rows that use values of the row under their old key."""
    at = rows.schema.get_field_index(UNAVAILABLE_COLUMN)
    if at < 0 or rows.num_rows == 0:
        return 0
    marks = pc.list_flatten(rows.column(at))
    return int(pc.sum(pc.equal(marks, MOVED)).as_py() or 0)


_ROUNDS = 6

SourcePartition = tuple[str, int]
"""Topic and partition."""

Reader = Callable[[str, int, int, int], Iterable[RawBatch]]
"""(topic, partition, start, end) to the source's records."""


class Bounds:
    """End offsets of tables.

    A table may be ahead of the stream: a batch that was committed but not recorded is repeated and
    skipped, and rows below floors are dropped. The table then contains records beyond the position
    of the stream, which a replay must take into account.

    Args:
        reached: offsets below which all batches are finished, in the source's own form.
    """

    def __init__(self, reached: Mapping[str, Any], book: TableRegistry) -> None:
        self._resume_token = resume_token(reached)
        self._floors = book.floors
        self._offsets: dict[str, OffsetMap] = {
            name: progress.offsets for name, progress in book.progresses().items()
        }

    def end(self, table: str, topic: str, partition: int) -> int:
        """First offset of a source partition that a table may lack."""
        maps = (self._resume_token, floor_of(self._floors, table), self._offsets.get(table, {}))
        return max(offsets.get(topic, {}).get(str(partition), 0) for offsets in maps)

    def last(self, topic: str, partition: int) -> int:
        """The largest end of any table."""
        maps = (self._resume_token, *self._floors.values(), *self._offsets.values())
        return max(offsets.get(topic, {}).get(str(partition), 0) for offsets in maps)


@dataclasses.dataclass(frozen=True, slots=True)
class PartRows:
    """Rows of one table from one source partition, in offset order."""

    topic: str
    partition: int
    rows: pa.RecordBatch


@dataclasses.dataclass(slots=True)
class ReplayOutcome:
    """The outcome of the chosen records.

    Attributes:
        plan: batch plan used for decoding.
        rows: rows to write, by table.
        bad: records that fail again.
        tables: target tables of the other records; a record without rows is absent.
        blocked: valid records of which a later record of the same key, already in the table, no
            longer decodes: a replay would overwrite its row.
        later: records beyond the end offset of their table: the stream itself will write them.
        deltas: required schema changes, if none may be applied.
        changes: applied schema changes, as (table, change).
    """

    plan: BatchPlan
    rows: dict[str, list[PartRows]] = dataclasses.field(default_factory=dict)
    bad: dict[tuple[str, int, int], BadRecord] = dataclasses.field(default_factory=dict)
    tables: dict[tuple[str, int, int], str] = dataclasses.field(default_factory=dict)
    blocked: set[tuple[str, int, int]] = dataclasses.field(default_factory=set)
    later: set[tuple[str, int, int]] = dataclasses.field(default_factory=set)
    deltas: list[SchemaDelta] = dataclasses.field(default_factory=list)
    changes: list[tuple[str, str]] = dataclasses.field(default_factory=list)


def decode_for_replay(
    settings: Settings,
    book: TableRegistry,
    bounds: Bounds,
    records: Sequence[QuarantinedRecord],
    *,
    now_ms: int,
    alone: bool,
    change: bool,
    read: Reader,
    waiting: Collection[tuple[str, int, int]],
    unwritable: Sequence[Unwritable] = (),
) -> ReplayOutcome:
    """Decode chosen records, and the later ones of their partitions.

    Args:
        settings: in force.
        book: the tables.
        bounds: end offsets of the tables.
        records: quarantined records, in the order of topic, partition, offset.
        now_ms: time of the replay [epoch ms].
        alone: exclude later records of the same keys.
        change: whether schemas may be changed.
        read: the source.
        waiting: all records that no table has because they are quarantined.
        unwritable: records whose rows an earlier attempt could not write; they are bad.

    Raises:
        DataLossError: the later records have expired in the source.
        InvalidRequestError: the source's topic was recreated, or a schema may not change.
    """
    decoding = Decoding(settings)
    frozen: dict[str, str] = {}
    changes: list[tuple[str, str]] = []
    for run in range(_ROUNDS):
        plan = BatchPlan(
            batch_id=-1,
            identifier=0,
            run=run,
            time_ms=now_ms,
            tables=book.schema_ids(),
            parked=tuple(sorted(book.parking.parked())),
            frozen=dict(frozen),
            answers=book.schemas.current_answers() if run else book.schemas.lasting_answers(),
            unwritable=tuple(unwritable),
        )
        decoding.use(plan)
        result = _DecodingRun(
            decoding, book, bounds, alone, read, waiting, ReplayOutcome(plan)
        ).run(records)
        if not result.deltas or not change:
            result.changes = changes
            return result
        applied = book.schemas.apply(result.deltas, now_ms=now_ms)
        if refused := book.take_to_park():
            raise InvalidRequestError(
                "the records need a change that the settings do not allow",
                detail="; ".join(f"{name}: {reason}" for name, reason in sorted(refused.items())),
                hint="alter the table, or see `pipeline.schema.change.behavior`",
            )
        changes += applied.applied
        frozen |= applied.refused
    raise InternalError("schema changes of a replay do not converge")


@dataclasses.dataclass(frozen=True, slots=True)
class _DecodingRun:
    """One decoding of all chosen records; the parameters are those of `decode_for_replay`."""

    decoding: Decoding
    book: TableRegistry
    bounds: Bounds
    alone: bool
    read: Reader
    waiting: Collection[tuple[str, int, int]]
    outcome: ReplayOutcome

    def run(self, records: Sequence[QuarantinedRecord]) -> ReplayOutcome:
        by_source: dict[SourcePartition, list[QuarantinedRecord]] = {}
        for record in records:
            by_source.setdefault((record.topic, record.partition), []).append(record)
        for source in sorted(by_source):
            self._partition(source, by_source[source])
        return self.outcome

    def _partition(self, source: SourcePartition, records: Sequence[QuarantinedRecord]) -> None:
        offsets = pa.array([record.offset for record in records], pa.int64())
        tables: dict[str, KeyedRows] = {}

        def rows_of(name: str) -> KeyedRows:
            if name not in tables:
                end = self.bounds.end(name, *source)
                table = self.book.table(name)
                tables[name] = KeyedRows(table, offsets, end, alone=self.alone)
            return tables[name]

        result = self._decode(raw_of(records))
        for change in result.changes:
            rows_of(change.target).take_kept(change.rows)
        self._note(source, result, {record.offset for record in records})
        source_offsets, unreadable, emptied = self._later(source, records, rows_of)
        blocked = self._blocked(source, records, unreadable)
        moving = {name for name, rows in tables.items() if rows.moves}
        blocked |= {
            record.offset
            for record in records
            if self.outcome.tables.get((*source, record.offset)) in moving
        }
        if blocked:
            for offset in blocked:
                del self.outcome.tables[*source, offset]
                self.outcome.blocked.add((*source, offset))
            remaining = [record for record in records if record.offset not in blocked]
            if remaining:
                self._partition(source, remaining)
            return
        for name, rows in tables.items():
            batch = rows.rows(source_offsets, emptied.get(name, 0))
            if batch is not None and batch.num_rows:
                self.outcome.rows.setdefault(name, []).append(PartRows(*source, batch))

    def _decode(self, raw: RawBatch) -> DecodeResult:
        """Decode records; those that an earlier attempt could not write are bad."""
        result = self.decoding.decode(raw)
        if not self.outcome.plan.unwritable:
            return result
        changes, bad = [], list(result.bad)
        for change in result.changes:
            reasons = self.outcome.plan.unwritable_in(change.target, raw.topic, raw.partition)
            offsets = change.rows.column(OFFSET_COLUMN)
            refused = sorted({*reasons} & {*offsets.to_pylist()}) if reasons else []
            bad += [
                bad_record(
                    raw, raw.offsets.index(offset), ERROR_CLASS, reasons[offset], change.target
                )
                for offset in refused
            ]
            written = pc.invert(pc.is_in(offsets, value_set=pa.array(refused, pa.int64())))
            changes.append(dataclasses.replace(change, rows=change.rows.filter(written)))
        return dataclasses.replace(result, changes=changes, bad=bad)

    def _later(
        self,
        source: SourcePartition,
        records: Sequence[QuarantinedRecord],
        rows_of: Callable[[str], KeyedRows],
    ) -> tuple[set[int], list[BadRecord], dict[str, int]]:
        """Read the source: offsets of chosen records in it, other bad records, last truncates."""
        source_offsets: set[int] = set()
        unreadable: list[BadRecord] = []
        emptied: dict[str, int] = {}
        last = self.bounds.last(*source)
        if self.alone or records[0].offset >= last:
            return source_offsets, unreadable, emptied
        chosen_offsets = {record.offset for record in records}
        for raw in checked(self.read(*source, records[0].offset, last), records, source_offsets):
            result = self._decode(raw)
            for change in result.changes:
                rows_of(change.target).take(change.rows)
            self._note(source, result, chosen_offsets & set(raw.offsets))
            unreadable += [bad for bad in result.bad if bad.offset not in chosen_offsets]
            truncates = self.decoding.truncates(raw, result.counts)
            emptied |= {event.table: event.offset for event in truncates if not event.refusal}
        for record in records:
            place = (*source, record.offset)
            if record.offset < emptied.get(self.outcome.tables.get(place, ""), 0):
                del self.outcome.tables[place]
        return source_offsets, unreadable, emptied

    def _blocked(
        self,
        source: SourcePartition,
        records: Sequence[QuarantinedRecord],
        unreadable: Sequence[BadRecord],
    ) -> set[int]:
        """Offsets of valid chosen records blocked by a later record of the same key."""
        last: dict[bytes, int] = {}
        keyless = -1
        for record in unreadable:
            end = self.bounds.end(record.target, *source)
            if (*source, record.offset) in self.waiting or record.offset >= end:
                continue
            if record.key is None:
                keyless = max(keyless, record.offset)
            else:
                last[same_key(record.key)] = record.offset
        any_key = max([keyless, *last.values()])
        blocked = set()
        for entry in records:
            name = self.outcome.tables.get((*source, entry.offset))
            if name is None or not applies_again(self.book.table(name)):
                continue
            limit = keyless if entry.key is None else last.get(same_key(entry.key), keyless)
            if entry.offset < max(limit, any_key if entry.key is None else keyless):
                blocked.add(entry.offset)
        return blocked

    def _note(
        self, source: SourcePartition, result: DecodeResult, chosen_offsets: Collection[int]
    ) -> None:
        """Note the outcome of chosen records; the source's copy of a record is decoded last."""
        outcome = self.outcome
        for offset in chosen_offsets:
            outcome.bad.pop((*source, offset), None)
            outcome.tables.pop((*source, offset), None)
        for record in result.bad:
            if record.offset in chosen_offsets:
                outcome.bad[*source, record.offset] = record
        for change in result.changes:
            end = self.bounds.end(change.target, *source)
            for offset in set(change.rows.column(OFFSET_COLUMN).to_pylist()) & set(chosen_offsets):
                if offset < end:
                    outcome.tables[*source, offset] = change.target
                else:
                    outcome.later.add((*source, offset))
        outcome.deltas += result.deltas
