# SPDX-License-Identifier: Apache-2.0
"""Samples of all topics of a source: their size, and records of their beginning and end.

Nothing is committed and no consumer group is joined. The beginning shows the records of a
snapshot, the end those that the source sends now; records in between are not read.
"""

import dataclasses
import itertools
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path

from confluent_kafka import KafkaException
from confluent_kafka.admin import AdminClient, ConfigResource

from ingest.config.source_settings import (
    FileSourceSettings,
    KafkaSourceSettings,
    SourceSettings,
)
from ingest.source.file_lines import POSITION_BITS
from ingest.source.file_listing import (
    ListedFile,
    cut_after,
    last_complete_end,
    list_files,
    unpacked_size,
)
from ingest.source.kafka import KafkaSource
from ingest.source.kafka_client import admin_config, broker_error
from ingest.source.open import open_range
from ingest.source.ranges import SourceRange
from ingest.source.records import RawBatch
from storage.errors import CorruptDataError, NotFoundError

_REQUEST_TIMEOUT_S = 15.0
_TAIL_BYTES = 256 << 10
Configs = Callable[[KafkaSourceSettings, Sequence[str]], Mapping[str, str]]


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class TopicSample:
    """One topic.

    Attributes:
        name: of the topic.
        partitions: how many it has (1 for files).
        records: between its ends; an estimate for files. Offsets that hold no record count too.
        bytes: of keys and values, estimated by the sample; size of the files for files.
        cleanup_policy: as the broker reports it; empty for files, or where access to it is denied.
        batches: the sample.
    """

    name: str
    partitions: int
    records: int
    bytes: int
    cleanup_policy: str
    batches: tuple[RawBatch, ...]

    @property
    def sampled(self) -> int:
        """Records in the sample."""
        return sum(len(batch) for batch in self.batches)


def topic_samples(
    settings: SourceSettings, records: int, configs: Configs | None = None
) -> list[TopicSample]:
    """Sample every topic that the settings select.

    Args:
        settings: of the source.
        records: most records to read of one topic.
        configs: returns `cleanup.policy` by topic; by default from the brokers.

    Returns:
        In order of name.

    Raises:
        RetryableError: the source did not answer.
        InvalidRequestError: access denied.
        NotFoundError: the directory does not exist.
    """
    if isinstance(settings, FileSourceSettings):
        if not Path(settings.path).is_dir():
            raise NotFoundError(
                "the source directory does not exist", hint="set `source.path`", path=settings.path
            )
        listing = list_files(settings)
        return [_of_files(settings, topic, files, records) for topic, files in listing.items()]
    return _of_kafka(settings, records, configs or _policies)


# --- Kafka


def _of_kafka(settings: KafkaSourceSettings, records: int, configs: Configs) -> list[TopicSample]:
    source = KafkaSource(settings)
    try:
        marks = source.watermarks()
    finally:
        source.close()
    places: dict[str, dict[int, tuple[int, int]]] = {}
    for (topic, partition), ends in sorted(marks.items()):
        places.setdefault(topic, {})[int(partition)] = ends
    policies = configs(settings, list(places))
    samples = []
    for topic, partitions in places.items():
        batches = tuple(_read(settings, _kafka_ranges(topic, partitions, records)))
        count = sum(high - low for low, high in partitions.values())
        samples.append(
            TopicSample(
                name=topic,
                partitions=len(partitions),
                records=count,
                bytes=int(count * _record_bytes(batches)),
                cleanup_policy=policies.get(topic, ""),
                batches=batches,
            )
        )
    return samples


def _kafka_ranges(
    topic: str, partitions: Mapping[int, tuple[int, int]], records: int
) -> Iterator[SourceRange]:
    """The beginning and the end of every partition that has records, in equal shares."""
    filled = {number: ends for number, ends in partitions.items() if ends[1] > ends[0]}
    share = max(2, records // max(1, len(filled)))
    for number, (low, high) in sorted(filled.items()):
        if high - low <= share:
            yield SourceRange(topic, number, low, high)
            continue
        yield SourceRange(topic, number, low, low + (share + 1) // 2)
        yield SourceRange(topic, number, high - share // 2, high)


def _policies(settings: KafkaSourceSettings, topics: Sequence[str]) -> Mapping[str, str]:
    """`cleanup.policy` by topic; topics whose configuration may not be read are left out."""
    if not topics:
        return {}
    client = AdminClient({**admin_config(settings), "log_level": 0})
    resources = [ConfigResource(ConfigResource.Type.TOPIC, topic) for topic in topics]
    try:
        futures = client.describe_configs(resources, request_timeout=_REQUEST_TIMEOUT_S)
    except KafkaException as error:
        raise broker_error(error) from error
    policies = {}
    for resource, future in futures.items():
        try:
            entry = future.result().get("cleanup.policy")
        except KafkaException:  # describing configurations needs a separate ACL
            continue
        policies[resource.name] = "" if entry is None else str(entry.value)
    return policies


# --- files


def _of_files(
    settings: FileSourceSettings, topic: str, files: Sequence[ListedFile], records: int
) -> TopicSample:
    size = sum(file.size for file in files)
    places = range(len(files))
    from_begin = (_file_range(settings, topic, files, at, 0) for at in places)
    first = _first(_read(settings, itertools.chain.from_iterable(from_begin)), records)
    mean = _record_bytes(first)
    whole = sum(map(len, first)) < records
    if not whole and records > 1:
        first = _first(iter(first), (records + 1) // 2)
        last_offset = first[-1].offsets[-1] if first else -1
        window = max(_TAIL_BYTES, int(2 * mean * records))
        tail: list[RawBatch] = []
        for at in reversed(places):
            batches = _read(settings, _file_range(settings, topic, files, at, window))
            tail = [*(_above(batch, last_offset) for batch in batches), *tail]
            if sum(map(len, tail)) >= records // 2 or at == last_offset >> POSITION_BITS:
                break
        first += _last(tail, records // 2)
    unpacked = size * _unpacked_ratio(settings, files)
    lines = sum(map(len, first)) if whole else int(unpacked / mean) if mean else 0
    return TopicSample(
        name=topic,
        partitions=1,
        records=lines,
        bytes=size,
        cleanup_policy="",
        batches=tuple(batch for batch in first if len(batch)),
    )


def _unpacked_ratio(settings: FileSourceSettings, files: Sequence[ListedFile]) -> float:
    """Ratio of the size of lines to that of files, by the first file that is compressed."""
    packed = [file for file in files if file.packed and file.size]
    if not packed:
        return 1.0
    try:
        ratio = unpacked_size(Path(settings.path, packed[0].name)) / packed[0].size
    except CorruptDataError:  # still being written
        return 1.0
    share = sum(file.size for file in packed) / sum(file.size for file in files)
    return share * ratio + 1 - share


def _file_range(
    settings: FileSourceSettings, topic: str, files: Sequence[ListedFile], index: int, window: int
) -> Iterator[SourceRange]:
    """A file, or with a window the lines in its last bytes; none of a packed file."""
    file = files[index]
    path = Path(settings.path, file.name)
    base = index << POSITION_BITS
    if file.packed:
        if not window:
            yield SourceRange(topic, 0, base, base | ((1 << POSITION_BITS) - 1), (file.name,))
        return
    end = last_complete_end(path, 0, file.size)
    start = cut_after(path, end - window, end) if 0 < window < end else 0
    if end > start:
        yield SourceRange(topic, 0, base | start, base | end, (file.name,))


# --- both


def _read(settings: SourceSettings, ranges: Iterator[SourceRange]) -> Iterator[RawBatch]:
    lenient = dataclasses.replace(settings, fail_on_data_loss=False)
    for piece in ranges:
        for batch in open_range(piece, lenient):
            if len(batch):
                yield batch


def _record_bytes(batches: Sequence[RawBatch]) -> float:
    """Mean size of key and value [bytes]; 0 without records."""
    count = sum(map(len, batches))
    sizes = sum(
        sum(map(len, filter(None, batch.keys))) + sum(map(len, filter(None, batch.values)))
        for batch in batches
    )
    return sizes / count if count else 0.0


def _first(batches: Iterator[RawBatch], records: int) -> list[RawBatch]:
    parts: list[RawBatch] = []
    for batch in batches:
        part = _part(batch, 0, records)
        parts.append(part)
        records -= len(part)
        if records <= 0:
            break
    return parts


def _last(batches: Sequence[RawBatch], records: int) -> list[RawBatch]:
    parts: list[RawBatch] = []
    for batch in reversed(batches):
        if records <= 0:
            break
        parts.insert(0, _part(batch, max(0, len(batch) - records), len(batch)))
        records -= len(parts[0])
    return parts


def _above(batch: RawBatch, offset: int) -> RawBatch:
    begin = sum(1 for position in batch.offsets if position <= offset)
    return _part(batch, begin, len(batch))


def _part(batch: RawBatch, begin: int, end: int) -> RawBatch:
    """Records of a batch by position."""
    if begin == 0 and end >= len(batch):
        return batch
    chosen = range(begin, min(end, len(batch)))
    extras = {new: _Extras(batch, old) for new, old in enumerate(chosen)}
    return RawBatch(
        batch.topic,
        batch.partition,
        batch.offsets[begin:end],
        batch.keys[begin:end],
        batch.values[begin:end],
        extras=extras,
    )


@dataclasses.dataclass(frozen=True, slots=True)
class _Extras:
    """Headers and timestamp of a record of another batch."""

    batch: RawBatch
    at: int

    def headers(self) -> Sequence[tuple[str, bytes]]:
        return self.batch.headers(self.at)

    def timestamp(self) -> tuple[int, int]:
        return self.batch.timestamp(self.at)
