# SPDX-License-Identifier: Apache-2.0
"""Rows that compaction drops because of their age.

Source: SEMANTICS.md §D.7 (record-level expiry). Rows are dropped where a compaction reads them, so
nobody is told: no changelog says that they went. Data plane: whole columns.
"""

import dataclasses

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from storage.format.metadata.file_meta import DataFileMeta
from storage.format.metadata.schema import TableSchema
from storage.format.row.row_codec import decode_row
from storage.format.row.row_values import from_row_values
from storage.format.types.types import AtomicType, DataField, TypeRoot
from storage.options.options import TableOptions

__all__ = ["RowExpiry"]

_MILLIS_FROM = 1_000_000_000_000
"""A BIGINT from here on counts milliseconds, below it seconds."""


@dataclasses.dataclass(frozen=True, slots=True)
class RowExpiry:
    """Which rows are too old.

    Attributes:
        field: column with the time of a row: seconds (INT, BIGINT), milliseconds (large BIGINT),
            or a timestamp. A row without a time stays.
        age_s: greatest age of a row [s].
    """

    field: DataField
    age_s: int

    @staticmethod
    def of(options: TableOptions, schema: TableSchema) -> "RowExpiry | None":
        """The expiry of a table; None where rows stay."""
        age_ms, name = options.record_level_expire_time_ms, options.record_level_time_field
        if age_ms is None or not name:
            return None
        return RowExpiry(schema.field(name), age_ms // 1000)

    def left(self, batch: pa.RecordBatch, now_ms: int) -> pa.RecordBatch:
        """The rows that stay.

        Args:
            batch: with the time column.
            now_ms: the time [epoch ms].
        """
        stays = ~self._expired(batch.column(self.field.name), now_ms)
        return batch if stays.all() else batch.filter(pa.array(stays))

    def touches(self, file: DataFileMeta, file_schema: TableSchema, now_ms: int) -> bool:
        """Whether the statistics of a file tell of a row that is too old.

        Args:
            file: the file.
            file_schema: that it was written with.
            now_ms: the time [epoch ms].
        """
        names = file.value_stats_cols
        if names is None:
            names = file_schema.field_names if file.write_cols is None else file.write_cols
        fields = [file_schema.field(name) for name in names]
        position = next((at for at, one in enumerate(fields) if one.id == self.field.id), None)
        stats = file.value_stats
        if position is None or len(stats.null_counts) != len(fields):
            return False
        found = fields[position]
        if not isinstance(found.type, AtomicType) or found.type.root != _root(self.field):
            return False
        least = decode_row(stats.min_values, [field.type for field in fields])[position]
        return bool(self._expired(from_row_values([least], found.type), now_ms)[0])

    def _expired(self, times: pa.Array, now_ms: int) -> npt.NDArray[np.bool_]:
        known = pc.is_valid(times).to_numpy(zero_copy_only=False)
        return known & (now_ms // 1000 - self.age_s > _seconds(times))


def _root(field: DataField) -> TypeRoot | None:
    return field.type.root if isinstance(field.type, AtomicType) else None


def _seconds(times: pa.Array) -> npt.NDArray[np.int64]:
    if pa.types.is_timestamp(times.type):
        times = times.cast(pa.timestamp("ms", times.type.tz), safe=False)
        millis: npt.NDArray[np.int64] = (
            times.cast(pa.int64()).fill_null(0).to_numpy(zero_copy_only=False)
        )
        return millis // 1000
    values: npt.NDArray[np.int64] = (
        times.cast(pa.int64()).fill_null(0).to_numpy(zero_copy_only=False)
    )
    return np.where(values >= _MILLIS_FROM, values // 1000, values)
