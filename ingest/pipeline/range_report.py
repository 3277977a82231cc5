# SPDX-License-Identifier: Apache-2.0
"""What one source task tells the driver about the ranges it read."""

import dataclasses
from collections import Counter
from collections.abc import Iterable, Mapping

from ingest.decode.events import SchemaDelta
from ingest.decode.schema_change_events import TableDdl
from ingest.pipeline.deletions.truncates import Truncate
from ingest.pipeline.key_places import KeyPlaces
from ingest.pipeline.plan import Unwritable
from ingest.pipeline.quarantine.bad_counts import BadCounts
from ingest.pipeline.task_use import TaskUse
from ingest.source.position.stored import StoredPositions, merged_positions
from ingest.state.sweeps import SnapshotMark
from storage.errors import LakewardError

__all__ = ["BatchTotals", "RangeReport", "TableTotals"]

Range = tuple[str, int, int, int]


@dataclasses.dataclass(slots=True)
class TableTotals:
    """Per table: rows before merging, topics they came from, span of `source.ts_ms` [ms].

    Of a table in the order of the source also its highest positions (`BatchPlan.positions`) behind
    the rows, and how many rows were delivered again or late; of a table with a watermark the
    highest event time of the rows [epoch ms]. Also the (member of events, column) that are spelt
    otherwise.
    """

    rows: int = 0
    topics: set[str] = dataclasses.field(default_factory=set)
    min_ts_ms: int | None = None
    max_ts_ms: int | None = None
    positions: StoredPositions = dataclasses.field(default_factory=dict)
    repeated: int = 0
    event_time_ms: int | None = None
    matched: set[tuple[str, str]] = dataclasses.field(default_factory=set)

    def add(self, rows: int, topic: str, min_ts_ms: int | None, max_ts_ms: int | None) -> None:
        """Count one decoded batch."""
        self.merge(TableTotals(rows, {topic}, min_ts_ms, max_ts_ms))

    def merge(self, other: "TableTotals") -> None:
        """Add another task's totals."""
        self.rows += other.rows
        self.topics |= other.topics
        self.repeated += other.repeated
        self.matched |= other.matched
        self.reached(other.event_time_ms)
        if other.positions:
            self.positions = merged_positions(self.positions, other.positions)
        if other.min_ts_ms is not None:
            mine = self.min_ts_ms
            self.min_ts_ms = other.min_ts_ms if mine is None else min(mine, other.min_ts_ms)
        if other.max_ts_ms is not None:
            mine = self.max_ts_ms
            self.max_ts_ms = other.max_ts_ms if mine is None else max(mine, other.max_ts_ms)

    def reached(self, event_time_ms: int | None) -> None:
        """Count an event time [epoch ms]."""
        if event_time_ms is not None:
            mine = self.event_time_ms
            self.event_time_ms = event_time_ms if mine is None else max(mine, event_time_ms)


@dataclasses.dataclass(slots=True)
class RangeReport:
    """One task's ranges and counts; every task sends exactly one.

    Attributes:
        ranges: (topic, partition, start, end) read, end exclusive.
        records: read, by topic.
        bytes: key and value bytes read.
        walked: records that became rows by the compiled scan, by topic.
        counts: decoder counts by topic.
        bad: quarantined records by topic and error class.
        bad_records: bad records by the table they are for.
        tables: totals by table.
        ddl: statements of the schema change topic.
        deltas: records whose shape the table's schema does not cover.
        feeds: topics in which events for a table were met, parked tables too.
        skipped: offsets lost to retention by (topic, partition).
        seconds: wall time of the task's parts [s].
        keys: in which partitions keys are, and changes of key.
        truncates: events that empty tables.
        snapshot_marks: events with which snapshots begin or end, of tables that are swept.
        bad_places: highest offset of a bad record by topic, partition and table it is for (`""` =
            not known); below floors too. Only where tables are swept.
        failures: why a task could not do its part for a table, by table.
        use: what the task asked of store and registry.
        unwritable: records whose rows the task cannot hand on.
    """

    ranges: list[Range] = dataclasses.field(default_factory=list)
    records: Counter[str] = dataclasses.field(default_factory=Counter)
    bytes: int = 0
    walked: Counter[str] = dataclasses.field(default_factory=Counter)
    counts: dict[str, Counter[str]] = dataclasses.field(default_factory=dict)
    bad: dict[str, Counter[str]] = dataclasses.field(default_factory=dict)
    bad_records: BadCounts = dataclasses.field(default_factory=BadCounts)
    tables: dict[str, TableTotals] = dataclasses.field(default_factory=dict)
    deltas: list[SchemaDelta] = dataclasses.field(default_factory=list)
    ddl: list[TableDdl] = dataclasses.field(default_factory=list)
    skipped: dict[tuple[str, int], int] = dataclasses.field(default_factory=dict)
    seconds: dict[str, float] = dataclasses.field(default_factory=dict)
    feeds: dict[str, set[str]] = dataclasses.field(default_factory=dict)
    keys: KeyPlaces = dataclasses.field(default_factory=KeyPlaces)
    truncates: list[Truncate] = dataclasses.field(default_factory=list)
    snapshot_marks: list[SnapshotMark] = dataclasses.field(default_factory=list)
    bad_places: dict[tuple[str, int, str], int] = dataclasses.field(default_factory=dict)
    failures: dict[str, LakewardError] = dataclasses.field(default_factory=dict)
    use: TaskUse = dataclasses.field(default_factory=TaskUse)
    unwritable: list[Unwritable] = dataclasses.field(default_factory=list)

    def met(self, feeds: Mapping[str, Iterable[str]]) -> None:
        """Note which topics feed which tables."""
        for table, topics in feeds.items():
            self.feeds.setdefault(table, set()).update(topics)

    def met_bad(self, topic: str, partition: int, table: str, offset: int) -> None:
        """Note a bad record in `bad_places`."""
        place = (topic, partition, table)
        self.bad_places[place] = max(offset, self.bad_places.get(place, -1))

    def met_bad_too(self, other: "RangeReport") -> None:
        """Take in the `bad_places` of another report."""
        for place, offset in other.bad_places.items():
            self.met_bad(*place, offset)

    def spent(self, part: str, seconds: float) -> None:
        """Add wall time of one part [s]."""
        self.seconds[part] = self.seconds.get(part, 0.0) + seconds


@dataclasses.dataclass(slots=True)
class BatchTotals:
    """All tasks' reports of one run, added up."""

    report: RangeReport = dataclasses.field(default_factory=RangeReport)

    @staticmethod
    def of(reports: Iterable[RangeReport]) -> "BatchTotals":
        """Add up reports; ranges come out sorted."""
        totals = BatchTotals()
        for report in reports:
            totals.add(report)
        totals.report.ranges.sort()
        return totals

    def add(self, report: RangeReport) -> None:
        """Add one task's report."""
        mine = self.report
        mine.ranges += report.ranges
        mine.records += report.records
        mine.walked += report.walked
        mine.bytes += report.bytes
        mine.deltas += report.deltas
        mine.ddl += report.ddl
        mine.truncates += report.truncates
        mine.snapshot_marks += report.snapshot_marks
        mine.met_bad_too(report)
        mine.failures |= report.failures
        mine.unwritable += report.unwritable
        for part, seconds in report.seconds.items():
            mine.spent(part, seconds)
        mine.met(report.feeds)
        mine.keys.add(report.keys)
        for place, count in report.skipped.items():
            mine.skipped[place] = mine.skipped.get(place, 0) + count
        for topic, counts in report.counts.items():
            mine.counts.setdefault(topic, Counter()).update(counts)
        for topic, counts in report.bad.items():
            mine.bad.setdefault(topic, Counter()).update(counts)
        mine.bad_records.add(report.bad_records)
        for table, totals in report.tables.items():
            mine.tables.setdefault(table, TableTotals()).merge(totals)

    @property
    def span(self) -> dict[str, dict[str, tuple[int, int]]]:
        """Per topic and partition the (start, end) that the batch covers."""
        spans: dict[str, dict[str, tuple[int, int]]] = {}
        for topic, partition, start, end in self.report.ranges:
            by_partition = spans.setdefault(topic, {})
            known = by_partition.get(str(partition))
            if known is not None:
                start, end = min(start, known[0]), max(end, known[1])
            by_partition[str(partition)] = (start, end)
        return spans
