# SPDX-License-Identifier: Apache-2.0
"""Executor side of the Kafka source: read exactly one range of offsets.

A range ends in one of three ways: a record at or after its end arrives; the last offset before
its end was read; or the end of the log is reported with the consumer's position at or after the
range's end (the last offsets hold transaction markers or compacted records and nothing is ever
delivered for them). Aborted transactions are skipped by the client library. Anything else is an
error or a wait that ends at a deadline: no range is ever cut short silently.

Consumers are cached per process and configuration; Spark reuses its Python workers.
"""

from bisect import bisect_left
from collections.abc import Iterator

from confluent_kafka import Consumer, KafkaError, KafkaException, TopicPartition

from ingest.config.source_settings import KafkaSourceSettings
from ingest.source.kafka_client import (
    CLIENT_LOG,
    broker_error,
    consumer_config,
    data_loss,
    is_transient,
)
from ingest.source.native_messages import MessageBlock, open_queue
from ingest.source.ranges import SourceRange
from ingest.source.records import RawBatch
from storage.clock import SystemClock
from storage.errors import RetryableError

STALL_S = 60.0
"""A range that makes no progress for this long fails its task [s]: above the 30 s that a leader
election or a broker restart takes, far below anything an operator would wait for."""

# Bounds of one RawBatch. The decoder works best on 1-5 thousand events; large
# records make smaller batches so that a few MiB are in memory at a time.
_BATCH_RECORDS = 5000
_BATCH_BYTES = 4 << 20
_FIRST_BATCH_RECORDS = 500

# `Consumer.consume` waits this long for a full batch even when the end of the log was reported
# [s]; this is the cost of detecting the end of a range after its last record.
_WAIT_S = 0.02
_QUERY_TIMEOUT_S = 10.0

_CLOCK = SystemClock()


class _PooledConsumer:
    """A consumer and the last error that it reported outside of any record."""

    def __init__(self, settings: KafkaSourceSettings) -> None:
        self.complaint = ""
        config = {**consumer_config(settings), "error_cb": self._complain}
        self.client = Consumer(config, logger=CLIENT_LOG)

    def _complain(self, error: KafkaError) -> None:
        self.complaint = error.str()


_IDLE: dict[str, list[_PooledConsumer]] = {}


def consume(
    piece: SourceRange, settings: KafkaSourceSettings, *, stall_s: float = STALL_S
) -> Iterator[RawBatch]:
    """Read the records of `piece` in offset order.

    Args:
        piece: what to read.
        settings: how to reach the brokers.
        stall_s: give up after this long without progress [s].

    Yields:
        Batches of 1 to 5000 records; an empty one only to report `skipped` offsets at the end.
        Headers and timestamps of a batch can be read until the next one is requested.

    Raises:
        DataLossError: offsets of the range no longer exist and `fail_on_data_loss` is on.
        RetryableError: no progress for `stall_s`.
        InvalidRequestError: access denied, or the client refuses its properties.
    """
    key = settings.to_json()
    idle = _IDLE.setdefault(key, [])
    try:
        pooled = idle.pop() if idle else _PooledConsumer(settings)
    except KafkaException as error:
        raise broker_error(error, topic=piece.topic, partition=piece.partition) from error
    reader = _RangeReader(pooled, piece, settings, stall_s)
    finished = False
    try:
        yield from reader.read()
        finished = True
    except KafkaException as error:
        raise broker_error(error, topic=piece.topic, partition=piece.partition) from error
    finally:
        if reader.queue is not None:
            reader.queue.close()
        if finished:
            pooled.client.unassign()  # else it keeps prefetching
            idle.append(pooled)
        else:
            pooled.client.close()


class _RangeReader:
    """Reads one range once.

    Invariant: every record of the range below `position` was yielded or is counted as skipped.
    """

    def __init__(
        self,
        pooled: _PooledConsumer,
        piece: SourceRange,
        settings: KafkaSourceSettings,
        stall_s: float,
    ) -> None:
        self.pooled = pooled
        self.client = pooled.client
        self.piece = piece
        self.settings = settings
        self.stall_s = stall_s
        self.queue = open_queue(self.client, piece.topic, piece.partition)
        self.position = piece.start
        self.skipped = 0
        self.log_end: int | None = None

    def read(self) -> Iterator[RawBatch]:
        """See `consume`."""
        topic, partition, end = self.piece.topic, self.piece.partition, self.piece.end
        batch_records = _FIRST_BATCH_RECORDS
        self.pooled.complaint = ""
        self._assign()
        deadline = _CLOCK.monotonic_s() + self.stall_s
        while self.position < end:
            before = self.position
            limit = min(batch_records, end - self.position)
            if self.queue is None:
                block = _poll_messages(self.client, limit)
            else:
                block = self.queue.take(limit, _WAIT_S)
            if block.offsets:
                if block.offsets[-1] >= end:
                    block = block.first(bisect_left(block.offsets, end))
                    self.position = end
                else:
                    self.position = block.offsets[-1] + 1
                if block.offsets:
                    raw = RawBatch(
                        topic,
                        partition,
                        block.offsets,
                        block.keys,
                        block.values,
                        messages=block.messages,
                        skipped=self._take_skipped(),
                    )
                    batch_records = _next_batch_records(raw)
                    yield raw
            for error, offset in block.events:
                self._handle(error, offset)
            if self.position > before:
                deadline = _CLOCK.monotonic_s() + self.stall_s
            elif _CLOCK.monotonic_s() > deadline:
                self._give_up()
        if self.skipped:
            yield RawBatch(topic, partition, [], [], [], skipped=self._take_skipped())

    def _assign(self) -> None:
        self.client.assign([TopicPartition(self.piece.topic, self.piece.partition, self.position)])

    def _take_skipped(self) -> int:
        skipped, self.skipped = self.skipped, 0
        return skipped

    def _handle(self, error: KafkaError, offset: int) -> None:
        if self.position >= self.piece.end:
            return
        if error.code() == KafkaError._PARTITION_EOF:
            # the event's offset is the end of the log, after any transaction markers
            self.log_end = offset
            self.position = max(self.position, min(offset, self.piece.end))
        elif error.code() == KafkaError._AUTO_OFFSET_RESET:
            self._out_of_range()
        elif not is_transient(error):
            raise broker_error(error, topic=self.piece.topic, partition=self.piece.partition)
        else:
            self.pooled.complaint = error.str()

    def _out_of_range(self) -> None:
        """The log does not hold `position`: fail, or continue with the remaining offsets."""
        partition = TopicPartition(self.piece.topic, self.piece.partition)
        low, high = self.client.get_watermark_offsets(partition, timeout=_QUERY_TIMEOUT_S)
        if low <= self.position <= high:  # back in range, as after a leader change
            self._assign()
            return
        if self.settings.fail_on_data_loss:
            raise data_loss(self.piece.topic, self.piece.partition, self.position, low, high)
        resume = min(low, self.piece.end) if self.position < low else self.piece.end
        self.skipped += resume - self.position
        self.position = resume
        if self.position < self.piece.end:
            self._assign()

    def _give_up(self) -> None:
        """No progress until the deadline."""
        if self.log_end is None:
            raise RetryableError(
                "kafka delivered no records of a range",
                detail=self.pooled.complaint,
                hint="check that the brokers and the topic's partition leader are up",
                topic=self.piece.topic,
                partition=self.piece.partition,
                position=self.position,
                end=self.piece.end,
            )
        # the log ends before the range does: records that existed at planning are gone
        if self.settings.fail_on_data_loss:
            low = min(self.position, self.log_end)
            raise data_loss(
                self.piece.topic, self.piece.partition, self.position, low, self.log_end
            )
        self.skipped += self.piece.end - self.position
        self.position = self.piece.end


def _next_batch_records(raw: RawBatch) -> int:
    return max(1, min(_BATCH_RECORDS, _BATCH_BYTES * len(raw) // (raw.nbytes + 1)))


def _poll_messages(client: Consumer, max_messages: int) -> MessageBlock:
    """`PartitionQueue.take` through `Consumer.consume`: one object per message."""
    polled = client.consume(max_messages, _WAIT_S)
    messages = [message for message in polled if message.error() is None]
    return MessageBlock(
        offsets=[message.offset() for message in messages],
        keys=[message.key() for message in messages],
        values=[message.value() for message in messages],
        messages=messages,
        events=[
            (error, message.offset())
            for message in polled
            if (error := message.error()) is not None
        ],
    )
