# SPDX-License-Identifier: Apache-2.0
"""Makes the pipeline's settings from YAML files, environment and flags.

`load_settings` is the way in; `resolve` also tells where each value came from. Which settings exist
is in `setting_table`, how texts become values in `setting_kinds`, rules of the lists `tables` and
`route` in `setting_rules`, where texts come from in `settings_sources`, what the result looks like
in `setting_values`. Run as a program, this module writes or checks the reference page:

    python -m ingest.config.settings [--write | --check]

Precedence: flag, then environment (`LAKEWARD__SOURCE__BOOTSTRAP_SERVERS` is
`source.bootstrap.servers`), then file, then default. Of several files the later wins.
"""

import dataclasses
import difflib
import os
import re
import sys
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, TypeVar

import yaml

from ingest.config.compaction_mode import check_compaction
from ingest.config.dead_letter_checks import check_dead_letters
from ingest.config.locations import Mistakes, Places, named
from ingest.config.ordering_rules import check_ordering
from ingest.config.routing import Route
from ingest.config.setting_avro import avro_settings
from ingest.config.setting_kinds import Setting
from ingest.config.setting_lifecycle import LifeSettings
from ingest.config.setting_operating import operating_settings
from ingest.config.setting_rules import (
    not_yet,
    parse_setting,
    route_rule,
    rule_list,
    suggestion,
    table_rule,
)
from ingest.config.setting_table import NOT_YET, SETTINGS
from ingest.config.setting_values import (
    QUARANTINE_NAME,
    BadRecordSettings,
    DebeziumSettings,
    EventSettings,
    FlatSettings,
    LogSettings,
    MaintenanceSettings,
    MetricsSettings,
    PipelineSettings,
    Settings,
    SinkSettings,
    SparkSettings,
    TableRule,
)
from ingest.config.settings_page import settings_page
from ingest.config.settings_sources import (
    ENVIRONMENT_PREFIX,
    Given,
    flatten,
    interpolate,
    read_document,
)
from ingest.config.shown_settings import shown_settings
from ingest.config.source_settings import (
    FileSourceSettings,
    KafkaSourceSettings,
    SourceSettings,
    with_topic,
)
from ingest.config.stream_folder import stream_folder
from ingest.config.sweep_checks import check_sweeps
from ingest.config.transform_checks import check_transforms
from ingest.config.type_mapping import TypeMapping
from ingest.decode.column_names import folded
from ingest.decode.dialects.formats import BARE_ROW_FORMATS
from ingest.kubernetes.pods import default_parallelism
from ingest.schema.event_time import check_watermarks
from storage.errors import InvalidOptionError, InvalidRequestError, LakewardError
from storage.io.resolve import is_local, resolve_file_io
from storage.options.options import TableOptions

__all__ = ["Resolved", "Settings", "TableRule", "load_settings", "resolve"]

_Rule = TypeVar("_Rule")
_MAPS = tuple(row.key for row in SETTINGS if row.kind.mapping)
_BY_KEY = {row.key: row for row in SETTINGS}
_PAGE = Path(__file__).resolve().parents[2] / "docs/reference/configuration.md"
_URI = re.compile(r"[A-Za-z][A-Za-z0-9+.-]*:/")


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Resolved:
    """Settings, and where each explicitly given one came from.

    Attributes:
        settings: the values in force.
        lines: (key, value as it may be shown, origin) in the order of the reference.
        places: where the files say what.
    """

    settings: Settings
    lines: tuple[tuple[str, str, str], ...]
    places: Places


def load_settings(
    paths: Path | str | Sequence[Path | str],
    overrides: Mapping[str, Any] | None = None,
    *,
    environ: Mapping[str, str] | None = None,
) -> Settings:
    """Settings from one or more YAML files (`-` is standard input).

    Args:
        paths: files; of several, later ones win.
        overrides: dotted keys from flags; they win over everything.
        environ: environment; default is the process's.

    Raises:
        NotFoundError: a file is not there.
        InvalidOptionError: a key is unknown, or a value malformed, missing or contradicted.
        UnsupportedFeatureError: a key of a later version is used.
    """
    return resolve(paths, overrides, environ=environ).settings


def resolve(
    paths: Path | str | Sequence[Path | str],
    overrides: Mapping[str, Any] | None = None,
    *,
    environ: Mapping[str, str] | None = None,
) -> Resolved:
    """As `load_settings`, with the origin of every value."""
    environ = os.environ if environ is None else environ
    places, mistakes = Places(), Mistakes()
    try:
        return _resolved(paths, overrides or {}, environ, places, mistakes)
    except LakewardError as error:
        places.locate(error)
        raise


def _resolved(
    paths: Path | str | Sequence[Path | str],
    overrides: Mapping[str, Any],
    environ: Mapping[str, str],
    places: Places,
    mistakes: Mistakes,
) -> Resolved:
    given: dict[str, Given] = {}
    rules: list[object] = []
    routes: list[object] = []
    for path in [paths] if isinstance(paths, (str, Path)) else paths:
        document = read_document(path, places)
        for name, found in (("tables", rules), ("route", routes)):
            with mistakes():
                found += rule_list(interpolate(document.pop(name, None), environ, name), name)
        plain: dict[str, object] = {}
        for name, section in document.items():
            with mistakes():
                plain[name] = interpolate(section, environ, str(name))
        with mistakes():
            _merge(given, flatten(plain, _MAPS, "file"), mistakes)
    with mistakes():
        others = _from_environment(environ)
        others |= flatten(dict(overrides), _MAPS, "flag")
        places.forget(others)
        _merge(given, others, mistakes)
    values = _parse_all(given, mistakes)
    parsed_rules = _each(rules, table_rule, mistakes)
    parsed_routes = _each(routes, route_rule, mistakes)
    mistakes.check()
    settings = _build(values, parsed_rules, parsed_routes)
    for check in (
        _check_routes,
        check_transforms,
        _check_tables,
        check_dead_letters,
        check_ordering,
        check_compaction,
        check_watermarks,
        check_sweeps,
    ):
        with mistakes():
            check(settings)
    mistakes.check()
    lines = tuple(shown_settings(given, settings))
    return Resolved(settings=settings, lines=lines, places=places)


def _each(
    raw: Sequence[object], parse: Callable[[object, int], _Rule], mistakes: Mistakes
) -> list[_Rule]:
    found = []
    for number, rule in enumerate(raw):
        with mistakes():
            found.append(parse(rule, number))
    return found


def _check_routes(settings: Settings) -> None:
    settings.routing.check()
    if len({folded(name) for name, _ in settings.own_tables}) < len(settings.own_tables):
        raise InvalidOptionError(
            "Lakeward keeps the history of schema changes in this table",
            hint="give the quarantine table another name",
            key="bad.records.table",
            value=settings.bad_records.table,
        )


def _merge(target: dict[str, Given], newer: Mapping[str, Given], mistakes: Mistakes) -> None:
    """Add newer entries; entries of map settings are merged name by name."""
    for key, entry in newer.items():
        owner = key if key in _BY_KEY else _map_of(key)
        if owner is None:
            mistakes.found.append(_unknown(key))
            continue
        if owner != key:  # one name inside a map, such as sink.table.properties.bucket
            entry = Given({key[len(owner) + 1 :]: entry.value}, entry.origin)
        known = target.get(owner)
        if known is not None and isinstance(known.value, Mapping):
            if isinstance(entry.value, Mapping):
                entry = Given({**known.value, **entry.value}, entry.origin)
            elif entry.value is None:
                continue
        target[owner] = entry


def _map_of(key: str) -> str | None:
    return next((each for each in _MAPS if key.startswith(each + ".")), None)


def _from_environment(environ: Mapping[str, str]) -> dict[str, Given]:
    """`LAKEWARD__A__B_C=v` is `a.b.c: v`."""
    by_name = {re.sub(r"[.-]", "_", row.key): row.key for row in SETTINGS}
    found: dict[str, Given] = {}
    for variable, value in sorted(environ.items()):
        if not variable.startswith(ENVIRONMENT_PREFIX):
            continue
        name = variable[len(ENVIRONMENT_PREFIX) :].lower().replace("__", "_")
        key = by_name.get(name)
        if key is None:
            close = difflib.get_close_matches(name, by_name, n=1)
            meant = f"did you mean {_variable_of(by_name[close[0]])}?" if close else ""
            raise InvalidOptionError("unknown setting", variable=variable, hint=meant)
        raw: object = value
        if _BY_KEY[key].kind.mapping:
            raw = _yaml_value(value, variable)
        found[key] = Given(raw, "environment")
    return found


def _yaml_value(text: str, variable: str) -> object:
    try:
        return yaml.safe_load(text)
    except yaml.YAMLError as error:
        raise InvalidOptionError("not a YAML map", variable=variable) from error


def _variable_of(key: str) -> str:
    section, _, rest = key.partition(".")
    return f"{ENVIRONMENT_PREFIX}{section}__{re.sub(r'[.-]', '_', rest)}".upper()


def _unknown(key: str) -> InvalidRequestError:
    planned = next((each for each in NOT_YET if key == each or key.startswith(each + ".")), None)
    if planned is not None:
        return not_yet(planned)
    return InvalidOptionError(
        "unknown setting", key=key, hint=suggestion(key, [*_BY_KEY, "tables", "route"])
    )


def _parse_all(given: Mapping[str, Given], mistakes: Mistakes) -> dict[str, Any]:
    values: dict[str, Any] = {}
    missing = [row.key for row in SETTINGS if row.required and row.key not in given]
    if missing:
        mistakes.found.append(
            InvalidOptionError(
                "a required setting is missing",
                hint="set " + " and ".join(f"`{key}`" for key in missing),
                key=missing[0],
            )
        )
    for row in SETTINGS:
        with mistakes():
            values[row.key] = _value_of(row, given.get(row.key))
    return values


def _value_of(row: Setting, entry: Given | None) -> Any:
    if entry is None:
        return None if row.default is None else parse_setting(row, row.default, row.key)
    value = parse_setting(row, entry.value, row.key)
    if row.kind.mapping and isinstance(row.default, Mapping):
        value = {**row.default, **value}
    return value


def _build(
    values: Mapping[str, Any], rules: Sequence[TableRule], routes: Sequence[Route]
) -> Settings:
    name = values["pipeline.name"]
    database = values["sink.default.database"]
    retain_s = values["maintenance.snapshot.retain"]
    properties = dict(values["sink.table.properties"])
    if retain_s is not None:
        properties.setdefault("snapshot.time-retained", f"{int(retain_s * 1000)} ms")
    options = values["sink.options"] or {}
    with named("sink.warehouse", below="sink.options"):
        warehouse = resolve_file_io(values["sink.warehouse"], options)[1]
    return Settings(
        pipeline=PipelineSettings(
            name=name,
            checkpoint=_checkpoint(values["pipeline.checkpoint"], warehouse, name),
            trigger_interval_s=values["pipeline.trigger.interval"],
            max_records=values["pipeline.trigger.max.records"],
            max_bytes=values["pipeline.trigger.max.bytes"],
            schema_change_behavior=values["pipeline.schema.change.behavior"],
            idle_commit_s=values["pipeline.trigger.idle.commit"],
        ),
        source=with_topic(_named_source(values), values["source.debezium.schema.change.topic"]),
        format=values["source.format"],
        debezium=DebeziumSettings(
            decimal_handling_mode=values["source.debezium.decimal.handling.mode"],
            binary_handling_mode=values["source.debezium.binary.handling.mode"],
            time_precision_mode=values["source.debezium.time.precision.mode"],
            unavailable_value_placeholder=values["source.debezium.unavailable.value.placeholder"],
        ),
        flat=FlatSettings(
            metadata_prefix=values["source.flat.metadata.prefix"],
            metadata_columns=values["source.flat.metadata.columns"] or (),
            tombstones=values["source.flat.tombstones"],
        ),
        sink=SinkSettings(
            warehouse=warehouse,
            default_database=database,
            table_properties=properties,
            options=options,
            include_schema_changes=values["sink.include.schema.changes"] or (),
            exclude_schema_changes=values["sink.exclude.schema.changes"] or (),
            type_mapping=tuple(sorted(TypeMapping.of(values["sink.type.mapping"] or ()).words)),
            metadata_columns=values["sink.metadata.columns.columns"] or (),
            metadata_prefix=values["sink.metadata.columns.prefix"],
            time_zone=values["sink.time.zone"],
            sanitize_names=values["sink.names.sanitize"],
        ),
        tables=tuple(rules),
        routes=tuple(routes),
        bad_records=BadRecordSettings(
            table=values["bad.records.table"] or f"{database}.{QUARANTINE_NAME}",
            topic=values["bad.records.topic"],
            max_ratio=values["bad.records.max.ratio"],
        ),
        maintenance=MaintenanceSettings(
            snapshot_retain_s=retain_s,
            compaction_window=values["maintenance.compaction.window"],
            orphan_clean_s=values["maintenance.orphan.clean"],
        ),
        metrics=MetricsSettings(
            enabled=values["metrics.enabled"],
            host=values["metrics.host"],
            port=values["metrics.port"],
            labels=values["metrics.labels"] or {},
            per_table=values["metrics.per.table"],
            max_tables=values["metrics.max.tables"],
        ),
        log=LogSettings(level=values["log.level"], format=values["log.format"]),
        spark=SparkSettings(
            master=values["spark.master"],
            parallelism=values["spark.parallelism"],
            conf=values["spark.conf"] or {},
        ),
        events=EventSettings(
            ordering=values["source.ordering"],
            on_truncate=values["source.on.truncate"],
            on_resnapshot=values["source.on.resnapshot"],
            schema_change_topic=values["source.debezium.schema.change.topic"],
            signal_topic=values["source.debezium.signal.topic"],
            notification_topic=values["source.debezium.notification.topic"],
            names_case=values["source.names.case"],
        ),
        avro=avro_settings(values),
        life=LifeSettings.of(values),
        **operating_settings(values),
    )


def _checkpoint(location: str | None, warehouse: str, name: str) -> str:
    if location is None and not is_local(warehouse):
        raise InvalidOptionError(
            "a checkpoint beside this warehouse is not possible",
            detail="Spark keeps its offset log in local or mounted directories only",
            hint="set `pipeline.checkpoint` to one; offsets are also kept in the tables, so a "
            "volume that may be lost is enough",
            key="pipeline.checkpoint",
        )
    if location is None:
        return f"{stream_folder(warehouse, name)}/checkpoint"
    if _URI.match(location) and not location.startswith("file:"):
        raise InvalidOptionError(
            "the checkpoint must be a local or mounted directory",
            hint="offsets are also kept in the tables, so a volume that may be lost is enough",
            key="pipeline.checkpoint",
            value=location,
        )
    return resolve_file_io(location)[1]


_SOURCE_FACTS = {
    "property": "source.properties.{}",
    "startup_mode": "source.scan.startup.mode",
    "pattern": "source.topics.pattern",
    "excluded": "source.topics.exclude",
}
_KAFKA_ONLY = (
    "source.offsets.group",
    "source.bootstrap.servers",
    "source.properties",
    "source.scan.startup.offsets",
)


def _named_source(values: Mapping[str, Any]) -> SourceSettings:
    with named("source", _SOURCE_FACTS):
        return _source(values)


def _source(values: Mapping[str, Any]) -> SourceSettings:
    kind = values["source.type"]
    foreign = ("source.path", "source.lines") if kind == "kafka" else _KAFKA_ONLY
    for key in foreign:
        if values[key] not in (None, _BY_KEY[key].default):
            other = "files" if kind == "kafka" else "kafka"
            hint = f"remove it, or set `source.type: {other}`"
            raise InvalidOptionError(
                f"this setting is not for the {kind} source", hint=hint, key=key
            )
    common: dict[str, Any] = {
        "topics": values["source.topics"] or (),
        "topics_pattern": values["source.topics.pattern"] or "",
        "topics_exclude": values["source.topics.exclude"] or (),
        "startup_mode": values["source.scan.startup.mode"],
        "startup_timestamp_ms": values["source.scan.startup.timestamp"],
        "fail_on_data_loss": values["source.fail.on.data.loss"],
        "max_records": values["pipeline.trigger.max.records"],
        "max_bytes": values["pipeline.trigger.max.bytes"],
        "parallelism": values["spark.parallelism"]
        or default_parallelism(values["spark.master"], values["spark.conf"] or {}),
    }
    if values["source.topic.discovery.interval"] is not None:
        common["discovery_interval_s"] = values["source.topic.discovery.interval"]
    if kind == "files":
        path = values["source.path"]
        return FileSourceSettings(
            path=str(Path(path).expanduser().absolute()) if path else "",
            lines=_lines(values["source.lines"], values["source.format"]),
            **common,
        )
    return KafkaSourceSettings(
        bootstrap_servers=values["source.bootstrap.servers"] or "",
        startup_offsets=values["source.scan.startup.offsets"] or {},
        properties=values["source.properties"] or {},
        **common,
    )


def _lines(setting: str, name: str) -> str:
    """`FileSourceSettings.lines`: only where messages are rows may one look like a record."""
    return "ask" if setting == "auto" and name in BARE_ROW_FORMATS else setting


def _check_tables(settings: Settings) -> None:
    """Refuse malformed table options now rather than when the first table is made."""
    common = settings.sink.table_properties
    _check_options("sink.table.properties", common)
    for number, rule in enumerate(settings.tables):
        where = f"tables[{number}].table.properties"
        _check_options(where, {**common, **rule.table_properties})


def _check_options(where: str, properties: Mapping[str, str]) -> None:
    try:
        TableOptions.from_strings(properties)
    except InvalidRequestError as error:
        option = error.context.get("option")
        key = f"{where}.{option}" if option else where
        error.context = {"key": key, **error.context}
        raise


def main(arguments: Sequence[str] | None = None) -> int:
    """Write the reference page, or with `--check` say whether it is current."""
    mode = list(sys.argv[1:] if arguments is None else arguments) or ["--write"]
    if mode == ["--write"]:
        _PAGE.write_text(settings_page(), encoding="utf-8")
        return 0
    if mode != ["--check"]:
        sys.stderr.write("usage: python -m ingest.config.settings [--write | --check]\n")
        return 2
    if not _PAGE.exists() or _PAGE.read_text(encoding="utf-8") != settings_page():
        sys.stderr.write(f"{_PAGE.name} is out of date: run `make docs`\n")
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
