# SPDX-License-Identifier: Apache-2.0
"""The one table from error kinds to what the process does: exit code, log level, advice.

Exit codes follow sysexits(3), so that a supervisor can tell "try again" (75, 69) from "a person
must act" (65, 77, 78). Nowhere else is an exception interpreted.
"""

import builtins
import dataclasses
import enum
import logging
from collections.abc import Iterator

from storage.errors import (
    BadRecordError,
    CommitConflictError,
    CorruptDataError,
    DataLossError,
    FencedError,
    InternalError,
    InvalidRequestError,
    LakewardError,
    NotFoundError,
    RetryableError,
    StorageUnavailableError,
)

__all__ = [
    "ERROR_KINDS",
    "AccessDeniedError",
    "DiskFullError",
    "ErrorKind",
    "ExitCode",
    "GivenUpError",
    "MemoryLimitError",
    "QueryFailedError",
    "SchemaStopError",
    "SparkGoneError",
    "TruncateStopError",
    "blames_record",
    "error_named",
    "exit_code_of",
    "kind_of",
]


class AccessDeniedError(LakewardError):
    """The source or the store refused our credentials. Operator action: fix them, then restart."""


class DiskFullError(StorageUnavailableError):
    """There is no room to write. Operator action: make some; the daemon goes on by itself."""


class MemoryLimitError(RetryableError):
    """A process of the pipeline got no memory. Operator action: the hint says what to raise."""


class GivenUpError(RetryableError):
    """A batch was given up because it had no time left. Operator action: none."""


class QueryFailedError(RetryableError):
    """Spark ended the query for a reason outside Lakeward. Operator action: see the log."""


class SparkGoneError(RetryableError):
    """The JVM has ended. Operator action: if it happens again, give it more memory."""


class SchemaStopError(LakewardError):
    """A schema change that the settings forbid. Operator action: alter the table, or allow it."""


class TruncateStopError(LakewardError):
    """The source truncated a table. Operator action: decide, change `source.on.truncate`."""


class ExitCode(enum.IntEnum):
    """What the process's exit code says."""

    OK = 0
    UNEXPECTED = 1
    USAGE = 2
    DIFFERENT = 3
    DATA = 65
    UNAVAILABLE = 69
    RETRY = 75
    ACCESS = 77
    CONFIG = 78

    @property
    def meaning(self) -> str:
        """One line for `--help` and the runbook."""
        return _MEANINGS[self]


_MEANINGS = {
    ExitCode.OK: "a clean end, a requested stop included",
    ExitCode.UNEXPECTED: "unexpected: a bug, or Spark failed; `status --check`: not all is well",
    ExitCode.USAGE: "wrong command line",
    ExitCode.DIFFERENT: "verify: a table differs from its source",
    ExitCode.DATA: "data: source records are gone, bytes violate the format, or `plan --strict` "
    "found a problem",
    ExitCode.UNAVAILABLE: "source or store does not answer",
    ExitCode.RETRY: "try again: another process owns the stream, a batch was given up, a disk is "
    "full, memory ran out, or it kept losing commit races",
    ExitCode.ACCESS: "credentials were refused",
    ExitCode.CONFIG: "configuration, or something named in it does not exist",
}


@dataclasses.dataclass(frozen=True, slots=True)
class ErrorKind:
    """One row: an exception class and what follows from it.

    Attributes:
        error: the class, subclasses included unless they have a row of their own.
        exit_code: of the process, when nothing handles it.
        level: severity in the log.
        action: who acts, for the log and the status page.
    """

    error: type[BaseException]
    exit_code: ExitCode
    level: int
    action: str


ERROR_KINDS: tuple[ErrorKind, ...] = (
    ErrorKind(FencedError, ExitCode.RETRY, logging.WARNING, "none: another process goes on"),
    ErrorKind(DataLossError, ExitCode.DATA, logging.ERROR, "decide what to do about lost records"),
    ErrorKind(
        SchemaStopError, ExitCode.DATA, logging.ERROR, "alter the table, or allow the change"
    ),
    ErrorKind(TruncateStopError, ExitCode.DATA, logging.ERROR, "decide what a TRUNCATE does"),
    ErrorKind(BadRecordError, ExitCode.DATA, logging.ERROR, "look at the record"),
    ErrorKind(CorruptDataError, ExitCode.DATA, logging.ERROR, "restore the named file"),
    ErrorKind(CommitConflictError, ExitCode.RETRY, logging.WARNING, "look for a second writer"),
    ErrorKind(DiskFullError, ExitCode.RETRY, logging.ERROR, "make room on the named disk"),
    ErrorKind(MemoryLimitError, ExitCode.RETRY, logging.ERROR, "raise the limit that it names"),
    ErrorKind(GivenUpError, ExitCode.RETRY, logging.WARNING, "none: the batch is done again"),
    ErrorKind(SparkGoneError, ExitCode.RETRY, logging.ERROR, "look for the system's OOM killer"),
    ErrorKind(QueryFailedError, ExitCode.UNAVAILABLE, logging.ERROR, "see the error's stack"),
    ErrorKind(StorageUnavailableError, ExitCode.UNAVAILABLE, logging.WARNING, "check the store"),
    ErrorKind(RetryableError, ExitCode.UNAVAILABLE, logging.WARNING, "none unless it goes on"),
    ErrorKind(AccessDeniedError, ExitCode.ACCESS, logging.ERROR, "fix the credentials"),
    ErrorKind(InvalidRequestError, ExitCode.CONFIG, logging.ERROR, "fix the configuration"),
    ErrorKind(NotFoundError, ExitCode.CONFIG, logging.ERROR, "fix the name or the path"),
    ErrorKind(InternalError, ExitCode.UNEXPECTED, logging.CRITICAL, "report the bug"),
    ErrorKind(LakewardError, ExitCode.UNEXPECTED, logging.ERROR, "see the log"),
    ErrorKind(PermissionError, ExitCode.ACCESS, logging.ERROR, "fix the permissions"),
    ErrorKind(OSError, ExitCode.UNAVAILABLE, logging.ERROR, "check disk and network"),
)
"""Most special first."""

_UNKNOWN = ErrorKind(BaseException, ExitCode.UNEXPECTED, logging.CRITICAL, "report the bug")


def kind_of(error: BaseException) -> ErrorKind:
    """The row of an exception; anything unknown is a bug."""
    return next((kind for kind in ERROR_KINDS if isinstance(error, kind.error)), _UNKNOWN)


def exit_code_of(error: BaseException) -> int:
    """Exit code of a process that ends by `error`."""
    return int(kind_of(error).exit_code)


def error_named(name: str) -> type[LakewardError] | None:
    """The class of an error that another process met, by its name; None = not one of ours.

    An error of the operating system is the one of ours with its exit code.
    """
    found = next((kind for kind in _tree(LakewardError) if kind.__name__ == name), None)
    if found is not None:
        return found
    other = getattr(builtins, name, None)
    if isinstance(other, type) and issubclass(other, OSError):
        return AccessDeniedError if issubclass(other, PermissionError) else RetryableError
    return None


def _tree(kind: type[LakewardError]) -> Iterator[type[LakewardError]]:
    yield kind
    for below in kind.__subclasses__():
        yield from _tree(below)


_PROBE_BYTES = 64 << 20


def blames_record(error: BaseException) -> bool:
    """Whether what one record made code raise may be the record's own doing.

    Not so errors that say what they are about (store, source, registry, a table, another writer),
    errors of the system, and want of memory: a record whose size alone asks for too much leaves
    this much free.
    """
    if isinstance(error, MemoryError):
        try:
            bytearray(_PROBE_BYTES)
        except MemoryError:
            return False
        return True
    if isinstance(error, LakewardError):
        return isinstance(error, InternalError | BadRecordError)
    return isinstance(error, Exception) and not isinstance(error, OSError)
