# SPDX-License-Identifier: Apache-2.0
"""How the files of a table lie in a snapshot: how many, how large, how many runs a bucket has."""

import dataclasses
from collections import Counter
from collections.abc import Iterable, Sequence

from storage.format.metadata.file_meta import DataFileMeta, ManifestEntry
from storage.table.commit.live_files import live_state
from storage.table.core import TableCore

__all__ = ["TableLayout", "layout_of", "levels_of"]


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class TableLayout:
    """Figures of one snapshot.

    Attributes:
        files: live data files.
        bytes: their size [bytes].
        records: their rows; several may be of one key.
        buckets: buckets that hold files.
        partitions: partitions that hold files.
        runs: sorted runs of each bucket; empty where files are not sorted.
        level0: files in level 0 of each bucket; empty where there are no levels.
        levels: (level, files, bytes) over all buckets, lowest first; levels without files are left
            out.
        debt_bytes: what a full compaction would move: all that is above the lowest run of its
            bucket [bytes].
        snapshot_id: of the snapshot.
        compaction_trigger: runs from which on a bucket is compacted.
        stop_trigger: runs from which on writers wait.
        schema_id: of the snapshot.
        snapshots: how many are kept.
        committed_ms: when the snapshot was committed [epoch ms].
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
        """By name of the metric, without `table_`."""
        found: dict[str, float] = {
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
            found |= {
                "level0_files_max": max(self.level0),
                "level0_files_avg": sum(self.level0) / len(self.level0),
                "sorted_runs_max": max(self.runs),
                "sorted_runs_avg": sum(self.runs) / len(self.runs),
                "sorted_runs_compaction_trigger": self.compaction_trigger,
                "sorted_runs_stop_trigger": self.stop_trigger,
            }
        return found


def layout_of(table: TableCore) -> TableLayout | None:
    """The figures of a table's newest snapshot; None when it has none.

    Reads manifests, of which this process holds the ones that it committed; lists nothing.

    Raises:
        LakewardError, OSError: what is read is damaged, away, or has expired meanwhile.
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
        runs=tuple(found[0] + len(found) - (0 in found) for found in levels) if keyed else (),
        level0=tuple(found[0] for found in levels) if keyed else (),
        levels=_by_level(entry.file for entry in entries),
        debt_bytes=sum(_debt([e.file for e in each]) for each in state.buckets.values()) * keyed,
        snapshot_id=snapshot.id,
        compaction_trigger=table.options.compaction_trigger,
        stop_trigger=table.options.stop_trigger,
        schema_id=snapshot.schema_id,
        snapshots=snapshot.id - (snapshot.id if earliest is None else earliest) + 1,
        committed_ms=snapshot.time_ms,
    )


def _levels(files: Iterable[DataFileMeta]) -> Counter[int]:
    """Files by level; every file of level 0 is a run, and so is every further level."""
    return Counter(file.level for file in files)


def _by_level(files: Iterable[DataFileMeta]) -> tuple[tuple[int, int, int], ...]:
    counts: Counter[int] = Counter()
    sizes: Counter[int] = Counter()
    for file in files:
        counts[file.level] += 1
        sizes[file.level] += file.file_size
    return tuple((level, counts[level], sizes[level]) for level in sorted(counts))


def _debt(files: Sequence[DataFileMeta]) -> int:
    """Bytes of a bucket above its lowest run: with level 0 alone, all but the largest file."""
    lowest = max(file.level for file in files)
    if lowest > 0:
        return sum(file.file_size for file in files if file.level < lowest)
    sizes = [file.file_size for file in files]
    return sum(sizes) - max(sizes)


def levels_of(entries: Sequence[ManifestEntry]) -> list[list[int]]:
    """[level, files, rows, bytes] of a table's live files, by level."""
    by_level: dict[int, list[int]] = {}
    for entry in entries:
        sums = by_level.setdefault(entry.file.level, [entry.file.level, 0, 0, 0])
        sums[1] += 1
        sums[2] += entry.file.row_count
        sums[3] += entry.file.file_size
    return [by_level[level] for level in sorted(by_level)]
