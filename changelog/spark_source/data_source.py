# SPDX-License-Identifier: Apache-2.0
"""`format("lakeward")`: the class that Spark knows.

Spark finds it by itself where the distribution is installed (package `pyspark_lakeward`); elsewhere
`spark.dataSource.register(LakewardDataSource)` does it for a session. Options: `source_options`.

Spark makes one object per `load()`, asks it for the schema, and sends it pickled to the processes
that plan and read; it carries the table it has opened, so all of them see one schema.
"""

import functools

from pyspark.sql.datasource import DataSource, DataSourceReader, DataSourceStreamReader
from pyspark.sql.types import StructType

from changelog.spark_source.batch_reader import PushingReader, ScanReader
from changelog.spark_source.batch_scan import batch_scan
from changelog.spark_source.push_down import planning_filters
from changelog.spark_source.source_options import READ_CHANGELOG, SourceOptions
from changelog.spark_source.spark_types import chosen_columns, spark_schema
from changelog.spark_source.stream_reader import ChangeStreamReader
from changelog.spark_source.stream_view import StreamView, streamed_table
from changelog.stream_range import RangeLimit
from storage.table.table import FileStoreTable

__all__ = ["LakewardDataSource"]


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
        parsed = self._parsed
        scan = batch_scan(
            self._table, parsed.system_table, parsed.columns, kinds=parsed.reads_changelog
        )
        return spark_schema(scan.schema)

    def reader(self, schema: StructType) -> DataSourceReader:
        """A batch reader; it takes filters in the process in which Spark asks for that."""
        parsed = self._parsed
        whole = batch_scan(self._table, parsed.system_table, kinds=parsed.reads_changelog)
        columns = chosen_columns(schema, whole.schema)
        scan = batch_scan(
            self._table,
            parsed.system_table,
            columns,
            parsed.predicate,
            kinds=parsed.reads_changelog,
        )
        return (PushingReader if planning_filters() else ScanReader)(scan, schema)

    def streamReader(self, schema: StructType) -> DataSourceStreamReader:
        """A streaming reader of the changes."""
        parsed = self._parsed
        table, kinds = streamed_table(self._table), parsed.flag(READ_CHANGELOG)
        whole = StreamView(table, parsed.system_table, kinds=kinds)
        columns = chosen_columns(schema, whole.schema)
        view = StreamView(table, parsed.system_table, columns, parsed.predicate, kinds=kinds)
        limit = RangeLimit(
            snapshots=parsed.count("max.snapshots.per.trigger"),
            rows=parsed.count("max.rows.per.trigger"),
        )
        return ChangeStreamReader(view, schema, limit)
