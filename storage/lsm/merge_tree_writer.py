# SPDX-License-Identifier: Apache-2.0
"""The writer of one bucket: buffer, flush to level 0, inline compaction, one commit message.

A conductor: sorting and merging are in `merge`, the choice of compactions in
`compaction_policy` and `commit_cadence`, their execution in `compactor`. Source: SEMANTICS.md §A.5,
§C.1, §D.2, §D.3, §D.6, §D.7.
"""

import dataclasses
from collections.abc import Sequence
from typing import Any

import numpy as np
import pyarrow as pa

from storage.errors import InternalError
from storage.format.files.data_file import key_value_schema
from storage.format.metadata.file_meta import (
    CommitMessage,
    CompactIncrement,
    DataFileMeta,
    DataIncrement,
    FileSource,
)
from storage.lsm.bucket import BucketContext
from storage.lsm.commit_cadence import merges_everything, merges_level_0
from storage.lsm.compaction_policy import CompactionPolicy, CompactUnit, pick
from storage.lsm.compactor import compact
from storage.lsm.key_order import sort_and_group
from storage.lsm.levels import Levels
from storage.lsm.merge import MERGE_WINDOW_BYTES, in_merge_order, merge_rows
from storage.lsm.merge_functions import merge_function_for
from storage.lsm.merge_functions.fold import naming_table
from storage.lsm.merge_functions.sequence_order import SequenceOrder
from storage.lsm.write_rules import accept_rows

__all__ = ["BucketContext", "MergeTreeWriter"]

_HOUR_MS = 3_600_000


class MergeTreeWriter:
    """Takes rows of one bucket in arrival order and turns them into files.

    Protocol:
    1. Construct with the files that are live in the snapshot the next commit builds on. At most
       one writer per bucket at a time.
    2. `write` any number of batches. Rows get growing sequence numbers. A full buffer is flushed
       by itself; compactions that are due run inside the same call.
    3. `prepare_commit` flushes, compacts, and hands over everything since the last one as a
       `CommitMessage`. From then on the committer owns those files. Of a table that looks up, it
       also compacts level 0, so that the changelog and the deletion vectors of what was written
       are in the same commit (`commit_cadence` says when).
    4. Only if that message was committed completely may the writer continue with 2. If the commit
       failed, or its compaction was dropped, create a new writer from the newest snapshot.
    5. `close` at the end. Files that were never handed over are removed.

    After an exception only `close` is allowed.

    Invariants: `levels` are the live files plus what this writer added; after `prepare_commit`
    of a compacting writer no more sorted runs than the stop trigger; every file in `levels`
    exists in the store.

    Args:
        restored_files: live files of the bucket, any order.
        compaction: False: leave compaction to another job, as `write-only` does.
    """

    def __init__(
        self,
        context: BucketContext,
        restored_files: Sequence[DataFileMeta],
        *,
        compaction: bool = True,
    ) -> None:
        options = context.options
        self._context = context
        self._compacts = compaction and not options.write_only
        self._policy = CompactionPolicy.of(options)
        self._function = merge_function_for(options, context.schema)
        self._arrow_schema = key_value_schema(context.schema)
        self._key_of = context.key_of
        self._levels = Levels.of(restored_files, options.num_levels, self._key_of)
        self._next_sequence = 1 + max((f.max_sequence_number for f in restored_files), default=-1)
        self._last_full_ms = _newest_of_last_level(self._levels)
        self._buffer: list[pa.RecordBatch] = []
        self._buffer_bytes = 0
        self._new_files: list[DataFileMeta] = []
        self._new_changelog: list[DataFileMeta] = []
        self._changes = _CompactChanges()
        self._in_memory: dict[str, pa.RecordBatch] = {}

    @property
    def levels(self) -> Levels:
        """The files of the bucket as this writer sees them."""
        return self._levels

    @property
    def sorted_run_count(self) -> int:
        """Sorted runs of the bucket, the buffer not counted."""
        return self._levels.run_count

    def skip_sequence_numbers(self, count: int) -> None:
        """Leave numbers to other writers of this bucket whose rows come before this one's."""
        self._next_sequence += count

    def write(self, batch: pa.RecordBatch) -> None:
        """Take rows.

        Rows are value columns and `_VALUE_KIND`, all of this bucket, in arrival order.

        Raises:
            InvalidRequestError: a NOT NULL column holds null, or a value does not fit.
            StorageUnavailableError: the store failed during a flush or compaction.
        """
        kinds, columns = accept_rows(batch, self._context.schema, self._context.options)
        rows = len(kinds)
        if rows == 0:
            return
        end = self._next_sequence + rows
        sequence = pa.array(np.arange(self._next_sequence, end, dtype=np.int64))
        self._next_sequence = end
        stamped = pa.RecordBatch.from_arrays([sequence, kinds, *columns], schema=self._arrow_schema)
        self._buffer.append(stamped)
        self._buffer_bytes += stamped.nbytes
        if self._buffer_bytes >= self._context.options.write_buffer_size:
            self.flush()

    def flush(self) -> None:
        """Write the buffer as level-0 files, then run the compactions that are due."""
        if not self._buffer:
            return
        batches, self._buffer, self._buffer_bytes = self._buffer, [], 0
        if self._context.options.changelog_producer == "input":
            files = _write_input_changelog(batches, self._function.sequence, self._context)
            self._new_changelog.extend(files)
        with naming_table(self._context.layout.root):
            merged = merge_rows(batches, self._context.key_names, self._function)
        if merged.num_rows == 0:
            return
        writer = self._context.open_writer(0, FileSource.APPEND)
        try:
            writer.write(merged)
            files = writer.close()
        except BaseException:
            writer.abort()
            raise
        self._new_files.extend(files)
        self._levels = self._levels.replace((), files, self._key_of)
        if self._compacts:
            kept = len(files) == 1 and merged.nbytes <= MERGE_WINDOW_BYTES
            self._in_memory = {files[0].file_name: merged} if kept else {}
            self._compact_while_due()

    def compact(self, *, full: bool = False) -> bool:
        """Flush, then compact; also for a writer that does not compact by itself.

        Args:
            full: merge everything into the last level, and rewrite the files there that lost
                rows; otherwise only what is due, to which level 0 of a table that looks up
                always belongs.

        Returns:
            Whether any file was merged or moved.
        """
        self.flush()
        if full:
            return self._compact_fully()
        return self._compact_while_due(force_level_0=self._context.options.needs_lookup)

    def prepare_commit(self, identifier: int | None = None) -> CommitMessage:
        """Flush, compact until the stop trigger is kept, and hand over what changed.

        Args:
            identifier: of the commit, on which periodic compactions depend; None = the commit is
                not one of a stream.

        Returns:
            The bucket's part of the commit; both increments are empty when nothing was written.
            A file in `compact.compact_before` may be one of `data.new_files`.
        """
        options = self._context.options
        self.flush()
        if self._compacts and merges_everything(options, identifier):
            self._compact_fully()
        elif self._compacts:
            self._compact_while_due(force_level_0=merges_level_0(options, identifier))
            while self._levels.run_count > self._policy.stop_trigger:
                unit = self._pick(force_file_number=True)
                if unit is None:
                    raise InternalError(
                        "no compaction can reduce the sorted runs",
                        runs=self._levels.run_count,
                        stop_trigger=self._policy.stop_trigger,
                    )
                self._carry_out(unit)
        message = CommitMessage(
            partition=self._context.partition,
            bucket=self._context.bucket,
            total_buckets=options.bucket,
            data=DataIncrement(
                new_files=tuple(self._new_files), changelog_files=tuple(self._new_changelog)
            ),
            compact=self._compact_increment(),
        )
        self._new_files, self._new_changelog = [], []
        self._changes, self._in_memory = _CompactChanges(), {}
        return message

    def close(self) -> None:
        """Drop the buffer and remove files that were not handed over. May be called twice."""
        self._buffer, self._buffer_bytes = [], 0
        new_files = [*self._new_files, *self._new_changelog]
        self._new_files, self._new_changelog = [], []
        changes, self._changes = self._changes, _CompactChanges()
        self._context.delete_files([*new_files, *changes.written(), *changes.changelog])

    def __enter__(self) -> "MergeTreeWriter":
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def _compact_while_due(self, *, force_level_0: bool = False) -> bool:
        compacted_any = False
        while (unit := self._pick(force_level_0=force_level_0)) is not None:
            self._carry_out(unit)
            compacted_any = True
        return compacted_any

    def _compact_fully(self) -> bool:
        unit = self._pick(full=True)
        if unit is None:
            return False
        self._carry_out(unit)
        return True

    def _pick(
        self,
        *,
        full: bool = False,
        force_level_0: bool = False,
        force_file_number: bool = False,
    ) -> CompactUnit | None:
        now_ms = self._context.clock.local_wall_ms()
        return pick(
            self._levels,
            self._policy,
            full=full,
            force_level_0=force_level_0,
            force_file_number=force_file_number,
            now_ms=now_ms,
            hour=now_ms // _HOUR_MS % 24,
            last_full_ms=self._last_full_ms,
            stale=self._stale,
        )

    def _stale(self, file: DataFileMeta) -> bool:
        """Whether a full compaction rewrites a file that is where it should be."""
        if self._context.options.compaction_force_rewrite_all_files:
            return True
        deletions = self._context.deletions
        if deletions is not None and deletions.vector_of(file.file_name) is not None:
            return True
        return self._context.expires_rows(file)

    def _carry_out(self, unit: CompactUnit) -> None:
        context = dataclasses.replace(self._context, in_memory=self._in_memory)
        increment = compact(unit, context, self._levels)
        self._levels = self._levels.replace(
            increment.compact_before, increment.compact_after, self._key_of
        )
        if unit.output_level == unit.max_level:
            self._last_full_ms = self._context.clock.local_wall_ms()
        self._context.delete_files(self._changes.add(increment))

    def _compact_increment(self) -> CompactIncrement:
        increment = self._changes.increment()
        deletions = self._context.deletions
        if deletions is None:
            return increment
        new, replaced = deletions.changes()
        return dataclasses.replace(increment, new_index_files=new, deleted_index_files=replaced)


class _CompactChanges:
    """The compactions of one commit interval taken together.

    A file that one compaction wrote and a later one consumed is in neither list. `before` and
    `after` are keyed by file name; a name is in both when the file was upgraded.
    """

    def __init__(self) -> None:
        self.before: dict[str, DataFileMeta] = {}
        self.after: dict[str, DataFileMeta] = {}
        self.changelog: list[DataFileMeta] = []

    def add(self, increment: CompactIncrement) -> list[DataFileMeta]:
        """Take in a compaction; files that no snapshot will name, to be removed from the store."""
        again = {file.file_name for file in increment.compact_after}
        garbage: list[DataFileMeta] = []
        for file in increment.compact_before:
            name = file.file_name
            if self.after.pop(name, None) is None:
                self.before[name] = file
            elif name not in self.before and name not in again:
                garbage.append(file)
        self.after.update((file.file_name, file) for file in increment.compact_after)
        self.changelog.extend(increment.changelog_files)
        return garbage

    def written(self) -> list[DataFileMeta]:
        """Files that compaction wrote, without those it only upgraded."""
        return [file for name, file in self.after.items() if name not in self.before]

    def increment(self) -> CompactIncrement:
        """What to commit."""
        return CompactIncrement(
            compact_before=tuple(self.before.values()),
            compact_after=tuple(self.after.values()),
            changelog_files=tuple(self.changelog),
        )


def _newest_of_last_level(levels: Levels) -> int | None:
    last: Any = levels.upper[-1] if levels.upper else None
    times = () if last is None else tuple(file.creation_time_ms or 0 for file in last.files)
    return max(times, default=None)


def _write_input_changelog(
    batches: Sequence[pa.RecordBatch], sequence: SequenceOrder | None, context: BucketContext
) -> tuple[DataFileMeta, ...]:
    """Write all rows of a buffer with their kinds: by key, those of one key in merge order."""
    batch = batches[0] if len(batches) == 1 else pa.concat_batches(batches)
    groups = in_merge_order(batch, sort_and_group(batch, context.key_names), sequence)
    if groups.order is not None:
        batch = batch.take(pa.array(groups.order))
    writer = context.open_changelog_writer(0)
    try:
        writer.write(batch)
        return tuple(writer.close())
    except BaseException:
        writer.abort()
        raise
