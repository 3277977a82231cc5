# SPDX-License-Identifier: Apache-2.0
"""Who compacts a table: what `tables[].compaction` means for tables and for this stream's writers.

`inline` = this stream; `dedicated` = `lakeward compact` or another job; `off` = nobody. The stream
does the same for the last two: it writes only. A table that it makes says so itself (`write-only`),
so that every other writer sees it; for a table that is there the stream goes by an option that is
not stored. What a rule does not say, the table's own option says.
"""

from collections.abc import Mapping

from ingest.config.settings import Settings
from storage.errors import InvalidOptionError
from storage.options.options import option_value

__all__ = ["WRITE_ONLY", "check_compaction", "created_options", "passing_options"]

WRITE_ONLY = "write-only"
_INLINE = "inline"


def created_options(settings: Settings, table: str) -> dict[str, str]:
    """Options of a new table."""
    word = settings.rule_value(table, lambda rule: rule.compaction)
    return {} if word is None else {WRITE_ONLY: _text(word)}


def passing_options(
    settings: Settings, table: str, stored: Mapping[str, str]
) -> dict[str, str | None]:
    """Options by which the stream goes for a table that is there, besides the stored ones.

    Args:
        settings: of the pipeline.
        table: `database.table`.
        stored: options of the table.
    """
    wanted = created_options(settings, table)
    return {
        key: text
        for key, text in wanted.items()
        if option_value(stored, key) is not (text == "true")
    }


def check_compaction(settings: Settings) -> None:
    """Refuse rules that say two things.

    Raises:
        InvalidOptionError: `compaction` and the option `write-only` contradict each other.
    """
    for number, rule in enumerate(settings.tables):
        if rule.compaction is None:
            continue
        properties = {**settings.sink.table_properties, **rule.table_properties}
        given = properties.get(WRITE_ONLY)
        if given is not None and option_value(properties, WRITE_ONLY) is not (
            _text(rule.compaction) == "true"
        ):
            where = f"tables[{number}]" if WRITE_ONLY in rule.table_properties else "sink"
            raise InvalidOptionError(
                f"`compaction: {rule.compaction}` contradicts the table property "
                f"`{WRITE_ONLY}: {given}`",
                hint=f"remove `{WRITE_ONLY}` from `{where}.table.properties`: `compaction` says it",
                key=f"tables[{number}].compaction",
                value=rule.compaction,
            )


def _text(word: str) -> str:
    return "false" if word == _INLINE else "true"
