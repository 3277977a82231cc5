# SPDX-License-Identifier: Apache-2.0
"""`source.offsets.group`: committed offsets shown as those of a Kafka consumer group.

For tools that know lag only from groups. Nothing reads them here: where the stream stands is in
its tables. So this is best effort, by a thread of its own: a batch never waits for it; of offsets
that come faster than the brokers take them the newest count; what fails is tried again with the
next. Nobody may be a member of the group.
"""

import logging
import threading
from collections.abc import Callable, Mapping
from typing import Any

from confluent_kafka import Consumer, KafkaException, TopicPartition

from ingest.config.settings import Settings
from ingest.config.source_settings import KafkaSourceSettings
from ingest.source.kafka_client import consumer_config

__all__ = ["OffsetMirror"]

_LOG = logging.getLogger(__name__)

_AGAIN_S = 15.0
"""Between two tries of what failed [s]."""

_CLOSE_S = 3.0
"""How long the end of the process waits for the last offsets [s]."""


class OffsetMirror:
    """See the module.

    Args:
        source: the cluster.
        group: name of the group.
        connect: makes the client; for tests.
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
            "log_level": 0,  # a commit's answer says what fails
        }
        self._group = group
        self._connect = connect
        self._lock = threading.Condition()
        self._waiting: dict[tuple[str, int], int] = {}
        self._ended = False
        self._thread: threading.Thread | None = None

    @staticmethod
    def of(settings: Settings) -> "OffsetMirror | None":
        """The mirror that the settings ask for."""
        group, source = settings.life.offsets_group, settings.source
        if group is None or not isinstance(source, KafkaSourceSettings):
            return None
        return OffsetMirror(source, group)

    def tell(self, offsets: Mapping[str, Mapping[str, int]]) -> None:
        """Have offsets shown, next to be read per topic and partition; returns at once."""
        found = {(t, int(p)): offset for t, parts in offsets.items() for p, offset in parts.items()}
        if not found:
            return
        with self._lock:
            self._waiting |= found
            if self._thread is None:
                self._thread = threading.Thread(target=self._work, name="offsets", daemon=True)
                self._thread.start()
            self._lock.notify_all()

    def close(self) -> None:
        """Show what is waiting, if that is quick, and end."""
        with self._lock:
            self._ended = True
            self._lock.notify_all()
        if self._thread is not None:
            self._thread.join(_CLOSE_S)

    def _work(self) -> None:
        client: Any = None
        while (taken := self._next()) is not None:
            refused, error = taken, None
            try:
                client = client or self._connect(self._config)
                places = [TopicPartition(t, p, offset) for (t, p), offset in taken.items()]
                answers = client.commit(offsets=places, asynchronous=False)
                refused = {(one.topic, one.partition): one.offset for one in answers if one.error}
                error = next((one.error for one in answers if one.error), None)
            except KafkaException as failure:
                error = failure
            if error is not None:
                _LOG.warning(
                    "offsets could not be shown as the group's; the stream goes on",
                    extra={"event": "offsets_group", "group": self._group, "error": str(error)},
                )
                if not self._put_back(refused):
                    break
        if client is not None:
            client.close()

    def _next(self) -> dict[tuple[str, int], int] | None:
        with self._lock:
            self._lock.wait_for(lambda: self._waiting or self._ended)
            taken, self._waiting = self._waiting, {}
            return taken or None

    def _put_back(self, taken: dict[tuple[str, int], int]) -> bool:
        """Keep what failed for another try, newer offsets first; False = there is none."""
        with self._lock:
            self._waiting = {**taken, **self._waiting}
            return not self._lock.wait_for(lambda: self._ended, timeout=_AGAIN_S)
