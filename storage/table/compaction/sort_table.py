# SPDX-License-Identifier: Apache-2.0
"""Compaction that clusters rows which filters select together.

Source: the sort types of the `compact` procedure (SEMANTICS.md §G.5). Only for tables with `bucket`
= -1: elsewhere the order of rows is significant. Each partition is rewritten whole.

* An append table: as one COMPACT snapshot. Rows committed meanwhile stay as they are, and a commit
  that conflicts with another writer on a file is dropped and the partition sorted again.
* A table with dynamic buckets: as one OVERWRITE snapshot, like a rescale. Keys are reassigned to
  buckets in the order of the rows, so each bucket has a range of them; within it, keys are sorted.

Memory is bounded: a partition larger than `_IN_MEMORY` is split by sort code into ranges, which are
spilled to local files until they are sorted; only rows of equal code cannot be split further.
"""

import dataclasses
import enum
import functools
import itertools
import pathlib
import tempfile
from collections.abc import Callable, Iterator, Sequence

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from storage.errors import CommitConflictError, InvalidRequestError
from storage.format.files.data_file import BATCH_ROWS, DataFileNames
from storage.format.metadata.file_meta import (
    CommitMessage,
)
from storage.format.metadata.snapshot import BATCH_COMMIT_IDENTIFIER, Snapshot
from storage.format.types.types import AtomicType
from storage.lsm.key_order import sort_permutation
from storage.options.options import require_writable
from storage.table.bucket_mode import UNAWARE_BUCKET, BucketMode, bucket_mode
from storage.table.commit.commit import Attempt, FileStoreCommit, run_until_committed
from storage.table.commit.live_files import live_entries
from storage.table.compaction.compact_table import (
    WRITER_OPTIONS,
    BucketWork,
    CompactionPlan,
    CompactProgress,
    CompactReport,
    CompactRequest,
)
from storage.table.compaction.rescale import PartitionRewrite
from storage.table.read.deletion_vectors import BucketVectors
from storage.table.retention.expire_partitions import partition_values
from storage.table.scan.scan import Split
from storage.table.table import FileStoreTable
from storage.table.write.bucket_writers import (
    bucket_context,
    compaction_message,
    read_files,
    write_files,
)
from storage.table.write.drop_partitions import PartitionFiles, live_partitions

# Sort codes: one number per row by which rows are clustered. Pure.
#
# Each column is cut into ranges of about equally many rows, by a sample of its values, and the
# numbers of a row's ranges make its code: alone (`order`), with their bits interleaved (`zorder`),
# or as a position on Hilbert's curve (`hilbert`). So any sortable type works, and columns of few
# and of many values weigh the same. Nulls come first.


Codes = npt.NDArray[np.uint64]

_WORD_BITS = 64
_MOST_BITS = 16
"""Bits of one column's number: the sample distinguishes no more ranges."""


class SortOrder(enum.Enum):
    """How rows are ordered by several columns."""

    ORDER = "order"
    """By the first column, then the second, and so on: for filters on the first."""

    ZORDER = "zorder"
    """By all columns alike: for filters on any of them."""

    HILBERT = "hilbert"
    """As z-order, without its jumps."""


class SortCodes:
    """Codes of rows.

    Args:
        samples: values of each column, most significant first; equally many, at least one.
    """

    def __init__(self, order: SortOrder, samples: Sequence[pa.Array]) -> None:
        self._order = order if len(samples) > 1 else SortOrder.ORDER
        if self._order is SortOrder.ORDER:
            # ranges of the first column alone: the order by the others is left to an exact sort
            samples = samples[:1]
        self._bits = min(_MOST_BITS, _WORD_BITS // len(samples))
        self._bounds = [_bounds(sample, (1 << self._bits) - 1) for sample in samples]

    @property
    def exact(self) -> bool:
        """Whether rows of equal code still must be sorted by their columns."""
        return self._order is SortOrder.ORDER

    def of(self, columns: Sequence[pa.Array]) -> Codes:
        """The codes of some rows, given by the same columns as the samples."""
        parts = [
            _numbers(column, bounds, self._bits)
            for column, bounds in zip(columns, self._bounds, strict=False)
        ]
        if self._order is SortOrder.HILBERT:
            _along_hilbert(parts, self._bits)
        return _interleaved(parts, self._bits)


def _bounds(sample: pa.Array, max_bounds: int) -> pa.Array:
    """Values that cut a column into ranges, ascending, each once; none of them null."""
    values = sample.drop_null()
    values = values.take(pc.sort_indices(values))
    if len(values) > max_bounds:
        values = values.take(pa.array(np.linspace(0, len(values) - 1, max_bounds).astype(np.int64)))
    return pc.unique(values)


def _numbers(column: pa.Array, bounds: pa.Array, bits: int) -> Codes:
    """The range of each value, spread over all numbers of so many bits."""
    if not len(bounds):
        return np.zeros(len(column), np.uint64)
    values = pa.concat_arrays([bounds, column.drop_null().cast(bounds.type)])
    ranks = pc.rank(values, tiebreaker="dense").to_numpy()
    numbers = np.zeros(len(column), np.uint64)
    valid = column.is_valid().to_numpy(zero_copy_only=False)
    numbers[valid] = np.searchsorted(ranks[: len(bounds)], ranks[len(bounds) :], side="right")
    return numbers * np.uint64((1 << bits) - 1) // np.uint64(len(bounds))


def _interleaved(parts: Sequence[Codes], bits: int) -> Codes:
    """The interleaved bits of all parts, highest first."""
    codes = np.zeros(len(parts[0]), np.uint64)
    for bit in range(bits - 1, -1, -1):
        for part in parts:
            codes = (codes << np.uint64(1)) | ((part >> np.uint64(bit)) & np.uint64(1))
    return codes


def _along_hilbert(parts: list[Codes], bits: int) -> None:
    """Coordinates become the transposed bits of a position on Hilbert's curve, in place.

    By Skilling's algorithm ("Programming the Hilbert curve", 2004).
    """
    for bit in range(bits - 1, 0, -1):
        low = np.uint64((1 << bit) - 1)
        for number, part in enumerate(parts):
            set_ = (part >> np.uint64(bit)) & np.uint64(1) == 1
            swapped = np.where(set_, np.uint64(0), (parts[0] ^ part) & low)
            parts[0] ^= np.where(set_, low, swapped)
            if number:
                part ^= swapped
    for number in range(1, len(parts)):
        parts[number] ^= parts[number - 1]
    flipped = np.zeros(len(parts[0]), np.uint64)
    for bit in range(bits - 1, 0, -1):
        set_ = (parts[-1] >> np.uint64(bit)) & np.uint64(1) == 1
        flipped ^= np.where(set_, np.uint64((1 << bit) - 1), np.uint64(0))
    for part in parts:
        part ^= flipped


_IN_MEMORY = 256 << 20
"""Rows sorted at a time, in Arrow [bytes]."""

_UNPACKED = 4
"""How much larger rows are in Arrow than in a file."""

_SAMPLE = 1 << 17
"""Rows of a partition that decide where ranges end."""

_TRIES = 4


def check_sortable(table: FileStoreTable, columns: Sequence[str]) -> None:
    """Check that a table can be sorted by some columns.

    Raises:
        InvalidRequestError: it cannot; says why.
    """
    require_writable(table.options)
    if bucket_mode(table.schema, table.options) not in (BucketMode.UNAWARE, BucketMode.DYNAMIC):
        raise InvalidRequestError(
            "only tables with `bucket` = -1 can be sorted",
            hint="with hash buckets, files are in the order of keys or of arrival",
            table=table.layout.root,
        )
    fields = {field.name: field for field in table.schema.fields}
    for name in columns:
        if name not in fields or not isinstance(fields[name].type, AtomicType):
            raise InvalidRequestError(
                "no such column to sort by", hint=f"the table has {', '.join(fields)}", column=name
            )
    if not columns:
        raise InvalidRequestError("no sort columns given")


def plan_sort(
    table: FileStoreTable, columns: Sequence[str], request: CompactRequest
) -> CompactionPlan:
    """What `sort_table` would do: each partition as one bucket.

    Raises: as `sort_table`.
    """
    check_sortable(table, columns)
    snapshot = table.latest_snapshot()
    work = tuple(
        BucketWork(
            partition=part.partition,
            bucket=UNAWARE_BUCKET,
            total_buckets=table.options.bucket,
            files=part.files,
            rows=part.rows,
            size=part.size,
            runs=part.files,
            taken_files=part.files,
            taken_size=part.size,
        )
        for part in live_partitions(table, request.partitions)
    )
    return CompactionPlan(
        snapshot_id=None if snapshot is None else snapshot.id,
        work=work,
        buckets=len(work),
        files=sum(bucket.files for bucket in work),
        size=sum(bucket.size for bucket in work),
    )


def sort_table(
    table: FileStoreTable,
    columns: Sequence[str],
    order: SortOrder = SortOrder.ORDER,
    request: CompactRequest | None = None,
    *,
    on_progress: Callable[[CompactProgress], None] = lambda _: None,
    stopping: Callable[[], bool] = lambda: False,
) -> CompactReport:
    """Rewrite partitions with their rows in an order.

    Args:
        table: with `bucket` = -1, at a branch.
        request: which partitions; None: all.
        on_progress: called after every partition; it counts as one bucket.
        stopping: polled before every partition.

    Returns:
        What was done. A partition whose commits all conflicted is counted as lost.

    Raises:
        InvalidRequestError: the table cannot be sorted, or not by these columns.
        As `FileStoreCommit.commit`.
    """
    check_sortable(table, columns)
    request = request or CompactRequest()
    work = live_partitions(table, request.partitions)
    report = CompactReport(buckets=len(work), planned=len(work))
    report.files_before = report.files_after = sum(part.files for part in work)
    size, rows = sum(part.size for part in work), sum(part.rows for part in work)
    began_s, done_size, done_rows = table.clock.monotonic_s(), 0, 0
    for number, part in enumerate(work):
        if stopping():
            report.skipped = len(work) - number
            break
        if table.schema.primary_keys:
            _sort_buckets(table, part, columns, order, report)
        else:
            _sort_partition(table, part.partition, columns, order, report)
        done_size, done_rows = done_size + part.size, done_rows + part.rows
        report.seconds = report.bucket_seconds = table.clock.monotonic_s() - began_s
        on_progress(report.progress((size, done_size), (rows, done_rows), report.seconds))
    return report


def _sort_buckets(
    table: FileStoreTable,
    partition: PartitionFiles,
    columns: Sequence[str],
    order: SortOrder,
    report: CompactReport,
) -> None:
    newest = table.latest().with_options(WRITER_OPTIONS)

    def rows(splits: Sequence[Split]) -> Iterator[pa.RecordBatch]:
        def read(names: Sequence[str] | None) -> Iterator[pa.RecordBatch]:
            reader = newest.new_read(names)
            return itertools.chain.from_iterable(map(reader.to_batches, splits))

        source = _Rows(
            schema=newest.schema.arrow_schema,
            read=read,
            count=sum(split.row_count for split in splits),
            size=sum(file.file_size for split in splits for file in split.files),
        )
        return source.in_order(columns, order)

    partitions = (
        [partition_values(table, partition.partition)] if table.schema.partition_keys else []
    )
    job = PartitionRewrite(newest, [partition], tuple(partitions), rows=rows)
    try:
        result = job.partition(partition)
    except CommitConflictError:
        report.lost += 1
        return
    report.compacted += 1
    if result is not None and result.append_snapshot_id is not None:
        report.snapshots.append(result.append_snapshot_id)
        report.read_bytes += partition.size


def _sort_partition(
    table: FileStoreTable,
    partition: bytes,
    columns: Sequence[str],
    order: SortOrder,
    report: CompactReport,
) -> None:
    def prepare() -> Attempt | None:
        snapshot = table.latest_snapshot()
        newest = table.latest()
        message = None if snapshot is None else _sorted(newest, snapshot, partition, columns, order)
        if message is None:
            return None
        commit = FileStoreCommit(newest, f"sort-{table.ids.uuid()}", new_since=snapshot)
        return [message], lambda: commit.commit([message], BATCH_COMMIT_IDENTIFIER)

    def lost() -> None:
        report.dropped += 1

    try:
        committed = run_until_committed(
            table, prepare, attempts=_TRIES, retried=(CommitConflictError,), on_lost=lost
        )
    except CommitConflictError:
        report.lost += 1
        return
    if committed is None:
        report.unchanged += 1
        return
    if committed[1].compaction_dropped:
        report.lost += 1
        return
    report.add(*committed)


def _sorted(
    table: FileStoreTable,
    snapshot: Snapshot,
    partition: bytes,
    columns: Sequence[str],
    order: SortOrder,
) -> CommitMessage | None:
    """Sorted files that replace all files of a partition."""
    entries = live_entries(table, snapshot, partition=partition)
    files = sorted((entry.file for entry in entries), key=lambda file: file.min_sequence_number)
    if not files:
        return None
    context = bucket_context(table, partition, UNAWARE_BUCKET)
    deletions = BucketVectors.of(table, snapshot, partition, UNAWARE_BUCKET)
    rows = _Rows(
        schema=context.schema.arrow_schema,
        read=functools.partial(read_files, context, files, deletions.selections(files)),
        count=sum(file.row_count for file in files),
        size=sum(file.file_size for file in files),
    )
    ordered, first = rows.in_order(columns, order), files[0].min_sequence_number
    after = write_files(context, ordered, DataFileNames(table.ids), first)
    change = deletions.without(file.file_name for file in files)
    return compaction_message(context, files, after, change=change)


@dataclasses.dataclass(frozen=True, slots=True)
class _Rows:
    """The rows of a partition, which can be read again.

    Attributes:
        read: returns them, or some of their columns.
        count: their approximate number.
        size: of their files [bytes].
    """

    schema: pa.Schema
    read: Callable[[Sequence[str] | None], Iterator[pa.RecordBatch]]
    count: int
    size: int

    def in_order(self, columns: Sequence[str], order: SortOrder) -> Iterator[pa.RecordBatch]:
        codes = self._codes(columns, order)
        for part in self._ranges(columns, codes):
            yield from _in_order(part, columns, codes)

    def _codes(self, columns: Sequence[str], order: SortOrder) -> SortCodes:
        step = max(1, self.count // _SAMPLE)
        schema = pa.schema([self.schema.field(name) for name in columns])
        samples = [
            batch.take(pa.array(np.arange(0, batch.num_rows, step))) for batch in self.read(columns)
        ]
        sample = pa.Table.from_batches(samples, schema).combine_chunks()
        return SortCodes(order, [_array(sample.column(name)) for name in columns])

    def _ranges(self, columns: Sequence[str], codes: SortCodes) -> Iterator[pa.Table]:
        """The rows, cut by code into parts that fit into memory; in the order of the codes."""
        schema, size = self.schema, self.size * _UNPACKED
        if size <= _IN_MEMORY:
            yield pa.Table.from_batches(self.read(None), schema)
            return
        ends = self._ends(columns, codes, -(-size // _IN_MEMORY))
        with tempfile.TemporaryDirectory(prefix="lakeward-sort-") as directory:
            paths = [pathlib.Path(directory) / f"{number}.arrow" for number in range(len(ends) + 1)]
            writers = [pa.ipc.new_file(str(path), schema) for path in paths]
            for batch in self.read(None):
                numbers = np.searchsorted(ends, _codes_of(batch, columns, codes), side="right")
                for number in np.unique(numbers):
                    rows = batch.take(pa.array(np.flatnonzero(numbers == number)))
                    writers[number].write_batch(rows)
            for writer in writers:
                writer.close()
            for path in paths:
                with pa.memory_map(str(path)) as source:
                    yield pa.ipc.open_file(source).read_all()
                path.unlink()

    def _ends(self, columns: Sequence[str], codes: SortCodes, parts: int) -> np.ndarray:
        row_codes = [_codes_of(batch, columns, codes) for batch in self.read(columns)]
        sorted_codes = np.sort(np.concatenate(row_codes))
        places = np.arange(1, parts) * len(sorted_codes) // parts
        return np.unique(sorted_codes[places])


def _codes_of(batch: pa.RecordBatch, columns: Sequence[str], codes: SortCodes) -> np.ndarray:
    return codes.of([batch.column(name) for name in columns])


def _in_order(rows: pa.Table, columns: Sequence[str], codes: SortCodes) -> Iterator[pa.RecordBatch]:
    if not rows.num_rows:
        return
    keys = pa.RecordBatch.from_arrays([_array(rows.column(name)) for name in columns], columns)
    if codes.exact:
        order = sort_permutation(keys, columns)
    else:
        order = np.argsort(_codes_of(keys, columns, codes), kind="stable")
    places = pa.array(order)
    for start in range(0, rows.num_rows, BATCH_ROWS):
        part = rows.take(places.slice(start, BATCH_ROWS)).combine_chunks()
        yield from part.to_batches()


def _array(column: pa.ChunkedArray) -> pa.Array:
    whole = column.combine_chunks()
    return pa.concat_arrays(whole.chunks) if isinstance(whole, pa.ChunkedArray) else whole
