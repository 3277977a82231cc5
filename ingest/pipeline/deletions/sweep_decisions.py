# SPDX-License-Identifier: Apache-2.0
"""What becomes of a table's watch in a batch, and whether rows are swept. Pure.

The rule behind all of it: a row of the source is never deleted, a row that is gone may stay. A
snapshot is swept if everything between its marks was read and written: no record in between was
bad, none was passed over, nobody else wrote into the table. Otherwise it is called off, which its
end or the next beginning ends.

A snapshot of one row has one mark, its end. It is believed only where the stream watched before,
no snapshot passed, and the batch has no other row of a snapshot in the topic: else it is the end
of one whose beginning was lost.
"""

import dataclasses
from collections.abc import Iterable, Sequence

from ingest.pipeline.deletions.truncates import unordered, why_kept
from ingest.source.position.ordered_tables import position_kind
from ingest.state.ownership import FENCE_USER
from ingest.state.sweeps import (
    NUMBERS_APART,
    OFF,
    OPEN,
    QUIET,
    Numbers,
    SnapshotMark,
    Sweep,
    Watch,
)
from storage.errors import NotFoundError
from storage.format.metadata.snapshot import CommitKind
from storage.table.table import FileStoreTable

__all__ = ["Facts", "Place", "Verdict", "decided", "highest_number", "others_since", "unsweepable"]

_UNSEEN = "its beginning was not seen"
_UNKNOWN = ""


@dataclasses.dataclass(frozen=True, slots=True)
class Place:
    """The partition that feeds a table, and its part of a batch.

    Attributes:
        topic: of the partition.
        partition: its number.
        start: first offset of the batch that the table does not have yet.
        end: after its last.
    """

    topic: str
    partition: int
    start: int
    end: int


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Facts:
    """What a batch brings to a table that is fed by one partition.

    Attributes:
        place: the partition, and offsets.
        marks: by offset, none below `start`.
        reads: rows of snapshots in the topic, of any table.
        rows: whether the table gets rows.
        bad: highest offset of a bad record that may be for the table; -1 = there is none.
        skipped: whether records were lost to retention.
        others: what others did to the table since it was looked last; "" = nothing. Wanted only
            while a snapshot is open.
        top: the highest sequence number in the table before the batch; -1 = it has no files. Wanted
            only with marks.
        snapshot_id: of the table before the batch; 0 = none.
    """

    place: Place
    marks: Sequence[SnapshotMark] = ()
    reads: int = 0
    rows: bool = False
    bad: int = -1
    skipped: bool = False
    others: str = ""
    top: int = -1
    snapshot_id: int = 0


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Verdict:
    """What follows for a table.

    Attributes:
        watch: after the batch; None = nothing is known.
        due: whether a commit must say so, even without rows.
        swept: whether a snapshot ended in the batch and is swept, be it of nothing.
        sweep: what is deleted for it; None = there can be nothing.
        numbers: of a snapshot that began in the batch and is open at its end; None = none, or the
            ordinary numbers will do.
        told: why a snapshot is not swept; "" = none was called off.
    """

    watch: Watch | None
    due: bool
    swept: bool = False
    sweep: Sweep | None = None
    numbers: Numbers | None = None
    told: str = ""


def decided(before: Watch | None, facts: Facts) -> Verdict:
    """Follow a table through a batch.

    Args:
        before: its watch; None = nothing is known.
        facts: of the batch.
    """
    state, told = _begun(before, facts)
    news = told if before is not None and (before.state, state) == (OPEN, OFF) else ""
    floor = -1 if before is None else before.floor
    offset = -1 if before is None else before.offset
    since: int | None = None
    sweep: Sweep | None = None
    swept = False
    marks = list(facts.marks)
    if state == QUIET and _whole(facts):
        marks.insert(0, dataclasses.replace(marks[0], first=True))
    for mark in marks:
        if mark.first:
            state, since = OPEN, mark.offset
            if reason := _doubt(facts, since):
                state, told, news = OFF, reason, reason
        elif state == OPEN:
            sweep = _sweep(mark, facts, since, floor)
            state, since, swept = QUIET, None, True
        else:
            state, news = QUIET, told or _UNSEEN
    if not (marks or news):
        state, told = _between(state, told, facts)
    if state == QUIET and (facts.bad >= 0 or facts.skipped):
        state = _UNKNOWN  # a mark may have been among what is bad
    numbers: Numbers | None = None
    if state == OPEN and since is not None:
        offset, floor = since, -1
        if facts.top >= 0 or since > facts.place.start:
            floor = facts.top + NUMBERS_APART
            numbers = Numbers(since, floor)
    watch = _after(state, facts, offset, floor, told)
    due = state == OPEN or (before is not None and before.state == OPEN)
    return Verdict(watch=watch, due=due, swept=swept, sweep=sweep, numbers=numbers, told=news)


def _begun(before: Watch | None, facts: Facts) -> tuple[str, str]:
    """The state before the first mark, and why it is off."""
    if before is None or (before.topic, before.partition) != (
        facts.place.topic,
        facts.place.partition,
    ):
        return _UNKNOWN, ""
    gap = facts.place.start != before.next  # a topic made anew begins below it
    if before.state == OFF:
        return OFF, before.why
    if before.state == QUIET:
        return (_UNKNOWN if gap else QUIET), ""
    reason = "records of its topic were passed over" if gap else ""
    reason = reason or _doubt(facts, 0) or facts.others
    return (OFF, reason) if reason else (OPEN, "")


def _doubt(facts: Facts, since: int) -> str:
    """Why a snapshot that began at an offset, or earlier, may not have brought all its rows."""
    if facts.skipped:
        return "records of its topic were lost to retention"
    if facts.bad >= since:
        return f"a record was bad (topic {facts.place.topic}, offset {facts.bad})"
    return ""


def _whole(facts: Facts) -> bool:
    """Whether the batch's only mark is a snapshot of one row."""
    clean = facts.bad < 0 and not facts.skipped and facts.reads == 1
    return clean and len(facts.marks) == 1 and facts.marks[0].behind and not facts.marks[0].first


def _sweep(mark: SnapshotMark, facts: Facts, since: int | None, floor: int) -> Sweep | None:
    if since is None:
        if floor < 0:
            return None  # nothing was there when the snapshot began
        return Sweep(mark.topic, mark.partition, mark.offset, 0, floor, facts.snapshot_id)
    if facts.top < 0 and since <= facts.place.start:
        return None
    return Sweep(mark.topic, mark.partition, mark.offset, since, None, facts.snapshot_id)


def _between(state: str, told: str, facts: Facts) -> tuple[str, str]:
    """The state after a batch without marks."""
    if state in (_UNKNOWN, QUIET) and facts.reads:
        return OFF, _UNSEEN
    clean = facts.bad < 0 and not facts.skipped and not facts.reads
    if state in (_UNKNOWN, OFF) and clean and facts.rows:
        return QUIET, ""  # no connector streams a table while it reads it
    return state, told


def _after(state: str, facts: Facts, offset: int, floor: int, told: str) -> Watch | None:
    if state == _UNKNOWN:
        return None
    watch = Watch(
        topic=facts.place.topic, partition=facts.place.partition, next=facts.place.end, state=state
    )
    if state == OPEN:
        return dataclasses.replace(watch, offset=offset, floor=floor, seen=facts.snapshot_id)
    return watch if state == QUIET else dataclasses.replace(watch, why=told)


def unsweepable(
    table: FileStoreTable, topics: Iterable[str], partitions: int, refusal: str = ""
) -> str:
    """Why rows that a snapshot does not bring cannot be told, or not be deleted; "" = they can.

    Args:
        table: the table.
        topics: that ever fed it.
        partitions: of the one topic.
        refusal: what the routes and rules say.
    """
    names = sorted(topics)
    if not refusal and names:
        refusal = unordered(names, dict.fromkeys(names, partitions))
    reason = refusal or why_kept(table)
    if not reason and position_kind(table.schema) is not None:
        reason = "its rows are in the order of the source: one that comes late changes nothing"
    return reason


def highest_number(table: FileStoreTable, snapshot_id: int) -> int:
    """The highest sequence number of the files of a snapshot; -1 = it has none."""
    if not snapshot_id:
        return -1
    plan = table.new_scan().with_snapshot(snapshot_id).with_all_levels().plan()
    found = (file.max_sequence_number for split in plan.splits for file in split.files)
    return max(found, default=-1)


def others_since(table: FileStoreTable, stream: str, seen: int, own: int, newest: int) -> str:
    """What others did to a table after one snapshot up to another; "" = nothing.

    Compactions change no row, nor does what shuts an earlier owner of the stream out.

    Args:
        table: the table.
        stream: whose commits are not others'.
        seen: up to which snapshot it is known.
        own: the stream's newest snapshot.
        newest: the table's.
    """
    if newest < own:
        return "the table was rolled back"
    for snapshot_id in range(seen + 1, newest + 1):
        try:
            snapshot = table.snapshots.read(snapshot_id)
        except NotFoundError:
            return "its snapshots expired before they could be looked at"
        writes = snapshot.commit_kind in (CommitKind.APPEND, CommitKind.OVERWRITE)
        if writes and snapshot.commit_user not in (stream, stream + FENCE_USER):
            return f"somebody else wrote into the table (snapshot {snapshot_id})"
    return ""
