# SPDX-License-Identifier: Apache-2.0
"""What ended the query is found in Spark's words, with what to do about it."""

import errno

import pytest
from pyspark.errors import PySparkException

from ingest.daemon.retry import as_error, cause_of, is_outage
from ingest.errors import (
    DiskFullError,
    ExitCode,
    MemoryLimitError,
    QueryFailedError,
    exit_code_of,
)
from ingest.source.open import StopRequested
from storage.errors import CommitConflictError, RetryableError, StorageUnavailableError

SPARK = "[STREAM_FAILED] Query [id = 1] terminated with exception: Job aborted\n"


def caused(text, failure=None):
    return cause_of(failure, PySparkException(SPARK + text))


def test_our_own_error_of_a_task_is_found():
    text = "Traceback (most recent call last):\nstorage.errors.RetryableError: kafka did not answer"
    found = caused(text, RuntimeError("py4j"))
    assert type(found) is RetryableError
    assert is_outage(found)


@pytest.mark.parametrize(
    "text",
    [
        "OSError: [Errno 28] No space left on device: '/tmp/blockmgr/0c/shuffle_1'",
        "java.io.IOException: No space left on device",
        "pyarrow.lib.ArrowException: [Errno 122] Disk quota exceeded. Detail: [errno 122]",
        "storage.errors.StorageUnavailableError: cannot write a local file path=`/lake/x`; "
        "[Errno 28] No space left on device: '/lake/x'; hint: free some space",
    ],
)
def test_a_full_disk_is_named_and_waited_for(text):
    found = caused(text)
    assert isinstance(found, DiskFullError)
    assert exit_code_of(found) == ExitCode.RETRY
    assert is_outage(found)
    assert "free disk space" in found.hint
    if "'/" in text:
        assert found.context["path"] in text


def test_a_full_disk_of_the_driver_is_the_same():
    for failure in (
        OSError(errno.ENOSPC, "No space left on device", "/state/control.json"),
        StorageUnavailableError(
            "cannot write a local file",
            detail="[Errno 28] No space left on device: '/state/control.json'",
            path="/state/control.json",
        ),
    ):
        found = as_error(failure)
        assert isinstance(found, DiskFullError)
        assert found.context["path"] == "/state/control.json"


@pytest.mark.parametrize(
    ("text", "hint"),
    [
        ("  File x\nMemoryError", "spark.executor.pyspark.memory"),
        ("pyarrow.lib.ArrowMemoryError: malloc of size 67108864 failed", "pyspark.memory"),
        ("numpy._core._exceptions._ArrayMemoryError: Unable to allocate", "pyspark.memory"),
        ("org.apache.spark.SparkException: Python worker exited unexpectedly (crashed)", "limit"),
        ("java.lang.OutOfMemoryError: Java heap space", "spark.driver.memory"),
    ],
)
def test_want_of_memory_says_what_to_raise(text, hint):
    found = caused(text)
    assert isinstance(found, MemoryLimitError)
    assert hint in found.hint
    assert exit_code_of(found) == ExitCode.RETRY
    assert not is_outage(found), "it counts: no waiting heals it"


def test_the_drivers_own_memory():
    assert isinstance(as_error(MemoryError()), MemoryLimitError)


def test_a_stop_is_no_failure_and_the_sinks_error_wins():
    assert caused("anything", StopRequested()) is None
    own = CommitConflictError("lost")
    assert caused("storage.errors.RetryableError: other", own) is own


def test_anything_else_is_told_as_it_is():
    found = caused("scala.MatchError: null")
    assert isinstance(found, PySparkException)
    assert isinstance(as_error(found), QueryFailedError)
    assert exit_code_of(as_error(found)) == ExitCode.UNAVAILABLE


def test_a_directory_that_cannot_be_made_is_not_blamed_on_the_query():
    error = as_error(FileNotFoundError(2, "No such file or directory", "/proc/nope"))
    assert isinstance(error, QueryFailedError)
    assert "query" not in error.message
    assert "/proc/nope" in error.detail
