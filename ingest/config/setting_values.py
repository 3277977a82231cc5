# SPDX-License-Identifier: Apache-2.0
"""The pipeline's settings as frozen values that pickle, travel as JSON and hide secrets in `repr`.

How they are made from files, environment and flags is `settings`' business; what each of them
means is written in `setting_table`.
"""

import dataclasses
import fnmatch
import json
from collections.abc import Callable, Mapping
from typing import Any, TypeVar

from ingest.config.routing import Route, Routing, Shard
from ingest.config.setting_avro import AvroSettings, avro_from_json, redacted_avro
from ingest.config.setting_lifecycle import LifeSettings
from ingest.config.setting_operating import (
    NO_ALERTS,
    NO_CONTROL,
    AlertSettings,
    ControlSettings,
    redacted_operating,
)
from ingest.config.source_settings import (
    SourceSettings,
    redact_properties,
    source_settings_from_json,
)
from ingest.config.type_mapping import TypeMapping
from ingest.decode.json.debezium_json import DebeziumOptions
from ingest.decode.json.envelopes import DialectOptions
from ingest.transform.rule_names import source_key
from ingest.transform.rules import TransformRule
from storage.errors import InvalidOptionError
from storage.io.object_store.options import redacted_options

__all__ = [
    "HISTORY_NAME",
    "QUARANTINE_NAME",
    "BadRecordSettings",
    "DebeziumSettings",
    "EventSettings",
    "FlatSettings",
    "LogSettings",
    "MaintenanceSettings",
    "MetricsSettings",
    "PipelineSettings",
    "Settings",
    "SinkSettings",
    "SparkSettings",
    "TableRule",
]

_T = TypeVar("_T")

_LIFE = LifeSettings()

HISTORY_NAME = "_schema_history"
"""Name of the table of schema changes in the default database."""

QUARANTINE_NAME = "_quarantine"
"""Name of the quarantine table in the default database."""


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class PipelineSettings:
    """Attributes are the `pipeline.*` settings; durations in seconds, sizes in bytes."""

    name: str
    checkpoint: str
    trigger_interval_s: float
    max_records: int
    max_bytes: int
    schema_change_behavior: str
    idle_commit_s: float | None = None


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class DebeziumSettings:
    """Facts about the producer that events do not carry: `source.debezium.*`."""

    decimal_handling_mode: str
    binary_handling_mode: str
    time_precision_mode: str
    unavailable_value_placeholder: str


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class EventSettings:
    """What events mean to tables: `source.ordering`, `source.on.*` and the topics beside them."""

    ordering: str = "kafka"
    on_truncate: str = "ignore"
    on_resnapshot: str = "upsert"
    schema_change_topic: str | None = None
    signal_topic: str | None = None
    notification_topic: str | None = None
    names_case: str = "insensitive"

    @property
    def exact_names(self) -> bool:
        """Whether a column that is spelt in another case is another column."""
        return self.names_case == "exact"


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class FlatSettings:
    """Facts about flattened events: `source.flat.*`."""

    metadata_prefix: str
    metadata_columns: tuple[str, ...]
    tombstones: str


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class SinkSettings:
    """Attributes are the `sink.*` settings; `warehouse` is an absolute path or a URL."""

    warehouse: str
    default_database: str
    table_properties: Mapping[str, str]
    options: Mapping[str, str] = dataclasses.field(default_factory=dict, repr=False)
    include_schema_changes: tuple[str, ...] = ()
    exclude_schema_changes: tuple[str, ...] = ()
    type_mapping: tuple[str, ...] = ()
    metadata_columns: tuple[str, ...] = ()
    metadata_prefix: str = "_cdc_"
    time_zone: str = "UTC"
    sanitize_names: bool = False


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class TableRule:
    """One entry of `tables`; of several that match a table, later ones win key by key.

    None = the entry does not say.
    """

    match: str
    primary_key: tuple[str, ...] = ()
    table_properties: Mapping[str, str] = dataclasses.field(default_factory=dict)
    toast: str | None = None
    auto_bucket: bool | None = None
    bad_records: str | None = None
    columns_exclude: tuple[str, ...] | None = None
    computed: tuple[str, ...] | None = None
    filter: str | None = None
    mask: Mapping[str, str] | None = dataclasses.field(default=None, repr=False)
    deletes: str | None = None
    partition_by: tuple[str, ...] | None = None
    on_incompatible: str | None = None
    compaction: str | None = None
    freshness_s: float | None = None
    watermark: str | None = None
    on_resnapshot: str | None = None

    def covers(self, table: str) -> bool:
        """Whether the rule is for `database.table`."""
        return fnmatch.fnmatchcase(table, self.match)


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class BadRecordSettings:
    """Attributes are the `bad.records.*` settings."""

    table: str
    topic: str | None = None
    max_ratio: float | None = None


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class MaintenanceSettings:
    """Attributes are the `maintenance.*` settings; durations in seconds."""

    snapshot_retain_s: float | None
    compaction_window: str | None = None
    orphan_clean_s: float | None = None


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class MetricsSettings:
    """Attributes are the `metrics.*` settings."""

    enabled: bool
    host: str
    port: int
    labels: Mapping[str, str] = dataclasses.field(default_factory=dict)
    per_table: bool = True
    max_tables: int = 500


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class LogSettings:
    """Attributes are the `log.*` settings."""

    level: str
    format: str


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class SparkSettings:
    """Attributes are the `spark.*` settings; None and empty mean Lakeward chooses."""

    master: str | None
    parallelism: int | None
    conf: Mapping[str, str]


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True, repr=False)
class Settings:
    """Everything a pipeline needs to know. Picklable; `repr` shows no secret.

    Attributes:
        pipeline: name, checkpoint, trigger.
        source: where events come from (one of the source settings values).
        format: format of the events.
        debezium: facts about the producer.
        flat: facts about flattened events.
        events: what events mean to tables.
        avro: schema registry and framing; None for formats that need none.
        sink: warehouse and defaults of new tables.
        tables: rules by table, later ones win.
        routes: which source table goes where; the first that fits wins.
        bad_records: quarantine.
        maintenance: upkeep of tables.
        metrics: HTTP endpoint.
        log: logging.
        spark: engine.
        life: of the daemon: ownership, stopping, outages.
        control: control over HTTP.
        alerts: webhooks.
    """

    pipeline: PipelineSettings
    source: SourceSettings
    format: str
    debezium: DebeziumSettings
    flat: FlatSettings
    sink: SinkSettings
    tables: tuple[TableRule, ...]
    routes: tuple[Route, ...]
    bad_records: BadRecordSettings
    maintenance: MaintenanceSettings
    metrics: MetricsSettings
    log: LogSettings
    spark: SparkSettings
    events: EventSettings = EventSettings()
    avro: AvroSettings | None = None
    life: LifeSettings = _LIFE
    control: ControlSettings = NO_CONTROL
    alerts: AlertSettings = NO_ALERTS

    def table_properties(self, table: str) -> dict[str, str]:
        """Options for creating `database.table`: the sink's, then each matching rule's."""
        properties = dict(self.sink.table_properties)
        for rule in self.tables:
            if rule.covers(table):
                properties.update(rule.table_properties)
        return properties

    def primary_key(self, table: str) -> tuple[str, ...]:
        """Configured primary key of `database.table`; empty = take it from the Kafka key."""
        keys = [rule.primary_key for rule in self.tables if rule.covers(table)]
        return next((key for key in reversed(keys) if key), ())

    def toast(self, table: str) -> str:
        """What becomes of values of `database.table` that the source does not send."""
        return self.rule_value(table, lambda rule: rule.toast) or "keep"

    def bad_policy(self, table: str) -> str:
        """What becomes of bad records of `database.table`: `quarantine`, `skip` or `fail`."""
        return self.rule_value(table, lambda rule: rule.bad_records) or "quarantine"

    @property
    def sweeps(self) -> bool:
        """Whether new snapshots of any table delete what they do not bring."""
        given = (self.events.on_resnapshot, *(rule.on_resnapshot for rule in self.tables))
        return "sweep" in given

    def sweeps_table(self, table: str) -> bool:
        """Whether a new snapshot of `database.table` deletes what it does not bring."""
        said = self.rule_value(table, lambda rule: rule.on_resnapshot)
        return (said or self.events.on_resnapshot) == "sweep"

    def rule_value(self, table: str, value: Callable[[TableRule], _T | None]) -> _T | None:
        """What the last rule for `database.table` that says it says; None = none does."""
        given = (value(rule) for rule in reversed(self.tables) if rule.covers(table))
        return next((each for each in given if each is not None), None)

    def transform(self, table: str) -> TransformRule:
        """What is asked of the rows of `database.table`; masks add up by column."""
        masks: dict[str, str] = {}
        for rule in self.tables:
            if rule.covers(table):
                masks.update(rule.mask or {})
        return TransformRule(
            filter=self.rule_value(table, lambda rule: rule.filter),
            computed=self.rule_value(table, lambda rule: rule.computed) or (),
            exclude=self.rule_value(table, lambda rule: rule.columns_exclude) or (),
            mask=masks,
            metadata=self.sink.metadata_columns,
            metadata_prefix=self.sink.metadata_prefix,
            soft_delete=self.rule_value(table, lambda rule: rule.deletes) == "soft",
            partition_by=self.rule_value(table, lambda rule: rule.partition_by) or (),
        )

    def source_key(self, table: str) -> tuple[str, ...]:
        """The columns of the source behind the configured primary key, as decoders know it."""
        key = self.primary_key(table)
        return source_key(self.transform(table), key) if key else ()

    @property
    def routing(self) -> Routing:
        """Which source table goes where."""
        sink = self.sink
        return Routing(self.routes, sink.default_database, self.own_tables, sink.sanitize_names)

    @property
    def history_table(self) -> str:
        """The table of schema changes."""
        return f"{self.sink.default_database}.{HISTORY_NAME}"

    @property
    def own_tables(self) -> tuple[tuple[str, str], ...]:
        """The tables that Lakeward keeps for itself, and what for."""
        return (
            (self.bad_records.table, "quarantine"),
            (self.history_table, "history of schema changes"),
        )

    def debezium_options(self) -> DebeziumOptions:
        """What the decoder needs to know that events do not carry."""
        return DebeziumOptions(
            **dataclasses.asdict(self.debezium),
            primary_keys=self.source_key,
            type_mapping=TypeMapping.of(self.sink.type_mapping),
        )

    @property
    def appends(self) -> bool:
        """Whether every record is an insert, so that tables need no primary key."""
        return self.format == "json"

    def dialect_options(self) -> DialectOptions:
        """As `debezium_options`, for the other formats."""
        options = DialectOptions(
            primary_keys=self.source_key,
            decimal_handling_mode=self.debezium.decimal_handling_mode,
            type_mapping=TypeMapping.of(self.sink.type_mapping),
        )
        if self.format != "debezium-flat":
            return options
        facts = {**dataclasses.asdict(self.debezium), **dataclasses.asdict(self.flat)}
        return dataclasses.replace(options, **facts)

    def to_json(self) -> str:
        """JSON text, secrets included, without what only the driver needs; see `from_json`."""
        values = _plain(self)
        del values["control"], values["alerts"]
        values["source"] = json.loads(self.source.to_json())
        return json.dumps(values, sort_keys=True)

    @staticmethod
    def from_json(text: str | bytes) -> "Settings":
        """Inverse of `to_json`; `control` and `alerts` are as if nothing was set.

        Raises:
            InvalidOptionError: the text was not made by this version's `to_json`.
        """
        try:
            raw = json.loads(text)
            return Settings(
                pipeline=PipelineSettings(**raw["pipeline"]),
                source=source_settings_from_json(json.dumps(raw["source"])),
                format=raw["format"],
                debezium=DebeziumSettings(**raw["debezium"]),
                flat=FlatSettings(**_tuples(raw["flat"])),
                sink=SinkSettings(**_tuples(raw["sink"])),
                tables=tuple(TableRule(**_tuples(rule)) for rule in raw["tables"]),
                routes=tuple(_route(rule) for rule in raw["routes"]),
                bad_records=BadRecordSettings(**raw["bad_records"]),
                maintenance=MaintenanceSettings(**raw["maintenance"]),
                metrics=MetricsSettings(**raw["metrics"]),
                log=LogSettings(**raw["log"]),
                spark=SparkSettings(**raw["spark"]),
                events=EventSettings(**raw["events"]),
                avro=avro_from_json(raw["avro"]),
                life=LifeSettings(**raw["life"]),
            )
        except (ValueError, KeyError, TypeError) as error:
            raise InvalidOptionError("malformed settings", detail=str(error)) from error

    def redacted(self) -> dict[str, Any]:
        """Nested plain values fit for a log or a status page."""
        values = _plain(self)
        source = json.loads(self.source.to_json())
        if "properties" in source:
            source["properties"] = redact_properties(source["properties"])
        values["source"] = source
        values["avro"] = redacted_avro(values["avro"])
        values |= redacted_operating(values["control"], values["alerts"])
        values["spark"]["conf"] = redact_properties(values["spark"]["conf"])
        values["sink"]["options"] = redacted_options(values["sink"]["options"])
        values["sink"]["table_properties"] = redact_properties(values["sink"]["table_properties"])
        for rule in values["tables"]:
            rule["table_properties"] = redact_properties(rule["table_properties"])
            if rule["mask"]:
                rule["mask"] = {
                    column: _kind_of_mask(mask) for column, mask in rule["mask"].items()
                }
        return values

    def __repr__(self) -> str:
        return f"Settings({json.dumps(self.redacted(), sort_keys=True)})"


def _tuples(raw: Mapping[str, Any]) -> dict[str, Any]:
    """Values from JSON with tuples for its lists."""
    return {key: tuple(each) if isinstance(each, list) else each for key, each in raw.items()}


def _kind_of_mask(text: str) -> str:
    """A mask without what is in its brackets, which may be a salt."""
    return text.partition("(")[0]


def _route(raw: Mapping[str, Any]) -> Route:
    shard = None if raw["shard"] is None else Shard(**raw["shard"])
    return Route(**{**raw, "shard": shard})


def _plain(settings: Settings) -> dict[str, Any]:
    values: dict[str, Any] = {}
    for field in dataclasses.fields(settings):
        value = getattr(settings, field.name)
        if field.name == "source":
            continue
        if field.name in ("tables", "routes"):
            values[field.name] = [dataclasses.asdict(rule) for rule in value]
        else:
            values[field.name] = dataclasses.asdict(value) if _is_value(value) else value
    return values


def _is_value(value: object) -> bool:
    return dataclasses.is_dataclass(value)
