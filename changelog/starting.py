# SPDX-License-Identifier: Apache-2.0
"""Where a stream of changes begins: with a whole state or not, and which snapshot follows.

Source: SEMANTICS.md §C.8 ("Starting phase"). A table without snapshots makes the stream wait; the
first snapshot is then treated as the mode says.
"""

import dataclasses
from collections.abc import Callable
from functools import partial

from storage.errors import InvalidOptionError, UnsupportedFeatureError
from storage.format.metadata.snapshot import Snapshot
from storage.table.core import TableCore
from storage.table.retention.consumers import read_consumer
from storage.table.scan.scan import TableScan
from storage.table.scan.time_travel import (
    ScanMode,
    TimeTravel,
    check_streaming,
    first_since,
    newest_compacted,
    scan_mode_of,
    travel_of,
)

_UNMERGED = "lakeward.streaming-read.unmerged"
_MERGING = {
    "partial-update": "Partial update",
    "aggregation": "Pre-aggregate",
    "first-row": "First row",
}
"""Engines that make another row of what was written, and what Paimon's errors call them."""


@dataclasses.dataclass(frozen=True, slots=True)
class Beginning:
    """How a stream begins.

    Attributes:
        next_id: the first snapshot whose changes are read.
        state: the state that is read whole before that; None: none is.
        files_since_ms: only files of it created at or after this time [epoch ms]; None: all.
    """

    next_id: int
    state: Snapshot | None = None
    files_since_ms: int | None = None


StartingPoint = Callable[[], Beginning | None]
"""How a stream begins; None while the table has no snapshot, then it is called again.

Raises NotFoundError when a snapshot expired meanwhile.
"""


def require_whole_changes(table: TableCore) -> None:
    """Check that the changes of a table are rows of it, not the rows that were written.

    Without a changelog producer a stream gives level-0 rows as they were flushed. Where the merge
    engine makes another row of them, those are no changes of the table. Source: SEMANTICS.md §C.5
    (last column), §C.8.

    Raises:
        UnsupportedFeatureError: they are not, and `lakeward.streaming-read.unmerged` is not set.
    """
    options = table.options
    engine = _MERGING.get(options.merge_engine)
    if engine is None or options.changelog_producer != "none" or options.streaming_read_unmerged:
        return
    raise UnsupportedFeatureError(
        "a stream of this table would emit rows as written, not as merged by the table",
        detail=f"{engine} continuous reading is not supported without a changelog producer",
        hint="set `changelog-producer` to lookup or full-compaction (`input` emits rows as "
        f"written), follow `$audit_log`, or read with `{_UNMERGED}` = true to get "
        "unmerged rows",
        table=table.layout.root,
        merge_engine=options.merge_engine,
    )


def starting_point(table: TableCore) -> StartingPoint:
    """Where the options of a table let a stream begin.

    Args:
        table: the table; progress of its `consumer-id` comes before `scan.mode`.

    Raises:
        InvalidOptionError: options contradict each other, or choose what no stream can begin with.
    """
    options = table.options
    mode, key = scan_mode_of(table.schema.options)
    check_streaming(table.schema, options)
    if options.consumer_id and not options.consumer_ignore_progress:
        consumer = read_consumer(table, options.consumer_id)
        if consumer is not None:
            return partial(_from_snapshot, table, consumer.next_snapshot)
    travel = travel_of(table.schema.options)
    match mode:
        case ScanMode.LATEST:
            return partial(_latest, table, table.snapshots.latest_id())
        case ScanMode.LATEST_FULL | ScanMode.COMPACTED_FULL | ScanMode.FROM_FILE_CREATION_TIME:
            return partial(_state, table, travel)
        case ScanMode.FROM_TIMESTAMP if travel.timestamp_ms is not None:
            return partial(_from_time, table, travel.timestamp_ms)
        case ScanMode.FROM_CREATION_TIMESTAMP if travel.since_ms is not None:
            return partial(_from_creation, table, travel.since_ms)
        case ScanMode.FROM_SNAPSHOT if travel.snapshot_id is not None:
            return partial(_from_snapshot, table, travel.snapshot_id)
        case ScanMode.FROM_SNAPSHOT_FULL if travel.snapshot_id is not None:
            return partial(_from_snapshot, table, travel.snapshot_id, full=True)
    raise InvalidOptionError(
        f"Cannot scan from {(key or mode.value).removeprefix('scan.')} in streaming mode.",
        hint="start a stream at a snapshot id, at a time, or with a full snapshot",
        option=key or "scan.mode",
        mode=mode.value,
    )


def from_state(table: TableCore, snapshot_id: int) -> StartingPoint:
    """Begin with the whole state of a snapshot, which must be there."""
    return partial(_state, table, TimeTravel(snapshot_id=snapshot_id))


def first_scan(table: TableCore, beginning: Beginning) -> TableScan:
    """The scan of a beginning's state.

    Rows whose changes compaction has still to emit are left out: they come later.
    """
    scan = TableScan(table).with_files_since(beginning.files_since_ms)
    match table.options.changelog_producer:
        case "lookup":
            return scan.with_min_level(1)
        case "full-compaction":
            return scan.with_min_level(table.options.num_levels - 1)
        case _:
            return scan.with_all_levels()


def _state(table: TableCore, travel: TimeTravel) -> Beginning | None:
    state = newest_compacted(table) if travel.compacted else travel.resolve(table)
    return None if state is None else Beginning(state.id + 1, state, travel.files_since_ms)


def _latest(table: TableCore, opened_at: int | None) -> Beginning | None:
    """After the newest snapshot; with the first, if there was none when the stream was opened."""
    newest = table.snapshots.latest_id()
    if newest is None:
        return None
    return Beginning(1 if opened_at is None else newest + 1)


def _from_time(table: TableCore, time_ms: int) -> Beginning | None:
    first = first_since(table, time_ms)
    return None if first is None else Beginning(first)


def _from_creation(table: TableCore, time_ms: int) -> Beginning | None:
    """With the first snapshot since a time; where it has expired, with the files created since."""
    first, earliest = first_since(table, time_ms), earliest_id(table)
    newest = table.latest_snapshot()
    if newest is None or first is None or earliest is None:
        return None
    if earliest < first <= newest.id:
        return Beginning(first)
    return Beginning(newest.id + 1, newest, time_ms)


def _from_snapshot(table: TableCore, snapshot_id: int, *, full: bool = False) -> Beginning | None:
    """With a snapshot, or the oldest that is left if it has expired."""
    earliest = table.snapshots.earliest_id() if full else earliest_id(table)
    if earliest is None:
        return None
    first = max(snapshot_id, earliest)
    return Beginning(first + 1, table.snapshots.read(first)) if full else Beginning(first)


def earliest_id(table: TableCore) -> int | None:
    """Id of the oldest snapshot, or long-lived changelog; None on a table without snapshots."""
    earliest = table.snapshots.earliest_id()
    if earliest is None:
        return None
    changelog = table.changelogs.earliest_id()
    return earliest if changelog is None else min(earliest, changelog)
