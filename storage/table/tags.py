# SPDX-License-Identifier: Apache-2.0
"""Creating, replacing, renaming, deleting and listing the tags of a table or branch.

Source: SEMANTICS.md §F.9, FORMAT.md §11.1. Expiry removes no file that a tag's snapshot references;
so deleting the tag of an expired snapshot must remove the files that only it references.
"""

import dataclasses
import datetime
import zoneinfo

from storage.clock import local_of_epoch_ms
from storage.errors import (
    AlreadyExistsError,
    InvalidOptionError,
    InvalidRequestError,
    NotFoundError,
)
from storage.format.metadata.snapshot import CommitKind, Snapshot, Tag, list_tags, read_tag
from storage.options.options import TableOptions
from storage.table.core import TableCore
from storage.table.iceberg import publish_iceberg
from storage.table.retention.reachability import (
    Documents,
    live_data_files,
    remove_unreachable,
)


def create_tag(
    table: TableCore,
    name: str,
    snapshot_id: int | None = None,
    *,
    time_retained_ms: int | None = None,
    ignore_if_exists: bool = False,
) -> Tag:
    """Create a tag; of several concurrent calls exactly one creates it.

    Args:
        name: of the tag; not blank, a valid file name.
        snapshot_id: what it keeps; None: the newest snapshot.
        time_retained_ms: how long it lives [ms]; None: until it is deleted.
        ignore_if_exists: return the existing tag, whatever it keeps.

    Raises:
        InvalidRequestError: the name is bad, or taken.
        NotFoundError: there is no such snapshot (any more).
    """
    _check_name(name)
    tag = _new_tag(table, name, snapshot_id, time_retained_ms)
    path = table.layout.tag_file(name)
    if not table.file_io.put_if_absent(path, tag.to_json()):
        if ignore_if_exists:
            return get_tag(table, name)
        raise AlreadyExistsError(f"Tag '{name}' already exists.", table=table.layout.root)
    _require_kept(table, tag)
    publish_iceberg(table)
    return tag


def replace_tag(
    table: TableCore,
    name: str,
    snapshot_id: int | None = None,
    *,
    time_retained_ms: int | None = None,
) -> Tag:
    """Point an existing tag to another snapshot. Files that only the old one references are kept.

    Raises:
        NotFoundError: there is no such tag or snapshot.
    """
    before = get_tag(table, name)
    tag = _new_tag(table, name, snapshot_id, time_retained_ms)
    table.file_io.overwrite_bytes(table.layout.tag_file(name), tag.to_json())
    try:
        _require_kept(table, tag)
    except NotFoundError:
        table.file_io.overwrite_bytes(table.layout.tag_file(name), before.to_json())
        raise
    publish_iceberg(table)
    return tag


def rename_tag(table: TableCore, name: str, new_name: str) -> None:
    """Rename a tag. Both names exist for a moment, so nothing is lost.

    Raises:
        NotFoundError: there is no such tag.
        InvalidRequestError: the new name is bad, or taken.
    """
    _check_name(new_name)
    tag = dataclasses.replace(get_tag(table, name), name=new_name)
    if not table.file_io.put_if_absent(table.layout.tag_file(new_name), tag.to_json()):
        raise AlreadyExistsError(f"Tag '{new_name}' already exists.", table=table.layout.root)
    table.file_io.delete(table.layout.tag_file(name))
    publish_iceberg(table)


def delete_tag(table: TableCore, name: str) -> bool:
    """Remove a tag, and the files that only it references; False when there is no such tag."""
    _check_name(name)
    try:
        tag = get_tag(table, name)
    except NotFoundError:
        return False
    remaining = [entry for entry in all_tags(table) if entry.name != name]
    deleted = table.file_io.delete(table.layout.tag_file(name))
    publish_iceberg(table)
    same = any(entry.snapshot.id == tag.snapshot.id for entry in remaining)
    if deleted and not same and not table.snapshots.exists(tag.snapshot.id):
        _clean(table, tag.snapshot, remaining)
    return deleted


def get_tag(table: TableCore, name: str) -> Tag:
    """One tag.

    Raises:
        NotFoundError: there is none of that name.
        CorruptDataError: its file is damaged.
    """
    _check_name(name)
    try:
        return read_tag(table.file_io, table.layout, name)
    except FileNotFoundError as error:
        raise NotFoundError(f"Tag '{name}' doesn't exist.", table=table.layout.root) from error


def all_tags(table: TableCore) -> list[Tag]:
    """All tags, by snapshot id, then name."""
    return list_tags(table.file_io, table.layout)


def _new_tag(table: TableCore, name: str, snapshot_id: int | None, retained_ms: int | None) -> Tag:
    if snapshot_id is None:
        snapshot = table.latest_snapshot()
        if snapshot is None:
            raise NotFoundError(
                "the table has no snapshot to tag", hint="write to it", table=table.layout.root
            )
    else:
        snapshot = _snapshot_or_tagged(table, snapshot_id)
    created = None
    if retained_ms is not None:
        now_s = table.clock.now_ms() / 1000
        created = datetime.datetime.fromtimestamp(now_s, datetime.UTC).astimezone()
    return Tag(name=name, snapshot=snapshot, created=created, time_retained_ms=retained_ms)


def _snapshot_or_tagged(table: TableCore, snapshot_id: int) -> Snapshot:
    try:
        return table.snapshots.read(snapshot_id)
    except NotFoundError:
        for tag in all_tags(table):
            if tag.snapshot.id == snapshot_id:
                return tag.snapshot
        raise


def _require_kept(table: TableCore, tag: Tag) -> None:
    """Delete the tag if its snapshot may have been removed by what did not see the tag."""
    if is_kept(table, tag.snapshot, besides=tag.name):
        return
    table.file_io.delete(table.layout.tag_file(tag.name))
    raise NotFoundError(
        "the snapshot expired while it was being tagged",
        hint="tag a newer one",
        snapshot=tag.snapshot.id,
        table=table.layout.root,
    )


def is_kept(table: TableCore, snapshot: Snapshot, besides: str = "") -> bool:
    """Whether whatever removes a snapshot from now on sees a tag or branch that exists already.

    Expiry moves EARLIEST first, a rollback removes the snapshot first, and deleting a tag its file;
    all of them list tags and branches afterwards, and only then remove other files.

    Args:
        besides: name of a tag that does not count.
    """
    earliest = table.snapshots.earliest_id()
    if earliest is not None and earliest <= snapshot.id and table.snapshots.exists(snapshot.id):
        return True
    return any(tag.snapshot == snapshot and tag.name != besides for tag in all_tags(table))


def _clean(table: TableCore, expired: Snapshot, tags: list[Tag]) -> None:
    """Remove files that only the tag of an expired snapshot referenced.

    A file is live in consecutive snapshots, so only the neighbours can still reference it: the
    adjacent tags and the oldest snapshot. Overwrites in newer snapshots could have restored a
    file; they are checked, too.
    """
    before = [tag for tag in tags if tag.snapshot.id < expired.id]
    after = [tag for tag in tags if tag.snapshot.id > expired.id]
    ids = table.snapshots.ids()
    newer = table.snapshots.recall_many(ids[1:])
    live_documents = Documents(
        snapshots=(
            *(table.snapshots.read(id_) for id_ in ids[:1]),
            *(snapshot for snapshot in newer if snapshot.commit_kind is CommitKind.OVERWRITE),
        ),
        tags=(*before[-1:], *after[:1]),
        changelogs=tuple(table.changelogs.read_many(table.changelogs.ids())),
    )
    remove_unreachable(table, [expired], live_data_files(table, expired), live_documents)


def _check_name(name: str) -> None:
    if not name.strip():
        raise InvalidRequestError("Tag name shouldn't be blank.")
    if "/" in name or any(ord(letter) < 32 for letter in name):
        raise InvalidRequestError("this name of a tag is not allowed", name=name)


# Automatic tags by the table's options: one per period, or one after each batch; and their expiry.
#
# Source: SEMANTICS.md §F.9. `TagSchedule` is pure: given the times of snapshots in the order of
# their ids, it decides which get a tag. After a restart it resumes from the newest automatic tag,
# so a pass can stop anywhere and be repeated.


_EPOCH = datetime.datetime(1970, 1, 1)  # noqa: DTZ001 - wall clocks without zone
_DAY = {
    "with-dashes": "%Y-%m-%d",
    "without-dashes": "%Y%m%d",
    "without-dashes-and-spaces": "%Y%m%d",
}
_HOUR = {
    "with-dashes": "%Y-%m-%d %H",
    "without-dashes": "%Y%m%d %H",
    "without-dashes-and-spaces": "%Y%m%d%H",
}
_MINUTE = "%Y%m%d%H%M"


@dataclasses.dataclass(frozen=True, slots=True)
class TagPeriod:
    """Periods of one length, and the names of their tags.

    Attributes:
        length: of each.
        form: of the name, for the time at which the period starts.
    """

    length: datetime.timedelta
    form: str

    @staticmethod
    def of(options: TableOptions) -> "TagPeriod":
        """The periods that a table's options configure.

        Raises:
            InvalidOptionError: the delay is not shorter than the period.
        """
        if options.tag_creation_period_duration_ms is not None:
            length = datetime.timedelta(milliseconds=options.tag_creation_period_duration_ms)
            period = TagPeriod(length, _MINUTE)
        elif options.tag_creation_period == "hourly":
            period = TagPeriod(datetime.timedelta(hours=1), _HOUR[options.tag_period_formatter])
        elif options.tag_creation_period == "two-hours":
            period = TagPeriod(datetime.timedelta(hours=2), _HOUR["with-dashes"])
        else:
            period = TagPeriod(datetime.timedelta(days=1), _DAY[options.tag_period_formatter])
        delay = datetime.timedelta(milliseconds=options.tag_creation_delay_ms)
        if delay >= period.length:
            raise InvalidOptionError(
                "the delay of a tag must be shorter than its period",
                hint="lower `tag.creation-delay`, or choose a longer period",
                option="tag.creation-delay",
                value=str(delay),
                period=str(period.length),
            )
        return period

    def name(self, start: datetime.datetime) -> str:
        """Name of the tag of the period that starts at a time."""
        return start.strftime(self.form)

    def start(self, name: str) -> datetime.datetime | None:
        """The start of the period whose tag has this name; None of other names."""
        text = name.split(" ")[0] if " " not in self.form else name
        try:
            start = datetime.datetime.strptime(text, self.form)  # noqa: DTZ007
        except ValueError:
            return None
        return start if self.name(start) == text else None

    def before(self, time: datetime.datetime) -> datetime.datetime:
        """Start of the period before the one that a time is in."""
        return _EPOCH + (time - _EPOCH) // self.length * self.length - self.length


@dataclasses.dataclass(frozen=True, slots=True)
class TagSchedule:
    """Which snapshots get a tag, decided one after the other; remembers the last period.

    Attributes:
        period: of the tags.
        delay: a tag is created no earlier than this after its period has ended.
        completion: whether periods without a snapshot get their tags, too, from later ones.
        next_start: start of the next period to tag; None before the first tag.
    """

    period: TagPeriod
    delay: datetime.timedelta = datetime.timedelta()
    completion: bool = False
    next_start: datetime.datetime | None = None

    def due(self, time: datetime.datetime) -> "tuple[str | None, TagSchedule]":
        """What is due for the next snapshot.

        Args:
            time: of the snapshot.

        Returns:
            Name of its tag, or None; and the schedule for the snapshots after it.
        """
        upcoming = self.next_start
        if upcoming is not None and time - self.delay < upcoming + self.period.length:
            return None, self
        start = self.period.before(time)
        if self.completion and upcoming is not None:
            start = upcoming
        later = dataclasses.replace(self, next_start=start + self.period.length)
        return self.period.name(start), later


def create_automatic_tags(table: TableCore) -> list[str]:
    """Create the tags that are due, and remove automatic ones beyond `tag.num-retained-max`.

    Returns:
        Names of those created, by this process or another.
    """
    options = table.options
    if options.tag_automatic_creation not in ("process-time", "watermark"):
        return []
    period = TagPeriod.of(options)
    tags = _automatic(table, period)
    after, next_start = 0, None
    if tags:
        start, newest = tags[-1]
        after, next_start = newest.snapshot.id, start + period.length
    schedule = TagSchedule(
        period,
        datetime.timedelta(milliseconds=options.tag_creation_delay_ms),
        options.tag_automatic_completion,
        next_start,
    )
    latest = table.latest_snapshot()
    ids = [id_ for id_ in table.snapshots.ids() if latest is not None and after < id_ <= latest.id]
    names = []
    table.snapshots.preload(ids)
    for snapshot_id in ids:
        try:
            time = _time_of(table.snapshots.recall(snapshot_id), options)
            name, later = (None, schedule) if time is None else schedule.due(time)
            if name is not None:
                create_tag(
                    table,
                    name,
                    snapshot_id,
                    time_retained_ms=options.tag_default_time_retained_ms,
                    ignore_if_exists=True,
                )
                names.append(name)
            schedule = later
        except NotFoundError:
            continue  # it expired meanwhile
    if names:
        _delete_beyond_limit(table, [tag for _, tag in _automatic(table, period)])
    return names


def create_batch_tag(table: TableCore) -> str | None:
    """Tag the newest snapshot of a batch job, replacing an earlier tag of that name.

    Beyond `tag.num-retained-max` tags, those of the oldest snapshots are deleted.

    Returns:
        Its name; None when options do not ask for it, or there is no snapshot.
    """
    options = table.options
    latest = table.latest_snapshot()
    if options.tag_automatic_creation != "batch" or latest is None:
        return None
    day = _wall_clock(latest.time_ms, options.sink_process_time_zone)
    name = options.tag_batch_customized_name or f"batch-write-{day:%Y-%m-%d}"
    delete_tag(table, name)
    create_tag(table, name, latest.id, time_retained_ms=options.tag_default_time_retained_ms)
    _delete_beyond_limit(table, all_tags(table))
    return name


def expire_tags(table: TableCore, *, now_ms: int) -> list[str]:
    """Remove tags past their retention time, and files only they reference; returns their names.

    Args:
        now_ms: current time [epoch ms].
    """
    return [name for name in outlived_tags(table, now_ms=now_ms) if delete_tag(table, name)]


def outlived_tags(table: TableCore, *, now_ms: int) -> list[str]:
    """The tags that `expire_tags` would remove. Arguments as there."""
    now = datetime.datetime.fromtimestamp(now_ms / 1000, datetime.UTC)
    expired = []
    for tag in all_tags(table):
        if tag.created is None or tag.time_retained_ms is None:
            continue
        if tag.created + datetime.timedelta(milliseconds=tag.time_retained_ms) < now:
            expired.append(tag.name)
    return expired


def zone_named(name: str) -> zoneinfo.ZoneInfo:
    """The time zone of this name.

    Raises:
        InvalidOptionError: there is none.
    """
    try:
        return zoneinfo.ZoneInfo(name)
    except (zoneinfo.ZoneInfoNotFoundError, ValueError, OSError) as error:
        raise InvalidOptionError(
            "no such time zone", hint="give a name like Europe/Berlin", value=name
        ) from error


def _automatic(table: TableCore, period: TagPeriod) -> list[tuple[datetime.datetime, Tag]]:
    """Tags that have the name of a period, oldest period first."""
    pairs = ((period.start(tag.name), tag) for tag in all_tags(table))
    tags = [(start, tag) for start, tag in pairs if start is not None]
    return sorted(tags, key=lambda pair: pair[0])


def _delete_beyond_limit(table: TableCore, tags: list[Tag]) -> None:
    """Delete those of the oldest snapshots beyond `tag.num-retained-max`."""
    most = table.options.tag_num_retained_max
    ordered = sorted(tags, key=lambda tag: (tag.snapshot.id, tag.name))
    for tag in ordered[: 0 if most is None else max(0, len(tags) - most)]:
        delete_tag(table, tag.name)


def _time_of(snapshot: Snapshot, options: TableOptions) -> datetime.datetime | None:
    if options.tag_automatic_creation == "process-time":
        return _wall_clock(snapshot.time_ms, options.sink_process_time_zone)
    if snapshot.watermark is None:
        return None
    return _wall_clock(snapshot.watermark, options.sink_watermark_time_zone)


def _wall_clock(time_ms: int, zone: str | None) -> datetime.datetime:
    """A moment [epoch ms] as a wall clock of a zone shows it; None: of the machine's."""
    if zone is None:
        return _EPOCH + datetime.timedelta(milliseconds=local_of_epoch_ms(time_ms))
    time_zone = zone_named(zone)
    moment = _EPOCH.replace(tzinfo=datetime.UTC) + datetime.timedelta(milliseconds=time_ms)
    return moment.astimezone(time_zone).replace(tzinfo=None)
