# SPDX-License-Identifier: Apache-2.0
"""A stream owned by a command, for the time that the command works on it."""

import contextlib
from collections.abc import Iterator

from ingest.config.settings import Settings
from ingest.state.fencing import settle
from ingest.state.lease import Lease
from ingest.state.ownership import Ownership
from ingest.state.table_registry import TableBook
from storage.clock import Clock, SystemClock
from storage.errors import FencedError

__all__ = ["lease_of", "owned_stream"]


def lease_of(settings: Settings, book: TableBook, clock: Clock) -> Lease:
    """The lease of a pipeline's stream; nothing is acquired yet."""
    return Lease(
        book.file_io,
        settings.sink.warehouse,
        settings.pipeline.name,
        clock,
        ttl_s=settings.life.owner_ttl_s,
    )


@contextlib.contextmanager
def owned_stream(
    settings: Settings, *, take_over: bool = False, clock: Clock | None = None
) -> Iterator[tuple[TableBook, Ownership]]:
    """The stream's tables, with nobody else writing them for the stream.

    Args:
        settings: of the pipeline.
        take_over: whether a living daemon is overthrown.
        clock: time.

    Raises:
        StreamHeldError: a daemon runs.
    """
    clock = clock or SystemClock()
    book = TableBook(settings, clock)
    with lease_of(settings, book, clock) as lease:
        lease.acquire(take_over=take_over)
        lease.keep(_ignore)
        book.load(create=False)
        settle(book, lease.ownership)
        yield book, lease.ownership


def _ignore(error: FencedError) -> None:
    """The next record that the command writes tells it."""
    del error
