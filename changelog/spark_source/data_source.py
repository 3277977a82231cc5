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
from pyspark import TaskContext
from pyspark.sql.datasource import (
    DataSource,
    DataSourceArrowWriter,
    DataSourceReader,
    DataSourceStreamArrowWriter,
    DataSourceStreamReader,
    DataSourceStreamWriter,
    DataSourceWriter,
    Filter,
    InputPartition,
    WriterCommitMessage,
)
from pyspark.sql.types import StructType

from changelog.spark_source.batch_scan import batch_scan, catalog_scan
from changelog.spark_source.row_view import StreamView, streamed_table
from changelog.spark_source.scans import ScanSplit, counts_of
from changelog.spark_source.sink import RowSink, TaskFiles, partition_values
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
from changelog.stream_range import RangeLimit
from storage.errors import InternalError, InvalidOptionError
from storage.format.metadata.snapshot import BATCH_COMMIT_IDENTIFIER
from storage.table.scan.arrow_scan import ArrowScan
from storage.table.scan.predicate import And, Predicate
from storage.table.table import FileStoreTable

__all__ = [
    "BatchWriter",
    "CommitName",
    "LakewardDataSource",
    "ScanReader",
    "StreamWriter",
    "TaskMessage",
]

_QUERY_ID = "sql.streaming.queryId"
_BATCH_ID = "streaming.sql.batchId"
_USER_PREFIX = "spark-"


@dataclasses.dataclass
class TaskMessage(WriterCommitMessage):
    """What a task reports to the driver.

    Attributes:
        files: that it wrote.
        query: id of the streaming query that runs the task; None: none does.
        batch: number of its micro-batch; None: none does.
    """

    files: TaskFiles
    query: str | None = None
    batch: int | None = None


@dataclasses.dataclass(frozen=True, slots=True)
class CommitName:
    """The name of a batch write.

    Attributes:
        user: commit user; of a micro-batch its query is added.
        identifier: commit identifier; None: the number of the micro-batch.
    """

    user: str
    identifier: int | None

    def of(self, report: TaskMessage) -> tuple[str, int]:
        """User and identifier.

        Raises:
            InvalidOptionError: there is no micro-batch, and no identifier.
        """
        if self.identifier is not None:
            return self.user, self.identifier
        if report.query is None or report.batch is None:
            raise InvalidOptionError(
                "a commit is named by its user and its number",
                hint="give `commit.identifier`, too; only in a `foreachBatch` it is known",
                user=self.user,
            )
        return f"{self.user}-{report.query}", report.batch


class BatchWriter(DataSourceArrowWriter):
    """Appends, upserts or overwrites once.

    Args:
        name: of the commit; None: a new one.
        unnamed: commit user where there is no name.
    """

    def __init__(self, sink: RowSink, name: CommitName | None, unnamed: str) -> None:
        self._sink = sink
        self._name = name or CommitName(unnamed, BATCH_COMMIT_IDENTIFIER)

    def write(self, iterator: Iterator[pa.RecordBatch]) -> WriterCommitMessage:
        """Write the rows of a task."""
        return _written(self._sink, iterator)

    def commit(self, messages: list[WriterCommitMessage | None]) -> None:
        """Commit what all tasks wrote."""
        reports = _reported(messages)
        if reports:
            user, identifier = self._name.of(reports[0])
            self._sink.commit([one.files for one in reports], user, identifier)

    def abort(self, messages: list[WriterCommitMessage | None]) -> None:
        """Remove what tasks wrote before one failed."""
        _remove(self._sink, messages)


class StreamWriter(DataSourceStreamArrowWriter):
    """Commits each micro-batch at most once."""

    def __init__(self, sink: RowSink) -> None:
        self._sink = sink

    def write(self, iterator: Iterator[pa.RecordBatch]) -> WriterCommitMessage:
        """Write the rows of a task."""
        return _written(self._sink, iterator)

    def commit(self, messages: list[WriterCommitMessage | None], batchId: int) -> None:
        """Commit a micro-batch."""
        reports = _reported(messages)
        if not reports:
            return
        query = reports[0].query
        if query is None:
            raise InternalError("Spark does not say which query writes")
        files = [one.files for one in reports]
        self._sink.commit(files, _USER_PREFIX + query, batchId, batch=False)

    def abort(self, messages: list[WriterCommitMessage | None], batchId: int) -> None:
        """Remove what tasks wrote before one failed."""
        _remove(self._sink, messages)


def _written(sink: RowSink, rows: Iterator[pa.RecordBatch]) -> TaskMessage:
    context = TaskContext.get()
    task = 0 if context is None else context.partitionId()
    query = None if context is None else context.getLocalProperty(_QUERY_ID)
    batch = None if context is None else context.getLocalProperty(_BATCH_ID)
    return TaskMessage(sink.write(task, rows), query, None if batch is None else int(batch))


def _reported(messages: Sequence[WriterCommitMessage | None]) -> list[TaskMessage]:
    return [one for one in messages if isinstance(one, TaskMessage)]


def _remove(sink: RowSink, messages: Sequence[WriterCommitMessage | None]) -> None:
    """Spark also aborts when the commit fails, whose outcome may be unknown: then files stay."""
    if any(one is None for one in messages):
        sink.remove([one.files for one in _reported(messages)])


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
