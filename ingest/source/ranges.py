# SPDX-License-Identifier: Apache-2.0
"""Offsets as plain values: their JSON form, how far a batch may go, how it is cut into tasks.

Pure: no client, no clock, no files; the same arguments give the same result in every process.

Two forms are used.

- `OffsetMap`: ``{"topic": {"0": 42}}``, the next offset to read of every partition. This is the
  Kafka source's offset as it is, and what tables compare rows with (floors).
- `OffsetJson`: the offset a source gives Spark. For Kafka an `OffsetMap`; the files source adds a
  member that is not a partition number to each topic (see `ingest.source.files`).

Keys are sorted as text in both, because Spark keeps an offset as JSON text without sorting.

A partition enters the offsets with an empty range: the batch that first names it ends at the
partition's first offset. So a range's beginning is always written down somewhere, and a planned
batch can be planned again after a restart without the source.
"""

import dataclasses
import json
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

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


def offsets_to_json(offsets: Mapping[str, Any]) -> str:
    """Canonical JSON text; equal offsets give equal text."""
    return json.dumps(offsets, sort_keys=True, separators=(",", ":"))


def offsets_from_json(text: str | bytes) -> OffsetJson:
    """Inverse of `offsets_to_json`, normalized."""
    return normalize(json.loads(text))


def resume_token(end: Mapping[str, Any]) -> OffsetMap:
    """The integers of an offset: one int64 per (topic, partition), for floors and for metrics."""
    return {
        topic: {key: int(value) for key, value in sorted(entry.items()) if key.isdecimal()}
        for topic, entry in sorted(end.items())
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
