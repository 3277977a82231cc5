# SPDX-License-Identifier: Apache-2.0
"""Streams cut into ranges of snapshots, for readers that keep their own position.

A position is a snapshot id: everything before it was read. It says how the stream began until the
first range has been read, so that this range can be read again and be the same, whatever the table
has become: with which snapshot, and whether with the whole state before it.
"""

import dataclasses
from collections import defaultdict
from collections.abc import Mapping

from changelog.follow import Follower
from changelog.starting import Beginning, starting_point
from storage.errors import InvalidRequestError
from storage.table.retention.consumers import delete_consumer, write_consumer
from storage.table.scan.predicate import Predicate
from storage.table.scan.scan import ChangeSplit, Split
from storage.table.scan.time_travel import ScanMode, scan_mode_of
from storage.table.table import FileStoreTable

__all__ = ["START", "RangeLimit", "StreamPosition", "StreamRange"]

_BEGINNING = "-beginning"
"""Follows the name of a consumer in that of another, which keeps the state a stream begins with."""


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class StreamPosition:
    """How far a stream has come.

    Attributes:
        next_id: first snapshot that has not been read; 0: it has not begun.
        first_id: of the position that ends the first range: the first snapshot whose changes are in
            it; None elsewhere.
        whole_state: of the same position: whether the state before that snapshot is in it.
        files_since_ms: of the same position: only files of that state made since [epoch ms].
    """

    next_id: int = 0
    first_id: int | None = None
    whole_state: bool = False
    files_since_ms: int | None = None

    def to_json(self) -> dict[str, int | bool]:
        """The members that say something, always in the same order."""
        found: dict[str, int | bool] = {"snapshot": self.next_id}
        if self.first_id is not None:
            found["first"] = self.first_id
            found["state"] = self.whole_state
        if self.files_since_ms is not None:
            found["since"] = self.files_since_ms
        return found

    @staticmethod
    def from_json(found: Mapping[str, int | bool]) -> "StreamPosition":
        """Read what `to_json` gave.

        Raises:
            InvalidRequestError: it is something else.
        """
        next_id = found.get("snapshot")
        if not isinstance(next_id, int):
            raise InvalidRequestError(
                "this is no position in a stream of a table",
                hint="the checkpoint belongs to another query; give this one its own",
                found=dict(found),
            )
        first, since = found.get("first"), found.get("since")
        return StreamPosition(
            next_id=next_id,
            first_id=None if first is None else int(first),
            whole_state=bool(found.get("state", False)),
            files_since_ms=None if since is None else int(since),
        )


START = StreamPosition()
"""Before the beginning."""


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class RangeLimit:
    """How much one range takes in; at least one snapshot that brings something.

    Attributes:
        snapshots: that bring something; None: any number.
        rows: changes after which no further snapshot is taken in; None: any number.
    """

    snapshots: int | None = None
    rows: int | None = None


class StreamRange:
    """Ranges of the stream of a table. Not thread-safe.

    Protocol: `advance` from a position, beginning with `START`, gives the end of the next range
    (the same: nothing new); `splits` says what lies between two positions, as often as
    asked, also in a new process. `hold` keeps the table from expiring what was not read yet.

    Args:
        table: with the options that say where the stream begins.
        predicate: rows wanted; None = all.

    Raises:
        InvalidOptionError: options contradict each other, or choose what no stream can begin with.
    """

    def __init__(self, table: FileStoreTable, predicate: Predicate | None = None) -> None:
        self._table = table
        self._starting = starting_point(table)
        self._follower = Follower(table, predicate)
        if table.options.scan_bounded:
            self.end_at_newest()

    def end_at_newest(self) -> None:
        """From now on take nothing in that is not there yet."""
        self._follower.end_at_newest()

    def newest(self) -> StreamPosition:
        """The position at the end of what is there now."""
        return StreamPosition(next_id=(self._table.snapshots.latest_id() or 0) + 1)

    def advance(self, position: StreamPosition, limit: RangeLimit | None = None) -> StreamPosition:
        """Where the range that begins at a position ends; the same if nothing is to be read now.

        A range with a whole state holds nothing else.

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
        """What lies between two positions.

        Returns:
            Groups that can be read apart from each other, the splits of each in order: all changes
            of a key are in one group, in the order in which they happened.

        Raises:
            DataLossError: a snapshot has expired or was rolled back.
            NotFoundError: the snapshot of the whole state has expired.
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
        """Record the progress of the table's `consumer-id`; nothing without one.

        Args:
            position: everything before it will not be read again.
        """
        consumer = self._table.options.consumer_id
        if consumer and position.next_id:
            write_consumer(self._table, consumer, position.next_id)
            delete_consumer(self._table, consumer + _BEGINNING)

    def hold_beginning(self, end: StreamPosition) -> None:
        """The same before the first range, which ends at a position, has been read.

        A whole state is kept under a name of its own until the range has been read: under the
        stream's, one that begins anew would go on after the state instead of beginning with it.
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
            return Beginning(1)  # whatever comes, however long it takes
        return beginning

    def _follow_from(self, next_id: int, limit: RangeLimit) -> int:
        """The end of a range that begins with a snapshot; snapshots without changes are free."""
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
