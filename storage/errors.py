# SPDX-License-Identifier: Apache-2.0
"""All exceptions of Lakeward, in one tree ordered by what the caller must do next.

    LakewardError(message, *, detail="", hint="", **context)
    ├─ RetryableError             try again, unchanged, with back-off
    │   ├─ CommitConflictError      another writer won this snapshot id too many times
    │   └─ StorageUnavailableError  the store did not answer
    ├─ FileConflictError          a file this commit removes is no longer live: drop this commit
    ├─ FencedError                a newer writer owns this stream: stop, do not restart
    ├─ InvalidRequestError        (also ValueError) caller or configuration must change
    │   ├─ AlreadyExistsError       something of this name is there
    │   ├─ InvalidOptionError
    │   ├─ InvalidSchemaChangeError
    │   └─ UnsupportedFeatureError  the table asks for something we would get wrong
    ├─ NotFoundError              (also LookupError) no such database, table, snapshot
    ├─ DataLossError              source offsets are gone: an operator must decide
    ├─ CorruptDataError           bytes violate the format; never retried
    ├─ BadRecordError             one source record cannot be decoded: goes to quarantine
    └─ InternalError              a broken invariant: our bug

Messages are lowercase without a final period; values come last, as key=`value`. A hint says the
next act. All of them pickle, because Spark carries them between processes.
"""

from typing import Any


class LakewardError(Exception):
    """Root of the tree.

    Args:
        message: what happened, lowercase, no final period.
        detail: more facts, for the second line.
        hint: what the reader should do next.
        **context: named values, printed last as key=`value`.
    """

    def __init__(self, message: str, *, detail: str = "", hint: str = "", **context: Any) -> None:
        super().__init__(message)
        self.message = message
        self.detail = detail
        self.hint = hint
        self.context = context

    def __str__(self) -> str:
        text = self.message
        if self.context:
            text += " " + " ".join(f"{key}=`{value}`" for key, value in self.context.items())
        if self.detail:
            text += f"; {self.detail}"
        if self.hint:
            text += f"; hint: {self.hint}"
        return text

    def __reduce__(self) -> tuple[Any, ...]:
        return (_rebuild, (type(self), self.message, self.detail, self.hint, self.context))


def _rebuild(
    cls: type[LakewardError], message: str, detail: str, hint: str, context: dict[str, Any]
) -> LakewardError:
    return cls(message, detail=detail, hint=hint, **context)


class RetryableError(LakewardError):
    """Try again, unchanged, with back-off."""


class CommitConflictError(RetryableError):
    """Other writers won the snapshot id more often than the retry limit allows."""


class StorageUnavailableError(RetryableError):
    """The store did not answer or refused for a passing reason."""


class FileConflictError(LakewardError):
    """A file this commit removes is no longer live, or its keys overlap a newer file.

    The commit is lost and must not be retried as it is: a compaction is dropped, its inputs stay.
    """


class FencedError(LakewardError):
    """A newer writer owns this stream. Operator action: none; stop this process permanently."""


class InvalidRequestError(LakewardError, ValueError):
    """The caller or the configuration must change."""


class AlreadyExistsError(InvalidRequestError):
    """A database, table, view, branch, tag or column of this name is there."""


class InvalidOptionError(InvalidRequestError):
    """An option is unknown, malformed or contradicts another."""


class InvalidSchemaChangeError(InvalidRequestError):
    """The requested schema change is not allowed on this table."""


class UnsupportedFeatureError(InvalidRequestError):
    """The table asks for a feature that this version would get wrong, so it refuses."""


class NotFoundError(LakewardError, LookupError):
    """There is no such database, table, snapshot or tag."""


class DataLossError(LakewardError):
    """Source offsets that were promised are gone.

    Operator action: extend retention or re-snapshot, then restart with the hinted setting.
    """


class CorruptDataError(LakewardError):
    """Bytes violate the format. The context names file, expectation and finding."""


class BadRecordError(LakewardError):
    """One source record cannot be decoded; the context names topic, partition and offset."""


class InternalError(LakewardError):
    """A broken invariant: a bug of Lakeward. Please report it with the message."""
