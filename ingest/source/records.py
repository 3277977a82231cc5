# SPDX-License-Identifier: Apache-2.0
"""Raw source records, as a source hands them to the decoder: parallel lists, a few thousand rows.

Owns `RawBatch` only. Knows nothing of Debezium, tables or Spark. Headers and timestamps are needed
for quarantined rows alone, so they stay where the client library keeps them and are read row
by row (reading the timestamp of every message costs more than reading its value: 105 ns to 14 ns).
"""

from collections.abc import Mapping, Sequence
from typing import Any, Protocol, overload

import numpy as np
import numpy.typing as npt

NO_TIMESTAMP = -1
"""`timestamp_ms` of a record that carries none."""

PADDING = 16
"""Bytes after the last content of a buffer, so that a word may be read from any byte of it."""


class RecordExtras(Protocol):
    """What a client library's message object answers besides offset, key and value."""

    def headers(self) -> Sequence[tuple[str, Any]] | None:
        """Headers in order; a value may be bytes, str or None."""

    def timestamp(self) -> tuple[int, int]:
        """(kind of timestamp, epoch milliseconds)."""


class Payloads(Sequence[bytes | None]):
    """Contents of records, concatenated in a buffer; bytes objects are created on demand.

    Attributes:
        buffer: uint8, read-only; at least `PADDING` bytes follow the last content.
        starts: int64, where each content begins in `buffer`; that of a null is where it would.
        sizes: int64, its length [bytes]; -1 for null.
    """

    __slots__ = ("buffer", "sizes", "starts")

    def __init__(
        self,
        buffer: npt.NDArray[np.uint8],
        starts: npt.NDArray[np.int64],
        sizes: npt.NDArray[np.int64],
    ) -> None:
        buffer.flags.writeable = False
        self.buffer = buffer
        self.starts = starts
        self.sizes = sizes

    @classmethod
    def of(cls, contents: Sequence[bytes | memoryview | None]) -> "Payloads":
        """Contents that are Python objects, copied into a buffer."""
        count = len(contents)
        sizes = np.fromiter(
            (-1 if content is None else len(content) for content in contents), np.int64, count
        )
        lengths = np.maximum(sizes, 0)
        buffer = b"".join([*(content for content in contents if content), bytes(PADDING)])
        return cls(np.frombuffer(buffer, np.uint8), np.cumsum(lengths) - lengths, sizes)

    def __len__(self) -> int:
        return len(self.sizes)

    @overload
    def __getitem__(self, at: int) -> bytes | None: ...

    @overload
    def __getitem__(self, at: slice) -> "Payloads": ...

    def __getitem__(self, at: int | slice) -> "bytes | Payloads | None":
        if isinstance(at, slice):
            return Payloads(self.buffer, self.starts[at], self.sizes[at])
        content = self._view(int(self.starts[at]), int(self.sizes[at]))
        return None if content is None else bytes(content)

    def some(self, rows: Sequence[int]) -> "Payloads":
        """Some of the contents, by ascending row index; copied unless only nulls are left out."""
        starts, sizes = self.starts[rows], self.sizes[rows]
        if np.array_equal(starts[1:], starts[:-1] + sizes[:-1]):
            return Payloads(self.buffer, starts, sizes)
        spans = zip(starts.tolist(), sizes.tolist(), strict=True)
        return Payloads.of([self._view(*span) for span in spans])

    def to_list(self) -> list[bytes | None]:
        """All contents."""
        view = self.buffer.data
        return [
            None if size < 0 else bytes(view[start : start + size])
            for start, size in zip(self.starts.tolist(), self.sizes.tolist(), strict=True)
        ]

    @property
    def nbytes(self) -> int:
        """Length of all contents [bytes]."""
        return int(np.maximum(self.sizes, 0).sum())

    def _view(self, start: int, size: int) -> memoryview | None:
        return None if size < 0 else self.buffer.data[start : start + size]


class RawBatch:
    """Consecutive records of one (topic, partition), in offset order.

    Attributes:
        topic: source topic.
        partition: partition number (0 for files).
        offsets: strictly increasing int64, not necessarily dense; a list or a `range`.
        keys: record keys, to be indexed; None where the record has none.
        values: record values as a list, created on first use; None is a tombstone.
        payloads: record values in one buffer, created on first use.
        skipped: offsets lost just before this batch because the source no longer has them; only
            ever above zero when `fail_on_data_loss` is off.
    """

    __slots__ = (
        "_extras",
        "_messages",
        "_payloads",
        "_values",
        "keys",
        "offsets",
        "partition",
        "skipped",
        "topic",
    )

    def __init__(
        self,
        topic: str,
        partition: int,
        offsets: Sequence[int],
        keys: Sequence[bytes | None],
        values: list[bytes | None] | Payloads,
        *,
        messages: Sequence[RecordExtras] | None = None,
        extras: Mapping[int, RecordExtras] | None = None,
        skipped: int = 0,
    ) -> None:
        """Take ownership of the lists.

        Args:
            topic: source topic.
            partition: partition number.
            offsets: see class.
            keys: as long as `offsets`.
            values: as long as `offsets`.
            messages: one object with headers and timestamp per row, or
            extras: such objects for some rows only, by row index.
            skipped: see class.
        """
        self.topic = topic
        self.partition = partition
        self.offsets = offsets
        self.keys = keys
        self._values = None if isinstance(values, Payloads) else values
        self._payloads = values if isinstance(values, Payloads) else None
        self.skipped = skipped
        self._messages = messages
        self._extras = extras

    @property
    def values(self) -> list[bytes | None]:
        """See class."""
        if self._values is None:
            self._values = [] if self._payloads is None else self._payloads.to_list()
        return self._values

    @property
    def payloads(self) -> Payloads:
        """See class."""
        if self._payloads is None:
            self._payloads = Payloads.of(self._values or [])
        return self._payloads

    @property
    def nbytes(self) -> int:
        """Length of all values [bytes]."""
        if self._payloads is not None:
            return self._payloads.nbytes
        return sum(map(len, filter(None, self._values or ())))

    def with_value(self, start: int, end: int) -> Sequence[int]:
        """Indices of the rows from `start` to `end` whose value is not null, ascending."""
        if self._payloads is None:
            values = self.values[start:end]
            if None not in values:
                return range(start, end)
            return [start + at for at, value in enumerate(values) if value is not None]
        filled = self._payloads.sizes[start:end] >= 0
        return range(start, end) if filled.all() else (np.flatnonzero(filled) + start).tolist()

    def __len__(self) -> int:
        return len(self.offsets)

    def __repr__(self) -> str:
        span = f"{self.offsets[0]}..{self.offsets[-1]}" if self.offsets else "empty"
        return f"RawBatch({self.topic}-{self.partition} {span}, {len(self)} records)"

    def of(self, indices: Sequence[int]) -> "RawBatch":
        """Some of the records, by ascending row index, without `skipped`."""
        extras = {new: self._record(at) for new, at in enumerate(indices)}
        return RawBatch(
            self.topic,
            self.partition,
            [self.offsets[at] for at in indices],
            [self.keys[at] for at in indices],
            [self.values[at] for at in indices],
            extras={at: record for at, record in extras.items() if record is not None},
        )

    def headers(self, index: int) -> list[tuple[str, bytes]]:
        """Headers of row `index`, in order; a null header value is given as empty bytes.

        None where the client library cannot decode their names.
        """
        record = self._record(index)
        try:
            pairs = (record.headers() if record is not None else None) or ()
        except UnicodeError:
            return []
        return [(name, _header_bytes(value)) for name, value in pairs]

    def with_headers(self, indices: npt.NDArray[np.int64]) -> list[int]:
        """Those of some rows that may have headers, without an object per row where possible."""
        # messages of `native_messages` can; this module knows no client library
        select = getattr(self._messages, "with_headers", None)
        return indices.tolist() if select is None else select(indices)

    def timestamp_ms(self, index: int) -> int:
        """Timestamp of row `index` [epoch ms], or `NO_TIMESTAMP`."""
        return self.timestamp(index)[1]

    def timestamp(self, index: int) -> tuple[int, int]:
        """(kind, timestamp [epoch ms]) of row `index`.

        The kind is 1 when the producer set it, 2 when the broker did, 0 when there is none; then
        the timestamp is `NO_TIMESTAMP`.
        """
        record = self._record(index)
        kind, stamp = record.timestamp() if record is not None else (0, NO_TIMESTAMP)
        return (kind, stamp) if stamp != NO_TIMESTAMP else (0, NO_TIMESTAMP)

    def _record(self, index: int) -> RecordExtras | None:
        if self._messages is not None:
            return self._messages[index]
        return self._extras.get(index) if self._extras is not None else None


def _header_bytes(value: bytes | str | None) -> bytes:
    if value is None:
        return b""
    return value.encode("utf-8", "backslashreplace") if isinstance(value, str) else value
