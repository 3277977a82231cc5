# SPDX-License-Identifier: Apache-2.0
"""The address of a source database: references filled in, shown without secrets.

`${NAME}`, `${NAME:-default}` and `${file:/path}` are as in a configuration. What they stand for is
quoted for its place in the URL, so a password may hold any character; a reference that is the whole
URL is taken as it is.
"""

import dataclasses
import re
import urllib.parse
from collections.abc import Mapping

from ingest.config.settings_sources import interpolate

_REFERENCE = re.compile(r"\$\$\{|\$\{[^}]*\}")
_PARTS = re.compile(r"^([A-Za-z][\w+.-]*)://(?:([^?]*)@)?([^?]*)(?:\?(.*))?$", re.DOTALL)
_SECRET = re.compile("pass|secret|token|key", re.IGNORECASE)
_REDACTED = "***"


@dataclasses.dataclass(frozen=True, slots=True)
class SourceUrl:
    """An address.

    Attributes:
        text: complete, secrets included.
        label: driver, user, host and database.
        secrets: texts that no message may hold.
    """

    text: str = dataclasses.field(repr=False)
    label: str
    secrets: tuple[str, ...] = dataclasses.field(repr=False)

    @staticmethod
    def of(text: str, environ: Mapping[str, str]) -> "SourceUrl":
        """Read an address.

        Raises:
            InvalidOptionError: a variable is not set, or a file cannot be read.
        """
        values: list[str] = []

        def resolve(match: re.Match[str]) -> str:
            value = str(interpolate(match.group(0), environ, "--source"))
            if match.group(0) == text:
                return value
            if not match.group(0).startswith("$${"):
                values.append(value)
            return urllib.parse.quote(value, safe="")

        url = _REFERENCE.sub(resolve, text)
        parts = _PARTS.match(url)
        if parts is None:
            return SourceUrl(url, _REDACTED, tuple(value for value in values if value))
        scheme, login, place, query = parts.groups()
        user, colon, password = (login or "").partition(":")
        secrets = [password, urllib.parse.unquote(password)] if colon else []
        secrets += [v for k, v in urllib.parse.parse_qsl(query or "") if _SECRET.search(k)]
        label = f"{scheme}://{user + '@' if user else ''}{place}"
        file_values = [
            value for value, ref in zip(values, _references(text), strict=False) if "file:" in ref
        ]
        for value in file_values:
            label = label.replace(urllib.parse.quote(value, safe=""), _REDACTED)
        return SourceUrl(url, label, tuple({value for value in (*secrets, *file_values) if value}))

    def cleared(self, message: str) -> str:
        """A message of the driver without secrets, on one line."""
        for secret in self.secrets:
            message = message.replace(secret, _REDACTED)
        message = message.replace(self.text, self.label)
        return " ".join(message.split())


def _references(text: str) -> list[str]:
    return [reference for reference in _REFERENCE.findall(text) if not reference.startswith("$${")]
