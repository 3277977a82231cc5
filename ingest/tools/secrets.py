# SPDX-License-Identifier: Apache-2.0
"""The secrets that some settings hold, so that they can be kept out of texts made elsewhere."""

import json
import re
from collections.abc import Iterator
from typing import Any
from urllib.parse import quote, unquote

import msgspec

from ingest.config.setting import HIDDEN
from ingest.config.settings import Settings

__all__ = ["scrubbed", "secret_texts"]

_LEAST = 4
"""Shorter texts would star out half a log, and protect nothing."""

_USER = re.compile(r"://([^/@\s]+)@")
_QUOTED = re.compile(r"'([^']+)'")


def secret_texts(settings: Settings) -> frozenset[str]:
    """Every text of the settings that is not shown, as it is and as it may stand elsewhere.

    Found by comparing the values with what `Settings.redacted` leaves of them, so a new secret
    setting needs nothing here. Of a URL with credentials the credentials, of a mask what is in its
    quotes.
    """
    whole = msgspec.to_builtins(settings)
    found = {text for hidden in _differing(whole, settings.redacted()) for text in _forms(hidden)}
    return frozenset(text for text in found if len(text) >= _LEAST)


def scrubbed(text: str, secrets: frozenset[str]) -> str:
    """The text without them, longest first, since one may be part of another."""
    for secret in sorted(secrets, key=len, reverse=True):
        text = text.replace(secret, HIDDEN)
    return _USER.sub(f"://{HIDDEN}@", text)


def _differing(value: Any, shown: Any) -> Iterator[str]:
    if isinstance(value, dict):
        for key, each in value.items():
            yield from _differing(each, shown.get(key) if isinstance(shown, dict) else None)
    elif isinstance(value, (list, tuple)):
        others = shown if isinstance(shown, list) and len(shown) == len(value) else []
        for number, each in enumerate(value):
            yield from _differing(each, others[number] if others else None)
    elif isinstance(value, str) and value != shown:
        yield value


def _forms(hidden: str) -> Iterator[str]:
    """A hidden value, or the secret parts of it, each as it may stand in a URL or in JSON."""
    texts = _QUOTED.findall(hidden) or _USER.findall(hidden) or [hidden, *hidden.splitlines()]
    for text in texts:
        pair = text.split(":") if text.count(":") == 1 and "/" not in text else ()  # user:password
        for part in (text.strip(), *pair):
            yield from {part, unquote(part), quote(part, safe=""), json.dumps(part)[1:-1]}
