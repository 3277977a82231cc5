# SPDX-License-Identifier: Apache-2.0
"""Spark's streaming reader over `StreamRange`: offsets are snapshot ids, one task per bucket.

What survives a crash is Spark's log of offsets alone. An offset says all that its range needs, so a
batch that was planned is read again as it was, or, if its snapshots have expired, not at all.

All changes of a key come in one task and in the order in which they happened; between tasks there
is no order. The table's `consumer-id` only keeps snapshots from expiring; it moves on when Spark
says that a batch is done, which is when it plans the next one.
"""

import logging
from collections.abc import Iterator, Sequence

import pyarrow as pa
from pyspark.sql.datasource import DataSourceStreamReader, InputPartition
from pyspark.sql.streaming.datasource import (
    ReadAllAvailable,
    ReadLimit,
    ReadMaxFiles,
    SupportsTriggerAvailableNow,
)
from pyspark.sql.types import StructType

from changelog.spark_source.row_view import StreamView
from changelog.spark_source.spark_types import arrow_schema_of, spark_batches
from changelog.stream_range import START, RangeLimit, StreamPosition, StreamRange
from storage.errors import RetryableError

__all__ = ["ChangeStreamReader"]

_LOG = logging.getLogger(__name__)

_Offset = dict[str, int | bool]

_LOOK_EVERY_MS = 200
"""An idle query without trigger interval polls every 10 ms (measured), too often for a store."""

_HOLD_EVERY_MS = 60_000
"""A consumer that is not written for `consumer.expiration-time` goes; idle streams live on."""


class ChangeStreamReader(DataSourceStreamReader, SupportsTriggerAvailableNow):
    """Reads the changes of a table.

    Args:
        view: what of them, and in which columns.
        schema: Spark's, of the same columns in the same order.
        limit: how much one batch takes in.
    """

    def __init__(self, view: StreamView, schema: StructType, limit: RangeLimit) -> None:
        self._view = view
        self._arrow = arrow_schema_of(schema)
        self._limit = limit
        self._ranges: StreamRange | None = None
        self._drains = False
        self._looked_ms = self._held_ms = 0
        self._idle_at: StreamPosition | None = None
        self._held: StreamPosition | None = None

    def __getstate__(self) -> dict[str, object]:
        """Tasks read splits and need no position."""
        return {**self.__dict__, "_ranges": None}

    def initialOffset(self) -> _Offset:
        """Before the beginning; what the beginning is, the first batch's end says."""
        return START.to_json()

    def getDefaultReadLimit(self) -> ReadLimit:
        """Spark hands it back unless a trigger wants everything."""
        if self._limit == RangeLimit():
            return ReadAllAvailable()
        return ReadMaxFiles(self._limit.snapshots or self._limit.rows or 1)

    def prepareForTriggerAvailableNow(self) -> None:
        """Take in nothing that is not there now."""
        self._drains = True
        self._range.end_at_newest()

    def latestOffset(self, start: _Offset, limit: ReadLimit) -> _Offset:
        """The end of the next batch; `start` when there is nothing to read now.

        Raises:
            DataLossError: the next snapshot has expired, or the table was rolled back before it.
        """
        position = StreamPosition.from_json(start)
        clock = self._view.table.clock
        if position == self._idle_at and clock.now_ms() - self._looked_ms < _LOOK_EVERY_MS:
            return start
        wanted = RangeLimit() if isinstance(limit, ReadAllAvailable) else self._limit
        try:
            end = self._range.advance(position, wanted)
            if position == START:
                self._range.hold_beginning(end)
            elif end == position:
                self._keep_held(position)
        except RetryableError as error:
            if self._drains:
                raise  # the same offset would say that everything was read
            _LOG.warning("cannot poll for new snapshots", extra={"reason": str(error)})
            end = position
        self._looked_ms = clock.now_ms()
        self._idle_at = end if end == position else None
        return start if end == position else end.to_json()

    def reportLatestOffset(self) -> _Offset | None:
        """Where the table is now, for the progress of the query."""
        if self._idle_at is not None:
            return self._idle_at.to_json()
        try:
            return self._range.newest().to_json()
        except RetryableError:
            return None

    def partitions(self, start: _Offset, end: _Offset) -> Sequence[InputPartition]:
        """One task per bucket, of a whole state one per split."""
        groups = self._range.splits(StreamPosition.from_json(start), StreamPosition.from_json(end))
        return [InputPartition(group) for group in groups]

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """The changes of some splits, in order."""
        for split in partition.value:
            for batch in self._view.read(split):
                yield from spark_batches(batch, self._arrow)

    def commit(self, end: _Offset) -> None:
        """A batch is done, and will not be read again."""
        self._held = StreamPosition.from_json(end)
        self._range.hold(self._held)
        self._held_ms = self._view.table.clock.now_ms()

    def stop(self) -> None:
        """Nothing is held open."""

    def _keep_held(self, position: StreamPosition) -> None:
        """Write the consumer of an idle stream anew, at what Spark has said to be done."""
        clock = self._view.table.clock
        if self._held is not None and clock.now_ms() - self._held_ms >= _HOLD_EVERY_MS:
            self._range.hold(self._held)
            self._held_ms = clock.now_ms()

    @property
    def _range(self) -> StreamRange:
        if self._ranges is None:
            self._ranges = StreamRange(self._view.table, self._view.early())
        return self._ranges
