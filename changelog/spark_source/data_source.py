# SPDX-License-Identifier: Apache-2.0
"""`format("lakeward")`: the class that Spark knows.

Spark finds it by itself where the distribution is installed (package `pyspark_lakeward`); elsewhere
`spark.dataSource.register(LakewardDataSource)` does it for a session. Options: `source_options`.

Spark makes one object per `load()`, asks it for the schema, and sends it pickled to the processes
that plan and read; it carries the table it has opened, so all of them see one schema.
"""

import dataclasses
import functools
import logging
from collections.abc import Iterable, Iterator, Sequence

import pyarrow as pa
from pyspark.sql.datasource import (
    DataSource,
    DataSourceReader,
    DataSourceStreamReader,
    DataSourceStreamWriter,
    DataSourceWriter,
    Filter,
    InputPartition,
)
from pyspark.sql.types import StructType

from changelog.spark_source.batch_scan import batch_scan, catalog_scan
from changelog.spark_source.row_view import StreamView, streamed_table
from changelog.spark_source.scans import ScanSplit, counts_of
from changelog.spark_source.sink import RowSink, partition_values
from changelog.spark_source.source_options import (
    LIMITS,
    READ_CHANGELOG,
    READ_OPTIONS,
    WRITE_OPTIONS,
    SourceOptions,
)
from changelog.spark_source.spark_types import (
    arrow_schema_of,
    chosen_columns,
    pushed_predicate,
    spark_batches,
    spark_schema,
)
from changelog.spark_source.stream_reader import ChangeStreamReader
from changelog.spark_source.writers import BatchWriter, CommitName, StreamWriter
from changelog.stream_range import RangeLimit
from storage.errors import InvalidOptionError
from storage.table.scan.arrow_scan import ArrowScan
from storage.table.scan.predicate import And, Predicate
from storage.table.table import FileStoreTable

__all__ = ["LakewardDataSource", "ScanReader"]

_LOG = logging.getLogger(__name__)


class ScanReader(DataSourceReader):
    """Reads what a scan describes; takes Spark's filters where Spark hands them over.

    Args:
        scan: whose columns are those of the schema, in the same order.
    """

    def __init__(self, scan: ArrowScan, schema: StructType) -> None:
        self._scan = scan
        self._arrow = arrow_schema_of(schema)
        self._pushed: Predicate | None = None
        self.__dict__["pushFilters"] = _FilterTaker(self)

    def take_filters(self, filters: Iterable[Filter]) -> Iterator[Filter]:
        """Take the filters whose meaning is kept, give back the others."""
        taken: list[Predicate] = []
        for found in filters:
            predicate = pushed_predicate(found, self._scan.schema)
            if predicate is None:
                yield found
            else:
                taken.append(predicate)
        self._pushed = And(tuple(taken)) if taken else None

    def partitions(self) -> Sequence[InputPartition]:
        """One task per split. Spark makes one task of none; it reads nothing."""
        splits = self._scan.plan(self._pushed)
        _LOG.info("scan planned", extra=dataclasses.asdict(counts_of(splits)))
        return [InputPartition(split) for split in splits]

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """The rows of a split."""
        split: ScanSplit | None = partition.value
        if split is not None:
            for batch in self._scan.read(split, self._pushed):
                yield from spark_batches(batch, self._arrow)


class _FilterTaker:
    """What Spark finds as `pushFilters` of a reader: the method that it gave, which can do more.

    While `spark.sql.python.filterPushdown.enabled` is off, which it is unless set, Spark refuses
    every read by a reader whose method `pushFilters` is not Spark's own. While it is on, Spark
    calls it. A reader does not know which; this is right for both, in every process.
    """

    __func__ = staticmethod(DataSourceReader.pushFilters)

    def __init__(self, reader: ScanReader) -> None:
        self._reader = reader

    def __call__(self, filters: list[Filter]) -> Iterable[Filter]:
        return self._reader.take_filters(filters)


class LakewardDataSource(DataSource):
    """Tables of a warehouse as a source and sink of Spark."""

    @classmethod
    def name(cls) -> str:
        """The word of `format(…)`."""
        return "lakeward"

    @functools.cached_property
    def _parsed(self) -> SourceOptions:
        return SourceOptions.parse(self.options)

    @functools.cached_property
    def _table(self) -> FileStoreTable:
        table = self._parsed.open()
        # Spark does not say here whether it reads a state or a stream: who wants kinds has the
        # newest columns in both
        return streamed_table(table) if self._parsed.reads_changelog else table

    def schema(self) -> StructType:
        """Columns of the table or system table, with `_row_kind` where it is asked for."""
        return spark_schema(self._scan(self._parsed.columns).schema)

    def reader(self, schema: StructType) -> DataSourceReader:
        """A batch reader."""
        self._parsed.refuse(WRITE_OPTIONS | LIMITS, "a batch read")
        columns = chosen_columns(schema, self._scan().schema)
        scan = self._scan(columns, self._parsed.predicate)
        return ScanReader(scan, schema)

    def streamReader(self, schema: StructType) -> DataSourceStreamReader:
        """A streaming reader of the changes."""
        parsed = self._parsed
        parsed.refuse(WRITE_OPTIONS, "a stream that reads")
        table, kinds = streamed_table(self._table), parsed.flag(READ_CHANGELOG)
        whole = StreamView(table, parsed.system_table, kinds=kinds)
        columns = chosen_columns(schema, whole.schema)
        view = StreamView(table, parsed.system_table, columns, parsed.predicate, kinds=kinds)
        limit = RangeLimit(
            snapshots=parsed.count("max.snapshots.per.trigger"),
            rows=parsed.count("max.rows.per.trigger"),
        )
        return ChangeStreamReader(view, schema, limit)

    def writer(self, schema: StructType, overwrite: bool) -> DataSourceWriter:
        """A batch writer."""
        parsed = self._parsed
        user, number = parsed.own.get("commit.user"), None
        if "commit.identifier" in parsed.own:
            number = parsed.number("commit.identifier")
        if number is not None and not user:
            raise InvalidOptionError(
                "a commit is named by its user and its number", missing="commit.user"
            )
        name = CommitName(user, number) if user else None
        sink = self._sink(schema, overwrite)
        return BatchWriter(sink, name, unnamed=f"spark-{self._table.ids.uuid()}")

    def streamWriter(self, schema: StructType, overwrite: bool) -> DataSourceStreamWriter:
        """A streaming writer; in complete mode every batch takes the place of all rows."""
        self._parsed.refuse(WRITE_OPTIONS, "a stream that writes")
        return StreamWriter(self._sink(schema, overwrite, whole=True))

    def _scan(
        self, columns: Sequence[str] | None = None, predicate: Predicate | None = None
    ) -> ArrowScan:
        parsed = self._parsed
        if parsed.catalog_table is not None:
            return catalog_scan(parsed.catalog(), parsed.catalog_table, columns, predicate)
        kinds = parsed.reads_changelog
        return batch_scan(self._table, parsed.system_table, columns, predicate, kinds=kinds)

    def _sink(self, schema: StructType, overwrite: bool, *, whole: bool = False) -> RowSink:
        parsed = self._parsed
        parsed.refuse(READ_OPTIONS, "a write")
        if parsed.system_table is not None:
            raise InvalidOptionError("a system table cannot be written", table=parsed.system_table)
        text = parsed.own.get("overwrite.partition")
        partition = None if text is None else partition_values(text)
        table = self._table
        if overwrite and (whole or partition is not None):
            table = table.with_options({"dynamic-partition-overwrite": "false"})
        return RowSink(table, arrow_schema_of(schema), overwrite=overwrite, partition=partition)
