# SPDX-License-Identifier: Apache-2.0
"""Contradictions that the settings alone show. Others: `ingest.daemon.configuration`."""

from collections.abc import Mapping

from ingest.config.compaction_mode import check_compaction
from ingest.config.settings import Settings
from ingest.config.source_settings import KafkaSourceSettings, selects_topic
from storage.errors import InvalidOptionError, InvalidRequestError
from storage.options.options import TableOptions

__all__ = ["CHECKS"]


def check_tables(settings: Settings) -> None:
    """Refuse malformed table options now rather than when the first table is made."""
    common = settings.sink.table_properties
    _check_options("sink.table.properties", common)
    for number, rule in enumerate(settings.tables):
        where = f"tables[{number}].table.properties"
        _check_options(where, {**common, **rule.table_properties})


def _check_options(where: str, properties: Mapping[str, str]) -> None:
    try:
        TableOptions.from_strings(properties)
    except InvalidRequestError as error:
        option = error.context.get("option")
        key = f"{where}.{option}" if option else where
        error.context = {"key": key, **error.context}
        raise


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


CHECKS = (check_tables, check_dead_letters, check_compaction)
"""Each raises `InvalidOptionError`."""
