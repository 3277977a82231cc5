# SPDX-License-Identifier: Apache-2.0
"""Sections of the configuration as frozen values, each setting declared where its value is.

Settings of the source are in `source_settings`, of its schema registry in `registry_settings`, of
entries of `tables` and `route` in `rule_settings`; `settings.Settings` puts them together.
"""

import dataclasses
from collections.abc import Mapping

from ingest.config.choices import ALERT_EVENTS, MAPPING_WORDS, SWEEP_REMOVED
from ingest.config.setting import (
    Section,
    hide,
    hide_values,
    redact_properties,
    redact_urls,
    setting,
)
from ingest.config.setting_kinds import (
    alert_events,
    boolean,
    change_kinds,
    choice,
    daily_window,
    duration,
    duration_from,
    fraction,
    identifier,
    integer,
    label_map,
    log_levels,
    size,
    text,
    text_list,
    text_map,
    token,
    webhook_urls,
)
from ingest.log_sampling import DEFAULT_REPEATS
from storage.io.object_store.options import redacted_options

__all__ = [
    "AlertSettings",
    "BadRecordSettings",
    "ControlSettings",
    "DebeziumSettings",
    "EventSettings",
    "FlatSettings",
    "LifeSettings",
    "LogSettings",
    "MaintenanceSettings",
    "MetricsSettings",
    "PipelineSettings",
    "SinkSettings",
    "SparkSettings",
]

_NAME = identifier(
    r"[A-Za-z0-9][A-Za-z0-9._-]{0,99}",
    "letters, digits, `.`, `_` and `-`, at most 100, starting with a letter or digit",
)
_PART = r"[^./\\\s$:]+"
_DATABASE = identifier(
    rf"(?!sys$){_PART}", "a database name without dots, slashes, colons, `$` and blanks, not `sys`"
)
_TABLE = identifier(rf"(?!sys\.){_PART}\.{_PART}", "a table as `database.table`")


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True, repr=False)
class PipelineSettings(Section):
    """What the stream is called, where it keeps its place and how often it commits."""

    name: str = setting("pipeline.name", _NAME, required=True)
    """Name of the stream: Spark query name and Paimon commit user. Never change it:
    exactly-once rests on it."""

    checkpoint: str = setting("pipeline.checkpoint", text)
    """Directory for Spark's offset log, local or mounted. For a local warehouse the default is
    `<warehouse>/.lakeward/<name>/checkpoint`; for any other it must be given. If it is lost,
    offsets are rebuilt from the tables."""

    schema_change_behavior: str = setting(
        "pipeline.schema.change.behavior",
        choice("lenient", "evolve", "try_evolve", "ignore", "exception"),
        default="lenient",
    )
    """What becomes of changes of the source's schema, in Flink CDC's words
    (`docs/guides/schema-changes.md`). `lenient`: add and widen columns, lose nothing; `evolve`:
    also rename and drop them, stop at what cannot be done; `try_evolve`: the same, but go on;
    `ignore`: change nothing, the known columns flow; `exception`: stop at any change."""

    delivery: str = setting("pipeline.delivery", choice("exactly_once"), default="exactly_once")
    """Exactly once per table; there is no other."""

    trigger_interval_s: float = setting("pipeline.trigger.interval", duration, default="30s")
    """Time between two micro-batches; each batch is one snapshot per changed table. Shorter:
    fresher tables, more small files."""

    max_records: int = setting(
        "pipeline.trigger.max.records", integer(1), default=2_000_000, unit="records"
    )
    """Bound of one micro-batch over all partitions."""

    max_bytes: int = setting("pipeline.trigger.max.bytes", size, default="1gb", unit="bytes")
    """Bound of one micro-batch in payload bytes, estimated by sampling."""

    idle_commit_s: float | None = setting("pipeline.trigger.idle.commit", duration)
    """How long a table with few rows may wait for its next snapshot, so that it has fewer
    files: its records stay in the source until the time is up or 10,000 are there. `--once`
    waits for nothing. Default: every batch."""


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True, repr=False)
class LifeSettings(Section):
    """The daemon's life: ownership, stopping, outages, its log. Durations; None = no limit."""

    owner_ttl_s: float = setting("pipeline.owner.ttl", duration_from(3, "3s"), default="30s")
    """How long a daemon may show no life before another of the same stream takes over; one that
    was thought dead cannot commit any more. A daemon that ended, or of whose end this machine
    knows, is followed at once."""

    stop_timeout_s: float = setting("pipeline.stop.timeout", duration, default="270s")
    """How long the running batch may take after SIGTERM. Then it is given up, safely, and the
    exit code is 75. Keep it 30 s below the platform's grace period."""

    outage_timeout_s: float | None = setting("pipeline.outage.timeout", duration)
    """How long the source, the registry or the warehouse may be away before the process ends
    with exit code 69. Default: it waits for as long as it takes, not ready meanwhile: a restart
    brings no broker back."""

    batch_timeout_s: float | None = setting("pipeline.batch.timeout", duration_from(10, "10s"))
    """How long a batch may take before the process logs what every thread waits for, gives the
    batch up, safely, and ends with exit code 75. Default: as long as it takes."""

    offsets_group: str | None = setting("source.offsets.group", text)
    """A Kafka consumer group under which committed offsets are also written after every batch,
    for tools that show lag of groups. Nothing is read from it, a batch never waits for it, and
    it must have no members. Needs the right to READ the group."""

    log_levels: Mapping[str, str] = setting("log.levels", log_levels)
    """Levels of single loggers and what is below them, such as `{ingest.source: debug}`; names
    are those of the log's lines. Of Spark's own, warnings and errors are written; they can be
    quieter than that, as in `{org.apache.spark.scheduler: error}`."""

    log_repeats: int = setting(
        "log.repeats", integer(0), default=DEFAULT_REPEATS, unit="lines a minute"
    )
    """How often the same warning is written in a minute; the others are counted and told after
    it. 0: all of them."""


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True, repr=False)
class FlatSettings(Section):
    """Facts about flattened events that events do not carry."""

    metadata_prefix: str = setting("source.flat.metadata.prefix", text, default="__")
    """For `debezium-flat`: prefix of members that are no columns (`add.fields.prefix`)."""

    metadata_columns: tuple[str, ...] = setting("source.flat.metadata.columns", text_list)
    """For `debezium-flat`: members with that prefix that are columns all the same."""

    tombstones: str = setting("source.flat.tombstones", choice("delete", "skip"), default="delete")
    """For `debezium-flat`: whether a null value deletes the row of its key. `skip` where
    deletes come as rewritten rows or not at all."""


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True, repr=False)
class DebeziumSettings(Section):
    """Facts about the producer that events do not carry."""

    decimal_handling_mode: str = setting(
        "source.debezium.decimal.handling.mode",
        choice("precise", "string", "double"),
        default="precise",
    )
    """As set on the connector. Needed only for events without schema block."""

    binary_handling_mode: str = setting(
        "source.debezium.binary.handling.mode",
        choice("bytes", "base64", "base64-url-safe", "hex"),
        default="bytes",
    )
    """As set on the connector."""

    time_precision_mode: str = setting(
        "source.debezium.time.precision.mode",
        choice("adaptive", "adaptive_time_microseconds", "connect", "isostring"),
        default="adaptive",
    )
    """As set on the connector."""

    unavailable_value_placeholder: str = setting(
        "source.debezium.unavailable.value.placeholder",
        text,
        default="__debezium_unavailable_value",
    )
    """As set on the connector: what stands for a large value that did not change."""


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True, repr=False)
class EventSettings(Section):
    """What events mean to tables, and the topics beside them."""

    schema_change_topic: str | None = setting("source.debezium.schema.change.topic", text)
    """Topic of the connector's schema changes, for renamed and dropped columns."""

    signal_topic: str | None = setting("source.debezium.signal.topic", text)
    """The connector's `signal.kafka.topic`, through which `lakeward resnapshot` asks for
    snapshots of single tables."""

    notification_topic: str | None = setting("source.debezium.notification.topic", text)
    """The connector's `notification.sink.topic.name`, which tells how far a snapshot is."""

    ordering: str = setting("source.ordering", choice("kafka", "source"), default="kafka")
    """Which of two changes of a key is the later one. `kafka`: the later record of its
    partition. `source`: the later position in the source's log, for topics that are merged or
    repartitioned; new tables have columns for it (MySQL, MariaDB, PostgreSQL, SQL Server,
    Oracle in Debezium's formats)."""

    names_case: str = setting(
        "source.names.case", choice("insensitive", "exact"), default="insensitive"
    )
    """Whether a column of events that differs from a column of the table in letter case or
    Unicode normal form alone is that column. `insensitive`: it is, unless the table or one
    event has both spellings. `exact`: it is another column. See
    [schema-changes.md](../guides/schema-changes.md#letter-case-of-names)."""

    on_truncate: str = setting(
        "source.on.truncate", choice("ignore", "apply", "fail"), default="ignore"
    )
    """What a TRUNCATE of the source does: nothing but being counted, empty the table (fed by
    one partition; others are parked), or stop the stream."""

    on_resnapshot: str = setting(
        "source.on.resnapshot", choice("upsert", removed=SWEEP_REMOVED), default="upsert"
    )
    """What a new snapshot of a table does: upsert its rows. Rows that it does not bring stay;
    [`lakeward verify --repair`](../guides/verify.md#repair) deletes those that the source does not
    have."""

    @property
    def exact_names(self) -> bool:
        """Whether a column that is spelt in another case is another column."""
        return self.names_case == "exact"


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True, repr=False)
class SinkSettings(Section):
    """Where tables are written; `warehouse` is an absolute path or a URL."""

    type: str = setting("sink.type", choice("paimon"), default="paimon")
    """The table format."""

    warehouse: str = setting("sink.warehouse", text, required=True)
    """Directory of the databases and tables, or `s3://bucket/directory`. A relative path counts
    from the working directory."""

    options: Mapping[str, str] = setting("sink.options", text_map, secret=redacted_options)
    """Options of the object store: `s3.endpoint`, `s3.region`, `s3.access-key`,
    `s3.secret-key`, `s3.session-token`, `s3.path-style-access`, `s3.anonymous`,
    `s3.server-side-encryption`, `s3.kms-key-id`; `store.max-retries` (6), `store.retry-timeout`
    (30 s), `store.request-timeout` (60 s), `store.connect-timeout` (5 s). What is missing comes
    from the `AWS_…` variables of every process, or from its role. Take secrets from
    `${file:/path}`."""

    default_database: str = setting("sink.default.database", _DATABASE, default="lakeward")
    """Database of the quarantine table, and of events whose source names no database."""

    sanitize_names: bool = setting("sink.names.sanitize", boolean, default=False)
    r"""Replace what the table format forbids in names of databases and tables: each of `/ \ $ .
    :`, control characters and blanks at the ends becomes `_`, the database `sys` becomes
    `sys_`, and a name of more than 255 bytes is cut and gets a hash. Without it, and for the
    second of two source tables whose names become one, records go to quarantine. See
    [quarantine.md](../guides/quarantine.md#names-that-cannot-be-used)."""

    table_properties: Mapping[str, str] = setting(
        "sink.table.properties", text_map, default={"bucket": "1"}, secret=redact_properties
    )
    """Paimon options of every table that Lakeward creates. Your entries are added to the
    default; existing tables keep theirs."""

    include_schema_changes: tuple[str, ...] = setting("sink.include.schema.changes", change_kinds)
    """Kinds of schema changes that are made; default all. `create.table`, `add.column`,
    `alter.column.type`, `rename.column`, `drop.column`, `truncate.table`, `drop.table`, or
    words of one: `column`, `drop`. In `lenient` the last two must be named."""

    exclude_schema_changes: tuple[str, ...] = setting("sink.exclude.schema.changes", change_kinds)
    """Kinds of schema changes that are not made, as above; wins over the included ones. Columns
    that are not added are left out of the rows."""

    type_mapping: tuple[str, ...] = setting(
        "sink.type.mapping",
        text_list,
        doc="Types of new columns where there is a choice (see types.md): "
        + "; ".join(f"`{word}`: {what}" for word, what in MAPPING_WORDS.items())
        + ".",
    )
    metadata_columns: tuple[str, ...] = setting("sink.metadata.columns.columns", text_list)
    """Metadata columns that every table gets, such as `op, source_ts_ms`; see [the
    list](transforms.md#metadata-columns)."""

    metadata_prefix: str = setting("sink.metadata.columns.prefix", text, default="_cdc_")
    """What metadata columns begin with, and the mark of soft deletes."""

    time_zone: str = setting("sink.time.zone", text, default="UTC")
    """Zone in whose wall clocks expressions see a TIMESTAMP_LTZ, as `Europe/Berlin`."""


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True, repr=False)
class BadRecordSettings(Section):
    """What happens to records that cannot be decoded."""

    table: str = setting("bad.records.table", _TABLE)
    """Table that takes undecodable records whole. Default:
    `<sink.default.database>._quarantine`."""

    topic: str | None = setting("bad.records.topic", text)
    """Kafka topic that gets a copy of every record that goes to quarantine, on the source's
    brokers, at least once. It must exist, and the source must not read it."""

    max_ratio: float | None = setting("bad.records.max.ratio", fraction)
    """Share of bad records of a table in one batch above which the table is parked, with
    nothing of that batch committed for it. Batches with fewer than 100 records of the table do
    not count, nor do records of which it is not known for which table they are."""


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True, repr=False)
class MaintenanceSettings(Section):
    """What is done to tables beside writing them; durations in seconds."""

    snapshot_retain_s: float | None = setting("maintenance.snapshot.retain", duration)
    """How long old snapshots can be read, for tables that Lakeward creates (sets their
    `snapshot.time-retained`). Default: the table format's `1h`."""

    compaction_window: str | None = setting("maintenance.compaction.window", daily_window)
    """Time of day, such as `01:00-05:00` or `22:30-04:00 Europe/Berlin` (UTC if it does not
    say), in which the tables of the stream are compacted fully, in the background, once each
    day. What is not done when it ends is done the next day."""

    orphan_clean_s: float | None = setting("maintenance.orphan.clean", duration_from(3600, "1h"))
    """Remove files of the stream's tables that nothing names and that were not written for so
    long, once a day. Batches must take less time than that. Default: they stay; `lakeward
    orphans` removes them."""


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True, repr=False)
class MetricsSettings(Section):
    """The HTTP endpoint."""

    enabled: bool = setting("metrics.enabled", boolean, default=True)
    """Whether the endpoint is opened."""

    host: str = setting("metrics.host", text, default="127.0.0.1")
    """Address to listen on. In a container use `0.0.0.0`; there is no authentication."""

    port: int = setting("metrics.port", integer(0, 65535), default=9108)
    """Port; 0 takes any free one and logs which."""

    labels: Mapping[str, str] = setting("metrics.labels", label_map)
    """Labels that every series gets, such as `{region: eu}`."""

    per_table: bool = setting("metrics.per.table", boolean, default=True)
    """Whether every table has series of its own. `false`: one series for all, with an empty
    `table`: counters and histograms added up, of gauges the sum, the largest or the smallest
    (see metrics.md)."""

    max_tables: int = setting("metrics.max.tables", integer(0), default=500)
    """Tables with series of their own, about 80 each; the others share `table="other"`."""


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True, repr=False)
class ControlSettings(Section):
    """Control over HTTP; the driver alone needs it."""

    token: str | None = setting("control.token", token, secret=hide)
    """What callers of `POST /api/pause`, `resume`, `reload`, `compact` and `drain` must send as
    `Authorization: Bearer …`; at least 16 characters. Take it from `${file:/path}`. Default:
    there is no control over HTTP."""


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True, repr=False)
class AlertSettings(Section):
    """Webhooks and the events that they get; the driver alone needs them."""

    urls: tuple[str, ...] = setting("alerts.webhook.urls", webhook_urls, secret=redact_urls)
    """Addresses that get a POST with JSON for every event; `text` in it is what Slack shows.
    Best effort: an event may be lost or come twice. Take secret ones from `${file:/path}`."""

    headers: Mapping[str, str] = setting("alerts.webhook.headers", text_map, secret=hide_values)
    """Headers of these calls, such as `Authorization`; their values are never shown."""

    events: tuple[str, ...] = setting(
        "alerts.events",
        alert_events,
        doc="Events that are sent: "
        + ", ".join(f"`{word}`" for word in ALERT_EVENTS)
        + ". Default: all.",
    )
    quarantine_records: int = setting(
        "alerts.quarantine.records", integer(1), default=1, unit="records"
    )
    """Records of a table in quarantine within ten minutes from which on `quarantine` is sent;
    at most once in ten minutes for each table."""


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True, repr=False)
class LogSettings(Section):
    """Logs go to standard error."""

    level: str = setting("log.level", choice("debug", "info", "warning", "error"), default="info")
    """Least severe level that is written."""

    format: str = setting("log.format", choice("auto", "text", "json"), default="auto")
    """`auto`: text on a terminal, JSON lines elsewhere. Executors of a cluster write JSON lines
    whatever it says."""


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True, repr=False)
class SparkSettings(Section):
    """The engine; None and empty mean Lakeward chooses."""

    master: str | None = setting("spark.master", text)
    """Spark master URL. Default: `local[N,4]` with one slot per core.
    `k8s://https://kubernetes.default.svc`: executors as pods (deploy/README.md)."""

    parallelism: int | None = setting("spark.parallelism", integer(1), unit="tasks")
    """Tasks per stage. Default: the cores that this process may use, or those of all executor
    pods. On other clusters set it to the executors' cores."""

    conf: Mapping[str, str] = setting("spark.conf", text_map, secret=redact_properties)
    """Spark properties; they win over Lakeward's own."""
