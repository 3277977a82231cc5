# SPDX-License-Identifier: Apache-2.0
"""Whether what the settings say of sweeps (`sweeps`) can be done."""

from ingest.config.setting_values import Settings
from ingest.decode.dialects.formats import DEBEZIUM_AVRO, DEBEZIUM_JSON
from storage.errors import InvalidOptionError

__all__ = ["check_sweeps"]

_FORMATS = (DEBEZIUM_JSON, DEBEZIUM_AVRO)


def check_sweeps(settings: Settings) -> None:
    """Refuse sweeps where events do not tell where a snapshot begins and ends.

    Raises:
        InvalidOptionError: they do not.
    """
    if not settings.sweeps or settings.format in _FORMATS:
        return
    places = [
        f"tables[{number}].on.resnapshot"
        for number, rule in enumerate(settings.tables)
        if rule.on_resnapshot == "sweep"
    ]
    whole = settings.events.on_resnapshot == "sweep"
    raise InvalidOptionError(
        "events of this format do not tell where a snapshot begins and ends",
        hint=f"set it to `upsert`; `sweep` goes with {' and '.join(_FORMATS)}",
        key="source.on.resnapshot" if whole else places[0],
        format=settings.format,
    )
