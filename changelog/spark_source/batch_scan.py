# SPDX-License-Identifier: Apache-2.0
"""Batch reads in pieces that workers read: of rows, of changes, of system tables.

What `FileStoreTable.to_arrow` and `system_table` give in one, here with the plan apart from the
reading. Knows nothing of Spark.
"""

import functools
from collections.abc import Callable, Iterator, Sequence

import pyarrow as pa

from changelog.spark_source.pieces import (
    BatchScan,
    Piece,
    check_columns,
    joined,
    selected,
)
from changelog.spark_source.view_scan import ChangeScan, ViewScan, is_view
from storage.errors import NotFoundError
from storage.format.types import VALUE_KIND
from storage.table.catalog_api import Catalog
from storage.table.change_plan import ChangeSplit
from storage.table.change_read import ChangeRead, additions
from storage.table.fallback import FALLBACK_BRANCH, fallback_plan
from storage.table.incremental import incremental_splits, is_incremental
from storage.table.predicate import Predicate, mask
from storage.table.read import TableRead
from storage.table.scan import Split, TableScan
from storage.table.system.catalog_tables import catalog_system_table
from storage.table.system.registry import SYSTEM_TABLES, system_table
from storage.table.system.row_tables import read_optimized_scan
from storage.table.table import FileStoreTable

__all__ = ["batch_scan", "catalog_scan"]


def batch_scan(
    table: FileStoreTable,
    system: str | None = None,
    columns: Sequence[str] | None = None,
    predicate: Predicate | None = None,
    *,
    kinds: bool = False,
) -> BatchScan:
    """A read of a table or of one of its system tables.

    Args:
        table: with the options that choose what is read.
        system: name of a system table; None: the rows.
        columns: in the order wanted; None: all.
        predicate: rows wanted; None: all.
        kinds: of the rows themselves, also give their kinds, and so those that went.

    Raises:
        NotFoundError: there is no such system table.
        InvalidRequestError: a column is unknown.
        UnsupportedFeatureError: reading would return wrong rows; names the option.
    """
    name = None if system is None else system.lower()
    scan: BatchScan
    if name is None and kinds:
        scan = ChangeScan(table, columns, predicate)
    elif name is None or name == "ro":
        scan = RowScan(table, columns, predicate, read_optimized=name == "ro")
    elif is_view(name):
        scan = ViewScan(table, name, columns, predicate)
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
) -> BatchScan:
    """A read of a system table of a catalog.

    Args:
        catalog: the catalog.
        name: without `sys.`.
        columns: in the order wanted; None: all.
        predicate: rows wanted; None: all.

    Raises:
        NotFoundError: there is no such system table.
        InvalidRequestError: a column is unknown.
    """
    whole = functools.partial(catalog_system_table, catalog, name)
    return MetadataScan(whole, columns, predicate)


class RowScan:
    """The rows of a table: of a state, or those that changes brought; or its `$ro`."""

    def __init__(
        self,
        table: FileStoreTable,
        columns: Sequence[str] | None,
        predicate: Predicate | None,
        *,
        read_optimized: bool = False,
    ) -> None:
        self._tables: tuple[FileStoreTable, ...] = (table,)
        self._columns = tuple(table.schema.field_names if columns is None else columns)
        self._predicate = predicate
        self._optimized = read_optimized
        self._changes = not read_optimized and is_incremental(table)
        if FALLBACK_BRANCH in table.schema.options and not (self._changes or read_optimized):
            self._tables = table.with_fallback()
        self._reader(0, None)  # refuses what cannot be read before there are tasks

    @property
    def schema(self) -> pa.Schema:
        """The columns wanted."""
        whole = self._tables[0].schema.arrow_schema
        return pa.schema([whole.field(name) for name in self._columns])

    def plan(self, predicate: Predicate | None) -> Sequence[Piece]:
        """See `BatchScan`."""
        wanted = joined(self._predicate, predicate)
        table = self._tables[0]
        if self._changes:
            return [(0, split) for split in incremental_splits(table, wanted)]
        if len(self._tables) > 1:
            return fallback_plan(table, self._tables[1], wanted)
        scan = read_optimized_scan(table) if self._optimized else TableScan(table)
        return [(0, split) for split in scan.with_filter(wanted).plan().splits]

    def read(self, piece: Piece, predicate: Predicate | None) -> Iterator[pa.RecordBatch]:
        """See `BatchScan`."""
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

    def _reader(self, number: int, predicate: Predicate | None) -> TableRead | ChangeRead:
        wanted = joined(self._predicate, predicate)
        if self._changes:
            return ChangeRead(self._tables[number], self._columns, wanted)
        return TableRead(self._tables[number], self._columns, wanted)


class MetadataScan:
    """A system table made of metadata, of a table or of a catalog: one piece.

    Args:
        whole: makes all its rows; picklable.
        columns: in the order wanted; None: all.
        predicate: rows wanted; None: all.

    Raises:
        InvalidRequestError: a column is unknown.
    """

    def __init__(
        self,
        whole: Callable[[], pa.Table],
        columns: Sequence[str] | None,
        predicate: Predicate | None,
    ) -> None:
        self._whole = whole
        schema = whole().schema
        self._schema = selected(schema, columns)
        self._predicate = predicate
        check_columns(schema, predicate)

    @property
    def schema(self) -> pa.Schema:
        """The columns wanted."""
        return self._schema

    def plan(self, predicate: Predicate | None) -> Sequence[Piece]:
        """See `BatchScan`."""
        return [(0, None)]

    def read(self, piece: Piece, predicate: Predicate | None) -> Iterator[pa.RecordBatch]:
        """See `BatchScan`."""
        wanted = joined(self._predicate, predicate)
        for batch in self._whole().combine_chunks().to_batches():
            rows = batch if wanted is None else batch.filter(mask(wanted, batch))
            yield rows.select(self._schema.names)
