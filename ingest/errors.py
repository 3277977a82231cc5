# SPDX-License-Identifier: Apache-2.0
"""Exit code, log level and recommended action for every kind of error.

Exit codes follow sysexits(3), so that a supervisor can distinguish temporary failures (75, 69) from
those that need a person (65, 77, 78). Exceptions are interpreted only here.
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


class AccessDeniedError(LakewardError):
    """The source or the store refused our credentials. Operator action: fix them, then restart."""


class DiskFullError(StorageUnavailableError):
    """A disk is full. Operator action: free space; the daemon then resumes without intervention."""


class MemoryLimitError(RetryableError):
    """A process of the pipeline ran out of memory. Operator action: the hint says what to raise."""


class GivenUpError(RetryableError):
    """A batch was aborted because its time was up. Operator action: none."""


class QueryFailedError(RetryableError):
    """Spark ended the query for a reason outside Lakeward. Operator action: see the log."""


class SparkGoneError(RetryableError):
    """The JVM exited. Operator action: if it happens again, give it more memory."""


class SchemaStopError(LakewardError):
    """A schema change that the settings forbid. Operator action: alter the table, or allow it."""


class TruncateStopError(LakewardError):
    """The source truncated a table. Operator action: decide, change `source.on.truncate`."""


class ExitCode(enum.IntEnum):
    """Exit codes of the process."""

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


SAME_STOP_S = 0.25
"""A stop signal so soon after the first is no second one: `timeout` sends it to a process and to
its group [s]."""

_MEANINGS = {
    ExitCode.OK: "clean exit, after a requested stop too",
    ExitCode.UNEXPECTED: "unexpected: a bug, or Spark failed; `status --check`: not healthy",
    ExitCode.USAGE: "wrong command line",
    ExitCode.DIFFERENT: "verify: a table differs from its source",
    ExitCode.DATA: "data: the source lost records, bytes violate the format, or `plan --strict` "
    "found a problem",
    ExitCode.UNAVAILABLE: "source or store unavailable",
    ExitCode.RETRY: "temporary: another process owns the stream, a batch was aborted, a disk is "
    "full, memory ran out, or every commit race was lost",
    ExitCode.ACCESS: "credentials were refused",
    ExitCode.CONFIG: "the configuration is wrong, or names something that does not exist",
}


@dataclasses.dataclass(frozen=True, slots=True)
class ErrorKind:
    """An exception class and its consequences.

    Attributes:
        error: the class; covers subclasses without an entry of their own.
        exit_code: exit code of the process, if nothing handles the error.
        level: severity in the log.
        action: recommended action, for the log and the status page.
    """

    error: type[BaseException]
    exit_code: ExitCode
    level: int
    action: str


ERROR_KINDS: tuple[ErrorKind, ...] = (
    ErrorKind(FencedError, ExitCode.RETRY, logging.WARNING, "none: another daemon owns it"),
    ErrorKind(DataLossError, ExitCode.DATA, logging.ERROR, "decide how to handle the lost records"),
    ErrorKind(
        SchemaStopError, ExitCode.DATA, logging.ERROR, "alter the table, or allow the change"
    ),
    ErrorKind(TruncateStopError, ExitCode.DATA, logging.ERROR, "decide on the TRUNCATE"),
    ErrorKind(BadRecordError, ExitCode.DATA, logging.ERROR, "inspect the record"),
    ErrorKind(CorruptDataError, ExitCode.DATA, logging.ERROR, "restore the named file"),
    ErrorKind(CommitConflictError, ExitCode.RETRY, logging.WARNING, "check for a second writer"),
    ErrorKind(DiskFullError, ExitCode.RETRY, logging.ERROR, "free space on the named disk"),
    ErrorKind(MemoryLimitError, ExitCode.RETRY, logging.ERROR, "raise the named limit"),
    ErrorKind(GivenUpError, ExitCode.RETRY, logging.WARNING, "none: the batch is repeated"),
    ErrorKind(SparkGoneError, ExitCode.RETRY, logging.ERROR, "check for OOM kills"),
    ErrorKind(QueryFailedError, ExitCode.UNAVAILABLE, logging.ERROR, "see the stack trace"),
    ErrorKind(StorageUnavailableError, ExitCode.UNAVAILABLE, logging.WARNING, "check the store"),
    ErrorKind(RetryableError, ExitCode.UNAVAILABLE, logging.WARNING, "none unless it persists"),
    ErrorKind(AccessDeniedError, ExitCode.ACCESS, logging.ERROR, "fix the credentials"),
    ErrorKind(InvalidRequestError, ExitCode.CONFIG, logging.ERROR, "fix the configuration"),
    ErrorKind(NotFoundError, ExitCode.CONFIG, logging.ERROR, "fix the name or the path"),
    ErrorKind(InternalError, ExitCode.UNEXPECTED, logging.CRITICAL, "report the bug"),
    ErrorKind(LakewardError, ExitCode.UNEXPECTED, logging.ERROR, "see the log"),
    ErrorKind(PermissionError, ExitCode.ACCESS, logging.ERROR, "fix the permissions"),
    ErrorKind(OSError, ExitCode.UNAVAILABLE, logging.ERROR, "check disk and network"),
)
"""Most specific class first."""

_UNKNOWN = ErrorKind(BaseException, ExitCode.UNEXPECTED, logging.CRITICAL, "report the bug")


def kind_of(error: BaseException) -> ErrorKind:
    """Return the entry of an exception; an unknown one is a bug."""
    return next((kind for kind in ERROR_KINDS if isinstance(error, kind.error)), _UNKNOWN)


def exit_code_of(error: BaseException) -> int:
    """Return the exit code of a process that `error` ends."""
    return int(kind_of(error).exit_code)


def error_named(name: str) -> type[LakewardError] | None:
    """Return the class of an error of another process by its name; None if it is not ours.

    Errors of the operating system map to our class with the same exit code.
    """
    for kind in _subclasses(LakewardError):
        if kind.__name__ == name:
            return kind
    builtin = getattr(builtins, name, None)
    if isinstance(builtin, type) and issubclass(builtin, OSError):
        return AccessDeniedError if issubclass(builtin, PermissionError) else RetryableError
    return None


def _subclasses(kind: type[LakewardError]) -> Iterator[type[LakewardError]]:
    yield kind
    for subclass in kind.__subclasses__():
        yield from _subclasses(subclass)


_PROBE_BYTES = 64 << 20


def blames_record(error: BaseException) -> bool:
    """Return whether a record may be the cause of an error that processing it raised.

    Errors with another known cause (store, source, registry, a table, another writer) and errors of
    the operating system are not. Lack of memory is, if `_PROBE_BYTES` can still be allocated: then
    only the size of the record was too much.
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
