# SPDX-License-Identifier: Apache-2.0
"""Settings of a pipeline: frozen, picklable values with a JSON round trip; `repr` hides secrets.

Each setting is declared at its attribute (`setting`). `loading` reads them from files, environment
and flags; checks that need more than settings are in `ingest.daemon.configuration`.
"""

import dataclasses
import fnmatch
import json
from collections.abc import Callable, Iterator, Mapping
from typing import Any, TypeVar, get_type_hints

import msgspec

from ingest.config.choices import ALERT_EVENTS, FORMATS, MAPPING_WORDS, SWEEP_REMOVED
from ingest.config.setting import (
    Section,
    Setting,
    alert_events,
    boolean,
    bucket_count,
    change_kinds,
    choice,
    daily_window,
    declared,
    duration,
    duration_from,
    fields_declared,
    fraction,
    hide,
    hide_values,
    identifier,
    integer,
    label_map,
    log_levels,
    redact_properties,
    redact_urls,
    redacted,
    section,
    setting,
    size,
    table_pattern,
    text,
    text_list,
    text_map,
    token,
    webhook_urls,
)
from ingest.config.source_settings import (
    AvroSettings,
    FileSourceSettings,
    KafkaSourceSettings,
    SourceSettings,
    source_settings_from_json,
)
from ingest.logs import DEFAULT_REPEATS
from storage.errors import InvalidOptionError
from storage.io.object_store_options import redacted_options
from storage.options.options import option_value

# Sections of the configuration as frozen values; each setting is declared at its attribute.
#
# Settings of the source are in `source_settings`, of its schema registry in `registry_settings`, of
# entries of `tables` and `route` in `rule_settings`; `settings.Settings` combines them.


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


# The lists of a configuration: entries of `tables` and of `route`.


def _kinds_of_masks(masks: Mapping[str, str]) -> dict[str, str]:
    """Return masks without their arguments, which may be salts."""
    return {column: mask.partition("(")[0] for column, mask in masks.items()}


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True, repr=False)
class TableRule(Section):
    """One entry of `tables`; of several that match a table, later ones override key by key.

    None = not set. `table_properties` also contains `bucket` and `changelog_producer`.
    """

    match: str = setting("match", table_pattern, required=True)
    """Target tables of the rule, as `database.table`; `*` and `?` are wildcards."""

    primary_key: tuple[str, ...] = setting("primary.key", text_list)
    """Primary key, for events without a Kafka key and for keys with fields that no row has
    (Debezium's topic routing adds one). Default: the columns of the Kafka key."""

    bucket: str | None = setting("bucket", bucket_count)
    """Short for the table property `bucket`; `auto` chooses the number of buckets of a new table by
    the size of its topics, once: one per 2 GiB of events, rounded to a power of two. A partitioned
    table gets one per partition."""

    table_properties: Mapping[str, str] = setting(
        "table.properties", text_map, secret=redact_properties
    )
    """Paimon options of the tables; override `sink.table.properties`."""

    toast: str | None = setting("toast", choice("keep", "null", "fail"), default="keep", unset=None)
    """Handling of a large value that PostgreSQL omits from an update because it did not change
    (TOAST): `keep` the stored one, store `null`, or send the record to quarantine (`fail`). Tables
    with aggregation cannot keep values: for them `keep` means `fail`."""

    bad_records: str | None = setting(
        "bad.records", choice("quarantine", "skip", "fail"), default="quarantine", unset=None
    )
    """Handling of records that cannot be decoded: `quarantine` stores them in the quarantine table,
    `skip` counts and drops them (without a copy in `bad.records.topic`), `fail` parks the table at
    the first one."""

    changelog_producer: str | None = setting(
        "changelog-producer", choice("none", "input", "lookup", "full-compaction")
    )
    """Short for the table property `changelog-producer`."""

    columns_exclude: tuple[str, ...] | None = setting("columns.exclude", text_list, unset=None)
    """Columns of the source to omit from the table; expressions may still use them."""

    computed: tuple[str, ...] | None = setting("computed", text_list, unset=None)
    """Computed columns, `name = expression` each; see [Filters, computed columns,
    masks](transforms.md)."""

    filter: str | None = setting("filter", text)
    """Condition; rows that do not satisfy it are not in the table. An update after which a row no
    longer satisfies it deletes the row."""

    mask: Mapping[str, str] | None = setting("mask", text_map, unset=None, secret=_kinds_of_masks)
    """Masks by column: `sha256('salt')`, `md5('salt')`, `first(n)`, `last(n)`, `redact`, `null`.
    Masks of several matching rules are combined."""

    deletes: str | None = setting("deletes", choice("hard", "soft"), default="hard", unset=None)
    """Whether a delete removes the row, or sets `<prefix>deleted` (`soft`)."""

    partition_by: tuple[str, ...] | None = setting("partition.by", text_list, unset=None)
    """Partition columns of a new table: names, or `name = expression`. A column that is not in the
    primary key requires `bucket: -1`."""

    on_incompatible: str | None = setting(
        "on.incompatible",
        choice("quarantine_rows", "quarantine_table", "new_column", "string", "fail"),
        default="quarantine_rows",
        unset=None,
    )
    """Handling of a column whose new type its type cannot be widened to. `quarantine_rows`: rows
    that need it go to quarantine; `new_column`: the values go to an additional column `<name>_<n>`;
    `string`: the column becomes STRING if every value has a text form, else as `new_column`;
    `quarantine_table`: the table is parked; `fail`: the stream stops, which is the default with
    `evolve`."""

    compaction: str | None = setting("compaction", choice("inline", "dedicated", "off"))
    """Who compacts the table: this stream (`inline`), `lakeward compact` (`dedicated`), or no
    process (`off`). With the last two the stream only writes, and tables that it creates get the
    table property `write-only`. Default: as that property of the table says."""

    freshness_s: float | None = setting("freshness", duration)
    """Maximum delay of the next snapshot of the table; overrides `pipeline.trigger.idle.commit`. A
    value up to the trigger interval means every batch. A topic of several tables waits for the
    shortest delay."""

    watermark: str | None = setting("watermark", text)
    """`<column> - <interval>`: watermark of snapshots, the maximum of the TIMESTAMP column so far
    minus the interval. It never decreases, and idle partitions do not hold it back."""

    on_resnapshot: str | None = setting("on.resnapshot", choice("upsert", removed=SWEEP_REMOVED))
    """Overrides `source.on.resnapshot` for this table."""

    @property
    def auto_bucket(self) -> bool | None:
        """Whether the size of the topics determines the buckets of a new table."""
        return None if self.bucket is None else self.bucket == "auto"

    def covers(self, table: str) -> bool:
        """Return whether the rule applies to `database.table`."""
        return fnmatch.fnmatchcase(table, self.match)


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True, repr=False)
class Shard(Section):
    """A column that distinguishes the source tables of a shared table."""

    column: str = setting("shard.column", text)
    """Column that is added if several source tables share one table."""

    value: str = setting("shard.value", text, default="${source.db}")
    """Value of that column; may contain the references of `sink-table`."""

    in_primary_key: bool = setting("shard.in.primary.key", boolean, default=True)
    """Whether the shard column comes first in the primary key."""


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True, repr=False)
class Route(Section):
    """One entry of `route`; the first whose pattern matches a source table applies."""

    source_table: str = setting("source-table", text, required=True)
    """Regular expression that must match the full address of a source table:
    `server.database.schema.table` as in the events (the server is the connector's topic prefix and
    may be omitted; MySQL has no schema)."""

    sink_table: str = setting("sink-table", text, required=True)
    """Target table: `database.table`, or `table` in the default database. `$1`…`$9` are groups of
    the pattern, `<>` is the name of the source table, `${source.server}`, `${source.db}`,
    `${source.schema}` and `${source.table}` are parts of its address."""

    shard: Shard | None = section(Shard, default=None)
    keys_are_unique: bool = setting("shard.keys.are.unique", boolean, default=False)
    """Declares that no key occurs in two of the source tables, so that they may share a table
    without a shard column in the key."""

    @property
    def shares(self) -> bool:
        """Whether the rule lets several source tables share one table."""
        return self.shard is not None or self.keys_are_unique


_T = TypeVar("_T")

HISTORY_NAME = "_schema_history"
"""Name of the table of schema changes in the default database."""

QUARANTINE_NAME = "_quarantine"
"""Name of the quarantine table in the default database."""

NOT_YET = {
    "transform": "use `filter`, `computed`, `mask` and `columns.exclude` in a rule of `tables`",
    "source.debezium.ignore": "remove it",
}
"""Planned keys, and everything below them; using one is an error with this hint."""

SOURCE_TYPE = Setting(
    key="source.type",
    kind=choice("kafka", "files"),
    required=True,
    doc="`kafka`, or `files`: a directory of events, one per line (archived topics).",
)
"""Selects the class of the source settings; stored in their `kind`."""


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True, repr=False)
class Settings:
    """All settings of a pipeline. Picklable; `repr` shows no secret."""

    pipeline: PipelineSettings = section(PipelineSettings)
    format: str = setting("source.format", choice(*FORMATS), default="debezium-json")
    """Format of the events. `debezium-json`: envelopes, with or without schema block.
    `debezium-avro`: envelopes in Avro, with a schema registry. `debezium-flat`: rows of
    `ExtractNewRecordState`. `upsert-json`: key and row, a null value deletes; `upsert-avro`:
    the same in Avro. `canal-json`, `maxwell-json`, `ogg-json`, `aws-dms-json`: events of these
    tools. `json`: every record is an insert; tables need no primary key."""

    flat: FlatSettings = section(FlatSettings)
    source: SourceSettings = section(KafkaSourceSettings, FileSourceSettings)
    debezium: DebeziumSettings = section(DebeziumSettings)
    avro: AvroSettings | None = section(AvroSettings, default=None)
    events: EventSettings = section(EventSettings, default=EventSettings())
    sink: SinkSettings = section(SinkSettings)
    tables: tuple[TableRule, ...]
    routes: tuple[Route, ...]
    bad_records: BadRecordSettings = section(BadRecordSettings)
    maintenance: MaintenanceSettings = section(MaintenanceSettings)
    metrics: MetricsSettings = section(MetricsSettings)
    control: ControlSettings = section(ControlSettings, default=ControlSettings())
    alerts: AlertSettings = section(AlertSettings, default=AlertSettings())
    log: LogSettings = section(LogSettings)
    life: LifeSettings = section(LifeSettings, default=LifeSettings())
    spark: SparkSettings = section(SparkSettings)

    def property_sets(self) -> Iterator[tuple[str, dict[str, str]]]:
        """Yield all options for creating tables, by key of the setting that they are from."""
        common = dict(self.sink.table_properties)
        yield "sink.table.properties", common
        for number, rule in enumerate(self.tables):
            yield f"tables[{number}].table.properties", {**common, **rule.table_properties}

    def table_properties(self, table: str) -> dict[str, str]:
        """Return the options for creating `database.table`: those of the sink and of rules."""
        properties = dict(self.sink.table_properties)
        for rule in self.tables:
            if rule.covers(table):
                properties.update(rule.table_properties)
        return properties

    def primary_key(self, table: str) -> tuple[str, ...]:
        """Return the configured primary key of a table; empty = that of the Kafka key."""
        keys = [rule.primary_key for rule in self.tables if rule.covers(table)]
        return next((key for key in reversed(keys) if key), ())

    def toast(self, table: str) -> str:
        """Return the handling of TOAST values of a table: `keep`, `null` or `fail`."""
        return self.rule_value(table, lambda rule: rule.toast) or _TOAST

    def bad_policy(self, table: str) -> str:
        """Return the handling of bad records of a table: `quarantine`, `skip` or `fail`."""
        return self.rule_value(table, lambda rule: rule.bad_records) or _BAD_RECORDS

    def rule_value(self, table: str, value: Callable[[TableRule], _T | None]) -> _T | None:
        """Return the value of the last matching rule that sets it; None = no rule does."""
        values = (value(rule) for rule in reversed(self.tables) if rule.covers(table))
        return next((item for item in values if item is not None), None)

    @property
    def history_table(self) -> str:
        """Name of the table of schema changes."""
        return f"{self.sink.default_database}.{HISTORY_NAME}"

    @property
    def own_tables(self) -> tuple[tuple[str, str], ...]:
        """Names of Lakeward's own tables, with their purpose."""
        return (
            (self.bad_records.table, "quarantine"),
            (self.history_table, "history of schema changes"),
        )

    @property
    def appends(self) -> bool:
        """Whether every record is an insert, so tables need no primary key."""
        return self.format == "json"

    def to_json(self) -> str:
        """Encode as JSON, secrets included, without settings of the driver; see `from_json`."""
        values = msgspec.to_builtins(self)
        del values["control"], values["alerts"]
        return json.dumps(values, sort_keys=True)

    @staticmethod
    def from_json(text: str | bytes) -> "Settings":
        """Decode the JSON of `to_json`; `control` and `alerts` have their defaults.

        Raises:
            InvalidOptionError: the text is not from `to_json` of this version.
        """
        types = get_type_hints(Settings)
        try:
            raw = json.loads(text)
            source = source_settings_from_json(json.dumps(raw.pop("source")))
            members = {name: msgspec.convert(value, types[name]) for name, value in raw.items()}
            return Settings(source=source, **members)
        except (ValueError, KeyError, TypeError, msgspec.MsgspecError) as error:
            raise InvalidOptionError("malformed settings", detail=str(error)) from error

    def redacted(self) -> dict[str, Any]:
        """Return nested plain values without secrets, for a log or a status page."""
        return redacted(self)

    def __repr__(self) -> str:
        return f"Settings({json.dumps(self.redacted(), sort_keys=True)})"


SETTINGS = (SOURCE_TYPE, *declared(Settings))
TABLE_SETTINGS = declared(TableRule)
ROUTE_SETTINGS = declared(Route)

_TOAST = fields_declared(TableRule)["toast"].default
_BAD_RECORDS = fields_declared(TableRule)["bad_records"].default


# Compaction mode of a table: effect of `tables[].compaction` on tables and writers.
#
# `inline` = this stream compacts; `dedicated` = `lakeward compact` or another job does; `off` = no
# process does. With the last two the stream only writes. A table that the stream creates gets the
# option `write-only`, which all writers honour; for an existing table the stream uses a dynamic
# option. Without a rule the option of the table applies.


WRITE_ONLY = "write-only"
_INLINE = "inline"


def created_options(settings: Settings, table: str) -> dict[str, str]:
    """Return the options of a new table."""
    word = settings.rule_value(table, lambda rule: rule.compaction)
    return {} if word is None else {WRITE_ONLY: _text(word)}


def passing_options(
    settings: Settings, table: str, stored: Mapping[str, str]
) -> dict[str, str | None]:
    """Return the dynamic options that the stream uses for an existing table.

    Args:
        table: `database.table`.
        stored: stored options of the table.
    """
    options = created_options(settings, table)
    return {
        key: text
        for key, text in options.items()
        if option_value(stored, key) is not (text == "true")
    }


def check_compaction(settings: Settings) -> None:
    """Refuse contradictory rules.

    Raises:
        InvalidOptionError: `compaction` and the option `write-only` contradict each other.
    """
    for number, rule in enumerate(settings.tables):
        if rule.compaction is None:
            continue
        properties = {**settings.sink.table_properties, **rule.table_properties}
        value = properties.get(WRITE_ONLY)
        if value is not None and option_value(properties, WRITE_ONLY) is not (
            _text(rule.compaction) == "true"
        ):
            scope = f"tables[{number}]" if WRITE_ONLY in rule.table_properties else "sink"
            raise InvalidOptionError(
                f"`compaction: {rule.compaction}` contradicts the table property "
                f"`{WRITE_ONLY}: {value}`",
                hint=f"remove `{WRITE_ONLY}` from `{scope}.table.properties`: `compaction` sets it",
                key=f"tables[{number}].compaction",
                value=rule.compaction,
            )


def _text(word: str) -> str:
    return "false" if word == _INLINE else "true"


# Where a stream keeps what is not in its tables: `<warehouse>/.lakeward/<stream>`.


def stream_folder(warehouse: str, stream: str) -> str:
    """The folder, beside the databases; it need not exist."""
    return f"{warehouse.rstrip('/')}/.lakeward/{stream}"
