# SPDX-License-Identifier: Apache-2.0
"""Rolls all tables of a stream back to the end of one batch, and the stream with them.

A *point* is the end of a batch: of every table the newest snapshot before the first commit of a
later batch. Other users' commits up to there (compactions) stay. Afterwards the stream resumes
from the offsets committed in the tables, as after `run --recover-offsets`.

Order, so that any crash is harmless: the notes of all tables (`ingest.state.rolled_back`), which
keep a daemon from starting; the tables, one after the other; the checkpoint and the progress note;
the notes are removed. Repeating it with the same point completes it.
"""

import dataclasses
from collections.abc import Sequence

from ingest.state.rolled_back import (
    forget_rollback,
    note_rollback,
    rolled_back_topics,
    streams_of,
)
from ingest.state.stream_position import StreamPosition
from ingest.state.stream_state import CheckpointState
from ingest.state.table_registry import TableRegistry
from storage.errors import InvalidRequestError, NotFoundError
from storage.format.metadata.snapshot import Snapshot
from storage.table.retention.rollback import rollback_to
from storage.table.table import FileStoreTable

_REPLAY = ".replay"
"""After the stream's name: commit user of records replayed from quarantine."""


@dataclasses.dataclass(frozen=True, slots=True)
class Point:
    """The end of a batch.

    Attributes:
        identifier: its commit identifier.
        time_ms: its last commit [epoch ms].
        tables: how many tables it committed to.
    """

    identifier: int
    time_ms: int
    tables: int


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class TablePlan:
    """The rollback of a table.

    Attributes:
        name: `database.table`.
        newest: its newest snapshot.
        target: the snapshot that it is rolled back to; the same = it is unchanged.
        lost_records: records in data files that are removed, by the snapshots' own counts.
        lost_replays: commits of replayed records that are removed, and are not replayed again.
    """

    name: str
    newest: Snapshot
    target: Snapshot
    lost_records: int
    lost_replays: int

    @property
    def unchanged(self) -> bool:
        """Whether there is nothing to roll back."""
        return self.newest.id == self.target.id


def points_of(book: TableRegistry, stream: str) -> list[Point]:
    """The batches that are in the tables' snapshots, newest first."""
    times: dict[int, list[int]] = {}
    for name in book.progresses():
        commits = {
            snapshot.commit_identifier: snapshot.time_ms
            for snapshot in _history(book.table(name))
            if snapshot.commit_user == stream
        }
        for identifier, time_ms in commits.items():
            times.setdefault(identifier, []).append(time_ms)
    points = (Point(number, max(moments), len(moments)) for number, moments in times.items())
    return sorted(points, key=lambda point: -point.identifier)


def plan_rollback(
    book: TableRegistry, stream: str, *, identifier: int | None = None, time_ms: int | None = None
) -> tuple[Point, list[TablePlan]]:
    """Plan a rollback; nothing is changed.

    Args:
        book: freshly loaded.
        stream: the stream's name.
        identifier: of the last batch to keep.
        time_ms: instead, keep the last batch that was completely committed at or before [epoch ms].

    Raises:
        NotFoundError: there is no such batch, or a table has no snapshot of that time any more.
        InvalidRequestError: a table is parked or catching up, or another stream writes it, too.
    """
    _require_level(book)
    points = points_of(book, stream)
    chosen = [
        point
        for point in points
        if (identifier is None or point.identifier == identifier)
        and (time_ms is None or point.time_ms <= time_ms)
    ]
    if not chosen:
        oldest = f"the oldest is {points[-1].identifier}" if points else "the stream has none"
        raise NotFoundError(
            "there is no such batch in the tables' snapshots",
            detail=oldest,
            hint="`lakeward stream points` lists them",
        )
    point = chosen[0]
    return point, [_table_plan(book, name, stream, point) for name in sorted(book.progresses())]


def _require_level(book: TableRegistry) -> None:
    waiting = sorted({*book.parking.parked(), *book.parking.catching_up})
    if waiting:
        raise InvalidRequestError(
            "a table is parked or has not caught up yet",
            hint="resume it and let it catch up first: it resumes from other offsets than the rest",
            table=waiting[0],
        )


def _table_plan(book: TableRegistry, name: str, stream: str, point: Point) -> TablePlan:
    history = _history(book.table(name))
    newest = history[-1]
    other_streams = [writer for writer in streams_of(newest) if writer != stream]
    if other_streams:
        raise InvalidRequestError(
            "another stream writes this table, too",
            hint="its rows would be removed, too: roll single tables back with `lakeward table "
            "rollback`",
            table=name,
            stream=other_streams[0],
        )
    later = [
        index
        for index, snapshot in enumerate(history)
        if snapshot.commit_user == stream and snapshot.commit_identifier > point.identifier
    ]
    first = later[0] if later else len(history)
    if first == 0:
        raise NotFoundError(
            "a table has no snapshot as old as that batch",
            detail="it was created later, or the snapshot has expired",
            hint="if created later, drop the table: it is created again; else choose a later batch",
            table=name,
            oldest=history[0].id,
        )
    target, tail = history[first - 1], history[first:]
    return TablePlan(
        name=name,
        newest=newest,
        target=target,
        lost_records=sum(
            snapshot.delta_record_count for snapshot in tail if snapshot.delta_record_count > 0
        ),
        lost_replays=sum(snapshot.commit_user == stream + _REPLAY for snapshot in tail),
    )


def _history(table: FileStoreTable) -> list[Snapshot]:
    """Snapshots that can be read, oldest first."""
    return list(table.snapshots.recall_many(sorted(table.snapshots.ids())))


def carry_out(
    book: TableRegistry, position: StreamPosition, stream: str, plans: Sequence[TablePlan]
) -> CheckpointState:
    """Roll back the tables, then the stream; the state that it starts with.

    Args:
        book: as the plans were made with.
        position: of a stream that this process owns.
        stream: its name.
        plans: of `plan_rollback`.
    """
    for plan in plans:
        if not plan.unchanged:
            note_rollback(book.table(plan.name), plan.newest, f"snapshot {plan.target.id}")
    for plan in plans:
        if not plan.unchanged:
            rollback_to(book.table(plan.name).latest(), plan.target.id)
    book.load(create=False)
    state = position.recovered()
    position.start_from(state)
    for name in rolled_back_topics(book.options(), stream):
        forget_rollback(book.table(name), stream)
    return state
