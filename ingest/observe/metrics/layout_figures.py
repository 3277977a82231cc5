# SPDX-License-Identifier: Apache-2.0
"""File layout of a table in a snapshot: numbers and sizes of files, sorted runs per bucket."""

import dataclasses
from collections import Counter
from collections.abc import Iterable, Sequence

from storage.format.metadata.file_meta import DataFileMeta, ManifestEntry
from storage.table.commit.live_files import live_state
from storage.table.core import TableCore


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class TableLayout:
    """File layout of one snapshot.

    Attributes:
        files: live data files.
        bytes: size of live data files [bytes].
        records: rows in live data files; several may have one key.
        buckets: buckets with live files.
        partitions: partitions with live files.
        runs: sorted runs of each bucket; empty if files are not sorted.
        level0: level-0 files of each bucket; empty without levels.
        levels: (level, files, bytes) over all buckets, ascending, without empty levels.
        debt_bytes: bytes that a full compaction would merge: all above the last sorted run of each
            bucket.
        snapshot_id: id of the snapshot.
        compaction_trigger: number of runs that triggers compaction.
        stop_trigger: number of runs above which writers wait.
        schema_id: schema of the snapshot.
        snapshots: number of retained snapshots.
        committed_ms: commit time of the snapshot [epoch ms].
    """

    files: int
    bytes: int
    records: int
    buckets: int
    partitions: int
    runs: tuple[int, ...]
    level0: tuple[int, ...]
    levels: tuple[tuple[int, int, int], ...] = ()
    debt_bytes: int = 0
    snapshot_id: int = 0
    compaction_trigger: int
    stop_trigger: int
    schema_id: int
    snapshots: int
    committed_ms: int

    def figures(self) -> dict[str, float]:
        """Return values by name of the metric, without `table_`."""
        figures: dict[str, float] = {
            "files": self.files,
            "bytes": self.bytes,
            "records": self.records,
            "buckets": self.buckets,
            "partitions": self.partitions,
            "schema_id": self.schema_id,
            "snapshots": self.snapshots,
            "layout_timestamp_seconds": self.committed_ms / 1000,
        }
        if self.runs:
            figures |= {
                "level0_files_max": max(self.level0),
                "level0_files_avg": sum(self.level0) / len(self.level0),
                "sorted_runs_max": max(self.runs),
                "sorted_runs_avg": sum(self.runs) / len(self.runs),
                "sorted_runs_compaction_trigger": self.compaction_trigger,
                "sorted_runs_stop_trigger": self.stop_trigger,
            }
        return figures


def layout_of(table: TableCore) -> TableLayout | None:
    """Return the layout of a table's newest snapshot; None if it has none.

    Reads manifests, of which this process caches those that it committed; lists no directory.

    Raises:
        LakewardError, OSError: metadata is corrupt, unavailable, or has expired meanwhile.
    """
    snapshot = table.snapshots.latest()
    if snapshot is None:
        return None
    state = live_state(table, snapshot)
    keyed = bool(table.schema.primary_keys)
    levels = [_levels(entry.file for entry in entries) for entries in state.buckets.values()]
    entries = list(state.entries())
    earliest = table.snapshots.earliest_id()
    return TableLayout(
        files=len(entries),
        bytes=sum(entry.file.file_size for entry in entries),
        records=sum(entry.file.row_count for entry in entries),
        buckets=len(state.buckets),
        partitions=len({partition for partition, _ in state.buckets}),
        runs=tuple(counts[0] + len(counts) - (0 in counts) for counts in levels) if keyed else (),
        level0=tuple(counts[0] for counts in levels) if keyed else (),
        levels=_by_level(entry.file for entry in entries),
        debt_bytes=sum(_debt([e.file for e in group]) for group in state.buckets.values()) * keyed,
        snapshot_id=snapshot.id,
        compaction_trigger=table.options.compaction_trigger,
        stop_trigger=table.options.stop_trigger,
        schema_id=snapshot.schema_id,
        snapshots=snapshot.id - (snapshot.id if earliest is None else earliest) + 1,
        committed_ms=snapshot.time_ms,
    )


def _levels(files: Iterable[DataFileMeta]) -> Counter[int]:
    """Count files by level; each level-0 file is a sorted run, and so is each higher level."""
    return Counter(file.level for file in files)


def _by_level(files: Iterable[DataFileMeta]) -> tuple[tuple[int, int, int], ...]:
    counts: Counter[int] = Counter()
    sizes: Counter[int] = Counter()
    for file in files:
        counts[file.level] += 1
        sizes[file.level] += file.file_size
    return tuple((level, counts[level], sizes[level]) for level in sorted(counts))


def _debt(files: Sequence[DataFileMeta]) -> int:
    """Return the bytes above the last run; with level 0 only, all but the largest file."""
    lowest = max(file.level for file in files)
    if lowest > 0:
        return sum(file.file_size for file in files if file.level < lowest)
    sizes = [file.file_size for file in files]
    return sum(sizes) - max(sizes)


def levels_of(entries: Sequence[ManifestEntry]) -> list[list[int]]:
    """Return [level, files, rows, bytes] of live files, by level."""
    by_level: dict[int, list[int]] = {}
    for entry in entries:
        sums = by_level.setdefault(entry.file.level, [entry.file.level, 0, 0, 0])
        sums[1] += 1
        sums[2] += entry.file.row_count
        sums[3] += entry.file.file_size
    return [by_level[level] for level in sorted(by_level)]
