# SPDX-License-Identifier: Apache-2.0
"""The reduce side of a micro-batch: a bucket's chunks in, level-0 files and a commit message out.

Runs in `mapInArrow` after the shuffle. All chunks of one (table, partition, bucket) are in one
task. Per bucket:

1. sort the chunks by (topic, source partition, first offset): the shuffle keeps no order;
2. hand their rows to a `MergeTreeWriter` that continues from the newest snapshot;
3. flush, compact what is due, and return the commit message. Nothing is visible until the driver
   commits; files of a failed attempt are never referenced (names are unique per writer).
"""

import dataclasses
import functools
import pickle
import time
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Iterator, Sequence

import numpy as np
import pyarrow as pa
from pyspark import TaskContext

from ingest.config.compaction_mode import WRITE_ONLY
from ingest.decode.isolation import guilty_rows
from ingest.errors import blames_record
from ingest.pipeline.chunk import OFFSET_COLUMN, Chunk, ChunkKind, chunks_of, ipc_batch, ipc_bytes
from ingest.pipeline.plan import PLAN_PROPERTY, BatchPlan, Unwritable
from ingest.pipeline.range_report import LookupUse, TaskUse
from ingest.pipeline.restore import restored
from ingest.pipeline.row_ownership import ANY_BUCKET, RowOwner, row_owner, share_of
from ingest.state.table_cache import Warehouse, table_of
from ingest.state.table_faults import TABLE_FAULTS, lost_file
from storage.errors import InternalError, LakewardError
from storage.format.metadata.file_meta import CommitMessage
from storage.format.types.types import VALUE_KIND, RowKind
from storage.lsm.lookup.store import LookupCounters, process_store
from storage.lsm.merge_tree_writer import MergeTreeWriter
from storage.table.table import FileStoreTable
from storage.table.write.write import STATEMENT_NUMBERS, TableWrite

RESULT_SPARK_SCHEMA = "kind int, payload binary"
_TASK = "reduce"
"""Commit user of task writers; not used, because the driver commits."""

_RESULT_SCHEMA = pa.schema([pa.field("kind", pa.int32()), pa.field("payload", pa.binary())])


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class BucketResult:
    """Result of one bucket, or of all that one task owns of a table, for the driver.

    Attributes:
        table: `database.table`.
        messages: what to commit; one per bucket.
        rows: rows by kind that reached the writer, after early combining.
        sorted_runs: runs of the bucket after the batch; 0 where tasks own more than a bucket.
        seconds: wall time of the bucket [s].
        finish_seconds: of this, to flush and compact [s].
        values_kept: values that the source did not send, taken from older rows.
        values_lost: values that the source did not send and that no older row has.
        lookup: use of local copies by the task, on one of its results; None elsewhere.
        failure: error because of which there is nothing to commit; the driver handles it.
        use: calls of the task to the store, on one of its results; None elsewhere.
        unwritable: records because of which there is nothing to commit: the batch is run without
            them.
    """

    table: str
    messages: tuple[CommitMessage, ...]
    rows: dict[str, int]
    sorted_runs: int
    seconds: float
    finish_seconds: float = 0.0
    values_kept: int = 0
    values_lost: int = 0
    lookup: LookupUse | None = None
    failure: LakewardError | None = None
    use: TaskUse | None = None
    unwritable: tuple[Unwritable, ...] = ()


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
    result: BucketResult | None = None
    counters_before: LookupCounters | None = None
    for bucket in sorted(by_bucket):
        if result is not None:
            yield _result_row(ChunkKind.CHANGES, pickle.dumps(result, 5))
        if counters_before is None and _looks_up(warehouse, plan, bucket[0]):
            counters_before = process_store().counters()
        result = reduced(warehouse, plan, bucket[0], by_bucket.pop(bucket))
    if counters_before is not None and result is not None:
        result = dataclasses.replace(result, lookup=LookupUse.since(counters_before))
    if result is not None:
        result = dataclasses.replace(result, use=use_before.until_now())
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
        schema_id = plan.schema_id(table)
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
    schema_id = plan.schema_id(name)
    return schema_id is not None and table_of(warehouse, name, schema_id).options.needs_lookup


def reduce_chunks(warehouse: Warehouse, plan: BatchPlan, chunks: Iterable[Chunk]) -> BucketResult:
    """Write all chunks of one bucket, or of all that one task owns (`row_ownership`).

    Args:
        warehouse: where the tables are.
        plan: the run.
        chunks: of one (table, partition, bucket), in any order.
    """
    start_s = time.perf_counter()
    ordered = sorted(chunks, key=lambda chunk: chunk.order)
    first_chunk = ordered[0]
    schema_id = plan.schema_id(first_chunk.table)
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
        all_rows = restored(
            batches, table, _partition_of(first_chunk, table), _bucket_of(first_chunk)
        )
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


def _partition_of(chunk: Chunk, table: FileStoreTable) -> bytes | None:
    return None if row_owner(table) is RowOwner.TABLE else chunk.partition


def _bucket_of(chunk: Chunk) -> int | None:
    return None if chunk.bucket <= ANY_BUCKET else chunk.bucket


def _writer(table: FileStoreTable, chunk: Chunk) -> MergeTreeWriter | TableWrite:
    if row_owner(table) is RowOwner.BUCKET:
        writer = table.bucket_writer(chunk.partition, chunk.bucket, table.snapshots.latest_id())
        writer.skip_sequence_numbers(STATEMENT_NUMBERS)
        return writer
    skipped = STATEMENT_NUMBERS if table.schema.primary_keys else 0
    share = share_of(table, chunk.bucket)
    return TableWrite(table, _TASK, share=share, skip_sequence_numbers=skipped)


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
