# SPDX-License-Identifier: Apache-2.0
"""Automatic tags by the table's options: one per period, or one after each batch; and their expiry.

Source: SEMANTICS.md §F.9. `TagSchedule` is pure: given the times of snapshots in the order of their
ids, it decides which get a tag. After a restart it resumes from the newest automatic tag, so a pass
can stop anywhere and be repeated.
"""

import dataclasses
import datetime
import zoneinfo

from storage.clock import local_of_epoch_ms
from storage.errors import InvalidOptionError, NotFoundError
from storage.format.metadata.snapshot import Snapshot
from storage.format.metadata.tag import Tag
from storage.options.options import TableOptions
from storage.table.core import TableCore
from storage.table.tags import all_tags, create_tag, delete_tag

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
