# SPDX-License-Identifier: Apache-2.0
"""Rows and changes with their kinds: `$audit_log`, `$binlog`, and reads that ask for `_row_kind`.

A condition on columns of the table goes to the files; others wait for the rows as they are shown.
Knows nothing of Spark. Data plane: no Python object per row.
"""

from collections.abc import Iterator, Sequence

import pyarrow as pa

from changelog.row_kinds import row_kind_schema, with_row_kinds
from changelog.starting import require_whole_changes
from storage.errors import UnsupportedFeatureError
from storage.table.inspect.system.row_tables import (
    audit_log_batch,
    audit_log_schema,
    binlog_batches,
    binlog_schema,
    refuse_streaming_read_optimized,
    shows_sequence_numbers,
)
from storage.table.read.read import TableRead, additions
from storage.table.scan.arrow_scan import ArrowScan
from storage.table.scan.predicate import (
    And,
    Predicate,
    both,
    columns_of,
    conjuncts,
    mask,
    require_known,
)
from storage.table.scan.scan import ChangeSplit, Split, TableScan
from storage.table.scan.time_travel import travel_of
from storage.table.table import FileStoreTable

_SCHEMAS = {"audit_log": audit_log_schema, "binlog": binlog_schema}


def is_view(name: str) -> bool:
    """Whether a system table shows the rows of its table."""
    return name in _SCHEMAS


def selected(schema: pa.Schema, columns: Sequence[str] | None) -> pa.Schema:
    """Some columns, in the order wanted; None: all.

    Raises:
        InvalidRequestError: there is no such column.
    """
    if columns is None:
        return schema
    require_known(columns, schema.names)
    return pa.schema([schema.field(name) for name in columns])


def streamed_table(table: FileStoreTable) -> FileStoreTable:
    """The table a stream reads: where it begins does not choose the schema."""
    return table if travel_of(table.schema.options).to_newest else table.latest()


class RowView(ArrowScan):
    """A view of rows or changes of a table; an `ArrowScan`. Picklable.

    Args:
        table: with the options that choose what is read.
        view: `audit_log`, which shows a state with its retracted keys, or `binlog`; None: the rows
            themselves, those of a state as +I.
        columns: in the order wanted; None: all.
        predicate: rows wanted; None: all. Of an update only one half may be among them.
        kinds: whether the rows themselves have `_row_kind`; without, only added rows are shown.

    Raises:
        InvalidRequestError: a column is unknown.
    """

    _retractions = True
    """Whether the view of a state shows retracted keys."""

    def __init__(
        self,
        table: FileStoreTable,
        view: str | None = None,
        columns: Sequence[str] | None = None,
        predicate: Predicate | None = None,
        *,
        kinds: bool = True,
    ) -> None:
        self.table = table
        self._view = view
        self._kinds = kinds
        self._numbered = shows_sequence_numbers(table)
        whole = self._whole()
        require_known(columns_of(predicate), whole.names)
        self._schema = selected(whole, columns)
        self._predicate = predicate

    @property
    def schema(self) -> pa.Schema:
        """The columns wanted, in the form of `storage`."""
        return self._schema

    def early(self, predicate: Predicate | None = None) -> Predicate | None:
        """What files and rows are chosen by; the rest waits for the rows as they are shown."""
        if self._view == "binlog":
            return None  # a pair is one row, whose columns are lists
        own = set(self.table.schema.field_names)
        parts = conjuncts(both(self._predicate, predicate))
        early = tuple(part for part in parts if columns_of(part) <= own)
        return And(early) if early else None

    def plan(self, predicate: Predicate | None = None) -> Sequence[Split | ChangeSplit]:
        """See `ArrowScan`."""
        return TableScan(self.table).with_filter(self.early(predicate)).splits()

    def read(
        self, split: Split | ChangeSplit, predicate: Predicate | None = None
    ) -> Iterator[pa.RecordBatch]:
        """See `ArrowScan`."""
        wanted = both(self._predicate, predicate)
        for batch in self._shown(split, predicate):
            rows = batch if wanted is None else batch.filter(mask(wanted, batch))
            if rows.num_rows:
                yield rows.select(self._schema.names)

    def _whole(self) -> pa.Schema:
        if self._view is not None:
            return _SCHEMAS[self._view](self.table)
        schema = TableRead(self.table, kinds=True, sequence_numbers=self._numbered).schema
        return row_kind_schema(schema) if self._kinds else schema.remove(0)

    def _shown(
        self, split: Split | ChangeSplit, predicate: Predicate | None
    ) -> Iterator[pa.RecordBatch]:
        table, early = self.table, self.early(predicate)
        if self._view is not None:
            retractions = self._retractions
            read = TableRead(table, None, early, sequence_numbers=True, retractions=retractions)
            if self._view == "binlog":
                pairs = isinstance(split, ChangeSplit)
                return binlog_batches(table, read.to_batches(split), pairs=pairs)
            return (audit_log_batch(table, batch) for batch in read.to_batches(split))
        needed = set(self._schema.names)
        for part in conjuncts(both(self._predicate, predicate)):
            needed |= columns_of(part)
        columns = [name for name in table.schema.field_names if name in needed]
        numbered = self._numbered
        if self._kinds:
            read = TableRead(table, columns, early, kinds=True, sequence_numbers=numbered)
            return map(with_row_kinds, read.to_batches(split))
        batches = TableRead(table, columns, early, sequence_numbers=numbered).to_batches(split)
        return map(additions, batches) if numbered else batches


class StreamView(RowView):
    """The view of a table, as its stream shows it: a state has no retracted keys.

    Args:
        table: of `streamed_table`.
        system: name of a system table; None: the table itself.
        columns: wanted, in order; None: all.
        predicate: rows wanted; None: all. Of an update only one half may be among them.
        kinds: whether rows have `_row_kind`; without, only added rows are shown. None: not said.

    Raises:
        UnsupportedFeatureError: this cannot be followed, or not without saying whether kinds are
            wanted; or the table merges rows and has no changelog producer.
        InvalidRequestError: a column is unknown.
    """

    _retractions = False

    def __init__(
        self,
        table: FileStoreTable,
        system: str | None = None,
        columns: Sequence[str] | None = None,
        predicate: Predicate | None = None,
        *,
        kinds: bool | None = None,
    ) -> None:
        view = _followed(table, system)
        if kinds is None and table.schema.primary_keys and view is None:
            raise UnsupportedFeatureError(
                "a stream of a table with a primary key needs the kinds of its rows",
                hint='.option("read.changelog", "true") adds the column `_row_kind`; "false" shows '
                "only the rows that come, without those that they replace",
                table=table.layout.root,
            )
        if view is None:
            require_whole_changes(table)
        super().__init__(table, view, columns, predicate, kinds=bool(kinds))


def _followed(table: FileStoreTable, system: str | None) -> str | None:
    """The view that a system table is; None: the rows themselves."""
    name = None if system is None else system.lower()
    if name == "ro":
        refuse_streaming_read_optimized(table)
        return None
    if name is None or is_view(name):
        return name
    raise UnsupportedFeatureError(
        "this system table cannot be followed as a stream",
        hint="read it in batches; `audit_log` and `binlog` can be followed",
        name=system,
        table=table.layout.root,
    )
