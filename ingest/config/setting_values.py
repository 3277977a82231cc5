# SPDX-License-Identifier: Apache-2.0
"""Sections of the configuration as frozen values; each setting is declared at its attribute.

Settings of the source are in `source_settings`, of its schema registry in `registry_settings`, of
entries of `tables` and `route` in `rule_settings`; `settings.Settings` combines them.
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
    """Name, checkpoint and trigger of the stream."""

    name: str = setting("pipeline.name", _NAME, required=True)
    """Name of the stream: Spark query name and Paimon commit user. Never change it: exactly-once
    delivery depends on it."""

    checkpoint: str = setting("pipeline.checkpoint", text)
    """Directory for Spark's offset log, local or mounted. Default for a local warehouse:
    `<warehouse>/.lakeward/<name>/checkpoint`; required for any other. If it is lost, the offsets
    are rebuilt from the tables."""

    schema_change_behavior: str = setting(
        "pipeline.schema.change.behavior",
        choice("lenient", "evolve", "try_evolve", "ignore", "exception"),
        default="lenient",
    )
    """How changes of the source's schema are handled; the values are those of Flink CDC
    (`docs/guides/schema-changes.md`). `lenient`: add and widen columns, never remove data;
    `evolve`: also rename and drop columns, stop the stream at a change that cannot be applied;
    `try_evolve`: like `evolve`, but continue; `ignore`: apply nothing and write the known columns;
    `exception`: stop the stream at any change."""

    delivery: str = setting("pipeline.delivery", choice("exactly_once"), default="exactly_once")
    """Delivery guarantee: exactly once per table. There is no other value."""

    trigger_interval_s: float = setting("pipeline.trigger.interval", duration, default="30s")
    """Interval between micro-batches; each batch makes one snapshot per changed table. Shorter:
    fresher tables, more small files."""

    max_records: int = setting(
        "pipeline.trigger.max.records", integer(1), default=2_000_000, unit="records"
    )
    """Maximum number of records of a micro-batch, over all partitions."""

    max_bytes: int = setting("pipeline.trigger.max.bytes", size, default="1gb", unit="bytes")
    """Maximum payload of a micro-batch, estimated by sampling."""

    idle_commit_s: float | None = setting("pipeline.trigger.idle.commit", duration)
    """Maximum delay of the next snapshot of a table with few rows, so that it gets fewer files: its
    records stay in the source until the delay has passed or 10,000 are waiting. Ignored with
    `--once`. Default: no delay."""


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True, repr=False)
class LifeSettings(Section):
    """Ownership, shutdown, outages and log of the daemon. Durations; None = no limit."""

    owner_ttl_s: float = setting("pipeline.owner.ttl", duration_from(3, "3s"), default="30s")
    """Time without renewal after which a daemon's lease expires and another daemon of the same
    stream may take over; the former owner is fenced and can no longer commit. After a clean stop or
    a crash on the same machine the takeover is immediate."""

    stop_timeout_s: float = setting("pipeline.stop.timeout", duration, default="270s")
    """Time for finishing the running batch after SIGTERM. Then the batch is aborted, safely, with
    exit code 75. Keep it 30 s below the grace period of the platform."""

    outage_timeout_s: float | None = setting("pipeline.outage.timeout", duration)
    """Maximum time that the source, the schema registry or the warehouse may be unavailable before
    the process exits with code 69. Default: no limit; the daemon retries and is not ready
    meanwhile."""

    batch_timeout_s: float | None = setting("pipeline.batch.timeout", duration_from(10, "10s"))
    """Maximum duration of a batch. Then the process logs the stacks of all threads, aborts the
    batch, safely, and exits with code 75. Default: no limit."""

    offsets_group: str | None = setting("source.offsets.group", text)
    """Kafka consumer group to which committed offsets are also written after every batch, for tools
    that show the lag of consumer groups. Nothing is read from it and no batch waits for it; the
    group must have no members. Requires the ACL READ on the group."""

    log_levels: Mapping[str, str] = setting("log.levels", log_levels)
    """Levels of single loggers and their children, such as `{ingest.source: debug}`; the names are
    those in log lines. Loggers of Spark write warnings and errors; a level can only reduce that, as
    in `{org.apache.spark.scheduler: error}`."""

    log_repeats: int = setting(
        "log.repeats", integer(0), default=DEFAULT_REPEATS, unit="lines a minute"
    )
    """How often per minute the same warning is written; repetitions are counted, and their number
    is logged afterwards. 0: no limit."""


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True, repr=False)
class FlatSettings(Section):
    """Properties of flattened events that the events do not contain."""

    metadata_prefix: str = setting("source.flat.metadata.prefix", text, default="__")
    """For `debezium-flat`: prefix of fields that are metadata, not columns (`add.fields.prefix`).
    `__deleted` is metadata whatever the prefix."""

    metadata_columns: tuple[str, ...] = setting("source.flat.metadata.columns", text_list)
    """For `debezium-flat`: fields with that prefix that are nevertheless columns."""

    tombstones: str = setting("source.flat.tombstones", choice("delete", "skip"), default="delete")
    """For `debezium-flat`: whether a record with a null value deletes the row of its key. Use
    `skip` if deletes are sent as rewritten rows or not at all."""


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True, repr=False)
class DebeziumSettings(Section):
    """Configuration of the connector that the events do not contain."""

    decimal_handling_mode: str = setting(
        "source.debezium.decimal.handling.mode",
        choice("precise", "string", "double"),
        default="precise",
    )
    """As configured on the connector. Needed only for events without schema block."""

    binary_handling_mode: str = setting(
        "source.debezium.binary.handling.mode",
        choice("bytes", "base64", "base64-url-safe", "hex"),
        default="bytes",
    )
    """As configured on the connector."""

    time_precision_mode: str = setting(
        "source.debezium.time.precision.mode",
        choice(
            "adaptive",
            "adaptive_time_microseconds",
            "connect",
            "isostring",
            "microseconds",
            "nanoseconds",
        ),
        default="adaptive",
    )
    """As configured on the connector."""

    unavailable_value_placeholder: str = setting(
        "source.debezium.unavailable.value.placeholder",
        text,
        default="__debezium_unavailable_value",
    )
    """As configured on the connector: placeholder of a large value that did not change."""


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True, repr=False)
class EventSettings(Section):
    """Handling of events, and the additional topics of the connector."""

    schema_change_topic: str | None = setting("source.debezium.schema.change.topic", text)
    """Topic of the connector's schema changes, for renamed and dropped columns."""

    signal_topic: str | None = setting("source.debezium.signal.topic", text)
    """The connector's `signal.kafka.topic`, through which `lakeward resnapshot` requests snapshots
    of single tables."""

    notification_topic: str | None = setting("source.debezium.notification.topic", text)
    """The connector's `notification.sink.topic.name`, which reports the progress of snapshots."""

    ordering: str = setting("source.ordering", choice("kafka", "source"), default="kafka")
    """Which of two changes of a key is the later one. `kafka`: the later record of the partition.
    `source`: the later position in the log of the source, for topics that were merged or
    repartitioned; new tables get columns for it (MySQL, MariaDB, PostgreSQL, SQL Server, Oracle in
    Debezium's formats)."""

    names_case: str = setting(
        "source.names.case", choice("insensitive", "exact"), default="insensitive"
    )
    """Whether a column of an event matches a column of the table that differs only in letter case
    or Unicode normal form. `insensitive`: it does, unless the table or one event has both
    spellings. `exact`: it is another column. See
    [schema-changes.md](../guides/schema-changes.md#letter-case-of-names)."""

    on_truncate: str = setting(
        "source.on.truncate", choice("ignore", "apply", "fail"), default="ignore"
    )
    """What a TRUNCATE of the source does: `ignore` only counts it, `apply` truncates the table (fed
    by one partition; other tables are parked), `fail` stops the stream."""

    on_resnapshot: str = setting(
        "source.on.resnapshot", choice("upsert", removed=SWEEP_REMOVED), default="upsert"
    )
    """What a new snapshot of a table does: `upsert` writes its rows. Rows that it does not contain
    remain; [`lakeward verify --repair`](../guides/verify.md#repair) deletes those that the source
    does not have."""

    @property
    def exact_names(self) -> bool:
        """Whether a column that is spelt in another case is another column."""
        return self.names_case == "exact"


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True, repr=False)
class SinkSettings(Section):
    """Warehouse and options of tables; `warehouse` is an absolute path or a URL."""

    type: str = setting("sink.type", choice("paimon"), default="paimon")
    """Table format."""

    warehouse: str = setting("sink.warehouse", text, required=True)
    """Directory of the databases and tables, or `s3://bucket/directory`. A relative path is
    resolved against the working directory."""

    options: Mapping[str, str] = setting("sink.options", text_map, secret=redacted_options)
    """Options of the object store: `s3.endpoint`, `s3.region`, `s3.access-key`, `s3.secret-key`,
    `s3.session-token`, `s3.path-style-access`, `s3.anonymous`, `s3.server-side-encryption`,
    `s3.kms-key-id`; `store.max-retries` (6), `store.retry-timeout` (30 s), `store.request-timeout`
    (60 s), `store.connect-timeout` (5 s). Missing values are taken from the `AWS_…` variables of
    each process, or from its role. Take secrets from `${file:/path}`."""

    catalog: Mapping[str, str] = setting("sink.catalog", text_map, secret=redacted_options)
    """Catalog of the tables, by Paimon's names of its options: `metastore` (`filesystem`, `jdbc`,
    `hive`, `rest`), `uri`, `catalog-key`, `jdbc.user`, `lock.enabled`, …; see
    [catalogs.md](../guides/catalogs.md). Take secrets from `${file:/path}`."""

    default_database: str = setting("sink.default.database", _DATABASE, default="lakeward")
    """Database of the quarantine table, and of events whose source names no database."""

    sanitize_names: bool = setting("sink.names.sanitize", boolean, default=False)
    r"""Replace what the table format forbids in names of databases and tables: each of `/ \ $ . :`,
    control characters, and leading and trailing blanks become `_`, the database `sys` becomes
    `sys_`, and a name of more than 255 bytes is truncated and gets a hash. If it is off, and for
    the second of two source tables whose sanitized names are equal, records go to quarantine. See
    [quarantine.md](../guides/quarantine.md#names-that-cannot-be-used)."""

    table_properties: Mapping[str, str] = setting(
        "sink.table.properties", text_map, default={"bucket": "1"}, secret=redact_properties
    )
    """Paimon options of every table that Lakeward creates, merged with the default; existing tables
    keep their options."""

    include_schema_changes: tuple[str, ...] = setting("sink.include.schema.changes", change_kinds)
    """Kinds of schema changes to apply; default all: `create.table`, `add.column`,
    `alter.column.type`, `rename.column`, `drop.column`, `truncate.table`, `drop.table`, or parts of
    a kind: `column`, `drop`. With `lenient` the last two must be listed explicitly."""

    exclude_schema_changes: tuple[str, ...] = setting("sink.exclude.schema.changes", change_kinds)
    """Kinds of schema changes not to apply, as above; takes precedence over
    `sink.include.schema.changes`. Columns that are not added are omitted from the rows."""

    type_mapping: tuple[str, ...] = setting(
        "sink.type.mapping",
        text_list,
        doc="Type mappings of new columns (see types.md): "
        + "; ".join(f"`{word}`: {what}" for word, what in MAPPING_WORDS.items())
        + ".",
    )
    metadata_columns: tuple[str, ...] = setting("sink.metadata.columns.columns", text_list)
    """Metadata columns of every table, such as `op, source_ts_ms`; see [the
    list](transforms.md#metadata-columns)."""

    metadata_prefix: str = setting("sink.metadata.columns.prefix", text, default="_cdc_")
    """Prefix of metadata columns, and of the marker column of soft deletes."""

    time_zone: str = setting("sink.time.zone", text, default="UTC")
    """Time zone in which expressions evaluate a TIMESTAMP_LTZ, such as `Europe/Berlin`."""


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True, repr=False)
class BadRecordSettings(Section):
    """Handling of records that cannot be decoded."""

    table: str = setting("bad.records.table", _TABLE)
    """Quarantine table, which stores bad records completely. Default:
    `<sink.default.database>._quarantine`."""

    topic: str | None = setting("bad.records.topic", text)
    """Dead-letter topic: gets a copy of every quarantined record, on the brokers of the source, at
    least once. It must exist, and the source must not read it."""

    max_ratio: float | None = setting("bad.records.max.ratio", fraction)
    """Ratio of bad records of a table in one batch above which the table is parked, without
    committing anything of that batch to it. Ignored for batches with fewer than 100 records of the
    table; records whose table is unknown are not counted."""


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True, repr=False)
class MaintenanceSettings(Section):
    """Maintenance of tables by the daemon; durations in seconds."""

    snapshot_retain_s: float | None = setting("maintenance.snapshot.retain", duration)
    """How long snapshots are retained, for tables that Lakeward creates (sets their
    `snapshot.time-retained`). Default: `1h`, that of the table format."""

    compaction_window: str | None = setting("maintenance.compaction.window", daily_window)
    """Time of day, such as `01:00-05:00` or `22:30-04:00 Europe/Berlin` (UTC without a zone), in
    which the tables of the stream are compacted fully, in the background, once a day. Tables that
    are not finished when it ends are compacted the next day."""

    orphan_clean_s: float | None = setting("maintenance.orphan.clean", duration_from(3600, "1h"))
    """Remove orphan files of the stream's tables that are older than this, once a day. Batches must
    take less time than that. Default: off; `lakeward orphans` removes them."""


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True, repr=False)
class MetricsSettings(Section):
    """The HTTP endpoint."""

    enabled: bool = setting("metrics.enabled", boolean, default=True)
    """Whether the HTTP endpoint is enabled."""

    host: str = setting("metrics.host", text, default="127.0.0.1")
    """Address to listen on. In a container use `0.0.0.0`; there is no authentication."""

    port: int = setting("metrics.port", integer(0, 65535), default=9108)
    """Port; 0 uses a free port and logs it."""

    labels: Mapping[str, str] = setting("metrics.labels", label_map)
    """Labels of every series, such as `{region: eu}`."""

    per_table: bool = setting("metrics.per.table", boolean, default=True)
    """Whether every table has its own series. `false`: one series for all tables, with an empty
    `table`: counters and histograms are summed, gauges are the sum, the maximum or the minimum (see
    metrics.md)."""

    max_tables: int = setting("metrics.max.tables", integer(0), default=500)
    """Maximum number of tables with their own series, about 80 each; the others share
    `table="other"`."""


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True, repr=False)
class ControlSettings(Section):
    """Control over HTTP; only the driver needs it."""

    token: str | None = setting("control.token", token, secret=hide)
    """Bearer token of `POST /api/pause`, `resume`, `reload`, `compact` and `drain`, sent as
    `Authorization: Bearer …`; at least 16 characters. Take it from `${file:/path}`. Default:
    control over HTTP is disabled."""


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True, repr=False)
class AlertSettings(Section):
    """Webhooks and their events; only the driver needs them."""

    urls: tuple[str, ...] = setting("alerts.webhook.urls", webhook_urls, secret=redact_urls)
    """Addresses that get a POST with JSON for every event; Slack shows its field `text`. Best
    effort: an event may be lost or delivered twice. Take secret addresses from `${file:/path}`."""

    headers: Mapping[str, str] = setting("alerts.webhook.headers", text_map, secret=hide_values)
    """Headers of these requests, such as `Authorization`; their values are never shown."""

    events: tuple[str, ...] = setting(
        "alerts.events",
        alert_events,
        doc="Events to send: "
        + ", ".join(f"`{word}`" for word in ALERT_EVENTS)
        + ". Default: all.",
    )
    quarantine_records: int = setting(
        "alerts.quarantine.records", integer(1), default=1, unit="records"
    )
    """Quarantined records of a table within ten minutes that trigger the event `quarantine`; it is
    sent at most once in ten minutes per table."""


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True, repr=False)
class LogSettings(Section):
    """Logs go to standard error."""

    level: str = setting("log.level", choice("debug", "info", "warning", "error"), default="info")
    """Minimum level of log lines."""

    format: str = setting("log.format", choice("auto", "text", "json"), default="auto")
    """`auto`: text on a terminal, JSON lines elsewhere. Executors of a cluster always write JSON
    lines."""


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True, repr=False)
class SparkSettings(Section):
    """Spark; None and empty mean that Lakeward chooses."""

    master: str | None = setting("spark.master", text)
    """Spark master URL. Default: `local[N,4]` with one slot per core.
    `k8s://https://kubernetes.default.svc`: executors as pods (deploy/README.md)."""

    parallelism: int | None = setting("spark.parallelism", integer(1), unit="tasks")
    """Tasks per stage. Default: the cores available to this process, or those of all executor pods.
    On other clusters set it to the executors' cores."""

    conf: Mapping[str, str] = setting("spark.conf", text_map, secret=redact_properties)
    """Spark properties; they take precedence over Lakeward's defaults."""
