# SPDX-License-Identifier: Apache-2.0
"""Checks for contradictory settings. Checks that need more: `ingest.daemon.configuration`."""

from collections.abc import Mapping

from ingest.config.choices import DEBEZIUM_AVRO, DEBEZIUM_JSON
from ingest.config.compaction_mode import check_compaction
from ingest.config.settings import Settings
from ingest.config.source_settings import KafkaSourceSettings, selects_topic
from storage.errors import InvalidOptionError, InvalidRequestError
from storage.options.options import TableOptions

__all__ = ["CHECKS"]

_SNAPSHOT_FORMATS = (DEBEZIUM_JSON, DEBEZIUM_AVRO)


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


def check_sweeps(settings: Settings) -> None:
    """Refuse `sweep` for formats without begin and end markers of snapshots.

    Raises:
        InvalidOptionError: the format has none.
    """
    if not settings.sweeps or settings.format in _SNAPSHOT_FORMATS:
        return
    keys = [
        f"tables[{number}].on.resnapshot"
        for number, rule in enumerate(settings.tables)
        if rule.on_resnapshot == "sweep"
    ]
    whole = settings.events.on_resnapshot == "sweep"
    raise InvalidOptionError(
        "events of this format do not mark the begin and the end of a snapshot",
        hint=f"set it to `upsert`; `sweep` is supported with {' and '.join(_SNAPSHOT_FORMATS)}",
        key="source.on.resnapshot" if whole else keys[0],
        format=settings.format,
    )


CHECKS = (check_tables, check_dead_letters, check_compaction, check_sweeps)
"""Each raises `InvalidOptionError`."""
