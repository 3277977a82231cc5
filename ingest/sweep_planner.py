# SPDX-License-Identifier: Apache-2.0
"""The driver's part in sweeps (`sweeps`): the facts of each table's batch, and what is decided.

Crash by crash: what is decided follows from the table's newest commit and from the batch's own
records, so a batch that is done again decides the same; the new watch is committed with the rows,
the sweep with the watch that ends it. A table that has committed the batch is left out of it.
"""

import logging
from collections import Counter
from collections.abc import Mapping
from typing import Any

from ingest.plan import BatchPlan, floor_of
from ingest.range_report import RangeReport
from ingest.source.ranges import resume_token
from ingest.stream_state import Span
from ingest.sweep_decisions import (
    Facts,
    Verdict,
    decided,
    highest_number,
    others_since,
    unsweepable,
)
from ingest.sweeps import OPEN, Numbers, SnapshotMark, Watch
from ingest.table_book import TableBook

__all__ = ["SweepPlanner"]

_LOG = logging.getLogger(__name__)


class SweepPlanner:
    """One per process.

    Args:
        book: the stream's tables.
        stream: its name.
    """

    def __init__(self, book: TableBook, stream: str) -> None:
        self._book = book
        self._stream = stream
        self._warned: set[tuple[str, str]] = set()

    def numbers(self) -> dict[str, Numbers]:
        """Tables that a snapshot passes, and above which floor they are written meanwhile."""
        return {
            name: Numbers(-1, watch.floor)
            for name, watch in self._watches().items()
            if watch.state == OPEN and watch.floor >= 0
        }

    def _watches(self) -> dict[str, Watch]:
        settings = self._book.settings
        if not settings.sweeps:
            return {}
        return {
            name: each.watch
            for name, each in self._book.progresses().items()
            if each.watch is not None and settings.sweeps_table(name)
        }

    def decide(
        self, plan: BatchPlan, report: RangeReport, span: Span, end: Mapping[str, Any]
    ) -> dict[str, Verdict]:
        """What becomes of the tables that are swept, those whose watch says something new.

        Args:
            plan: of a run after which schemas are settled.
            report: of the runs so far.
            span: ranges of the batch.
            end: source offsets at the end of the batch, of all partitions.
        """
        book = self._book
        if not book.settings.sweeps:
            return {}
        watches = self._watches()
        marks: dict[str, list[SnapshotMark]] = {}
        for mark in report.snapshot_marks:
            marks.setdefault(mark.table, []).append(mark)
        names = (marks.keys() | watches.keys() | report.tables.keys()) & plan.tables.keys()
        names -= {*plan.skip, *plan.parked, *book.to_park(), book.quarantine, book.history}
        partitions = {topic: len(parts) for topic, parts in resume_token(end).items()}
        found: dict[str, Verdict] = {}
        for name in sorted(names):
            if not book.settings.sweeps_table(name):
                continue
            own = sorted(marks.get(name, ()), key=lambda mark: mark.offset)
            watch = watches.get(name)
            topics = {*report.feeds.get(name, ()), *book.offsets(name)}
            if reason := self._reason(name, topics, partitions, own):
                if own or (watch is not None and watch.state == OPEN):
                    self._warn_of(name, reason)
                found[name] = Verdict(watch=None, due=watch is not None)
                continue
            facts = self._facts(plan, report, span, name, own, watch, min(topics, default=""))
            if facts is None:
                continue
            verdict = found[name] = decided(watch, facts)
            if verdict.told:
                _LOG.warning(
                    "rows that a snapshot did not bring are not deleted",
                    extra={"event": "sweep_called_off", "table": name, "reason": verdict.told},
                )
        return found

    def _reason(
        self,
        name: str,
        topics: set[str],
        partitions: Mapping[str, int],
        marks: list[SnapshotMark],
    ) -> str:
        refusal = next((mark.refusal for mark in marks if mark.refusal), "")
        if not refusal and self._book.settings.transform(name).soft_delete:
            refusal = "its deletes are soft"
        most = max((partitions.get(topic, 1) for topic in topics), default=1)
        return unsweepable(self._book.table(name), topics, most, refusal)

    def _warn_of(self, name: str, reason: str) -> None:
        if (name, reason) not in self._warned:
            self._warned.add((name, reason))
            _LOG.warning(
                "a table cannot be swept: rows that snapshots do not bring stay",
                extra={"event": "not_swept", "table": name, "reason": reason},
            )

    def _facts(
        self,
        plan: BatchPlan,
        report: RangeReport,
        span: Span,
        name: str,
        marks: list[SnapshotMark],
        watch: Watch | None,
        topic: str,
    ) -> Facts | None:
        """None when the batch has nothing for the table."""
        parts = span.get(topic, {})
        if len(parts) != 1:
            return None
        ((partition, (begin, end)),) = parts.items()
        start = max(begin, floor_of(plan.floors, name).get(topic, {}).get(partition, 0))
        if end <= start:
            return None
        number = int(partition)
        table = self._book.table(name)
        newest = table.snapshots.latest_id() or 0
        bad = max(
            (report.bad_places.get((topic, number, target), -1) for target in (name, "")),
            default=-1,
        )
        counts = report.counts.get(topic, Counter())
        others = ""
        if watch is not None and watch.state == OPEN:
            others = others_since(table, self._stream, watch.seen, newest)
        totals = report.tables.get(name)
        return Facts(
            topic=topic,
            partition=number,
            start=start,
            end=end,
            marks=marks,
            reads=counts["op.r"] + counts["pending"],
            rows=totals is not None and totals.rows > 0,
            bad=bad if bad >= start else -1,
            skipped=(topic, number) in report.skipped,
            others=others,
            top=highest_number(table, newest) if marks else -1,
            snapshot_id=newest,
        )
