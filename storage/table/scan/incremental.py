# SPDX-License-Identifier: Apache-2.0
"""Batch reads of changes between two snapshots, tags or times, as chosen by table options.

Source: SEMANTICS.md §C.9. The start is exclusive, the end inclusive. Where the option says `auto`
the changes come from the changelog, on tables without a producer from the delta.
"""

import dataclasses

from storage.errors import InvalidOptionError, InvalidRequestError, NotFoundError
from storage.format.metadata.snapshot import CommitKind, Snapshot
from storage.options.options import option_value
from storage.table.core import TableCore
from storage.table.retention.auto_tags import TagPeriod
from storage.table.scan.time_travel import ScanMode, local_time_ms, option_number, scan_mode_of
from storage.table.tags import all_tags, get_tag

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
