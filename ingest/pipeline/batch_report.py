# SPDX-License-Identifier: Apache-2.0
"""Report of a finished micro-batch, for logs, metrics, the status board and the demo."""

import dataclasses
from collections.abc import Mapping

from ingest.pipeline.task_use import TaskUse
from ingest.schema.schema_modes import Verdict

__all__ = ["BatchReport", "LookupUse", "Written"]


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

    def plus(self, other: "LookupUse") -> "LookupUse":
        """Return the sum of both."""
        return LookupUse(
            hits=self.hits + other.hits,
            misses=self.misses + other.misses,
            built_bytes=self.built_bytes + other.built_bytes,
            evicted_files=self.evicted_files + other.evicted_files,
            disk_bytes=max(self.disk_bytes, other.disk_bytes),
        )


@dataclasses.dataclass(slots=True)
class Written:
    """Files of one type.

    Attributes:
        files: how many.
        bytes: their size [bytes].
    """

    files: int = 0
    bytes: int = 0

    def add(self, size: int) -> None:
        """Count a file."""
        self.files += 1
        self.bytes += size


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class BatchReport:
    """Counts and times of one micro-batch; counts are of committed work only.

    Attributes:
        batch_id: Spark's batch id.
        identifier: commit identifier.
        outcome: `committed`, `empty`, `replayed` or `failed`.
        events: records read from the source.
        records: the same by topic.
        walked: those of them that the compiled scan decoded, by topic.
        bytes: payload bytes read.
        rows_by_table: per table rows by kind (`insert`, `update_after`, `delete`…).
        counts: decoder counts (`op.c`, `tombstone`, `heartbeat`…) by topic.
        bad_by_topic: quarantined records per topic and error class.
        bad_by_table: quarantined records per target table and error class; `""` = unknown.
        bad_skipped: bad records that a table's rule dropped, per table and error class.
        snapshots: newest snapshot id per committed table.
        replayed: tables that an earlier attempt of the batch committed.
        sorted_runs: largest run count over the buckets touched, per table.
        compactions: buckets compacted per table.
        compactions_dropped: buckets per table whose compaction lost a race; their rows stay as
            they were appended.
        written: files that were appended, per (table, type): data, changelog, index.
        bucket_skew: most rows of a bucket over their mean, per table.
        slowest_s: time of the bucket that took longest [s].
        use: calls of tasks to store and registry.
        compaction_read_bytes: of files that committed compactions replaced per table [bytes].
        compaction_bytes: written by committed compactions per table [bytes].
        compaction_seconds: tasks' time to flush and compact the buckets compacted [s].
        changelog_rows: rows of committed changelog files per table.
        values_kept: values that the source did not send, kept from older rows, per table.
        values_lost: values that the source did not send and that no older row had, per table.
        ordering_violations: sampled keys that occurred in two partitions, by topic: (hash of the
            key, partition, other partition).
        split_key_updates: key updates whose other half is in another batch, by topic.
        repeated: rows of tables with `ordering: source` that were delivered again or late.
        lookup: use of local copies; None without lookups.
        commit_retries: lost races, over all tables.
        commit_seconds: commit duration per table [s].
        source_ts_ms: per table (oldest, newest) `source.ts_ms` in the batch [ms].
        end_offsets: next offset to read per topic and partition.
        skipped_offsets: offsets lost to retention per (topic, partition).
        schema_verdicts: decisions on requested schema changes, as (table, verdict) pairs.
        parked: tables that this batch parked, as (table, reason) pairs.
        parked_bad: those of them that had too many bad records.
        matched: (table, field of events, column) for columns matched to another letter case or
            normal form.
        dead_letters: copies of bad records acknowledged by the dead-letter topic.
        duration_s: whole batch on the driver [s].
        phases: wall seconds by phase: plan, job, schema, commit [s].
        started_ms: when the driver began [ms].
    """

    batch_id: int
    identifier: int
    outcome: str
    events: int = 0
    records: Mapping[str, int] = dataclasses.field(default_factory=dict)
    bytes: int = 0
    walked: Mapping[str, int] = dataclasses.field(default_factory=dict)
    rows_by_table: Mapping[str, Mapping[str, int]] = dataclasses.field(default_factory=dict)
    counts: Mapping[str, Mapping[str, int]] = dataclasses.field(default_factory=dict)
    bad_by_topic: Mapping[str, Mapping[str, int]] = dataclasses.field(default_factory=dict)
    bad_by_table: Mapping[str, Mapping[str, int]] = dataclasses.field(default_factory=dict)
    bad_skipped: Mapping[str, Mapping[str, int]] = dataclasses.field(default_factory=dict)
    snapshots: Mapping[str, int] = dataclasses.field(default_factory=dict)
    replayed: tuple[str, ...] = ()
    sorted_runs: Mapping[str, int] = dataclasses.field(default_factory=dict)
    compactions: Mapping[str, int] = dataclasses.field(default_factory=dict)
    compactions_dropped: Mapping[str, int] = dataclasses.field(default_factory=dict)
    written: Mapping[tuple[str, str], Written] = dataclasses.field(default_factory=dict)
    bucket_skew: Mapping[str, float] = dataclasses.field(default_factory=dict)
    slowest_s: float = 0.0
    use: TaskUse = dataclasses.field(default_factory=TaskUse)
    compaction_read_bytes: Mapping[str, int] = dataclasses.field(default_factory=dict)
    compaction_bytes: Mapping[str, int] = dataclasses.field(default_factory=dict)
    compaction_seconds: Mapping[str, float] = dataclasses.field(default_factory=dict)
    changelog_rows: Mapping[str, int] = dataclasses.field(default_factory=dict)
    values_kept: Mapping[str, int] = dataclasses.field(default_factory=dict)
    values_lost: Mapping[str, int] = dataclasses.field(default_factory=dict)
    repeated: Mapping[str, int] = dataclasses.field(default_factory=dict)
    ordering_violations: Mapping[str, set[tuple[int, int, int]]] = dataclasses.field(
        default_factory=dict
    )
    split_key_updates: Mapping[str, int] = dataclasses.field(default_factory=dict)
    lookup: LookupUse | None = None
    commit_retries: int = 0
    commit_seconds: Mapping[str, float] = dataclasses.field(default_factory=dict)
    source_ts_ms: Mapping[str, tuple[int, int]] = dataclasses.field(default_factory=dict)
    end_offsets: Mapping[str, Mapping[str, int]] = dataclasses.field(default_factory=dict)
    skipped_offsets: Mapping[tuple[str, int], int] = dataclasses.field(default_factory=dict)
    schema_verdicts: tuple[tuple[str, Verdict], ...] = ()
    parked: tuple[tuple[str, str], ...] = ()
    parked_bad: tuple[str, ...] = ()
    matched: tuple[tuple[str, str, str], ...] = ()
    dead_letters: int = 0
    duration_s: float = 0.0
    phases: Mapping[str, float] = dataclasses.field(default_factory=dict)
    started_ms: int = 0

    @property
    def bad_records(self) -> int:
        """Records that went to quarantine."""
        return sum(sum(classes.values()) for classes in self.bad_by_topic.values())

    @property
    def rows(self) -> int:
        """Rows written to tables, quarantine excluded."""
        return sum(
            sum(kinds.values())
            for table, kinds in self.rows_by_table.items()
            if not table.endswith("._quarantine")
        )
