# SPDX-License-Identifier: Apache-2.0
"""Rows of the settings table about people: control over HTTP, and what they are told of."""

import urllib.parse
from typing import Any

from ingest.config.setting_kinds import Kind, Setting, integer, text_list, text_map

__all__ = ["ALERT_EVENTS", "OPERATING_SETTINGS", "redacted_url"]

ALERT_EVENTS = (
    "table_parked",
    "table_resumed",
    "schema_applied",
    "schema_refused",
    "quarantine",
    "stream_failed",
    "stream_fatal",
    "stream_paused",
    "stream_resumed",
)
"""What a webhook can be told; status-api.md says when."""

_LEAST_TOKEN = 16


def redacted_url(url: str) -> str:
    """Scheme and host of an address: what follows is the secret of many webhooks."""
    parts = urllib.parse.urlsplit(url)
    host = parts.hostname or ""
    port = f":{parts.port}" if parts.port else ""
    return f"{parts.scheme}://{host}{port}/…"


def _parse_token(value: Any) -> str:
    given = value.strip() if isinstance(value, str) else str(value)
    if len(given) < _LEAST_TOKEN or not given.isascii() or any(each.isspace() for each in given):
        raise ValueError(f"at least {_LEAST_TOKEN} ASCII characters without blanks")
    return given


def _parse_urls(value: Any) -> tuple[str, ...]:
    found: tuple[str, ...] = text_list.parse(value)
    for url in found:
        try:
            parts = urllib.parse.urlsplit(url)
            fine = parts.scheme in ("http", "https") and bool(parts.hostname) and parts.port != 0
        except ValueError:
            fine = False
        if not fine:
            raise ValueError("addresses that begin with `http://` or `https://`")
    return found


def _parse_events(value: Any) -> tuple[str, ...]:
    found: tuple[str, ...] = text_list.parse(value)
    if unknown := [name for name in found if name not in ALERT_EVENTS]:
        words = ", ".join(f"`{word}`" for word in ALERT_EVENTS)
        raise ValueError(f"some of {words}, not `{unknown[0]}`")
    return found


OPERATING_SETTINGS: tuple[Setting, ...] = (
    Setting(
        key="control.token",
        kind=Kind("text", _parse_token),
        doc="What callers of `POST /api/pause`, `resume`, `reload`, `compact` and `drain` must "
        "send as `Authorization: Bearer …`; at least 16 characters. Take it from `${file:/path}`. "
        "Default: there is no control over HTTP.",
    ),
    Setting(
        key="alerts.webhook.urls",
        kind=Kind("list", _parse_urls),
        doc="Addresses that get a POST with JSON for every event; `text` in it is what Slack "
        "shows. Best effort: an event may be lost or come twice. Take secret ones from "
        "`${file:/path}`.",
    ),
    Setting(
        key="alerts.webhook.headers",
        kind=text_map,
        doc="Headers of these calls, such as `Authorization`; their values are never shown.",
    ),
    Setting(
        key="alerts.events",
        kind=Kind("list", _parse_events),
        doc="Events that are sent: "
        + ", ".join(f"`{word}`" for word in ALERT_EVENTS)
        + ". Default: all.",
    ),
    Setting(
        key="alerts.quarantine.records",
        kind=integer(1),
        default=1,
        unit="records",
        doc="Records of a table in quarantine within ten minutes from which on `quarantine` is "
        "sent; at most once in ten minutes for each table.",
    ),
)
