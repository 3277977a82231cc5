# SPDX-License-Identifier: Apache-2.0
"""What every scan of rows offers besides its plan: batches, a reader, a table, Arrow's stream.

Speaks Arrow's stream interface, so DuckDB, Polars, pandas and others take a scan as it is.
"""

import abc
import functools
from collections.abc import Iterator, Sequence
from typing import Any

import pyarrow as pa

from storage.table.read.read import read_ahead
from storage.table.scan.predicate import Predicate


class ArrowScan(abc.ABC):
    """Rows that were chosen and not read yet. Derived classes plan splits and read one."""

    _planned: Sequence[Any] | None = None

    @property
    @abc.abstractmethod
    def schema(self) -> pa.Schema:
        """Arrow schema of the rows: the columns wanted, in the order wanted."""

    @abc.abstractmethod
    def plan(self, predicate: Predicate | None = None) -> Sequence[Any]:
        """The splits that may hold wanted rows.

        Args:
            predicate: besides that of the scan.
        """

    @abc.abstractmethod
    def read(self, split: Any, predicate: Predicate | None = None) -> Iterator[pa.RecordBatch]:
        """The rows of a split: non-empty batches of `schema`."""

    def to_batches(self) -> Iterator[pa.RecordBatch]:
        """The rows, split by split, the next splits read ahead; memory is bounded.

        Yields and raises: as `read`.
        """
        return self._batches(waiting=4)

    def _batches(self, waiting: int) -> Iterator[pa.RecordBatch]:
        if self._planned is None:
            self._planned = self.plan()
        sources = [functools.partial(self.read, split) for split in self._planned]
        return read_ahead(sources, waiting=waiting)

    def to_reader(self) -> pa.RecordBatchReader:
        """The same as Arrow's reader of batches."""
        return pa.RecordBatchReader.from_batches(self.schema, self.to_batches())

    def to_arrow(self) -> pa.Table:
        """The rows, all at once."""
        return pa.Table.from_batches(self._batches(waiting=0), schema=self.schema)

    def __arrow_c_stream__(self, requested_schema: object = None) -> object:
        """Arrow's PyCapsule stream interface."""
        return self.to_reader().__arrow_c_stream__(requested_schema)
