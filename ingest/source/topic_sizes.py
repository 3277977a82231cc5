# SPDX-License-Identifier: Apache-2.0
"""How many bytes of events topics hold now: an estimate, for choices made once.

Kafka tells offsets, not bytes: they are multiplied by the mean size of some records. Compacted
topics have fewer records than offsets, so theirs is an upper bound. Files are counted as they are
on disk.
"""

import dataclasses
from collections.abc import Collection

from ingest.config.source_settings import KafkaSourceSettings, SourceSettings
from ingest.source.file_listing import list_files
from ingest.source.kafka import KafkaSource
from ingest.source.kafka_sizes import RecordSizes
from storage.clock import SystemClock
from storage.errors import RetryableError

__all__ = ["topic_bytes"]


def topic_bytes(settings: SourceSettings, topics: Collection[str]) -> int:
    """Bytes of events in `topics` [bytes]; 0 of a topic that is not there.

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
