# SPDX-License-Identifier: Apache-2.0
"""The Spark data source of the stream: Spark's streaming source protocol over `Source`.

Options: `settings` (source settings as JSON), `checkpoint` (directory with the state file and the
control file); all options are handed on to `map_task`.

Spark uses two readers (SPARK.md §1). One lives in the source runner, a process of its own, and
answers everything but `read`. The other is pickled once per query and answers `read` in every task.
So a reader keeps nothing that matters: clients and the offset last offered are rebuilt on demand
and never pickled, and `partitions` needs no earlier call, since a restart plans an old batch first.
"""

import json
import logging
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import pyarrow as pa
from pyspark.sql.datasource import DataSource, DataSourceStreamReader, InputPartition
from pyspark.sql.streaming.datasource import (
    ReadLimit,
    ReadMaxRows,
    SupportsTriggerAvailableNow,
)
from pyspark.sql.types import StructType

from ingest.config.settings import Settings
from ingest.config.source_settings import source_settings_from_json
from ingest.logs import configure_child_logging
from ingest.pipeline.chunk import CHUNK_SPARK_SCHEMA
from ingest.source.control import TopicGate, draining, topic_waits
from ingest.source.open import Source, open_source
from ingest.source.position.ordered_tables import SOURCE
from ingest.source.ranges import OffsetJson, SourceRange, normalize, whole_partitions
from storage.clock import SystemClock
from storage.errors import InternalError

__all__ = ["CdcPartition", "LakewardCdcReader", "LakewardCdcSource"]

_LOG = logging.getLogger(__name__)

_STATE_FILE = "lakeward.json"


class CdcPartition(InputPartition):
    """Ranges of one task."""

    def __init__(self, ranges: Sequence[SourceRange]) -> None:
        super().__init__(None)
        self.ranges = tuple(ranges)


class LakewardCdcSource(DataSource):
    """`spark.readStream.format("lakeward_cdc")`: rows are chunks (`ingest.pipeline.chunk`)."""

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
        self._settings = source_settings_from_json(self._options["settings"])
        self._checkpoint = Path(self._options["checkpoint"])
        self._opened: Source | None = None
        self._offered: OffsetJson | None = None
        self._gate = TopicGate(SystemClock())
        self._everything = False

    def __getstate__(self) -> dict[str, Any]:
        return {"_options": self._options}

    def __setstate__(self, state: Mapping[str, Any]) -> None:
        LakewardCdcReader.__init__(self, state["_options"])

    def initialOffset(self) -> OffsetJson:
        """Return the offsets that the daemon stored when it created the checkpoint."""
        path = self._checkpoint / _STATE_FILE
        try:
            return normalize(json.loads(path.read_bytes())["initial"])
        except (FileNotFoundError, KeyError) as error:
            raise InternalError("the checkpoint has no initial offsets", path=path) from error

    def getDefaultReadLimit(self) -> ReadLimit:
        """Return the row limit; Spark supports one limit, so that of bytes is applied below."""
        return ReadMaxRows(self._settings.max_records)

    def latestOffset(self, start: OffsetJson, limit: ReadLimit) -> OffsetJson:
        """Return the end of the next batch; `start` if there is nothing, or the daemon drains."""
        if draining(self._checkpoint):
            self._offered = start
            return start
        max_records = limit.max_rows if isinstance(limit, ReadMaxRows) else None
        source = self._source()
        waits = {} if self._everything else topic_waits(self._checkpoint)
        self._offered = source.latest(
            start,
            max_records=max_records,
            max_bytes=self._settings.max_bytes,
            gated=self._gate.gated(start, source.latest(start), waits) if waits else (),
        )
        return self._offered

    def reportLatestOffset(self) -> OffsetJson | None:
        """Return the newest offsets of the source, for progress reports."""
        return None if self._offered is None else self._source().available(self._offered)

    def prepareForTriggerAvailableNow(self) -> None:
        """Fix the end of a run that drains the source."""
        self._everything = True
        self._source().freeze()

    def partitions(self, start: OffsetJson, end: OffsetJson) -> list[InputPartition]:
        """Return the input partitions of a batch, possibly none."""
        tasks = self._source().plan(start, end)
        if self._by_source:
            tasks = whole_partitions(tasks)
        return [CdcPartition(task) for task in tasks]

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """Yield the chunks of one task."""
        if not isinstance(partition, CdcPartition):
            raise InternalError("not a partition of this source", partition=partition)
        # imported where rows are read: planning runs in processes of its own, and waits for imports
        from ingest.pipeline.map_side import map_task  # noqa: PLC0415

        return map_task(partition.ranges, self._settings, self._options)

    def commit(self, end: OffsetJson) -> None:
        """Do nothing: offsets are in the checkpoint and in the tables."""

    def stop(self) -> None:
        """Close clients; not always called."""
        if self._opened is not None:
            self._opened.close()

    @property
    def _by_source(self) -> bool:
        """Whether rows are in the order of the source, which one task a partition must see."""
        text = self._options.get("pipeline")
        return text is not None and Settings.from_json(text).events.ordering == SOURCE

    def _source(self) -> Source:
        if self._opened is None:
            configure_child_logging()
            self._opened = open_source(self._settings, checkpoint=self._checkpoint)
        return self._opened
