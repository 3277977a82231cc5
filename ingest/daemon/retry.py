# SPDX-License-Identifier: Apache-2.0
"""How long to wait after a failure, and when to give up; waiting itself.

There are two kinds of failures. *Outages* are of external systems, which a restart of this process
does not mend: they are retried, without limit unless the settings have one. All others are counted:
after a number without progress in between the process ends, so that the platform starts a new one.
"""

import errno
import logging
import re
import threading
from collections.abc import Callable

from pyspark.errors import PySparkException

from ingest.daemon.jvm_log import cause_line
from ingest.errors import (
    DiskFullError,
    ExitCode,
    MemoryLimitError,
    QueryFailedError,
    SparkGoneError,
    error_named,
    kind_of,
)
from ingest.observe.observe import Observer
from ingest.source.open import StopRequested
from storage.clock import Clock
from storage.errors import (
    CommitConflictError,
    FencedError,
    LakewardError,
    RetryableError,
    StorageUnavailableError,
)

# Why a streaming query ended, parsed from Spark's error, and whether a retry can succeed.
#
# Exceptions of tasks and of the source's process arrive as the text of a Python traceback inside
# one of Spark's. Our own error is parsed from it; some others are classified: a full disk, a worker
# out of memory.


_FINAL = frozenset({ExitCode.DATA, ExitCode.ACCESS, ExitCode.CONFIG})
"""Failures that a retry cannot fix: an operator must act."""

_OWN_ERROR = re.compile(r"\b(?:storage|changelog|ingest)(?:\.\w+)*\.(_?[A-Z]\w*Error): (.+)")
_FULL = re.compile(r"(?:No space left on device|Disk quota exceeded)([^\n]*)")
_FULL_ERRNOS = frozenset({errno.ENOSPC, errno.EDQUOT})
_PATH = re.compile(r"path=`([^`]+)`|: ['\"]([^'\"\\]+)")
_WORKER_MEMORY = re.compile(
    r"\b(?:MemoryError|ArrowMemoryError|_ArrayMemoryError)\b|malloc of size \d+ failed|"
    r"can't start new thread"
)
_WORKER_KILLED = re.compile(r"Python worker exited unexpectedly \(crashed\)")
_HEAP = re.compile(r"java\.lang\.OutOfMemoryError: ?([^\n]*)")


def cause_of(failure: BaseException | None, error: PySparkException) -> BaseException | None:
    """The sink's exception, which Spark's contains only as text (SPARK.md §9).

    Returns:
        None: the query was stopped.
    """
    if isinstance(failure, StopRequested):
        return None
    if isinstance(failure, LakewardError):
        return failure
    cause = error_in(str(error))
    if cause is not None:
        cause.__cause__ = failure or error
    return cause or failure or error


def error_in(text: str) -> LakewardError | None:
    """Our exception from a traceback of the source's process or of a task, or its equivalent."""
    full = _FULL.search(text)
    if full is not None:
        return _disk_full(full[0])
    matches = _OWN_ERROR.findall(text)
    if not matches:
        return _memory(text)
    name, message = matches[-1]
    kind = error_named(name)
    return None if kind is None else kind(message.strip())


def _disk_full(text: str) -> DiskFullError:
    match = _PATH.search(text)
    path = (match[1] or match[2]) if match else None
    return DiskFullError(
        "a disk is full",
        detail=" ".join(text.split())[:300],
        hint="free disk space at the path: warehouse, checkpoint, or the workers' TMPDIR and "
        "SPARK_LOCAL_DIRS; nothing is half written, and the daemon resumes by itself",
        **({"path": path} if path else {}),
    )


def _memory(text: str) -> MemoryLimitError | None:
    heap = _HEAP.search(text)
    if heap is not None:
        return MemoryLimitError(
            "the JVM is out of memory",
            detail=heap[1].strip()[:200],
            hint="raise `spark.driver.memory` (on a cluster `spark.executor.memory`) in "
            "`spark.conf`, or lower `pipeline.trigger.max.bytes`",
        )
    if _WORKER_MEMORY.search(text):
        return MemoryLimitError(
            "a Python worker is out of memory",
            hint="raise `spark.executor.pyspark.memory` in `spark.conf`, or lower "
            "`pipeline.trigger.max.bytes` or `spark.parallelism`",
        )
    if _WORKER_KILLED.search(text):
        return MemoryLimitError(
            "a Python worker was killed",
            detail="usually by the kernel for lack of memory; see its log",
            hint="raise the memory limit of the machine or pod, or lower "
            "`pipeline.trigger.max.bytes` or `spark.parallelism`; with "
            "`spark.executor.pyspark.memory` a worker reports it before the system kills it",
        )
    return None


def as_error(failure: BaseException) -> LakewardError:
    """The error to end the process with."""
    full = isinstance(failure, OSError) and failure.errno in _FULL_ERRNOS
    if full or (isinstance(failure, StorageUnavailableError) and _FULL.search(str(failure))):
        return failure if isinstance(failure, DiskFullError) else _disk_full(str(failure))
    if isinstance(failure, LakewardError):
        return failure
    if isinstance(failure, MemoryError):
        return MemoryLimitError(
            "the driver is out of memory",
            hint="raise the memory limit of the machine or pod, or lower "
            "`pipeline.trigger.max.bytes`",
        )
    if isinstance(failure, OSError):
        return QueryFailedError(
            "a file, directory or connection cannot be used",
            detail=str(failure),
            hint="check that it exists and that this process may use it",
        )
    return QueryFailedError(
        "the streaming query failed",
        detail=cause_line(str(failure)) or type(failure).__name__,
        hint="the error's stack says where",
    )


def is_final(error: BaseException) -> bool:
    """Whether a retry in this process is useless."""
    unrecoverable = isinstance(error, (FencedError, SparkGoneError))
    return unrecoverable or kind_of(error).exit_code in _FINAL


def is_outage(error: BaseException) -> bool:
    """Whether an external system does not answer, or a disk is full: retries may succeed."""
    exceptions = (CommitConflictError, QueryFailedError, MemoryLimitError, SparkGoneError)
    return isinstance(error, RetryableError) and not isinstance(error, exceptions)


_LOG = logging.getLogger(__name__)

BACKOFF_S = (1.0, 2.0, 5.0, 10.0, 30.0)
"""Waits before the query is started again after a failure [s]; the last one repeats. Short at
first because most failures are one lost task or one broker hiccup."""

CALM_S = 60.0
"""How long a query must have run without a batch for an outage to be over [s]: what is to be done
again is planned and begun within a few seconds, or a broker's time-out."""

LIMIT = 10
"""Unexplained failures without a finished batch in between before the process gives up."""


class RetryPolicy:
    """The rules, pure over a clock.

    Attributes:
        waiting_since_s: when the present outage began, by the monotonic clock; None = none.
        limit_s: `pipeline.outage.timeout`; None = none.
    """

    def __init__(self, clock: Clock, limit_s: float | None = None) -> None:
        self._clock = clock
        self.limit_s = limit_s
        self._row = 0
        self._unexplained = 0
        self._idle_since_s: float | None = None
        self.waiting_since_s: float | None = None

    def progressed(self) -> None:
        """A batch was finished: earlier failures do not count any more."""
        self._unexplained = 0
        self.end_outage()

    def end_outage(self) -> None:
        """The outage is over: the next one has a time limit of its own."""
        self._row = 0
        self.waiting_since_s = None

    def calm(self, *, busy: bool) -> bool:
        """Whether an outage is over although no batch shows it, since there is nothing to read.

        Args:
            busy: whether the query is working on a batch.
        """
        now_s = self._clock.monotonic_s()
        if busy or self._idle_since_s is None:
            self._idle_since_s = None if busy else now_s
        elif self.waiting_since_s is not None and now_s - self._idle_since_s >= CALM_S:
            self.end_outage()
            return True
        return False

    def delay_after(self, failure: BaseException) -> float | None:
        """How long to wait before the next attempt [s]; None = give up."""
        if is_final(failure):
            return None
        now_s = self._clock.monotonic_s()
        self._idle_since_s = None
        self._row += 1
        if is_outage(failure):
            if self.waiting_since_s is None:
                self.waiting_since_s = now_s
            waited_s = now_s - self.waiting_since_s
            if self.limit_s is not None and waited_s >= self.limit_s:
                return None
        else:
            self.waiting_since_s = None
            self._unexplained += 1
            if self._unexplained >= LIMIT:
                return None
        return BACKOFF_S[min(self._row, len(BACKOFF_S)) - 1]


class Retrier:
    """Retries by the policy, and reports it.

    Args:
        observer: gets failures and recoveries.
        stop: ends the waiting.
        once: whether the first failure is final, as in a bounded run.
    """

    def __init__(
        self, policy: RetryPolicy, observer: Observer, stop: threading.Event, *, once: bool
    ) -> None:
        self.policy = policy
        self._observer = observer
        self._stop = stop
        self._once = once

    def progressed(self) -> None:
        """A batch was finished."""
        self.policy.progressed()
        self._observer.waiting(None)

    def note_running(self, *, busy: bool) -> None:
        """The query runs, with a batch or without one."""
        if self.policy.calm(busy=busy):
            self._observer.recovered()

    def succeed(self, step: Callable[[], None]) -> bool:
        """Do something that may meet an outage, until it succeeds; False = stop requested.

        Raises:
            LakewardError: a failure that is not retried, or not any longer.
        """
        failed = False
        while not self._stop.is_set():
            try:
                step()
            except (LakewardError, OSError) as failure:
                failed = True
                self._observer.failed(failure, query=False)
                self.pause(failure)
            else:
                self._observer.waiting(None)
                if failed:
                    self.policy.end_outage()
                    self._observer.recovered()
                return True
        return False

    def pause(self, failure: BaseException) -> None:
        """Wait before the next attempt.

        Raises:
            LakewardError: the failure, when there is to be none.
        """
        error = as_error(failure)
        wait_s = None if self._once else self.policy.delay_after(error)
        if wait_s is None and error is failure:
            raise error
        if wait_s is None:
            raise error from failure
        waiting = is_outage(error)
        self._observer.waiting(error if waiting else None)
        _LOG.warning(
            "%s: %s",
            error,
            "dependency unavailable, retrying" if waiting else "retrying",
            extra={"event": "outage" if waiting else "restart", "wait_s": wait_s, "error": error},
            exc_info=None if waiting else failure,
        )
        self._observer.trying_again(error)
        self._observer.beat()  # waiting is healthy: a restart would not help
        self._stop.wait(wait_s)
