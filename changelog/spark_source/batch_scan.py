# SPDX-License-Identifier: Apache-2.0
"""Batch reads in splits for workers: of rows, of changes, of system tables.

`FileStoreTable.to_arrow` and `system_table` with planning separated from reading. Independent of
Spark.
"""

import dataclasses
import functools
from collections.abc import Callable, Iterator, Sequence

import pyarrow as pa

from changelog.spark_source.row_view import RowView, is_view, selected
from storage.catalog.catalog import Catalog
from storage.catalog.system_tables import catalog_system_table
from storage.errors import NotFoundError, UnsupportedFeatureError
from storage.table.format_table import FormatTable
from storage.table.inspect.system.registry import SYSTEM_TABLES, system_table
from storage.table.inspect.system.row_tables import read_optimized_scan
from storage.table.scan.arrow_scan import ArrowScan
from storage.table.scan.format_files import FormatSplit
from storage.table.scan.predicate import Predicate, both, columns_of, mask, require_known
from storage.table.scan.row_scan import RowScan
from storage.table.scan.scan import ChangeSplit, Split, TableScan
from storage.table.table import FileStoreTable


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
