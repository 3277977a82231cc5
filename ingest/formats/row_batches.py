# SPDX-License-Identifier: Apache-2.0
"""From decoded structs and single rows to the change batch of one target.

Column-wise: one list, one conversion per column. When a conversion fails, halving finds the rows to
blame, so that a bad value costs a few conversions of small pieces and the other rows keep the fast
path.
"""

from collections.abc import Sequence
from typing import Any

import numpy as np
import pyarrow as pa

from ingest.formats.conversions import CONVERSION_ERRORS, convert
from ingest.formats.decode_plan import PlanColumn, RowPlan
from ingest.formats.events import OFFSET_COLUMN, ChangeBatch, Target
from ingest.formats.semantic_types import Codec
from ingest.formats.single_event import SingleRow
from ingest.formats.unavailable import Placeholder
from storage.errors import InternalError
from storage.format.types import VALUE_KIND, RowKind

__all__ = ["TargetRows", "convert_rows"]

_KIND_OF_OP = {
    "c": int(RowKind.INSERT),
    "r": int(RowKind.INSERT),
    "u": int(RowKind.UPDATE_AFTER),
    "d": int(RowKind.DELETE),
}


def convert_rows(
    plan: RowPlan, rows: Sequence[Any], placeholder: Placeholder
) -> tuple[list[pa.Array], np.ndarray]:
    """Columns of row structs.

    Args:
        plan: of the rows' shape.
        rows: row structs.
        placeholder: of unavailable values.

    Returns:
        One array per column, as long as `rows`; and the indices of rows that are not to be used,
        ascending: a value did not convert (null stands there), a key or NOT NULL column is null, or
        the placeholder may be in it.
    """
    arrays: list[pa.Array] = []
    refused: set[int] = set()
    for column, getter in zip(plan.columns, plan.getters, strict=True):
        if column.codec is None:
            arrays.append(pa.nulls(len(rows), _null_type(plan, column)))
        else:
            arrays.append(_convert_column(column.codec, list(map(getter, rows)), refused))
        refused.update(_unusable(column, arrays[-1], placeholder))
    return arrays, np.array(sorted(refused), np.int64)


def _null_type(plan: RowPlan, column: PlanColumn) -> pa.DataType:
    if plan.target.schema is None:
        raise InternalError("rows of a table that does not exist")
    return plan.target.schema.arrow_schema.field(column.name).type


def _unusable(column: PlanColumn, array: pa.Array, placeholder: Placeholder) -> list[int]:
    found: list[int] = []
    if array.null_count and not column.type.nullable:
        found += np.flatnonzero(array.is_null().to_numpy(zero_copy_only=False)).tolist()
    suspects = None if column.codec is None else placeholder.suspects(column.codec, array)
    if suspects is not None:
        found += np.flatnonzero(suspects.to_numpy(zero_copy_only=False)).tolist()
    return found


def _convert_column(codec: Codec, values: list[Any], refused: set[int]) -> pa.Array:
    try:
        return convert(codec, values)
    except CONVERSION_ERRORS:
        bad = _find_bad(codec, values, 0, len(values))
    for index in bad:
        values[index] = None
    refused.update(bad)
    return convert(codec, values)


def _find_bad(codec: Codec, values: list[Any], start: int, end: int) -> list[int]:
    """Indices in a range, known to hold some, whose values do not convert."""
    if end - start == 1:
        return [start]
    middle = (start + end) // 2
    found: list[int] = []
    for low, high in ((start, middle), (middle, end)):
        try:
            convert(codec, values[low:high])
        except CONVERSION_ERRORS:
            found += _find_bad(codec, values, low, high)
    return found


class TargetRows:
    """Rows of one target, gathered from several shapes and from single events.

    1. `add_columns` and `add_single`, any number, in any order;
    2. `finish` once.
    """

    def __init__(self, target: Target) -> None:
        if target.schema is None:
            raise InternalError("rows of a table that does not exist", table=target.identifier)
        self._identifier = target.identifier
        self._schema = target.schema
        self._parts: list[pa.RecordBatch] = []
        self._singles: list[tuple[int, SingleRow]] = []
        self._stamps: list[int] = []
        fields = [*target.schema.arrow_schema]
        fields += [
            pa.field(VALUE_KIND, pa.int8(), False),
            pa.field(OFFSET_COLUMN, pa.int64(), False),
        ]
        self._arrow = pa.schema(fields)

    def add_columns(
        self,
        columns: Sequence[pa.Array],
        ops: Sequence[str],
        offsets: Sequence[int],
        stamps: Sequence[int | None],
        refused: np.ndarray,
    ) -> None:
        """Add converted rows.

        Args:
            columns: in schema order.
            ops: `c r u d`, one per row.
            offsets: ascending.
            stamps: `source.ts_ms` [epoch ms].
            refused: indices of rows to leave out.
        """
        kinds = np.frombuffer(bytes(map(_KIND_OF_OP.__getitem__, ops)), np.int8)
        arrays = [*columns, pa.array(kinds), pa.array(offsets, pa.int64())]
        if len(refused):
            keep = np.ones(len(ops), bool)
            keep[refused] = False
            mask = pa.array(keep)
            arrays = [array.filter(mask) for array in arrays]
            stamps = [stamp for stamp, kept in zip(stamps, keep.tolist(), strict=True) if kept]
        self._parts.append(pa.RecordBatch.from_arrays(arrays, schema=self._arrow))
        self._note(stamps)

    def add_single(self, offset: int, row: SingleRow) -> None:
        """Add a row of the reference path; rows of one offset keep the order of the calls."""
        self._singles.append((offset, row))
        self._note([row.source_ts_ms])

    def _note(self, stamps: Sequence[int | None]) -> None:
        known = [stamp for stamp in stamps if stamp is not None] if None in stamps else stamps
        if known:
            self._stamps += [min(known), max(known)]  # type: ignore[type-var,list-item]

    def finish(self) -> ChangeBatch | None:
        """The change batch in offset order, or None without rows."""
        parts = self._parts
        if self._singles:
            parts = [*parts, self._single_batch()]
        parts = [part for part in parts if part.num_rows]
        if not parts:
            return None
        rows = parts[0] if len(parts) == 1 else pa.concat_batches(parts)
        offsets = rows.column(OFFSET_COLUMN).to_numpy()
        if len(parts) > 1 and not (offsets[1:] >= offsets[:-1]).all():
            rows = rows.take(pa.array(np.argsort(offsets, kind="stable")))
        low, high = (min(self._stamps), max(self._stamps)) if self._stamps else (None, None)
        return ChangeBatch(self._identifier, self._schema.id, rows, low, high)

    def _single_batch(self) -> pa.RecordBatch:
        self._singles.sort(key=lambda pair: pair[0])
        rows = [row for _, row in self._singles]
        arrays = [
            _storage_column(field.type, [row.values[index] for row in rows])
            for index, field in enumerate(self._schema.arrow_schema)
        ]
        arrays.append(pa.array([int(row.kind) for row in rows], pa.int8()))
        arrays.append(pa.array([offset for offset, _ in self._singles], pa.int64()))
        return pa.RecordBatch.from_arrays(arrays, schema=self._arrow)


def _storage_column(type_: pa.DataType, values: Sequence[Any]) -> pa.Array:
    """Array of `type_` from storage values (`reference`)."""
    return pa.array(values, _storage_type(type_)).cast(type_)


def _storage_type(type_: pa.DataType) -> pa.DataType:
    if pa.types.is_list(type_):
        return pa.list_(_storage_type(type_.value_type))
    if pa.types.is_date(type_) or pa.types.is_time(type_):
        return pa.int32()
    return pa.int64() if pa.types.is_timestamp(type_) else type_
