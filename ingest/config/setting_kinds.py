# SPDX-License-Identifier: Apache-2.0
"""What one row of the settings table is, and how YAML values become typed values.

A parser takes what YAML (or an environment variable, then always text) gave and returns the typed
value, or raises `ValueError` whose message says what was wanted (`"a duration such as `30s`"`), so
that the one place that reports it can name key, value and wish together.
"""

import dataclasses
import datetime
import re
from collections.abc import Callable, Mapping
from typing import Any

from ingest.config.daily_window import DailyWindow
from ingest.config.schema_modes import ChangeKind, kinds_named
from ingest.observe.metrics.metric_table import METRICS
from storage.options import values as option_values

__all__ = [
    "Kind",
    "Setting",
    "boolean",
    "bucket_count",
    "change_kinds",
    "choice",
    "daily_window",
    "duration",
    "duration_from",
    "fraction",
    "identifier",
    "integer",
    "label_map",
    "moment",
    "offset_map",
    "size",
    "text",
    "text_list",
    "text_map",
]


@dataclasses.dataclass(frozen=True, slots=True)
class Kind:
    """A type of setting.

    Attributes:
        name: as shown in the reference.
        parse: from the raw value to the typed one; `ValueError` says what is wanted.
        mapping: whether the value is a map whose own keys are not settings.
    """

    name: str
    parse: Callable[[Any], Any]
    mapping: bool = False


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Setting:
    """One row of the settings table.

    Attributes:
        key: dotted key, as written in YAML.
        kind: its type.
        default: as it would be written in YAML; None = no default (the doc says what then happens).
        required: whether a pipeline cannot run without it.
        unit: unit of the number behind it, for the reference.
        doc: one or two sentences for the reference.
    """

    key: str
    kind: Kind
    doc: str
    default: Any = None
    required: bool = False
    unit: str = ""


def _as_text(value: object) -> str:
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, (str, int, float)):
        return str(value)
    raise ValueError("text")


def _parse_text(value: object) -> str:
    result = _as_text(value).strip()
    if not result:
        raise ValueError("text that is not empty")
    return result


def _parse_boolean(value: object) -> bool:
    return value if isinstance(value, bool) else option_values.boolean(_as_text(value))


def _parse_duration(value: object) -> float:
    wanted = "a duration such as `30s`, `5m` or `500ms`"
    try:
        given = _as_text(value)
        milliseconds = option_values.duration_ms(given)
    except ValueError:
        raise ValueError(wanted) from None
    if given.strip().isdigit():  # seconds or milliseconds? do not guess
        raise ValueError(wanted)
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
    """Full names of the kinds that full or partial names mean."""
    found = {kind.value for name in _parse_list(value) for kind in kinds_named(name)}
    return tuple(kind.value for kind in ChangeKind if kind.value in found)


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
_OWN_LABELS = frozenset(name for row in METRICS for name in row.labels)
_TAKEN_LABELS = _OWN_LABELS | {"job", "instance", "le", "quantile", "generation"}


def _parse_labels(value: object) -> dict[str, str]:
    labels = _parse_map(value)
    for name in labels:
        if not _LABEL.fullmatch(name):
            raise ValueError(f"a map of label names to values (`{name}` is no label name)")
        if name in _TAKEN_LABELS:
            raise ValueError(f"labels that metrics do not have already (see `{name}`)")
    return labels


def _parse_offsets(value: object) -> dict[str, dict[str, int]]:
    wanted = "a map of topics to maps of partitions to offsets, `{orders: {0: 42}}`"
    if not isinstance(value, Mapping):
        raise ValueError(wanted)  # noqa: TRY004
    result: dict[str, dict[str, int]] = {}
    for topic, partitions in value.items():
        if not isinstance(partitions, Mapping):
            raise ValueError(wanted)  # noqa: TRY004
        try:
            result[str(topic)] = {str(int(p)): int(offset) for p, offset in partitions.items()}
        except (TypeError, ValueError):
            raise ValueError(wanted) from None
    return result


def _parse_window(value: object) -> str:
    text = _parse_text(value)
    DailyWindow.parse(text)
    return text


def _parse_moment(value: object) -> int:
    wanted = "a time such as `2026-01-31T08:00:00Z` or milliseconds since 1970"
    if isinstance(value, int) and not isinstance(value, bool):
        return value
    moment = value
    if isinstance(value, str):
        if re.fullmatch(r"\d+", value.strip()):
            return int(value)
        try:
            moment = datetime.datetime.fromisoformat(value.strip())
        except ValueError:
            raise ValueError(wanted) from None
    if not isinstance(moment, datetime.datetime):
        raise ValueError(wanted)  # noqa: TRY004
    if moment.tzinfo is None:
        moment = moment.replace(tzinfo=datetime.UTC)
    epoch = datetime.datetime(1970, 1, 1, tzinfo=datetime.UTC)
    return (moment - epoch) // datetime.timedelta(milliseconds=1)


def integer(minimum: int, maximum: int | None = None) -> Kind:
    """A whole number within bounds, both inclusive."""
    upper = "" if maximum is None else f" and at most {maximum}"
    wanted = f"a whole number of at least {minimum}{upper}"

    def parse(value: object) -> int:
        try:
            number = int(_as_text(value).strip().replace("_", ""))
        except ValueError:
            raise ValueError(wanted) from None
        if number < minimum or (maximum is not None and number > maximum):
            raise ValueError(wanted)
        return number

    return Kind("number", parse)


def duration_from(least_s: float, text: str) -> Kind:
    """A duration of at least so many seconds, which are spelt `text`."""

    def parse(value: object) -> float:
        seconds = _parse_duration(value)
        if seconds < least_s:
            raise ValueError(f"a duration of at least `{text}`")
        return seconds

    return Kind("duration", parse)


def choice(*allowed: str) -> Kind:
    """One of several words."""
    words = ", ".join(f"`{word}`" for word in allowed)

    def parse(value: object) -> str:
        # YAML takes the bare word `off` for a truth value
        given = "off" if value is False and "off" in allowed else _as_text(value).strip().lower()
        if given not in allowed:
            raise ValueError(f"one of {words}" if len(allowed) > 1 else words)
        return given

    return Kind(" \\| ".join(f"`{word}`" for word in allowed), parse)


def identifier(pattern: str, wanted: str) -> Kind:
    """A text of a fixed form."""

    def parse(value: object) -> str:
        given = _as_text(value).strip()
        if not re.fullmatch(pattern, given):
            raise ValueError(wanted)
        return given

    return Kind("name", parse)


def _parse_bucket(value: object) -> str:
    wanted = "a number of buckets, -1 (an index finds them), -2 (postpone) or `auto`"
    given = _as_text(value).strip().lower()
    if given == "auto":
        return given
    try:
        number = int(given)
    except ValueError:
        raise ValueError(wanted) from None
    if number < -2 or number == 0:
        raise ValueError(wanted)
    return str(number)


def _parse_fraction(value: object) -> float:
    wanted = "a share between 0 and 1, such as `0.01`"
    try:
        share = float(_as_text(value))
    except ValueError:
        raise ValueError(wanted) from None
    if not 0 < share <= 1:
        raise ValueError(wanted)
    return share


bucket_count = Kind("number \\| `auto`", _parse_bucket)
fraction = Kind("share", _parse_fraction)
text = Kind("text", _parse_text)
boolean = Kind("`true` \\| `false`", _parse_boolean)
duration = Kind("duration", _parse_duration)
size = Kind("size", _parse_size)
text_list = Kind("list", _parse_list)
change_kinds = Kind("list", _parse_change_kinds)
text_map = Kind("map", _parse_map, mapping=True)
label_map = Kind("map", _parse_labels, mapping=True)
offset_map = Kind("map", _parse_offsets, mapping=True)
moment = Kind("time", _parse_moment)
daily_window = Kind("time of day", _parse_window)
