# SPDX-License-Identifier: Apache-2.0
"""How long to wait after a failure, and when to give up; waiting itself.

Two kinds of failures. *Outages* are of systems outside, which a restart of this process brings not
back: they are waited for, without limit unless the settings have one. Anything else counts: so many
without progress in between, and the process ends, so that the platform starts a fresh one.
"""

import logging
import threading
from collections.abc import Callable

from ingest.daemon.query_failure import as_error, is_final, is_outage
from ingest.observe.observe import Observer
from storage.clock import Clock
from storage.errors import LakewardError

__all__ = ["BACKOFF_S", "CALM_S", "LIMIT", "Patience", "Persistence"]

_LOG = logging.getLogger(__name__)

BACKOFF_S = (1.0, 2.0, 5.0, 10.0, 30.0)
"""Waits before the query is started again after a failure [s]; the last one repeats. Short at
first because most failures are one lost task or one broker hiccup."""

CALM_S = 60.0
"""How long a query must have run without a batch for an outage to be over [s]: what is to be done
again is planned and begun within a few seconds, or a broker's time-out."""

LIMIT = 10
"""Unexplained failures without a finished batch in between before the process gives up."""


class Patience:
    """The rules, pure over a clock.

    Attributes:
        waiting_since_s: when the outage began that goes on, by the monotonic clock; None = none.

    Args:
        clock: time.
        outage_limit_s: of `pipeline.outage.timeout`; None = none.
    """

    def __init__(self, clock: Clock, outage_limit_s: float | None = None) -> None:
        self._clock = clock
        self._limit_s = outage_limit_s
        self._row = 0
        self._unexplained = 0
        self._idle_since_s: float | None = None
        self.waiting_since_s: float | None = None

    def use_limit(self, outage_limit_s: float | None) -> None:
        """Go by another limit."""
        self._limit_s = outage_limit_s

    def progressed(self) -> None:
        """A batch was finished: what was before is forgotten."""
        self._unexplained = 0
        self.answered()

    def answered(self) -> None:
        """What was away is there: the next outage has a time of its own."""
        self._row = 0
        self.waiting_since_s = None

    def calm(self, *, busy: bool) -> bool:
        """Whether an outage is over although no batch shows it, since nothing comes.

        Args:
            busy: whether the query that runs works on a batch.
        """
        now_s = self._clock.monotonic_s()
        if busy or self._idle_since_s is None:
            self._idle_since_s = None if busy else now_s
        elif self.waiting_since_s is not None and now_s - self._idle_since_s >= CALM_S:
            self.answered()
            return True
        return False

    def after(self, failure: BaseException) -> float | None:
        """How long to wait before trying again [s]; None = give up."""
        if is_final(failure):
            return None
        now_s = self._clock.monotonic_s()
        self._idle_since_s = None
        self._row += 1
        if is_outage(failure):
            if self.waiting_since_s is None:
                self.waiting_since_s = now_s
            waited_s = now_s - self.waiting_since_s
            if self._limit_s is not None and waited_s >= self._limit_s:
                return None
        else:
            self.waiting_since_s = None
            self._unexplained += 1
            if self._unexplained >= LIMIT:
                return None
        return BACKOFF_S[min(self._row, len(BACKOFF_S)) - 1]


class Persistence:
    """Tries again by these rules, and tells of it.

    Args:
        patience: the rules.
        observer: is told.
        stop: ends the waiting.
        once: whether a first failure is the last, as in a bounded run.
    """

    def __init__(
        self, patience: Patience, observer: Observer, stop: threading.Event, *, once: bool
    ) -> None:
        self._patience = patience
        self._observer = observer
        self._stop = stop
        self._once = once

    def progressed(self) -> None:
        """A batch was finished."""
        self._patience.progressed()
        self._observer.waiting(None)

    def running(self, *, busy: bool) -> None:
        """The query runs, with a batch or without one."""
        if self._patience.calm(busy=busy):
            self._observer.recovered()

    def use_limit(self, outage_limit_s: float | None) -> None:
        """Go by another limit of outages."""
        self._patience.use_limit(outage_limit_s)

    def done(self, step: Callable[[], None]) -> bool:
        """Do something that may meet a system that is away; False = told to stop meanwhile.

        Raises:
            LakewardError: what is not waited for, or not any longer.
        """
        failed = False
        while not self._stop.is_set():
            try:
                step()
            except (LakewardError, OSError) as failure:
                failed = True
                self._observer.failed(failure)
                self.pause(failure)
            else:
                self._observer.waiting(None)
                if failed:
                    self._patience.answered()
                    self._observer.recovered()
                return True
        return False

    def pause(self, failure: BaseException) -> None:
        """Wait before another try.

        Raises:
            LakewardError: the failure, when there is to be none.
        """
        error = as_error(failure)
        wait_s = None if self._once else self._patience.after(error)
        if wait_s is None and error is failure:
            raise error
        if wait_s is None:
            raise error from failure
        waiting = is_outage(error)
        self._observer.waiting(error if waiting else None)
        _LOG.warning(
            "%s: %s",
            error,
            "it is waited for" if waiting else "trying again",
            extra={"event": "outage" if waiting else "restart", "wait_s": wait_s, "error": error},
            exc_info=None if waiting else failure,
        )
        self._observer.trying_again(error)
        self._observer.beat()  # who waits is alive: a restart would bring nothing back
        self._stop.wait(wait_s)
