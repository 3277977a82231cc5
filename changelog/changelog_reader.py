# SPDX-License-Identifier: Apache-2.0
"""Changes of a table for a Python program, snapshot by snapshot.

`stream_scan` with the kinds `+I`, `-U`, `+U`, `-D` in a column `_row_kind`, as in Spark. The
position is kept by the table under a consumer, or by the caller.
"""

import datetime
from collections.abc import Callable, Iterator, Mapping, Sequence

import pyarrow as pa

from changelog.row_kinds import row_kind_schema, with_row_kinds
from changelog.stream_scan import StreamScan
from storage.errors import InvalidRequestError
from storage.table.scan.predicate import Predicate
from storage.table.scan.predicate_text import as_predicate
from storage.table.table import FileStoreTable


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
