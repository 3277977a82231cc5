# SPDX-License-Identifier: Apache-2.0
"""A table at rest: while a command writes it, its pipeline does not.

Two writers of a bucket take sequence numbers from the snapshot they began with, so a batch in
progress may commit rows that lose against older ones of the command. Hence the command owns the
stream where no daemon runs; where one does, the daemon parks the table between two batches, and
resumes it afterwards from the offsets at which it stopped.

After a kill the table may stay parked. The next run finds it parked for this reason and resumes it.
"""

import contextlib
from collections.abc import Callable, Iterator

from ingest.config.settings import Settings
from ingest.daemon.requests.request_client import RequestOptions, request_and_wait
from ingest.state.lease import StreamHeldError, owned_stream
from ingest.state.parking import Parking
from storage.clock import Clock, SystemClock
from storage.errors import RetryableError
from storage.table.table import FileStoreTable

REASON = "lakeward verify --repair"
"""Why the table is parked."""

_TIMEOUT_S = 600.0


@contextlib.contextmanager
def at_rest(
    settings: Settings, table: FileStoreTable, name: str, clock: Clock
) -> Iterator[Callable[[], None]]:
    """Keep a pipeline from writing a table.

    Yields:
        A check that raises `RetryableError` or `FencedError` if it may write again.

    Raises:
        RetryableError: the daemon did not answer.
    """
    with contextlib.ExitStack() as stack:
        try:
            _, ownership = stack.enter_context(owned_stream(settings, clock=clock))
            require = ownership.require_owned
            if _parked_reason(settings, table, name) == REASON:  # resume it at the next start
                stack.callback(_request, settings, "resume", name, clock, wait=False)
        except StreamHeldError:
            require = stack.enter_context(_parked(settings, table, name, clock))
        yield require


@contextlib.contextmanager
def _parked(
    settings: Settings, table: FileStoreTable, name: str, clock: Clock
) -> Iterator[Callable[[], None]]:
    before = _parked_reason(settings, table, name)
    if before is None:
        _request(settings, "pause", name, clock, reason=REASON)

    def require() -> None:
        if _parked_reason(settings, table, name) is None:
            raise RetryableError(
                "the table was resumed while it was repaired",
                hint="run it again, and let it resume the table",
                table=name,
            )

    try:
        require()
        yield require
    finally:
        if before in (None, REASON):
            _request(settings, "resume", name, clock)


def resume_killed(settings: Settings, table: FileStoreTable, name: str) -> None:
    """Resume a table that a killed repair left parked; its daemon must run.

    Raises:
        RetryableError: the daemon did not answer.
    """
    if _parked_reason(settings, table, name) == REASON:
        _request(settings, "resume", name, SystemClock())


def _parked_reason(settings: Settings, table: FileStoreTable, name: str) -> str | None:
    """Why a table is parked; None = it is not."""
    parking = Parking(table.file_io, settings.sink.warehouse, settings.pipeline.name)
    parking.load()
    entry = parking.parked().get(name)
    return None if entry is None else entry.reason


def _request(
    settings: Settings, kind: str, name: str, clock: Clock, *, wait: bool = True, **arguments: str
) -> None:
    options = RequestOptions(wait=wait, timeout_s=_TIMEOUT_S, clock=clock)
    request_and_wait(settings, kind, {"tables": [name], **arguments}, options)
