# SPDX-License-Identifier: Apache-2.0
"""Planning side of the Kafka source: which partitions there are, and how far a batch goes.

Runs in Spark's source runner (and in the daemon, for the initial offsets). Offsets have the form
``{"topic": {"0": 42}}``, the next offset to read. The end of a partition is its last stable offset:
records of open transactions are not part of any range.

- New topics and partitions enter at their earliest offset, whatever the startup mode.
- A partition whose topic the settings no longer select keeps its position.
- Offsets that left the log: `DataLossError`, or, with `fail_on_data_loss` off, planning resumes at
  the earliest offset and the range reader counts what it skips.
- A log that ends below our position was truncated or re-created. Because a change of leader can
  show this for a moment, it must last `REGRESSION_GRACE_S` to count. With
  `fail_on_data_loss` off the partition is then read from its beginning: its end offset in the plan
  is below its start.
- A topic with another id than the offsets are of was re-created, however long it is by now
  (`TopicIdentities`): the same as a log that ends below our position.
- When the brokers do not answer, `latest` returns `start`: an error would end the query.
"""

import dataclasses
import json
import logging
from collections.abc import Collection, Mapping
from pathlib import Path
from typing import Any

from confluent_kafka import (
    Consumer,
    IsolationLevel,
    KafkaError,
    KafkaException,
    Message,
    TopicCollection,
    TopicPartition,
)
from confluent_kafka.admin import AdminClient, OffsetSpec

from ingest.config.source_settings import KafkaSourceSettings, selects_topic
from ingest.source.kafka_client import (
    CLIENT_LOG,
    admin_config,
    broker_error,
    consumer_config,
    data_loss,
    is_transient,
)
from ingest.source.records import (
    DEFAULT_RECORD_BYTES,
    OffsetJson,
    OffsetMap,
    SourceRange,
    normalize,
    plan_end,
    resume_token,
    split_ranges,
)
from storage.clock import Clock, SystemClock
from storage.errors import CorruptDataError, DataLossError, InvalidOptionError, RetryableError
from storage.io.local import LocalFileIO

Pair = tuple[str, str]

# Brokers accept records up to 1 MiB by default: a backlog below limit / 1 MiB needs no sample.
_LARGEST_RECORD_BYTES = 1 << 20
_RECORD_OVERHEAD_BYTES = 70
_SAMPLE_RECORDS = 200
# 0.3 s at most, spent in the planning of a batch; 3 s where a partition has no sample yet
# and connections are made: a guess would let the first batch, the largest, exceed its limit
_SAMPLE_WAIT_S = 0.05
_SAMPLE_WAITS = 6
_FIRST_SAMPLE_WAITS = 60
# Largest backlogs first; the rest is sampled by later calls and takes its topic's mean until then.
_SAMPLED_PER_CALL = 16
_FRESH_S = 60.0
_FRESH_OFFSETS = 500_000


@dataclasses.dataclass(frozen=True, slots=True)
class _Sample:
    mean_bytes: float
    position: int
    taken_s: float


class RecordSizes:
    """Remembers samples; reads new ones when a limit makes them necessary."""

    def __init__(self, settings: KafkaSourceSettings, clock: Clock) -> None:
        self._settings = settings
        self._clock = clock
        self._samples: dict[Pair, _Sample] = {}
        self._sampled_pairs: set[Pair] = set()
        self._consumer: Consumer | None = None

    def weights(
        self, backlogs: Mapping[Pair, tuple[int, int]], max_bytes: int
    ) -> dict[Pair, float]:
        """Mean record sizes of partitions with a backlog.

        Args:
            backlogs: (position, offsets waiting) per (topic, partition).
            max_bytes: the limit in question; a backlog that cannot exceed it is not sampled.

        Returns:
            Mean bytes per (topic, partition) of `backlogs`.
        """
        if self._consumer is not None:
            self._consumer.poll(0)  # consumes nothing, but releases the client's log lines
        waiting = sum(count for _, count in backlogs.values())
        if waiting * _LARGEST_RECORD_BYTES > max_bytes:
            stale = [pair for pair in backlogs if self._stale(pair, backlogs[pair][0])]
            stale.sort(key=lambda pair: (-backlogs[pair][1], pair))
            chosen = {pair: backlogs[pair][0] for pair in stale[:_SAMPLED_PER_CALL]}
            if chosen:
                self._sample(chosen)
        return {pair: self._mean(pair) for pair in backlogs}

    def close(self) -> None:
        """Drop the consumer; samples stay."""
        if self._consumer is not None:
            self._consumer.close()
            self._consumer = None

    def _stale(self, pair: Pair, position: int) -> bool:
        sample = self._samples.get(pair)
        if sample is None:
            return True
        old = self._clock.monotonic_s() - sample.taken_s > _FRESH_S
        return old or abs(position - sample.position) > _FRESH_OFFSETS

    def _mean(self, pair: Pair) -> float:
        cached = self._samples.get(pair)
        if cached is not None:
            return cached.mean_bytes
        siblings = [s.mean_bytes for key, s in self._samples.items() if key[0] == pair[0]]
        means = siblings or [sample.mean_bytes for sample in self._samples.values()]
        return sum(means) / len(means) if means else DEFAULT_RECORD_BYTES

    def _sample(self, positions: Mapping[Pair, int]) -> None:
        try:
            sizes = self._read(positions)
        except KafkaException as error:
            _LOG.debug("sampling record sizes failed: %s", error)
            return
        now = self._clock.monotonic_s()
        for pair, lengths in sizes.items():
            mean = sum(lengths) / len(lengths) + _RECORD_OVERHEAD_BYTES
            self._samples[pair] = _Sample(mean, positions[pair], now)

    def _read(self, positions: Mapping[Pair, int]) -> dict[Pair, list[int]]:
        if self._consumer is None:
            self._consumer = Consumer(
                {
                    **consumer_config(self._settings),
                    "max.partition.fetch.bytes": 128 << 10,
                    "queued.max.messages.kbytes": 4096,
                    "queued.min.messages": _SAMPLE_RECORDS,
                },
                logger=CLIENT_LOG,
            )
        waits = _SAMPLE_WAITS if self._sampled_pairs.issuperset(positions) else _FIRST_SAMPLE_WAITS
        self._sampled_pairs.update(positions)
        self._consumer.assign(
            [TopicPartition(topic, int(key), at) for (topic, key), at in positions.items()]
        )
        sizes: dict[Pair, list[int]] = {}
        try:
            while len(sizes) < len(positions) and waits > 0:
                messages = self._consumer.consume(_SAMPLE_RECORDS, _SAMPLE_WAIT_S)
                answers = {
                    pair: lengths
                    for pair, lengths in _lengths(messages).items()
                    if pair not in sizes
                }
                if not answers:
                    waits -= 1
                    continue
                sizes |= answers
                # else the records of the partition that answers first displace the others'
                self._consumer.incremental_unassign(
                    [TopicPartition(topic, int(key)) for topic, key in answers]
                )
        finally:
            self._consumer.unassign()
        return {pair: lengths for pair, lengths in sizes.items() if lengths}


def _lengths(messages: list[Message]) -> dict[Pair, list[int]]:
    """Bytes of the records per partition that answered.

    A partition whose records cannot be read, such as those of an aborted transaction, answers with
    its end and has none: there is no wait for it.
    """
    sizes: dict[Pair, list[int]] = {}
    for message in messages:
        pair, error = (message.topic(), str(message.partition())), message.error()
        if error is None:
            length = len(message.value() or b"") + len(message.key() or b"")
            sizes.setdefault(pair, []).append(length)
        elif error.code() == KafkaError._PARTITION_EOF:
            sizes.setdefault(pair, [])
    return sizes


_FILE_NAME = "topics.json"


class TopicIdentities:
    """Which topic the stream's offsets belong to, since a name can be given to another topic.

    A topic that is deleted and re-created starts again at offset 0. While it is shorter than what
    was read of the old one, its end reveals that; once it is longer, only the topic's id does
    (KIP-516), and its first records would be skipped silently. `<checkpoint>/topics.json` keeps per
    topic

    * `id`: of the topic that the offsets belong to;
    * `left`, only during the transition to a new topic: the offsets at which the old one was left.
      Offsets that still equal these belong to the old one. So the offset alone decides, and a crash
      between planning and Spark's log needs no further care.

    Brokers before 2.8 have no ids: nothing is kept then. One writer: the planning side.
    """

    def __init__(self, checkpoint: Path) -> None:
        self._path = checkpoint / _FILE_NAME
        self._cached_ids: dict[str, dict[str, Any]] | None = None

    def renewed(self, start: OffsetMap, ids: Mapping[str, str], *, allowed: bool) -> frozenset[str]:
        """Topics whose offsets are of an older topic of that name; notes topics that are new.

        Args:
            start: next offsets to read.
            ids: of the topics that the cluster has now.
            allowed: whether the stream may switch to another topic.

        Raises:
            DataLossError: it would have to, but may not.
            CorruptDataError: the file cannot be read.
        """
        before = self._read()
        topics = dict(before)
        renewed: set[str] = set()
        for topic, now in ids.items():
            offsets = start.get(topic)
            entry = topics.get(topic)
            if offsets is None or entry is None:
                topics[topic] = {"id": now}
            elif entry["id"] != now:
                if not allowed:
                    raise self._recreated(topic, entry["id"], now)
                topics[topic] = {"id": now, "left": offsets}
                renewed.add(topic)
            elif "left" in entry:
                if entry["left"] == offsets:
                    renewed.add(topic)
                else:
                    topics[topic] = {"id": now}
        if topics != before:
            text = json.dumps(topics, sort_keys=True).encode()
            LocalFileIO().overwrite_bytes(str(self._path), text)
            self._cached_ids = topics
        return frozenset(renewed)

    def _read(self) -> dict[str, dict[str, Any]]:
        if self._cached_ids is None:
            self._cached_ids = self._parsed()
        return self._cached_ids

    def _parsed(self) -> dict[str, dict[str, Any]]:
        try:
            topics = json.loads(self._path.read_bytes())
            return {topic: {**entry, "id": str(entry["id"])} for topic, entry in topics.items()}
        except FileNotFoundError:
            return {}
        except (ValueError, KeyError, TypeError, AttributeError) as error:
            raise CorruptDataError(
                "the topics of the offsets cannot be read",
                hint="restore the file, or remove it if no topic was re-created meanwhile",
                path=self._path,
            ) from error

    def _recreated(self, topic: str, was: str, now: str) -> DataLossError:
        return DataLossError(
            "a topic was deleted and re-created",
            detail="its offsets are of other records now",
            hint="re-snapshot the tables of this topic, or set `source.fail.on.data.loss: false` "
            f"to read the new one from its beginning; if the records are the same, as after a move "
            f"to another cluster with all offsets, remove {self._path}",
            topic=topic,
            was=was,
            now=now,
        )


_LOG = logging.getLogger(__name__)

Watermarks = dict[Pair, tuple[int, int]]
"""(earliest offset, end) per (topic, partition)."""

REGRESSION_GRACE_S = 10.0
"""How long a log must end below our position to count as truncated or re-created [s]."""

# An idle trigger polls every 12 ms (SPARK.md §1); brokers are queried at most this often [s].
_WATERMARK_CACHE_S = 0.2
# With nothing selected yet, discover again soon: it is the start of a pipeline [s].
_EMPTY_DISCOVERY_S = 5.0
_REQUEST_TIMEOUT_S = 15.0
_EARLIEST, _LATEST = -2, -1
_NO_ID = "AAAAAAAAAAAAAAAAAAAAAA"
"""The id that brokers without topic ids return."""


class KafkaSource:
    """See `ingest.source.open.Source`.

    Args:
        settings: topics and connection.
        clock: for caches and grace periods.
        identities: which topics the stream's offsets are of; None = unchecked.
    """

    def __init__(
        self,
        settings: KafkaSourceSettings,
        clock: Clock | None = None,
        identities: TopicIdentities | None = None,
    ) -> None:
        self._settings = settings
        self._clock = clock or SystemClock()
        self._client: AdminClient | None = None
        self._sizes = RecordSizes(settings, self._clock)
        self._pairs: tuple[Pair, ...] = ()
        self._discovered_s: float | None = None
        self._watermarks: Watermarks = {}
        self._marked_s: float | None = None
        self._frozen = False
        self._regressed_s: dict[Pair, float] = {}
        self._identities = identities
        self._ids: dict[str, str] = {}
        self._planned = False

    def initial(self) -> OffsetJson:
        """See `Source`."""
        marks = self._all_watermarks()
        mode = self._settings.startup_mode
        if mode == "earliest":
            chosen = {pair: low for pair, (low, _) in marks.items()}
        elif mode == "latest":
            chosen = {pair: high for pair, (_, high) in marks.items()}
        elif mode == "timestamp":
            chosen = self._at_timestamp(marks)
        else:
            chosen = self._specific(marks)
        return _offset_map(chosen)

    def restore(self, stored: Mapping[str, Any]) -> OffsetJson:
        """See `Source`."""
        return dict(normalize(resume_token(stored)))

    def rewind(self, start: Mapping[str, Any], position: Mapping[str, Any]) -> OffsetJson:
        """See `Source`."""
        offsets, reached = resume_token(start), resume_token(position)
        marks = self.watermarks()
        for topic, entry in offsets.items():
            for key, offset in entry.items():
                end = reached.get(topic, {}).get(key, offset)
                low, _ = marks.get((topic, key), (end, end))
                if offset < end and low > offset:
                    self._require_answers({(topic, key)} & self.silent)
                    self._refuse_lost(topic, key, offset, low)
        return dict(normalize(offsets))

    def _refuse_lost(self, topic: str, key: str, offset: int, low: int) -> None:
        """Records that a table missed while it was parked are not in the log any more."""
        error = DataLossError(
            "kafka no longer has the records that the table missed while it was parked",
            hint="`lakeward resnapshot` makes the table whole again; or set "
            "`source.fail.on.data.loss: false` to continue with the remaining records",
            topic=topic,
            partition=key,
            wanted=offset,
            earliest=low,
        )
        if self._settings.fail_on_data_loss:
            raise error
        _LOG.warning("%s", error, extra={"event": "source_data_loss"})

    def latest(
        self,
        start: Mapping[str, Any],
        *,
        max_records: int | None = None,
        max_bytes: int | None = None,
        gated: Collection[str] = (),
    ) -> OffsetJson:
        """See `Source`."""
        marks = self._current(start)
        if marks is None:
            return dict(start)
        positions = resume_token(start)
        renewed = self._renewed(positions)
        begin = self._effective_start(positions, marks, renewed)
        ends = _offset_map({pair: high for pair, (_, high) in marks.items()})
        ends |= {topic: begin[topic] for topic in gated if topic in begin}
        weights = None
        if max_bytes is not None:
            moving = {pair: mark for pair, mark in marks.items() if pair[0] not in gated}
            weights = self._sizes.weights(_backlogs(begin, moving), max_bytes)
        end = plan_end(begin, ends, max_records=max_records, max_bytes=max_bytes, weights=weights)
        for (topic, key), (low, _) in marks.items():
            if key not in positions.get(topic, {}):
                end.setdefault(topic, {})[key] = low
            elif topic in renewed and positions[topic][key] > low:  # marked by an end below start
                end[topic][key] = min(end[topic][key], positions[topic][key] - 1)
        for topic in renewed:  # also where no leader answers, or there is no such partition now
            for key in positions[topic]:
                if (topic, key) not in marks:
                    end[topic][key] = 0
        result = normalize(end)
        return dict(start) if result == start else result

    def available(self, start: Mapping[str, Any]) -> OffsetJson:
        """See `Source`."""
        marks = self._current(start)
        end: OffsetMap = resume_token(start)
        for (topic, key), (_, high) in (marks or {}).items():
            entry = end.setdefault(topic, {})
            entry[key] = max(high, entry.get(key, 0))
        return normalize(end)

    def watermarks(self) -> Watermarks:
        """(earliest offset, end) of every selected partition, at most 200 ms old.

        Raises:
            RetryableError: the brokers did not answer.
        """
        now = self._clock.monotonic_s()
        if not self._frozen and self._is_due(self._marked_s, _WATERMARK_CACHE_S):
            interval = self._settings.discovery_interval_s
            if not self._pairs:
                interval = min(interval, _EMPTY_DISCOVERY_S)
            if self._is_due(self._discovered_s, interval):
                self._discover()
            self._watermarks = self._query_watermarks()
            self._marked_s = now
        return self._watermarks

    @property
    def silent(self) -> frozenset[Pair]:
        """Partitions of the topics that no leader answered for in the last query of watermarks."""
        return frozenset(self._pairs) - self._watermarks.keys()

    def freeze(self) -> None:
        """See `Source`."""
        self._watermarks = self._all_watermarks()
        self._frozen = True

    def _all_watermarks(self) -> Watermarks:
        self._discover()
        marks = self._query_watermarks()
        self._require_answers(set(self._pairs) - marks.keys())
        return marks

    def _require_answers(self, missing: Collection[Pair]) -> None:
        if missing:
            raise RetryableError(
                "kafka did not return the offsets of all partitions", missing=sorted(missing)[:10]
            )

    def plan(self, start: Mapping[str, Any], end: Mapping[str, Any]) -> list[list[SourceRange]]:
        """See `Source`."""
        self._require_same_topics(resume_token(start))
        return split_ranges(
            resume_token(start), resume_token(end), parallelism=self._settings.parallelism
        )

    def close(self) -> None:
        """See `Source`."""
        self._sizes.close()
        if self._client is not None:
            self._client.poll(0)  # its last log lines
        self._client = None

    def _is_due(self, since_s: float | None, interval_s: float) -> bool:
        return since_s is None or self._clock.monotonic_s() - since_s >= interval_s

    def _current(self, start: Mapping[str, Any]) -> Watermarks | None:
        """Watermarks, or None when the brokers are unavailable."""
        try:
            return self.watermarks()
        except RetryableError as error:
            _LOG.warning(
                "kafka is unavailable, no new offsets",
                extra={"event": "source_unavailable", "error": str(error), "topics": len(start)},
            )
            self._marked_s = self._clock.monotonic_s()  # do not query again at once
            self._watermarks = {}
            return None

    def _renewed(self, start: OffsetMap) -> frozenset[str]:
        """Topics whose offsets are of an older one of that name; see `TopicIdentities`."""
        if self._identities is None:
            return frozenset()
        allowed = not self._settings.fail_on_data_loss
        return self._identities.renewed(start, self._ids, allowed=allowed)

    def _require_same_topics(self, start: OffsetMap) -> None:
        """The first batch of a process may have been planned by an earlier one, on other topics."""
        if self._planned or self._identities is None or not self._settings.fail_on_data_loss:
            return
        self._planned = True
        try:
            self.watermarks()
        except RetryableError:
            return  # the readers of the ranges wait for the brokers
        self._renewed(start)

    def _effective_start(
        self, start: OffsetMap, marks: Watermarks, renewed: Collection[str]
    ) -> OffsetMap:
        """`start`, with lost offsets skipped where the settings allow it."""
        begin = {topic: dict(entry) for topic, entry in start.items()}
        for (topic, key), (low, high) in marks.items():
            position = start.get(topic, {}).get(key)
            if position is not None and topic in renewed:
                begin[topic][key] = low
                continue
            if position is None or low <= position <= high:
                self._regressed_s.pop((topic, key), None)
                continue
            if position > high and not self._regression_believed((topic, key)):
                continue
            if self._settings.fail_on_data_loss:
                raise data_loss(topic, int(key), position, low, high)
            begin[topic][key] = low
        self._check_vanished(start)
        return begin

    def _regression_believed(self, pair: Pair) -> bool:
        since = self._regressed_s.setdefault(pair, self._clock.monotonic_s())
        return self._frozen or self._clock.monotonic_s() - since >= REGRESSION_GRACE_S

    def _check_vanished(self, start: OffsetMap) -> None:
        """Selected partitions that the cluster no longer has."""
        present = set(self._pairs)
        for topic, entry in start.items():
            if not selects_topic(self._settings, topic):
                continue
            for key, position in entry.items():
                if (topic, key) in present:
                    continue
                believed = self._regression_believed((topic, key))
                if believed and self._settings.fail_on_data_loss:
                    raise data_loss(topic, int(key), position, 0, 0)

    def _admin(self) -> AdminClient:
        if self._client is None:
            self._client = AdminClient(admin_config(self._settings), logger=CLIENT_LOG)
        self._client.poll(0)  # releases the client's log lines
        return self._client

    def _discover(self) -> None:
        try:
            metadata = self._admin().list_topics(timeout=_REQUEST_TIMEOUT_S)
        except KafkaException as error:
            raise broker_error(error) from error
        self._pairs = tuple(
            (topic, str(partition))
            for topic in sorted(metadata.topics)
            if selects_topic(self._settings, topic)
            for partition in sorted(metadata.topics[topic].partitions)
        )
        self._ids = self._topic_ids() if self._identities is not None else {}
        self._discovered_s = self._clock.monotonic_s()

    def _topic_ids(self) -> dict[str, str]:
        """Ids of the topics that are read; empty if the brokers have none."""
        topics = sorted({topic for topic, _ in self._pairs})
        if not topics:
            return {}
        ids: dict[str, str] = {}
        try:
            futures = self._admin().describe_topics(
                TopicCollection(topics), request_timeout=_REQUEST_TIMEOUT_S
            )
        except KafkaException as error:
            raise broker_error(error) from error
        for topic, future in futures.items():
            try:
                ids[topic] = str(future.result().topic_id)
            except KafkaException as error:
                if is_transient(error.args[0]):
                    continue  # it may be about to be deleted: the next discovery shows
                raise broker_error(error, topic=topic) from error
        return {topic: number for topic, number in ids.items() if number != _NO_ID}

    def _query_watermarks(self) -> Watermarks:
        """Both ends of every partition whose leader answered.

        Raises:
            RetryableError: no leader did.
        """
        lows = self._list_offsets(dict.fromkeys(self._pairs, OffsetSpec.earliest()))
        highs = self._list_offsets(dict.fromkeys(self._pairs, OffsetSpec.latest()))
        return {pair: (lows[pair], highs[pair]) for pair in lows if pair in highs}

    def _list_offsets(self, specs: Mapping[Pair, OffsetSpec]) -> dict[Pair, int]:
        if not specs:
            return {}
        request = {TopicPartition(pair[0], int(pair[1])): specs[pair] for pair in specs}
        offsets: dict[Pair, int] = {}
        failure: KafkaException | None = None
        try:
            futures = self._admin().list_offsets(
                request,
                isolation_level=self._isolation(),
                request_timeout=_REQUEST_TIMEOUT_S,
            )
        except KafkaException as error:
            raise broker_error(error) from error
        for partition, future in futures.items():
            try:
                offsets[partition.topic, str(partition.partition)] = future.result().offset
            except KafkaException as error:
                failure = error
                if not is_transient(error.args[0]):
                    raise broker_error(
                        error, topic=partition.topic, partition=partition.partition
                    ) from error
        if failure is not None:
            self._discovered_s = None  # a topic may have been deleted: discover again
            if not offsets:
                raise broker_error(failure) from failure
        return offsets

    def _isolation(self) -> IsolationLevel:
        level = self._settings.properties.get("isolation.level", "read_committed")
        if level == "read_uncommitted":
            return IsolationLevel.READ_UNCOMMITTED
        return IsolationLevel.READ_COMMITTED

    def _at_timestamp(self, marks: Watermarks) -> dict[Pair, int]:
        spec = OffsetSpec.for_timestamp(self._settings.startup_timestamp_ms)
        offsets = self._list_offsets(dict.fromkeys(marks, spec))
        self._require_answers(marks.keys() - offsets.keys())
        return {
            pair: offsets[pair] if offsets[pair] >= 0 else high for pair, (_, high) in marks.items()
        }

    def _specific(self, marks: Watermarks) -> dict[Pair, int]:
        chosen = {pair: low for pair, (low, _) in marks.items()}
        for topic, entry in self._settings.startup_offsets.items():
            for key, offset in entry.items():
                pair = (topic, str(key))
                if pair not in marks:
                    raise InvalidOptionError(
                        "a startup offset names a partition that is not read",
                        hint="check the names in `source.scan.startup.offsets`",
                        topic=topic,
                        partition=key,
                    )
                low, high = marks[pair]
                position = {_EARLIEST: low, _LATEST: high}.get(offset, offset)
                if not low <= position <= high:
                    raise InvalidOptionError(
                        "a startup offset is not in the log",
                        topic=topic,
                        partition=key,
                        offset=offset,
                        earliest=low,
                        latest=high,
                    )
                chosen[pair] = position
        return chosen


def _offset_map(offsets: Mapping[Pair, int]) -> OffsetMap:
    result: OffsetMap = {}
    for (topic, key), offset in sorted(offsets.items()):
        result.setdefault(topic, {})[key] = offset
    return result


def _backlogs(start: OffsetMap, marks: Watermarks) -> dict[Pair, tuple[int, int]]:
    result: dict[Pair, tuple[int, int]] = {}
    for (topic, key), (_, high) in marks.items():
        position = start.get(topic, {}).get(key)
        if position is not None and high > position:
            result[topic, key] = (position, high - position)
    return result
