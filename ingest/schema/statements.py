# SPDX-License-Identifier: Apache-2.0
"""Selects the statements of the source's DDL that a table's next decision must consider.

Those of the batch, and those that the driver finds ahead of it in the schema change topic
(`DdlLog`). Which statements were applied to a table is kept in its options. If none ever was (a
table created by hand, or before there was a topic), only statements from now on count: rows have
long shown the effects of older ones.
"""

import dataclasses
import logging
from collections.abc import Iterable, Mapping, Sequence

from ingest.config.settings import Settings
from ingest.config.source_settings import SourceSettings
from ingest.decode.columns import ColumnNames
from ingest.decode.decoders import json_values
from ingest.decode.events import SchemaDelta, SourceTable
from ingest.decode.schema_change_events import JsonValue, TableDdl, plain_value, schema_changes
from ingest.source.open import TopicTail
from storage.clock import Clock

_LOG = logging.getLogger(__name__)

_PATIENCE_S = 10.0
"""How long a statement may come after the first row of its shape [s]: connectors send it first, to
another partition, so milliseconds."""

_SHORT_PATIENCE_S = 1.0
"""The same for columns that the source table had before [s]: most likely the rows are old."""


class DdlLog:
    """The source's DDL as the driver knows it: the whole schema change topic, read to its end.

    The topic is one of the stream's, so every statement is part of some batch. But row events in
    other topics may overtake it, or a table may be created batches later; so the driver reads the
    topic before it decides (ADR 0011). The topic is small: a message per statement. Not
    thread-safe.
    """

    def __init__(
        self, source: SourceSettings, topic: str, clock: Clock, value: JsonValue = plain_value
    ) -> None:
        self.topic = topic
        # read when a decision is due
        self._tail = TopicTail(source, topic, clock, whole=True, interval_s=0.1)
        self._clock = clock
        self._value = value
        self._read_once = False
        self._events: dict[SourceTable, dict[tuple[str, int, int], TableDdl]] = {}
        self._backlog_ends: dict[tuple[str, int], int] = {}
        self._last_offsets: dict[tuple[str, int], int] = {}

    def read(self) -> None:
        """Read new statements of the topic.

        Raises:
            RetryableError: the source does not answer.
        """
        for raw in self._tail.read():
            self.take(schema_changes(raw, self._value))
        if not self._read_once:
            self._read_once = True
            self._backlog_ends = {
                position: offset + 1 for position, offset in self._last_offsets.items()
            }

    def close(self) -> None:
        """Release the client."""
        self._tail.close()

    def take(self, events: Iterable[TableDdl]) -> None:
        """Add statements from elsewhere; they may be known."""
        for event in events:
            position = (event.topic, event.partition, event.offset)
            self._events.setdefault(event.source, {})[position] = event
            self._last_offsets[position[:2]] = max(
                event.offset, self._last_offsets.get(position[:2], 0)
            )

    def began_at(self, position: tuple[str, int]) -> int:
        """The offset at which a topic and partition ended when it was read first."""
        return self._backlog_ends.get(position, 0)

    def of(self, source: SourceTable) -> list[TableDdl]:
        """Statements about a source table since it was created last, in their order."""
        statements: list[TableDdl] = []
        for _, event in sorted(self._events.get(source, {}).items()):
            if event.type != "ALTER":
                statements.clear()
            statements.append(event)
        return statements

    def await_columns(self, deltas: Sequence[SchemaDelta]) -> None:
        """Wait a limited time for the statements that created columns of row events.

        A new column may be a renamed one, whose statement has not arrived yet. There is no wait if
        the topic has no statement on the source table at all.

        Args:
            deltas: of tables that exist.
        """
        self.read()
        has_names = all(self._named_before(delta) for delta in deltas)
        until = self._clock.monotonic_s() + (_SHORT_PATIENCE_S if has_names else _PATIENCE_S)
        while missing := [delta for delta in deltas if not self._explains(delta)]:
            if self._clock.monotonic_s() >= until:
                for delta in missing:
                    _LOG.warning(
                        "the schema change topic has no statement for a new column",
                        extra={"table": delta.target, "source": delta.source.address},
                    )
                return
            self._clock.sleep(0.5)
            self.read()

    def _explains(self, delta: SchemaDelta) -> bool:
        """Whether the latest columns of the source table include those of the shape."""
        events = [event for event in self.of(delta.source) if event.columns]
        return not events or all(field.name in events[-1].columns for field in delta.fields)

    def _named_before(self, delta: SchemaDelta) -> bool:
        columns = {name for event in self.of(delta.source) for name in event.columns}
        return all(field.name in columns for field in delta.fields)


class Statements:
    """Selects the statements that a table's next decision must know.

    Args:
        log: the schema change topic; None = there is none.
    """

    def __init__(self, log: DdlLog | None) -> None:
        self._log = log
        self._since: dict[tuple[str, int], int] = {}

    @staticmethod
    def of(settings: Settings, clock: Clock) -> "Statements":
        """Of a pipeline."""
        topic = settings.events.schema_change_topic
        if topic is None:
            return Statements(None)
        return Statements(DdlLog(settings.source, topic, clock, json_values(settings)))

    @staticmethod
    def differ(old: Settings, new: Settings) -> bool:
        """Whether statements come from elsewhere under other settings."""
        return _origin(old) != _origin(new)

    def close(self) -> None:
        """Release the topic."""
        if self._log is not None:
            self._log.close()

    def about(
        self,
        deltas: Sequence[SchemaDelta],
        streamed: Sequence[TableDdl],
        tables: Mapping[str, Mapping[str, str]],
    ) -> dict[str, Sequence[TableDdl]]:
        """Statements by target, in their order.

        Args:
            deltas: of the batch; the driver waits a while for statements that explain them.
            streamed: statements of the batch.
            tables: options of the tables that exist.
        """
        if self._log is None:
            return {}
        for event in streamed:
            position = (event.topic, event.partition)
            self._since[position] = min(event.offset, self._since.get(position, event.offset))
        self._log.take(streamed)
        if deltas:
            self._log.await_columns([delta for delta in deltas if delta.target in tables])
        elif streamed:
            self._log.read()
        statements: dict[str, Sequence[TableDdl]] = {}
        for target in {delta.target for delta in deltas} | {event.target for event in streamed}:
            owners = {d.source: d.owner for d in deltas if d.target == target}
            owners |= {e.source: e.owner for e in streamed if e.target == target}
            events = [event for source in owners for event in self._log.of(source)]
            statements[target] = [
                dataclasses.replace(event, target=target, owner=owners[event.source])
                for event in sorted(events, key=_position)
                if self._counts(event, tables.get(target))
            ]
        return statements

    def _counts(self, event: TableDdl, options: Mapping[str, str] | None) -> bool:
        if options is None or event.source.address in ColumnNames.of(options).applied_ddl:
            return True
        position = (event.topic, event.partition)
        if position not in self._since and self._log is not None:
            self._since[position] = self._log.began_at(position)
        return event.offset >= self._since[position]


def _origin(settings: Settings) -> tuple[object, ...]:
    return settings.events.schema_change_topic, settings.source, settings.avro


def _position(event: TableDdl) -> tuple[str, int, int, str]:
    """Where a statement is in the topic; one statement may be about several tables."""
    return event.topic, event.partition, event.offset, event.source.address
