# SPDX-License-Identifier: Apache-2.0
"""`replay` and `drop_bad`: records of the quarantine table replayed, or removed.

Steps of a replay, in this order:

1. resolve an unfinished earlier replay (`Ledger`);
2. decode the chosen records and the later ones of the same keys (`replayed_rows`);
3. write their rows; records whose rows cannot be written stay in quarantine, with the error, and
   steps 2 and 3 are repeated without them;
4. write the ledger: the records of each commit;
5. commit table by table, as `<stream>.replay`;
6. mark the records in the quarantine table, and delete the ledger.

A crash before 5 changes nothing (except schemas, as in the stream); one inside 5 leaves some tables
committed, and step 1 of the next replay, or of the same request handled again, marks their records
before it continues with the others.
"""

import contextlib
import dataclasses
import datetime
import logging
import time
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt
import orjson
import pyarrow as pa
import pyarrow.compute as pc

from ingest.config.settings import Settings, stream_folder
from ingest.config.source_settings import KafkaSourceSettings, SourceSettings
from ingest.daemon.requests.registry import Outcome, Pipeline
from ingest.decode.events import (
    MOVED,
    OFFSET_COLUMN,
    UNAVAILABLE_COLUMN,
    BadRecord,
    DecodeResult,
    SchemaDelta,
)
from ingest.decode.outcome import UNEXPECTED_ERROR, bad_record, joined_rows
from ingest.pipeline.decoding import Decoding
from ingest.pipeline.exchange import BatchPlan, Chunk, ChunkFile, Unwritable
from ingest.pipeline.quarantine import Choice, read_quarantine
from ingest.pipeline.tasks import chunks, reduced, split_or_blame
from ingest.schema.new_tables import NEW, REPLAYED
from ingest.source.open import open_ranges, open_source
from ingest.source.records import (
    NO_TIMESTAMP,
    OffsetMap,
    RawBatch,
    SourceRange,
    floor_of,
    resume_token,
)
from ingest.state.stream_state import StateFile, Warehouse
from ingest.state.table_registry import TableRegistry
from storage.errors import DataLossError, InternalError, InvalidRequestError, RetryableError
from storage.format.metadata.file_meta import CommitMessage
from storage.format.types.types import VALUE_KIND, RowKind
from storage.io.file_io import FileIO
from storage.lsm.key_order import sort_and_group
from storage.table.table import FileStoreTable

# Decodes chosen records again with the settings in force; returns the rows to write.
#
# Records are decoded as in a batch. If they need a schema change, it is applied and everything is
# decoded again; a refused change leaves the records in quarantine, with the new error.


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
    for _, batches in open_ranges(_split_range(settings, topic, partition, start, end), settings):
        try:
            yield from batches
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
                    raw, raw.offsets.index(offset), UNEXPECTED_ERROR, reasons[offset], change.target
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


Position = tuple[str, int, int]
"""Topic, partition, offset."""


@dataclasses.dataclass(frozen=True, slots=True)
class Ledger:
    """Commits and their records.

    Attributes:
        identifiers: of the commits, by table.
        records: in them, by table.
    """

    identifiers: Mapping[str, int]
    records: Mapping[str, tuple[Position, ...]]


def ledger_file(file_io: FileIO, warehouse: str, stream: str) -> StateFile[Ledger]:
    """The ledger file of a stream; it exists only while a replay is unfinished."""
    return StateFile(
        file_io,
        f"{stream_folder(warehouse, stream)}/replay.json",
        Ledger,
        title="the ledger of an unfinished replay",
        hint="restore it; without it, records may be applied twice to tables that aggregate",
    )


def replay_user(stream: str) -> str:
    """The commit user of a stream's replays."""
    return f"{stream}.replay"


def newest_identifier(table: FileStoreTable, user: str) -> int:
    """Newest identifier of the user's commits in a table; -1 = none."""
    snapshot = table.new_commit(user).latest_of_user(user)
    return -1 if snapshot is None else snapshot.commit_identifier


@dataclasses.dataclass(frozen=True, slots=True)
class WrittenTable:
    """Files of one table, not committed yet.

    Attributes:
        messages: what to commit.
        unwritable: records whose rows cannot be written; then there are no messages.
    """

    messages: tuple[CommitMessage, ...] = ()
    unwritable: tuple[Unwritable, ...] = ()


def write_rows(
    warehouse: Warehouse,
    table: FileStoreTable,
    name: str,
    parts: Sequence[PartRows],
    *,
    identifier: int,
) -> WrittenTable:
    """Write change rows of a table.

    Args:
        warehouse: where the table is.
        table: with the schema version of the rows.
        name: its name.
        parts: rows by source partition, in order of application.
        identifier: of the future commit.

    Raises:
        LakewardError: the table cannot be written.
    """
    plan = BatchPlan(batch_id=-1, identifier=identifier, tables={name: table.schema.id})
    buckets: dict[tuple[bytes, int], list[Chunk]] = {}
    unwritable: list[Unwritable] = []
    for number, part in enumerate(parts):
        source = (part.topic, part.partition)
        placed, refused = split_or_blame(part.rows, table, name, *source)
        unwritable += refused
        for chunk in chunks(placed, name, table.schema.id, *source, ChunkFile("")):
            ordered = dataclasses.replace(chunk, first_offset=number)
            buckets.setdefault((chunk.partition, chunk.bucket), []).append(ordered)
    if unwritable:
        return WrittenTable(unwritable=tuple(unwritable))
    results = [reduced(warehouse, plan, name, group) for group in buckets.values()]
    messages = tuple(message for result in results for message in result.messages)
    failures = [result.failure for result in results if result.failure is not None]
    unwritable += [record for result in results for record in result.unwritable]
    if failures or unwritable:
        table.delete_uncommitted(messages)
        if failures:
            raise failures[0]
        return WrittenTable(unwritable=tuple(unwritable))
    return WrittenTable(messages)


def change_rows(rows: pa.Table, kind: RowKind) -> pa.RecordBatch:
    """Rows of a table as change rows of one kind."""
    count = rows.num_rows
    rows = rows.append_column(VALUE_KIND, pa.array([int(kind)] * count, pa.int8()))
    rows = rows.append_column(OFFSET_COLUMN, pa.array(range(count), pa.int64()))
    (batch,) = rows.combine_chunks().to_batches()
    return batch


_LOG = logging.getLogger(__name__)

_LIMITS = (20_000, 256 << 20)
"""Approximate limits of one request, in records and bytes: they are held in memory."""

_REPORT_EVERY_S = 2.0


def replay(pipeline: Pipeline, arguments: Mapping[str, Any]) -> Outcome:
    """Replay chosen records."""
    choice = _choice(arguments)
    alone, dry = bool(arguments.get("alone")), bool(arguments.get("dry_run"))
    work = _Replay(pipeline)
    if not dry:
        work.resolve_unfinished()
    rows = work.pick(choice)
    result = work.decode(rows, alone=alone, change=not dry)
    if dry:
        return _outcome(result, _positions(rows), dry=True)
    written = work.write(result)
    while unwritable := [record for files in written.values() for record in files.unwritable]:
        work.discard(written)
        all_unwritable, changes = (*result.plan.unwritable, *unwritable), result.changes
        result = work.decode(rows, alone=alone, change=True, unwritable=all_unwritable)
        result.changes[:0] = changes
        written = work.write(result)
    return work.apply(result, rows, written)


def drop_bad(pipeline: Pipeline, arguments: Mapping[str, Any]) -> Outcome:
    """Remove chosen records from the quarantine table."""
    choice = Choice.of_values(arguments.get("choice") or {})
    work = _Replay(pipeline)
    work.resolve_unfinished()
    rows = read_quarantine(work.quarantine(), choice)
    if rows.num_rows:
        work.commit_marks(change_rows(rows, RowKind.DELETE))
    return Outcome(f"{rows.num_rows} records dropped", {"dropped": rows.num_rows})


def _choice(arguments: Mapping[str, Any]) -> Choice:
    choice = Choice.of_values(arguments.get("choice") or {})
    return choice if choice.state is not None else dataclasses.replace(choice, state=NEW)


class _Replay:
    """One request's work; the sink is idle."""

    def __init__(self, pipeline: Pipeline) -> None:
        self._pipeline = pipeline
        self._book = pipeline.book
        self._book.load()  # other processes may have changed tables: that may be the fix
        self._stream = pipeline.settings.pipeline.name
        self._user = replay_user(self._stream)
        self._now_ms = pipeline.clock.now_ms()
        self._ledger = ledger_file(
            self._book.file_io, pipeline.settings.sink.warehouse, self._stream
        )
        self._reported_s = time.monotonic()

    def quarantine(self) -> FileStoreTable:
        """The newest version of the quarantine table."""
        return self._book.table(self._book.quarantine).latest()

    def resolve_unfinished(self) -> None:
        """Mark the records that an earlier replay committed but did not mark."""
        ledger = self._ledger.read()
        if ledger is None:
            return
        positions: set[Position] = set()
        for name, identifier in ledger.identifiers.items():
            with contextlib.suppress(KeyError):  # a missing table has nothing
                table = self._book.table(name).latest()
                if newest_identifier(table, self._user) >= identifier:
                    positions |= set(ledger.records[name])
        if positions:
            offsets = {offset for _, _, offset in positions}
            self._set_states(
                read_quarantine(self.quarantine(), Choice(), offsets=offsets), positions, {}
            )
        _LOG.warning(
            "an unfinished replay is resolved",
            extra={"event": "replay_settled", "records": len(positions)},
        )
        self._ledger.delete()

    def pick(self, choice: Choice) -> pa.Table:
        """Chosen rows of the quarantine table, without those for parked tables."""
        parked = self._book.parking.parked()
        rows = read_quarantine(self.quarantine(), choice, but_for=parked, limits=_LIMITS)
        if (
            parked
            and not rows.num_rows
            and read_quarantine(self.quarantine(), choice, ("offset",)).num_rows
        ):
            raise InvalidRequestError(
                "the records are for parked tables",
                hint="`lakeward resume` them first: they read again what they missed",
                tables=", ".join(sorted(parked)),
            )
        keys = [(name, "ascending") for name in ("topic", "partition", "offset")]
        return rows.sort_by(keys)

    def decode(
        self,
        rows: pa.Table,
        *,
        alone: bool,
        change: bool,
        unwritable: Sequence[Unwritable] = (),
    ) -> ReplayOutcome:
        """Decode the records with the settings in force."""
        pipeline = self._pipeline
        records: list[QuarantinedRecord] = [kept_of(row) for row in rows.to_pylist()]
        return decode_for_replay(
            pipeline.settings,
            self._book,
            Bounds(pipeline.reached, self._book),
            records,
            now_ms=self._now_ms,
            alone=alone,
            change=change,
            read=self._read,
            waiting=self._new_positions(),
            unwritable=unwritable,
        )

    def _new_positions(self) -> set[Position]:
        columns = ("topic", "partition", "offset", "state")
        return set(_positions(read_quarantine(self.quarantine(), Choice(state=NEW), columns)))

    def _read(self, topic: str, partition: int, start: int, end: int) -> Iterator[RawBatch]:
        source = self._pipeline.settings.source
        for raw in source_records(source, topic, partition, start, end):
            yield raw
            if self._pipeline.stopping():
                raise RetryableError(
                    "the daemon is stopping", hint="nothing was changed; replay again when it runs"
                )
            if len(raw) and time.monotonic() - self._reported_s >= _REPORT_EVERY_S:
                self._reported_s = time.monotonic()
                position = f"{topic}-{partition}"
                self._pipeline.progress(f"reading {position}: {raw.offsets[-1]} of {start}..{end}")

    def write(self, decoded_records: ReplayOutcome) -> dict[str, WrittenTable]:
        """Write the rows of every table, without a commit."""
        written = {}
        for name in sorted(decoded_records.rows):
            count = sum(target == name for target in decoded_records.tables.values())
            self._pipeline.progress(f"writing {count} records to {name}")
            written[name] = self._write(name, self._book.table(name), decoded_records.rows[name])
        return written

    def discard(self, written: Mapping[str, WrittenTable]) -> None:
        """Delete files that will not be committed."""
        for name, files in written.items():
            self._book.table(name).delete_uncommitted(files.messages)

    def apply(
        self, decoded_records: ReplayOutcome, rows: pa.Table, written: Mapping[str, WrittenTable]
    ) -> Outcome:
        """Commit, mark, and return the outcome."""
        positions = _positions(rows)
        records: dict[str, list[Position]] = {name: [] for name in decoded_records.rows}
        for position, name in sorted(decoded_records.tables.items()):
            records[name].append(position)
        identifiers = {name: self._identifier(name) for name in sorted(decoded_records.rows)}
        if identifiers:
            self._ledger.write(Ledger(identifiers, {n: tuple(p) for n, p in records.items()}))
        for name, identifier in identifiers.items():
            self._commit(name, written[name], identifier)
        rowless = _without_rows(decoded_records, positions)
        if self._book.parking.parked():
            rowless = set()  # they may be for a parked table
        self._set_states(rows, {*decoded_records.tables, *rowless}, decoded_records.bad)
        if identifiers:
            self._ledger.delete()
        for table, change in decoded_records.changes:
            facts = {"event": "schema_change", "table": table, "change": change}
            _LOG.info("schema changed", extra=facts)
        return _outcome(decoded_records, positions, dry=False)

    def _write(self, name: str, table: FileStoreTable, parts: Sequence[PartRows]) -> WrittenTable:
        identifier = self._identifier(name)
        return write_rows(self._book.warehouse, table, name, parts, identifier=identifier)

    def _commit(self, name: str, written: WrittenTable, identifier: int) -> None:
        if written.messages:
            commit = self._book.table(name).new_commit(self._user)
            commit.commit(written.messages, identifier)

    def _identifier(self, name: str) -> int:
        """An identifier above all of the user's in the table, including expired snapshots."""
        newest = newest_identifier(self._book.table(name).latest(), self._user)
        return max(self._now_ms, newest + 1)

    def _set_states(
        self, rows: pa.Table, replayed: Collection[Position], bad: Mapping[Position, BadRecord]
    ) -> None:
        """Set the state of records, and the error of those that fail again."""
        now = datetime.datetime.fromtimestamp(self._now_ms / 1000, datetime.UTC)
        documents = []
        for position, row in zip(_positions(rows), rows.to_pylist(), strict=True):
            if position in replayed:
                documents.append(row | {"state": REPLAYED, "replayed_at": now})
            elif position in bad:
                error = bad[position]
                new = {"error_class": error.error_class, "error": error.error}
                documents.append(row | new | {"target": error.target or row["target"]})
        if documents:
            table = pa.Table.from_pylist(documents, schema=rows.schema)
            self.commit_marks(change_rows(table, RowKind.UPDATE_AFTER))

    def commit_marks(self, rows: pa.RecordBatch) -> None:
        """Commit change rows of the quarantine table."""
        name = self._book.quarantine
        written = self._write(name, self.quarantine(), [PartRows("", 0, rows)])
        for record in written.unwritable:
            raise InternalError("a row of the quarantine table cannot be written", why=record.why)
        self._commit(name, written, self._identifier(name))


def _positions(rows: pa.Table) -> list[Position]:
    names = ("topic", "partition", "offset")
    columns = [rows.column(name).to_pylist() for name in names]
    return list(zip(*columns, strict=True))


def _without_rows(decoded_records: ReplayOutcome, positions: Collection[Position]) -> set[Position]:
    """Valid records without rows: filtered out, or not routed to a table."""
    if decoded_records.deltas:
        return set()  # they wait for a schema change
    return (
        {*positions}
        - {*decoded_records.tables}
        - {*decoded_records.bad}
        - decoded_records.later
        - decoded_records.blocked
    )


def _outcome(
    decoded_records: ReplayOutcome, positions: Sequence[Position], *, dry: bool
) -> Outcome:
    tables = Counter(decoded_records.tables.values())
    classes = Counter(record.error_class for record in decoded_records.bad.values())
    rest = _without_rows(decoded_records, positions)
    by_table = ", ".join(f"{count} to {name}" for name, count in sorted(tables.items()))
    verb = "would be replayed" if dry else "replayed"
    text = f"{len(decoded_records.tables)} of {len(positions)} records {verb}"
    text += f" ({by_table})" if by_table else ""
    if decoded_records.bad:
        kinds = ", ".join(f"{count} {name}" for name, count in classes.most_common())
        text += f"; {len(decoded_records.bad)} fail again ({kinds})"
    if decoded_records.later:
        text += f"; {len(decoded_records.later)} are ahead of their table: the stream brings them"
    if decoded_records.blocked:
        text += f"; {len(decoded_records.blocked)} stay: a later record of their key is in the"
        text += " table and cannot be written again, so it would be overwritten"
    if decoded_records.deltas:
        waiting = ", ".join(sorted({delta.target for delta in decoded_records.deltas}))
        text += f"; the schema of {waiting} would be changed first"
    if rest:
        text += f"; {len(rest)} give no row now"
    result = {
        "chosen": len(positions),
        "replayed": len(decoded_records.tables),
        "tables": dict(tables),
        "bad": dict(classes),
        "blocked": len(decoded_records.blocked),
        "ahead": len(decoded_records.later),
        "without_rows": len(rest),
        "rows_written": 0 if dry else _row_count(decoded_records),
        "schema_changes": [list(change) for change in decoded_records.changes],
        "dry_run": dry,
    }
    return Outcome(text, result)


def _row_count(decoded_records: ReplayOutcome) -> int:
    return sum(part.rows.num_rows for parts in decoded_records.rows.values() for part in parts)
