# SPDX-License-Identifier: Apache-2.0
"""Where a read begins: `scan.mode`, or what the other scan options imply.

Source: SEMANTICS.md §C.8, §C.9. The same options mean one state to a batch read (`time_travel`,
`incremental`) and a starting point to a streaming one (package `changelog`).
"""

import datetime
import enum
from collections.abc import Mapping, Sequence

from storage.errors import InvalidOptionError
from storage.format.metadata.schema import TableSchema
from storage.options.options import TableOptions, option_value

__all__ = ["ScanMode", "check_streaming", "local_time_ms", "option_number", "scan_mode_of"]

_SNAPSHOT_ID = "scan.snapshot-id"
_TIMESTAMP_MS = "scan.timestamp-millis"
_TIMESTAMP = "scan.timestamp"
_FILES_SINCE = "scan.file-creation-time-millis"
_SINCE = "scan.creation-time-millis"
_BY_SNAPSHOT = (_SNAPSHOT_ID, "scan.tag-name", "scan.watermark", "scan.version")
_INCREMENTAL = ("incremental-between", "incremental-between-timestamp", "incremental-to-auto-tag")


class ScanMode(enum.Enum):
    """Where a read begins; the value is the word of `scan.mode`."""

    LATEST_FULL = "latest-full"
    LATEST = "latest"
    LATEST_DELTA = "latest-delta"
    COMPACTED_FULL = "compacted-full"
    FROM_TIMESTAMP = "from-timestamp"
    FROM_SNAPSHOT = "from-snapshot"
    FROM_SNAPSHOT_FULL = "from-snapshot-full"
    FROM_FILE_CREATION_TIME = "from-file-creation-time"
    FROM_CREATION_TIMESTAMP = "from-creation-timestamp"
    INCREMENTAL = "incremental"


_DEFAULT = "default"
_ALIASES = {"full": ScanMode.LATEST_FULL}

_ALLOWED: Mapping[ScanMode, Sequence[str]] = {
    ScanMode.FROM_TIMESTAMP: (_TIMESTAMP_MS, _TIMESTAMP),
    ScanMode.FROM_SNAPSHOT: _BY_SNAPSHOT,
    ScanMode.FROM_SNAPSHOT_FULL: (_SNAPSHOT_ID,),
    ScanMode.FROM_FILE_CREATION_TIME: (_FILES_SINCE,),
    ScanMode.FROM_CREATION_TIMESTAMP: (_SINCE,),
    ScanMode.INCREMENTAL: _INCREMENTAL,
}
"""Of these options a mode needs exactly one; other modes allow none of all. In the order in which
an option decides about the mode where `scan.mode` does not."""

_KEYS = tuple(dict.fromkeys(key for keys in _ALLOWED.values() for key in keys))


def check_streaming(schema: TableSchema, options: TableOptions) -> None:
    """Check that a stream of the table would not show changes twice.

    Raises:
        InvalidOptionError: an option asks for it.
    """
    if not options.streaming_read_overwrite:
        return
    if options.changelog_producer in ("lookup", "full-compaction"):
        raise InvalidOptionError(
            "Cannot set streaming-read-overwrite to true when changelog producer is "
            "full-compaction or lookup because it will read duplicated changes.",
            hint="remove `streaming-read-overwrite`",
            producer=options.changelog_producer,
        )
    if not schema.primary_keys:
        raise InvalidOptionError(
            "Doesn't support streaming read the changes from overwrite when the primary keys are "
            "not defined.",
            hint="set `streaming-read-append-overwrite` instead",
            option="streaming-read-overwrite",
        )


def scan_mode_of(options: Mapping[str, str]) -> tuple[ScanMode, str | None]:
    """The mode of a read, and the key of the option that says where exactly it begins.

    Args:
        options: of the table, dynamic ones included.

    Returns:
        The mode and the key, None where the mode needs none.

    Raises:
        InvalidOptionError: options that contradict each other, or an unknown mode.
    """
    given = [key for key in _KEYS if options.get(key)]
    mode = _named(option_value(options, "scan.mode"), given)
    allowed = _ALLOWED.get(mode, ())
    own = [key for key in given if key in allowed]
    foreign = [key for key in given if key not in allowed]
    use = f"when you use {mode.value} for scan.mode"
    problem = ""
    if foreign and not allowed:
        problem = (
            f"[{', '.join(foreign)}] must be null when you set [scan.mode]: "
            f"{foreign[0]} must be null {use}"
        )
    elif allowed and len(own) != 1:
        problem = f"must set only one key in [{','.join(allowed)}] {use}"
        if len(allowed) == 1:
            problem += f": {allowed[0]} can not be null {use}"
    elif foreign:
        problem = f"[{', '.join(foreign)}] must be null when you set [{','.join(allowed)}]"
    if problem:
        raise InvalidOptionError(
            problem,
            hint="choose where the read begins in one way only",
            mode=mode.value,
            given=", ".join(given),
        )
    return mode, own[0] if own else None


def _named(word: str, given: Sequence[str]) -> ScanMode:
    if word in _ALIASES:
        return _ALIASES[word]
    if word == _DEFAULT:
        implied = (mode for mode, keys in _ALLOWED.items() if any(key in given for key in keys))
        return next(implied, ScanMode.LATEST_FULL)
    return ScanMode(word)


def option_number(key: str, value: str) -> int:
    """A whole number.

    Raises:
        InvalidOptionError: it is none; names the option.
    """
    try:
        return int(value)
    except ValueError as error:
        raise InvalidOptionError("option is not an integer", key=key, value=value) from error


def local_time_ms(key: str, value: str) -> int:
    """A local date and time, as `2024-01-31 12:30:00.5` [epoch ms].

    Raises:
        InvalidOptionError: it is none; names the option.
    """
    try:
        time = datetime.datetime.fromisoformat(value.strip())
    except ValueError as error:
        raise InvalidOptionError(
            "option is not a date and time",
            hint="write it as `2024-01-31 12:30:00`",
            key=key,
            value=value,
        ) from error
    whole = time.replace(microsecond=0)
    return int(whole.timestamp()) * 1000 + time.microsecond // 1000
