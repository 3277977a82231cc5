# SPDX-License-Identifier: Apache-2.0
"""From snapshots and a filter to splits: which files of which buckets are read, in what units.

A plan of a state reads the live files of one snapshot. A plan of changes reads what a snapshot
added, or the difference of two states (SEMANTICS.md §C.8, §C.9).

Pruning (SEMANTICS.md §J), each step only where it cannot change the result:

* partition conditions prune partitions;
* equality on all bucket-key columns prunes buckets;
* conditions on the primary key prune files by their key range, because every version of a key
  that matches is in files whose range matches;
* conditions on values prune files that are alone in their section: no other file holds another
  version of their keys. Elsewhere a value condition must wait until after merging, unless no
  version of any row of the section can match and merging picks one of them.

In a primary-key table with deletion vectors the files above level 0 hold each key at most once
among the rows that their vectors leave, so each is a section of its own; files of level 0 are
not visible before compaction has marked what they replace (SEMANTICS.md §E).
"""

import dataclasses
import enum
import itertools
import re
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any

import pyarrow as pa

from storage.clock import epoch_of_local_ms
from storage.errors import InvalidRequestError
from storage.format.files.file_columns import keeps_values
from storage.format.metadata.file_meta import DataFileMeta, FileKind, ManifestEntry, SimpleStats
from storage.format.metadata.layout import POSTPONE_BUCKET
from storage.format.metadata.manifest import ManifestFileMeta
from storage.format.metadata.schema import TableSchema
from storage.format.metadata.snapshot import Snapshot
from storage.format.row.binary_row import decode_row
from storage.format.row.bucket import assign_buckets
from storage.format.types.default_values import read_defaults
from storage.format.types.types import AtomicType, DataField, DataType, TypeRoot, arrow_type
from storage.lsm.levels import Section, SortedRun, sections
from storage.options.options import require_readable
from storage.table.commit.live_files import (
    BucketId,
    delta_entries,
    list_entries,
    live_buckets,
    live_entries,
    live_state,
)
from storage.table.core import TableCore
from storage.table.read.deletion_vectors import DeletionFile, deletion_files
from storage.table.read.missing_files import explain_missing_files
from storage.table.scan.file_index import FileIndexFilter
from storage.table.scan.predicate import (
    And,
    Compare,
    In,
    Op,
    Predicate,
    Range,
    both,
    columns_of,
    conjuncts,
    could_match,
)
from storage.table.scan.time_travel import chosen_changes, chosen_snapshot, is_incremental

# A predicate split by what it can prune of a snapshot.
#
# Which step is sound for which files is decided in `scan`; how ranges are evaluated in `prune`.
# Source: SEMANTICS.md §J.


_CONTROL = re.compile(r"[\x00-\x1f]")
_PICKS_A_ROW = frozenset({"deduplicate", "first-row"})


class Pruning:
    """A predicate split by what it can prune."""

    def __init__(self, table: TableCore, predicate: Predicate | None) -> None:
        schema = table.schema
        self._table = table
        self._schema = schema
        defaults = read_defaults(schema)  # read instead of null, unknown to statistics
        parts = [part for part in conjuncts(predicate) if not columns_of(part) & defaults.keys()]
        self._types = {field.name: arrow_type(field.type) for field in schema.fields}
        self._partition = _predicates_on(parts, schema.partition_keys)
        self._key = _predicates_on(
            parts, schema.trimmed_primary_keys if schema.primary_keys else ()
        )
        self._values = tuple(part for part in parts if part not in self._partition)
        self._index = FileIndexFilter(table, And(self._values))
        self._wanted_buckets: dict[int, frozenset[int] | None] = {}
        self._bucket_keys = _equal_values(parts, schema.bucket_keys, self._types) if parts else None

    def keeps_partition(self, partition: bytes) -> bool:
        """Whether a partition may hold a matching row."""
        if not self._partition:
            return True
        fields = self._schema.partition_fields
        values = decode_row(partition, [field.type for field in fields])
        ranges = {
            field.name: Range(low=value, high=value, null_count=int(value is None), row_count=1)
            for field, value in zip(fields, values, strict=True)
        }
        return all(could_match(part, ranges.get, self._types) for part in self._partition)

    @property
    def chooses_buckets(self) -> bool:
        """Whether there are conditions on partitions or on all bucket-key columns."""
        return bool(self._partition) or self._bucket_keys is not None

    def keeps_manifest(self, meta: ManifestFileMeta) -> bool:
        """Whether a manifest may hold files of a partition with a matching row."""
        if not self._partition:
            return True
        count = meta.num_added_files + meta.num_deleted_files
        ranges = _stats_ranges(meta.partition_stats, self._schema.partition_fields, count)
        return all(could_match(part, ranges.get, self._types) for part in self._partition)

    def keeps_bucket(self, bucket: int, total_buckets: int) -> bool:
        """Whether a bucket may hold a matching row, by equality on all bucket-key columns."""
        if self._bucket_keys is None or total_buckets <= 1:
            return True
        if total_buckets not in self._wanted_buckets:
            self._wanted_buckets[total_buckets] = self._buckets_of(total_buckets)
        buckets = self._wanted_buckets[total_buckets]
        return buckets is None or bucket in buckets

    def _buckets_of(self, total_buckets: int) -> frozenset[int] | None:
        fields = [self._schema.field(name) for name in self._schema.bucket_keys]
        rows = list(itertools.product(*(self._bucket_keys or ())))
        try:
            columns = [
                _as_column([row[position] for row in rows], self._types[field.name])
                for position, field in enumerate(fields)
            ]
        except (pa.ArrowInvalid, pa.ArrowTypeError, pa.ArrowNotImplementedError, OverflowError):
            return None  # not a value of the column; evaluation decides
        buckets = assign_buckets(
            columns,
            [field.type for field in fields],
            total_buckets,
            self._table.options.bucket_function,
        )
        return frozenset(buckets.tolist())

    def keeps_by_key(self, file: DataFileMeta) -> bool:
        """Whether a file may hold a matching key."""
        if not self._key:
            return True
        fields = self._schema.key_fields
        types = [field.type for field in fields]
        lows, highs = decode_row(file.min_key, types), decode_row(file.max_key, types)
        # only a prefix of equal values bounds the next key column
        ranges: dict[str, Range] = {}
        for field, low, high in zip(fields, lows, highs, strict=True):
            if low is None or high is None:
                break
            lowest = _low(low, field.type)
            ranges[field.name] = Range(
                low=lowest, high=high, null_count=0, row_count=file.row_count
            )
            if lowest != high or isinstance(low, float):  # there are two zeros, which are equal
                break
        ranges = {**_stats_ranges(file.key_stats, fields, file.row_count), **ranges}
        return all(could_match(part, ranges.get, self._types) for part in self._key)

    def keeps_section(self, section: Section) -> bool:
        """Whether a section of several runs may hold a matching row.

        Where merging picks one of the versions of a row, a section is pruned if none can match.
        """
        if not self._values or self._table.options.merge_engine not in _PICKS_A_ROW:
            return True
        return any(self.keeps_by_values(file) for run in section for file in run.files)

    def keeps_by_values(self, file: DataFileMeta) -> bool:
        """Whether a file that is alone in its section may hold a matching row."""
        if not self._values:
            return True
        file_schema = self._table.schemas.read(file.schema_id)
        ranges = _value_ranges(file, file_schema, self._schema)
        if not all(could_match(part, ranges, self._types) for part in self._values):
            return False
        return self._index.keeps_embedded(file)


def _predicates_on(parts: Sequence[Predicate], names: Iterable[str]) -> tuple[Predicate, ...]:
    allowed = frozenset(names)
    return tuple(part for part in parts if columns_of(part) <= allowed)


def _equal_values(
    parts: Sequence[Predicate], columns: Sequence[str], types: Mapping[str, pa.DataType]
) -> tuple[tuple[Any, ...], ...] | None:
    """Per column the values that `=` or `IN` allow; None when a column is not so bound.

    Floats are equal that have other bits, and so another bucket: both zeros, and NaN of any kind.
    """
    bound: dict[str, tuple[Any, ...]] = {}
    for part in parts:
        if isinstance(part, Compare) and part.op is Op.EQ and part.literal is not None:
            bound[part.column] = (part.literal,)
        elif isinstance(part, In) and None not in part.literals:
            bound.setdefault(part.column, part.literals)
    if not columns or any(name not in bound for name in columns):
        return None
    for name in columns:
        if pa.types.is_floating(types[name]):
            if any(isinstance(value, str) or value != value for value in bound[name]):
                return None
            if any(value == 0 for value in bound[name]):
                bound[name] = (*bound[name], -0.0, 0.0)
    return tuple(bound[name] for name in columns)


def _low(bound: Any, type_: DataType) -> Any:
    """A lower bound of the values read from a column.

    Java's bounds of a CHAR in ORC include padding blanks, which reads strip. A value that ends
    where the bound has a control character is below the bound, too.
    """
    if isinstance(bound, str) and isinstance(type_, AtomicType) and type_.root is TypeRoot.CHAR:
        return _CONTROL.split(bound, maxsplit=1)[0].rstrip(" ")
    return bound


def _as_column(values: Sequence[Any], type_: pa.DataType) -> pa.Array:
    if all(isinstance(value, str) for value in values):
        return pa.array(values, pa.string()).cast(type_)
    return pa.array(values, type_)


def _stats_ranges(
    stats: SimpleStats, fields: Sequence[DataField], row_count: int
) -> dict[str, Range]:
    """Ranges by column, whose bounds may be cut but stay bounds; none where stats lack columns."""
    if len(stats.null_counts) != len(fields):
        return {}
    types = [field.type for field in fields]
    lows, highs = decode_row(stats.min_values, types), decode_row(stats.max_values, types)
    return {
        field.name: Range(
            low=_low(low, field.type), high=high, null_count=nulls, row_count=row_count
        )
        for field, low, high, nulls in zip(fields, lows, highs, stats.null_counts, strict=True)
    }


def _value_ranges(
    file: DataFileMeta, file_schema: TableSchema, schema: TableSchema
) -> Callable[[str], Range | None]:
    """Ranges of value columns, mapped by field id from the file's schema to the read schema."""
    names = file.value_stats_cols
    if names is None:
        names = file_schema.field_names if file.write_cols is None else file.write_cols
    fields = [file_schema.field(name) for name in names]
    stored = _stats_ranges(file.value_stats, fields, file.row_count)
    by_id = {field.id: (field.type, stored[field.name]) for field in fields if stored}
    in_file = {field.id for field in file_schema.fields}

    def ranges(name: str) -> Range | None:
        field = schema.field(name)
        if field.id not in in_file:
            return Range(null_count=file.row_count, row_count=file.row_count)
        type_, bounds = by_id.get(field.id, (None, None))
        if bounds is None or type_ is None:
            return None
        if not keeps_values(type_, field.type):  # cast at read: bounds may not carry over
            return Range(null_count=None, row_count=None)
        return bounds

    return ranges


_Vectors = tuple[tuple[str, DeletionFile], ...]
_VectorsOf = Callable[[BucketId], Mapping[str, DeletionFile]]


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Split:
    """Sections of one bucket in one state that can be read by themselves. Picklable.

    Attributes:
        snapshot_id: snapshot it belongs to.
        partition: framed BinaryRow.
        partition_path: directory part of the partition.
        sections: ascending by key; the runs of each are merged.
        raw: whether no section needs merging.
        deletion_vectors: where the vectors of the files lie, by file name; files without a
            deleted row are left out.
        fallback: whether it belongs to the fallback branch of the table (SEMANTICS.md §F.10).
    """

    snapshot_id: int
    partition: bytes
    partition_path: str
    bucket: int
    sections: tuple[Section, ...]
    raw: bool
    deletion_vectors: _Vectors = ()
    fallback: bool = False

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
        """Rows that a read without a filter gives; None when only reading shows it."""
        unknown = any(vector.cardinality is None for _, vector in self.deletion_vectors)
        if unknown or not self.raw or any(file.delete_row_count != 0 for file in self.files):
            return None
        return self.row_count - sum(file.cardinality or 0 for _, file in self.deletion_vectors)

    @property
    def size(self) -> int:
        """Sum of file sizes [bytes]."""
        return sum(file.file_size for file in self.files)


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Plan:
    """The splits of a read.

    Attributes:
        snapshot_id: the snapshot; None on a table without snapshots.
        splits: independent of each other; no key is in two of them.
    """

    snapshot_id: int | None
    splits: tuple[Split, ...]


class ChangeForm(enum.Enum):
    """How the files of a split become changes."""

    STORED = "stored"
    """The rows of `files`, one file after another, with their kinds."""

    REPLACED = "replaced"
    """The merged rows of `before` as -D, then those of `files` as +I."""

    COMPARED = "compared"
    """The merged rows of `files` that `before` lacks or has with other values; removed as -D."""


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class ChangeSplit:
    """Changes of one bucket that can be read by themselves. Picklable.

    Attributes:
        snapshot_id: the snapshot that added them.
        partition: framed BinaryRow.
        partition_path: directory part of the partition.
        form: how the files become changes.
        files: what was added, in the order in which it was written.
        before: what it replaced.
        vectors: where the deletion vectors of `files` lie, by file name.
        before_vectors: where those of `before` lie.
    """

    snapshot_id: int
    partition: bytes
    partition_path: str
    bucket: int
    form: ChangeForm
    files: tuple[DataFileMeta, ...]
    before: tuple[DataFileMeta, ...] = ()
    vectors: _Vectors = ()
    before_vectors: _Vectors = ()

    @property
    def row_count(self) -> int:
        """Rows that are read, which are at least as many as changes [rows]."""
        return sum(file.row_count for file in (*self.before, *self.files))

    @property
    def size(self) -> int:
        """Sum of file sizes [bytes]."""
        return sum(file.file_size for file in (*self.before, *self.files))


@dataclasses.dataclass(frozen=True, slots=True)
class TableScan:
    """Description of a scan; the `with_` methods give changed copies.

    Attributes:
        snapshot_id: snapshot to read; None = the newest.
        predicate: rows wanted; what the plan cannot decide is left to the reader.
        buckets: buckets wanted; None = all.
        all_levels: also files of level 0 where batch reads leave them out.
        min_level: only files of this level or above.
        files_since_ms: only files created at or after this time [epoch ms]; None = all.
        postponed: whether to include changes whose rows have no bucket yet.
    """

    table: TableCore
    snapshot_id: int | None = None
    predicate: Predicate | None = None
    buckets: frozenset[int] | None = None
    all_levels: bool = False
    min_level: int = 0
    files_since_ms: int | None = None
    postponed: bool = False

    def with_snapshot(self, snapshot_id: int | None) -> "TableScan":
        """Read this snapshot; None = the newest."""
        return dataclasses.replace(self, snapshot_id=snapshot_id)

    def with_filter(self, predicate: Predicate | None) -> "TableScan":
        """Only rows for which the predicate is true, together with earlier ones."""
        return dataclasses.replace(self, predicate=both(self.predicate, predicate))

    def with_bucket(self, *buckets: int) -> "TableScan":
        """Only these buckets."""
        return dataclasses.replace(self, buckets=frozenset(buckets))

    def with_all_levels(self) -> "TableScan":
        """Also files of level 0 of tables whose batch reads leave them out, merged.

        For the first read of a stream: rows of level 0 must be read exactly once.
        """
        return dataclasses.replace(self, all_levels=True)

    def with_min_level(self, level: int) -> "TableScan":
        """Only files of this level or above; rows on lower levels are not visible."""
        return dataclasses.replace(self, all_levels=True, min_level=level)

    def with_files_since(self, time_ms: int | None) -> "TableScan":
        """Only files created at or after a time [epoch ms]; None = all."""
        return dataclasses.replace(self, files_since_ms=time_ms)

    def with_postponed(self) -> "TableScan":
        """Also changes whose rows have no bucket yet."""
        return dataclasses.replace(self, postponed=True)

    def live_entries(self, snapshot: Snapshot) -> list[ManifestEntry]:
        """All live files of a snapshot; filters are ignored."""
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
        with explain_missing_files(self.table, snapshot.id):
            return scan._plan(snapshot)

    def splits(self) -> tuple[Split, ...] | tuple[ChangeSplit, ...]:
        """What the table's options choose: a state of the table, or changes of it.

        Raises: as `plan` and `plan_changes`.
        """
        return self.plan_changes() if is_incremental(self.table) else self.plan().splits

    def plan_changes(self) -> tuple[ChangeSplit, ...]:
        """The changes that the table's options choose, oldest snapshot first.

        Returns:
            Empty where nothing is between the start and the end.

        Raises:
            InvalidOptionError: no changes are chosen, the options contradict each other, or an
                end cannot be read.
            InvalidRequestError: the end is before the start, or either is out of range.
            NotFoundError: a snapshot expired meanwhile.
            UnsupportedFeatureError: reading would return wrong rows; names the option.
        """
        require_readable(self.table.options)
        chosen = chosen_changes(self.table)
        if chosen.states is not None:
            return self.plan_difference(*chosen.states)
        plan = self.plan_delta if chosen.delta else self.plan_changelog
        splits: list[ChangeSplit] = []
        for snapshot in self.table.snapshots.recall_many(range(chosen.start + 1, chosen.end + 1)):
            if chosen.counts(snapshot):
                splits += plan(snapshot)
        return tuple(splits)

    def plan_delta(self, snapshot: Snapshot) -> tuple[ChangeSplit, ...]:
        """The files that a snapshot added, each row with the kind it was flushed with.

        Raises:
            CorruptDataError: a manifest cannot be decoded.
            FileNotFoundError: a manifest is missing, as after expiry.
        """
        return self._stored_splits(snapshot, _added_entries(delta_entries(self.table, snapshot)))

    def plan_changelog(self, snapshot: Snapshot) -> tuple[ChangeSplit, ...]:
        """The changelog files of a snapshot. Raises: as `plan_delta`."""
        return self._stored_splits(snapshot, changelog_entries(self.table, snapshot))

    def plan_overwrite(self, snapshot: Snapshot) -> tuple[ChangeSplit, ...]:
        """What an overwrite removed, and what it added.

        Raises:
            NotFoundError: the snapshot before it has expired and has deletion vectors.
            CorruptDataError: a manifest cannot be decoded.
            FileNotFoundError: a manifest is missing, as after expiry.
        """
        entries = delta_entries(self.table, snapshot)
        after = _by_bucket(_added_entries(entries))
        before = _by_bucket(entry for entry in entries if entry.kind is FileKind.DELETE)
        vectors: tuple[_VectorsOf, _VectorsOf] | None = None
        if self.table.options.deletion_vectors_enabled and before:
            earlier = self.table.snapshots.read(snapshot.id - 1)
            vectors = deletion_files(self.table, earlier), deletion_files(self.table, snapshot)
        form = ChangeForm.REPLACED
        return self._two_sides(snapshot, form, before, after, vectors, lambda old, new: (old, new))

    def plan_difference(self, before: Snapshot | None, after: Snapshot) -> tuple[ChangeSplit, ...]:
        """What is different in a later state; of append tables, the files that only it has.

        Args:
            before: the earlier state; None: empty.
            after: the later state.

        Raises:
            InvalidRequestError: a partition has another number of buckets than before.
        """
        table = self.table
        earlier = {} if before is None else live_state(table, before).buckets
        later = live_state(table, after).buckets
        _check_bucket_counts(table, earlier, later)
        vectors: tuple[_VectorsOf, _VectorsOf] | None = None
        if table.options.deletion_vectors_enabled:
            vectors = (deletion_files(table, before), deletion_files(table, after))
        form = ChangeForm.COMPARED
        return self._two_sides(after, form, earlier, later, vectors, self._different)

    def _plan(self, snapshot: Snapshot) -> Plan:
        pruning = Pruning(self.table, self.predicate)
        result: list[Split] = []
        buckets = self._buckets(snapshot, pruning)
        vectors = None
        if self.table.options.deletion_vectors_enabled:
            vectors = deletion_files(self.table, snapshot)
        for partition, group in itertools.groupby(sorted(buckets), key=lambda key: key[0]):
            if not pruning.keeps_partition(partition):
                continue
            path = self.table.partition_path(partition)
            for _, bucket in group:
                entries = buckets[(partition, bucket)]
                if self._wants(bucket, entries, pruning):
                    splits = self._splits(snapshot, partition, path, bucket, entries, pruning)
                    result += splits if vectors is None else _with_deletion_vectors(splits, vectors)
        return Plan(snapshot_id=snapshot.id, splits=tuple(result))

    def _buckets(
        self, snapshot: Snapshot, pruning: Pruning
    ) -> Mapping[BucketId, Sequence[ManifestEntry]]:
        if self.buckets is None and not pruning.chooses_buckets:
            return live_state(self.table, snapshot).buckets
        partitions: dict[bytes, bool] = {}

        def is_selected(partition: bytes, bucket: int, total_buckets: int) -> bool:
            if self.buckets is not None and bucket not in self.buckets:
                return False
            matches = partitions.get(partition)
            if matches is None:
                matches = partitions[partition] = pruning.keeps_partition(partition)
            return matches and pruning.keeps_bucket(bucket, total_buckets)

        def keeps(meta: ManifestFileMeta) -> bool:
            return meta.may_hold(self.buckets) and pruning.keeps_manifest(meta)

        return live_buckets(self.table, snapshot, is_selected, keeps)

    def _wants(self, bucket: int, entries: Iterable[ManifestEntry], pruning: Pruning) -> bool:
        if self.buckets is not None and bucket not in self.buckets:
            return False
        if bucket == POSTPONE_BUCKET and not self.postponed:
            return False  # postponed rows are visible once a job has assigned their buckets
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
        created_ms = file.creation_time_ms
        return created_ms is not None and epoch_of_local_ms(created_ms) >= self.files_since_ms

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
            remaining = tuple(file for file in run.files if pruning.keeps_by_values(file))
            if remaining:
                yield (SortedRun(run.level, remaining),)

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

    def _stored_splits(
        self, snapshot: Snapshot, entries: Sequence[ManifestEntry]
    ) -> tuple[ChangeSplit, ...]:
        pruning = Pruning(self.table, self.predicate)
        splits = []
        for (partition, bucket), group in sorted(_by_bucket(entries).items()):
            if not pruning.keeps_partition(partition) or not self._wants(bucket, group, pruning):
                continue
            files = [entry.file for entry in group]
            if bucket != POSTPONE_BUCKET:  # whose files are in the order of arrival
                files = [f for f in files if pruning.keeps_by_key(f) and pruning.keeps_by_values(f)]
            if files:
                after = _Side({file.file_name: file for file in files}, {})
                splits.append(self._change_split(snapshot, partition, bucket, after))
        return tuple(splits)

    def _two_sides(
        self,
        snapshot: Snapshot,
        form: ChangeForm,
        before: Mapping[BucketId, Sequence[ManifestEntry]],
        after: Mapping[BucketId, Sequence[ManifestEntry]],
        vectors: tuple[_VectorsOf, _VectorsOf] | None,
        chosen: Callable[["_Side", "_Side"], tuple["_Side", "_Side"]],
    ) -> tuple[ChangeSplit, ...]:
        pruning = Pruning(self.table, self.predicate)
        splits = []
        for partition, bucket in sorted({*before, *after}):
            sides = [state.get((partition, bucket), ()) for state in (before, after)]
            if not pruning.keeps_partition(partition):
                continue
            if not self._wants(bucket, itertools.chain(*sides), pruning):
                continue
            old, new = (
                _Side(
                    {entry.file.file_name: entry.file for entry in entries},
                    {} if vectors is None else vectors[side]((partition, bucket)),
                )
                for side, entries in enumerate(sides)
            )
            old, new = chosen(old, new)
            if old.files or new.files:
                splits.append(self._change_split(snapshot, partition, bucket, new, old, form))
        return tuple(splits)

    def _change_split(
        self,
        snapshot: Snapshot,
        partition: bytes,
        bucket: int,
        after: "_Side",
        before: "_Side | None" = None,
        form: ChangeForm = ChangeForm.STORED,
    ) -> ChangeSplit:
        return ChangeSplit(
            snapshot_id=snapshot.id,
            partition=partition,
            partition_path=self.table.partition_path(partition),
            bucket=bucket,
            form=form,
            files=tuple(after.files.values()),
            before=() if before is None else tuple(before.files.values()),
            vectors=after.located(),
            before_vectors=() if before is None else before.located(),
        )

    def _different(self, before: "_Side", after: "_Side") -> tuple["_Side", "_Side"]:
        """Without files of both states in key ranges where nothing else differs."""
        key_of = self.table.key_of
        if key_of is None:  # a file that has lost rows since has no new ones
            return _Side({}, {}), after.without(set(before.files))
        same = {name for name in after.files if before.get(name) == after.get(name)}
        files = [*before.files.values()]
        files += (file for name, file in after.files.items() if name not in before.files)
        for section in sections(files, key_of):
            names = {file.file_name for run in section for file in run.files}
            if not names <= same:
                same -= names
        return before.without(same), after.without(same)


def changelog_entries(table: TableCore, snapshot: Snapshot) -> tuple[ManifestEntry, ...]:
    """The changelog files of a snapshot: one ADD entry per file, in manifest order.

    Args:
        snapshot: one of its snapshots, or long-lived changelogs.

    Raises:
        CorruptDataError: a manifest cannot be decoded.
        FileNotFoundError: a manifest is missing, as after expiry.
    """
    if snapshot.changelog_manifest_list is None:
        return ()
    metas = table.manifests.read_list(*snapshot.lists[2])
    return _added_entries(list_entries(table, metas))


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


def _with_deletion_vectors(
    splits: Iterable[Split], vectors: Callable[[BucketId], Mapping[str, DeletionFile]]
) -> Iterator[Split]:
    bucket_vectors: Mapping[str, DeletionFile] | None = None
    for split in splits:
        if bucket_vectors is None:
            bucket_vectors = vectors((split.partition, split.bucket))
        names = [file.file_name for file in split.files if file.file_name in bucket_vectors]
        located = tuple((name, bucket_vectors[name]) for name in names)
        yield dataclasses.replace(split, deletion_vectors=located) if located else split


@dataclasses.dataclass(frozen=True, slots=True)
class _Side:
    """Files of one bucket in one state, and where their deletion vectors lie, by file name."""

    files: Mapping[str, DataFileMeta]
    vectors: Mapping[str, DeletionFile]

    def get(self, name: str) -> tuple[DataFileMeta | None, DeletionFile | None]:
        return self.files.get(name), self.vectors.get(name)

    def without(self, names: set[str]) -> "_Side":
        return _Side(
            {name: file for name, file in self.files.items() if name not in names}, self.vectors
        )

    def located(self) -> _Vectors:
        return tuple((name, self.vectors[name]) for name in self.files if name in self.vectors)


def _added_entries(entries: Iterable[ManifestEntry]) -> tuple[ManifestEntry, ...]:
    return tuple(entry for entry in entries if entry.kind is FileKind.ADD)


def _by_bucket(entries: Iterable[ManifestEntry]) -> dict[BucketId, list[ManifestEntry]]:
    buckets: dict[BucketId, list[ManifestEntry]] = defaultdict(list)
    for entry in entries:
        buckets[(entry.partition, entry.bucket)].append(entry)
    return buckets


def _check_bucket_counts(
    table: TableCore,
    before: Mapping[BucketId, Sequence[ManifestEntry]],
    after: Mapping[BucketId, Sequence[ManifestEntry]],
) -> None:
    if table.options.bucket < 0:
        return
    counts = _bucket_counts(before)
    for partition, count in _bucket_counts(after).items():
        earlier = counts.get(partition, count)
        if earlier != count:
            raise InvalidRequestError(
                f"The bucket number of two snapshots are different ({earlier}, {count}), "
                "which is not supported in incremental diff query.",
                hint="read the later state, or compare states after the buckets were changed",
                partition=table.partition_path(partition),
            )


def _bucket_counts(buckets: Mapping[BucketId, Sequence[ManifestEntry]]) -> dict[bytes, int]:
    return {
        partition: entry.total_buckets
        for (partition, _), entries in buckets.items()
        for entry in entries
        if entry.total_buckets >= 0
    }
