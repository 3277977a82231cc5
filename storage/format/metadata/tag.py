# SPDX-License-Identifier: Apache-2.0
"""Tags: named copies of snapshot documents that outlive the snapshots.

Source: FORMAT.md §11.1. A tag file is the JSON of its snapshot. Only a tag with a time to live has
two more members: when it was made, as an array of the parts of a local date and time, and how
long it lives, in seconds.
"""

import dataclasses
import datetime
import functools
from collections.abc import Iterator
from typing import Any

import msgspec

from storage.errors import CorruptDataError
from storage.format.metadata.documents import dump_object, parse_document, read_document
from storage.format.metadata.layout import TableLayout
from storage.format.metadata.snapshot import Snapshot
from storage.io.file_io import FileIO, read_present

_PREFIX = "tag-"
_CREATED = "tagCreateTime"
_RETAINED = "tagTimeRetained"


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Tag:
    """One tag.

    Attributes:
        name: unique in its branch.
        snapshot: what it keeps; members that this version does not know included.
        created: when it was made, in the machine's zone, because files hold a local time without
            one; None unless it has a time to live.
        time_retained_ms: how long it lives from then [ms]; None: until it is deleted.
    """

    name: str
    snapshot: Snapshot
    created: datetime.datetime | None = None
    time_retained_ms: int | None = None

    def to_json(self) -> bytes:
        """The bytes of the tag file."""
        value = self.snapshot.members()
        if self.created is not None:
            value[_CREATED] = _time_parts(self.created)
        if self.time_retained_ms is not None:
            value[_RETAINED] = self.time_retained_ms / 1000
        return dump_object(value)

    @classmethod
    def from_json(cls, name: str, data: bytes) -> "Tag":
        """Read a tag file.

        Raises:
            CorruptDataError: the bytes are no tag.
        """
        snapshot = Snapshot.from_json(data)
        extra = dict(snapshot.extra)
        created, retained = extra.pop(_CREATED, None), extra.pop(_RETAINED, None)
        return cls(
            name=name,
            snapshot=msgspec.structs.replace(snapshot, extra=extra),
            created=None if created is None else _time_of(created),
            time_retained_ms=None if retained is None else _millis(retained),
        )


def tag_names(file_io: FileIO, layout: TableLayout) -> list[str]:
    """Names of all tags of a table or branch, sorted; by listing."""
    return sorted(
        status.name.removeprefix(_PREFIX)
        for status in file_io.list(layout.tag_dir)
        if status.name.startswith(_PREFIX) and not status.directory and status.name != _PREFIX
    )


def read_tag(file_io: FileIO, layout: TableLayout, name: str) -> Tag:
    """One tag.

    Raises:
        FileNotFoundError: there is none of that name.
        CorruptDataError: its file is damaged.
    """
    return read_document(file_io, layout.tag_file(name), lambda data: Tag.from_json(name, data))


def list_tags(file_io: FileIO, layout: TableLayout) -> list[Tag]:
    """All tags of a table or branch by snapshot id, then name; one deleted meanwhile is left out.

    Raises:
        CorruptDataError: one is damaged.
    """
    return sorted(_read_all(file_io, layout), key=lambda tag: (tag.snapshot.id, tag.name))


def _read_all(file_io: FileIO, layout: TableLayout) -> Iterator[Tag]:
    names = tag_names(file_io, layout)
    paths = [layout.tag_file(name) for name in names]
    for name, path, data in zip(names, paths, read_present(file_io, paths), strict=True):
        if data is not None:
            yield parse_document(data, path, functools.partial(Tag.from_json, name))


def _time_parts(time: datetime.datetime) -> list[int]:
    """Year to minute, then second and nanosecond unless the rest is zero, as Java leaves out."""
    time = time.astimezone()
    parts = [time.year, time.month, time.day, time.hour, time.minute]
    nanos = time.microsecond * 1000
    if time.second or nanos:
        parts.append(time.second)
    if nanos:
        parts.append(nanos)
    return parts


def _time_of(value: Any) -> datetime.datetime:
    try:
        if isinstance(value, str):
            return datetime.datetime.fromisoformat(value).astimezone()
        year, month, day, hour, minute, second, nanos = [*value, 0, 0][: max(7, len(value))]
        date, time = datetime.date(year, month, day), datetime.time(hour, minute, second)
        micros = datetime.timedelta(microseconds=nanos // 1000)
        return (datetime.datetime.combine(date, time) + micros).astimezone()
    except (TypeError, ValueError) as error:
        raise CorruptDataError(
            "the creation time of a tag cannot be read", member=_CREATED, found=value
        ) from error


def _millis(value: Any) -> int:
    if isinstance(value, bool) or not isinstance(value, int | float):
        raise CorruptDataError(
            "the time to live of a tag is not a number", member=_RETAINED, found=value
        )
    return round(value * 1000)
