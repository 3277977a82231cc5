# SPDX-License-Identifier: Apache-2.0
"""From a snapshot and a filter to a plan: which files of which buckets are read, in what units.

Pruning (SEMANTICS.md §J), each step only where it cannot change the result:

* partition conditions prune partitions;
* equality on all bucket-key columns prunes buckets;
* conditions on the primary key prune files by their key range, because every version of a key
  that matches lies in files whose range matches;
* conditions on values prune files that are alone in their section: no other file holds another
  version of their keys. Elsewhere a value condition must wait until after merging, unless no
  version of any row of the section can match and merging picks one of them.

In a primary-key table with deletion vectors the files above level 0 hold each key at most once
among the rows that their vectors leave, so each is a section of its own; files of level 0 do not
show before compaction has marked what they replace (SEMANTICS.md §E).
"""

import dataclasses
import itertools
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any

from storage.clock import epoch_of_local_ms
from storage.format.metadata.file_meta import DataFileMeta, ManifestEntry
from storage.format.metadata.layout import POSTPONE_BUCKET
from storage.format.metadata.manifest import ManifestFileMeta
from storage.format.metadata.snapshot import Snapshot
from storage.lsm.levels import Section, SortedRun, sections
from storage.options.options import require_readable
from storage.table.commit.live_files import BucketId, live_buckets, live_entries, live_state
from storage.table.core import TableCore
from storage.table.read.deletion_vectors import DeletionFile, deletion_files
from storage.table.read.lost_files import judging_losses
from storage.table.scan.predicate import (
    And,
    Compare,
    Op,
    Predicate,
    conjuncts,
)
from storage.table.scan.scan_pruning import Pruning
from storage.table.scan.time_travel import chosen_snapshot

__all__ = ["Plan", "Split", "TableScan", "skips_level_0"]


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Split:
    """A piece of one bucket that can be read by itself. Picklable.

    Attributes:
        snapshot_id: snapshot it belongs to.
        partition: framed BinaryRow.
        partition_path: directory part of the partition.
        bucket: bucket id.
        sections: ascending by key; the runs of each are merged.
        raw: whether no section needs merging.
        deletion_vectors: where the vectors of the files lie, by file name; files without a
            deleted row are left out.
    """

    snapshot_id: int
    partition: bytes
    partition_path: str
    bucket: int
    sections: tuple[Section, ...]
    raw: bool
    deletion_vectors: tuple[tuple[str, DeletionFile], ...] = ()

    @property
    def files(self) -> tuple[DataFileMeta, ...]:
        """All files, by section."""
        return tuple(file for section in self.sections for run in section for file in run.files)

    @property
    def row_count(self) -> int:
        """Rows before merging, deletes included."""
        return sum(file.row_count for file in self.files)

    @property
    def live_row_count(self) -> int | None:
        """Rows that a read without a filter gives; None when only reading can tell."""
        unknown = any(vector.cardinality is None for _, vector in self.deletion_vectors)
        if unknown or not self.raw or any(file.delete_row_count for file in self.files):
            return None
        return self.row_count - sum(file.cardinality or 0 for _, file in self.deletion_vectors)

    @property
    def size(self) -> int:
        """Sum of file sizes [bytes]."""
        return sum(file.file_size for file in self.files)


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Plan:
    """What a read does.

    Attributes:
        snapshot_id: the snapshot; None on a table without snapshots.
        splits: independent pieces; no key is in two of them.
    """

    snapshot_id: int | None
    splits: tuple[Split, ...]


@dataclasses.dataclass(frozen=True, slots=True)
class TableScan:
    """Description of a scan; the `with_` methods give changed copies.

    Attributes:
        table: the table.
        snapshot_id: snapshot to read; None = the newest.
        predicate: rows wanted; what the plan cannot decide is left to the reader.
        buckets: buckets wanted; None = all.
        all_levels: also files of level 0 where batch reads leave them out.
        min_level: only files of this level or above.
        files_since_ms: only files made at or after this time [epoch ms]; None = all.
    """

    table: TableCore
    snapshot_id: int | None = None
    predicate: Predicate | None = None
    buckets: frozenset[int] | None = None
    all_levels: bool = False
    min_level: int = 0
    files_since_ms: int | None = None

    def with_snapshot(self, snapshot_id: int | None) -> "TableScan":
        """Read this snapshot; None = the newest."""
        return dataclasses.replace(self, snapshot_id=snapshot_id)

    def with_filter(self, predicate: Predicate | None) -> "TableScan":
        """Only rows for which the predicate is true, together with earlier ones."""
        if predicate is None:
            return self
        return dataclasses.replace(
            self, predicate=And((*conjuncts(self.predicate), *conjuncts(predicate)))
        )

    def with_partition_filter(self, values: Mapping[str, Any]) -> "TableScan":
        """Only the partitions with these values."""
        equal = tuple(Compare(Op.EQ, name, value) for name, value in values.items())
        return self.with_filter(And(equal))

    def with_bucket(self, *buckets: int) -> "TableScan":
        """Only these buckets."""
        return dataclasses.replace(self, buckets=frozenset(buckets))

    def with_all_levels(self) -> "TableScan":
        """Also files of level 0 of tables whose batch reads leave them out, merged.

        What the first read of a stream shows: rows of level 0 must not come twice or never.
        """
        return dataclasses.replace(self, all_levels=True)

    def with_min_level(self, level: int) -> "TableScan":
        """Only files of this level or above; rows that lie lower do not show."""
        return dataclasses.replace(self, all_levels=True, min_level=level)

    def with_files_since(self, time_ms: int | None) -> "TableScan":
        """Only files made at or after a time [epoch ms]; None = all."""
        return dataclasses.replace(self, files_since_ms=time_ms)

    def live_entries(self, snapshot: Snapshot) -> list[ManifestEntry]:
        """All live files of a snapshot; filters do not count."""
        return live_entries(self.table, snapshot)

    def plan(self, snapshot: Snapshot | None = None) -> Plan:
        """Read the metadata and cut the live files into splits.

        Args:
            snapshot: the state to read, as of a tag; None = what `with_snapshot` says.

        Raises:
            NotFoundError: there is no such snapshot (any more).
            CorruptDataError: metadata of the snapshot is damaged or, of the newest, missing.
            FileNotFoundError: metadata of an older snapshot is missing.
            UnsupportedFeatureError: reading would return wrong rows; names the option.
        """
        require_readable(self.table.options)
        scan = self
        if snapshot is None and self.snapshot_id is not None:
            snapshot = self.table.snapshots.read(self.snapshot_id)
        elif snapshot is None:
            snapshot, since_ms = chosen_snapshot(self.table)
            scan = self if since_ms is None else self.with_files_since(since_ms)
        if snapshot is None:
            return Plan(snapshot_id=None, splits=())
        with judging_losses(self.table, snapshot.id):
            return scan._plan(snapshot)

    def _plan(self, snapshot: Snapshot) -> Plan:
        pruning = Pruning(self.table, self.predicate)
        found: list[Split] = []
        buckets = self._buckets(snapshot, pruning)
        vectors = None
        if self.table.options.deletion_vectors_enabled:
            vectors = deletion_files(self.table, snapshot)
        for partition, group in itertools.groupby(sorted(buckets), key=lambda one: one[0]):
            if not pruning.keeps_partition(partition):
                continue
            path = self.table.partition_path(partition)
            for _, bucket in group:
                entries = buckets[(partition, bucket)]
                if self._wants(bucket, entries, pruning):
                    splits = self._splits(snapshot, partition, path, bucket, entries, pruning)
                    found += splits if vectors is None else _marked(splits, vectors)
        return Plan(snapshot_id=snapshot.id, splits=tuple(found))

    def _buckets(
        self, snapshot: Snapshot, pruning: Pruning
    ) -> Mapping[BucketId, Sequence[ManifestEntry]]:
        """Live files by bucket, at least of those wanted."""
        if self.buckets is None and not pruning.chooses_buckets:
            return live_state(self.table, snapshot).buckets
        partitions: dict[bytes, bool] = {}

        def wanted(partition: bytes, bucket: int, total_buckets: int) -> bool:
            if self.buckets is not None and bucket not in self.buckets:
                return False
            kept = partitions.get(partition)
            if kept is None:
                kept = partitions[partition] = pruning.keeps_partition(partition)
            return kept and pruning.keeps_bucket(bucket, total_buckets)

        def keeps(meta: ManifestFileMeta) -> bool:
            return meta.may_hold(self.buckets) and pruning.keeps_manifest(meta)

        return live_buckets(self.table, snapshot, wanted, keeps)

    def _wants(self, bucket: int, entries: Sequence[ManifestEntry], pruning: Pruning) -> bool:
        if bucket == POSTPONE_BUCKET or (self.buckets is not None and bucket not in self.buckets):
            return False  # postponed rows show when a job has given them buckets
        return any(pruning.keeps_bucket(bucket, entry.total_buckets) for entry in entries)

    def _splits(
        self,
        snapshot: Snapshot,
        partition: bytes,
        path: str,
        bucket: int,
        entries: Sequence[ManifestEntry],
        pruning: Pruning,
    ) -> Iterator[Split]:
        skips = not self.all_levels and skips_level_0(self.table)
        files = [
            entry.file
            for entry in entries
            if not (skips and entry.file.level == 0)
            and self._reads(entry.file)
            and pruning.keeps_by_key(entry.file)
        ]
        for group in self._packed(self._sections(files, pruning)):
            yield Split(
                snapshot_id=snapshot.id,
                partition=partition,
                partition_path=path,
                bucket=bucket,
                sections=group,
                raw=all(len(section) == 1 for section in group),
            )

    def _reads(self, file: DataFileMeta) -> bool:
        if file.level < self.min_level:
            return False
        if self.files_since_ms is None:
            return True
        made = file.creation_time_ms
        return made is not None and epoch_of_local_ms(made) >= self.files_since_ms

    def _sections(self, files: Sequence[DataFileMeta], pruning: Pruning) -> Iterator[Section]:
        key_of = self.table.key_of
        if key_of is None:
            ordered = sorted(files, key=lambda file: file.min_sequence_number)
            cut: Iterable[Section] = _singly(ordered)
        elif self.table.options.deletion_vectors_enabled and _without_versions(files):
            cut = _singly(sorted(files, key=lambda file: key_of(file.min_key)))
        else:
            cut = sections(files, key_of)
        for section in cut:
            if len(section) > 1:
                if pruning.keeps_section(section):
                    yield section
                continue
            run = section[0]
            kept = tuple(file for file in run.files if pruning.keeps_by_values(file))
            if kept:
                yield (SortedRun(run.level, kept),)

    def _packed(self, cut: Iterable[Section]) -> Iterator[tuple[Section, ...]]:
        """Neighbouring sections together until a split is large enough."""
        options = self.table.options
        group: list[Section] = []
        weight = 0
        for section in cut:
            files = [file for run in section for file in run.files]
            more = sum(max(file.file_size, options.source_split_open_file_cost) for file in files)
            if group and weight + more > options.source_split_target_size:
                yield tuple(group)
                group, weight = [], 0
            group.append(section)
            weight += more
        if group:
            yield tuple(group)


def skips_level_0(table: TableCore) -> bool:
    """Whether batch reads leave out files of level 0: what they replace is not marked yet."""
    options = table.options
    if not table.schema.primary_keys:
        return False
    if options.deletion_vectors_enabled:
        return not options.deletion_vectors_merge_on_read
    return options.merge_engine == "first-row"


def _without_versions(files: Iterable[DataFileMeta]) -> bool:
    """Whether no key is in two of the files, where deletion vectors mark replaced rows."""
    return all(file.level > 0 and not file.delete_row_count for file in files)


def _singly(files: Iterable[DataFileMeta]) -> Iterator[Section]:
    return ((SortedRun(file.level, (file,)),) for file in files)


def _marked(
    splits: Iterable[Split], vectors: Callable[[BucketId], Mapping[str, DeletionFile]]
) -> Iterator[Split]:
    """Splits of one bucket with the deletion vectors of their files."""
    known: Mapping[str, DeletionFile] | None = None
    for split in splits:
        if known is None:
            known = vectors((split.partition, split.bucket))
        names = [file.file_name for file in split.files if file.file_name in known]
        located = tuple((name, known[name]) for name in names)
        yield dataclasses.replace(split, deletion_vectors=located) if located else split
