# SPDX-License-Identifier: Apache-2.0
"""Making sure, at a take-over, that nothing of earlier owners can come any more.

An earlier owner that sleeps can only be about to commit to the tables of its last note
(`ingest.state.ownership`) that have not got that note's identifier. `fence` gives each of these an
empty snapshot with the new epoch before their progress is believed: a commit that came before it is
seen, and one that comes after it is refused (`ingest.state.epochs`).
"""

import functools
import logging
from collections.abc import Mapping
from typing import Any

from ingest.state.epochs import FENCE_USER, epoch_property, require_epoch
from ingest.state.ownership import Ownership
from ingest.state.stream_progress import BatchNote
from ingest.state.table_registry import TableBook
from storage.errors import FencedError, InternalError, LakewardError

__all__ = ["lost_or", "settle"]

_LOG = logging.getLogger(__name__)


def settle(book: TableBook, ownership: Ownership) -> tuple[str, ...]:
    """Believe the tables: after this only this owner, or a later one, changes them.

    Args:
        book: freshly loaded, after the stream was taken.
        ownership: of this process.

    Returns:
        The tables that got an empty snapshot.

    Raises:
        FencedError: a later owner was met.
    """
    book.use_epoch(ownership.epoch)
    last = ownership.last
    if last is None:
        raise InternalError("the stream is not owned by this process")
    if last.settled:
        return ()
    fenced = _fenced(book, ownership, last.note)
    ownership.settle()
    if fenced:
        _LOG.warning(
            "an earlier owner of the stream may still live: its batch in progress is shut out",
            extra={"event": "fenced", "epoch": ownership.epoch, "tables": list(fenced)},
        )
    return fenced


def _fenced(
    book: TableBook, ownership: Ownership, note: Mapping[str, Any] | None
) -> tuple[str, ...]:
    if note is None:
        return ()
    missing = [
        name for name in BatchNote.of(note).missing(book.progresses()) if name in book.options()
    ]
    for name in missing:
        table = book.table(name)
        table.new_commit(ownership.stream + FENCE_USER).commit(
            (),
            ownership.epoch,
            properties=epoch_property(ownership.stream, ownership.epoch),
            before_publish=functools.partial(
                require_epoch,
                table=table,
                stream=ownership.stream,
                epoch=ownership.epoch,
                seen=book.snapshot_id(name),
            ),
            ignore_empty=False,
        )
    book.require(missing)  # opened again: one of them may have got its commit meanwhile
    return tuple(missing)


def lost_or(error: BaseException, ownership: Ownership) -> BaseException:
    """What a failure is: that the stream is another's explains many that look otherwise."""
    if isinstance(error, FencedError) or ownership.last is None:
        return error
    try:
        ownership.require()
    except FencedError as lost:
        return lost
    except (LakewardError, OSError):
        return error
    return error
