# SPDX-License-Identifier: Apache-2.0
"""Compaction mode of a table: effect of `tables[].compaction` on tables and writers.

`inline` = this stream compacts; `dedicated` = `lakeward compact` or another job does; `off` = no
process does. With the last two the stream only writes. A table that the stream creates gets the
option `write-only`, which all writers honour; for an existing table the stream uses a dynamic
option. Without a rule the option of the table applies.
"""

from collections.abc import Mapping

from ingest.config.settings import Settings
from storage.errors import InvalidOptionError
from storage.options.options import option_value

WRITE_ONLY = "write-only"
_INLINE = "inline"


def created_options(settings: Settings, table: str) -> dict[str, str]:
    """Return the options of a new table."""
    word = settings.rule_value(table, lambda rule: rule.compaction)
    return {} if word is None else {WRITE_ONLY: _text(word)}


def passing_options(
    settings: Settings, table: str, stored: Mapping[str, str]
) -> dict[str, str | None]:
    """Return the dynamic options that the stream uses for an existing table.

    Args:
        settings: settings of the pipeline.
        table: `database.table`.
        stored: stored options of the table.
    """
    options = created_options(settings, table)
    return {
        key: text
        for key, text in options.items()
        if option_value(stored, key) is not (text == "true")
    }


def check_compaction(settings: Settings) -> None:
    """Refuse contradictory rules.

    Raises:
        InvalidOptionError: `compaction` and the option `write-only` contradict each other.
    """
    for number, rule in enumerate(settings.tables):
        if rule.compaction is None:
            continue
        properties = {**settings.sink.table_properties, **rule.table_properties}
        value = properties.get(WRITE_ONLY)
        if value is not None and option_value(properties, WRITE_ONLY) is not (
            _text(rule.compaction) == "true"
        ):
            scope = f"tables[{number}]" if WRITE_ONLY in rule.table_properties else "sink"
            raise InvalidOptionError(
                f"`compaction: {rule.compaction}` contradicts the table property "
                f"`{WRITE_ONLY}: {value}`",
                hint=f"remove `{WRITE_ONLY}` from `{scope}.table.properties`: `compaction` sets it",
                key=f"tables[{number}].compaction",
                value=rule.compaction,
            )


def _text(word: str) -> str:
    return "false" if word == _INLINE else "true"
