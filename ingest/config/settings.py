# SPDX-License-Identifier: Apache-2.0
"""The settings of a pipeline: frozen values that pickle, travel as JSON and hide secrets in `repr`.

Each is declared where its value is (`setting`). `loading` makes them from files, environment and
flags; what takes more than settings to check is checked in `ingest.daemon.configuration`.
"""

import dataclasses
import json
from collections.abc import Callable
from typing import Any, TypeVar, get_type_hints

import msgspec

from ingest.config.choices import FORMATS
from ingest.config.registry_settings import AvroSettings
from ingest.config.rule_settings import Route, TableRule
from ingest.config.setting import (
    Setting,
    declared,
    fields_declared,
    redacted,
    section,
    setting,
)
from ingest.config.setting_kinds import choice
from ingest.config.setting_values import (
    AlertSettings,
    BadRecordSettings,
    ControlSettings,
    DebeziumSettings,
    EventSettings,
    FlatSettings,
    LifeSettings,
    LogSettings,
    MaintenanceSettings,
    MetricsSettings,
    PipelineSettings,
    SinkSettings,
    SparkSettings,
)
from ingest.config.source_settings import (
    FileSourceSettings,
    KafkaSourceSettings,
    SourceSettings,
    source_settings_from_json,
)
from storage.errors import InvalidOptionError

__all__ = [
    "HISTORY_NAME",
    "NOT_YET",
    "QUARANTINE_NAME",
    "ROUTE_SETTINGS",
    "SETTINGS",
    "SOURCE_TYPE",
    "TABLE_SETTINGS",
    "Settings",
]

_T = TypeVar("_T")

HISTORY_NAME = "_schema_history"
"""Name of the table of schema changes in the default database."""

QUARANTINE_NAME = "_quarantine"
"""Name of the quarantine table in the default database."""

NOT_YET: tuple[str, ...] = ("transform", "source.debezium.ignore")
"""Keys (and everything below them) that are planned; using one is an error that says so."""

SOURCE_TYPE = Setting(
    key="source.type",
    kind=choice("kafka", "files"),
    required=True,
    doc="`kafka`, or `files`: a directory of events, one per line (archived topics).",
)
"""It decides which source settings there are, and is in their `kind`."""


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True, repr=False)
class Settings:
    """Everything a pipeline needs to know. Picklable; `repr` shows no secret."""

    pipeline: PipelineSettings = section(PipelineSettings)
    format: str = setting("source.format", choice(*FORMATS), default="debezium-json")
    """Format of the events. `debezium-json`: envelopes, with or without schema block per event.
    `debezium-avro`: envelopes in Avro, with a schema registry. `debezium-flat`: rows of
    `ExtractNewRecordState`. `upsert-json`: key and row, a null value deletes; `upsert-avro`:
    the same in Avro. `canal-json`, `maxwell-json`, `ogg-json`, `aws-dms-json`: of those tools.
    `json`: every record is an insert, into tables that need no primary key."""

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
        return self.rule_value(table, lambda rule: rule.toast) or _TOAST

    def bad_policy(self, table: str) -> str:
        """What becomes of bad records of `database.table`: `quarantine`, `skip` or `fail`."""
        return self.rule_value(table, lambda rule: rule.bad_records) or _BAD_RECORDS

    def rule_value(self, table: str, value: Callable[[TableRule], _T | None]) -> _T | None:
        """What the last rule for `database.table` that says it says; None = none does."""
        given = (value(rule) for rule in reversed(self.tables) if rule.covers(table))
        return next((each for each in given if each is not None), None)

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

    @property
    def appends(self) -> bool:
        """Whether every record is an insert, so that tables need no primary key."""
        return self.format == "json"

    def to_json(self) -> str:
        """JSON text, secrets included, without what only the driver needs; see `from_json`."""
        values = msgspec.to_builtins(self)
        del values["control"], values["alerts"]
        return json.dumps(values, sort_keys=True)

    @staticmethod
    def from_json(text: str | bytes) -> "Settings":
        """Inverse of `to_json`; `control` and `alerts` are as if nothing was set.

        Raises:
            InvalidOptionError: the text was not made by this version's `to_json`.
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
        """Nested plain values fit for a log or a status page."""
        return redacted(self)

    def __repr__(self) -> str:
        return f"Settings({json.dumps(self.redacted(), sort_keys=True)})"


SETTINGS = (SOURCE_TYPE, *declared(Settings))
TABLE_SETTINGS = declared(TableRule)
ROUTE_SETTINGS = declared(Route)

_TOAST = fields_declared(TableRule)["toast"].default
_BAD_RECORDS = fields_declared(TableRule)["bad_records"].default
