# SPDX-License-Identifier: Apache-2.0
"""The plan of a dedicated compaction: its buckets and their expected input.

Source: SEMANTICS.md §D.4, §D.7, §G.5. The plan is made from one snapshot without touching a data
file. It leaves out only buckets that certainly need no compaction; whether a bucket is compacted,
and which of its files, is decided at its execution, from the newest snapshot then.
"""

import dataclasses
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from storage.format.metadata.file_meta import DataFileMeta, ManifestEntry
from storage.format.metadata.layout import POSTPONE_BUCKET
from storage.format.metadata.snapshot import Snapshot
from storage.lsm.compaction_policy import CompactionPolicy, pick
from storage.lsm.levels import Levels
from storage.options.options import TableOptions, require_writable
from storage.table.bucket_mode import BucketMode, require_buckets
from storage.table.commit.live_files import BucketId, live_buckets
from storage.table.compaction.append_compact import unaware_packs
from storage.table.core import TableCore
from storage.table.write.drop_partitions import chosen_partitions

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
        last_full_ms=_last_full_ms(levels),
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


def _last_full_ms(levels: Levels) -> int | None:
    last = levels.upper[-1] if levels.upper else None
    times = () if last is None else tuple(file.creation_time_ms or 0 for file in last.files)
    return max(times, default=None)


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
