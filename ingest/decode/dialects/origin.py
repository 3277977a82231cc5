# SPDX-License-Identifier: Apache-2.0
"""What events of the other formats know of a change besides its row.

The operation and the source table are what the dialect says of the event, so they are the same that
rows and routes go by; the rest stands in the messages where `Dialect.members` says.
"""

from collections.abc import Callable, Collection, Mapping, Sequence

import pyarrow as pa

from ingest.decode.json.envelopes import Dialect, Event
from ingest.decode.json.member_columns import MemberReader, metadata_column
from ingest.source.records import RawBatch

__all__ = ["DialectOrigins"]

_NAMED: Mapping[str, Callable[[Event], str | None]] = {
    "op": lambda event: event.images[0].op,
    "server": lambda event: event.source.server or None,
    "database": lambda event: event.source.database or None,
    "schema": lambda event: event.source.schema or None,
    "table": lambda event: event.source.table,
}


class DialectOrigins:
    """See the module; an `origin.OriginReader`.

    Args:
        dialect: of the format.
    """

    def __init__(self, dialect: Dialect) -> None:
        self._dialect = dialect
        self._readers: dict[tuple[str, ...], MemberReader] = {}

    def __call__(
        self, raw: RawBatch, places: Sequence[int], names: Collection[str]
    ) -> Mapping[str, pa.Array]:
        """See `origin.OriginReader`."""
        wanted = tuple(name for name in names if name not in _NAMED)
        if wanted not in self._readers:
            self._readers[wanted] = MemberReader(self._dialect.members, wanted)
        cut = self._dialect.metadata_text
        messages = [
            None if (value := raw.values[at]) is None else cut(raw.topic, value) for at in places
        ]
        found = self._readers[wanted].columns(messages)
        named = [name for name in names if name in _NAMED]
        if named:
            read = self._dialect.read
            events = [read(raw.topic, raw.keys[at], raw.values[at]) for at in places]
            for name in named:
                get = _NAMED[name]
                values = [get(event) if isinstance(event, Event) else None for event in events]
                found[name] = metadata_column(name, values)
        return found
