# SPDX-License-Identifier: Apache-2.0
"""What `source.ordering: source` cannot be combined with, as far as a configuration shows it.

Tables are checked again when they are made or found (`positions.ordered_tables`).
"""

from collections.abc import Iterator, Mapping

from ingest.config.setting_values import Settings
from ingest.source.position.ordered_tables import SOURCE, unordered
from storage.errors import InvalidOptionError

__all__ = ["check_ordering"]

_FORMATS = ("debezium-json", "debezium-avro", "debezium-flat")
_KEY = "source.ordering"


def check_ordering(settings: Settings) -> None:
    """Refuse what cannot be ordered.

    Raises:
        InvalidOptionError: names the key that contradicts.
    """
    if settings.events.ordering != SOURCE:
        return
    if settings.format not in _FORMATS:
        raise InvalidOptionError(
            f"records in format {settings.format} do not say where in the source a change stands",
            hint=f"set it to `kafka`, or use {', '.join(_FORMATS[:-1])} or {_FORMATS[-1]}",
            key=_KEY,
            value=SOURCE,
        )
    for key, properties in _properties(settings):
        reason = unordered(properties)
        if reason:
            raise InvalidOptionError(
                f"a table cannot be in the order of the source: {reason}",
                hint=f"change `{key}`, or set `{_KEY}: kafka`",
                key=_KEY,
                value=SOURCE,
            )


def _properties(settings: Settings) -> Iterator[tuple[str, Mapping[str, str]]]:
    common = settings.sink.table_properties
    yield "sink.table.properties", common
    for number, rule in enumerate(settings.tables):
        yield f"tables[{number}].table.properties", {**common, **rule.table_properties}
