# SPDX-License-Identifier: Apache-2.0
"""A stream of the changes of a table: an initial state, then one snapshot after the other.

Snapshots without changes are skipped. The position is a single number: a reader stores it
(`checkpoint`), or the table does under a `consumer-id`; snapshots that a consumer has not read do
not expire.
"""

import dataclasses
import datetime
from collections.abc import Callable, Iterator, Mapping, Sequence

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from changelog.follow import Beginning, Follower, from_state, require_whole_changes, starting_point
from storage.errors import InvalidRequestError
from storage.format.metadata.snapshot import Snapshot
from storage.format.types.types import VALUE_KIND, RowKind
from storage.table.inspect.system.row_tables import kind_texts
from storage.table.read.read import TableRead
from storage.table.retention.consumers import write_consumer
from storage.table.scan.predicate import Predicate, as_predicate
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


# The column `_row_kind`, `+I`, `-U`, `+U` or `-D`, in place of the stored kinds. Pure.


ROW_KIND = "_row_kind"


def row_kind_schema(schema: pa.Schema) -> pa.Schema:
    """The schema of changes, whose first column is `_VALUE_KIND`, as readers see it."""
    return schema.set(0, pa.field(ROW_KIND, pa.string(), nullable=False))


def with_row_kinds(batch: pa.RecordBatch) -> pa.RecordBatch:
    """Changes, whose first column is `_VALUE_KIND`, as readers see them."""
    kinds, schema = kind_texts().take(batch.column(0)), row_kind_schema(batch.schema)
    return pa.RecordBatch.from_arrays([kinds, *batch.columns[1:]], schema=schema)


def with_stored_kinds(batch: pa.RecordBatch) -> pa.RecordBatch:
    """Rows to be written, with `_VALUE_KIND` in the place of `_row_kind` if they have it.

    Raises:
        InvalidRequestError: a text is no kind.
    """
    position = batch.schema.get_field_index(ROW_KIND)
    if position < 0:
        return batch
    texts = batch.column(position)
    kinds = pc.index_in(texts, value_set=kind_texts())
    if kinds.null_count:
        raise InvalidRequestError(
            "a row has no valid row kind",
            hint=f"`{ROW_KIND}` is one of {', '.join(kind.short for kind in sorted(RowKind))}",
            found=texts.filter(pc.is_null(kinds)).slice(0, 1),
        )
    codes = pa.array(kinds.to_numpy(zero_copy_only=False).astype(np.int8))
    return batch.set_column(position, VALUE_KIND, codes)


# Changes of a table for a Python program, snapshot by snapshot.
#
# `stream_scan` with the kinds `+I`, `-U`, `+U`, `-D` in a column `_row_kind`, as in Spark. The
# position is kept by the table under a consumer, or by the caller.


class ChangelogReader:
    """Reads the changes of a table, one snapshot at a time. Not thread-safe.

    1. Iterate: over the available changes (`for changes in reader`), or endlessly
       (`reader.follow()`).
    2. Reading the next changes acknowledges the previous ones: only then does the position of the
       `consumer` advance. After a crash in between the same changes are read again.
    3. Without a consumer store `position` together with the results, and pass it to the next
       reader.

    Args:
        table: the table; a `changelog-producer` makes its changes complete (before and after).
        start: `latest-full` (all rows as +I, then changes), `latest` (changes from now on), any
            other `scan.mode`; the id of the first snapshot to read changes of; or a start time,
            with its zone.
        position: of an earlier reader; takes precedence over `start`.
        consumer: name under which the table stores this reader's position, which takes precedence
            over `start`; unread snapshots do not expire.
        filter: row filter, as text or as a predicate; None = all rows. It may match only one half
            of an update.
        columns: projection, in order; None = all.
        options: further options of the table, such as `scan.bounded.watermark`.

    Raises:
        InvalidOptionError: options contradict each other, or choose an unsupported start.
        InvalidRequestError: a column is unknown, the filter cannot be parsed, or the time has no
            zone.
        UnsupportedFeatureError: the table merges rows and has no changelog producer.
    """

    def __init__(
        self,
        table: FileStoreTable,
        start: str | int | datetime.datetime = "latest-full",
        *,
        position: int | None = None,
        consumer: str | None = None,
        filter: str | Predicate | None = None,
        columns: Sequence[str] | None = None,
        options: Mapping[str, str] | None = None,
    ) -> None:
        texts = {**_start_options(start), **(options or {})}
        if consumer is not None:
            texts["consumer-id"] = consumer
        self._table = table.with_options(texts)
        self._scan = StreamScan(self._table, columns=columns, predicate=as_predicate(filter))
        if position is not None:
            self._scan.restore(position)

    @property
    def schema(self) -> pa.Schema:
        """Arrow schema of the changes: `_row_kind` (string), then the columns."""
        return row_kind_schema(self._scan.schema)

    @property
    def position(self) -> int | None:
        """The first unread snapshot; None before the start."""
        return self._scan.checkpoint()

    @property
    def snapshot_id(self) -> int | None:
        """Snapshot of the last changes read."""
        return self._scan.last_snapshot_id

    def read(self) -> pa.Table | None:
        """The changes of the next snapshot that has any.

        Returns:
            Rows of `schema`, all changes of a key in commit order; None: no new snapshot yet.

        Raises:
            DataLossError: the next snapshot has expired or was rolled back; says what to do.
            CorruptDataError: metadata or a file is damaged.
        """
        self._scan.notify_checkpoint_complete(self.position)
        changes = self._scan.next_batch()
        if changes is None:
            # snapshots without changes were skipped: a consumer need not retain them
            self._scan.notify_checkpoint_complete(self.position)
            return None
        batches = [with_row_kinds(batch) for batch in changes.to_batches()]
        return pa.Table.from_batches(batches, schema=self.schema)

    def __iter__(self) -> Iterator[pa.Table]:
        """The changes available now, snapshot by snapshot. Raises: as `read`."""
        while (changes := self.read()) is not None:
            if changes.num_rows:
                yield changes

    def follow(
        self, *, every_s: float | None = None, until: Callable[[], bool] | None = None
    ) -> Iterator[pa.Table]:
        """Existing and future changes, endlessly or up to the end of a bounded stream.

        Args:
            every_s: how often to poll for more [s]; None: `continuous.discovery-interval`.
            until: called before each poll; true ends the iteration.

        Raises: as `read`.
        """
        pause_s = self._table.options.continuous_discovery_interval_ms / 1000
        while not (until is not None and until()):
            yield from self
            if self._scan.ended:
                return
            self._table.clock.sleep(pause_s if every_s is None else every_s)


def _start_options(start: str | int | datetime.datetime) -> dict[str, str]:
    if isinstance(start, datetime.datetime):
        if start.tzinfo is None:
            raise InvalidRequestError(
                "the start time needs a time zone",
                hint="datetime.datetime(..., tzinfo=datetime.UTC)",
                start=start,
            )
        millis = int(start.timestamp() * 1000)
        return {"scan.mode": "from-timestamp", "scan.timestamp-millis": str(millis)}
    if isinstance(start, int):
        return {"scan.mode": "from-snapshot", "scan.snapshot-id": str(start)}
    return {"scan.mode": start}
