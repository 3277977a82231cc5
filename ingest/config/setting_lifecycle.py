# SPDX-License-Identifier: Apache-2.0
"""Settings of the daemon's life: ownership, stopping, waiting for what is away, its log."""

import dataclasses
from collections.abc import Mapping
from typing import Any

from ingest.config.setting_kinds import (
    Kind,
    Setting,
    duration,
    duration_from,
    integer,
    text,
    text_map,
)
from ingest.log_sampling import DEFAULT_REPEATS

__all__ = ["LIFE_SETTINGS", "LOG_SETTINGS", "LifeSettings"]

_LEVELS = ("debug", "info", "warning", "error")


def _parse_levels(value: object) -> dict[str, str]:
    levels: dict[str, str] = {name: text.lower() for name, text in text_map.parse(value).items()}
    wrong = sorted(name for name, text in levels.items() if text not in _LEVELS)
    if wrong:
        raise ValueError(
            f"`debug`, `info`, `warning` or `error` for each logger (see `{wrong[0]}`)"
        )
    return levels


_LOG_LEVELS = Kind("map", _parse_levels, mapping=True)

LIFE_SETTINGS: tuple[Setting, ...] = (
    Setting(
        key="pipeline.owner.ttl",
        kind=duration_from(3, "3s"),
        default="30s",
        doc="How long a daemon may show no life before another of the same stream takes over; one "
        "that was thought dead cannot commit any more. A daemon that ended, or of whose end this "
        "machine knows, is followed at once.",
    ),
    Setting(
        key="pipeline.stop.timeout",
        kind=duration,
        default="270s",
        doc="How long the running batch may take after SIGTERM. Then it is given up, safely, and "
        "the exit code is 75. Keep it 30 s below the platform's grace period.",
    ),
    Setting(
        key="pipeline.outage.timeout",
        kind=duration,
        doc="How long the source, the registry or the warehouse may be away before the process "
        "ends with exit code 69. Default: it waits for as long as it takes, not ready meanwhile: "
        "a restart brings no broker back.",
    ),
    Setting(
        key="pipeline.batch.timeout",
        kind=duration_from(10, "10s"),
        doc="How long a batch may take before the process logs what every thread waits for, gives "
        "the batch up, safely, and ends with exit code 75. Default: as long as it takes.",
    ),
    Setting(
        key="source.offsets.group",
        kind=text,
        doc="A Kafka consumer group under which committed offsets are also written after every "
        "batch, for tools that show lag of groups. Nothing is read from it, a batch never waits "
        "for it, and it must have no members. Needs the right to READ the group.",
    ),
)

LOG_SETTINGS: tuple[Setting, ...] = (
    Setting(
        key="log.levels",
        kind=_LOG_LEVELS,
        doc="Levels of single loggers and what is below them, such as `{ingest.source: debug}`; "
        "names are those of the log's lines. Of Spark's own, warnings and errors are written; they "
        "can be quieter than that, as in `{org.apache.spark.scheduler: error}`.",
    ),
    Setting(
        key="log.repeats",
        kind=integer(0),
        default=DEFAULT_REPEATS,
        unit="lines a minute",
        doc="How often the same warning is written in a minute; the others are counted and told "
        "after it. 0: all of them.",
    ),
)


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class LifeSettings:
    """Durations in seconds; None = no limit."""

    owner_ttl_s: float = 30.0
    stop_timeout_s: float = 270.0
    outage_timeout_s: float | None = None
    batch_timeout_s: float | None = None
    offsets_group: str | None = None
    log_levels: Mapping[str, str] = dataclasses.field(default_factory=dict)
    log_repeats: int = DEFAULT_REPEATS

    @staticmethod
    def of(values: Mapping[str, Any]) -> "LifeSettings":
        """From typed values by key."""
        return LifeSettings(
            owner_ttl_s=values["pipeline.owner.ttl"],
            stop_timeout_s=values["pipeline.stop.timeout"],
            outage_timeout_s=values["pipeline.outage.timeout"],
            batch_timeout_s=values["pipeline.batch.timeout"],
            offsets_group=values["source.offsets.group"],
            log_levels=values["log.levels"] or {},
            log_repeats=values["log.repeats"],
        )
