# SPDX-License-Identifier: Apache-2.0
"""Why a streaming query ended: our own errors found again in what Spark says of them."""

import re

from pyspark.errors import PySparkException

from ingest.errors import AccessDeniedError
from ingest.microbatch.sink import StopRequested
from storage import errors
from storage.errors import LakewardError, RetryableError

__all__ = ["QueryFailedError", "as_error", "cause_of", "error_in"]


class QueryFailedError(RetryableError):
    """Spark ended the query for a reason outside Lakeward. Operator action: see the log."""


def cause_of(failure: BaseException | None, error: PySparkException) -> BaseException | None:
    """The sink's own exception, which Spark's carries as text only (SPARK.md §9)."""
    if isinstance(failure, StopRequested):
        return None
    if isinstance(failure, LakewardError):
        return failure
    return error_in(str(error)) or failure or error


def error_in(text: str) -> LakewardError | None:
    """Our exception from a traceback of the source's process or of a task."""
    found = re.findall(r"(?:storage|ingest)\.errors\.(\w+): (.+)", text)
    if not found:
        return None
    name, message = found[-1]
    kind = AccessDeniedError if name == AccessDeniedError.__name__ else getattr(errors, name, None)
    if not (isinstance(kind, type) and issubclass(kind, LakewardError)):
        return None
    return kind(message.strip())


def as_error(failure: BaseException) -> LakewardError:
    """What the process ends with."""
    if isinstance(failure, LakewardError):
        return failure
    return QueryFailedError(
        "the streaming query failed",
        detail=str(failure).split("\n", maxsplit=1)[0],
        hint="the log above has the whole trace",
    )
