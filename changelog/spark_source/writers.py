# SPDX-License-Identifier: Apache-2.0
"""Spark's batch and streaming writers over `RowSink`.

A streaming query is known by the id that its checkpoint holds: commit user `spark-<id>`, commit
identifier = number of the micro-batch. A batch that is repeated after a crash finds its commit and
changes nothing; a new checkpoint is a new user, whose numbers begin anew. A batch job has a user of
its own and happens as often as it is run, unless `commit.user` and `commit.identifier` name it; in
a `foreachBatch` `commit.user` is enough, query and micro-batch say the rest. Without a name a
commit that failed with unknown outcome may have happened all the same.
"""

import dataclasses
from collections.abc import Iterator, Sequence

import pyarrow as pa
from pyspark import TaskContext
from pyspark.sql.datasource import (
    DataSourceArrowWriter,
    DataSourceStreamArrowWriter,
    WriterCommitMessage,
)

from changelog.spark_source.sink import RowSink, TaskFiles
from storage.errors import InternalError, InvalidOptionError
from storage.format.metadata.snapshot import BATCH_COMMIT_IDENTIFIER

__all__ = ["BatchWriter", "CommitName", "StreamWriter", "TaskMessage"]

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
