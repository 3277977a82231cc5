# SPDX-License-Identifier: Apache-2.0
"""Dropping partitions that are older than `partition.expiration-time`.

Source: SEMANTICS.md §F.14. The age of a partition is that of the time its values denote, or of its
newest file. Dropping is an OVERWRITE commit that only deletes; files are removed when its
predecessor expires. The choice is pure (`choose_expired_partitions`).
"""

import calendar
import datetime
import re
from collections.abc import Mapping

from storage.clock import local_of_epoch_ms
from storage.errors import InvalidOptionError
from storage.format.metadata.snapshot import BATCH_COMMIT_IDENTIFIER
from storage.format.row.binary_row import decode_row
from storage.options.options import TableOptions
from storage.table.commit.commit import FileStoreCommit
from storage.table.commit.live_files import live_state
from storage.table.core import TableCore
from storage.table.inspect.system.columns import field_text

_EPOCH = datetime.datetime(1970, 1, 1)  # noqa: DTZ001 - wall clocks without zone
_DEFAULT = re.compile(
    r"(\d{1,10})-(\d{1,2})-(\d{1,2})(?: (\d{1,2}):(\d{1,2}):(\d{1,2})(?:\.(\d{1,9}))?)?"
)
_LETTERS = {"y": "y", "u": "y", "M": "M", "d": "d", "H": "H", "m": "m", "s": "s", "S": "S"}
_TOKEN = re.compile(r"([A-Za-z])\1*|'((?:[^']|'')*)'|(.)", re.DOTALL)


def partition_time(
    values: Mapping[str, str | None], pattern: str | None, formatter: str | None
) -> datetime.datetime | None:
    """The time that the values of a partition denote, or None when they denote none.

    Args:
        values: texts by partition column, in order; None of a null.
        pattern: `partition.timestamp-pattern`, with `$column` for values; None: the first value.
        formatter: `partition.timestamp-formatter`, as of Java; None: a date, or date and time.

    Raises:
        InvalidOptionError: the formatter has unknown letters.
    """
    text = next(iter(values.values())) if pattern is None else _filled(pattern, values)
    expression = None if formatter is None else _expression(formatter)
    if text is None:
        return None
    try:
        return _parsed_leniently(text) if expression is None else _parsed(text, expression)
    except (ValueError, OverflowError):
        return None


def choose_expired_partitions(
    times: Mapping[bytes, datetime.datetime | None],
    names: Mapping[bytes, str],
    *,
    now: datetime.datetime,
    age: datetime.timedelta,
    limit: int,
) -> list[bytes]:
    """The partitions that expire, in the order of their names. Pure.

    Args:
        times: of each partition; None = it has none and stays.
        names: by which they are ordered.
        now: current time, by the same clock.
        age: up to which a partition stays.
    """
    old = [partition for partition, time in times.items() if time is not None and now - age > time]
    return sorted(old, key=names.__getitem__)[:limit]


def expirable_partitions(table: TableCore, *, now_ms: int) -> dict[bytes, str]:
    """The partitions (framed) that `expire_partitions` would drop now, with their names.

    Args:
        now_ms: current time [epoch ms].

    Returns:
        Values joined by commas, in the order of these.

    Raises:
        InvalidOptionError: an option is bad.
    """
    options = table.options
    age_ms = options.partition_expiration_time_ms
    latest = table.latest_snapshot()
    if age_ms is None or latest is None or not table.schema.partition_keys:
        return {}
    entries = [(e.partition, e.file) for e in live_state(table, latest).entries()]
    values = {partition: partition_values(table, partition) for partition, _ in entries}
    names = {
        partition: ",".join(
            options.partition_default_name if v is None else v for v in texts.values()
        )
        for partition, texts in values.items()
    }
    if options.partition_expiration_strategy == "update-time":
        times: dict[bytes, datetime.datetime | None] = {}
        for partition, file in entries:
            time = _EPOCH + datetime.timedelta(milliseconds=file.creation_time_ms or 0)
            times[partition] = max(time, times.get(partition) or time)
    else:
        times = {partition: _spelled(texts, options) for partition, texts in values.items()}
    expired = choose_expired_partitions(
        times,
        names,
        now=_EPOCH + datetime.timedelta(milliseconds=local_of_epoch_ms(now_ms)),
        age=datetime.timedelta(milliseconds=age_ms),
        limit=options.partition_expiration_max_num,
    )
    return {partition: names[partition] for partition in expired}


def expire_partitions(
    table: TableCore, *, now_ms: int | None = None, user: str | None = None
) -> list[str]:
    """Drop the expired partitions.

    Args:
        now_ms: current time [epoch ms]; None: of the table's clock.
        user: who commits; None: a new user.

    Returns:
        Their values, joined by commas.

    Raises:
        InvalidOptionError: an option is bad.
        As `FileStoreCommit.truncate`.
    """
    now_ms = table.clock.now_ms() if now_ms is None else now_ms
    names = expirable_partitions(table, now_ms=now_ms)
    expired = list(names)
    size = table.options.partition_expiration_batch_size or len(expired)
    for at in range(0, len(expired), max(1, size)):
        batch = frozenset(expired[at : at + size])
        commit = FileStoreCommit(table, user or table.ids.uuid())
        commit.truncate(BATCH_COMMIT_IDENTIFIER, partitions=batch.__contains__)
    return list(names.values())


def partition_values(table: TableCore, partition: bytes) -> dict[str, str | None]:
    """Texts of the values of a framed partition, by column; None of a null."""
    fields = table.schema.partition_fields
    values = decode_row(partition, [field.type for field in fields])
    return {
        field.name: None if value is None else field_text(value, field)
        for field, value in zip(fields, values, strict=True)
    }


def _spelled(values: Mapping[str, str | None], options: TableOptions) -> datetime.datetime | None:
    pattern, formatter = options.partition_timestamp_pattern, options.partition_timestamp_formatter
    return partition_time(values, pattern, formatter)


def _filled(pattern: str, values: Mapping[str, str | None]) -> str | None:
    """The pattern with values; longer names first, so `$dt` is not found in `$dt1`."""
    names = sorted(values, key=len, reverse=True)
    text, at = "", 0
    while at < len(pattern):
        name = None
        if pattern[at] == "$":
            name = next((column for column in names if pattern.startswith(column, at + 1)), None)
        if name is None:
            text += pattern[at]
            at += 1
            continue
        value = values[name]
        if value is None:
            return None
        text += value
        at += 1 + len(name)
    return text


def _parsed_leniently(text: str) -> datetime.datetime:
    """A date with or without time; out-of-range fields carry over, as in Java."""
    match = _DEFAULT.fullmatch(text)
    if match is None:
        raise ValueError(text)
    year, month, day, hour, minute, second = (int(part or 0) for part in match.groups()[:6])
    start = datetime.datetime(year + (month - 1) // 12, (month - 1) % 12 + 1, 1)  # noqa: DTZ001
    micros = int((match.group(7) or "0").ljust(6, "0")[:6])
    return start + datetime.timedelta(
        days=day - 1, hours=hour, minutes=minute, seconds=second, microseconds=micros
    )


def _parsed(text: str, expression: str) -> datetime.datetime:
    """The time in a text; a day that the month lacks is its last, as in Java."""
    match = re.fullmatch(expression, text)
    if match is None:
        raise ValueError(text)
    parts = {name: part for name, part in match.groupdict().items() if part is not None}
    if "y" not in parts or "M" not in parts or "d" not in parts:
        raise ValueError(text)
    year, month, day = int(parts["y"]), int(parts["M"]), int(parts["d"])
    if len(parts["y"]) == 2:
        year += 2000
    if not 1 <= day <= 31:
        raise ValueError(text)
    day = min(day, calendar.monthrange(year, month)[1])
    hour, minute, second = (int(parts.get(name, 0)) for name in "Hms")
    micros = int(parts.get("S", "0").ljust(6, "0")[:6])
    return datetime.datetime(year, month, day, hour, minute, second, micros)  # noqa: DTZ001


def _expression(formatter: str) -> str:
    """A regular expression for a pattern of Java's `DateTimeFormatter`."""
    text = ""
    for token in _TOKEN.finditer(formatter):
        letter, quoted, literal = token.groups()
        if quoted is not None:
            text += re.escape(quoted.replace("''", "'") or "'")
        elif literal is not None:
            text += {"[": "(?:", "]": ")?"}.get(literal, re.escape(literal))
        elif not _is_new_field(letter, len(token.group(0)), text):
            raise InvalidOptionError(
                "this timestamp pattern is not supported",
                hint="use y, M, d, H, m, s and S, each once",
                option="partition.timestamp-formatter",
                value=formatter,
            )
        else:
            count = len(token.group(0))
            digits = rf"\d{{{count}}}" if count > 1 else r"\d{1,9}" if letter in "yu" else r"\d\d?"
            text += f"(?P<{_LETTERS[letter]}>{digits})"
    return text


def _is_new_field(letter: str, count: int, before: str) -> bool:
    """Whether letters of a pattern are a numeric field that has not occurred before."""
    if letter not in _LETTERS or (letter in "MdHms" and count > 2):
        return False
    return f"(?P<{_LETTERS[letter]}>" not in before
