# SPDX-License-Identifier: Apache-2.0
"""Which snapshot a batch read sees: the newest, or the one that options or arguments choose.

Source: SEMANTICS.md §C.8 ("Batch meaning"), §I. At most one way of choosing may be used; the mode
that `scan.mode` names, or that the options imply, says which options may stand beside each other.
"""

import contextlib
import dataclasses
import datetime
from collections.abc import Mapping, Sequence

from storage.errors import InvalidOptionError, InvalidRequestError, NotFoundError
from storage.format.snapshot import CommitKind, Snapshot
from storage.table.core import TableCore
from storage.table.tags import get_tag

__all__ = ["TimeTravel", "chosen_snapshot", "travel_of"]

_SNAPSHOT_ID = "scan.snapshot-id"
_TAG = "scan.tag-name"
_TIMESTAMP_MS = "scan.timestamp-millis"
_TIMESTAMP = "scan.timestamp"
_WATERMARK = "scan.watermark"
_VERSION = "scan.version"
_WATERMARK_PREFIX = "watermark-"

_BY_TIME = (_TIMESTAMP_MS, _TIMESTAMP)
_BY_SNAPSHOT = (_SNAPSHOT_ID, _TAG, _WATERMARK, _VERSION)
_KEYS = (*_BY_SNAPSHOT, *_BY_TIME)

_ALLOWED: Mapping[str, Sequence[str]] = {
    "from-timestamp": _BY_TIME,
    "from-snapshot": _BY_SNAPSHOT,
    "from-snapshot-full": (_SNAPSHOT_ID,),
}
"""Of these options a mode needs exactly one; other modes allow none of all."""


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class TimeTravel:
    """One way of choosing a snapshot; all None: the newest.

    Attributes:
        snapshot_id: that one.
        tag: the tag's, which may have expired.
        timestamp_ms: the newest committed at or before this time [epoch ms].
        watermark: the first whose watermark has reached this [epoch ms].
        version: a tag of this name, else `watermark-<n>`, else a snapshot id.
        compacted: the newest made by a compaction, else the newest.
    """

    snapshot_id: int | None = None
    tag: str | None = None
    timestamp_ms: int | None = None
    watermark: int | None = None
    version: str | None = None
    compacted: bool = False

    @property
    def to_newest(self) -> bool:
        """Whether nothing is chosen."""
        return self == TimeTravel()

    def resolve(self, table: TableCore) -> Snapshot | None:
        """The snapshot; None only for the newest of a table without snapshots.

        Raises:
            InvalidRequestError: more than one way is given.
            NotFoundError: there is no such snapshot or tag.
        """
        given = [
            field.name
            for field in dataclasses.fields(self)
            if getattr(self, field.name) not in (None, False)
        ]
        if len(given) > 1:
            raise InvalidRequestError(
                "only one way of time travel may be used at a time", given=", ".join(given)
            )
        if self.snapshot_id is not None:
            return table.snapshots.read(self.snapshot_id)
        if self.tag is not None:
            return get_tag(table, self.tag).snapshot
        if self.timestamp_ms is not None:
            return _at_time(table, self.timestamp_ms)
        if self.watermark is not None:
            return _at_watermark(table, self.watermark)
        if self.version is not None:
            return _at_version(table, self.version)
        if self.compacted:
            return _newest_compacted(table)
        return table.latest_snapshot()


def travel_of(options: Mapping[str, str]) -> TimeTravel:
    """What table options choose.

    Raises:
        InvalidOptionError: options that contradict each other, or a value that does not parse.
    """
    given = [key for key in _KEYS if options.get(key)]
    mode = options.get("scan.mode", "default")
    _check_mode(mode, given)
    if not given:
        return TimeTravel(compacted=mode == "compacted-full")
    key = given[0]
    value = options[key].strip()
    match key:
        case "scan.tag-name":
            return TimeTravel(tag=value)
        case "scan.version":
            return TimeTravel(version=value)
        case "scan.timestamp":
            return TimeTravel(timestamp_ms=_local_time_ms(value))
        case "scan.timestamp-millis":
            return TimeTravel(timestamp_ms=_number(key, value))
        case "scan.watermark":
            return TimeTravel(watermark=_number(key, value))
        case _:
            return TimeTravel(snapshot_id=_number(key, value))


def chosen_snapshot(table: TableCore) -> Snapshot | None:
    """The snapshot that the table's options choose; None on a table without snapshots.

    Raises: as `travel_of` and `TimeTravel.resolve`.
    """
    return travel_of(table.schema.options).resolve(table)


def _check_mode(mode: str, given: Sequence[str]) -> None:
    if mode == "default" and given:
        mode = "from-timestamp" if any(key in _BY_TIME for key in given) else "from-snapshot"
    allowed = _ALLOWED.get(mode, ())
    foreign = [key for key in given if key not in allowed]
    if foreign:
        wanted = allowed or ("scan.mode",)
        raise InvalidOptionError(
            f"[{', '.join(foreign)}] must be null when you set [{','.join(wanted)}]",
            hint="choose the snapshot in one way only",
            mode=mode,
        )
    if allowed and len(given) != 1:
        raise InvalidOptionError(
            f"must set only one key in [{','.join(allowed)}] when you use {mode} for scan.mode",
            mode=mode,
            given=", ".join(given),
        )


def _number(key: str, value: str) -> int:
    try:
        return int(value)
    except ValueError as error:
        raise InvalidOptionError("option is not an integer", key=key, value=value) from error


def _local_time_ms(value: str) -> int:
    """A local date and time, as `2024-01-31 12:30:00.5`, in epoch milliseconds."""
    try:
        time = datetime.datetime.fromisoformat(value)
    except ValueError as error:
        raise InvalidOptionError(
            "option is not a date and time",
            hint="write it as `2024-01-31 12:30:00`",
            key=_TIMESTAMP,
            value=value,
        ) from error
    whole = time.replace(microsecond=0)
    return int(whole.timestamp()) * 1000 + time.microsecond // 1000


def _at_time(table: TableCore, time_ms: int) -> Snapshot:
    found = table.snapshots.at_time(time_ms)
    if found is None:
        raise NotFoundError(
            f"There is currently no snapshot earlier than or equal to timestamp[{time_ms}]",
            table=table.layout.root,
        )
    return found


def _at_watermark(table: TableCore, watermark: int) -> Snapshot:
    """Watermarks never go back, but snapshots before the first may have none."""
    ids = table.snapshots.ids()
    low, high = 0, len(ids)
    while low < high:
        middle = (low + high) // 2
        mark = table.snapshots.read(ids[middle]).watermark
        if mark is None or mark < watermark:
            low = middle + 1
        else:
            high = middle
    if low == len(ids):
        raise NotFoundError(
            f"There is currently no snapshot later than or equal to watermark[{watermark}]",
            table=table.layout.root,
        )
    return table.snapshots.read(ids[low])


def _at_version(table: TableCore, version: str) -> Snapshot:
    if table.file_io.exists(table.layout.tag_file(version)):
        return get_tag(table, version).snapshot
    if version.startswith(_WATERMARK_PREFIX):
        number = version.removeprefix(_WATERMARK_PREFIX)
        return _at_watermark(table, _number(_VERSION, number))
    if version.isascii() and version.isdigit():
        return table.snapshots.read(int(version))
    raise NotFoundError(
        f"Cannot find a time travel version for {version}",
        detail="there is no tag of that name, and it is no snapshot id",
        table=table.layout.root,
    )


def _newest_compacted(table: TableCore) -> Snapshot | None:
    latest = table.latest_snapshot()
    if latest is None:
        return None
    with contextlib.suppress(NotFoundError):
        for snapshot in table.snapshots.recall_many(range(latest.id, 0, -1)):
            if snapshot.commit_kind is CommitKind.COMPACT:
                return snapshot
    return latest
