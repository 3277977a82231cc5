# SPDX-License-Identifier: Apache-2.0
"""Settings that only the driver needs: control over HTTP and webhooks. They hold secrets."""

import dataclasses
from collections.abc import Mapping
from typing import Any

from ingest.config.setting_table_operating import ALERT_EVENTS, redacted_url

__all__ = [
    "NO_ALERTS",
    "NO_CONTROL",
    "AlertSettings",
    "ControlSettings",
    "operating_settings",
    "redacted_operating",
    "shown_operating",
]

_HIDDEN = "********"


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class ControlSettings:
    """Attributes are the `control.*` settings."""

    token: str | None = dataclasses.field(default=None, repr=False)


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class AlertSettings:
    """Attributes are the `alerts.*` settings; `events` are those to send."""

    urls: tuple[str, ...] = dataclasses.field(default=(), repr=False)
    headers: Mapping[str, str] = dataclasses.field(default_factory=dict, repr=False)
    events: tuple[str, ...] = ALERT_EVENTS
    quarantine_records: int = 1


NO_CONTROL = ControlSettings()
NO_ALERTS = AlertSettings()


def operating_settings(values: Mapping[str, Any]) -> dict[str, Any]:
    """Members of `Settings` from parsed values by key."""
    return {
        "control": ControlSettings(token=values["control.token"]),
        "alerts": AlertSettings(
            urls=values["alerts.webhook.urls"] or (),
            headers=values["alerts.webhook.headers"] or {},
            events=values["alerts.events"] or ALERT_EVENTS,
            quarantine_records=values["alerts.quarantine.records"],
        ),
    }


def redacted_operating(control: Mapping[str, Any], alerts: Mapping[str, Any]) -> dict[str, Any]:
    """Plain values without secrets."""
    return {
        "control": {"token": None if control["token"] is None else _HIDDEN},
        "alerts": {
            **alerts,
            "urls": [redacted_url(url) for url in alerts["urls"]],
            "headers": dict.fromkeys(alerts["headers"], _HIDDEN),
        },
    }


def shown_operating(settings: ControlSettings, alerts: AlertSettings) -> dict[str, str]:
    """What may be shown of given values, by key; others are shown like any setting."""
    return {
        "control.token": "" if settings.token is None else _HIDDEN,
        "alerts.webhook.urls": ", ".join(redacted_url(url) for url in alerts.urls),
        "alerts.webhook.headers": ", ".join(f"{name}={_HIDDEN}" for name in alerts.headers),
    }
