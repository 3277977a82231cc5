# SPDX-License-Identifier: Apache-2.0
"""Messages of one partition without a Python object per message.

`confluent_kafka.Consumer.consume` makes objects of every message, its value and its key; that was
three quarters of the cost of consuming. Here the consumer stays confluent-kafka's (configuration,
TLS, SASL, callbacks, assignment), but messages are taken with librdkafka's batch call from the
queue of their partition, and compiled code copies their values and keys into one buffer.

The partition's queue is no longer forwarded to the consumer's, so nothing in it calls back into
Python: errors, logs and tokens stay on the consumer's queue, which `Consumer.poll` serves
(`PartitionQueue.take` does). A callback inside the batch call would crash the process.

Calls and structures are those of librdkafka's public header, `rdkafka.h`, which are stable. The
pointer to the client is the first member of confluent-kafka's object; that is no public interface,
hence `TESTED_VERSIONS`. With others `open_queue` returns None, and `Consumer.consume` is used.
"""

import ctypes
import dataclasses
import functools
import logging
import weakref
from collections.abc import Sequence
from pathlib import Path
from typing import Any, overload

import confluent_kafka
import numpy as np
import numpy.typing as npt
from confluent_kafka import Consumer, KafkaError

from ingest.compiled.loading import MEMORY, loaded
from ingest.source.records import Payloads, RecordExtras
from storage.errors import InternalError

_LOG = logging.getLogger(__name__)

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
