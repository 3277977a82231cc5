# SPDX-License-Identifier: Apache-2.0
"""Mean record size per partition, by sampling, so that a batch can be bounded in bytes.

Kafka reports how many offsets a partition has but not how many bytes. A few records are read where
a batch would begin; their mean is used until the position has moved far or a minute has passed. An
estimate only: it decides where a batch ends, and that end is then written down.
"""

import dataclasses
import logging
from collections.abc import Mapping

from confluent_kafka import Consumer, KafkaError, KafkaException, Message, TopicPartition

from ingest.config.source_settings import KafkaSourceSettings
from ingest.source.kafka_client import CLIENT_LOG, consumer_config
from ingest.source.ranges import DEFAULT_RECORD_BYTES
from storage.clock import Clock

__all__ = ["RecordSizes"]

_LOG = logging.getLogger(__name__)

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
    """Remembers samples; reads new ones when a limit makes them necessary.

    Args:
        settings: how to reach the brokers.
        clock: for the age of samples.
    """

    def __init__(self, settings: KafkaSourceSettings, clock: Clock) -> None:
        self._settings = settings
        self._clock = clock
        self._samples: dict[Pair, _Sample] = {}
        self._asked: set[Pair] = set()
        self._consumer: Consumer | None = None

    def weights(
        self, backlogs: Mapping[Pair, tuple[int, int]], max_bytes: int
    ) -> dict[Pair, float]:
        """Mean record sizes of partitions with a backlog.

        Args:
            backlogs: (position, offsets waiting) per (topic, partition).
            max_bytes: the limit the answer is for; a backlog that cannot exceed it is not sampled.

        Returns:
            Mean bytes per (topic, partition) of `backlogs`.
        """
        if self._consumer is not None:
            self._consumer.poll(0)  # of nothing: what the client logged, which it keeps until then
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
        known = self._samples.get(pair)
        if known is None:
            return True
        old = self._clock.monotonic_s() - known.taken_s > _FRESH_S
        return old or abs(position - known.position) > _FRESH_OFFSETS

    def _mean(self, pair: Pair) -> float:
        known = self._samples.get(pair)
        if known is not None:
            return known.mean_bytes
        siblings = [s.mean_bytes for other, s in self._samples.items() if other[0] == pair[0]]
        others = siblings or [sample.mean_bytes for sample in self._samples.values()]
        return sum(others) / len(others) if others else DEFAULT_RECORD_BYTES

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
        waits = _SAMPLE_WAITS if self._asked.issuperset(positions) else _FIRST_SAMPLE_WAITS
        self._asked.update(positions)
        self._consumer.assign(
            [TopicPartition(topic, int(key), at) for (topic, key), at in positions.items()]
        )
        sizes: dict[Pair, list[int]] = {}
        try:
            while len(sizes) < len(positions) and waits > 0:
                messages = self._consumer.consume(_SAMPLE_RECORDS, _SAMPLE_WAIT_S)
                found = {
                    pair: lengths
                    for pair, lengths in _lengths(messages).items()
                    if pair not in sizes
                }
                if not found:
                    waits -= 1
                    continue
                sizes |= found
                # else the records of the partition that answers first displace the others'
                self._consumer.incremental_unassign(
                    [TopicPartition(topic, int(key)) for topic, key in found]
                )
        finally:
            self._consumer.unassign()
        return {pair: lengths for pair, lengths in sizes.items() if lengths}


def _lengths(messages: list[Message]) -> dict[Pair, list[int]]:
    """Bytes of the records per partition that answered.

    One whose records cannot be read, such as those of an aborted transaction, answers with its end
    and has none: it is not waited for.
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
