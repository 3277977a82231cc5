# SPDX-License-Identifier: Apache-2.0
"""Read the settings of a pipeline from YAML files, environment and flags; report all mistakes.

Precedence: flag, then environment (`LAKEWARD__SOURCE__BOOTSTRAP_SERVERS` is
`source.bootstrap.servers`), then file, then default. Later files override earlier ones.
"""

import dataclasses
import os
import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, TypeVar

import yaml

from ingest.config.choices import BARE_ROW_FORMATS, checked_mapping, nearest, nearest_of
from ingest.config.setting import REDACTED, Setting, build, fields_declared, redact_properties
from ingest.config.settings import (
    NOT_YET,
    QUARANTINE_NAME,
    ROUTE_SETTINGS,
    SETTINGS,
    TABLE_SETTINGS,
    Route,
    Settings,
    Shard,
    TableRule,
    check_compaction,
    stream_folder,
)
from ingest.config.settings_sources import (
    ENVIRONMENT_PREFIX,
    KeyPositions,
    Mistakes,
    RawValue,
    add_key,
    display_text,
    flatten,
    interpolate,
    read_document,
)
from ingest.config.source_settings import (
    FileSourceSettings,
    KafkaSourceSettings,
    SourceSettings,
    avro_settings,
    selects_topic,
    with_topic,
)
from storage.errors import (
    InvalidOptionError,
    InvalidRequestError,
    LakewardError,
    UnsupportedFeatureError,
)
from storage.io.resolve import is_local, resolve_file_io
from storage.options.options import TableOptions, find_option


def check_tables(settings: Settings) -> None:
    """Refuse malformed table options before the first table is created."""
    for where, properties in settings.property_sets():
        try:
            TableOptions.from_strings(properties)
        except InvalidRequestError as error:
            option = error.context.get("option")
            error.context = {"key": f"{where}.{option}" if option else where, **error.context}
            raise


def check_dead_letters(settings: Settings) -> None:
    """Refuse a dead-letter topic that cannot be written, or that the source reads.

    Raises:
        InvalidOptionError: the source is not Kafka, or reads the topic.
    """
    topic, source = settings.bad_records.topic, settings.source
    if topic is None:
        return
    if not isinstance(source, KafkaSourceSettings):
        raise InvalidOptionError(
            "a dead-letter topic requires a Kafka source",
            hint="remove it: bad records are in the quarantine table anyway",
            key="bad.records.topic",
        )
    if selects_topic(source, topic):
        raise InvalidOptionError(
            "the source reads the dead-letter topic",
            hint="add it to `source.topics.exclude`, or choose another name",
            key="bad.records.topic",
            value=topic,
        )


CHECKS = (check_tables, check_dead_letters, check_compaction)
"""Each raises `InvalidOptionError`."""

_CREDENTIALS = re.compile(r"://[^/\s]+@")
_FIRST_KEY = {"tables": "match", "route": "source-table"}


def rule_list(raw: object, name: str) -> list[object]:
    """Return the rules of `tables` or `route`; empty if there are none.

    Raises:
        InvalidOptionError: the value is not a list.
    """
    if raw is None:
        return []
    if not isinstance(raw, list):
        first = _FIRST_KEY[name]
        raise InvalidOptionError(
            f"`{name}` must be a list of rules", hint=f"begin with `- {first}:`"
        )
    return raw


def table_rule(raw: object, position: int) -> TableRule:
    """Parse one entry of `tables`.

    Raises:
        InvalidOptionError: a key is unknown or a value malformed.
    """
    values = _values(raw, f"tables[{position}]", TABLE_SETTINGS)
    properties = dict(values.get("table.properties", {}))
    for key in ("bucket", "changelog-producer"):
        if key in values and values[key] != "auto":
            properties[key] = values[key]
    return build(TableRule, {**values, "table.properties": properties})


def route_rule(raw: object, position: int) -> Route:
    """Parse one entry of `route`.

    Raises:
        InvalidOptionError: a key is unknown or a value malformed.
    """
    where = f"route[{position}]"
    values = _values(raw, where, ROUTE_SETTINGS)
    shard = None
    if "shard.column" in values:
        shard = build(Shard, values)
    elif {"shard.value", "shard.in.primary.key"} & values.keys():
        raise InvalidOptionError(
            "a shard requires a column", hint="add `column: _shard`", key=f"{where}.shard"
        )
    route = build(Route, values, shard=shard)
    if shard is not None and not shard.in_primary_key and not route.keys_are_unique:
        raise InvalidOptionError(
            "rows with equal keys of two shards would overwrite each other",
            hint="keep the shard column in the key; or, if no key occurs in two shards, add "
            "`keys.are.unique: true`",
            key=f"{where}.shard.in.primary.key",
        )
    return route


def _values(raw: object, where: str, rows: Sequence[Setting]) -> dict[str, Any]:
    required = [row.key for row in rows if row.required]
    if not isinstance(raw, Mapping):
        raise InvalidOptionError(
            "a rule must be a map", hint=f"begin with `{required[0]}:`", key=where
        )
    by_key = {row.key: row for row in rows}
    maps = [row.key for row in rows if row.kind.mapping]
    values: dict[str, Any] = {}
    mistakes = Mistakes()
    entries = flatten(raw, maps, "file")
    for key, entry in entries.items():
        with mistakes():
            row = by_key.get(key)
            if row is None:
                hint = suggestion(key, by_key)
                raise InvalidOptionError("unknown setting", key=f"{where}.{key}", hint=hint)
            values[key] = parse_setting(row, entry.value, f"{where}.{key}")
    for key in required if not mistakes.errors else ():
        with mistakes():
            if key not in entries:
                raise InvalidOptionError(
                    f"a rule requires `{key}`", hint=f"add `{key}:`", key=where
                )
    mistakes.check()
    return values


def parse_setting(row: Setting, raw: object, key: str) -> Any:
    """Parse the value of one setting.

    Args:
        row: declaration of the setting.
        raw: value from YAML, a variable or a flag.
        key: name of the setting in messages.

    Raises:
        InvalidOptionError: the value is invalid.
    """
    if row.kind.mapping and raw is None:
        raw = {}
    if row.kind.mapping and not isinstance(raw, Mapping):  # its text may be a secret
        form = "a map of names to values, such as `{name: value}`"
        raise InvalidOptionError("invalid value of a setting", detail=f"expected {form}", key=key)
    try:
        return row.kind.parse(raw)
    except ValueError as error:
        raise InvalidOptionError(
            "invalid value of a setting",
            detail=f"expected {error}",
            hint=_suggest_value(raw, str(error)),
            key=key,
            value=shown_value(row, raw),
        ) from error


def _suggest_value(raw: object, value: str) -> str:
    """Suggest the nearest of several allowed values."""
    words = re.findall(r"`([^`]+)`", value) if value.startswith("one of") else []
    return nearest(str(raw), words)


def suggestion(key: str, known_keys: Iterable[str]) -> str:
    """Suggest the nearest key, by its full name first, then without its first section."""
    names = list(known_keys)
    tails = {name.partition(".")[2]: name for name in names if "." in name}
    tail = nearest_of(key.partition(".")[2] or key, tails, cutoff=0.75)
    nearest_key = nearest_of(key, names) or (tails[tail] if tail else None)
    if find_option(key) is not None:
        return f"`{key}` is a table option: set it in `table.properties`"
    if nearest_key is None:
        return "see docs/reference/configuration.md"
    return f"did you mean `{nearest_key}`?"


def shown_value(row: Setting, value: object) -> str:
    """Format a raw value without secrets: references stay references, secrets are masked."""
    if isinstance(value, Mapping):
        texts = {str(name): _shown_scalar(item) for name, item in value.items()}
        redact = row.secret or redact_properties
        return ", ".join(f"{k}={v}" for k, v in redact(texts).items())
    if row.secret is not None:
        return REDACTED
    parts = value if isinstance(value, (list, tuple)) else (value,)
    return redact_properties({row.key: ", ".join(_shown_scalar(item) for item in parts)})[row.key]


def _shown_scalar(value: object) -> str:
    if isinstance(value, bool):
        return str(value).lower()
    return _CREDENTIALS.sub(f"://{REDACTED}@", display_text(value))


_Rule = TypeVar("_Rule")
_MAPS = tuple(row.key for row in SETTINGS if row.kind.mapping)
_BY_KEY = {row.key: row for row in SETTINGS}
_URI = re.compile(r"[A-Za-z][A-Za-z0-9+.-]*:/")

Parallelism = Callable[[str | None, Mapping[str, str]], int]


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Resolved:
    """Settings, and the origin of each value.

    Attributes:
        settings: values in force.
        lines: (key, redacted value, origin) in the order of the reference.
        places: positions of the keys in the files.
    """

    settings: Settings
    lines: tuple[tuple[str, str, str], ...]
    places: KeyPositions


def resolve(
    paths: Path | str | Sequence[Path | str],
    overrides: Mapping[str, Any] | None = None,
    *,
    environ: Mapping[str, str] | None = None,
    parallelism: Parallelism,
    checks: Iterable[Callable[[Settings], None]] = (),
) -> Resolved:
    """Load settings from one or more YAML files (`-` is standard input), with their origins.

    Args:
        paths: files; later ones override earlier ones.
        overrides: dotted keys from flags; highest precedence.
        environ: environment; default: that of the process.
        parallelism: returns the number of concurrent tasks from Spark's master and properties, if
            `spark.parallelism` is not set.
        checks: additional checks of the settings.

    Raises:
        NotFoundError: a file does not exist.
        InvalidOptionError: a key is unknown, or a value malformed, missing or contradictory.
        UnsupportedFeatureError: the setting is not supported yet.
    """
    environ = os.environ if environ is None else environ
    places, mistakes = KeyPositions(), Mistakes()
    try:
        entries, rules, routes = _read(paths, overrides or {}, environ, places, mistakes)
        values = _parse_all(entries, mistakes)
        table_rules = _parse_rules(rules, table_rule, mistakes)
        route_rules = _parse_rules(routes, route_rule, mistakes)
        mistakes.check()
        settings = _build(values, table_rules, route_rules, parallelism)
        for check in (*CHECKS, *checks):
            with mistakes():
                check(settings)
        mistakes.check()
    except LakewardError as error:
        places.locate(error)
        raise
    lines = tuple(_shown_lines(entries, settings))
    return Resolved(settings=settings, lines=lines, places=places)


def _read(
    paths: Path | str | Sequence[Path | str],
    overrides: Mapping[str, Any],
    environ: Mapping[str, str],
    places: KeyPositions,
    mistakes: Mistakes,
) -> tuple[dict[str, RawValue], list[object], list[object]]:
    """Read raw values by key, and raw rules of `tables` and `route`."""
    entries: dict[str, RawValue] = {}
    rules: list[object] = []
    routes: list[object] = []
    for path in [paths] if isinstance(paths, (str, Path)) else paths:
        document = read_document(path, places)
        for name, target in (("tables", rules), ("route", routes)):
            with mistakes():
                target += rule_list(interpolate(document.pop(name, None), environ, name), name)
        sections: dict[str, object] = {}
        for name, section in document.items():
            with mistakes():
                sections[name] = interpolate(section, environ, str(name))
        with mistakes():
            _merge(entries, flatten(sections, _MAPS, "file"), mistakes)
    with mistakes():
        overlay = _from_environment(environ)
        overlay |= flatten(dict(overrides), _MAPS, "flag")
        places.forget(overlay)
        _merge(entries, overlay, mistakes)
    return entries, rules, routes


def _parse_rules(
    raw: Sequence[object], parse: Callable[[object, int], _Rule], mistakes: Mistakes
) -> list[_Rule]:
    rules = []
    for number, rule in enumerate(raw):
        with mistakes():
            rules.append(parse(rule, number))
    return rules


def _merge(target: dict[str, RawValue], newer: Mapping[str, RawValue], mistakes: Mistakes) -> None:
    """Add newer entries; entries of map settings are merged name by name."""
    for key, entry in newer.items():
        owner = key if key in _BY_KEY else _map_of(key)
        if owner is None:
            mistakes.errors.append(_unknown(key))
            continue
        if owner != key:  # one name inside a map, such as sink.table.properties.bucket
            entry = RawValue({key[len(owner) + 1 :]: entry.value}, entry.origin)
        previous = target.get(owner)
        if previous is not None and isinstance(previous.value, Mapping):
            if isinstance(entry.value, Mapping):
                entry = RawValue({**previous.value, **entry.value}, entry.origin)
            elif entry.value is None:
                continue
        target[owner] = entry


def _map_of(key: str) -> str | None:
    return next((name for name in _MAPS if key.startswith(name + ".")), None)


def _from_environment(environ: Mapping[str, str]) -> dict[str, RawValue]:
    """Read variables: `LAKEWARD__A__B_C=v` is `a.b.c: v`."""
    by_name = {re.sub(r"[.-]", "_", row.key): row.key for row in SETTINGS}
    entries: dict[str, RawValue] = {}
    for variable, value in sorted(environ.items()):
        if not variable.startswith(ENVIRONMENT_PREFIX):
            continue
        name = variable[len(ENVIRONMENT_PREFIX) :].lower().replace("__", "_")
        key = by_name.get(name)
        if key is None:
            variables = map(_variable_of, by_name.values())
            hint = nearest(variable, variables)
            raise InvalidOptionError("unknown setting", variable=variable, hint=hint)
        raw: object = value
        if _BY_KEY[key].kind.mapping:
            raw = _yaml_value(value, variable)
        entries[key] = RawValue(raw, "environment")
    return entries


def _yaml_value(text: str, variable: str) -> object:
    try:
        return yaml.safe_load(text)
    except yaml.YAMLError as error:
        raise InvalidOptionError("not a YAML map", variable=variable) from error


def _variable_of(key: str) -> str:
    section, _, rest = key.partition(".")
    return f"{ENVIRONMENT_PREFIX}{section}__{re.sub(r'[.-]', '_', rest)}".upper()


def _unknown(key: str) -> InvalidRequestError:
    feature = next((name for name in NOT_YET if key == name or key.startswith(name + ".")), None)
    if feature is not None:
        text = "this setting is not supported yet"
        return UnsupportedFeatureError(text, hint=NOT_YET[feature], key=feature)
    return InvalidOptionError(
        "unknown setting", key=key, hint=suggestion(key, [*_BY_KEY, "tables", "route"])
    )


def _parse_all(raw_values: Mapping[str, RawValue], mistakes: Mistakes) -> dict[str, Any]:
    values: dict[str, Any] = {}
    missing = [row.key for row in SETTINGS if row.required and row.key not in raw_values]
    if missing:
        mistakes.errors.append(
            InvalidOptionError(
                "a required setting is missing",
                hint="set " + " and ".join(f"`{key}`" for key in missing),
                key=missing[0],
            )
        )
    for row in SETTINGS:
        if row.key in raw_values:
            with mistakes():
                values[row.key] = _value_of(row, raw_values[row.key])
    return values


def _value_of(row: Setting, entry: RawValue) -> Any:
    value = parse_setting(row, entry.value, row.key)
    if row.kind.mapping and isinstance(row.default, Mapping):
        value = {**row.default, **value}
    return value


def _build(
    given_keys: Mapping[str, Any],
    rules: Sequence[TableRule],
    routes: Sequence[Route],
    parallelism: Parallelism,
) -> Settings:
    """Build the settings from typed values by key; derive values that depend on several."""
    values = {**{row.key: row.unset for row in SETTINGS}, **given_keys}
    retain_s = values["maintenance.snapshot.retain"]
    properties = dict(values["sink.table.properties"])
    if retain_s is not None:
        properties.setdefault("snapshot.time-retained", f"{int(retain_s * 1000)} ms")
    with add_key("sink.warehouse", below="sink.options"):
        warehouse = resolve_file_io(values["sink.warehouse"], values["sink.options"])[1]
    source = with_topic(
        _source(values, given_keys, parallelism), values["source.debezium.schema.change.topic"]
    )
    table = values["bad.records.table"] or f"{values['sink.default.database']}.{QUARANTINE_NAME}"
    derived = {
        "pipeline.checkpoint": _checkpoint(
            values["pipeline.checkpoint"], warehouse, values["pipeline.name"]
        ),
        "sink.warehouse": warehouse,
        "sink.table.properties": properties,
        "sink.type.mapping": checked_mapping(values["sink.type.mapping"]),
        "bad.records.table": table,
    }
    return build(
        Settings,
        {**values, **derived},
        source=source,
        avro=avro_settings(values, given_keys),
        tables=tuple(rules),
        routes=tuple(routes),
    )


def _checkpoint(location: str | None, warehouse: str, name: str) -> str:
    if location is None and not is_local(warehouse):
        raise InvalidOptionError(
            "this warehouse cannot hold the checkpoint",
            detail="Spark keeps its offset log in local or mounted directories only",
            hint="set `pipeline.checkpoint` to such a directory; an ephemeral volume is enough, "
            "because the offsets are also in the tables",
            key="pipeline.checkpoint",
        )
    if location is None:
        return f"{stream_folder(warehouse, name)}/checkpoint"
    if _URI.match(location) and not location.startswith("file:"):
        raise InvalidOptionError(
            "the checkpoint must be a local or mounted directory",
            hint="an ephemeral volume is enough, because the offsets are also in the tables",
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


def _source(
    values: Mapping[str, Any], given_keys: Mapping[str, Any], parallelism: Parallelism
) -> SourceSettings:
    kind = values["source.type"]
    foreign = ("source.path", "source.lines") if kind == "kafka" else _KAFKA_ONLY
    for key in foreign:
        if key in given_keys and given_keys[key] != _BY_KEY[key].unset:
            source_type = "files" if kind == "kafka" else "kafka"
            hint = f"remove it, or set `source.type: {source_type}`"
            raise InvalidOptionError(
                f"this setting does not apply to the {kind} source", hint=hint, key=key
            )
    limits = {
        "max_records": values["pipeline.trigger.max.records"],
        "max_bytes": values["pipeline.trigger.max.bytes"],
        "parallelism": values["spark.parallelism"]
        or parallelism(values["spark.master"], values["spark.conf"]),
    }
    with add_key("source", _SOURCE_FACTS):
        if kind == "kafka":
            return build(KafkaSourceSettings, given_keys, **limits)
        path = values["source.path"]
        if "source.topic.discovery.interval" in given_keys:
            limits["discovery_interval_s"] = given_keys["source.topic.discovery.interval"]
        return build(
            FileSourceSettings,
            given_keys,
            path=str(Path(path).expanduser().absolute()) if path else "",
            lines=_lines(values["source.lines"], values["source.format"]),
            **limits,
        )


def _lines(setting: str, name: str) -> str:
    """Return `FileSourceSettings.lines`: only a message that is a row can look like a record."""
    return "ask" if setting == "auto" and name in BARE_ROW_FORMATS else setting


def _shown_lines(
    raw_values: Mapping[str, RawValue], settings: Settings
) -> Iterator[tuple[str, str, str]]:
    """Yield (key, redacted value, origin) in the order of the reference."""
    derived = {
        "pipeline.checkpoint": settings.pipeline.checkpoint,
        "bad.records.table": settings.bad_records.table,
        "sink.warehouse": settings.sink.warehouse,
        "sink.table.properties": settings.sink.table_properties,
    }
    for row in SETTINGS:
        entry = raw_values.get(row.key)
        value = derived.get(row.key, row.default if entry is None else entry.value)
        if value is not None:
            yield row.key, _shown_text(row, value), "default" if entry is None else entry.origin
    for rule in settings.tables:
        yield f"tables[{rule.match}]", " ".join(_shown_rule(rule)), "file"
    for route in settings.routes:
        shard = "" if route.shard is None else f" shard {route.shard.column}={route.shard.value}"
        yield f"route[{route.source_table}]", f"{route.sink_table}{shard}", "file"


def _shown_text(row: Setting, value: object) -> str:
    if row.secret is None or row.kind.mapping:
        return shown_value(row, value)
    display = row.secret(row.kind.parse(value))
    return ", ".join(display) if isinstance(display, tuple) else str(display)


def _shown_rule(rule: TableRule) -> Iterator[str]:
    """Yield the settings of a rule; of masks only the columns, because masks may contain salts."""
    for name, row in fields_declared(TableRule).items():
        value = getattr(rule, name)
        if row.key == "table.properties":
            yield from (f"{k}={v}" for k, v in redact_properties(value).items())
        elif name != "match" and value not in (None, ()) and row.key not in rule.table_properties:
            value = f"{value:g}s" if isinstance(value, float) else value
            yield f"{row.key}={', '.join(value) if name == 'mask' else shown_value(row, value)}"
