# SPDX-License-Identifier: Apache-2.0
"""Parse raw values into typed ones: plain settings, and entries of `tables` and `route`."""

import re
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from ingest.config.locations import Mistakes
from ingest.config.rule_settings import Route, Shard, TableRule
from ingest.config.setting import HIDDEN, Setting, build, redact_properties
from ingest.config.settings import ROUTE_SETTINGS, TABLE_SETTINGS
from ingest.config.settings_sources import flatten, shown
from ingest.config.suggestion import nearest, nearest_of
from storage.errors import InvalidOptionError, UnsupportedFeatureError

__all__ = [
    "not_yet",
    "parse_setting",
    "route_rule",
    "rule_list",
    "shown_value",
    "suggestion",
    "table_rule",
]

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
    given = flatten(raw, maps, "file")
    for key, entry in given.items():
        with mistakes():
            row = by_key.get(key)
            if row is None:
                hint = suggestion(key, by_key)
                raise InvalidOptionError("unknown setting", key=f"{where}.{key}", hint=hint)
            values[key] = parse_setting(row, entry.value, f"{where}.{key}")
    for key in required if not mistakes.found else ():
        with mistakes():
            if key not in given:
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
        wish = "a map of names to values, such as `{name: value}`"
        raise InvalidOptionError("invalid value of a setting", detail=f"expected {wish}", key=key)
    try:
        return row.kind.parse(raw)
    except ValueError as wanted:
        raise InvalidOptionError(
            "invalid value of a setting",
            detail=f"expected {wanted}",
            hint=_meant(raw, str(wanted)),
            key=key,
            value=shown_value(row, raw),
        ) from wanted


def _meant(raw: object, wanted: str) -> str:
    """Suggest the nearest of several allowed values."""
    words = re.findall(r"`([^`]+)`", wanted) if wanted.startswith("one of") else []
    return nearest(str(raw), words)


def not_yet(key: str) -> UnsupportedFeatureError:
    """Return the error for a planned setting."""
    return UnsupportedFeatureError("this setting is not supported yet", hint="remove it", key=key)


def suggestion(key: str, known: Iterable[str]) -> str:
    """Suggest the nearest key, by its full name first, then without its first section."""
    names = list(known)
    tails = {name.partition(".")[2]: name for name in names if "." in name}
    tail = nearest_of(key.partition(".")[2] or key, tails, cutoff=0.75)
    nearest_key = nearest_of(key, names) or (tails[tail] if tail else None)
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
        return HIDDEN
    parts = value if isinstance(value, (list, tuple)) else (value,)
    return redact_properties({row.key: ", ".join(_shown_scalar(item) for item in parts)})[row.key]


def _shown_scalar(value: object) -> str:
    if isinstance(value, bool):
        return str(value).lower()
    return _CREDENTIALS.sub(f"://{HIDDEN}@", shown(value))
