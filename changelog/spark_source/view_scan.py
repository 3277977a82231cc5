# SPDX-License-Identifier: Apache-2.0
"""Rows and changes with their kinds: `$audit_log`, `$binlog`, and reads that ask for `_row_kind`.

A condition on columns of the table goes to the files; others wait for the rows as they are shown.
Data plane: no Python object per row.
"""

from collections.abc import Iterable, Iterator, Sequence

import pyarrow as pa

from changelog.row_kinds import told_batch, told_schema
from changelog.spark_source.pieces import Piece, check_columns, selected
from changelog.stream_read import StreamRead
from storage.table.inspect.system.row_tables import (
    audit_log_batch,
    audit_log_schema,
    binlog_batches,
    binlog_schema,
    shows_sequence_numbers,
)
from storage.table.read.change_read import ChangeRead
from storage.table.read.read import TableRead
from storage.table.scan.change_plan import ChangeSplit
from storage.table.scan.incremental import incremental_splits, is_incremental
from storage.table.scan.predicate import And, Predicate, both, columns_of, conjuncts, mask
from storage.table.scan.scan import Split, TableScan
from storage.table.table import FileStoreTable

__all__ = ["ChangeScan", "ViewScan", "is_view", "shown_batches", "view_schema"]

_SCHEMAS = {"audit_log": audit_log_schema, "binlog": binlog_schema}


def is_view(name: str) -> bool:
    """Whether a system table shows the rows of its table."""
    return name in _SCHEMAS


def view_schema(table: FileStoreTable, name: str) -> pa.Schema:
    """The Arrow schema of such a table."""
    return _SCHEMAS[name](table)


def shown_batches(
    table: FileStoreTable, name: str, changes: Iterable[pa.RecordBatch], *, pairs: bool
) -> Iterator[pa.RecordBatch]:
    """The rows of such a table.

    Args:
        table: the table.
        name: of the view.
        changes: columns of the table, with `_VALUE_KIND`, and `_SEQUENCE_NUMBER` if it has keys.
        pairs: whether a -U and the row after it are one row of `$binlog`.
    """
    if name == "binlog":
        yield from binlog_batches(table, changes, pairs=pairs)
        return
    for batch in changes:
        yield audit_log_batch(table, batch)


class ViewScan:
    """`$audit_log` and `$binlog`."""

    def __init__(
        self,
        table: FileStoreTable,
        name: str,
        columns: Sequence[str] | None,
        predicate: Predicate | None,
    ) -> None:
        whole = view_schema(table, name)
        check_columns(whole, predicate)
        self._table = table
        self._name = name
        self._schema = selected(whole, columns)
        self._predicate = predicate
        self._changes = is_incremental(table)

    @property
    def schema(self) -> pa.Schema:
        """The columns wanted."""
        return self._schema

    def plan(self, predicate: Predicate | None) -> Sequence[Piece]:
        """See `BatchScan`."""
        early = self._early(predicate)
        if self._changes:
            return [(0, split) for split in incremental_splits(self._table, early)]
        plan = TableScan(self._table).with_filter(early).plan()
        return [(0, split) for split in plan.splits]

    def read(self, piece: Piece, predicate: Predicate | None) -> Iterator[pa.RecordBatch]:
        """See `BatchScan`."""
        wanted, split = both(self._predicate, predicate), piece[1]
        if split is None:
            return
        for batch in self._shown(split, predicate):
            rows = batch if wanted is None else batch.filter(mask(wanted, batch))
            if rows.num_rows:
                yield rows.select(self._schema.names)

    def _shown(
        self, split: Split | ChangeSplit, predicate: Predicate | None
    ) -> Iterator[pa.RecordBatch]:
        early = self._early(predicate)
        if isinstance(split, ChangeSplit):
            found = ChangeRead(self._table, None, early, sequence_numbers=True).to_batches(split)
        else:
            found = TableRead(self._table, None, early, kinds=True).to_batches(split)
        return shown_batches(self._table, self._name, found, pairs=self._changes)

    def _early(self, predicate: Predicate | None) -> Predicate | None:
        """What may be asked of the rows before they are seen otherwise."""
        if self._name == "binlog":
            return None  # a pair is one row, whose columns are lists
        own = set(self._table.schema.field_names)
        parts = conjuncts(both(self._predicate, predicate))
        early = tuple(part for part in parts if columns_of(part) <= own)
        return And(early) if early else None


class ChangeScan(ViewScan):
    """Changes with `_row_kind`; the rows of a state are all +I."""

    def __init__(
        self,
        table: FileStoreTable,
        columns: Sequence[str] | None,
        predicate: Predicate | None,
    ) -> None:
        super().__init__(table, "audit_log", None, None)
        self._numbered = shows_sequence_numbers(table)
        whole = told_schema(StreamRead(table, sequence_numbers=self._numbered).schema)
        check_columns(whole, predicate)
        self._schema = selected(whole, columns)
        self._predicate = predicate

    def _shown(
        self, split: Split | ChangeSplit, predicate: Predicate | None
    ) -> Iterator[pa.RecordBatch]:
        wanted = both(self._predicate, predicate)
        needed = {*self._schema.names, *(() if wanted is None else columns_of(wanted))}
        columns = [name for name in self._table.schema.field_names if name in needed]
        reader = StreamRead(
            self._table, columns, self._early(predicate), sequence_numbers=self._numbered
        )
        yield from map(told_batch, reader.to_batches(split))
