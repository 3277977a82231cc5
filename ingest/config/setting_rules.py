# SPDX-License-Identifier: Apache-2.0
"""The lists of a configuration: `tables` and `route`, one rule from one YAML map.

Also what both share with the plain settings: reading one value by its row of the table, and
refusing a key that does not exist.
"""

import difflib
import re
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from ingest.config.locations import Mistakes
from ingest.config.routing import Route, Shard
from ingest.config.setting_kinds import Setting
from ingest.config.setting_table_rules import ROUTE_SETTINGS, TABLE_SETTINGS
from ingest.config.setting_values import TableRule
from ingest.config.settings_sources import flatten, shown
from ingest.config.source_settings import redact_properties
from storage.errors import InvalidOptionError, UnsupportedFeatureError
from storage.io.object_store.options import redacted_options

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
_HIDDEN = "********"
_WHOLLY_SECRET = frozenset({"alerts.webhook.urls", "alerts.webhook.headers"})
"""Settings whose values are secrets by any name; addresses of webhooks often are."""

_FIRST_KEY = {"tables": "match", "route": "source-table"}


def rule_list(raw: object, name: str) -> list[object]:
    """The rules of `tables` or `route`; none when it is missing.

    Raises:
        InvalidOptionError: it is no list.
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
    """One entry of `tables`.

    Raises:
        InvalidOptionError: a key is unknown or a value malformed.
    """
    values = _values(raw, f"tables[{position}]", TABLE_SETTINGS)
    properties = dict(values.get("table.properties", {}))
    for key in ("bucket", "changelog-producer"):
        if key in values and values[key] != "auto":
            properties[key] = values[key]
    return TableRule(
        match=values["match"],
        primary_key=values.get("primary.key", ()),
        table_properties=properties,
        toast=values.get("toast"),
        auto_bucket=None if "bucket" not in values else values["bucket"] == "auto",
        bad_records=values.get("bad.records"),
        columns_exclude=values.get("columns.exclude"),
        computed=values.get("computed"),
        filter=values.get("filter"),
        mask=values.get("mask"),
        deletes=values.get("deletes"),
        partition_by=values.get("partition.by"),
        on_incompatible=values.get("on.incompatible"),
        compaction=values.get("compaction"),
        freshness_s=values.get("freshness"),
        watermark=values.get("watermark"),
        on_resnapshot=values.get("on.resnapshot"),
    )


def route_rule(raw: object, position: int) -> Route:
    """One entry of `route`.

    Raises:
        InvalidOptionError: a key is unknown or a value malformed.
    """
    where = f"route[{position}]"
    values = _values(raw, where, ROUTE_SETTINGS)
    shard, column = None, values.get("shard.column")
    if column is not None:
        shard = Shard(
            column=column,
            value=values.get("shard.value", "${source.db}"),
            in_primary_key=values.get("shard.in.primary.key", True),
        )
    elif {"shard.value", "shard.in.primary.key"} & values.keys():
        raise InvalidOptionError(
            "a shard needs a column", hint="add `column: _shard`", key=f"{where}.shard"
        )
    unique = values.get("shard.keys.are.unique", False)
    if shard is not None and not shard.in_primary_key and not unique:
        raise InvalidOptionError(
            "rows with equal keys of two shards would overwrite each other",
            hint="leave the shard column in the key; or, if no key is ever in two shards, add "
            "`keys.are.unique: true`",
            key=f"{where}.shard.in.primary.key",
        )
    return Route(
        source_table=values["source-table"],
        sink_table=values["sink-table"],
        shard=shard,
        keys_are_unique=unique,
    )


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
                raise InvalidOptionError(f"a rule needs `{key}`", hint=f"add `{key}:`", key=where)
    mistakes.check()
    return values


def parse_setting(row: Setting, raw: object, key: str) -> Any:
    """The typed value of one setting.

    Args:
        row: of the settings table.
        raw: as YAML, a variable or a flag gave it.
        key: how messages name it.

    Raises:
        InvalidOptionError: it is not what the row says.
    """
    if row.kind.mapping and raw is None:
        raw = {}
    if row.kind.mapping and not isinstance(raw, Mapping):  # its text may be a secret
        wish = "a map of names to values, such as `{name: value}`"
        raise InvalidOptionError(
            "a setting has a value it cannot have", detail=f"wanted {wish}", key=key
        )
    try:
        return row.kind.parse(raw)
    except ValueError as wanted:
        raise InvalidOptionError(
            "a setting has a value it cannot have",
            detail=f"wanted {wanted}",
            hint=_meant(raw, str(wanted)),
            key=key,
            value=shown_value(row.key, raw),
        ) from wanted


def _meant(raw: object, wanted: str) -> str:
    """A nearby word, where one of several was wanted."""
    words = re.findall(r"`([^`]+)`", wanted) if wanted.startswith("one of") else []
    close = difflib.get_close_matches(str(raw), words, n=1)
    return f"did you mean `{close[0]}`?" if close else ""


def not_yet(key: str) -> UnsupportedFeatureError:
    """The error for a key that is planned."""
    return UnsupportedFeatureError("this setting is not supported yet", hint="remove it", key=key)


def suggestion(key: str, known: Iterable[str]) -> str:
    """A nearby key, by whole name first, then by its last words."""
    names = list(known)
    close = difflib.get_close_matches(key, names, n=1, cutoff=0.6)
    if not close:
        tails = {name.partition(".")[2]: name for name in names if "." in name}
        matched = difflib.get_close_matches(key.partition(".")[2] or key, tails, n=1, cutoff=0.75)
        close = [tails[tail] for tail in matched]
    return f"did you mean `{close[0]}`?" if close else "see `lakeward validate --help`"


def shown_value(key: str, value: object) -> str:
    """A value without secrets: references stay references, secret names are starred."""
    if key in _WHOLLY_SECRET:
        return _HIDDEN
    if isinstance(value, Mapping):
        texts = {str(name): _shown_scalar(item) for name, item in value.items()}
        redact = redacted_options if key == "sink.options" else redact_properties
        return ", ".join(f"{k}={v}" for k, v in redact(texts).items())
    parts = value if isinstance(value, (list, tuple)) else (value,)
    return redact_properties({key: ", ".join(_shown_scalar(item) for item in parts)})[key]


def _shown_scalar(value: object) -> str:
    if isinstance(value, bool):
        return str(value).lower()
    return _CREDENTIALS.sub(f"://{_HIDDEN}@", shown(value))
