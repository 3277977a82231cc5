# SPDX-License-Identifier: Apache-2.0
"""Computing the statistics of a table and its columns, and committing them.

Source: SEMANTICS.md §F.16, FORMAT.md §11.4. What is computed of a column is what Apache Paimon's
ANALYZE on Spark computes: bounds of numbers, truth values, dates and times; of texts and bytes
their mean and largest length; the number of distinct values, approximate where it is large. Rows
are read batch by batch, only the requested columns.
"""

import dataclasses
import math
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from storage.errors import InvalidRequestError
from storage.format.index.hashing import BLOOM_ROOTS, hash_column, xxh64
from storage.format.index.values import byte_view
from storage.format.metadata.snapshot import BATCH_COMMIT_IDENTIFIER, Snapshot
from storage.format.types.casts import column_cast
from storage.format.types.types import MAX_LENGTH, AtomicType, DataField, TypeRoot
from storage.table.commit.live_files import live_entries
from storage.table.inspect.statistics import ColumnStatistics, Statistics
from storage.table.scan.predicate import require_known
from storage.table.table import FileStoreTable

_TEXTS = (TypeRoot.CHAR, TypeRoot.VARCHAR)
_BYTES = (TypeRoot.BINARY, TypeRoot.VARBINARY)
_SIZES = {
    **dict.fromkeys((TypeRoot.BOOLEAN, TypeRoot.TINYINT), 1),
    TypeRoot.SMALLINT: 2,
    **dict.fromkeys((TypeRoot.INT, TypeRoot.FLOAT, TypeRoot.DATE, TypeRoot.TIME), 4),
    **dict.fromkeys((TypeRoot.BIGINT, TypeRoot.DOUBLE), 8),
    **dict.fromkeys((TypeRoot.TIMESTAMP, TypeRoot.TIMESTAMP_LTZ), 8),
    **dict.fromkeys(_TEXTS, 20),
    **dict.fromkeys(_BYTES, 100),
}
"""Default size of a value, where the values have no length [bytes], as in Spark."""

_LONG_DECIMAL = 18
_EXACT = 1 << 17
_BITS = 14
_REGISTERS = 1 << _BITS
_ALPHA = 0.7213 / (1 + 1.079 / _REGISTERS)
_MANTISSA = 53
"""Bits of an integer that a float holds exactly."""
_STRING = AtomicType(TypeRoot.VARCHAR, length=MAX_LENGTH)


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Analysis:
    """The outcome of an ANALYZE."""

    snapshot_id: int
    statistics: Statistics


def analyze(
    table: FileStoreTable,
    columns: Sequence[str] | None = (),
    *,
    on_progress: Callable[[int, int], None] = lambda _done, _of: None,
) -> Analysis | None:
    """Compute the statistics of the newest snapshot and commit them; None without snapshots.

    Safe beside other writers: statistics record their snapshot.

    Args:
        columns: of which statistics are wanted besides the number of rows; None = of all columns
            that can have any.
        on_progress: called with splits read, and splits to read.

    Raises:
        InvalidRequestError: a column is unknown, or cannot have statistics.
        As `FileStoreCommit.commit`.
    """
    snapshot = table.latest_snapshot()
    if snapshot is None:
        return None
    statistics = compute_statistics(table, snapshot, columns, on_progress=on_progress)
    commit = table.new_commit(table.ids.uuid())
    result = commit.update_statistics(statistics, BATCH_COMMIT_IDENTIFIER)
    return Analysis(snapshot_id=result.append_snapshot_id or 0, statistics=statistics)


def compute_statistics(
    table: FileStoreTable,
    snapshot: Snapshot,
    columns: Sequence[str] | None = (),
    *,
    on_progress: Callable[[int, int], None] = lambda _done, _of: None,
) -> Statistics:
    """The statistics of a snapshot, in its schema. Arguments and errors as of `analyze`."""
    table = table.with_schema(snapshot.schema_id)
    fields = _analyzed_fields(table, columns)
    running = [_RunningColumn(field) for field in fields]
    names = [field.name for field in fields] or [_narrowest(table)]
    plan = table.new_scan().plan(snapshot)
    read = table.new_read(names)
    count = 0
    for number, split in enumerate(plan.splits):
        on_progress(number, len(plan.splits))
        for batch in read.to_batches(split):
            count += batch.num_rows
            for column in running:
                column.add(batch.column(column.field.name))
    on_progress(len(plan.splits), len(plan.splits))
    size = sum(entry.file.file_size for entry in live_entries(table, snapshot))
    total = snapshot.total_record_count or 0
    return Statistics(
        snapshot_id=snapshot.id,
        schema_id=snapshot.schema_id,
        merged_record_count=count,
        merged_record_size=round(size * min(1.0, count / total)) if total else 0,
        columns={column.field.name: column.statistics() for column in running},
    )


def _analyzed_fields(table: FileStoreTable, columns: Sequence[str] | None) -> list[DataField]:
    if columns is None:
        return [field for field in table.schema.fields if isinstance(field.type, AtomicType)]
    fields = {field.name: field for field in table.schema.fields}
    require_known(columns, list(fields))
    for name in columns:
        if not isinstance(fields[name].type, AtomicType):
            raise InvalidRequestError("a column of this type has no statistics", column=name)
    return [fields[name] for name in dict.fromkeys(columns)]


def _narrowest(table: FileStoreTable) -> str:
    """A column to count rows by; a key column, which merging reads anyway."""
    return (*table.schema.trimmed_primary_keys, *table.schema.field_names)[0]


class _RunningColumn:
    """Statistics of one column being computed."""

    def __init__(self, field: DataField) -> None:
        assert isinstance(field.type, AtomicType)
        self.field = field
        self._type = field.type
        self._bounded = field.type.root not in (*_TEXTS, *_BYTES)
        self._nulls = 0
        self._values = 0
        self._bounds: list[pa.Array] = []
        self._length = 0
        self._longest = 0
        self._distinct = DistinctCount()

    def add(self, column: pa.Array) -> None:
        self._nulls += column.null_count
        values = column.drop_null()
        self._values += len(values)
        if not len(values):
            return
        self._distinct.add(_hashes(values, self._type))
        if self._bounded:
            self._bounds.append(_bounds(values))
            return
        texts = self._type.root in _TEXTS
        lengths = pc.utf8_length(values) if texts else pc.binary_length(values)
        self._length += pc.sum(lengths).as_py()
        self._longest = max(self._longest, pc.max(lengths).as_py())

    def statistics(self) -> ColumnStatistics:
        low = high = None
        if self._bounds:
            low, high = self._plain_values(_bounds(pa.concat_arrays(self._bounds)))
        mean = longest = self._default_size()
        if self._values and not self._bounded:
            mean, longest = math.ceil(self._length / self._values), self._longest
        return ColumnStatistics(
            column_id=self.field.id,
            distinct_count=min(self._distinct.estimate(), self._values),
            min=low,
            max=high,
            null_count=self._nulls,
            avg_len=mean,
            max_len=longest,
        )

    def _plain_values(self, bounds: pa.Array) -> list[Any]:
        if self._type.root is TypeRoot.DATE:
            return [str(day) for day in bounds.view(pa.int32()).to_pylist()]
        return list(column_cast(self._type, _STRING)(bounds).to_pylist())

    def _default_size(self) -> int:
        if self._type.root is TypeRoot.DECIMAL:
            return 8 if self._type.precision <= _LONG_DECIMAL else 16
        return _SIZES[self._type.root]


class DistinctCount:
    """Counts distinct values by their hashes: exactly up to a limit, approximately beyond it.

    Up to `_EXACT` hashes are kept; then a HyperLogLog of 16384 registers takes over, whose standard
    error is 0.8 %.
    """

    def __init__(self) -> None:
        self._hashes = np.empty(0, np.uint64)
        self._registers: npt.NDArray[np.uint8] | None = None

    def add(self, hashes: npt.NDArray[np.uint64]) -> None:
        """Add the hashes of some values; their bits must be uniformly distributed."""
        if self._registers is None:
            self._hashes = np.union1d(self._hashes, hashes)
            if len(self._hashes) <= _EXACT:
                return
            self._registers = np.zeros(_REGISTERS, np.uint8)
            hashes, self._hashes = self._hashes, np.empty(0, np.uint64)
        places = (hashes >> np.uint64(64 - _BITS)).astype(np.int64)
        rest = (hashes << np.uint64(_BITS)) >> np.uint64(64 - _MANTISSA)
        # frexp gives the length of a number in bits
        ranks = _MANTISSA + 1 - np.frexp(rest.astype(np.float64))[1]
        np.maximum.at(self._registers, places, ranks.astype(np.uint8))

    def estimate(self) -> int:
        """The number of distinct values."""
        if self._registers is None:
            return len(self._hashes)
        weights = np.exp2(-self._registers.astype(np.float64))
        return round(_ALPHA * _REGISTERS * _REGISTERS / weights.sum())


def _bounds(values: pa.Array) -> pa.Array:
    """Smallest and largest value; NaN is the largest, as Spark orders it."""
    bounds = pc.min_max(values)
    most = bounds["max"]
    if pa.types.is_floating(values.type):
        numbers = values.to_numpy(zero_copy_only=False)
        if np.isnan(numbers).any():
            most = pa.scalar(float("nan"), values.type)
            if np.isnan(numbers).all():
                return pa.array([most.as_py()] * 2, values.type)
            bounds = pc.min_max(pa.array(numbers[~np.isnan(numbers)], values.type))
    return pa.array([bounds["min"], most], values.type)


def _hashes(values: pa.Array, type_: AtomicType) -> Any:
    if type_.root in BLOOM_ROOTS:
        return hash_column(values, type_)[0]
    return xxh64(*byte_view(column_cast(type_, _STRING)(values)))
