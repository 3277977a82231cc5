# SPDX-License-Identifier: Apache-2.0
"""What tasks report to the driver: ranges read, counts, calls of store and registry, lookups."""

import dataclasses
from collections import Counter
from collections.abc import Iterable, Mapping

from ingest.decode.events import BadRecord, SchemaDelta
from ingest.decode.registry.client import REGISTRY_CALLS
from ingest.decode.schema_change_events import TableDdl
from ingest.pipeline.key_samples import KeySamples
from ingest.pipeline.plan import Unwritable
from ingest.pipeline.truncates import Truncate
from ingest.source.position.track import StoredPositions, merged_positions
from storage.errors import LakewardError
from storage.io.call_counts import CallFigures
from storage.io.counting import STORE_CALLS
from storage.lsm.lookup.store import LookupCounters, process_store


@dataclasses.dataclass(frozen=True, slots=True)
class TaskUse:
    """Calls of one task, or of several; a worker process runs one task at a time.

    Attributes:
        store: calls to the store of the warehouse.
        registry: requests to the schema registry.
    """

    store: CallFigures = dataclasses.field(default_factory=CallFigures)
    registry: CallFigures = dataclasses.field(default_factory=CallFigures)

    @staticmethod
    def now() -> "TaskUse":
        """Return all calls of this process so far."""
        return TaskUse(STORE_CALLS.figures(), REGISTRY_CALLS.figures())

    def until_now(self) -> "TaskUse":
        """Return the calls of this process since this state."""
        now = TaskUse.now()
        return TaskUse(now.store.since(self.store), now.registry.since(self.registry))

    def plus(self, other: "TaskUse") -> "TaskUse":
        """Return the sum of both."""
        return TaskUse(self.store.plus(other.store), self.registry.plus(other.registry))


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class LookupUse:
    """Use of the local copies of data files for lookups.

    Attributes:
        hits: lookups that found a copy.
        misses: lookups that had to build or wait for a copy.
        built_bytes: size of the copies built [bytes].
        evicted_files: copies evicted because of space or age.
        disk_bytes: maximum size of all copies on a machine [bytes].
    """

    hits: int = 0
    misses: int = 0
    built_bytes: int = 0
    evicted_files: int = 0
    disk_bytes: int = 0

    @staticmethod
    def since(before: LookupCounters) -> "LookupUse":
        """The use of this process's copies since its counters had these values."""
        after = process_store().counters()
        return LookupUse(
            hits=after.hits - before.hits,
            misses=after.misses - before.misses,
            built_bytes=after.built_bytes - before.built_bytes,
            evicted_files=after.evicted_files - before.evicted_files,
            disk_bytes=after.bytes_on_disk,
        )

    def plus(self, other: "LookupUse") -> "LookupUse":
        """Return the sum of both."""
        return LookupUse(
            hits=self.hits + other.hits,
            misses=self.misses + other.misses,
            built_bytes=self.built_bytes + other.built_bytes,
            evicted_files=self.evicted_files + other.evicted_files,
            disk_bytes=max(self.disk_bytes, other.disk_bytes),
        )


_TEXT = 300

Example = tuple[str, int, int, str]


@dataclasses.dataclass(slots=True)
class BadCounts:
    """Bad records of a run of a batch, by target table; every run counts all of them again.

    Attributes:
        failures: bad records by table and error class, to which the limits of the table apply;
            without those of an unknown table.
        quarantined: those, and those of an unknown table (`""`), that go to the quarantine table.
        dropped: those that the rule of the table drops.
        examples: topic, partition, offset and error of the first bad record, by table.
    """

    failures: dict[str, Counter[str]] = dataclasses.field(default_factory=dict)
    quarantined: dict[str, Counter[str]] = dataclasses.field(default_factory=dict)
    dropped: dict[str, Counter[str]] = dataclasses.field(default_factory=dict)
    examples: dict[str, Example] = dataclasses.field(default_factory=dict)

    def find(self, topic: str, partition: int, record: BadRecord) -> None:
        """Count one in `failures`."""
        _count(self.failures, record)
        self._exemplify(record.target, (topic, partition, record.offset, record.error[:_TEXT]))

    def keep(self, record: BadRecord) -> None:
        """Count one in `quarantined`."""
        _count(self.quarantined, record)

    def skip(self, record: BadRecord) -> None:
        """Count one in `dropped`."""
        _count(self.dropped, record)

    def add(self, other: "BadCounts") -> None:
        """Add another task's."""
        for totals, counts in (
            (self.failures, other.failures),
            (self.quarantined, other.quarantined),
            (self.dropped, other.dropped),
        ):
            for table, classes in counts.items():
                totals.setdefault(table, Counter()).update(classes)
        for table, example in other.examples.items():
            self._exemplify(table, example)

    def _exemplify(self, table: str, example: Example) -> None:
        self.examples[table] = min(example, self.examples.get(table, example))


def _count(counts: dict[str, Counter[str]], record: BadRecord) -> None:
    counts.setdefault(record.target, Counter())[record.error_class] += 1


Range = tuple[str, int, int, int]


@dataclasses.dataclass(slots=True)
class TableTotals:
    """Per table: rows before merging, topics they came from, span of `source.ts_ms` [ms].

    Of a table in the order of the source also its highest positions (`BatchPlan.positions`) after
    the rows, and how many rows were delivered again or late; of a table with a watermark the
    highest event time of the rows [epoch ms]. Also the (member of events, column) with different
    spellings.
    """

    rows: int = 0
    topics: set[str] = dataclasses.field(default_factory=set)
    min_ts_ms: int | None = None
    max_ts_ms: int | None = None
    positions: StoredPositions = dataclasses.field(default_factory=dict)
    repeated: int = 0
    event_time_ms: int | None = None
    case_matches: set[tuple[str, str]] = dataclasses.field(default_factory=set)

    def add(self, rows: int, topic: str, min_ts_ms: int | None, max_ts_ms: int | None) -> None:
        """Count one decoded batch."""
        self.merge(TableTotals(rows, {topic}, min_ts_ms, max_ts_ms))

    def merge(self, other: "TableTotals") -> None:
        """Add another task's totals."""
        self.rows += other.rows
        self.topics |= other.topics
        self.repeated += other.repeated
        self.case_matches |= other.case_matches
        self.reached(other.event_time_ms)
        if other.positions:
            self.positions = merged_positions(self.positions, other.positions)
        if other.min_ts_ms is not None:
            current = self.min_ts_ms
            self.min_ts_ms = other.min_ts_ms if current is None else min(current, other.min_ts_ms)
        if other.max_ts_ms is not None:
            current = self.max_ts_ms
            self.max_ts_ms = other.max_ts_ms if current is None else max(current, other.max_ts_ms)

    def reached(self, event_time_ms: int | None) -> None:
        """Count an event time [epoch ms]."""
        if event_time_ms is not None:
            current = self.event_time_ms
            self.event_time_ms = event_time_ms if current is None else max(current, event_time_ms)


@dataclasses.dataclass(slots=True)
class RangeReport:
    """One task's ranges and counts, of which every task sends exactly one; or those of a whole run.

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
        keys: partitions of keys, and changes of key.
        truncates: events that empty tables.
        failures: why a task could not do its part for a table, by table.
        use: calls of the task to store and registry.
        unwritable: records whose rows the task cannot assign to an owner.
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
    keys: KeySamples = dataclasses.field(default_factory=KeySamples)
    truncates: list[Truncate] = dataclasses.field(default_factory=list)
    failures: dict[str, LakewardError] = dataclasses.field(default_factory=dict)
    use: TaskUse = dataclasses.field(default_factory=TaskUse)
    unwritable: list[Unwritable] = dataclasses.field(default_factory=list)

    def met(self, feeds: Mapping[str, Iterable[str]]) -> None:
        """Note which topics feed which tables."""
        for table, topics in feeds.items():
            self.feeds.setdefault(table, set()).update(topics)

    def spent(self, part: str, seconds: float) -> None:
        """Add wall time of one part [s]."""
        self.seconds[part] = self.seconds.get(part, 0.0) + seconds

    @staticmethod
    def of(reports: Iterable["RangeReport"]) -> "RangeReport":
        """Add up the reports of all tasks of a run, without `use`; ranges come out sorted."""
        total = RangeReport()
        for report in reports:
            total.add(report)
        total.ranges.sort()
        return total

    def add(self, report: "RangeReport") -> None:
        """Add another task's report, without `use`."""
        self.ranges += report.ranges
        self.records += report.records
        self.walked += report.walked
        self.bytes += report.bytes
        self.deltas += report.deltas
        self.ddl += report.ddl
        self.truncates += report.truncates
        self.failures |= report.failures
        self.unwritable += report.unwritable
        for part, seconds in report.seconds.items():
            self.spent(part, seconds)
        self.met(report.feeds)
        self.keys.add(report.keys)
        for place, count in report.skipped.items():
            self.skipped[place] = self.skipped.get(place, 0) + count
        for topic, counts in report.counts.items():
            self.counts.setdefault(topic, Counter()).update(counts)
        for topic, counts in report.bad.items():
            self.bad.setdefault(topic, Counter()).update(counts)
        self.bad_records.add(report.bad_records)
        for table, totals in report.tables.items():
            self.tables.setdefault(table, TableTotals()).merge(totals)

    @property
    def span(self) -> dict[str, dict[str, tuple[int, int]]]:
        """Per topic and partition the (start, end) that the batch covers."""
        spans: dict[str, dict[str, tuple[int, int]]] = {}
        for topic, partition, start, end in self.ranges:
            by_partition = spans.setdefault(topic, {})
            span = by_partition.get(str(partition))
            if span is not None:
                start, end = min(start, span[0]), max(end, span[1])
            by_partition[str(partition)] = (start, end)
        return spans
