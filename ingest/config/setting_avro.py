# SPDX-License-Identifier: Apache-2.0
"""What the Avro formats need to know, from settings; and which settings belong to them alone."""

import dataclasses
from collections.abc import Mapping
from typing import Any

from ingest.config.registry_settings import SchemaRegistrySettings, redacted_registry
from ingest.config.setting_table_avro import AVRO_SETTINGS
from ingest.decode.dialects.formats import AVRO_FORMATS
from storage.errors import InvalidOptionError

__all__ = ["AvroSettings", "avro_from_json", "avro_settings", "redacted_avro"]

_REGISTRY = "source.schema.registry"


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class AvroSettings:
    """Attributes are the `source.schema.registry.*` and `source.avro.*` settings."""

    registry: SchemaRegistrySettings
    id_bytes: int = 4


def avro_settings(values: Mapping[str, Any]) -> AvroSettings | None:
    """From parsed settings by key; None for formats without schema registry.

    Raises:
        InvalidOptionError: the registry is missing, not wanted, or described in contradictions.
    """
    name = values["source.format"]
    if name not in AVRO_FORMATS:
        _refuse_foreign(name, values)
        return None
    if values["source.type"] != "kafka":
        raise InvalidOptionError(
            "events in Avro come from Kafka only",
            detail="a file's line is text",
            hint="set `source.type: kafka`, or archive the events as JSON",
            key="source.format",
        )
    urls = values[f"{_REGISTRY}.url"]
    if not urls:
        raise InvalidOptionError(
            "events in Avro need a schema registry",
            hint=f"set `{_REGISTRY}.url`",
            key=f"{_REGISTRY}.url",
            format=name,
        )
    username, password = _user(values[f"{_REGISTRY}.basic.auth"])
    given = {
        "token": values[f"{_REGISTRY}.bearer.token"],
        "ca_file": values[f"{_REGISTRY}.ssl.ca.location"],
        "certificate_file": values[f"{_REGISTRY}.ssl.certificate.location"],
        "key_file": values[f"{_REGISTRY}.ssl.key.location"],
        "key_password": values[f"{_REGISTRY}.ssl.key.password"],
        "timeout_s": values[f"{_REGISTRY}.timeout"],
        "retry_for_s": values[f"{_REGISTRY}.retry.for"],
    }
    said = {key: value for key, value in given.items() if value is not None}
    registry = SchemaRegistrySettings(urls=urls, username=username, password=password, **said)
    return AvroSettings(registry=registry, id_bytes=int(values["source.avro.schema.id.bytes"] or 4))


def _refuse_foreign(name: str, values: Mapping[str, Any]) -> None:
    for row in AVRO_SETTINGS:
        if values[row.key] is not None:
            raise InvalidOptionError(
                f"this setting is not for the format {name}",
                hint=f"remove it, or set `source.format` to {_either(AVRO_FORMATS)}",
                key=row.key,
            )


def _either(words: tuple[str, ...]) -> str:
    return " or ".join(f"`{word}`" for word in words)


def _user(pair: str | None) -> tuple[str, str]:
    if pair is None:
        return "", ""
    user, colon, password = pair.partition(":")
    if not user or not colon:
        raise InvalidOptionError(
            "a setting has a value it cannot have",
            detail="wanted `user:password`",
            key=f"{_REGISTRY}.basic.auth",
        )
    return user, password


def avro_from_json(raw: Mapping[str, Any] | None) -> AvroSettings | None:
    """Inverse of `dataclasses.asdict`, with lists for tuples.

    Raises:
        TypeError, KeyError, InvalidOptionError: it was not made by this version.
    """
    if raw is None:
        return None
    registry = {**raw["registry"], "urls": tuple(raw["registry"]["urls"])}
    return AvroSettings(registry=SchemaRegistrySettings(**registry), id_bytes=raw["id_bytes"])


def redacted_avro(raw: Mapping[str, Any] | None) -> dict[str, Any] | None:
    """Plain values without secrets."""
    return None if raw is None else {**raw, "registry": redacted_registry(raw["registry"])}
