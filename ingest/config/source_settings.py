# SPDX-License-Identifier: Apache-2.0
"""Settings of the sources as frozen values with a JSON round trip, and their selection of topics.

They are passed as JSON in a Spark option; `repr` never shows a secret.
"""

import dataclasses
import json
import re
import urllib.parse
from collections.abc import Container, Mapping
from typing import Any, Final

import msgspec

from ingest.config.choices import AVRO_FORMATS
from ingest.config.setting import (
    Section,
    boolean,
    build,
    choice,
    declared,
    duration,
    hide,
    moment,
    offset_map,
    redact_properties,
    section,
    setting,
    text,
    text_list,
    text_map,
)
from storage.errors import InvalidOptionError

LINE_FORMS: Final = ("auto", "value", "archived", "ask")

STARTUP_MODES: Final = ("earliest", "latest", "timestamp", "specific-offsets")

# About 4 s of decoding on two cores at the rates of PEERS.md §3.1: long enough to hide the fixed
# 0.35 s of a batch, short enough for a fresh table.
DEFAULT_MAX_RECORDS: Final = 1_000_000
DEFAULT_MAX_BYTES: Final = 1 << 30

# Exact offset ranges depend on these; changing one would lose or repeat records.
_FIXED_PROPERTIES: Final = {
    "auto.offset.reset": "Lakeward decides where a partition starts: use source.scan.startup.mode",
    "enable.auto.commit": "offsets live in Spark's checkpoint and in the tables",
    "enable.auto.offset.store": "offsets live in Spark's checkpoint and in the tables",
    "enable.partition.eof": "Lakeward uses it to detect the end of a range",
    "bootstrap.servers": "use source.bootstrap.servers",
    "metadata.broker.list": "use source.bootstrap.servers",
    "group.instance.id": "Lakeward joins no consumer group",
}

_KAFKA_DISCOVERY_S: Final = 300.0


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True, repr=False)
class _TopicSettings(Section):
    """Common settings of sources; attributes without a setting are derived."""

    topics: tuple[str, ...] = setting("source.topics", text_list)
    """Exact topic names. For `kafka` set these or `source.topics.pattern`."""

    topics_pattern: str = setting("source.topics.pattern", text, unset="")
    """Regular expression that must match the full topic name; new topics are discovered at run
    time."""

    topics_exclude: tuple[str, ...] = setting("source.topics.exclude", text_list)
    """Regular expressions; a topic is excluded if one matches its full name."""

    discovery_interval_s: float = setting(
        "source.topic.discovery.interval", duration, unset=_KAFKA_DISCOVERY_S
    )
    """Interval of the discovery of new topics, partitions or files. Default: `5m` for `kafka`, `1s`
    for `files`."""

    startup_mode: str = setting(
        "source.scan.startup.mode",
        choice("earliest", "latest", "timestamp", "specific-offsets"),
        default="earliest",
    )
    """Where a stream without a checkpoint and without tables starts. Later starts resume from the
    committed offsets."""

    startup_timestamp_ms: int | None = setting(
        "source.scan.startup.timestamp", moment, unit="epoch ms"
    )
    """For `timestamp`: start at the first record that is not older."""

    fail_on_data_loss: bool = setting("source.fail.on.data.loss", boolean, default=True)
    """Stop if the source no longer has records that the stream still needs. `false`: skip them and
    count them in `lakeward_source_skipped_offsets_total`."""

    max_records: int = DEFAULT_MAX_RECORDS
    max_bytes: int = DEFAULT_MAX_BYTES
    parallelism: int = 4

    def to_json(self) -> str:
        """Encode as JSON, secrets included; see `source_settings_from_json`."""
        return msgspec.json.encode(self, order="sorted").decode()

    def _check_common(self) -> None:
        if self.startup_mode not in STARTUP_MODES:
            raise InvalidOptionError(
                "unknown startup mode",
                startup_mode=self.startup_mode,
                hint="use one of " + ", ".join(f"`{mode}`" for mode in STARTUP_MODES),
            )
        if (self.startup_mode == "timestamp") != (self.startup_timestamp_ms is not None):
            raise InvalidOptionError(
                "startup timestamp and startup mode contradict each other",
                startup_mode=self.startup_mode,
                hint="set `source.scan.startup.timestamp` with the mode `timestamp`, and only then",
            )
        for name in ("max_records", "max_bytes", "parallelism"):
            if getattr(self, name) < 1:
                raise InvalidOptionError("a limit must be positive", **{name: getattr(self, name)})
        if self.discovery_interval_s < 0:
            raise InvalidOptionError(
                "an interval cannot be negative", discovery_interval_s=self.discovery_interval_s
            )
        patterns = [("pattern", self.topics_pattern)]
        patterns += [("excluded", pattern) for pattern in self.topics_exclude]
        for name, pattern in patterns:
            try:
                re.compile(pattern)
            except re.error as error:
                raise InvalidOptionError(
                    "not a regular expression",
                    detail=str(error),
                    hint="escape special characters with a backslash, as in `\\.`",
                    **{name: pattern},
                ) from error


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True, repr=False)
class KafkaSourceSettings(_TopicSettings):
    """A set of Kafka topics, selected by `topics` or `topics_pattern`."""

    kind: str = dataclasses.field(default="kafka", init=False)
    bootstrap_servers: str = setting("source.bootstrap.servers", text, unset="")
    """Kafka brokers, `host:port[,host:port]`. Required for `kafka`."""

    startup_offsets: Mapping[str, Mapping[str, int]] = setting(
        "source.scan.startup.offsets", offset_map
    )
    """For `specific-offsets`: map of topic to partition to offset (-2 earliest, -1 latest)."""

    properties: Mapping[str, str] = setting("source.properties", text_map, secret=redact_properties)
    """librdkafka client properties, passed through (`security.protocol`, `sasl.username`, …).
    Take secrets from `${file:/path}`."""

    def __post_init__(self) -> None:
        if not self.bootstrap_servers.strip():
            raise InvalidOptionError(
                "the kafka source requires brokers", hint="set `source.bootstrap.servers`"
            )
        if bool(self.topics) == bool(self.topics_pattern):
            raise InvalidOptionError(
                "the kafka source requires either topics or a pattern",
                hint="set exactly one of `source.topics` and `source.topics.pattern`",
            )
        for name, reason in _FIXED_PROPERTIES.items():
            if name in self.properties:
                raise InvalidOptionError(
                    "this client property cannot be set", property=name, hint=reason
                )
        self._check_common()
        if (self.startup_mode == "specific-offsets") != bool(self.startup_offsets):
            raise InvalidOptionError(
                "startup offsets and startup mode contradict each other",
                startup_mode=self.startup_mode,
                hint="set `source.scan.startup.offsets` with `specific-offsets`, and only then",
            )
        for topic, partitions in self.startup_offsets.items():
            for key, offset in partitions.items():
                if not str(key).isdecimal() or offset < -2:
                    raise InvalidOptionError(
                        "not a startup offset", topic=topic, partition=key, offset=offset
                    )


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True, repr=False)
class FileSourceSettings(_TopicSettings):
    """A directory of events, one per line (layout: `ingest.source.files`).

    Without topics and pattern all topics are read. `lines` may also be `ask`: like `auto`, but a
    line that looks like a record is an error. `max_files` limits one batch per topic.
    """

    kind: str = dataclasses.field(default="files", init=False)
    path: str = setting("source.path", text, unset="")
    """Directory with one folder per topic, or files named `<topic>.<anything>`. Required for
    `files`."""

    lines: str = setting("source.lines", choice("auto", "value", "archived"), default="auto")
    """For `files`: content of a line. `value`: an event. `archived`: a record with its key, a JSON
    object of `value` and any of `key`, `headers`, `timestamp`, `topic`, `partition`, `offset`.
    `auto`: archived if it is such an object; with `json`, `upsert-json` and `debezium-flat` it
    could also be a row, so the stream stops there and asks for the setting."""

    discovery_interval_s: float = 1.0
    max_files: int = 1000

    def __post_init__(self) -> None:
        if not self.path:
            raise InvalidOptionError(
                "the files source requires a directory", hint="set `source.path`"
            )
        if self.topics and self.topics_pattern:
            raise InvalidOptionError(
                "topics and a pattern contradict each other",
                hint="set at most one of `source.topics` and `source.topics.pattern`",
            )
        if self.lines not in LINE_FORMS:
            raise InvalidOptionError("unknown value of lines", lines=self.lines)
        if self.max_files < 1:
            raise InvalidOptionError("a limit must be positive", max_files=self.max_files)
        self._check_common()
        if self.startup_mode == "specific-offsets":
            raise InvalidOptionError(
                "the files source does not support `specific-offsets`",
                hint="use `earliest`, `latest` or `timestamp`",
            )


SourceSettings = KafkaSourceSettings | FileSourceSettings


def source_settings_from_json(text: str | bytes) -> SourceSettings:
    """Decode the JSON of `to_json`.

    Raises:
        InvalidOptionError: unknown kind or key, or contradictory values.
    """
    raw = json.loads(text)
    kind = raw.pop("kind", None)
    for name in ("topics", "topics_exclude"):
        raw[name] = tuple(raw.get(name, ()))
    try:
        if kind == "kafka":
            return KafkaSourceSettings(**raw)
        if kind == "files":
            return FileSourceSettings(**raw)
    except TypeError as error:
        raise InvalidOptionError("malformed source settings", detail=str(error)) from error
    raise InvalidOptionError("unknown kind of source", kind=kind, hint="use `kafka` or `files`")


def selects_topic(settings: SourceSettings, topic: str) -> bool:
    """Return whether a topic is selected; Kafka's internal `__` topics only by exact name."""
    if any(re.fullmatch(pattern, topic) for pattern in settings.topics_exclude):
        return False
    if settings.topics:
        return topic in settings.topics
    if topic.startswith("__"):
        return False
    return not settings.topics_pattern or bool(re.fullmatch(settings.topics_pattern, topic))


def with_topic(settings: SourceSettings, topic: str | None) -> SourceSettings:
    """Add a topic to the selection, unless it is selected or None."""
    if topic is None or selects_topic(settings, topic):
        return settings
    if settings.topics:
        return dataclasses.replace(settings, topics=(*settings.topics, topic))
    pattern = f"(?:{settings.topics_pattern})|{re.escape(topic)}"
    return dataclasses.replace(settings, topics_pattern=pattern)


def only_topic(
    settings: SourceSettings, topic: str, startup_mode: str, discovery_interval_s: float
) -> SourceSettings:
    """Restrict the source to one topic, for a reader outside the stream."""
    changed: dict[str, Any] = {"topics": (topic,), "topics_pattern": "", "topics_exclude": ()}
    names = {field.name for field in dataclasses.fields(settings)}
    changed |= {"startup_mode": startup_mode, "startup_offsets": {}, "startup_timestamp_ms": None}
    changed["discovery_interval_s"] = discovery_interval_s
    return dataclasses.replace(settings, **{k: v for k, v in changed.items() if k in names})


# Settings of the Avro formats: the schema registry, and the framing of values.


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
