# SPDX-License-Identifier: Apache-2.0
"""Signals of a daemon, handled by a thread of its own.

Python runs signal handlers on the main thread between two of its steps: not while it waits in a
call to the JVM, and in the middle of whatever holds a lock. So handlers do nothing here; the
interpreter writes the signal's number to a socket, and a thread reads it and acts.

    SIGTERM, SIGINT     first: drain, within the grace period; second: end at once (75)
    SIGHUP              read the configuration again
    SIGQUIT, SIGUSR1    stacks of all threads to standard error

A stop that was requested in another way, such as HTTP, drains too and is no signal: the platform's
SIGTERM may follow it.
"""

import contextlib
import faulthandler
import logging
import os
import select
import signal
import socket
import sys
import threading
import time
from collections.abc import Callable
from types import FrameType, TracebackType
from typing import Any

from ingest.errors import ExitCode
from storage.errors import LakewardError

_LOG = logging.getLogger(__name__)

ABANDON_S = 20.0
"""How long giving up a batch may take before the process is killed [s]; within the platform's
grace period, if that is 30 s longer than `pipeline.stop.timeout`."""

_STOPPING = (signal.SIGTERM, signal.SIGINT)
_REQUESTED = 0
"""Instead of a signal's number: a stop requested in another way."""

_DUMPING = (signal.SIGQUIT, signal.SIGUSR1)


class DaemonSignals:
    """See the module. A context manager; without effect outside of the main thread.

    Args:
        stop: drain; must return soon.
        overdue: the grace period is over: give up the batch.
        reload: read the configuration again.
        grace_s: how long draining may take [s]; called at the first signal.
        end: ends the process at once; for tests.
    """

    def __init__(
        self,
        *,
        stop: Callable[[], None],
        overdue: Callable[[], None],
        reload: Callable[[], None],
        grace_s: Callable[[], float],
        end: Callable[[int], Any] = os._exit,
    ) -> None:
        self._stop = stop
        self._overdue = overdue
        self._reload = reload
        self._grace_s = grace_s
        self._end = end
        self._previous_handlers: dict[int, Any] = {}
        self._thread: threading.Thread | None = None
        self._reader, self._writer = socket.socketpair()
        self._writer.setblocking(False)
        self._wakeup = -1
        self._stopping_since_s: float | None = None
        self._signalled = False
        self._given_up = False

    def __enter__(self) -> "DaemonSignals":
        if threading.current_thread() is not threading.main_thread():
            return self
        self._wakeup = signal.set_wakeup_fd(self._writer.fileno(), warn_on_full_buffer=False)
        self.claim()
        with contextlib.suppress(AttributeError, OSError, ValueError):  # no real standard error
            for number in _DUMPING:
                faulthandler.register(number, file=sys.stderr, all_threads=True)
        self._thread = threading.Thread(target=self._listen, name="signals", daemon=True)
        self._thread.start()
        return self

    def claim(self) -> None:
        """Install the handlers; again after a library replaced one, as Spark does for SIGINT."""
        if threading.current_thread() is not threading.main_thread():
            return
        for number in (signal.SIGHUP, *_STOPPING):
            before = signal.signal(number, _ignore)
            self._previous_handlers.setdefault(number, before)

    def stop(self) -> None:
        """Stop as SIGTERM does; it counts neither as a first nor as a second signal."""
        if self._thread is None:
            self._stop()
        else:
            self._writer.send(bytes([_REQUESTED]))

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        if self._thread is None:
            return
        signal.set_wakeup_fd(self._wakeup)
        for number, handler in self._previous_handlers.items():
            signal.signal(number, handler)
        for number in _DUMPING:
            faulthandler.unregister(number)
        self._writer.close()
        self._thread.join(timeout=5)
        self._reader.close()

    def _listen(self) -> None:
        while True:
            ready, _, _ = select.select([self._reader], [], [], self._left_s())
            if not ready:
                self._grace_expired()
                continue
            numbers = self._reader.recv(64)
            if not numbers:
                return
            for number in numbers:
                try:
                    self._on(number)
                except (LakewardError, OSError) as error:  # the next signal must be handled
                    _LOG.warning(
                        "a signal could not be handled completely",
                        extra={"event": "signal_failed", "signal": number, "error": error},
                    )

    def _left_s(self) -> float | None:
        """Time to the next step of a stop [s]; None = there is none."""
        if self._stopping_since_s is None:
            return None
        limit_s = self._grace_s() + (ABANDON_S if self._given_up else 0.0)
        return max(0.0, self._stopping_since_s + limit_s - time.monotonic())

    def _grace_expired(self) -> None:
        if self._given_up:
            _LOG.error("aborting the batch took too long: exiting", extra={"event": "abort"})
            self._end(int(ExitCode.RETRY))
            return
        self._given_up = True
        _LOG.warning(
            "the batch did not end in time: it is aborted, and retried at the next start",
            extra={"event": "drain_timeout", "grace_s": self._grace_s()},
        )
        self._overdue()

    def _on(self, number: int) -> None:
        if number == signal.SIGHUP:
            self._reload()
        elif number == _REQUESTED:
            self._drain("request")
        elif number in _STOPPING and self._signalled:
            _LOG.warning("second signal: stopping now", extra={"event": "abort"})
            self._end(int(ExitCode.RETRY))
        elif number in _STOPPING:
            self._signalled = True
            self._drain(signal.Signals(number).name)

    def _drain(self, reason: str) -> None:
        if self._stopping_since_s is None:
            self._stopping_since_s = time.monotonic()
            _LOG.info("draining", extra={"event": "drain", "signal": reason})
            self._stop()


def end_process_in(seconds: float, code: int) -> None:
    """Kill this process after a while, unless it has ended by itself."""
    timer = threading.Timer(seconds, os._exit, args=(code,))
    timer.daemon = True
    timer.start()


def _ignore(number: int, frame: FrameType | None) -> None:
    """The interpreter has written the number to the socket."""
    del number, frame
