# SPDX-License-Identifier: Apache-2.0
"""`format("lakeward")`: the data source class for Spark.

Spark finds it by itself where the distribution is installed (package `pyspark_lakeward`); elsewhere
`spark.dataSource.register(LakewardDataSource)` does it for a session. Options: `source_options`.

Spark creates one object per `load()`, requests the schema, and sends it pickled to the processes
that plan and read; it contains the opened table, so all of them see one schema.
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
from pyspark.sql.streaming.datasource import (
    ReadAllAvailable,
    ReadLimit,
    ReadMaxFiles,
    SupportsTriggerAvailableNow,
)
from pyspark.sql.types import StructType

from changelog.follow import START, RangeLimit, StreamPosition, StreamRange
from changelog.spark_source.batch_scan import (
    ScanSplit,
    StreamView,
    batch_scan,
    catalog_scan,
    counts_of,
    streamed_table,
)
from changelog.spark_source.sink import RowSink, TaskFiles, partition_values
from changelog.spark_source.source_options import (
    LIMITS,
    READ_CHANGELOG,
    READ_OPTIONS,
    WRITE_OPTIONS,
    SourceOptions,
    arrow_schema_of,
    chosen_columns,
    pushed_predicate,
    spark_batches,
    spark_schema,
)
from storage.errors import InternalError, InvalidOptionError, RetryableError
from storage.format.metadata.snapshot import BATCH_COMMIT_IDENTIFIER
from storage.table.scan.predicate import And, Predicate
from storage.table.scan.row_scan import ArrowScan
from storage.table.table import FileStoreTable

_Offset = dict[str, int | bool]

_LOOK_EVERY_MS = 200
"""An idle query without trigger interval polls every 10 ms (measured): too many store requests."""

_HOLD_EVERY_MS = 60_000
"""Consumers not written for `consumer.expiration-time` expire, also those of idle streams."""


class ChangeStreamReader(DataSourceStreamReader, SupportsTriggerAvailableNow):
    """Reads the changes of a table: offsets are snapshot ids, one task per bucket.

    Only Spark's offset log survives a crash. An offset determines its range completely, so a
    planned batch is read again unchanged, or fails if its snapshots have expired. All changes of a
    key are in one task, in commit order; tasks are unordered. The table's `consumer-id` only
    protects snapshots from expiry; it advances when Spark commits a batch, which is when it plans
    the next one.

    Args:
        view: which changes, and which columns.
        schema: Spark's, of the same columns in the same order.
        limit: size limit of one batch.
    """

    def __init__(self, view: StreamView, schema: StructType, limit: RangeLimit) -> None:
        self._view = view
        self._arrow = arrow_schema_of(schema)
        self._limit = limit
        self._ranges: StreamRange | None = None
        self._drains = False
        self._looked_ms = self._held_ms = 0
        self._idle_at: StreamPosition | None = None
        self._held_position: StreamPosition | None = None

    def __getstate__(self) -> dict[str, object]:
        """Tasks read splits and need no position."""
        return {**self.__dict__, "_ranges": None}

    def initialOffset(self) -> _Offset:
        """The position before the start; the end of the first batch determines the start."""
        return START.to_json()

    def getDefaultReadLimit(self) -> ReadLimit:
        """Spark passes it back unless the trigger reads everything."""
        if self._limit == RangeLimit():
            return ReadAllAvailable()
        return ReadMaxFiles(self._limit.snapshots or self._limit.rows or 1)

    def prepareForTriggerAvailableNow(self) -> None:
        """Bound the stream at the newest existing snapshot."""
        self._drains = True
        self._range.end_at_newest()

    def latestOffset(self, start: _Offset, limit: ReadLimit) -> _Offset:
        """The end of the next batch; `start` if there is nothing new.

        Raises:
            DataLossError: the next snapshot has expired, or the table was rolled back before it.
        """
        position = StreamPosition.from_json(start)
        clock = self._view.table.clock
        if position == self._idle_at and clock.now_ms() - self._looked_ms < _LOOK_EVERY_MS:
            return start
        range_limit = RangeLimit() if isinstance(limit, ReadAllAvailable) else self._limit
        try:
            end = self._range.advance(position, range_limit)
            if position == START:
                self._range.hold_beginning(end)
            elif end == position:
                self._keep_held(position)
        except RetryableError as error:
            if self._drains:
                raise  # the same offset would mean that everything was read
            _LOG.warning("cannot poll for new snapshots", extra={"reason": str(error)})
            end = position
        self._looked_ms = clock.now_ms()
        self._idle_at = end if end == position else None
        return start if end == position else end.to_json()

    def reportLatestOffset(self) -> _Offset | None:
        """The table's newest position, for the progress of the query."""
        if self._idle_at is not None:
            return self._idle_at.to_json()
        try:
            return self._range.newest().to_json()
        except RetryableError:
            return None

    def partitions(self, start: _Offset, end: _Offset) -> Sequence[InputPartition]:
        """One task per bucket; one per split of an initial state."""
        groups = self._range.splits(StreamPosition.from_json(start), StreamPosition.from_json(end))
        return [InputPartition(group) for group in groups]

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """The changes of some splits, in order."""
        for split in partition.value:
            for batch in self._view.read(split):
                yield from spark_batches(batch, self._arrow)

    def commit(self, end: _Offset) -> None:
        """A batch is committed, and will not be read again."""
        self._held_position = StreamPosition.from_json(end)
        self._range.hold(self._held_position)
        self._held_ms = self._view.table.clock.now_ms()

    def stop(self) -> None:
        """No-op: nothing is held open."""

    def _keep_held(self, position: StreamPosition) -> None:
        """Rewrite the consumer of an idle stream, at the last offset that Spark committed."""
        clock = self._view.table.clock
        if self._held_position is not None and clock.now_ms() - self._held_ms >= _HOLD_EVERY_MS:
            self._range.hold(self._held_position)
            self._held_ms = clock.now_ms()

    @property
    def _range(self) -> StreamRange:
        if self._ranges is None:
            self._ranges = StreamRange(self._view.table, self._view.pushed_down())
        return self._ranges


_QUERY_ID = "sql.streaming.queryId"
_BATCH_ID = "streaming.sql.batchId"
_USER_PREFIX = "spark-"


@dataclasses.dataclass
class TaskMessage(WriterCommitMessage):
    """What a task reports to the driver.

    Attributes:
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
                "a commit needs a user and an identifier",
                hint="set `commit.identifier`, too; it is known only in a `foreachBatch`",
                user=self.user,
            )
        return f"{self.user}-{report.query}", report.batch


class BatchWriter(DataSourceArrowWriter):
    """Appends, upserts or overwrites once.

    A job has its own commit user and commits as often as it runs, unless `commit.user` and
    `commit.identifier` are set; in a `foreachBatch` `commit.user` is enough, query and micro-batch
    determine the rest. Without a name, a failed commit of unknown outcome may have been applied.

    Args:
        unnamed: commit user where there is no name.
    """

    def __init__(self, sink: RowSink, name: CommitName | None, unnamed: str) -> None:
        self._sink = sink
        self._name = name or CommitName(unnamed, BATCH_COMMIT_IDENTIFIER)

    def write(self, iterator: Iterator[pa.RecordBatch]) -> WriterCommitMessage:
        """Write the rows of a task."""
        return _write_task(self._sink, iterator)

    def commit(self, messages: list[WriterCommitMessage | None]) -> None:
        """Commit what all tasks wrote."""
        reports = _reported(messages)
        if reports:
            user, identifier = self._name.of(reports[0])
            self._sink.commit([report.files for report in reports], user, identifier)

    def abort(self, messages: list[WriterCommitMessage | None]) -> None:
        """Remove what tasks wrote before one failed."""
        _remove(self._sink, messages)


class StreamWriter(DataSourceStreamArrowWriter):
    """Commits each micro-batch at most once.

    A query is identified by the id in its checkpoint: commit user `spark-<id>`, commit identifier =
    number of the micro-batch. A batch repeated after a crash finds its commit and changes nothing;
    a new checkpoint is a new user, whose numbers restart.
    """

    def __init__(self, sink: RowSink) -> None:
        self._sink = sink

    def write(self, iterator: Iterator[pa.RecordBatch]) -> WriterCommitMessage:
        """Write the rows of a task."""
        return _write_task(self._sink, iterator)

    def commit(self, messages: list[WriterCommitMessage | None], batchId: int) -> None:
        """Commit a micro-batch."""
        reports = _reported(messages)
        if not reports:
            return
        query = reports[0].query
        if query is None:
            raise InternalError("Spark did not report which query writes")
        files = [report.files for report in reports]
        self._sink.commit(files, _USER_PREFIX + query, batchId, batch=False)

    def abort(self, messages: list[WriterCommitMessage | None], batchId: int) -> None:
        """Remove what tasks wrote before one failed."""
        _remove(self._sink, messages)


def _write_task(sink: RowSink, rows: Iterator[pa.RecordBatch]) -> TaskMessage:
    context = TaskContext.get()
    task = 0 if context is None else context.partitionId()
    query = None if context is None else context.getLocalProperty(_QUERY_ID)
    batch = None if context is None else context.getLocalProperty(_BATCH_ID)
    return TaskMessage(sink.write(task, rows), query, None if batch is None else int(batch))


def _reported(messages: Sequence[WriterCommitMessage | None]) -> list[TaskMessage]:
    return [message for message in messages if isinstance(message, TaskMessage)]


def _remove(sink: RowSink, messages: Sequence[WriterCommitMessage | None]) -> None:
    """Spark also aborts after a failed commit, whose outcome may be unknown: then files remain."""
    if any(message is None for message in messages):
        sink.remove([report.files for report in _reported(messages)])


_LOG = logging.getLogger(__name__)


class ScanReader(DataSourceReader):
    """Reads a scan; pushes Spark's filters down where Spark passes them.

    Args:
        scan: whose columns are those of the schema, in the same order.
    """

    def __init__(self, scan: ArrowScan, schema: StructType) -> None:
        self._scan = scan
        self._arrow = arrow_schema_of(schema)
        self._pushed: Predicate | None = None
        self.__dict__["pushFilters"] = _FilterTaker(self)

    def take_filters(self, filters: Iterable[Filter]) -> Iterator[Filter]:
        """Push down the filters with identical semantics, return the others."""
        pushed: list[Predicate] = []
        for condition in filters:
            predicate = pushed_predicate(condition, self._scan.schema)
            if predicate is None:
                yield condition
            else:
                pushed.append(predicate)
        self._pushed = And(tuple(pushed)) if pushed else None

    def partitions(self) -> Sequence[InputPartition]:
        """One task per split. Without splits Spark creates one task, which reads nothing."""
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
    """The `pushFilters` of a reader: passes for Spark's own method (`__func__`), but works.

    While `spark.sql.python.filterPushdown.enabled` is off (the default), Spark refuses every read
    by a reader whose `pushFilters` is not Spark's own. While it is on, Spark calls it. A reader
    cannot know which; this object works for both, in every process.
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
        """The name for `format(…)`."""
        return "lakeward"

    @functools.cached_property
    def _parsed(self) -> SourceOptions:
        return SourceOptions.parse(self.options)

    @functools.cached_property
    def _table(self) -> FileStoreTable:
        table = self._parsed.open()
        # Spark does not say here whether this is a batch read or a stream: with kinds both have the
        # newest columns
        return streamed_table(table) if self._parsed.reads_changelog else table

    def schema(self) -> StructType:
        """Columns of the table or system table, with `_row_kind` if requested."""
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
        full_view = StreamView(table, parsed.system_table, kinds=kinds)
        columns = chosen_columns(schema, full_view.schema)
        view = StreamView(table, parsed.system_table, columns, parsed.predicate, kinds=kinds)
        limit = RangeLimit(
            snapshots=parsed.count("max.snapshots.per.trigger"),
            rows=parsed.count("max.rows.per.trigger"),
        )
        return ChangeStreamReader(view, schema, limit)

    def writer(self, schema: StructType, overwrite: bool) -> DataSourceWriter:
        """A batch writer."""
        parsed = self._parsed
        user, number = parsed.reader_options.get("commit.user"), None
        if "commit.identifier" in parsed.reader_options:
            number = parsed.number("commit.identifier")
        if number is not None and not user:
            raise InvalidOptionError(
                "a commit needs a user and an identifier", missing="commit.user"
            )
        name = CommitName(user, number) if user else None
        sink = self._sink(schema, overwrite)
        return BatchWriter(sink, name, unnamed=f"spark-{self._table.ids.uuid()}")

    def streamWriter(self, schema: StructType, overwrite: bool) -> DataSourceStreamWriter:
        """A streaming writer; in complete mode every batch replaces all rows."""
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
        text = parsed.reader_options.get("overwrite.partition")
        partition = None if text is None else partition_values(text)
        table = self._table
        if overwrite and (whole or partition is not None):
            table = table.with_options({"dynamic-partition-overwrite": "false"})
        return RowSink(table, arrow_schema_of(schema), overwrite=overwrite, partition=partition)
