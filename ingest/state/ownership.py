# SPDX-License-Identifier: Apache-2.0
"""Who owns a stream, and which of its tables are parked for which failure.

    <warehouse>/.lakeward/<stream>/owner/record-<n>    created if absent, never changed

A record is of one of four kinds. Each is complete: the owner's epoch and identity, and the note of
the newest batch (`BatchNote`).

* `taken`    a process acquires the stream; its epoch is the one before plus one;
* `settled`  it has made sure that no commit of an earlier owner is in flight any more;
* `batch`    a batch is about to be committed; nothing of it was before;
* `left`     the owner has released the stream.

Record n+1 can be created only by a process that knows record n to be the newest. So a process that
acquires the stream ends all earlier owners: their next record exists already, by another process.
Since every batch has its record before its first commit, the last `batch` record names everything
that an earlier owner may still commit, however long it was suspended (`ingest.state.lease`).

Old records are deleted, from the oldest on. A suspended process could then create one again. So a
record counts only while the one before it exists: that one was deleted first.

**The epoch in the data.** Every snapshot of the stream has `lakeward.epoch.<stream>`, which later
snapshots keep. Each publication is built on one snapshot, and create-if-absent refuses it when that
snapshot has a successor already. So an owner that finds a higher epoch in the snapshot it builds on
has lost the stream, and no higher epoch can get there after it checked (`require_epoch`).
"""

import dataclasses
import os
import secrets
import socket
import threading
from collections.abc import Callable, Collection, Iterable, Mapping
from pathlib import Path
from typing import Any, Literal

from ingest.config.settings import stream_folder
from ingest.source.records import OffsetJson, OffsetMap, entered, normalize, restarted, without
from ingest.state.stream_state import StateFile, TableProgress, encoded, snapshot_property
from storage.errors import (
    CorruptDataError,
    FencedError,
    InternalError,
    InvalidRequestError,
    NotFoundError,
)
from storage.format.metadata.snapshot import Snapshot
from storage.io.file_io import FileIO
from storage.table.commit.live_files import live_entries
from storage.table.table import FileStoreTable

EPOCH_PROPERTY = "lakeward.epoch."

FENCE_USER = ".fence"
"""After the stream's name: commit user of the empty snapshots that fence an earlier owner off."""

INSTANCE_VARIABLE = "LAKEWARD_INSTANCE"
"""Environment variable with a name of which at most one process lives at any time, such as the UID
of a Kubernetes pod: its containers follow one another."""

_BOOT = Path("/proc/sys/kernel/random/boot_id")


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Owner:
    """One process.

    Attributes:
        token: unique for every start.
        host: name of the machine, for people.
        pid: process id, in its own namespace.
        since_ms: start by the wall clock [epoch ms], for people.
        boot: of the machine; empty = not known.
        namespace: the PID namespace of `pid`.
        ticks: start time of the process in the machine's own ticks.
        instance: see `INSTANCE_VARIABLE`; empty = none.
    """

    token: str
    host: str
    pid: int
    since_ms: int
    boot: str = ""
    namespace: str = ""
    ticks: str = ""
    instance: str = ""

    @staticmethod
    def this_process(now_ms: int) -> "Owner":
        """The running process."""
        pid = os.getpid()
        return Owner(
            token=secrets.token_hex(8),
            host=socket.gethostname(),
            pid=pid,
            since_ms=now_ms,
            boot=_boot(),
            namespace=_namespace(),
            ticks=_ticks(pid),
            instance=os.environ.get(INSTANCE_VARIABLE, ""),
        )

    def has_ended(self, me: "Owner") -> bool:
        """Whether the process has certainly ended, as seen from this machine.

        Args:
            me: this process.
        """
        if self.token == me.token:
            return False
        same_boot = bool(self.boot and self.ticks) and self.boot == me.boot
        if same_boot and self.namespace and self.namespace == me.namespace:
            return _ticks(self.pid) != self.ticks
        return bool(self.instance) and self.instance == me.instance

    def __str__(self) -> str:
        return f"{self.host}, pid {self.pid}"


def _boot() -> str:
    try:
        return _BOOT.read_text(encoding="ascii").strip()
    except OSError:
        return ""


def _namespace() -> str:
    try:
        return str(Path("/proc/self/ns/pid").readlink())
    except OSError:
        return ""


def _ticks(pid: int) -> str:
    """Start time of a process; empty = there is none, or it is a zombie."""
    try:
        text = Path(f"/proc/{pid}/stat").read_text(encoding="utf-8", errors="replace")
    except OSError:
        return ""
    fields = text.rpartition(")")[2].split()
    return "" if fields[0] in ("Z", "X") else fields[19]


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class BatchNote:
    """The batch that is being committed: written durably before its first table.

    It closes a gap that table properties alone leave when a checkpoint is lost in the middle of a
    commit: a table that the batch created or fed from a new topic, and that was not committed yet,
    has no such offsets, while other tables are past them. If every table of the note has the note's
    identifier, the stream resumes at the note's end; else at its start, and the tables' floors drop
    what they already hold.

    Attributes:
        identifier: its commit identifier.
        start: source offsets where it begins, in the source's own form.
        end: source offsets where it ends.
        tables: every table it commits to.
    """

    identifier: int
    start: Mapping[str, Any]
    end: Mapping[str, Any]
    tables: tuple[str, ...]

    def missing_tables(self, progresses: Mapping[str, TableProgress]) -> list[str]:
        """Tables that have not been committed yet."""
        return [
            name
            for name in self.tables
            if name not in progresses or progresses[name].identifier < self.identifier
        ]

    def complete(self, progresses: Mapping[str, TableProgress]) -> bool:
        """Whether all tables of the note were committed."""
        return not self.missing_tables(progresses)


_KEPT_RECORDS = 8
"""One is enough; the others are for diagnosis."""

Kind = Literal["taken", "settled", "batch", "left"]


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class OwnerRecord:
    """One record; see the module.

    Attributes:
        number: its position in the log, from 1.
        epoch: number of owners up to this one.
        kind: what happened.
        owner: who wrote it.
        settled: whether no commit of earlier epochs, and none of the note, can be in flight.
        note: the newest batch; None = there was none.
        ttl_s: time without a heartbeat after which the owner's lease expires [s].
    """

    number: int
    epoch: int
    kind: Kind
    owner: Owner
    settled: bool
    note: BatchNote | None
    ttl_s: float


def _record(file_io: FileIO, folder: str, number: int) -> OwnerRecord | None:
    path = _path(folder, number)
    return StateFile(
        file_io,
        path,
        OwnerRecord,
        title="a record of the stream's owner",
        hint="when no daemon runs, remove the folder it is in: the tables and the checkpoint "
        "hold the offsets",
    ).read()


def newest_record(file_io: FileIO, warehouse: str, stream: str) -> OwnerRecord | None:
    """The newest record; None when the stream never had an owner.

    Raises:
        CorruptDataError: it cannot be read.
        StateFormatError: it is of a later version.
    """
    folder = owner_folder(warehouse, stream)
    while True:
        number = max(_numbers(file_io, folder), default=0)
        if not number:
            return None
        record = _record(file_io, folder, number)
        if record is not None:  # else it was deleted meanwhile, after many newer ones
            return record


def newest_note(file_io: FileIO, warehouse: str, stream: str) -> BatchNote | None:
    """The note of the newest batch; None when the stream never committed.

    Raises:
        CorruptDataError: it cannot be read.
        StateFormatError: it is of a later version.
    """
    newest = newest_record(file_io, warehouse, stream)
    if newest is not None:
        return newest.note
    return first_format_note(file_io, warehouse, stream).read()


def first_format_note(file_io: FileIO, warehouse: str, stream: str) -> StateFile[BatchNote]:
    """Where format 1 kept the note, before streams had owners."""
    return StateFile(
        file_io,
        f"{stream_folder(warehouse, stream)}/progress.json",
        BatchNote,
        title="the stream's progress file",
        hint="remove it: the stream then starts over and drops the rows of its tables",
    )


class Ownership:
    """One process's hold on a stream; see the module. Thread-safe.

    Args:
        me: the process.
        ttl_s: time without a heartbeat after which its lease expires [s].
    """

    def __init__(
        self, file_io: FileIO, warehouse: str, stream: str, me: Owner, ttl_s: float = 30.0
    ) -> None:
        self._io = file_io
        self.warehouse = warehouse
        self.stream = stream
        self.me = me
        self._ttl_s = ttl_s
        self.folder = owner_folder(warehouse, stream)
        self._last: OwnerRecord | None = None
        self._lowest = 1
        self._lock = threading.Lock()

    @property
    def epoch(self) -> int:
        """Epoch of this process; 0 before `acquire`."""
        return 0 if self._last is None else self._last.epoch

    @property
    def last(self) -> OwnerRecord | None:
        """Our newest record; None = this process does not own the stream."""
        return self._last

    def newest(self) -> OwnerRecord | None:
        """The newest record, of any owner."""
        return newest_record(self._io, self.warehouse, self.stream)

    def acquire(
        self, before: OwnerRecord | None, *, note: BatchNote | None, settled: bool
    ) -> OwnerRecord:
        """Acquire the stream.

        Args:
            before: the newest record; its owner loses the stream.
            note: of the newest batch.
            settled: whether no commit of an earlier owner can be in flight.

        Raises:
            FencedError: another process acquired it first.
        """
        record = OwnerRecord(
            number=1 if before is None else before.number + 1,
            epoch=1 if before is None else before.epoch + 1,
            kind="taken",
            owner=self.me,
            settled=settled,
            note=note,
            ttl_s=self._ttl_s,
        )
        with self._lock:
            created = self._io.put_if_absent(_path(self.folder, record.number), encoded(record))
            if not created and not self._is_stored(record):
                raise self._fenced_error()
            numbers = _numbers(self._io, self.folder)
            if max(numbers, default=0) != record.number:
                # a record that counted and has a successor must stay: `before` could write there
                if before is None or before.number not in numbers:
                    self._io.delete(_path(self.folder, record.number))
                raise self._fenced_error()
            self._last = record
            self._lowest = min(numbers)
        return record

    def mark_resolved(self) -> None:
        """Record that no commit of an earlier owner is in flight any more."""
        self._append(lambda last: dataclasses.replace(last, kind="settled", settled=True))

    def record_batch(self, note: BatchNote) -> None:
        """Record which batch is about to be committed; durable at return.

        Raises:
            FencedError: another process owns the stream.
        """
        self._append(lambda last: dataclasses.replace(last, kind="batch", settled=False, note=note))

    def release(self, *, settled: bool) -> None:
        """End owning the stream.

        Args:
            settled: whether all commits of this process have ended, one way or the other. That says
                nothing of earlier owners' commits: what was unresolved at the start stays so.
        """
        with self._lock:
            if self._last is None:
                return
        self._append(
            lambda last: dataclasses.replace(
                last, kind="left", settled=settled if last.kind == "batch" else last.settled
            )
        )
        with self._lock:
            self._last = None

    def require_owned(self) -> None:
        """Verify that the stream is still ours; one listing.

        Raises:
            FencedError: another process owns it.
        """
        with self._lock:
            last = self._own_record()
            while True:
                numbers = _numbers(self._io, self.folder)
                if last.number not in numbers:
                    raise self._fenced_error()
                if max(numbers) == last.number:
                    return
                last = self._successor(last)

    def delete_old_records(self) -> None:
        """Delete all but the newest records; several processes may do so at once."""
        with self._lock:
            first, end = self._lowest, self._own_record().number - _KEPT_RECORDS
        for number in range(first, end):
            self._io.delete(_path(self.folder, number))
            self._lowest = number + 1  # one that could not be deleted is not skipped

    def _append(self, make: Callable[[OwnerRecord], OwnerRecord]) -> None:
        """Write the next record; if ours exists already, the reply to its write was lost."""
        with self._lock:
            last = self._own_record()
            while True:
                record = dataclasses.replace(make(last), number=last.number + 1)
                if self._io.put_if_absent(_path(self.folder, record.number), encoded(record)):
                    if not self._is_stored(last):
                        self._io.delete(_path(self.folder, record.number))
                        raise self._fenced_error()
                    self._last = record
                    return
                last = self._successor(last)
                if _same_record(last, record):
                    return

    def _is_stored(self, record: OwnerRecord) -> bool:
        """Whether our record is in its place, by its bytes: it may have thousands of offsets."""
        try:
            data = self._io.read_bytes(_path(self.folder, record.number))
        except FileNotFoundError:
            return False
        return data == encoded(record) or _same_record(self._read(record.number), record)

    def _successor(self, last: OwnerRecord) -> OwnerRecord:
        """The record after our last, if it is ours too."""
        successor = self._read(last.number + 1)
        if successor is None or successor.owner.token != self.me.token:
            raise self._fenced_error()
        self._last = successor
        return successor

    def _own_record(self) -> OwnerRecord:
        if self._last is None:
            raise InternalError("the stream is not owned by this process")
        return self._last

    def _read(self, number: int) -> OwnerRecord | None:
        return _record(self._io, self.folder, number)

    def _fenced_error(self) -> FencedError:
        newest = self.newest()
        facts: dict[str, Any] = {"stream": self.stream}
        if newest is not None:
            facts |= {"owner": str(newest.owner), "epoch": newest.epoch}
        return FencedError(
            "another process owns the stream",
            hint="two daemons run one stream: this one ends; its last batch is neither lost "
            "nor duplicated",
            **facts,
        )


def owner_folder(warehouse: str, stream: str) -> str:
    """Folder of the records."""
    return f"{stream_folder(warehouse, stream)}/owner"


def _path(folder: str, number: int) -> str:
    return f"{folder}/record-{number:012d}"


def _numbers(file_io: FileIO, folder: str) -> set[int]:
    names = (entry.name for entry in file_io.list(folder) if not entry.directory)
    numbers = (name.removeprefix("record-") for name in names if name.startswith("record-"))
    return {int(number) for number in numbers if number.isdecimal()}


def _same_record(first: OwnerRecord | None, second: OwnerRecord) -> bool:
    return first is not None and encoded(first) == encoded(second)


def epoch_property(stream: str, epoch: int) -> dict[str, str]:
    """The property of a commit; none for a process that does not own the stream."""
    return {EPOCH_PROPERTY + stream: str(epoch)} if epoch else {}


def require_epoch(
    latest: Snapshot | None, table: FileStoreTable, stream: str, epoch: int, *, seen_snapshot: int
) -> None:
    """Stop a commit of an owner that has lost the stream.

    Args:
        latest: the snapshot that the commit is built on.
        stream: that commits.
        epoch: of the owner; 0 = it owns nothing, and nothing is checked.
        seen_snapshot: the newest snapshot of which it is known that it is of no later owner.

    Raises:
        FencedError: a later owner committed.
        CorruptDataError: an epoch cannot be read.
    """
    if not epoch or latest is None:
        return
    newest = _epoch_of(latest, stream)
    number = latest.id - 1
    while newest is None and number > seen_snapshot:  # other engines may drop properties
        try:
            newest = _epoch_of(table.snapshots.read(number), stream)
        except NotFoundError:
            break
        number -= 1
    if newest is not None and newest > epoch:
        raise FencedError(
            "another process owns the stream",
            detail="it has committed to this table",
            hint="two daemons run one stream: this one ends; nothing is lost or duplicated",
            table=table.layout.root,
            epoch=newest,
            own_epoch=epoch,
        )


def _epoch_of(snapshot: Snapshot, stream: str) -> int | None:
    return snapshot_property(snapshot, EPOCH_PROPERTY + stream, int, "epoch")


# Tables that are parked: not written for now, while the stream's other tables are.
#
# `<warehouse>/.lakeward/<stream>/parked.json`, replaced atomically at every change, is the only
# source of truth. A parked table is not planned: tasks do not decode its events, and its own
# committed offsets do not advance. To resume it the stream is rewound to where the table was parked
# (`ingest.state.stream_position`, `docs/adr/ingest/0009`).
#
# For a parked table the file holds all that a rewind needs:
#
# * the source offsets of all partitions at the start of the first batch that the table misses;
#   a partition that appears later is added with the offset at which it appeared;
# * the topics in which tasks have seen events for the table since then.
#
# It also holds what would be lost with the checkpoint while tables catch up: these tables
# (`behind`), and the offsets below which all others are complete (`held`).


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Pause:
    """Why a stream is paused.

    Attributes:
        reason: for people.
        since_ms: since when [epoch ms].
    """

    reason: str
    since_ms: int


class Pausing:
    """Whether a person paused the whole stream: then it reads nothing, even after restarts.

    `<warehouse>/.lakeward/<stream>/paused.json` exists while it is paused. The daemon keeps
    running: it answers requests and maintains tables. A batch that is planned already is finished.
    Changes are durable when the call returns.
    """

    def __init__(self, file_io: FileIO, warehouse: str, stream: str) -> None:
        self._file = StateFile(
            file_io,
            f"{stream_folder(warehouse, stream)}/paused.json",
            Pause,
            title="the note that the stream is paused",
            hint="remove it and the stream continues",
        )
        self._pause: Pause | None = None

    @property
    def pause(self) -> Pause | None:
        """Why the stream is paused; None = it is not."""
        return self._pause

    def load(self) -> Pause | None:
        """Read the file.

        Raises:
            CorruptDataError: it is damaged.
            StateFormatError: it is of a later version.
        """
        self._pause = self._file.read()
        return self._pause

    def set(self, reason: str, *, now_ms: int) -> bool:
        """Pause; False if it was paused already: then nothing changes."""
        if self._pause is not None:
            return False
        pause = Pause(reason=reason, since_ms=now_ms)
        self._file.write(pause)
        self._pause = pause
        return True

    def clear(self) -> bool:
        """Resume; False if it was not paused."""
        if self._pause is None:
            return False
        self._file.delete()
        self._pause = None
        return True


By = Literal["person", "stream"]
"""Who parked a table: a command, or the stream itself because of an error."""


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class ParkedTable:
    """Why a table is parked, and from where it is to be read again.

    Attributes:
        reason: for people.
        by: a person or the stream.
        parked_ms: when [epoch ms].
        since: next offset to read of every partition, in the source's own form.
        topics: topics that fed the table since.
    """

    reason: str
    by: By
    parked_ms: int
    since: Mapping[str, Any]
    topics: tuple[str, ...] = ()


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class _Content:
    parked: Mapping[str, ParkedTable] = dataclasses.field(default_factory=dict)
    behind: tuple[str, ...] = ()
    held: Mapping[str, Mapping[str, int]] = dataclasses.field(default_factory=dict)
    # by partition of a re-created topic the batch in which it began again
    restarted: Mapping[str, Mapping[str, int]] = dataclasses.field(default_factory=dict)


class Parking:
    """The file and its content. Thread-safe; every change is durable when the call returns.

    Attributes:
        guard: called before each change; raises when another process owns the stream.
    """

    def __init__(self, file_io: FileIO, warehouse: str, stream: str) -> None:
        self._file = StateFile(
            file_io,
            f"{stream_folder(warehouse, stream)}/parked.json",
            _Content,
            title="the list of parked tables",
            hint="restore it; without it parked tables would resume without the rows they missed",
        )
        self._lock = threading.Lock()
        self._content = _Content()
        self.guard: Callable[[], None] = lambda: None

    def load(self) -> None:
        """Read the file; a missing one counts as empty.

        Raises:
            CorruptDataError: it is damaged.
            StateFormatError: it is of a later version.
        """
        content = self._file.read() or _Content()
        with self._lock:
            self._content = content

    def parked(self) -> Mapping[str, ParkedTable]:
        """The parked tables by `database.table`."""
        return self._content.parked

    @property
    def catching_up(self) -> tuple[str, ...]:
        """Resumed tables that have not caught up yet, sorted."""
        return self._content.behind

    @property
    def common_floor(self) -> Mapping[str, Mapping[str, int]]:
        """Offsets below which every table that is neither parked nor catching up has everything."""
        return self._content.held

    def of_present_topics(self, offsets: OffsetJson, identifier: int) -> OffsetJson:
        """Offsets of a batch, without those of topics re-created later: former records."""
        later = {
            topic: {key for key, batch in parts.items() if batch > identifier}
            for topic, parts in self._content.restarted.items()
        }
        return without(offsets, later) if any(later.values()) else offsets

    def require(self, tables: Iterable[str]) -> dict[str, ParkedTable]:
        """Entries of parked tables.

        Raises:
            InvalidRequestError: one is not parked.
        """
        parked = self._content.parked
        for name in tables:
            if name not in parked:
                raise InvalidRequestError(
                    "the table is not parked",
                    hint="`lakeward status` shows the parked tables",
                    table=name,
                )
        return {name: parked[name] for name in tables}

    def park(
        self,
        table: str,
        *,
        reason: str,
        by: By,
        since: Mapping[str, Any],
        now_ms: int,
        topics: Iterable[str] = (),
    ) -> bool:
        """Park a table.

        Args:
            table: `database.table`; it need not exist.
            reason: for people.
            by: a person or the stream.
            since: source offsets of all partitions at the start of the first batch that the table
                misses, in the source's own form.
            now_ms: time [epoch ms].
            topics: topics that feed it in that batch.

        Returns:
            False if it was parked already: then nothing changes.
        """
        with self._lock:
            old = self._content
            if table in old.parked:
                return False
            entry = ParkedTable(
                reason=reason,
                by=by,
                parked_ms=now_ms,
                since=normalize(since),
                topics=tuple(sorted(set(topics))),
            )
            self._replace(
                parked={**old.parked, table: entry},
                behind=tuple(name for name in old.behind if name != table),
            )
            return True

    def met(
        self,
        feeds: Mapping[str, Iterable[str]],
        start: Mapping[str, Any],
        end: Mapping[str, Any],
        identifier: int,
    ) -> None:
        """Record what a batch reveals about parked tables and topics; written only if it is new.

        Must be durable before the batch is recorded: these events are not read again otherwise.

        Args:
            feeds: table to topics that had events for it.
            start: source offsets where the batch begins.
            end: where it ends; below `start` where a re-created partition begins again.
            identifier: of its commits.
        """
        new, again = entered(start, end), restarted(start, end)
        with self._lock:
            old = self._content
            parked = {
                name: _with(entry, feeds.get(name, ()), new, again)
                for name, entry in old.parked.items()
            }
            batches = {topic: dict.fromkeys(parts, identifier) for topic, parts in again.items()}
            changes = {
                "parked": parked,
                "held": without(old.held, again),
                "restarted": higher(old.restarted, batches),
            }
            if any(getattr(old, name) != value for name, value in changes.items()):
                self._replace(**changes)

    def resume(
        self, tables: Iterable[str], held_offsets: Mapping[str, Mapping[str, int]]
    ) -> dict[str, ParkedTable]:
        """Resume tables after the stream was rewound for them.

        Args:
            tables: all parked.
            held_offsets: offsets below which every other table has everything; empty = since they
                were parked the tables missed nothing. They may have been catching up before.

        Raises:
            InvalidRequestError: one is not parked.
        """
        with self._lock:
            old, entries = self._content, self.require(tables)
            held = higher(old.held, held_offsets)
            catching_up = {*old.behind, *entries} if held else set(old.behind)
            self._replace(
                parked={name: entry for name, entry in old.parked.items() if name not in entries},
                behind=tuple(sorted(catching_up)),
                held=held,
            )
            return entries

    def caught_up(self) -> None:
        """All tables have caught up."""
        with self._lock:
            if self._content.behind or self._content.held:
                self._replace(behind=(), held={})

    def _replace(self, **changes: Any) -> None:
        self.guard()
        content = dataclasses.replace(self._content, **changes)
        self._file.write(content)
        self._content = content


def higher(
    first: Mapping[str, Mapping[str, int]], second: Mapping[str, Mapping[str, int]]
) -> OffsetMap:
    """The larger offset of every partition that either names."""
    result = {topic: dict(parts) for topic, parts in first.items()}
    for topic, parts in second.items():
        target = result.setdefault(topic, {})
        for partition, offset in parts.items():
            target[partition] = max(offset, target.get(partition, offset))
    return result


def _with(
    entry: ParkedTable, topics: Iterable[str], new: OffsetJson, again: OffsetJson
) -> ParkedTable:
    since = {topic: dict(parts) for topic, parts in entry.since.items()}
    for topic, parts in new.items():
        target = since.setdefault(topic, {})
        for key, value in parts.items():
            target.setdefault(key, value)
    for topic, parts in again.items():
        since.setdefault(topic, {}).update(dict.fromkeys(parts, 0))
    return dataclasses.replace(
        entry,
        topics=tuple(sorted({*entry.topics, *topics})),
        since=normalize(since),
    )


# Which failures park one table instead of ending the stream. Reads the warehouse, changes nothing.
#
# A failure parks its table if a retry cannot fix it and it concerns that table alone: bytes of the
# table that violate the format, contradicting options or schema, a missing table, a missing file
# that the newest snapshot names (one that only older snapshots name may have expired). It never
# does so
#
# * for the quarantine table, without which records would be lost;
# * for transient faults, lost races, refused credentials, a newer writer, bugs: those are the
#   store's, the stream's or ours, and parking tables for them would stop everything silently;
# * when several tables of the batch fail and none succeeds, or the warehouse does not answer for
#   the quarantine table: then it does not concern one table.


TABLE_FAULTS = (CorruptDataError, InvalidRequestError, NotFoundError)
"""Errors that can concern one table."""

_REASON_LENGTH = 500


def faults_to_park(
    failures: Mapping[str, BaseException],
    tables: Collection[str],
    *,
    quarantine: str,
    answers: Callable[[], bool],
) -> dict[str, str]:
    """The tables to park, with reasons.

    Args:
        failures: what failed, by table.
        tables: all tables of the batch, those that succeeded too.
        quarantine: the quarantine table.
        answers: whether the warehouse answers; called only when it matters.

    Raises:
        BaseException: the first failure that must end the query.
    """
    if not failures:
        return {}
    for name in sorted(failures):
        error = failures[name]
        if name == quarantine or not isinstance(error, TABLE_FAULTS):
            raise error
    successes = [name for name in tables if name not in failures]
    if (len(failures) > 1 and not successes) or not answers():
        raise failures[min(failures)]
    return {name: reason_of(error) for name, error in failures.items()}


def lost_file(table: FileStoreTable, error: FileNotFoundError) -> CorruptDataError | None:
    """The table's fault, if the missing file is one that it still needs.

    Reads the newest snapshot's manifests.
    """
    missing = str(error.filename or "")
    try:
        snapshot = table.latest().latest_snapshot()
        entries = [] if snapshot is None else live_entries(table, snapshot)
        names = {entry.file.file_name for entry in entries}
        if snapshot is not None:  # manifests may have come from a cache
            names |= {snapshot.base_manifest_list, snapshot.delta_manifest_list}
        needed = missing.rsplit("/", 1)[-1] in names
    except FileNotFoundError:  # not even the newest snapshot can be read
        needed = True
    if not needed:
        return None
    return CorruptDataError(
        "a file that the table needs is missing", hint="restore the file", path=missing
    )


def reason_of(error: BaseException) -> str:
    """One line for people."""
    text = f"{type(error).__name__}: {error}".split("\n", maxsplit=1)[0]
    return text if len(text) <= _REASON_LENGTH else text[: _REASON_LENGTH - 1] + "…"
