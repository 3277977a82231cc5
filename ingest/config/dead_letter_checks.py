# SPDX-License-Identifier: Apache-2.0
"""Whether `bad.records.topic` can be what it is set to."""

from ingest.config.setting_values import Settings
from ingest.config.source_settings import KafkaSourceSettings, selects_topic
from storage.errors import InvalidOptionError

__all__ = ["check_dead_letters"]


def check_dead_letters(settings: Settings) -> None:
    """Refuse a topic for bad records that cannot be written, or that would feed itself.

    Raises:
        InvalidOptionError: the source is no Kafka, or reads the topic.
    """
    topic, source = settings.bad_records.topic, settings.source
    if topic is None:
        return
    if not isinstance(source, KafkaSourceSettings):
        raise InvalidOptionError(
            "copies of bad records go to the source's brokers, and this source has none",
            hint="remove it: bad records are in the quarantine table anyway",
            key="bad.records.topic",
        )
    if selects_topic(source, topic):
        raise InvalidOptionError(
            "the topic for bad records is one that the source reads",
            hint="add it to `source.topics.exclude`, or choose another name",
            key="bad.records.topic",
            value=topic,
        )
