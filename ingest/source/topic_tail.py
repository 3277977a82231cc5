# SPDX-License-Identifier: Apache-2.0
"""What comes new in one topic, for commands that wait for an answer there; and one record sent."""

from collections.abc import Iterator, Mapping
from typing import Any

from confluent_kafka import KafkaError, KafkaException, Message, Producer

from ingest.config.source_settings import KafkaSourceSettings, SourceSettings, only_topic
from ingest.source.kafka_client import CLIENT_LOG, admin_config, broker_error
from ingest.source.open import open_range, open_source
from ingest.source.records import RawBatch
from storage.clock import Clock
from storage.errors import LakewardError, RetryableError

__all__ = ["TopicTail", "send_record"]

_SEND_TIMEOUT_S = 30.0
_LOOK_AGAIN_S = 0.5


class TopicTail:
    """Reads on from where the topic ended when this was made; it may be created later.

    Args:
        source: the pipeline's source.
        topic: the topic.
        clock: time.

    Raises:
        RetryableError: the source does not answer.
    """

    def __init__(self, source: SourceSettings, topic: str, clock: Clock) -> None:
        self._settings = only_topic(source, topic, "latest", _LOOK_AGAIN_S)
        self._source = open_source(self._settings, clock)
        self._position: Mapping[str, Any] = self._source.initial()

    def read(self) -> Iterator[RawBatch]:
        """The records since the last call.

        Raises:
            RetryableError: the source does not answer.
        """
        while True:
            end = self._source.latest(self._position)
            if end == self._position:
                return
            for pieces in self._source.plan(self._position, end):
                for piece in pieces:
                    yield from open_range(piece, self._settings)
            self._position = end

    def close(self) -> None:
        """Release the client."""
        self._source.close()


def send_record(settings: KafkaSourceSettings, topic: str, key: bytes, value: bytes) -> None:
    """Write one record into partition 0 and wait until the brokers have it.

    Of a signal topic, whatever its partitions, Debezium reads that one.

    Raises:
        RetryableError: they did not say so in time; it may be there.
        InvalidRequestError: they refused.
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
    left = producer.flush(_SEND_TIMEOUT_S + 5)
    if failures:
        raise failures[0]
    if left:
        raise RetryableError("kafka did not take the record in time", topic=topic)
