# SPDX-License-Identifier: Apache-2.0
"""A predicate split by what it can prune of a snapshot.

Which step is sound for which files is decided in `scan`; how ranges are evaluated in `prune`.
Source: SEMANTICS.md §J.
"""

import itertools
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

import pyarrow as pa

from storage.format.files.column_mapping import keeps_values
from storage.format.metadata.file_meta import DataFileMeta, SimpleStats
from storage.format.metadata.manifest import ManifestFileMeta
from storage.format.metadata.schema import TableSchema
from storage.format.row.binary_row import decode_row
from storage.format.row.bucket import assign_buckets
from storage.format.types.arrow_types import arrow_type
from storage.format.types.default_values import read_defaults
from storage.format.types.types import AtomicType, DataField, DataType, TypeRoot
from storage.lsm.levels import Section
from storage.table.core import TableCore
from storage.table.scan.file_index import FileIndexFilter
from storage.table.scan.predicate import And, Compare, In, Op, Predicate, columns_of, conjuncts
from storage.table.scan.prune import Range, could_match

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
