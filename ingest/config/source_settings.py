# SPDX-License-Identifier: Apache-2.0
"""Settings of the sources as frozen values with a JSON round trip.

Owns which keys a source has, their defaults and the checks between them. Reading YAML, `${ENV}`
and `${file:}` belong to `ingest.config.settings`, which builds these values. They travel as
JSON text in a Spark option, hence the round trip; `repr` never shows a secret.
"""

import dataclasses
import json
import re
from collections.abc import Mapping
from typing import Any, Final

from storage.errors import InvalidOptionError

__all__ = [
    "DEFAULT_MAX_BYTES",
    "DEFAULT_MAX_RECORDS",
    "STARTUP_MODES",
    "FileSourceSettings",
    "KafkaSourceSettings",
    "SourceSettings",
    "only_topic",
    "redact_properties",
    "selects_topic",
    "source_settings_from_json",
    "with_topic",
]

LINE_FORMS: Final = ("auto", "value", "archived", "ask")

STARTUP_MODES: Final = ("earliest", "latest", "timestamp", "specific-offsets")

# About 4 s of decoding on two cores at the rates of PEERS.md §3.1: long enough to hide the fixed
# 0.35 s of a batch, short enough for a fresh table.
DEFAULT_MAX_RECORDS: Final = 1_000_000
DEFAULT_MAX_BYTES: Final = 1 << 30

# What exact ranges rest on; a user who changes one of these loses or repeats records.
_FIXED_PROPERTIES: Final = {
    "auto.offset.reset": "Lakeward decides where a partition starts: use scan.startup.mode",
    "enable.auto.commit": "offsets live in Spark's checkpoint and in the tables",
    "enable.auto.offset.store": "offsets live in Spark's checkpoint and in the tables",
    "enable.partition.eof": "the end of a range is found by it",
    "bootstrap.servers": "use source.bootstrap.servers",
    "metadata.broker.list": "use source.bootstrap.servers",
    "group.instance.id": "Lakeward joins no consumer group",
}

_SECRET = re.compile(
    r"password|secret|token|\.pem|credential|jaas|basic\.auth|sasl\.oauthbearer\.config", re.I
)


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True, repr=False)
class KafkaSourceSettings:
    """A set of Kafka topics.

    Attributes:
        bootstrap_servers: `host:port[,host:port...]`.
        topics: exact names; give these or `topics_pattern`.
        topics_pattern: regular expression a topic's whole name must match.
        topics_exclude: regular expressions; a topic whose whole name matches one is left out.
        startup_mode: one of `STARTUP_MODES`; used only when there is no checkpoint.
        startup_timestamp_ms: for `timestamp`: first record not older than this [epoch ms].
        startup_offsets: for `specific-offsets`: topic -> partition -> offset; -2 is earliest, -1
            latest. Partitions not named start at earliest.
        fail_on_data_loss: stop when offsets the stream still needs are gone; else skip and count.
        discovery_interval_s: how often new topics and partitions are looked for [s].
        properties: librdkafka client properties, passed through (SASL, SSL, tuning).
        max_records: bound of one batch over all partitions [records].
        max_bytes: bound of one batch, estimated by sampling [bytes].
        parallelism: most tasks per batch.
    """

    kind: str = dataclasses.field(default="kafka", init=False)
    bootstrap_servers: str
    topics: tuple[str, ...] = ()
    topics_pattern: str = ""
    topics_exclude: tuple[str, ...] = ()
    startup_mode: str = "earliest"
    startup_timestamp_ms: int | None = None
    startup_offsets: Mapping[str, Mapping[str, int]] = dataclasses.field(default_factory=dict)
    fail_on_data_loss: bool = True
    discovery_interval_s: float = 300.0
    properties: Mapping[str, str] = dataclasses.field(default_factory=dict)
    max_records: int = DEFAULT_MAX_RECORDS
    max_bytes: int = DEFAULT_MAX_BYTES
    parallelism: int = 4

    def __post_init__(self) -> None:
        if not self.bootstrap_servers.strip():
            raise InvalidOptionError(
                "the kafka source needs brokers", hint="set `source.bootstrap.servers`"
            )
        if bool(self.topics) == bool(self.topics_pattern):
            raise InvalidOptionError(
                "the kafka source needs either topics or a pattern",
                hint="set exactly one of `source.topics` and `source.topics.pattern`",
            )
        for name, reason in _FIXED_PROPERTIES.items():
            if name in self.properties:
                raise InvalidOptionError(
                    "this client property cannot be set", property=name, hint=reason
                )
        _check_common(self)
        if (self.startup_mode == "specific-offsets") != bool(self.startup_offsets):
            raise InvalidOptionError(
                "startup offsets and startup mode contradict each other",
                startup_mode=self.startup_mode,
                hint="`specific-offsets` needs startup offsets, and only it takes them",
            )
        for topic, partitions in self.startup_offsets.items():
            for key, offset in partitions.items():
                if not str(key).isdecimal() or offset < -2:
                    raise InvalidOptionError(
                        "not a startup offset", topic=topic, partition=key, offset=offset
                    )

    def __repr__(self) -> str:
        return _redacted_repr(self)

    def to_json(self) -> str:
        """JSON text, secrets included; see `source_settings_from_json`."""
        return _to_json(self)


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True, repr=False)
class FileSourceSettings:
    """A directory of events, one per line (layout: `ingest.source.files`).

    Attributes:
        path: the directory.
        lines: what a line is, one of `LINE_FORMS`: a `value`, an `archived` record, `auto` = either
            by how it looks, `ask` = as auto, but a line that looks like a record is an error.
        topics: exact topic names; empty with an empty pattern means all.
        topics_pattern: as for Kafka.
        topics_exclude: as for Kafka.
        startup_mode: `earliest`, `latest` or `timestamp`.
        startup_timestamp_ms: for `timestamp`: first file not modified before this [epoch ms].
        fail_on_data_loss: stop when a file still needed is gone or shrank, or when one arrives
            whose name sorts before what was read; else go on without it.
        discovery_interval_s: how often the directory is listed [s].
        max_records: bound of one batch [lines]; estimated for files above a few MB.
        max_bytes: bound of one batch [bytes].
        max_files: bound of one batch per topic [files].
        parallelism: most tasks per batch.
    """

    kind: str = dataclasses.field(default="files", init=False)
    path: str
    lines: str = "auto"
    topics: tuple[str, ...] = ()
    topics_pattern: str = ""
    topics_exclude: tuple[str, ...] = ()
    startup_mode: str = "earliest"
    startup_timestamp_ms: int | None = None
    fail_on_data_loss: bool = True
    discovery_interval_s: float = 1.0
    max_records: int = DEFAULT_MAX_RECORDS
    max_bytes: int = DEFAULT_MAX_BYTES
    max_files: int = 1000
    parallelism: int = 4

    def __post_init__(self) -> None:
        if not self.path:
            raise InvalidOptionError("the files source needs a directory", hint="set `source.path`")
        if self.topics and self.topics_pattern:
            raise InvalidOptionError(
                "topics and a pattern contradict each other",
                hint="set at most one of `source.topics` and `source.topics.pattern`",
            )
        if self.lines not in LINE_FORMS:
            raise InvalidOptionError("unknown form of lines", lines=self.lines)
        if self.max_files < 1:
            raise InvalidOptionError("a limit must be positive", max_files=self.max_files)
        _check_common(self)
        if self.startup_mode == "specific-offsets":
            raise InvalidOptionError(
                "the files source has no `specific-offsets`",
                hint="use `earliest`, `latest` or `timestamp`",
            )

    def __repr__(self) -> str:
        return _redacted_repr(self)

    def to_json(self) -> str:
        """JSON text; see `source_settings_from_json`."""
        return _to_json(self)


SourceSettings = KafkaSourceSettings | FileSourceSettings


def source_settings_from_json(text: str | bytes) -> SourceSettings:
    """Inverse of `to_json`.

    Raises:
        InvalidOptionError: unknown kind or key, or values that contradict each other.
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
    """Whether the settings cover `topic`; Kafka's own `__` topics only when named exactly."""
    if any(re.fullmatch(pattern, topic) for pattern in settings.topics_exclude):
        return False
    if settings.topics:
        return topic in settings.topics
    if topic.startswith("__"):
        return False
    return not settings.topics_pattern or bool(re.fullmatch(settings.topics_pattern, topic))


def with_topic(settings: SourceSettings, topic: str | None) -> SourceSettings:
    """The settings with one more topic, unless it is covered or None."""
    if topic is None or selects_topic(settings, topic):
        return settings
    if settings.topics:
        return dataclasses.replace(settings, topics=(*settings.topics, topic))
    pattern = f"(?:{settings.topics_pattern})|{re.escape(topic)}"
    return dataclasses.replace(settings, topics_pattern=pattern)


def only_topic(
    settings: SourceSettings, topic: str, startup_mode: str, discovery_interval_s: float
) -> SourceSettings:
    """The same source with one topic alone, for who reads it beside the stream."""
    changed: dict[str, Any] = {"topics": (topic,), "topics_pattern": "", "topics_exclude": ()}
    names = {field.name for field in dataclasses.fields(settings)}
    changed |= {"startup_mode": startup_mode, "startup_offsets": {}, "startup_timestamp_ms": None}
    changed["discovery_interval_s"] = discovery_interval_s
    return dataclasses.replace(settings, **{k: v for k, v in changed.items() if k in names})


def redact_properties(properties: Mapping[str, str]) -> dict[str, str]:
    """Client properties fit for a log: values of secret ones replaced."""
    return {
        name: "********" if _SECRET.search(name) else value for name, value in properties.items()
    }


def _check_common(settings: SourceSettings) -> None:
    if settings.startup_mode not in STARTUP_MODES:
        raise InvalidOptionError(
            "unknown startup mode",
            startup_mode=settings.startup_mode,
            hint="use one of " + ", ".join(f"`{mode}`" for mode in STARTUP_MODES),
        )
    if (settings.startup_mode == "timestamp") != (settings.startup_timestamp_ms is not None):
        raise InvalidOptionError(
            "startup timestamp and startup mode contradict each other",
            startup_mode=settings.startup_mode,
            hint="`timestamp` needs a startup timestamp, and only it takes one",
        )
    for name in ("max_records", "max_bytes", "parallelism"):
        if getattr(settings, name) < 1:
            raise InvalidOptionError("a limit must be positive", **{name: getattr(settings, name)})
    if settings.discovery_interval_s < 0:
        raise InvalidOptionError(
            "an interval cannot be negative", discovery_interval_s=settings.discovery_interval_s
        )
    patterns = [("pattern", settings.topics_pattern)]
    patterns += [("excluded", pattern) for pattern in settings.topics_exclude]
    for name, pattern in patterns:
        try:
            re.compile(pattern)
        except re.error as error:
            raise InvalidOptionError(
                "not a regular expression",
                detail=str(error),
                hint="put a backslash before a character that is meant as it is, as in `\\.`",
                **{name: pattern},
            ) from error


def _as_dict(settings: SourceSettings) -> dict[str, Any]:
    values = {field.name: getattr(settings, field.name) for field in dataclasses.fields(settings)}
    return {
        name: dict(value) if isinstance(value, Mapping) else value for name, value in values.items()
    }


def _to_json(settings: SourceSettings) -> str:
    return json.dumps(_as_dict(settings), sort_keys=True)


def _redacted_repr(settings: SourceSettings) -> str:
    values = _as_dict(settings)
    if "properties" in values:
        values["properties"] = redact_properties(values["properties"])
    text = ", ".join(f"{name}={value!r}" for name, value in values.items() if name != "kind")
    return f"{type(settings).__name__}({text})"
