# SPDX-License-Identifier: Apache-2.0
"""Batch reads in splits that workers read: of rows, of changes, of system tables.

What `FileStoreTable.to_arrow` and `system_table` give in one, here with the plan apart from the
reading. Knows nothing of Spark.
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
    """The whole of a system table that is made of metadata."""


ScanSplit = Split | ChangeSplit | FormatSplit | MetadataSplit


@dataclasses.dataclass(frozen=True, slots=True)
class ScanCounts:
    """What a plan reads.

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
    """What some splits read."""
    whole = [split for split in splits if isinstance(split, FormatSplit)]
    if whole:
        return ScanCounts(
            splits=len(whole),
            partitions=len({split.path.rpartition("/")[0] for split in whole}),
            files=len(whole),
            bytes=sum(split.size for split in whole),
        )
    of_files = [split for split in splits if isinstance(split, Split | ChangeSplit)]
    files = [
        file
        for split in of_files
        for file in (split.files if isinstance(split, Split) else (*split.before, *split.files))
    ]
    return ScanCounts(
        splits=len(splits),
        partitions=len({split.partition for split in of_files}),
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
        table: with the options that choose what is read.
        system: name of a system table; None: the rows.
        columns: in the order wanted; None: all.
        predicate: rows wanted; None: all.
        kinds: of the rows themselves, also give their kinds, and so the retracted ones.

    Raises:
        NotFoundError: there is no such system table.
        InvalidRequestError: a column is unknown.
        UnsupportedFeatureError: reading would return wrong rows; names the option.
    """
    if isinstance(table, FormatTable):
        if system is not None or kinds:
            raise UnsupportedFeatureError(
                "a format table has neither system tables nor kinds of rows",
                hint="read its rows",
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
        columns: in the order wanted; None: all.
        predicate: rows wanted; None: all.

    Raises:
        NotFoundError: there is no such system table.
        InvalidRequestError: a column is unknown.
    """
    whole = functools.partial(catalog_system_table, catalog, name)
    return MetadataScan(whole, columns, predicate)


class ReadOptimizedScan(RowScan):
    """`$ro`: what needs no merging."""

    _mixes = False

    def _scan(self, table: FileStoreTable) -> TableScan:
        return read_optimized_scan(table)


class MetadataScan(ArrowScan):
    """A system table made of metadata, of a table or of a catalog: one split.

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
        require_known(columns_of(predicate), schema.names)

    @property
    def schema(self) -> pa.Schema:
        """The columns wanted."""
        return self._schema

    def plan(self, predicate: Predicate | None = None) -> Sequence[MetadataSplit]:
        """See `ArrowScan`."""
        return [MetadataSplit()]

    def read(
        self, split: MetadataSplit, predicate: Predicate | None = None
    ) -> Iterator[pa.RecordBatch]:
        """See `ArrowScan`."""
        wanted = both(self._predicate, predicate)
        for batch in self._whole().combine_chunks().to_batches():
            rows = batch if wanted is None else batch.filter(mask(wanted, batch))
            yield rows.select(self._schema.names)
