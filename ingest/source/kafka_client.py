# SPDX-License-Identifier: Apache-2.0
"""Clients of Kafka: their configuration, and consuming a range of offsets.

Owns the client properties exact ranges rest on and the defaults chosen for throughput; the user's
`source.properties` come on top unchanged (SASL, SSL, tuning). Holds no connection.
"""

import contextlib
import ctypes
import dataclasses
import functools
import logging
import re
import time
import weakref
from bisect import bisect_left
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any, overload

import confluent_kafka
import numpy as np
import numpy.typing as npt
from confluent_kafka import Consumer, KafkaError, KafkaException, TopicPartition

from ingest.compiled.loading import MEMORY, loaded
from ingest.config.choices import nearest
from ingest.config.source_settings import KafkaSourceSettings
from ingest.errors import AccessDeniedError
from ingest.source.records import Payloads, RawBatch, RecordExtras, SourceRange
from storage.clock import SystemClock
from storage.errors import (
    DataLossError,
    InternalError,
    InvalidOptionError,
    InvalidRequestError,
    LakewardError,
    RetryableError,
)

_CLIENT_LOG = logging.getLogger("librdkafka")
_LOG = logging.getLogger(__name__)


_REPEAT_S = 60.0
_MOST_LINES = 1_000
_VARYING = re.compile(r"\(after \d+ms in state \w+.*\)")


class _ClientLog:
    """Takes the lines of librdkafka, which come when a client is polled; see `CLIENT_LOG`.

    It retries an unavailable broker twenty times a second and logs each attempt: the same line of
    a client is written once a minute.
    """

    def __init__(self) -> None:
        self._written_s: dict[tuple[str, str], float] = {}

    def log(self, level: int, form: str, facility: str, client: str, text: str) -> None:
        """As confluent_kafka calls it; what is an error for us, we say."""
        del form
        if not self._is_new(client, _VARYING.sub("", text), time.monotonic()):
            return
        _CLIENT_LOG.log(
            min(level, logging.WARNING),
            "%s",
            text,
            extra={"event": "librdkafka", "facility": facility, "client": client},
        )

    def _is_new(self, client: str, text: str, now_s: float) -> bool:
        written_s = self._written_s.get((client, text))
        if written_s is not None and now_s - written_s < _REPEAT_S:
            return False
        if len(self._written_s) >= _MOST_LINES:
            self._written_s.clear()
        self._written_s[client, text] = now_s
        return True


CLIENT_LOG = _ClientLog()
"""For the argument `logger` of clients: their lines go to our log, not past it."""

_FIXED: dict[str, str | bool] = {
    "enable.auto.commit": False,
    "enable.auto.offset.store": False,
    # the end of a range can be after its last record (transaction markers, compaction)
    "enable.partition.eof": True,
    # offsets out of range must be an error, never a silent jump
    "auto.offset.reset": "error",
}

_DEFAULTS: dict[str, str | int | bool] = {
    # librdkafka demands a name; no group is joined and nothing is committed under it
    "group.id": "lakeward",
    "client.id": "lakeward",
    "isolation.level": "read_committed",
    # One partition is read at a time, so one partition's fetch is the unit of transfer: 4 MiB is
    # about 10 ms of decoding. What is queued when a range ends is discarded, up to the size of the
    # queue and one fetch, so the queue is 4 MiB: with 16 MiB, reading ranges of 36 MB took a
    # quarter more CPU. A full queue is checked again after 1 ms; librdkafka's 1 s starves the
    # consumer (0.2 million messages of 650 bytes a second instead of 0.7).
    "max.partition.fetch.bytes": 4 << 20,
    "queued.max.messages.kbytes": 4 << 10,
    "fetch.queue.backoff.ms": 1,
    # How long a broker delays its answer at the end of the log, which ends most ranges; the next
    # range waits for that answer (4 partitions of 250 records: 158 ms with 50, 25 ms with 5).
    "fetch.wait.max.ms": 5,
    "fetch.error.backoff.ms": 100,
    "reconnect.backoff.max.ms": 2000,
    "socket.keepalive.enable": True,
}

# Properties an admin client warns about because only consumers have them.
_CONSUMER_ONLY = (
    "auto.commit.",
    "auto.offset.",
    "check.crcs",
    "enable.auto.",
    "enable.partition.eof",
    "fetch.",
    "group.",
    "heartbeat.",
    "isolation.level",
    "max.partition.",
    "max.poll.",
    "partition.assignment.",
    "queued.",
    "session.timeout",
)

_TRANSIENT = frozenset(
    {
        KafkaError._ALL_BROKERS_DOWN,
        KafkaError._MSG_TIMED_OUT,
        KafkaError._RESOLVE,
        KafkaError._TIMED_OUT,
        KafkaError._TIMED_OUT_QUEUE,
        KafkaError._TRANSPORT,
        KafkaError._WAIT_CACHE,
        KafkaError._WAIT_COORD,
        KafkaError.BROKER_NOT_AVAILABLE,
        KafkaError.COORDINATOR_NOT_AVAILABLE,
        KafkaError.LEADER_NOT_AVAILABLE,
        KafkaError.NETWORK_EXCEPTION,
        KafkaError.NOT_COORDINATOR,
        KafkaError.NOT_LEADER_FOR_PARTITION,
        KafkaError.OFFSET_NOT_AVAILABLE,
        KafkaError.REPLICA_NOT_AVAILABLE,
        KafkaError.REQUEST_TIMED_OUT,
        # what a broker says between the creation of a topic and the news reaching it
        KafkaError.UNKNOWN_TOPIC_OR_PART,
        KafkaError._UNKNOWN_PARTITION,
        KafkaError._UNKNOWN_TOPIC,
    }
)

_DENIED = frozenset(
    {
        KafkaError.CLUSTER_AUTHORIZATION_FAILED,
        KafkaError.SASL_AUTHENTICATION_FAILED,
        KafkaError.TOPIC_AUTHORIZATION_FAILED,
        KafkaError._AUTHENTICATION,
    }
)


def consumer_config(settings: KafkaSourceSettings) -> dict[str, str | int | bool]:
    """Configuration of a consumer that reads exact ranges and joins no group."""
    return {
        **_DEFAULTS,
        **settings.properties,
        **_FIXED,
        "bootstrap.servers": settings.bootstrap_servers,
    }


def admin_config(settings: KafkaSourceSettings) -> dict[str, str | int | bool]:
    """The same connection for an admin client."""
    config = consumer_config(settings)
    return {name: value for name, value in config.items() if not name.startswith(_CONSUMER_ONLY)}


def is_transient(error: KafkaError) -> bool:
    """Whether waiting can help: the client library or the next trigger tries again."""
    return error.code() in _TRANSIENT or bool(error.retriable())


_COMMON = (
    *("security.protocol", "sasl.mechanisms", "sasl.username", "sasl.password", "debug"),
    *("sasl.oauthbearer.config", "sasl.oauthbearer.method", "sasl.kerberos.keytab"),
    *("ssl.ca.location", "ssl.certificate.location", "ssl.key.location", "ssl.key.password"),
    *("enable.ssl.certificate.verification", "ssl.endpoint.identification.algorithm"),
    *("fetch.min.bytes", "fetch.wait.max.ms", "fetch.message.max.bytes", "message.max.bytes"),
    *("client.id", "client.rack", "socket.timeout.ms", "broker.address.family"),
)


def refused_properties(detail: str) -> InvalidRequestError:
    """The error of a client that cannot be made, which waiting does not change.

    Args:
        detail: the client library's words, which name the property.
    """
    unknown = re.search(r'No such configuration property: "(.+)"', detail)
    return InvalidOptionError(
        "the kafka client refuses its settings",
        detail=detail,
        hint=(nearest(unknown.group(1), _COMMON) if unknown else "")
        or "its properties are those of librdkafka, which are not always those of Java clients",
        key=f"source.properties.{unknown.group(1)}" if unknown else "source.properties",
    )


def broker_error(
    error: KafkaError | KafkaException, *, topic: str = "", partition: int = -1
) -> LakewardError:
    """Our error for one of librdkafka's: what the caller can do next decides the class."""
    cause = error.args[0] if isinstance(error, KafkaException) else error
    if cause.code() == KafkaError._INVALID_ARG:
        return refused_properties(cause.str())
    target = f"{topic}-{partition}" if topic else "cluster"
    if cause.code() in _DENIED:
        return AccessDeniedError(
            "kafka refused access",
            detail=cause.str(),
            hint="check the credentials in `source.properties` and the ACLs of the topics",
            target=target,
        )
    return RetryableError("kafka did not answer", detail=cause.str(), target=target)


def data_loss(topic: str, partition: int, offset: int, low: int, high: int) -> DataLossError:
    """Offsets the stream still needs are not in the log.

    Args:
        topic: source topic.
        partition: partition number.
        offset: first offset that was needed.
        low: earliest offset there is.
        high: end of the log.
    """
    cause = (
        "retention or a deletion removed them"
        if offset < low
        else "the topic was deleted, truncated or re-created"
    )
    return DataLossError(
        "kafka no longer has offsets that this stream needs",
        detail=cause,
        hint="re-snapshot the tables of this topic, or set `source.fail.on.data.loss: false` to "
        "continue with the remaining records",
        topic=topic,
        partition=partition,
        wanted=offset,
        earliest=low,
        latest=high,
    )


# Messages of one partition without a Python object per message.
#
# `confluent_kafka.Consumer.consume` makes objects of every message, its value and its key; that was
# three quarters of the cost of consuming. Here the consumer stays confluent-kafka's (configuration,
# TLS, SASL, callbacks, assignment), but messages are taken with librdkafka's batch call from the
# queue of their partition, and compiled code copies their values and keys into one buffer.
#
# The partition's queue is no longer forwarded to the consumer's, so nothing in it calls back into
# Python: errors, logs and tokens stay on the consumer's queue, which `Consumer.poll` serves
# (`PartitionQueue.take` does). A callback inside the batch call would crash the process.
#
# Calls and structures are those of librdkafka's public header, `rdkafka.h`, which are stable. The
# pointer to the client is the first member of confluent-kafka's object; that is no public
# interface, hence `TESTED_VERSIONS`. With others `open_queue` returns None, and `Consumer.consume`
# is used.


TESTED_VERSIONS = ("2.16.",)
"""Versions of confluent-kafka whose objects are tested to begin with the client's pointer."""

_POINTER = ctypes.c_void_p
_CLIENT_OFFSET = 2 * ctypes.sizeof(_POINTER)  # behind the header of every Python object
_CONSUMER_TYPE = 1

# rows of the table that `measure` fills
_OFFSET, _VALUE_AT, _VALUE_SIZE, _KEY_AT, _KEY_SIZE, _ERROR, _TABLE_ROWS = range(7)


class _Library:
    """librdkafka's functions; see `rdkafka.h`."""

    def __init__(self, path: Path) -> None:
        self._loaded = ctypes.CDLL(str(path))
        text, size, integer = ctypes.c_char_p, ctypes.c_size_t, ctypes.c_int
        out = ctypes.POINTER
        self.client_type = self._function("rd_kafka_type", integer, _POINTER)
        self.queue_of = self._function(
            "rd_kafka_queue_get_partition", _POINTER, _POINTER, text, ctypes.c_int32
        )
        self.forward = self._function("rd_kafka_queue_forward", None, _POINTER, _POINTER)
        self.release_queue = self._function("rd_kafka_queue_destroy", None, _POINTER)
        self.take = self._function(
            "rd_kafka_consume_batch_queue", ctypes.c_ssize_t, _POINTER, integer, _POINTER, size
        )
        self.timestamp = self._function(
            "rd_kafka_message_timestamp", ctypes.c_int64, _POINTER, out(integer)
        )
        self.headers = self._function("rd_kafka_message_headers", integer, _POINTER, out(_POINTER))
        self.header_at = self._function(
            "rd_kafka_header_get_all", integer, _POINTER, size, out(text), out(_POINTER), out(size)
        )
        destroy = self._function("rd_kafka_message_destroy", None, _POINTER)
        self.destroy_address = int(ctypes.cast(destroy, _POINTER).value or 0)
        self.headers_address = int(ctypes.cast(self.headers, _POINTER).value or 0)

    def _function(self, name: str, result: Any, *arguments: Any) -> Any:
        function = getattr(self._loaded, name)
        function.restype, function.argtypes = result, arguments
        return function


@functools.cache
def _library() -> _Library | None:
    """Librdkafka as confluent-kafka has loaded it; None where it cannot be used."""
    if not confluent_kafka.__version__.startswith(TESTED_VERSIONS):
        _LOG.info(
            "confluent-kafka %s was not tested with native consuming: using consume()",
            confluent_kafka.__version__,
            extra={"event": "native_consume_off"},
        )
        return None
    folder = Path(confluent_kafka.__file__).parent.parent / "confluent_kafka.libs"
    libraries = sorted(folder.glob("librdkafka*.so*"))
    if len(libraries) != 1:
        return None
    try:
        return _Library(libraries[0])
    except (OSError, AttributeError):
        _LOG.info("librdkafka was not loaded", exc_info=True)
        return None


def open_queue(client: Consumer, topic: str, partition: int) -> "PartitionQueue | None":
    """The queue of one partition; must be called before the partition is assigned.

    Returns:
        None where the library is not of a tested version, or this process has not loaded the
        compiled functions.
    """
    compiled = loaded(MEMORY)
    library = _library()
    if compiled is None or library is None:
        return None
    return PartitionQueue(library, compiled, client, topic, partition)


@dataclasses.dataclass
class MessageBlock:
    """Result of one call to the client.

    Attributes:
        offsets: of the records, ascending; a `range` where none is missing.
        keys, values: their contents.
        messages: their headers and timestamps.
        events: (error, offset) of events that are no records: the end of the log, a failure.
    """

    offsets: Sequence[int]
    keys: Sequence[bytes | None]
    values: list[bytes | None] | Payloads
    messages: Sequence[RecordExtras]
    events: list[tuple[KafkaError, int]]

    def first(self, count: int) -> "MessageBlock":
        """Only the first `count` records; all events."""
        return dataclasses.replace(
            self,
            offsets=self.offsets[:count],
            keys=self.keys[:count],
            values=self.values[:count],
        )


class _Messages(Sequence[RecordExtras]):
    """Messages of librdkafka, which live as long as this object."""

    def __init__(self, queue: "PartitionQueue", pointers: npt.NDArray[np.uint64]) -> None:
        self._queue = queue  # and with it the client, which must outlive its messages
        self.pointers = pointers

    def __del__(self) -> None:
        self.release()

    def release(self) -> None:
        """Release the messages to librdkafka; headers and timestamps are unreadable afterwards."""
        pointers, self.pointers = self.pointers, self.pointers[:0]
        self._queue.release(pointers)

    def __len__(self) -> int:
        return len(self.pointers)

    def with_headers(self, places: npt.NDArray[np.int64]) -> list[int]:
        """The places of messages that have headers."""
        rows: list[int] = places[self._queue.has_headers(self.pointers[places])].tolist()
        return rows

    @overload
    def __getitem__(self, at: int) -> RecordExtras: ...

    @overload
    def __getitem__(self, at: slice) -> list[RecordExtras]: ...

    def __getitem__(self, at: int | slice) -> RecordExtras | list[RecordExtras]:
        if isinstance(at, slice):
            return [self[index] for index in range(*at.indices(len(self)))]
        return _Record(self, self._queue.library, at)


class PartitionQueue:
    """Takes messages of one assigned partition; see `open_queue`."""

    def __init__(
        self, library: _Library, compiled: Any, client: Consumer, topic: str, partition: int
    ) -> None:
        handle = _POINTER.from_address(id(client) + _CLIENT_OFFSET).value
        if not handle or library.client_type(handle) != _CONSUMER_TYPE:
            raise InternalError("not a consumer of librdkafka", topic=topic, partition=partition)
        self.library = library
        self._compiled = compiled
        self._client = client
        self._queue = library.queue_of(handle, topic.encode(), partition)
        self._unreleased: weakref.WeakSet[_Messages] = weakref.WeakSet()
        library.forward(self._queue, None)

    def take(self, max_messages: int, wait_s: float) -> MessageBlock:
        """Up to `max_messages` messages, as many as come within `wait_s` [s]."""
        pointers = np.empty(max_messages, np.uint64)
        wait_ms = int(wait_s * 1000)
        count = self.library.take(self._queue, wait_ms, pointers.ctypes.data, max_messages)
        block = self._block(pointers[: max(0, count)])
        polled = self._client.poll(0)  # runs callbacks for errors, logs and tokens
        if polled is not None:
            error = polled.error()
            if error is None:
                raise InternalError("a record bypassed the queue of its partition")
            block.events.append((error, polled.offset()))
        return block

    def has_headers(self, pointers: npt.NDArray[np.uint64]) -> npt.NDArray[np.bool_]:
        """Whether each message has headers."""
        flags = np.empty(len(pointers), np.bool_)
        scratch = np.empty(1, np.uint64)
        self._compiled.note_headers(pointers, self.library.headers_address, scratch, flags)
        return flags

    def release(self, pointers: npt.NDArray[np.uint64]) -> None:
        """Release messages to librdkafka."""
        self._compiled.release(pointers, self.library.destroy_address)

    def close(self) -> None:
        """Release the queue and all messages taken from it; the partition stays assigned.

        Closing a client waits for every message that was not released, so none may outlive its
        range in a list or a traceback.
        """
        self.library.release_queue(self._queue)
        for messages in list(self._unreleased):
            messages.release()

    def _block(self, pointers: npt.NDArray[np.uint64]) -> MessageBlock:
        messages = _Messages(self, pointers)
        self._unreleased.add(messages)
        table = np.empty((_TABLE_ROWS, len(pointers)), np.int64)
        buffer = np.empty(self._compiled.measure(pointers, table), np.uint8)
        self._compiled.copy(pointers, table, buffer)
        failed = table[_ERROR] != 0
        events: list[tuple[KafkaError, int]] = []
        rows: Sequence[RecordExtras] = messages
        if failed.any():
            texts = Payloads(buffer, table[_VALUE_AT], table[_VALUE_SIZE])
            for at in np.flatnonzero(failed).tolist():
                text = (texts[at] or b"").decode("utf-8", "replace")
                events.append((KafkaError(int(table[_ERROR, at]), text), int(table[_OFFSET, at])))
            rows = [messages[at] for at in np.flatnonzero(~failed).tolist()]
            table = np.ascontiguousarray(table[:, ~failed])
        return MessageBlock(
            offsets=_ascending(table[_OFFSET]),
            keys=Payloads(buffer, table[_KEY_AT], table[_KEY_SIZE]),
            values=Payloads(buffer, table[_VALUE_AT], table[_VALUE_SIZE]),
            messages=rows,
            events=events,
        )


def _ascending(offsets: npt.NDArray[np.int64]) -> Sequence[int]:
    """Strictly ascending offsets, as a `range` where none is missing."""
    if len(offsets) and offsets[-1] - offsets[0] == len(offsets) - 1:
        return range(int(offsets[0]), int(offsets[-1]) + 1)
    return offsets.tolist()


class _Record:
    """Headers and timestamp of one message; keeps it alive."""

    __slots__ = ("_at", "_library", "_messages")

    def __init__(self, messages: _Messages, library: _Library, at: int) -> None:
        self._messages = messages
        self._library = library
        self._at = at

    def headers(self) -> list[tuple[str, bytes | None]]:
        """As `RecordExtras`."""
        library = self._library
        headers = _POINTER()
        if library.headers(self._message(), ctypes.byref(headers)) != 0:
            return []
        name, value, size = ctypes.c_char_p(), _POINTER(), ctypes.c_size_t()
        out = ctypes.byref(name), ctypes.byref(value), ctypes.byref(size)
        pairs: list[tuple[str, bytes | None]] = []
        while library.header_at(headers, len(pairs), *out) == 0:
            content = None if value.value is None else ctypes.string_at(value.value, size.value)
            pairs.append(((name.value or b"").decode(), content))
        return pairs

    def timestamp(self) -> tuple[int, int]:
        """As `RecordExtras`."""
        kind = ctypes.c_int()
        stamp = self._library.timestamp(self._message(), ctypes.byref(kind))
        return kind.value, stamp

    def _message(self) -> int:
        pointers = self._messages.pointers
        if not len(pointers):
            raise InternalError("headers of a record were read after the end of its range")
        return int(pointers[self._at])


# Executor side of the Kafka source: read exactly one range of offsets.
#
# A range ends in one of three ways: a record at or after its end arrives; the last offset before
# its end was read; or the end of the log is reported with the consumer's position at or after the
# range's end (the last offsets hold transaction markers or compacted records and nothing is ever
# delivered for them). Aborted transactions are skipped by the client library. Anything else is an
# error or a wait that ends at a deadline: no range is ever cut short silently.
#
# Consumers are cached per process and configuration; Spark reuses its Python workers.


STALL_S = 60.0
"""A range that makes no progress for this long fails its task [s]: above the 30 s that a leader
election or a broker restart takes, far below anything an operator would wait for."""

# Bounds of one RawBatch. The decoder works best on 1-5 thousand events; large
# records make smaller batches so that a few MiB are in memory at a time.
_BATCH_RECORDS = 5000
_BATCH_BYTES = 4 << 20
_FIRST_BATCH_RECORDS = 500
_NEAR_END_RECORDS = _BATCH_RECORDS
"""Of a range; earlier a second consumer would wait with a full queue, which costs CPU time."""

# `Consumer.consume` waits this long for a full batch even when the end of the log was reported
# [s]; this is the cost of detecting the end of a range after its last record.
_WAIT_S = 0.02
_QUERY_TIMEOUT_S = 10.0

_CLOCK = SystemClock()


class _PooledConsumer:
    """A consumer, the last error that it reported outside of any record, and sizes by topic."""

    def __init__(self, settings: KafkaSourceSettings) -> None:
        self.complaint = ""
        self.batch_records: dict[str, int] = {}
        config = {**consumer_config(settings), "error_cb": self._complain}
        self.client = Consumer(config, logger=CLIENT_LOG)

    def _complain(self, error: KafkaError) -> None:
        self.complaint = error.str()


_IDLE: dict[str, list[_PooledConsumer]] = {}


def consume(
    pieces: Iterable[SourceRange], settings: KafkaSourceSettings, *, stall_s: float = STALL_S
) -> Iterator[tuple[SourceRange, Iterator[RawBatch]]]:
    """Read ranges, the records of each in offset order; read one before taking the next.

    Near the end of a range a second consumer begins to fetch the next one, so that the caller does
    not wait for the broker once per range: of small ranges that took as long as decoding them.

    Args:
        pieces: what to read.
        settings: how to reach the brokers.
        stall_s: give up after this long without progress [s].

    Yields:
        Each range with its batches of 1 to 5000 records; an empty one only reports `skipped`
        offsets. Headers and timestamps of a batch can be read until the next one is requested.

    Raises:
        DataLossError: offsets of the range no longer exist and `fail_on_data_loss` is on.
        RetryableError: no progress for `stall_s`.
        AccessDeniedError, InvalidRequestError: credentials or properties are refused.
    """
    remaining = deque(pieces)
    opened: list[_RangeReader] = []

    def fetch_ahead() -> None:
        if remaining and len(opened) < 2:
            opened.append(_RangeReader(remaining.popleft(), settings, stall_s))
            opened[-1].start()

    try:
        while opened or remaining:
            if not opened:
                fetch_ahead()
            yield opened[0].piece, opened[0].batches(fetch_ahead)
            del opened[0]
    finally:
        for reader in opened:
            reader.close()


def _idle_consumers(settings: str) -> list[_PooledConsumer]:
    """Those with these settings; others are closed, as their settings are former ones."""
    for former in _IDLE.keys() - {settings}:
        for pooled in _IDLE.pop(former):
            pooled.client.close()
    return _IDLE.setdefault(settings, [])


@contextlib.contextmanager
def _broker_errors(piece: SourceRange) -> Iterator[None]:
    try:
        yield
    except KafkaException as error:
        raise broker_error(error, topic=piece.topic, partition=piece.partition) from error


class _RangeReader:
    """Reads one range once.

    Invariant: every record of the range below `position` was yielded or is counted as skipped.
    """

    def __init__(self, piece: SourceRange, settings: KafkaSourceSettings, stall_s: float) -> None:
        self.piece = piece
        self.settings = settings
        self.stall_s = stall_s
        self.position = piece.start
        self.skipped = 0
        self.log_end: int | None = None
        self._closed = False
        self._idle = _idle_consumers(settings.to_json())
        with _broker_errors(piece):
            self.pooled = self._idle.pop() if self._idle else _PooledConsumer(settings)
            self.pooled.complaint = ""
            self.client = self.pooled.client
            self.queue = open_queue(self.client, piece.topic, piece.partition)

    def start(self) -> None:
        """Begin to fetch."""
        with _broker_errors(self.piece):
            self._assign()

    def batches(self, near_end: Callable[[], None]) -> Iterator[RawBatch]:
        """See `consume`; calls `near_end` before the last records are returned."""
        finished = False
        try:
            with _broker_errors(self.piece):
                for raw in self._read():
                    if self.piece.end - self.position <= _NEAR_END_RECORDS:
                        near_end()
                    yield raw
            finished = True
        finally:
            self.close(reuse=finished)

    def close(self, *, reuse: bool = False) -> None:
        """Release the consumer: for the next range, or because this one was not read to its end."""
        if self._closed:
            return
        self._closed = True
        if self.queue is not None:
            self.queue.close()
        if reuse:
            self.client.unassign()  # else it keeps prefetching
            self._idle.append(self.pooled)
        else:
            self.client.close()

    def _read(self) -> Iterator[RawBatch]:
        topic, partition, end = self.piece.topic, self.piece.partition, self.piece.end
        batch_records = self.pooled.batch_records.get(topic, _FIRST_BATCH_RECORDS)
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
                    self.pooled.batch_records[topic] = batch_records
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
        events=[(error, each.offset()) for each in polled if (error := each.error()) is not None],
    )
