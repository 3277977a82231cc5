# SPDX-License-Identifier: Apache-2.0
"""`Snapshot`: the JSON document that makes a table version visible.

Source: FORMAT.md §3.1. Where the documents live and which is the newest is in `snapshot_store`.
"""

import contextlib
import dataclasses
import datetime
import enum
import functools
import itertools
from collections.abc import Iterable, Iterator, Mapping
from typing import Any, ClassVar

import msgspec

from storage.errors import CorruptDataError, NotFoundError, StorageUnavailableError
from storage.format.metadata.documents import (
    dump_object,
    parse_document,
    parse_object,
    read_document,
)
from storage.format.metadata.layout import TableLayout
from storage.io.file_io import FileIO, FileStatus, read_present

BATCH_COMMIT_IDENTIFIER = 9_223_372_036_854_775_807
"""`commitIdentifier` of batch writers, which have no checkpoints (Java's Long.MAX_VALUE)."""

CURRENT_VERSION = 3
_NO_WATERMARK = -9_223_372_036_854_775_808


class CommitKind(enum.Enum):
    """Why a snapshot was created."""

    APPEND = "APPEND"
    COMPACT = "COMPACT"
    OVERWRITE = "OVERWRITE"
    ANALYZE = "ANALYZE"


class Snapshot(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """One table version. Attributes mirror the JSON members in their order; None = absent.

    Attributes:
        id: the N of `snapshot-N`, from 1, without gaps.
        schema_id: newest schema at commit time.
        base_manifest_list: state before this commit; name inside `manifest/`.
        base_manifest_list_size: [bytes].
        delta_manifest_list: this commit's changes.
        delta_manifest_list_size: [bytes].
        changelog_manifest_list: this commit's changelog, or None.
        changelog_manifest_list_size: [bytes].
        index_manifest: the complete index manifest, or None.
        commit_user: identity of the writing job.
        commit_identifier: grows with each commit of a user; `BATCH_COMMIT_IDENTIFIER` for batch.
        commit_kind: why.
        time_ms: commit time [epoch ms].
        total_record_count: rows of all live files, unmerged.
        delta_record_count: rows added minus rows removed by the delta.
        changelog_record_count: rows of changelog files, or None.
        watermark: event time [epoch ms]; None also for the "no watermark" mark of old files.
        statistics: name inside `statistics/`, or None.
        properties: free text pairs of the committer, or None.
        next_row_id: for row tracking, or None.
        uuid: identity of the document, or None in old files.
        version: format version; we write 3.
        extra: members that this version does not know, kept on rewriting.
    """

    version: int = CURRENT_VERSION
    uuid: str | None = None
    id: int
    schema_id: int
    base_manifest_list: str
    base_manifest_list_size: int | None = None
    delta_manifest_list: str
    delta_manifest_list_size: int | None = None
    changelog_manifest_list: str | None = None
    changelog_manifest_list_size: int | None = None
    index_manifest: str | None = None
    commit_user: str
    commit_identifier: int
    commit_kind: CommitKind
    time_ms: int = msgspec.field(name="timeMillis")
    total_record_count: int
    delta_record_count: int
    changelog_record_count: int | None = None
    watermark: int | None = None
    statistics: str | None = None
    properties: Mapping[str, str] | None = None
    next_row_id: int | None = None
    extra: Mapping[str, Any] = {}

    def to_json(self) -> bytes:
        """The bytes of the snapshot file: indented UTF-8 JSON; absent members are left out."""
        return dump_object(self.members())

    @property
    def lists(self) -> tuple[tuple[str, int | None], ...]:
        """Names and recorded sizes [bytes] of the base, the delta and any changelog list."""
        lists = (
            (self.base_manifest_list, self.base_manifest_list_size),
            (self.delta_manifest_list, self.delta_manifest_list_size),
        )
        if self.changelog_manifest_list is None:
            return lists
        return *lists, (self.changelog_manifest_list, self.changelog_manifest_list_size)

    def members(self) -> dict[str, Any]:
        """The members of the JSON object, unknown ones last."""
        value: dict[str, Any] = msgspec.to_builtins(self)
        del value["extra"]
        return {key: part for key, part in value.items() if part is not None} | dict(self.extra)

    @classmethod
    def from_json(cls, data: bytes) -> "Snapshot":
        """Read a snapshot (or tag, or long-lived changelog) file.

        Raises:
            CorruptDataError: the bytes are no snapshot; names the member at fault.
        """
        value = parse_object(data, "snapshot")
        members = {key: value[key] for key in _MEMBERS if value.get(key) is not None}
        members.setdefault("version", 1)
        if members.get("watermark") == _NO_WATERMARK:
            del members["watermark"]
        extra = {key: value[key] for key in value if key not in _MEMBERS}
        try:
            return msgspec.convert({**members, "extra": extra}, cls)
        except msgspec.ValidationError as error:
            raise CorruptDataError(
                "a field of a snapshot file is missing or invalid", detail=str(error)
            ) from error


_MEMBERS = tuple(
    field.encode_name for field in msgspec.structs.fields(Snapshot) if field.name != "extra"
)


# Tags: named copies of snapshot documents that outlive the snapshots.
#
# Source: FORMAT.md §11.1. A tag file is the JSON of its snapshot. Only a tag with a time to live
# has two more members: when it was made, as an array of the parts of a local date and time, and how
# long it lives, in seconds.


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
    """All tags of a table or branch by snapshot id, then name.

    One deleted meanwhile is left out; one renamed meanwhile is there, under either name.

    Raises:
        CorruptDataError: one is damaged.
    """
    listed = tag_names(file_io, layout)
    while True:
        names, paths = listed, [layout.tag_file(name) for name in listed]
        contents = list(read_present(file_io, paths))
        if None not in contents or names == (listed := tag_names(file_io, layout)):
            break
    tags = [
        parse_document(data, path, functools.partial(Tag.from_json, name))
        for name, path, data in zip(names, paths, contents, strict=True)
        if data is not None
    ]
    return sorted(tags, key=lambda tag: (tag.snapshot.id, tag.name))


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


# Which snapshots a table has, which is newest, and how a new one becomes visible.
#
# Source: FORMAT.md §3.3 (hints) and §11.5 (publishing). The hint files `LATEST` and `EARLIEST` may
# be absent, stale or wrong: they only save a listing and are checked before use.
#
# A snapshot file is not changed by commits and expiry, but a rollback or a fast-forward lets an id
# name another document later. So `read` always asks the store. Documents read are cached for
# walks over many snapshots (`recall`), together with the newest of them: as long as that one is
# unchanged in the store no id below it can have changed either, because snapshots are rolled back
# from the newest down. A `read` compares it when it gives a newer one; a difference clears the
# cache.


def listed_files(file_io: FileIO, directory: str, prefix: str) -> dict[int, FileStatus]:
    """The files of a directory by their ids; other files do not count."""
    numbered = {}
    for status in file_io.list(directory):
        text = status.name.removeprefix(prefix)
        if status.name.startswith(prefix) and _decimal(text):
            numbered[int(text)] = status
    return numbered


def listed_ids(file_io: FileIO, directory: str, prefix: str) -> list[int]:
    """Ids of the files of a directory, ascending; other files do not count."""
    return sorted(listed_files(file_io, directory, prefix))


def read_hint(file_io: FileIO, path: str) -> int | None:
    """The id in a hint, or None when there is no valid one."""
    try:
        text = file_io.read_bytes(path).strip()
    except FileNotFoundError:
        return None
    decoded = text.decode("ascii", "replace")
    return int(decoded) if _decimal(decoded) and int(decoded) > 0 else None


def write_hint(file_io: FileIO, path: str, number: int) -> None:
    """Record an id; best effort, for readers fall back to probing and listing."""
    try:
        file_io.overwrite_hint(path, str(number).encode())
    except (StorageUnavailableError, OSError):
        return


def _decimal(text: str) -> bool:
    digits = text.isascii() and text.isdigit() and len(text) <= len(str(2**63))
    return digits and str(int(text)) == text


class SnapshotFiles:
    """Snapshot documents of one directory: listing, reading, removing. Picklable."""

    kind: ClassVar[str]
    """Name of a document and of the files, such as `snapshot`."""

    missing_hint: ClassVar[str]
    """What to do when one is missing."""

    probes: ClassVar[int]
    """Steps a stale LATEST is followed before listing: one existence check each."""

    def __init__(self, file_io: FileIO, layout: TableLayout) -> None:
        self._file_io = file_io
        self._layout = layout
        self.directory = layout.numbered_dir(self.kind)
        """Where the documents are."""
        self.hints = f"{self.directory}/LATEST", f"{self.directory}/EARLIEST"

    def __reduce__(self) -> tuple[Any, ...]:
        return type(self), (self._file_io, self._layout)

    def path(self, snapshot_id: int) -> str:
        """The file of an id."""
        return self._layout.numbered_file(self.kind, snapshot_id)

    def latest_id(self) -> int | None:
        """The newest id, or None when there is none."""
        hint = read_hint(self._file_io, self.hints[0])
        if hint is not None and self.exists(hint):
            for candidate in range(hint, hint + self.probes):
                if not self.exists(candidate + 1):
                    return candidate
        return max(self.ids(), default=None)

    def earliest_id(self) -> int | None:
        """The oldest id, or None when there is none."""
        hint = read_hint(self._file_io, self.hints[1])
        if hint is not None and self.exists(hint):
            return hint
        return min(self.ids(), default=None)

    def exists(self, snapshot_id: int) -> bool:
        """Whether the file of an id exists."""
        return self._file_io.is_file(self.path(snapshot_id))

    def ids(self) -> list[int]:
        """All ids, ascending, by listing; other files in the directory do not count."""
        return listed_ids(self._file_io, self.directory, f"{self.kind}-")

    def read(self, snapshot_id: int) -> Snapshot:
        """The document of that id, as the store has it now.

        Raises:
            NotFoundError: it never was, has expired, or was rolled back.
            CorruptDataError: its file is damaged.
        """
        path = self.path(snapshot_id)
        try:
            snapshot = read_document(self._file_io, path, Snapshot.from_json)
        except FileNotFoundError as error:
            raise NotFoundError(
                f"no such {self.kind}",
                detail=f"{snapshot_id} is out of available snapshotId range",
                id=snapshot_id,
                table=self._layout.root,
                hint=self.missing_hint,
            ) from error
        return self._checked(snapshot, snapshot_id)

    def parse(self, snapshot_id: int, data: bytes) -> Snapshot:
        """The same of bytes that were read already.

        Raises:
            CorruptDataError: as `read`.
        """
        snapshot = parse_document(data, self.path(snapshot_id), Snapshot.from_json)
        return self._checked(snapshot, snapshot_id)

    def delete(self, snapshot_id: int) -> bool:
        """Remove a file (expiry, rollback). False when it did not exist."""
        return self._file_io.delete(self.path(snapshot_id))

    def write_latest_hint(self, snapshot_id: int) -> None:
        """Record the newest id, after its file was written; best effort."""
        write_hint(self._file_io, self.hints[0], snapshot_id)

    def write_earliest_hint(self, snapshot_id: int) -> None:
        """Record the oldest id that is left after expiry; best effort."""
        write_hint(self._file_io, self.hints[1], snapshot_id)

    def move_latest_hint(self, snapshot_id: int | None) -> None:
        """Point LATEST at an older id before newer files are removed; None: none is left.

        Unlike other writing of hints this must not fail silently: other readers trust a LATEST
        whose successor does not exist.

        Raises:
            StorageUnavailableError: the store did not answer.
        """
        if snapshot_id is None:
            self._file_io.delete(self.hints[0])
        else:
            self._file_io.overwrite_bytes(self.hints[0], str(snapshot_id).encode())

    def _checked(self, snapshot: Snapshot, snapshot_id: int) -> Snapshot:
        if snapshot.id != snapshot_id:
            raise CorruptDataError(
                f"a {self.kind} file holds another {self.kind}",
                path=self.path(snapshot_id),
                expected=snapshot_id,
                found=snapshot.id,
            )
        return snapshot


_REMEMBERED = 1024
"""Parsed documents kept in memory: more than the snapshots one expiry walks over."""

_BATCH_SIZE = 16
"""Most documents that a walk reads at a time."""


class SnapshotStore(SnapshotFiles):
    """Snapshots of one table or branch; arguments as of `SnapshotFiles`.

    A pickled copy starts with an empty cache.
    """

    kind = "snapshot"
    missing_hint = "it may have expired; list the snapshots that are left"
    probes = 8

    def __init__(self, file_io: FileIO, layout: TableLayout) -> None:
        super().__init__(file_io, layout)
        self._snapshots: dict[int, Snapshot] = {}
        self._newest: Snapshot | None = None

    def read(self, snapshot_id: int) -> Snapshot:
        """See `SnapshotFiles`; clears the cache when this document or the newest has changed."""
        newest = self._newest
        try:
            snapshot = super().read(snapshot_id)
        except NotFoundError:
            self._snapshots.pop(snapshot_id, None)
            if newest is not None and snapshot_id == newest.id:
                self.forget()
            raise
        if newest is None or snapshot_id > newest.id:
            unchanged = newest is None or self.read_again(newest.id) == newest
            newest = snapshot
        else:
            expected = newest if snapshot_id == newest.id else self._snapshots.get(snapshot_id)
            unchanged = expected is None or expected == snapshot
        if not unchanged:
            self.forget()
        self._newest = newest if unchanged else snapshot
        return self._remember(snapshot)

    def recall(self, snapshot_id: int) -> Snapshot:
        """The same from memory where possible; for walks below a snapshot just read.

        Raises: as `read`.
        """
        cached = self._snapshots.get(snapshot_id)
        return self.read(snapshot_id) if cached is None else cached

    def recall_many(self, snapshot_ids: Iterable[int]) -> Iterator[Snapshot]:
        """Several as from `recall`, in the order asked; those not cached are read together.

        Batches grow, so that a walk that ends early has read little too much.

        Raises:
            NotFoundError: a snapshot is missing when its turn comes, as from `recall`.
        """
        pending = iter(snapshot_ids)
        size = 1
        while batch := list(itertools.islice(pending, size)):
            self.preload(batch)
            for snapshot_id in batch:
                yield self.recall(snapshot_id)
            size = min(2 * size, _BATCH_SIZE)

    def preload(self, snapshot_ids: Iterable[int]) -> None:
        """Cache snapshots that `recall` is asked for next, read together.

        What is missing or damaged is left for `recall` to report.
        """
        absent = [number for number in snapshot_ids if number not in self._snapshots][:_REMEMBERED]
        if len(absent) < 2:
            return
        contents = read_present(self._file_io, [self.path(number) for number in absent])
        for snapshot_id, data in zip(absent, contents, strict=True):
            with contextlib.suppress(CorruptDataError):
                if data is not None:
                    self._remember(self.parse(snapshot_id, data))

    def latest(self) -> Snapshot | None:
        """The newest snapshot, or None on a table without snapshots."""
        newest = self.latest_id()
        if newest is None:
            self.forget()
            return None
        if self._newest is not None and newest < self._newest.id:  # rolled back
            self.forget()
        return self.read(newest)

    def at_time(self, time_ms: int) -> Snapshot | None:
        """The newest snapshot committed at or before a time [epoch ms], or None.

        Cost: one listing and a binary search; commit times grow with the id.
        """
        ids = self.ids()
        low, high = 0, len(ids)
        while low < high:
            middle = (low + high) // 2
            if self.read(ids[middle]).time_ms <= time_ms:
                low = middle + 1
            else:
                high = middle
        return self.read(ids[low - 1]) if low else None

    def publish(self, snapshot: Snapshot) -> bool:
        """Make a snapshot visible unless another writer has its id; whether this call published it.

        Hints are written afterwards at best effort: once the snapshot file exists the commit
        has happened, so a failing hint does not fail it.

        Raises:
            StorageUnavailableError: it is unknown whether the snapshot was published; read the
                id back to find out.
        """
        if not self.put(snapshot):
            return False
        self.announce(snapshot)
        return True

    def put(self, snapshot: Snapshot) -> bool:
        """The first half of `publish`: the file without the hints. Returns and raises the same."""
        return self._file_io.put_if_absent(self.path(snapshot.id), snapshot.to_json())

    def announce(self, snapshot: Snapshot) -> None:
        """The second half of `publish`: point the hints at a snapshot that exists."""
        self._newest = self._remember(snapshot)
        self.write_latest_hint(snapshot.id)
        if snapshot.id == 1:
            self.write_earliest_hint(snapshot.id)

    def read_again(self, snapshot_id: int) -> Snapshot | None:
        """As `read`, but None when there is none."""
        try:
            return self.read(snapshot_id)
        except NotFoundError:
            return None

    def forget(self) -> None:
        """Clear the cache: ids may name other snapshots from now on."""
        self._snapshots.clear()
        self._newest = None

    def delete(self, snapshot_id: int) -> bool:
        """See `SnapshotFiles`."""
        self._snapshots.pop(snapshot_id, None)
        return super().delete(snapshot_id)

    def _remember(self, snapshot: Snapshot) -> Snapshot:
        self._snapshots[snapshot.id] = snapshot
        while len(self._snapshots) > _REMEMBERED:
            self._snapshots.pop(next(iter(self._snapshots), 0), None)
        return snapshot


class ChangelogStore(SnapshotFiles):
    """Long-lived changelogs of one table or branch; arguments as of `SnapshotFiles`."""

    kind = "changelog"
    missing_hint = "it may have expired; a consumer keeps what it has not read"
    probes = 1

    def read_many(self, snapshot_ids: Iterable[int]) -> Iterator[Snapshot]:
        """Several, read together; missing ones are left out.

        Raises:
            CorruptDataError: one is damaged.
        """
        ids = list(snapshot_ids)
        contents = read_present(self._file_io, [self.path(number) for number in ids])
        for snapshot_id, data in zip(ids, contents, strict=True):
            if data is not None:
                yield self.parse(snapshot_id, data)

    def write(self, snapshot: Snapshot) -> None:
        """Keep the changelog of a snapshot that is about to expire; idempotent.

        Raises:
            StorageUnavailableError: it is unknown whether it is kept.
        """
        self._file_io.overwrite_bytes(self.path(snapshot.id), snapshot.to_json())

    def move_latest_hint(self, snapshot_id: int | None) -> None:
        """See `SnapshotFiles`; also removes EARLIEST when none is left."""
        super().move_latest_hint(snapshot_id)
        if snapshot_id is None:
            self._file_io.delete(self.hints[1])
