# SPDX-License-Identifier: Apache-2.0
"""The driver's part in sweeps (`sweeps`): the facts of each table's batch, and what is decided.

Crash by crash: what is decided follows from the table's newest commit and from the batch's own
records, so a batch that is done again decides the same; the new watch is committed with the rows,
the sweep with the watch that ends it. A table that has committed the batch is left out of it.
"""

import dataclasses
import logging
from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any

from ingest.pipeline.deletions.sweep_decisions import (
    Facts,
    Place,
    Verdict,
    decided,
    highest_number,
    others_since,
    unsweepable,
)
from ingest.pipeline.plan import BatchPlan
from ingest.pipeline.range_report import RangeReport
from ingest.source.ranges import floor_of, resume_token
from ingest.state.sweeps import OPEN, Numbers, SnapshotMark, Watch
from ingest.state.table_registry import TableBook
from ingest.transform.rule_names import transform_rule

__all__ = ["SweepPlanner"]

_LOG = logging.getLogger(__name__)


@dataclasses.dataclass(frozen=True, slots=True)
class _Rule:
    sweeps: bool
    softly: bool


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
        self._settings = book.settings
        self._rules: dict[str, _Rule] = {}

    def numbers(self) -> dict[str, Numbers]:
        """Tables that a snapshot passes, and above which floor they are written meanwhile."""
        return {
            name: Numbers(-1, watch.floor)
            for name, watch in self._watches().items()
            if watch.state == OPEN and watch.floor >= 0
        }

    def _rule(self, name: str) -> _Rule:
        """What the settings in force say, found once."""
        settings = self._book.settings
        if settings is not self._settings:
            self._settings, self._rules = settings, {}
        if name not in self._rules:
            softly = transform_rule(settings, name).soft_delete
            self._rules[name] = _Rule(settings.sweeps_table(name), softly)
        return self._rules[name]

    def _watches(self) -> dict[str, Watch]:
        if not self._book.settings.sweeps:
            return {}
        return {
            name: each.watch
            for name, each in self._book.progresses().items()
            if each.watch is not None and self._rule(name).sweeps
        }

    def decide(
        self,
        plan: BatchPlan,
        report: RangeReport,
        start: Mapping[str, Any],
        end: Mapping[str, Any],
    ) -> dict[str, Verdict]:
        """What becomes of the tables that are swept, those whose watch says something new.

        Args:
            plan: of a run after which schemas are settled.
            report: of the runs so far.
            start: source offsets at which the batch begins, of all partitions.
            end: at which it ends.
        """
        book = self._book
        if not book.settings.sweeps:
            return {}
        watches = self._watches()
        opened = {name for name, watch in watches.items() if watch.state == OPEN}
        marks: dict[str, list[SnapshotMark]] = {}
        for mark in report.snapshot_marks:
            marks.setdefault(mark.table, []).append(mark)
        names = (marks.keys() | opened | report.tables.keys()) & plan.tables.keys()
        names -= {*plan.skip, *plan.parked, *book.to_park(), book.quarantine, book.history}
        begins, ends = resume_token(start), resume_token(end)
        partitions = {topic: len(parts) for topic, parts in ends.items()}
        found: dict[str, Verdict] = {}
        for name in sorted(names):
            if not self._rule(name).sweeps:
                continue
            own = sorted(marks.get(name, ()), key=lambda mark: mark.offset)
            watch = watches.get(name)
            topics = {*report.feeds.get(name, ()), *book.offsets(name)}
            if reason := self._reason(name, topics, partitions, own):
                if own or name in opened:
                    self._warn_of(name, reason)
                found[name] = Verdict(watch=None, due=name in opened)
                continue
            topic = min(topics, default="")
            parts = ends.get(topic, {})
            if len(parts) != 1:
                continue
            ((partition, last),) = parts.items()
            begin = begins.get(topic, {}).get(partition, 0)
            begin = max(begin, floor_of(plan.floors, name).get(topic, {}).get(partition, 0))
            if last <= begin:
                continue
            place = Place(topic, int(partition), begin, last)
            facts = self._facts(report, name, place, own, watch)
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
        if not refusal and self._rule(name).softly:
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
        report: RangeReport,
        name: str,
        place: Place,
        marks: Sequence[SnapshotMark],
        watch: Watch | None,
    ) -> Facts:
        table = self._book.table(name)
        is_open = watch is not None and watch.state == OPEN
        newest = (table.snapshots.latest_id() or 0) if marks or is_open else 0
        where = (place.topic, place.partition)
        bad = max(report.bad_places.get((*where, target), -1) for target in (name, ""))
        counts = report.counts.get(place.topic, Counter())
        others = ""
        if watch is not None and watch.state == OPEN:
            own = self._book.snapshot_id(name)
            others = others_since(table, self._stream, watch.seen, own, newest)
        totals = report.tables.get(name)
        return Facts(
            place=place,
            marks=marks,
            reads=counts["op.r"] + counts["pending"],
            rows=totals is not None and totals.rows > 0,
            bad=bad if bad >= place.start else -1,
            skipped=where in report.skipped,
            others=others,
            top=highest_number(table, newest) if marks else -1,
            snapshot_id=newest,
        )
