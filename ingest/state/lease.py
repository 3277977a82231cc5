# SPDX-License-Identifier: Apache-2.0
"""Acquiring a stream: free, after its owner's lease expired, or by force; and keeping the lease.

The owner replaces a small file now and then,

    <warehouse>/.lakeward/<stream>/owner/beat-<epoch>

A process that wants the stream and finds an owner watches that file. A change shows that the owner
lives: then the newcomer exits. No change for the lease's time to live, by the newcomer's own
monotonic clock, means that the lease has expired; wall clocks of two machines are never compared. A
clean exit, and one that this machine can see (`ingest.state.ownership`), is taken over immediately.

This decides only which process starts. What keeps an owner whose lease expired from doing harm is
not time but the records and the epoch in the data (`ingest.state.ownership`). A suspended earlier
owner can only commit to tables of its last note that lack that note's identifier.
`resolve_in_flight` gives each of these an empty snapshot with the new epoch before their progress
is trusted: a commit that came before it is seen, and one that comes after it is refused.
"""

import contextlib
import datetime
import functools
import logging
import threading
from collections.abc import Callable, Iterator
from types import TracebackType

import orjson

from ingest.config.settings import Settings
from ingest.state.ownership import (
    FENCE_USER,
    BatchNote,
    Owner,
    OwnerRecord,
    Ownership,
    epoch_property,
    first_format_note,
    require_epoch,
)
from ingest.state.table_registry import TableRegistry
from storage.clock import Clock, SystemClock
from storage.errors import FencedError, InternalError, LakewardError
from storage.io.file_io import FileIO

_LOG = logging.getLogger(__name__)

DEFAULT_TTL_S = 30.0
"""Time without a heartbeat after which a lease expires [s]. Longer: a crashed machine is taken over
later. Shorter: more requests, and a slow store looks like a dead owner."""

_BEATS = 3
"""Heartbeats in that time."""

_POLLS = 15
"""How often a newcomer polls in that time."""


class StreamHeldError(FencedError):
    """A live daemon owns the stream. Operator action: stop it first, or take the stream over."""


class Lease:
    """See the module.

    1. `acquire`;
    2. `keep` while the stream is in use, in a separate thread;
    3. `release`.

    Attributes:
        ownership: what was acquired.
        lost_to: why the lease was lost, once it was.

    Args:
        ttl_s: time to live [s].
        me: the process; for tests.
    """

    def __init__(
        self,
        file_io: FileIO,
        warehouse: str,
        stream: str,
        clock: Clock,
        *,
        ttl_s: float = DEFAULT_TTL_S,
        me: Owner | None = None,
    ) -> None:
        self._io = file_io
        self._clock = clock
        self._ttl_s = ttl_s
        self.me = me or Owner.this_process(clock.now_ms())
        self.ownership = Ownership(file_io, warehouse, stream, self.me, ttl_s)
        self._first_note = first_format_note(file_io, warehouse, stream)
        self.lost_to: FencedError | None = None
        self._ended = threading.Event()
        self._thread: threading.Thread | None = None
        self._beats = 0

    def acquire(
        self,
        *,
        take_over: bool = False,
        stopping: Callable[[], bool] = lambda: False,
        waiting: Callable[[str], None] = lambda text: None,
    ) -> None:
        """Acquire the stream; the module says how long that takes.

        Args:
            take_over: do not check whether the owner lives.
            stopping: whether to give up.
            waiting: called at every poll while an owner is watched, with a description.

        Raises:
            StreamHeldError: a live process owns it.
            FencedError: another process acquired it first.
        """
        before = self.ownership.newest()
        free = self._is_free(before)
        if before is not None and not free and not take_over:
            before = self._watch(before, stopping, waiting)
        elif before is not None and not free:
            _LOG.warning(
                "the stream is taken over from its owner",
                extra={"event": "taken_over", "owner": str(before.owner), "epoch": before.epoch},
            )
        # writes to a local store end with their process; a process that released the stream may
        # still be exiting
        settled = (
            before is None
            or before.settled
            or (not self._io.distant and before.owner.has_ended(self.me))
        )
        note = self._first_note.read() if before is None else before.note
        record = self.ownership.acquire(before, note=note, settled=settled)
        if before is None:
            self._first_note.delete()
        self._beat()
        _LOG.info(
            "lease acquired",
            extra={"event": "owner", "epoch": record.epoch, "owner": str(self.me)},
        )

    def _is_free(self, before: OwnerRecord | None) -> bool:
        if before is None or before.kind == "left" or before.owner.token == self.me.token:
            return True  # ours: of an attempt that a store failure interrupted
        return before.owner.has_ended(self.me)

    def _watch(
        self,
        before: OwnerRecord,
        stopping: Callable[[], bool],
        waiting: Callable[[str], None],
    ) -> OwnerRecord:
        """Wait until an owner has ended or its lease expires; its newest record."""
        ttl_s = max(before.ttl_s, self._ttl_s)
        first = self._heartbeat(before)
        began_s = self._clock.monotonic_s()
        text = f"owned by {before.owner}: waiting for its heartbeat"
        while self._clock.monotonic_s() - began_s <= ttl_s:
            waiting(text)
            if stopping():
                raise StreamHeldError("stop requested while another process owned the stream")
            self._clock.sleep(ttl_s / _POLLS)
            newest = self.ownership.newest()
            if newest != before:
                if newest is not None and newest.kind == "left":
                    return newest
                raise self._held_error(newest or before)
            if self._is_free(before):
                return before
            if self._heartbeat(before) != first:
                raise self._held_error(before)
        _LOG.warning(
            "lease expired, taking over the stream",
            extra={
                "event": "owner_silent",
                "owner": str(before.owner),
                "epoch": before.epoch,
                "silent_s": ttl_s,
            },
        )
        return before

    def _held_error(self, record: OwnerRecord) -> StreamHeldError:
        owner = record.owner
        return StreamHeldError(
            "a daemon of this stream runs already",
            hint="stop it first. `lakeward run --take-over` ends it at its next commit, for when "
            "it cannot be reached",
            stream=self.ownership.stream,
            host=owner.host,
            pid=owner.pid,
            since=_moment(owner.since_ms),
            epoch=record.epoch,
        )

    def _heartbeat(self, record: OwnerRecord) -> bytes:
        try:
            return self._io.read_bytes(self._path(record.epoch))
        except FileNotFoundError:
            return b""

    def _path(self, epoch: int) -> str:
        return f"{self.ownership.folder}/beat-{epoch:08d}"

    def _beat(self) -> None:
        self._beats += 1
        data = orjson.dumps({"beat": self._beats, "token": self.me.token})
        self._io.overwrite_bytes(self._path(self.ownership.epoch), data)

    def beat(self) -> None:
        """Renew the lease, and verify that it is still ours; two small requests.

        Raises:
            FencedError: it is not.
        """
        self._beat()
        self.ownership.require_owned()
        self.ownership.delete_old_records()

    def keep(self, on_lost: Callable[[FencedError], None]) -> "Lease":
        """Renew the lease from now on, in a thread, until `release` or until the stream is lost.

        Args:
            on_lost: called once, by the thread, when another process has taken the stream.
        """
        with contextlib.suppress(LakewardError, OSError):  # harmless: the next start tries again
            self._delete_old_beats()

        def work() -> None:
            while not self._ended.wait(self._ttl_s / _BEATS):
                try:
                    self.beat()
                except FencedError as error:
                    self.lost_to = error
                    on_lost(error)
                    return
                except (LakewardError, OSError) as error:
                    _LOG.warning(
                        "the lease could not be renewed: the store does not answer",
                        extra={"event": "beat_failed", "error": error},
                    )

        self._thread = threading.Thread(target=work, name="lease", daemon=True)
        self._thread.start()
        return self

    def _delete_old_beats(self) -> None:
        """Delete the heartbeat files of earlier owners."""
        current = self._path(self.ownership.epoch).rsplit("/", 1)[-1]
        names = self._io.list(self.ownership.folder)
        old = [e.path for e in names if e.name.startswith("beat-") and e.name < current]
        self._io.delete_many(old)

    def release(self, *, settled: bool) -> None:
        """Release the stream; without effect when it is lost already.

        Args:
            settled: whether all commits of this process have ended, one way or the other.
        """
        self._ended.set()
        if self._thread is not None:
            self._thread.join()
        if self.ownership.last is None or self.lost_to is not None:
            return
        path = self._path(self.ownership.epoch)
        try:
            self.ownership.release(settled=settled)
            self._io.delete(path)
        except (LakewardError, OSError) as error:
            _LOG.warning(
                "the lease could not be released: the next daemon has to wait until it expires",
                extra={"event": "not_left", "error": error},
            )

    def __enter__(self) -> "Lease":
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.release(settled=kind is None)


def _moment(time_ms: int) -> str:
    moment = datetime.datetime.fromtimestamp(time_ms / 1000, datetime.UTC)
    return moment.isoformat(timespec="seconds").replace("+00:00", "Z")


def lease_of(settings: Settings, book: TableRegistry, clock: Clock) -> Lease:
    """The lease of a pipeline's stream; nothing is acquired yet."""
    return Lease(
        book.file_io,
        settings.sink.warehouse,
        settings.pipeline.name,
        clock,
        ttl_s=settings.life.owner_ttl_s,
    )


@contextlib.contextmanager
def owned_stream(
    settings: Settings, *, take_over: bool = False, clock: Clock | None = None
) -> Iterator[tuple[TableRegistry, Ownership]]:
    """The stream's tables, owned by a command for the time that it works on them.

    Args:
        take_over: whether the stream is taken over from a live daemon.

    Raises:
        StreamHeldError: a daemon runs.
    """
    clock = clock or SystemClock()
    book = TableRegistry(settings, clock)
    with lease_of(settings, book, clock) as lease:
        lease.acquire(take_over=take_over)
        lease.keep(lambda error: None)  # the next record that the command writes raises it
        book.load(create=False)
        resolve_in_flight(book, lease.ownership)
        yield book, lease.ownership


def resolve_in_flight(book: TableRegistry, ownership: Ownership) -> tuple[str, ...]:
    """Resolve in-flight commits of earlier owners; then only this owner changes the tables.

    Args:
        book: freshly loaded, after the stream was acquired.
        ownership: of this process.

    Returns:
        The tables that got an empty snapshot.

    Raises:
        FencedError: there is a later owner.
    """
    book.use_epoch(ownership.epoch)
    last = ownership.last
    if last is None:
        raise InternalError("the stream is not owned by this process")
    if last.settled:
        return ()
    fenced = () if last.note is None else _fence(book, ownership, last.note)
    ownership.mark_resolved()
    if fenced:
        _LOG.warning(
            "an earlier owner of the stream may still run: its in-flight batch is fenced off",
            extra={"event": "fenced", "epoch": ownership.epoch, "tables": list(fenced)},
        )
    return fenced


def _fence(book: TableRegistry, ownership: Ownership, note: BatchNote) -> tuple[str, ...]:
    missing_tables = [
        name for name in note.missing_tables(book.progresses()) if name in book.options()
    ]
    for name in missing_tables:
        table = book.table(name)
        table.new_commit(ownership.stream + FENCE_USER).commit(
            (),
            ownership.epoch,
            properties=epoch_property(ownership.stream, ownership.epoch),
            before_publish=functools.partial(
                require_epoch,
                table=table,
                stream=ownership.stream,
                epoch=ownership.epoch,
                seen_snapshot=book.snapshot_id(name),
            ),
            ignore_empty=False,
        )
    book.require(missing_tables)  # reopened: an in-flight commit may have landed meanwhile
    return tuple(missing_tables)


def lost_or(error: BaseException, ownership: Ownership) -> BaseException:
    """The `FencedError` if the stream is lost, which explains other failures; else the error."""
    if isinstance(error, FencedError) or ownership.last is None:
        return error
    try:
        ownership.require_owned()
    except FencedError as loss:
        return loss
    except (LakewardError, OSError):
        return error
    return error
