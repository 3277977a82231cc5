# SPDX-License-Identifier: Apache-2.0
"""The driver's own look at the source, for lag metrics: Spark's source runner shares no memory."""

from collections.abc import Mapping
from types import TracebackType

from ingest.config.source_settings import KafkaSourceSettings, SourceSettings
from ingest.source.files import FileSource
from ingest.source.kafka import KafkaSource
from storage.clock import Clock, SystemClock

__all__ = ["LagProbe"]

Place = tuple[str, int]


class LagProbe:
    """Asks the source for its ends; a context manager that owns its client.

    Args:
        settings: the source.
        clock: for caches.
    """

    def __init__(self, settings: SourceSettings, clock: Clock | None = None) -> None:
        self._source: KafkaSource | FileSource
        if isinstance(settings, KafkaSourceSettings):
            self._source = KafkaSource(settings, clock or SystemClock())
        else:
            self._source = FileSource(settings, clock or SystemClock())

    def __enter__(self) -> "LagProbe":
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()

    def poll(self, committed: Mapping[Place, int] | None = None) -> dict[Place, tuple[int, int]]:
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

    def silent(self) -> frozenset[Place]:
        """Partitions that no leader answered for at the last poll."""
        if isinstance(self._source, KafkaSource):
            return frozenset((topic, int(key)) for topic, key in self._source.silent)
        return frozenset()

    def close(self) -> None:
        """Release the client."""
        self._source.close()
