# SPDX-License-Identifier: Apache-2.0
"""Where a stream resumes when some of its tables have to catch up with the others. Pure.

Two occasions: the checkpoint is lost (`recovered_floors`), parked tables are resumed (`rewound`).
In both the stream reads records again that most tables have. Floors drop those: below a
table's floor every row for it is in it, or was left out on purpose. A floor counts until the stream
has passed it (`passed`); offsets may start over afterwards, when a topic is recreated.

A bad record has two owners, the quarantine table and the table it was meant for. It is
quarantined when its table is read again, although the quarantine table is further: so rewound
tables have floors of their own for bad records.
"""

from collections.abc import Collection, Mapping
from typing import Any

from ingest.source.ranges import (
    ANY_TABLE,
    OffsetJson,
    OffsetMap,
    initial_from_stored,
    normalize,
    offsets_to_store,
    resume_token,
)
from ingest.state.ownership import BatchNote
from ingest.state.parking import ParkedTable, Parking, higher
from ingest.state.stream_state import CheckpointState, TableProgress

__all__ = [
    "Floors",
    "back_to",
    "entered",
    "passed",
    "recovered_floors",
    "recovered_offsets",
    "rewound",
]

Floors = dict[str, OffsetMap]


def back_to(position: Mapping[str, Any], tables: Collection[ParkedTable]) -> OffsetJson:
    """Where to read on so that tables miss nothing since they were parked.

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
            known = since.get(topic, {})
            for key in [key for key in start.get(topic, {}) if key.isdecimal()]:
                if key not in known:
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
    resumed: Collection[str],
    base: int,
) -> CheckpointState:
    """The state of the rewound checkpoint.

    Args:
        state: the present one.
        position: up to where the stream has read, in the source's own form.
        start: where it resumes, in the source's own form (`back_to`).
        progresses: what the tables hold.
        parking: before it is changed.
        resumed: parked tables to resume.
        base: above every identifier that was ever used.
    """
    here = resume_token(position)
    parked = parking.parked()
    floors: Floors = {ANY_TABLE: higher(here, state.floors.get(ANY_TABLE, {}))}
    for name in {*progresses, *parked, *state.floors} - {ANY_TABLE}:
        own = progresses[name].offsets if name in progresses else {}
        reached = resume_token(parked[name].since) if name in parked else here
        held = higher(higher(reached, own), state.floor(name))
        if held != floors[ANY_TABLE]:
            floors[name] = held
    bad_floors = {
        name: higher(here, state.bad_floors.get(name, {}))
        for name in parking.behind
        if name not in resumed
    }
    for name in resumed:
        since = resume_token(parked[name].since)
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
    """Floors of rows, and of bad records, for a checkpoint made from the tables alone."""
    floors: Floors = {name: progress.offsets for name, progress in progresses.items()}
    parked = parking.parked()
    held = {topic: dict(parts) for topic, parts in parking.held.items()}
    if held:
        floors = {
            name: own if name in parking.behind or name in parked else higher(own, held)
            for name, own in floors.items()
        }
        floors |= {name: {} for name in parking.behind if name not in floors}
        floors[ANY_TABLE] = held
    for name, entry in parked.items():
        floors[name] = higher(resume_token(entry.since), floors.get(name, {}))
    return floors, {name: {} for name in parking.behind}


def passed(
    floors: Mapping[str, Mapping[str, Mapping[str, int]]], start: Mapping[str, Any]
) -> Floors:
    """The floors that still drop something of a batch that begins at `start`."""
    here = resume_token(start)
    left: Floors = {}
    for name, by_topic in floors.items():
        left[name] = {}
        for topic, parts in by_topic.items():
            known = here.get(topic, {})
            ahead = {p: floor for p, floor in parts.items() if known.get(p, -1) < floor}
            if ahead:
                left[name][topic] = ahead
    if left.get(ANY_TABLE):
        return left  # a named table without offsets differs from one that is not named
    return {name: by_topic for name, by_topic in left.items() if by_topic}


def entered(start: Mapping[str, Any], end: Mapping[str, Any]) -> OffsetJson:
    """Partitions that a batch saw first, with the offset there.

    A source whose offset is more than a number (files) reads a new topic from its beginning: such
    topics are left out.
    """
    result: OffsetJson = {}
    for topic, entry in end.items():
        if all(key.isdecimal() for key in entry):
            known = start.get(topic, {})
            new = {key: value for key, value in entry.items() if key not in known}
            if new:
                result[topic] = new
    return result
