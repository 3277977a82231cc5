# SPDX-License-Identifier: Apache-2.0
"""How to reach a schema registry: frozen values whose `repr` shows no secret."""

import dataclasses
import urllib.parse
from collections.abc import Mapping
from typing import Any

from storage.errors import InvalidOptionError

__all__ = ["SchemaRegistrySettings", "redacted_registry"]

_SECRETS = frozenset({"password", "token", "key_password"})
_HIDDEN = "********"


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True, repr=False)
class SchemaRegistrySettings:
    """A registry that speaks Confluent's API (Karapace, Redpanda; Apicurio under `/apis/ccompat`).

    Attributes:
        urls: of equal servers, tried in order; `http://` or `https://`, a path is kept. A user and
            password in the address are taken as `username` and `password`.
        username: for basic authentication; empty = none.
        password: for basic authentication.
        token: bearer token, instead of `username`.
        ca_file: PEM file of the authorities to trust; empty = the system's.
        certificate_file: PEM file of the client's certificate; empty = none is shown.
        key_file: PEM file of its key; empty = it is in `certificate_file`.
        key_password: of the key.
        timeout_s: for one answer [s].
        retry_for_s: how long a registry that does not answer is asked again [s].

    Raises:
        InvalidOptionError: values that contradict each other, or an address that is none.
    """

    urls: tuple[str, ...]
    username: str = ""
    password: str = ""
    token: str = ""
    ca_file: str = ""
    certificate_file: str = ""
    key_file: str = ""
    key_password: str = ""
    timeout_s: float = 10.0
    retry_for_s: float = 60.0

    def __post_init__(self) -> None:
        if not self.urls:
            raise InvalidOptionError("a schema registry needs an address")
        for url in self.urls:
            self._take(url)
        if self.token and self.username:
            raise InvalidOptionError(
                "a schema registry takes either a token or a user",
                hint="set one of them and leave the other empty",
            )
        if self.key_file and not self.certificate_file:
            raise InvalidOptionError("a client key needs its certificate", key_file=self.key_file)
        if self.timeout_s <= 0 or self.retry_for_s < 0:
            raise InvalidOptionError("a timeout must be positive", timeout_s=self.timeout_s)

    def _take(self, url: str) -> None:
        """Check an address, and move a user in it to where secrets belong."""
        try:
            parts = urllib.parse.urlsplit(url)
            valid = parts.scheme in ("http", "https") and bool(parts.hostname)
            _ = parts.port
        except ValueError:
            valid, parts = False, urllib.parse.urlsplit("")
        if not valid or parts.query or parts.fragment:
            raise InvalidOptionError(
                "not the address of a schema registry",
                url=url.rpartition("@")[2],
                hint="it begins with http:// or https:// and names a host",
            )
        if parts.username is None:
            return
        user = urllib.parse.unquote(parts.username)
        password = urllib.parse.unquote(parts.password or "")
        if (self.username or user, self.password or password) != (user, password):
            raise InvalidOptionError("the addresses of a schema registry name different users")
        bare = parts._replace(netloc=parts.netloc.rpartition("@")[2]).geturl()
        object.__setattr__(self, "username", user)
        object.__setattr__(self, "password", password)
        object.__setattr__(self, "urls", tuple(bare if one == url else one for one in self.urls))

    def __repr__(self) -> str:
        shown = redacted_registry(dataclasses.asdict(self)).items()
        return f"{type(self).__name__}({', '.join(f'{name}={value!r}' for name, value in shown)})"


def redacted_registry(values: Mapping[str, Any]) -> dict[str, Any]:
    """Attributes of such settings, fit for a log: given secrets are starred."""
    return {
        name: _HIDDEN if name in _SECRETS and value else value for name, value in values.items()
    }
