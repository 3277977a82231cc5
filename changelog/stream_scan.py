# SPDX-License-Identifier: Apache-2.0
"""A stream of the changes of a table: an initial state, then one snapshot after the other.

Snapshots without changes are skipped. The position is a single number: a reader stores it
(`checkpoint`), or the table does under a `consumer-id`; snapshots that a consumer has not read do
not expire.
"""

import dataclasses
from collections.abc import Iterator, Mapping, Sequence

import pyarrow as pa

from changelog.follow import Follower
from changelog.starting import Beginning, from_state, require_whole_changes, starting_point
from storage.errors import InvalidRequestError
from storage.format.metadata.snapshot import Snapshot
from storage.table.read.read import TableRead
from storage.table.retention.consumers import write_consumer
from storage.table.scan.predicate import Predicate
from storage.table.scan.scan import ChangeSplit, Split
from storage.table.scan.time_travel import travel_of
from storage.table.table import FileStoreTable


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class StreamPlan:
    """The read plan of one step of a stream.

    Attributes:
        snapshot_id: of the state or changes.
        starting: whether it is the initial state; all its rows are +I.
        splits: independent, all changes of a key in one of them. Picklable; `StreamScan.reader`
            reads them in any process.
    """

    snapshot_id: int
    starting: bool
    splits: tuple[Split | ChangeSplit, ...]


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class ChangelogBatch:
    """Some changes of one snapshot.

    Attributes:
        snapshot_id: that made them.
        starting: whether they are part of the initial state.
        rows: `_VALUE_KIND` (int8, `RowKind`), then the columns; at least one row.
    """

    snapshot_id: int
    starting: bool
    rows: pa.RecordBatch


class StreamScan:
    """A stream of the changes of a table. Not thread-safe.

    Protocol:
        1. Open it on a table whose options say where to begin:
           `StreamScan(table.with_options({"scan.snapshot-id": "2"}))`.
        2. Call `next_batch()` (everything at once, for tests and small tables) or `plan()` and
           `reader` for its splits, repeatedly. None: nothing new, poll again later; `ended` means
           that the stream is complete.
        3. Store `checkpoint()` when all planned splits have been read. `restore()` it in a new scan
           to resume there; or, with a `consumer-id`, `notify_checkpoint_complete()` it, and the
           next scan of that consumer resumes by itself.

    The first result is the initial state if the mode has one (`last_starting`), even if it is
    empty; every other one has at least one split.

    Args:
        table: the table with its options; rows have its schema.
        columns: projection, in order; None = all.
        predicate: row filter; None = all. It may match only one half of an update.
        buckets: buckets to read, to share a stream among readers; None = all.
        sequence_numbers: of a table with a primary key, also return `_SEQUENCE_NUMBER`.

    Raises:
        InvalidOptionError: options contradict each other, or choose an unsupported start.
        InvalidRequestError: a column is unknown.
        UnsupportedFeatureError: the table merges rows and has no changelog producer.
    """

    def __init__(
        self,
        table: FileStoreTable,
        *,
        columns: Sequence[str] | None = None,
        predicate: Predicate | None = None,
        buckets: frozenset[int] | None = None,
        sequence_numbers: bool = False,
    ) -> None:
        if not travel_of(table.schema.options).to_newest:
            table = table.latest()  # where it begins does not choose the schema, as in batch reads
        require_whole_changes(table)
        self._table = table
        self._starting = starting_point(table)
        self._reader = TableRead(
            table, columns, predicate, kinds=True, sequence_numbers=sequence_numbers
        )
        self._follower = Follower(table, predicate, buckets)
        self._next_id: int | None = None
        self._last: StreamPlan | None = None
        self._opened = False
        self._ended = False
        self._watermark: int | None = None

    @property
    def schema(self) -> pa.Schema:
        """Arrow schema of the rows: `_VALUE_KIND` (int8), then the columns.

        The sequence number (int64) is between them if requested.
        """
        return self._reader.schema

    @property
    def reader(self) -> TableRead:
        """Reads the splits of the plans; picklable, for workers."""
        return self._reader

    @property
    def ended(self) -> bool:
        """Whether the stream is bounded and complete."""
        return self._ended

    @property
    def watermark(self) -> int | None:
        """Watermark of the last planned snapshot [epoch ms]; None if it has none."""
        return self._watermark

    @property
    def last_snapshot_id(self) -> int | None:
        """Snapshot of the last plan."""
        return None if self._last is None else self._last.snapshot_id

    @property
    def last_starting(self) -> bool:
        """Whether the last plan was the initial state."""
        return self._last is not None and self._last.starting

    def plan(self) -> StreamPlan | None:
        """The next step; None if there is nothing (yet), see `ended`.

        Raises:
            DataLossError: the next snapshot has expired or was rolled back; says what to do.
            CorruptDataError: metadata is damaged.
        """
        self._open()
        if self._next_id is None:
            beginning = self._starting()
            if beginning is None:
                self._ended = self._follower.bounded
                return None
            self._next_id = beginning.next_id
            plan = self._begin(beginning)
            if plan is not None:
                return plan
        if self._ended:
            return None
        for snapshot in self._follower.snapshots(self._next_id):
            splits = self._follower.changes(snapshot)
            self._next_id = snapshot.id + 1
            if splits:
                return self._planned(snapshot, splits, starting=False)
        self._ended = self._follower.ended
        return None

    def next_batch(self) -> pa.Table | None:
        """Plan and read one step at once.

        Returns:
            `_VALUE_KIND` (int8, `RowKind`), then the columns: the initial state (then
            `last_starting` is true; may be empty), or the changes of one snapshot
            (`last_snapshot_id`). None if there is nothing new.

        Raises: as `plan` and `TableRead.to_batches`.
        """
        plan = self.plan()
        if plan is None:
            return None
        batches = [batch for split in plan.splits for batch in self._reader.to_batches(split)]
        return pa.Table.from_batches(batches, schema=self.schema)

    def checkpoint(self) -> int | None:
        """Id of the first unplanned snapshot; None before the start."""
        return self._next_id

    def restore(self, next_snapshot: int | None, *, whole_state: bool = False) -> None:
        """Resume at the position of another scan.

        Args:
            next_snapshot: result of `checkpoint`; None starts from scratch.
            whole_state: start with the full state of that snapshot.
        """
        if next_snapshot is not None and whole_state:
            self._starting = from_state(self._table, next_snapshot)
            next_snapshot = None
        self._next_id = next_snapshot
        self._ended = False
        self._last = None

    def notify_checkpoint_complete(self, *next_snapshots: int | None) -> None:
        """Record the progress of the table's consumer; no-op without `consumer-id`.

        Args:
            next_snapshots: results of `checkpoint` of all readers that share the stream. With
                `consumer.mode` exactly-once they must agree; with at-least-once the smallest is
                used. None: that reader has not started.

        Raises:
            InvalidRequestError: readers disagree.
        """
        consumer = self._table.options.consumer_id
        if not consumer or not next_snapshots or None in next_snapshots:
            return
        positions = {position for position in next_snapshots if position is not None}
        if len(positions) > 1 and self._table.options.consumer_mode == "exactly-once":
            raise InvalidRequestError(
                "readers of an exactly-once consumer are at different snapshots",
                hint="let all read the same plans, or set `consumer.mode` to at-least-once",
                consumer=consumer,
                next_snapshots=sorted(positions),
            )
        write_consumer(self._table, consumer, min(positions))

    def _open(self) -> None:
        if not self._opened:
            self._opened = True
            if self._table.options.scan_bounded:
                self._follower.end_at_newest()

    def _begin(self, beginning: Beginning) -> StreamPlan | None:
        state = beginning.state
        if state is None:
            before = self._table.snapshots.read_again(beginning.next_id - 1)
            self._ended = before is not None and self._follower.past_watermark(before)
            return None
        self._ended = self._follower.past_watermark(state)
        return self._planned(state, self._follower.state(beginning), starting=True)

    def _planned(
        self, snapshot: Snapshot, splits: Sequence[Split | ChangeSplit], *, starting: bool
    ) -> StreamPlan:
        self._watermark = snapshot.watermark
        self._last = StreamPlan(snapshot_id=snapshot.id, starting=starting, splits=tuple(splits))
        return self._last


def read_changelog(
    table: FileStoreTable,
    mode: str | None = None,
    *,
    options: Mapping[str, str] | None = None,
    columns: Sequence[str] | None = None,
    predicate: Predicate | None = None,
    wait: bool = False,
) -> Iterator[ChangelogBatch]:
    """The changes of a table as a stream of record batches, snapshot by snapshot.

    A `consumer-id` advances when all batches of a snapshot have been consumed.

    Args:
        mode: instead of `scan.mode`.
        options: further table options, such as `scan.snapshot-id` or `consumer-id`.
        columns: projection, in order; None = all.
        predicate: row filter; None = all.
        wait: poll for more every `continuous.discovery-interval` instead of ending at the newest
            snapshot.

    Raises:
        InvalidOptionError: options contradict each other, or choose an unsupported start.
        InvalidRequestError: a column is unknown.
        UnsupportedFeatureError: the table merges rows and has no changelog producer.
        DataLossError: the next snapshot has expired; says what to do.
        CorruptDataError: metadata or a file is damaged.
        NotFoundError: a snapshot expired while it was read.
    """
    texts = {**(options or {}), **({} if mode is None else {"scan.mode": mode})}
    if texts:
        table = table.with_options(texts)
    scan = StreamScan(table, columns=columns, predicate=predicate)
    while True:
        plan = scan.plan()
        if plan is not None:
            for split in plan.splits:
                for rows in scan.reader.to_batches(split):
                    yield ChangelogBatch(
                        snapshot_id=plan.snapshot_id, starting=plan.starting, rows=rows
                    )
        # also when nothing was read: snapshots were skipped, and a consumer must not expire
        scan.notify_checkpoint_complete(scan.checkpoint())
        if plan is None:
            if scan.ended or not wait:
                return
            table.clock.sleep(table.options.continuous_discovery_interval_ms / 1000)
