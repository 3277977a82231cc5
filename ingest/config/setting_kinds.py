# SPDX-License-Identifier: Apache-2.0
"""Kinds of settings: parsers of YAML values, and their JSON Schemas.

A parser takes a value from YAML (or a string from an environment variable) and returns the typed
value, or raises `ValueError` with a message that describes the expected value (`"a duration such as
`30s`"`); the caller reports it together with key and value.
"""

import dataclasses
import datetime
import re
import urllib.parse
from collections.abc import Callable, Mapping
from typing import Any

from ingest.config.choices import ALERT_EVENTS, ChangeKind, kinds_named
from ingest.config.daily_window import DailyWindow
from storage.options import values as option_values

_REFERENCE = r"\$\{"
_TEXT: Mapping[str, Any] = {"type": ["string", "number", "boolean"]}
_LIST: Mapping[str, Any] = {"anyOf": [{"type": "array", "items": _TEXT}, _TEXT]}


def _reference_or(*schemas: Mapping[str, Any]) -> dict[str, Any]:
    """Return a schema that also accepts strings with references such as `${NAME}`."""
    return {"anyOf": [*schemas, {"type": "string", "pattern": _REFERENCE}]}


@dataclasses.dataclass(frozen=True, slots=True)
class Kind:
    """A type of setting.

    Attributes:
        name: name in the reference.
        parse: converts the raw value; its `ValueError` describes the expected value.
        mapping: whether the value is a map whose keys are not settings.
        empty: typed value of a setting that is not given and has no default.
        schema: JSON Schema of the raw value: accepts what `parse` accepts, except upper case.
    """

    name: str
    parse: Callable[[Any], Any]
    mapping: bool = False
    empty: Any = None
    schema: Mapping[str, Any] = dataclasses.field(default_factory=lambda: _TEXT)


def _as_text(value: object) -> str:
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, (str, int, float)):
        return str(value)
    raise ValueError("text")


def _parse_text(value: object) -> str:
    result = _as_text(value).strip()
    if not result:
        raise ValueError("non-empty text")
    return result


def _parse_pattern(value: object) -> str:
    pattern = _parse_text(value)
    if "\\" in pattern or pattern.startswith("."):
        raise ValueError("`database.table` with the wildcards `*` and `?`, no regular expression")
    if not re.search(r"[.*?\[]", pattern):
        raise ValueError(f"`database.table`, such as `*.{pattern}`: without a dot it matches none")
    return pattern


def _parse_boolean(value: object) -> bool:
    return value if isinstance(value, bool) else option_values.boolean(_as_text(value))


def _parse_duration(value: object) -> float:
    expected = "a duration such as `30s`, `5m` or `500ms`"
    try:
        text = _as_text(value)
        milliseconds = option_values.duration_ms(text)
    except ValueError:
        raise ValueError(expected) from None
    if text.strip().isdigit():  # seconds or milliseconds? do not guess
        raise ValueError(expected)
    return milliseconds / 1000


def _parse_size(value: object) -> int:
    try:
        return option_values.memory_size(_as_text(value))
    except ValueError:
        raise ValueError("a size such as `1gb` or `512mb`") from None


def _items(value: object) -> list[Any]:
    return value if isinstance(value, list) else _as_text(value).split(",")


def _parse_list(value: object) -> tuple[str, ...]:
    try:
        return tuple(item for item in (_as_text(part).strip() for part in _items(value)) if item)
    except ValueError:
        raise ValueError("a list of texts") from None


def _parse_change_kinds(value: object) -> tuple[str, ...]:
    """Expand full or partial names to the full names of kinds."""
    chosen = {kind.value for name in _parse_list(value) for kind in kinds_named(name)}
    return tuple(kind.value for kind in ChangeKind if kind.value in chosen)


def _parse_map(value: object) -> dict[str, str]:
    if not isinstance(value, Mapping):
        raise ValueError("a map of names to values")  # noqa: TRY004
    result: dict[str, str] = {}
    for key, item in value.items():
        if isinstance(item, Mapping):
            result.update({f"{key}.{inner}": text for inner, text in _parse_map(item).items()})
        elif item is None or isinstance(item, list):
            raise ValueError(f"a map of names to single values (see `{key}`)")
        else:
            result[str(key)] = _as_text(item)
    return result


_LABEL = re.compile(r"(?!__)[a-zA-Z_][a-zA-Z0-9_]*")


def _parse_labels(value: object) -> dict[str, str]:
    labels = _parse_map(value)
    for name in labels:
        if not _LABEL.fullmatch(name):
            raise ValueError(f"a map of label names to values (`{name}` is not a label name)")
    return labels


def _parse_offsets(value: object) -> dict[str, dict[str, int]]:
    expected = "a map of topics to maps of partitions to offsets, `{orders: {0: 42}}`"
    if not isinstance(value, Mapping):
        raise ValueError(expected)  # noqa: TRY004
    result: dict[str, dict[str, int]] = {}
    for topic, partitions in value.items():
        if not isinstance(partitions, Mapping):
            raise ValueError(expected)  # noqa: TRY004
        try:
            result[str(topic)] = {str(int(p)): int(offset) for p, offset in partitions.items()}
        except (TypeError, ValueError):
            raise ValueError(expected) from None
    return result


def _parse_window(value: object) -> str:
    text = _parse_text(value)
    DailyWindow.parse(text)
    return text


_SECONDS, _SMALLEST_MS = 100_000_000, 100_000_000_000
"""As seconds and as milliseconds a moment of 1973, before the first record of any topic."""


def _parse_moment(value: object) -> int:
    expected = "a time such as `2026-01-31T08:00:00Z` or milliseconds since 1970"
    moment = value
    if isinstance(value, str) and re.fullmatch(r"\d+", value.strip()):
        moment = int(value)
    if isinstance(moment, int) and not isinstance(moment, bool):
        if _SECONDS <= moment < _SMALLEST_MS:
            raise ValueError(f"{expected}; as seconds write it with three zeros behind")
        return moment
    if isinstance(value, str):
        try:
            moment = datetime.datetime.fromisoformat(value.strip())
        except ValueError:
            raise ValueError(expected) from None
    if not isinstance(moment, datetime.datetime):
        raise ValueError(expected)  # noqa: TRY004
    if moment.tzinfo is None:
        moment = moment.replace(tzinfo=datetime.UTC)
    epoch = datetime.datetime(1970, 1, 1, tzinfo=datetime.UTC)
    return (moment - epoch) // datetime.timedelta(milliseconds=1)


def integer(minimum: int, maximum: int | None = None) -> Kind:
    """Return the kind of integers within inclusive bounds."""
    upper = "" if maximum is None else f" to {maximum}"
    expected = f"an integer from {minimum}{upper}"

    def parse(value: object) -> int:
        try:
            number = int(_as_text(value).strip().replace("_", ""))
        except ValueError:
            raise ValueError(expected) from None
        if number < minimum or (maximum is not None and number > maximum):
            raise ValueError(expected)
        return number

    bounds = {"minimum": minimum} if maximum is None else {"minimum": minimum, "maximum": maximum}
    digits = {"type": "string", "pattern": r"^\s*[+-]?[0-9][0-9_]*\s*$"}
    schema = _reference_or({"type": "integer", **bounds}, digits)
    return Kind("number", parse, schema=schema)


def duration_from(least_s: float, text: str) -> Kind:
    """Return the kind of durations of at least `least_s` seconds, in messages `text`."""

    def parse(value: object) -> float:
        seconds = _parse_duration(value)
        if seconds < least_s:
            raise ValueError(f"a duration of at least `{text}`")
        return seconds

    return Kind("duration", parse, schema=duration.schema)


def choice(*allowed: str, removed: Mapping[str, str] | None = None) -> Kind:
    """Return the kind of a fixed set of values.

    Args:
        allowed: the values.
        removed: values of earlier releases, and what replaced them.
    """
    words = ", ".join(f"`{word}`" for word in allowed)

    def parse(value: object) -> str:
        # YAML parses an unquoted `off` as false
        text = "off" if value is False and "off" in allowed else _as_text(value).strip().lower()
        if text not in allowed:
            expected = f"one of {words}" if len(allowed) > 1 else words
            hint = (removed or {}).get(text, "")
            raise ValueError(f"{expected}; `{text}` was removed: {hint}" if hint else expected)
        return text

    values: list[Any] = [*allowed, *(int(word) for word in allowed if word.isdecimal())]
    if "off" in allowed:
        values.append(False)
    return Kind(
        " \\| ".join(f"`{word}`" for word in allowed), parse, schema=_reference_or({"enum": values})
    )


def identifier(pattern: str, description: str) -> Kind:
    """Return the kind of strings that match a pattern; which `description` names."""

    def parse(value: object) -> str:
        text = _as_text(value).strip()
        if not re.fullmatch(pattern, text):
            raise ValueError(description)
        return text

    return Kind("name", parse)


def _parse_bucket(value: object) -> str:
    expected = "a number of buckets, -1 (dynamic), -2 (postpone) or `auto`"
    text = _as_text(value).strip().lower()
    if text == "auto":
        return text
    try:
        number = int(text)
    except ValueError:
        raise ValueError(expected) from None
    if number < -2 or number == 0:
        raise ValueError(expected)
    return str(number)


def _parse_fraction(value: object) -> float:
    expected = "a ratio between 0 and 1, such as `0.01`"
    try:
        share = float(_as_text(value))
    except ValueError:
        raise ValueError(expected) from None
    if not 0 < share <= 1:
        raise ValueError(expected)
    return share


_LEVELS = ("debug", "info", "warning", "error")


def _parse_levels(value: object) -> dict[str, str]:
    levels = {name: level.lower() for name, level in _parse_map(value).items()}
    wrong = sorted(name for name, level in levels.items() if level not in _LEVELS)
    if wrong:
        raise ValueError(
            f"`debug`, `info`, `warning` or `error` for each logger (see `{wrong[0]}`)"
        )
    return levels


_LEAST_TOKEN = 16


def _parse_token(value: Any) -> str:
    token = value.strip() if isinstance(value, str) else str(value)
    if len(token) < _LEAST_TOKEN or not token.isascii() or any(char.isspace() for char in token):
        raise ValueError(f"at least {_LEAST_TOKEN} ASCII characters without blanks")
    return token


def _parse_urls(value: object) -> tuple[str, ...]:
    urls = _parse_list(value)
    for url in urls:
        try:
            parts = urllib.parse.urlsplit(url)
            valid = parts.scheme in ("http", "https") and bool(parts.hostname) and parts.port != 0
        except ValueError:
            valid = False
        if not valid:
            raise ValueError("addresses that begin with `http://` or `https://`")
    return urls


def _parse_events(value: object) -> tuple[str, ...]:
    events = _parse_list(value)
    if unknown := [name for name in events if name not in ALERT_EVENTS]:
        words = ", ".join(f"`{word}`" for word in ALERT_EVENTS)
        raise ValueError(f"some of {words}, not `{unknown[0]}`")
    return events or ALERT_EVENTS


_MAP = {"type": ["object", "null"]}
_FLAT_MAP = {**_MAP, "additionalProperties": {"anyOf": [_TEXT, {"type": "object"}]}}
_UNIT = {"type": "string", "pattern": r"^\s*[0-9]+\s*[A-Za-zµ]+\s*$"}
_NUMBERS = {"type": "object", "additionalProperties": {"type": ["integer", "string"]}}

bucket_count = Kind("number \\| `auto`", _parse_bucket, schema={"type": ["integer", "string"]})
fraction = Kind("ratio", _parse_fraction, schema={"type": ["number", "string"]})
text = Kind("text", _parse_text)
table_pattern = Kind("text", _parse_pattern)
token = Kind("text", _parse_token)
boolean = Kind(
    "`true` \\| `false`",
    _parse_boolean,
    schema=_reference_or({"type": "boolean"}, {"enum": ["true", "false"]}),
)
duration = Kind("duration", _parse_duration, schema=_reference_or(_UNIT))
size = Kind("size", _parse_size, schema={"type": ["integer", "string"]})
text_list = Kind("list", _parse_list, empty=(), schema=_LIST)
change_kinds = Kind("list", _parse_change_kinds, empty=(), schema=_LIST)
webhook_urls = Kind("list", _parse_urls, empty=(), schema=_LIST)
alert_events = Kind("list", _parse_events, empty=ALERT_EVENTS, schema=_LIST)
text_map = Kind("map", _parse_map, mapping=True, empty={}, schema=_FLAT_MAP)
label_map = Kind("map", _parse_labels, mapping=True, empty={}, schema=_FLAT_MAP)
log_levels = Kind("map", _parse_levels, mapping=True, empty={}, schema=_FLAT_MAP)
offset_map = Kind(
    "map",
    _parse_offsets,
    mapping=True,
    empty={},
    schema={**_MAP, "additionalProperties": _NUMBERS},
)
moment = Kind("time", _parse_moment, schema={"type": ["integer", "string"]})
daily_window = Kind("time of day", _parse_window)
