# SPDX-License-Identifier: Apache-2.0
"""One declaration per setting: a field of a frozen dataclass with a `Setting` as metadata.

    trigger_interval_s: float = setting("pipeline.trigger.interval", duration, default="30s")

The docstring below the field is its documentation. The declaration determines the attribute and its
default, the parsing of files, variables and flags (`loading`), redaction (`redacted`), the
reference page (`settings_page`) and the JSON Schema (`json_schema`). See docs/adr/ingest/0026.
"""

import ast
import dataclasses
import datetime
import inspect
import itertools
import re
import sys
import urllib.parse
import zoneinfo
from collections.abc import Callable, Iterable, Mapping
from typing import TYPE_CHECKING, Any, TypeVar

from ingest.config.choices import ALERT_EVENTS, ChangeKind, kinds_named
from storage.options import values as option_values

if TYPE_CHECKING:
    from _typeshed import DataclassInstance

# A daily time window, such as `01:00-05:00 Europe/Berlin`. Pure.


_FORM = re.compile(r"(\d\d?):(\d\d)\s*-\s*(\d\d?):(\d\d)(?:\s+(\S+))?")


@dataclasses.dataclass(frozen=True, slots=True)
class DailyWindow:
    """A daily window; it may end on the next day.

    Attributes:
        start: start time, inclusive.
        end: end time, exclusive.
        zone: time zone of both.
    """

    start: datetime.time
    end: datetime.time
    zone: str = "UTC"

    @staticmethod
    def parse(text: str) -> "DailyWindow":
        """Parse a window such as `01:00-05:00` or `22:30-04:00 Europe/Berlin`.

        Raises:
            ValueError: malformed; the text describes the expected value.
        """
        expected = "a time of day such as `01:00-05:00` or `22:30-04:00 Europe/Berlin`"
        match = _FORM.fullmatch(text.strip())
        if match is None:
            raise ValueError(expected)
        zone = match[5] or "UTC"
        try:
            start = datetime.time(int(match[1]), int(match[2]))
            end = datetime.time(int(match[3]) % 24, int(match[4]))
            zoneinfo.ZoneInfo(zone)
        except (ValueError, zoneinfo.ZoneInfoNotFoundError, OSError):
            raise ValueError(expected) from None
        if start == end:
            raise ValueError(expected)
        return DailyWindow(start, end, zone)

    def window_date(self, now_ms: int) -> datetime.date | None:
        """Return the start date of the window that contains a time [epoch ms]; None: closed.

        A change to or from daylight saving time makes one window longer or shorter.
        """
        moment = datetime.datetime.fromtimestamp(now_ms / 1000, datetime.UTC)
        local = moment.astimezone(zoneinfo.ZoneInfo(self.zone))
        time = local.time()
        if self.start < self.end:
            return local.date() if self.start <= time < self.end else None
        if time >= self.start:
            return local.date()
        return local.date() - datetime.timedelta(days=1) if time < self.end else None


# Kinds of settings: parsers of YAML values, and their JSON Schemas.
#
# A parser takes a value from YAML (or a string from an environment variable) and returns the typed
# value, or raises `ValueError` with a message that describes the expected value (`"a duration such
# as `30s`"`); the caller reports it together with key and value.


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


_T = TypeVar("_T", bound="DataclassInstance")

REDACTED = "********"

_SECRET = re.compile(
    r"password|secret|token|\.pem|credential|jaas|basic\.auth|sasl\.oauthbearer\.config", re.I
)
_UNSET: Any = object()


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Setting:
    """Declaration of one setting.

    Attributes:
        key: dotted key, as in YAML.
        kind: type of the value.
        default: default as in YAML; None = no default (the documentation says what applies).
        unset: typed value if the setting is not given.
        required: whether a value is required.
        unit: unit of the number, for the reference.
        doc: generated documentation; empty: the docstring below the field.
        secret: redacts a typed value for display; None = nothing to redact.
    """

    key: str
    kind: Kind
    default: Any = None
    unset: Any = None
    required: bool = False
    unit: str = ""
    doc: str = ""
    secret: Callable[[Any], Any] | None = None


def setting(key: str, kind: Kind, *, unset: Any = _UNSET, **details: Any) -> Any:
    """Declare a field with the typed value of a setting; arguments are those of `Setting`.

    `unset` defaults to the default of the setting, or to the empty value of its kind.
    """
    row = Setting(key=key, kind=kind, unset=unset, **details)
    if unset is _UNSET:
        unset = kind.empty if row.default is None else kind.parse(row.default)
        row = dataclasses.replace(row, unset=unset)
    metadata = {"setting": row}
    if row.required:
        return dataclasses.field(metadata=metadata)
    if isinstance(unset, dict):
        return dataclasses.field(default_factory=unset.copy, metadata=metadata)
    return dataclasses.field(default=unset, metadata=metadata)


def section(*classes: type, default: Any = dataclasses.MISSING) -> Any:
    """Declare a field whose value is an instance of one of these classes, with their settings."""
    return dataclasses.field(default=default, metadata={"section": classes})


class Section:
    """A frozen dataclass of settings; its `repr` shows no secret."""

    __slots__ = ()

    def __repr__(self) -> str:
        values = ", ".join(f"{name}={value!r}" for name, value in redacted(self).items())
        return f"{type(self).__name__}({values})"


def fields_declared(cls: type) -> dict[str, Setting]:
    """Return the settings that a class itself declares, by attribute."""
    return {
        field.name: field.metadata["setting"]
        for field in dataclasses.fields(cls)
        if "setting" in field.metadata
    }


def declared(*classes: type) -> tuple[Setting, ...]:
    """Return all settings of classes and their sections, without duplicates, in order."""
    rows: dict[str, Setting] = {}
    for cls in classes:
        for field in dataclasses.fields(cls):
            if "setting" in field.metadata:
                row = field.metadata["setting"]
                rows.setdefault(row.key, row)
            for row in declared(*field.metadata.get("section", ())):
                rows.setdefault(row.key, row)
    return tuple(rows.values())


def docs(cls: type) -> dict[str, str]:
    """Return the documentation of the settings of a class and its sections, by key."""
    tree = ast.parse(inspect.getsource(sys.modules[cls.__module__]))
    bodies = {node.name: node.body for node in tree.body if isinstance(node, ast.ClassDef)}
    texts = {}
    for base in reversed(cls.__mro__):
        body = bodies.get(base.__name__, [])
        for node, after in itertools.pairwise(body):
            if isinstance(node, ast.AnnAssign) and isinstance(after, ast.Expr):
                texts[ast.unparse(node.target)] = ast.literal_eval(after.value)
    texts_by_key = {}
    for field in dataclasses.fields(cls):
        if "setting" in field.metadata:
            row = field.metadata["setting"]
            texts_by_key[row.key] = row.doc or " ".join(texts.get(field.name, "").split())
        for inner in field.metadata.get("section", ()):
            texts_by_key |= {key: text for key, text in docs(inner).items() if text}
    return texts_by_key


def build(cls: type[_T], values: Mapping[str, Any], **derived: Any) -> _T:
    """Build an instance of a class and its sections from typed values by key.

    Args:
        cls: class to build.
        values: typed values of given settings; others have their `unset` value.
        derived: attributes derived from more than one setting.
    """
    members = dict(derived)
    for field in dataclasses.fields(cls):
        if field.name in derived:
            continue
        if "setting" in field.metadata:
            row = field.metadata["setting"]
            members[field.name] = values.get(row.key, row.unset)
        elif "section" in field.metadata:
            members[field.name] = build(field.metadata["section"][0], values)
    return cls(**members)


def redacted(value: Any) -> dict[str, Any]:
    """Return attributes as plain values without secrets, for a log or a status page."""
    return {
        field.name: _redacted(field.metadata.get("setting"), getattr(value, field.name))
        for field in dataclasses.fields(value)
    }


def _redacted(row: Setting | None, value: Any) -> Any:
    if row is not None and row.secret is not None and value:
        value = row.secret(value)
    if dataclasses.is_dataclass(value):
        return redacted(value)
    if isinstance(value, (list, tuple)):
        return [_redacted(None, item) for item in value]
    return dict(value) if isinstance(value, Mapping) else value


def hide(value: object) -> str:
    """Redact a secret completely."""
    return REDACTED


def hide_values(values: Mapping[str, str]) -> dict[str, str]:
    """Redact the values of a map."""
    return dict.fromkeys(values, REDACTED)


def redact_properties(properties: Mapping[str, str]) -> dict[str, str]:
    """Redact client properties whose names are those of secrets."""
    return {name: REDACTED if _SECRET.search(name) else text for name, text in properties.items()}


def redact_urls(urls: Iterable[str]) -> tuple[str, ...]:
    """Reduce addresses to scheme and host."""
    return tuple(redacted_url(url) for url in urls)


def redacted_url(url: str) -> str:
    """Reduce an address to scheme and host: the rest is the secret of many webhooks."""
    parts = urllib.parse.urlsplit(url)
    host = parts.hostname or ""
    port = f":{parts.port}" if parts.port else ""
    return f"{parts.scheme}://{host}{port}/…"
