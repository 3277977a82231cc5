# SPDX-License-Identifier: Apache-2.0
"""Which snapshot a batch read sees: the newest, or the one that options or arguments choose.

Source: SEMANTICS.md §C.8 ("Batch meaning"), §I. At most one way of choosing may be used; the mode
that `scan.mode` names, or that the options imply, says which options may be combined.
The same options mean one state to a batch read, changes between two to an incremental one (§C.9),
and a starting point to a stream (package `changelog`).
"""

import bisect
import contextlib
import dataclasses
import datetime
import enum
from collections.abc import Callable, Mapping, Sequence

from storage.errors import (
    InvalidOptionError,
    InvalidRequestError,
    NotFoundError,
    UnsupportedFeatureError,
)
from storage.format.metadata.schema import TableSchema
from storage.format.metadata.snapshot import BATCH_COMMIT_IDENTIFIER, CommitKind, Snapshot
from storage.options.options import TableOptions, option_value
from storage.table.core import TableCore
from storage.table.tags import TagPeriod, all_tags, get_tag

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

_OPTIONS_OF_MODE: Mapping[ScanMode, Sequence[str]] = {
    ScanMode.FROM_TIMESTAMP: (_TIMESTAMP_MS, _TIMESTAMP),
    ScanMode.FROM_SNAPSHOT: _BY_SNAPSHOT,
    ScanMode.FROM_SNAPSHOT_FULL: (_SNAPSHOT_ID,),
    ScanMode.FROM_FILE_CREATION_TIME: (_FILES_SINCE,),
    ScanMode.FROM_CREATION_TIMESTAMP: (_SINCE,),
    ScanMode.INCREMENTAL: _INCREMENTAL,
}
"""Of these options a mode needs exactly one; other modes allow none of all. In the order in which
an option decides about the mode where `scan.mode` does not."""

_KEYS = tuple(dict.fromkeys(key for keys in _OPTIONS_OF_MODE.values() for key in keys))


def check_streaming(schema: TableSchema, options: TableOptions) -> None:
    """Check that a stream of the table would not emit changes twice.

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
    """The mode of a read, and the key of the option with its starting point; None: it needs none.

    Args:
        options: of the table, dynamic ones included.

    Raises:
        InvalidOptionError: options that contradict each other, or an unknown mode.
    """
    keys = [key for key in _KEYS if options.get(key)]
    mode = _mode_named(option_value(options, "scan.mode"), keys)
    allowed = _OPTIONS_OF_MODE.get(mode, ())
    valid = [key for key in keys if key in allowed]
    foreign = [key for key in keys if key not in allowed]
    use = f"when you use {mode.value} for scan.mode"
    problem = ""
    if foreign and not allowed:
        problem = (
            f"[{', '.join(foreign)}] must be null when you set [scan.mode]: "
            f"{foreign[0]} must be null {use}"
        )
    elif allowed and len(valid) != 1:
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
            given=", ".join(keys),
        )
    return mode, valid[0] if valid else None


def _mode_named(word: str, option_keys: Sequence[str]) -> ScanMode:
    if word in _ALIASES:
        return _ALIASES[word]
    if word == _DEFAULT:
        implied = (
            mode
            for mode, keys in _OPTIONS_OF_MODE.items()
            if any(key in option_keys for key in keys)
        )
        return next(implied, ScanMode.LATEST_FULL)
    return ScanMode(word)


def option_number(key: str, value: str) -> int:
    """A whole number.

    Raises:
        InvalidOptionError: it is not valid; names the option.
    """
    try:
        return int(value)
    except ValueError as error:
        raise InvalidOptionError("option is not an integer", key=key, value=value) from error


def local_time_ms(key: str, value: str) -> int:
    """A local date and time, as `2024-01-31 12:30:00.5` [epoch ms].

    Raises:
        InvalidOptionError: it is not valid; names the option.
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


_VERSION = "scan.version"
_WATERMARK_PREFIX = "watermark-"
_CHANGES = (ScanMode.INCREMENTAL, ScanMode.LATEST_DELTA)


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
        files_since_ms: the newest, and of it only files created at or after this time [epoch ms].
        since_ms: the first committed at or after this time [epoch ms]; where that is not known,
            what `files_since_ms` means.
    """

    snapshot_id: int | None = None
    tag: str | None = None
    timestamp_ms: int | None = None
    watermark: int | None = None
    version: str | None = None
    compacted: bool = False
    files_since_ms: int | None = None
    since_ms: int | None = None

    @property
    def to_newest(self) -> bool:
        """Whether nothing is chosen."""
        return self == TimeTravel()

    def oldest_file_ms(self, table: TableCore) -> int | None:
        """Only files created at or after this time are read [epoch ms]; None: all."""
        if self.since_ms is not None and _since(table, self.since_ms) is None:
            return self.since_ms
        return self.files_since_ms

    def resolve(self, table: TableCore) -> Snapshot | None:
        """The snapshot; None only for the newest of a table without snapshots.

        Raises:
            InvalidRequestError: more than one way is given.
            NotFoundError: there is no such snapshot or tag.
        """
        ways = [
            field.name
            for field in dataclasses.fields(self)
            if getattr(self, field.name) not in (None, False)
        ]
        if len(ways) > 1:
            raise InvalidRequestError(
                "only one way of time travel may be used at a time", given=", ".join(ways)
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
            return newest_compacted(table)
        if self.since_ms is not None:
            return _since(table, self.since_ms) or table.latest_snapshot()
        return table.latest_snapshot()


_WAYS = {
    _SNAPSHOT_ID: "snapshot_id",
    "scan.tag-name": "tag",
    "scan.version": "version",
    _TIMESTAMP: "timestamp_ms",
    _TIMESTAMP_MS: "timestamp_ms",
    "scan.watermark": "watermark",
    _FILES_SINCE: "files_since_ms",
    _SINCE: "since_ms",
}
"""What each option of a state chooses by."""


def travel_of(options: Mapping[str, str]) -> TimeTravel:
    """What table options choose.

    Raises:
        InvalidOptionError: options that contradict each other, or a value that does not parse.
    """
    mode, key = scan_mode_of(options)
    if key is None or mode in _CHANGES:
        return TimeTravel(compacted=mode is ScanMode.COMPACTED_FULL)
    value = option_value(options, key)
    if key == _TIMESTAMP:
        value = local_time_ms(key, value)
    return TimeTravel(**{_WAYS[key]: value})


def chosen_snapshot(table: TableCore) -> tuple[Snapshot | None, int | None]:
    """The snapshot that the table's options choose, and the age of the oldest file read of it.

    Returns:
        The snapshot, None on a table without snapshots; and the time at or after which its files
        were made that are read [epoch ms], None: all.

    Raises:
        UnsupportedFeatureError: they choose changes, which are no state of the table.
        InvalidOptionError, InvalidRequestError, NotFoundError: as `travel_of` and
            `TimeTravel.resolve`.
    """
    options = table.schema.options
    mode, key = scan_mode_of(options)
    if mode in _CHANGES:
        raise UnsupportedFeatureError(
            "these options choose changes and not a state of the table",
            hint="read with `to_arrow`, or plan with `storage.table.scan.time_travel`",
            option=key or "scan.mode",
        )
    travel = travel_of(options)
    return travel.resolve(table), travel.oldest_file_ms(table)


def first_since(table: TableCore, time_ms: int) -> int | None:
    """Id of the first snapshot or long-lived changelog committed at or after a time [epoch ms].

    Returns:
        The id; the next after the newest when all are older; None on a table without snapshots.
    """
    snapshots = table.snapshots.ids()
    if not snapshots:
        return None
    ids = [*(id_ for id_ in table.changelogs.ids() if id_ < snapshots[0]), *snapshots]
    position = bisect.bisect_left(
        ids, time_ms, key=lambda id_: _read_version(table, id_, snapshots[0]).time_ms
    )
    return ids[position] if position < len(ids) else ids[-1] + 1


def _read_version(table: TableCore, snapshot_id: int, earliest: int) -> Snapshot:
    if snapshot_id < earliest:
        return table.changelogs.read(snapshot_id)
    snapshot = table.snapshots.read_again(snapshot_id)
    return table.changelogs.read(snapshot_id) if snapshot is None else snapshot


def _since(table: TableCore, time_ms: int) -> Snapshot | None:
    """The first snapshot committed at or after a time; None where the history is too short."""
    ids = table.snapshots.ids()
    if not ids or table.snapshots.read(ids[0]).time_ms >= time_ms:
        return None
    snapshot_id = first_since(table, time_ms)
    return None if snapshot_id is None else table.snapshots.read_again(snapshot_id)


def _at_time(table: TableCore, time_ms: int) -> Snapshot:
    snapshot = table.snapshots.at_time(time_ms)
    if snapshot is None:
        raise NotFoundError(
            f"There is currently no snapshot earlier than or equal to timestamp[{time_ms}]",
            table=table.layout.root,
        )
    return snapshot


def _at_watermark(table: TableCore, watermark: int) -> Snapshot:
    """Watermarks never decrease, but snapshots before the first may have none."""
    ids = table.snapshots.ids()

    def reached(snapshot_id: int) -> bool:
        mark = table.snapshots.read(snapshot_id).watermark
        return mark is not None and mark >= watermark

    position = bisect.bisect_left(ids, True, key=reached)
    if position == len(ids):
        raise NotFoundError(
            f"There is currently no snapshot later than or equal to watermark[{watermark}]",
            table=table.layout.root,
        )
    return table.snapshots.read(ids[position])


def _at_version(table: TableCore, version: str) -> Snapshot:
    if table.file_io.exists(table.layout.tag_file(version)):
        return get_tag(table, version).snapshot
    if version.startswith(_WATERMARK_PREFIX):
        number = version.removeprefix(_WATERMARK_PREFIX)
        return _at_watermark(table, option_number(_VERSION, number))
    if version.isascii() and version.isdigit():
        return table.snapshots.read(int(version))
    raise NotFoundError(
        f"Cannot find a time travel version for {version}",
        detail="there is no tag of that name, and it is no snapshot id",
        table=table.layout.root,
    )


def newest_compacted(table: TableCore) -> Snapshot | None:
    """The newest snapshot of a compaction; on tables with periodic full ones, of a full one.

    Returns:
        That one, else the newest snapshot; None on a table without snapshots.
    """
    latest = table.latest_snapshot()
    if latest is None:
        return None
    is_full = _compaction(table)
    with contextlib.suppress(NotFoundError):
        for snapshot in table.snapshots.recall_many(range(latest.id, 0, -1)):
            if snapshot.commit_kind is CommitKind.COMPACT and is_full(snapshot.commit_identifier):
                return snapshot
    return latest


def _compaction(table: TableCore) -> Callable[[int], bool]:
    """Whether a commit identifier of a compaction is that of a full one."""
    commits = table.options.full_compaction_delta_commits
    if commits is None and table.options.changelog_producer != "full-compaction":
        return lambda identifier: True
    commits = max(1, 1 if commits is None else commits)
    return lambda identifier: identifier % commits == 0 or identifier == BATCH_COMMIT_IDENTIFIER


# Batch reads of changes between two snapshots, tags or times, as chosen by table options.
#
# Source: SEMANTICS.md §C.9. The start is exclusive, the end inclusive. Where the option says `auto`
# the changes come from the changelog, on tables without a producer from the delta.


_BETWEEN = "incremental-between"
_BETWEEN_TIMES = "incremental-between-timestamp"
_TO_AUTO_TAG = "incremental-to-auto-tag"
_DIFF = "diff"


@dataclasses.dataclass(frozen=True, slots=True)
class ChosenChanges:
    """What is read: ids `start` (exclusive) to `end`, or the difference of two states.

    Attributes:
        start: snapshot id before the first one that is read.
        end: id of the last one.
        states: the two states, where they are compared; the first None: before the first snapshot.
        delta: whether the changes come from the delta, not from the changelog.
    """

    start: int = 0
    end: int = 0
    states: tuple[Snapshot | None, Snapshot] | None = None
    delta: bool = False

    def counts(self, snapshot: Snapshot) -> bool:
        """Whether changes of a snapshot within the range are read."""
        if self.delta:
            return snapshot.commit_kind is CommitKind.APPEND
        return snapshot.commit_kind is not CommitKind.OVERWRITE


_NOTHING = ChosenChanges()


def is_incremental(table: TableCore) -> bool:
    """Whether the table's options ask for changes and not for a state.

    Raises:
        InvalidOptionError: the scan options contradict each other.
    """
    mode, _ = scan_mode_of(table.schema.options)
    return mode in (ScanMode.INCREMENTAL, ScanMode.LATEST_DELTA)


def chosen_changes(table: TableCore) -> ChosenChanges:
    """The changes that the table's options choose: `incremental-…`, or `scan.mode` latest-delta.

    Raises:
        InvalidOptionError: none are chosen, options contradict each other, or an end is unreadable.
        InvalidRequestError: the end is before the start, or either is out of range.
        NotFoundError: a snapshot expired meanwhile.
    """
    return dataclasses.replace(_range_of(table), delta=_reads_delta(table))


def _reads_delta(table: TableCore) -> bool:
    kind = table.options.incremental_between_scan_mode
    if kind == "auto":
        kind = "delta" if table.options.changelog_producer == "none" else "changelog"
    return kind == "delta" or scan_mode_of(table.schema.options)[0] is ScanMode.LATEST_DELTA


def _range_of(table: TableCore) -> ChosenChanges:
    options = table.schema.options
    mode, key = scan_mode_of(options)
    if mode is ScanMode.LATEST_DELTA:
        latest = table.snapshots.latest_id()
        return _NOTHING if latest is None else ChosenChanges(latest - 1, latest)
    if key == _TO_AUTO_TAG:
        return _to_auto_tag(table, option_value(options, _TO_AUTO_TAG))
    if key == _BETWEEN_TIMES:
        return _between_times(table, *_ends(_BETWEEN_TIMES, option_value(options, _BETWEEN_TIMES)))
    if key == _BETWEEN:
        return _between(table, *_ends(_BETWEEN, option_value(options, _BETWEEN)))
    raise InvalidOptionError(
        "no incremental read is asked for", hint=f"set `{_BETWEEN}` to `<start>,<end>`"
    )


def _ends(key: str, text: str) -> tuple[str, str]:
    parts = [part.strip() for part in text.split(",")]
    if len(parts) != 2 or not all(parts):
        raise InvalidOptionError(
            f"The {key} must specific start(exclusive) and end",
            hint="write it as `<start>,<end>`",
            value=text,
        )
    return parts[0], parts[1]


def _between(table: TableCore, start: str, end: str) -> ChosenChanges:
    options = table.options
    tags = [_tagged(table, name) for name in (start, end)]
    if tags[0] is not None and tags[1] is not None:
        if options.incremental_between_tag_to_snapshot:
            return _ids(table, tags[0].id, tags[1].id)
        if tags[1].id < tags[0].id:
            raise InvalidRequestError(
                f"Tag end {end} with snapshot id {tags[1].id} should be >= tag start {start} with "
                f"snapshot id {tags[0].id}",
                hint="name the older tag first",
            )
        same = tags[0].id == tags[1].id
        return _NOTHING if same else ChosenChanges(states=(tags[0], tags[1]))
    if not (_is_number(start) and _is_number(end)):
        raise InvalidRequestError(
            f"Didn't find two tags for start '{start}' and end '{end}', "
            "and they are not two snapshot Ids.",
            hint="Please set two tags or two snapshot Ids.",
            table=table.layout.root,
        )
    first, last = int(start), int(end)
    if last < first:
        raise InvalidRequestError(
            f"Ending snapshotId should >= starting snapshotId {first}.",
            hint="name the older snapshot first",
            start=first,
            end=last,
        )
    if first == last or table.snapshots.latest_id() is None:
        return _NOTHING
    if options.incremental_between_scan_mode == _DIFF:
        return ChosenChanges(states=(table.snapshots.read(first), table.snapshots.read(last)))
    return _ids(table, first, last)


def _ids(table: TableCore, start: int, end: int) -> ChosenChanges:
    earliest, latest = table.snapshots.earliest_id(), table.snapshots.latest_id()
    if earliest is None or latest is None:
        return _NOTHING
    if start < earliest - 1 or end > latest:
        raise InvalidRequestError(
            f"The specified scan snapshotId range [{start}, {end}] is out of available snapshotId "
            f"range [{earliest}, {latest}].",
            hint="a tag or a consumer keeps snapshots from expiring",
            table=table.layout.root,
        )
    return ChosenChanges(start, end)


def _between_times(table: TableCore, start: str, end: str) -> ChosenChanges:
    first, last = _time_ms(start), _time_ms(end)
    ids = table.snapshots.ids()
    if not ids:
        return _NOTHING
    if last < first:
        raise InvalidRequestError(
            f"Ending timestamp {last} should be >= starting timestamp {first}.",
            hint="name the earlier time first",
        )
    earliest, latest = table.snapshots.read(ids[0]), table.snapshots.read(ids[-1])
    if first == last or first > latest.time_ms or last < earliest.time_ms:
        return _NOTHING
    before, after = table.snapshots.at_time(first), table.snapshots.at_time(last) or latest
    if table.options.incremental_between_scan_mode != _DIFF:
        return ChosenChanges(earliest.id - 1 if before is None else before.id, after.id)
    if before is None and earliest.id > 1:
        before = earliest
    return ChosenChanges(states=(before, after))


def _time_ms(text: str) -> int:
    if _is_number(text):
        return option_number(_BETWEEN_TIMES, text)
    return local_time_ms(_BETWEEN_TIMES, text)


def _is_number(text: str) -> bool:
    return text.removeprefix("-").isascii() and text.removeprefix("-").isdigit()


def _tagged(table: TableCore, name: str) -> Snapshot | None:
    try:
        return get_tag(table, name).snapshot
    except (NotFoundError, InvalidRequestError):
        return None


def _to_auto_tag(table: TableCore, name: str) -> ChosenChanges:
    """From the automatic tag before a tag to it; nothing where either is missing."""
    period = TagPeriod.of(table.options)
    time = period.start(name)
    if time is None:
        raise InvalidRequestError(
            f"Specified tag '{name}' is not an auto-created tag.",
            hint="set `tag.creation-period` and `tag.period-formatter` as when it was created",
            table=table.layout.root,
        )
    end = _tagged(table, name)
    times = {tag.name: period.start(tag.name) for tag in all_tags(table)}
    earlier = [(begin, tag) for tag, begin in times.items() if begin is not None and begin < time]
    if end is None or not earlier:
        return _NOTHING
    start = _tagged(table, max(earlier)[1])
    return _NOTHING if start is None else ChosenChanges(states=(start, end))
