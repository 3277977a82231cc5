# SPDX-License-Identifier: Apache-2.0
"""What `spark_source` answers but rows: start offsets, the end of the next batch, its tasks."""

import functools
import json
from collections.abc import Mapping
from pathlib import Path

from pyspark.sql.streaming.datasource import ReadLimit, ReadMaxRows

from ingest.config.settings import Settings
from ingest.config.source_settings import source_settings_from_json
from ingest.logs import configure_child_logging
from ingest.source.open import Source, TopicGate, draining, open_source, topic_waits
from ingest.source.records import SOURCE, OffsetJson, SourceRange, normalize, whole_partitions
from storage.clock import SystemClock
from storage.errors import InternalError

_STATE_FILE = "lakeward.json"
_IDLE_S = 1.0
"""An idle stream is planned as often as with a trigger interval of this length [s]."""

_POLL_S = 0.2


class StreamPlanner:
    """Plans batches of the source; clients and the offset last offered are rebuilt on demand.

    Attributes:
        settings: of the source.

    Args:
        options: of the data source.
    """

    def __init__(self, options: Mapping[str, str]) -> None:
        self.settings = source_settings_from_json(options["settings"])
        self._pipeline = options.get("pipeline")
        self._checkpoint = Path(options["checkpoint"])
        self._source_client: Source | None = None
        self._offered: OffsetJson | None = None
        self._clock = SystemClock()
        self._gate = TopicGate(self._clock)
        self._ignore_waits = False

    def initial(self) -> OffsetJson:
        """Return the offsets that the daemon stored when it created the checkpoint."""
        path = self._checkpoint / _STATE_FILE
        try:
            return normalize(json.loads(path.read_bytes())["initial"])
        except (FileNotFoundError, KeyError) as error:
            raise InternalError("the checkpoint has no initial offsets", path=path) from error

    def read_limit(self) -> ReadLimit:
        """Return the row limit; Spark supports one limit, so that of bytes is applied below."""
        return ReadMaxRows(self.settings.max_records)

    def latest(self, start: OffsetJson, limit: ReadLimit) -> OffsetJson:
        """Return the end of the next batch; `start` if there is nothing, or the daemon drains.

        With a short trigger interval an idle stream waits here: a trigger of Spark's takes 4 ms of
        CPU.
        """
        interval_s = _IDLE_S if self._stream is None else self._stream.pipeline.trigger_interval_s
        until_s = self._clock.monotonic_s() + _IDLE_S - interval_s
        while (end := self._end(start, limit)) == start and not self._ignore_waits:
            if self._clock.monotonic_s() >= until_s or draining(self._checkpoint):
                break
            self._clock.sleep(_POLL_S)
        return end

    def _end(self, start: OffsetJson, limit: ReadLimit) -> OffsetJson:
        if draining(self._checkpoint):
            self._offered = start
            return start
        max_records = limit.max_rows if isinstance(limit, ReadMaxRows) else None
        source = self._source()
        waits = {} if self._ignore_waits else topic_waits(self._checkpoint)
        self._offered = source.latest(
            start,
            max_records=max_records,
            max_bytes=self.settings.max_bytes,
            gated=self._gate.gated(start, source.latest(start), waits) if waits else (),
        )
        return self._offered

    def available(self) -> OffsetJson | None:
        """Return the newest offsets of the source, for progress reports."""
        return None if self._offered is None else self._source().available(self._offered)

    def freeze(self) -> None:
        """Fix the end of a run that drains the source."""
        self._ignore_waits = True
        self._source().freeze()

    def tasks(self, start: OffsetJson, end: OffsetJson) -> list[list[SourceRange]]:
        """Return the ranges of the tasks of a batch, possibly none."""
        tasks = self._source().plan(start, end)
        return whole_partitions(tasks) if self._by_source else tasks

    def close(self) -> None:
        """Close clients."""
        if self._source_client is not None:
            self._source_client.close()

    @property
    def _by_source(self) -> bool:
        """Whether rows are in the order of the source, which one task a partition must see."""
        return self._stream is not None and self._stream.events.ordering == SOURCE

    @functools.cached_property
    def _stream(self) -> Settings | None:
        return None if self._pipeline is None else Settings.from_json(self._pipeline)

    def _source(self) -> Source:
        if self._source_client is None:
            configure_child_logging()
            self._source_client = open_source(self.settings, checkpoint=self._checkpoint)
        return self._source_client
