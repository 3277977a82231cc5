# SPDX-License-Identifier: Apache-2.0
"""`bad.records.topic`: copies of bad records in a Kafka topic, at least once.

The copies are made by the driver from what the batch committed to the quarantine table, before
Spark records the batch. If the topic does not accept them, the batch fails as a whole and is
retried: its tables are skipped then, and the copies are sent again from the table.

A copy has key, value, timestamp and headers of the record, and the headers `lakeward.error.class`,
`lakeward.error`, `lakeward.topic`, `lakeward.partition`, `lakeward.offset` and, where known,
`lakeward.target`. What is too large for the topic is truncated: `lakeward.value.truncated` and
`lakeward.key.truncated` hold the original length, `lakeward.headers.dropped` the number of omitted
headers of the record.
"""

import dataclasses
import functools
from collections.abc import Collection, Iterable, Iterator, Mapping
from typing import Any

import orjson
from confluent_kafka import KafkaError, KafkaException, Message, Producer

from ingest.config.settings import Settings
from ingest.config.source_settings import KafkaSourceSettings
from ingest.pipeline.exchange import BatchPlan
from ingest.source.kafka_client import CLIENT_LOG, admin_config, broker_error
from ingest.state.stream_state import Span
from ingest.state.table_registry import TableRegistry
from storage.clock import Clock
from storage.errors import RetryableError
from storage.table.scan.predicate import And, Compare, In, Op
from storage.table.table import FileStoreTable

_TIMEOUT_S = 30.0
"""How long the topic may take to acknowledge [s]."""

_DEFAULT_LIMIT = 1_000_000
"""`message.max.bytes` of the client library [bytes]; brokers accept a little more by default."""

_FRAME = 2048
"""Room left for a message's own headers and framing [bytes]."""

_SMALLEST = 4096
_ERROR_TEXT = 500
_COLUMNS = [
    "topic",
    "partition",
    "offset",
    "timestamp",
    "key",
    "value",
    "headers",
    "error_class",
    "error",
    "target",
    "batch_id",
]


@dataclasses.dataclass(frozen=True, slots=True)
class DeadLetter:
    """One message; the attributes are those of Kafka. `timestamp_ms` is 0 where there is none."""

    key: bytes | None
    value: bytes | None
    headers: tuple[tuple[str, bytes], ...]
    own_headers: tuple[tuple[str, bytes], ...]
    timestamp_ms: int

    def truncated_to(self, limit: int) -> "DeadLetter":
        """The same, truncated to a size of the whole message [bytes]."""
        room = max(limit - _FRAME, 0)
        size = sum(len(name) + len(value) for name, value in self.headers)
        if size + len(self.key or b"") + len(self.value or b"") <= room:
            return self
        own_headers = list(self.own_headers)
        key, value, headers = self.key, self.value, self.headers
        if size > room // 4:
            own_headers.append(("lakeward.headers.dropped", str(len(headers)).encode()))
            headers, size = (), 0
        if key is not None and len(key) > room // 4:
            own_headers.append(("lakeward.key.truncated", str(len(key)).encode()))
            key = key[: room // 4]
        remaining = room - size - len(key or b"")
        if value is not None and len(value) > remaining:
            own_headers.append(("lakeward.value.truncated", str(len(value)).encode()))
            value = value[:remaining]
        return dataclasses.replace(
            self, key=key, value=value, headers=headers, own_headers=tuple(own_headers)
        )


def letter_of(row: Mapping[str, Any]) -> DeadLetter:
    """The copy of a row of the quarantine table."""
    facts = {
        "lakeward.error.class": row["error_class"],
        "lakeward.error": row["error"][:_ERROR_TEXT],
        "lakeward.topic": row["topic"],
        "lakeward.partition": str(row["partition"]),
        "lakeward.offset": str(row["offset"]),
        "lakeward.target": row["target"],
    }
    headers = orjson.loads(row["headers"]) if row["headers"] else []
    moment = row["timestamp"]
    return DeadLetter(
        key=row["key"],
        value=row["value"],
        headers=tuple((name, value.encode()) for name, value in headers),
        own_headers=tuple((name, text.encode()) for name, text in facts.items() if text),
        timestamp_ms=0 if moment is None else int(moment.timestamp() * 1000),
    )


class DeadLetters:
    """The topic. Connects on first use; one thread at a time.

    Args:
        source: how to reach the brokers.
        topic: where copies go.
    """

    def __init__(self, source: KafkaSourceSettings, topic: str, clock: Clock) -> None:
        self._source = source
        self._topic = topic
        self._clock = clock
        self._limit = int(source.properties.get("message.max.bytes", _DEFAULT_LIMIT))
        self._producer: Producer | None = None
        self._too_large: list[tuple[DeadLetter, int]] = []
        self._error: KafkaError | None = None
        self._acknowledged = 0

    @staticmethod
    def of(settings: Settings, clock: Clock) -> "DeadLetters | None":
        """The topic that the settings name, if any."""
        topic, source = settings.bad_records.topic, settings.source
        if topic is None or not isinstance(source, KafkaSourceSettings):
            return None
        return DeadLetters(source, topic, clock)

    def copy(self, table: FileStoreTable, batch_id: int, span: Span) -> int:
        """Send what a batch put into the quarantine table.

        Args:
            table: the quarantine table, after the batch's commit.
            span: its ranges; they exclude records of another checkpoint's batch of the same number.

        Returns:
            How many were acknowledged.

        Raises:
            RetryableError: the topic did not accept all of them.
            AccessDeniedError: it refused access.
        """
        return self.send(letter_of(row) for row in _rows(table, batch_id, span))

    def send(self, letters: Iterable[DeadLetter]) -> int:
        """Send and wait for the acknowledgement of all; see `copy`."""
        self._too_large, self._error, self._acknowledged = [], None, 0
        for letter in letters:
            self._produce(letter, self._limit)
        self._flush()
        while self._too_large:
            letter, limit = self._too_large.pop()
            if limit <= _SMALLEST:
                raise self._failed("it does not take the smallest message")
            self._produce(letter, max(limit // 2, _SMALLEST))
            self._flush()
        return self._acknowledged

    def close(self) -> None:
        """Drop the connection."""
        self._producer = None

    def _produce(self, letter: DeadLetter, limit: int) -> None:
        truncated = letter.truncated_to(limit)
        limit = min(limit, _size(truncated))
        deadline = self._clock.monotonic_s() + _TIMEOUT_S
        while True:
            try:
                self._client().produce(
                    self._topic,
                    key=truncated.key,
                    value=truncated.value,
                    headers=[*truncated.headers, *truncated.own_headers],
                    timestamp=truncated.timestamp_ms,
                    on_delivery=functools.partial(self._delivered, letter, limit),
                )
            except BufferError:
                self._client().poll(0.1)
                if self._clock.monotonic_s() > deadline:
                    raise self._failed("its queue stays full") from None
            except KafkaException as error:
                if error.args[0].code() != KafkaError.MSG_SIZE_TOO_LARGE:
                    raise broker_error(error, topic=self._topic, partition=-1) from error
                self._too_large.append((letter, limit))
                return
            else:
                self._client().poll(0)
                return

    def _delivered(
        self, letter: DeadLetter, limit: int, error: KafkaError | None, message: Message
    ) -> None:
        del message
        if error is None:
            self._acknowledged += 1
        elif error.code() == KafkaError.MSG_SIZE_TOO_LARGE:
            self._too_large.append((letter, limit))
        else:
            self._error = error

    def _flush(self) -> None:
        unacknowledged = self._client().flush(_TIMEOUT_S)
        if self._error is not None:
            raise self._failed(self._error.str())
        if unacknowledged:
            raise self._failed(f"{unacknowledged} copies were not acknowledged in time")

    def _failed(self, detail: str) -> RetryableError:
        self._producer = None  # queued messages must not be sent later
        return RetryableError(
            "bad records could not be copied to `bad.records.topic`",
            detail=detail,
            hint="check that the topic exists and accepts messages; the batch is retried",
            topic=self._topic,
        )

    def _client(self) -> Producer:
        if self._producer is None:
            self._producer = Producer(
                {
                    **admin_config(self._source),
                    "acks": "all",
                    "message.timeout.ms": int(_TIMEOUT_S * 1000),
                    "linger.ms": 5,
                },
                logger=CLIENT_LOG,
            )
        return self._producer


def copied(
    letters: DeadLetters | None,
    book: TableRegistry,
    plan: BatchPlan,
    span: Span,
    commits: Collection[str],
) -> int:
    """Send what a batch quarantined, in this attempt or an earlier one; how many copies."""
    quarantine = book.quarantine
    if letters is None or not (quarantine in commits or quarantine in plan.skip):
        return 0
    return letters.copy(book.table(quarantine), plan.batch_id, span)


def _size(letter: DeadLetter) -> int:
    headers = sum(len(name) + len(value) for name, value in letter.headers)
    return headers + len(letter.key or b"") + len(letter.value or b"") + _FRAME


def _rows(table: FileStoreTable, batch_id: int, span: Span) -> Iterator[dict[str, Any]]:
    predicate = And((In("topic", tuple(sorted(span))), Compare(Op.EQ, "batch_id", batch_id)))
    scan = table.new_scan().with_filter(predicate)
    read = table.new_read(columns=list(_COLUMNS), predicate=predicate)
    for split in scan.plan().splits:
        for batch in read.to_batches(split):
            for row in batch.to_pylist():
                start, end = span[row["topic"]].get(str(row["partition"]), (0, 0))
                if start <= row["offset"] < end:
                    yield row
