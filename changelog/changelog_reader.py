# SPDX-License-Identifier: Apache-2.0
"""Changes of a table for a Python program, snapshot by snapshot.

`stream_scan` with the kinds `+I`, `-U`, `+U`, `-D` in a column `_row_kind`, as in Spark, and with a
position that the table keeps under a consumer, or the caller.
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
    """Reads the changes of a table, those of one snapshot at a time. Not thread-safe.

    1. Iterate: what is there now (`for changes in reader`), or for ever (`reader.follow()`).
    2. Taking the next changes acknowledges the ones before: only then does the progress of the
       `consumer` move on. After a crash in between the same changes come again.
    3. Without a consumer keep `position` together with the results, and give it to the next
       reader.

    Args:
        table: the table; a `changelog-producer` makes its changes whole (rows before and after).
        start: `latest-full` (all rows as +I, then changes), `latest` (changes from now on), any
            other `scan.mode`; the id of the first snapshot whose changes are wanted; or a time
            since which they are wanted, with its zone.
        position: of an earlier reader; comes before `start`.
        consumer: name under which the table keeps this reader's position, which comes before
            `start`; what it has not read yet does not expire.
        filter: rows wanted, as text or as a predicate; None = all. Of an update only one half may
            be among them.
        columns: in the order wanted; None = all.
        options: further options of the table, such as `scan.bounded.watermark`.

    Raises:
        InvalidOptionError: options contradict each other, or choose what no stream can begin with.
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
        """The first snapshot that has not been read; None before the beginning."""
        return self._scan.checkpoint()

    @property
    def snapshot_id(self) -> int | None:
        """The snapshot of the changes that were read last."""
        return self._scan.last_snapshot_id

    def read(self) -> pa.Table | None:
        """The changes of the next snapshot that has any.

        Returns:
            Rows of `schema`, all changes of a key in the order in which they happened; None:
            nothing new now.

        Raises:
            DataLossError: the next snapshot has expired or was rolled back; says what to do.
            CorruptDataError: metadata or a file is damaged.
        """
        self._scan.notify_checkpoint_complete(self.position)
        found = self._scan.next_batch()
        if found is None:
            # snapshots without changes were passed over: they need not be kept for a consumer
            self._scan.notify_checkpoint_complete(self.position)
            return None
        batches = [with_row_kinds(batch) for batch in found.to_batches()]
        return pa.Table.from_batches(batches, schema=self.schema)

    def __iter__(self) -> Iterator[pa.Table]:
        """The changes that are there now, snapshot by snapshot. Raises: as `read`."""
        while (changes := self.read()) is not None:
            if changes.num_rows:
                yield changes

    def follow(
        self, *, every_s: float | None = None, until: Callable[[], bool] | None = None
    ) -> Iterator[pa.Table]:
        """The changes that are there and those that come, for ever, or while a stream is bounded.

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
                "a time to start from needs a zone",
                hint="datetime.datetime(..., tzinfo=datetime.UTC)",
                start=start,
            )
        millis = int(start.timestamp() * 1000)
        return {"scan.mode": "from-timestamp", "scan.timestamp-millis": str(millis)}
    if isinstance(start, int):
        return {"scan.mode": "from-snapshot", "scan.snapshot-id": str(start)}
    return {"scan.mode": start}
