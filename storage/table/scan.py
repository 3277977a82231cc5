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
"""

import dataclasses
import itertools
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any

import pyarrow as pa

from storage.format.arrow_types import arrow_type
from storage.format.binary_row import decode_row
from storage.format.bucket import assign_buckets
from storage.format.file_meta import DataFileMeta, ManifestEntry
from storage.format.schema import TableSchema
from storage.format.snapshot import Snapshot
from storage.lsm.levels import Section, SortedRun, sections
from storage.options import require_readable
from storage.table.core import TableCore
from storage.table.live_files import live_entries, live_state
from storage.table.predicate import (
    And,
    Compare,
    In,
    Op,
    Predicate,
    columns_of,
    conjuncts,
)
from storage.table.prune import Range, could_match

__all__ = ["Plan", "Split", "TableScan"]


_PICKS_A_ROW = frozenset({"deduplicate", "first-row"})


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
    """

    snapshot_id: int
    partition: bytes
    partition_path: str
    bucket: int
    sections: tuple[Section, ...]
    raw: bool

    @property
    def files(self) -> tuple[DataFileMeta, ...]:
        """All files, by section."""
        return tuple(file for section in self.sections for run in section for file in run.files)

    @property
    def row_count(self) -> int:
        """Rows before merging, deletes included."""
        return sum(file.row_count for file in self.files)

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
    """

    table: TableCore
    snapshot_id: int | None = None
    predicate: Predicate | None = None
    buckets: frozenset[int] | None = None

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

    def live_entries(self, snapshot: Snapshot) -> list[ManifestEntry]:
        """All live files of a snapshot; filters do not count."""
        return live_entries(self.table, snapshot)

    def plan(self, snapshot: Snapshot | None = None) -> Plan:
        """Read the metadata and cut the live files into splits.

        Args:
            snapshot: the state to read, as of a tag; None = what `with_snapshot` says.

        Raises:
            NotFoundError: there is no such snapshot (any more).
            UnsupportedFeatureError: reading would return wrong rows; names the option.
        """
        require_readable(self.table.options)
        if snapshot is None:
            snapshot = self._snapshot()
        if snapshot is None:
            return Plan(snapshot_id=None, splits=())
        pruning = _Pruning(self.table, self.predicate)
        found: list[Split] = []
        state = live_state(self.table, snapshot)
        for partition, group in itertools.groupby(sorted(state.buckets), key=lambda one: one[0]):
            if not pruning.keeps_partition(partition):
                continue
            path = self.table.partition_path(partition)
            for _, bucket in group:
                entries = state.buckets[(partition, bucket)]
                if self._wants(bucket, entries, pruning):
                    found += self._splits(snapshot, partition, path, bucket, entries, pruning)
        return Plan(snapshot_id=snapshot.id, splits=tuple(found))

    def _snapshot(self) -> Snapshot | None:
        if self.snapshot_id is None:
            return self.table.latest_snapshot()
        return self.table.snapshots.read(self.snapshot_id)

    def _wants(self, bucket: int, entries: Sequence[ManifestEntry], pruning: "_Pruning") -> bool:
        if self.buckets is not None and bucket not in self.buckets:
            return False
        return any(pruning.keeps_bucket(bucket, entry.total_buckets) for entry in entries)

    def _splits(
        self,
        snapshot: Snapshot,
        partition: bytes,
        path: str,
        bucket: int,
        entries: Sequence[ManifestEntry],
        pruning: "_Pruning",
    ) -> Iterator[Split]:
        files = [entry.file for entry in entries if pruning.keeps_by_key(entry.file)]
        for group in self._packed(self._sections(files, pruning)):
            yield Split(
                snapshot_id=snapshot.id,
                partition=partition,
                partition_path=path,
                bucket=bucket,
                sections=group,
                raw=all(len(section) == 1 for section in group),
            )

    def _sections(self, files: Sequence[DataFileMeta], pruning: "_Pruning") -> Iterator[Section]:
        key_of = self.table.key_of
        if key_of is None:
            ordered = sorted(files, key=lambda file: file.min_sequence_number)
            cut: Iterable[Section] = ((SortedRun(file.level, (file,)),) for file in ordered)
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


class _Pruning:
    """A predicate taken apart by what it can prune."""

    def __init__(self, table: TableCore, predicate: Predicate | None) -> None:
        schema = table.schema
        self._table = table
        self._schema = schema
        parts = conjuncts(predicate)
        self._types = {field.name: arrow_type(field.type) for field in schema.fields}
        self._partition = _within(parts, schema.partition_keys)
        self._key = _within(parts, schema.trimmed_primary_keys if schema.primary_keys else ())
        self._values = tuple(part for part in parts if part not in self._partition)
        self._wanted_buckets: dict[int, frozenset[int] | None] = {}
        self._bucket_keys = _equal_values(parts, schema.bucket_keys) if parts else None

    def keeps_partition(self, partition: bytes) -> bool:
        """Whether a partition may hold a wanted row."""
        if not self._partition:
            return True
        fields = self._schema.partition_fields
        values = decode_row(partition, [field.type for field in fields])
        ranges = {
            field.name: Range(low=value, high=value, null_count=int(value is None), row_count=1)
            for field, value in zip(fields, values, strict=True)
        }
        return all(could_match(part, ranges.get, self._types) for part in self._partition)

    def keeps_bucket(self, bucket: int, total_buckets: int) -> bool:
        """Whether a bucket may hold a wanted row, by equality on all bucket-key columns."""
        if self._bucket_keys is None or total_buckets <= 1:
            return True
        if total_buckets not in self._wanted_buckets:
            self._wanted_buckets[total_buckets] = self._buckets_of(total_buckets)
        wanted = self._wanted_buckets[total_buckets]
        return wanted is None or bucket in wanted

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
        found = assign_buckets(
            columns,
            [field.type for field in fields],
            total_buckets,
            self._table.options.bucket_function,
        )
        return frozenset(found.tolist())

    def keeps_by_key(self, file: DataFileMeta) -> bool:
        """Whether a file may hold a wanted key."""
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
            ranges[field.name] = Range(low=low, high=high, null_count=0, row_count=file.row_count)
            if low != high:
                break
        ranges |= {
            name: known
            for name, known in _key_ranges(file, self._schema).items()
            if name not in ranges
        }
        return all(could_match(part, ranges.get, self._types) for part in self._key)

    def keeps_section(self, section: Section) -> bool:
        """Whether a section of several runs may hold a wanted row.

        Where merging picks one of the versions of a row, a section goes if no version can match.
        """
        if not self._values or self._table.options.merge_engine not in _PICKS_A_ROW:
            return True
        return any(self.keeps_by_values(file) for run in section for file in run.files)

    def keeps_by_values(self, file: DataFileMeta) -> bool:
        """Whether a file that is alone in its section may hold a wanted row."""
        if not self._values:
            return True
        file_schema = self._table.schemas.read(file.schema_id)
        ranges = _value_ranges(file, file_schema, self._schema)
        return all(could_match(part, ranges, self._types) for part in self._values)


def _within(parts: Sequence[Predicate], names: Iterable[str]) -> tuple[Predicate, ...]:
    allowed = frozenset(names)
    return tuple(part for part in parts if columns_of(part) <= allowed)


def _equal_values(
    parts: Sequence[Predicate], columns: Sequence[str]
) -> tuple[tuple[Any, ...], ...] | None:
    """Per column the values that `=` or `IN` allow; None when a column is not so bound."""
    bound: dict[str, tuple[Any, ...]] = {}
    for part in parts:
        if isinstance(part, Compare) and part.op is Op.EQ and part.literal is not None:
            bound[part.column] = (part.literal,)
        elif isinstance(part, In) and None not in part.literals:
            bound.setdefault(part.column, part.literals)
    if not columns or any(name not in bound for name in columns):
        return None
    return tuple(bound[name] for name in columns)


def _as_column(values: Sequence[Any], type_: pa.DataType) -> pa.Array:
    if all(isinstance(value, str) for value in values):
        return pa.array(values, pa.string()).cast(type_)
    return pa.array(values, type_)


def _key_ranges(file: DataFileMeta, schema: TableSchema) -> dict[str, Range]:
    """Ranges of key columns from the key statistics, whose bounds may be cut but stay bounds."""
    fields = schema.key_fields
    stats = file.key_stats
    if len(stats.null_counts) != len(fields):
        return {}
    types = [field.type for field in fields]
    lows, highs = decode_row(stats.min_values, types), decode_row(stats.max_values, types)
    return {
        field.name: Range(low=low, high=high, null_count=nulls, row_count=file.row_count)
        for field, low, high, nulls in zip(fields, lows, highs, stats.null_counts, strict=True)
    }


def _value_ranges(
    file: DataFileMeta, file_schema: TableSchema, schema: TableSchema
) -> Callable[[str], Range | None]:
    """Ranges of value columns, mapped by field id from the file's schema to the read schema."""
    names = file.value_stats_cols
    if names is None:
        names = file_schema.field_names if file.write_cols is None else file.write_cols
    stats = file.value_stats
    found: dict[int, tuple[Any, Range]] = {}
    if len(stats.null_counts) == len(names) > 0:
        fields = [file_schema.field(name) for name in names]
        types = [field.type for field in fields]
        lows, highs = decode_row(stats.min_values, types), decode_row(stats.max_values, types)
        for field, low, high, nulls in zip(fields, lows, highs, stats.null_counts, strict=True):
            known = Range(low=low, high=high, null_count=nulls, row_count=file.row_count)
            found[field.id] = (field.type, known)
    in_file = {field.id for field in file_schema.fields}

    def ranges(name: str) -> Range | None:
        field = schema.field(name)
        if field.id not in in_file:
            return Range(null_count=file.row_count, row_count=file.row_count)
        type_, known = found.get(field.id, (None, None))
        if known is None or type_ is None:
            return None
        if arrow_type(type_) != arrow_type(field.type):  # cast at read: bounds may not carry over
            return Range(null_count=None, row_count=None)
        return known

    return ranges
