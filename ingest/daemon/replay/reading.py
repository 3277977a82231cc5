# SPDX-License-Identifier: Apache-2.0
"""Records for a replay: those in quarantine as they are kept there, and the source's from there on.

All records of a partition are read from the first chosen one on: the keys of the later ones are
known only when they are decoded.
"""

import dataclasses
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

import orjson

from ingest.config.source_settings import KafkaSourceSettings, SourceSettings
from ingest.source.open import open_range, open_source
from ingest.source.ranges import SourceRange
from ingest.source.records import NO_TIMESTAMP, RawBatch
from storage.errors import DataLossError, InvalidRequestError

__all__ = ["Kept", "checked", "kept_of", "raw_of", "same_key", "source_records"]


@dataclasses.dataclass(frozen=True, slots=True)
class Kept:
    """A record of the quarantine table.

    Values of headers that are no text are not kept exactly there.
    """

    topic: str
    partition: int
    offset: int
    key: bytes | None
    value: bytes | None
    pairs: tuple[tuple[str, bytes], ...]
    timestamp_ms: int
    target: str

    def headers(self) -> Sequence[tuple[str, bytes]]:
        """See `RecordExtras`."""
        return self.pairs

    def timestamp(self) -> tuple[int, int]:
        """See `RecordExtras`."""
        return 1, self.timestamp_ms


def kept_of(row: Mapping[str, Any]) -> Kept:
    """The record of a row of the quarantine table."""
    pairs = orjson.loads(row["headers"]) if row["headers"] else ()
    moment = row["timestamp"]
    return Kept(
        topic=row["topic"],
        partition=row["partition"],
        offset=row["offset"],
        key=row["key"],
        value=row["value"],
        pairs=tuple((name, value.encode()) for name, value in pairs),
        timestamp_ms=NO_TIMESTAMP if moment is None else round(moment.timestamp() * 1000),
        target=row["target"] or "",
    )


def raw_of(records: Sequence[Kept]) -> RawBatch:
    """Records of one partition, in offset order, as a source would give them."""
    first = records[0]
    return RawBatch(
        first.topic,
        first.partition,
        [record.offset for record in records],
        [record.key for record in records],
        [record.value for record in records],
        extras=dict(enumerate(records)),
    )


def same_key(key: bytes) -> bytes:
    """Something that is equal for keys that are written differently but say the same.

    JSON without regard to spaces and order; Avro without the id of the schema.
    """
    if key[:1] == b"\0" and len(key) > 5:
        return key[5:]
    try:
        return orjson.dumps(orjson.loads(key), option=orjson.OPT_SORT_KEYS)
    except ValueError:
        return key


def checked(
    batches: Iterable[RawBatch], chosen: Sequence[Kept], seen: set[int]
) -> Iterator[RawBatch]:
    """The source's records, compared with the chosen ones among them.

    Args:
        batches: of one partition, from the first chosen one on.
        chosen: what the quarantine table holds. A compacted topic may have lost some.
        seen: gets the offsets of those that the source has.

    Raises:
        InvalidRequestError: the source has another record at the offset of a chosen one.
    """
    kept = {record.offset: record for record in chosen}
    for raw in batches:
        for at, offset in enumerate(raw.offsets):
            record = kept.get(offset)
            if record is None:
                continue
            if raw.values[at] != record.value or raw.keys[at] != record.key:
                raise InvalidRequestError(
                    "the source has another record at the offset of a quarantined one",
                    detail="its topic was recreated, so later records are unknown",
                    hint="--alone applies the quarantined record without looking at later ones",
                    topic=raw.topic,
                    partition=raw.partition,
                    offset=offset,
                )
            seen.add(offset)
        if len(raw):
            yield raw


def source_records(
    settings: SourceSettings, topic: str, partition: int, start: int, end: int
) -> Iterator[RawBatch]:
    """What the source has of [start, end) of a partition; of files perhaps more behind it.

    Raises:
        DataLossError: it does not have all of it any more.
        RetryableError: it did not answer.
    """
    settings = dataclasses.replace(settings, fail_on_data_loss=True)
    for piece in _pieces(settings, topic, partition, start, end):
        try:
            yield from open_range(piece, settings)
        except DataLossError as error:
            raise DataLossError(
                "the source no longer has all records since a quarantined one",
                detail="a later record of the same key may be among the missing ones",
                hint="snapshot the table again; or --alone applies the quarantined records without "
                "looking at later ones, where you know that there are none",
                topic=topic,
                partition=partition,
                start=start,
            ) from error


def _pieces(
    settings: SourceSettings, topic: str, partition: int, start: int, end: int
) -> Iterator[SourceRange]:
    if isinstance(settings, KafkaSourceSettings):
        yield SourceRange(topic, partition, start, end)
        return
    source = open_source(settings)
    key = str(partition)
    here = source.restore({topic: {key: start}})
    while here[topic][key] < end:
        there = source.latest(here)
        if there.get(topic, {}).get(key, 0) <= here[topic][key]:
            return
        for task in source.plan({topic: here[topic]}, {topic: there[topic]}):
            yield from task
        here = {topic: there[topic]}
