# SPDX-License-Identifier: Apache-2.0
"""Consumers: the progress of streaming readers, which keeps snapshots from expiring.

Source: FORMAT.md §11.3, SEMANTICS.md §F.12. A consumer file names the next snapshot its reader
wants; it is overwritten in place. Reading as a stream from it comes with streaming scans.
"""

import dataclasses
from collections.abc import Mapping
from typing import Any

from storage.errors import CorruptDataError, InvalidRequestError
from storage.format.metadata.documents import dump_object, parse_object, read_document
from storage.table.core import TableCore

_PREFIX = "consumer-"
_NEXT = "nextSnapshot"
_TRIES = 5
_WAIT_S = 0.05


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Consumer:
    """Progress of one streaming reader.

    Attributes:
        next_snapshot: id of the first snapshot that it has not read.
        extra: members that this version does not know, kept on rewriting.
    """

    next_snapshot: int
    extra: Mapping[str, Any] = dataclasses.field(default_factory=dict)

    def to_json(self) -> bytes:
        """The bytes of the consumer file."""
        return dump_object({_NEXT: self.next_snapshot, **self.extra})

    @classmethod
    def from_json(cls, data: bytes) -> "Consumer":
        """Read a consumer file.

        Raises:
            CorruptDataError: the bytes are no consumer.
        """
        value = parse_object(data, "consumer")
        next_id = value.pop(_NEXT, None)
        if isinstance(next_id, bool) or not isinstance(next_id, int):
            raise CorruptDataError("not a consumer file", member=_NEXT, found=next_id)
        return cls(next_snapshot=next_id, extra=value)


def read_consumer(table: TableCore, consumer_id: str) -> Consumer | None:
    """One consumer, or None when there is none.

    Raises:
        CorruptDataError: its file stays damaged; one being overwritten right now is read again.
    """
    path = table.layout.consumer_file(consumer_id)
    for number in range(_TRIES):
        try:
            return read_document(table.file_io, path, Consumer.from_json)
        except FileNotFoundError:
            return None
        except CorruptDataError:
            if number == _TRIES - 1:
                raise
            table.clock.sleep(_WAIT_S)
    return None


def write_consumer(table: TableCore, consumer_id: str, next_snapshot: int) -> None:
    """Set the progress of a consumer; creates it if needed.

    Args:
        consumer_id: not blank, a valid file name.
        next_snapshot: the first snapshot it has not read, from 1; it may not exist yet.

    Raises:
        InvalidRequestError: an argument is bad.
    """
    if not consumer_id.strip() or "/" in consumer_id:
        raise InvalidRequestError("invalid consumer name", name=consumer_id)
    if next_snapshot < 1:
        raise InvalidRequestError("snapshots are numbered from 1", next_snapshot=next_snapshot)
    before = read_consumer(table, consumer_id)
    consumer = Consumer(next_snapshot=next_snapshot, extra={} if before is None else before.extra)
    table.file_io.overwrite_bytes(table.layout.consumer_file(consumer_id), consumer.to_json())


def delete_consumer(table: TableCore, consumer_id: str) -> bool:
    """Remove a consumer. False when it did not exist."""
    return table.file_io.delete(table.layout.consumer_file(consumer_id))


def all_consumers(table: TableCore) -> dict[str, int]:
    """The next snapshot of each consumer by name, in order of the names.

    Raises:
        CorruptDataError: one is damaged.
    """
    consumers = {name: read_consumer(table, name) for name, _ in _listed(table)}
    return {name: state.next_snapshot for name, state in consumers.items() if state is not None}


def min_next_snapshot(table: TableCore) -> int | None:
    """The smallest snapshot id that a consumer still needs, or None; expiry keeps from there."""
    return min(all_consumers(table).values(), default=None)


def expire_consumers(table: TableCore, *, now_ms: int, age_ms: int) -> list[str]:
    """Remove consumers whose files have not been written for a time; returns their names.

    Args:
        now_ms: current time [epoch ms].
        age_ms: `consumer.expiration-time` [ms].
    """
    old = idle_consumers(table, now_ms=now_ms, age_ms=age_ms)
    return [name for name in old if delete_consumer(table, name)]


def idle_consumers(table: TableCore, *, now_ms: int, age_ms: int) -> list[str]:
    """The consumers that `expire_consumers` would remove. Arguments as there."""
    return [name for name, written_ms in _listed(table) if written_ms < now_ms - age_ms]


def _listed(table: TableCore) -> list[tuple[str, int]]:
    return [
        (status.name.removeprefix(_PREFIX), status.modified_ms)
        for status in table.file_io.list(table.layout.consumer_dir)
        if status.name.startswith(_PREFIX) and not status.directory and status.name != _PREFIX
    ]
