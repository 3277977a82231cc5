# SPDX-License-Identifier: Apache-2.0
"""What a new snapshot does to rows that it does not bring: `source.on.resnapshot: sweep`.

Values only; `sweep_decisions` says what follows from what. While a snapshot of a table passes, the
table's commits carry a `Watch`: below which sequence number rows were written before the snapshot
began. Everything that the stream writes meanwhile is numbered above it (`Numbers`), so at the end
of the snapshot the rows at or below it are those that it did not bring, and nobody else touched:
they are deleted (`Sweep`), in a second run of the batch for the table alone.

The watch is a property of the table's snapshots, `lakeward.sweep.<stream>`: JSON, with the commit
identifier by which it was written. Properties live on in later snapshots; one of another identifier
than the commit's says nothing.
"""

import dataclasses
from collections.abc import Sequence

import orjson

from storage.errors import CorruptDataError

__all__ = [
    "NUMBERS_APART",
    "OFF",
    "OPEN",
    "QUIET",
    "SWEEP_PROPERTY",
    "Numbers",
    "SnapshotMark",
    "Sweep",
    "Watch",
    "parsed_watch",
    "sweep_property",
]

SWEEP_PROPERTY = "lakeward.sweep."

OPEN = "open"
"""A snapshot of the table passes, and its end will delete the rows that it does not bring."""

OFF = "off"
"""A snapshot of the table passes, or may pass, and its end will delete nothing."""

QUIET = "quiet"
"""No snapshot of the table passes."""

NUMBERS_APART = 1 << 32
"""Between the highest sequence number of a table and those after a mark: more than the rows of a
batch, and room for two thousand million snapshots."""


@dataclasses.dataclass(frozen=True, slots=True)
class SnapshotMark:
    """An event with which a snapshot of a table that is written begins or ends.

    Attributes:
        table: `database.table`.
        topic: where the event is.
        partition: of the topic.
        offset: in the partition.
        first: whether the snapshot begins there; else it ends.
        behind: whether no record is missing right before it.
        refusal: why the table cannot be swept, as far as the routes tell; "" = it can.
    """

    table: str
    topic: str
    partition: int
    offset: int
    first: bool
    behind: bool = False
    refusal: str = ""


@dataclasses.dataclass(frozen=True, slots=True)
class Sweep:
    """What is deleted of a table in a run.

    Attributes:
        topic: of the event that ends the snapshot; the task that reads it sends the deletes.
        partition: of the topic.
        offset: of the event.
        since: offset below which rows of the batch are left out: the snapshot began there; 0 = it
            began in an earlier batch.
        floor: highest sequence number of the rows that are deleted; None = all are.
        snapshot_id: whose rows; 0 = there are none.
    """

    topic: str
    partition: int
    offset: int
    since: int
    floor: int | None
    snapshot_id: int

    def to_plain(self) -> Sequence[str | int | None]:
        """For JSON."""
        return [
            self.topic,
            self.partition,
            self.offset,
            self.since,
            self.floor,
            self.snapshot_id,
        ]

    def is_at(self, topic: str, partition: int, offsets: Sequence[int]) -> bool:
        """Whether the event is among records, which are in offset order."""
        here = (self.topic, self.partition) == (topic, partition) and len(offsets) > 0
        return here and offsets[0] <= self.offset <= offsets[-1] and self.offset in offsets


@dataclasses.dataclass(frozen=True, slots=True)
class Numbers:
    """From where on rows of a table get sequence numbers above a floor.

    Attributes:
        offset: of the first such row in its partition; -1 = all rows of the run.
        floor: all their numbers are larger.
    """

    offset: int
    floor: int


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Watch:
    """What the stream knows of snapshots of a table after a commit to it.

    Attributes:
        topic: that feeds the table, the only one.
        partition: of the topic, the only one.
        next: offset up to which records were looked at. While the snapshot is open every batch of
            the partition is committed to the table, with rows or without; otherwise a batch that
            brings no rows leaves a gap, behind which less is known.
        state: `OPEN`, `OFF` or `QUIET`.
        offset: where the open snapshot began.
        floor: largest sequence number that a row from before it can have.
        seen: snapshot of the table up to which, while it is open, commits of others were looked
            for.
        why: why it is off.
    """

    topic: str
    partition: int
    next: int
    state: str
    offset: int = -1
    floor: int = -1
    seen: int = 0
    why: str = ""


def sweep_property(stream: str, identifier: int, watch: Watch | None) -> dict[str, str]:
    """The property of a commit; `None` takes it away."""
    if watch is None:
        return {SWEEP_PROPERTY + stream: ""}
    plain = {"commit": identifier, **dataclasses.asdict(watch)}
    return {SWEEP_PROPERTY + stream: orjson.dumps(plain).decode("utf-8")}


def parsed_watch(text: str | None, identifier: int, snapshot_id: int) -> Watch | None:
    """The watch of the stream's newest commit in a table.

    Args:
        text: the property; None or empty = there is none.
        identifier: of the commit.
        snapshot_id: that has the property.

    Raises:
        CorruptDataError: it cannot be read.
    """
    if not text:
        return None
    try:
        raw = orjson.loads(text)
        if raw.pop("commit") != identifier:
            return None
        return Watch(**raw)
    except (ValueError, TypeError, KeyError, AttributeError) as error:
        raise CorruptDataError(
            "what a snapshot says of snapshots of its source cannot be read",
            hint="the newest version of lakeward that wrote the table can read it",
            snapshot=snapshot_id,
            value=text,
        ) from error
