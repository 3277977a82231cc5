# SPDX-License-Identifier: Apache-2.0
"""Up to which offset each table has everything: a replay may write below that, never above."""

from collections.abc import Mapping
from typing import Any

from ingest.source.ranges import OffsetMap, floor_of, resume_token
from ingest.state.table_registry import TableBook

__all__ = ["Bounds"]


class Bounds:
    """Ends of tables.

    A table may be ahead of the stream: a batch that was committed but not recorded is done again
    and skipped, and rows below floors are dropped. What a table holds of such records is newer than
    what the stream has reached, so a replay must know it.

    Args:
        reached: offsets below which all batches are done, in the source's own form.
        book: the stream's tables.
    """

    def __init__(self, reached: Mapping[str, Any], book: TableBook) -> None:
        self._reached = resume_token(reached)
        self._floors = book.floors()
        self._offsets: dict[str, OffsetMap] = {
            name: progress.offsets for name, progress in book.progresses().items()
        }

    def end(self, table: str, topic: str, partition: int) -> int:
        """First offset of a source partition that a table may still lack."""
        maps = (self._reached, floor_of(self._floors, table), self._offsets.get(table, {}))
        return max(each.get(topic, {}).get(str(partition), 0) for each in maps)

    def last(self, topic: str, partition: int) -> int:
        """The largest end of any table."""
        maps = (self._reached, *self._floors.values(), *self._offsets.values())
        return max(each.get(topic, {}).get(str(partition), 0) for each in maps)
