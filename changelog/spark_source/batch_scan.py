# SPDX-License-Identifier: Apache-2.0
"""Batch reads in splits for workers: of rows, of changes, of system tables.

`FileStoreTable.to_arrow` and `system_table` with planning separated from reading. Independent of
Spark.
"""

import dataclasses
import functools
from collections.abc import Callable, Iterator, Sequence

import pyarrow as pa

from changelog.follow import require_whole_changes
from changelog.stream_scan import row_kind_schema, with_row_kinds
from storage.catalog.catalog import Catalog
from storage.catalog.system_tables import catalog_system_table
from storage.errors import NotFoundError, UnsupportedFeatureError
from storage.table.format_table import FormatTable
from storage.table.inspect.system.registry import SYSTEM_TABLES, system_table
from storage.table.inspect.system.row_tables import (
    audit_log_batch,
    audit_log_schema,
    binlog_batches,
    binlog_schema,
    read_optimized_scan,
    refuse_streaming_read_optimized,
    shows_sequence_numbers,
)
from storage.table.read.read import TableRead, additions
from storage.table.scan.format_files import FormatSplit
from storage.table.scan.predicate import (
    And,
    Predicate,
    both,
    columns_of,
    conjuncts,
    mask,
    require_known,
)
from storage.table.scan.row_scan import ArrowScan, RowScan
from storage.table.scan.scan import ChangeSplit, Split, TableScan
from storage.table.scan.time_travel import travel_of
from storage.table.table import FileStoreTable

# Rows and changes with their kinds: `$audit_log`, `$binlog`, and reads that ask for `_row_kind`.
#
# Conditions on columns of the table are pushed down to the files; others are applied to the output
# rows. Independent of Spark. Data plane: no Python object per row.


_SCHEMAS = {"audit_log": audit_log_schema, "binlog": binlog_schema}


def is_view(name: str) -> bool:
    """Whether a system table is a view of the rows of its table."""
    return name in _SCHEMAS


def selected(schema: pa.Schema, columns: Sequence[str] | None) -> pa.Schema:
    """The projection of a schema; None: all columns.

    Raises:
        InvalidRequestError: there is no such column.
    """
    if columns is None:
        return schema
    require_known(columns, schema.names)
    return pa.schema([schema.field(name) for name in columns])


def streamed_table(table: FileStoreTable) -> FileStoreTable:
    """The table that a stream reads: its start position does not choose the schema."""
    return table if travel_of(table.schema.options).to_newest else table.latest()


class RowView(ArrowScan):
    """A view of rows or changes of a table; an `ArrowScan`. Picklable.

    Args:
        table: with its scan options.
        view: `audit_log`, which includes the retracted keys of a state, or `binlog`; None: the rows
            themselves, those of a state as +I.
        columns: projection, in order; None: all.
        predicate: row filter; None: all. It may match only one half of an update.
        kinds: whether the rows themselves have `_row_kind`; without, only added rows are returned.

    Raises:
        InvalidRequestError: a column is unknown.
    """

    _retractions = True
    """Whether the view of a state includes retracted keys."""

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
        schema = self._full_schema()
        require_known(columns_of(predicate), schema.names)
        self._schema = selected(schema, columns)
        self._predicate = predicate

    @property
    def schema(self) -> pa.Schema:
        """The projected columns, as `storage` types."""
        return self._schema

    def pushed_down(self, predicate: Predicate | None = None) -> Predicate | None:
        """The predicate pushed down to files and rows; the rest is applied to the output rows."""
        if self._view == "binlog":
            return None  # a pair is one row, whose columns are lists
        columns = set(self.table.schema.field_names)
        parts = conjuncts(both(self._predicate, predicate))
        pushed = tuple(part for part in parts if columns_of(part) <= columns)
        return And(pushed) if pushed else None

    def plan(self, predicate: Predicate | None = None) -> Sequence[Split | ChangeSplit]:
        """See `ArrowScan`."""
        return TableScan(self.table).with_filter(self.pushed_down(predicate)).splits()

    def read(
        self, split: Split | ChangeSplit, predicate: Predicate | None = None
    ) -> Iterator[pa.RecordBatch]:
        """See `ArrowScan`."""
        condition = both(self._predicate, predicate)
        for batch in self._visible_rows(split, predicate):
            rows = batch if condition is None else batch.filter(mask(condition, batch))
            if rows.num_rows:
                yield rows.select(self._schema.names)

    def _full_schema(self) -> pa.Schema:
        if self._view is not None:
            return _SCHEMAS[self._view](self.table)
        schema = TableRead(self.table, kinds=True, sequence_numbers=self._numbered).schema
        return row_kind_schema(schema) if self._kinds else schema.remove(0)

    def _visible_rows(
        self, split: Split | ChangeSplit, predicate: Predicate | None
    ) -> Iterator[pa.RecordBatch]:
        table, pushed = self.table, self.pushed_down(predicate)
        if self._view is not None:
            retractions = self._retractions
            read = TableRead(table, None, pushed, sequence_numbers=True, retractions=retractions)
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
            read = TableRead(table, columns, pushed, kinds=True, sequence_numbers=numbered)
            return map(with_row_kinds, read.to_batches(split))
        batches = TableRead(table, columns, pushed, sequence_numbers=numbered).to_batches(split)
        return map(additions, batches) if numbered else batches


class StreamView(RowView):
    """The view of a table in a stream: a state has no retracted keys.

    Args:
        table: of `streamed_table`.
        system: name of a system table; None: the table itself.
        columns: projection, in order; None: all.
        predicate: row filter; None: all. It may match only one half of an update.
        kinds: whether rows have `_row_kind`; without, only added rows are returned. None: not set.

    Raises:
        UnsupportedFeatureError: this cannot be streamed, or only with `kinds` set; or the table
            merges rows and has no changelog producer.
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
                "a stream of a primary key table needs row kinds",
                hint='.option("read.changelog", "true") adds the column `_row_kind`; "false" emits '
                "only new rows, not those that they replace",
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
        "this system table cannot be read as a stream",
        hint="read it as a batch; `audit_log` and `binlog` can be streamed",
        name=system,
        table=table.layout.root,
    )


@dataclasses.dataclass(frozen=True, slots=True)
class MetadataSplit:
    """All rows of a system table computed from metadata."""


ScanSplit = Split | ChangeSplit | FormatSplit | MetadataSplit


@dataclasses.dataclass(frozen=True, slots=True)
class ScanCounts:
    """Size of a plan.

    Attributes:
        splits: independent of each other.
        partitions: partitions of the table.
        files: data and changelog files.
        bytes: their size.
    """

    splits: int
    partitions: int
    files: int
    bytes: int


def counts_of(splits: Sequence[ScanSplit]) -> ScanCounts:
    """The counts of splits."""
    format_splits = [split for split in splits if isinstance(split, FormatSplit)]
    if format_splits:
        return ScanCounts(
            splits=len(format_splits),
            partitions=len({split.path.rpartition("/")[0] for split in format_splits}),
            files=len(format_splits),
            bytes=sum(split.size for split in format_splits),
        )
    file_splits = [split for split in splits if isinstance(split, Split | ChangeSplit)]
    files = [
        file
        for split in file_splits
        for file in (split.files if isinstance(split, Split) else (*split.before, *split.files))
    ]
    return ScanCounts(
        splits=len(splits),
        partitions=len({split.partition for split in file_splits}),
        files=len({file.file_name for file in files}),
        bytes=sum(file.file_size for file in files),
    )


def batch_scan(
    table: FileStoreTable | FormatTable,
    system: str | None = None,
    columns: Sequence[str] | None = None,
    predicate: Predicate | None = None,
    *,
    kinds: bool = False,
) -> ArrowScan:
    """A read of a table or of one of its system tables.

    Args:
        table: with its scan options.
        system: name of a system table; None: the rows.
        columns: projection, in order; None: all.
        predicate: row filter; None: all.
        kinds: of the rows themselves, also return their kinds, and so the retracted rows.

    Raises:
        NotFoundError: there is no such system table.
        InvalidRequestError: a column is unknown.
        UnsupportedFeatureError: a read would return wrong rows; names the option.
    """
    if isinstance(table, FormatTable):
        if system is not None or kinds:
            raise UnsupportedFeatureError(
                "a format table has neither system tables nor row kinds",
                hint="read the table itself",
                table=table.location,
            )
        return table.scan(predicate, columns)
    name = None if system is None else system.lower()
    scan: ArrowScan
    if name is None and kinds:
        scan = RowView(table, None, columns, predicate)
    elif name is None or name == "ro":
        kind = ReadOptimizedScan if name == "ro" else RowScan
        scan = kind(table, columns, predicate)
    elif is_view(name):
        scan = RowView(table, name, columns, predicate)
    elif name in SYSTEM_TABLES:
        scan = MetadataScan(functools.partial(system_table, table, name), columns, predicate)
    else:
        raise NotFoundError(
            "there is no system table of this name",
            hint=f"there are {', '.join(SYSTEM_TABLES)}",
            name=system,
            table=table.layout.root,
        )
    return scan


def catalog_scan(
    catalog: Catalog,
    name: str,
    columns: Sequence[str] | None = None,
    predicate: Predicate | None = None,
) -> ArrowScan:
    """A read of a system table of a catalog.

    Args:
        name: without `sys.`.
        columns: projection, in order; None: all.
        predicate: row filter; None: all.

    Raises:
        NotFoundError: there is no such system table.
        InvalidRequestError: a column is unknown.
    """
    loader = functools.partial(catalog_system_table, catalog, name)
    return MetadataScan(loader, columns, predicate)


class ReadOptimizedScan(RowScan):
    """`$ro`: the files that need no merging."""

    _mixes = False

    def _scan(self, table: FileStoreTable) -> TableScan:
        return read_optimized_scan(table)


class MetadataScan(ArrowScan):
    """A system table computed from metadata, of a table or of a catalog: one split.

    Args:
        read_all: computes all its rows; picklable.
        columns: projection, in order; None: all.
        predicate: row filter; None: all.

    Raises:
        InvalidRequestError: a column is unknown.
    """

    def __init__(
        self,
        read_all: Callable[[], pa.Table],
        columns: Sequence[str] | None,
        predicate: Predicate | None,
    ) -> None:
        self._read_all = read_all
        schema = read_all().schema
        self._schema = selected(schema, columns)
        self._predicate = predicate
        require_known(columns_of(predicate), schema.names)

    @property
    def schema(self) -> pa.Schema:
        """The projected columns."""
        return self._schema

    def plan(self, predicate: Predicate | None = None) -> Sequence[MetadataSplit]:
        """See `ArrowScan`."""
        return [MetadataSplit()]

    def read(
        self, split: MetadataSplit, predicate: Predicate | None = None
    ) -> Iterator[pa.RecordBatch]:
        """See `ArrowScan`."""
        condition = both(self._predicate, predicate)
        for batch in self._read_all().combine_chunks().to_batches():
            rows = batch if condition is None else batch.filter(mask(condition, batch))
            yield rows.select(self._schema.names)
