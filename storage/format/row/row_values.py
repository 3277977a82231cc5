# SPDX-License-Identifier: Apache-2.0
"""Between Arrow columns and the Python values of `row_codec`.

Control plane only: for partition values, keys and statistics, and for the rare nested key column,
which is encoded row by row. Costs microseconds a value.
"""

from collections.abc import Sequence

import pyarrow as pa

from storage.format.row.row_codec import RowValue, Timestamp
from storage.format.types.arrow_types import arrow_type, normalize
from storage.format.types.types import (
    ArrayType,
    AtomicType,
    DataType,
    MapType,
    MultisetType,
    RowType,
    TypeRoot,
)

_TIMESTAMPS = (TypeRoot.TIMESTAMP, TypeRoot.TIMESTAMP_LTZ)
_UNITS_PER_MILLI = {"ms": 1, "us": 1_000, "ns": 1_000_000}
_NANOS_PER_MILLI = 1_000_000


def to_row_values(column: pa.Array | pa.ChunkedArray, type_: DataType) -> list[RowValue]:
    """Python values of a column, one per row, in the form of `row_codec`."""
    return _values(normalize(column, type_), type_)


def from_row_values(values: Sequence[RowValue], type_: DataType) -> pa.Array:
    """A column of `arrow_type(type_)` from Python values in the form of `row_codec`."""
    target = arrow_type(type_)
    match type_:
        case AtomicType(root=root) if root in _TIMESTAMPS:
            return _timestamps(values, target)
        case AtomicType(root=TypeRoot.DATE | TypeRoot.TIME):
            return pa.array(values, pa.int32()).cast(target)
        case AtomicType():
            return pa.array(values, target)
        case ArrayType(element=element):
            return _lists(values, element, target)
        case MapType(key=key, value=value):
            return _maps(values, key, value, target)
        case MultisetType(element=element):
            return _maps(values, element, AtomicType(TypeRoot.INT, nullable=False), target)
        case RowType(fields=fields):
            columns = [
                from_row_values([None if row is None else row[i] for row in values], field.type)
                for i, field in enumerate(fields)
            ]
            absent = pa.array([row is None for row in values], pa.bool_())
            return pa.StructArray.from_arrays(columns, fields=list(target), mask=absent)


def _values(column: pa.Array, type_: DataType) -> list[RowValue]:
    match type_:
        case AtomicType():
            return _atomic_values(column, type_)
        case ArrayType(element=element):
            inner = _values(column.values, element)
            return _split_lists(column, inner)
        case MapType(key=key, value=value):
            return _split_lists(column, _pairs(column, key, value))
        case MultisetType(element=element):
            count = AtomicType(TypeRoot.INT, nullable=False)
            return _split_lists(column, _pairs(column, element, count))
        case RowType(fields=fields):
            parts = [
                _values(part, field.type)
                for part, field in zip(column.flatten(), fields, strict=True)
            ]
            rows = list(zip(*parts, strict=True))
            return [
                row if valid else None
                for row, valid in zip(rows, column.is_valid().to_pylist(), strict=True)
            ]


def _pairs(column: pa.MapArray, key: DataType, value: DataType) -> list[tuple[RowValue, RowValue]]:
    keys, items = _values(column.keys, key), _values(column.items, value)
    return list(zip(keys, items, strict=True))


def _split_lists(column: pa.Array, inner: list[RowValue]) -> list[RowValue]:
    offsets = column.offsets.to_pylist()
    valid = column.is_valid().to_pylist()
    return [inner[offsets[i] : offsets[i + 1]] if valid[i] else None for i in range(len(column))]


def _atomic_values(column: pa.Array, type_: AtomicType) -> list[RowValue]:
    if type_.root in _TIMESTAMPS:
        units = _UNITS_PER_MILLI[column.type.unit]
        return [
            None
            if raw is None
            else Timestamp(raw // units, raw % units * (_NANOS_PER_MILLI // units))
            for raw in column.view(pa.int64()).to_pylist()
        ]
    if type_.root in (TypeRoot.DATE, TypeRoot.TIME):
        return list(column.view(pa.int32()).to_pylist())
    return list(column.to_pylist())


def _timestamps(values: Sequence[RowValue], target_type: pa.DataType) -> pa.Array:
    units = _UNITS_PER_MILLI[target_type.unit]
    raw = [
        None
        if value is None
        else value.millis * units + value.nanos_of_milli // (_NANOS_PER_MILLI // units)
        for value in values
    ]
    return pa.array(raw, pa.int64()).cast(target_type)


def _offsets(values: Sequence[RowValue]) -> pa.Array:
    # A null offset marks a null row; the running end carries over it.
    offsets: list[int | None] = []
    end = 0
    for value in values:
        offsets.append(None if value is None else end)
        end += 0 if value is None else len(value)
    return pa.array([*offsets, end], pa.int32())


def _lists(values: Sequence[RowValue], element: DataType, target_type: pa.DataType) -> pa.Array:
    inner = from_row_values([item for value in values if value for item in value], element)
    return pa.ListArray.from_arrays(_offsets(values), inner, type=target_type)


def _maps(
    values: Sequence[RowValue], key: DataType, value: DataType, target_type: pa.DataType
) -> pa.Array:
    pairs = [pair for entries in values if entries for pair in entries]
    keys = from_row_values([pair[0] for pair in pairs], key)
    items = from_row_values([pair[1] for pair in pairs], value)
    return pa.MapArray.from_arrays(_offsets(values), keys, items, type=target_type)
