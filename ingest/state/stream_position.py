# SPDX-License-Identifier: Apache-2.0
"""Offsets of the stream, and from where it resumes: checkpoint, batch notes, floors, rewinding.

The checkpoint's state file names the valid generation of Spark's logs. To rewind means: create
a new state with other start offsets, a larger base and floors, replace the state file (one atomic
step: before it the old generation is valid, after it the new, empty one), then remove the old
logs, then the note, then the parking. A crash or failure in between is harmless: a table that is
still parked can be resumed again.

Some tables have to catch up with the others when the checkpoint is lost (`recovered_floors`) and
when parked tables are resumed (`rewound`): the stream reads records again that most tables have.
Floors drop those: below a table's floor every row for it is in it, or was left out on purpose. A
floor counts until the stream has passed it (`remaining_floors`); offsets may start over afterwards,
when a topic is recreated. A bad record has two owners: the quarantine table and its target table.
It is quarantined when its target is read again, although the quarantine table has later offsets;
therefore rewound tables have separate floors for bad records.
"""

import dataclasses
import functools
import logging
import shutil
import threading
from collections.abc import Collection, Mapping, Sequence
from pathlib import Path
from typing import Any

from ingest.config.settings import Settings
from ingest.source.open import initial_offsets, rewind_offsets
from ingest.source.records import (
    ANY_TABLE,
    OffsetJson,
    OffsetMap,
    floor_of,
    initial_from_stored,
    normalize,
    offsets_to_store,
    restarted,
    resume_token,
    without,
)
from ingest.state.ownership import BatchNote, Ownership, ParkedTable, Parking, higher, newest_note
from ingest.state.stream_state import (
    CheckpointState,
    TableProgress,
    forget_rollback,
    lowered,
    next_generation,
    note_rollback,
    read_offset_log,
    rolled_back_topics,
    spark_files,
    streams_of,
)
from ingest.state.table_registry import TableRegistry
from storage.errors import InternalError, InvalidRequestError, NotFoundError
from storage.format.metadata.snapshot import Snapshot
from storage.table.branches import rollback_to
from storage.table.table import FileStoreTable

Floors = dict[str, OffsetMap]


def back_to(position: Mapping[str, Any], tables: Collection[ParkedTable]) -> OffsetJson:
    """Where to resume so that tables miss nothing since they were parked.

    Args:
        position: up to where the stream has read, in the source's own form.
        tables: to be resumed.

    Returns:
        Source offsets: for topics that fed the tables the smaller of the two positions, for the
        others `position`. A partition of such a topic that was unknown then is left out, which
        means from its beginning; so is one that `position` leaves out.
    """
    start = offsets_to_store(position)
    for table in tables:
        since = {
            topic: {
                key: value
                for key, value in table.since[topic].items()
                if key in position[topic] or not key.isdecimal()
            }
            for topic in table.topics
            if topic in table.since and topic in position
        }
        start = initial_from_stored([start, offsets_to_store(since)], complete=False)
        for topic in table.topics:
            offsets = since.get(topic, {})
            for key in [key for key in start.get(topic, {}) if key.isdecimal()]:
                if key not in offsets:
                    del start[topic][key]
            if not any(key.isdecimal() for key in start.get(topic, {})):
                start.pop(topic, None)
    return normalize(start)


def rewound(
    state: CheckpointState,
    *,
    position: Mapping[str, Any],
    start: Mapping[str, Any],
    progresses: Mapping[str, TableProgress],
    parking: Parking,
    base: int,
) -> CheckpointState:
    """The state of the rewound checkpoint.

    Args:
        state: the current one.
        position: up to where the stream has read, in the source's own form.
        start: where it resumes, in the source's own form (`back_to`).
        progresses: what the tables hold.
        parking: before it is changed.
        base: above every identifier that was ever used.
    """
    current = resume_token(position)
    parked = parking.parked()
    floors: Floors = {ANY_TABLE: higher(current, state.floors.get(ANY_TABLE, {}))}
    for name in {*progresses, *parked, *state.floors} - {ANY_TABLE}:
        committed = progresses[name].offsets if name in progresses else {}
        reached = resume_token(parked[name].since) if name in parked else current
        floor = higher(higher(reached, committed), floor_of(state.floors, name))
        if floor != floors[ANY_TABLE]:
            floors[name] = floor
    bad_floors = {
        name: higher(current, state.bad_floors.get(name, {})) for name in parking.catching_up
    }
    for name, table in parked.items():  # one that missed nothing since resumes without this
        since = resume_token(table.since)
        bad_floors[name] = higher(since, state.bad_floors.get(name, {}))
    return CheckpointState(
        stream=state.stream,
        base=base,
        initial=start,
        floors=floors,
        bad_floors=bad_floors,
        generation=state.generation + 1,
    )


def recovered_offsets(
    note: BatchNote | None, progresses: Mapping[str, TableProgress]
) -> Mapping[str, Any] | None:
    """Where to start when the checkpoint is new but the tables are not; None = from the settings.

    Without a note the smallest offset of every partition over all tables is taken, and a partition
    that some table does not name is read from its beginning.
    """
    if not progresses:
        return None if note is None or note.complete(progresses) else note.start
    if note is None:
        return initial_from_stored([progress.offsets for progress in progresses.values()])
    return note.end if note.complete(progresses) else note.start


def recovered_floors(
    progresses: Mapping[str, TableProgress], parking: Parking
) -> tuple[Floors, Floors]:
    """Floors of rows, and of bad records, for a checkpoint built from the tables alone."""
    floors: Floors = {name: progress.offsets for name, progress in progresses.items()}
    parked = parking.parked()
    floor = {topic: dict(parts) for topic, parts in parking.common_floor.items()}
    if floor:
        floors = {
            name: offsets
            if name in parking.catching_up or name in parked
            else higher(offsets, floor)
            for name, offsets in floors.items()
        }
        floors |= {name: {} for name in parking.catching_up if name not in floors}
        floors[ANY_TABLE] = floor
    bad_floors: Floors = {name: {} for name in parking.catching_up}
    for name, entry in parked.items():
        bad_floors[name] = resume_token(entry.since)
        floors[name] = higher(bad_floors[name], floors.get(name, {}))
    return floors, bad_floors


def remaining_floors(
    floors: Mapping[str, Mapping[str, Mapping[str, int]]], start: Mapping[str, Any]
) -> Floors:
    """The floors that still drop something of a batch that begins at `start`."""
    current = resume_token(start)
    remaining: Floors = {}
    for name, by_topic in floors.items():
        remaining[name] = {}
        for topic, parts in by_topic.items():
            position = current.get(topic, {})
            ahead = {p: floor for p, floor in parts.items() if position.get(p, -1) < floor}
            if ahead:
                remaining[name][topic] = ahead
    if remaining.get(ANY_TABLE):
        return remaining  # a named table without offsets differs from one that is not named
    return {name: by_topic for name, by_topic in remaining.items() if by_topic}


_LOG = logging.getLogger(__name__)


class StreamPosition:
    """See the module. One thread at a time, but for `release_passed_floors`.

    1. `open` once, when the book is loaded;
    2. `bounds`, `floors_of` and `note` during a batch;
    3. `rewind` while no query runs.

    Args:
        ownership: this process's hold on the stream; None = read-only.
    """

    def __init__(
        self, settings: Settings, book: TableRegistry, ownership: Ownership | None = None
    ) -> None:
        self._settings = settings
        self._book = book
        self._parking = book.parking
        self.checkpoint = Path(settings.pipeline.checkpoint)
        self._ownership = ownership
        self._state: CheckpointState | None = None
        self._floors_lock = threading.Lock()
        # until `_use`: Spark never changes the record of a planned batch, asked for several times
        self._planned = functools.lru_cache(4)(read_offset_log)

    def use_settings(self, settings: Settings) -> None:
        """Use other settings of the same stream and checkpoint."""
        self._settings = settings

    def reached(self, last_batch: int | None) -> OffsetJson:
        """Source offsets below which all batches are committed.

        Args:
            last_batch: the batch that this process finished last; Spark may not have recorded it.
        """
        offsets = None if last_batch is None else read_offset_log(self.directory, last_batch)
        if last_batch is None or offsets is None:
            return self.recorded()
        return self._parking.of_present_topics(dict(offsets), self.state.base + last_batch)

    @property
    def state(self) -> CheckpointState:
        """The current state."""
        if self._state is None:
            raise InternalError("the checkpoint is not open")
        return self._state

    @property
    def directory(self) -> Path:
        """Where Spark keeps its logs."""
        return self.state.directory(self.checkpoint)

    def open(self) -> CheckpointState:
        """Load the checkpoint's state; a new one is built from the tables and saved first.

        Raises:
            InvalidRequestError: the checkpoint is another stream's.
        """
        name = self._settings.pipeline.name
        state = CheckpointState.load(self.checkpoint)
        if state is None:
            state = self.recovered()
            if self._book.progresses():
                _LOG.warning(
                    "new checkpoint, offsets recovered from the tables",
                    extra={
                        "event": "recovered",
                        "tables": len(self._book.progresses()),
                        "base": state.base,
                    },
                )
            state.save(self.checkpoint)
        elif state.stream != name:
            raise InvalidRequestError(
                "the checkpoint belongs to another stream",
                hint="set `pipeline.checkpoint` to a separate directory",
                checkpoint=self.checkpoint,
                stream=state.stream,
            )
        self._use(state)
        return state

    def start_from(self, state: CheckpointState) -> None:
        """Replace the checkpoint by another state; one atomic step.

        The note is set to the same position: a recovery before the next batch starts there, too.
        """
        state.save(self.checkpoint)
        at = state.initial
        self._write(BatchNote(identifier=state.base - 1, start=at, end=at, tables=()))
        self._use(state)

    def recovered(self) -> CheckpointState:
        """The state recovered from the tables, the note and the parking; nothing is written.

        Raises:
            RetryableError: the source did not answer.
            DataLossError: a recovered offset does not exist any more.
        """
        progresses = self._book.progresses()
        note = self.newest_note()
        identifiers = [progress.identifier for progress in progresses.values()]
        newest = max([*identifiers, -1 if note is None else note.identifier])
        parked = self._parking.parked()
        running = {name: progress for name, progress in progresses.items() if name not in parked}
        recovered = recovered_offsets(note, running or progresses)
        floors, bad_floors = recovered_floors(progresses, self._parking)
        topics = rolled_back_topics(self._book.options(), self._settings.pipeline.name)
        if topics and recovered is not None:
            offsets = {name: progress.offsets for name, progress in progresses.items()}
            recovered = lowered(recovered, [(topics[n], offsets.get(n, {})) for n in topics])
            floors |= {name: {} for name in topics if name not in floors}
        return CheckpointState(
            stream=self._settings.pipeline.name,
            base=newest + 1,
            initial=initial_offsets(self._settings.source, recovered),
            floors=floors,
            bad_floors=bad_floors,
            generation=next_generation(self.checkpoint),
        )

    def _use(self, state: CheckpointState) -> None:
        self._state = state
        self._planned.cache_clear()
        self._book.floors, self._book.bad_floors = state.floors, state.bad_floors
        for path in spark_files(self.checkpoint, but=self.directory):
            if path.is_dir():
                shutil.rmtree(path, ignore_errors=True)
            else:
                path.unlink(missing_ok=True)

    def recorded(self) -> OffsetJson:
        """Source offsets up to which batches are recorded, in the source's own form."""
        last = newest_number(self.directory / "commits")
        offsets = dict(read_offset_log(self.directory, last) or self.state.initial)
        return self._parking.of_present_topics(offsets, self.state.base + last)

    def bounds(self, batch_id: int) -> tuple[Mapping[str, Any], Mapping[str, Any]]:
        """Source offsets at which a planned batch begins and ends, in the source's own form."""
        end = self._planned(self.directory, batch_id)
        if end is None:
            raise InternalError("a running batch is not in Spark's offset log", batch=batch_id)
        return self._planned(self.directory, batch_id - 1) or self.state.initial, end

    def note(self, identifier: int, batch_id: int, tables: tuple[str, ...]) -> None:
        """Write durably which batch is about to be committed."""
        start, end = self.bounds(batch_id)
        self._write(BatchNote(identifier=identifier, start=start, end=end, tables=tables))

    def _write(self, note: BatchNote) -> None:
        if self._ownership is None:
            raise InternalError("a progress note was written without owning the stream")
        self._ownership.record_batch(note)

    def newest_note(self) -> BatchNote | None:
        """The note of the newest batch, of any owner; None when the stream never committed.

        Without partitions that began again since: their offsets are of former records.
        """
        settings = self._settings
        note = newest_note(self._book.file_io, settings.sink.warehouse, settings.pipeline.name)
        if note is None:
            return None
        return dataclasses.replace(
            note,
            start=self._parking.of_present_topics(dict(note.start), note.identifier - 1),
            end=self._parking.of_present_topics(dict(note.end), note.identifier),
        )

    def begin(self, batch_id: int) -> None:
        """Release floors that the stream has passed where a batch begins.

        Those of a partition that begins again in the batch (re-created topic) are of its former
        records.
        """
        if self.state.floors:
            start, end = self.bounds(batch_id)
            with self._floors_lock:
                self._release(start, restarted(start, end))

    def release_passed_floors(self) -> None:
        """The same for recorded offsets; for a stream without new records. By any thread."""
        if self.state.floors:
            with self._floors_lock:
                self._release(self.recorded())

    def _release(self, start: Mapping[str, Any], again: Mapping[str, Any] | None = None) -> None:
        state, again = self.state, again or {}
        floors, bad_floors = (
            {name: without(floor, again) for name, floor in by_table.items()}
            for by_table in (state.floors, state.bad_floors)
        )
        floors = remaining_floors(floors, start)
        if (floors, bad_floors) == (state.floors, state.bad_floors):
            return
        behind = any(name in floors for name in (ANY_TABLE, self._book.quarantine))
        state = dataclasses.replace(state, floors=floors, bad_floors=bad_floors if behind else {})
        if not floors:  # first: without floors nothing would note it again
            self._parking.caught_up()
            _LOG.info("all tables have caught up", extra={"event": "caught_up"})
        state.save(self.checkpoint)
        self._state = state
        self._book.floors, self._book.bad_floors = state.floors, state.bad_floors

    def rewind(self, tables: Collection[str]) -> OffsetJson:
        """Resume parked tables: rewind the stream to where they were parked.

        No query may run, and the book must be freshly loaded.

        Returns:
            By topic and partition `[from, to]`: what is read again; empty = nothing.

        Raises:
            InvalidRequestError: a table is not parked.
            DataLossError: the source no longer has what a table misses.
        """
        entries = self._parking.require(tables).values()
        position = self.recorded()
        if not any(table.topics for table in entries):
            self._parking.resume(tables, {})
            return {}
        start = rewind_offsets(self._settings.source, back_to(position, entries), position)
        state = rewound(
            self.state,
            position=position,
            start=start,
            progresses=self._book.progresses(),
            parking=self._parking,
            base=self._next_base(),
        )
        state.save(self.checkpoint)
        self._use(state)
        # a lost checkpoint starts at the note, so it is rewound, too, before the tables are resumed
        self._write(BatchNote(identifier=state.base - 1, start=start, end=start, tables=()))
        self._parking.resume(tables, state.floors[ANY_TABLE])
        return _between(start, position)

    def _next_base(self) -> int:
        """Above every identifier that a table, a note or a planned batch ever had."""
        identifiers = [progress.identifier for progress in self._book.progresses().values()]
        note = self.newest_note()
        if note is not None:
            identifiers.append(note.identifier)
        identifiers.append(self.state.base + newest_number(self.directory / "offsets"))
        return max(identifiers) + 1


def _between(start: Mapping[str, Any], position: Mapping[str, Any]) -> OffsetJson:
    begin = resume_token(start)
    result: OffsetJson = {}
    for topic, parts in resume_token(position).items():
        for key, end in parts.items():
            first = begin.get(topic, {}).get(key, 0)
            if first < end:
                result.setdefault(topic, {})[key] = [first, end]
    return result


def newest_number(directory: Path) -> int:
    """The largest number among the names of a directory, -1 = none."""
    if not directory.is_dir():
        return -1
    names = (entry.name for entry in directory.iterdir())
    return max((int(name) for name in names if name.isdigit()), default=-1)


# Rolls all tables of a stream back to the end of one batch, and the stream with them.
#
# A *point* is the end of a batch: of every table the newest snapshot before the first commit of a
# later batch. Other users' commits up to there (compactions) stay. Afterwards the stream resumes
# from the offsets committed in the tables, as after `run --recover-offsets`.
#
# Order, so that any crash is harmless: the notes of all tables (`ingest.state.stream_state`), which
# keep a daemon from starting; the tables, one after the other; the checkpoint and the progress
# note; the notes are removed. Repeating it with the same point completes it.


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
