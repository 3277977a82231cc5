# SPDX-License-Identifier: Apache-2.0
"""Checks for contradictory settings. Checks that need more: `ingest.daemon.configuration`."""

from collections.abc import Mapping

from ingest.config.compaction_mode import check_compaction
from ingest.config.settings import Settings
from ingest.config.source_settings import KafkaSourceSettings, selects_topic
from storage.errors import InvalidOptionError, InvalidRequestError
from storage.options.options import TableOptions

__all__ = ["CHECKS"]


def check_tables(settings: Settings) -> None:
    """Refuse malformed table options before the first table is created."""
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
    """Refuse a dead-letter topic that cannot be written, or that the source reads.

    Raises:
        InvalidOptionError: the source is not Kafka, or reads the topic.
    """
    topic, source = settings.bad_records.topic, settings.source
    if topic is None:
        return
    if not isinstance(source, KafkaSourceSettings):
        raise InvalidOptionError(
            "a dead-letter topic requires a Kafka source",
            hint="remove it: bad records are in the quarantine table anyway",
            key="bad.records.topic",
        )
    if selects_topic(source, topic):
        raise InvalidOptionError(
            "the source reads the dead-letter topic",
            hint="add it to `source.topics.exclude`, or choose another name",
            key="bad.records.topic",
            value=topic,
        )


CHECKS = (check_tables, check_dead_letters, check_compaction)
"""Each raises `InvalidOptionError`."""
