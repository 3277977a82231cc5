# SPDX-License-Identifier: Apache-2.0
"""The rows of a table that columns, a filter and a state choose: one object for all who read.

What options ask for is read: a state (SEMANTICS.md §C.8), the changes between two (§C.9), or a
branch whose missing partitions come from another (§F.10). Speaks Arrow's stream interface, so
DuckDB, Polars, pandas and others take it as it is.
"""

import functools
import os
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, ClassVar

import pyarrow as pa

from storage.format.metadata.snapshot import Snapshot
from storage.format.types.types import VALUE_KIND
from storage.table.read.change_read import ChangeRead, additions
from storage.table.read.read import TableRead
from storage.table.read.read_ahead import read_ahead
from storage.table.scan.change_plan import ChangeSplit
from storage.table.scan.fallback import FALLBACK_BRANCH, fallback_plan, no_travel_with_fallback
from storage.table.scan.incremental import incremental_splits, is_incremental
from storage.table.scan.predicate import Predicate, both
from storage.table.scan.scan import Split, TableScan
from storage.table.scan.time_travel import TimeTravel

if TYPE_CHECKING:
    from storage.table.table import FileStoreTable

__all__ = ["Piece", "RowScan"]

_MAX_THREADS = 8
"""Splits read at once: more than the cores of a small executor only fight for memory."""

Piece = tuple[int, Split | ChangeSplit | None]
"""What can be read apart: the number of a reader, and a split for it; None: something else."""


class RowScan:
    """Rows that were chosen and not read yet. Picklable, safe for several threads.

    Nothing is read before it is asked for. The state is then chosen, and stays the same for all
    that this object gives; `plan` chooses anew.

    Args:
        table: with the options that choose what is read.
        columns: in the order wanted; None = all.
        predicate: rows wanted; None = all.
        travel: the state wanted; the newest = what the table's options choose.

    Raises:
        NotFoundError: there is no such snapshot (any more), or tag.
        InvalidRequestError: a column is unknown, or snapshots are chosen in two ways.
        UnsupportedFeatureError: reading would return wrong rows; names the option.
    """

    _mixes: ClassVar[bool] = True
    """Whether options may choose changes, or partitions of another branch."""

    def __init__(
        self,
        table: "FileStoreTable",
        columns: Sequence[str] | None = None,
        predicate: Predicate | None = None,
        *,
        travel: TimeTravel | None = None,
    ) -> None:
        self._snapshot: Snapshot | None = None
        self._changes = False
        fallback = self._mixes and FALLBACK_BRANCH in table.schema.options
        if travel is not None and not travel.to_newest:
            if fallback:
                raise no_travel_with_fallback()
            self._snapshot = travel.resolve(table)
        else:
            self._changes = self._mixes and is_incremental(table)
        self._tables: tuple[FileStoreTable, ...] = (table,)
        if self._snapshot is not None:
            self._tables = (table.with_schema(self._snapshot.schema_id),)
        elif fallback and not self._changes:
            self._tables = table.with_fallback()
        self._columns = tuple(self._tables[0].schema.field_names if columns is None else columns)
        self._predicate = predicate
        self._planned: Sequence[Piece] | None = None
        self._reader(0, None)  # refuses what cannot be read before anything is

    @property
    def schema(self) -> pa.Schema:
        """Arrow schema of the rows: the columns wanted, in the order wanted."""
        whole = self._tables[0].schema.arrow_schema
        return pa.schema([whole.field(name) for name in self._columns])

    def plan(self, predicate: Predicate | None = None) -> Sequence[Piece]:
        """Choose the state, and cut what may hold wanted rows into pieces.

        Args:
            predicate: besides that of the scan.

        Raises:
            NotFoundError: a snapshot expired meanwhile.
            CorruptDataError: metadata is damaged.
        """
        wanted = both(self._predicate, predicate)
        table = self._tables[0]
        if self._changes:
            return [(0, split) for split in incremental_splits(table, wanted)]
        if len(self._tables) > 1:
            return fallback_plan(table, self._tables[1], wanted)
        plan = self._scan(table).with_filter(wanted).plan(self._snapshot)
        return [(0, split) for split in plan.splits]

    def _scan(self, table: "FileStoreTable") -> TableScan:
        return TableScan(table)

    def read(self, piece: Piece, predicate: Predicate | None = None) -> Iterator[pa.RecordBatch]:
        """The rows of a piece.

        Yields:
            Non-empty batches of `schema`; a state of a primary-key table ascending by key.

        Raises:
            CorruptDataError: a file violates the format, or is missing of the newest snapshot.
            NotFoundError: a file is missing, because the snapshot has expired.
            FileNotFoundError: a file of an older snapshot is missing.
        """
        number, split = piece
        reader = self._reader(number, predicate)
        if isinstance(reader, TableRead) and isinstance(split, Split):
            schema = self.schema
            for batch in reader.to_batches(split):
                yield batch if number == 0 else batch.cast(schema)
        elif isinstance(reader, ChangeRead) and isinstance(split, ChangeSplit):
            for batch in map(additions, reader.to_batches(split)):
                if batch.num_rows:
                    yield batch.drop_columns([VALUE_KIND])

    def to_batches(self) -> Iterator[pa.RecordBatch]:
        """The rows, piece by piece, the next pieces read ahead; memory is bounded.

        Yields and raises: as `read`.
        """
        if self._planned is None:
            self._planned = self.plan()
        pieces = self._planned
        threads = min(len(pieces), _MAX_THREADS, os.cpu_count() or 1)
        return read_ahead([functools.partial(self.read, each) for each in pieces], threads=threads)

    def to_reader(self) -> pa.RecordBatchReader:
        """The same as Arrow's reader of batches."""
        return pa.RecordBatchReader.from_batches(self.schema, self.to_batches())

    def to_arrow(self) -> pa.Table:
        """The rows, all at once."""
        return pa.Table.from_batches(self.to_batches(), schema=self.schema)

    def __arrow_c_stream__(self, requested_schema: object = None) -> object:
        """Arrow's PyCapsule stream interface."""
        return self.to_reader().__arrow_c_stream__(requested_schema)

    def _reader(self, number: int, predicate: Predicate | None) -> TableRead | ChangeRead:
        wanted = both(self._predicate, predicate)
        if self._changes:
            return ChangeRead(self._tables[number], self._columns, wanted)
        return TableRead(self._tables[number], self._columns, wanted)
