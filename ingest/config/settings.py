# SPDX-License-Identifier: Apache-2.0
"""Settings of a pipeline: frozen, picklable values with a JSON round trip; `repr` hides secrets.

Each setting is declared at its attribute (`setting`). `loading` reads them from files, environment
and flags; checks that need more than settings are in `ingest.daemon.configuration`.
"""

import dataclasses
import json
from collections.abc import Callable, Iterator
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
