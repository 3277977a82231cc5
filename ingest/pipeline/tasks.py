# SPDX-License-Identifier: Apache-2.0
"""The tasks of a micro-batch: map side and reduce side.

The map side runs inside the source's reader on executors, so raw bytes never cross into the JVM:

1. consume a range in batches of a few thousand records (`ingest.source`);
2. decode column-wise into change batches per target table (`ingest.decode`);
3. collect per table; when enough has gathered, or the range ends, split by (partition, bucket),
   sort by key, keep each key's last change where the merge engine allows it (`_combined`);
4. cut into chunks of megabytes.

Rows of one chunk come from one source range, so (topic, partition, first offset) orders the chunks
of a bucket. The same plan and range always give the same chunks.
"""

import bisect
import dataclasses
import functools
import pickle
import time
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc
from pyspark import TaskContext
from pyspark.sql.types import StructType

from ingest.config.settings import WRITE_ONLY
from ingest.config.source_settings import SourceSettings
from ingest.decode.events import (
    HELD_ONLY,
    MOVED,
    OFFSET_COLUMN,
    TABLE_NAME,
    UNAVAILABLE_COLUMN,
    BadRecord,
    ChangeBatch,
    DecodeResult,
)
from ingest.decode.outcome import UNEXPECTED_ERROR, bad_record, guilty_rows, joined_rows
from ingest.errors import blames_record
from ingest.pipeline.decoding import (
    ANY_BUCKET,
    Decoding,
    RowOwner,
    decoding_of,
    merge_keys,
    row_owner,
    rows_by_owner,
    share_of,
)
from ingest.pipeline.exchange import (
    PLAN_PROPERTY,
    BatchPlan,
    BucketResult,
    Chunk,
    ChunkFile,
    ChunkKind,
    LookupUse,
    RangeReport,
    TableTotals,
    TaskUse,
    Unwritable,
    chunks_of,
    encode_chunk,
    encode_report,
    ipc_batch,
    ipc_bytes,
)
from ingest.pipeline.truncates import deletes_of
from ingest.schema.new_tables import quarantine_rows
from ingest.schema.routing import event_time, highest_ms
from ingest.source.open import open_ranges
from ingest.source.records import SOURCE, RawBatch, SourceRange
from ingest.state.ownership import TABLE_FAULTS, lost_file
from ingest.state.stream_state import Warehouse, table_of
from storage.errors import InternalError
from storage.format.types.types import VALUE_KIND, RowKind
from storage.io.local import durable_together
from storage.lsm.key_order import sort_and_group
from storage.lsm.lookup.store import LookupCounters, process_store
from storage.lsm.merge_functions.segments import SequenceOrder, dense_ranks
from storage.lsm.merge_tree_writer import MergeTreeWriter
from storage.table.read.stored_rows import stored_rows
from storage.table.table import FileStoreTable
from storage.table.write.write import STATEMENT_NUMBERS, TableWrite

CHUNK_TARGET_BYTES = 8 << 20
"""Payload of one chunk [bytes]: 4-16 MB measured best, the cost is JVM memory (SPARK.md §4)."""

SKIP = "skip"
"""Value of `tables[].bad.records` that counts bad records and leaves them out."""

GATHER_BYTES = 48 << 20
"""Decoded rows held by one task before it cuts chunks [bytes]: six chunks' worth, so that early
combining sees enough of a hot key while two tasks a core stay well below the worker's memory."""


def map_task(
    ranges: Sequence[SourceRange], source: SourceSettings, options: Mapping[str, str]
) -> Iterator[pa.RecordBatch]:
    """One source task, called by the Spark reader.

    Args:
        ranges: consecutive pieces to read, each of one topic and partition.
        source: how to reach the source.
        options: data source options; `pipeline` holds the settings as JSON.

    Yields:
        One-row batches of `CHUNK_ARROW_SCHEMA`; the last one is the task's report.
    """
    context = TaskContext.get()
    text = None if context is None else context.getLocalProperty(PLAN_PROPERTY)
    plan = BatchPlan.from_property(text)
    use_before = TaskUse.now()
    with ChunkFile(plan.chunk_folder) as file:
        side = MapSide(decoding_of(options["pipeline"]), plan, file)
        for piece, batches in open_ranges(ranges, source):
            yield from side.read(piece, batches)
    side.note_positions()
    side.report.use = use_before.until_now()
    yield encode_report(side.report)


class MapSide:
    """State of one task.

    Args:
        decoding: the pipeline's decoder.
        plan: the run this task belongs to.
        file: where the rows of large chunks go; None: into the chunks.
    """

    def __init__(self, decoding: Decoding, plan: BatchPlan, file: ChunkFile | None = None) -> None:
        settings = decoding.settings
        decoding.use(plan)
        self.report = RangeReport()
        self._plan = plan
        self._settings = settings
        self._watermarks: dict[str, str | None] = {}
        self._warehouse = Warehouse.of(settings.sink)
        self._quarantine = settings.bad_records.table
        self._decoding = decoding
        self._by_source = settings.events.ordering == SOURCE
        self._gathered: dict[str, list[pa.RecordBatch]] = {}
        self._gathered_bytes = 0
        self._file = ChunkFile("") if file is None else file

    def read(self, piece: SourceRange, batches: Iterable[RawBatch]) -> Iterator[pa.RecordBatch]:
        """Decode one range and split it into chunks."""
        start_s = time.perf_counter()
        self.report.ranges.append((piece.topic, piece.partition, piece.start, piece.end))
        for raw in batches:
            self._count(raw)
            decoding = time.perf_counter()
            self.report.spent("consume", decoding - start_s)
            result = self._decoding.decode(raw)
            self._look(raw, result)
            self._note_truncates(raw, result)
            yield from self._truncation_deletes(piece, raw)
            self._take(raw, result)
            self.report.ddl += [e for e in self._decoding.ddl(raw) if self._plan.wants(e.target)]
            self.report.met(self._decoding.feeds)
            self.report.spent("decode", time.perf_counter() - decoding)
            if self._gathered_bytes >= GATHER_BYTES:
                yield from self._emit_chunks(piece)
            start_s = time.perf_counter()
        self.report.spent("consume", time.perf_counter() - start_s)
        yield from self._emit_chunks(piece)

    def note_positions(self) -> None:
        """Report the positions after the last range."""
        positions = self._decoding.positions
        if positions is None:
            return
        self.report.deltas += positions.deltas()
        for name, totals in self.report.tables.items():
            totals.positions = positions.highest.get(name, {})
            totals.repeated = positions.repeated[name]

    def _look(self, raw: RawBatch, result: DecodeResult) -> None:
        """Check the assumptions of arrival order (`key_samples`)."""
        keys = self.report.keys
        if not self._by_source:
            keys.sample(raw)
        keys.record_key_updates(raw, result.changes, self._plan.moving)

    def _note_truncates(self, raw: RawBatch, result: DecodeResult) -> None:
        for event in self._decoding.truncates(raw, result.counts):
            floor = self._plan.floor(event.table, event.topic, event.partition)
            if self._plan.wants(event.table) and event.offset >= floor:
                self.report.truncates.append(event)

    def _truncation_deletes(self, piece: SourceRange, raw: RawBatch) -> Iterator[pa.RecordBatch]:
        """Yield deletes of the rows of tables that are truncated at one of these records.

        In chunks of their own: what follows begins at a larger offset, so it comes after them.
        """
        for name, truncation in sorted(self._plan.truncations.items()):
            if not (
                self._plan.wants(name) and truncation.is_at(raw.topic, raw.partition, raw.offsets)
            ):
                continue
            yield from self._emit_chunks(piece)
            table = table_of(self._warehouse, name, self._plan.tables[name])
            yield from self._deleted(piece, raw.topic, name, deletes_of(table, truncation))

    def _deleted(
        self, piece: SourceRange, topic: str, name: str, deletes: Iterable[pa.RecordBatch]
    ) -> Iterator[pa.RecordBatch]:
        """Yield deletes of all rows of a table, in separate chunks."""
        self.report.tables.setdefault(name, TableTotals()).add(0, topic, None, None)
        try:
            for rows in deletes:
                self._gather(name, rows)
                if self._gathered_bytes >= GATHER_BYTES:
                    yield from self._emit_chunks(piece)
        except TABLE_FAULTS as error:
            self.report.failures[name] = error
        yield from self._emit_chunks(piece)

    def _count(self, raw: RawBatch) -> None:
        self.report.records[raw.topic] += len(raw)
        self.report.bytes += raw.nbytes
        if raw.skipped:
            place = (raw.topic, raw.partition)
            self.report.skipped[place] = self.report.skipped.get(place, 0) + raw.skipped

    def _take(self, raw: RawBatch, result: DecodeResult) -> None:
        counts = self.report.counts.setdefault(raw.topic, Counter())
        counts.update(result.counts)
        self.report.walked[raw.topic] += result.walked
        self.report.deltas += [
            dataclasses.replace(delta, partition=raw.partition)
            for delta in result.deltas
            if self._plan.wants(delta.target)
        ]
        for change in result.changes:
            self._take_changes(raw, change)
        for table, member, column in result.case_matches:
            if table in self.report.tables and self._plan.wants(table):
                self.report.tables[table].case_matches.add((member, column))
        if result.bad:
            self._take_bad(raw, result.bad)

    def _take_changes(self, raw: RawBatch, change: ChangeBatch) -> None:
        floor = self._plan.floor(change.target, raw.topic, raw.partition)
        rows = _from_offset(raw, floor, change.rows)
        # in runs without the table, too: each run writes the whole quarantine again
        rows = self._writable(raw, change.target, rows)
        if rows.num_rows == 0 or not self._plan.wants(change.target):
            return
        totals = self.report.tables.setdefault(change.target, TableTotals())
        totals.add(rows.num_rows, raw.topic, change.min_source_ts_ms, change.max_source_ts_ms)
        if (text := self._watermark(change.target)) is not None:
            totals.reached(highest_ms(rows, event_time(text).column))
        self._gather(change.target, rows)

    def _writable(self, raw: RawBatch, table: str, rows: pa.RecordBatch) -> pa.RecordBatch:
        """Drop rows that an earlier run could not write: they are bad records."""
        errors = self._plan.unwritable_in(table, raw.topic, raw.partition)
        if not errors:
            return rows
        refused_offsets = np.intersect1d(rows.column(OFFSET_COLUMN).to_numpy(), [*errors]).tolist()
        if not refused_offsets:
            return rows
        places = [bisect.bisect_left(raw.offsets, offset) for offset in refused_offsets]
        records = [
            bad_record(raw, at, UNEXPECTED_ERROR, errors[offset], table)
            for at, offset in zip(places, refused_offsets, strict=True)
        ]
        counts = self.report.counts[raw.topic]
        counts.subtract(self._decoding.operation(raw.topic, record) for record in records)
        self._take_bad(raw, records)
        mask = pc.is_in(rows.column(OFFSET_COLUMN), value_set=pa.array(refused_offsets, pa.int64()))
        return rows.filter(pc.invert(mask))

    def _watermark(self, table: str) -> str | None:
        if table not in self._watermarks:
            value = self._settings.rule_value(table, lambda rule: rule.watermark)
            self._watermarks[table] = value
        return self._watermarks[table]

    def _take_bad(self, raw: RawBatch, records: Sequence[BadRecord]) -> None:
        records = self._count_bad(raw, records)
        if not records or not self._plan.wants(self._quarantine):
            return
        rows = quarantine_rows(
            records,
            topic=raw.topic,
            partition=raw.partition,
            batch_id=self._plan.batch_id,
            time_ms=self._plan.time_ms,
        )
        bad = self.report.bad.setdefault(raw.topic, Counter())
        for record in records:
            bad[record.error_class] += 1
            self.report.bad_records.keep(record)
        totals = self.report.tables.setdefault(self._quarantine, TableTotals())
        totals.add(rows.num_rows, raw.topic, None, None)
        self._gather(self._quarantine, rows)

    def _count_bad(self, raw: RawBatch, records: Sequence[BadRecord]) -> list[BadRecord]:
        """Return the records that go to quarantine."""
        plan, counts = self._plan, self.report.bad_records
        place = (raw.topic, raw.partition)
        quarantined = []
        for record in records:
            target = record.target
            if target in plan.parked:
                continue
            is_counted = target and record.error_class != TABLE_NAME  # no table is there to park
            if is_counted and record.offset >= plan.floor(target, *place):
                counts.find(*place, record)
            if record.offset < plan.bad_floor(self._quarantine, target, *place):
                continue
            if target and self._settings.bad_policy(target) == SKIP:
                counts.skip(record)
            else:
                quarantined.append(record)
        return quarantined

    def _gather(self, table: str, rows: pa.RecordBatch) -> None:
        self._gathered.setdefault(table, []).append(rows)
        self._gathered_bytes += rows.nbytes

    def _emit_chunks(self, piece: SourceRange) -> Iterator[pa.RecordBatch]:
        gathered, self._gathered, self._gathered_bytes = self._gathered, {}, 0
        for name in sorted(gathered):
            schema_id = self._plan.tables.get(name)
            if schema_id is None:
                continue
            start_s = time.perf_counter()
            table = table_of(self._warehouse, name, schema_id)
            rows = joined_rows(gathered.pop(name))
            parts, unwritable = split_or_blame(rows, table, name, piece.topic, piece.partition)
            self.report.unwritable += unwritable
            self.report.spent("sort", time.perf_counter() - start_s)
            source = (piece.topic, piece.partition)
            for chunk in chunks(parts, name, schema_id, *source, self._file):
                yield encode_chunk(chunk)


Part = tuple[bytes, int, pa.RecordBatch]
"""Framed partition, bucket and rows of one owner (`row_ownership`)."""


def split_or_blame(
    rows: pa.RecordBatch, table: FileStoreTable, name: str, topic: str, partition: int
) -> tuple[list[Part], list[Unwritable]]:
    """Rows by their owners; if some cannot be assigned, no rows and the records to blame."""
    try:
        return list(split_rows(rows, table)), []
    except Exception as error:
        if not blames_record(error):
            raise

        def attempt(low: int, high: int) -> None:
            list(split_rows(rows.slice(low, high - low), table))

        offsets = rows.column(OFFSET_COLUMN).to_numpy()
        errors = guilty_rows(attempt, rows.num_rows, error)
        return [], [
            Unwritable(name, topic, partition, int(offsets[at]), why) for at, why in errors.items()
        ]


def chunks(
    parts: Iterable[Part],
    table: str,
    schema_id: int,
    topic: str,
    source_partition: int,
    file: ChunkFile,
) -> Iterator[Chunk]:
    """Cut parts into chunks, whose rows go into `file`."""
    for partition, bucket, rows in parts:
        for piece in slices(rows):
            kind, payload = file.put(piece)
            yield Chunk(
                kind=kind,
                table=table,
                partition=partition,
                bucket=bucket,
                schema_id=schema_id,
                topic=topic,
                source_partition=source_partition,
                first_offset=int(piece.column(OFFSET_COLUMN).to_numpy()[0]),
                payload=payload,
            )


def _from_offset(raw: RawBatch, floor: int, rows: pa.RecordBatch) -> pa.RecordBatch:
    """Return the rows that a table does not have yet."""
    if floor <= raw.offsets[0]:
        return rows
    return rows.filter(pc.greater_equal(rows.column(OFFSET_COLUMN), floor))


def slices(rows: pa.RecordBatch) -> Iterator[pa.RecordBatch]:
    """Split into pieces of about `CHUNK_TARGET_BYTES`.

    Where keys were combined the order of pieces is free; elsewhere it is that of their first
    offsets, and rows of one record stay together.
    """
    if rows.num_rows == 0:
        return
    pieces = max(1, -(-rows.nbytes // CHUNK_TARGET_BYTES))
    step = -(-rows.num_rows // pieces)
    offsets = rows.column(OFFSET_COLUMN).to_numpy()
    start = 0
    while start < rows.num_rows:
        end = min(start + step, rows.num_rows)
        while end < rows.num_rows and offsets[end] == offsets[end - 1]:
            end += 1
        yield rows.slice(start, end - start)
        start = end


def split_rows(rows: pa.RecordBatch, table: FileStoreTable) -> Iterator[Part]:
    """Group change rows by the task that writes them, and combine the changes of each key.

    Args:
        rows: change rows in source order.
        table: their table.

    Yields:
        (framed partition, bucket, rows). Where combining is allowed the rows are sorted by key
        with each key once; elsewhere they keep source order.
    """
    rows = _kept_kinds(rows, table)
    if rows.num_rows == 0:
        return
    combine = bool(table.schema.primary_keys) and table.options.keeps_last_row_only
    if rows.schema.get_field_index(UNAVAILABLE_COLUMN) >= 0:
        combine = False  # an earlier row of the key may have the value that a later one lacks
    for partition, bucket, indices in rows_by_owner(rows, table):
        if combine:
            part = _combined(rows, indices, merge_keys(table))
        else:
            part = rows if indices is None else rows.take(pa.array(indices))
        yield partition, bucket, part


def _kept_kinds(rows: pa.RecordBatch, table: FileStoreTable) -> pa.RecordBatch:
    if not table.options.ignore_delete:
        return rows
    kinds = rows.column(VALUE_KIND)
    adds = pc.or_(pc.equal(kinds, int(RowKind.INSERT)), pc.equal(kinds, int(RowKind.UPDATE_AFTER)))
    return rows.filter(adds)


def _combined(
    rows: pa.RecordBatch, indices: np.ndarray | None, keys: Sequence[str]
) -> pa.RecordBatch:
    """Return the last change of every key, sorted by key, with one gather of all columns."""
    key_rows = rows.select(list(keys))
    if indices is not None:
        key_rows = key_rows.take(pa.array(indices))
    groups = sort_and_group(key_rows, keys)
    ends = np.r_[groups.starts[1:], key_rows.num_rows] - 1
    lasts = ends if groups.order is None else groups.order[ends]
    if indices is not None:
        lasts = indices[lasts]
    if len(lasts) == rows.num_rows and groups.order is None:
        return rows
    return rows.take(pa.array(lasts))


# Restores values that the source did not send because they did not change (TOAST).
#
# Source: CDC.md §1.4. Such a value is in the row's older version: an earlier row of the key in this
# batch, else the row that the table holds. Runs on the reduce side, where all rows of a key are in
# one task.


_Numbers = npt.NDArray[np.int64]
_RETRACTS = [kind.value for kind in RowKind if kind.retracts]


@dataclasses.dataclass(frozen=True, slots=True)
class Moves:
    """Rows that moved and the deletes of their old keys.

    Attributes:
        rows: numbers of the rows, in source order.
        deletes: of each the number of the delete.
        retracts: which rows of all delete.
    """

    rows: _Numbers
    deletes: _Numbers
    retracts: npt.NDArray[np.bool_]

    def ordered(self, order: _Numbers | None) -> "Moves":
        """Return the moves after a reordering of the rows."""
        if order is None or not len(self.rows):
            return self
        places = np.empty(len(order), np.int64)
        places[order] = np.arange(len(order))
        return Moves(places[self.rows], places[self.deletes], self.retracts[order])

    def redirected(
        self, source: _Numbers, group: _Numbers, lacking: _Numbers
    ) -> tuple[_Numbers, _Numbers]:
        """Return the row from which each row, and rows that depend on it, take a value.

        Args:
            source: per row the row of its key that has the value; -1: the stored one. A moved row
                counts as having it.
            group: number of each row's key.
            lacking: rows that do not have the value.

        Returns:
            (sources, the keys whose stored rows are meant where a source is -1)
        """
        groups = group.copy()
        lacks = set(lacking.tolist())
        for row, delete in zip(self.rows.tolist(), self.deletes.tolist(), strict=True):
            if row not in lacks:
                continue
            previous = delete - 1
            while previous >= 0 and group[previous] == group[delete] and self.retracts[previous]:
                previous -= 1
            if previous >= 0 and group[previous] == group[delete]:
                origin, key = source[previous], groups[previous]
            else:
                origin, key = -1, group[delete]
            takers = (source == row) & (group == group[row])
            source[takers], groups[takers] = origin, key
        return source, groups

    def needless(self, group: _Numbers) -> npt.NDArray[np.bool_]:
        """Return deletes of old keys that repeat the previous delete."""
        mask = np.zeros(len(group), bool)
        for delete in self.deletes.tolist():
            previous = delete - 1
            mask[delete] = (
                previous >= 0 and group[previous] == group[delete] and bool(self.retracts[previous])
            )
        return mask


def extract_moves(rows: pa.RecordBatch, marks: pa.Array) -> tuple[pa.Array, Moves]:
    """Extract the moves from the marks.

    Args:
        rows: in source order.
        marks: field ids per row, `MOVED` among them.
    """
    ids = pc.list_flatten(marks).to_numpy()
    parents = pc.list_parent_indices(marks).to_numpy()
    move_rows = parents[ids == MOVED].astype(np.int64)
    retracts = np.isin(rows.column(VALUE_KIND).to_numpy(), _RETRACTS)
    if not len(move_rows):
        return marks, Moves(move_rows, move_rows, retracts)
    if move_rows[0] == 0 or not retracts[move_rows - 1].all():
        raise InternalError("a moved row without the delete of its old key")
    mask = ids != MOVED
    counts = np.bincount(parents[mask], minlength=len(marks))
    offsets = pa.array(np.r_[0, np.cumsum(counts)].astype(np.int32))
    values = pa.array(ids[mask].astype(np.int32))
    return (
        pa.ListArray.from_arrays(offsets, values, mask=pa.array(counts == 0)),
        Moves(move_rows, move_rows - 1, retracts),
    )


@dataclasses.dataclass(frozen=True, slots=True)
class Restored:
    """Return rows with restored values.

    Attributes:
        rows: without `UNAVAILABLE_COLUMN`; each key's rows in their order.
        values: number of restored values.
        lost: number of values without an older row: what was sent remains, mostly null.
    """

    rows: list[pa.RecordBatch]
    values: int = 0
    lost: int = 0


def restored(
    batches: Sequence[pa.RecordBatch],
    table: FileStoreTable,
    partition: bytes | None,
    bucket: int | None,
) -> Restored:
    """Restore missing values, and drop rows that apply only to stored ones (`HELD_ONLY`).

    Args:
        batches: change rows of one bucket, of one partition or of one table, in source order.
        table: their table.
        partition: framed; None: any of the table.
        bucket: None: any of the partition.
    """
    if not any(batch.schema.get_field_index(UNAVAILABLE_COLUMN) >= 0 for batch in batches):
        return Restored(list(batches))
    rows = joined_rows(batches)
    marks = rows.column(UNAVAILABLE_COLUMN)
    rows = rows.drop_columns([UNAVAILABLE_COLUMN])
    if marks.null_count == len(marks):
        return Restored([rows])
    marks, moves = extract_moves(rows, marks)
    if table.options.merge_engine == "partial-update":  # null keeps what is there
        marks = _held_marks(marks)
        if marks is None:
            return Restored([rows])
    order = SequenceOrder.of(table.options)
    if order is not None and not order.descending:  # a late row is older nevertheless
        ranks = dense_ranks([rows.column(name) for name in order.fields])
        by_rank = pa.array(np.argsort(ranks, kind="stable"))
        rows, marks = rows.take(by_rank), marks.take(by_rank)
    keys = list(table.schema.trimmed_primary_keys)
    groups = sort_and_group(rows, keys)
    if groups.order is not None:
        by_key = pa.array(groups.order)
        rows, marks = rows.take(by_key), marks.take(by_key)
    moves = moves.ordered(groups.order)  # with a sequence there are none
    return _Restoring(rows, marks, groups.starts, keys, moves).run(table, partition, bucket)


def _held_marks(marks: pa.Array) -> pa.Array | None:
    """Return the marks without those of missing values; None if none are left."""
    mask = np.zeros(len(marks), bool)
    mask[pc.list_parent_indices(marks).to_numpy()[_ids(marks) == HELD_ONLY]] = True
    if not mask.any():
        return None
    offsets = np.r_[0, np.cumsum(mask)].astype(np.int32)
    ids = pa.array(np.full(mask.sum(), HELD_ONLY, np.int32))
    return pa.ListArray.from_arrays(pa.array(offsets), ids, mask=pa.array(~mask))


def _ids(marks: pa.Array) -> npt.NDArray[np.int32]:
    ids: npt.NDArray[np.int32] = pc.list_flatten(marks).to_numpy()
    return ids


class _Restoring:
    """Rows sorted by key."""

    def __init__(
        self,
        rows: pa.RecordBatch,
        marks: pa.Array,
        starts: _Numbers,
        keys: list[str],
        moves: Moves,
    ) -> None:
        self._moves = moves
        self._rows = rows
        self._keys = keys
        self._starts = starts
        counts = np.diff(np.r_[starts, rows.num_rows])
        self.group = np.repeat(np.arange(len(starts)), counts)
        self._marked_rows = pc.list_parent_indices(marks).to_numpy()
        self._ids = _ids(marks)

    def run(self, table: FileStoreTable, partition: bytes | None, bucket: int | None) -> Restored:
        fields = {field.id: field.name for field in table.schema.fields}
        sources = {
            fields[number]: self._moves.redirected(
                self._sources(number), self.group, self._marked_rows[self._ids == number]
            )
            for number in np.unique(self._ids).tolist()
            if number != HELD_ONLY
        }
        holders = self._holders()
        groups = [np.empty(0, np.int64)]
        groups += [group[source < 0] for source, group in sources.values()]
        if holders is not None:
            groups.append(self.group[holders < 0])
        older = _Older.of(self, np.unique(np.concatenate(groups)), table, partition, bucket)
        numbers = np.arange(self._rows.num_rows)
        live = np.ones(len(numbers), bool) if holders is None else self._applicable(holders, older)
        rows, values, misses = self._rows, 0, 0
        live &= ~self._moves.needless(self.group)
        for name, (source, group) in sources.items():
            indices, misses_mask = older.fill(source, group)
            at = rows.schema.get_field_index(name)
            column = older.appended_to(rows.column(at), name)
            indices = np.where(misses_mask, numbers, indices)
            rows = rows.set_column(at, rows.schema.field(at), column.take(pa.array(indices)))
            lacking = (source != numbers) & live
            misses += int((misses_mask & lacking).sum())
            values += int((~misses_mask & lacking).sum())
        if not live.all():
            rows = rows.filter(pa.array(live))
        return Restored([rows], values, misses)

    def _holders(self) -> _Numbers | None:
        """Return for each row the last row of its key up to it that is not `HELD_ONLY`.

        -1: none of this batch. None when no row is for held rows alone.
        """
        mask = self._ids == HELD_ONLY
        if not mask.any():
            return None
        candidates = np.arange(self._rows.num_rows)
        candidates[self._marked_rows[mask]] = -1
        last_holder = np.maximum.accumulate(candidates)
        return np.where(last_holder >= self._starts[self.group], last_holder, -1)

    def _applicable(self, holders: _Numbers, older: "_Older") -> npt.NDArray[np.bool_]:
        """Return rows that apply to any row, or whose key has a row at that point."""
        kinds = self._rows.column(VALUE_KIND).to_numpy()
        retracts = np.isin(kinds, [kind.value for kind in RowKind if kind.retracts])
        always = holders == np.arange(len(holders))
        in_batch = (holders >= 0) & ~retracts[holders]
        mask: npt.NDArray[np.bool_] = always | in_batch | ((holders < 0) & older.has(self.group))
        return mask

    def _sources(self, number: int) -> _Numbers:
        """Return for each row the row of its key with a value; -1: none in this batch."""
        count = self._rows.num_rows
        lacks_value = np.zeros(count, bool)
        lacks_value[self._marked_rows[self._ids == number]] = True
        lacks_value[self._moves.rows] = False  # they get the value
        candidates = np.where(lacks_value, -1, np.arange(count))
        last_source = np.maximum.accumulate(candidates)
        return np.where(last_source >= self._starts[self.group], last_source, -1)

    def keys_of(self, groups: _Numbers) -> pa.RecordBatch:
        """Return the key columns of groups."""
        return self._rows.select(self._keys).take(pa.array(self._starts[groups]))


@dataclasses.dataclass(frozen=True, slots=True)
class _Older:
    """Stored rows of the table for groups of keys.

    Attributes:
        groups: numbers, ascending.
        rows: one per group.
        batch_rows: number of rows of the batch; stored rows are numbered from there on.
    """

    groups: _Numbers
    rows: pa.RecordBatch | None
    batch_rows: int

    @staticmethod
    def of(
        batch: _Restoring,
        groups: _Numbers,
        table: FileStoreTable,
        partition: bytes | None,
        bucket: int | None,
    ) -> "_Older":
        row_count = len(batch.group)
        snapshot = table.latest_snapshot()
        if snapshot is None or not len(groups):
            return _Older(np.empty(0, np.int64), None, row_count)
        older_rows = stored_rows(table, snapshot, partition, bucket, batch.keys_of(groups))
        return _Older(groups[older_rows.keys], older_rows.rows, row_count)

    def fill(self, source: _Numbers, group: _Numbers) -> tuple[_Numbers, npt.NDArray[np.bool_]]:
        """Return the sources, with stored rows where the batch has none, and missing ones."""
        if not len(self.groups):
            return source, source < 0
        at = np.minimum(np.searchsorted(self.groups, group), len(self.groups) - 1)
        has_stored = self.groups[at] == group
        return np.where(source < 0, self.batch_rows + at, source), (source < 0) & ~has_stored

    def has(self, group: _Numbers) -> npt.NDArray[np.bool_]:
        """Return whether the table has a row of each group."""
        return np.isin(group, self.groups)

    def appended_to(self, column: pa.Array, name: str) -> pa.Array:
        """Append the column of the stored rows to a column of the batch."""
        if self.rows is None or not self.rows.num_rows:
            return column
        return pa.concat_arrays([column, self.rows.column(name).cast(column.type)])


# The reduce side of a micro-batch: a bucket's chunks in, level-0 files and a commit message out.
#
# Runs in `mapInArrow` after the shuffle. All chunks of one (table, partition, bucket) are in one
# task. Per bucket:
#
# 1. sort the chunks by (topic, source partition, first offset): the shuffle keeps no order;
# 2. hand their rows to a `MergeTreeWriter` that continues from the newest snapshot;
# 3. flush, compact what is due, and return the commit message. Nothing is visible until the driver
#    commits; files of a failed attempt are never referenced (names are unique per writer).


RESULT_SPARK_SCHEMA = StructType().add("kind", "integer").add("payload", "binary")
_TASK = "reduce"
"""Commit user of task writers; not used, because the driver commits."""

_RESULT_SCHEMA = pa.schema([pa.field("kind", pa.int32()), pa.field("payload", pa.binary())])


def reducer(warehouse: Warehouse) -> Callable[[Iterator[pa.RecordBatch]], Iterator[pa.RecordBatch]]:
    """Return the function for `mapInArrow`; it pickles by reference."""
    return functools.partial(_reduce_task, warehouse)


def _reduce_task(
    warehouse: Warehouse, batches: Iterator[pa.RecordBatch]
) -> Iterator[pa.RecordBatch]:
    context = TaskContext.get()
    text = None if context is None else context.getLocalProperty(PLAN_PROPERTY)
    by_bucket: dict[tuple[str, bytes, int], list[Chunk]] = defaultdict(list)
    for batch in batches:
        for chunk in chunks_of(batch):
            if chunk.kind is ChunkKind.REPORT:
                yield _result_row(ChunkKind.REPORT, bytes(memoryview(chunk.payload)))
            else:
                by_bucket[(chunk.table, chunk.partition, chunk.bucket)].append(chunk)
    if not by_bucket:
        return
    plan = BatchPlan.from_property(text)
    use_before = TaskUse.now()
    results: list[BucketResult] = []
    counters_before: LookupCounters | None = None
    with durable_together():  # one wait for the disk, not one for each bucket
        for bucket in sorted(by_bucket):
            if counters_before is None and _looks_up(warehouse, plan, bucket[0]):
                counters_before = process_store().counters()
            results.append(reduced(warehouse, plan, bucket[0], by_bucket.pop(bucket)))
    if counters_before is not None:
        results[-1] = dataclasses.replace(results[-1], lookup=LookupUse.since(counters_before))
    results[-1] = dataclasses.replace(results[-1], use=use_before.until_now())
    for result in results:
        yield _result_row(ChunkKind.CHANGES, pickle.dumps(result, 5))


def reduced(
    warehouse: Warehouse, plan: BatchPlan, table: str, chunks: Sequence[Chunk]
) -> BucketResult:
    """Return the result, or the failure if the table may be its cause, so that others continue.

    Where it fails for single rows, these are named.
    """
    try:
        return reduce_chunks(warehouse, plan, chunks)
    except TABLE_FAULTS as error:
        return BucketResult(
            table=table, messages=(), rows={}, sorted_runs=0, seconds=0.0, failure=error
        )
    except FileNotFoundError as error:
        schema_id = plan.tables.get(table)
        if (
            schema_id is None
            or (fault := lost_file(table_of(warehouse, table, schema_id), error)) is None
        ):
            raise
        return BucketResult(
            table=table, messages=(), rows={}, sorted_runs=0, seconds=0.0, failure=fault
        )
    except Exception as error:
        if not blames_record(error):
            raise
        records = _unwritable(warehouse, plan, table, chunks, error)
        return BucketResult(
            table=table, messages=(), rows={}, sorted_runs=0, seconds=0.0, unwritable=records
        )


def _unwritable(
    warehouse: Warehouse,
    plan: BatchPlan,
    table: str,
    chunks: Sequence[Chunk],
    error: Exception,
) -> tuple[Unwritable, ...]:
    """Return the records whose rows make writing fail. Files of attempts are orphans."""
    ordered = sorted(chunks, key=lambda chunk: chunk.order)
    batches = [ipc_batch(chunk.payload) for chunk in ordered]
    ends = np.cumsum([batch.num_rows for batch in batches]).tolist()

    def attempt(low: int, high: int) -> None:
        subset: list[Chunk] = []
        for chunk, batch, end in zip(ordered, batches, ends, strict=True):
            first_row = end - batch.num_rows
            start, stop = max(low, first_row), min(high, end)
            if start < stop or (low == high and not subset):
                part = batch.slice(start - first_row if start < stop else 0, max(0, stop - start))
                subset.append(dataclasses.replace(chunk, payload=ipc_bytes(part)))
        reduce_chunks(warehouse, plan, subset)

    errors = guilty_rows(attempt, ends[-1], error)
    records = []
    for at, why in errors.items():
        number = next(n for n, end in enumerate(ends) if at < end)
        chunk, batch = ordered[number], batches[number]
        offsets = batch.column(OFFSET_COLUMN).to_numpy()
        offset = int(offsets[at - ends[number] + batch.num_rows])
        place = (chunk.topic, chunk.source_partition)
        records.append(Unwritable(table, *place, offset, why))
    return tuple(dict.fromkeys(records))


def _looks_up(warehouse: Warehouse, plan: BatchPlan, name: str) -> bool:
    schema_id = plan.tables.get(name)
    return schema_id is not None and table_of(warehouse, name, schema_id).options.needs_lookup


def reduce_chunks(warehouse: Warehouse, plan: BatchPlan, chunks: Iterable[Chunk]) -> BucketResult:
    """Write all chunks of one bucket, or of all that one task owns (`row_ownership`).

    Args:
        warehouse: where the tables are.
        chunks: of one (table, partition, bucket), in any order.
    """
    start_s = time.perf_counter()
    ordered = sorted(chunks, key=lambda chunk: chunk.order)
    first_chunk = ordered[0]
    schema_id = plan.tables.get(first_chunk.table)
    if schema_id is None:
        raise InternalError("a chunk of an unplanned table", table=first_chunk.table)
    table = writable(table_of(warehouse, first_chunk.table, schema_id), plan, first_chunk.table)
    rows: Counter[str] = Counter()
    batches: list[pa.RecordBatch] = []
    with _writer(table, first_chunk) as writer:
        for chunk in ordered:
            if chunk.schema_id != schema_id:
                raise InternalError(
                    "a chunk of another schema", table=first_chunk.table, schema=chunk.schema_id
                )
            batches.append(ipc_batch(chunk.payload).drop_columns([OFFSET_COLUMN]))
        partition = None if row_owner(table) is RowOwner.TABLE else first_chunk.partition
        bucket = None if first_chunk.bucket <= ANY_BUCKET else first_chunk.bucket
        all_rows = restored(batches, table, partition, bucket)
        for batch in all_rows.rows:
            _count_kinds(batch, rows)
            writer.write(batch)
        finishing = time.perf_counter()
        messages = writer.prepare_commit(plan.identifier)
        finish_seconds = time.perf_counter() - finishing
        runs = writer.sorted_run_count if isinstance(writer, MergeTreeWriter) else 0
    return BucketResult(
        table=first_chunk.table,
        messages=tuple(messages) if isinstance(messages, list) else (messages,),
        rows=dict(rows),
        sorted_runs=runs,
        seconds=time.perf_counter() - start_s,
        finish_seconds=finish_seconds,
        values_kept=all_rows.values,
        values_lost=all_rows.lost,
    )


def writable(table: FileStoreTable, plan: BatchPlan, name: str) -> FileStoreTable:
    """The table as the plan wants it written."""
    write_only = plan.write_only.get(name)
    if write_only is None:
        return table
    return table.with_options({WRITE_ONLY: "true" if write_only else "false"})


def _writer(table: FileStoreTable, chunk: Chunk) -> MergeTreeWriter | TableWrite:
    if row_owner(table) is RowOwner.BUCKET:
        writer = table.bucket_writer(chunk.partition, chunk.bucket, table.snapshots.latest_id())
        writer.skip_sequence_numbers(STATEMENT_NUMBERS)
        return writer
    skipped = STATEMENT_NUMBERS if table.schema.primary_keys else 0
    share = share_of(table, chunk.bucket)
    return TableWrite(table, _TASK, share=share, skip_sequence_numbers=skipped, threads=1)


def _count_kinds(batch: pa.RecordBatch, rows: Counter[str]) -> None:
    kinds = batch.column(VALUE_KIND).to_numpy()
    counts = np.bincount(kinds, minlength=len(RowKind))
    for kind in RowKind:
        if counts[kind]:
            rows[kind.name.lower()] += int(counts[kind])


def _result_row(kind: ChunkKind, payload: bytes) -> pa.RecordBatch:
    return pa.RecordBatch.from_arrays(
        [pa.array([int(kind)], pa.int32()), pa.array([payload], pa.binary())],
        schema=_RESULT_SCHEMA,
    )
