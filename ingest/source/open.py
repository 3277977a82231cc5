# SPDX-License-Identifier: Apache-2.0
"""The interface of a source of any kind.

Owns the `Source` protocol (planning side, one per stream, in Spark's source runner) and what needs
to know the kind: opening it, the offsets at which a stream starts, lag, sizes of topics, and the
end of a topic for commands that wait for an answer there. Everything else takes settings and
offsets as values.
"""

import contextlib
import dataclasses
import json
from collections.abc import Collection, Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any, Protocol

from confluent_kafka import KafkaError, KafkaException, Message, Producer

from ingest.config.source_settings import KafkaSourceSettings, SourceSettings, only_topic
from ingest.source.file_lines import list_files, read_range
from ingest.source.files import FileSource
from ingest.source.kafka import KafkaSource, RecordSizes, TopicIdentities
from ingest.source.kafka_client import CLIENT_LOG, admin_config, broker_error, consume
from ingest.source.records import OffsetJson, RawBatch, SourceRange, resume_token
from storage.clock import Clock, SystemClock
from storage.errors import LakewardError, RetryableError
from storage.io.local import LocalFileIO

_SEND_TIMEOUT_S = 30.0
_POLL_INTERVAL_S = 0.5
_Partition = tuple[str, int]


class Source(Protocol):
    """Planning side of a source.

    1. `initial` gives the first offsets of a new stream, `restore` those of a known one.
    2. `latest(start)` gives the end of the next batch, or `start` itself when there is nothing.
    3. `plan(start, end)` cuts a batch into tasks. It depends on nothing but its arguments (and, for
       files, on bytes which never change), so a batch from an earlier process can be planned again.
    4. `freeze` fixes what `latest` may reach, for a run that drains the source and stops.
    """

    def initial(self) -> OffsetJson:
        """Start offsets of a new stream, by the settings.

        Raises:
            RetryableError: the source did not answer.
            InvalidRequestError: the settings name something that does not exist.
        """

    def restore(self, stored: Mapping[str, Any]) -> OffsetJson:
        """Offsets at which a stream resumes, from what its tables or its progress file stored."""

    def rewind(self, start: Mapping[str, Any], position: Mapping[str, Any]) -> OffsetJson:
        """As `restore` of `start`, when a stream that has read up to `position` goes back there.

        Raises:
            DataLossError: records between the two no longer exist.
        """

    def latest(
        self,
        start: Mapping[str, Any],
        *,
        max_records: int | None = None,
        max_bytes: int | None = None,
        gated: Collection[str] = (),
    ) -> OffsetJson:
        """End of the batch that begins at `start`, within the limits; `start` if none is due.

        Args:
            start: where it begins.
            max_records: bound over all topics [records].
            max_bytes: bound over all topics [bytes].
            gated: topics that do not advance; they have no share of the bounds.

        Raises:
            DataLossError: records from `start` on no longer exist and `fail_on_data_loss` is on.
        """

    def available(self, start: Mapping[str, Any]) -> OffsetJson:
        """As `latest` without limits, for reporting lag; never raises for lost data."""

    def freeze(self) -> None:
        """Limit `latest` to what exists now. Raises `RetryableError` if that is unknown."""

    def plan(self, start: Mapping[str, Any], end: Mapping[str, Any]) -> list[list[SourceRange]]:
        """Tasks of a batch, each a list of ranges to be read one after the other."""

    def close(self) -> None:
        """Release clients; the source can be used again."""


def open_source(
    settings: SourceSettings, clock: Clock | None = None, *, checkpoint: Path | None = None
) -> KafkaSource | FileSource:
    """The planning side for `settings`; connects on first use.

    Args:
        checkpoint: of the planned stream; it stores the identities of the offsets' topics.
    """
    if isinstance(settings, KafkaSourceSettings):
        identities = None if checkpoint is None else TopicIdentities(checkpoint)
        return KafkaSource(settings, clock, identities)
    return FileSource(settings, clock)


def open_ranges(
    pieces: Iterable[SourceRange], source: SourceSettings
) -> Iterator[tuple[SourceRange, Iterator[RawBatch]]]:
    """Each range with exactly its records, in offset order; read one before taking the next.

    Raises:
        DataLossError: records of a range are missing (and, for Kafka, `fail_on_data_loss` is on).
        RetryableError: the source did not answer in time; the task can be tried again.
    """
    if isinstance(source, KafkaSourceSettings):
        return consume(pieces, source)
    return ((piece, read_range(piece, source)) for piece in pieces)


def initial_offsets(settings: SourceSettings, recovered: Mapping[str, Any] | None) -> OffsetJson:
    """The concrete offsets at which a new checkpoint starts.

    The daemon writes them down before Spark plans its first batch, because Spark does not log them.

    Args:
        settings: the source; its startup mode counts only when nothing was recovered.
        recovered: offsets that the tables or the progress file hold; None for a new stream.
            Partitions that they do not name are read from the beginning.

    Raises:
        RetryableError: the source did not answer.
        DataLossError: a recovered position cannot be found.
    """
    with contextlib.closing(open_source(settings)) as source:
        return source.initial() if recovered is None else source.restore(recovered)


def rewind_offsets(
    settings: SourceSettings, start: Mapping[str, Any], position: Mapping[str, Any]
) -> OffsetJson:
    """Where to start so that records are read again.

    Args:
        start: start offsets; a partition that is missing is read from its beginning.
        position: up to where the stream has read.

    Raises:
        RetryableError: the source did not answer.
        DataLossError: records between the two no longer exist.
    """
    with contextlib.closing(open_source(settings)) as source:
        return source.rewind(start, position)


class LagProbe:
    """The driver's own client for lag, since Spark's source runner shares no memory with it.

    A context manager.
    """

    def __init__(self, settings: SourceSettings, clock: Clock | None = None) -> None:
        self._source = open_source(settings, clock)

    def __enter__(self) -> "LagProbe":
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def poll(
        self, committed: Mapping[_Partition, int] | None = None
    ) -> dict[_Partition, tuple[int, int]]:
        """First and next-to-be-written offset of every (topic, partition).

        Args:
            committed: next offsets to read. Kafka does not need them. For files an offset is a file
                number and a position; with `committed` the end is given such that end minus
                committed is the number of bytes to read, without it the two are only comparable.

        Raises:
            RetryableError: the source did not answer.
        """
        if isinstance(self._source, KafkaSource):
            marks = self._source.watermarks()
            return {(topic, int(key)): marks[topic, key] for topic, key in marks}
        ends = self._source.ends({topic: at for (topic, _), at in (committed or {}).items()})
        return {(topic, 0): (0, end) for topic, end in ends.items()}

    def silent(self) -> frozenset[_Partition]:
        """Partitions that no leader answered for at the last poll."""
        if isinstance(self._source, KafkaSource):
            return frozenset((topic, int(key)) for topic, key in self._source.silent)
        return frozenset()

    def close(self) -> None:
        """Release the client."""
        self._source.close()


def topic_bytes(settings: SourceSettings, topics: Collection[str]) -> int:
    """Estimate the bytes of events in `topics` [bytes]; 0 of a topic that does not exist.

    Offsets of Kafka are multiplied by the mean size of some records, so that compacted topics,
    which have fewer records than offsets, get an upper bound. Files count as they are on disk.

    Raises:
        RetryableError: the source did not answer.
    """
    if isinstance(settings, KafkaSourceSettings):
        return _kafka_bytes(settings, topics)
    try:
        listing = list_files(settings)
    except OSError as error:
        raise RetryableError(
            "the source directory cannot be read", detail=str(error), path=settings.path
        ) from error
    return sum(file.size for topic in topics for file in listing.get(topic, ()))


def _kafka_bytes(settings: KafkaSourceSettings, topics: Collection[str]) -> int:
    chosen = dataclasses.replace(
        settings,
        topics=tuple(sorted(topics)),
        topics_pattern="",
        startup_mode="earliest",
        startup_timestamp_ms=None,
        startup_offsets={},
    )
    source = KafkaSource(chosen)
    sizes = RecordSizes(chosen, SystemClock())
    try:
        backlogs = {
            pair: (low, high - low)
            for pair, (low, high) in source.watermarks().items()
            if high > low
        }
        means = sizes.weights(backlogs, 1)  # a limit that makes it read records
    finally:
        sizes.close()
        source.close()
    return round(sum(count * means[pair] for pair, (_, count) in backlogs.items()))


_LEADER_WAIT_S = 10.0
"""How long the partitions of a topic may be without leader before that is an error [s]."""


class TopicTail:
    """Follows one topic, which may be created later.

    Args:
        whole: whether it is read from its beginning; if not, from its end at
            construction.
        interval_s: minimum interval between checks for new partitions [s].

    Raises:
        RetryableError: the source does not answer for some seconds; with `whole` it is raised by
            `read`.
    """

    def __init__(
        self,
        source: SourceSettings,
        topic: str,
        clock: Clock,
        *,
        whole: bool = False,
        interval_s: float = _POLL_INTERVAL_S,
    ) -> None:
        self._settings = only_topic(source, topic, "earliest" if whole else "latest", interval_s)
        self._source = open_source(self._settings, clock)
        self._position: Mapping[str, Any] | None = None if whole else self._end(clock)

    def _end(self, clock: Clock) -> Mapping[str, Any]:
        """Where the topic ends; partitions of a new topic have no leader for a moment."""
        deadline_s = clock.monotonic_s() + _LEADER_WAIT_S
        while True:
            try:
                return self._source.initial()
            except RetryableError:
                if clock.monotonic_s() >= deadline_s:
                    self.close()
                    raise
            clock.sleep(_POLL_INTERVAL_S)

    def read(self) -> Iterator[RawBatch]:
        """The records since the last call.

        Raises:
            RetryableError: the source does not answer.
        """
        if self._position is None:
            self._position = self._source.initial()
        while True:
            end = self._source.latest(self._position)
            if end == self._position:
                return
            for pieces in self._source.plan(self._position, end):
                for _, batches in open_ranges(pieces, self._settings):
                    yield from batches
            self._position = end

    def close(self) -> None:
        """Release the client."""
        self._source.close()


def send_record(settings: KafkaSourceSettings, topic: str, key: bytes, value: bytes) -> None:
    """Write one record into partition 0 and wait for the brokers' acknowledgement.

    Debezium reads only that partition of a signal topic.

    Raises:
        RetryableError: no acknowledgement in time; the record may have been written.
        AccessDeniedError: the brokers refused it.
    """
    config = {
        **admin_config(settings),
        "acks": "all",
        "message.timeout.ms": int(_SEND_TIMEOUT_S * 1_000),
    }
    failures: list[LakewardError] = []

    def delivered(error: KafkaError | None, message: Message) -> None:
        if error is not None:
            failures.append(broker_error(error, topic=topic))

    producer = Producer(config, logger=CLIENT_LOG)
    try:
        producer.produce(topic, partition=0, key=key, value=value, on_delivery=delivered)
    except KafkaException as error:
        raise broker_error(error, topic=topic) from error
    unsent = producer.flush(_SEND_TIMEOUT_S + 5)
    if failures:
        raise failures[0]
    if unsent:
        raise RetryableError("kafka did not acknowledge the record in time", topic=topic)


# Control files by which the daemon limits what its source, another process of Spark, offers.
#
# ``<checkpoint>/control.json`` holds ``{"drain": true}`` while the source must offer nothing new.
# No file says the same as ``{"drain": false}``.
#
# ``<checkpoint>/waits.json`` holds ``{topic: seconds}`` for topics whose records may wait. It is a
# separate file with another writer: a change of waits must not revoke a drain. `TopicGate` applies
# the waits.


MOST_WAITING = 10_000
"""Maximum of waiting records of a topic: enough for a file that need not be merged soon."""

_BYTES_PER_RECORD = 1024
_FILES = "files"


class StopRequested(Exception):
    """A batch was refused because the stream drains."""


class TopicGate:
    """Topics whose records may wait: they advance when enough are waiting, or time is up.

    Gates where the source's offsets are offered, so nothing that was read is kept back: a record
    that waits is still in the source. Offered offsets are in Spark's log, where a repeated batch
    finds them. How long records have waited is known to this process only: records that wait at its
    first poll have waited for an unknown time and are offered at once.
    """

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._known_topics: set[str] = set()
        self._since_s: dict[str, float] = {}

    def gated(
        self, start: Mapping[str, Any], end: Mapping[str, Any], waits: Mapping[str, float]
    ) -> frozenset[str]:
        """Topics that must not advance now.

        Args:
            start: where the next batch begins, in the source's own form.
            end: where it would end without any limit.
            waits: how long records of a topic may wait [s]; topics not named may not.
        """
        now_s = self._clock.monotonic_s()
        gated = frozenset(
            topic
            for topic, wait_s in waits.items()
            if self._holds(topic, start.get(topic), end.get(topic), wait_s, now_s)
        )
        self._known_topics.update(end)
        for topic in self._since_s.keys() - waits.keys():
            del self._since_s[topic]
        return gated

    def _holds(self, topic: str, before: Any, after: Any, wait_s: float, now_s: float) -> bool:
        if before is None or after is None or before == after:
            self._since_s.pop(topic, None)
            return False
        since_s = self._since_s.setdefault(topic, now_s)
        waiting = _waiting(topic, before, after)
        due = topic not in self._known_topics or now_s - since_s >= wait_s
        if due or waiting is None or waiting >= MOST_WAITING:
            del self._since_s[topic]
            return False
        return True


def _waiting(topic: str, before: Mapping[str, Any], after: Mapping[str, Any]) -> int | None:
    """Records between two positions of a topic, estimated for files; None if it goes backwards."""
    if _FILES in after:
        return sum(to - first for _, first, to, _ in after[_FILES]) // _BYTES_PER_RECORD
    begin, end = resume_token({topic: before})[topic], resume_token({topic: after})[topic]
    ahead = [offset - begin.get(key, offset) for key, offset in end.items()]
    return None if min(ahead, default=0) < 0 else sum(ahead)


_FILE_NAME = "control.json"
_WAITS_NAME = "waits.json"


def write_control(checkpoint: Path, *, drain: bool) -> None:
    """Replace the control file atomically; the directory is created."""
    _write(checkpoint / _FILE_NAME, {"drain": drain})


def draining(checkpoint: Path) -> bool:
    """Whether the source must offer nothing new."""
    return bool(_read(checkpoint / _FILE_NAME).get("drain", False))


def write_topic_waits(checkpoint: Path, waits: Mapping[str, float]) -> None:
    """Replace how long records of a topic may wait [s], atomically; the directory is created."""
    _write(checkpoint / _WAITS_NAME, dict(waits))


def topic_waits(checkpoint: Path) -> dict[str, float]:
    """Read how long records of a topic may wait [s]; topics that may not wait are left out."""
    waits = _read(checkpoint / _WAITS_NAME)
    return {str(topic): float(wait_s) for topic, wait_s in waits.items()}


def _write(path: Path, content: Mapping[str, object]) -> None:
    data = json.dumps(content, sort_keys=True).encode()
    LocalFileIO(durable=False).overwrite_bytes(str(path), data)


def _read(path: Path) -> Mapping[str, Any]:
    try:
        content: Mapping[str, Any] = json.loads(path.read_bytes())
    except FileNotFoundError:
        return {}
    return content
