# SPDX-License-Identifier: Apache-2.0
"""Which statements of the source's DDL a table's next decision has to know.

Those of the batch, and those that the driver finds ahead of it in the schema change topic
(`ddl_log`). What a table has heard is kept in its options. Of statements about a table that never
heard one (made by hand, or before there was a topic) only those count that come from now on: what
an older one says was seen in rows long ago.
"""

import dataclasses
from collections.abc import Mapping, Sequence

from ingest.config.settings import Settings
from ingest.decode.column_names import ColumnNames
from ingest.decode.decoders import json_values
from ingest.decode.events import SchemaDelta
from ingest.decode.schema_change_events import TableDdl
from ingest.schema.ddl_log import DdlLog
from storage.clock import Clock

__all__ = ["Statements"]


class Statements:
    """See the module.

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
            place = (event.topic, event.partition)
            self._since[place] = min(event.offset, self._since.get(place, event.offset))
        self._log.take(streamed)
        if deltas:
            self._log.await_columns([delta for delta in deltas if delta.target in tables])
        elif streamed:
            self._log.read()
        found: dict[str, Sequence[TableDdl]] = {}
        for target in {delta.target for delta in deltas} | {event.target for event in streamed}:
            owners = {d.source: d.owner for d in deltas if d.target == target}
            owners |= {e.source: e.owner for e in streamed if e.target == target}
            events = [event for source in owners for event in self._log.of(source)]
            found[target] = [
                dataclasses.replace(event, target=target, owner=owners[event.source])
                for event in sorted(events, key=_place)
                if self._counts(event, tables.get(target))
            ]
        return found

    def _counts(self, event: TableDdl, options: Mapping[str, str] | None) -> bool:
        if options is None or event.source.address in ColumnNames.of(options).heard:
            return True
        place = (event.topic, event.partition)
        if place not in self._since and self._log is not None:
            self._since[place] = self._log.began_at(place)
        return event.offset >= self._since[place]


def _origin(settings: Settings) -> tuple[object, ...]:
    return settings.events.schema_change_topic, settings.source, settings.avro


def _place(event: TableDdl) -> tuple[str, int, int, str]:
    """Where a statement stands; one statement may be about several tables."""
    return event.topic, event.partition, event.offset, event.source.address
