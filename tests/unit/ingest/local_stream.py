# SPDX-License-Identifier: Apache-2.0
"""A stream without Spark: the real sink, map side and reduce side, one task after the other."""

import collections
import itertools
import pickle
import threading
from collections.abc import Mapping, Sequence
from pathlib import Path
from types import SimpleNamespace
from typing import Any

from ingest.config.settings import Settings
from ingest.daemon.configuration import load_settings
from ingest.pipeline.batch_report import BatchReport
from ingest.pipeline.decoding import Decoding
from ingest.pipeline.exchange import BatchPlan, RangeReport, chunks_of
from ingest.pipeline.sink import JobOutcome, MicroBatchSink
from ingest.pipeline.tasks import MapSide, reduced
from ingest.source.records import RawBatch, SourceRange
from ingest.state.table_registry import TableRegistry
from storage.clock import SystemClock
from storage.table.table import FileStoreTable

Batch = Mapping[tuple[str, int], Sequence[RawBatch]]
"""Records of a micro-batch by topic and partition."""


class _Position:
    """Where a stream stands, as far as the sink asks."""

    state = SimpleNamespace(base=1)

    def begin(self, batch_id: int) -> None:
        pass

    def note(self, identifier: int, batch_id: int, tables: tuple[str, ...]) -> None:
        pass

    def bounds(self, batch_id: int) -> tuple[dict[str, Any], dict[str, Any]]:
        return {}, {}


class LocalSink(MicroBatchSink):
    """Runs tasks in this process; each sees its own decoder, as in a worker of its own."""

    settings: Any
    runs: int = 0

    def _run(self, frame: Any, plan: BatchPlan) -> JobOutcome:
        self.runs += 1
        plan = BatchPlan.from_property(plan.to_property())
        reports, by_bucket = [], collections.defaultdict(list)
        for (topic, partition), batches in frame.items():
            side = MapSide(Decoding(self.settings), plan)
            piece = SourceRange(
                topic, partition, batches[0].offsets[0], batches[-1].offsets[-1] + 1
            )
            read = side.read(piece, batches)
            for chunk in itertools.chain.from_iterable(map(chunks_of, read)):
                by_bucket[chunk.table, chunk.partition, chunk.bucket].append(chunk)
            side.note_positions()
            reports.append(pickle.loads(pickle.dumps(side.report, 5)))
        results = [
            reduced(self._book.warehouse, plan, place[0], [*reversed(chunks)])
            for place, chunks in by_bucket.items()
        ]
        return JobOutcome(RangeReport.of(reports), tuple(results))


class LocalStream:
    """A pipeline over a directory.

    Args:
        path: empty directory.
        config: YAML besides `sink.warehouse` and `pipeline.name`.
    """

    def __init__(self, path: Path, config: str) -> None:
        file = path / "pipeline.yaml"
        file.write_text(config.replace("WAREHOUSE", str(path / "lake")))
        self.settings = load_settings(file)
        self.start()

    @classmethod
    def of(cls, settings: Settings) -> "LocalStream":
        """A pipeline with these settings."""
        stream = cls.__new__(cls)
        stream.settings = settings
        stream.start()
        return stream

    def start(self) -> None:
        """Begin anew, as after a crash: all that is known comes from the tables."""
        self.book = TableRegistry(self.settings, SystemClock())
        self.book.load()
        self.sink = LocalSink(
            stream=self.settings.pipeline.name,
            position=_Position(),  # type: ignore[arg-type]
            book=self.book,
            slots=1,
            clock=SystemClock(),
            on_start=lambda _: None,
            on_batch=lambda _: None,
            draining=threading.Event(),
        )
        self.sink.settings = self.settings

    def run(self, batch_id: int, batch: Batch) -> BatchReport:
        """One micro-batch."""
        return self.sink._process(batch, batch_id)  # type: ignore[arg-type]

    def table(self, name: str) -> FileStoreTable:
        """A table as it is now."""
        return self.book.table(name).latest()

    def rows(self, name: str) -> list[dict[str, Any]]:
        """Rows of a table without positions, by their first column."""
        found = self.table(name).to_arrow().to_pylist()
        rows = [{k: v for k, v in row.items() if not k.startswith("_seq_")} for row in found]
        return sorted(rows, key=lambda row: next(iter(row.values())))
