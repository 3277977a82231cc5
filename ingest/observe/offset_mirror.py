# SPDX-License-Identifier: Apache-2.0
"""`source.offsets.group`: committed offsets mirrored to a Kafka consumer group.

For tools that compute lag from consumer groups. Lakeward never reads them: the offsets of the
stream are in its tables. It is best effort, on a separate thread: no batch waits for it, only the
newest offsets are committed if the brokers are slow, and failures are retried with the next ones.
The group must have no members.
"""

import logging
import threading
from collections.abc import Callable, Mapping
from typing import Any

from confluent_kafka import Consumer, KafkaException, TopicPartition

from ingest.config.settings import Settings
from ingest.config.source_settings import KafkaSourceSettings
from ingest.source.kafka_client import consumer_config

_LOG = logging.getLogger(__name__)

_RETRY_S = 15.0
"""Delay before a retry [s]."""

_CLOSE_S = 3.0
"""Maximum time for the last commit at the exit of the process [s]."""


class OffsetMirror:
    """See the module.

    Args:
        source: settings of the cluster.
        group: name of the consumer group.
        connect: creates the client; for tests.
    """

    def __init__(
        self,
        source: KafkaSourceSettings,
        group: str,
        connect: Callable[[dict[str, Any]], Any] = Consumer,
    ) -> None:
        self._config = {
            **consumer_config(source),
            "group.id": group,
            "enable.auto.commit": False,
            "socket.timeout.ms": 10_000,
            "log_level": 0,  # the answer to a commit has the error
        }
        self._group = group
        self._connect = connect
        self._lock = threading.Condition()
        self._waiting: dict[tuple[str, int], int] = {}
        self._closing = False
        self._thread: threading.Thread | None = None

    @staticmethod
    def of(settings: Settings) -> "OffsetMirror | None":
        """Create the mirror, if the settings configure one."""
        group, source = settings.life.offsets_group, settings.source
        if group is None or not isinstance(source, KafkaSourceSettings):
            return None
        return OffsetMirror(source, group)

    def commit(self, offsets: Mapping[str, Mapping[str, int]]) -> None:
        """Queue the next offsets to read by topic and partition; returns immediately."""
        flat = {(t, int(p)): offset for t, parts in offsets.items() for p, offset in parts.items()}
        if not flat:
            return
        with self._lock:
            self._waiting |= flat
            if self._thread is None:
                self._thread = threading.Thread(target=self._work, name="offsets", daemon=True)
                self._thread.start()
            self._lock.notify_all()

    def close(self) -> None:
        """Commit queued offsets, for a few seconds at most, and end."""
        with self._lock:
            self._closing = True
            self._lock.notify_all()
        if self._thread is not None:
            self._thread.join(_CLOSE_S)

    def _work(self) -> None:
        client: Any = None
        while (offsets := self._next()) is not None:
            refused, error = offsets, None
            try:
                client = client or self._connect(self._config)
                positions = [TopicPartition(t, p, offset) for (t, p), offset in offsets.items()]
                answers = client.commit(offsets=positions, asynchronous=False)
                failed = [answer for answer in answers if answer.error]
                refused = {(answer.topic, answer.partition): answer.offset for answer in failed}
                error = failed[0].error if failed else None
            except KafkaException as failure:
                error = failure
            if error is not None:
                _LOG.warning(
                    "committing offsets to the consumer group failed; the stream is not affected",
                    extra={"event": "offsets_group", "group": self._group, "error": str(error)},
                )
                if not self._put_back(refused):
                    break
        if client is not None:
            client.close()

    def _next(self) -> dict[tuple[str, int], int] | None:
        with self._lock:
            self._lock.wait_for(lambda: self._waiting or self._closing)
            offsets, self._waiting = self._waiting, {}
            return offsets or None

    def _put_back(self, offsets: dict[tuple[str, int], int]) -> bool:
        """Keep failed offsets for a retry, unless there are newer ones; False = no retry."""
        with self._lock:
            self._waiting = {**offsets, **self._waiting}
            return not self._lock.wait_for(lambda: self._closing, timeout=_RETRY_S)
