# SPDX-License-Identifier: Apache-2.0
"""Writing rows of any partition and bucket from one process.

Partitions and buckets are assigned to whole columns at once; every bucket has its own merge tree
writer. The streaming pipeline does the same over many processes, with `bucket_writer`.
"""

from collections.abc import Iterable, Iterator

import numpy as np
import pyarrow as pa

from storage.errors import InvalidRequestError, UnsupportedFeatureError
from storage.format.binary_row import encode_rows, frame
from storage.format.bucket import assign_buckets
from storage.format.file_meta import EMPTY_ROW, CommitMessage, ManifestEntry
from storage.format.snapshot import Snapshot
from storage.format.types import VALUE_KIND, RowKind
from storage.lsm.bucket import BucketContext
from storage.lsm.merge_tree_writer import MergeTreeWriter
from storage.options import require_writable
from storage.table.commit_changes import own_files
from storage.table.core import TableCore
from storage.table.live_files import live_entries

__all__ = ["TableWrite", "bucket_groups", "open_bucket"]


class TableWrite:
    """Takes rows, gives the commit messages of all buckets it touched.

    Protocol: `write` and `compact` any number of times, `prepare_commit`, commit the messages,
    and so on. The first write after `prepare_commit` starts from the newest snapshot, so commit
    before writing on. A context manager; leaving it removes files that were not handed over.
    One `TableWrite` per table and time, or their sequence numbers may tie.

    Args:
        table: the table.
        commit_user: who will commit.
        compaction: whether to compact what is due after flushes.
        overwrite: start every bucket empty, for messages given to `FileStoreCommit.overwrite`.
    """

    def __init__(
        self,
        table: TableCore,
        commit_user: str,
        *,
        compaction: bool = True,
        overwrite: bool = False,
    ) -> None:
        require_writable(table.options)
        self.commit_user = commit_user
        self._table = table
        self._compaction = compaction
        self._overwrite = overwrite
        self._writers: dict[tuple[bytes, int], MergeTreeWriter] = {}
        self._pinned: Snapshot | None = None

    def __enter__(self) -> "TableWrite":
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def write(self, batch: pa.RecordBatch) -> None:
        """Take rows in arrival order.

        Args:
            batch: value columns; `_VALUE_KIND` (int8) if there is anything but inserts.

        Raises:
            InvalidRequestError: a column is missing, null where it must not be, or of a type
                that does not fit.
        """
        if batch.num_rows == 0:
            return
        if batch.schema.get_field_index(VALUE_KIND) < 0:
            kinds = np.full(batch.num_rows, RowKind.INSERT.value, np.int8)
            batch = batch.append_column(VALUE_KIND, pa.array(kinds))
        for partition, bucket, indices in bucket_groups(batch, self._table):
            part = batch if indices is None else batch.take(pa.array(indices))
            self._writer(partition, bucket).write(part)

    def compact(
        self, *, full: bool = False, partition: bytes | None = None, bucket: int | None = None
    ) -> bool:
        """Compact what is written and what was there.

        Args:
            full: merge everything into the last level; otherwise only what is due.
            partition: only this one (framed).
            bucket: only this one.

        Returns:
            Whether anything was compacted.
        """
        snapshot = None if self._overwrite else self._snapshot()
        if snapshot is not None:
            entries = live_entries(self._table, snapshot, partition=partition, bucket=bucket)
            for where in sorted({(entry.partition, entry.bucket) for entry in entries}):
                self._writer(*where)
        done = False
        for (part, number), writer in self._writers.items():
            if partition in (None, part) and bucket in (None, number):
                done = writer.compact(full=full) or done
        return done

    def prepare_commit(self) -> list[CommitMessage]:
        """Flush everything and hand it over; buckets without changes are left out."""
        messages: list[CommitMessage] = []
        done = False
        try:
            messages.extend(
                self._writers[where].prepare_commit() for where in sorted(self._writers)
            )
            done = True
        finally:
            if not done:  # nobody will hear of what was handed over
                files = sorted(own_files(messages))
                self._table.delete_quietly(self._table.data_path(*file) for file in files)
        self._writers.clear()
        self._pinned = None
        return [one for one in messages if not (one.data.empty and one.compact.empty)]

    def close(self) -> None:
        """Remove files that were not handed over. May be called twice."""
        writers, self._writers = self._writers, {}
        for writer in writers.values():
            writer.close()

    def _snapshot(self) -> Snapshot | None:
        if self._pinned is None and not self._writers:
            self._pinned = self._table.latest_snapshot()
        return self._pinned

    def _writer(self, partition: bytes, bucket: int) -> MergeTreeWriter:
        writer = self._writers.get((partition, bucket))
        if writer is None:
            snapshot = None if self._overwrite else self._snapshot()
            writer = open_bucket(
                self._table, partition, bucket, snapshot, compaction=self._compaction
            )
            self._writers[(partition, bucket)] = writer
        return writer


def open_bucket(
    table: TableCore,
    partition: bytes,
    bucket: int,
    snapshot: Snapshot | None,
    *,
    compaction: bool = True,
) -> MergeTreeWriter:
    """A writer of one bucket that continues from its live files in a snapshot.

    Args:
        table: the table.
        partition: framed.
        bucket: bucket id.
        snapshot: None: the bucket is taken to be empty.
        compaction: whether to compact what is due.

    Raises:
        InvalidRequestError: the partition was written with another number of buckets.
        UnsupportedFeatureError: the table has no primary key, or an option that would be wrong.
    """
    require_writable(table.options)
    if not table.schema.primary_keys:
        raise UnsupportedFeatureError(
            "tables without a primary key cannot be written yet",
            hint="create the table with a primary key",
            table=table.layout.root,
        )
    entries: list[ManifestEntry] = []
    if snapshot is not None:
        entries = live_entries(table, snapshot, partition=partition, bucket=bucket)
        others = entries or live_entries(table, snapshot, partition=partition)
        _check_bucket_count(table, others)
    context = BucketContext(
        file_io=table.file_io,
        layout=table.layout,
        schema=table.schema,
        options=table.options,
        partition=partition,
        partition_path=table.partition_path(partition),
        bucket=bucket,
        schemas=table.schemas.read,
        clock=table.clock,
        id_source=table.ids,
    )
    files = tuple(entry.file for entry in entries)
    return MergeTreeWriter(context, files, compaction=compaction)


def _check_bucket_count(table: TableCore, entries: Iterable[ManifestEntry]) -> None:
    wanted = table.options.bucket
    for entry in entries:
        if entry.total_buckets != wanted:
            raise InvalidRequestError(
                f"the table has a new bucket num {wanted}, but the previous bucket num of the "
                f"partition is {entry.total_buckets}",
                hint="Please switch to batch mode, and perform INSERT OVERWRITE to rescale the "
                "partition, or set `bucket` back",
                table=table.layout.root,
                partition=table.partition_path(entry.partition),
            )


def bucket_groups(
    batch: pa.RecordBatch, table: TableCore
) -> Iterator[tuple[bytes, int, np.ndarray | None]]:
    """Cut rows by partition and bucket. Data plane: no Python object per row.

    Args:
        batch: rows with the partition and bucket-key columns in the table's types.
        table: the table; its buckets are fixed.

    Yields:
        (framed partition, bucket, ascending row indices; None = all rows), partitions in order
        of appearance.
    """
    schema = table.schema
    buckets = _buckets(batch, table)
    names = schema.partition_keys
    if not names:
        for code, indices in _groups(buckets):
            yield EMPTY_ROW, code, indices
        return
    types = [schema.field(name).type for name in names]
    columns = [_column(batch, name, schema.arrow_schema.field(name).type) for name in names]
    rows = encode_rows(columns, types).dictionary_encode()
    framed = [
        frame(rows.dictionary[code].as_py(), len(names)) for code in range(len(rows.dictionary))
    ]
    width = int(buckets.max()) + 1
    codes = rows.indices.to_numpy(zero_copy_only=False).astype(np.int64) * width + buckets
    for code, indices in _groups(codes):
        yield framed[code // width], code % width, indices


def _buckets(batch: pa.RecordBatch, table: TableCore) -> np.ndarray:
    schema, options = table.schema, table.options
    if options.bucket == 1:
        return np.zeros(batch.num_rows, np.int64)
    columns = [
        _column(batch, name, schema.arrow_schema.field(name).type) for name in schema.bucket_keys
    ]
    types = [schema.field(name).type for name in schema.bucket_keys]
    return assign_buckets(columns, types, options.bucket, options.bucket_function).astype(np.int64)


def _column(batch: pa.RecordBatch, name: str, wanted: pa.DataType) -> pa.Array:
    position = batch.schema.get_field_index(name)
    if position < 0:
        raise InvalidRequestError("rows lack a key column", column=name)
    column = batch.column(position)
    return column if column.type == wanted else column.cast(wanted)


def _groups(codes: np.ndarray) -> Iterator[tuple[int, np.ndarray | None]]:
    first = int(codes[0])
    if (codes == first).all():
        yield first, None
        return
    order = np.argsort(codes, kind="stable")
    ordered = codes[order]
    starts = np.flatnonzero(np.r_[True, ordered[1:] != ordered[:-1]])
    ends = np.r_[starts[1:], len(order)]
    for start, end in zip(starts.tolist(), ends.tolist(), strict=True):
        yield int(ordered[start]), order[start:end]
