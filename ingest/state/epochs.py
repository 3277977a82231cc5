# SPDX-License-Identifier: Apache-2.0
"""The owner's epoch in the data: who lost the stream cannot commit, however long it slept.

Every snapshot of the stream carries `lakeward.epoch.<stream>`, which later snapshots keep. Each
publication is built on one snapshot, and create-if-absent refuses it when that snapshot has a
successor already. So an owner that finds a higher epoch in the snapshot it builds on has lost the
stream, and nobody can put one there after it looked.

Tables that a new owner has not committed to are the business of `ingest.state.fencing`.
"""

from ingest.state.state_format import unreadable_property
from storage.errors import FencedError, NotFoundError
from storage.format.metadata.snapshot import Snapshot
from storage.table.table import FileStoreTable

__all__ = ["EPOCH_PROPERTY", "FENCE_USER", "epoch_of", "epoch_property", "require_epoch"]

EPOCH_PROPERTY = "lakeward.epoch."

FENCE_USER = ".fence"
"""After the stream's name: commit user of the empty snapshots that shut an earlier owner out."""


def epoch_property(stream: str, epoch: int) -> dict[str, str]:
    """Of a commit; nothing for who does not own the stream."""
    return {EPOCH_PROPERTY + stream: str(epoch)} if epoch else {}


def epoch_of(snapshot: Snapshot, stream: str) -> int | None:
    """The epoch that a snapshot tells; None = it tells none.

    Raises:
        CorruptDataError: it cannot be read.
    """
    text = (snapshot.properties or {}).get(EPOCH_PROPERTY + stream)
    if text is None:
        return None
    try:
        return int(text)
    except ValueError as error:
        raise unreadable_property("epoch", snapshot, text) from error


def require_epoch(
    latest: Snapshot | None, table: FileStoreTable, stream: str, epoch: int, *, seen: int
) -> None:
    """Stop a commit of an owner that has lost the stream.

    Args:
        latest: the snapshot that the commit is built on.
        table: the table.
        stream: that commits.
        epoch: of the owner; 0 = it owns nothing, and nothing is checked.
        seen: the newest snapshot of which it is known that no later owner is below it.

    Raises:
        FencedError: a later owner committed.
    """
    if not epoch or latest is None:
        return
    told = epoch_of(latest, stream)
    number = latest.id - 1
    while told is None and number > seen:  # engines that keep no properties may be above it
        try:
            told = epoch_of(table.snapshots.read(number), stream)
        except NotFoundError:
            break
        number -= 1
    if told is not None and told > epoch:
        raise FencedError(
            "another process owns the stream",
            detail="it has committed to this table",
            hint="two daemons run one stream: this one ends; nothing is lost or doubled",
            table=table.layout.root,
            epoch=told,
            own_epoch=epoch,
        )
