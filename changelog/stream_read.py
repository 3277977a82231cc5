# SPDX-License-Identifier: Apache-2.0
"""Reading the splits of a stream: of a whole state, or of the changes of a snapshot."""

from collections.abc import Iterator, Sequence

import numpy as np
import pyarrow as pa

from storage.format.types.types import SEQUENCE_NUMBER, RowKind
from storage.table.core import TableCore
from storage.table.read.change_read import ChangeRead, additions
from storage.table.read.read import TableRead
from storage.table.scan.change_plan import ChangeSplit
from storage.table.scan.predicate import Predicate
from storage.table.scan.scan import Split

__all__ = ["StreamRead"]


class StreamRead:
    """Reads splits of `StreamPlan`s. Picklable, safe for several threads.

    Args:
        table: the table; rows are given in its schema.
        columns: columns wanted, in the order wanted; None = all.
        predicate: rows wanted; None = all.
        sequence_numbers: of a table with a primary key, also give `_SEQUENCE_NUMBER`.

    Raises:
        InvalidRequestError: a column is unknown.
    """

    def __init__(
        self,
        table: TableCore,
        columns: Sequence[str] | None = None,
        predicate: Predicate | None = None,
        *,
        sequence_numbers: bool = False,
    ) -> None:
        self._changes = ChangeRead(table, columns, predicate, sequence_numbers=sequence_numbers)
        self._numbered = SEQUENCE_NUMBER in self._changes.schema.names[:2]
        self._state = TableRead(table, columns, predicate, kinds=self._numbered)

    @property
    def schema(self) -> pa.Schema:
        """Arrow schema of the rows, see `ChangeRead.schema`."""
        return self._changes.schema

    def to_batches(self, split: Split | ChangeSplit) -> Iterator[pa.RecordBatch]:
        """The rows of a split, all changes of a key in the order in which they happened.

        Yields:
            Non-empty batches of `schema`; of a whole state all of kind +I.

        Raises:
            CorruptDataError: a file violates the format, or is missing of the newest snapshot.
            NotFoundError: a file is missing, because the snapshot has expired.
            FileNotFoundError: a file of an older snapshot is missing.
        """
        if isinstance(split, ChangeSplit):
            yield from self._changes.to_batches(split)
            return
        for found in self._state.to_batches(split):
            batch = additions(found) if self._numbered else found
            columns = batch.columns
            if self._numbered:
                columns = [batch.column(SEQUENCE_NUMBER), *columns[:-2]]
            kinds = pa.array(np.full(batch.num_rows, RowKind.INSERT, dtype=np.int8))
            if batch.num_rows:
                yield pa.RecordBatch.from_arrays([kinds, *columns], schema=self.schema)
