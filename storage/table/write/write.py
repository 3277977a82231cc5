# SPDX-License-Identifier: Apache-2.0
"""Writing rows of any partition and bucket from one process.

Partitions and buckets are assigned to whole columns at once; every bucket has its own writer.
The streaming pipeline does the same over many processes, with `bucket_writer`.
"""

import dataclasses
import functools
import os
import pathlib
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import TypeVar

import numpy as np
import pyarrow as pa

from storage.errors import NotFoundError
from storage.format.metadata.file_meta import CommitMessage, IndexType, ManifestEntry
from storage.format.metadata.layout import POSTPONE_BUCKET
from storage.format.metadata.snapshot import BATCH_COMMIT_IDENTIFIER, CommitKind, Snapshot
from storage.format.types.types import VALUE_KIND, RowKind
from storage.io.local import durable_together
from storage.lsm.write_rules import has_period, merges_everything, merges_level_0, without_ignored
from storage.options.options import TableOptions, require_writable
from storage.table.bucket_mode import BucketMode, bucket_mode, require_buckets
from storage.table.commit.commit_changes import (
    CommitHistory,
    delete_uncommitted,
    discarded_on,
    without_changelog,
)
from storage.table.commit.live_files import (
    BucketId,
    IndexChange,
    index_files,
    live_buckets,
    live_entries,
    live_files,
)
from storage.table.compaction.append_compact import compact_unaware
from storage.table.core import TableCore
from storage.table.write.bucket_writers import BucketWriter, bucket_context, open_bucket
from storage.table.write.cross_partition import CrossPartitionBuckets
from storage.table.write.dynamic_bucket import AssignerShare, DynamicBuckets
from storage.table.write.postpone import (
    at_buckets,
    in_commit_order,
    newest_creation,
    read_postponed,
)
from storage.table.write.replay import into_buckets
from storage.table.write.rows_by_bucket import (
    bucket_groups,
    by_key,
    key_hashes,
    partition_groups,
    split_codes,
)

_BucketRows = tuple[bytes, int, pa.RecordBatch]
"""Rows of one (framed partition, bucket)."""

STATEMENT_NUMBERS = 1 << 28
"""Sequence numbers of a bucket that a stream leaves to statements (UPDATE, DELETE, MERGE) committed
while it writes: its rows, committed later, count as newer. They last 1000 years at one batch/s."""


_ROWS_OF_A_THREAD = 16_384
"""Fewer rows are sooner finished than threads are started."""


class TableWrite:
    """Takes rows, gives the commit messages of all buckets it touched.

    Protocol: `write` and `compact` any number of times, `prepare_commit`, commit the messages,
    and so on. The first write after `prepare_commit` starts from the newest snapshot, so commit
    before writing on. A context manager; leaving it removes files that were not handed over.
    One `TableWrite` per table and time, or their sequence numbers may tie; where an index decides
    on buckets, one writing job per table, or keys may end up in two buckets.

    Compaction runs inside these calls, never beside them: what is due after a flush and in
    `prepare_commit` is in the messages. Where the table's options say that commits need not wait
    for it (`lookup-wait` = false), level 0 is left to later commits or to a compaction job.

    Args:
        compaction: whether to compact what is due after flushes.
        overwrite: start every bucket empty, for messages given to `FileStoreCommit.overwrite`.
        share: of the keys, where dynamic buckets are assigned by several processes; the rows
            of one bucket must reach one of them.
        index_directory: directory of the key index of a cross-partition table; None: below the
            system's temporary directory.
        skip_sequence_numbers: left free in every bucket for other writers: rows of the writer that
            skips more count as later, while the ranges do not overlap. Where several processes
            write the same buckets for one commit, only without compaction.
        batch: whether the rows are those of a batch job. On a postponed table they go to real
            buckets then, unless `postpone.batch-write-fixed-bucket` = false.
        threads: how many buckets `prepare_commit` finishes side by side at most; None: one for
            each core. 1 where many such objects share the cores.

    Raises:
        UnsupportedFeatureError: an option or the kind of table cannot be written.
    """

    def __init__(
        self,
        table: TableCore,
        commit_user: str,
        *,
        compaction: bool = True,
        overwrite: bool = False,
        share: AssignerShare | None = None,
        index_directory: pathlib.Path | None = None,
        skip_sequence_numbers: int = 0,
        batch: bool = False,
        threads: int | None = None,
    ) -> None:
        require_writable(table.options)
        self._threads = threads or os.cpu_count() or 1
        self._rows = 0
        self._skipped_numbers = skip_sequence_numbers
        self.commit_user = commit_user
        self._table = table
        self._compaction = compaction
        self._overwrite = overwrite
        self._sole_writer = share is None
        self._resuming = True
        self._mode = require_buckets(table.schema, table.options)
        self._stages = (
            batch
            and self._mode is BucketMode.POSTPONE
            and table.options.postpone_batch_write_fixed_bucket
        )
        self._placement = _placement(
            table, self._mode, commit_user, share, index_directory, overwrite=overwrite
        )
        self._writers: dict[tuple[bytes, int], BucketWriter] = {}
        self._merged: list[CommitMessage] = []
        self._pinned: Snapshot | None = None
        self._started = False

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
                that does not fit; a row is no insert and the table has no primary key.
        """
        if batch.num_rows == 0:
            return
        self._begin()
        if batch.schema.get_field_index(VALUE_KIND) < 0:
            kinds = np.full(batch.num_rows, RowKind.INSERT.value, np.int8)
            batch = batch.append_column(VALUE_KIND, pa.array(kinds))
        batch = without_ignored(batch, self._table.schema, self._table.options)
        if batch.num_rows == 0:
            return
        self._rows += batch.num_rows
        for partition, bucket, part in self._placement.place(batch):
            self._writer(partition, bucket).write(part)

    def compact(
        self, *, full: bool = False, partition: bytes | None = None, bucket: int | None = None
    ) -> bool:
        """Compact written and existing rows.

        On an append table without buckets only existing ones.

        Args:
            full: merge everything into the last level; otherwise only what is due.
            partition: only this one (framed).

        Returns:
            Whether anything was compacted.
        """
        self._begin()
        snapshot = self._pinned
        if self._mode is BucketMode.UNAWARE:
            if snapshot is None or self._merged:
                return False
            self._merged = compact_unaware(self._table, snapshot, full=full, partition=partition)
            return bool(self._merged)
        if self._mode is BucketMode.POSTPONE:
            return False  # a compaction assigns the buckets: `compact_table`
        if snapshot is not None:
            entries = live_entries(self._table, snapshot, partition=partition, bucket=bucket)
            for where in sorted({(entry.partition, entry.bucket) for entry in entries}):
                self._writer(*where)
        compacted = False
        for (part, number), writer in self._writers.items():
            if partition in (None, part) and bucket in (None, number):
                compacted = writer.compact(full=full) or compacted
        return compacted

    def prepare_commit(
        self, identifier: int | None = None, *, periodic: bool = True
    ) -> list[CommitMessage]:
        """Flush everything, compact what is due, and hand it over.

        Args:
            identifier: of the commit that is to come. Periodic compactions (the producer
                full-compaction, `full-compaction.delta-commits`, gentle lookup compaction) go by
                it; they take in buckets that were written by earlier commits, too (not with
                `share`). None: where the table asks for such, the one after the last that
                `commit_user` has committed, 1 at first.
            periodic: whether to carry periodic compactions out; not where another job does.

        Returns:
            One message per bucket; buckets without changes are left out.
        """
        if not periodic:
            identifier = None
        elif identifier is None:
            identifier = self._next_identifier()
        self._open_due(identifier)
        messages, self._merged = self._merged, []
        with discarded_on(self._table, messages), durable_together():
            self._finish_writers(identifier, messages)
            result = without_changelog(self._table, messages) if self._overwrite else messages
            result = _with_indexes(result, self._placement.finish())
            if self._stages:
                latest = self._pinned or self._table.latest_snapshot()
                result = into_buckets(self._table, result, latest, overwrite=self._overwrite)
        indexed = self._mode is BucketMode.CROSS_PARTITION and not self._overwrite
        base = (0 if self._pinned is None else self._pinned.id) if indexed else None
        self._writers.clear()
        self._pinned, self._started = None, False
        return [
            dataclasses.replace(message, index_base=None if message.data.empty else base)
            for message in result
            if not (message.data.empty and message.compact.empty)
        ]

    def close(self) -> None:
        """Remove files that were not handed over. May be called twice."""
        writers, self._writers = self._writers, {}
        merged, self._merged = self._merged, []
        for writer in writers.values():
            writer.close()
        delete_uncommitted(self._table, merged)
        self._placement.close()

    def _next_identifier(self) -> int | None:
        """The identifier of the next commit, where compactions depend on it."""
        if not self._compaction or self._overwrite or not self._sole_writer:
            return None
        if not has_period(self._table.options):
            return None
        latest = self._pinned if self._started else self._table.latest_snapshot()
        newest = CommitHistory(self._table, self.commit_user).newest_identifier(latest)
        if newest is None:
            return 1
        return newest if newest == BATCH_COMMIT_IDENTIFIER else newest + 1

    def _open_due(self, identifier: int | None) -> None:
        if identifier is None or not (self._compaction and self._sole_writer) or self._overwrite:
            return
        latest = self._pinned if self._started else self._table.latest_snapshot()
        due = buckets_due(self._table, latest, identifier, resuming=self._resuming)
        self._resuming = False
        if due:
            self._begin()
            for where in due:
                self._writer(*where)

    def _finish_writers(self, identifier: int | None, messages: list[CommitMessage]) -> None:
        """Append the messages of all buckets, in their order; after an error those that exist."""
        writers = [self._writers[where] for where in sorted(self._writers)]
        threads = min(self._threads, len(writers), self._rows // _ROWS_OF_A_THREAD)
        self._rows = 0
        if threads < 2:
            messages.extend(writer.prepare_commit(identifier) for writer in writers)
        else:
            _side_by_side(
                lambda each: [each.prepare_commit(identifier)], writers, threads, messages
            )

    def _begin(self) -> None:
        if self._started:
            return
        latest = self._table.latest_snapshot()
        self._placement.begin(latest)
        self._pinned = None if self._overwrite else latest
        self._started = True

    def _writer(self, partition: bytes, bucket: int) -> BucketWriter:
        writer = self._writers.get((partition, bucket))
        if writer is None:
            writer = open_bucket(
                self._table,
                partition,
                bucket,
                self._pinned,
                compaction=self._compaction and self._placement.owns(bucket),
                commit_user=self.commit_user,
            )
            writer.skip_sequence_numbers(self._skipped_numbers)
            self._writers[(partition, bucket)] = writer
        return writer


class _Placement:
    """Assigns rows to buckets by the row alone. Base of the other placements."""

    def __init__(self, table: TableCore) -> None:
        self._table = table

    def begin(self, snapshot: Snapshot | None) -> None:
        """Start a commit interval after this snapshot."""

    def place(self, batch: pa.RecordBatch) -> Iterator[_BucketRows]:
        """Split rows by partition and bucket."""
        for partition, bucket, rows in bucket_groups(batch, self._table):
            yield partition, bucket, batch if rows is None else by_key(batch, rows, self._table)

    def owns(self, bucket: int) -> bool:
        """Whether no other process writes to a bucket, so that it may be compacted here."""
        return True

    def finish(self) -> Mapping[BucketId, IndexChange]:
        """End the interval: what changes in the table's indexes."""
        return {}

    def close(self) -> None:
        """Release resources."""


class _DynamicPlacement(_Placement):
    def __init__(self, table: TableCore, share: AssignerShare | None, *, fresh: bool) -> None:
        super().__init__(table)
        self._buckets = DynamicBuckets(table, share, fresh=fresh)
        self._share = share or AssignerShare()

    def begin(self, snapshot: Snapshot | None) -> None:
        self._buckets.begin(index_files(self._table, snapshot, IndexType.HASH))

    def place(self, batch: pa.RecordBatch) -> Iterator[_BucketRows]:
        hashes = key_hashes(batch, self._table)
        for partition, rows in partition_groups(batch, self._table):
            partition_hashes = hashes if rows is None else hashes[rows]
            buckets = self._buckets.assign(partition, partition_hashes).astype(np.int64)
            for bucket, chosen in split_codes(buckets):
                if rows is not None:
                    chosen = rows if chosen is None else rows[chosen]
                yield partition, bucket, batch if chosen is None else batch.take(pa.array(chosen))

    def owns(self, bucket: int) -> bool:
        # other numbers of assigners may have put keys of this share there
        return self._share.owns_bucket(bucket)

    def finish(self) -> Mapping[BucketId, IndexChange]:
        return self._buckets.write_index_files()


class _CrossPartitionPlacement(_Placement):
    """Keeps the key index as long as the table holds exactly what was handed over."""

    def __init__(
        self,
        table: TableCore,
        commit_user: str,
        directory: pathlib.Path | None,
        *,
        fresh: bool,
    ) -> None:
        super().__init__(table)
        self._user = commit_user
        self._fresh = fresh  # the commit checks the keys of partitions that stay
        self._buckets = CrossPartitionBuckets(table, directory)
        self._indexed_id: int | None = None
        self._has_rows = False

    def begin(self, snapshot: Snapshot | None) -> None:
        newest = 0 if snapshot is None else snapshot.id
        if self._indexed_id is None or self._buckets.is_incomplete or not self._followed(newest):
            empty = snapshot is None or self._fresh
            self._buckets.bootstrap(None if empty or snapshot is None else snapshot.id)
        self._buckets.end_commit()
        self._indexed_id, self._has_rows = newest, False

    def place(self, batch: pa.RecordBatch) -> Iterator[_BucketRows]:
        self._has_rows = True
        yield from self._buckets.assign(batch)

    def finish(self) -> Mapping[BucketId, IndexChange]:
        self._buckets.end_commit()
        return {}

    def close(self) -> None:
        self._indexed_id = None
        self._buckets.close()

    def _followed(self, newest: int) -> bool:
        """Whether the index still matches the table."""
        own_commit = False
        if self._indexed_id is None or newest < self._indexed_id:
            return False
        try:
            for snapshot_id in range(self._indexed_id + 1, newest + 1):
                snapshot = self._table.snapshots.read(snapshot_id)
                if snapshot.commit_kind is CommitKind.COMPACT:
                    continue
                if snapshot.commit_user != self._user or own_commit:
                    return False
                own_commit = True
        except NotFoundError:
            return False
        return own_commit == self._has_rows


class _PostponedPlacement(_Placement):
    """All rows of a partition into its postponed bucket."""

    def place(self, batch: pa.RecordBatch) -> Iterator[_BucketRows]:
        for partition, rows in partition_groups(batch, self._table):
            part = batch if rows is None else batch.take(pa.array(rows))
            yield partition, POSTPONE_BUCKET, part


def _placement(
    table: TableCore,
    mode: BucketMode,
    commit_user: str,
    share: AssignerShare | None,
    index_directory: pathlib.Path | None,
    *,
    overwrite: bool,
) -> _Placement:
    if mode is BucketMode.DYNAMIC:
        return _DynamicPlacement(table, share, fresh=overwrite)
    if mode is BucketMode.POSTPONE:
        return _PostponedPlacement(table)
    if mode is not BucketMode.CROSS_PARTITION:
        return _Placement(table)
    return _CrossPartitionPlacement(table, commit_user, index_directory, fresh=overwrite)


def _with_indexes(
    messages: Iterable[CommitMessage], changes: Mapping[BucketId, IndexChange]
) -> list[CommitMessage]:
    """The messages, with the new index file of each bucket in its own."""
    result = []
    for message in messages:
        change = changes.get((message.partition, message.bucket))
        if change is not None:
            data = dataclasses.replace(
                message.data, new_index_files=change.new, deleted_index_files=change.deleted
            )
            message = dataclasses.replace(message, data=data)
        result.append(message)
    return result


def buckets_due(
    table: TableCore, snapshot: Snapshot | None, identifier: int | None, *, resuming: bool = False
) -> tuple[BucketId, ...]:
    """Buckets to open for a commit besides those that get rows (SEMANTICS.md §C.3, §D.7).

    What was written since the last full compaction is derived from the levels of the table, not
    remembered: so it is the same after a restart, in any process, and for writers that live for
    one commit. The price: rows of other jobs count as well, so one stream per table should ask
    for periodic full compactions.

    Open each of them with `open_bucket` and commit its `prepare_commit(identifier)` with the
    others; it does nothing where nothing is due.

    Args:
        snapshot: the one the commit builds on; None = none, and no bucket is due.
        identifier: of the commit; None = of no stream.
        resuming: also buckets whose level 0 should have been compacted by earlier commits, as
            after a crash between the two snapshots of a commit. For the first commit of a job:
            level 0 of another job that is about to commit its compaction looks the same.

    Returns:
        In ascending order, without buckets written with another number of buckets.
    """
    options = table.options
    if snapshot is None or identifier is None or not table.schema.primary_keys:
        return ()
    fully = merges_everything(options, identifier)
    gentle = options.lookup_compact == "gentle"
    if not fully and not ((resuming or gentle) and merges_level_0(options, identifier)):
        return ()
    buckets = live_buckets(
        table, snapshot, lambda _partition, _bucket, total: total == options.bucket, lambda _: True
    )
    due = _unmerged if fully else _has_level_0
    return tuple(sorted(where for where, entries in buckets.items() if due(entries, options)))


def _unmerged(entries: tuple[ManifestEntry, ...], options: TableOptions) -> bool:
    last = max(options.num_levels - 1, *(entry.file.level for entry in entries))
    return any(entry.file.level != last for entry in entries)


def _has_level_0(entries: tuple[ManifestEntry, ...], _options: TableOptions) -> bool:
    return any(entry.file.level == 0 for entry in entries)


# Rows that several tasks wrote before their buckets were known.
#
# Where no task sees all rows of a key (a Spark job whose rows are not shuffled by key), tasks stage
# their rows as files of the postponed bucket, and the committing process assigns their buckets: in
# the order of the tasks, through the index of a table with dynamic buckets, into the real buckets
# of a postponed table, or as postponed rows.


Table = TypeVar("Table", bound=TableCore)


def is_staged(table: TableCore) -> bool:
    """Whether tasks that do not see all rows of a key must stage them."""
    return bucket_mode(table.schema, table.options) in (BucketMode.DYNAMIC, BucketMode.POSTPONE)


def staging(table: Table) -> Table:
    """The table as tasks write it."""
    return at_buckets(table, POSTPONE_BUCKET)


def place_staged(
    table: TableCore,
    staged: Sequence[CommitMessage],
    *,
    overwrite: bool = False,
    batch: bool = True,
) -> list[CommitMessage]:
    """Assign buckets to staged rows; the messages are to be committed.

    Args:
        staged: of writers of `staging(table)`, in the order in which their rows count. Their files
            are removed, unless the rows stay postponed.
    """
    if bucket_mode(table.schema, table.options) is BucketMode.DYNAMIC:
        return _assigned(table, staged, overwrite=overwrite)
    snapshot = table.latest_snapshot()
    if batch and table.options.postpone_batch_write_fixed_bucket:
        return into_buckets(table, staged, snapshot, overwrite=overwrite)
    newest: dict[bytes, int] = {}
    placed = []
    for message in staged:
        partition = message.partition
        if partition not in newest:
            live = (
                () if snapshot is None else live_files(table, snapshot, partition, POSTPONE_BUCKET)
            )
            newest[partition] = newest_creation(live)
        files = tuple(in_commit_order(message.data.new_files, newest[partition]))
        newest[partition] = newest_creation(files, newest[partition])
        data = dataclasses.replace(message.data, new_files=files)
        placed.append(dataclasses.replace(message, data=data))
    return placed


_Item = TypeVar("_Item")


def _side_by_side(
    work: Callable[[_Item], Iterable[CommitMessage]],
    items: Sequence[_Item],
    threads: int,
    messages: list[CommitMessage],
) -> None:
    """Append the messages of all items, in their order; after an error, of those without one."""
    with ThreadPoolExecutor(threads, "bucket") as pool:
        futures = [pool.submit(work, item) for item in items]
    failure: BaseException | None = None
    for future in futures:
        error = future.exception()
        failure = failure or error
        if error is None:
            messages += future.result()
    if failure is not None:
        raise failure


def _assigned(
    table: TableCore, staged: Sequence[CommitMessage], *, overwrite: bool
) -> list[CommitMessage]:
    """Messages of buckets that the indexes of partitions assign, with one thread per share."""
    shares = AssignerShare.all_of(table.options)
    messages: list[CommitMessage] = []
    assign = functools.partial(_of_share, table, staged, overwrite=overwrite)
    with discarded_on(table, messages):
        _side_by_side(assign, shares, len(shares), messages)
    delete_uncommitted(table, staged)
    return messages


def _of_share(
    table: TableCore, staged: Sequence[CommitMessage], share: AssignerShare, *, overwrite: bool
) -> list[CommitMessage]:
    """The messages of one assigner: of the staged rows with its keys."""
    with TableWrite(
        table, "staged", compaction=False, overwrite=overwrite, share=share, threads=1
    ) as writer:
        for message in staged:
            context = bucket_context(table, message.partition, POSTPONE_BUCKET)
            for batch in read_postponed(context, message.data.new_files):
                writer.write(_owned_rows(batch, table, message.partition, share))
        return writer.prepare_commit()


def _owned_rows(
    batch: pa.RecordBatch, table: TableCore, partition: bytes, share: AssignerShare
) -> pa.RecordBatch:
    if share.channels == 1:
        return batch
    numbers = share.numbers_of(partition, key_hashes(batch, table))
    return batch.take(pa.array(np.flatnonzero(numbers == share.number)))
