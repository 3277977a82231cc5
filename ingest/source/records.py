# SPDX-License-Identifier: Apache-2.0
"""Records of a source, ranges of its offsets, positions in its log.

Knows nothing of tables or Spark. Headers and timestamps are needed for quarantined rows alone, so
they stay where the client library keeps them and are read row by row (reading the timestamp of
every message costs more than reading its value: 105 ns to 14 ns).
"""

import dataclasses
import re
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from typing import Any, Protocol, overload

import numpy as np
import numpy.typing as npt
import orjson
import pyarrow as pa
import pyarrow.compute as pc

from storage.errors import InvalidRequestError
from storage.format.metadata.schema import TableSchema
from storage.format.types.types import DataType, parse_type
from storage.options.options import TableOptions, option_value
from storage.table.bucket_mode import BucketMode, bucket_mode

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


_CHEAPER_AS_LIST = 8
"""A value out of the buffer by its index costs about so many times what it costs in a list."""


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

    def values_for(self, count: int) -> Sequence[bytes | None]:
        """The values to be indexed `count` times: a list of all only where that is cheaper."""
        if self._values is None and _CHEAPER_AS_LIST * count < len(self):
            return self.payloads
        return self.values

    def value(self, at: int) -> bytes | None:
        """One value."""
        return self.values_for(1)[at]

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

    def with_value(self, start: int, end: int) -> tuple[Sequence[int], Sequence[int]]:
        """Indices of the rows from `start` to `end` whose value is not null, and of the others.

        Both ascending.
        """
        if self._payloads is None:
            values = self.values[start:end]
            nulls = [start + at for at, value in enumerate(values) if value is None]
        else:
            nulls = (np.flatnonzero(self._payloads.sizes[start:end] < 0) + start).tolist()
        if not nulls:
            return range(start, end), nulls
        filled = np.delete(np.arange(start, end), np.array(nulls) - start)
        return filled.tolist(), nulls

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


# Offsets as plain values: their JSON form, how far a batch may go, how it is cut into tasks.
#
# Pure: no client, no clock, no files; the same arguments give the same result in every process.
#
# Two forms are used.
#
# - `OffsetMap`: ``{"topic": {"0": 42}}``, the next offset to read of every partition. This is the
#   Kafka source's offset as it is, and what tables compare rows with (floors).
# - `OffsetJson`: the offset a source gives Spark. For Kafka an `OffsetMap`; the files source adds a
#   member that is not a partition number to each topic (see `ingest.source.files`).
#
# Keys are sorted as text in both, because Spark keeps an offset as JSON text without sorting.
#
# A partition enters the offsets with an empty range: the batch that first names it ends at the
# partition's first offset. So a range's beginning is always written down somewhere, and a planned
# batch can be planned again after a restart without the source.


ANY_TABLE = "*"
"""Stands for every table that floors do not name."""

OffsetMap = dict[str, dict[str, int]]
OffsetJson = dict[str, Any]

# A Spark task costs 30-70 ms even when empty (SPARK.md §8), about 25 k decoded events: with fewer
# records than half of that, another task costs more than it saves.
MIN_TASK_RECORDS = 10_000

DEFAULT_RECORD_BYTES = 1024.0
"""Assumed size of a record of a partition that has not been sampled yet [bytes]."""

# A remainder this small (1/SLIVER of a task) stays with its task: a range costs 1-2 ms to open.
_SLIVER = 10


@dataclasses.dataclass(frozen=True, slots=True)
class SourceRange:
    """A part of one partition for one task: offsets `start` <= offset < `end`.

    Attributes:
        topic: source topic.
        partition: partition number (0 for files).
        start: first offset.
        end: offset after the last one. Both are exact; there may be no record at either.
        extra: what the source needs to find the bytes again (files: the file's name).
    """

    topic: str
    partition: int
    start: int
    end: int
    extra: tuple[Any, ...] = ()


def normalize(offsets: Mapping[str, Any]) -> OffsetJson:
    """The same offsets with topics and their members sorted as text."""
    return {topic: dict(sorted(offsets[topic].items())) for topic in sorted(offsets)}


def resume_token(end: Mapping[str, Any]) -> OffsetMap:
    """The integers of an offset: one int64 per (topic, partition), for floors and for metrics."""
    return {
        topic: {key: int(value) for key, value in sorted(entry.items()) if key.isdecimal()}
        for topic, entry in sorted(end.items())
    }


def entered(start: Mapping[str, Any], end: Mapping[str, Any]) -> OffsetJson:
    """Partitions that first appear in a batch, with the offset there.

    A source whose offset is more than a number (files) reads a new topic from its beginning: such
    topics are left out.
    """
    return _chosen(end, lambda topic, key, _: key not in start.get(topic, {}))


def restarted(start: Mapping[str, Any], end: Mapping[str, Any]) -> OffsetJson:
    """Partitions that a batch reads from their beginning, as they were re-created."""
    return _chosen(end, lambda topic, key, last: last < start.get(topic, {}).get(key, 0))


def _chosen(end: Mapping[str, Any], is_so: Callable[[str, str, Any], bool]) -> OffsetJson:
    chosen = {
        topic: {key: last for key, last in entry.items() if is_so(topic, key, last)}
        for topic, entry in end.items()
        if all(map(str.isdecimal, entry))
    }
    return {topic: entry for topic, entry in chosen.items() if entry}


def without(
    offsets: Mapping[str, Mapping[str, Any]], partitions: Mapping[str, Collection[str]]
) -> OffsetJson:
    """Offsets of all other partitions."""
    return {
        topic: {p: at for p, at in parts.items() if p not in partitions.get(topic, {})}
        for topic, parts in offsets.items()
    }


def offsets_to_store(end: Mapping[str, Any]) -> OffsetJson:
    """What a snapshot's properties keep of a batch's end: enough to start reading there.

    Of a file list only the last entry is kept; the earlier ones describe what the batch covered.
    """
    return {
        topic: {
            key: value[-1:] if isinstance(value, list) else value
            for key, value in sorted(entry.items())
        }
        for topic, entry in sorted(end.items())
    }


def initial_from_stored(
    stored: Iterable[Mapping[str, Any]], *, complete: bool = True
) -> OffsetJson:
    """Where to start so that no table misses a record: per partition the smallest stored offset.

    Args:
        stored: what `offsets_to_store` gave for the last commit of each table.
        complete: every element names all partitions known at its commit. A partition that some
            element lacks is then left out of the result, and so is read from its first offset: the
            table without it may have missed a commit of the batch that discovered it. With False
            an element that lacks a partition is ignored for it.

    Returns:
        Normalized offsets, in the form the source expects.
    """
    elements = list(stored)
    smallest: dict[str, dict[str, Any]] = {}
    counts: dict[tuple[str, str], int] = {}
    for element in elements:
        for topic, entry in element.items():
            target = smallest.setdefault(topic, {})
            for key in [key for key in entry if key.isdecimal()]:
                counts[topic, key] = counts.get((topic, key), 0) + 1
                if key not in target or entry[key] < target[key]:
                    # members that are no partitions describe this position: they are copied with it
                    members = {name: entry[name] for name in entry if not name.isdecimal()}
                    target.update({key: entry[key], **members})
    if complete:
        for (topic, key), count in counts.items():
            if count < len(elements):
                del smallest[topic][key]
    return normalize(
        {topic: entry for topic, entry in smallest.items() if any(map(str.isdecimal, entry))}
    )


def fair_shares(backlogs: Sequence[int], budget: int) -> list[int]:
    """Divide `budget` so that small backlogs are served whole and large ones share the rest.

    Args:
        backlogs: demands, >= 0.
        budget: total to give out; raised to the number of positive backlogs, so that each of them
            gets at least 1 and none starves.

    Returns:
        Shares in the order of `backlogs`, none above its backlog, of sum min(budget, sum of
        backlogs).
    """
    waiting = [index for index, backlog in enumerate(backlogs) if backlog > 0]
    shares = [0] * len(backlogs)
    remaining = max(budget, len(waiting))
    order = sorted(waiting, key=lambda index: (backlogs[index], index))
    for position, index in enumerate(order):
        shares[index] = min(backlogs[index], remaining // (len(order) - position))
        remaining -= shares[index]
    return shares


def plan_end(
    start: OffsetMap,
    latest: OffsetMap,
    *,
    max_records: int | None = None,
    max_bytes: int | None = None,
    weights: Mapping[tuple[str, str], float] | None = None,
) -> OffsetMap:
    """How far a batch that begins at `start` goes.

    Args:
        start: next offsets to read. Only its partitions are advanced.
        latest: end of each partition; one that is missing or not above `start` does not move.
        max_records: bound on offsets covered, shared fairly; None is no bound.
        max_bytes: bound on bytes, by `weights`; None is no bound.
        weights: mean record size per (topic, partition) [bytes]; `DEFAULT_RECORD_BYTES` where
            missing.

    Returns:
        End offsets of exactly the partitions of `start`, normalized. Every partition with a backlog
        moves by at least one offset, so the bounds can be exceeded by one record per partition.
    """
    pairs = [(topic, key) for topic in sorted(start) for key in sorted(start[topic])]
    counts = [max(0, latest.get(topic, {}).get(key, 0) - start[topic][key]) for topic, key in pairs]
    if max_records is not None:
        counts = fair_shares(counts, max_records)
    if max_bytes is not None:
        means = weights or {}
        sizes = [max(1.0, means.get(pair, DEFAULT_RECORD_BYTES)) for pair in pairs]
        demands = [int(count * size) for count, size in zip(counts, sizes, strict=True)]
        if sum(demands) > max_bytes:
            allowed = fair_shares(demands, max_bytes)
            counts = [
                count if share == demand else min(count, max(1, int(share / size)))
                for count, demand, share, size in zip(counts, demands, allowed, sizes, strict=True)
            ]
    end: OffsetMap = {topic: {} for topic in sorted(start)}
    for (topic, key), count in zip(pairs, counts, strict=True):
        end[topic][key] = start[topic][key] + count
    return end


def split_ranges(
    start: OffsetMap,
    end: OffsetMap,
    *,
    parallelism: int,
    min_records: int = MIN_TASK_RECORDS,
) -> list[list[SourceRange]]:
    """Cut a batch into balanced tasks.

    The partitions are laid end to end in the order of (topic, partition number) and cut into equal
    lengths: a large backlog of one partition becomes several consecutive ranges, and many small
    partitions share one task.

    Args:
        start: beginning of the batch. A partition it lacks gives no range (see module).
        end: end of the batch. An end below the start says that the partition was re-created and
            is read from its beginning.
        parallelism: largest number of tasks.
        min_records: smallest useful task [records]; fewer tasks are made rather than smaller ones.

    Returns:
        Non-empty tasks of non-empty ranges; an empty list when there is nothing to read.
    """
    ranges: list[SourceRange] = []
    for topic in sorted(end):
        for key in sorted(end[topic], key=int):
            first, last = start.get(topic, {}).get(key), end[topic][key]
            if first is not None and first != last:
                ranges.append(SourceRange(topic, int(key), first if first < last else 0, last))
    return pack(ranges, parallelism=parallelism, min_length=min_records)


def whole_partitions(tasks: Sequence[Sequence[SourceRange]]) -> list[list[SourceRange]]:
    """The same ranges, with all of one topic and partition in one task, in reading order."""
    result: list[list[SourceRange]] = []
    owners: dict[tuple[str, int], list[SourceRange]] = {}
    for task in tasks:
        group: list[SourceRange] = []
        for piece in task:
            owners.setdefault((piece.topic, piece.partition), group).append(piece)
        if group:
            result.append(group)
    return result


def pack(
    ranges: Iterable[SourceRange],
    *,
    parallelism: int,
    min_length: int,
    cut: Callable[[SourceRange, int], int] | None = None,
) -> list[list[SourceRange]]:
    """Lay `ranges` end to end and cut the line into at most `parallelism` equal tasks.

    Args:
        ranges: in reading order.
        parallelism: largest number of tasks.
        min_length: smallest useful task, in offsets.
        cut: where a range can be cut, given where it should be; its end if nowhere after that.
            Anywhere by default.

    Returns:
        See `split_ranges`.
    """
    pending = [piece for piece in ranges if piece.end > piece.start]
    remaining = sum(piece.end - piece.start for piece in pending)
    tasks_left = max(1, min(parallelism, remaining // max(1, min_length)))
    tasks: list[list[SourceRange]] = [[]]
    ideal = room = -(-remaining // tasks_left)
    for piece in pending:
        rest: SourceRange | None = piece
        while rest is not None:
            slack = ideal // _SLIVER
            if room <= slack and tasks[-1] and tasks_left > 1:
                tasks.append([])
                tasks_left -= 1
                ideal = room = -(-remaining // tasks_left)
                slack = ideal // _SLIVER
            border = rest.end
            if tasks_left > 1 and rest.end - rest.start > room + slack:
                border = rest.start + max(1, room)
                border = cut(rest, border) if cut is not None else border
            part = dataclasses.replace(rest, end=border)
            rest = dataclasses.replace(rest, start=border) if border < rest.end else None
            tasks[-1].append(part)
            room -= part.end - part.start
            remaining -= part.end - part.start
    return tasks if tasks[0] else []


def floor_of(
    floors: Mapping[str, Mapping[str, Mapping[str, int]]], table: str
) -> Mapping[str, Mapping[str, int]]:
    """The offsets below which a table has everything; empty = none."""
    floor = floors.get(table)
    return floors.get(ANY_TABLE, {}) if floor is None else floor


# Kinds of positions: how a connector's events encode the position of a change in its source.
#
# Every kind fills three columns that are compared from left to right. Rows of one event may share
# all of them where their keys differ (a change of key is a delete and an insert at one position);
# whether a row deletes decides nothing, for a transaction may write a row and delete it.
#
# | kind | `_seq_1` | `_seq_2` | `_seq_3` |
# |---|---|---|---|
# | mysql | number of the binlog file | position in it | index in the transaction, else 1 + row |
# | mariadb | number of the binlog file | position in it | index in the transaction, else 1 |
# | postgresql | last commit before the transaction, else the LSN | LSN | 0 |
# | sqlserver | commit LSN, as text of fixed length | change LSN, likewise | serial number |
# | oracle | SCN of the commit, else the SCN | SCN | number inside the SCN |
#
# The index in the transaction needs `provide.transaction.metadata`. MariaDB's connector gives all
# events of a transaction one position (observed with MariaDB 11.4 and Debezium 3.5), so that rows
# are counted again under it: without the index, arrival orders the changes of one transaction. Rows
# of a snapshot have `_seq_3` 0, below a change at the snapshot's own position.
#
# PostgreSQL's LSN alone is in order for one key but not over keys, nor between changes and
# snapshots: a snapshot does not see what commits later, whenever it was written. With the commit
# before the transaction the order is that of the stream. Rows of a snapshot come right after that
# commit (`_seq_2` is 0), or after the snapshot's LSN where the connector has seen no commit yet.
# Changes of the one transaction that follows may have any LSN: they *float*, see `Positions`.
#
# Source: CDC.md §1.3, §2.1, §2.2.


_Mask = npt.NDArray[np.bool_]

_LSN = r"^[0-9a-f]{8}:[0-9a-f]{8}:[0-9a-f]{4}$"
_NO_LSN = "00000000:00000000:0000"
_SEQUENCE = r'^\[\s*(?:"(?P<commit>\d+)"|null)\s*,\s*(?:"(?P<lsn>\d+)"|null)\s*\]$'
_DIGITS = r"^\d{1,38}$"
_LARGEST = re.compile(r"(\d{1,18})$")
_SCN = pa.decimal128(38, 0)


@dataclasses.dataclass(frozen=True, slots=True)
class Positions:
    """Positions of some events.

    Attributes:
        columns: `_seq_1`, `_seq_2`, `_seq_3`; `_seq_1` is null where the event has no position.
        floating: events that are not below anything before them in their partition, whatever their
            position says; None = none.
    """

    columns: tuple[pa.Array, pa.Array, pa.Array]
    floating: _Mask | None = None


Reader = Callable[[Mapping[str, pa.Array]], Positions]
"""Metadata to positions; it has `snapshot` besides the kind's."""


@dataclasses.dataclass(frozen=True, slots=True)
class PositionKind:
    """One kind.

    Attributes:
        name: of Debezium's connector, and as tables note it.
        types: of `_seq_1`, `_seq_2` and `_seq_3`.
        metadata: what it is read from (`ingest.decode.columns`).
        read: see `Reader`.
    """

    name: str
    types: tuple[DataType, DataType, DataType]
    metadata: tuple[str, ...]
    read: Reader


def in_snapshot(names: pa.Array) -> _Mask:
    """Which rows are read by a snapshot, by metadata `snapshot`."""
    streamed = pc.or_kleene(names.is_null(), pc.equal(names, "false"))
    mask: _Mask = pc.invert(streamed).to_numpy(zero_copy_only=False)
    return mask


def _binlog(metadata: Mapping[str, pa.Array], within: pa.Array) -> Positions:
    """Positions in a binlog, and indices within an event or transaction."""
    files = metadata["file"].dictionary_encode()
    numbers = [_LARGEST.search(name or "") for name in files.dictionary.to_pylist()]
    by_file = pa.array([None if n is None else int(n.group(1)) for n in numbers], pa.int64())
    positions = metadata["pos"]
    number = pc.if_else(positions.is_valid(), by_file.take(files.indices), None)
    snapshot = pa.array(in_snapshot(metadata["snapshot"]))
    within = pc.coalesce(metadata["total_order"], within)
    return Positions((number, positions, pc.if_else(snapshot, pa.scalar(0, pa.int64()), within)))


def _mysql(metadata: Mapping[str, pa.Array]) -> Positions:
    return _binlog(metadata, pc.add(metadata["row"].cast(pa.int64()).fill_null(0), 1))


def _mariadb(metadata: Mapping[str, pa.Array]) -> Positions:
    return _binlog(metadata, pa.repeat(pa.scalar(1, pa.int64()), len(metadata["pos"])))


def _numbers(texts: pa.Array, type_: pa.DataType) -> pa.Array:
    """Numbers parsed from texts; null where a text is not a number."""
    sound = pc.match_substring_regex(texts, _DIGITS if type_ == _SCN else r"^\d{1,18}$")
    return pc.if_else(sound, texts, pa.scalar(None, pa.string())).cast(type_)


def _postgresql(metadata: Mapping[str, pa.Array]) -> Positions:
    match = pc.extract_regex(metadata["sequence"], _SEQUENCE)
    commit, lsn = (_numbers(pc.struct_field(match, name), pa.int64()) for name in ("commit", "lsn"))
    lsn = pc.coalesce(metadata["lsn"], lsn)
    snapshot = in_snapshot(metadata["snapshot"])
    has_sequence = pc.greater(pc.binary_length(metadata["sequence"]), 0).fill_null(False)
    floating = pc.and_(has_sequence, commit.is_null()).to_numpy(zero_copy_only=False) & ~snapshot
    commit = pc.if_else(lsn.is_valid(), pc.coalesce(commit, lsn), None)
    lsn = pc.if_else(pc.and_(has_sequence, pa.array(snapshot)), pa.scalar(0, pa.int64()), lsn)
    zeros = pa.repeat(pa.scalar(0, pa.int64()), len(lsn))
    return Positions((commit, lsn, zeros), floating)


def _sqlserver(metadata: Mapping[str, pa.Array]) -> Positions:
    commit, change = (_lsn(metadata[name]) for name in ("commit_lsn", "change_lsn"))
    serial = metadata["event_serial_no"].fill_null(0)
    return Positions((commit, change.fill_null(_NO_LSN), serial))


def _lsn(texts: pa.Array) -> pa.Array:
    lower = pc.utf8_lower(texts)
    sound = pc.match_substring_regex(lower, _LSN)
    return pc.if_else(sound, lower, pa.scalar(None, pa.string()))


def _oracle(metadata: Mapping[str, pa.Array]) -> Positions:
    commit, scn = (_numbers(metadata[name], _SCN) for name in ("commit_scn", "scn"))
    first = pc.if_else(scn.is_valid(), pc.coalesce(commit, scn), None)
    return Positions((first, scn, metadata["ssn"].fill_null(0)))


_BIGINT, _STRING = parse_type("BIGINT"), parse_type("STRING")
_DECIMAL = parse_type("DECIMAL(38, 0)")

_NUMBERS = (_BIGINT, _BIGINT, _BIGINT)

KINDS: Mapping[str, PositionKind] = {
    kind.name: kind
    for kind in (
        PositionKind("mysql", _NUMBERS, ("file", "pos", "row", "total_order"), _mysql),
        PositionKind("mariadb", _NUMBERS, ("file", "pos", "total_order"), _mariadb),
        PositionKind("postgresql", _NUMBERS, ("lsn", "sequence"), _postgresql),
        PositionKind(
            "sqlserver",
            (_STRING, _STRING, _BIGINT),
            ("commit_lsn", "change_lsn", "event_serial_no"),
            _sqlserver,
        ),
        PositionKind(
            "oracle", (_DECIMAL, _DECIMAL, _BIGINT), ("commit_scn", "scn", "ssn"), _oracle
        ),
    )
}
"""By name."""

_BY_MEMBER = {
    "commit_lsn": "sqlserver",
    "scn": "oracle",
    "file": "mariadb",
    "lsn": "postgresql",
}

RECOGNISED_BY = ("connector", *_BY_MEMBER)
"""Metadata that reveals the kind."""


def kind_of(metadata: Mapping[str, object]) -> str:
    """The kind of an event; empty = its positions are not understood.

    Args:
        metadata: `RECOGNISED_BY` of the event; the members decide where no connector is named, as
            in flattened events. A binlog is then MariaDB's, whose rules hold for MySQL, too.
    """
    connector = metadata.get("connector")
    if connector is not None:
        return str(connector) if connector in KINDS else ""
    return next((kind for name, kind in _BY_MEMBER.items() if metadata.get(name) is not None), "")


# Tables whose rows are in the order of the source: their columns, options and limits.
#
# Such a table has the columns `_seq_epoch`, `_seq_1`, `_seq_2`, `_seq_3` as its `sequence.field`,
# so that the merge, not the arrival, decides which row of a key is the newest. The option
# `lakeward.position` notes the kind of its positions; `lakeward.position.epochs` the moments since
# which its sources restarted their logs (`docs/adr/ingest/0013`).


SOURCE = "source"
"""Value of `source.ordering`."""

POSITION_OPTION = "lakeward.position"
EPOCHS_OPTION = "lakeward.position.epochs"
POSITION_COLUMNS = ("_seq_epoch", "_seq_1", "_seq_2", "_seq_3")

Epochs = Mapping[str, tuple[int, ...]]
"""By server the moments [epoch ms], ascending, each of which begins an epoch; the first is 0."""

_SEQUENCE_FIELD = "sequence.field"
_ENGINES = ("deduplicate", "partial-update")


def position_kind(schema: TableSchema) -> PositionKind | None:
    """The kind of a table's positions; None = arrival orders its rows."""
    return KINDS.get(schema.options.get(POSITION_OPTION, ""))


def position_columns(kind: str) -> list[tuple[str, DataType]]:
    """The columns that a new table gets after all others."""
    types = (parse_type("BIGINT"), *KINDS[kind].types)
    return list(zip(POSITION_COLUMNS, types, strict=True))


def position_options(kind: str) -> dict[str, str]:
    """The options that a new table gets."""
    return {_SEQUENCE_FIELD: ",".join(POSITION_COLUMNS), POSITION_OPTION: kind}


def unordered(options: Mapping[str, str]) -> str:
    """Why a table with these options cannot be in the order of the source; "" = it can."""
    sequence = options.get(_SEQUENCE_FIELD)
    if sequence is not None and sequence != ",".join(POSITION_COLUMNS):
        return f"it defines its own order, sequence.field = {sequence}"
    if option_value(options, "sequence.field.sort-order"):
        return "its sequence.field.sort-order is descending"
    engine = option_value(options, "merge-engine")
    if engine == "first-row":
        return "merge-engine first-row keeps what arrived first"
    if engine not in _ENGINES:
        return f"merge-engine {engine} counts a change again whenever it is delivered again"
    return ""


def ordering_refused(schema: TableSchema, ordering: str) -> str:
    """Why a pipeline of this `source.ordering` cannot write a table; "" = it can."""
    kind = position_kind(schema)
    if ordering != SOURCE:
        return (
            ""
            if kind is None
            else "the table is in the order of the source and its rows need positions: set "
            "source.ordering: source"
        )
    if kind is None:
        return (
            "the table was not created for source.ordering: source, it has no position columns: "
            "route to a new table, or set source.ordering: kafka"
        )
    types = {field.name: field.type for field in schema.fields}
    for name, type_ in position_columns(kind.name):
        if name not in types:
            return f"the table has lost its column {name}: route to a new table"
        if dataclasses.replace(types[name], nullable=True) != type_:
            return f"the table's column {name} has another type than positions of {kind.name}"
    try:
        epochs_of(schema)
    except InvalidRequestError as error:
        return f"{error}; {error.hint}"
    reason = unordered(schema.options) or _unordered_keys(schema)
    return f"the table cannot be ordered by source position: {reason}" if reason else ""


def _unordered_keys(schema: TableSchema) -> str:
    if not schema.primary_keys:
        return "it has no primary key"
    if schema.options.get(_SEQUENCE_FIELD) is None:
        return "it has no sequence.field any more"
    try:
        mode = bucket_mode(schema, TableOptions.from_strings(schema.options))
    except InvalidRequestError as error:
        return str(error)
    if mode is BucketMode.CROSS_PARTITION:
        return "its keys move between partitions, where the last row to arrive counts"
    return ""


def epochs_of(schema: TableSchema) -> Epochs:
    """The epochs of a table's sources.

    Raises:
        InvalidRequestError: the option is malformed.
    """
    text = schema.options.get(EPOCHS_OPTION)
    if text is None:
        return {}
    try:
        raw = orjson.loads(text)
        return {str(s): tuple(sorted({int(m) for m in raw[s]})) for s in raw}
    except (ValueError, TypeError) as error:
        raise InvalidRequestError(
            "a table's epochs cannot be read",
            hint='write them as {"server": [epoch milliseconds, …]}',
            option=EPOCHS_OPTION,
            value=text,
        ) from error


def added_epochs(schema: TableSchema, observed_epochs: Sequence[tuple[str, int]]) -> str | None:
    """The option's text with more epochs; None when all are in it.

    Args:
        schema: of the table.
        observed_epochs: (server, moment) pairs. Of each server only the earliest is added now, as
            it may explain the others.
    """
    current = epochs_of(schema)
    epochs = {server: list(moments) for server, moments in current.items()}
    for server in sorted({server for server, _ in observed_epochs}):
        moment = min(m for s, m in observed_epochs if s == server)
        if moment not in epochs.setdefault(server, []):
            epochs[server] = sorted([*epochs[server], moment])
    if {server: tuple(moments) for server, moments in epochs.items()} == dict(current):
        return None
    return orjson.dumps(epochs, option=orjson.OPT_SORT_KEYS).decode()
