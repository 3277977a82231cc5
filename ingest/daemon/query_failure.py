# SPDX-License-Identifier: Apache-2.0
"""Why a streaming query ended, parsed from Spark's error, and whether a retry can succeed.

Exceptions of tasks and of the source's process arrive as the text of a Python traceback inside one
of Spark's. Our own error is parsed from it; some others are classified: a full disk, a worker out
of memory.
"""

import errno
import re

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
from ingest.source.control import StopRequested
from storage.errors import (
    CommitConflictError,
    FencedError,
    LakewardError,
    RetryableError,
    StorageUnavailableError,
)

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
