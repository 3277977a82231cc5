# SPDX-License-Identifier: Apache-2.0
"""Tables that are parked: not written for now, while the stream's other tables are.

`<warehouse>/.lakeward/<stream>/parked.json`, replaced atomically at every change, is the only
source of truth. A parked table is not planned: tasks do not decode its events, and its own
committed offsets do not advance. To resume it the stream is rewound to where the table was parked
(`ingest.state.stream_position`, `docs/adr/ingest/0009`).

For a parked table the file holds all that a rewind needs:

* the source offsets of all partitions at the start of the first batch that the table misses;
  a partition that appears later is added with the offset at which it appeared;
* the topics in which tasks have seen events for the table since then.

It also holds what would be lost with the checkpoint while tables catch up: these tables
(`behind`), and the offsets below which all others are complete (`held`).
"""

import dataclasses
import threading
from collections.abc import Callable, Iterable, Mapping
from typing import Any, Literal

from ingest.config.stream_folder import stream_folder
from ingest.source.ranges import OffsetJson, OffsetMap, normalize
from ingest.state.state_file import StateFile
from storage.errors import InvalidRequestError
from storage.io.file_io import FileIO


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Pause:
    """Why a stream is paused.

    Attributes:
        reason: for people.
        since_ms: since when [epoch ms].
    """

    reason: str
    since_ms: int


class Pausing:
    """Whether a person paused the whole stream: then it reads nothing, even after restarts.

    `<warehouse>/.lakeward/<stream>/paused.json` exists while it is paused. The daemon keeps
    running: it answers requests and maintains tables. A batch that is planned already is finished.
    Changes are durable when the call returns.
    """

    def __init__(self, file_io: FileIO, warehouse: str, stream: str) -> None:
        self._file = StateFile(
            file_io,
            f"{stream_folder(warehouse, stream)}/paused.json",
            Pause,
            title="the note that the stream is paused",
            hint="remove it and the stream continues",
        )
        self._pause: Pause | None = None

    @property
    def pause(self) -> Pause | None:
        """Why the stream is paused; None = it is not."""
        return self._pause

    def load(self) -> Pause | None:
        """Read the file.

        Raises:
            CorruptDataError: it is damaged.
            StateFormatError: it is of a later version.
        """
        self._pause = self._file.read()
        return self._pause

    def set(self, reason: str, *, now_ms: int) -> bool:
        """Pause; False if it was paused already: then nothing changes."""
        if self._pause is not None:
            return False
        pause = Pause(reason=reason, since_ms=now_ms)
        self._file.write(pause)
        self._pause = pause
        return True

    def clear(self) -> bool:
        """Resume; False if it was not paused."""
        if self._pause is None:
            return False
        self._file.delete()
        self._pause = None
        return True


By = Literal["person", "stream"]
"""Who parked a table: a command, or the stream itself because of an error."""


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class ParkedTable:
    """Why a table is parked, and from where it is to be read again.

    Attributes:
        reason: for people.
        by: a person or the stream.
        parked_ms: when [epoch ms].
        since: next offset to read of every partition, in the source's own form.
        topics: topics that fed the table since.
    """

    reason: str
    by: By
    parked_ms: int
    since: Mapping[str, Any]
    topics: tuple[str, ...] = ()


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class _Content:
    parked: Mapping[str, ParkedTable] = dataclasses.field(default_factory=dict)
    behind: tuple[str, ...] = ()
    held: Mapping[str, Mapping[str, int]] = dataclasses.field(default_factory=dict)


class Parking:
    """The file and its content. Thread-safe; every change is durable when the call returns.

    Attributes:
        guard: called before each change; raises when another process owns the stream.
    """

    def __init__(self, file_io: FileIO, warehouse: str, stream: str) -> None:
        self._file = StateFile(
            file_io,
            f"{stream_folder(warehouse, stream)}/parked.json",
            _Content,
            title="the list of parked tables",
            hint="restore it; without it parked tables would resume without the rows they missed",
        )
        self._lock = threading.Lock()
        self._content = _Content()
        self.guard: Callable[[], None] = lambda: None

    def load(self) -> None:
        """Read the file; a missing one counts as empty.

        Raises:
            CorruptDataError: it is damaged.
            StateFormatError: it is of a later version.
        """
        content = self._file.read() or _Content()
        with self._lock:
            self._content = content

    def parked(self) -> Mapping[str, ParkedTable]:
        """The parked tables by `database.table`."""
        return self._content.parked

    @property
    def catching_up(self) -> tuple[str, ...]:
        """Resumed tables that have not caught up yet, sorted."""
        return self._content.behind

    @property
    def common_floor(self) -> Mapping[str, Mapping[str, int]]:
        """Offsets below which every table that is neither parked nor catching up has everything."""
        return self._content.held

    def require(self, tables: Iterable[str]) -> dict[str, ParkedTable]:
        """Entries of parked tables.

        Raises:
            InvalidRequestError: one is not parked.
        """
        parked = self._content.parked
        for name in tables:
            if name not in parked:
                raise InvalidRequestError(
                    "the table is not parked",
                    hint="`lakeward status` shows the parked tables",
                    table=name,
                )
        return {name: parked[name] for name in tables}

    def park(
        self,
        table: str,
        *,
        reason: str,
        by: By,
        since: Mapping[str, Any],
        now_ms: int,
        topics: Iterable[str] = (),
    ) -> bool:
        """Park a table.

        Args:
            table: `database.table`; it need not exist.
            reason: for people.
            by: a person or the stream.
            since: source offsets of all partitions at the start of the first batch that the table
                misses, in the source's own form.
            now_ms: time [epoch ms].
            topics: topics that feed it in that batch.

        Returns:
            False if it was parked already: then nothing changes.
        """
        with self._lock:
            old = self._content
            if table in old.parked:
                return False
            entry = ParkedTable(
                reason=reason,
                by=by,
                parked_ms=now_ms,
                since=normalize(since),
                topics=tuple(sorted(set(topics))),
            )
            self._replace(
                parked={**old.parked, table: entry},
                behind=tuple(name for name in old.behind if name != table),
            )
            return True

    def met(self, feeds: Mapping[str, Iterable[str]], entered: OffsetJson) -> None:
        """Record what a batch reveals about parked tables; written only if it is new.

        Must be durable before the batch is recorded: these events are not read again otherwise.

        Args:
            feeds: table to topics that had events for it.
            entered: partitions that first appeared in this batch, with the offset there.
        """
        with self._lock:
            parked = {
                name: _with(entry, feeds.get(name, ()), entered)
                for name, entry in self._content.parked.items()
            }
            if parked != self._content.parked:
                self._replace(parked=parked)

    def resume(
        self, tables: Iterable[str], held_offsets: Mapping[str, Mapping[str, int]]
    ) -> dict[str, ParkedTable]:
        """Resume tables after the stream was rewound for them.

        Args:
            tables: all parked.
            held_offsets: offsets below which every other table has everything; empty = the tables
                have nothing to catch up on.

        Raises:
            InvalidRequestError: one is not parked.
        """
        with self._lock:
            old, entries = self._content, self.require(tables)
            catching_up = {*old.behind, *entries} if held_offsets else set(old.behind)
            self._replace(
                parked={name: entry for name, entry in old.parked.items() if name not in entries},
                behind=tuple(sorted(catching_up)),
                held=higher(old.held, held_offsets),
            )
            return entries

    def caught_up(self) -> None:
        """All tables have caught up."""
        with self._lock:
            if self._content.behind or self._content.held:
                self._replace(behind=(), held={})

    def _replace(self, **changes: Any) -> None:
        self.guard()
        content = dataclasses.replace(self._content, **changes)
        self._file.write(content)
        self._content = content


def higher(
    first: Mapping[str, Mapping[str, int]], second: Mapping[str, Mapping[str, int]]
) -> OffsetMap:
    """The larger offset of every partition that either names."""
    result = {topic: dict(parts) for topic, parts in first.items()}
    for topic, parts in second.items():
        target = result.setdefault(topic, {})
        for partition, offset in parts.items():
            target[partition] = max(offset, target.get(partition, offset))
    return result


def _with(entry: ParkedTable, topics: Iterable[str], entered: OffsetJson) -> ParkedTable:
    since = {topic: dict(parts) for topic, parts in entry.since.items()}
    for topic, parts in entered.items():
        target = since.setdefault(topic, {})
        for key, value in parts.items():
            target.setdefault(key, value)
    return dataclasses.replace(
        entry,
        topics=tuple(sorted({*entry.topics, *topics})),
        since=normalize(since),
    )
