# SPDX-License-Identifier: Apache-2.0
"""Tables whose history was taken back, by a rollback or a fast-forward, behind their stream's back.

The snapshots that go hold rows, and how far the stream had come in the table. A stream that went
on from its own memory or checkpoint would leave these rows out for good. So

* a note in the table's options is written before the history goes. A daemon does not start while
  there is one; `lakeward run --recover-offsets` reads again what such tables lack, and removes it;
* a commit of a running daemon finds that the newest snapshot does not tell the offsets that it
  committed last, and ends the daemon.
"""

import json
from collections.abc import Iterable, Mapping, Sequence
from types import MappingProxyType
from typing import Any

from ingest.source.ranges import OffsetJson, normalize
from ingest.state.stream_state import OFFSETS_PROPERTY, OffsetMap, stored_offsets
from storage.errors import CorruptDataError, FencedError, InvalidRequestError
from storage.format.metadata.schema_changes import RemoveOption, SetOption
from storage.format.metadata.snapshot import Snapshot
from storage.table.table import FileStoreTable

__all__ = [
    "TAKEN_BACK_OPTION",
    "forget_taken_back",
    "lowered",
    "note_taken_back",
    "require_history",
    "require_not_taken_back",
    "streams_of",
    "topics_taken_back",
]

TAKEN_BACK_OPTION = "lakeward.taken-back"
"""Table option: to what the table was taken back, and the topics of the streams that wrote it."""

_HINT = "start the pipeline with `lakeward run --recover-offsets`: it reads again what is missing"


def streams_of(snapshot: Snapshot | None) -> list[str]:
    """The streams that write a table, by its newest snapshot."""
    properties = {} if snapshot is None else snapshot.properties or {}
    return sorted(
        key.removeprefix(OFFSETS_PROPERTY) for key in properties if key.startswith(OFFSETS_PROPERTY)
    )


def note_taken_back(
    table: FileStoreTable,
    newest: Snapshot,
    target: str,
    more: Mapping[str, Iterable[str]] = MappingProxyType({}),
) -> FileStoreTable:
    """Note in a table's options that its history is about to go.

    Args:
        table: at the branch that streams write.
        newest: its newest snapshot.
        target: what it goes back to, for people.
        more: further topics by stream, which the snapshot does not tell.

    Returns:
        The table with the note.
    """
    streams = {name: set(stored_offsets(newest, name) or ()) for name in streams_of(newest)}
    known = _parsed(table.schema.options).get("streams", {})  # of a first time, not recovered yet
    for name, topics in (*known.items(), *more.items()):
        streams.setdefault(name, set()).update(topics)
    note = {"to": target, "streams": {name: sorted(streams[name]) for name in sorted(streams)}}
    return table.alter([SetOption(TAKEN_BACK_OPTION, json.dumps(note))])


def forget_taken_back(table: FileStoreTable, stream: str) -> None:
    """Remove a stream from the note: it has taken over the table's own offsets."""
    note = _parsed(table.schema.options)
    if stream not in note.get("streams", {}):
        return
    del note["streams"][stream]
    left = json.dumps(note)
    change = SetOption(TAKEN_BACK_OPTION, left) if note["streams"] else None
    table.alter([change or RemoveOption(TAKEN_BACK_OPTION)])


def topics_taken_back(
    options: Mapping[str, Mapping[str, str]], stream: str
) -> dict[str, tuple[str, ...]]:
    """The tables that were taken back since a stream wrote them, and the topics that fed them.

    Args:
        options: of all tables, by name.
        stream: the stream's name.

    Raises:
        CorruptDataError: a note cannot be read.
    """
    notes = {name: _parsed(each).get("streams", {}) for name, each in options.items()}
    return {name: tuple(note[stream]) for name, note in sorted(notes.items()) if stream in note}


def require_not_taken_back(options: Mapping[str, Mapping[str, str]], stream: str) -> None:
    """Refuse to start a stream on tables that were taken back.

    Raises:
        InvalidRequestError: one has the note.
        CorruptDataError: a note cannot be read.
    """
    for name in topics_taken_back(options, stream):
        raise InvalidRequestError(
            f"the table was taken back to {_parsed(options[name]).get('to')} since the stream "
            "wrote it",
            detail="what came after that would be missing from it",
            hint=_HINT,
            table=name,
        )


def require_history(
    latest: Snapshot | None,
    table: FileStoreTable,
    name: str,
    stream: str,
    known: Sequence[OffsetMap],
) -> None:
    """Stop a commit to a table whose history was taken back, and leave the note if nobody has.

    Args:
        latest: the newest snapshot.
        table: the table.
        name: `database.table`.
        stream: that commits.
        known: offsets of the stream that it may tell: those of the last commit, and of this one.

    Raises:
        FencedError: it tells others.
    """
    told = None if latest is None else stored_offsets(latest, stream)
    # engines that do not carry properties from snapshot to snapshot may have made the newest one
    if latest is None or told is None or told in known:
        return
    if not _behind(told, known[0]):
        raise FencedError(
            "another process committed to this table",
            detail=f"it holds {told}",
            hint="two daemons run one stream: stop one of them",
            table=name,
        )
    note_taken_back(table.latest(), latest, f"snapshot {latest.id}", {stream: known[0]})
    raise FencedError(
        "the table was taken back since the stream wrote it",
        detail=f"it holds {told}",
        hint=_HINT,
        table=name,
    )


def _behind(told: OffsetMap, committed: OffsetMap) -> bool:
    """Whether a table holds less than was committed to it."""
    return any(
        told.get(topic, {}).get(key, -1) < offset
        for topic, parts in committed.items()
        for key, offset in parts.items()
    )


def lowered(
    start: Mapping[str, Any], taken: Iterable[tuple[Iterable[str], OffsetMap]]
) -> OffsetJson:
    """Where to start so that tables that were taken back miss nothing. Pure.

    Args:
        start: where the other tables would have it, in the source's own form or as stored.
        taken: per table the topics that fed it, and the offsets that it holds now.

    Returns:
        As stored; what is left out is read from its beginning.
    """
    found = {topic: dict(entry) for topic, entry in start.items()}
    for topics, offsets in taken:
        for topic in {*topics, *offsets} & found.keys():
            own, entry = offsets.get(topic, {}), found[topic]
            for key in [key for key in entry if key.isdecimal()]:
                if own.get(key, 0) >= entry[key]:
                    continue
                # members which are no partitions describe the position that is left
                entry = {name: value for name, value in entry.items() if name.isdecimal()}
                entry[key] = own.get(key)
            found[topic] = {key: value for key, value in entry.items() if value is not None}
            if not found[topic]:
                del found[topic]
    return normalize(found)


def _parsed(options: Mapping[str, str]) -> dict[str, Any]:
    text = options.get(TAKEN_BACK_OPTION)
    if text is None:
        return {}
    try:
        note = json.loads(text)
        return {"to": str(note["to"]), "streams": {n: list(t) for n, t in note["streams"].items()}}
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        raise CorruptDataError(
            "the note on a table that was taken back cannot be read",
            hint=_HINT,
            option=TAKEN_BACK_OPTION,
            value=text,
        ) from error
