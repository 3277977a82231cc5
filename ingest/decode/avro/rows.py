# SPDX-License-Identifier: Apache-2.0
"""From columns of row events to columns of the target; what does not fit is named by its row.

The counterpart of `row_batches.convert_marked` for columns that are arrays already.
"""

import dataclasses
from typing import TypeAlias

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from ingest.decode.avro.arrays import convert_array
from ingest.decode.avro.lanes import EventColumns, RowColumns
from ingest.decode.bisection import failing_positions
from ingest.decode.decode_plan import PlanColumn, RowPlan
from ingest.decode.events import Toast
from ingest.decode.types.conversions import CONVERSION_ERRORS
from ingest.decode.types.semantic_types import Codec
from ingest.decode.types.unavailable import Placeholder
from storage.errors import InternalError

__all__ = ["TargetColumns", "convert_columns", "key_changes"]

_Mask: TypeAlias = npt.NDArray[np.bool_]


@dataclasses.dataclass(frozen=True, slots=True)
class TargetColumns:
    """Row images as the target wants them.

    Attributes:
        columns: one array per column of the plan, as long as the rows.
        refused: rows that are not to be used: there is no image, a value did not convert (null
            stands there), a key or NOT NULL column is null, a column that the table lacks has a
            value, or the placeholder may be in it.
        unavailable: by column index the mask of values that the source did not send; null stands
            in their place.
    """

    columns: list[pa.Array]
    refused: _Mask
    unavailable: dict[int, _Mask]


def convert_columns(
    plan: RowPlan, rows: RowColumns, placeholder: Placeholder, toast: Toast
) -> TargetColumns:
    """The target's columns.

    Args:
        plan: of the rows' shape.
        rows: row images.
        placeholder: of unavailable values.
        toast: what is to become of it; `FAIL` refuses the row.
    """
    found = TargetColumns([], ~rows.present, {})
    for index, column in enumerate(plan.columns):
        source = rows.arrays.get(column.member)
        if source is None or column.codec is None:
            array = pa.nulls(len(found.refused), _arrow_type(plan, column))
            if source is not None:
                found.refused[_valid(source)] = True
        else:
            tree = rows.fields[column.member]
            array = _converted(column.codec, tree, source, found.refused)
            kept = toast if column.type.nullable else Toast.FAIL
            array = _without_suspects(column.codec, array, placeholder, kept, index, found)
        found.columns.append(array)
        if not column.type.nullable and array.null_count:
            found.refused[~_valid(array)] = True
    for name in plan.null_only:
        if name in rows.arrays:
            found.refused[_valid(rows.arrays[name])] = True
    return found


def _arrow_type(plan: RowPlan, column: PlanColumn) -> pa.DataType:
    if plan.target.schema is None:
        raise InternalError("rows of a table that does not exist")
    return plan.target.schema.arrow_schema.field(column.name).type


def _valid(array: pa.Array) -> _Mask:
    mask: _Mask = array.is_valid().to_numpy(zero_copy_only=False)
    return mask


def _without_suspects(
    codec: Codec,
    array: pa.Array,
    placeholder: Placeholder,
    toast: Toast,
    index: int,
    found: TargetColumns,
) -> pa.Array:
    """The column with null for values that the source did not send; doubtful ones are refused."""
    suspects = placeholder.suspects(codec, array)
    if suspects is None:
        return array
    doubtful = suspects.to_numpy(zero_copy_only=False)
    if toast is not Toast.FAIL:
        exact = placeholder.exact(codec, array, suspects)
        absent = exact.to_numpy(zero_copy_only=False)
        if absent.any():
            array = pc.if_else(exact, pa.scalar(None, array.type), array)
            found.unavailable[index] = absent
            doubtful = doubtful & ~absent
    found.refused[doubtful] = True
    return array


def _converted(codec: Codec, tree: object, array: pa.Array, refused: _Mask) -> pa.Array:
    def attempt(low: int, high: int) -> None:
        piece = array.take(pa.array(np.arange(low, high)))  # no offset, which a slice would have
        convert_array(codec, tree, piece)

    try:
        return convert_array(codec, tree, array)
    except CONVERSION_ERRORS:
        bad = failing_positions(attempt, len(array), CONVERSION_ERRORS)
    refused[bad] = True
    where = np.arange(len(array))
    absent = np.zeros(len(array), np.bool_)
    absent[bad] = True
    return convert_array(codec, tree, array.take(pa.array(where, mask=absent)))


def key_changes(plan: RowPlan, events: EventColumns) -> _Mask:
    """Events whose `before` has another key than `after`, or none where the target needs it.

    May name too many, never too few.
    """
    before = events.before
    changed = np.zeros(len(events.ops), np.bool_)
    required = bool(plan.target.needs_before)
    if before is None or not before.present.any():
        return changed | required
    known = before.present.copy()
    for name in plan.key_names:
        old, new = before.arrays.get(name), events.after.arrays.get(name)
        if old is None or new is None:  # a key column that the events do not have
            return changed | required
        known &= _valid(old)
        if pa.types.is_nested(old.type):
            changed |= True
        else:
            differs = pc.not_equal(old, new).fill_null(True)
            changed |= differs.to_numpy(zero_copy_only=False)
    return changed & known | (~known & required)
