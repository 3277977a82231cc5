# SPDX-License-Identifier: Apache-2.0
"""Settings of the daemon's life: ownership, stopping, waiting for systems that are away."""

import dataclasses
from collections.abc import Mapping
from typing import Any

from ingest.configuration.setting_kinds import Setting, duration, duration_from

__all__ = ["LIFE_SETTINGS", "LifeSettings"]

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
)


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class LifeSettings:
    """Durations in seconds; None = no limit."""

    owner_ttl_s: float = 30.0
    stop_timeout_s: float = 270.0
    outage_timeout_s: float | None = None
    batch_timeout_s: float | None = None

    @staticmethod
    def of(values: Mapping[str, Any]) -> "LifeSettings":
        """From typed values by key."""
        return LifeSettings(
            owner_ttl_s=values["pipeline.owner.ttl"],
            stop_timeout_s=values["pipeline.stop.timeout"],
            outage_timeout_s=values["pipeline.outage.timeout"],
            batch_timeout_s=values["pipeline.batch.timeout"],
        )
