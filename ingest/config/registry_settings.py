# SPDX-License-Identifier: Apache-2.0
"""Settings of the Avro formats: the schema registry, and the framing of values."""

import dataclasses
import urllib.parse
from collections.abc import Container, Mapping
from typing import Any

from ingest.config.choices import AVRO_FORMATS
from ingest.config.setting import Section, build, declared, hide, section, setting
from ingest.config.setting_kinds import choice, duration, text, text_list
from storage.errors import InvalidOptionError

_REGISTRY = "source.schema.registry"


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True, repr=False)
class SchemaRegistrySettings(Section):
    """A registry with Confluent's API (Karapace, Redpanda; Apicurio under `/apis/ccompat`).

    User and password of an address become `username` and `password`; empty strings mean none.

    Raises:
        InvalidOptionError: values contradict each other, or an address is invalid.
    """

    urls: tuple[str, ...] = setting("source.schema.registry.url", text_list)
    """Addresses of a schema registry with Confluent's API; with several equivalent servers the
    first that answers is used. Required for the Avro formats, refused for others. For Apicurio the
    address ends with `/apis/ccompat/v7`."""

    username: str = ""
    password: str = setting("source.schema.registry.basic.auth", text, unset="", secret=hide)
    """`user:password` for the registry. Take it from `${file:/path}`."""

    token: str = setting("source.schema.registry.bearer.token", text, unset="", secret=hide)
    """Token for the registry, instead of `basic.auth`. Take it from `${file:/path}`."""

    ca_file: str = setting("source.schema.registry.ssl.ca.location", text, unset="")
    """PEM file with the CA certificates for the registry; default: those of the system. Every
    process that decodes reads these files, so on a cluster they must exist on every machine."""

    certificate_file: str = setting(
        "source.schema.registry.ssl.certificate.location", text, unset=""
    )
    """PEM file of the client certificate."""

    key_file: str = setting("source.schema.registry.ssl.key.location", text, unset="")
    """PEM file of the private key; default: the file of the certificate contains it."""

    key_password: str = setting(
        "source.schema.registry.ssl.key.password", text, unset="", secret=hide
    )
    """Password of the private key. Take it from `${file:/path}`."""

    timeout_s: float = setting("source.schema.registry.timeout", duration, unset=10.0)
    """Timeout of one request to the registry. Default: `10s`."""

    retry_for_s: float = setting("source.schema.registry.retry.for", duration, unset=60.0)
    """How long a registry that does not answer is retried before the batch fails and the query
    restarts; nothing is lost meanwhile. Default: `60s`."""

    def __post_init__(self) -> None:
        if not self.urls:
            raise InvalidOptionError("a schema registry needs an address")
        for url in self.urls:
            self._check_url(url)
        if self.token and self.username:
            raise InvalidOptionError(
                "a schema registry needs either a token or a user, not both",
                hint="set one of them and leave the other empty",
            )
        if self.key_file and not self.certificate_file:
            raise InvalidOptionError("a client key needs its certificate", key_file=self.key_file)
        if self.timeout_s <= 0 or self.retry_for_s < 0:
            raise InvalidOptionError("a timeout must be positive", timeout_s=self.timeout_s)

    def _check_url(self, url: str) -> None:
        """Check an address, and move its user and password to the secret attributes."""
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
                hint="it must begin with http:// or https:// and contain a host",
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
        object.__setattr__(
            self, "urls", tuple(bare if address == url else address for address in self.urls)
        )


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True, repr=False)
class AvroSettings(Section):
    """Settings of the Avro formats."""

    registry: SchemaRegistrySettings = section(SchemaRegistrySettings)
    id_bytes: int = setting("source.avro.schema.id.bytes", choice("4", "8"), unset=4)
    """Bytes of the schema id before an Avro value: 4 in Confluent's format (default), 8 in
    Apicurio's. Ids in headers are recognised without this setting."""


def avro_settings(values: Mapping[str, Any], given_keys: Container[str]) -> AvroSettings | None:
    """Build the settings of the Avro formats; None for formats without schema registry.

    Args:
        values: typed values of all settings by key.
        given_keys: keys of settings that are not defaults.

    Raises:
        InvalidOptionError: the registry is missing, not applicable, or its settings contradict.
    """
    name = values["source.format"]
    if name not in AVRO_FORMATS:
        _refuse_foreign(name, given_keys)
        return None
    if values["source.type"] != "kafka":
        raise InvalidOptionError(
            "Avro events are supported from Kafka only",
            detail="lines of files are text",
            hint="set `source.type: kafka`, or archive the events as JSON",
            key="source.format",
        )
    if not values[f"{_REGISTRY}.url"]:
        raise InvalidOptionError(
            "Avro events need a schema registry",
            hint=f"set `{_REGISTRY}.url`",
            key=f"{_REGISTRY}.url",
            format=name,
        )
    username, password = _user(values[f"{_REGISTRY}.basic.auth"])
    registry = build(SchemaRegistrySettings, values, username=username, password=password)
    return build(
        AvroSettings,
        values,
        registry=registry,
        id_bytes=int(values["source.avro.schema.id.bytes"]),
    )


def _refuse_foreign(name: str, given_keys: Container[str]) -> None:
    for row in declared(AvroSettings):
        if row.key in given_keys:
            raise InvalidOptionError(
                f"this setting does not apply to the format {name}",
                hint=f"remove it, or set `source.format` to {_alternatives(AVRO_FORMATS)}",
                key=row.key,
            )


def _alternatives(words: tuple[str, ...]) -> str:
    return " or ".join(f"`{word}`" for word in words)


def _user(pair: str) -> tuple[str, str]:
    if not pair:
        return "", ""
    user, colon, password = pair.partition(":")
    if not user or not colon:
        raise InvalidOptionError(
            "invalid value of a setting",
            detail="expected `user:password`",
            key=f"{_REGISTRY}.basic.auth",
        )
    return user, password
