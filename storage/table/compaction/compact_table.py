# SPDX-License-Identifier: Apache-2.0
"""Dedicated compaction of one table, safe beside concurrent writers.

Buckets are compacted by the workers of an executor, each independently and from the newest snapshot
at that time, so memory is bounded by the number of workers. Finished buckets are committed in
groups, each by a commit user of its own.

A lost race costs compactions and nothing else. Before a group is committed the buckets
whose files another writer has removed are left out; if the commit still loses, the group is
dropped. The files of a dropped compaction are removed, its buckets are compacted again from the
newest snapshot, each committed by itself, and given up after a few tries. Killed at any moment, a
compaction leaves whole commits and files that no snapshot references.
"""

import collections
import contextlib
import dataclasses
import logging
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import FIRST_COMPLETED, BrokenExecutor, Executor, Future, wait
from typing import TYPE_CHECKING, Any

from storage.errors import (
    CommitConflictError,
    LakewardError,
    NotFoundError,
    StorageUnavailableError,
)
from storage.format.metadata.file_meta import CommitMessage, DataFileMeta, ManifestEntry
from storage.format.metadata.layout import POSTPONE_BUCKET
from storage.format.metadata.snapshot import BATCH_COMMIT_IDENTIFIER, Snapshot
from storage.lsm.compaction_policy import CompactionPolicy, pick
from storage.lsm.levels import Levels
from storage.options.options import TableOptions, require_writable
from storage.table.bucket_mode import BucketMode, require_buckets
from storage.table.commit.commit import CommitResult, FileStoreCommit
from storage.table.commit.commit_changes import delete_uncommitted
from storage.table.commit.live_files import BucketId, live_buckets, live_entries
from storage.table.compaction.append_compact import merge_packs, unaware_packs
from storage.table.core import TableCore
from storage.table.read.missing_files import explain_missing_files
from storage.table.write.bucket_writers import open_bucket
from storage.table.write.drop_partitions import chosen_partitions
from storage.table.write.postpone import at_buckets, require_bucket_counts
from storage.table.write.replay import compact_postponed

if TYPE_CHECKING:
    from storage.table.table import FileStoreTable

# The plan of a dedicated compaction: its buckets and their expected input.
#
# Source: SEMANTICS.md §D.4, §D.7, §G.5. The plan is made from one snapshot without touching a data
# file. It leaves out only buckets that certainly need no compaction; whether a bucket is compacted,
# and which of its files, is decided at its execution, from the newest snapshot then.


_HOUR_MS = 3_600_000


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class CompactRequest:
    """The scope of a compaction.

    Attributes:
        full: merge everything into the last level; otherwise only what is due.
        partitions: values of partition columns by name; a partition is selected when it has all
            values of one of them. Empty: all partitions.
        idle_ms: only partitions that got no file for this long [ms]; None: all.
        leave: buckets that are excluded.
        only: framed partitions, besides `partitions`; None: all.
    """

    full: bool = True
    partitions: tuple[Mapping[str, Any], ...] = ()
    idle_ms: int | None = None
    leave: frozenset[BucketId] = frozenset()
    only: frozenset[bytes] | None = None


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class BucketWork:
    """One piece of work: a bucket, or some files of a partition without buckets.

    Attributes:
        partition: framed.
        bucket: bucket id; -2: the postponed rows of the partition, and all its buckets.
        total_buckets: number of buckets its files were written with.
        pack: names of the files to merge on a table without buckets; None elsewhere.
        files: live files, as planned.
        rows: in them.
        size: of them [bytes].
        runs: sorted runs; files on an append table.
        taken_files: files the compaction would take.
        taken_size: of them [bytes].
        output_level: level of the result; 0 on an append table.
    """

    partition: bytes
    bucket: int
    total_buckets: int
    pack: tuple[str, ...] | None = None
    files: int
    rows: int
    size: int
    runs: int
    taken_files: int
    taken_size: int
    output_level: int = 0


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class CompactionPlan:
    """The planned work.

    Attributes:
        snapshot_id: the state it was made from; None on a table without snapshots.
        work: largest first.
        buckets: buckets of the table that the request covers.
        files: live files of these.
        size: of these [bytes].
    """

    snapshot_id: int | None
    work: tuple[BucketWork, ...] = ()
    buckets: int = 0
    files: int = 0
    size: int = 0


def plan_compaction(table: TableCore, request: CompactRequest) -> CompactionPlan:
    """Plan from the newest snapshot.

    Raises:
        InvalidRequestError: a partition column is unknown or cannot have the value.
        UnsupportedFeatureError: the table cannot be compacted; names the option.
    """
    require_writable(table.options)
    mode = require_buckets(table.schema, table.options)
    chosen = chosen_partitions(table, request.partitions)
    snapshot = table.latest_snapshot()
    if snapshot is None:
        return CompactionPlan(snapshot_id=None)
    buckets = live_buckets(
        table,
        snapshot,
        lambda partition, _bucket, _total: (
            (request.only is None or partition in request.only) and chosen(partition)
        ),
        lambda _: True,
    )
    covered = {where: entries for where, entries in buckets.items() if where not in request.leave}
    if request.idle_ms is not None:
        covered = _idle(table, covered, request.idle_ms)
    postponed = {where[0] for where in covered if where[1] == POSTPONE_BUCKET}
    work = [
        work_item
        for (partition, bucket), entries in covered.items()
        if bucket == POSTPONE_BUCKET or partition not in postponed
        for work_item in _work(table, mode, snapshot, entries, full=request.full)
    ]
    work.sort(key=lambda work_item: (-work_item.taken_size, work_item.partition, work_item.bucket))
    return CompactionPlan(
        snapshot_id=snapshot.id,
        work=tuple(work),
        buckets=len(covered),
        files=sum(map(len, covered.values())),
        size=sum(entry.file.file_size for entries in covered.values() for entry in entries),
    )


_Buckets = dict[BucketId, tuple[ManifestEntry, ...]]


def _idle(table: TableCore, buckets: _Buckets, idle_ms: int) -> _Buckets:
    """Buckets of partitions whose newest file is old enough."""
    newest: dict[bytes, int] = {}
    for (partition, _), entries in buckets.items():
        created_ms = max(entry.file.creation_time_ms or 0 for entry in entries)
        newest[partition] = max(created_ms, newest.get(partition, 0))
    latest = table.clock.local_wall_ms() - idle_ms
    return {where: entries for where, entries in buckets.items() if newest[where[0]] < latest}


def _work(
    table: TableCore,
    mode: BucketMode,
    snapshot: Snapshot,
    entries: Sequence[ManifestEntry],
    *,
    full: bool,
) -> Iterator[BucketWork]:
    files, first = [entry.file for entry in entries], entries[0]
    if first.bucket == POSTPONE_BUCKET:
        yield _compact_piece(first, files, len(files), files, 0)
        return
    if mode is BucketMode.UNAWARE:
        for pack in unaware_packs(table, snapshot, first.partition, files, full=full):
            yield _compact_piece(first, pack, len(pack), pack, 0, packed=True)
        return
    if not table.schema.primary_keys:
        if len(files) > 1 or table.options.deletion_vectors_enabled:
            yield _compact_piece(first, files, len(files), files, 0)
        return
    assert table.key_of is not None
    levels = Levels.of(files, table.options.num_levels, table.key_of)
    unit = _picked_files(table, levels, full=full)
    if unit is not None:
        yield _compact_piece(first, files, levels.run_count, *unit)


def _picked_files(
    table: TableCore, levels: Levels, *, full: bool
) -> tuple[Sequence[DataFileMeta], int] | None:
    """The files that a compaction of a bucket would take, and where it would put them."""
    now_ms = table.clock.local_wall_ms()
    unit = pick(
        levels,
        CompactionPolicy.of(table.options),
        full=full,
        force_level_0=table.options.needs_lookup,
        now_ms=now_ms,
        hour=now_ms // _HOUR_MS % 24,
        last_full_ms=levels.last_full_ms,
    )
    if unit is not None:
        return unit.files, unit.output_level
    if full and _may_be_rewritten(table.options):
        return levels.files(), levels.max_level
    return None


def _may_be_rewritten(options: TableOptions) -> bool:
    """Whether even a bucket that has only its last level may have work for a full compaction."""
    return (
        options.deletion_vectors_enabled
        or options.compaction_force_rewrite_all_files
        or options.record_level_expire_time_ms is not None
    )


def _compact_piece(
    entry: ManifestEntry,
    files: Sequence[DataFileMeta],
    runs: int,
    picked_files: Sequence[DataFileMeta],
    output_level: int,
    *,
    packed: bool = False,
) -> BucketWork:
    return BucketWork(
        partition=entry.partition,
        bucket=entry.bucket,
        total_buckets=entry.total_buckets,
        pack=tuple(file.file_name for file in files) if packed else None,
        files=len(files),
        rows=sum(file.row_count for file in files),
        size=sum(file.file_size for file in files),
        runs=runs,
        taken_files=len(picked_files),
        taken_size=sum(file.file_size for file in picked_files),
        output_level=output_level,
    )


_LOG = logging.getLogger(__name__)

_GROUP_BUCKETS = 32
"""Buckets in one commit: fewer would make too many snapshots."""

_GROUP_S = 5.0
"""How long a finished bucket waits for others [s]: the longer, the more races are lost."""

_TRIES = 4
"""How often a bucket is compacted before it is left to a later run; the first try included."""

_COMMIT_TRIES = 3
"""How often a commit of unknown outcome, or one that lost a race, is tried."""

WRITER_OPTIONS: dict[str, str | None] = {"write-only": "false", "lookup-wait": "true"}
"""A dedicated compaction does what the table's writers may leave to it."""


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class BucketFailure:
    """A bucket that could not be compacted.

    Attributes:
        partition: directory part of its partition; empty when unpartitioned.
    """

    partition: str
    bucket: int
    error: BaseException


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class CompactProgress:
    """The progress of a compaction.

    Attributes:
        buckets: planned.
        done: of these committed, unchanged, or given up.
        size: planned input [bytes].
        done_size: of this processed [bytes].
        rows: planned input, in rows of the buckets.
        done_rows: of this processed.
        files_before: live files of the buckets covered.
        files_after: the same now.
        dropped: compactions that lost a race so far.
        elapsed_s: since the start [s].
        eta_s: until the end, as far as it can be estimated [s]; None at first.
    """

    buckets: int
    done: int
    size: int
    done_size: int
    rows: int
    done_rows: int
    files_before: int
    files_after: int
    dropped: int
    elapsed_s: float
    eta_s: float | None


@dataclasses.dataclass(slots=True, kw_only=True)
class CompactReport:
    """The outcome of a compaction.

    Attributes:
        buckets: buckets covered by the request.
        planned: buckets to compact.
        compacted: buckets whose compaction was committed.
        unchanged: buckets that needed no compaction.
        dropped: compactions that lost a race and were repeated or given up.
        lost: buckets that were given up, because every attempt lost a race.
        skipped: buckets not begun because a stop was requested.
        failures: buckets that could not be compacted.
        snapshots: ids of the snapshots made.
        files_before: live files of the buckets covered, at the start.
        files_after: the same now, as far as this compaction changed it.
        read_bytes: input of the committed compactions [bytes].
        written_bytes: their output [bytes].
        changelog_rows: rows of the changelog they made.
        bucket_seconds: time of all buckets, also of those that were dropped [s].
        seconds: wall time [s].
    """

    buckets: int = 0
    planned: int = 0
    compacted: int = 0
    unchanged: int = 0
    dropped: int = 0
    lost: int = 0
    skipped: int = 0
    failures: list[BucketFailure] = dataclasses.field(default_factory=list)
    snapshots: list[int] = dataclasses.field(default_factory=list)
    files_before: int = 0
    files_after: int = 0
    read_bytes: int = 0
    written_bytes: int = 0
    changelog_rows: int = 0
    bucket_seconds: float = 0.0
    seconds: float = 0.0

    def add(
        self, messages: Sequence[CommitMessage], result: CommitResult, buckets: int | None = None
    ) -> None:
        """Add the messages of a commit whose compactions were not dropped.

        Args:
            buckets: that were planned; None: one for each message.
        """
        if result.compact_snapshot_id is not None:
            self.snapshots.append(result.compact_snapshot_id)
        self.compacted += len(messages) if buckets is None else buckets
        for increment in (message.compact for message in messages):
            before = {file.file_name: file.file_size for file in increment.compact_before}
            after = {file.file_name: file.file_size for file in increment.compact_after}
            # what only moved to another level was neither read nor written
            self.read_bytes += sum(size for name, size in before.items() if name not in after)
            self.written_bytes += sum(size for name, size in after.items() if name not in before)
            self.changelog_rows += sum(file.row_count for file in increment.changelog_files)
            self.files_after += len(after) - len(before)

    def progress(
        self, sizes: tuple[int, int], rows: tuple[int, int], elapsed_s: float
    ) -> CompactProgress:
        """The progress so far.

        Args:
            sizes: planned input, and of this processed [bytes].
            rows: the same in rows.
            elapsed_s: since the start [s].
        """
        size, done_size = sizes
        return CompactProgress(
            buckets=self.planned,
            done=self.compacted + self.unchanged + self.lost + len(self.failures),
            size=size,
            done_size=done_size,
            rows=rows[0],
            done_rows=rows[1],
            files_before=self.files_before,
            files_after=self.files_after,
            dropped=self.dropped,
            elapsed_s=elapsed_s,
            eta_s=elapsed_s * max(0, size - done_size) / done_size if done_size else None,
        )

    @property
    def complete(self) -> bool:
        """Whether everything requested is done."""
        return not (self.lost or self.skipped or self.failures)


@dataclasses.dataclass(slots=True)
class _Task:
    work: BucketWork
    tries: int = 0


_Ready = tuple[_Task, tuple[CommitMessage, ...]]
"""What is to be committed for a task."""


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class _Outcome:
    """The result of compacting one bucket.

    Attributes:
        messages: to commit; may be empty. More than one for postponed rows.
        stale: its files were removed meanwhile: start over from the newest snapshot.
        seconds: wall time [s].
    """

    messages: tuple[CommitMessage, ...]
    stale: bool
    seconds: float


def compact_table(
    table: "FileStoreTable",
    request: CompactRequest,
    executor: Executor,
    *,
    parallelism: int = 1,
    user_prefix: str = "compact",
    on_progress: Callable[[CompactProgress], None] = lambda _: None,
    stopping: Callable[[], bool] = lambda: False,
) -> CompactReport:
    """Compact the buckets of a table that need it; also of a table that is `write-only`.

    Args:
        executor: runs the compactions: threads, or processes (the table pickles).
        parallelism: buckets in work at a time; memory grows with it.
        user_prefix: begins the names of the commit users; each commit has a user of its own.
        on_progress: called after every finished bucket and every commit.
        stopping: polled; once it returns True no further bucket is begun, those in work
            are finished and committed.

    Returns:
        The outcome. A lost race and a bucket that fails do not raise: the others continue.

    Raises:
        InvalidRequestError: a partition column is unknown or cannot have the value.
        UnsupportedFeatureError: the table cannot be compacted; names the option.
        StorageUnavailableError: the store failed at planning or at a commit. What is committed
            stays; of the commit in question the outcome may be unknown.
    """
    compactable = table.with_options(WRITER_OPTIONS)
    job = _Job(compactable, request, executor, parallelism, user_prefix, on_progress, stopping)
    return job.run()


class _Job:
    def __init__(
        self,
        table: "FileStoreTable",
        request: CompactRequest,
        executor: Executor,
        parallelism: int,
        prefix: str,
        on_progress: Callable[[CompactProgress], None],
        stopping: Callable[[], bool],
    ) -> None:
        self._table = table
        self._request = request
        self._executor = executor
        self._slots = max(1, parallelism)
        self._prefix = prefix
        self._on_progress = on_progress
        self._stopping = stopping
        self._clock = table.clock
        self._began_s = table.clock.monotonic_s()
        self._todo: collections.deque[_Task] = collections.deque()
        self._running: dict[Future[_Outcome], _Task] = {}
        self._ready: list[_Ready] = []
        self._ready_since_s = 0.0
        self._report = CompactReport()
        self._size = self._done_size = 0
        self._rows = self._done_rows = 0

    def run(self) -> CompactReport:
        plan = plan_compaction(self._table, self._request)
        report = self._report
        report.buckets, report.planned = plan.buckets, len(plan.work)
        report.files_before = report.files_after = plan.files
        self._size = sum(work.taken_size for work in plan.work)
        self._rows = sum(work.rows for work in plan.work)
        self._todo.extend(map(_Task, plan.work))
        if plan.work:
            self._report_progress()
        try:
            while self._todo or self._running or self._ready:
                self._step()
        except BaseException:
            self._abandon()
            raise
        report.seconds = self._clock.monotonic_s() - self._began_s
        return report

    def _step(self) -> None:
        if self._stopping():
            self._report.skipped += len(self._todo)
            self._todo.clear()
        while self._todo and len(self._running) < self._slots:
            task = self._todo.popleft()
            task.tries += 1
            try:
                future = self._executor.submit(
                    _compact_bucket, self._table, task.work, self._request.full
                )
            except BrokenExecutor as error:
                self._note_failure(task, error)
                continue
            self._running[future] = task
        if self._running:
            futures, _ = wait(self._running, timeout=_GROUP_S / 4, return_when=FIRST_COMPLETED)
            for future in futures:
                self._collect(self._running.pop(future), future)
        if self._is_due():
            while self._ready:
                self._commit(self._next_group())
                self._report_progress()

    def _collect(self, task: _Task, future: Future[_Outcome]) -> None:
        try:
            outcome = future.result()
        except (LakewardError, OSError, BrokenExecutor) as error:
            self._note_failure(task, error)
            return
        self._report.bucket_seconds += outcome.seconds
        if outcome.stale:
            self._retry_or_drop(task)
        elif not outcome.messages:
            self._report.unchanged += 1
            self._finish(task)
        else:
            if not self._ready:
                self._ready_since_s = self._clock.monotonic_s()
            self._ready.append((task, outcome.messages))

    def _is_due(self) -> bool:
        if not self._ready:
            return False
        waited = self._clock.monotonic_s() - self._ready_since_s
        idle = not (self._todo or self._running)
        return idle or waited >= _GROUP_S or len(self._ready) >= _GROUP_BUCKETS

    def _next_group(self) -> list[_Ready]:
        """Takes the finished buckets of a first attempt together, then retried ones one by one."""
        group = [item for item in self._ready if item[0].tries == 1]
        rest = [item for item in self._ready if item[0].tries > 1]
        self._ready = rest if group else rest[1:]
        return group or rest[:1]

    def _commit(self, group: Sequence[_Ready]) -> None:
        """Commit the buckets of a group that are not stale; the others are compacted again."""
        snapshot = self._table.latest_snapshot()
        stale = [self._stale(snapshot, *item) for item in group]
        chosen = [item for item, is_stale in zip(group, stale, strict=True) if not is_stale]
        stale_items = [item for item, is_stale in zip(group, stale, strict=True) if is_stale]
        messages = [message for _, batch in chosen for message in batch]
        self._drop(stale_items)
        if not messages:
            return
        # a user for each commit: later snapshots carry no properties of batch commits
        table, user = self._table.latest(), f"{self._prefix}-{self._table.ids.uuid()}"
        commit = FileStoreCommit(table, user, new_since=snapshot)
        postponed = any(message.bucket == POSTPONE_BUCKET for message in messages)
        check = require_bucket_counts(table, messages) if postponed else None
        result: CommitResult | None = None
        for number in range(1, _COMMIT_TRIES + 1):
            try:
                result = commit.commit(messages, BATCH_COMMIT_IDENTIFIER, before_publish=check)
                break
            except CommitConflictError:
                if number == _COMMIT_TRIES:  # certainly not committed
                    self._drop(chosen)
                    return
            except StorageUnavailableError:
                if number == _COMMIT_TRIES:
                    raise
        if result is None or result.compaction_dropped:
            self._drop(chosen, deleted=True)
            return
        self._report.add(messages, result, len(chosen))
        for task, _ in chosen:
            self._finish(task, report=False)

    def _stale(
        self, snapshot: Snapshot | None, task: _Task, messages: tuple[CommitMessage, ...]
    ) -> bool:
        if snapshot is None:
            return True
        for message in messages:
            entries = live_entries(
                self._table, snapshot, partition=task.work.partition, bucket=message.bucket
            )
            live = {(entry.file.level, entry.file.file_name) for entry in entries}
            before = message.compact.compact_before
            if any((file.level, file.file_name) not in live for file in before):
                return True
        return False

    def _drop(self, lost: Iterable[_Ready], *, deleted: bool = False) -> None:
        """Delete the files of compactions that lost, and retry their buckets."""
        lost = tuple(lost)
        if not deleted:
            delete_uncommitted(self._table, [message for _, batch in lost for message in batch])
        for task, _ in lost:
            self._retry_or_drop(task)

    def _retry_or_drop(self, task: _Task) -> None:
        self._report.dropped += 1
        _LOG.info(
            "a compaction lost to another writer",
            extra={
                "event": "compaction_dropped",
                "table": self._table.layout.root,
                "partition": self._table.partition_path(task.work.partition),
                "bucket": task.work.bucket,
                "tries": task.tries,
            },
        )
        # the files of a pack no longer exist: a later plan forms other packs
        if task.tries >= _TRIES or task.work.pack is not None:
            self._report.lost += 1
            self._finish(task)
        else:
            self._todo.appendleft(task)

    def _note_failure(self, task: _Task, error: BaseException) -> None:
        self._report.failures.append(
            BucketFailure(
                partition=self._table.partition_path(task.work.partition),
                bucket=task.work.bucket,
                error=error,
            )
        )
        self._finish(task)

    def _finish(self, task: _Task, *, report: bool = True) -> None:
        self._done_size += task.work.taken_size
        self._done_rows += task.work.rows
        if report:
            self._report_progress()

    def _report_progress(self) -> None:
        elapsed_s = self._clock.monotonic_s() - self._began_s
        sizes, rows = (self._size, self._done_size), (self._rows, self._done_rows)
        self._on_progress(self._report.progress(sizes, rows, elapsed_s))

    def _abandon(self) -> None:
        """After an error: await the running buckets and delete what will not be committed."""
        messages = [message for _, batch in self._ready for message in batch]
        for future in self._running:
            future.cancel()
        for future in self._running:
            if not future.cancelled() and future.exception() is None:
                messages += future.result().messages
        delete_uncommitted(self._table, messages)


def _compact_bucket(table: "FileStoreTable", work: BucketWork, full: bool) -> _Outcome:
    """Compact the current state of one bucket; runs in any thread or process.

    The state compacted is that of the newest snapshot, in the newest schema: a file written in a
    schema that this process does not know yet would lose its new columns. So the snapshot is read
    first, and the schema after it.

    Raises:
        StorageUnavailableError: the store failed; what was written is removed.
        CorruptDataError: a file of the newest snapshot is damaged or missing.
        UnsupportedFeatureError: the table cannot be compacted.
    """
    began_s = table.clock.monotonic_s()
    messages: tuple[CommitMessage, ...] = ()
    stale = False
    try:
        messages = tuple(_compacted(table, work, full=full))
    except (FileNotFoundError, NotFoundError):  # expired while it was read
        stale = True
    messages = tuple(message for message in messages if not message.compact.empty)
    return _Outcome(messages=messages, stale=stale, seconds=table.clock.monotonic_s() - began_s)


def _compacted(table: "FileStoreTable", work: BucketWork, *, full: bool) -> Sequence[CommitMessage]:
    snapshot = table.latest_snapshot()
    if snapshot is None:
        return ()
    newest = at_buckets(table.latest(), work.total_buckets)
    with explain_missing_files(newest, snapshot.id):
        if work.bucket == POSTPONE_BUCKET:
            return compact_postponed(newest, snapshot, work.partition, full=full)
        if work.pack is not None:
            packed = _packed(newest, snapshot, work, work.pack)
            return () if packed is None else (packed,)
        writer = open_bucket(newest, work.partition, work.bucket, snapshot, compaction=True)
        with contextlib.closing(writer):
            writer.compact(full=full)
            return (writer.prepare_commit(),)


def _packed(
    table: "FileStoreTable", snapshot: Snapshot, work: BucketWork, pack: tuple[str, ...]
) -> CommitMessage | None:
    entries = live_entries(table, snapshot, partition=work.partition, bucket=work.bucket)
    live = {entry.file.file_name: entry.file for entry in entries}
    if any(name not in live for name in pack):
        raise NotFoundError("files of a planned compaction were removed", files=len(pack))
    return merge_packs(table, snapshot, work.partition, [[live[name] for name in pack]])
