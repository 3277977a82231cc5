# SPDX-License-Identifier: Apache-2.0
"""Tables that were rolled back or fast-forwarded without their stream.

The snapshots that are removed hold rows, and the stream's offsets in the table. A stream that
continued from its own memory or checkpoint would never write these rows again. So

* a note in the table's options is written before the snapshots are removed. A daemon does not start
  while it exists; `lakeward run --recover-offsets` reads again what such tables lack, and removes
  it;
* a commit of a running daemon finds that the newest snapshot does not have the offsets that it
  committed last, and ends the daemon.
"""

import dataclasses
from collections.abc import Iterable, Mapping, Sequence
from types import MappingProxyType
from typing import Any

import msgspec

from ingest.source.ranges import OffsetJson, normalize
from ingest.state.stream_state import OFFSETS_PROPERTY, OffsetMap, stored_offsets
from storage.errors import CorruptDataError, FencedError, InvalidRequestError
from storage.format.metadata.schema_changes import RemoveOption, SetOption
from storage.format.metadata.snapshot import Snapshot
from storage.table.table import FileStoreTable

ROLLBACK_OPTION = "lakeward.taken-back"
"""Table option: what the table was rolled back to, and the topics of the streams that wrote it."""


@dataclasses.dataclass(frozen=True, slots=True)
class _Note:
    to: str
    streams: Mapping[str, tuple[str, ...]]


_HINT = "start the pipeline with `lakeward run --recover-offsets`: it reads again what is missing"


def streams_of(snapshot: Snapshot | None) -> list[str]:
    """The streams that write a table, by its newest snapshot."""
    properties = {} if snapshot is None else snapshot.properties or {}
    return sorted(
        key.removeprefix(OFFSETS_PROPERTY) for key in properties if key.startswith(OFFSETS_PROPERTY)
    )


def note_rollback(
    table: FileStoreTable,
    newest: Snapshot,
    target: str,
    more: Mapping[str, Iterable[str]] = MappingProxyType({}),
) -> FileStoreTable:
    """Note in a table's options that its newest snapshots are about to be removed.

    Args:
        table: at the branch that streams write.
        newest: its newest snapshot.
        target: what it is rolled back to, for people.
        more: further topics by stream, which the snapshot does not have.

    Returns:
        The table with the note.
    """
    streams = {name: set(stored_offsets(newest, name) or ()) for name in streams_of(newest)}
    earlier = _note_of(table.schema.options).streams  # of a rollback that is not recovered yet
    for name, topics in (*earlier.items(), *more.items()):
        streams.setdefault(name, set()).update(topics)
    sorted_topics = {name: tuple(sorted(streams[name])) for name in sorted(streams)}
    return table.alter([_option(_Note(target, sorted_topics))])


def forget_rollback(table: FileStoreTable, stream: str) -> None:
    """Remove a stream from the note: it has recovered the table's own offsets."""
    note = _note_of(table.schema.options)
    if stream not in note.streams:
        return
    streams = {name: topics for name, topics in note.streams.items() if name != stream}
    table.alter([_option(_Note(note.to, streams)) if streams else RemoveOption(ROLLBACK_OPTION)])


def rolled_back_topics(
    options: Mapping[str, Mapping[str, str]], stream: str
) -> dict[str, tuple[str, ...]]:
    """The tables that were rolled back since a stream wrote them, and the topics that fed them.

    Args:
        options: of all tables, by name.
        stream: the stream's name.

    Raises:
        CorruptDataError: a note cannot be read.
    """
    notes = {name: _note_of(options[name]).streams for name in sorted(options)}
    return {name: streams[stream] for name, streams in notes.items() if stream in streams}


def require_not_rolled_back(options: Mapping[str, Mapping[str, str]], stream: str) -> None:
    """Refuse to start a stream on tables that were rolled back.

    Raises:
        InvalidRequestError: one has the note.
        CorruptDataError: a note cannot be read.
    """
    for name in rolled_back_topics(options, stream):
        raise InvalidRequestError(
            f"the table was rolled back to {_note_of(options[name]).to} since the stream wrote it",
            detail="rows committed after that would be missing",
            hint=_HINT,
            table=name,
        )


def require_history(
    latest: Snapshot | None,
    table: FileStoreTable,
    name: str,
    stream: str,
    known_offsets: Sequence[OffsetMap],
) -> None:
    """Stop a commit to a table that was rolled back, and write the note if there is none.

    Args:
        latest: the newest snapshot.
        table: the table.
        name: `database.table`.
        stream: that commits.
        known_offsets: offsets that it may have: those of the last commit and of this one.

    Raises:
        FencedError: it has other offsets.
    """
    stored = None if latest is None else stored_offsets(latest, stream)
    # engines that do not carry properties from snapshot to snapshot may have made the newest one
    if latest is None or stored is None or stored in known_offsets:
        return
    if not _is_lower(stored, known_offsets[0]):
        raise FencedError(
            "another process committed to this table",
            detail=f"it has {stored}",
            hint="two daemons run one stream: stop one of them",
            table=name,
        )
    note_rollback(table.latest(), latest, f"snapshot {latest.id}", {stream: known_offsets[0]})
    raise FencedError(
        "the table was rolled back since the stream wrote it",
        detail=f"it has {stored}",
        hint=_HINT,
        table=name,
    )


def _is_lower(stored: OffsetMap, committed: OffsetMap) -> bool:
    """Whether a table's offsets are below those committed to it."""
    return any(
        stored.get(topic, {}).get(key, -1) < offset
        for topic, parts in committed.items()
        for key, offset in parts.items()
    )


def lowered(
    start: Mapping[str, Any], rolled_back: Iterable[tuple[Iterable[str], OffsetMap]]
) -> OffsetJson:
    """Where to start so that tables that were rolled back miss nothing. Pure.

    Args:
        start: start offsets of the other tables, in the source's own form or as stored.
        rolled_back: per rolled back table the topics that fed it, and the offsets that it has now.

    Returns:
        As stored; a partition that is left out is read from its beginning.
    """
    result = {topic: dict(entry) for topic, entry in start.items()}
    for topics, offsets in rolled_back:
        for topic in {*topics, *offsets} & result.keys():
            current, entry = offsets.get(topic, {}), result[topic]
            for key in [key for key in entry if key.isdecimal()]:
                if current.get(key, 0) >= entry[key]:
                    continue
                # members that are no partitions describe the former position
                entry = {name: value for name, value in entry.items() if name.isdecimal()}
                entry[key] = current.get(key)
            result[topic] = {key: value for key, value in entry.items() if value is not None}
            if not result[topic]:
                del result[topic]
    return normalize(result)


def _option(note: _Note) -> SetOption:
    return SetOption(ROLLBACK_OPTION, msgspec.json.encode(note).decode())


def _note_of(options: Mapping[str, str]) -> _Note:
    text = options.get(ROLLBACK_OPTION)
    if text is None:
        return _Note("", {})
    try:
        return msgspec.json.decode(text, type=_Note)
    except msgspec.DecodeError as error:
        raise CorruptDataError(
            "the rollback note of a table cannot be read",
            hint=_HINT,
            option=ROLLBACK_OPTION,
            value=text,
        ) from error
