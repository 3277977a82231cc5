# SPDX-License-Identifier: Apache-2.0
"""Batches of raw records through map side, schema changes, reduce side and commits, in one process:
what the sink does, without Spark."""

import itertools

from ingest.daemon.configuration import load_settings
from ingest.pipeline.decoding import Decoding
from ingest.pipeline.exchange import BatchPlan, RangeReport, chunks_of
from ingest.pipeline.tasks import MapSide, reduce_chunks
from ingest.source.records import RawBatch, SourceRange
from ingest.state.stream_state import Warehouse
from ingest.state.table_registry import TableRegistry
from storage.clock import ManualClock


class TablePipeline:
    """A stream over one topic; `feed` is a micro-batch."""

    def __init__(self, directory, text, topic, name="shop", sink=""):
        path = directory / f"{name}.yaml"
        path.write_text(
            f"source: {{type: files, path: {directory}}}\n"
            f"sink: {{warehouse: {directory / 'lake'}{sink}}}\n"
            f"pipeline: {{name: {name}}}\n{text}"
        )
        self.settings = load_settings(path)
        self.book = TableRegistry(self.settings, ManualClock())
        self.book.load()
        self.topic = topic
        self.offset = 0
        self.batches = 0
        self.changes = []
        self.reached = {}

    def feed(self, *tasks, commit=True):
        """One micro-batch.

        Args:
            tasks: (key, value) records of each task, in source order.
            commit: whether to commit what was written.
        """
        ranges, start = [], self.offset
        for records in tasks:
            keys, values = zip(*records, strict=True)
            offsets = list(range(start, start + len(records)))
            ranges.append(RawBatch(self.topic, 0, offsets, list(keys), list(values)))
            start += len(records)
        frozen = {}
        for run in range(8):
            plan = BatchPlan(
                batch_id=self.batches,
                identifier=self.batches + 1,
                run=run,
                time_ms=1_700_000_000_000 + self.batches,
                tables=self.book.schema_ids(),
                frozen=frozen,
                answers=self.book.schemas.current_answers()
                if run
                else self.book.schemas.lasting_answers(),
                write_only=self.book.write_only(),
            )
            chunks, deltas, totals = [], [], RangeReport()
            for raw in ranges:
                side = MapSide(Decoding(self.settings), plan)
                piece = SourceRange(self.topic, 0, raw.offsets[0], raw.offsets[-1] + 1)
                made = side.read(piece, [raw])
                chunks += itertools.chain.from_iterable(map(chunks_of, made))
                deltas += side.report.deltas
                totals.add(side.report)
            if not deltas:
                break
            applied = self.book.schemas.apply(deltas, now_ms=plan.time_ms)
            self.changes += applied.applied
            frozen = {**frozen, **applied.refused}
        else:
            raise AssertionError(f"schema changes do not settle: {deltas}")
        tables = totals.tables.items()
        self.reached = {name: found.event_time_ms for name, found in tables}
        results = self._reduced(plan, chunks)
        if commit:
            for name in sorted({result.table for result in results}):
                messages = [m for r in results if r.table == name for m in r.messages]
                self.book.commit(name, messages, plan.identifier, {}, {}, {})
            self.offset = start
            self.batches += 1
        return results

    def _reduced(self, plan, chunks):
        owned = {}
        for chunk in chunks:
            owned.setdefault((chunk.table, chunk.partition, chunk.bucket), []).append(chunk)
        warehouse = Warehouse.of(self.settings.sink)
        return [reduce_chunks(warehouse, plan, reversed(part)) for part in owned.values()]

    def rows(self, name):
        """What a table holds."""
        return self.book.table(name).latest().to_arrow().to_pylist()

    def quarantined(self):
        """(class, error) of the bad records, in order of offset."""
        rows = sorted(self.rows(self.book.quarantine), key=lambda row: row["offset"])
        return [(row["error_class"], row["error"]) for row in rows]
