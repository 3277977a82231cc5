# SPDX-License-Identifier: Apache-2.0
"""The writer of one bucket: buffer, flush to level 0, inline compaction, one commit message.

A conductor: sorting and merging are in `merge`, the choice of compactions in
`compaction_policy` and `commit_cadence`, their execution in `compactor`. Source: SEMANTICS.md §A.5,
§C.1, §D.2, §D.3, §D.6, §D.7.
"""

import dataclasses
from collections.abc import Callable, Iterable, Sequence

import numpy as np
import pyarrow as pa

from storage.errors import InternalError
from storage.format.files.data_file import KeyValueFileWriter, key_value_schema
from storage.format.metadata.file_meta import (
    CommitMessage,
    CompactIncrement,
    DataFileMeta,
    DataIncrement,
    FileSource,
)
from storage.io.local import durable_together
from storage.lsm.bucket import BucketContext
from storage.lsm.changelog import Merged, Merging, upgrade_of
from storage.lsm.compaction_policy import CompactionPolicy, CompactUnit, pick
from storage.lsm.key_order import sort_and_group
from storage.lsm.levels import KeyOf, Levels, Section, SortedRun, sections
from storage.lsm.merge import MERGE_WINDOW_BYTES, in_merge_order, merge_rows
from storage.lsm.merge_functions import merge_function_for
from storage.lsm.merge_functions.segments import SequenceOrder, naming_table
from storage.lsm.write_rules import accept_rows, merges_everything, merges_level_0

# Carrying out one compact unit: which files are rewritten, which only change their level.
#
# Source: SEMANTICS.md §D.6. The plan is pure (`plan_unit`); carrying it out streams with bounded
# memory. Nothing here touches a snapshot: the caller commits the increment.


@dataclasses.dataclass(frozen=True, slots=True)
class UnitPlan:
    """What happens to the files of a unit.

    Attributes:
        rewrites: groups of neighbouring sections, ascending by key; each group becomes one series
            of rolling files.
        upgrades: files that stay as they are and move to the output level.
        unchanged: files that stay as they are, in their level.
    """

    rewrites: tuple[tuple[Section, ...], ...]
    upgrades: tuple[DataFileMeta, ...]
    unchanged: tuple[DataFileMeta, ...]


def plan_unit(
    unit: CompactUnit,
    key_of: KeyOf,
    *,
    small_file_bytes: float,
    rewrite_all: bool = False,
    expires: Callable[[DataFileMeta], bool] = lambda _: False,
) -> UnitPlan:
    """Decide file by file between rewriting and upgrading. Pure.

    Sections of several runs are merged. Files that are alone in their section are merged with
    neighbouring candidates when small, and upgraded otherwise, unless that puts retractions into
    the last level.

    Args:
        unit: the files and the output level.
        key_of: comparable form of a framed key.
        small_file_bytes: files below are rewritten with their neighbours [bytes].
        rewrite_all: rewrite what could be upgraded.
        expires: whether rows of a file have grown too old to be kept.
    """
    rewrites: list[tuple[Section, ...]] = []
    single_files: list[DataFileMeta] = []
    candidates: list[Section] = []

    def flush() -> None:
        if len(candidates) == 1 and len(candidates[0]) == 1:
            single_files.extend(candidates[0][0].files)
        elif candidates:
            rewrites.append(tuple(candidates))
        candidates.clear()

    for section in sections(unit.files, key_of):
        if len(section) > 1:
            candidates.append(section)
            continue
        for file in section[0].files:
            if file.file_size < small_file_bytes:
                candidates.append((SortedRun(file.level, (file,)),))
            else:
                flush()
                single_files.append(file)
    flush()
    upgrades: list[DataFileMeta] = []
    unchanged: list[DataFileMeta] = []
    for file in single_files:
        retracts = unit.output_level == unit.max_level and file.delete_row_count != 0
        if rewrite_all or retracts or expires(file):
            rewrites.append(((SortedRun(file.level, (file,)),),))
        else:
            (unchanged if file.level == unit.output_level else upgrades).append(file)
    return UnitPlan(tuple(rewrites), tuple(upgrades), tuple(unchanged))


def compact(
    unit: CompactUnit,
    context: BucketContext,
    levels: Levels,
    *,
    window_bytes: int = MERGE_WINDOW_BYTES,
) -> CompactIncrement:
    """Merge the files of a unit into its output level, and write the changelog of that.

    Rows keep their sequence numbers; of merged rows the last one's number is kept. Retractions
    are dropped if the unit demands it. Rows that newer ones replace are marked in
    `context.deletions`, whose changes the caller writes. The files of `compact_before` still exist
    afterwards.

    Args:
        unit: what to merge, from `compaction_policy.pick`.
        context: the bucket.
        levels: all its files, those of the unit included.
        window_bytes: Arrow memory of the merge [bytes].

    Returns:
        The files replaced and the files that take their place, and changelog files. Files that
        stay where they are are in neither.

    Raises:
        StorageUnavailableError: the store failed; files written so far are removed.
        CorruptDataError: an input file violates the format.
        InvalidRequestError: the merge engine cannot merge the rows of a key.
    """
    options = context.options
    if unit.each_alone:
        plan = _each_alone(unit)
    else:
        plan = plan_unit(
            unit,
            context.key_of,
            small_file_bytes=options.target_file_size * options.compaction_small_file_ratio,
            rewrite_all=options.compaction_force_rewrite_all_files,
            expires=context.expires_rows,
        )
    merging = Merging(unit, context, levels, window_bytes)
    output = _Output(unit, context)
    moved_files: list[DataFileMeta] = []
    try:
        with naming_table(context.layout.root):
            for group, moves in _in_key_order(plan, context.key_of):
                if not moves:
                    output.rewrite(merging.windows(group, unit.drop_deletes))
                    continue
                (file,) = _files(group)
                upgrade = upgrade_of(file, unit, options, context.deletions is not None)
                if upgrade.rewrites:
                    output.rewrite(merging.windows(group, context.deletions is not None))
                    continue
                moved_files.append(file)
                if upgrade.emits_changelog and merging.matters:
                    output.emit(merging.windows(group, drop_retractions=False))
        new_files, changelog = output.close()
    except BaseException:
        output.abort()
        raise
    live_names = {file.file_name for file in (*moved_files, *plan.unchanged)}
    rewritten = [file for file in unit.files if file.file_name not in live_names]
    if context.deletions is not None:
        for file in rewritten:
            context.deletions.drop(file.file_name)
    if context.lookup is not None:
        context.lookup.release(rewritten)
    return CompactIncrement(
        compact_before=(*rewritten, *moved_files),
        compact_after=(*new_files, *(file.at_level(unit.output_level) for file in moved_files)),
        changelog_files=changelog,
    )


Group = tuple[Section, ...]


def _each_alone(unit: CompactUnit) -> UnitPlan:
    return UnitPlan(tuple(((SortedRun(file.level, (file,)),),) for file in unit.files), (), ())


def _in_key_order(plan: UnitPlan, key_of: KeyOf) -> list[tuple[Group, bool]]:
    """What is rewritten and what may move (True), ascending by key."""
    steps: list[tuple[Group, bool]] = [(group, False) for group in plan.rewrites]
    steps += [(((SortedRun(file.level, (file,)),),), True) for file in plan.upgrades]
    return sorted(steps, key=lambda step: min(key_of(file.min_key) for file in _files(step[0])))


def _files(group: Group) -> Iterable[DataFileMeta]:
    return (file for section in group for run in section for file in run.files)


class _Output:
    """The files that one compaction writes. `close` or `abort` ends it."""

    def __init__(self, unit: CompactUnit, context: BucketContext) -> None:
        self._level = unit.output_level
        self._context = context
        self._written: list[DataFileMeta] = []
        self._changelog: KeyValueFileWriter | None = None

    def rewrite(self, windows: Iterable[Merged]) -> None:
        """Write rows as one series of files, and their changes."""
        writer = self._context.open_writer(self._level, FileSource.COMPACT)
        try:
            for merged in windows:
                writer.write(merged.rows)
                self._emit(merged)
            self._written.extend(writer.close())
        except BaseException:
            writer.abort()
            raise

    def emit(self, windows: Iterable[Merged]) -> None:
        """Write only the changes."""
        for merged in windows:
            self._emit(merged)

    def _emit(self, merged: Merged) -> None:
        if merged.changes is None or not merged.changes.num_rows:
            return
        if self._changelog is None:
            self._changelog = self._context.open_changelog_writer(self._level)
        self._changelog.write(merged.changes)

    def close(self) -> tuple[tuple[DataFileMeta, ...], tuple[DataFileMeta, ...]]:
        """Finish; the data files and the changelog files."""
        changelog = () if self._changelog is None else self._changelog.close()
        return tuple(self._written), tuple(changelog)

    def abort(self) -> None:
        """Remove everything written."""
        if self._changelog is not None:
            self._changelog.abort()
        self._context.delete_files(self._written)


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
        self._last_full_ms = self._levels.last_full_ms
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
        self._finish_files(identifier)
        message = CommitMessage(
            partition=self._context.partition,
            bucket=self._context.bucket,
            total_buckets=self._context.options.bucket,
            data=DataIncrement(
                new_files=tuple(self._new_files), changelog_files=tuple(self._new_changelog)
            ),
            compact=self._compact_increment(),
        )
        self._new_files, self._new_changelog = [], []
        self._changes, self._in_memory = _CompactChanges(), {}
        return message

    @durable_together()
    def _finish_files(self, identifier: int | None) -> None:
        """Write what a commit needs; until it is durable the files are this writer's."""
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
