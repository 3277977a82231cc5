# SPDX-License-Identifier: Apache-2.0
"""The Spark data source of the stream: Spark's streaming source protocol over `StreamPlanner`.

Options: `settings` (source settings as JSON), `checkpoint` (directory with the state file and the
control file); all options are handed on to `map_task`.

Spark uses two readers (SPARK.md §1). One lives in the source runner, a process of its own, and
answers everything but `read`. The other is pickled once per query and answers `read` in every task.
So a reader keeps nothing that matters, and `partitions` needs no earlier call, since a restart
plans an old batch first.

Two more processes, one after the other, import this module only to make a source and to pickle a
reader, and the query waits for them: what plans and what reads is imported when it is used.
"""

from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from pyspark.sql.datasource import DataSource, DataSourceStreamReader, InputPartition
from pyspark.sql.streaming.datasource import ReadLimit, SupportsTriggerAvailableNow
from pyspark.sql.types import StructType

from storage.errors import InternalError

if TYPE_CHECKING:
    import pyarrow as pa

    from ingest.pipeline.stream_planner import StreamPlanner
    from ingest.source.records import OffsetJson, SourceRange

CHUNK_SPARK_SCHEMA = (
    "kind int, owner string, table string, partition binary, bucket int, schema_id bigint, "
    "topic string, source_partition int, first_offset bigint, payload binary"
)
"""`ingest.pipeline.exchange.CHUNK_ARROW_SCHEMA` in Spark's words."""


class CdcPartition(InputPartition):
    """Ranges of one task."""

    def __init__(self, ranges: "Sequence[SourceRange]") -> None:
        super().__init__(None)
        self.ranges = tuple(ranges)


class LakewardCdcSource(DataSource):
    """`spark.readStream.format("lakeward_cdc")`: rows are chunks (`ingest.pipeline.exchange`)."""

    @classmethod
    def name(cls) -> str:
        """The format's name."""
        return "lakeward_cdc"

    def schema(self) -> str:
        """The chunk schema."""
        return CHUNK_SPARK_SCHEMA

    def streamReader(self, schema: StructType) -> DataSourceStreamReader:
        """The reader; see module."""
        del schema
        return LakewardCdcReader({name: str(self.options[name]) for name in self.options})


class LakewardCdcReader(DataSourceStreamReader, SupportsTriggerAvailableNow):
    """See module.

    Args:
        options: data source options, names in lower case.
    """

    def __init__(self, options: Mapping[str, str]) -> None:
        self._options = dict(options)
        self._planner: StreamPlanner | None = None

    def __getstate__(self) -> dict[str, Any]:
        return {"_options": self._options}

    def __setstate__(self, state: Mapping[str, Any]) -> None:
        LakewardCdcReader.__init__(self, state["_options"])

    def initialOffset(self) -> "OffsetJson":
        """Return the offsets that the daemon stored when it created the checkpoint."""
        return self._planning().initial()

    def getDefaultReadLimit(self) -> ReadLimit:
        """Return the row limit."""
        return self._planning().read_limit()

    def latestOffset(self, start: "OffsetJson", limit: ReadLimit) -> "OffsetJson":
        """Return the end of the next batch; `start` if there is nothing, or the daemon drains."""
        return self._planning().latest(start, limit)

    def reportLatestOffset(self) -> "OffsetJson | None":
        """Return the newest offsets of the source, for progress reports."""
        return self._planning().available()

    def prepareForTriggerAvailableNow(self) -> None:
        """Fix the end of a run that drains the source."""
        self._planning().freeze()

    def partitions(self, start: "OffsetJson", end: "OffsetJson") -> list[InputPartition]:
        """Return the input partitions of a batch, possibly none."""
        return [CdcPartition(task) for task in self._planning().tasks(start, end)]

    def read(self, partition: InputPartition) -> "Iterator[pa.RecordBatch]":
        """Yield the chunks of one task."""
        if not isinstance(partition, CdcPartition):
            raise InternalError("not a partition of this source", partition=partition)
        from ingest.pipeline.tasks import map_task  # noqa: PLC0415

        return map_task(partition.ranges, self._planning().settings, self._options)

    def commit(self, end: "OffsetJson") -> None:
        """Do nothing: offsets are in the checkpoint and in the tables."""

    def stop(self) -> None:
        """Close clients; not always called."""
        if self._planner is not None:
            self._planner.close()

    def _planning(self) -> "StreamPlanner":
        from ingest.pipeline.stream_planner import StreamPlanner  # noqa: PLC0415

        if self._planner is None:
            self._planner = StreamPlanner(self._options)
        return self._planner
