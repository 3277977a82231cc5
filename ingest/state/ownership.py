# SPDX-License-Identifier: Apache-2.0
"""Who writes a stream: a log of numbered records in the warehouse, each made by create-if-absent.

    <warehouse>/.lakeward/<stream>/owner/record-<n>    replaces nothing, is never changed

A record is of one of four kinds, and tells all that counts: the owner's epoch, who it is, and the
note of the batch that was committed last (`ingest.state.stream_progress`).

* `taken`    a process begins to own the stream; its epoch is the one before plus one;
* `settled`  it has made sure that nothing of earlier owners can come any more;
* `batch`    a batch is about to be committed; nothing of it was before;
* `left`     the owner has ended.

Record n+1 can be made only by who knows record n to be the newest. So whoever takes the stream ends
all earlier owners: the next record of such a one is there already, made by another. Since every
batch has its record before its first commit, the last `batch` record names everything that an
earlier owner may still be about to commit, however long it slept (`ingest.state.fencing`).

Old records go, from the oldest on. A sleeper could then make one anew that was there once. So a
record counts only while the one before it is there: it went first.
"""

import dataclasses
import os
import secrets
import socket
import threading
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, Literal

import orjson

from ingest.config.stream_folder import stream_folder
from ingest.state.state_format import STATE_FORMAT, require_known_format
from storage.errors import CorruptDataError, FencedError, InternalError
from storage.io.file_io import FileIO

__all__ = [
    "INSTANCE_VARIABLE",
    "Owner",
    "OwnerRecord",
    "Ownership",
    "newest_record",
    "owner_folder",
]

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
        pid: process id, as the process sees itself.
        since_ms: start by the wall clock [epoch ms], for people.
        boot: of the machine; empty = not known.
        namespace: in which `pid` means something.
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
        """The process that asks."""
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

    @staticmethod
    def of(raw: Mapping[str, Any]) -> "Owner":
        """From what `dataclasses.asdict` made; members of later versions are left out."""
        names = {field.name for field in dataclasses.fields(Owner)}
        return Owner(**{key: value for key, value in raw.items() if key in names})

    def surely_gone(self, me: "Owner") -> bool:
        """Whether the process has ended, for certain.

        Args:
            me: the process that asks.
        """
        if self.token == me.token:
            return False
        here = bool(self.boot and self.ticks) and self.boot == me.boot
        if here and self.namespace and self.namespace == me.namespace:
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
    """When a process started; empty = there is none, or it has ended and waits for its parent."""
    try:
        text = Path(f"/proc/{pid}/stat").read_text(encoding="utf-8", errors="replace")
    except OSError:
        return ""
    fields = text.rpartition(")")[2].split()
    return "" if fields[0] in ("Z", "X") else fields[19]


_KEPT = 8
"""Records that stay. One is enough; the others are for people."""

Kind = Literal["taken", "settled", "batch", "left"]


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class OwnerRecord:
    """One record; see the module.

    Attributes:
        number: its place in the log, from 1.
        epoch: how many owners there were up to this one.
        kind: what happened.
        owner: who wrote it.
        settled: whether nothing of earlier epochs, and nothing of the note, can still come.
        note: the batch that was committed last, as the note writes itself; None = there was none.
        ttl_s: time without a sign of life after which the owner counts as gone [s].
    """

    number: int
    epoch: int
    kind: Kind
    owner: Owner
    settled: bool
    note: Mapping[str, Any] | None
    ttl_s: float

    def to_bytes(self) -> bytes:
        """As in the file."""
        raw = {"version": STATE_FORMAT, **dataclasses.asdict(self)}
        return orjson.dumps(raw, option=orjson.OPT_INDENT_2 | orjson.OPT_SORT_KEYS)

    @staticmethod
    def parsed(data: bytes, path: str) -> "OwnerRecord":
        """From a file.

        Raises:
            CorruptDataError: it cannot be read.
            StateFormatError: it is of a later version.
        """
        try:
            raw = orjson.loads(data)
            version = int(raw["version"])
        except (ValueError, KeyError, TypeError) as error:
            raise _unreadable(path) from error
        require_known_format(version, path)
        try:
            return OwnerRecord(
                number=int(raw["number"]),
                epoch=int(raw["epoch"]),
                kind=raw["kind"],
                owner=Owner.of(raw["owner"]),
                settled=bool(raw["settled"]),
                note=raw["note"],
                ttl_s=float(raw["ttl_s"]),
            )
        except (ValueError, KeyError, TypeError) as error:
            raise _unreadable(path) from error


def newest_record(file_io: FileIO, warehouse: str, stream: str) -> OwnerRecord | None:
    """The record that counts; None when the stream never had an owner.

    Raises:
        CorruptDataError: it cannot be read.
        StateFormatError: it is of a later version.
    """
    folder = owner_folder(warehouse, stream)
    while True:
        number = max(_numbers(file_io, folder), default=0)
        if not number:
            return None
        path = _path(folder, number)
        try:
            return OwnerRecord.parsed(file_io.read_bytes(path), path)
        except FileNotFoundError:  # many came meanwhile, and this one went
            continue


class Ownership:
    """One process's hold on a stream; see the module. Thread-safe.

    Args:
        file_io: store of the warehouse.
        warehouse: its root.
        stream: the stream's name.
        me: the process.
        ttl_s: time without a sign of life after which it counts as gone [s].
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
        """Ours; 0 before `take`."""
        return 0 if self._last is None else self._last.epoch

    @property
    def last(self) -> OwnerRecord | None:
        """Our newest record; None = the stream is not ours."""
        return self._last

    def newest(self) -> OwnerRecord | None:
        """The record that counts, whoever wrote it."""
        return newest_record(self._io, self.warehouse, self.stream)

    def take(
        self, before: OwnerRecord | None, *, note: Mapping[str, Any] | None, settled: bool
    ) -> OwnerRecord:
        """Begin to own the stream.

        Args:
            before: the newest record; who wrote it is overthrown.
            note: of the batch that was committed last.
            settled: whether nothing of earlier owners can still come.

        Raises:
            FencedError: another process was faster.
        """
        made = OwnerRecord(
            number=1 if before is None else before.number + 1,
            epoch=1 if before is None else before.epoch + 1,
            kind="taken",
            owner=self.me,
            settled=settled,
            note=note,
            ttl_s=self._ttl_s,
        )
        with self._lock:
            created = self._io.put_if_absent(_path(self.folder, made.number), made.to_bytes())
            if not created and not _same(self._read(made.number), made):
                raise self._lost()
            numbers = _numbers(self._io, self.folder)
            if max(numbers, default=0) != made.number:
                # a record that counted and was followed keeps the place after `before` taken
                if before is None or before.number not in numbers:
                    self._io.delete(_path(self.folder, made.number))
                raise self._lost()
            self._last = made
            self._lowest = min(numbers)
        return made

    def settle(self) -> None:
        """Record that nothing of earlier owners can come any more."""
        self._append(lambda last: dataclasses.replace(last, kind="settled", settled=True))

    def note(self, note: Mapping[str, Any]) -> None:
        """Record which batch is about to be committed; durable at return.

        Raises:
            FencedError: another process owns the stream.
        """
        self._append(
            lambda last: dataclasses.replace(last, kind="batch", settled=False, note=dict(note))
        )

    def leave(self, *, settled: bool) -> None:
        """End owning the stream.

        Args:
            settled: whether all commits of this process have ended, one way or the other. Of those
                of earlier owners that says nothing: what was open when it began stays open.
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

    def require(self) -> None:
        """Find out whether the stream is still ours; one listing.

        Raises:
            FencedError: another process owns it.
        """
        with self._lock:
            last = self._owned()
            while True:
                numbers = _numbers(self._io, self.folder)
                if last.number not in numbers:
                    raise self._lost()
                if max(numbers) == last.number:
                    return
                last = self._adopted(last)

    def clean(self) -> None:
        """Remove old records; of many processes that do so at once none does harm."""
        with self._lock:
            first, end = self._lowest, self._owned().number - _KEPT
        for number in range(first, end):
            self._io.delete(_path(self.folder, number))
            self._lowest = number + 1  # one that could not be removed is not passed over

    def _append(self, make: Callable[[OwnerRecord], OwnerRecord]) -> None:
        """Write the next record; a record of ours that is there already had its answer lost."""
        with self._lock:
            last = self._owned()
            while True:
                made = dataclasses.replace(make(last), number=last.number + 1)
                if self._io.put_if_absent(_path(self.folder, made.number), made.to_bytes()):
                    if not _same(self._read(last.number), last):
                        self._io.delete(_path(self.folder, made.number))
                        raise self._lost()
                    self._last = made
                    return
                last = self._adopted(last)
                if _same(last, made):
                    return

    def _adopted(self, last: OwnerRecord) -> OwnerRecord:
        """The record after our last, if it is ours too."""
        found = self._read(last.number + 1)
        if found is None or found.owner.token != self.me.token:
            raise self._lost()
        self._last = found
        return found

    def _owned(self) -> OwnerRecord:
        if self._last is None:
            raise InternalError("the stream is not owned by this process")
        return self._last

    def _read(self, number: int) -> OwnerRecord | None:
        path = _path(self.folder, number)
        try:
            return OwnerRecord.parsed(self._io.read_bytes(path), path)
        except FileNotFoundError:
            return None

    def _lost(self) -> FencedError:
        newest = self.newest()
        facts: dict[str, Any] = {"stream": self.stream}
        if newest is not None:
            facts |= {"owner": str(newest.owner), "epoch": newest.epoch}
        return FencedError(
            "another process owns the stream",
            hint="two daemons run one stream: this one ends; nothing of its last batch is lost or "
            "doubled",
            **facts,
        )


def owner_folder(warehouse: str, stream: str) -> str:
    """Where the records are."""
    return f"{stream_folder(warehouse, stream)}/owner"


def _path(folder: str, number: int) -> str:
    return f"{folder}/record-{number:012d}"


def _numbers(file_io: FileIO, folder: str) -> set[int]:
    names = (entry.name for entry in file_io.list(folder) if not entry.directory)
    found = (name.removeprefix("record-") for name in names if name.startswith("record-"))
    return {int(number) for number in found if number.isdecimal()}


def _same(found: OwnerRecord | None, made: OwnerRecord) -> bool:
    return found is not None and found.to_bytes() == made.to_bytes()


def _unreadable(path: str) -> CorruptDataError:
    return CorruptDataError(
        "a record of the stream's owner cannot be read",
        hint="when no daemon runs, remove the folder it is in: the tables and the checkpoint "
        "hold the offsets",
        path=path,
    )
