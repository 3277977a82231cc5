# SPDX-License-Identifier: Apache-2.0
"""Taking a stream from nobody, from a dead owner, or by force; and showing that one lives.

The owner replaces a small file now and then,

    <warehouse>/.lakeward/<stream>/owner/beat-<epoch>

Who wants the stream and finds an owner watches that file. A change says that the owner lives: then
the newcomer ends. No change for the owner's time to live, by the newcomer's own monotonic clock,
says that it does not; wall clocks of two machines are never compared. An owner that left, and one
that is surely gone (`ingest.state.ownership`), are followed at once.

This decides only who begins. What keeps an owner that was thought dead from doing harm is not time
but the records of `ingest.state.ownership` and the epoch in the data (`ingest.state.epochs`).
"""

import contextlib
import datetime
import logging
import threading
from collections.abc import Callable
from types import TracebackType

import orjson

from ingest.state.ownership import Owner, OwnerRecord, Ownership
from ingest.state.stream_progress import ProgressFile
from storage.clock import Clock
from storage.errors import FencedError, LakewardError
from storage.io.file_io import FileIO

__all__ = ["DEFAULT_TTL_S", "Lease", "StreamHeldError"]

_LOG = logging.getLogger(__name__)

DEFAULT_TTL_S = 30.0
"""Time without a sign of life after which an owner counts as gone [s]. Longer: a crashed machine is
followed later. Shorter: more requests, and a slow store looks like a dead owner."""

_BEATS = 3
"""Signs of life in that time."""

_LOOKS = 15
"""Looks of a newcomer in that time."""


class StreamHeldError(FencedError):
    """A living daemon owns the stream. Operator action: stop it first, or take the stream over."""


class Lease:
    """See the module.

    1. `acquire`;
    2. `keep` while the stream is worked on, in a thread of its own;
    3. `release`.

    Attributes:
        ownership: what was acquired.
        lost: why it is over, once it is.

    Args:
        file_io: store of the warehouse.
        warehouse: its root.
        stream: the stream's name.
        clock: time.
        ttl_s: as in the module [s].
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
        self._progress = ProgressFile(file_io, warehouse, stream)
        self.lost: FencedError | None = None
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
        """Own the stream from now on; how long that takes is in the module.

        Args:
            take_over: do not ask whether the owner lives.
            stopping: whether to give up.
            waiting: told while an owner is watched, at every look.

        Raises:
            StreamHeldError: a living process owns it.
            FencedError: another process was faster.
        """
        before = self.ownership.newest()
        gone = self._is_gone(before)
        if before is not None and not gone and not take_over:
            before = self._watch(before, stopping, waiting)
            gone = self._is_gone(before)
        elif before is not None and not gone:
            _LOG.warning(
                "the stream is taken over from its owner",
                extra={"event": "taken_over", "owner": str(before.owner), "epoch": before.epoch},
            )
        # what a process has sent to a store of its own machine has come when the process is gone;
        # one that left may still be about to end
        come = (
            before is None
            or before.settled
            or (not self._io.distant and before.owner.surely_gone(self.me))
        )
        made = self.ownership.take(before, note=self._progress.read_raw(before), settled=come)
        if before is None:
            self._io.delete(self._progress.old_path)
        self._beat()
        _LOG.info(
            "the stream is ours",
            extra={"event": "owner", "epoch": made.epoch, "owner": str(self.me)},
        )

    def _is_gone(self, before: OwnerRecord | None) -> bool:
        if before is None or before.kind == "left" or before.owner.token == self.me.token:
            return True  # ours: of a try that the store failed in the middle
        return before.owner.surely_gone(self.me)

    def _watch(
        self,
        before: OwnerRecord,
        stopping: Callable[[], bool],
        waiting: Callable[[str], None],
    ) -> OwnerRecord:
        """Wait until an owner is gone or has been silent for its time; its newest record."""
        ttl_s = max(before.ttl_s, self._ttl_s)
        first = self._sign_of_life(before)
        began_s = self._clock.monotonic_s()
        text = f"owned by {before.owner}: looking whether it lives"
        while self._clock.monotonic_s() - began_s <= ttl_s:
            waiting(text)
            if stopping():
                raise StreamHeldError("told to stop while another process owned the stream")
            self._clock.sleep(ttl_s / _LOOKS)
            newest = self.ownership.newest()
            if newest != before:
                if newest is not None and newest.kind == "left":
                    return newest
                raise self._held(newest or before)
            if self._is_gone(before):
                return before
            if self._sign_of_life(before) != first:
                raise self._held(before)
        _LOG.warning(
            "the stream's owner shows no life: it is overthrown",
            extra={
                "event": "owner_silent",
                "owner": str(before.owner),
                "epoch": before.epoch,
                "silent_s": ttl_s,
            },
        )
        return before

    def _held(self, record: OwnerRecord) -> StreamHeldError:
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

    def _sign_of_life(self, record: OwnerRecord) -> bytes:
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
        """Show life, and see whether the stream is still ours; two small requests.

        Raises:
            FencedError: it is not.
        """
        self._beat()
        self.ownership.require()
        self.ownership.clean()

    def keep(self, on_lost: Callable[[FencedError], None]) -> "Lease":
        """Show life from now on, in a thread, until `release` or until the stream is lost.

        Args:
            on_lost: called once, by the thread, when another process has taken the stream.
        """
        with contextlib.suppress(LakewardError, OSError):  # they harm nobody: the next start tries
            self._clean_beats()

        def work() -> None:
            while not self._ended.wait(self._ttl_s / _BEATS):
                try:
                    self.beat()
                except FencedError as error:
                    self.lost = error
                    on_lost(error)
                    return
                except (LakewardError, OSError) as error:
                    _LOG.warning(
                        "no sign of life could be given: the store does not answer",
                        extra={"event": "beat_failed", "error": error},
                    )

        self._thread = threading.Thread(target=work, name="lease", daemon=True)
        self._thread.start()
        return self

    def _clean_beats(self) -> None:
        """Remove what earlier owners left."""
        mine = self._path(self.ownership.epoch).rsplit("/", 1)[-1]
        names = self._io.list(self.ownership.folder)
        old = [e.path for e in names if e.name.startswith("beat-") and e.name < mine]
        self._io.delete_many(old)

    def release(self, *, settled: bool) -> None:
        """Leave the stream to the next; without effect when it is lost already.

        Args:
            settled: whether all commits of this process have ended, one way or the other.
        """
        self._ended.set()
        if self._thread is not None:
            self._thread.join()
        if self.ownership.last is None or self.lost is not None:
            return
        path = self._path(self.ownership.epoch)
        try:
            self.ownership.leave(settled=settled)
            self._io.delete(path)
        except (LakewardError, OSError) as error:
            _LOG.warning(
                "the stream could not be left: the next daemon has to wait",
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
