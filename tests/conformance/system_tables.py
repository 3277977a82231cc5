# SPDX-License-Identifier: Apache-2.0
"""System tables for checks, and streams.

The readers are Lakeward's; here is only which of them a name and its options mean.
"""

from collections.abc import Iterator, Sequence
from typing import Any

import pyarrow as pa

from changelog.stream_scan import StreamScan
from storage.format.types.types import DataField
from storage.table.inspect.system.registry import system_table as whole_system_table
from storage.table.table import FileStoreTable
from tests.conformance.values import change_rows, found_rows

__all__ = ["Stream", "system_table"]


def system_table(table: FileStoreTable, name: str) -> pa.Table:
    """A system table by its name without `$`; of changes, where options ask for these.

    Args:
        table: with the options of the reader.
        name: of the system table.
    """
    return whole_system_table(table, name)


class Stream:
    """A streaming reader that stays open through a case.

    Args:
        table: with the options of the reader.
    """

    def __init__(self, table: FileStoreTable) -> None:
        self._fields: Sequence[DataField] = table.schema.fields
        self._scan = StreamScan(table)
        self._next = self._steps()

    def first_plan(self, unordered: Sequence[str] = ()) -> list[tuple[Any, ...]]:
        """Rows of the starting phase; none where the mode has none."""
        rows = self._scan.next_batch()
        if rows is None:
            return []
        if self._scan.last_starting:
            return found_rows(rows, self._fields, unordered)
        self._next = self._steps(rows)
        return []

    def delivered(self) -> list[list[tuple[Any, ...]]]:
        """Changes of every snapshot that has come since the last call."""
        found = list(self._next)
        self._next = self._steps()
        self._scan.notify_checkpoint_complete(self._scan.checkpoint())
        return found

    def _steps(self, first: pa.Table | None = None) -> Iterator[list[tuple[Any, ...]]]:
        rows = self._scan.next_batch() if first is None else first
        while rows is not None:
            yield change_rows(rows, self._fields)
            rows = self._scan.next_batch()
