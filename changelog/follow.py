# SPDX-License-Identifier: Apache-2.0
"""Following a table: how its stream starts, which snapshot is next, and what it changed.

Source: SEMANTICS.md §C.8, §F.12. The changes of a snapshot:

* without a changelog producer the files that an APPEND snapshot added, as they were flushed;
* with one its changelog files, of any kind of snapshot;
* with `streaming-read-overwrite`, the rows that an OVERWRITE removed and added.

An expired snapshot may remain as a long-lived changelog (§F.8). `stream_scan` and `StreamRange`
keep the position; `Follower` decides everything else about a stream.
"""

import dataclasses
from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping
from functools import partial

from storage.errors import (
    DataLossError,
    InvalidOptionError,
    InvalidRequestError,
    NotFoundError,
    UnsupportedFeatureError,
)
from storage.format.metadata.snapshot import CommitKind, Snapshot
from storage.table.core import TableCore
from storage.table.read.missing_files import explain_missing_files
from storage.table.retention.consumers import delete_consumer, read_consumer, write_consumer
from storage.table.scan.predicate import Predicate
from storage.table.scan.scan import ChangeSplit, Split, TableScan
from storage.table.scan.time_travel import (
    ScanMode,
    TimeTravel,
    check_streaming,
    first_since,
    newest_compacted,
    scan_mode_of,
    travel_of,
)
from storage.table.table import FileStoreTable

# Where a stream of changes begins: with a whole state or not, and which snapshot follows.
#
# Source: SEMANTICS.md §C.8 ("Starting phase"). A table without snapshots makes the stream wait; the
# first snapshot is then treated as the mode says.


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


_NO_PRODUCER = "none"
_CHECK_EVERY = 16
"""One in so many empty polls checks, by a listing, that the snapshot can still be committed."""


class Follower:
    """Follows the snapshots of a table, bounded or not. Keeps no position. Picklable.

    Args:
        table: with the options of the stream: `scan.bounded`, `scan.bounded.watermark`,
            `streaming-read-…`.
        predicate: row filter; None = all.
        buckets: buckets to read; None = all.
    """

    def __init__(
        self,
        table: TableCore,
        predicate: Predicate | None = None,
        buckets: frozenset[int] | None = None,
    ) -> None:
        self._table = table
        self._predicate = predicate
        self._buckets = buckets
        self._produces = table.options.changelog_producer != _NO_PRODUCER
        scan = TableScan(table, predicate=predicate, buckets=buckets)
        self._scan = scan if self._produces else scan.with_postponed()
        self._last_id: int | None = None
        self._ended = False
        self._empty_polls = 0

    @property
    def bounded(self) -> bool:
        """Whether there is a last snapshot."""
        return self._last_id is not None

    @property
    def ended(self) -> bool:
        """Whether `snapshots` has reached the end of a bounded stream."""
        return self._ended

    def end_at_newest(self) -> None:
        """Bound the stream at the newest existing snapshot."""
        newest = self._table.snapshots.latest_id() or 0
        self._last_id = newest if self._last_id is None else min(newest, self._last_id)

    def snapshots(self, next_id: int) -> Iterator[Snapshot]:
        """The existing snapshots from an id on, up to the end and to the read delay.

        Raises:
            DataLossError: the next snapshot has expired or was rolled back; says what to do.
            CorruptDataError: its file is damaged.
        """
        self._ended = False
        while self._last_id is None or next_id <= self._last_id:
            snapshot = self._poll(next_id)
            if snapshot is None:
                return
            if self.past_watermark(snapshot):
                break
            if self._too_recent(snapshot):
                return
            yield snapshot
            next_id += 1
        self._ended = True

    def past_watermark(self, snapshot: Snapshot) -> bool:
        """Whether a snapshot is past the watermark that bounds the stream."""
        bound = self._table.options.scan_bounded_watermark
        return bound is not None and snapshot.watermark is not None and snapshot.watermark > bound

    def require(self, snapshot_id: int) -> Snapshot:
        """A snapshot that existed before.

        Raises:
            DataLossError: it has expired, or the table was rolled back before it.
            CorruptDataError: its file is damaged.
        """
        snapshot = self._find(snapshot_id)
        if snapshot is None:
            self._check_to_come(snapshot_id)
            raise self._rolled_back(snapshot_id, self._table.snapshots.latest_id())
        return snapshot

    def state(self, beginning: Beginning) -> tuple[Split, ...]:
        """The files of a stream's initial state.

        Raises:
            CorruptDataError: metadata is damaged.
        """
        scan = first_scan(self._table, beginning).with_filter(self._predicate)
        if self._buckets is not None:
            scan = scan.with_bucket(*self._buckets)
        return scan.plan(beginning.state).splits

    def changes(self, snapshot: Snapshot) -> tuple[ChangeSplit, ...]:
        """The files that hold the changes of a snapshot; none for most compactions and overwrites.

        Raises:
            CorruptDataError: a manifest is malformed, or one of the newest snapshot is missing.
            FileNotFoundError: a manifest is missing, as after expiry.
            NotFoundError: the snapshot has expired, or the one before an overwrite, whose deletion
                vectors are needed.
        """
        keyed = bool(self._table.schema.primary_keys)
        with explain_missing_files(self._table, snapshot.id):
            if self._reads_overwrite(snapshot):
                scan = self._scan
                return scan.plan_overwrite(snapshot) if keyed else scan.plan_delta(snapshot)
            if self._produces:
                return self._scan.plan_changelog(snapshot)
            if snapshot.commit_kind is CommitKind.APPEND:
                return self._scan.plan_delta(snapshot)
            return ()

    def change_count(self, snapshot: Snapshot) -> int:
        """Approximate number of changes of a snapshot [rows], without manifests; 0: none."""
        if self._reads_overwrite(snapshot):
            return max(1, abs(snapshot.delta_record_count))
        if self._produces:
            if snapshot.changelog_manifest_list is None:
                return 0
            return max(1, snapshot.changelog_record_count or 0)
        if snapshot.commit_kind is CommitKind.APPEND:
            return max(1, snapshot.delta_record_count)
        return 0

    def _reads_overwrite(self, snapshot: Snapshot) -> bool:
        options = self._table.options
        if snapshot.commit_kind is not CommitKind.OVERWRITE:
            return False
        if self._table.schema.primary_keys:
            return options.streaming_read_overwrite
        return options.streaming_read_append_overwrite

    def _too_recent(self, snapshot: Snapshot) -> bool:
        delay = self._table.options.streaming_read_snapshot_delay_ms
        return delay is not None and snapshot.time_ms > self._table.clock.now_ms() - delay

    def _poll(self, snapshot_id: int) -> Snapshot | None:
        """A snapshot, or its long-lived changelog; None: not committed yet."""
        snapshot = self._find(snapshot_id)
        if snapshot is not None:
            self._empty_polls = 0
            return snapshot
        if self._empty_polls % _CHECK_EVERY == 0:
            self._check_to_come(snapshot_id)
        self._empty_polls += 1
        return None

    def _find(self, snapshot_id: int) -> Snapshot | None:
        snapshot = self._table.snapshots.read_again(snapshot_id)
        if snapshot is None and self._table.changelogs.exists(snapshot_id):
            try:
                return self._table.changelogs.read(snapshot_id)
            except NotFoundError:
                return None
        return snapshot

    def _check_to_come(self, snapshot_id: int) -> None:
        ids = self._table.snapshots.ids()
        if not ids:
            if snapshot_id > 1:
                raise self._rolled_back(snapshot_id, None)
            return
        if snapshot_id > ids[-1] + 1:
            raise self._rolled_back(snapshot_id, ids[-1])
        if snapshot_id < ids[0] and self._find(snapshot_id) is None:
            raise DataLossError(
                f"The wanted read snapshot with id {snapshot_id} has expired.",
                detail=f"snapshots {ids[0]} to {ids[-1]} are available",
                hint="start again with `scan.mode`; to prevent it, keep snapshots or changelogs "
                "longer (`snapshot.time-retained`, `changelog.time-retained`), or read with a "
                "`consumer-id`, which keeps unread snapshots",
                table=self._table.layout.root,
            )

    def _rolled_back(self, snapshot_id: int, latest: int | None) -> DataLossError:
        return DataLossError(
            "The next expected snapshot is too big! Most possible cause might be the table had "
            f"been recreated. The next snapshot id is {snapshot_id}, while the latest snapshot id "
            f"is {latest}",
            hint="start again: delete the consumer or the checkpoint that names this snapshot",
            table=self._table.layout.root,
        )


_BEGINNING = "-beginning"
"""Suffix of the name of the second consumer, which retains a stream's initial state."""


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class StreamPosition:
    """Position of a stream that is read in ranges of snapshots.

    Until the first range has been read it contains how the stream started, so that the range can be
    read again with the same result, even if the table has changed.

    Attributes:
        next_id: first unread snapshot; 0: the stream has not started.
        first_id: at the end of the first range: the first snapshot whose changes are in it; None
            elsewhere.
        whole_state: at the same position: whether the state before that snapshot is in it.
        files_since_ms: at the same position: only files of that state created since [epoch ms].
    """

    next_id: int = 0
    first_id: int | None = None
    whole_state: bool = False
    files_since_ms: int | None = None

    def to_json(self) -> dict[str, int | bool]:
        """The members that are set, always in the same order."""
        document: dict[str, int | bool] = {"snapshot": self.next_id}
        if self.first_id is not None:
            document["first"] = self.first_id
            document["state"] = self.whole_state
        if self.files_since_ms is not None:
            document["since"] = self.files_since_ms
        return document

    @staticmethod
    def from_json(document: Mapping[str, int | bool]) -> "StreamPosition":
        """Parse the result of `to_json`.

        Raises:
            InvalidRequestError: malformed.
        """
        next_id = document.get("snapshot")
        if not isinstance(next_id, int):
            raise InvalidRequestError(
                "not a position in a stream of a table",
                hint="the checkpoint belongs to another query; give this one its own",
                found=dict(document),
            )
        first, since = document.get("first"), document.get("since")
        return StreamPosition(
            next_id=next_id,
            first_id=None if first is None else int(first),
            whole_state=bool(document.get("state", False)),
            files_since_ms=None if since is None else int(since),
        )


START = StreamPosition()
"""Before the start of a stream."""


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class RangeLimit:
    """Size limit of one range, which has at least one snapshot with changes.

    Attributes:
        snapshots: snapshots with changes; None: any number.
        rows: changes after which no further snapshot is added; None: any number.
    """

    snapshots: int | None = None
    rows: int | None = None


class StreamRange:
    """Ranges of the stream of a table. Not thread-safe.

    Protocol: `advance` from a position, at first `START`, returns the end of the next range (the
    same position: nothing new); `splits` returns the splits between two positions, repeatably,
    also in a new process. `hold` protects unread snapshots from expiry.

    Args:
        table: with the options that determine the start of the stream.
        predicate: row filter; None = all.

    Raises:
        InvalidOptionError: options contradict each other, or choose an unsupported start.
    """

    def __init__(self, table: FileStoreTable, predicate: Predicate | None = None) -> None:
        self._table = table
        self._starting = starting_point(table)
        self._follower = Follower(table, predicate)
        if table.options.scan_bounded:
            self.end_at_newest()

    def end_at_newest(self) -> None:
        """Bound the stream at the newest existing snapshot."""
        self._follower.end_at_newest()

    def newest(self) -> StreamPosition:
        """The position after the newest snapshot."""
        return StreamPosition(next_id=(self._table.snapshots.latest_id() or 0) + 1)

    def advance(self, position: StreamPosition, limit: RangeLimit | None = None) -> StreamPosition:
        """End of the range that starts at a position; the same position if there is nothing new.

        A range with an initial state contains nothing else.

        Raises:
            DataLossError: the next snapshot has expired or was rolled back; says what to do.
            CorruptDataError: metadata is damaged.
        """
        chosen = limit or RangeLimit()
        if position.next_id:
            end = self._follow_from(position.next_id, chosen)
            return position if end == position.next_id else StreamPosition(next_id=end)
        beginning = self._begin()
        if beginning is None:
            return position
        first = beginning.next_id
        end = first if beginning.state is not None else self._follow_from(first, chosen)
        return StreamPosition(
            next_id=end,
            first_id=first,
            whole_state=beginning.state is not None,
            files_since_ms=beginning.files_since_ms,
        )

    def splits(
        self, start: StreamPosition, end: StreamPosition
    ) -> list[tuple[Split | ChangeSplit, ...]]:
        """The splits between two positions.

        Returns:
            Groups that can be read independently, the splits of each in order: all changes of a key
            are in one group, in commit order.

        Raises:
            DataLossError: a snapshot has expired or was rolled back.
            NotFoundError: the snapshot of the initial state has expired.
            CorruptDataError: metadata is damaged.
        """
        groups: list[tuple[Split | ChangeSplit, ...]] = []
        first = start.next_id
        if not first:
            if end.first_id is None:
                return groups
            first = end.first_id
            if end.whole_state:
                state = self._table.snapshots.read(first - 1)
                beginning = Beginning(first, state, end.files_since_ms)
                groups += [(split,) for split in self._follower.state(beginning)]
        by_bucket: dict[tuple[bytes, int], list[ChangeSplit]] = defaultdict(list)
        for snapshot_id in range(first, end.next_id):
            for split in self._follower.changes(self._follower.require(snapshot_id)):
                by_bucket[(split.partition, split.bucket)].append(split)
        return groups + [tuple(splits) for splits in by_bucket.values()]

    def hold(self, position: StreamPosition) -> None:
        """Record the progress of the table's `consumer-id`; no-op without one.

        Args:
            position: snapshots before it will not be read again.
        """
        consumer = self._table.options.consumer_id
        if consumer and position.next_id:
            write_consumer(self._table, consumer, position.next_id)
            delete_consumer(self._table, consumer + _BEGINNING)

    def hold_beginning(self, end: StreamPosition) -> None:
        """As `hold`, before the first range, which ends at a position, has been read.

        An initial state is protected by a second consumer until the range has been read: with the
        stream's own, a restarted stream would continue after the state instead of reading it.
        """
        consumer = self._table.options.consumer_id
        if consumer and end.first_id is not None:
            if end.whole_state:
                write_consumer(self._table, consumer + _BEGINNING, end.first_id - 1)
            else:
                write_consumer(self._table, consumer, end.first_id)

    def _begin(self) -> Beginning | None:
        beginning = self._starting()
        if beginning is None and scan_mode_of(self._table.schema.options)[0] is ScanMode.LATEST:
            return Beginning(1)  # wait for the first snapshot
        return beginning

    def _follow_from(self, next_id: int, limit: RangeLimit) -> int:
        """End of a range that starts with a snapshot; snapshots without changes do not count."""
        snapshots = rows = 0
        for snapshot in self._follower.snapshots(next_id):
            count = self._follower.change_count(snapshot)
            if count:
                full = limit.snapshots is not None and snapshots >= limit.snapshots
                if full or (limit.rows is not None and snapshots and rows + count > limit.rows):
                    break
                snapshots, rows = snapshots + 1, rows + count
            next_id = snapshot.id + 1
        return next_id
