# SPDX-License-Identifier: Apache-2.0
"""Dropping partitions that are older than `partition.expiration-time`.

Source: SEMANTICS.md §F.14. The age of a partition is that of the time its values denote, or of its
newest file. Dropping is an OVERWRITE commit that only deletes; files are removed when its
predecessor expires. The choice is pure (`choose_expired_partitions`).
"""

import calendar
import datetime
import json
import re
import urllib.request
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any

from storage.clock import epoch_of_local_ms, local_of_epoch_ms
from storage.errors import (
    CorruptDataError,
    InvalidOptionError,
    InvalidRequestError,
    StorageUnavailableError,
    UnsupportedFeatureError,
)
from storage.format.metadata.file_meta import FileKind
from storage.format.metadata.layout import escape, unescape
from storage.format.metadata.snapshot import BATCH_COMMIT_IDENTIFIER, CommitKind, Snapshot
from storage.format.row.binary_row import decode_row
from storage.options.options import TableOptions
from storage.table.commit.commit import FileStoreCommit
from storage.table.commit.live_files import delta_entries, live_state
from storage.table.core import CatalogEnvironment, TableCore
from storage.table.inspect.system.columns import field_text
from storage.table.write.overwritten import partition_matcher

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


# Marking partitions as done: their rows are complete, and jobs that wait for them may start.
#
# A partition is done when it got no rows for `partition.idle-time-to-done` since its last rows, or
# since the end of its time (`partition.time-interval` after the time that its values denote),
# whichever is later. The actions of `partition.mark-done-action` follow Paimon's: a success file in
# the directory of the partition, a `.done` partition or a mark in a catalog that registers
# partitions, a report by HTTP. A partition that gets rows again is marked again later.
#
# Pending partitions are derived from the snapshots, so a restarted process continues: for
# partitions with a success file only newer rows count. Without success files reports are at least
# once.


_SUCCESS_FILE = "_SUCCESS"
_TIMEOUT_S = 30.0
_READERS = 16


def mark_partitions_done(
    table: TableCore,
    partitions: Sequence[Mapping[str, Any]],
    *,
    now_ms: int | None = None,
) -> list[str]:
    """Carry out the actions of `partition.mark-done-action` for partitions.

    Args:
        partitions: the value of each partition column; None is null. A partition without rows gets
            the directory that the texts of its values name.
        now_ms: current time [epoch ms]; None: of the table's clock.

    Returns:
        Directories of the partitions, below that of the table.

    Raises:
        InvalidRequestError: no partition is selected, or a partition column is missing, is unknown,
            or cannot have the value.
        UnsupportedFeatureError: an action cannot be carried out; names the option.
        StorageUnavailableError: an action failed; call again.
    """
    keys = table.schema.partition_keys
    if not partitions or not keys:
        raise InvalidRequestError(
            "no partitions given to mark as done",
            hint=f"give values of {', '.join(keys)}" if keys else "the table has no partitions",
            table=table.layout.root,
        )
    default = table.options.partition_default_name
    latest = table.latest_snapshot()
    live = {} if latest is None else live_state(table, latest).buckets
    live_partitions = sorted({partition for partition, _ in live})
    paths = []
    for values in partitions:
        if set(values) != set(keys):
            raise InvalidRequestError(
                "marking a partition as done needs values of all partition columns",
                hint=f"give {', '.join(keys)}",
                given=", ".join(values),
            )
        matches = partition_matcher(table, values)
        partition = next((item for item in live_partitions if matches(item)), None)
        if partition is not None:
            paths.append(table.partition_path(partition))
            continue
        texts = {key: default if values[key] is None else str(values[key]) for key in keys}
        paths.append("/".join(f"{escape(key)}={escape(text)}" for key, text in texts.items()))
    for path in paths:
        _write_marker(table, path, table.clock.now_ms() if now_ms is None else now_ms)
    return paths


def success_times(table: TableCore, paths: Sequence[str]) -> dict[str, int]:
    """When partitions were marked as done last, as their success files say [epoch ms].

    Args:
        paths: directories of partitions, below that of the table; those without file are left out.
    """

    def read(path: str) -> int | None:
        try:
            document = json.loads(table.file_io.read_bytes(_success_file(table, path)))
            return int(document["modificationTime"])
        except FileNotFoundError:
            return None
        except (ValueError, KeyError, TypeError) as error:
            raise CorruptDataError(
                "a success file cannot be read",
                hint="remove it; the partition is marked again",
                file=_success_file(table, path),
            ) from error

    with ThreadPoolExecutor(_READERS, "success-files") as pool:
        pairs = zip(paths, pool.map(read, paths), strict=True)
        return {path: time for path, time in pairs if time is not None}


class DoneTrigger:
    """Finds the partitions of one table that are done, and marks them; of one process.

    It remembers up to which snapshot it has looked, and which partitions are pending.
    """

    def __init__(self) -> None:
        self._seen_snapshot: int | None = None
        self._pending: dict[bytes, int] = {}

    def run(
        self,
        table: TableCore,
        *,
        now_ms: int,
        ended: bool = False,
    ) -> list[str]:
        """Mark the partitions that are done by now.

        Args:
            now_ms: current time [epoch ms].
            ended: whether a batch job has just ended: with `partition.end-input-to-done` all
                pending partitions are done.

        Returns:
            Directories of the partitions that were marked.

        Raises: as `mark_partitions_done`; the rest is marked by the next call.
        """
        options = table.options
        all_done = ended and options.partition_end_input_to_done
        by_time = None not in (
            options.partition_idle_time_to_done_ms,
            options.partition_time_interval_ms,
        )
        latest = table.latest_snapshot()
        if not (all_done or by_time) or latest is None or not table.schema.partition_keys:
            return []
        self._observe(table, latest)
        if options.partition_mark_done_action_mode == "watermark":
            now_ms = -1 if latest.watermark is None else latest.watermark
        marked = []
        for partition in sorted(self._pending):
            if all_done or self._is_done(table, partition, now_ms):
                path = table.partition_path(partition)
                _write_marker(table, path, table.clock.now_ms())
                del self._pending[partition]
                marked.append(path)
        return marked

    def _observe(self, table: TableCore, latest: Snapshot) -> None:
        """Process what was committed since the last call."""
        first = self._seen_snapshot is None
        start = max(table.snapshots.earliest_id() or 1, 1 + (self._seen_snapshot or 0))
        by_watermark = table.options.partition_mark_done_action_mode == "watermark"
        for snapshot in table.snapshots.recall_many(range(start, latest.id + 1)):
            time = snapshot.watermark if by_watermark else snapshot.time_ms
            if snapshot.commit_kind is CommitKind.COMPACT or time is None:
                continue
            for entry in delta_entries(table, snapshot):
                if entry.kind is FileKind.ADD:
                    before = self._pending.get(entry.partition, time)
                    self._pending[entry.partition] = max(before, time)
        self._seen_snapshot = latest.id
        live = self._live_times(table, latest)
        if first:
            self._recover(table, live, by_watermark=by_watermark)
        self._pending = {key: time for key, time in self._pending.items() if key in live}

    @staticmethod
    def _live_times(table: TableCore, latest: Snapshot) -> dict[bytes, int]:
        """When the newest file of each partition was created [epoch ms]."""
        newest: dict[bytes, int] = {}
        for entry in live_state(table, latest).entries():
            time_ms = entry.file.creation_time_ms or 0
            newest[entry.partition] = max(time_ms, newest.get(entry.partition, 0))
        return {partition: epoch_of_local_ms(time_ms) for partition, time_ms in newest.items()}

    def _recover(self, table: TableCore, live: Mapping[bytes, int], *, by_watermark: bool) -> None:
        """Drop partitions that are marked already; add unmarked ones whose snapshots expired."""
        if "success-file" not in table.options.partition_mark_done_action:
            return
        paths = {partition: table.partition_path(partition) for partition in live}
        marked = success_times(table, list(paths.values()))
        for partition, path in paths.items():
            if path not in marked:
                self._pending.setdefault(partition, -1 if by_watermark else live[partition])
            elif by_watermark or self._pending.get(partition, 0) < marked[path]:
                self._pending.pop(partition, None)

    def _is_done(self, table: TableCore, partition: bytes, now_ms: int) -> bool:
        options = table.options
        idle_ms, interval_ms = (
            options.partition_idle_time_to_done_ms,
            options.partition_time_interval_ms,
        )
        if idle_ms is None or interval_ms is None:
            return False
        time = _spelled(partition_values(table, partition), options)
        if time is None:
            return False
        begun_ms = (time - _EPOCH) // datetime.timedelta(milliseconds=1)
        if options.partition_mark_done_action_mode != "watermark":
            begun_ms = epoch_of_local_ms(begun_ms)
        return now_ms - max(self._pending[partition], begun_ms + interval_ms) > idle_ms


def _write_marker(table: TableCore, path: str, now_ms: int) -> None:
    spec = {
        unescape(key): unescape(text)
        for key, _, text in (part.partition("=") for part in path.split("/"))
    }
    for action in table.options.partition_mark_done_action:
        match action:
            case "success-file":
                _write_success_file(table, path, now_ms)
            case "done-partition":
                last = table.schema.partition_keys[-1]
                done_spec = {**spec, last: spec[last] + ".done"}
                _partitions(table, action).add_partitions([done_spec])
            case "mark-event":
                _partitions(table, action).mark_done([spec])
            case "http-report":
                _report(table, path)
            case _:
                raise UnsupportedFeatureError(
                    "custom actions are Java classes, which cannot be executed",
                    hint="use success-file, done-partition, mark-event or http-report",
                    option="partition.mark-done-action",
                    value=action,
                )


def _success_file(table: TableCore, path: str) -> str:
    return f"{table.layout.root}/{path}/{_SUCCESS_FILE}"


def _write_success_file(table: TableCore, path: str, now_ms: int) -> None:
    file = _success_file(table, path)
    try:
        created = json.loads(table.file_io.read_bytes(file))["creationTime"]
    except (FileNotFoundError, ValueError, KeyError, TypeError):
        created = now_ms
    document = {"creationTime": created, "modificationTime": now_ms}
    table.file_io.overwrite_bytes(file, json.dumps(document, indent=2).encode())


def _partitions(table: TableCore, action: str) -> CatalogEnvironment:
    environment = table.environment
    if environment is None or not environment.registers_partitions:
        raise UnsupportedFeatureError(
            "Cannot mark done partition for table without metastore.",
            hint="use success-file or http-report, or keep the table in a Hive catalog",
            option="partition.mark-done-action",
            value=action,
        )
    if not table.options.metastore_partitioned_table:
        raise UnsupportedFeatureError(
            "the partitions of this table are not registered in the metastore",
            hint="set `metastore.partitioned-table` when the table is created, or use success-file",
            option="partition.mark-done-action",
            value=action,
        )
    return environment


def _report(table: TableCore, path: str) -> None:
    """Report by HTTP; the answer must be a document with `result` = success."""
    options = table.options
    url = options.partition_mark_done_action_http_url
    if not url or not url.startswith(("http://", "https://")):
        raise InvalidOptionError(
            "http-report needs a URL to report to",
            hint="set `partition.mark-done-action.http.url` to an http(s) URL",
            option="partition.mark-done-action.http.url",
            value=url,
        )
    database, _, name = table.layout.root.rpartition("/")
    full_name = f"{database.rpartition('/')[2].removesuffix('.db')}.{name}"
    body = {
        "params": options.partition_mark_done_action_http_params,
        "table": full_name,
        "path": table.layout.root,
        "partition": f"{path}/",
    }
    request = urllib.request.Request(
        url, json.dumps(body).encode(), {"Content-Type": "application/json"}, method="POST"
    )
    try:
        with urllib.request.urlopen(request, timeout=_TIMEOUT_S) as answer:
            result = json.loads(answer.read()).get("result")
    except (OSError, ValueError, AttributeError) as error:
        raise StorageUnavailableError(
            "a done partition could not be reported",
            detail=str(error),
            hint="check the server of `partition.mark-done-action.http.url`",
            partition=path,
        ) from error
    if str(result).lower() != "success":
        raise StorageUnavailableError(
            "the report of a done partition was not accepted",
            detail=f"the answer's `result` is {result!r}, not `success`",
            hint="check the server of `partition.mark-done-action.http.url`",
            partition=path,
        )
