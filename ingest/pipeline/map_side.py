# SPDX-License-Identifier: Apache-2.0
"""The map side of a micro-batch: source ranges in, chunks out.

Runs inside the source's reader on executors, so raw bytes never cross into the JVM:

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
import time
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from pyspark import TaskContext

from ingest.config.source_settings import SourceSettings
from ingest.decode.events import (
    TABLE_NAME,
    UNAVAILABLE_COLUMN,
    BadRecord,
    ChangeBatch,
    DecodeResult,
)
from ingest.decode.isolation import ERROR_CLASS, guilty_rows
from ingest.decode.outcome import bad_record, joined_rows
from ingest.errors import blames_record
from ingest.pipeline.chunk import (
    OFFSET_COLUMN,
    Chunk,
    ChunkFile,
    encode_chunk,
    encode_report,
)
from ingest.pipeline.decoding import Decoding, decoding_of
from ingest.pipeline.plan import PLAN_PROPERTY, BatchPlan, Unwritable
from ingest.pipeline.range_report import RangeReport, TableTotals, TaskUse
from ingest.pipeline.row_ownership import merge_keys, rows_by_owner
from ingest.pipeline.truncates import deletes_of
from ingest.schema.event_time import event_time, highest_ms
from ingest.schema.own_tables import quarantine_rows
from ingest.source.open import open_range
from ingest.source.position.ordered_tables import SOURCE
from ingest.source.ranges import SourceRange
from ingest.source.records import RawBatch
from ingest.state.table_cache import Warehouse, table_of
from ingest.state.table_faults import TABLE_FAULTS
from storage.format.types.types import VALUE_KIND, RowKind
from storage.lsm.key_order import sort_and_group
from storage.table.table import FileStoreTable

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
        for piece in ranges:
            yield from side.read(piece, open_range(piece, source))
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
            bad_record(raw, at, ERROR_CLASS, errors[offset], table)
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
            schema_id = self._plan.schema_id(name)
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
